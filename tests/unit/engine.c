/* engine: requests from several threads, cancelling, freeing, limits and failures, through the public API.
 * Runs on the null device, which computes nothing and fails on demand, and on the CPU's own kernels, those
 * that are batch-invariant; no library code besides, so it is also the program that the thread sanitizer watches. */
#include <weft/debug.h>
#include "lab/lab.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

#include "support/null_device.h"
#include "support/demo.h"
#include "support/said.h"

#define THREADS 2

static struct weft_engine *open_engine(const char *device, uint32_t n_seqs)
{
    return demo_engine((struct weft_engine_params){.device = device, .n_seqs = n_seqs, .context = 128, .threads = 2,
                                                   .deterministic = true, .max_batched_tokens = 32});
}

typedef struct tally {
    atomic_int tokens, done;
    struct weft_engine *engine; /* NULL, or whose pages are watched */
    uint32_t most_pages;        /* in use at one time */
    int32_t ids[128];
    enum weft_finish finish;
    enum weft_status status;
} tally;

static void on_event(void *user, const struct weft_event *ev)
{
    tally *t = user;
    struct weft_stats stats = {0};
    if (t->engine) weft_engine_stats(t->engine, &stats);
    t->most_pages = stats.kv_pages_used > t->most_pages ? stats.kv_pages_used : t->most_pages;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) t->ids[atomic_fetch_add(&t->tokens, 1)] = ev->id;
    if (ev->kind != WEFT_EVENT_DONE) return;
    t->finish = ev->finish;
    t->status = ev->status;
    atomic_fetch_add(&t->done, 1);
}

/* ---- two threads ------------------------------------------------------------------------------------ */

typedef struct worker {
    struct weft_engine *engine;
    const char *prompt;
    tally t[3];
} worker;

static void *submit_some(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 3; i++) {
        struct weft_request *r = NULL;
        struct weft_stats stats;
        struct weft_request_params p = {
            .prompt = w->prompt, .max_tokens = 20, .ignore_eos = true, .on_event = on_event, .user = &w->t[i]};
        if (weft_submit(w->engine, &p, &r)) return (void *)weft_last_error();
        weft_engine_stats(w->engine, &stats);
        if (i == 1) weft_cancel(r);
        else if (weft_wait(r, 0)) return (void *)"a request failed";
        weft_request_free(r);
    }
    return NULL;
}

/* What a request answers does not depend on what runs beside it. */
static void run_threads(const char *device)
{
    struct weft_engine *e = open_engine(device, THREADS);
    pthread_t threads[THREADS];
    worker w[THREADS] = {{e, "One day a cat"}, {e, "The sun was"}};
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, submit_some, &w[i]);
    for (int i = 0; i < THREADS; i++) {
        void *error;
        pthread_join(threads[i], &error);
        if (error) fail_msg("%s", (char *)error);
        for (int k = 0; k < 3; k++) assert_int_equal(w[i].t[k].done, 1);
        assert_int_equal(w[i].t[0].tokens, 20);
        assert_int_equal(w[i].t[0].finish, WEFT_FINISH_LENGTH);
        assert_memory_equal(w[i].t[0].ids, w[i].t[2].ids, 20 * sizeof(int32_t));
    }
    weft_engine_close(e);
}

static void test_threads(void **state)
{
    run_threads("null");
    run_threads("cpu");
}

/* ---- pages ------------------------------------------------------------------------------------------- */

#define ANSWER 34

static void submit_all(struct weft_engine *e, tally *t, int n)
{
    struct weft_request *r[16];
    for (int i = 0; i < n; i++)
        r[i] = submit_to(e, (struct weft_request_params){
                                .prompt = i % 2 ? "One day a cat" : "The sun was", .max_tokens = ANSWER,
                                .ignore_eos = true, .sampling = {.temperature = 1, .seed = (uint64_t)i},
                                .on_event = on_event, .user = &t[i]});
    for (int i = 0; i < n; i++) {
        assert_ok(end_of(r[i]));
        assert_int_equal(t[i].tokens, ANSWER);
    }
}

/* Eight requests in an engine with these parameters besides those of all, behind short ones, so that all seem to be
 * short; returns the most pages that were in use. */
static uint32_t answer_all(struct weft_engine_params p, tally *t, struct weft_stats *stats)
{
    struct weft_request_params quick = {.prompt = "The sun was", .max_tokens = 1, .ignore_eos = true};
    uint32_t most = 0;
    p.device = "cpu", p.context = 128, p.threads = 2, p.deterministic = true, p.max_batched_tokens = 32;
    struct weft_engine *e = demo_engine(p);
    for (int i = 0; i < 60; i++) assert_ok(weft_submit(e, &quick, NULL));
    for (int i = 0; i < 8; i++) t[i].engine = e;
    submit_all(e, t, 8);
    for (int i = 0; i < 8; i++) most = t[i].most_pages > most ? t[i].most_pages : most;
    *stats = stats_of(e);
    assert_int_equal(stats->kv_pages_used, 0);
    weft_engine_close(e);
    return most;
}

/* With KV pages for one context and eight sequences some are preempted, and others use the memory of activations that
 * short steps do not need; they write what they write otherwise. */
static void run_tight(uint32_t nano_batches, const tally *spacious)
{
    tally tight[8] = {{0}};
    struct weft_stats stats;
    uint32_t most = answer_all((struct weft_engine_params){.n_seqs = 8, .kv_seqs = 1, .nano_batches = nano_batches},
                               tight, &stats);
    for (int i = 0; i < 8; i++) assert_memory_equal(tight[i].ids, spacious[i].ids, ANSWER * sizeof(int32_t));
    assert_true(stats.preempted > 0);
    assert_in_range(most, 128 / 16 + 4, stats.kv_pages);
}

static void test_preemption(void **state)
{
    tally spacious[8] = {{0}};
    struct weft_engine *e = open_engine("cpu", 8);
    submit_all(e, spacious, 8);
    assert_int_equal(stats_of(e).preempted, 0);
    weft_engine_close(e);
    run_tight(1, spacious);
    run_tight(2, spacious);
}

/* A file that gives each head of each layer that window, but those of the last layer another. */
static void write_windows(const char *path, int sink, int window, int last)
{
    const struct weft_model_info *info = weft_model_info(model);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "weft-attention-windows 1\nsink %d\n", sink);
    for (uint32_t i = 0; i < info->n_layer; i++) {
        fprintf(f, "layer %u", i);
        for (uint32_t h = 0; h < info->n_kv_head; h++) fprintf(f, " %d", i + 1 < info->n_layer ? window : last);
        fprintf(f, "\n");
    }
    fclose(f);
}

/* With those windows, and a KV cache of so many bytes, 0: for all that run. */
static uint32_t answer_within(const char *windows, uint32_t page, uint32_t n_seqs, uint64_t kv_memory, tally *t,
                              struct weft_stats *stats)
{
    return answer_all((struct weft_engine_params){.n_seqs = n_seqs, .kv_memory = kv_memory, .page_tokens = page,
                                                  .attention_windows = windows}, t, stats);
}

/* Pages that all windows have passed are used again, and the texts are those of a cache with one page a sequence, which
 * never goes back. */
static void test_passed_pages(void **state)
{
    enum { WINDOW = 9, PAGE = 4, LENGTH = ANSWER + 4 };
    char path[] = "/tmp/weft-windows-XXXXXX";
    close(mkstemp(path));
    tally whole[8] = {{0}}, alone[8] = {{0}}, tight[8] = {{0}};
    struct weft_stats stats;
    write_windows(path, 0, WINDOW, WINDOW);
    answer_within(path, 128, 8, 0, whole, &stats);
    uint32_t most = answer_within(path, PAGE, 1, 0, alone, &stats);
    assert_in_range(most, 2, WINDOW / PAGE + 2); /* of LENGTH / PAGE without windows */
    assert_true(stats.kv_pages < 128 / PAGE);
    answer_within(path, PAGE, 8, stats.kv_bytes, tight, &stats);
    assert_true(stats.kv_pages < 8 * LENGTH / PAGE);
    for (int i = 0; i < 8; i++) {
        assert_memory_equal(alone[i].ids, whole[i].ids, ANSWER * sizeof(int32_t));
        assert_memory_equal(tight[i].ids, whole[i].ids, ANSWER * sizeof(int32_t));
    }
    unlink(path);
}

/* Where a layer attends to all keys, its pages stay, and those of the others go back; where all attend to the first
 * ones, these stay. */
static void test_needed_pages(void **state)
{
    static const int files[][3] = {
        {0, 9, 0}, {6, 9, 9}, {0, 24, 0}}; /* the sink, and the windows of the layers and of the last */
    char path[] = "/tmp/weft-windows-XXXXXX";
    close(mkstemp(path));
    for (int k = 0; k < 3; k++) {
        tally whole[8] = {{0}}, alone[8] = {{0}}, tight[8] = {{0}};
        struct weft_stats stats;
        write_windows(path, files[k][0], files[k][1], files[k][2]);
        answer_within(path, 128, 8, 0, whole, &stats);
        uint64_t context = stats.kv_bytes / 8;
        answer_within(path, 4, 1, 0, alone, &stats);
        answer_within(path, 4, 8, stats.kv_bytes, tight, &stats);
        assert_true(k || stats.kv_pages >= 128 / 4);
        assert_true(stats.kv_bytes < context * 2 / 3);
        if (k == 2) assert_true(stats.preempted > 0 && stats.swapped_out_bytes > 0);
        for (int i = 0; i < 8; i++) assert_memory_equal(tight[i].ids, whole[i].ids, ANSWER * sizeof(int32_t));
    }
    unlink(path);
}

/* A tight engine whose clients come and go: at the n-th event of each, another's request is cancelled. */
typedef struct visitor {
    tally t;
    struct weft_request *other;
    int after;
} visitor;

static void cancel_other(void *user, const struct weft_event *ev)
{
    visitor *v = user;
    on_event(&v->t, ev);
    if (ev->kind == WEFT_EVENT_TOKEN && v->other && v->t.tokens >= v->after) weft_cancel(v->other), v->other = NULL;
}

enum { VISITORS = 12, SHORT_ONES = 60 };

/* Submits short requests first, so that all seem to be short; the last one stands at the gate while visitors are
 * submitted, so that some must be swapped out, however slow the machine is. NULL: the engine does not open. */
static struct weft_engine *open_tight(const char *device)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = device, .n_seqs = 8, .kv_seqs = 1, .context = 128, .threads = 2,
                                   .deterministic = true, .max_batched_tokens = 32, .nano_batches = 2};
    struct weft_request_params quick = {.prompt = "The sun was", .max_tokens = 1, .ignore_eos = true};
    if (weft_engine_open(model, &p, &e)) return NULL;
    sem_init(&gate, 0, 0), sem_init(&at_gate, 0, 0);
    for (int i = 0; i < SHORT_ONES; i++) {
        if (i == SHORT_ONES - 1) quick.on_event = wait_at_gate;
        weft_submit(e, &quick, NULL);
    }
    return e;
}

/* Returns how many requests were accepted: an engine that has failed accepts none. */
static int submit_visitors(struct weft_engine *e, visitor *v, struct weft_request **r, int round)
{
    for (int i = 0; i < VISITORS; i++) {
        v[i] = (visitor){.other = i % 3 == 1 ? r[i - 1] : NULL, .after = 1 + (round * 7 + i * 5) % ANSWER};
        struct weft_request_params p = {.prompt = i % 2 ? "One day a cat" : "The sun was", .max_tokens = ANSWER,
                                        .ignore_eos = true, .on_event = cancel_other, .user = &v[i],
                                        .want_logits = i == 6, .prompt_logprobs = i == 6};
        if (weft_submit(e, &p, &r[i])) return i;
    }
    return VISITORS;
}

static int visit(struct weft_engine *e, visitor *v, struct weft_request **r, int round)
{
    int n = submit_visitors(e, v, r, round);
    sem_post(&gate);
    return n;
}

/* Waits for all, then closes the engine; returns its last numbers. Each request ends once. */
static struct weft_stats end_visit(struct weft_engine *e, visitor *v, struct weft_request **r, int n)
{
    struct weft_stats stats;
    for (int i = 0; i < n; i++) weft_wait(r[i], 0), assert_int_equal(v[i].t.done, 1);
    for (int i = 0; i < n; i++) weft_request_free(r[i]); /* not before: others may cancel them */
    weft_engine_stats(e, &stats);
    weft_engine_close(e);
    return stats;
}

/* Requests that stay write what all write, whichever others were preempted or cancelled, and all memory is released. */
static void test_preemption_with_cancels(void **state)
{
    struct weft_request *r[VISITORS];
    visitor v[VISITORS];
    struct weft_engine *e = open_tight("cpu");
    assert_non_null(e);
    assert_int_equal(visit(e, v, r, 0), VISITORS);
    for (int i = 0; i < VISITORS; i++) {
        weft_status s = weft_wait(r[i], 0);
        assert_true(s == WEFT_OK || (s == WEFT_ERR_CANCELLED && i % 3 == 0));
    }
    struct weft_stats stats = end_visit(e, v, r, VISITORS);
    for (int i = 2; i < VISITORS; i++)
        assert_memory_equal(v[i].t.ids, v[i % 2 ? 1 : 2].t.ids, (size_t)v[i].t.tokens * sizeof(int32_t));
    assert_int_equal(v[2].t.tokens, ANSWER);
    assert_true(stats.preempted > 0 && stats.swapped_out_bytes > 0);
    assert_int_equal(stats.kv_pages_used, 0);
}

/* Half of all requests are cancelled as soon as one is swapped out. */
static void test_half_leave_while_swapping(void **state)
{
    int swapped = 0;
    for (int round = 0; round < 8; round++) {
        struct weft_engine *e = open_tight("null");
        struct weft_request *r[VISITORS];
        visitor v[VISITORS];
        struct weft_stats stats = {0};
        assert_non_null(e);
        assert_int_equal(visit(e, v, r, round), VISITORS);
        while (!stats.swapped_out_bytes && !atomic_load(&v[5].t.done)) weft_engine_stats(e, &stats);
        for (int i = 0; i < VISITORS; i += 2) weft_cancel(r[i]);
        stats = end_visit(e, v, r, VISITORS);
        assert_int_equal(stats.kv_pages_used, 0);
        swapped += stats.swapped_out_bytes > 0;
    }
    assert_true(swapped > 0);
}

/* One visit to a null device that is configured before it is opened: another thread uses it from then on. */
static struct weft_stats visit_null(const wf_null_config *c, int round)
{
    struct weft_request *r[VISITORS];
    visitor v[VISITORS];
    wf_null_configure(c);
    struct weft_engine *e = open_tight("null");
    return e ? end_visit(e, v, r, visit(e, v, r, round)) : (struct weft_stats){0};
}

/* The device is lost, or hangs, somewhere in the life of an engine that swaps: each request ends once, and nothing is
 * left. */
static void test_lost_while_swapping(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_WRITE, WF_NULL_READ,  WF_NULL_SUBMIT,
                                              WF_NULL_MARK,  WF_NULL_FLUSH, WF_NULL_WAIT};
    enum { PLACES = 8, N_SLOTS = sizeof slots / sizeof *slots };
    int failed_with_swaps = 0;
    uint64_t calls[WF_NULL_N_SLOTS];
    assert_true(visit_null(NULL, 0).swapped_out_bytes > 0);
    for (int slot = 0; slot < WF_NULL_N_SLOTS; slot++) calls[slot] = wf_null_calls((enum wf_null_slot)slot);
    for (int i = 0; i < N_SLOTS * PLACES; i++) {
        enum wf_null_slot slot = slots[i % N_SLOTS];
        uint64_t nth = 1 + calls[slot] * (uint64_t)(i / N_SLOTS) / PLACES;
        struct weft_stats stats = visit_null(
            &(wf_null_config){
                .slot = slot, .nth = (uint32_t)nth, .status = (i + i / N_SLOTS) % 2 ? WEFT_ERR_DEVICE : WEFT_OK},
            i);
        failed_with_swaps += stats.failed && stats.swapped_out_bytes;
        assert_int_equal(wf_null_alive(), 0);
    }
    wf_null_configure(NULL);
    assert_true(failed_with_swaps > 0);
}

static void test_kv_memory(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_stats stats;
    struct weft_engine_params p = {
        .device = "cpu", .n_seqs = 8, .context = 128, .deterministic = true, .kv_memory = 1000};
    assert_error(weft_engine_open(model, &p, &e), WEFT_ERR_ARG, "context");
    p.kv_memory = 1 << 20;
    assert_ok(weft_engine_open(model, &p, &e));
    weft_engine_stats(e, &stats);
    assert_true(stats.kv_bytes <= 1 << 20 && stats.kv_bytes > 900 << 10);
    weft_engine_close(e);
    p.kv_memory = 100ull << 30; /* more than its sequences can use: said, and by the library's own name */
    listen_to(WEFT_LOG_WARN);
    assert_ok(weft_engine_open(model, &p, &e));
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    assert_said("weft_engine_params.kv_memory: 102400 MiB asked for, 2 MiB taken: ");
    weft_engine_close(e);
    p.policy = "best";
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_ERR_ARG);
}

static void check_near(uint64_t told, uint64_t taken)
{
    if (told > taken + taken / 10 || told < taken - taken / 10)
        fail_msg("told %llu bytes, taken %llu", (unsigned long long)told, (unsigned long long)taken);
}

/* What weft_model_budget says beforehand is what an engine takes. */
static void test_budget(void **state)
{
    struct weft_engine *e = open_engine("cpu", 8);
    struct weft_stats stats;
    struct weft_budget b;
    weft_engine_stats(e, &stats);
    assert_ok(weft_model_budget(
        model, &(struct weft_engine_params){.context = 128, .n_seqs = 8, .max_batched_tokens = 32}, &b));
    check_near(b.weights, stats.weight_bytes);
    check_near(b.kv, stats.kv_bytes);
    assert_int_equal(b.kv_tokens, 128 * 8);
    assert_int_equal(b.kv, b.kv_tokens * b.kv_bytes_per_token);
    assert_in_range(stats.activation_bytes, b.activations, 2 * b.activations); /* the CPU may keep them in 32 bits */
    assert_in_range(b.steady_kv_tokens, b.kv_tokens, b.kv_tokens + b.activations / b.kv_bytes_per_token);
    assert_int_equal(b.steady_tokens, 8 + 32 / 4);
    weft_engine_close(e);
}

/* ---- ends -------------------------------------------------------------------------------------------- */

static void test_finish_reasons(void **state)
{
    struct weft_engine *e = open_engine("null", 1);
    tally t = {0};
    struct weft_request_params p = {.prompt = "a", .ignore_eos = true, .on_event = on_event, .user = &t};
    assert_ok(end_of(submit_to(e, p)));
    assert_int_equal(t.finish, WEFT_FINISH_CONTEXT);
    t = (tally){0};
    p.prefill_only = true;
    assert_ok(end_of(submit_to(e, p)));
    assert_int_equal(t.tokens, 0);
    weft_engine_close(e);
}

/* Who opened an engine may forget what on_progress was told: kernels that are built later are not reported. */
static void count_report(void *user, const char *what, double fraction)
{
    ++*(int *)user;
}

static void test_progress_ends(void **state)
{
    int reports = 0;
    struct weft_engine *e = demo_engine((struct weft_engine_params){
        .device = "null", .context = 128, .on_progress = count_report, .user = &reports});
    assert_true(reports > 0);
    reports = 0;
    assert_ok(end_of(submit_to(e, (struct weft_request_params){.prompt = "a", .max_tokens = 3, .ignore_eos = true})));
    assert_int_equal(reports, 0);
    weft_engine_close(e);
}

/* Attention by rows: of whole contexts, and of one prompt of so many. */
static bool decodes[33], prompts[33];

static void note_attention(const wf_call *c)
{
    uint32_t rows = c->out[WF_ATTENTION_O].rows, seqs = c->in[WF_ATTENTION_INDPTR].rows - 1;
    if (c->op != WF_OP_ATTENTION || rows > 32 || c->p.max_kv != 128) return;
    if (c->p.max_q == 1 && seqs == rows) decodes[rows] = true;
    if (c->p.max_q == rows && seqs == 1) prompts[rows] = true;
}

/* Where as many sequences may run as a step has rows, prompts come all the same; all is built before they do. */
static void test_prepared(void **state)
{
    wf_null_configure(&(wf_null_config){.bound = note_attention});
    weft_engine_close(open_engine("null", 32));
    wf_null_configure(NULL);
    for (uint32_t rows = 1; rows <= 16; rows++) assert_true(decodes[rows] && prompts[rows]);
    assert_true(decodes[32] && prompts[32]);
}

static void test_close_while_running(void **state)
{
    struct weft_engine *e = open_engine("cpu", 1);
    tally t[6] = {{0}};
    for (int i = 0; i < 6; i++) {
        struct weft_request_params p = {.prompt = "a", .ignore_eos = true, .on_event = on_event, .user = &t[i]};
        assert_ok(weft_submit(e, &p, NULL));
    }
    weft_engine_close(e);
    for (int i = 0; i < 6; i++) assert_int_equal(t[i].done, 1);
}

static struct weft_request *freed_inside;
static void free_inside(void *user, const struct weft_event *ev)
{
    on_event(user, ev);
    if (ev->kind == WEFT_EVENT_TOKEN && freed_inside) weft_request_free(freed_inside), freed_inside = NULL;
}

static void test_free_in_callback(void **state)
{
    struct weft_engine *e = open_engine("null", 1);
    tally t = {0}, after = {0};
    struct weft_request_params p = {.prompt = "a", .ignore_eos = true, .on_event = free_inside, .user = &t};
    assert_ok(weft_submit(e, &p, &freed_inside));
    p.on_event = on_event, p.user = &after, p.max_tokens = 3;
    assert_ok(end_of(submit_to(e, p)));
    assert_int_equal(after.tokens, 3);
    assert_int_equal(t.done, 0); /* detached */
    weft_engine_close(e);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void refuse(struct weft_engine *e, struct weft_request_params p)
{
    struct weft_request *r = NULL;
    assert_int_not_equal(weft_submit(e, &p, &r), WEFT_OK);
    assert_null(r);
    assert_true(strlen(weft_last_error()) > 10);
}

static void test_bad_requests(void **state)
{
    struct weft_engine *e = open_engine("null", 1);
    int32_t high[] = {1, 1 << 30}, low[] = {-1}, many[200] = {1};
    refuse(e, (struct weft_request_params){.tokens = high, .n_tokens = 2});
    refuse(e, (struct weft_request_params){.tokens = low, .n_tokens = 1});
    refuse(e, (struct weft_request_params){.tokens = many, .n_tokens = 200});
    refuse(e, (struct weft_request_params){.prompt = "a", .sampling.temperature = -1});
    refuse(e, (struct weft_request_params){.prompt = "a", .sampling.temperature = 0.0f / 0.0f});
    refuse(e, (struct weft_request_params){.prompt = "a", .sampling.top_p = 2});
    refuse(e, (struct weft_request_params){.prompt = "a", .sampling.top_k = -5});
    refuse(e, (struct weft_request_params){.prompt = "a", .sampling.min_p = -1});
    assert_ok(end_of(submit_to(e, (struct weft_request_params){.prompt = "a", .max_tokens = 4})));
    weft_engine_close(e);
}

static void test_bad_engines(void **state)
{
    const struct weft_engine_params bad[] = {{.device = "no such device"}, {.device = "opencl:99.0"}, {.tier = "warp"},
                                             {.device = "cpu", .plan = "/nonexistent"},
                                             {.device = "cpu", .debug = &(struct weft_debug){.max_alloc = 1000}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct weft_engine *e = NULL;
        if (weft_engine_open(model, &bad[i], &e) == WEFT_OK) fail_msg("engine %zu opened", i);
        assert_true(strlen(weft_last_error()) > 10);
    }
}

/* Whoever takes parameters of an engine refuses what is out of range, and says so, without computing with it. */
static void test_ranges(void **state)
{
    const struct weft_debug newer = {.reserved = {1}};
    const struct weft_engine_params bad[] = {
        {.context = UINT32_MAX}, {.context = UINT32_MAX - 14}, {.context = (1u << 24) + 1}, {.page_tokens = UINT32_MAX},
        {.page_tokens = UINT32_MAX - 5}, {.page_tokens = 1u << 30}, {.page_tokens = 1u << 31}, {.page_tokens = 1025},
        {.n_seqs = 65537}, {.n_seqs = UINT32_MAX}, {.max_batched_tokens = 65537}, {.threads = UINT32_MAX},
        {.tile = UINT32_MAX}, {.debug = &newer}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct weft_engine_params p = bad[i];
        struct weft_engine *e = NULL;
        struct weft_budget budget;
        struct weft_memory memory;
        char words[64];
        weft_status want = p.debug ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_ARG;
        p.device = "null";
        assert_int_equal(weft_engine_open(model, &p, &e), want);
        assert_int_equal(weft_model_budget(model, &p, &budget), want);
        assert_int_equal(weft_memory(model, &p, &memory), want);
        assert_int_equal(weft_plan_source(model, &p, words, sizeof words), want);
    }
    assert_int_equal(weft_model_memory(model, UINT32_MAX, 1), 0);
    assert_int_equal(weft_model_memory(model, 64, UINT32_MAX), 0);
}

/* Processor time: a machine with much else to do takes its own. */
static double worked_s(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

/* An engine too large for any machine is refused before tables are made that grow with its context, gigabytes in
 * minutes. */
static void test_refused_at_once(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "cpu", .context = 1u << 24, .n_seqs = 1024};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_ERR_NOMEM);
    getrusage(RUSAGE_SELF, &after);
    assert_says("tables of positions and pages");
    assert_true(worked_s(&after) - worked_s(&before) < 1);
    assert_true(after.ru_maxrss - before.ru_maxrss < 100 << 10); /* KiB */
}

SUITE(engine, open_demo, close_demo, CASE(test_threads), CASE(test_finish_reasons), CASE(test_bad_requests),
      CASE(test_close_while_running), CASE(test_progress_ends), CASE(test_prepared), CASE(test_free_in_callback),
      CASE(test_bad_engines), CASE(test_ranges), CASE(test_refused_at_once), CASE(test_preemption),
      CASE(test_passed_pages), CASE(test_needed_pages), CASE(test_preemption_with_cancels),
      CASE(test_half_leave_while_swapping), CASE(test_lost_while_swapping), CASE(test_kv_memory), CASE(test_budget))
