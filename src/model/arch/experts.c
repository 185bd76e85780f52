/* experts: the feed-forward of a mixture of experts, as nodes of the graph. A row of every value is a token, so
 * nano-operations split them as others:
 *
 *   h = norm(x)                 [tokens, hidden]
 *   router --> ids, weights     [tokens, used]           of the scores h x ffn_gate_inp
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
    node.in[WF_ROUTER_X] = WF_ALL(wf_build_linears(b, scores, &l, 1, h, -1, WF_F32));
    node.p = *p;
    return add_router(b, &node, used);
}

static choice route_experts(wf_builder *b, int32_t h)
{
    const wf_hparams *hp = b->hp;
    const wf_op_params p = {
        .eps = hp->eps, .sigmoid = hp->expert_sigmoid, .normalise = hp->expert_normalise, .scale = hp->expert_scale};
    return route(b, "router", "ffn_gate_inp", h, hp->n_expert, hp->n_expert_used, &p);
}

/* The product with each token's experts into y; of two matrices, for each of its experts one beside the other. */
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
    wf_build_node(b, &node);
}

/* residual + the parts of x by their weights. */
static void sum(wf_builder *b, const char *name, int32_t x, int32_t weights, int32_t residual, wf_operand y)
{
    wf_node n = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_WEIGHTED_SUM, name, WF_ROWS_BATCH);
    n.in[WF_WEIGHTED_SUM_X] = WF_ALL(x);
    n.in[WF_WEIGHTED_SUM_WEIGHTS] = WF_ALL(weights);
    n.in[WF_WEIGHTED_SUM_RESIDUAL] = WF_ALL(residual);
    n.out[WF_WEIGHTED_SUM_Y] = y;
    wf_build_node(b, &n);
}

/* f(gate) times up of each of a token's experts. In products of their own they lie side by side, all gates first. */
static int32_t gate_up(wf_builder *b, int32_t h, int32_t ids)
{
    const wf_hparams *hp = b->hp;
    const wf_linear l[] = {{"experts_gate", "ffn_gate", hp->expert_size}, {"experts_up", "ffn_up", hp->expert_size}};
    const uint32_t cols = hp->n_expert_used * hp->expert_size;
    bool stacked = wf_build_can_stack_experts(b, l, 2);
    int32_t both = value(b, b->act, 2 * cols);
    if (stacked) multiply(b, "experts_gate_up", l, 2, h, hp->hidden_size, ids, WF_ALL(both));
    for (uint32_t i = 0; i < 2 && !stacked; i++)
        multiply(b, l[i].name, &l[i], 1, h, hp->hidden_size, ids, (wf_operand){both, i * cols, cols});
    return wf_build_silu_mul(b, "experts_silu", both, stacked ? hp->n_expert_used : 0);
}

/* x + what the experts give. shared: what one for all gives, which only a device of a group has apart from x; -1:
 * none. */
static int32_t chosen(wf_builder *b, int32_t h, choice c, int32_t shared, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const wf_linear out = {"experts_down", "ffn_down", hp->hidden_size};
    if (b->status != WEFT_OK) return -1;
    int32_t y = gate_up(b, h, c.ids);
    if (b->status != WEFT_OK) return -1;
    int32_t down = value(b, b->act, hp->n_expert_used * hp->hidden_size);
    multiply(b, out.name, &out, 1, y, hp->expert_size, c.ids, WF_ALL(down));
    if (wf_is_shard(b)) {
        const wf_operand part = wf_shard_part(b, WF_ROWS_BATCH, b->shard.sums);
        sum(b, "experts_sum", down, c.weights, shared, part);
        return wf_shard_sum(b, "ffn_down", part, x, b->residual);
    }
    int32_t to = value(b, b->residual, hp->hidden_size);
    sum(b, "experts_sum", down, c.weights, x, WF_ALL(to));
    return to;
}

/* x (-1: none) + what the expert for all tokens gives. */
static int32_t shared(wf_builder *b, int32_t h, int32_t x, enum wf_dtype out)
{
    const wf_hparams *hp = b->hp;
    const wf_linear gate_up[] = {{"shared_gate", "ffn_gate_shexp", hp->shared_size},
                                 {"shared_up", "ffn_up_shexp", hp->shared_size}};
    const wf_linear down = {"shared_down", "ffn_down_shexp", hp->hidden_size};
    const wf_op_params p = {.sigmoid = 1, .scale = 1};
    choice c = route(b, "shared_router", "ffn_gate_inp_shexp", h, 1, 1, &p);
    int32_t y = wf_build_linears(b, "shared_gate_up", gate_up, 2, h, -1, b->act);
    y = wf_build_silu_mul(b, "silu", y, 0);
    if (b->status != WEFT_OK) return -1;
    y = wf_build_linears(b, "shared_down", &down, 1, y, -1, b->act);
    int32_t to = value(b, out, hp->hidden_size);
    sum(b, "shared_sum", y, c.weights, x, WF_ALL(to));
    return to;
}

int32_t wf_build_experts_of(wf_builder *b, int32_t h, int32_t x)
{
    return chosen(b, h, route_experts(b, h), -1, x);
}

int32_t wf_build_experts(wf_builder *b, int32_t x)
{
    int32_t h = wf_build_norm(b, "ffn_norm", "ffn_norm", x), part = -1;
    choice c = route_experts(b, h);
    if (b->hp->expert_shared && wf_is_shard(b)) part = shared(b, h, -1, b->shard.sums);
    else if (b->hp->expert_shared) x = shared(b, h, x, b->residual);
    return chosen(b, h, c, part, x);
}
