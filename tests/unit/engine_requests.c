/* engine_requests: requests beside others on the null device, whose arithmetic this test lends it: every row gives the
 * token TOKEN, but for those that are to be broken. What happens is counted in events and steps. */
#include <stdatomic.h>

#include "support/null_device.h"
#include "support/demo.h"

enum { SEQS = 4, CONTEXT = 128, TOKEN = 300, MANY = 40 };

static struct weft_engine *engine;

/* ---- the device ------------------------------------------------------------------------------------------------ */

static uint32_t chosen_rows, broken_row; /* rows chosen so far; the one that is to be broken, from 1 on */

static weft_status choose(const wf_call *c)
{
    if (c->op != WF_OP_ARGMAX) return WEFT_OK;
    int32_t *y = (int32_t *)((char *)c->out[WF_ARGMAX_Y].buf->host + c->out[WF_ARGMAX_Y].offset);
    for (uint32_t m = 0; m < c->out[WF_ARGMAX_Y].rows; m++) y[m] = ++chosen_rows == broken_row ? -1 - 17 : TOKEN;
    return WEFT_OK;
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

typedef struct tally {
    int tokens, done, place; /* place: how many others had ended before */
    int32_t ids[CONTEXT];
    uint32_t n_cached;
    enum weft_finish finish;
    enum weft_status status;
    struct weft_stats seen; /* at its first token */
    struct weft_request *cancels; /* NULL, or which one is cancelled at its third token */
    int others;                   /* tokens of that one then */
    struct tally *other;
} tally;
static int ended;

static void on_event(void *user, const struct weft_event *ev)
{
    tally *t = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) {
        t->ids[t->tokens++] = ev->id;
        if (t->tokens == 1) weft_engine_stats(engine, &t->seen);
        if (t->tokens == 3 && t->cancels) weft_cancel(t->cancels), t->others = t->other->tokens;
    }
    if (ev->kind != WEFT_EVENT_DONE) return;
    t->done++;
    t->place = ended++;
    t->finish = ev->finish;
    t->status = ev->status;
    t->n_cached = ev->n_cached;
}

static struct weft_request *submit(tally *t, uint64_t client, int32_t first, uint32_t n_prompt, uint32_t n_answer,
                                   int32_t priority)
{
    int32_t prompt[CONTEXT];
    struct weft_request *r = NULL;
    for (uint32_t i = 0; i < n_prompt; i++) prompt[i] = first;
    struct weft_request_params p = {.tokens = prompt, .n_tokens = n_prompt, .max_tokens = n_answer, .ignore_eos = true,
                                    .client = client, .priority = priority, .on_event = on_event, .user = t};
    *t = (tally){0};
    assert_ok(weft_submit(engine, &p, &r));
    return r;
}

static void open_and_end(struct weft_request **r, int n)
{
    sem_post(&gate);
    for (int i = 0; i < n; i++) weft_wait(r[i], 0);
    for (int i = 0; i < n; i++) weft_request_free(r[i]);
}

static int set_up(void **state)
{
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = 64};
    ended = 0;
    chosen_rows = broken_row = 0;
    if (weft_engine_open(model, &p, &engine)) return -1;
    wf_null_configure(&(wf_null_config){.compute = choose});
    return 0;
}

static int tear_down(void **state)
{
    weft_engine_close(engine);
    wf_null_configure(NULL);
    return 0;
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

/* Two clients have sent much before; another's first waits for what runs, and for one of each. */
static void clients_take_turns(void **state)
{
    tally t[2 * MANY + 1];
    struct weft_request *r[2 * MANY + 1];
    close_gate(engine);
    for (int i = 0; i < 2 * MANY; i++) r[i] = submit(&t[i], (uint64_t)(i % 2), 1, 20, 20, 0);
    r[2 * MANY] = submit(&t[2 * MANY], 7, 1, 5, 12, 0);
    open_and_end(r, 2 * MANY + 1);
    assert_in_range(t[2 * MANY].place, 0, SEQS + 2);
    assert_int_equal(t[0].seen.waiting_clients, 2); /* the third runs already */
    assert_true(t[0].seen.longest_wait_ns > 0);
    for (int i = 2; i < 2 * MANY; i++) assert_true(t[i].place > t[i - 2].place); /* of a client: as they came */
}

static void urgent_ones_first(void **state)
{
    tally t[MANY + 1];
    struct weft_request *r[MANY + 1];
    close_gate(engine);
    for (int i = 0; i < MANY; i++) r[i] = submit(&t[i], 1, 1, 20, 20, 0);
    r[MANY] = submit(&t[MANY], 1, 1, 20, 20, 1);
    open_and_end(r, MANY + 1);
    assert_in_range(t[MANY].place, 0, SEQS - 1);
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

/* A row of logits that is not finite, early or late: one request fails, and the others beside it end as they would. */
static void broken_rows_fail_alone(void **state)
{
    for (uint32_t row = 1; row <= 3 * 20; row += 7) {
        tally t[3];
        struct weft_request *r[3];
        struct weft_stats stats;
        int failed = 0;
        chosen_rows = 0;
        close_gate(engine);
        broken_row = 1 + row; /* the first is that of the gate */
        for (int i = 0; i < 3; i++) r[i] = submit(&t[i], 0, 10 + i, 33, 20, 0);
        open_and_end(r, 3);
        for (int i = 0; i < 3; i++) {
            bool broken = t[i].status != WEFT_OK;
            failed += broken;
            assert_int_equal(t[i].done, 1);
            assert_int_equal(t[i].status, broken ? WEFT_ERR_NOT_FINITE : WEFT_OK);
            assert_int_equal(t[i].finish, broken ? WEFT_FINISH_ERROR : WEFT_FINISH_LENGTH);
            assert_int_equal(t[i].tokens == 20, !broken);
            for (int k = 0; k < t[i].tokens; k++) assert_int_equal(t[i].ids[k], TOKEN);
        }
        assert_int_equal(failed, 1);
        weft_engine_stats(engine, &stats);
        assert_ok(stats.failed);
        assert_int_equal(stats.kv_pages_used, 0);
    }
}

/* Its pages may be broken, too: a request with the same prefix computes them again. Those of others stay. */
static void broken_pages_are_forgotten(void **state)
{
    tally t;
    for (int round = 0; round < 3; round++) {
        broken_row = round == 1 ? chosen_rows + 2 : 0; /* the engine is idle */
        struct weft_request *r = submit(&t, 0, 50, 40, 2, 0);
        weft_wait(r, 0);
        assert_int_equal(t.status, round == 1 ? WEFT_ERR_NOT_FINITE : WEFT_OK);
        assert_int_equal(t.n_cached, round == 1 ? 32 : 0);
        weft_request_free(r);
    }
}

/* From the callback of a token to the end: what is in flight, and no step more. */
static void cancel_takes_one_step(void **state)
{
    tally t[2];
    struct weft_request *r[2];
    close_gate(engine);
    r[0] = submit(&t[0], 0, 1, 20, 60, 0);
    r[1] = submit(&t[1], 0, 2, 20, 60, 0);
    t[0].cancels = r[1], t[0].other = &t[1];
    open_and_end(r, 2);
    assert_int_equal(t[1].status, WEFT_ERR_CANCELLED);
    assert_int_equal(t[1].finish, WEFT_FINISH_CANCEL);
    assert_in_range(t[1].tokens, t[0].others, t[0].others + 1); /* its own token of the same step */
    assert_int_equal(t[0].tokens, 60);
}

static void prompts_of_the_context_and_one_more(void **state)
{
    int32_t prompt[CONTEXT + 1] = {0};
    struct weft_request *r = NULL;
    tally t = {0};
    struct weft_request_params p = {.tokens = prompt, .n_tokens = CONTEXT + 1, .on_event = on_event, .user = &t};
    assert_int_equal(weft_submit(engine, &p, &r), WEFT_ERR_FULL);
    assert_null(r);
    assert_int_equal(t.done, 0);
    p.n_tokens = CONTEXT;
    assert_ok(weft_submit(engine, &p, &r));
    assert_ok(weft_wait(r, 0));
    assert_int_equal(t.finish, WEFT_FINISH_CONTEXT);
    assert_int_equal(t.tokens, 0);
    weft_request_free(r);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* All that the device needs was allocated when the engine was opened, preemption or not. */
static void nothing_is_allocated_after_the_start(void **state)
{
    tally t[MANY];
    struct weft_request *r[MANY];
    close_gate(engine);
    for (int i = 0; i < MANY; i++) r[i] = submit(&t[i], (uint64_t)i % 3, i, 1 + (uint32_t)i * 2, 30, 0);
    open_and_end(r, MANY);
    assert_true(wf_null_calls(WF_NULL_SUBMIT) > 1000);
    assert_int_equal(wf_null_calls(WF_NULL_BUF_CREATE), 0);
    assert_int_equal(wf_null_calls(WF_NULL_QUEUE_CREATE), 0);
    assert_int_equal(wf_null_calls(WF_NULL_EVENT_CREATE), 0);
}

/* That short prompts get short answers says nothing about longer ones: of these no more are admitted than surely fit.
 */
static void lengths_are_predicted_apart(void **state)
{
    tally t[60];
    struct weft_request *r[60];
    struct weft_stats stats;
    struct weft_engine_params p = {
        .device = "null", .n_seqs = 8, .kv_seqs = 1, .context = CONTEXT, .max_batched_tokens = 32, .no_prefix = true};
    weft_engine_close(engine);
    wf_null_configure(NULL);
    assert_ok(weft_engine_open(model, &p, &engine));
    wf_null_configure(&(wf_null_config){.compute = choose});
    close_gate(engine);
    for (int i = 0; i < 60; i++) r[i] = submit(&t[i], 0, i, 2, 1, 0);
    open_and_end(r, 60);
    close_gate(engine);
    for (int i = 0; i < 8; i++) r[i] = submit(&t[i], 0, i, 20, 60, 0);
    open_and_end(r, 8);
    weft_engine_stats(engine, &stats);
    assert_int_equal(stats.preempted, 0);
    for (int i = 0; i < 8; i++) assert_int_equal(t[i].tokens, 60);
}

/* ---- a device with little memory --------------------------------------------------------------------------------- */

enum { MANY_SEQS = 64, HELD = 20 };

/* Opens an engine for MANY_SEQS contexts on a device with that much memory. */
static enum weft_status open_with(uint64_t available, uint64_t kv_memory)
{
    struct weft_engine_params p = {
        .device = "null", .n_seqs = MANY_SEQS, .context = 512, .max_batched_tokens = 64, .kv_memory = kv_memory};
    weft_engine_close(engine);
    engine = NULL;
    wf_null_configure(&(wf_null_config){.available = available});
    enum weft_status s = weft_engine_open(model, &p, &engine);
    wf_null_configure(&(wf_null_config){.compute = choose});
    return s;
}

/* The cache holds the contexts that have room and leaves an eighth to others, but one context at least; what was asked
 * for is not changed. */
static void small_devices_have_small_caches(void **state)
{
    tally t;
    struct weft_stats stats;
    struct weft_budget b;
    assert_ok(weft_model_budget(
        model, &(struct weft_engine_params){.n_seqs = MANY_SEQS, .context = 512, .max_batched_tokens = 64}, &b));
    uint64_t each = b.kv / MANY_SEQS, fixed = b.weights + b.activations;
    assert_ok(open_with((fixed + HELD * each) * 8 / 7, 0));
    weft_engine_stats(engine, &stats);
    assert_in_range(stats.kv_bytes, (HELD - 2) * each, HELD * each); /* tables of positions and pages are beside */
    struct weft_request *r = submit(&t, 0, 1, 20, 10, 0);
    assert_ok(weft_wait(r, 0));
    assert_int_equal(t.tokens, 10);
    weft_request_free(r);
    assert_int_equal(open_with((fixed + HELD * each) * 8 / 7, b.kv), WEFT_ERR_NOMEM);
    assert_int_equal(open_with(each / 2, 0), WEFT_ERR_NOMEM);
    assert_ok(open_with(fixed + 2 * each, 0));
    weft_engine_stats(engine, &stats);
    assert_in_range(stats.kv_bytes, each, 2 * each);
    assert_ok(open_with(fixed + 2 * MANY_SEQS * each, 0));
    weft_engine_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, b.kv);
}

/* ---- what the asynchronous softmax computes again ---------------------------------------------------------------- */

enum { ROWS_A_CALL = 0x30000001 }; /* so many that the device's counter of 32 bits wraps */
static uint64_t computed_again;

static weft_status compute_again(const wf_call *c)
{
    const wf_view *counter = &c->out[WF_ATTENTION_RECOMPUTED];
    if (c->op == WF_OP_ATTENTION && counter->buf) {
        *(uint32_t *)((char *)counter->buf->host + counter->offset) += ROWS_A_CALL;
        computed_again += ROWS_A_CALL;
    }
    return choose(c);
}

static void write_calibration(const char *path)
{
    const struct weft_model_info *info = weft_model_info(model);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "weft-calibration 1\nmodel %llu bytes\n", (unsigned long long)info->file_bytes);
    for (uint32_t l = 0; l < info->n_layer; l++) fprintf(f, "layer %u phi 1 a -2 b 1\n", l);
    assert_int_equal(fclose(f), 0);
}

/* The rows that kernels count are those of the statistics, in all steps. */
static void recomputed_rows_are_counted(void **state)
{
    tally t;
    struct weft_stats stats;
    char path[] = "/tmp/weft-calibration-XXXXXX";
    struct weft_engine_params p = {
        .device = "null", .n_seqs = 2, .context = CONTEXT, .max_batched_tokens = 32, .calibration = path};
    close(mkstemp(path));
    write_calibration(path);
    weft_engine_close(engine);
    wf_null_configure(NULL);
    assert_ok(weft_engine_open(model, &p, &engine));
    unlink(path);
    wf_null_configure(&(wf_null_config){.compute = compute_again});
    computed_again = 0;
    struct weft_request *r = submit(&t, 0, 1, 20, 10, 0);
    assert_ok(weft_wait(r, 0));
    weft_request_free(r);
    weft_engine_stats(engine, &stats);
    assert_true(computed_again > UINT32_MAX);
    assert_true(stats.softmax_recomputed == computed_again);
    assert_int_equal(weft_engine_softmax(engine, NULL, NULL, NULL, 0), 0); /* this device has no such kernels */
    assert_int_equal(stats.steps, 10);
}

/* ---- the device is lost ---------------------------------------------------------------------------------------- */

/* Each request ends with the status, once; the engine says so, and takes no more. */
static void lost_device(void **state)
{
    tally t[3];
    struct weft_request *r[3], *more = NULL;
    struct weft_stats stats;
    struct weft_request_params p = {.prompt = "a"};
    close_gate(engine);
    for (int i = 0; i < 3; i++) r[i] = submit(&t[i], 0, i, 20, 60, 0);
    weft_engine_stats(engine, &stats);
    assert_ok(stats.failed);
    wf_null_configure(&(wf_null_config){.compute = choose, .slot = WF_NULL_WAIT, .nth = 20, .status = WEFT_ERR_DEVICE});
    open_and_end(r, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].done, 1);
        assert_int_equal(t[i].status, WEFT_ERR_DEVICE);
        assert_int_equal(t[i].finish, WEFT_FINISH_ERROR);
        assert_true(t[i].tokens > 0 && t[i].tokens < 60);
    }
    weft_engine_stats(engine, &stats);
    assert_int_equal(stats.failed, WEFT_ERR_DEVICE);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(stats.kv_pages_used, 0);
    assert_int_equal(weft_submit(engine, &p, &more), WEFT_ERR_DEVICE);
    assert_null(more);
}

SUITE_EACH(engine_requests, open_demo, close_demo, set_up, tear_down, CASE(clients_take_turns), CASE(urgent_ones_first),
           CASE(broken_rows_fail_alone), CASE(broken_pages_are_forgotten), CASE(cancel_takes_one_step),
           CASE(prompts_of_the_context_and_one_more), CASE(nothing_is_allocated_after_the_start),
           CASE(lengths_are_predicted_apart), CASE(small_devices_have_small_caches), CASE(recomputed_rows_are_counted),
           CASE(lost_device))
