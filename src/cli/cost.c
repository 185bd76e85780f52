/* cost: `weft plan --cost`: what bounds a load on a device, and how many tokens per second are possible. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/rows.h"

#include <string.h>

/* ---- numbers ---------------------------------------------------------------------------------------------- */

/* A number in a column, "-" where there is none. */
static void print_cell(FILE *f, int width, int digits, double v)
{
    if (v > 0) fprintf(f, " %*.*f", width, digits, v);
    else fprintf(f, " %*s", width, "-");
}

static void print_known(FILE *f, const char *before, double v, int digits, const char *unit)
{
    if (v > 0) fprintf(f, "%s %.*g%s, ", before, digits, v, unit);
    else fprintf(f, "%s unknown, ", before);
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

/* Of the present device it is measured with a model. */
static void print_energy(const struct weft_cost *c, FILE *f)
{
    double one = c->n_devices;
    if (c->flop_energy > 0)
        fprintf(f, "  %.3g pJ a flop, %.3g pJ a byte, %.0f W static", c->flop_energy * 1e12, c->byte_energy * 1e12,
                c->static_power / one);
    if (c->flop_energy > 0 && c->power_limit > 0)
        fprintf(f, " of a limit of %.0f W%s\n", c->power_limit / one, c->n_devices > 1 ? " (each device)" : "");
    else if (c->flop_energy > 0) fputs("; its limit is unknown\n", f);
    else
        fprintf(f, "  energy unknown: nothing is said of it%s\n",
                c->given ? "" : "; `weft tune --overlap` measures it where power can be read");
}

static void print_row(const struct weft_cost_op *r, FILE *f)
{
    fprintf(f, "  %-18s", r->name);
    print_cell(f, 11, 1, r->flops / 1e9);
    print_cell(f, 9, 2, r->bytes / 1e9);
    print_cell(f, 9, 2, r->network_bytes / 1e9);
    for (int i = 0; i < WEFT_N_LIMITS; i++) print_cell(f, 9, 3, r->seconds[i] * 1e3);
    fprintf(f, "  %s\n", weft_limit_name(r->bound));
}

static void print_rate(const struct weft_cost *c, double seconds, double rate, FILE *f)
{
    fprintf(f, "%.3f ms a step, %.0f tokens/s", seconds * 1e3, rate);
    if (c->n_devices > 1) fprintf(f, ", %.0f a device", rate / c->n_devices);
}

static void print_cost(const struct weft_cost *c, const char *label, FILE *f)
{
    fprintf(f, "%s: %.4g parameters for a token, %.4g GB of weights, on %u x %s (%s)\n", label, c->params,
            c->weight_bytes / 1e9, c->n_devices, c->device, c->given ? "constants of the table" : "measured");
    /* With the ratios of the paper's table 1. */
    double one = c->n_devices;
    print_known(f, "  memory", c->memory / one / 1e9, 4, " GB");
    print_known(f, "read", c->read / one / 1e9, 5, " GB/s");
    print_known(f, "network one way", c->network / one / 1e9, 4, " GB/s");
    fprintf(f, "compute %.4g TFLOP/s for %s%s\n  ", c->compute / one / 1e12, c->format,
            c->n_devices > 1 ? " (each device)" : "");
    print_known(f, "network / read", c->network / c->read, 3, "");
    fprintf(f, "memory / read %.4f s, compute / read %.0f flop a byte\n", c->memory / c->read, c->compute / c->read);
    print_energy(c, f);
    fprintf(f, "requests of %.0f tokens in, %.0f out\n", c->input_len, c->output_len);
    fprintf(f, "  KV cache %.0f bytes a token, %.0f tokens of a decoding sequence on average\n", c->kv_bytes_per_token,
            c->keys);
    fprintf(f, "  largest dense batch that memory holds: %.0f tokens, %.0f of them decodes\n", c->most_tokens,
            c->most_decodes);
    double tokens = c->decodes + c->prefill;
    fprintf(f, "  this step: %.0f tokens, %.0f of them decodes%s\n", tokens, c->decodes,
            c->decodes > c->most_decodes * 1.000001 ? ", more than memory holds" : "");
    fputs("equations of the paper\n", f);
    fprintf(f, "  1  T_mem      %10.3f ms   memory / read\n", c->t_mem * 1e3);
    fprintf(f, "  2  T_compute  %10.3f ms   2 x tokens x parameters / compute\n", c->t_compute * 1e3);
    if (c->t_net > 0)
        fprintf(f, "  3  T_net      %10.3f ms   4 x devices x tokens x width x bytes x layers / network\n",
                c->t_net * 1e3);
    else fprintf(f, "  3  T_net      %10s      %s\n", "-", c->n_devices > 1 ? "the network is unknown" : "one device");
    fprintf(f, "  4  T_R        %10.3f      T_mem / T_compute: by these, %s is the bottleneck\n", c->t_r,
            c->t_r > 1 ? "memory" : "compute");
    fprintf(f, "  5  optimum    %10.0f tokens/s", c->eq5);
    if (c->n_devices > 1) fprintf(f, ", %.0f a device", c->eq5 / c->n_devices);
    fputs(": compute / (2 x parameters)\n", f);
    fprintf(f, "ops, all layers together\n  %-18s %11s %9s %9s %9s %9s %9s %9s  %s\n", "", "Gflop", "GB", "net GB",
            "compute", "memory", "network", "energy ms", "bound by");
    for (size_t i = 0; i < c->n_ops; i++) print_row(&c->ops[i], f);
    print_row(&c->total, f);
    fprintf(f, "bound by %s: at best ", weft_limit_name(c->total.bound));
    print_rate(c, c->total.seconds[c->total.bound], c->optimum, f);
    fputs("\none op after another: ", f);
    print_rate(c, c->total.alone, c->sequential, f);
    fprintf(f, "; overlap gains at most %.2f x\n", c->optimum / c->sequential);
    double joules = c->total.seconds[WEFT_LIMIT_ENERGY];
    if (joules > 0)
        fprintf(f, "at the power limit, by what ops draw one by one, about %.3f ms a step; steps may take less\n",
                joules * 1e3);
}

/* ---- for programs --------------------------------------------------------------------------------------------- */

/* Bytes, operations and seconds; 0: none, or unknown. The last op is the total. */
static int print_json(const struct weft_cost *c, const char *label)
{
    wf_text o = {0};
    wf_json_print(&o, "{'build_commit': %s, 'device_name': %s, 'model_type': %s, 'format': %s, 'bound': %s,\n",
                  wf_commit(), c->device, label, c->format, weft_limit_name(c->total.bound));
    wf_json_print(&o,
                  "'n_devices': %u, 'memory_bytes': %g, 'read_bytes_s': %g, 'network_bytes_s': %g, 'compute_flop_s': "
                  "%g,\n'flop_joules': %g, 'byte_joules': %g, 'static_watts': %g, 'limit_watts': %g,\n",
                  c->n_devices, c->memory, c->read, c->network, c->compute, c->flop_energy, c->byte_energy,
                  c->static_power, c->power_limit);
    wf_json_print(&o,
                  "'params': %g, 'weight_bytes': %g, 'kv_bytes_per_token': %g, 'keys': %g, 'input_len': %g, "
                  "'output_len': %g,\n'most_tokens': %g, 'most_decodes': %g, 'decodes': %g, 'prefill': %g,\n",
                  c->params, c->weight_bytes, c->kv_bytes_per_token, c->keys, c->input_len,
                  c->output_len, c->most_tokens, c->most_decodes, c->decodes, c->prefill);
    wf_json_print(&o,
                  "'t_mem_s': %g, 't_compute_s': %g, 't_net_s': %g, 'eq5_tokens_s': %g, 'optimum_tokens_s': %g, "
                  "'sequential_tokens_s': %g,\n'ops': [",
                  c->t_mem, c->t_compute, c->t_net, c->eq5, c->optimum, c->sequential);
    for (size_t i = 0; i <= c->n_ops; i++) {
        const struct weft_cost_op *r = i < c->n_ops ? &c->ops[i] : &c->total;
        const double *s = r->seconds;
        wf_json_comma(&o);
        wf_json_print(&o,
                      "\n  {'name': %s, 'flops': %g, 'bytes': %g, 'network_bytes': %g, 'compute_s': %g, 'memory_s': "
                      "%g, 'network_s': %g, 'energy_s': %g, 'alone_s': %g, 'bound': %s}",
                      r->name, r->flops, r->bytes, r->network_bytes, s[WEFT_LIMIT_COMPUTE], s[WEFT_LIMIT_MEMORY],
                      s[WEFT_LIMIT_NETWORK], s[WEFT_LIMIT_ENERGY], r->alone, weft_limit_name(r->bound));
    }
    wf_json_print(&o, "]}");
    return wf_print_json(&o);
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

int wf_plan_cost(const wf_opts *o, const struct weft_model *m)
{
    wf_progress bar = {0};
    char label[96];
    unsigned in = 0, out = 0; /* as usual */
    int len = 0;
    const char *lengths = o->load.lengths;
    if (lengths &&
        (sscanf(lengths, "%8u:%8u%n", &in, &out, &len) != 2 || lengths[len] || !in || !out || strpbrk(lengths, "+- ")))
        return wf_usage(o->command, "--const: expected INPUT:OUTPUT tokens such as 512:1024, got '%s'", lengths);
    struct weft_cost_params p = o->costs;
    p.model = m;
    p.device = o->engine.device, p.tier = o->engine.tier, p.threads = o->engine.threads,
    p.f16_residual = o->engine.f16_residual, p.kv_dtype = o->engine.kv_dtype;
    p.input_len = in, p.output_len = out;
    p.tokens = o->explain.tokens, p.decodes = o->explain.decodes;
    p.on_progress = wf_on_progress, p.user = o->quiet ? NULL : &bar;
    struct weft_cost *c = NULL;
    weft_status s = weft_cost(&p, &c);
    wf_progress_end(&bar);
    wf_model_label(m, label, sizeof label);
    int rc = s ? wf_say_error(s) : 0;
    if (!s && o->json) rc = print_json(c, label);
    else if (!s) print_cost(c, label, stdout);
    weft_cost_free(c);
    return rc;
}
