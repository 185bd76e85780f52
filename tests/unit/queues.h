/* queues: what each backend promises of queues and events, for the suite of each, which opens the device and chooses the
 * kernel. Calls are products of 1x1 matrices, y = x * 1 + 1, so that every lost or early call shows in the number at
 * the end. */
#ifndef WF_TEST_QUEUES_H
#define WF_TEST_QUEUES_H

#include "dev/front.h"
#include "support/suite.h"

#define CELL    512 /* bytes between numbers: every offset is aligned for any device */
#define WAIT_MS 60000

static wf_dev *dev;
static int kernel_for(const wf_call *c);

/* What a test has made of the device. */
static struct {
    wf_queue *queues[16];
    wf_event *events[512];
    wf_buf *bufs[4];
    size_t n_queues, n_events, n_bufs;
} made;

static inline void destroy_made(void)
{
    for (size_t i = 0; i < made.n_queues; i++)
        if (made.queues[i]) dev->fns->queue_destroy(dev, made.queues[i]);
    for (size_t i = 0; i < made.n_events; i++) dev->fns->event_destroy(dev, made.events[i]);
    for (size_t i = 0; i < made.n_bufs; i++) dev->fns->buf_destroy(dev, made.bufs[i]);
    made.n_queues = made.n_events = made.n_bufs = 0;
}

static inline wf_queue *queue_of(void)
{
    wf_queue **q = &made.queues[made.n_queues++];
    assert_ok(dev->fns->queue_create(dev, false, q));
    return *q;
}

/* Before the others. */
static inline void end_queue(wf_queue *q)
{
    for (size_t i = 0; i < made.n_queues; i++)
        if (made.queues[i] == q) made.queues[i] = NULL;
    dev->fns->queue_destroy(dev, q);
}

static inline wf_event *event_of(void)
{
    wf_event **e = &made.events[made.n_events++];
    assert_ok(dev->fns->event_create(dev, e));
    return *e;
}

/* Zeros, where the host has its memory. */
static inline wf_buf *buf_of(uint64_t size)
{
    wf_buf **b = &made.bufs[made.n_bufs++];
    assert_ok(dev->fns->buf_create(dev, size, b));
    if ((*b)->host) memset((*b)->host, 0, size);
    return *b;
}

/* Cells 0 to n - 1 are 0; cell n is the constant one, weight and bias. */
static inline wf_buf *cells(wf_queue *q, int n)
{
    wf_buf *b = buf_of((uint64_t)(n + 1) * CELL);
    float one = 1;
    wf_event *e = event_of();
    assert_ok(dev->fns->fill(q, b, 0, (uint64_t)(n + 1) * CELL, 0));
    assert_ok(dev->fns->write(q, b, (uint64_t)n * CELL, &one, sizeof one, NULL, 0, e));
    assert_ok(dev->fns->wait(e, WAIT_MS));
    return b;
}

static inline float cell(wf_queue *q, wf_buf *b, int i)
{
    float x = -1;
    wf_event *e = event_of();
    assert_ok(dev->fns->read(q, b, (uint64_t)i * CELL, &x, sizeof x, NULL, 0, e));
    assert_ok(dev->fns->wait(e, WAIT_MS));
    return x;
}

static inline wf_call one_more(wf_buf *b, int n, int from, int to)
{
    wf_view v = {.buf = b, .rows = 1, .cols = 1, .stride = 1};
    wf_call c = {.op = WF_OP_GEMM, .in = {v, v, v}, .out = {v}};
    c.in[WF_GEMM_X].offset = (uint64_t)from * CELL;
    c.in[WF_GEMM_W].offset = c.in[WF_GEMM_BIAS].offset = (uint64_t)n * CELL;
    c.out[WF_GEMM_Y].offset = (uint64_t)to * CELL;
    c.variant = kernel_for(&c);
    return c;
}

static inline void add_one(wf_queue *q, wf_buf *b, int n, int from, int to, wf_event *wait, wf_event *signal)
{
    wf_call c = one_more(b, n, from, to);
    c.waits = &wait, c.n_waits = wait ? 1 : 0, c.signal = signal;
    assert_ok(dev->fns->submit(q, &c));
}

/* ---- the promises ------------------------------------------------------------------------------------------------ */

static int turns; /* of a number between cells, even */

static inline void one_queue_is_in_order(void **state)
{
    wf_queue *q = queue_of();
    wf_buf *b = cells(q, 2);
    for (int i = 0; i < turns; i++) add_one(q, b, 2, i % 2, 1 - i % 2, NULL, NULL);
    assert_true(cell(q, b, 0) == (float)turns);
}

/* Two queues hand one number to and fro; each step waits for the other's last. */
static inline void ping_pong(void **state)
{
    wf_queue *q[2] = {queue_of(), queue_of()};
    wf_event *e[2] = {event_of(), event_of()};
    wf_buf *b = cells(q[0], 2);
    for (int i = 0; i < turns; i++) add_one(q[i % 2], b, 2, i % 2, 1 - i % 2, e[1 - i % 2], e[i % 2]);
    assert_ok(dev->fns->wait(e[1], WAIT_MS));
    assert_true(cell(q[0], b, 0) == (float)turns);
}

/* A copy that waits for the call of another queue, and a call that waits for a copy: a number goes to the host and
 * back. */
static inline void copies_wait(void **state)
{
    wf_queue *work = queue_of(), *copies = queue_of();
    wf_event *done = event_of(), *copied = event_of();
    wf_buf *b = cells(work, 2);
    float host = 0;
    for (int i = 0; i < turns; i++) {
        add_one(work, b, 2, 0, 1, copied, done);
        assert_ok(dev->fns->read(copies, b, CELL, &host, sizeof host, &done, 1, NULL));
        assert_ok(dev->fns->write(copies, b, 0, &host, sizeof host, NULL, 0, copied));
    }
    assert_ok(dev->fns->read(work, b, 0, NULL, 0, &copied, 1, done)); /* of nothing, it waits all the same */
    assert_ok(dev->fns->wait(done, WAIT_MS));
    assert_true(host == (float)turns);
}

/* Columns of a matrix come to the host without what lies between, and go back without touching it; a whole one, too. */
static inline void columns_are_copied(void **state)
{
    enum { ROWS = 5, STRIDE = 12, FIRST = 4, LATE = 10 /* columns from there on go beyond the pitch */ };
    wf_queue *q = queue_of();
    wf_event *done = event_of();
    wf_buf *b = buf_of(4 * (ROWS + 1) * STRIDE);
    static const uint32_t cases[][2] = {{3, FIRST}, {3, LATE}, {STRIDE, 0}};
    for (uint32_t k = 0; k < WF_LEN(cases); k++) {
        const uint32_t cols = cases[k][0];
        float all[(ROWS + 1) * STRIDE], some[ROWS * STRIDE];
        const wf_view v = {.buf = b, .offset = 4 * (cases[k][1] + (k != 1) * STRIDE), .rows = ROWS, .cols = cols,
                           .stride = STRIDE, .dtype = WF_F32};
        for (int i = 0; i < (ROWS + 1) * STRIDE; i++) all[i] = (float)i;
        assert_ok(wf_write(q, b, 0, all, sizeof all, NULL, 0, NULL));
        assert_ok(wf_copy_rows(q, true, &v, some, NULL, 0, done));
        assert_ok(wf_wait(done, WAIT_MS));
        for (uint32_t i = 0; i < ROWS * cols; i++) {
            assert_true(some[i] == all[v.offset / 4 + i / cols * STRIDE + i % cols]);
            some[i] = all[v.offset / 4 + i / cols * STRIDE + i % cols] = -(float)i;
        }
        float back[(ROWS + 1) * STRIDE];
        assert_ok(wf_copy_rows(q, false, &v, some, &done, 1, NULL));
        assert_ok(wf_read(q, b, 0, back, sizeof back, NULL, 0, done));
        assert_ok(wf_wait(done, WAIT_MS));
        assert_memory_equal(back, all, sizeof all);
    }
}

/* Many queues, joined by a mark that waits for all. */
static inline void join(void **state)
{
    enum { N = 8 };
    wf_queue *q[N], *last = queue_of();
    wf_event *e[N], *all = event_of();
    wf_buf *b = cells(last, N);
    for (int i = 0; i < N; i++) {
        q[i] = queue_of(), e[i] = event_of();
        for (int k = 0; k <= i; k++) add_one(q[i], b, N, i, i, NULL, k == i ? e[i] : NULL);
    }
    assert_ok(dev->fns->mark(last, e, N, all));
    assert_ok(dev->fns->wait(all, WAIT_MS));
    for (int i = 0; i < N; i++) assert_true(cell(last, b, i) == (float)(i + 1));
}

static inline void events(void **state)
{
    wf_queue *q = queue_of(), *other = queue_of();
    wf_event *fresh = event_of(), *e = event_of();
    wf_buf *b = cells(q, 1);
    assert_ok(dev->fns->wait(fresh, 1)); /* never submitted: done */
    add_one(q, b, 1, 0, 0, fresh, e);    /* and no obstacle */
    add_one(q, b, 1, 0, 0, NULL, e);     /* armed again while pending */
    assert_ok(dev->fns->wait(e, WAIT_MS));
    assert_ok(dev->fns->wait(e, WAIT_MS)); /* done stays done */
    assert_true(cell(other, b, 0) == 2);
    add_one(q, b, 1, 0, 0, NULL, e);
    assert_true(cell(q, b, 0) == 3);
    end_queue(q); /* its work has ended; the event outlives it */
    add_one(other, b, 1, 0, 0, e, NULL);
    assert_ok(dev->fns->wait(e, WAIT_MS));
    assert_true(cell(other, b, 0) == 4);
}

#endif
