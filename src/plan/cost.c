/* cost: work of nodes by their shapes. See cost.h. */
#include "plan/cost.h"

static double cols_of(const wf_graph *g, wf_operand o)
{
    return o.cols ? o.cols : g->values[o.value].cols;
}

/* Rows of a weight that are read: all, but of experts those that the tokens may be expected to need. */
static double weight_rows(const wf_graph *g, const wf_node *n, const wf_value *w, double rows)
{
    if (n->op != WF_OP_GROUPED_GEMM) return w->weight_rows;
    double used = cols_of(g, n->in[WF_GROUPED_GEMM_IDS]),
           each = cols_of(g, n->out[WF_GROUPED_GEMM_Y]) / used * (n->p.silu ? 2 : 1);
    return each * wf_experts_read(w->weight_rows / each, used, rows);
}

/* Rows of an operand that are moved: the node's own, those of a weight that are read; those of KV are counted by keys.
 */
static double operand_bytes(const wf_graph *g, const wf_node *n, wf_operand o, double rows)
{
    if (o.value < 0) return 0;
    const wf_value *v = &g->values[o.value];
    if (v->kind == WF_VALUE_KV || (v->kind == WF_VALUE_WEIGHT && n->op == WF_OP_GET_ROWS)) return 0;
    return (v->kind == WF_VALUE_WEIGHT ? weight_rows(g, n, v, rows) : rows) *
           (double)wf_dtype_bytes(v->dtype, o.cols ? o.cols : v->cols);
}

static double moved_bytes(const wf_graph *g, const wf_node *n, double rows)
{
    double bytes = 0;
    for (size_t i = 0; i < WF_MAX_IN; i++) bytes += operand_bytes(g, n, n->in[i], rows);
    for (size_t i = 0; i < WF_MAX_OUT; i++)
        if (n->kind != WF_NODE_KERNEL || !wf_is_workspace(n->op, (int)i)) bytes += operand_bytes(g, n, n->out[i], rows);
    return bytes;
}

/* Rows of prompts share their keys: the last row of a chunk sees half a chunk more than rows do on average. */
static double keys_read(const wf_node *n, double rows, double keys)
{
    double chunk = WF_MIN(rows, 2 * keys);
    return n->rows == WF_ROWS_PREFILL ? rows / chunk * (keys + chunk / 2) : rows * keys;
}

/* A product does two operations for each weight and row; all else, and a product of a graph without weights, a few for
 * each number it moves. */
wf_work wf_node_work(const wf_graph *g, const wf_node *n, double rows, double keys)
{
    if (rows <= 0) return (wf_work){0, 0};
    if (n->kind != WF_NODE_KERNEL) return (wf_work){0, moved_bytes(g, n, rows)};
    if (n->op == WF_OP_ATTENTION) {
        uint64_t cols = (uint64_t)n->p.n_kv_head * n->p.head_dim;
        double kv = 2 * keys_read(n, rows, keys) *
                    (double)wf_dtype_bytes(g->values[n->in[WF_ATTENTION_K_POOL].value].dtype, cols);
        return (wf_work){4 * rows * keys * n->p.n_head * n->p.head_dim, moved_bytes(g, n, rows) + kv};
    }
    double bytes = moved_bytes(g, n, rows);
    if (n->op == WF_OP_GROUPED_GEMM) {
        /* Of a token's experts, gate and up where the product is both. */
        double outputs = cols_of(g, n->out[WF_GROUPED_GEMM_Y]) * (n->p.silu ? 2 : 1);
        return (wf_work){2.0 * rows * outputs * cols_of(g, WF_ALL(n->in[WF_GROUPED_GEMM_W].value)), bytes};
    }
    int32_t weight = n->op == WF_OP_GEMM     ? n->in[WF_GEMM_W].value
                     : n->op == WF_OP_ROUTER ? n->in[WF_ROUTER_W].value
                                             : -1;
    if (weight < 0) return (wf_work){bytes, bytes};
    const wf_value *w = &g->values[weight];
    return (wf_work){2.0 * rows * w->weight_rows * w->cols, bytes};
}

enum wf_class wf_node_class(const wf_graph *g, const wf_node *n, uint32_t rows, double keys, double ridge)
{
    if (n->kind >= WF_NODE_SEND) return WF_CLASS_NETWORK;
    if (n->kind != WF_NODE_KERNEL) return WF_CLASS_COPY;
    wf_work w = wf_node_work(g, n, rows, keys);
    return w.flops > ridge * w.bytes ? WF_CLASS_COMPUTE : WF_CLASS_MEMORY;
}
