/* cpu_queue: queues, teams and events of the CPU backend: order, waits across queues, time-outs, failures. Meant to be
 * run under the thread sanitizer too. */
#include "cpu/ops/ops.h"
#include "cpu/pool.h"
#include "unit/queues.h"

#include <sys/wait.h>
#include <unistd.h>

static int kernel_for(const wf_call *c)
{
    return wf_pick(dev, c);
}

static void open_with(uint32_t threads)
{
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = threads};
    made.n_queues = made.n_events = made.n_bufs = 0;
    assert_ok(wf_backend_cpu.open(0, &p, &dev));
}

static void shut(void)
{
    destroy_made();
    dev->fns->close(dev);
}

static int open_two(void **state)
{
    open_with(2);
    turns = 3000;
    return 0;
}

static int shut_two(void **state)
{
    shut();
    return 0;
}

static wf_view view_of(wf_buf *b, uint64_t offset, uint32_t rows, uint32_t cols)
{
    return (wf_view){.buf = b, .offset = offset, .rows = rows, .cols = cols, .stride = cols};
}

/* More waits than one command holds, and the data of all of them is there. */
static void test_many_waits(void **state)
{
    enum { N = 20 };
    open_with(1);
    wf_queue *a = queue_of(), *z = queue_of();
    wf_event *e[N], *done = event_of();
    wf_buf *b = buf_of(4 * N);
    uint32_t src[N], dst[N];
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < N; i++) {
            if (round == 0) e[i] = event_of();
            src[i] = (uint32_t)round * 1000 + i;
        }
        for (uint32_t i = 0; i < N; i++) assert_ok(dev->fns->write(a, b, 4 * i, &src[i], 4, NULL, 0, e[i]));
        assert_ok(dev->fns->mark(z, e, N, NULL));
        assert_ok(dev->fns->read(z, b, 0, dst, sizeof(dst), NULL, 0, done));
        assert_ok(dev->fns->wait(done, WAIT_MS));
        assert_memory_equal(src, dst, sizeof(src));
    }
    shut();
}

/* A 24 x 300 x 512 product with a variant. */
static void product(uint32_t threads, int variant, uint32_t groups, float *out)
{
    enum { M = 24, N = 300, K = 512 };
    open_with(threads);
    wf_buf *x = buf_of(4 * M * K), *w = buf_of(4 * N * K), *y = buf_of(4 * M * N);
    wf_queue *q = queue_of();
    wf_event *e = event_of();
    for (uint32_t i = 0; i < M * K; i++) ((float *)x->host)[i] = (float)wf_random_unit(1, i) - 0.5f;
    for (uint32_t i = 0; i < N * K; i++) ((float *)w->host)[i] = (float)wf_random_unit(2, i) - 0.5f;
    wf_call c = {.op = WF_OP_GEMM, .variant = variant, .max_groups = groups, .signal = e,
                 .in = {view_of(x, 0, M, K), view_of(w, 0, N, K)}, .out = {view_of(y, 0, M, N)}};
    if (dev->fns->supports(dev, &c, variant)) {
        assert_ok(dev->fns->submit(q, &c));
        assert_ok(dev->fns->wait(e, WAIT_MS));
    }
    memcpy(out, y->host, 4 * M * N);
    shut();
}

static void test_threads_agree(void **state)
{
    static float one[24 * 300], many[24 * 300];
    size_t n;
    wf_cpu_variant_of(WF_OP_GEMM, &n);
    for (int v = 0; v < (int)n; v++) {
        product(1, v, 0, one);
        product(4, v, 0, many);
        assert_memory_equal(one, many, sizeof(one));
        product(4, v, 3, many);
        assert_memory_equal(one, many, sizeof(one));
    }
}

/* A queue that waits for something that never comes is a lost device, and can still be closed; also behind its events,
 * as wf_finish does. */
static void test_timeout(void **state)
{
    open_with(2);
    wf_queue *q = queue_of();
    wf_event *never = event_of(), *e = event_of();
    ((wf_cpu_event *)never)->armed++;
    assert_ok(dev->fns->mark(q, &never, 1, e));
    assert_int_equal(dev->fns->wait(e, 20), WEFT_ERR_TIMEOUT);
    assert_true(dev->lost);
    dev->fns->event_destroy(dev, e);
    dev->fns->event_destroy(dev, never);
    dev->fns->queue_destroy(dev, q);
    dev->fns->close(dev);
}

/* What fails while it runs is told by the next wait and submit; later calls are skipped. */
static void test_failure(void **state)
{
    open_with(2);
    wf_queue *q = queue_of();
    wf_event *e = event_of();
    wf_call c = one_more(cells(q, 2), 2, 0, 1);
    c.signal = e;
    assert_ok(dev->fns->submit(q, &c));
    assert_ok(dev->fns->wait(e, WAIT_MS));
    wf_cpu_fail((wf_cpu_dev *)dev, WEFT_ERR_NOMEM, "first");
    wf_cpu_fail((wf_cpu_dev *)dev, WEFT_ERR_DEVICE, "second");
    assert_int_equal(dev->fns->wait(e, WAIT_MS), WEFT_ERR_NOMEM);
    assert_string_equal(wf_error(), "first");
    assert_int_equal(dev->fns->submit(q, &c), WEFT_ERR_NOMEM);
    shut();
}

/* The best first; few of them are the first of many. */
static void test_rank(void **state)
{
    wf_candidate_kernel all[32], some[2];
    open_with(1);
    wf_call c = one_more(cells(queue_of(), 2), 2, 0, 1);
    size_t n = dev->fns->rank(dev, &c, NULL, all, WF_LEN(all));
    assert_true(n >= 2);
    assert_int_equal(dev->fns->rank(dev, &c, NULL, some, 2), 2);
    assert_true(some[0].variant == all[0].variant && some[1].variant == all[1].variant);
    for (size_t i = 1; i < n; i++) {
        size_t unused;
        const wf_cpu_variant *list = wf_cpu_variant_of(WF_OP_GEMM, &unused);
        assert_true(list[all[i].variant].rank(&c) <= list[all[i - 1].variant].rank(&c));
    }
    shut();
}

/* ---- shares: member 0 comes late, so that the others take its chunks, too ----------------------- */

#define CHUNKS 23

static void count(const wf_cpu_work *w)
{
    uint32_t begin, end, *taken = wf_cpu_at(&w->call->out[0]);
    if (w->id == 0) wf_cpu_barrier(w);
    while (wf_cpu_next(w, CHUNKS, 3, &begin, &end))
        for (uint32_t i = begin; i < end; i++) taken[i] += w->id ? 1 : CHUNKS;
    if (w->id) wf_cpu_barrier(w);
}

/* All threads have the same turns, and there are as few of them as `most` allows. */
static void test_chunks(void **state)
{
    const struct {
        uint32_t threads, total, unit, most, chunk;
    } cases[] = {{16, 256, 16, 192, 16}, {16, 2048, 16, 192, 128}, {16, 5632, 16, 192, 176}, {2, 5632, 16, 192, 192},
                 {16, 2048, 4, 112, 64}, {3, 100, 16, 128, 48},    {16, 40, 16, 128, 16},    {1, 0, 4, 8, 4},
                 {2, 64, 16, 8, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wf_cpu_work w = {.n = cases[i].threads};
        assert_int_equal(wf_cpu_chunk(&w, cases[i].total, cases[i].unit, cases[i].most), cases[i].chunk);
    }
}

/* A team of a pool of its own. */
typedef struct alone {
    wf_cpu_pool *pool;
    wf_cpu_team *team;
} alone;

static alone alone_of(uint32_t cores)
{
    alone a = {0};
    assert_ok(wf_cpu_pool_create(cores, &a.pool));
    assert_ok(wf_cpu_team_create(a.pool, NULL, &a.team));
    return a;
}

static void end_alone(alone a)
{
    wf_cpu_team_destroy(a.team);
    wf_cpu_pool_destroy(a.pool);
}

static void count_me(const wf_cpu_work *w)
{
    ((uint32_t *)wf_cpu_at(&w->call->out[0]))[w->id]++;
}

/* Calls of other numbers of threads follow each other: each takes as many as it says. */
static void test_few_of_a_team(void **state)
{
    enum { TURNS = 500 };
    open_with(1);
    wf_buf *b = buf_of(4 * sizeof(uint32_t));
    wf_call c = {.out[0] = view_of(b, 0, 1, 4)};
    const uint32_t *ran = b->host;
    alone a = alone_of(4);
    for (uint32_t i = 0; i < TURNS * 4; i++)
        assert_ok(wf_cpu_team_run(a.team, count_me, &c, 1 + (i * 3 + 1) % 4, (wf_cpu_scratch_size){0}));
    for (uint32_t id = 0; id < 4; id++) assert_int_equal(ran[id], TURNS * (4 - id));
    end_alone(a);
    shut();
}

static void halve_least(const wf_cpu_work *w)
{
    volatile float least = 0x1p-126f; /* of the normal numbers: half of it is none */
    ((float *)wf_cpu_at(&w->call->out[0]))[w->id] = least / 2;
}

/* Subnormal numbers would make calls many times as long. They count as 0 in calls, and nowhere else. */
static void test_subnormal(void **state)
{
    volatile float least = 0x1p-126f;
    open_with(1);
    wf_buf *b = buf_of(2 * sizeof(float));
    wf_call c = {.out[0] = view_of(b, 0, 1, 2)};
    float *halves = b->host;
    alone a = alone_of(2);
    halves[0] = halves[1] = 1;
    assert_ok(wf_cpu_team_run(a.team, halve_least, &c, 2, (wf_cpu_scratch_size){0}));
    assert_true(halves[0] == 0 && halves[1] == 0);
    assert_true(least / 2 > 0);
    end_alone(a);
    shut();
}

static void test_usual_threads(void **state)
{
    assert_int_equal(wf_cpu_usual_threads(1), 1);
    assert_int_equal(wf_cpu_usual_threads(15), 15);
    assert_int_equal(wf_cpu_usual_threads(16), 15);
}

static void test_shares(void **state)
{
    open_with(1);
    wf_buf *b = buf_of(CHUNKS * 4);
    wf_call c = {.out[0] = view_of(b, 0, 1, CHUNKS)};
    alone a = alone_of(3);
    assert_ok(wf_cpu_team_run(a.team, count, &c, 3, (wf_cpu_scratch_size){0}));
    for (int i = 0; i < CHUNKS; i++) assert_int_equal(((uint32_t *)b->host)[i], 1);
    end_alone(a);
    shut();
}

static void late_attention(const wf_cpu_work *w)
{
    if (w->id == 0) wf_cpu_barrier(w);
    wf_cpu_attention_c(w);
    if (w->id) wf_cpu_barrier(w);
}

/* Rows of as many sequences, each of one key, whose value is the row's number: who takes a share that others have left
 * goes back to earlier rows. */
#define ROWS 6
#define DIM  16

static void test_late_attention(void **state)
{
    struct {
        float q[ROWS][DIM], out[ROWS][DIM];
        uint16_t k[ROWS][DIM], v[ROWS][DIM];
        int32_t seq[ROWS], pos[ROWS], indptr[ROWS + 1], pages[ROWS];
    } m = {0};
    wf_buf b = {.host = &m};
    for (int i = 0; i < ROWS; i++) {
        m.seq[i] = m.pages[i] = i;
        m.indptr[i + 1] = i + 1;
        for (int d = 0; d < DIM; d++) m.v[i][d] = wf_float_to_half((float)i);
    }
#define VIEW(field, dtype_)                                                                                            \
    {.buf = &b, .offset = offsetof(__typeof__(m), field), .rows = ROWS, .cols = DIM, .stride = DIM, .dtype = dtype_}
    wf_call c = {.op = WF_OP_ATTENTION,
                 .in = {VIEW(q, WF_F32), VIEW(k, WF_F16), VIEW(v, WF_F16), VIEW(seq, WF_F32), VIEW(pos, WF_F32),
                        VIEW(indptr, WF_F32), VIEW(pages, WF_F32)},
                 .out = {VIEW(out, WF_F32)},
                 .p = {.n_head = 1, .n_kv_head = 1, .head_dim = DIM, .page_tokens = 1, .scale = 1}};
#undef VIEW
    alone a = alone_of(2);
    assert_ok(wf_cpu_team_run(a.team, late_attention, &c, 2, wf_cpu_attention_scratch_c(&c)));
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < DIM; d++) assert_true(m.out[i][d] == (float)i);
    end_alone(a);
}

/* ---- cores: calls of several queues at once ------------------------------------------------------- */

#define CORES 4

/* What the calls of a test see, and what they wait for. */
static struct {
    wf_cpu_pool *pool;
    atomic_uint inside, most; /* members at work, and how many there were at once */
    atomic_uint begun, go;    /* calls */
    atomic_uint result[4];    /* of a call, by its number */
} seen;

static void await_at_least(atomic_uint *word, uint32_t least)
{
    uint64_t since = 0;
    while (atomic_load(word) < least) wf_cpu_spin(&since);
}

static void enter(void)
{
    uint32_t now = atomic_fetch_add(&seen.inside, 1) + 1, most = atomic_load(&seen.most);
    while (now > most && !atomic_compare_exchange_weak(&seen.most, &most, now)) {}
}

static void leave(void)
{
    atomic_fetch_sub(&seen.inside, 1);
}

static atomic_uint *result(const wf_cpu_work *w)
{
    return &seen.result[w->call->p.n_head];
}

/* All members at once, two times. */
static void meet(const wf_cpu_work *w)
{
    enter();
    for (int i = 0; i < 2; i++) wf_cpu_barrier(w);
    leave();
}

/* Keeps its cores until the test lets it go. */
static void hold(const wf_cpu_work *w)
{
    enter();
    atomic_store(result(w), w->n);
    if (w->id == 0) atomic_fetch_add(&seen.begun, 1);
    await_at_least(&seen.go, 1);
    leave();
}

/* Keeps all cores until a leader sleeps, as one does that waits for a core. */
static void hold_until_one_waits(const wf_cpu_work *w)
{
    if (w->id == 0) atomic_fetch_add(&seen.begun, 1);
    await_at_least(&wf_cpu_pool_leaders(seen.pool)->sleepers, 1);
}

static void count_cores(const wf_cpu_work *w)
{
    if (w->id == 0) atomic_store(result(w), w->n);
}

static void count_earlier(const wf_cpu_work *w)
{
    if (w->id == 0) atomic_store(result(w), atomic_fetch_add(&seen.begun, 1));
}

static const wf_cpu_variant meets = {.run = meet}, holds = {.run = hold},
                            holds_until_one_waits = {.run = hold_until_one_waits}, counts_cores = {.run = count_cores},
                            counts_earlier = {.run = count_earlier};

/* A call of so much work that all cores would take part. */
static void launch(wf_queue *q, const wf_cpu_variant *v, uint32_t number, uint32_t limit, wf_event *signal)
{
    wf_call c = {.op = WF_OP_SILU_MUL, .max_groups = limit, .signal = signal, .p.n_head = number,
                 .out[0] = {.rows = 1000, .cols = 1000}};
    const wf_bound b = {0, (void *)v}; /* read-only */
    assert_ok(q->dev->fns->launch(q, &c, &b));
}

/* Queues of a device with CORES, and an event for each. */
typedef struct queues {
    wf_queue *q[3];
    wf_event *e[3];
} queues;

static queues begin_cores(void)
{
    queues s;
    open_with(CORES);
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < 3; i++) s.q[i] = queue_of(), s.e[i] = event_of();
    seen.pool = ((wf_cpu_dev *)dev)->pool;
    return s;
}

static void end_cores(queues *s)
{
    for (int i = 0; i < 3; i++) {
        wf_queue_destroy(s->q[i]);
        wf_event_destroy(s->e[i]);
    }
    dev->fns->close(dev);
}

static void test_cores_of_a_call(void **state)
{
    const uint32_t limits[] = {0, 3, 9}, cores[] = {CORES, 3, CORES};
    queues s = begin_cores();
    for (uint32_t i = 0; i < 3; i++) launch(s.q[0], &counts_cores, i, limits[i], s.e[0]);
    assert_ok(dev->fns->wait(s.e[0], WAIT_MS));
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(seen.result[i], cores[i]);
    end_cores(&s);
}

/* While a call has three of four cores, another one has the fourth, and then all. */
static void test_cores_left(void **state)
{
    queues s = begin_cores();
    launch(s.q[0], &holds, 0, 3, s.e[0]);
    await_at_least(&seen.begun, 1);
    launch(s.q[1], &holds, 1, 0, s.e[1]);
    await_at_least(&seen.begun, 2);
    assert_int_equal(seen.result[1], 1);
    atomic_store(&seen.go, 1);
    for (int i = 0; i < 2; i++) assert_ok(dev->fns->wait(s.e[i], WAIT_MS));
    launch(s.q[1], &counts_cores, 2, 0, s.e[1]);
    assert_ok(dev->fns->wait(s.e[1], WAIT_MS));
    assert_int_equal(seen.result[2], CORES);
    end_cores(&s);
}

/* Calls that together want more cores than there are: all end, and no more are ever at work. */
static void test_cores_of_many_calls(void **state)
{
    const uint32_t limits[] = {0, 3, 2};
    queues s = begin_cores();
    for (int i = 0; i < 300; i++)
        for (uint32_t q = 0; q < 3; q++) launch(s.q[q], &meets, q, limits[q], s.e[q]);
    for (int q = 0; q < 3; q++) assert_ok(dev->fns->wait(s.e[q], WAIT_MS));
    assert_in_range(seen.most, 1, CORES);
    end_cores(&s);
}

/* A call that waits for cores gets them before the next one of the queue that has them. */
static void test_cores_in_turn(void **state)
{
    queues s = begin_cores();
    launch(s.q[0], &holds_until_one_waits, 0, 0, NULL);
    await_at_least(&seen.begun, 1);
    launch(s.q[0], &counts_earlier, 1, 0, s.e[0]);
    launch(s.q[1], &counts_earlier, 2, 0, s.e[1]);
    for (int i = 0; i < 2; i++) assert_ok(dev->fns->wait(s.e[i], WAIT_MS));
    assert_int_equal(seen.result[2], 1);
    assert_int_equal(seen.result[1], 2);
    end_cores(&s);
}

/* ---- a call that does not end --------------------------------------------------------------------- */

/* Has the call of that number begun? */
static bool has_run(uint32_t number)
{
    return atomic_load(&seen.result[number]) != 0;
}

/* What waits for a call that was dropped has no inputs: it must not run when the queue of that call is destroyed, which
 * fires its events. */
static void test_lost_runs_nothing(void **state)
{
    queues s = begin_cores();
    wf_event *never = event_of();
    ((wf_cpu_event *)never)->armed++;
    assert_ok(wf_mark(s.q[0], &never, 1, NULL));
    launch(s.q[0], &counts_cores, 0, 0, s.e[0]);
    assert_ok(wf_mark(s.q[1], &s.e[0], 1, NULL));
    launch(s.q[1], &counts_cores, 1, 0, s.e[1]);
    assert_int_equal(wf_wait(s.e[1], 20), WEFT_ERR_TIMEOUT);
    wf_resume(dev);
    dev->fns->queue_destroy(dev, s.q[0]);
    s.q[0] = NULL;
    dev->fns->wait(s.e[1], WAIT_MS);
    assert_false(has_run(0) || has_run(1));
    dev->fns->event_destroy(dev, never);
    end_cores(&s);
}

/* Waits for the test, then asks for work, and writes to its operand. */
static void go_on_late(const wf_cpu_work *w)
{
    uint32_t begin, end;
    if (w->id == 0) atomic_fetch_add(&seen.begun, 1);
    await_at_least(&seen.go, 1);
    if (wf_cpu_next(w, 1, 1, &begin, &end)) atomic_store(result(w), 1);
    if (w->id == 0) *(char *)wf_cpu_at(&w->call->out[0]) = 1;
}

static const wf_cpu_variant goes_on_late = {.run = go_on_late};

/* The call itself ends at its next chunk. Until then it may use its memory, here as much as free() gives back to the
 * system at once, and its event, though they have been destroyed. */
static void test_lost_still_runs(void **state)
{
    queues s = begin_cores();
    wf_buf *b;
    assert_ok(wf_buf_create(dev, 64u << 20, &b));
    wf_call c = {.op = WF_OP_SILU_MUL, .signal = s.e[0], .out[0] = {.buf = b, .rows = 1000, .cols = 1000}};
    const wf_bound bound = {0, (void *)&goes_on_late}; /* read-only */
    assert_ok(dev->fns->launch(s.q[0], &c, &bound));
    await_at_least(&seen.begun, 1);
    assert_int_equal(wf_wait(s.e[0], 20), WEFT_ERR_TIMEOUT);
    wf_buf_destroy(b);
    wf_event_destroy(s.e[0]);
    s.e[0] = NULL;
    atomic_store(&seen.go, 1);
    end_cores(&s);
    assert_false(has_run(0));
}

/* After a failure a call may still run: who gives up can wait for its end. */
static void test_failure_still_runs(void **state)
{
    queues s = begin_cores();
    launch(s.q[0], &holds, 0, 0, NULL);
    await_at_least(&seen.begun, 1);
    wf_cpu_fail((wf_cpu_dev *)dev, WEFT_ERR_NOMEM, "of another queue");
    dev->params.watchdog_ms = 20;
    assert_int_equal(wf_finish(s.q[0]), WEFT_ERR_TIMEOUT);
    atomic_store(&seen.go, 1);
    end_cores(&s);
}

/* Where the machine has no cores for the threads of another device, calls of both take turns on those that there are;
 * a child of fork has none of them. */
static void test_devices_share(void **state)
{
    uint32_t most = WF_MIN(wf_core_count(), WF_CPU_MOST_THREADS);
    wf_cpu_pool *one, *two, *other, *small;
    assert_ok(wf_cpu_pool_take(most, &one));
    assert_ok(wf_cpu_pool_take(most, &two));
    assert_ok(wf_cpu_pool_take(most > 1 ? most - 1 : 2, &other));
    assert_ptr_equal(one, two);
    assert_ptr_not_equal(one, other);
    pid_t child = fork();
    if (!child) {
        wf_cpu_pool *own = NULL;
        _exit(wf_cpu_pool_take(most, &own) || own == one);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wf_cpu_pool_leave(one);
    wf_cpu_team *team; /* it is still there */
    assert_ok(wf_cpu_team_create(two, NULL, &team));
    wf_cpu_team_destroy(team);
    wf_cpu_pool_leave(two);
    wf_cpu_pool_leave(other);
    assert_ok(wf_cpu_pool_take(1, &one));
    assert_ok(wf_cpu_pool_take(1, &small));
    assert_int_equal(one != small, wf_core_count() > 1);
    wf_cpu_pool_leave(one);
    wf_cpu_pool_leave(small);
}

SUITE(cpu_queue, NULL, NULL, CASE_IN(one_queue_is_in_order, open_two, shut_two),
      CASE_IN(ping_pong, open_two, shut_two), CASE_IN(copies_wait, open_two, shut_two),
      CASE_IN(columns_are_copied, open_two, shut_two), CASE_IN(join, open_two, shut_two),
      CASE_IN(events, open_two, shut_two), CASE(test_many_waits), CASE(test_threads_agree),
      CASE(test_timeout), CASE(test_failure), CASE(test_rank), CASE(test_usual_threads), CASE(test_shares),
      CASE(test_chunks), CASE(test_few_of_a_team), CASE(test_late_attention), CASE(test_subnormal), CASE(test_cores_of_a_call), CASE(test_cores_left), CASE(test_cores_of_many_calls),
      CASE(test_cores_in_turn), CASE(test_lost_runs_nothing), CASE(test_lost_still_runs), CASE(test_failure_still_runs),
      CASE(test_devices_share))
