/* cl_queue: queues, events and the watchdog of the OpenCL backend. */
#include "unit/cl_test.h"
#include "unit/queues.h"

#include <dlfcn.h>

static cl_dev *d;
static const wf_dev_fns *f;

static int kernel_for(const wf_call *c)
{
    return wf_variant_find(dev, c->op, "naive");
}

static int set_up(void **state)
{
    d = open_with((wf_open_params){0});
    dev = &d->base, f = dev->fns;
    turns = 100;
    return 0;
}

static int tear_down(void **state)
{
    destroy_made();
    shut(d);
    return 0;
}

static void too_many_queues(void **state)
{
    wf_queue *q[WF_CL_MAX_QUEUES] = {0};
    int n = 0;
    weft_status st = WEFT_OK;
    while (n < WF_CL_MAX_QUEUES && !(st = f->queue_create(&d->base, false, &q[n]))) n++;
    assert_int_equal(st, WEFT_ERR_ARG);
    assert_false(d->base.lost);
    while (n) f->queue_destroy(&d->base, q[--n]);
}

/* A queue that takes the place of one destroyed does not take its events for its own: it waits for them. */
static void place_used_again(void **state)
{
    wf_queue *q = queue_of();
    wf_event *e = event_of();
    uint32_t slot = ((cl_q *)q)->slot;
    assert_ok(f->mark(q, NULL, 0, e));
    assert_ok(f->flush(q));
    end_queue(q);
    q = queue_of();
    assert_int_equal(((cl_q *)q)->slot, slot);
    assert_int_not_equal(((cl_q *)q)->id, ((cl_ev *)e)->id);
    assert_ok(f->mark(q, &e, 1, NULL));
    assert_ok(f->wait(e, 1000));
}

static void too_much_memory(void **state)
{
    wf_buf *b = NULL;
    assert_int_equal(f->buf_create(&d->base, (uint64_t)1 << 46, &b), WEFT_ERR_NOMEM);
    assert_false(d->base.lost);
}

/* Submits it until a wait of 1 ms is too short: this thread may get its processor back when the work is done. blocked:
 * by the last flush. */
static weft_status submit_until_late(wf_queue *q, const wf_call *c, uint64_t *blocked)
{
    weft_status st = WEFT_OK;
    for (int i = 0; st == WEFT_OK && i < 20; i++) {
        uint64_t start = wf_now_ns();
        assert_ok(f->submit(q, c));
        assert_ok(f->flush(q));
        *blocked = wf_now_ns() - start;
        st = f->wait(c->signal, 1);
    }
    return st;
}

/* Waiting for less than the work takes: the device counts as lost, everything fails at once, and
 * closing does not hang. */
static void watchdog(void **state)
{
    enum { M = 256, N = 512, K = 8192 };
    wf_queue *q = queue_of();
    wf_event *e = event_of();
    wf_buf *x = buf_of(M * K * 4), *w = buf_of(N * K * 4), *y = buf_of(M * N * 4);
    wf_call c = {
        .op = WF_OP_GEMM, .variant = wf_variant_find(&d->base, WF_OP_GEMM, "naive"), .max_groups = 1, .signal = e};
    c.in[WF_GEMM_X] = (wf_view){.buf = x, .rows = M, .cols = K, .stride = K};
    c.in[WF_GEMM_W] = (wf_view){.buf = w, .rows = N, .cols = K, .stride = K};
    c.out[WF_GEMM_Y] = (wf_view){.buf = y, .rows = M, .cols = N, .stride = N};
    wf_bound bound;
    assert_ok(f->bind(&d->base, &c, c.variant, &bound));
    uint64_t blocked = 0;
    weft_status st = submit_until_late(q, &c, &blocked);
    if (st == WEFT_OK && blocked > 20000000u) SKIP_TEST(NEEDS_HARDWARE "this driver runs work inside clFlush");
    assert_int_equal(st, WEFT_ERR_TIMEOUT);
    assert_true(d->base.lost);
    assert_int_equal(f->wait(e, 1000), WEFT_ERR_DEVICE);
    assert_int_equal(f->submit(q, &c), WEFT_ERR_DEVICE);
    assert_int_equal(f->mark(q, NULL, 0, e), WEFT_ERR_DEVICE);
}

/* Each variant that can run the call once, at most as many as are wanted, and those of a class alone. */
static void offers(void **state)
{
    wf_candidate_kernel all[WF_MAX_VARIANTS], one[1];
    wf_call c = {.op = WF_OP_GEMM};
    uint64_t seen = 0;
    c.in[WF_GEMM_X] = (wf_view){.rows = 1, .cols = 64, .stride = 64};
    c.in[WF_GEMM_W] = (wf_view){.rows = 64, .cols = 64, .stride = 64};
    c.out[WF_GEMM_Y] = (wf_view){.rows = 1, .cols = 64, .stride = 64};
    size_t n = f->rank(&d->base, &c, NULL, all, WF_LEN(all));
    assert_true(n > 2);
    for (size_t i = 0; i < n; seen |= 1ull << all[i++].variant) {
        assert_false(seen >> all[i].variant & 1);
        assert_true(f->supports(&d->base, &c, all[i].variant));
    }
    assert_int_equal(f->rank(&d->base, &c, NULL, one, 1), 1);
    assert_int_equal(one[0].variant, all[0].variant);
    n = f->rank(&d->base, &c, "serial", all, WF_LEN(all));
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(wf_variant_at(&d->base, WF_OP_GEMM, all[i].variant)->class, "serial");
    assert_int_equal(f->rank(&d->base, &c, "no such class", all, WF_LEN(all)), 0);
}

static uint32_t word_at(wf_queue *q, wf_buf *b, uint64_t off)
{
    uint32_t word = 0;
    wf_event *e = event_of();
    assert_ok(f->read(q, b, off, &word, sizeof word, NULL, 0, e));
    assert_ok(f->wait(e, 0));
    return word;
}

/* A buffer is filled in pieces of 256 MiB: what begins in one and ends in the next but one, in the last, and what is a
 * whole buffer. */
static void fills_of_several_pieces(void **state)
{
    const uint64_t mib = 1 << 20, size = 530 * mib, begin = 200 * mib + 4, end = 520 * mib + 8;
    wf_queue *q = queue_of();
    wf_buf *b = buf_of(size);
    assert_ok(f->fill(q, b, 0, size, 1));
    assert_ok(f->fill(q, b, begin, end - begin, 2));
    assert_ok(f->fill(q, b, 525 * mib, 4, 3));
    const uint64_t twos[] = {begin, 256 * mib - 4, 256 * mib, 300 * mib, 512 * mib - 4, 512 * mib, end - 4};
    const uint64_t ones[] = {0, begin - 4, end, 525 * mib - 4, 525 * mib + 4, size - 4};
    for (size_t i = 0; i < WF_LEN(twos); i++) assert_int_equal(word_at(q, b, twos[i]), 2);
    for (size_t i = 0; i < WF_LEN(ones); i++) assert_int_equal(word_at(q, b, ones[i]), 1);
    assert_int_equal(word_at(q, b, 525 * mib), 3);
}

/* In front of the driver's. */
static size_t largest_launch;
CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims,
                                                       const size_t *offset, const size_t *global, const size_t *local,
                                                       cl_uint n, const cl_event *waits, cl_event *event)
{
    cl_int (*next)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
                   const cl_event *, cl_event *);
    *(void **)&next = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    largest_launch = WF_MAX(largest_launch, global[0]);
    return next(q, k, dims, offset, global, local, n, waits, event);
}

/* PoCL compiles a kernel once more for launches of more than 65535 work-items. A smaller one does all the same. */
static void launches_of_one_program(void **state)
{
    enum { N = 1 << 20 };
    if (!strstr(d->ref.info.platform, "Portable Computing Language")) return;
    wf_queue *q = queue_of();
    wf_buf *in = buf_of(8 * N), *out = buf_of(4 * N);
    assert_ok(f->fill(q, in, 0, 8 * N, 0));
    assert_ok(f->fill(q, out, 0, 4 * N, 1));
    wf_call c = {.op = WF_OP_SILU_MUL, .variant = 0};
    c.in[0] = (wf_view){.buf = in, .rows = 1, .cols = 2 * N, .stride = 2 * N};
    c.out[0] = (wf_view){.buf = out, .rows = 1, .cols = N, .stride = N};
    largest_launch = 0;
    assert_ok(f->submit(q, &c));
    for (uint64_t i = 0; i < N; i += N / 16 - 1) assert_int_equal(word_at(q, out, 4 * i), 0);
    assert_int_equal(word_at(q, out, 4 * (N - 1)), 0);
    assert_true(largest_launch > 0 && largest_launch <= WF_MAX(65535u, d->ref.caps.units * 16 * 64));
}

SUITE_EACH(cl_queue, need_device, NULL, set_up, tear_down, CASE(one_queue_is_in_order), CASE(ping_pong),
           CASE(copies_wait), CASE(columns_are_copied), CASE(join), CASE(events), CASE(too_many_queues),
           CASE(place_used_again),
           CASE(fills_of_several_pieces), CASE(too_much_memory), CASE(offers), CASE(watchdog),
           CASE(launches_of_one_program))
