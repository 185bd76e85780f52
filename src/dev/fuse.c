/* fuse: the pieces of a fused call, and whether one kernel runs them all. See front.h. */
#include "dev/front.h"

uint32_t wf_fusion_of(const wf_call *c)
{
    if (c->op == WF_OP_GROUPED_GEMM) return c->p.silu ? WF_FUSES_SILU : 0;
    if (c->op == WF_OP_ROUTER) return c->in[WF_ROUTER_W].buf ? WF_FUSES_NORM : 0;
    if (c->op != WF_OP_GEMM) return 0;
    return (c->in[WF_GEMM_NORM].buf ? WF_FUSES_NORM : 0) | (c->p.silu ? WF_FUSES_SILU : 0) |
           (c->p.rope ? WF_FUSES_ROPE : 0);
}

bool wf_is_fused(const wf_call *c)
{
    return wf_fusion_of(c) != 0;
}

/* The output in which the product waits for what follows it; -1: the op is never fused. */
static int product_ws(enum wf_op op)
{
    switch (op) {
    case WF_OP_GEMM: return WF_GEMM_GEMM_WS;
    case WF_OP_GROUPED_GEMM: return WF_GROUPED_GEMM_GEMM_WS;
    case WF_OP_ROUTER: return WF_ROUTER_SCORES_WS;
    default: return -1;
    }
}

bool wf_is_workspace(enum wf_op op, int out)
{
    return out == product_ws(op) || (op == WF_OP_GEMM && out == WF_GEMM_NORM_WS);
}

static bool has_norm(const wf_call *c)
{
    return wf_fusion_of(c) & WF_FUSES_NORM;
}

static bool has_more(const wf_call *c)
{
    return wf_fusion_of(c) & (WF_FUSES_SILU | WF_FUSES_ROPE) || (c->op == WF_OP_ROUTER && wf_is_fused(c));
}

/* Does the norm leave its result in a workspace? A router's is an output. */
static bool has_norm_ws(const wf_call *c)
{
    return c->op == WF_OP_GEMM && has_norm(c);
}

bool wf_has_fused_kernel(wf_dev *dev, const wf_call *c)
{
    if (!wf_is_fused(c)) return true;
    if (!(c->op == WF_OP_ROUTER ? dev->has_fused_router : dev->has_fused_gemm)) return false;
    return c->variant >= 0 ? wf_can_use(dev, c, c->variant) : wf_pick(dev, c) >= 0;
}

size_t wf_pieces(wf_dev *dev, const wf_call *c, enum wf_piece out[WF_MAX_PIECES])
{
    size_t n = 0;
    bool norm = has_norm(c);
    if (wf_has_fused_kernel(dev, c)) return out[0] = WF_PIECE_WHOLE, 1;
    wf_call rest = wf_piece_of(c, WF_PIECE_REST);
    if (norm) out[n++] = WF_PIECE_NORM;
    if (has_norm_ws(c) && wf_is_fused(&rest) && wf_has_fused_kernel(dev, &rest)) return out[n++] = WF_PIECE_REST, n;
    out[n++] = WF_PIECE_PRODUCT;
    if (has_more(c)) out[n++] = WF_PIECE_AFTER;
    return n;
}

uint8_t wf_piece_workspaces(const wf_call *c, enum wf_piece piece)
{
    uint8_t norm = has_norm_ws(c) ? 1u << WF_GEMM_NORM_WS : 0,
            product = has_more(c) ? (uint8_t)(1u << product_ws(c->op)) : 0;
    switch (piece) {
    case WF_PIECE_NORM:
    case WF_PIECE_REST: return norm;
    case WF_PIECE_PRODUCT: return norm | product;
    case WF_PIECE_AFTER: return product;
    default: return 0;
    }
}

weft_status wf_workspaces_check(wf_dev *dev, const wf_call *c)
{
    enum wf_piece piece[WF_MAX_PIECES];
    bool norm = has_norm_ws(c) && !c->out[WF_GEMM_NORM_WS].buf, product = has_more(c) && !c->out[product_ws(c->op)].buf;
    uint8_t lacks = (norm ? 1u << WF_GEMM_NORM_WS : 0) | (product ? 1u << product_ws(c->op) : 0);
    if (!lacks) return WEFT_OK;
    size_t n = wf_pieces(dev, c, piece);
    for (size_t i = 0; i < n; i++)
        if (wf_piece_workspaces(c, piece[i]) & lacks)
            return wf_fail(
                WEFT_ERR_UNSUPPORTED,
                "%s: %s has no kernel for all of a fused call, and the call has no workspace to run it in pieces",
                wf_ops[c->op].name, dev->info.id);
    return WEFT_OK;
}

/* A call of another op on behalf of c, without operands. */
static wf_call of_op(const wf_call *c, enum wf_op op)
{
    return (wf_call){.op = op, .variant = op == c->op ? c->variant : -1, .max_groups = c->max_groups, .p = c->p};
}

static wf_call norm_of(const wf_call *c)
{
    wf_call norm = of_op(c, WF_OP_RMSNORM);
    if (c->op == WF_OP_ROUTER) {
        norm.in[WF_RMSNORM_X] = c->in[WF_ROUTER_X], norm.in[WF_RMSNORM_W] = c->in[WF_ROUTER_NORM];
        norm.out[WF_RMSNORM_Y] = c->out[WF_ROUTER_Y];
        return norm;
    }
    norm.in[WF_RMSNORM_X] = c->in[WF_GEMM_X], norm.in[WF_RMSNORM_W] = c->in[WF_GEMM_NORM];
    norm.out[WF_RMSNORM_Y] = c->out[WF_GEMM_NORM_WS];
    return norm;
}

/* All of c, a product, but its norm, and without events. */
static wf_call behind_norm(const wf_call *c)
{
    wf_call left = *c;
    left.waits = NULL, left.n_waits = 0, left.signal = left.started = NULL;
    if (!has_norm_ws(c)) return left;
    left.in[WF_GEMM_X] = c->out[WF_GEMM_NORM_WS];
    left.in[WF_GEMM_NORM] = left.out[WF_GEMM_NORM_WS] = (wf_view){0};
    return left;
}

static wf_call product_of_experts(const wf_call *c)
{
    wf_call plain = of_op(c, c->op);
    for (int i = 0; i < WF_N_GROUPED_GEMM_IN; i++) plain.in[i] = c->in[i];
    plain.out[WF_GROUPED_GEMM_Y] = c->out[WF_GROUPED_GEMM_GEMM_WS];
    plain.p.silu = 0;
    return plain;
}

static wf_call scores_of(const wf_call *c)
{
    wf_call plain = of_op(c, WF_OP_GEMM);
    plain.in[WF_GEMM_X] = c->out[WF_ROUTER_Y], plain.in[WF_GEMM_W] = c->in[WF_ROUTER_W];
    plain.out[WF_GEMM_Y] = c->out[WF_ROUTER_SCORES_WS];
    return plain;
}

/* The product alone. */
static wf_call product_of(const wf_call *c)
{
    wf_call plain = of_op(c, c->op);
    if (c->op == WF_OP_GROUPED_GEMM) return product_of_experts(c);
    if (c->op == WF_OP_ROUTER) return scores_of(c);
    for (int i = WF_GEMM_X; i <= WF_GEMM_RESIDUAL; i++) plain.in[i] = c->in[i];
    if (c->in[WF_GEMM_NORM].buf) plain.in[WF_GEMM_X] = c->out[WF_GEMM_NORM_WS];
    plain.out[WF_GEMM_Y] = c->out[c->p.silu || c->p.rope ? WF_GEMM_GEMM_WS : WF_GEMM_Y];
    plain.p.silu = plain.p.rope = 0;
    return plain;
}

static wf_call silu_of_experts(const wf_call *c)
{
    wf_call silu = of_op(c, WF_OP_SILU_MUL);
    silu.in[WF_SILU_MUL_GU] = c->out[WF_GROUPED_GEMM_GEMM_WS];
    silu.out[WF_SILU_MUL_Y] = c->out[WF_GROUPED_GEMM_Y];
    silu.p.groups = c->in[WF_GROUPED_GEMM_IDS].cols;
    return silu;
}

/* What follows the product of c, which lies in its workspace. */
static wf_call after_product(const wf_call *c)
{
    wf_call silu = of_op(c, WF_OP_SILU_MUL), rope = of_op(c, WF_OP_ROPE_KV);
    if (c->op == WF_OP_GROUPED_GEMM) return silu_of_experts(c);
    if (c->op == WF_OP_ROUTER) {
        wf_call choice = of_op(c, c->op);
        choice.in[WF_ROUTER_X] = c->out[WF_ROUTER_SCORES_WS];
        choice.out[WF_ROUTER_IDS] = c->out[WF_ROUTER_IDS], choice.out[WF_ROUTER_WEIGHTS] = c->out[WF_ROUTER_WEIGHTS];
        return choice;
    }
    silu.in[WF_SILU_MUL_GU] = rope.in[WF_ROPE_KV_QKV] = c->out[WF_GEMM_GEMM_WS];
    silu.out[WF_SILU_MUL_Y] = rope.out[WF_ROPE_KV_Q] = c->out[WF_GEMM_Y];
    rope.in[WF_ROPE_KV_TABLE] = c->in[WF_GEMM_TABLE];
    rope.in[WF_ROPE_KV_POS] = c->in[WF_GEMM_POS];
    rope.in[WF_ROPE_KV_SLOT] = c->in[WF_GEMM_SLOT];
    rope.out[WF_ROPE_KV_K_POOL] = c->out[WF_GEMM_K_POOL];
    rope.out[WF_ROPE_KV_V_POOL] = c->out[WF_GEMM_V_POOL];
    return c->p.silu ? silu : rope;
}

wf_call wf_piece_of(const wf_call *c, enum wf_piece piece)
{
    wf_call whole = *c;
    switch (piece) {
    case WF_PIECE_NORM: return norm_of(c);
    case WF_PIECE_REST: return behind_norm(c);
    case WF_PIECE_PRODUCT: return product_of(c);
    case WF_PIECE_AFTER: return after_product(c);
    default: break;
    }
    whole.waits = NULL, whole.n_waits = 0, whole.signal = whole.started = NULL;
    return whole;
}
