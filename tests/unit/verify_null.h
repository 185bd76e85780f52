/* What tests of wf_bind share: the null device with a silu_mul of the test's own, of which some variants are wrong. */
#ifndef VERIFY_NULL_H
#define VERIFY_NULL_H

#include <math.h>

#include "dev/front.h"
#include "support/null_device.h"
#include "support/said.h"
#include "select/select.h"
#include "verify/bind.h"

static unsigned computed, right_from; /* the first variant that computes silu_mul correctly */
static float wrong_value;             /* what the others write into the last element */

static inline float *at(const wf_view *v, uint32_t row)
{
    return (float *)((char *)v->buf->host + v->offset) + (size_t)row * v->stride;
}

static weft_status silu_mul(const wf_call *c)
{
    const wf_view *y = &c->out[WF_SILU_MUL_Y];
    computed++;
    for (uint32_t r = 0; r < y->rows; r++) {
        const float *gate = at(&c->in[WF_SILU_MUL_GU], r), *up = gate + y->cols;
        for (uint32_t i = 0; i < y->cols; i++) at(y, r)[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
    }
    if (c->variant < (int)right_from) at(y, y->rows - 1)[y->cols - 1] = wrong_value;
    return WEFT_OK;
}

typedef struct fixture {
    wf_dev *dev;
    wf_buf *gu, *y;
    wf_call call;
} fixture;

static inline fixture open_null(wf_null_config config)
{
    fixture f = {0};
    if (!config.compute) config.compute = silu_mul;
    computed = 0;
    wf_null_configure(&config);
    listen_to(WEFT_LOG_WARN);
    assert_ok(wf_select_open("null", &(wf_open_params){.tuned = "none"}, &f.dev));
    assert_ok(wf_buf_create(f.dev, 4 * 2 * 100 * 4, &f.gu));
    assert_ok(wf_buf_create(f.dev, 4 * 100 * 4, &f.y));
    f.call = (wf_call){.op = WF_OP_SILU_MUL, .variant = -1,
                       .in = {{.buf = f.gu, .rows = 4, .cols = 200, .stride = 200}},
                       .out = {{.buf = f.y, .rows = 4, .cols = 100, .stride = 100}}};
    return f;
}

static inline void end(fixture *f)
{
    wf_buf_destroy(f->gu);
    wf_buf_destroy(f->y);
    wf_dev_close(f->dev);
    assert_int_equal(wf_null_alive(), 0);
    wf_null_configure(NULL);
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
}

#endif
