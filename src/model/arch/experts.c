/* experts: the feed-forward of a mixture of experts, as nodes of the graph. A row of every value is a token, so
 * nano-operations split them as others:
 *
 *   h = norm(x)                 [tokens, hidden]
 *   router --> ids, weights     [tokens, used]           of the scores h x ffn_gate_inp: one node with the norm, if
 *                                                        that is RMSNorm
 *   f(gate) x up                [tokens, used x size]    of each token, with the matrices of its experts: one product
 *                                                        where both are of one format, else each by itself
 *   down                        [tokens, used x hidden]
 *   x + sum of down by weights  [tokens, hidden]
 *
 * An expert that all tokens take besides is weighed by the sigmoid of a score of its own: a router over one expert.
 */
#include "model/arch/build.h"

#include <stdio.h>

static int32_t value(wf_builder *b, enum wf_dtype dtype, uint32_t cols)
{
    return wf_build_activation(b, WF_ROWS_BATCH, dtype, cols);
}

/* What the router decides for each token. */
typedef struct choice {
    int32_t ids, weights;
} choice;

/* The ids and weights that a router writes. */
static choice add_router(wf_builder *b, wf_node *node, uint32_t used)
{
    choice c = {-1, -1};
    if (b->status != WEFT_OK) return c;
    c = (choice){value(b, WF_I32, used), value(b, WF_F32, used)};
    node->out[WF_ROUTER_IDS] = WF_ALL(c.ids);
    node->out[WF_ROUTER_WEIGHTS] = WF_ALL(c.weights);
    wf_build_node(b, node);
    return c;
}

/* Scores by that tensor, of which the `used` largest count. */
static choice route(wf_builder *b, const char *name, const char *tensor, int32_t h, uint32_t n, uint32_t used,
                    const wf_op_params *p)
{
    char scores[24];
    snprintf(scores, sizeof scores, "%s_scores", name);
    const wf_linear l = {scores, tensor, n};
    wf_node node = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_ROUTER, name, WF_ROWS_BATCH);
    node.in[WF_ROUTER_X] = WF_ALL(wf_build_linears(b, scores, &l, 1, h, NULL, -1, WF_F32));
    node.p = *p;
    return add_router(b, &node, used);
}

static wf_op_params router_params(const wf_hparams *hp)
{
    return (wf_op_params){
        .eps = hp->eps, .sigmoid = hp->expert_sigmoid, .normalise = hp->expert_normalise, .scale = hp->expert_scale};
}

static choice route_experts(wf_builder *b, int32_t h)
{
    const wf_op_params p = router_params(b->hp);
    return route(b, "router", "ffn_gate_inp", h, b->hp->n_expert, b->hp->n_expert_used, &p);
}

/* The same with the norm of x, which *h is. */
static choice norm_and_route(wf_builder *b, int32_t x, int32_t *h)
{
    const wf_hparams *hp = b->hp;
    const wf_linear l = {"router", "ffn_gate_inp", hp->n_expert};
    wf_node node = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_ROUTER, "router", WF_ROWS_BATCH);
    *h = -1;
    if (b->status != WEFT_OK) return (choice){-1, -1};
    node.in[WF_ROUTER_X] = WF_ALL(x);
    node.in[WF_ROUTER_W] = WF_ALL(wf_build_stacked_matrix(b, &l, 1, hp->hidden_size));
    node.in[WF_ROUTER_NORM] = WF_ALL(wf_build_vector(b, "ffn_norm", hp->hidden_size));
    *h = value(b, b->act, hp->hidden_size);
    node.out[WF_ROUTER_Y] = WF_ALL(*h);
    node.out[WF_ROUTER_SCORES_WS] = WF_ALL(value(b, WF_F32, hp->n_expert));
    node.p = router_params(hp);
    return add_router(b, &node, hp->n_expert_used);
}

/* The product with each token's experts into y. Of two matrices, which are gate and up, the first's f times the
 * second's. */
static void multiply(wf_builder *b, const char *name, const wf_linear *l, uint32_t n, int32_t x, uint32_t cols,
                     int32_t ids, wf_operand y)
{
    wf_node node = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_GROUPED_GEMM, name, WF_ROWS_BATCH);
    if (b->status != WEFT_OK) return;
    node.in[WF_GROUPED_GEMM_X] = WF_ALL(x);
    node.in[WF_GROUPED_GEMM_W] = WF_ALL(wf_build_expert_matrix(b, l, n, cols));
    node.in[WF_GROUPED_GEMM_IDS] = WF_ALL(ids);
    node.in[WF_GROUPED_GEMM_BIAS] = WF_ALL(wf_build_expert_bias(b, l, n));
    node.out[WF_GROUPED_GEMM_Y] = y;
    node.p.silu = n == 2;
    if (node.p.silu) {
        node.p.activation = b->hp->gate;
        node.out[WF_GROUPED_GEMM_GEMM_WS] = WF_ALL(value(b, b->act, 2 * b->hp->n_expert_used * l[0].rows));
    }
    wf_build_node(b, &node);
}

/* residual + the parts of x by their weights. */
static int32_t sum(wf_builder *b, const char *name, int32_t x, int32_t weights, int32_t residual)
{
    wf_node n = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_WEIGHTED_SUM, name, WF_ROWS_BATCH);
    if (b->status != WEFT_OK) return -1;
    int32_t y = value(b, b->residual, b->hp->hidden_size);
    n.in[WF_WEIGHTED_SUM_X] = WF_ALL(x);
    n.in[WF_WEIGHTED_SUM_WEIGHTS] = WF_ALL(weights);
    n.in[WF_WEIGHTED_SUM_RESIDUAL] = WF_ALL(residual);
    n.out[WF_WEIGHTED_SUM_Y] = WF_ALL(y);
    wf_build_node(b, &n);
    return y;
}

static int32_t silu(wf_builder *b, int32_t gate_up, uint32_t cols)
{
    wf_node n = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_SILU_MUL, "experts_silu", WF_ROWS_BATCH);
    int32_t y = value(b, b->act, cols);
    n.p.activation = b->hp->gate;
    n.in[WF_SILU_MUL_GU] = WF_ALL(gate_up);
    n.out[WF_SILU_MUL_Y] = WF_ALL(y);
    wf_build_node(b, &n);
    return y;
}

/* f(gate) times up of each of a token's experts. In products of their own they lie side by side, all gates first. */
static int32_t gate_up(wf_builder *b, int32_t h, int32_t ids)
{
    const wf_hparams *hp = b->hp;
    const wf_linear l[] = {{"experts_gate", "ffn_gate", hp->expert_size}, {"experts_up", "ffn_up", hp->expert_size}};
    const uint32_t cols = hp->n_expert_used * hp->expert_size;
    if (wf_build_can_stack_experts(b, l, 2)) {
        int32_t y = value(b, b->act, cols);
        multiply(b, "experts_gate_up", l, 2, h, hp->hidden_size, ids, WF_ALL(y));
        return y;
    }
    int32_t both = value(b, b->act, 2 * cols);
    for (uint32_t i = 0; i < 2; i++)
        multiply(b, l[i].name, &l[i], 1, h, hp->hidden_size, ids, (wf_operand){both, i * cols, cols});
    return b->status == WEFT_OK ? silu(b, both, cols) : -1;
}

static int32_t chosen(wf_builder *b, int32_t h, choice c, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const wf_linear out = {"experts_down", "ffn_down", hp->hidden_size};
    if (b->status != WEFT_OK) return -1;
    int32_t y = gate_up(b, h, c.ids);
    if (b->status != WEFT_OK) return -1;
    int32_t down = value(b, b->act, hp->n_expert_used * hp->hidden_size);
    multiply(b, out.name, &out, 1, y, hp->expert_size, c.ids, WF_ALL(down));
    return wf_shard_sum(b, "ffn_down_sum", sum(b, "experts_sum", down, c.weights, x));
}

static int32_t shared(wf_builder *b, int32_t h, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const wf_linear gate_up[] = {{"shared_gate", "ffn_gate_shexp", hp->shared_size},
                                 {"shared_up", "ffn_up_shexp", hp->shared_size}};
    const wf_linear down = {"shared_down", "ffn_down_shexp", hp->hidden_size};
    const wf_fuse silu_too = {.silu = true};
    const wf_op_params p = {.sigmoid = 1, .scale = 1};
    choice c = route(b, "shared_router", "ffn_gate_inp_shexp", h, 1, 1, &p);
    int32_t y = wf_build_linears(b, "shared_gate_up", gate_up, 2, h, &silu_too, -1, b->act);
    if (b->status != WEFT_OK) return -1;
    return sum(b, "shared_sum", wf_build_linears(b, "shared_down", &down, 1, y, NULL, -1, b->act), c.weights, x);
}

int32_t wf_build_experts_of(wf_builder *b, int32_t h, int32_t x)
{
    return chosen(b, h, route_experts(b, h), wf_shard_once(b, x));
}

int32_t wf_build_experts(wf_builder *b, int32_t x)
{
    int32_t h;
    choice c;
    /* Only RMSNorm is fused, and no bias behind it. */
    if (!b->hp->layer_norm && !wf_build_find(b, "ffn_gate_inp", "bias")) c = norm_and_route(b, x, &h);
    else h = wf_build_norm(b, "ffn_norm", "ffn_norm", x), c = route_experts(b, h);
    x = wf_shard_once(b, x);
    if (b->hp->expert_shared) x = shared(b, h, x);
    return chosen(b, h, c, x);
}
