/* engine_cancel: what cancelling and closing do to a long step on the CPU, and to the requests beside it. Two layers of
 * a model of 1.1B parameters with random weights, whose steps take seconds on slow machines and some tenths of one on
 * fast ones: long enough for the device to ask whether they are still wanted. That question is the gate at which the
 * test does what it does: what comes of the step depends on the answer alone. */
#include "engine/engine.h"
#include "support/suite.h"

#include <semaphore.h>

#define N_PROMPT 1000
#define N_NEW 4
#define N_THREADS 2 /* with more a step would end before it is asked for */

static struct weft_model *model;
static uint64_t step_ms; /* of work on a prompt */

/* Within a step: the device's question waits for what the test does. */
static struct gate {
    struct weft_engine *e;
    uint32_t n; /* requests that have to run; 0: it is open */
    sem_t reached, left;
    atomic_bool open;
    bool unwanted; /* what the device was told */
} gate;

static bool at_gate(void *user)
{
    struct gate *g = user;
    struct weft_stats s;
    weft_engine_stats(g->e, &s);
    if (g->n && s.running >= g->n) {
        g->n = 0;
        sem_post(&g->reached);
        while (!atomic_load(&g->open) && !wf_engine_unwanted(g->e)) wf_sleep_ns(1000000);
        g->unwanted = wf_engine_unwanted(g->e);
        sem_post(&g->left);
        return g->unwanted;
    }
    return wf_engine_unwanted(g->e);
}

static struct weft_engine *open_engine(uint32_t n_seqs)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {
        .device = "cpu", .n_seqs = n_seqs, .context = 2048, .max_batched_tokens = 2048, .threads = N_THREADS};
    assert_ok(weft_engine_open(model, &p, &e));
    return e;
}

/* The first step with so many requests stays at the gate until it is opened, or nobody wants the step any more. Before
 * they are submitted. */
static void close_gate(struct weft_engine *e, uint32_t n)
{
    gate.e = e, gate.n = n;
    sem_init(&gate.reached, 0, 0), sem_init(&gate.left, 0, 0);
    atomic_store(&gate.open, false);
    wf_dev_stop_by(e->dev, at_gate, &gate);
}

/* Of all threads together: who waits for a processor is not late. */
static uint64_t worked_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What is broken off takes less work than what is not, however long that is. */
static void assert_broken_off(uint64_t began, uint64_t ended)
{
    if (2 * (ended - began) > step_ms)
        fail_msg("%llu ms of work until the end, of %llu", (unsigned long long)(ended - began),
                 (unsigned long long)step_ms);
}

static struct weft_stats stats_of(const struct weft_engine *e)
{
    struct weft_stats s;
    weft_engine_stats(e, &s);
    return s;
}

typedef struct answer {
    int32_t ids[N_NEW];
    uint32_t n, n_cached;
    enum weft_finish finish;
    uint64_t ended; /* worked_ms */
} answer;

static void on_event(void *user, const struct weft_event *ev)
{
    answer *a = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0 && a->n < N_NEW) a->ids[a->n++] = ev->id;
    if (ev->kind == WEFT_EVENT_DONE) a->finish = ev->finish, a->n_cached = ev->n_cached, a->ended = worked_ms();
}

/* A prompt of n tokens; those of another seed share no prefix. */
static struct weft_request *submit(struct weft_engine *e, int32_t seed, uint32_t n, answer *a)
{
    int32_t tokens[N_PROMPT];
    struct weft_request *r = NULL;
    for (uint32_t i = 0; i < n; i++) tokens[i] = 1000 + seed + (int32_t)(i * 7 % 1000);
    *a = (answer){0};
    struct weft_request_params p = {
        .tokens = tokens, .n_tokens = n, .max_tokens = N_NEW, .ignore_eos = true, .on_event = on_event, .user = a};
    assert_ok(weft_submit(e, &p, &r));
    return r;
}

/* The step ends soon, counts as not done, and leaves nothing in the prefix cache: the same prompt is computed as a
 * whole. What comes behind it is computed, too. */
static void test_step_is_broken_off(void **state)
{
    struct weft_engine *e = open_engine(2);
    answer cancelled, behind, again, cached;
    close_gate(e, 1);
    struct weft_request *a = submit(e, 0, N_PROMPT, &cancelled);
    sem_wait(&gate.reached);
    uint64_t began = worked_ms();
    weft_cancel(a);
    struct weft_request *b = submit(e, 0, N_PROMPT, &behind);
    assert_int_equal(weft_wait(a, 0), WEFT_ERR_CANCELLED);
    assert_broken_off(began, cancelled.ended);
    assert_ok(weft_wait(b, 0));
    assert_int_equal(stats_of(e).steps, N_NEW); /* those of the second */
    assert_int_equal(behind.n_cached, 0);
    weft_request_free(a);
    weft_request_free(b);
    weft_request_free(
        a = submit(e, 0, N_PROMPT, &again)); /* cancelled at its start, most of it in the prefix cache: that stays */
    a = submit(e, 0, N_PROMPT, &cached);
    assert_ok(weft_wait(a, 0));
    assert_true(cached.n_cached > N_PROMPT / 2);
    assert_memory_equal(cached.ids, behind.ids, sizeof behind.ids);
    weft_request_free(a);
    weft_engine_close(e);
}

/* A request that shares the step, or has begun like the cancelled one, is answered as if it were alone. */
static void test_others_go_on(void **state)
{
    struct weft_engine *e = open_engine(3);
    answer alone, cancelled, beside, alike;
    struct weft_request *r = submit(e, 1000, N_PROMPT / 2, &alone);
    assert_ok(weft_wait(r, 0));
    weft_request_free(r);
    weft_engine_close(e);
    e = open_engine(3);
    close_gate(e, 2);
    struct weft_request *a = submit(e, 3000, N_PROMPT / 2, &cancelled), *b = submit(e, 1000, N_PROMPT / 2, &beside);
    sem_wait(&gate.reached);
    weft_cancel(a);
    atomic_store(&gate.open, true);
    sem_wait(&gate.left);
    assert_false(gate.unwanted);
    assert_ok(weft_wait(b, 0));
    assert_int_equal(weft_wait(a, 0), WEFT_ERR_CANCELLED);
    assert_true(stats_of(e).step_tokens >= N_PROMPT / 2);
    assert_memory_equal(beside.ids, alone.ids, sizeof alone.ids);
    struct weft_request *c = submit(e, 1000, N_PROMPT / 2, &alike);
    assert_ok(weft_wait(c, 0));
    assert_memory_equal(alike.ids, alone.ids, sizeof alone.ids);
    weft_request_free(a);
    weft_request_free(b);
    weft_request_free(c);
    weft_engine_close(e);
}

static void test_close_breaks_off(void **state)
{
    struct weft_engine *e = open_engine(2);
    answer a, b;
    close_gate(e, 2);
    struct weft_request *r[] = {submit(e, 0, N_PROMPT, &a), submit(e, 1000, N_PROMPT, &b)};
    sem_wait(&gate.reached);
    uint64_t began = worked_ms();
    weft_engine_close(e);
    assert_broken_off(began, worked_ms());
    assert_int_equal(a.finish, WEFT_FINISH_CANCEL);
    assert_int_equal(b.finish, WEFT_FINISH_CANCEL);
    weft_request_free(r[0]);
    weft_request_free(r[1]);
}

static void measure_step(void)
{
    struct weft_engine *e = open_engine(1);
    answer a;
    uint64_t began = worked_ms();
    struct weft_request *r = submit(e, 0, N_PROMPT, &a);
    weft_wait(r, 0);
    step_ms = a.ended - began;
    weft_request_free(r);
    weft_engine_close(e);
}

static int setup(void **state)
{
    if (weft_model_open(&(struct weft_model_params){.shape = "llama-1.1b", .layers = 2, .type = "Q8_0"}, &model))
        return -1;
    measure_step();
    return 0;
}

static int teardown(void **state)
{
    weft_model_close(model);
    return 0;
}

SUITE(engine_cancel, setup, teardown, CASE(test_step_is_broken_off), CASE(test_others_go_on),
      CASE(test_close_breaks_off))
