/* sched: its policies, prefixes and predictions, in worlds of random requests. */
#include "sched_world.h"

#include <sys/resource.h>

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void test_random_requests(void **state)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int policy = 0; policy < 4; policy++) {
            bool ahead = seed / 2 % 2;
            int torn = 0;
            play(&tight, (enum wf_policy)policy, 1, seed, 60, seed % 2, ahead, &torn);
            play(&roomy, (enum wf_policy)policy, 8, seed, 60, seed % 2, ahead, &torn);
            assert_int_equal(torn, 0);
        }
}

static void test_too_few_pages(void **state)
{
    int moved = 0, torn = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int policy = 0; policy < 4; policy++)
            moved += play(&starved, (enum wf_policy)policy, 4, seed, 60, seed % 2, seed / 2 % 2, &torn);
    assert_true(moved > 100); /* or nothing was tried */
}

/* No page list, record of a swap or client may be had at times: every request still ends, with what it would have
 * written. */
static void test_host_without_memory(void **state)
{
    uint64_t preempted = 0, again = 0;
    n_denied = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        world w;
        open_world(&w, &starved, (enum wf_policy)(seed % 4), 4, seed);
        w.unlucky = true, w.spacious = false, w.ahead = seed / 4 % 2;
        run_world(&w, seed, 60, seed % 3 == 0);
        preempted += w.s.n_preempted;
        again += w.again;
        close_world(&w);
    }
    printf("%lu allocations failed, %lu preempted\n", (unsigned long)n_denied, (unsigned long)preempted);
    assert_true(n_denied > 1000 && preempted > 100 && again > 1000);
}

/* Activations of a whole step take as much as 4 to 60 pages. */
static void test_unified_pool(void **state)
{
    int torn = 0, moved = 0;
    for (uint64_t seed = 1; seed <= 40; seed++)
        for (int policy = 0; policy < 4; policy++) {
            bool ahead = seed / 2 % 2, cancel = seed % 2;
            const wf_limits few = sharing(starved, 20u << seed % 4, 30), wide = sharing(tight, 40, 100u << seed % 3);
            assert_true(few.pages > starved.pages && wide.pages > tight.pages);
            assert_int_equal(wf_limits_guaranteed_pages(&few), starved.pages);
            moved += play(&few, (enum wf_policy)policy, 4, seed, 60, cancel, ahead, &torn);
            moved += play(&wide, (enum wf_policy)policy, 1, seed, 60, cancel, ahead, &torn);
        }
    assert_true(torn > 1000 && moved > 100); /* or nothing was tried */
}

/* Pages before the windows go back, whatever else happens; a cache for no more than a window and a step lets every
 * request end. */
static void test_windows(void **state)
{
    uint64_t preempted = 0, hits = 0;
    for (uint64_t seed = 1; seed <= 160; seed++) {
        const uint32_t windows[] = {1, 7, 24, 36}, window = windows[seed / 4 % 4], sink = seed % 3 ? 0 : 1 + seed % 9;
        wf_limits l = seed / 16 % 2 ? tight : starved;
        world w;
        l.step_tokens = 12;
        l.held_pages = (sink + PAGE - 1) / PAGE + (window + l.step_tokens + PAGE - 1) / PAGE + 1;
        l.pages = l.held_pages + (seed / 32 % 2 ? 0 : 3);
        if (seed % 13 < 4) l = sharing(l, 20, 30);
        open_world(&w, &l, (enum wf_policy)(seed % 4), 4, seed);
        w.s.p.kv.tables[0] = (wf_kv_window){window, sink}, w.s.p.kv.no_prefix = seed % 7 == 0;
        w.ahead = seed / 8 % 2, w.unlucky = seed % 5 == 0;
        run_world(&w, seed, 60, seed % 3 == 1);
        assert_true(w.most_held <= l.held_pages && l.held_pages < l.seq_pages);
        preempted += w.s.n_preempted;
        hits += w.s.prefix_hits;
        close_world(&w);
    }
    printf("%lu preempted, %lu tokens found\n", (unsigned long)preempted, (unsigned long)hits);
    assert_true(preempted > 100 && hits > 1000); /* or nothing was tried */
}

/* Several tables, one for layers that attend to all keys, say, draw on the same pages. */
static void test_tables(void **state)
{
    uint64_t preempted = 0, hits = 0, mates = 0;
    for (uint64_t seed = 1; seed <= 240; seed++) {
        const wf_kv_window some[] = {{0, 0}, {24, 0}, {7, 0}, {1, 0}, {9, 1 + seed % 9}, {20, 3}};
        const wf_kv_growth growth = {PAGE, 12, LONGEST / PAGE};
        wf_limits l = seed / 16 % 2 ? tight : starved;
        wf_kv_layout tables = {.n_tables = 2 + seed % 2};
        world w;
        l.step_tokens = 12, l.tables = tables.n_tables;
        tables.tables[0] = some[wf_random(seed, 0) % 4 ? 0 : 1];
        for (uint32_t t = 1; t < tables.n_tables; t++) tables.tables[t] = some[wf_random(seed, t) % WF_LEN(some)];
        l.held_pages = wf_kv_layout_pages(&tables, &growth);
        l.pages = l.held_pages + (seed / 32 % 2 ? 0 : 3) + (seed % 7 ? 0 : 60);
        if (seed % 13 < 4) l = sharing(l, 20, 30);
        open_world(&w, &l, (enum wf_policy)(seed % 4), 4, seed);
        memcpy(w.s.p.kv.tables, tables.tables, sizeof tables.tables);
        w.s.p.kv.no_prefix = seed % 11 == 0, w.ahead = seed / 8 % 2, w.unlucky = seed % 5 == 0;
        run_world(&w, seed, 60, seed % 3 == 1);
        assert_true(w.most_held <= l.held_pages);
        preempted += w.s.n_preempted;
        hits += w.s.prefix_hits;
        for (uint32_t i = 0; i < l.pages; i++) mates += w.s.kv.prefix.mate_of[i] >= 0;
        close_world(&w);
    }
    printf("%lu preempted, %lu tokens found, %lu mates left\n", (unsigned long)preempted, (unsigned long)hits,
           (unsigned long)mates);
    assert_true(preempted > 100 && hits > 1000 && mates > 100); /* or nothing was tried */
}

static sim *add(world *w, uint32_t n_prompt, uint32_t n_answer, int32_t first, int32_t priority)
{
    sim *r = calloc(1, sizeof *r);
    for (uint32_t i = 0; i < n_prompt; i++) r->tokens[i] = first + (int32_t)i;
    set_truth(r, n_prompt);
    r->want = n_prompt + n_answer;
    r->q = (wf_seq){.tokens = r->tokens, .n_tokens = n_prompt, .max_tokens = r->want, .priority = priority};
    r->began = -1;
    r->link = w->alive;
    w->alive = r;
    wf_sched_add(&w->s, &r->q);
    return r;
}

static void run_out(world *w)
{
    while (w->alive) step(w);
    close_world(w);
}

/* What windows leave free is used: of long sequences more run at the same time, in as many pages. */
static void test_windows_let_more_run(void **state)
{
    uint32_t running[2];
    for (int i = 0; i < 2; i++) {
        world w;
        wf_limits l = {.step_tokens = 8, .logit_rows = 12, .seqs = 12, .seq_pages = LONGEST / PAGE,
                       .held_pages = i ? 5 : 0, .pages = 40};
        open_world(&w, &l, WF_POLICY_NANOFLOW, 1, 0);
        w.s.p.kv.tables[0].window = i ? 8 : 0, w.spacious = false;
        for (int k = 0; k < 30; k++) add(&w, 40, 23, 1000 * k, 0);
        while (w.alive) step(&w);
        running[i] = w.most_running;
        assert_int_equal(w.s.n_recomputed, 0);
        close_world(&w);
    }
    assert_true(running[0] <= 3 && running[1] >= 7);
}

/* The dense batch is full in every step with enough work. */
static void test_dense_batch_is_full(void **state)
{
    world w;
    open_world(&w, &roomy, WF_POLICY_NANOFLOW, 8, 0);
    for (int i = 0; i < 60; i++) add(&w, 20, 10, 1000 * i, 0);
    int full = 0, few = 0;
    while (w.s.n_waiting) {
        step(&w);
        *(w.b.n_tokens == roomy.step_tokens ? &full : &few) += 1;
    }
    assert_true(full > 20 && few <= full / 4); /* at the limit of running sequences there may be too little to do */
    run_out(&w);
}

/* While a sequence is alone its prompt comes in pieces of at most that many tokens, and whole once another one is
 * there. */
static void test_alone(void **state)
{
    static const enum wf_policy policies[] = {WF_POLICY_NANOFLOW, WF_POLICY_SARATHI, WF_POLICY_ORCA};
    for (size_t i = 0; i < WF_LEN(policies); i++) {
        world w;
        open_world(&w, &roomy, policies[i], 8, 0);
        uint32_t piece = policies[i] == WF_POLICY_ORCA ? 30 : 8; /* which cuts no prompts */
        w.s.alone = 8;
        add(&w, 30, 4, 0, 0);
        step(&w);
        assert_int_equal(w.b.n_tokens, piece);
        run_out(&w);
        open_world(&w, &roomy, policies[i], 8, 0);
        w.s.alone = 8;
        for (int n = 0; n < 2; n++) add(&w, 30, 4, 1000 * n, 0);
        step(&w);
        assert_in_range(w.b.n_tokens, 24, roomy.step_tokens); /* whole tiles */
        run_out(&w);
    }
}

/* The part of all decodes that ride on a chunk, with sequences of 8 prompt tokens and 20 generated ones. */
static double riding(uint32_t least_step)
{
    world w;
    uint32_t decodes = 0, ride = 0;
    open_world(&w, &roomy, WF_POLICY_SARATHI, 1, 0);
    w.s.p.least_step = least_step;
    for (int i = 0; i < 300; i++) add(&w, 8, 20, 1000 * i, 0);
    while (w.s.n_waiting) {
        step(&w);
        decodes += w.b.n_decodes;
        if (w.b.n_tokens > w.b.n_decodes) ride += w.b.n_decodes;
    }
    assert_true(wf_sched_ratio(&w.s) > 0.399 && wf_sched_ratio(&w.s) < 0.401);
    run_out(&w);
    return (double)ride / decodes;
}

/* Chunks as long as P:D says last as long as decodes; those that fill the step leave decodes behind that ride on none.
 */
static void test_chunks_by_ratio(void **state)
{
    double filled = riding(0), balanced = riding(8);
    printf("decodes that ride on a chunk: %.2f, and %.2f with chunks by P:D\n", filled, balanced);
    assert_true(balanced > 0.95 && filled < 0.9);
}

/* Until sequences have finished P:D is that of the load which is expected, and then moves away from it as from so many
 * others. */
static void test_expected_ratio(void **state)
{
    world w;
    wf_sched_params p = {.policy = WF_POLICY_SARATHI, .kv.page_tokens = PAGE, .prefill = 30, .decode = 10};
    wf_sched s;
    assert_ok(wf_sched_init(&s, &roomy, &p));
    assert_true(wf_sched_ratio(&s) == 3);
    wf_sched_free(&s);
    open_world(&w, &roomy, WF_POLICY_SARATHI, 1, 0);
    w.s.prefill = 30, w.s.decode = 10;
    for (int i = 0; i < WF_RATIO_SEQS; i++) add(&w, 8, 20, 1000 * i, 0);
    while (w.alive) {
        double before = wf_sched_ratio(&w.s);
        step(&w);
        assert_true(wf_sched_ratio(&w.s) <= before);
    }
    assert_true(wf_sched_ratio(&w.s) > 0.8 &&
                wf_sched_ratio(&w.s) < 1.2); /* two thirds of the way from 30:10 to 8:20, which is 0.4 */
    run_out(&w);
}

/* Of a prompt that comes while n sequences decode, at a ratio: the first chunk. */
static uint32_t first_chunk(uint32_t n, double ratio, uint32_t tile, uint32_t least_step)
{
    world w;
    open_world(&w, &roomy, WF_POLICY_SARATHI, tile, 0);
    w.s.p.least_step = 0;
    for (uint32_t i = 0; i < n; i++) add(&w, 1, 40, 1000 * (int)i, 0);
    for (uint32_t i = 0; i < 2 * n; i++) step(&w);
    w.s.p.least_step = least_step, w.s.prefill = ratio, w.s.decode = 1;
    add(&w, 40, 2, 90000, 0);
    step(&w);
    assert_int_equal(w.b.n_decodes, n);
    uint32_t chunk = w.b.n_tokens - w.b.n_decodes;
    run_out(&w);
    return chunk;
}

/* However few tokens the ratio asks for, a chunk has a quarter of the least step. */
static void test_least_chunk(void **state)
{
    assert_int_equal(first_chunk(3, 2, 1, 8), 6);
    assert_int_equal(first_chunk(3, 0.01, 1, 8), 5);
    assert_int_equal(first_chunk(7, 0.01, 1, 8), 3);
    assert_int_equal(first_chunk(8, 0.003, 1, 8), 3); /* as many decodes as the least step has */
    assert_int_equal(first_chunk(8, 0.003, 8, 8), 8); /* a whole tile */
    assert_int_equal(first_chunk(8, 100, 1, 8), 24);  /* all that a step has room for */
}

/* A load without answers, and one whose prompts are all in the prefix cache, leave chunks as they are or at their
 * least. */
static void test_ratio_of_odd_loads(void **state)
{
    world w;
    open_world(&w, &roomy, WF_POLICY_SARATHI, 8, 0);
    w.s.p.least_step = 16;
    assert_true(wf_sched_ratio(&w.s) == 0);
    for (int i = 0; i < 20; i++) add(&w, 20, 0, 1000 * i, 0);
    while (w.alive) step(&w);
    assert_true(wf_sched_ratio(&w.s) == 20); /* as if each had one */
    add(&w, 4, 30, 50000, 0);
    add(&w, 30, 30, 51000, 0);
    step(&w); /* one chunk of the first */
    step(&w);
    assert_in_range(w.b.n_tokens, 16, 24); /* 1 decode asks for 21 */
    run_out(&w);
}

static void test_orca_takes_prompts_whole(void **state)
{
    world w;
    open_world(&w, &roomy, WF_POLICY_ORCA, 8, 0);
    for (int i = 0; i < 30; i++) add(&w, 3 + (uint32_t)i, 10, 1000 * i, 0);
    while (w.alive) {
        step(&w);
        for (const wf_seq *q = w.s.running; q; q = q->next) assert_true(!q->n_computed || q->n_computed >= q->n_prompt);
    }
    close_world(&w);
}

static void test_first_come_first_served(void **state)
{
    world w;
    int64_t last = 0;
    open_world(&w, &tight, WF_POLICY_NANOFLOW, 1, 0);
    sim *first = add(&w, 30, 20, 0, 0), *second = add(&w, 30, 20, 1000, 0), *urgent = add(&w, 30, 20, 2000, 1);
    for (int i = 0; i < 3; i++) step(&w);
    assert_true(urgent->began >= 0 && (first->began < 0 || first->began >= urgent->began));
    assert_true(second->began < 0 || second->began >= first->began);
    run_out(&w);
    open_world(&w, &tight, WF_POLICY_NANOFLOW, 1, 0);
    sim *r[20];
    for (int i = 0; i < 20; i++) r[i] = add(&w, 10 + (uint32_t)i, 1, 1000 * i, 0);
    for (int i = 0; i < 20;) {
        int64_t began = r[i]->began;
        step(&w);
        for (; i < 20; i++, last = began) {
            bool ended = true;
            for (const sim *a = w.alive; a; a = a->link) ended &= a != r[i];
            if (!ended && r[i]->began < 0) break;
            began = ended ? w.steps : r[i]->began;
            assert_true(began >= last);
        }
    }
    run_out(&w);
}

/* A request of low priority runs although more urgent ones never stop arriving. */
static void test_nobody_starves(void **state)
{
    world w;
    open_world(&w, &starved, WF_POLICY_NANOFLOW, 1, 0);
    sim *low = add(&w, 20, 5, 0, -1);
    int steps = 0;
    for (bool lives = true; lives; steps++) {
        assert_true(steps < 3 * WF_PRIORITY_STEPS);
        for (int i = 0; w.s.n_waiting < 20; i++) add(&w, 20, 5, 1000 + 500 * steps + 25 * i, 0);
        step(&w);
        lives = false;
        for (const sim *a = w.alive; a; a = a->link) lives |= a == low;
    }
    assert_true(steps > WF_PRIORITY_STEPS / 2); /* it did wait for its turn */
    run_out(&w);
}

static void test_shared_prefix(void **state)
{
    world w;
    open_world(&w, &roomy, WF_POLICY_NANOFLOW, 1, 0);
    add(&w, 22, 1, 5, 0);
    while (w.alive) step(&w);
    sim *again = add(&w, 22, 2, 5, 0), *other = add(&w, 22, 2, 6, 0);
    step(&w);
    assert_int_equal(again->q.n_cached, 20); /* whole pages only */
    assert_int_equal(other->q.n_cached, 0);
    assert_int_equal(w.s.prefix_hits, 20);
    while (w.alive) step(&w);
    add(&w, 20, 1, 5, 0); /* all its pages are there, but one token must be computed */
    step(&w);
    assert_int_equal(w.s.prefix_hits, 20 + 16);
    while (w.alive) step(&w);
    for (int i = 0; i < 40; i++) add(&w, 40, 1, 100000 + 1000 * i, 0); /* others need the pages: the old block goes */
    while (w.alive) step(&w);
    add(&w, 22, 1, 5, 0);
    step(&w);
    assert_int_equal(w.s.prefix_hits, 20 + 16);
    run_out(&w);
}

/* The same tokens after other tokens are another block, and other tokens are, whatever a key says. */
static void test_prefix_is_compared_whole(void **state)
{
    wf_pages pages;
    wf_prefix x;
    int32_t tokens[PAGE] = {1, 2, 3, 4}, other[PAGE] = {1, 2, 3, 5}, page;
    wf_key root = {{0}}, key = wf_key_next(&root, tokens, PAGE);
    assert_ok(wf_pages_init(&pages, 8, 8, 0));
    assert_ok(wf_prefix_init(&x, &pages, PAGE, 1));
    assert_true(wf_pages_alloc(&pages, 1, 8, &page));
    wf_prefix_add(&x, &key, tokens, &page);
    for (uint64_t parent = 1; parent < 1000; parent++) {
        wf_key behind = wf_key_next(&(wf_key){{parent}}, tokens, PAGE);
        assert_int_equal(wf_prefix_find(&x, &behind, tokens), -1);
    }
    for (int32_t i = 5; i < 1000; i++) {
        other[3] = i;
        wf_key changed = wf_key_next(&root, other, PAGE);
        assert_int_equal(wf_prefix_find(&x, &changed, other), -1);
        assert_int_equal(wf_prefix_find(&x, &key, other), -1); /* as if the hash were broken */
    }
    assert_int_equal(wf_prefix_find(&x, &key, tokens), page);
    wf_prefix_free(&x);
    wf_pages_free(&pages);
}

/* Once it knows the lengths of answers, it admits more sequences than if all were as long as they may be. */
static void test_prediction_learns(void **state)
{
    world w;
    const wf_limits l = {
        .step_tokens = 32, .logit_rows = 32, .seqs = 12, .seq_pages = LONGEST / PAGE, .pages = 3 * LONGEST / PAGE};
    uint32_t most[2] = {0};
    open_world(&w, &l, WF_POLICY_NANOFLOW, 1, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 40; i++) {
            sim *r = add(&w, 8, 3, 100000 * round + 1000 * i, 0);
            r->q.max_tokens = LONGEST;
        }
        for (int i = 0; w.alive; i++) {
            step(&w);
            if (i < 2) most[round] = WF_MAX(most[round], w.s.n_running);
        }
    }
    assert_int_equal(most[0], 3);
    assert_true(most[1] > 8);
    assert_int_equal(w.s.n_preempted, 0);
    close_world(&w);
}

/* Chunks beside decodes need fewer steps than batches of whole requests (Sarathi fig. 11, NanoFlow section 4.2.1). */
static void test_policies_compared(void **state)
{
    int steps[4];
    for (int policy = 0; policy < 4; policy++) {
        world w;
        open_world(&w, &roomy, (enum wf_policy)policy, 1, 0);
        for (int i = 0; i < 100; i++) add(&w, 5 + (uint32_t)(i * 7) % 30, 1 + (uint32_t)(i * 13) % 25, 1000 * i, 0);
        while (w.alive) step(&w);
        steps[policy] = w.steps;
        close_world(&w);
    }
    assert_true(steps[WF_POLICY_NANOFLOW] <= steps[WF_POLICY_SARATHI] &&
                steps[WF_POLICY_NANOFLOW] <= steps[WF_POLICY_ORCA]);
    assert_true(4 * steps[WF_POLICY_NANOFLOW] < 3 * steps[WF_POLICY_REQUEST]);
    printf("steps: nanoflow %d, sarathi %d, orca %d, request %d\n", steps[0], steps[1], steps[2], steps[3]);
}

typedef struct outcome {
    int steps;
    uint32_t running;
    uint64_t bytes;
} outcome;

/* Short prompts and long answers, whose length is known after a few. */
static outcome answer_all(const wf_limits *l)
{
    world w;
    open_world(&w, l, WF_POLICY_NANOFLOW, 1, 0);
    for (int i = 0; i < 80; i++) add(&w, 6, 45, 1000 * i, 0);
    while (w.alive) step(&w);
    outcome o = {w.steps, w.most_running, w.most_bytes};
    close_world(&w);
    return o;
}

/* The same load in as much memory: pages and activations each with their own, or in one space; then how much memory
 * the latter needs for as many sequences (FlashDecoding++Next, fig. 10 and 19). */
static void test_unified_pool_compared(void **state)
{
    wf_limits apart = {.step_tokens = 64, .logit_rows = 20, .seqs = 20, .seq_pages = LONGEST / PAGE, .pages = 120};
    const wf_limits one = sharing(apart, 60, 90);
    outcome a = answer_all(&apart), b = answer_all(&one);
    uint64_t kept = apart.pages * one.pool.parts->page +
                    wf_pool_part_step_bytes(one.pool.parts, apart.step_tokens, apart.logit_rows);
    printf("%llu bytes apart: %u sequences, %d steps; in one space: %u, %d\n", (unsigned long long)kept, a.running,
           a.steps, b.running, b.steps);
    assert_int_equal(wf_unified_pool_bytes(&one.pool), kept);
    assert_true(b.running > a.running && b.steps < a.steps && b.bytes <= kept);
    uint32_t least = apart.pages + 1;
    for (int steps = 0; steps <= a.steps && least > apart.seq_pages; least--) {
        wf_limits fewer = apart;
        fewer.pages = least - 1;
        fewer = sharing(fewer, 60, 90);
        steps = answer_all(&fewer).steps;
    }
    assert_true(least < apart.pages);
    uint64_t enough = kept - (apart.pages - least - 1) * one.pool.parts->page; /* least were one too few */
    printf("as fast in one space: %llu bytes, %.0f %% less\n", (unsigned long long)enough,
           100.0 * (double)(kept - enough) / (double)kept);
    assert_true(100 * enough < 95 * kept);
}

/* Of some seconds, more with sanitizers: a list that has become a ring is no test without an end. */
static int limit_time(void **state)
{
    return setrlimit(RLIMIT_CPU, &(struct rlimit){100, 100});
}

SUITE(sched, limit_time, NULL, CASE(test_random_requests), CASE(test_too_few_pages), CASE(test_host_without_memory),
      CASE(test_unified_pool), CASE(test_unified_pool_compared), CASE(test_windows), CASE(test_tables),
      CASE(test_windows_let_more_run), CASE(test_dense_batch_is_full), CASE(test_alone), CASE(test_expected_ratio),
      CASE(test_orca_takes_prompts_whole), CASE(test_first_come_first_served), CASE(test_nobody_starves),
      CASE(test_shared_prefix), CASE(test_prediction_learns), CASE(test_prefix_is_compared_whole),
      CASE(test_policies_compared), CASE(test_chunks_by_ratio), CASE(test_least_chunk), CASE(test_ratio_of_odd_loads))
