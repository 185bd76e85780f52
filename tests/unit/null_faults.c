/* Every slot of a device fails at every call of a run, or its work never ends: the front gives a clear
 * error, the device counts as lost where that is so, and nothing leaks. */

#include "support/null_device.h"
#include "support/suite.h"
#include "verify/bind.h"

typedef struct run {
    wf_dev *dev;
    wf_queue *q[2];
    wf_event *done[2];
    wf_buf *gu, *y;
} run;

static weft_status make(run *r)
{
    wf_open_params p = {.tier = WF_TIER_MATRIX, .watchdog_ms = 100};
    WF_TRY(wf_dev_open("null", &p, &r->dev));
    for (int i = 0; i < 2; i++) {
        WF_TRY(wf_queue_create(r->dev, &r->q[i]));
        WF_TRY(wf_event_create(r->dev, &r->done[i]));
    }
    WF_TRY(wf_buf_create(r->dev, 4096, &r->gu));
    return wf_buf_create(r->dev, 4096, &r->y);
}

/* Two calls on two queues, the second waiting for the first; everything that exec does in a step. */
static weft_status work(run *r)
{
    char host[256] = {0};
    wf_call c = {.op = WF_OP_SILU_MUL, .variant = -1, .signal = r->done[0],
                 .in = {{.buf = r->gu, .rows = 4, .cols = 64, .stride = 64}},
                 .out = {{.buf = r->y, .rows = 4, .cols = 32, .stride = 32}}};
    int variant;
    WF_TRY(wf_prepare(r->dev, &c, &variant));
    WF_TRY(wf_fill(r->q[0], r->gu, 0, 4096, 0));
    WF_TRY(wf_write(r->q[0], r->gu, 0, host, sizeof host, NULL, 0, NULL));
    WF_TRY(wf_submit(r->q[0], &c));
    WF_TRY(wf_flush(r->q[0]));
    c.waits = &r->done[0];
    c.n_waits = 1;
    c.signal = r->done[1];
    WF_TRY(wf_submit(r->q[1], &c));
    WF_TRY(wf_mark(r->q[1], &r->done[1], 0, NULL));
    WF_TRY(wf_read(r->q[1], r->y, 0, host, sizeof host, NULL, 0, NULL));
    WF_TRY(wf_transfer(r->q[1], 4096, &r->done[0], 1, NULL));
    WF_TRY(wf_flush(r->q[1]));
    bool ended;
    WF_TRY(wf_poll(r->done[1], &ended));
    WF_TRY(wf_wait(r->done[1], 100));
    return wf_finish(r->q[1]);
}

static void end(run *r)
{
    wf_buf_destroy(r->gu);
    wf_buf_destroy(r->y);
    for (int i = 0; i < 2; i++) {
        wf_event_destroy(r->done[i]);
        wf_queue_destroy(r->q[i]);
    }
    wf_dev_close(r->dev);
}

static weft_status attempt(const wf_null_config *config, bool *lost)
{
    run r = {0};
    wf_null_configure(config);
    weft_status s = make(&r);
    if (!s) s = work(&r);
    *lost = r.dev && r.dev->lost;
    if (*lost && r.y) assert_int_equal(work(&r), WEFT_ERR_DEVICE); /* it stays lost, and says so */
    end(&r);
    assert_int_equal(wf_null_alive(), 0);
    return s;
}

static uint64_t calls_of(enum wf_null_slot slot)
{
    bool lost;
    assert_int_equal(attempt(NULL, &lost), WEFT_OK);
    return wf_null_calls(slot);
}

static void every_call_of_every_slot_fails(void **state)
{
    static const weft_status kinds[] = {WEFT_ERR_DEVICE, WEFT_ERR_NOMEM};
    for (int slot = 0; slot < WF_NULL_N_SLOTS; slot++) {
        uint64_t n = calls_of(slot);
        assert_true(n > 0);
        for (uint32_t i = 1; i <= n; i++) {
            for (size_t k = 0; k < WF_LEN(kinds); k++) {
                bool lost;
                wf_null_config config = {.slot = slot, .nth = i, .status = kinds[k]};
                assert_int_equal(attempt(&config, &lost), kinds[k]);
                assert_non_null(strstr(weft_last_error(), "null"));
                if (kinds[k] == WEFT_ERR_NOMEM) assert_false(lost);
            }
        }
    }
    wf_null_configure(NULL);
}

static void work_that_never_ends(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_WRITE, WF_NULL_READ, WF_NULL_SUBMIT, WF_NULL_MARK,
                                              WF_NULL_TRANSFER};
    for (size_t s = 0; s < WF_LEN(slots); s++) {
        uint64_t n = calls_of(slots[s]);
        for (uint32_t i = 1; i <= n; i++) {
            bool lost;
            wf_null_config config = {.slot = slots[s], .nth = i};
            assert_int_equal(attempt(&config, &lost), WEFT_ERR_TIMEOUT);
            assert_true(lost);
        }
    }
    wf_null_configure(NULL);
}

static uint64_t long_gemm(const wf_call *c)
{
    return c->op == WF_OP_SILU_MUL ? 5000 : 1;
}

/* The fake clock: queues overlap, waits order them. */
static void queues_overlap(void **state)
{
    run r = {0};
    wf_null_configure(&(wf_null_config){.cost_ns = long_gemm});
    assert_int_equal(make(&r), WEFT_OK);
    wf_call c = {.op = WF_OP_SILU_MUL, .variant = -1, .signal = r.done[0],
                 .in = {{.buf = r.gu, .rows = 1, .cols = 64, .stride = 64}},
                 .out = {{.buf = r.y, .rows = 1, .cols = 32, .stride = 32}}};
    assert_int_equal(wf_submit(r.q[0], &c), WEFT_OK);
    c.signal = r.done[1];
    assert_int_equal(wf_submit(r.q[1], &c), WEFT_OK);
    assert_int_equal(wf_wait(r.done[1], 1), WEFT_OK);
    assert_int_equal(wf_null_now(r.dev), 5000);
    c.waits = &r.done[0];
    c.n_waits = 1;
    assert_int_equal(wf_submit(r.q[1], &c), WEFT_OK);
    assert_int_equal(wf_wait(r.done[1], 1), WEFT_OK);
    assert_int_equal(wf_null_now(r.dev), 10000);
    char host[64];
    assert_int_equal(wf_read(r.q[0], r.y, 0, host, sizeof host, &r.done[1], 1, r.done[0]),
                     WEFT_OK); /* a copy waits, too */
    assert_int_equal(wf_wait(r.done[0], 1), WEFT_OK);
    assert_int_equal(wf_null_now(r.dev), 11000);
    assert_int_equal(wf_transfer(r.q[0], 4096, NULL, 0, r.done[0]), WEFT_OK);
    assert_int_equal(wf_wait(r.done[0], 1), WEFT_OK);
    assert_int_equal(wf_null_now(r.dev), 12000);
    end(&r);
    wf_null_configure(NULL);
}

SUITE(null_faults, NULL, NULL, CASE(every_call_of_every_slot_fails), CASE(work_that_never_ends), CASE(queues_overlap))
