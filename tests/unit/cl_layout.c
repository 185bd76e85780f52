/* MMA-fragment-major weights, without the device that reads them: packed tiles multiplied as the PTX ISA defines the
 * operands of mma.m16n8k16 give the product; and the layout is one that the device and the op have kernels for. */
#include "unit/cl_offline.h"
#include "support/suite.h"

static float number(uint64_t i)
{
    return (float)(int)(wf_random(7, i) % 17) - 8; /* sums of products are exact */
}

/* Element e of register r of operand A in lane l: row and k (PTX ISA, "Matrix Fragments for mma.m16n8k16"). */
static uint32_t a_row(uint32_t l, uint32_t r)
{
    return l / 4 + (r & 1 ? 8 : 0);
}

static uint32_t a_k(uint32_t l, uint32_t r, uint32_t e)
{
    return l % 4 * 2 + e + (r & 2 ? 8 : 0);
}

static void check_product(uint32_t rows, uint32_t cols)
{
    uint32_t padded = (rows + 15) / 16 * 16;
    wf_dev *d = device(true, WF_TIER_MATRIX);
    uint16_t *w = calloc((size_t)rows * cols, 2), *packed = calloc((size_t)padded * cols, 2);
    float *x = calloc(cols, sizeof *x), *y = calloc(padded, sizeof *y);
    for (uint32_t i = 0; i < rows * cols; i++) w[i] = wf_float_to_half(number(i));
    for (uint32_t k = 0; k < cols; k++) x[k] = number(1000000 + k);
    assert_int_equal(wf_cl_weight_bytes(d, WF_CL_FRAGMENT_MAJOR, WF_F16, rows, cols), (uint64_t)padded * cols * 2);
    wf_cl_weight_pack(d, WF_CL_FRAGMENT_MAJOR, WF_F16, rows, cols, w, packed);
    const uint16_t *at = packed;
    for (uint32_t row = 0; row < padded; row += 16)
        for (uint32_t k = 0; k < cols; k += 16)
            for (uint32_t lane = 0; lane < 32; lane++)
                for (uint32_t r = 0; r < 4; r++)
                    for (uint32_t e = 0; e < 2; e++)
                        y[row + a_row(lane, r)] += wf_half_to_float(*at++) * x[k + a_k(lane, r, e)];
    for (uint32_t n = 0; n < padded; n++) {
        float want = 0;
        for (uint32_t k = 0; k < cols && n < rows; k++) want += wf_half_to_float(w[(size_t)n * cols + k]) * x[k];
        if (y[n] != want) fail_msg("%u x %u: row %u is %g and should be %g", rows, cols, n, (double)y[n], (double)want);
    }
    free(w), free(packed), free(x), free(y);
}

static void fragments_multiply(void **state)
{
    check_product(16, 32);
    check_product(64, 96);
    check_product(1, 32);
    check_product(37, 160);
}

static void layout_follows_the_device(void **state)
{
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_F16, 8, 64), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_F16, 8, 48), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_Q4_0, 8, 64), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_Q4_0, 8, 96), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_BF16, 8, 64), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_BASE), WF_F16, 8, 64), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(false, WF_TIER_MATRIX), WF_F16, 8, 64), WF_CL_ROWS);
    /* Without matrix units, or where they may not be used, quantised weights lie in planes. */
    assert_int_equal(wf_cl_weight_layout(device(false, WF_TIER_MATRIX), WF_Q4_0, 8, 384), WF_CL_PLANES);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_BASE), WF_Q6_K, 8, 256), WF_CL_PLANES);
    assert_int_equal(wf_cl_weight_layout(device(false, WF_TIER_BASE), WF_Q4_0, 8, 320), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(false, WF_TIER_BASE), WF_Q4_0, 8, 128), WF_CL_ROWS);
}

/* Weights get a layout that their op has kernels for. */
static void layout_follows_the_op(void **state)
{
    static const wf_dev_fns fns = {.variants = wf_cl_variants, .weight_layout = wf_cl_weight_layout};
    cl_dev *d = with_wgmma();
    d->base.fns = &fns;
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GEMM, WF_Q4_K, 64, 256), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GROUPED_GEMM, WF_Q4_K, 64, 256), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GET_ROWS, WF_Q4_K, 64, 256), WF_CL_ROWS);
}

SUITE(cl_layout, NULL, NULL, CASE(fragments_multiply), CASE(layout_follows_the_device), CASE(layout_follows_the_op))
