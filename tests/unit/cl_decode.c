/* Decode attention: with rings of keys in local memory, where those fit and are taken, and on the matrix units of
 * others than NVIDIA. */
#include "unit/cl_offline.h"

#include "select/batch_invariance.h"
#include "support/suite.h"

static cl_dev *with_rings(uint32_t local_kib)
{
    cl_dev *d = (cl_dev *)with_units(132, local_kib);
    d->ref.caps.nv_wgmma = true;
    d->ref.caps.scratch = d->ref.caps.zeroed = 1 << 28;
    return d;
}

/* What kernels/attention/split_ring.clh and attention_split.cl ask for. */
static int32_t ring_bytes(const cl_launch *l)
{
    int32_t d = knob(l, "D"), warps = (int32_t)l->group / 32, pair = 2 * d + 4;
    int32_t slot = 2 * (8 * d * 2 + 64) + 4 * (4 * d * 2 + 32),
            sums = warps * (knob(l, "COLS") / 2 * pair * 4 + 8 * 8) + 8;
    return warps * knob(l, "SLOTS") * (slot + 8) + sums;
}

static bool is_ring(int variant)
{
    return wf_cl_variant_at(WF_OP_ATTENTION, variant)->configure == wf_cl_configure_split_ring;
}

/* With any number of query heads a KV head; a device that has less than one tile a warp refuses. */
static void rings_fit_local_memory(void **state)
{
    static const uint32_t kib[] = {227, 99, 40, 16};
    int found = 0;
    for (size_t i = 0; i < WF_LEN(kib); i++)
        for (int j = 0; j < (int)wf_cl_n_variants(WF_OP_ATTENTION); j++)
            for (uint32_t per_kv = 1; per_kv <= 12 && is_ring(j); per_kv++)
                for (uint32_t dim = 64; dim <= 128; dim += 64) {
                    const cl_dev *d = with_rings(kib[i]);
                    wf_call c = attention(4, 1024, dim, 8 * per_kv);
                    cl_launch l;
                    if (!wf_cl_configure(d, j, &c, &l)) continue;
                    assert_true(ring_bytes(&l) <= (int32_t)kib[i] << 10);
                    assert_true(knob(&l, "COLS") >= (int32_t)WF_MIN(per_kv, 8));
                    found++;
                }
    assert_true(found >= 24);
}

static const char *picked_attention(cl_dev *d, const wf_call *c)
{
    wf_candidate_kernel best;
    return wf_cl_rank(&d->base, c, NULL, &best, 1) ? wf_cl_variant_at(WF_OP_ATTENTION, best.variant)->name : "none";
}

/* A share of the device is for the ring, where it can run; all of the device, prompts and windows are not. */
static void decodes_with_a_share(void **state)
{
    static wf_buf windows = {NULL, UINT64_MAX, NULL};
    cl_dev *d = with_rings(227);
    wf_call c = attention(256, 1024, 128, 32);
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c.max_groups = 24;
    assert_string_equal(picked_attention(d, &c), "mma_ring");
    c.max_groups = 99;
    assert_string_equal(picked_attention(d, &c), "mma_ring");
    c.max_groups = 100;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 96, 32), c.max_groups = 24;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 128, 32), c.max_groups = 24;
    c.in[WF_ATTENTION_WINDOWS] = (wf_view){&windows, 0, 1, 32, 32, WF_I32, 0};
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 128, 32), c.max_groups = 24, c.p.max_q = 100;
    assert_string_not_equal(picked_attention(d, &c), "mma_ring");
    d->ref.caps.nv_wgmma = false;
    c.p.max_q = 1;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
}

static cl_dev *with_lanes(uint32_t lanes)
{
    cl_dev *d = (cl_dev *)device(false, WF_TIER_MATRIX);
    d->ref.caps = (cl_caps){
        .gpu = true, .max_group = 256, .units = 96, .local_bytes = 64 << 10, .lanes = lanes, .tier = WF_TIER_MATRIX};
    d->base.fns = &offline_fns;
    return d;
}

/* Other matrix units: decodes without them, by chunks of keys that are short where rows are too few for the device. With
 * --deterministic kernels of one class for decodes and prompts, rows of one sequence for each KV head, padded to the
 * unit's. A head that the unit has no registers for is the base tier's. */
static void decodes_on_other_units(void **state)
{
    static const struct {
        uint32_t lanes, seqs, keys, head_dim, heads, max_q;
        int32_t rows;
        const char *variant, *invariant;
    } cases[] = {
        {64, 256, 1024, 256, 32, 1, 16, "decode_wide", "matrix_decode"},
        {32, 256, 1024, 128, 32, 1, 16, "decode_wide", "matrix_decode"},
        {16, 256, 1024, 128, 32, 1, 8, "decode_wide", "matrix_decode"},
        {16, 256, 1024, 128, 96, 1, 16, "decode_wide", "matrix_decode"},
        {32, 256, 1024, 128, 8 * 71, 1, 64, "decode_wide", "matrix_decode"},
        {32, 1, 4096, 128, 32, 1, 16, "decode_split", "matrix_decode"},
        {32, 1, 200, 128, 32, 1, 16, "decode_split", "matrix_decode"},
        {32, 2048, 2048, 128, 32, 2048, 64, "matrix_prefill_async", "matrix_prefill"},
        {32, 256, 1024, 256, 32, 1, 4, "decode_wide", "decode"},
    };
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_batch_invariance b = {0};
        cl_dev *d = with_lanes(cases[i].lanes);
        wf_call c = attention(cases[i].seqs, cases[i].keys, cases[i].head_dim, cases[i].heads);
        cl_launch l;
        c.p.max_q = cases[i].max_q;
        if (c.p.max_q > 1) c.p.phi_lo = -4, c.p.phi_hi = 4;
        assert_string_equal(picked_attention(d, &c), cases[i].variant);
        c.p.phi_lo = c.p.phi_hi = 0;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_ATTENTION, v)->name, cases[i].invariant);
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(knob(&l, "R"), cases[i].rows);
        wf_batch_invariance_reset(&b);
    }
}

SUITE(cl_decode, NULL, NULL, CASE(rings_fit_local_memory), CASE(decodes_with_a_share), CASE(decodes_on_other_units))
