/* null_engine: an engine whose device fails, or whose work never ends, on any one of its queues, whether its steps run
 * whole or in nano-batches on two queues: each request ends once and with the error, the engine says that it has failed
 * and takes no more, and nothing is left. One request has a grammar, for which steps are submitted in two parts. */

#include "support/demo.h"
#include "support/null_device.h"

enum { REQUESTS = 4, QUEUES = 8 /* that are looked at, at most */, PLACES = 6, MOST_PARTS = 3 };

typedef struct life {
    weft_status opened, failed;
    int done, errors;
} life;

static void on_event(void *user, const struct weft_event *ev)
{
    life *l = user;
    if (ev->kind != WEFT_EVENT_DONE) return;
    l->done++;
    l->errors += ev->status != WEFT_OK;
}

/* The first request's end keeps the engine until the others are submitted, which begins when it has got there: they
 * come at once, and every life makes the same calls. */
static void end_at_gate(void *user, const struct weft_event *ev)
{
    on_event(user, ev);
    wait_at_gate(NULL, ev);
}

static void ask(struct weft_engine *e, life *l)
{
    static const int32_t prompt[20] = {1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
    struct weft_request *r[REQUESTS];
    int n = 0;
    for (; n < REQUESTS; n++) {
        struct weft_request_params p = {.tokens = prompt, .n_tokens = 20, .max_tokens = n ? 12 : 1, .ignore_eos = true,
                                        .grammar = n == 2 ? WEFT_GRAMMAR_REGEX : WEFT_GRAMMAR_NONE,
                                        .grammar_text = n == 2 ? "[^~]{300}" : NULL,
                                        .on_event = n ? on_event : end_at_gate, .user = l};
        if (weft_submit(e, &p, &r[n])) break;
        if (n == 0) sem_wait(&at_gate);
    }
    sem_post(&gate);
    for (int i = 0; i < n; i++) weft_wait(r[i], 0), weft_request_free(r[i]);
    assert_int_equal(l->done, n);
}

/* From opening to closing. */
static life live(const wf_null_config *c, uint32_t nano_batches)
{
    life l = {0};
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {
        .device = "null", .n_seqs = REQUESTS, .context = 64, .max_batched_tokens = 32, .nano_batches = nano_batches};
    wf_null_configure(c);
    sem_init(&gate, 0, 0), sem_init(&at_gate, 0, 0);
    l.opened = weft_engine_open(model, &p, &e);
    if (e) {
        struct weft_stats stats;
        ask(e, &l);
        weft_engine_stats(e, &stats);
        l.failed = stats.failed;
        assert_int_equal(stats.kv_pages_used, 0);
        if (l.failed) assert_int_equal(weft_submit(e, &(struct weft_request_params){.prompt = "a"}, NULL), l.failed);
        weft_engine_close(e);
    }
    assert_int_equal(wf_null_alive(), 0);
    return l;
}

/* How often each slot of that queue is called, without a fault. */
static void count_calls(uint32_t nano_batches, uint32_t queue, uint64_t *calls)
{
    life l = live(&(wf_null_config){.queue = queue}, nano_batches);
    assert_true(l.opened == WEFT_OK && !l.failed && !l.errors && l.done == REQUESTS);
    for (int s = 0; s < WF_NULL_N_SLOTS; s++) calls[s] = wf_null_calls((enum wf_null_slot)s);
}

static void fails_at(uint32_t nano_batches, wf_null_config c)
{
    weft_status want = c.status ? c.status : WEFT_ERR_TIMEOUT;
    life l = live(&c, nano_batches);
    if (!l.opened && !l.failed)
        fail_msg("%u nano-batches: nobody noticed that call %u of slot %d on queue %u %s", nano_batches, c.nth,
                 (int)c.slot, c.queue, c.status ? "fails" : "hangs");
    assert_int_equal(l.opened ? l.opened : l.failed, want);
    if (l.failed) assert_true(l.errors > 0);
}

/* At the first call, at the last one and between. */
static void fail_on_queue(uint32_t nano_batches, uint32_t queue, const uint64_t *calls)
{
    static const enum wf_null_slot slots[] = {WF_NULL_WRITE, WF_NULL_READ, WF_NULL_SUBMIT, WF_NULL_MARK, WF_NULL_FLUSH};
    for (size_t s = 0; s < WF_LEN(slots); s++)
        for (uint64_t i = 0; i < PLACES && calls[slots[s]]; i++) {
            wf_null_config c = {
                .queue = queue, .slot = slots[s], .nth = (uint32_t)(1 + (calls[slots[s]] - 1) * i / (PLACES - 1))};
            if (c.slot != WF_NULL_FLUSH) fails_at(nano_batches, c); /* a flush has no end that could be missing */
            c.status = WEFT_ERR_DEVICE;
            fails_at(nano_batches, c);
        }
}

/* Kernels run on the second queue in nano-batches only. */
static void any_queue_fails(void **state)
{
    for (uint32_t parts = 1; parts <= MOST_PARTS; parts++) {
        int with_kernels = 0;
        for (uint32_t q = 1; q <= QUEUES; q++) {
            uint64_t calls[WF_NULL_N_SLOTS];
            count_calls(parts, q, calls);
            with_kernels += calls[WF_NULL_SUBMIT] > 0;
            fail_on_queue(parts, q, calls);
        }
        assert_int_equal(with_kernels, parts > 1 ? 2 : 1);
    }
    wf_null_configure(NULL);
}

SUITE(null_engine, open_demo, close_demo, CASE(any_queue_fails))
