/* Batch-invariant choices: one class of kernels for any number of rows. */
#include "unit/cl_offline.h"

#include "select/batch_invariance.h"
#include "support/suite.h"

/* Where the kernel of norms whose order products follow is not to be had. */
static int pick_but_tree(wf_dev *d, const wf_call *c, const char *class)
{
    return c->op == WF_OP_RMSNORM ? -1 : pick_in_class(d, c, class);
}

/* One class for any number of rows, and within it tiles that fit them: as many parts of K as few rows need and many
 * bear. A share of the device takes other tiles of that class, be it the first call of its shape. */
static void batch_invariant_products(void **state)
{
    static const struct {
        uint32_t m, n, k, groups;
        const char *variant;
    } cases[] = {{1, 28672, 4096, 0, "flat_whole"},      {8, 28672, 4096, 0, "flat_whole"},
                 {9, 28672, 4096, 0, "narrow16"},        {64, 28672, 4096, 0, "wgmma64"},
                 {2048, 28672, 4096, 0, "packed256"},    {64, 4096, 14336, 3, "wgmma64_p4"},
                 {1, 4096, 14336, 0, "flat_k4"},         {2, 4096, 14336, 0, "narrow16_k4"},
                 {64, 4096, 14336, 0, "wgmma64_k4"},     {256, 4096, 14336, 0, "wgmma128_k4"},
                 {2048, 4096, 14336, 0, "packed192_p4"}, {1, 6144, 4096, 0, "flat_k4"},
                 {2048, 6144, 4096, 0, "packed192_p4"}};
    wf_batch_invariance b = {0};
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = product(cases[i].m, cases[i].n, cases[i].k);
        c.max_groups = cases[i].groups;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, cases[i].variant);
    }
    wf_batch_invariance_reset(&b);
}

/* SiLU behind a product is one kernel for any number of rows, also of experts; a bias of experts, or a router's norm
 * and scores, for none: few rows would have other bits than many. A norm before a product is in its kernel where rows
 * have room in local memory, with the bits of a norm alone. */
static void batch_invariant_fusions(void **state)
{
    static const uint32_t rows[] = {1, 8, 64, 2048};
    wf_batch_invariance b = {0};
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    d->base.act = WF_F16;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_call c = product(rows[i], 28672, 4096);
        c.p.silu = 1;
        c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = 14336;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_true(v >= 0);
        assert_string_equal(wf_variant_at(&d->base, WF_OP_GEMM, v)->class, "wgmma");
        c.in[WF_GEMM_X].dtype = WF_F32;
        c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 4096, 4096, WF_F32, 0};
        v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        if (rows[i] > 1) assert_int_equal(v, -1);
        else assert_string_equal(wf_variant_at(&d->base, WF_OP_GEMM, v)->name, "flat_whole");
        assert_int_equal(wf_pick_batch_invariant(&b, pick_but_tree, &d->base, &c), -1);
        wf_call experts = with_gates(rows[i], 14336, WF_CL_FRAGMENT_MAJOR), biased = experts;
        biased.in[WF_GROUPED_GEMM_BIAS] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 8 * 28672, 8 * 28672, WF_F32, 0};
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &biased),
                         -1); /* first: that it has no class is not the others' */
        v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &experts);
        assert_true(v >= 0);
        assert_string_equal(wf_variant_at(&d->base, WF_OP_GROUPED_GEMM, v)->class, "fragments");
        wf_call router = with_router(rows[i], 8, 4096);
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &router), -1);
    }
    wf_batch_invariance_reset(&b);
}

/* For any number of rows in one class, and not at all where pairs are halves of a head: they are interleaved as they
 * are loaded. */
static void rotation_has_a_class(void **state)
{
    static const uint32_t rows[] = {1, 8, 16, 64, 1024, 2048};
    wf_batch_invariance b = {0};
    const char *class = NULL;
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_call c = qkv(rows[i], 128, 128, 0);
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_true(v >= 0);
        const wf_variant *picked = wf_variant_at(&d->base, WF_OP_GEMM, v);
        assert_true((picked->flags & WF_MODELLED) && (!class || !strcmp(picked->class, class)));
        class = picked->class;
        c.p.neox = 1;
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c), -1);
    }
    wf_batch_invariance_reset(&b);
}

SUITE(cl_invariant, NULL, NULL, CASE(batch_invariant_products), CASE(batch_invariant_fusions),
      CASE(rotation_has_a_class))
