/* grouped_gemm: products with the experts that each token chose. A kernel of gemm with the knob GROUPED finds the rows
 * of X and the matrix of its expert by ids (kernels/experts.clh); a row of X and of Y is a pair of a token with one of
 * its experts. */
#include "cl/ops/gemm.h"

static uint64_t pairs_of(const wf_call *c)
{
    return (uint64_t)c->in[WF_GROUPED_GEMM_IDS].rows * c->in[WF_GROUPED_GEMM_IDS].cols;
}

/* Of W. */
static uint32_t rows_of_expert(const wf_call *c)
{
    return wf_expert_rows(&c->p, c->out[WF_GROUPED_GEMM_Y].cols, c->in[WF_GROUPED_GEMM_IDS].cols);
}

/* The product of one expert with so many rows. */
static wf_call product_of(const wf_call *c, uint32_t rows)
{
    const wf_view *w = &c->in[WF_GROUPED_GEMM_W];
    wf_call p = {.op = WF_OP_GEMM, .variant = -1, .max_groups = c->max_groups};
    p.in[WF_GEMM_X] = c->in[WF_GROUPED_GEMM_X], p.in[WF_GEMM_W] = *w, p.in[WF_GEMM_BIAS] = c->in[WF_GROUPED_GEMM_BIAS];
    p.out[WF_GEMM_Y] = c->out[WF_GROUPED_GEMM_Y];
    p.p.silu = c->p.silu, p.p.activation = c->p.activation;
    p.out[WF_GEMM_Y].cols /= c->in[WF_GROUPED_GEMM_IDS].cols;
    p.in[WF_GEMM_X].rows = p.out[WF_GEMM_Y].rows = rows;
    p.in[WF_GEMM_X].cols = w->cols;
    p.in[WF_GEMM_W].rows = p.in[WF_GEMM_BIAS].cols = rows_of_expert(c);
    return p;
}

/* EXPERT_ARGS of kernels/experts.clh, in this order. Kernels count pairs in 32 bits, and blocks of an expert's rows
 * are whole. */
static bool add_experts(const wf_call *c, uint64_t turns, cl_launch *l)
{
    enum { MOST_GROUPS = 1 << 20, BLOCK = 16 };
    const wf_view *x = &c->in[WF_GROUPED_GEMM_X], *w = &c->in[WF_GROUPED_GEMM_W], *ids = &c->in[WF_GROUPED_GEMM_IDS];
    uint32_t each = rows_of_expert(c);
    wf_cl_knob(l, "GROUPED", 1);
    wf_cl_arg_view(l, ids);
    const uint32_t numbers[] = {(uint32_t)pairs_of(c), ids->cols, w->rows / each, x->cols > w->cols ? w->cols : 0,
                                ids->stride};
    for (size_t i = 0; i < WF_LEN(numbers); i++) wf_cl_arg_u32(l, numbers[i]);
    if (l->groups * turns > UINT32_MAX || (w->layout == WF_CL_FRAGMENT_MAJOR && each % BLOCK)) return false;
    l->groups = WF_MIN(l->groups * turns, (uint64_t)MOST_GROUPS);
    return true;
}

bool wf_cl_configure_grouped_gemm(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    wf_call p = product_of(c, 1);
    return wf_cl_configure_gemm(caps, v, &p, limit, l) && add_experts(c, pairs_of(c), l);
}

/* A bias would have to come before SiLU, which tiles of many pairs do not do, and what is fused should not depend on
 * how many there are. */
static bool can_fuse_experts(const wf_call *c)
{
    return !c->p.silu || !c->in[WF_GROUPED_GEMM_BIAS].buf;
}

/* Fused only for few tokens: for many, tiles that share W are faster by more than the fusion saves. */
bool wf_cl_configure_grouped_gemv(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    enum { FEW_TOKENS = 4 };
    wf_call p = product_of(c, 1);
    if (c->p.silu && (!can_fuse_experts(c) || c->in[WF_GROUPED_GEMM_X].rows > FEW_TOKENS)) return false;
    return wf_cl_configure_gemv(caps, v, &p, limit, l) && add_experts(c, pairs_of(c), l);
}

/* Each work-group looks at all pairs up to its own: no kernel for many of them. Those that take one row of X at a time
 * are for one token, whose experts differ: what pairs share would be read again for each. */
bool wf_cl_configure_grouped_flat(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    enum { MOST_PAIRS = 1024 };
    wf_call p = product_of(c, 1);
    if (!can_fuse_experts(c) || (wf_cl_is_one_row(v) && c->in[WF_GROUPED_GEMM_X].rows > 1)) return false;
    return pairs_of(c) <= MOST_PAIRS && wf_cl_configure_flat(caps, v, &p, limit, l) && add_experts(c, pairs_of(c), l);
}

/* ---- tiles of many pairs (kernels/experts_many.clh) -------------------------------------------------------------- */

static uint32_t experts_of(const wf_call *c)
{
    return c->in[WF_GROUPED_GEMM_W].rows / rows_of_expert(c);
}

/* As many tiles as there can be of so many rows: each expert, and those pairs that have none, may leave one that is
 * not full. */
static bool add_tiles(const wf_call *c, uint32_t tile_rows, cl_launch *l)
{
    enum { MOST_EXPERTS = 1024 };
    uint64_t pairs = pairs_of(c), x = (uint64_t)c->in[WF_GROUPED_GEMM_X].rows * c->in[WF_GROUPED_GEMM_X].stride;
    uint32_t room = 8;
    while (room < experts_of(c)) room *= 2; /* few programs */
    wf_cl_knob(l, "EXPERTS", (int32_t)room);
    return room <= MOST_EXPERTS && x <= INT32_MAX &&
           add_experts(c, pairs / tile_rows + WF_MIN(pairs, experts_of(c) + 1ull), l);
}

bool wf_cl_configure_grouped_tile(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    wf_call p = product_of(c, (uint32_t)v->tile[0]);
    return wf_cl_configure_tile(caps, v, &p, limit, l) && add_tiles(c, (uint32_t)v->tile[0], l);
}

bool wf_cl_configure_grouped_mma(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                 cl_launch *l)
{
    wf_call p = product_of(c, (uint32_t)v->tile[0]);
    return wf_cl_mma_tiles(caps, v, &p, limit, l) && add_tiles(c, (uint32_t)v->tile[0], l);
}

bool wf_cl_configure_grouped_frag(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit,
                                  cl_launch *l)
{
    wf_call p = product_of(c, (uint32_t)v->tile[0]);
    return can_fuse_experts(c) && wf_cl_configure_frag(caps, v, &p, limit, l) && add_tiles(c, (uint32_t)v->tile[0], l);
}
