/* Kernels for experts: their products, with gates, and the router that chooses them. */
#include "unit/cl_offline.h"
#include "support/suite.h"

/* Few pairs of each expert are read by gemv's kind, many in tiles; and an expert's blocks of 16 rows are whole. */
static void experts_by_pairs(void **state)
{
    static const struct {
        uint32_t tokens, n;
        uint8_t layout;
        const char *variant;
    } cases[] = {{1, 14336, 1, "row_int16"}, {2, 14336, 1, "flat8"},   {1, 1536, 1, "flat8_split"},
                 {16, 14336, 1, "flat8"},    {40, 14336, 1, "flat16"}, {100, 14336, 1, "frag64"},
                 {512, 14336, 1, "frag256"}, {1, 14344, 1, NULL},      {1, 14336, 0, "gemv"},
                 {64, 14336, 0, "mma16"},    {512, 14336, 0, "mma64"}};
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_experts(cases[i].tokens, cases[i].n, 4096, cases[i].layout);
        int v = best_of(d, &c);
        if (!cases[i].variant) assert_true(v < 0);
        else assert_string_equal(wf_cl_variant_at(WF_OP_GROUPED_GEMM, v)->name, cases[i].variant);
    }
}

/* Gate and up of experts are one product and one launch with SiLU, with the kernels that dense ones have for it; other
 * gates have SILU_MUL behind, and so do those with a bias, and rows as in the file for many tokens. */
static void experts_gates(void **state)
{
    static const struct {
        uint32_t tokens, activation;
        uint8_t layout;
        bool bias;
        const char *variant;
    } cases[] = {{1, WF_SILU, 1, false, "row_int16"}, {2, WF_SILU, 1, false, "flat8"},
                 {40, WF_SILU, 1, false, "flat16"},   {512, WF_SILU, 1, false, "frag256"},
                 {1, WF_SILU, 1, true, NULL},         {512, WF_SILU, 1, true, NULL},
                 {1, WF_GELU_TANH, 1, false, NULL},   {1, WF_CLAMPED_SWIGLU, 1, false, NULL},
                 {1, WF_SILU, 0, false, "gemv"},      {512, WF_SILU, 0, false, NULL}};
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_gates(cases[i].tokens, 14336, cases[i].layout);
        cl_launch l;
        c.p.activation = cases[i].activation;
        if (cases[i].bias) c.in[WF_GROUPED_GEMM_BIAS] = (wf_view){c.in[0].buf, 0, 1, 8 * 28672, 8 * 28672, WF_F32, 0};
        int v = best_of(d, &c);
        if (!cases[i].variant) assert_int_equal(v, -1);
        if (!cases[i].variant) continue;
        assert_string_equal(wf_cl_variant_at(WF_OP_GROUPED_GEMM, v)->name, cases[i].variant);
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(knob(&l, "SILU"), 1);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
}

/* One launch for few tokens and as much of W as one work-group reads in little time, which lies as in the file. Lanes
 * follow from the experts alone: the bits of a token must not depend on others. */
static void routers_of_few_tokens(void **state)
{
    static const struct {
        uint32_t tokens, experts, k;
        uint8_t layout;
        int32_t lanes; /* 0: in pieces */
    } cases[] = {{1, 8, 4096, 0, 512},  {8, 8, 4096, 0, 512}, {9, 8, 4096, 0, 0},
                 {1, 4, 4096, 0, 1024}, {1, 64, 2048, 0, 64}, {1, 256, 512, 0, 32},
                 {1, 257, 256, 0, 0},   {1, 128, 2048, 0, 0}, {1, 8, 4096, 1, 0}};
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns, d->base.has_fused_router = true;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_router(cases[i].tokens, cases[i].experts, cases[i].k);
        cl_launch l;
        enum wf_piece piece[WF_MAX_PIECES];
        c.in[WF_ROUTER_W].layout = cases[i].layout, c.variant = -1;
        int v = best_of(d, &c);
        assert_int_equal(wf_pieces(&d->base, &c, piece), cases[i].lanes ? 1 : 3);
        if (!cases[i].lanes) assert_int_equal(v, -1);
        if (!cases[i].lanes) continue;
        assert_string_equal(wf_cl_variant_at(WF_OP_ROUTER, v)->name, "norm");
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(knob(&l, "LANES"), cases[i].lanes);
        assert_int_equal(knob(&l, "VEC"), 1);
        assert_int_equal(l.groups, cases[i].tokens);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
    wf_call scores = wf_piece_of(&(wf_call){.op = WF_OP_ROUTER, .in = {with_router(9, 8, 64).out[WF_ROUTER_SCORES_WS]}},
                                 WF_PIECE_WHOLE);
    assert_string_equal(wf_cl_variant_at(WF_OP_ROUTER, best_of(d, &scores))->name, "naive");
}

SUITE(cl_experts, NULL, NULL, CASE(experts_by_pairs), CASE(experts_gates), CASE(routers_of_few_tokens))
