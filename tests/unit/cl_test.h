/* What the tests of the OpenCL backend share: a device to test on, and one small call. */
#ifndef CL_TEST_H
#define CL_TEST_H

#include "support/suite.h"
#include <sys/stat.h>

#include "cl/cl.h"
#include "support/fresh_cache.h"
#include "support/skip.h"

/* Ends the test program as skipped when there is no OpenCL device. */
static inline int need_device(void **state)
{
    if (wf_backend_cl.list(NULL, 0) > 0) return 0;
    exit(skip_program("no OpenCL device"));
}

static inline cl_dev *open_with(wf_open_params p)
{
    wf_dev *dev = NULL;
    p.tier = WF_TIER_MATRIX;
    assert_ok(wf_backend_cl.open(0, &p, &dev));
    return (cl_dev *)dev;
}

static inline void shut(cl_dev *d)
{
    d->base.fns->close(&d->base);
}

/* The variant offered first; -1: none. */
static inline int best_of(cl_dev *d, const wf_call *c)
{
    wf_candidate_kernel k;
    return wf_cl_rank(&d->base, c, NULL, &k, 1) ? k.variant : -1;
}

/* Storage for the call below: two buffers, a queue and an event. */
typedef struct bench {
    cl_dev *d;
    wf_queue *q;
    wf_event *done;
    wf_buf *in, *out;
} bench;

static inline bench bench_new(cl_dev *d)
{
    bench b = {.d = d};
    wf_dev *dev = &d->base;
    assert_ok(dev->fns->queue_create(dev, false, &b.q));
    assert_ok(dev->fns->event_create(dev, &b.done));
    assert_ok(dev->fns->buf_create(dev, 256, &b.in));
    assert_ok(dev->fns->buf_create(dev, 256, &b.out));
    return b;
}

static inline void bench_free(bench *b)
{
    wf_dev *dev = &b->d->base;
    dev->fns->buf_destroy(dev, b->in);
    dev->fns->buf_destroy(dev, b->out);
    dev->fns->event_destroy(dev, b->done);
    dev->fns->queue_destroy(dev, b->q);
}

/* out = silu(in[0..4]) * in[4..8], one row. */
static inline wf_call small_call(const bench *b)
{
    wf_call c = {.op = WF_OP_SILU_MUL, .variant = 0, .signal = b->done};
    c.in[0] = (wf_view){.buf = b->in, .rows = 1, .cols = 8, .stride = 8};
    c.out[0] = (wf_view){.buf = b->out, .rows = 1, .cols = 4, .stride = 4};
    return c;
}

/* Runs it and looks at the numbers. */
static inline weft_status run_small(bench *b)
{
    const wf_dev_fns *f = b->d->base.fns;
    float in[8] = {0, 0, 0, 0, 1, 2, 3, 4}, out[4] = {9, 9, 9, 9};
    wf_call c = small_call(b);
    in[1] = 30;
    WF_TRY(f->write(b->q, b->in, 0, in, sizeof in, NULL, 0, NULL));
    WF_TRY(f->submit(b->q, &c));
    WF_TRY(f->read(b->q, b->out, 0, out, sizeof out, NULL, 0, b->done));
    WF_TRY(f->wait(b->done, 0));
    assert_true(out[0] == 0 && out[1] == 60 && out[2] == 0 && out[3] == 0);
    return WEFT_OK;
}

#endif
