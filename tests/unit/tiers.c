/* tiers: blocks of KV below the device, in worlds of random requests: whatever is copied, late, wrongly or not at all,
 * whoever goes away meanwhile, each slot that a row attends to holds what it computed. */
#include "sched_world.h"
#include "support/part.h"
#include "support/said.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

/* Times as many of them in a long run, which is a million requests. */
static uint64_t more(void)
{
    return (uint64_t)test_rounds("WEFT_KV_ROUNDS", 1);
}

typedef struct sums {
    uint64_t stored, hits, failed, evicted, preempted, written, read, bad, pending, accepted;
} sums;

static void add_world(sums *sum, world *w)
{
    const wf_tiers *t = &w->tiers;
    uint32_t found = 0, listed = 0, free = 0;
    const wf_store *b = &t->pool;
    for (uint32_t i = 0; i < b->n; i++) {
        found += b->slots[i].state != WF_STORED_FREE;
        assert_true(b->slots[i].pins == 0 || b->slots[i].state != WF_STORED_FREE);
    }
    for (int32_t i = b->oldest; i >= 0; i = b->slots[i].newer) listed++;
    for (int32_t i = b->free; i >= 0; i = b->slots[i].next) free++;
    assert_int_equal(found, b->n_used); /* what is counted is there: no leak, no drift */
    assert_int_equal(free + found, b->n);
    assert_true(listed <= found);
    sum->stored += t->stats.stored_bytes / t->p.page_bytes, sum->hits += w->s.tier_hits, sum->failed += t->stats.failed;
    sum->evicted += b->evicted, sum->preempted += w->s.n_preempted;
    sum->pending += (uint64_t)w->pending, sum->accepted += (uint64_t)w->accepted;
    if (!t->disk) return;
    struct weft_kv_tier_stats d = wf_tiers_stats(t, WEFT_KV_TIER_DISK);
    sum->written += d.stored_bytes / t->p.page_bytes, sum->read += d.loaded_bytes / t->p.page_bytes;
    sum->bad += d.failed;
}

static void play_tiers(const wf_limits *l, const wf_kv_window *tables, uint32_t slots, const wf_disk_params *disk,
                       uint64_t seed, sums *sum)
{
    world w;
    open_world(&w, l, (enum wf_policy)(seed % 4), seed % 3 ? 4 : 1, seed);
    if (tables) memcpy(w.s.p.kv.tables, tables, TABLES * sizeof *tables);
    w.ahead = seed / 2 % 2, w.drafts = !w.ahead && seed / 4 % 2, w.unlucky = seed % 5 == 0;
    open_tiers(&w, slots, seed / 8 % 2, disk);
    run_requests(&w, seed, 60, seed % 2);
    add_world(sum, &w);
    close_world(&w);
    assert_int_equal(wf_null_alive(), 0);
}

/* Pools of a few slots and of more than there are blocks, over few pages and over many. */
static void blocks_are_those_that_were_computed(void **state)
{
    sums sum = {0};
    for (uint64_t seed = 1; seed <= 400 * more(); seed++) {
        const uint32_t slots[] = {1, 5, 40, 400};
        const wf_limits l = seed % 7 == 0 ? sharing(starved, 20u << seed % 4, 30) : seed % 3 ? starved : tight;
        play_tiers(&l, NULL, slots[seed / 4 % 4], NULL, seed, &sum);
    }
    printf("%lu pages stored, %lu tokens loaded, %lu copies failed, %lu evicted, %lu preempted\n",
           (unsigned long)sum.stored, (unsigned long)sum.hits, (unsigned long)sum.failed, (unsigned long)sum.evicted,
           (unsigned long)sum.preempted);
    assert_true(sum.stored > 1000 && sum.hits > 1000 && sum.failed > 100 && sum.evicted > 100 && sum.preempted > 100);
    assert_true(sum.pending > 1000 && sum.accepted > 1000);
}

/* Where layers have windows, a prefix is loaded as far as they reach. */
static void windows_and_tables(void **state)
{
    sums sum = {0};
    for (uint64_t seed = 1; seed <= 240 * more(); seed++) {
        const wf_kv_window some[] = {{0, 0}, {24, 0}, {7, 0}, {1, 0}, {9, 1 + seed % 9}, {20, 3}};
        const wf_kv_growth growth = {PAGE, 12, LONGEST / PAGE};
        wf_kv_layout tables = {.n_tables = 1 + seed % 3};
        wf_limits l = starved;
        for (uint32_t t = 0; t < tables.n_tables; t++)
            tables.tables[t] = some[!t && seed % 4 ? 0 : wf_random(seed, t) % WF_LEN(some)];
        l.step_tokens = 12, l.tables = tables.n_tables, l.held_pages = wf_kv_layout_pages(&tables, &growth);
        l.pages = l.held_pages + (seed / 32 % 2 ? 0 : 3);
        if (seed % 13 < 4) l = sharing(l, 20, 30);
        play_tiers(&l, tables.tables, seed % 2 ? 30 : 300, NULL, seed, &sum);
    }
    printf("%lu pages stored, %lu tokens loaded, %lu copies failed\n", (unsigned long)sum.stored,
           (unsigned long)sum.hits, (unsigned long)sum.failed);
    assert_true(sum.stored > 1000 && sum.hits > 1000 && sum.failed > 100);
}

/* ---- a file below the pool --------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/weft-tiers-XXXXXX", path[64];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/kv", folder);
    return 0;
}

static int remove_folder(void **state)
{
    char secret[80];
    snprintf(secret, sizeof secret, "%s.secret", path);
    unlink(path), unlink(secret);
    return rmdir(folder);
}

static uint64_t n_transfers;

/* Transfers fail, are short, or late. */
static ssize_t bad_read(int fd, void *data, size_t n, off_t at)
{
    uint64_t x = wf_random(5, __atomic_add_fetch(&n_transfers, 1, __ATOMIC_RELAXED));
    if (x % 16 == 0) return errno = EIO, -1;
    if (x % 16 == 1) return 0;
    if (x % 16 == 2) wf_sleep_ns(1000000);
    if (x % 16 == 3) return errno = EINTR, -1;
    ssize_t got = pread(fd, data, x % 16 < 8 ? 1 + n / 3 : n, at);
    if (got > 0 && x % 64 == 15) ((uint8_t *)data)[x / 64 % (uint64_t)got] ^= 1;
    return got;
}

static ssize_t bad_write(int fd, const void *data, size_t n, off_t at)
{
    uint64_t x = wf_random(6, __atomic_add_fetch(&n_transfers, 1, __ATOMIC_RELAXED));
    if (x % 16 == 0) return errno = ENOSPC, -1;
    if (x % 16 == 1) return pwrite(fd, data, n / 2, at), errno = EIO, -1; /* it is torn */
    if (x % 16 == 2) wf_sleep_ns(1000000);
    return pwrite(fd, data, x % 16 < 8 ? 1 + n / 3 : n, at);
}

static void play_over_disk(uint64_t seed, sums *sum)
{
    static const wf_disk_io bad = {bad_read, bad_write};
    const uint32_t slots[] = {1, 5, 40, 4 * WF_DISK_WAITING};
    wf_disk_params disk = {.path = path, .bytes = 4096 + 8192 * (seed / 20 % 2 ? 40 : 300),
                           .io = seed % 2 ? &bad : NULL};
    play_tiers(seed % 3 ? &starved : &tight, NULL, slots[seed / 3 % 4], &disk, seed, sum);
}

/* One world after the other begins with what the ones before have left, whatever was wrong with it. */
static void blocks_of_earlier_processes(void **state)
{
    sums sum = {0};
    listen_to(WEFT_LOG_ERROR); /* each world warns */
    for (uint64_t seed = 1; seed <= 60 * more(); seed++) play_over_disk(seed, &sum);
    printf("%lu pages written, %lu read, %lu transfers failed, %lu tokens loaded\n", (unsigned long)sum.written,
           (unsigned long)sum.read, (unsigned long)sum.bad, (unsigned long)sum.hits);
    assert_true(sum.written > 1000 && sum.read > 500 && sum.bad > 100 && sum.hits > 1000);
}

/* A world begins with what was left by one that was killed at some moment. */
static void blocks_of_killed_processes(void **state)
{
    sums sum = {0};
    listen_to(WEFT_LOG_ERROR);
    for (uint64_t kill_no = 0; kill_no < 8 * more(); kill_no++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid)
            for (uint64_t seed = 100 * kill_no;; seed++) play_over_disk(seed, &sum);
        wf_sleep_ns(wf_random(11, kill_no) % 100000000);
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        play_over_disk(100 * kill_no + 99, &sum);
    }
    printf("%lu pages read, %lu tokens loaded\n", (unsigned long)sum.read, (unsigned long)sum.hits);
    assert_true(sum.read > 10 && sum.hits > 50);
}

/* ---- one block at a time ----------------------------------------------------------------------------------------- */

static sim *add(world *w, uint32_t n_prompt, uint32_t n_answer, int32_t first)
{
    sim *r = calloc(1, sizeof *r);
    for (uint32_t i = 0; i < n_prompt; i++) r->tokens[i] = first + (int32_t)i;
    set_truth(r, n_prompt);
    r->want = n_prompt + n_answer;
    r->q = (wf_seq){.tokens = r->tokens, .n_tokens = n_prompt, .max_tokens = r->want};
    r->began = -1;
    r->link = w->alive;
    w->alive = r;
    wf_sched_add(&w->s, &r->q);
    return r;
}

static void run_out(world *w)
{
    for (int i = 0; w->alive || wf_tiers_busy(&w->tiers); i++) step(w), assert_true(i < 100000);
}

/* Others need all pages. */
static void crowd_out(world *w)
{
    for (int i = 0; i < 6; i++) add(w, 40, 1, 100000 + 1000 * i);
    run_out(w);
}

static void open_one(world *w, bool always)
{
    open_world(w, &tight, WF_POLICY_NANOFLOW, 1, 1);
    open_tiers(w, 200, always, NULL);
    w->faultless = true;
}

/* A block is stored when it is seen for the second time, and saves computing at the third. */
static void second_sighting(void **state)
{
    for (int always = 0; always < 2; always++) {
        world w;
        open_one(&w, always);
        add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
        assert_int_equal(w.tiers.stats.stored_bytes > 0, always);
        add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
        assert_true(w.tiers.stats.stored_bytes >= 9 * w.tiers.p.page_bytes);
        uint64_t before = w.s.tier_hits;
        sim *r = add(&w, 40, 3, 7);
        while (w.alive && !r->q.counted) step(&w);
        assert_int_equal(r->q.n_cached, 36); /* at least one token is computed */
        assert_true(w.s.tier_hits - before <= 36 && w.s.tier_hits > before);
        run_out(&w);
        close_world(&w);
    }
}

/* What there was no time to store before others needed its page is counted, not dropped in silence. */
static void lost_before_it_was_stored(void **state)
{
    enum { PROMPTS = 7, BLOCKS = 10 };
    world w;
    open_one(&w, true);
    for (int i = 0; i < PROMPTS; i++) add(&w, 4 * BLOCKS, 1, 7 + 1000 * i);
    while (w.alive) { /* what is copied takes its time, and the rest waits */
        step(&w);
        for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until = w.steps + 1000;
    }
    assert_int_equal(w.tiers.stats.stored_bytes, 0);
    for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until = 0;
    run_out(&w);
    uint64_t stored = w.tiers.stats.stored_bytes / w.tiers.p.page_bytes;
    assert_in_range(stored, 1, 40); /* as many as the device has pages */
    assert_int_equal(stored + w.tiers.stats.dropped, PROMPTS * BLOCKS);
    close_world(&w);
}

/* Other roots: of other tenants, models or formats. */
static void roots_are_apart(void **state)
{
    world w;
    open_one(&w, true);
    add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
    sim *r = add(&w, 40, 1, 7);
    r->q.kv.root = wf_key_root(&r->q.kv.root, "salt", 4);
    while (w.alive && !r->q.counted) step(&w);
    assert_int_equal(r->q.n_cached, 0);
    run_out(&w);
    close_world(&w);
}

/* While one waits for its load, another that came later runs and ends. */
static void others_pass(void **state)
{
    world w;
    open_one(&w, true);
    add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
    sim *r = add(&w, 40, 1, 7);
    step(&w);
    assert_non_null(r->q.kv.load);
    for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until += 50;
    int ended = w.ended;
    add(&w, 8, 2, 900000);
    for (int i = 0; i < 10; i++) step(&w);
    assert_int_equal(w.ended, ended + 1);
    assert_non_null(r->q.kv.load);
    run_out(&w);
    close_world(&w);
}

/* A load that stalls is given up, and its tokens are computed; what it was to write to stays taken until its end. */
static void stalled_load_is_given_up(void **state)
{
    world w;
    open_one(&w, true);
    add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
    w.tiers.p.load_always = false; /* which would wait */
    sim *r = add(&w, 40, 1, 7);
    step(&w);
    assert_non_null(r->q.kv.load);
    for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until += 5000;
    int ended = w.ended;
    for (int i = 0; i < 3000 && w.ended == ended; i++) step(&w);
    assert_int_equal(w.ended, ended + 1); /* a second, a step being a millisecond */
    assert_true(w.tiers.stats.failed >= 1 && wf_pages_in_use(&w.s.kv.pages) > 0);
    for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until = 0;
    run_out(&w);
    assert_int_equal(wf_pages_in_use(&w.s.kv.pages), 0);
    close_world(&w);
}

/* What may be wrong is nowhere below, be its copy over or not; of what was never computed, only what is still coming
 * goes. */
static void forgotten_blocks(void **state)
{
    for (int when = 0; when < 4; when++) {
        world w;
        open_one(&w, true);
        sim *r = add(&w, 40, 2, 7);
        while (w.tiers.pool.n_used < 5) step(&w);
        for (int i = 0; when % 2 && i < 10; i++) wf_tiers_poll(&w.tiers, 0), w.steps++;
        wf_kv_forget(&w.s.kv, &r->q.kv, r->q.tokens, r->q.n_tokens, 8, when / 2);
        run_out(&w);
        crowd_out(&w);
        r = add(&w, 40, 1, 7);
        while (w.alive && !r->q.counted) step(&w);
        assert_true(when == 3 ? r->q.n_cached >= 20 : r->q.n_cached <= 8);
        run_out(&w);
        close_world(&w);
    }
}

/* The same in every process and on every machine: what Python's hashlib gives. */
static void keys_are_those_of_others(void **state)
{
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, -8};
    wf_key root = wf_key_root(&(wf_key){{0}}, "salt", 4), first = wf_key_next(&root, tokens, 4),
           key = wf_key_next(&first, tokens + 4, 4),
           want = {{0x279730a54913cfa3ull, 0x110b5e852ed3375dull, 0xbb771dbe2abf65e8ull, 0x316ecb4a25b5e588ull}};
    assert_true(wf_key_same(&key, &want));
    key = wf_key_root(&(wf_key){{0}}, NULL, 0);
    assert_false(wf_key_same(&root, &key));
}

/* What stands behind what does not count: names of adapters and salts share no space of keys, and neither does what a
 * root is made of with what is behind it. */
static void kinds_of_roots(void **state)
{
    const wf_key base = {{1}}, a = wf_key_root(&base, "a", 1), ab = wf_key_root(&base, "ab", 2);
    const int32_t zero = 0;
    const wf_key all[] = {base, a, ab, wf_key_root(&base, "a\0", 2), wf_key_root(&base, "\0a", 2), /* adapters, */
                          wf_key_root(&a, "bc", 2), wf_key_root(&ab, "c", 1), wf_key_root(&base, "abc", 3), /* salts */
                          wf_key_root(&a, NULL, 0), wf_key_root(&base, NULL, 0), wf_key_root(&base, &zero, 4),
                          wf_key_next(&base, &zero, 1), wf_key_root(&base, &a, sizeof a)};
    for (size_t i = 0; i < WF_LEN(all); i++)
        for (size_t k = 0; k < i; k++) assert_false(wf_key_same(&all[i], &all[k]));
}

/* A key alone finds nothing. */
static void tokens_are_compared(void **state)
{
    world w;
    open_one(&w, true);
    add(&w, 9, 1, 7), run_out(&w);
    int32_t tokens[PAGE] = {7, 8, 9, 10};
    wf_key key = wf_key_next(&(wf_key){{0}}, tokens, PAGE);
    assert_true(wf_tiers_find(&w.tiers, &key, tokens, 0) >= 0);
    tokens[3]++;
    assert_int_equal(wf_tiers_find(&w.tiers, &key, tokens, 0), -1);
    tokens[3]--;
    assert_int_equal(wf_tiers_find(&w.tiers, &key, tokens, 1), -1);
    close_world(&w);
}

/* Loading is chosen where it is faster, and tried again at last where it once was slow. */
static void worth(void **state)
{
    wf_tiers t = {.load_ns = 100, .compute_ns = 10};
    assert_true(wf_tiers_worth(&t, 10, 0, 1000));
    assert_false(wf_tiers_worth(&t, 10, 0, 99));
    int tries = 0;
    for (t.load_ns = 1000; !wf_tiers_worth(&t, 10, 0, 99); tries++) assert_true(tries < 1000);
    assert_true(tries > 10);
    t.compute_ns = 0;
    assert_true(wf_tiers_worth(&t, 1000, 0, 1)); /* nothing is known */
}

/* How long copies take is learnt from those that wait for no step, one behind the other however many there are. */
static void what_copying_takes(void **state)
{
    world w;
    open_one(&w, true);
    add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
    for (int others = 0; others < 3; others++) {
        w.tiers.load_ns = 0;
        add(&w, 40, 1, 7);
        if (others == 1) add(&w, 24, 1, 100000); /* whose blocks are loaded, too */
        step(&w); /* of a millisecond */
        assert_int_equal(w.tiers.n_moves, 1 + (others == 1));
        for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until = w.steps + 9;
        if (others == 2) add(&w, 40, 9, 500000); /* whose steps come between */
        while (w.tiers.n_moves) step(&w);
        const double want[] = {9e6 / 9, 9e6 / (9 + 5), 0};
        assert_true(w.tiers.load_ns > want[others] - 1 && w.tiers.load_ns <= want[others]);
        run_out(&w), crowd_out(&w);
    }
    close_world(&w);
}

/* What is to be loaded and read before it counts, and a disk that gives nothing; what waits is no reason to think that
 * a copy is fast. */
static void worth_behind_others(void **state)
{
    wf_tier_block blocks[30] = {{0}};
    for (int i = 0; i < 10; i++) blocks[i].slot = 5; /* in the file */
    wf_tier_load before = {.blocks = blocks, .n = 30, .n_left = 30, .wanted = true};
    wf_tiers t = {.load_ns = 10, .compute_ns = 10, .read_ns = 400, .pool.n = 5, .loads = &before};
    assert_true(wf_tiers_worth(&t, 10, 0, 40));
    assert_false(wf_tiers_worth(&t, 10, 0, 39));
    assert_true(t.load_ns == 10);
    before.n_left = 0;
    assert_true(wf_tiers_worth(&t, 10, 5, 160)); /* by four threads: 10 * 10, (5 + 10) * 100 */
    assert_false(wf_tiers_worth(&t, 10, 5, 159));
    t.n_reading = 10;
    assert_true(wf_tiers_worth(&t, 10, 5, 260));
    assert_false(wf_tiers_worth(&t, 10, 5, 259));
    t.read_seen_ns = 1000, t.now_ns = 5000;
    assert_true(wf_tiers_worth(&t, 10, 5, 2510));
    assert_false(wf_tiers_worth(&t, 10, 5, 2509));
    assert_true(wf_tiers_worth(&t, 10, 0, 10)); /* what is in the pool does not wait for it */
}

static uint64_t read_takes_ns;

static ssize_t slow_read(int fd, void *data, size_t n, off_t at)
{
    wf_sleep_ns(__atomic_load_n(&read_takes_ns, __ATOMIC_RELAXED));
    return pread(fd, data, n, at);
}

static bool reads_fail;

static ssize_t no_read(int fd, void *data, size_t n, off_t at)
{
    return __atomic_load_n(&reads_fail, __ATOMIC_RELAXED) ? (errno = EIO, -1) : pread(fd, data, n, at);
}

/* A world of a few slots, all of whose blocks are in the file. */
static void open_over_disk(world *w, const wf_disk_io *io)
{
    wf_disk_params disk = {.path = path, .bytes = 4096 + 8192 * 400, .io = io};
    open_world(w, &tight, WF_POLICY_NANOFLOW, 1, 1);
    open_tiers(w, 12, true, &disk);
    w->faultless = true;
    add(w, 40, 1, 7), run_out(w), crowd_out(w);
}

/* A disk that was fast for long and is slow now is slow, and the other way round. */
static void what_a_disk_takes_now(void **state)
{
    world w;
    open_over_disk(&w, &(wf_disk_io){slow_read, pwrite});
    for (int slow = 0; slow < 3; slow++) {
        __atomic_store_n(&read_takes_ns, slow % 2 ? 10000000 : 1, __ATOMIC_RELAXED);
        for (int i = 0; i < 4; i++) add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
        assert_true(slow % 2 ? w.tiers.read_ns > 5e6 : w.tiers.read_ns < 5e6);
    }
    assert_int_equal(w.tiers.n_reading, 0);
    close_world(&w);
}

/* A block that cannot be read fails one transfer, and nothing else; a load that somebody takes away fails nothing. */
static void failures_count_once(void **state)
{
    world w;
    open_over_disk(&w, &(wf_disk_io){no_read, pwrite});
    __atomic_store_n(&reads_fail, true, __ATOMIC_RELAXED);
    sim *r = add(&w, 8, 1, 7);
    for (int i = 0; w.alive; i++) step(&w), assert_true(i < 1000);
    __atomic_store_n(&reads_fail, false, __ATOMIC_RELAXED);
    assert_int_equal(wf_tiers_stats(&w.tiers, WEFT_KV_TIER_DISK).failed, 1);
    assert_int_equal(w.tiers.stats.failed, 0);
    close_world(&w);
    open_one(&w, true);
    add(&w, 40, 1, 7), run_out(&w), crowd_out(&w);
    r = add(&w, 40, 1, 7);
    step(&w);
    assert_non_null(r->q.kv.load);
    end_request(&w, r, false);
    run_out(&w);
    assert_int_equal(w.tiers.stats.failed, 0);
    close_world(&w);
}

static bool reads_wait;

static ssize_t late_read(int fd, void *data, size_t n, off_t at)
{
    while (__atomic_load_n(&reads_wait, __ATOMIC_RELAXED)) wf_sleep_ns(30000);
    return pread(fd, data, n, at);
}

/* A disk that gives nothing for seconds: who waits for its blocks computes instead, nobody waits behind it, and it is
 * not asked again where that would take longer than computing; then its blocks are found again. */
static void disk_that_stalls(void **state)
{
    world w;
    open_over_disk(&w, &(wf_disk_io){late_read, pwrite});
    w.tiers.p.load_always = false; /* which would wait */
    __atomic_store_n(&reads_wait, true, __ATOMIC_RELAXED);
    sim *r = add(&w, 40, 1, 7);
    step(&w);
    assert_non_null(r->q.kv.load);
    int ended = w.ended, began = w.steps;
    add(&w, 8, 2, 900000);
    while (w.ended == ended) step(&w), assert_true(w.steps < began + 20);
    assert_non_null(r->q.kv.load);
    while (w.ended == ended + 1) step(&w), assert_true(w.steps < began + 3000); /* of a millisecond */
    assert_true(w.steps > began + 1000);
    assert_int_equal(w.tiers.stats.failed, 1);
    w.tiers.compute_ns = 1000;
    r = add(&w, 40, 1, 7);
    step(&w);
    assert_null(r->q.kv.load); /* 36 tokens would have to take longer than what it has been silent for */
    while (w.ended == ended + 2) step(&w), assert_true(w.steps < began + 4000);
    __atomic_store_n(&reads_wait, false, __ATOMIC_RELAXED);
    run_out(&w), crowd_out(&w);
    w.tiers.p.load_always = true;
    r = add(&w, 40, 1, 7);
    while (w.alive && !r->q.counted) step(&w);
    assert_int_equal(r->q.n_cached, 36);
    run_out(&w);
    close_world(&w);
}

static bool writes_wait;

static ssize_t late_write(int fd, const void *data, size_t n, off_t at)
{
    while (__atomic_load_n(&writes_wait, __ATOMIC_RELAXED)) wf_sleep_ns(30000);
    return pwrite(fd, data, n, at);
}

/* However many blocks come down at once, all go on to the file as fast as that takes them, but those that make way in
 * the pool before, which are counted. Where the pool is there for the file alone, they wait on the device. */
static void written_later(void **state)
{
    enum { PROMPTS = 30, BLOCKS = 10, PASSING = 4 * WF_DISK_WAITING };
    static const uint32_t slots[] = {PROMPTS * BLOCKS, PASSING - 1, PASSING};
    wf_limits l = roomy;
    l.pages = PROMPTS * BLOCKS + 100; /* all are in the cache, too */
    for (int i = 0; i < 3; i++) {
        world w;
        wf_disk_params disk = {.path = path, .bytes = 4096 + 8192 * 400, .io = &(wf_disk_io){pread, late_write}};
        remove(path);
        open_world(&w, &l, WF_POLICY_NANOFLOW, 1, 1);
        open_tiers(&w, slots[i], true, &disk);
        w.faultless = true;
        __atomic_store_n(&writes_wait, true, __ATOMIC_RELAXED);
        for (int k = 0; k < PROMPTS; k++) add(&w, 4 * BLOCKS, 1, 7 + 1000 * k);
        for (int k = 0; w.alive || k < 100; k++) step(&w);
        __atomic_store_n(&writes_wait, false, __ATOMIC_RELAXED);
        run_out(&w);
        struct weft_kv_tier_stats d = wf_tiers_stats(&w.tiers, WEFT_KV_TIER_DISK);
        assert_int_equal(w.tiers.stats.dropped, 0);
        assert_int_equal(d.stored_bytes / w.tiers.p.page_bytes + d.dropped, PROMPTS * BLOCKS);
        assert_int_equal(d.dropped, i == 1 ? PROMPTS * BLOCKS - slots[i] : 0);
        close_world(&w);
    }
}

/* A block that is forgotten before it is read is read no more, be it in the file for a while. */
static void forgotten_before_it_is_read(void **state)
{
    world w;
    open_over_disk(&w, &(wf_disk_io){pread, late_write});
    int32_t tokens[PAGE] = {7, 8, 9, 10};
    wf_key key = wf_key_next(&(wf_key){{0}}, tokens, PAGE);
    wf_tier_block b = {.slot = wf_tiers_find(&w.tiers, &key, tokens, 0)};
    assert_true(wf_tiers_is_on_disk(&w.tiers, b.slot));
    wf_tier_load *l = wf_tiers_load(&w.tiers, &b, 1, PAGE);
    __atomic_store_n(&writes_wait, true, __ATOMIC_RELAXED);
    wf_tiers_forget(&w.tiers, &key, 0, false);
    for (int i = 0; i < 1000 && wf_tiers_progress(&w.tiers, l) == WF_LOAD_RUNS; i++, wf_sleep_ns(30000))
        wf_tiers_poll(&w.tiers, (uint64_t)++w.steps * 1000000), wf_tiers_begin(&w.tiers, false);
    __atomic_store_n(&writes_wait, false, __ATOMIC_RELAXED);
    assert_int_equal(wf_tiers_progress(&w.tiers, l), WF_LOAD_FAILED);
    wf_tiers_leave(&w.tiers, l);
    close_world(&w);
}

/* From a time on copies alone are waited for. */
static void ends_by_a_time(void **state)
{
    world w;
    open_one(&w, true);
    sim *r = add(&w, 40, 1, 7);
    while (!w.tiers.n_moves) step(&w);
    end_request(&w, r, false);
    wf_tiers_end(&w.tiers, 1);
    for (struct sim_copy *c = w.copies; c < w.copies + WF_MOVES; c++) c->until = w.steps + 3;
    for (int i = 0; wf_tiers_busy(&w.tiers); i++) {
        assert_true(i < 10);
        wf_tiers_poll(&w.tiers, (uint64_t)++w.steps * 1000000);
        wf_tiers_begin(&w.tiers, false);
    }
    assert_int_equal(w.tiers.n_moves, 0);
    close_world(&w);
}

static void too_small(void **state)
{
    wf_tiers t;
    wf_dev *d = NULL;
    assert_ok(wf_dev_open("null", &(wf_open_params){.watchdog_ms = 1}, &d));
    assert_error(wf_tiers_open(d, &(wf_tiers_params){.host_bytes = 99, .page_bytes = 100, .page_tokens = 4},
                               &(wf_mover){0}, 10, &t),
                 WEFT_ERR_ARG, "holds no page");
    wf_dev_close(d);
    assert_int_equal(wf_null_alive(), 0);
}

SUITE(tiers, make_folder, remove_folder, CASE(blocks_are_those_that_were_computed), CASE(windows_and_tables),
      CASE(blocks_of_earlier_processes), CASE(blocks_of_killed_processes), CASE(second_sighting),
      CASE(lost_before_it_was_stored), CASE(roots_are_apart), CASE(others_pass),
      CASE(stalled_load_is_given_up), CASE(forgotten_blocks), CASE(keys_are_those_of_others), CASE(kinds_of_roots),
      CASE(tokens_are_compared),
      CASE(worth), CASE(what_copying_takes),
      CASE(worth_behind_others), CASE(what_a_disk_takes_now), CASE(failures_count_once),
      CASE(disk_that_stalls), CASE(written_later), CASE(forgotten_before_it_is_read),
      CASE(ends_by_a_time),
      CASE(too_small))
