/* cost: `weft plan --cost`: the graph of a model, the constants of a machine, a load, and what follows from them.
 * The arithmetic is in plan/step_cost.c. */
#include "engine/engine.h"
#include "kept/plans.h"
#include "lab/measure.h"
#include "plan/step_cost.h"
#include "select/select.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_LEN  512.0
#define OUTPUT_LEN 1024.0

typedef struct costing {
    const struct weft_cost_params *p;
    wf_dev *dev; /* NULL: constants come from a table */
    wf_machine m;
    wf_layout layout; /* graph and weights */
    wf_mix mix;
    wf_load load;
    double window, most_decodes;
    enum wf_dtype format;
} costing;

const char *weft_limit_name(enum weft_limit l)
{
    _Static_assert((int)WEFT_N_LIMITS == (int)WF_N_LIMITS && (int)WEFT_LIMIT_ENERGY == (int)WF_LIMIT_ENERGY,
                   "the same limits inside and outside");
    return l >= 0 && l < WEFT_N_LIMITS ? wf_limit_names[l] : "unknown";
}

/* ---- the machine --------------------------------------------------------------------------------------------- */

static weft_status find_machine(costing *c)
{
    const struct weft_cost_params *p = c->p;
    wf_open_params o = {.threads = p->threads, .f16_residual = p->f16_residual, .on_progress = p->on_progress,
                        .user = p->user};
    if (p->on) return wf_machine_find(p->devices, p->on, &c->m);
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &c->dev));
    WF_TRY(wf_device_machine(c->dev, &(wf_rates_params){p->threads, p->measure, p->on_progress, p->user}, &c->m));
    if (wf_machine_has_rates(&c->m) && c->m.memory > 0) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "%s tells neither its memory nor its rates: take a device of the table (weft_cost_params.on)",
                   c->dev->info.id);
}

/* The graph of an engine whose sequences are as long as these requests, with windows only where requests are longer
 * than these. */
static weft_status build_graph(const costing *c, wf_layout *l)
{
    const struct weft_cost_params *p = c->p;
    *l = (wf_layout){.model = p->model, .dev = c->dev, .params = {.f16_residual = p->f16_residual,
                     .kv_dtype = p->kv_dtype}, .context = (uint32_t)(c->mix.in + c->mix.out), .page_tokens = 16};
    return wf_layout_graph(l);
}

/* ---- the model and its load ---------------------------------------------------------------------------------- */

/* As engines do, it takes more than a model was trained for, unless the model cannot. */
static weft_status check_model(const costing *c)
{
    const struct weft_model *m = c->p->model;
    double longest = c->mix.in + c->mix.out;
    if (!m->arch) return wf_fail(WEFT_ERR_ARG, "%s contains only a vocabulary", m->info.path);
    WF_TRY(wf_layout_check_kv_dtype(m, c->p->kv_dtype));
    weft_status s = wf_layout_check_context(m, (uint32_t)WF_MIN(longest, (double)UINT32_MAX));
    if (s) return wf_fail_context(s, "requests of %.0f tokens in and %.0f out", c->mix.in, c->mix.out);
    if (longest > m->hp.context)
        wf_log(WEFT_LOG_WARN, "requests of %.0f tokens are longer than the %u tokens that %s was trained for", longest,
               m->hp.context, m->info.path);
    return WEFT_OK;
}

/* The format of the largest part of what is multiplied. */
static enum wf_dtype format_of(const wf_graph *g)
{
    double elements[WF_N_DTYPES] = {0};
    enum wf_dtype most = 0;
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        int32_t v = n->op == WF_OP_GEMM           ? n->in[WF_GEMM_W].value
                    : n->op == WF_OP_GROUPED_GEMM ? n->in[WF_GROUPED_GEMM_W].value
                                                  : -1;
        if (v >= 0) elements[g->values[v].dtype] += (double)g->values[v].weight_rows * g->values[v].cols;
    }
    for (int i = 0; i < WF_N_DTYPES; i++)
        if (elements[i] > elements[most]) most = (enum wf_dtype)i;
    return most;
}

static weft_status find_load(costing *c)
{
    const struct weft_cost_params *p = c->p;
    double weights = (double)p->model->info.weight_bytes, share = c->mix.out / (c->mix.in + c->mix.out);
    c->window = p->model->hp.window;
    c->most_decodes = wf_most_decodes(&c->layout.graph, &c->m, &c->mix, weights, c->window);
    if (c->most_decodes < 1)
        return wf_fail(
            WEFT_ERR_ARG,
            "%.1f GB of memory do not hold %.1f GB of weights and one sequence of %.0f tokens: take more devices "
            "(weft_cost_params.n_devices)",
            c->m.memory / 1e9, weights / 1e9, c->mix.in + c->mix.out / 2);
    if (p->decodes > p->tokens)
        return wf_fail(WEFT_ERR_ARG, "%u decodes do not fit a step of %u tokens", p->decodes, p->tokens);
    double tokens = p->tokens ? p->tokens : c->most_decodes / share, decodes = p->decodes ? p->decodes : tokens * share;
    c->load = wf_load_steady(&c->mix, decodes, c->window);
    c->load.prefill = tokens - decodes;
    c->load.logits = decodes + c->load.prefill / c->mix.in;
    return WEFT_OK;
}

/* ---- results ------------------------------------------------------------------------------------------------- */

static struct weft_cost_op row_of(const wf_op_cost *c)
{
    struct weft_cost_op r = {.flops = c->flops, .bytes = c->bytes, .network_bytes = c->network, .alone = c->alone,
                             .bound = (enum weft_limit)wf_limit_of(c)};
    wf_copy(r.name, sizeof r.name, c->name);
    memcpy(r.seconds, c->seconds, sizeof r.seconds);
    return r;
}

static weft_status fill_cost(const costing *c, struct weft_cost *out)
{
    const struct weft_model_info *i = &c->p->model->info;
    const wf_graph *g = &c->layout.graph;
    double tokens = wf_load_tokens(&c->load), act_bytes = (double)wf_dtype_bytes(wf_build_params_of(c->dev, 0, 0).act,
                                                                                 1);
    *out = (struct weft_cost){
        .n_devices = c->m.n_devices, .given = c->p->on != NULL, .memory = c->m.memory, .read = c->m.read,
            .network = c->m.network,
        .compute = wf_machine_rate(&c->m, c->format), .flop_energy = c->m.flop_energy, .byte_energy = c->m.byte_energy,
        .static_power = c->m.static_power, .power_limit = c->m.power_limit, .format = wf_dtypes[c->format].name,
        .params = (double)i->n_active, .weight_bytes = (double)i->weight_bytes, .input_len = c->mix.in,
            .output_len = c->mix.out,
        .kv_bytes_per_token = wf_kv_bytes(g, 1, 0), .keys = c->load.decode_keys, .most_decodes = c->most_decodes,
        .most_tokens = c->most_decodes * (c->mix.in + c->mix.out) / c->mix.out, .decodes = c->load.decodes,
            .prefill = c->load.prefill};
    wf_copy(out->device, sizeof out->device, c->m.name);
    wf_model_size size = {out->params, wf_graph_width(g), g->n_layers, act_bytes, out->compute};
    wf_equations e = wf_equations_of(&size, &c->m, tokens);
    out->t_mem = e.memory, out->t_compute = e.compute, out->t_net = e.network, out->t_r = e.ratio, out->eq5 = e.optimum;
    wf_step_cost s;
    WF_TRY(wf_step_cost_make(g, &c->load, &c->m, &s));
    out->ops = wf_calloc(s.n, sizeof *out->ops);
    for (; out->ops && out->n_ops < s.n; out->n_ops++) out->ops[out->n_ops] = row_of(&s.ops[out->n_ops]);
    out->total = row_of(&s.total);
    out->optimum = tokens / out->total.seconds[out->total.bound];
    out->sequential = tokens / out->total.alone;
    wf_step_cost_free(&s);
    return out->ops ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status make_cost(costing *c, struct weft_cost *out)
{
    WF_TRY(find_machine(c));
    WF_TRY(check_model(c));
    WF_TRY(build_graph(c, &c->layout));
    /* Energy is known where `weft tune --overlap` could read it as it measured this model, with what an engine
     * samples by. A profile that cannot be read costs only that. */
    char path[600];
    wf_op_profile p;
    wf_layout l = {0};
    bool found = c->dev && !build_graph(c, &l) && !wf_graph_end(&l.graph) &&
                 !wf_stored_path(c->dev, &l.graph, "profile", path, sizeof path);
    wf_layout_free(&l);
    if (found && !access(path, F_OK)) {
        if (!wf_op_profile_load(path, &p) && p.energy.flop > 0 && p.energy.byte > 0) {
            c->m.flop_energy = p.energy.flop, c->m.byte_energy = p.energy.byte;
            c->m.static_power = p.energy.static_power, c->m.power_limit = p.energy.power_limit;
        }
        wf_op_profile_free(&p);
    }
    c->m = wf_machine_times(&c->m, c->p->n_devices ? c->p->n_devices : 1);
    c->format = format_of(&c->layout.graph);
    WF_TRY(find_load(c));
    return fill_cost(c, out);
}

weft_status weft_cost(const struct weft_cost_params *p, struct weft_cost **out)
{
    *out = NULL;
    if (p->devices && !p->on) return wf_fail(WEFT_ERR_ARG, "a table of devices needs the name of one of them");
    if (!(p->input_len >= 0 && p->input_len <= UINT32_MAX))
        return wf_fail(WEFT_ERR_ARG, "input_len %g: want the tokens of a request, or 0", p->input_len);
    if (!(p->output_len >= 0 && p->output_len <= UINT32_MAX))
        return wf_fail(WEFT_ERR_ARG, "output_len %g: want the tokens of an answer, or 0", p->output_len);
    /* Requests that are not given are shorter where the model's context is. */
    double context = p->model->info.context, fits = context > 0 ? WF_MIN(1, context / (INPUT_LEN + OUTPUT_LEN)) : 1;
    costing c = {.p = p, .mix = {p->input_len > 0 ? p->input_len : fits * INPUT_LEN, p->output_len > 0 ? p->output_len
                                 : fits * OUTPUT_LEN}};
    struct weft_cost *r = wf_calloc(1, sizeof *r);
    weft_status s = r ? make_cost(&c, r) : WEFT_ERR_NOMEM;
    wf_layout_free(&c.layout);
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
