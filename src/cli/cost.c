/* cost: `weft plan --cost`: what bounds a load on a device, and how many tokens per second are possible. */
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

/* With the ratios of the paper's table 1. */
static void print_device(const struct weft_cost *c, FILE *f)
{
    double one = c->n_devices;
    print_known(f, "  memory", c->memory / one / 1e9, 4, " GB");
    print_known(f, "read", c->read / one / 1e9, 5, " GB/s");
    print_known(f, "network one way", c->network / one / 1e9, 4, " GB/s");
    fprintf(f, "compute %.4g TFLOP/s for %s%s\n  ", c->compute / one / 1e12, c->format,
            c->n_devices > 1 ? " (each device)" : "");
    print_known(f, "network / read", c->network / c->read, 3, "");
    fprintf(f, "memory / read %.4f s, compute / read %.0f flop a byte\n", c->memory / c->read, c->compute / c->read);
    print_energy(c, f);
}

static void print_load(const struct weft_cost *c, FILE *f)
{
    fprintf(f, "requests of %.0f tokens in, %.0f out\n", c->input_len, c->output_len);
    fprintf(f, "  KV cache %.0f bytes a token, %.0f tokens of a decoding sequence on average\n", c->kv_bytes_per_token,
            c->keys);
    fprintf(f, "  largest dense batch that memory holds: %.0f tokens, %.0f of them decodes\n", c->most_tokens,
            c->most_decodes);
    double tokens = c->decodes + c->prefill;
    fprintf(f, "  this step: %.0f tokens, %.0f of them decodes%s\n", tokens, c->decodes,
            c->decodes > c->most_decodes * 1.000001 ? ", more than memory holds" : "");
}

static void print_equations(const struct weft_cost *c, FILE *f)
{
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

static void print_ops(const struct weft_cost *c, FILE *f)
{
    fprintf(f, "ops, all layers together\n  %-18s %11s %9s %9s %9s %9s %9s %9s  %s\n", "", "Gflop", "GB", "net GB",
            "compute", "memory", "network", "energy ms", "bound by");
    for (size_t i = 0; i < c->n_ops; i++) print_row(&c->ops[i], f);
    print_row(&c->total, f);
}

static void print_rate(const struct weft_cost *c, double seconds, double rate, FILE *f)
{
    fprintf(f, "%.3f ms a step, %.0f tokens/s", seconds * 1e3, rate);
    if (c->n_devices > 1) fprintf(f, ", %.0f a device", rate / c->n_devices);
}

static void print_bounds(const struct weft_cost *c, FILE *f)
{
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

static void print_cost(const struct weft_cost *c, const char *label, FILE *f)
{
    fprintf(f, "%s: %.4g parameters for a token, %.4g GB of weights, on %u x %s (%s)\n", label, c->params,
            c->weight_bytes / 1e9, c->n_devices, c->device, c->given ? "constants of the table" : "measured");
    print_device(c, f);
    print_load(c, f);
    print_equations(c, f);
    print_ops(c, f);
    print_bounds(c, f);
}

/* ---- for programs --------------------------------------------------------------------------------------------- */

/* Bytes, operations and seconds; 0: none, or unknown. The last op is the total. */
static void print_json_ops(const struct weft_cost *c)
{
    static const wf_column columns[] = {{"name", .kind = WF_TEXT},
                                        {"flops"},
                                        {"bytes"},
                                        {"network_bytes"},
                                        {"compute_s"},
                                        {"memory_s"},
                                        {"network_s"},
                                        {"energy_s"},
                                        {"alone_s"},
                                        {"bound", .kind = WF_TEXT}};
    wf_rows rows = WF_ROWS("json", columns);
    for (size_t i = 0; i <= c->n_ops; i++) {
        const struct weft_cost_op *r = i < c->n_ops ? &c->ops[i] : &c->total;
        const double *s = r->seconds;
        const wf_cell cells[] = {{r->name},
                                 {.number = r->flops},
                                 {.number = r->bytes},
                                 {.number = r->network_bytes},
                                 {.number = s[WEFT_LIMIT_COMPUTE]},
                                 {.number = s[WEFT_LIMIT_MEMORY]},
                                 {.number = s[WEFT_LIMIT_NETWORK]},
                                 {.number = s[WEFT_LIMIT_ENERGY]},
                                 {.number = r->alone},
                                 {weft_limit_name(r->bound)}};
        wf_rows_add(&rows, cells);
    }
    wf_rows_end(&rows);
}

static void print_json(const struct weft_cost *c, const char *label)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"n_devices", c->n_devices},
        {"memory_bytes", c->memory},
        {"read_bytes_s", c->read},
        {"network_bytes_s", c->network},
        {"compute_flop_s", c->compute},
        {"flop_joules", c->flop_energy},
        {"byte_joules", c->byte_energy},
        {"static_watts", c->static_power},
        {"limit_watts", c->power_limit},
        {"params", c->params},
        {"weight_bytes", c->weight_bytes},
        {"kv_bytes_per_token", c->kv_bytes_per_token},
        {"keys", c->keys},
        {"input_len", c->input_len},
        {"output_len", c->output_len},
        {"most_tokens", c->most_tokens},
        {"most_decodes", c->most_decodes},
        {"decodes", c->decodes},
        {"prefill", c->prefill},
        {"t_mem_s", c->t_mem},
        {"t_compute_s", c->t_compute},
        {"t_net_s", c->t_net},
        {"eq5_tokens_s", c->eq5},
        {"optimum_tokens_s", c->optimum},
        {"sequential_tokens_s", c->sequential},
    };
    puts("{");
    wf_field_text("build_commit", wf_commit());
    wf_field_text("device_name", c->device);
    wf_field_text("model_type", label);
    wf_field_text("format", c->format);
    wf_field_text("bound", weft_limit_name(c->total.bound));
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_field_number(numbers[i].key, numbers[i].value);
    printf("    \"ops\": ");
    print_json_ops(c);
    puts("}");
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static struct weft_cost_params params_of(const wf_opts *o, const struct weft_model *m, double in, double out,
                                         wf_progress *bar)
{
    struct weft_cost_params p = o->costs;
    p.model = m;
    p.device = o->engine.device, p.tier = o->engine.tier, p.threads = o->engine.threads,
    p.f16_residual = o->engine.f16_residual;
    p.input_len = in, p.output_len = out;
    p.tokens = o->explain.tokens, p.decodes = o->explain.decodes;
    p.on_progress = wf_on_progress, p.user = o->quiet ? NULL : bar;
    return p;
}

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
    struct weft_cost_params p = params_of(o, m, in, out, &bar);
    struct weft_cost *c = NULL;
    weft_status s = weft_cost(&p, &c);
    wf_progress_end(&bar);
    wf_model_label(m, label, sizeof label);
    if (!s && o->json) print_json(c, label);
    else if (!s) print_cost(c, label, stdout);
    weft_cost_free(c);
    return s ? wf_say_error(s) : 0;
}
