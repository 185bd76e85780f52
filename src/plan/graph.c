/* graph: growing arrays of values and nodes, and the nodes that every model's step begins and ends with. See graph.h.
 */
#include "plan/graph.h"

#include <stdlib.h>
#include <string.h>

int32_t wf_graph_value(wf_graph *g, wf_value v)
{
    if (!wf_grow(&g->values, g->n_values, &g->cap_values, sizeof v)) return -1;
    g->values[g->n_values] = v;
    return (int32_t)g->n_values++;
}

int32_t wf_graph_node(wf_graph *g, const wf_node *n)
{
    if (!wf_grow(&g->nodes, g->n_nodes, &g->cap_nodes, sizeof *n)) return -1;
    g->nodes[g->n_nodes] = *n;
    return (int32_t)g->n_nodes++;
}

static wf_value input_value(enum wf_input i)
{
    const wf_input_info *in = &wf_inputs[i];
    enum wf_rows rows = in->rows == WF_INPUT_OF_TOKENS   ? WF_ROWS_BATCH
                        : in->rows == WF_INPUT_OF_LOGITS ? WF_ROWS_LOGITS
                                                         : WF_ROWS_WHOLE;
    return (wf_value){WF_VALUE_INPUT, rows, in->dtype, in->cols, i};
}

weft_status wf_graph_init(wf_graph *g, int32_t n_layers)
{
    memset(g, 0, sizeof *g);
    g->n_layers = n_layers;
    g->logits = -1;
    for (uint32_t i = 0; i < WF_N_STATES; i++) g->states[i] = -1;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        g->inputs[i] = wf_graph_value(g, input_value(i));
        if (g->inputs[i] < 0) return WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

/* The array of that table, which is added where there is none yet; of other values, the value itself. -1: no memory. */
static int32_t of_table(wf_graph *g, int32_t value, uint32_t table)
{
    if (value < 0 || !table) return value;
    wf_value own = g->values[value];
    if (own.kind != WF_VALUE_INPUT || !wf_inputs[own.id].per_table) return value;
    own.table = table;
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WF_VALUE_INPUT && g->values[v].id == own.id && g->values[v].table == table)
            return (int32_t)v;
    return wf_graph_value(g, own);
}

weft_status wf_graph_lay_out_kv(wf_graph *g, wf_kv_layout *l)
{
    g->kv = *l;
    *l = (wf_kv_layout){0};
    for (wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++)
        for (size_t i = 0; i < WF_MAX_IN && n->layer >= 0; i++) {
            bool absent = n->in[i].value < 0;
            n->in[i].value = of_table(g, n->in[i].value, wf_kv_table(&g->kv, (uint32_t)n->layer));
            if (!absent && n->in[i].value < 0) return WEFT_ERR_NOMEM;
        }
    return WEFT_OK;
}

uint32_t wf_graph_width(const wf_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == WF_OP_GET_ROWS) return g->values[g->nodes[i].out[WF_GET_ROWS_Y].value].cols;
    return 0;
}

void wf_graph_free(wf_graph *g)
{
    free(g->values);
    free(g->nodes);
    wf_kv_layout_free(&g->kv);
    memset(g, 0, sizeof *g);
}

const char *wf_node_kind_name(enum wf_node_kind kind)
{
    static const char *const names[WF_N_NODE_KINDS] = {"kernel", "upload", "download", "send", "receive",
                                                       "gather", "all_gather"};
    return names[kind];
}

const char *wf_class_name(enum wf_class c)
{
    static const char *const names[WF_N_CLASSES] = {"compute", "memory", "network", "copy", "host"};
    return names[c];
}

/* ---- the nodes around a model ------------------------------------------------------------------------------- */

wf_node wf_graph_blank(enum wf_node_kind kind, enum wf_op op, const char *name, int32_t layer, enum wf_rows rows)
{
    wf_node n = {.kind = kind, .op = op, .layer = layer, .rows = rows};
    wf_copy(n.name, sizeof n.name, name);
    for (size_t i = 0; i < WF_MAX_IN; i++) n.in[i] = WF_NONE;
    for (size_t i = 0; i < WF_MAX_OUT; i++) n.out[i] = WF_NONE;
    return n;
}

static weft_status add_copy(wf_graph *g, enum wf_node_kind kind, const char *name, enum wf_rows rows, enum wf_when when,
                            int32_t in)
{
    wf_node n = wf_graph_blank(kind, WF_OP_NONE, name, WF_ONCE, rows);
    n.when = when;
    n.in[0] = WF_ALL(in);
    return wf_graph_node(g, &n) < 0 ? WEFT_ERR_NOMEM : WEFT_OK;
}

static weft_status add_state(wf_graph *g, enum wf_state s, enum wf_rows rows, enum wf_dtype dtype, uint32_t cols)
{
    g->states[s] = wf_graph_value(g, (wf_value){WF_VALUE_STATE, rows, dtype, cols, s});
    return g->states[s] < 0 ? WEFT_ERR_NOMEM : WEFT_OK;
}

weft_status wf_graph_begin(wf_graph *g)
{
    WF_TRY(add_state(g, WF_STATE_IDS, WF_ROWS_LOGITS, WF_I32, 1));
    WF_TRY(add_copy(g, WF_NODE_UPLOAD, "upload", WF_ROWS_WHOLE, WF_ALWAYS, -1));
    wf_node n = wf_graph_blank(WF_NODE_KERNEL, WF_OP_TOKEN_SUBST, "token_subst", WF_ONCE, WF_ROWS_BATCH);
    n.when = WF_WHEN_PENDING;
    n.in[WF_TOKEN_SUBST_IDS] = n.out[WF_TOKEN_SUBST_Y] = WF_ALL(g->inputs[WF_INPUT_TOKEN]);
    n.in[WF_TOKEN_SUBST_FROM] = WF_ALL(g->states[WF_STATE_IDS]);
    return wf_graph_node(g, &n) < 0 ? WEFT_ERR_NOMEM : WEFT_OK;
}

/* A node that samples from the logits; their first input and output stand at the same place in all ops that do. */
static wf_node sampler(const wf_graph *g, enum wf_op op, const char *name, enum wf_when when)
{
    _Static_assert((int)WF_ARGMAX_X == (int)WF_SAMPLE_X && (int)WF_ARGMAX_Y == (int)WF_SAMPLE_Y,
                   "one function for both");
    wf_node n = wf_graph_blank(WF_NODE_KERNEL, op, name, WF_ONCE, WF_ROWS_LOGITS);
    n.when = when;
    n.in[WF_SAMPLE_X] = WF_ALL(g->logits);
    n.out[WF_SAMPLE_Y] = WF_ALL(g->states[WF_STATE_IDS]);
    return n;
}

static weft_status add_sampling(wf_graph *g)
{
    /* scratch, always from its first row */
    WF_TRY(add_state(g, WF_STATE_LOGITS, WF_ROWS_WHOLE, WF_F32, g->values[g->logits].cols));
    wf_node greedy = sampler(g, WF_OP_ARGMAX, "argmax", WF_WHEN_GREEDY),
            n = sampler(g, WF_OP_SAMPLE, "sample", WF_WHEN_SAMPLED);
    n.in[WF_SAMPLE_PARAMS] = WF_ALL(g->inputs[WF_INPUT_SAMPLING]);
    n.in[WF_SAMPLE_KEY] = WF_ALL(g->inputs[WF_INPUT_SEEDS]);
    n.in[WF_SAMPLE_TOKENS] = WF_ALL(g->inputs[WF_INPUT_TOKEN]);
    n.in[WF_SAMPLE_IDS] = WF_ALL(g->inputs[WF_INPUT_ADJUST_IDS]);
    n.in[WF_SAMPLE_ADJUST] = WF_ALL(g->inputs[WF_INPUT_ADJUST]);
    n.in[WF_SAMPLE_ALLOWED] = WF_ALL(g->inputs[WF_INPUT_ALLOWED]);
    n.out[WF_SAMPLE_Z] = WF_ALL(g->states[WF_STATE_LOGITS]);
    if (wf_graph_node(g, &greedy) < 0 || wf_graph_node(g, &n) < 0) return WEFT_ERR_NOMEM;
    return add_copy(g, WF_NODE_DOWNLOAD, "download", WF_ROWS_LOGITS, WF_WHEN_IDS, g->states[WF_STATE_IDS]);
}

weft_status wf_graph_end(wf_graph *g)
{
    WF_TRY(add_state(g, WF_STATE_RECOMPUTED, WF_ROWS_WHOLE, WF_I32, (uint32_t)WF_MAX(g->n_layers, 1)));
    if (g->logits >= 0 && !g->pooled) WF_TRY(add_sampling(g));
    if (g->logits >= 0)
        WF_TRY(add_copy(g, WF_NODE_DOWNLOAD, "download_logits", WF_ROWS_LOGITS, WF_WHEN_LOGITS, g->logits));
    /* Attention with asynchronous softmax counts the rows that it computes again: layers that have a range for it
     * (calibration), each in a column. */
    bool counts = false;
    for (wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        if (n->op != WF_OP_ATTENTION || n->p.phi_lo >= n->p.phi_hi) continue;
        n->out[WF_ATTENTION_RECOMPUTED] = (wf_operand){g->states[WF_STATE_RECOMPUTED], (uint32_t)n->layer, 1};
        counts = true;
    }
    return counts ? add_copy(g, WF_NODE_DOWNLOAD, "download_counts", WF_ROWS_WHOLE, WF_ALWAYS,
                             g->states[WF_STATE_RECOMPUTED])
                  : WEFT_OK;
}
