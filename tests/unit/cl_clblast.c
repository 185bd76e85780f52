/* Products by CLBlast beyond what the op test sees: its kernels for large ones, panels in several parts, events, who
 * picks it, and that nothing of a device stays behind. */
#include "select/select.h"
#include "unit/cl_test.h"

#include <clblast_c.h>

#include "verify/check.h"
#include "support/suite.h"

static wf_dev *reference;

static wf_dev *open_first(wf_open_params p)
{
    wf_dev *dev = NULL;
    p.tier = WF_TIER_MATRIX;
    assert_ok(wf_dev_open("opencl:0.0", &p, &dev));
    return dev;
}

/* The product of a case is right. */
static void check(wf_dev *dev, wf_queue *q, wf_case c)
{
    wf_check *k;
    wf_check_result r;
    c.op = WF_OP_GEMM;
    c.seed = 11;
    assert_ok(wf_check_new(reference, &c, &k));
    assert_ok(wf_check_run(k, dev, q, wf_variant_find(dev, WF_OP_GEMM, "clblast"), false, &r));
    assert_true(r.supported);
    if (!r.ok) fail_msg("%s", r.message);
    wf_check_free(k);
}

static void check_on(wf_open_params p, const wf_case *c, size_t n)
{
    wf_dev *dev = open_first(p);
    wf_queue *q;
    assert_ok(wf_queue_create(dev, &q));
    for (size_t i = 0; i < n; i++) check(dev, q, c[i]);
    wf_queue_destroy(q);
    wf_dev_close(dev);
}

/* Bytes of temporary memory that CLBlast wants for a product: none for small ones. */
static size_t temporary(wf_queue *q, const wf_case *c)
{
    size_t bytes = 0;
    assert_int_equal(CLBlastSGemmTempBufferSize(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, c->m,
                                                c->n, c->k, 0, c->k, 0, c->k, 0, c->n, &((cl_q *)q)->q, &bytes),
                     CLBlastSuccess);
    return bytes;
}

/* Small products take one kernel of its own; large ones others, behind some that pad the operands. The bound is the
 * device's. */
static void large_product(void **state)
{
    wf_case c = {
        .in = WF_F16, .weight = WF_Q8_0, .out = WF_F32, .m = 130, .n = 700, .k = 1216, .residual = true, .pad = 3};
    wf_dev *dev = open_first((wf_open_params){0});
    wf_queue *q;
    assert_ok(wf_queue_create(dev, &q));
    while (!temporary(q, &c) && c.n < 8000) c.n += 300;
    bool found = temporary(q, &c) > 0;
    if (found) check(dev, q, c);
    wf_queue_destroy(q);
    wf_dev_close(dev);
    if (!found) SKIP_TEST(NEEDS_HARDWARE "CLBlast takes one kernel for all products of this device");
}

/* Little memory, so that the panels hold a few columns of Y at a time. */
static void panels_in_parts(void **state)
{
    static const wf_case cases[] = {
        {.in = WF_F16, .weight = WF_F16, .out = WF_F16, .m = 7, .n = 300, .k = 64, .bias = true, .residual = true,
         .pad = 5},
        {.in = WF_F32, .weight = WF_Q8_0, .out = WF_F32, .m = 5, .n = 333, .k = 128, .bias = true, .residual = true,
         .in_place = true},
        {.in = WF_F32, .weight = WF_Q4_0, .out = WF_F32, .m = 3, .n = 200, .k = 96},
    };
    check_on((wf_open_params){.max_alloc = 64 << 10}, cases, WF_LEN(cases));
}

static wf_call product(uint32_t m, uint32_t n, uint32_t k)
{
    wf_call c = {.op = WF_OP_GEMM, .variant = -1};
    c.in[WF_GEMM_X] = (wf_view){.rows = m, .cols = k, .stride = k};
    c.in[WF_GEMM_W] = (wf_view){.rows = n, .cols = k, .stride = k};
    c.out[WF_GEMM_Y] = (wf_view){.rows = m, .cols = n, .stride = n};
    return c;
}

static wf_dev *selected(const char *force)
{
    wf_dev *dev;
    assert_ok(wf_select_open("opencl:0.0", &(wf_open_params){.tier = WF_TIER_MATRIX, .force = force}, &dev));
    return dev;
}

static int pick(wf_dev *d, uint32_t groups)
{
    wf_call c = product(300, 512, 512);
    c.max_groups = groups;
    return wf_pick(d, &c);
}

static void only_where_asked_for(void **state)
{
    wf_candidate_kernel offered[WF_MAX_VARIANTS];
    wf_dev *b = selected(NULL);
    int ours = wf_variant_find(b, WF_OP_GEMM, "clblast");
    wf_call c = product(300, 512, 512), large = product(1 << 15, 512, 1 << 14);
    assert_true(wf_cl_supports(b, &c, ours));
    large.in[WF_GEMM_X].dtype = WF_F16;
    assert_false(wf_cl_supports(b, &large, ours)); /* a panel of 2 GiB */
    size_t n = wf_cl_rank(b, &c, NULL, offered, WF_LEN(offered));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) assert_int_not_equal(offered[i].variant, ours);
    wf_dev_close(b);
    b = selected("gemm=clblast");
    assert_int_equal(pick(b, 0), ours);
    assert_int_not_equal(pick(b, 4), ours); /* it takes the whole device */
    wf_dev_close(b);
}

/* ---- events ---------------------------------------------------------------------------------------------- */

enum { PAIRS = 20 };

/* y = x * 1 + 1 in turn on two queues: from one cell to the other, and back. */
static void order(void **state)
{
    cl_dev *d = open_with((wf_open_params){.profile = true});
    const wf_dev_fns *f = d->base.fns;
    wf_queue *q[2];
    wf_event *e[2], *first;
    wf_buf *b;
    float cells[3] = {0, 0, 1};
    uint64_t begin, end, from, to;
    assert_ok(f->buf_create(&d->base, sizeof cells, &b));
    assert_ok(f->event_create(&d->base, &first));
    for (int i = 0; i < 2; i++) {
        assert_ok(f->queue_create(&d->base, false, &q[i]));
        assert_ok(f->event_create(&d->base, &e[i]));
    }
    assert_ok(f->write(q[1], b, 0, cells, sizeof cells, NULL, 0, e[1]));
    for (int i = 0; i < 2 * PAIRS; i++) {
        wf_call c = product(1, 1, 1);
        c.variant = wf_variant_find(&d->base, WF_OP_GEMM, "clblast");
        c.in[WF_GEMM_X].buf = c.in[WF_GEMM_W].buf = c.in[WF_GEMM_BIAS].buf = c.out[WF_GEMM_Y].buf = b;
        c.in[WF_GEMM_X].offset = i % 2 * sizeof(float), c.out[WF_GEMM_Y].offset = (1 - i % 2) * sizeof(float);
        c.in[WF_GEMM_W].offset = c.in[WF_GEMM_BIAS].offset = 2 * sizeof(float);
        c.waits = &e[1 - i % 2], c.n_waits = 1, c.signal = e[i % 2], c.started = first;
        assert_ok(f->submit(q[i % 2], &c));
    }
    assert_ok(f->wait(e[1], 0));
    assert_ok(f->times(e[1], &begin, &end));
    assert_ok(f->wait(first, 0));
    assert_ok(f->times(first, &from, &to));
    assert_true(from < to && to <= begin && begin < end); /* the product, then what adds the bias */
    assert_ok(f->read(q[1], b, 0, cells, sizeof cells, NULL, 0, e[1]));
    assert_ok(f->wait(e[1], 0));
    assert_true(cells[0] == 2 * PAIRS && cells[1] == 2 * PAIRS - 1);
    f->buf_destroy(&d->base, b);
    f->event_destroy(&d->base, first);
    for (int i = 0; i < 2; i++) f->event_destroy(&d->base, e[i]), f->queue_destroy(&d->base, q[i]);
    shut(d);
}

/* CLBlast keeps programs by context. */
static void nothing_stays_behind(void **state)
{
    static const wf_case one = {.in = WF_F32, .weight = WF_F16, .out = WF_F32, .m = 3, .n = 5, .k = 7};
    wf_dev *dev = open_first((wf_open_params){0});
    cl_context ctx = ((cl_dev *)dev)->ctx;
    wf_queue *q;
    cl_uint users = 0;
    assert_int_equal(clRetainContext(ctx), CL_SUCCESS);
    assert_ok(wf_queue_create(dev, &q));
    check(dev, q, one);
    wf_queue_destroy(q);
    wf_dev_close(dev);
    assert_int_equal(clGetContextInfo(ctx, CL_CONTEXT_REFERENCE_COUNT, sizeof users, &users, NULL), CL_SUCCESS);
    assert_int_equal(users, 1);
    clReleaseContext(ctx);
}

/* Its kernels may be those of another version at the next start, so they have no id to keep a passed self-test by. */
static void its_kernels_have_no_id(void **state)
{
    static const wf_case product = {
        .op = WF_OP_GEMM, .in = WF_F32, .weight = WF_F16, .out = WF_F32, .m = 3, .n = 5, .k = 64};
    wf_dev *dev = open_first((wf_open_params){0});
    wf_buf *buf;
    wf_check *k;
    wf_call c;
    char id[64];
    assert_ok(wf_check_new(NULL, &product, &k));
    assert_ok(wf_buf_create(dev, 4096, &buf));
    wf_check_stand_in(k, NULL, NULL, buf, &c);
    for (int ours = 0; ours < 2; ours++) {
        wf_bound b;
        int variant = ours ? wf_pick(dev, &c) : wf_variant_find(dev, WF_OP_GEMM, "clblast");
        assert_ok(dev->fns->bind(dev, &c, variant, &b));
        assert_int_equal(dev->fns->kernel_id(dev, &b, id, sizeof id), ours);
    }
    assert_int_equal(strlen(id), 32);
    wf_buf_destroy(buf);
    wf_check_free(k);
    wf_dev_close(dev);
}

SUITE_MAIN(cl_clblast)
{
    const struct CMUnitTest tests[] = {CASE(large_product), CASE(panels_in_parts), CASE(only_where_asked_for),
        CASE(order), CASE(nothing_stays_behind), CASE(its_kernels_have_no_id)};
    wf_open_params p = {.tier = WF_TIER_BASE, .threads = 1};
    need_device(NULL);
    if (wf_dev_open("cpu", &p, &reference)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    wf_dev_close(reference);
    return failed;
}
