/* cost: `weft plan --cost`: the graph of a model, the constants of a machine, a load, and what follows from them. The arithmetic is in
 * plan/step_cost.c. */
#include "engine/engine.h"
#include "plan/step_cost.h"
#include "select/select.h"
#include "tune/measure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_LEN  512.0
#define OUTPUT_LEN 1024.0

typedef struct costing {
    const struct weft_cost_params *p;
    wf_dev *dev; /* NULL: constants come from a table */
    wf_machine m;
    wf_graph g;
    wf_weights w;
    wf_mix mix;
    wf_load load;
    double window, most_decodes;
    enum wf_dtype format;
    wf_build_params build;
} costing;

const char *weft_limit_name(enum weft_limit l)
{
    _Static_assert((int)WEFT_N_LIMITS == (int)WF_N_LIMITS && (int)WEFT_LIMIT_ENERGY == (int)WF_LIMIT_ENERGY, "the same limits inside and outside");
    return l >= 0 && l < WEFT_N_LIMITS ? wf_limit_names[l] : "unknown";
}

/* ---- constants of the present device ----------------------------------------------------------------------------- */

static weft_status read_device(costing *c)
{
    const struct weft_cost_params *p = c->p;
    c->build = wf_build_params_of(c->dev, 0, 0);
    WF_TRY(wf_device_machine(c->dev, &(wf_rates_params){p->threads, p->measure, p->on_progress, p->user}, &c->m));
    if (wf_machine_has_rates(&c->m) && c->m.memory > 0) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s tells neither its memory nor its rates: take a device of the table (weft_cost_params.on)", c->dev->info.id);
}

static weft_status open_device(costing *c)
{
    const struct weft_cost_params *p = c->p;
    wf_open_params o = {.threads = p->threads, .on_progress = p->on_progress, .user = p->user};
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &c->dev));
    return read_device(c);
}

static weft_status build_graph(const costing *c, wf_graph *g, wf_weights *w)
{
    const struct weft_model *m = c->p->model;
    wf_build_params p = c->build;
    p.context = (uint32_t)(c->mix.in + c->mix.out), p.page_tokens = 16;
    return wf_model_build(m->arch, m->file, &m->hp, &p, g, w);
}

/* Of the graph that an engine has, with what it samples by, which the cost leaves out. */
static weft_status find_profile(const costing *c, char *path, size_t cap)
{
    wf_graph g = {0};
    wf_weights w = {0};
    weft_status s = build_graph(c, &g, &w);
    if (!s) s = wf_graph_end(&g);
    if (!s) s = wf_stored_path(c->dev, &g, "profile", path, cap);
    wf_graph_free(&g);
    wf_weights_free(&w);
    return s;
}

/* Energy is known where `weft tune --overlap` could read it as it measured this model. A profile that cannot be read costs only that. */
static void find_energy(costing *c)
{
    char path[600];
    wf_op_profile p;
    if (!c->dev || find_profile(c, path, sizeof path) || access(path, F_OK)) return;
    bool known = !wf_op_profile_load(path, &p) && p.energy.flop > 0 && p.energy.byte > 0;
    if (known) c->m.flop_energy = p.energy.flop, c->m.byte_energy = p.energy.byte, c->m.static_power = p.energy.static_power, c->m.power_limit = p.energy.power_limit;
    wf_op_profile_free(&p);
}

/* ---- the model and its load ---------------------------------------------------------------------------------------- */

static weft_status find_machine(costing *c)
{
    c->build = wf_build_params_of(NULL, 0, 0);
    return c->p->on ? wf_machine_find(c->p->devices, c->p->on, &c->m) : open_device(c);
}

/* As engines do, it takes more than a model was trained for, unless the model cannot. */
static weft_status check_lengths(const costing *c)
{
    const struct weft_model *m = c->p->model;
    double longest = c->mix.in + c->mix.out;
    weft_status s = wf_engine_check_context(m, (uint32_t)WF_MIN(longest, (double)UINT32_MAX));
    if (s) return wf_fail_context(s, "requests of %.0f tokens in and %.0f out", c->mix.in, c->mix.out);
    if (longest > m->hp.context) wf_log(WEFT_LOG_WARN, "requests of %.0f tokens are longer than the %u tokens that %s was trained for", longest, m->hp.context, m->info.path);
    return WEFT_OK;
}

/* With windows only where requests are longer than these. */
static weft_status build(costing *c)
{
    const struct weft_model *model = c->p->model;
    if (!model->arch) return wf_fail(WEFT_ERR_ARG, "%s contains only a vocabulary", model->info.path);
    WF_TRY(check_lengths(c));
    c->window = model->hp.window;
    return build_graph(c, &c->g, &c->w);
}

/* The format of the largest part of what is multiplied. */
static void find_format(costing *c)
{
    double elements[WF_N_DTYPES] = {0};
    for (size_t i = 0; i < c->g.n_nodes; i++) {
        const wf_node *n = &c->g.nodes[i];
        int32_t v = n->op == WF_OP_GEMM ? n->in[WF_GEMM_W].value : n->op == WF_OP_GROUPED_GEMM ? n->in[WF_GROUPED_GEMM_W].value : -1;
        if (v >= 0) elements[c->g.values[v].dtype] += (double)c->g.values[v].weight_rows * c->g.values[v].cols;
    }
    for (int i = 0; i < WF_N_DTYPES; i++)
        if (elements[i] > elements[c->format]) c->format = (enum wf_dtype)i;
}

static weft_status find_load(costing *c)
{
    const struct weft_cost_params *p = c->p;
    double weights = (double)p->model->info.weight_bytes, share = c->mix.out / (c->mix.in + c->mix.out);
    c->most_decodes = wf_most_decodes(&c->g, &c->m, &c->mix, weights, c->window);
    if (c->most_decodes < 1)
        return wf_fail(WEFT_ERR_ARG, "%.1f GB of memory do not hold %.1f GB of weights and one sequence of %.0f tokens: take more devices "
                       "(weft_cost_params.n_devices)",
                       c->m.memory / 1e9, weights / 1e9, c->mix.in + c->mix.out / 2);
    if (p->decodes > p->tokens) return wf_fail(WEFT_ERR_ARG, "%u decodes do not fit a step of %u tokens", p->decodes, p->tokens);
    double tokens = p->tokens ? p->tokens : c->most_decodes / share, decodes = p->decodes ? p->decodes : tokens * share;
    c->load = wf_load_steady(&c->mix, decodes, c->window);
    c->load.prefill = tokens - decodes;
    c->load.logits = decodes + c->load.prefill / c->mix.in;
    return WEFT_OK;
}

/* ---- results ------------------------------------------------------------------------------------------------------------ */

static struct weft_cost_op row_of(const wf_op_cost *c)
{
    struct weft_cost_op r = {.flops = c->flops, .bytes = c->bytes, .network_bytes = c->network, .alone = c->alone, .bound = (enum weft_limit)wf_limit_of(c)};
    wf_copy(r.name, sizeof r.name, c->name);
    memcpy(r.seconds, c->seconds, sizeof r.seconds);
    return r;
}

static void put_machine(const costing *c, struct weft_cost *out)
{
    wf_copy(out->device, sizeof out->device, c->m.name);
    out->n_devices = c->m.n_devices, out->given = c->p->on != NULL;
    out->memory = c->m.memory, out->read = c->m.read, out->network = c->m.network;
    out->compute = wf_machine_rate(&c->m, c->format);
    out->flop_energy = c->m.flop_energy, out->byte_energy = c->m.byte_energy;
    out->static_power = c->m.static_power, out->power_limit = c->m.power_limit;
}

static void put_load(const costing *c, struct weft_cost *out)
{
    const struct weft_model_info *i = &c->p->model->info;
    out->format = wf_dtypes[c->format].name;
    out->params = (double)i->n_active, out->weight_bytes = (double)i->weight_bytes;
    out->input_len = c->mix.in, out->output_len = c->mix.out;
    out->kv_bytes_per_token = wf_kv_bytes(&c->g, 1, 0), out->keys = c->load.decode_keys;
    out->most_decodes = c->most_decodes, out->most_tokens = c->most_decodes * (c->mix.in + c->mix.out) / c->mix.out;
    out->decodes = c->load.decodes, out->prefill = c->load.prefill;
}

static void put_equations(const costing *c, struct weft_cost *out)
{
    wf_model_size size = {out->params, wf_graph_width(&c->g), c->g.n_layers, (double)wf_dtype_bytes(c->build.act, 1), out->compute};
    wf_equations e = wf_equations_of(&size, &c->m, wf_load_tokens(&c->load));
    out->t_mem = e.memory, out->t_compute = e.compute, out->t_net = e.network, out->t_r = e.ratio, out->eq5 = e.optimum;
}

static weft_status put_ops(const costing *c, struct weft_cost *out)
{
    wf_step_cost s;
    WF_TRY(wf_step_cost_make(&c->g, &c->load, &c->m, &s));
    out->ops = wf_calloc(s.n, sizeof *out->ops);
    for (; out->ops && out->n_ops < s.n; out->n_ops++) out->ops[out->n_ops] = row_of(&s.ops[out->n_ops]);
    out->total = row_of(&s.total);
    out->optimum = wf_load_tokens(&c->load) / out->total.seconds[out->total.bound];
    out->sequential = wf_load_tokens(&c->load) / out->total.alone;
    wf_step_cost_free(&s);
    return out->ops ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status make(costing *c, struct weft_cost *out)
{
    WF_TRY(find_machine(c));
    WF_TRY(build(c));
    find_energy(c);
    c->m = wf_machine_times(&c->m, c->p->n_devices ? c->p->n_devices : 1);
    find_format(c);
    WF_TRY(find_load(c));
    put_machine(c, out);
    put_load(c, out);
    put_equations(c, out);
    return put_ops(c, out);
}

/* Requests that are not given are shorter where the model's context is. */
static wf_mix mix_of(const struct weft_cost_params *p)
{
    double context = p->model->info.context, fits = context > 0 ? WF_MIN(1, context / (INPUT_LEN + OUTPUT_LEN)) : 1;
    return (wf_mix){p->input_len > 0 ? p->input_len : fits * INPUT_LEN, p->output_len > 0 ? p->output_len : fits * OUTPUT_LEN};
}

static weft_status check_params(const struct weft_cost_params *p)
{
    WF_TRY(WF_UNUSED(p));
    if (p->devices && !p->on) return wf_fail(WEFT_ERR_ARG, "a table of devices needs the name of one of them");
    if (!(p->input_len >= 0 && p->input_len <= UINT32_MAX)) return wf_fail(WEFT_ERR_ARG, "input_len %g: want the tokens of a request, or 0", p->input_len);
    if (!(p->output_len >= 0 && p->output_len <= UINT32_MAX)) return wf_fail(WEFT_ERR_ARG, "output_len %g: want the tokens of an answer, or 0", p->output_len);
    return WEFT_OK;
}

weft_status weft_cost(const struct weft_cost_params *p, struct weft_cost **out)
{
    WF_NOT_NULL(out);
    *out = NULL;
    WF_NOT_NULL(p);
    WF_NOT_NULL(p->model);
    WF_TRY(check_params(p));
    costing c = {.p = p, .mix = mix_of(p)};
    struct weft_cost *r = wf_calloc(1, sizeof *r);
    weft_status s = r ? make(&c, r) : WEFT_ERR_NOMEM;
    wf_graph_free(&c.g);
    wf_weights_free(&c.w);
    if (c.dev) wf_dev_close(c.dev);
    if (s) return weft_cost_free(r), s;
    *out = r;
    return WEFT_OK;
}

void weft_cost_free(struct weft_cost *c)
{
    if (c) free(c->ops);
    free(c);
}
