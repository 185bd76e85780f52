/* workspace: which workspaces of fused products a device never touches, so that no memory is reserved for them. See
 * workspace.h. */
#include "exec/workspace.h"
#include "dev/front.h"

#include <string.h>

uint32_t wf_next_probe(uint32_t rows, uint32_t max_rows)
{
    return rows == max_rows ? rows + 1 : WF_MIN(rows < 16 ? rows + 1 : rows + rows / 4, max_rows);
}

static uint32_t cols_of(const wf_graph *g, wf_operand o)
{
    return o.cols ? o.cols : g->values[o.value].cols;
}

/* A router's is the weight of a product. */
static enum wf_op op_of_matrix(const wf_node *n)
{
    return n->op == WF_OP_ROUTER ? WF_OP_GEMM : n->op;
}

/* Of the weight, or of those of one expert. */
static uint32_t rows_of_matrix(const wf_graph *g, const wf_node *n, const wf_value *v)
{
    if (n->op != WF_OP_GROUPED_GEMM) return v->weight_rows;
    return wf_expert_rows(&n->p, cols_of(g, n->out[WF_GROUPED_GEMM_Y]), cols_of(g, n->in[WF_GROUPED_GEMM_IDS]));
}

/* Storage that nobody reads: what a device can run depends on shapes only. */
static wf_view view_of(const wf_dev *dev, const wf_graph *g, const wf_node *n, wf_operand o, uint32_t rows)
{
    if (o.value < 0) return (wf_view){0};
    const wf_value *v = &g->values[o.value];
    bool weight = v->kind == WF_VALUE_WEIGHT, matrix = weight && v->weight_rows > 1;
    uint8_t layout = matrix
                         ? wf_weight_layout((wf_dev *)dev, op_of_matrix(n), v->dtype, rows_of_matrix(g, n, v), v->cols)
                         : 0;
    return (wf_view){.buf = (wf_buf *)dev,
                     .rows = weight                   ? v->weight_rows
                             : v->kind == WF_VALUE_KV ? 1
                                                      : rows,
                     .cols = cols_of(g, o),
                     .stride = v->cols,
                     .dtype = (uint8_t)v->dtype,
                     .layout = layout};
}

wf_call wf_node_call(const wf_dev *dev, const wf_graph *g, const wf_node *n, uint32_t rows)
{
    wf_call c = {.op = n->op, .variant = -1, .p = n->p};
    for (size_t i = 0; i < WF_MAX_IN; i++) c.in[i] = view_of(dev, g, n, n->in[i], rows);
    for (size_t i = 0; i < WF_MAX_OUT; i++) c.out[i] = view_of(dev, g, n, n->out[i], rows);
    return c;
}

/* Workspaces that the pieces hand their results over in, as bits of outputs. */
static uint8_t touched_workspaces(wf_dev *dev, const wf_call *c)
{
    enum wf_piece piece[WF_MAX_PIECES];
    size_t n = wf_pieces(dev, c, piece);
    uint8_t bits = 0;
    for (size_t i = 0; i < n; i++) bits |= wf_piece_workspaces(c, piece[i]);
    return bits;
}

/* Those that the node has, as bits of outputs. */
static uint8_t workspaces(const wf_node *n)
{
    uint8_t bits = 0;
    for (int i = 0; n->kind == WF_NODE_KERNEL && i < WF_MAX_OUT; i++)
        if (n->out[i].value >= 0 && wf_is_workspace(n->op, i)) bits |= (uint8_t)(1u << i);
    return bits;
}

static uint8_t untouched_workspaces(wf_dev *dev, const wf_graph *g, const wf_node *n, uint32_t max_rows)
{
    uint8_t bits = workspaces(n);
    for (uint32_t rows = 1; bits && rows <= max_rows; rows = wf_next_probe(rows, max_rows)) {
        wf_call c = wf_node_call(dev, g, n, rows);
        bits &= (uint8_t)~touched_workspaces(dev, &c);
    }
    return bits;
}

_Static_assert((int)WF_GEMM_W == (int)WF_GROUPED_GEMM_W && (int)WF_GEMM_W == (int)WF_ROUTER_W,
               "alike reads it of all ops with a workspace");

static bool has_bias(const wf_node *n)
{
    if (n->op == WF_OP_ROUTER) return false;
    return n->in[n->op == WF_OP_GEMM ? (int)WF_GEMM_BIAS : (int)WF_GROUPED_GEMM_BIAS].value >= 0;
}

/* A router whose scores a product of its own has made has no matrix. */
static bool has_matrix(const wf_node *n)
{
    return n->in[WF_GEMM_W].value >= 0;
}

static bool products_alike(const wf_graph *g, const wf_node *a, const wf_node *b)
{
    if (a->op != b->op || a->rows != b->rows || strcmp(a->name, b->name) || has_bias(a) != has_bias(b)) return false;
    if (!has_matrix(a) || !has_matrix(b)) return false;
    const wf_value *v = &g->values[a->in[WF_GEMM_W].value], *w = &g->values[b->in[WF_GEMM_W].value];
    return v->dtype == w->dtype && v->weight_rows == w->weight_rows && v->cols == w->cols;
}

/* The same product of an earlier layer; NULL: there is none. */
static const wf_node *earlier_product(const wf_graph *g, const wf_node *n)
{
    for (const wf_node *e = n; e-- > g->nodes && n->layer > 0;)
        if (products_alike(g, e, n)) return e;
    return NULL;
}

void wf_workspaces_omit(wf_graph *g, wf_dev *dev, const wf_limits *l)
{
    for (wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        if (!workspaces(n)) continue;
        const wf_node *like = earlier_product(g, n);
        n->omitted = like ? like->omitted
                          : untouched_workspaces(dev, g, n, n->rows == WF_ROWS_LOGITS ? l->logit_rows : l->step_tokens);
    }
}

void wf_workspaces_keep(wf_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++) g->nodes[i].omitted = 0;
}

bool wf_workspaces_omitted(const wf_graph *g)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].omitted) return true;
    return false;
}
