/* step_cost: see step_cost.h. */
#include "plan/step_cost.h"
#include "plan/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const wf_limit_names[WF_N_LIMITS] = {"compute", "memory", "network", "energy"};

/* ---- loads ------------------------------------------------------------------------------------------------- */

wf_load wf_load_steady(const wf_mix *m, double decodes, double window)
{
    double prefill = decodes * m->in / m->out;
    return (wf_load){decodes, m->in + m->out / 2, prefill, m->in / 2, decodes + prefill / m->in, window};
}

/* Decode and prefill attention read the same cache. */
static bool has_cache(const wf_node *n)
{
    return n->op == WF_OP_ATTENTION && n->rows == WF_ROWS_DECODE;
}

static bool is_local(const wf_node *n)
{
    return n->in[WF_ATTENTION_WINDOWS].value >= 0;
}

static bool all_local(const wf_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (has_cache(&g->nodes[i]) && !is_local(&g->nodes[i])) return false;
    return true;
}

double wf_kv_bytes(const wf_graph *g, double keys, double window)
{
    double bytes = 0, held = all_local(g) && window > 0 ? WF_MIN(keys, window) : keys;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const wf_node *n = &g->nodes[i];
        if (has_cache(n))
            bytes += 2 * held *
                     (double)wf_dtype_bytes(g->values[n->in[WF_ATTENTION_K_POOL].value].dtype,
                                            (uint64_t)n->p.n_kv_head * n->p.head_dim);
    }
    return bytes;
}

double wf_most_decodes(const wf_graph *g, const wf_machine *m, const wf_mix *mix, double weight_bytes, double window)
{
    return (m->memory - weight_bytes) / wf_kv_bytes(g, mix->in + mix->out / 2, window);
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static double rows_of(const wf_node *n, const wf_load *l)
{
    switch (n->rows) {
    case WF_ROWS_DECODE: return l->decodes;
    case WF_ROWS_PREFILL: return l->prefill;
    case WF_ROWS_LOGITS: return l->logits;
    case WF_ROWS_WHOLE: return 1;
    default: return wf_load_tokens(l);
    }
}

static double keys_of(const wf_node *n, const wf_load *l)
{
    double keys = n->rows == WF_ROWS_PREFILL ? l->prefill_keys : l->decode_keys;
    return n->op == WF_OP_ATTENTION && is_local(n) && l->window > 0 ? WF_MIN(keys, l->window) : keys;
}

/* The format that decides how fast the node can compute: keys and values in bytes become F16 on their way. */
static enum wf_dtype format_of(const wf_graph *g, const wf_node *n)
{
    int32_t v = n->op == WF_OP_GEMM           ? n->in[WF_GEMM_W].value
                : n->op == WF_OP_GROUPED_GEMM ? n->in[WF_GROUPED_GEMM_W].value
                : n->op == WF_OP_ROUTER       ? n->in[WF_ROUTER_W].value
                : n->op == WF_OP_ATTENTION    ? n->in[WF_ATTENTION_K_POOL].value
                                              : -1;
    bool widened = n->op == WF_OP_ATTENTION && g->values[v].dtype == WF_Q8_0;
    return v < 0 ? WF_F32 : widened ? WF_F16 : g->values[v].dtype;
}

static double seconds_over(double what, double rate)
{
    return rate > 0 ? what / rate : 0;
}

enum wf_limit wf_limit_of(const wf_op_cost *c)
{
    enum wf_limit most = WF_LIMIT_COMPUTE;
    for (int i = 1; i < WF_LIMIT_ENERGY; i++)
        if (c->seconds[i] > c->seconds[most]) most = (enum wf_limit)i;
    return most;
}

/* Energy: joules of all that it does, by what ops draw one by one, over the watts that the power limit leaves beside
 * static power. */
static void set_seconds(wf_op_cost *c, const wf_machine *m, double rate)
{
    c->seconds[WF_LIMIT_COMPUTE] = seconds_over(c->flops, rate);
    c->seconds[WF_LIMIT_MEMORY] = seconds_over(c->bytes, m->read);
    c->seconds[WF_LIMIT_NETWORK] = seconds_over(c->network, m->network);
    c->seconds[WF_LIMIT_ENERGY] = seconds_over(c->flops * m->flop_energy + c->bytes * m->byte_energy,
                                               wf_machine_power(m));
    c->alone = c->seconds[wf_limit_of(c)];
}

static void add_cost(wf_op_cost *sum, const wf_op_cost *c)
{
    sum->flops += c->flops, sum->bytes += c->bytes, sum->network += c->network, sum->alone += c->alone;
    for (int i = 0; i < WF_N_LIMITS; i++) sum->seconds[i] += c->seconds[i];
}

/* The row of that name, new if there is none. */
static wf_op_cost *row_of(wf_step_cost *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->ops[i].name, name)) return &s->ops[i];
    if (!wf_grow(&s->ops, s->n, &s->cap, sizeof *s->ops)) return NULL;
    s->ops[s->n] = (wf_op_cost){.name = name};
    return &s->ops[s->n++];
}

static weft_status put_cost(wf_step_cost *s, const wf_op_cost *c)
{
    wf_op_cost *row = row_of(s, c->name);
    if (!row) return WEFT_ERR_NOMEM;
    add_cost(row, c);
    add_cost(&s->total, c);
    return WEFT_OK;
}

wf_op_cost wf_node_cost(const wf_graph *g, const wf_node *n, double rows, double keys, const wf_machine *m)
{
    wf_work w = wf_node_work(g, n, rows, keys);
    wf_op_cost c = {.name = n->name, .flops = w.flops, .bytes = w.bytes};
    set_seconds(&c, m, wf_machine_rate(m, format_of(g, n)));
    return c;
}

static weft_status put_node(wf_step_cost *s, const wf_graph *g, const wf_node *n, const wf_load *l, const wf_machine *m)
{
    double rows = rows_of(n, l);
    if (n->kind != WF_NODE_KERNEL || !wf_node_is_usual(n) || rows <= 0) return WEFT_OK;
    wf_op_cost c = wf_node_cost(g, n, rows, keys_of(n, l), m);
    return put_cost(s, &c);
}

/* ---- what devices tell each other ----------------------------------------------------------------------------- */

/* Of tensor parallelism, in a node's layer: two all-reduces of all rows (equation 3). Of a row that others want, each
 * device has a part already. Sums also pass through memory and are added up, an operation for each number of both
 * all-reduces' halves. */
static wf_op_cost exchange_cost(const wf_graph *g, const wf_node *n, const wf_load *l, const wf_machine *m)
{
    double row = (double)wf_dtype_bytes(g->values[n->out[WF_ATTENTION_O].value].dtype, wf_graph_width(g)),
           bytes = 4.0 * (m->n_devices - 1) * wf_load_tokens(l) * row;
    wf_op_cost c = {.name = "all_reduce", .flops = bytes / 4, .bytes = bytes, .network = bytes};
    set_seconds(&c, m, wf_machine_rate(m, WF_F32));
    c.seconds[WF_LIMIT_NETWORK] = 2 * wf_machine_all_reduce(m, wf_load_tokens(l) * row);
    c.alone = c.seconds[wf_limit_of(&c)];
    return c;
}

static weft_status put_exchange(wf_step_cost *s, const wf_graph *g, const wf_load *l, const wf_machine *m)
{
    for (size_t i = 0; m->n_devices > 1 && i < g->n_nodes; i++) {
        if (!has_cache(&g->nodes[i])) continue;
        wf_op_cost c = exchange_cost(g, &g->nodes[i], l, m);
        WF_TRY(put_cost(s, &c));
    }
    return WEFT_OK;
}

weft_status wf_step_cost_make(const wf_graph *g, const wf_load *l, const wf_machine *m, wf_step_cost *out)
{
    weft_status st = WEFT_OK;
    *out = (wf_step_cost){.total = {.name = "total"}};
    for (size_t i = 0; !st && i < g->n_nodes; i++) st = put_node(out, g, &g->nodes[i], l, m);
    if (!st) st = put_exchange(out, g, l, m);
    if (st) wf_step_cost_free(out);
    return st;
}

void wf_step_cost_free(wf_step_cost *s)
{
    free(s->ops);
    *s = (wf_step_cost){0};
}

/* ---- stages of a pipeline ---------------------------------------------------------------------------------------- */

/* Do nodes of different layers cost the same, whatever the load? Weights of one name may have different formats. */
static bool alike(const wf_graph *g, const wf_node *a, const wf_node *b)
{
    if (a->op != b->op || a->rows != b->rows || strcmp(a->name, b->name) || format_of(g, a) != format_of(g, b))
        return false;
    if (a->op == WF_OP_ATTENTION && is_local(a) != is_local(b)) return false;
    for (double x = 1; x < 2000; x += 1000) {
        wf_work v = wf_node_work(g, a, x, x), w = wf_node_work(g, b, x, x);
        if (v.flops != w.flops || v.bytes != w.bytes) return false;
    }
    return true;
}

static weft_status add_node(wf_stage *s, uint32_t node)
{
    const wf_node *n = &s->g->nodes[node];
    for (size_t i = 0; i < s->n; i++)
        if (alike(s->g, &s->g->nodes[s->ops[i].node], n)) return s->ops[i].times++, WEFT_OK;
    if (!wf_grow(&s->ops, s->n, &s->cap, sizeof *s->ops)) return WEFT_ERR_NOMEM;
    s->ops[s->n++] = (struct wf_stage_op){node, 1};
    return WEFT_OK;
}

weft_status wf_stage_make(const wf_graph *g, uint32_t i, uint32_t n, wf_stage *out)
{
    int32_t layers = g->n_layers, first = wf_stage_first((uint32_t)layers, i, n),
            end = wf_stage_first((uint32_t)layers, i + 1, n), seen = 0;
    weft_status s = WEFT_OK;
    *out = (wf_stage){.g = g, .n_layers = (uint32_t)(end - first)};
    for (uint32_t k = 0; !s && k < g->n_nodes; k++) {
        const wf_node *node = &g->nodes[k];
        /* what runs once does so before the first layer or behind the last one */
        int32_t layer = node->layer != WF_ONCE ? node->layer : seen ? layers - 1 : 0;
        seen |= node->layer != WF_ONCE;
        bool mine = layer >= first && layer < end && node->kind == WF_NODE_KERNEL && wf_node_is_usual(node);
        if (mine) s = add_node(out, k);
    }
    if (s) wf_stage_free(out);
    return s;
}

double wf_stage_seconds(const wf_stage *s, const wf_load *l, const wf_machine *m)
{
    double seconds = 0;
    for (const struct wf_stage_op *o = s->ops; o < s->ops + s->n; o++) {
        const wf_node *n = &s->g->nodes[o->node];
        double rows = rows_of(n, l);
        if (rows > 0) seconds += o->times * wf_node_cost(s->g, n, rows, keys_of(n, l), m).alone;
        if (m->n_devices > 1 && has_cache(n)) seconds += o->times * exchange_cost(s->g, n, l, m).alone;
    }
    return seconds;
}

void wf_stage_free(wf_stage *s)
{
    free(s->ops);
    *s = (wf_stage){0};
}

/* ---- equations of the paper -------------------------------------------------------------------------------------- */

wf_equations wf_equations_of(const wf_model_size *s, const wf_machine *m, double tokens)
{
    wf_equations e = {.memory = seconds_over(m->memory, m->read),
                      .compute = seconds_over(2 * tokens * s->params, s->rate),
                      .optimum = seconds_over(s->rate, 2 * s->params)};
    if (m->n_devices > 1)
        e.network = seconds_over(4 * m->n_devices * tokens * s->width * s->activation_bytes * s->layers, m->network);
    e.ratio = seconds_over(e.memory, e.compute);
    return e;
}
