/* Queues, teams and events of the CPU backend: order, waits across queues, time-outs, failures.
 * Meant to be run under the thread sanitizer too. Calls are products of 1x1 matrices, y = x + 1,
 * so that every lost or early call shows in the number at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cpu/cpu.h"

#define WAIT_MS 60000

static wf_dev *open_with(uint32_t threads, const char *force)
{
    wf_dev *dev = NULL;
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = threads, .force = force};
    assert_int_equal(wf_backend_cpu.open(0, &p, &dev), WEFT_OK);
    return dev;
}

static wf_buf *buf_of(wf_dev *dev, size_t size)
{
    wf_buf *b = NULL;
    assert_int_equal(dev->fns->buf_create(dev, size, &b), WEFT_OK);
    memset(b->host, 0, size);
    return b;
}

static wf_queue *queue_of(wf_dev *dev)
{
    wf_queue *q = NULL;
    assert_int_equal(dev->fns->queue_create(dev, &q), WEFT_OK);
    return q;
}

static wf_event *event_of(wf_dev *dev)
{
    wf_event *e = NULL;
    assert_int_equal(dev->fns->event_create(dev, &e), WEFT_OK);
    return e;
}

static wf_view view_of(wf_buf *b, uint64_t offset, uint32_t rows, uint32_t cols)
{
    return (wf_view){.buf = b, .offset = offset, .rows = rows, .cols = cols, .stride = cols};
}

/* Cells of 64 bytes: 0 and 1 hold numbers, 2 and 3 the constant one (weight and bias). */
static wf_buf *cells(wf_dev *dev)
{
    wf_buf *b = buf_of(dev, 256);
    float one = 1;
    memcpy((char *)b->host + 128, &one, 4);
    memcpy((char *)b->host + 192, &one, 4);
    return b;
}

static float cell(const wf_buf *b, int i)
{
    float x;
    memcpy(&x, (const char *)b->host + 64 * i, 4);
    return x;
}

static wf_call add_one(wf_buf *b, int from, int to)
{
    return (wf_call){
        .op = WF_OP_GEMM,
        .variant = -1,
        .in = {view_of(b, 64u * from, 1, 1), view_of(b, 128, 1, 1), view_of(b, 192, 1, 1)},
        .out = {view_of(b, 64u * to, 1, 1)}};
}

static void test_order(void **state)
{
    (void)state;
    wf_dev *dev = open_with(2, NULL);
    wf_buf *b = cells(dev);
    wf_queue *q = queue_of(dev);
    wf_event *e = event_of(dev);
    assert_int_equal(dev->fns->wait(e, 0), WEFT_OK); /* starts as done */
    for (int i = 0; i < 3000; i++) {
        wf_call c = add_one(b, i & 1, ~i & 1);
        assert_int_equal(dev->fns->submit(q, &c), WEFT_OK);
    }
    assert_int_equal(dev->fns->mark(q, NULL, 0, e), WEFT_OK);
    assert_int_equal(dev->fns->wait(e, WAIT_MS), WEFT_OK);
    assert_true(cell(b, 0) == 3000);
    dev->fns->queue_destroy(dev, q);
    dev->fns->event_destroy(dev, e);
    dev->fns->buf_destroy(dev, b);
    dev->fns->close(dev);
}

/* Two queues take turns; each event is re-armed 2000 times. */
static void test_ping_pong(void **state)
{
    (void)state;
    wf_dev *dev = open_with(2, NULL);
    wf_buf *b = cells(dev);
    wf_queue *q[2] = {queue_of(dev), queue_of(dev)};
    wf_event *e[2] = {event_of(dev), event_of(dev)};
    for (int i = 0; i < 4000; i++) {
        int me = i & 1;
        wf_call c = add_one(b, me, !me);
        c.waits = &e[!me];
        c.n_waits = 1;
        c.signal = e[me];
        assert_int_equal(dev->fns->submit(q[me], &c), WEFT_OK);
    }
    assert_int_equal(dev->fns->wait(e[1], WAIT_MS), WEFT_OK);
    assert_true(cell(b, 0) == 4000);
    for (int i = 0; i < 2; i++) {
        dev->fns->queue_destroy(dev, q[i]);
        dev->fns->event_destroy(dev, e[i]);
    }
    dev->fns->buf_destroy(dev, b);
    dev->fns->close(dev);
}

/* More waits than one command holds, and the data of all of them is there. */
static void test_many_waits(void **state)
{
    (void)state;
    enum { N = 20 };
    wf_dev *dev = open_with(1, NULL);
    wf_queue *a = queue_of(dev), *z = queue_of(dev);
    wf_event *e[N], *done = event_of(dev);
    wf_buf *b = buf_of(dev, 4 * N);
    uint32_t src[N], dst[N];
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < N; i++) {
            if (round == 0) e[i] = event_of(dev);
            src[i] = (uint32_t)round * 1000 + i;
        }
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(dev->fns->write(a, b, 4 * i, &src[i], 4, e[i]), WEFT_OK);
        assert_int_equal(dev->fns->mark(z, e, N, NULL), WEFT_OK);
        assert_int_equal(dev->fns->read(z, b, 0, dst, sizeof(dst), done), WEFT_OK);
        assert_int_equal(dev->fns->wait(done, WAIT_MS), WEFT_OK);
        assert_memory_equal(src, dst, sizeof(src));
    }
    dev->fns->queue_destroy(dev, a);
    dev->fns->queue_destroy(dev, z);
    for (int i = 0; i < N; i++) dev->fns->event_destroy(dev, e[i]);
    dev->fns->event_destroy(dev, done);
    dev->fns->buf_destroy(dev, b);
    dev->fns->close(dev);
}

/* A 24 x 300 x 512 product with the variant that is picked, and with all others. */
static void product(uint32_t threads, int variant, uint32_t groups, float *out)
{
    enum { M = 24, N = 300, K = 512 };
    wf_dev *dev = open_with(threads, NULL);
    wf_buf *x = buf_of(dev, 4 * M * K), *w = buf_of(dev, 4 * N * K), *y = buf_of(dev, 4 * M * N);
    wf_queue *q = queue_of(dev);
    wf_event *e = event_of(dev);
    for (uint32_t i = 0; i < M * K; i++) ((float *)x->host)[i] = (float)wf_random_unit(1, i) - 0.5f;
    for (uint32_t i = 0; i < N * K; i++) ((float *)w->host)[i] = (float)wf_random_unit(2, i) - 0.5f;
    wf_call c = {.op = WF_OP_GEMM,
                 .variant = variant,
                 .groups = groups,
                 .signal = e,
                 .in = {view_of(x, 0, M, K), view_of(w, 0, N, K)},
                 .out = {view_of(y, 0, M, N)}};
    if (variant < 0 || dev->fns->supports(dev, &c, variant)) {
        assert_int_equal(dev->fns->submit(q, &c), WEFT_OK);
        assert_int_equal(dev->fns->wait(e, WAIT_MS), WEFT_OK);
    }
    memcpy(out, y->host, 4 * M * N);
    dev->fns->queue_destroy(dev, q);
    dev->fns->event_destroy(dev, e);
    dev->fns->buf_destroy(dev, x);
    dev->fns->buf_destroy(dev, w);
    dev->fns->buf_destroy(dev, y);
    dev->fns->close(dev);
}

static void test_threads_agree(void **state)
{
    (void)state;
    static float one[24 * 300], many[24 * 300];
    size_t n;
    wf_cpu_variant_of(WF_OP_GEMM, &n);
    for (int v = -1; v < (int)n; v++) {
        product(1, v, 0, one);
        product(4, v, 0, many);
        assert_memory_equal(one, many, sizeof(one));
        product(4, v, 3, many);
        assert_memory_equal(one, many, sizeof(one));
    }
}

/* A queue that waits for something that never comes is a lost device, and can still be closed. */
static void test_timeout(void **state)
{
    (void)state;
    wf_dev *dev = open_with(2, NULL);
    wf_queue *q = queue_of(dev);
    wf_event *never = event_of(dev), *e = event_of(dev);
    ((wf_cpu_event *)never)->armed++;
    assert_int_equal(dev->fns->mark(q, &never, 1, e), WEFT_OK);
    assert_int_equal(dev->fns->wait(e, 20), WEFT_ERR_TIMEOUT);
    assert_true(dev->lost);
    dev->fns->queue_destroy(dev, q);
    dev->fns->event_destroy(dev, e);
    dev->fns->event_destroy(dev, never);
    dev->fns->close(dev);
}

/* What fails while it runs is told by the next wait and submit; later calls are skipped. */
static void test_failure(void **state)
{
    (void)state;
    wf_dev *dev = open_with(2, NULL);
    wf_queue *q = queue_of(dev);
    wf_event *e = event_of(dev);
    wf_buf *b = cells(dev);
    wf_call c = add_one(b, 0, 1);
    c.signal = e;
    assert_int_equal(dev->fns->submit(q, &c), WEFT_OK);
    assert_int_equal(dev->fns->wait(e, WAIT_MS), WEFT_OK);
    wf_cpu_fail((wf_cpu_dev *)dev, WEFT_ERR_NOMEM, "first");
    wf_cpu_fail((wf_cpu_dev *)dev, WEFT_ERR_DEVICE, "second");
    assert_int_equal(dev->fns->wait(e, WAIT_MS), WEFT_ERR_NOMEM);
    assert_string_equal(wf_error(), "first");
    assert_int_equal(dev->fns->submit(q, &c), WEFT_ERR_NOMEM);
    dev->fns->queue_destroy(dev, q);
    dev->fns->event_destroy(dev, e);
    dev->fns->buf_destroy(dev, b);
    dev->fns->close(dev);
}

static void test_force(void **state)
{
    (void)state;
    wf_dev *dev = open_with(1, "*=ref,gemm=ref");
    wf_buf *b = cells(dev);
    wf_call c = add_one(b, 0, 1);
    assert_int_equal(dev->fns->pick(dev, &c, NULL), 0);
    dev->fns->buf_destroy(dev, b);
    dev->fns->close(dev);
    const char *bad[] = {"gemm", "gemm=", "gemm=nosuch", "nosuch=ref", "=", "gemm=ref,x=y"};
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        wf_open_params p = {.threads = 1, .force = bad[i]};
        assert_int_equal(wf_backend_cpu.open(0, &p, &dev), WEFT_ERR_ARG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),      cmocka_unit_test(test_ping_pong),
        cmocka_unit_test(test_many_waits), cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_timeout),    cmocka_unit_test(test_failure),
        cmocka_unit_test(test_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
