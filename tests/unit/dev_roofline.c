/* The roofline: what calls read and compute, by hand; where the parts come from; and what is no coefficient. */
#include <math.h>

#include "support/null_device.h"
#include "dev/roofline.h"
#include "support/suite.h"

static wf_buf stand_in = {NULL, UINT64_MAX, NULL};

static wf_dev *open_null(void)
{
    wf_dev *d;
    wf_null_configure(&(wf_null_config){.variants = 2});
    assert_ok(wf_dev_open("null", NULL, &d));
    return d;
}

static wf_view view(uint32_t rows, uint32_t cols, enum wf_dtype dtype)
{
    return (wf_view){&stand_in, 0, rows, cols, cols, (uint8_t)dtype, 0};
}

static bool set(wf_roofline *r, wf_dev *d, const char *of, const char *name, double value)
{
    wf_cost c = {.value = value};
    wf_copy(c.of, sizeof c.of, of);
    wf_copy(c.name, sizeof c.name, name);
    return wf_roofline_set(r, d, &c);
}

/* A byte or an operation a microsecond: bytes or operations are times. */
static wf_roofline unit_roofline(wf_dev *d, const char *limit)
{
    wf_roofline r = {0};
    bool memory = *limit == 'm';
    assert_true(set(&r, d, "device", "read", memory ? 0.001 : 1e6) &&
                set(&r, d, "device", "f32", memory ? 1e6 : 0.000001));
    return r;
}

static void expect(const wf_call *c, double bytes, double flops)
{
    wf_dev *d = open_null();
    wf_roofline memory = unit_roofline(d, "memory"), compute = unit_roofline(d, "compute");
    double moved = wf_roofline_us(&memory, d, c, 0, 1), done = wf_roofline_us(&compute, d, c, 0, 1);
    if (fabs(moved - bytes) > 1e-6 * bytes || fabs(done - flops) > 1e-6 * flops)
        fail_msg("%s: %g bytes and %g operations, and should be %g and %g", wf_ops[c->op].name, moved, done, bytes,
                 flops);
    wf_dev_close(d);
}

static void work_by_hand(void **state)
{
    wf_call gemm = {.op = WF_OP_GEMM}, rows = {.op = WF_OP_GET_ROWS}, attention = {.op = WF_OP_ATTENTION},
            copy = {.op = WF_OP_PAGE_COPY};
    gemm.in[WF_GEMM_X] = view(4, 16, WF_F16), gemm.in[WF_GEMM_W] = view(8, 16, WF_F16),
    gemm.out[WF_GEMM_Y] = view(4, 8, WF_F32);
    expect(&gemm, 4 * 16 * 2 + 8 * 16 * 2 + 4 * 8 * 4, 2 * 4 * 8 * 16);
    rows.in[0] = view(1000, 32, WF_F16), rows.in[1] = view(3, 1, WF_I32), rows.out[0] = view(3, 32, WF_F32);
    expect(&rows, 3 * (32 * 2 + 4 + 32 * 4), 3 * (32 * 2 + 4 + 32 * 4));
    attention.p = (wf_op_params){
        .n_head = 4, .n_kv_head = 2, .head_dim = 64, .max_kv = 100, .max_q = 1, .page_tokens = 16};
    attention.in[WF_ATTENTION_Q] = view(5, 256, WF_F16), attention.out[WF_ATTENTION_O] = view(5, 256, WF_F16);
    attention.in[WF_ATTENTION_K_POOL] = attention.in[WF_ATTENTION_V_POOL] = view(99, 16 * 128, WF_F16);
    expect(&attention, 2 * 5 * 256 * 2 + 2 * 5 * 100 * 2 * 64 * 2, 4.0 * 5 * 100 * 4 * 64);
    copy.in[0] = copy.out[0] = view(50, 128, WF_F16), copy.in[1] = copy.in[2] = view(1, 7, WF_I32);
    expect(&copy, 2 * 7 * 128 * 2 + 2 * 7 * 4, 2 * 7 * 128 * 2 + 2 * 7 * 4);
}

static void parts_of_the_device(void **state)
{
    wf_dev *d = open_null();
    wf_call c = {.op = WF_OP_GEMM};
    c.in[WF_GEMM_X] = view(4, 16, WF_F32), c.in[WF_GEMM_W] = view(8, 16, WF_F32), c.out[WF_GEMM_Y] = view(4, 8, WF_F32);
    wf_roofline r = unit_roofline(d, "compute"), none = {0};
    double least = wf_roofline_us(&r, d, &c, 0, 1);
    assert_true(wf_roofline_us(&none, d, &c, 0, 1) == 0);
    assert_true(fabs(wf_roofline_us(&r, d, &c, 0, 3) - 3 * least) < 1e-9 * least);
    assert_true(set(&r, d, "gemm", "compute", 0.5) && set(&r, d, "gemm/null2", "compute", 0.25));
    assert_false(wf_roofline_measured(&r, WF_OP_GEMM, 1)); /* half of it */
    assert_true(fabs(wf_roofline_us(&r, d, &c, 1, 1) - 2 * least) < 1e-9 * least);
    assert_true(set(&r, d, "gemm/null2", "memory", 1) && wf_roofline_measured(&r, WF_OP_GEMM, 1));
    assert_true(fabs(wf_roofline_us(&r, d, &c, 1, 1) - 4 * least) < 1e-9 * least);
    assert_true(set(&r, d, "device", "launch", 7));
    assert_true(fabs(wf_roofline_us(&r, d, &c, 0, 1) - 2 * least - 7) < 1e-9 * least);
    assert_false(set(&r, d, "device", "memory", 1) || set(&r, d, "gemm", "read", 1) ||
                 set(&r, d, "gemm", "memory", 1.01));
    assert_false(set(&r, d, "gem", "memory", 1) || set(&r, d, "gemm/", "memory", 1) ||
                 set(&r, d, "gemm/none", "memory", 1));
    wf_dev_close(d);
}

SUITE(dev_roofline, NULL, NULL, CASE(work_by_hand), CASE(parts_of_the_device))
