/* comm: what ranks of a group exchange, and what they see when one of them fails or stays away. Where mpirun starts it
 * (tests/cli/test_mpi.py), ranks are processes, each with its own in the list. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "dist/mpi.h"
#include "support/suite.h"

enum { MOST = 5, N = 3001, TIMES = 20, TIMEOUT_MS = 60000 };

typedef struct rank {
    wf_comm *c;
    pthread_t thread;
    uint64_t n;
    uint32_t takers;
    uint8_t data[2][N], room[MOST * N];
    weft_status status;
    char message[128];
} rank;

static uint8_t byte_of(uint32_t rank, uint64_t i, int time)
{
    return (uint8_t)(256 * wf_random_unit(rank * 100 + (uint64_t)time, i));
}

static weft_status exchange(rank *r, int time, const void **all)
{
    uint8_t *own = r->data[time % 2]; /* what it gave before others may still read */
    for (uint64_t i = 0; i < r->n; i++) own[i] = byte_of(r->c->rank, i, time);
    return wf_comm_exchange(r->c, own, r->n, r->takers, r->room, all);
}

static bool has_all(const rank *r, int time, const void *const *all)
{
    for (uint32_t k = 0; k < r->c->ranks; k++)
        for (uint64_t i = 0; i < r->n; i++)
            if (((const uint8_t *)all[k])[i] != byte_of(k, i, time)) return false;
    return true;
}

static void *exchange_often(void *arg)
{
    rank *r = arg;
    for (int t = 0; t < TIMES && r->status == WEFT_OK; t++) {
        const void *all[MOST];
        r->status = exchange(r, t, all);
        if (r->status == WEFT_OK && r->c->rank < r->takers && !has_all(r, t, all)) r->status = WEFT_ERR_INTERNAL;
    }
    return NULL;
}

static void *exchange_once(void *arg)
{
    rank *r = arg;
    const void *all[MOST];
    r->status = exchange(r, 0, all);
    wf_copy(r->message, sizeof r->message, wf_error());
    return NULL;
}

/* Each to the next one, more than may wait at a time. */
static void *pass_on(void *arg)
{
    enum { MESSAGES = 3 * WF_COMM_QUEUED };
    rank *r = arg;
    uint32_t me = r->c->rank, ranks = r->c->ranks, to = (me + 1) % ranks, from = (me + ranks - 1) % ranks, got[8];
    for (uint32_t i = 0; i < MESSAGES + 5 && r->status == WEFT_OK; i++) {
        const uint32_t sent[8] = {me, i};
        if (i < MESSAGES) r->status = wf_comm_send(r->c, to, i, sent, 4 * (2 + i % 7));
        if (i < 5 || r->status != WEFT_OK) continue; /* five are under way */
        r->status = wf_comm_receive(r->c, from, i - 5, got, 4 * (2 + (i - 5) % 7));
        if (r->status == WEFT_OK && (got[0] != from || got[1] != i - 5)) r->status = WEFT_ERR_INTERNAL;
    }
    return NULL;
}

/* What comes is not what was planned. */
static void *another_message(void *arg)
{
    rank *r = arg;
    uint32_t x = 0;
    if (!r->c->rank) r->status = wf_comm_send(r->c, 1, 7, &x, sizeof x);
    else r->status = wf_comm_receive(r->c, 0, 8, &x, sizeof x);
    wf_copy(r->message, sizeof r->message, wf_error());
    return NULL;
}

static void *fails(void *arg)
{
    rank *r = arg;
    if (r->c->rank == 1) wf_comm_fail(r->c, "out of paper");
    return exchange_once(arg);
}

static void *stays_away(void *arg)
{
    rank *r = arg;
    return r->c->rank != 1 ? exchange_once(arg) : NULL;
}

static void *has_more(void *arg)
{
    rank *r = arg;
    r->n += r->c->rank == 1;
    return exchange_once(arg);
}

/* Is rank r computed here? */
static bool is_mine(uint32_t r)
{
    uint32_t n, me = wf_process(&n);
    return n == 1 || r == me;
}

/* The most of a group. */
static uint32_t most_ranks(void)
{
    uint32_t n;
    wf_process(&n);
    return n == 1 ? MOST : n;
}

/* Each process calls it as often as the others. */
static void one_of_them(uint32_t ranks, uint32_t timeout_ms, rank like, void *(*fn)(void *), rank *list)
{
    static uint32_t id;
    uint32_t me = wf_process(NULL);
    assert_ok(wf_mpi_start(10000));
    id++;
    if (me >= ranks) return;
    list[me] = like;
    assert_ok(wf_comm_mpi(id, 0, ranks, timeout_ms, &list[me].c));
    fn(&list[me]);
    wf_comm_close(list[me].c);
}

static void together(uint32_t ranks, uint32_t timeout_ms, uint64_t n, uint32_t takers, void *(*fn)(void *), rank *list)
{
    wf_comm *comms[MOST];
    memset(list, 0, ranks * sizeof *list);
    if (!is_mine(0) || !is_mine(1)) {
        one_of_them(ranks, timeout_ms, (rank){.n = n, .takers = takers}, fn, list);
        return;
    }
    assert_ok(wf_comm_threads(ranks, timeout_ms, comms));
    for (uint32_t i = 0; i < ranks; i++) {
        list[i] = (rank){.c = comms[i], .n = n, .takers = takers};
        assert_int_equal(pthread_create(&list[i].thread, NULL, fn, &list[i]), 0);
    }
    for (uint32_t i = 0; i < ranks; i++) pthread_join(list[i].thread, NULL);
    for (uint32_t i = 0; i < ranks; i++) wf_comm_close(comms[i]);
}

static void each_has_what_all_gave(void **state)
{
    static const uint64_t sizes[] = {0, 1, 4, N};
    static rank list[MOST];
    for (uint32_t ranks = 1; ranks <= most_ranks(); ranks++)
        for (size_t i = 0; i < WF_LEN(sizes); i++)
            for (uint32_t takers = 1; takers <= ranks; takers += ranks - 1 ? ranks - 1 : 1) {
                together(ranks, TIMEOUT_MS, sizes[i], takers, exchange_often, list);
                for (uint32_t r = 0; r < ranks; r++) assert_ok(list[r].status);
            }
}

static void messages_keep_their_order(void **state)
{
    static rank list[MOST];
    for (uint32_t ranks = 2; ranks <= most_ranks(); ranks++) {
        together(ranks, TIMEOUT_MS, 0, 0, pass_on, list);
        for (uint32_t r = 0; r < ranks; r++) assert_ok(list[r].status);
    }
    together(2, TIMEOUT_MS, 0, 0, another_message, list);
    assert_ok(list[0].status);
    if (!is_mine(1)) return;
    assert_int_equal(list[1].status, WEFT_ERR_INTERNAL);
    assert_string_equal(list[1].message, "a message of 4 bytes for 7 where one of 4 for 8 was expected");
}

static void one_fails_for_all(void **state)
{
    static rank list[MOST];
    together(most_ranks(), TIMEOUT_MS, 100, MOST, fails, list);
    for (uint32_t r = 0; r < most_ranks(); r++) {
        if (!is_mine(r)) continue;
        assert_int_equal(list[r].status, WEFT_ERR_DEVICE);
        assert_non_null(strstr(list[r].message, "out of paper"));
    }
}

/* Of processes only those that see it know it at once. */
static void lengths_are_equal(void **state)
{
    static rank list[MOST];
    together(3, TIMEOUT_MS, 100, MOST, has_more, list);
    for (uint32_t r = 0; r < 3; r++)
        if (is_mine(r)) assert_true(list[r].status == WEFT_ERR_INTERNAL || (!is_mine(3) && list[r].status));
}

static void nobody_waits_for_ever(void **state)
{
    static rank list[MOST];
    together(3, 50, 100, MOST, stays_away, list);
    for (uint32_t r = 0; r < 3; r += 2) {
        if (!is_mine(r)) continue;
        assert_int_equal(list[r].status, WEFT_ERR_DEVICE);
        assert_non_null(strstr(list[r].message, "a device of the group did not answer within 50 ms"));
    }
}

/* ---- engines --------------------------------------------------------------------------------------------------- */

static void one_engine_at_a_time(void **state)
{
    uint32_t n;
    struct weft_model *m;
    struct weft_engine *e, *other = NULL;
    if (wf_process(&n)) {
        assert_ok(weft_follow());
        return;
    }
    const struct weft_engine_params p = {.device = "cpu", .tensor_parallel = 2, .context = 64, .threads = 1};
    assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m));
    for (int i = 0; i < 2; i++) {
        assert_ok(weft_engine_open(m, &p, &e));
        assert_error(weft_engine_open(m, &p, &other), WEFT_ERR_UNSUPPORTED, "close it first");
        assert_null(other);
        weft_engine_close(e);
    }
    weft_model_close(m);
    assert_ok(weft_follow());
}

/* One case alone where a word names it: a group of processes breaks for good. The last case is one of two processes,
 * which mpirun starts. */
SUITE_MAIN(comm)
{
    uint32_t processes;
    wf_process(&processes);
    const struct CMUnitTest tests[] = {CASE(each_has_what_all_gave), CASE(messages_keep_their_order),
                                       CASE(one_fails_for_all),
                                       CASE(lengths_are_equal), CASE(nobody_waits_for_ever),
                                       CASE(one_engine_at_a_time)};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    else if (processes != 2) cmocka_set_skip_filter("one_engine_at_a_time");
    int failed = cmocka_run_group_tests_name("comm", tests, NULL, NULL);
    wf_mpi_end();
    return failed;
}
