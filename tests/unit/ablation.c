/* ablation: what `weft bench ablation` compares, on the null device: split, overlap, offload, and what they draw. */
#include "unit/overlap_world.h"
#include "support/suite.h"

/* Speedups by load and plan, as they come. */
typedef struct table {
    double speedup[3][5], watts[3][5], joules[3][5];
    size_t n;
} table;

static void on_row(void *user, const struct weft_ablation_row *r)
{
    static const char *const loads[] = {"decode", "prefill", "mixed"}, *const plans[] = {"no split", "split only",
                                                                                         "overlap", "overlap + offload",
                                                                                         "tuned"};
    table *t = user;
    size_t load = 0, plan = 0;
    while (strcmp(loads[load], r->load)) assert_true(++load < 3);
    while (strcmp(plans[plan], r->plan)) assert_true(++plan < 5);
    assert_true(r->us > 0 && r->spread_us == 0 && r->tokens == (load ? TOKENS : SEQS) &&
                r->decodes < (load ? SEQS : SEQS + 1u));
    t->speedup[load][plan] = r->speedup, t->watts[load][plan] = r->watts, t->joules[load][plan] = r->joules_per_token;
    assert_string_equal(r->power_source, r->watts > 0 ? "hwmon" : "not readable");
    t->n++;
}

static table ablate(void)
{
    table t = {0};
    struct weft_engine *e = open_engine(1);
    assert_ok(weft_ablation(e, &(struct weft_ablation_params){.rounds = 3, .on_row = on_row, .user = &t}));
    assert_ok(answer(e));
    weft_engine_close(e);
    return t;
}

/* Splitting costs a launch of each op more, and overlapping pays where attention and products hardly slow each other
 * down. */
static void test_ablation(void **state)
{
    char *said;
    set_world(gains);
    table t = ablate();
    assert_int_equal(t.n, 12);
    for (size_t load = 0; load < 3; load++)
        assert_true(t.speedup[load][0] == 1 && t.speedup[load][1] < 1 && t.speedup[load][2] > t.speedup[load][1]);
    assert_true(t.speedup[2][2] > 1);
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    free(said);
    t = ablate();
    assert_int_equal(t.n, 15);
    for (size_t load = 0; load < 3; load++) assert_true(t.speedup[load][4] >= 1 && t.watts[load][4] == 0);
}

/* Copies that are shorter than a step cost nothing on this device, and longer ones last as long as they last: four
 * pages of 64 tokens. */
static uint64_t read_time;

static uint64_t fixed_read(uint64_t bytes, bool beside)
{
    return bytes * read_time;
}

static void test_offload(void **state)
{
    wf_null_config c = clock_of_world;
    set_world(gains);
    c.read_ns = fixed_read;
    for (read_time = 0; read_time < 1000; read_time += 500) {
        wf_null_configure(&c);
        table t = ablate();
        assert_int_equal(t.n, 12);
        for (size_t load = 0; load < 3; load++)
            assert_true(read_time ? t.speedup[load][3] < t.speedup[load][2] / 2
                                  : t.speedup[load][3] == t.speedup[load][2]);
    }
}

/* Watts are between those of what a step consists of, and a token's joules are those of a step over its tokens. */
static void test_ablation_draws(void **state)
{
    set_world(gains);
    make_sensor();
    table t = ablate();
    assert_int_equal(t.n, 12);
    for (size_t load = 0; load < 3; load++)
        for (size_t plan = 0; plan < 4; plan++)
            if (!(t.watts[load][plan] > OTHER_W && t.watts[load][plan] < PRODUCT_W && t.joules[load][plan] > 0))
                fail_msg("load %zu, plan %zu: %g W", load, plan, t.watts[load][plan]);
    assert_true(t.joules[0][1] > t.joules[0][0]); /* split: each op is launched twice */
    wf_power_configure(NULL);
}

static bool stop_at_once(void *user)
{
    return true;
}

static void test_ablation_refuses(void **state)
{
    struct weft_engine *e = open_engine(1);
    table t = {0};
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row, .rounds = 2}), WEFT_ERR_ARG);
    assert_int_equal(
        weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row, .user = &t, .stop = stop_at_once}),
        WEFT_ERR_CANCELLED);
    assert_int_equal(t.n, 0);
    weft_engine_close(e);
    e = open_engine(2);
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row}), WEFT_ERR_ARG);
    weft_engine_close(e);
}

/* The kept plan is the fifth row of a load. */
static void test_ablation_without_a_damaged_plan(void **state)
{
    keep_damaged_plan();
    assert_int_equal(ablate().n, 12);
}

/* ---- small engines ----------------------------------------------------------------------------------------------- */

static void count_loads(void *user, const struct weft_ablation_row *r)
{
    bool prefill = strcmp(r->load, "decode") != 0;
    assert_true(r->us > 0 && r->tokens > 0 && prefill == (r->decodes < r->tokens) &&
                (r->decodes > 0 || !strcmp(r->load, "prefill")));
    *(uint32_t *)user += !strcmp(r->plan, "no split");
}

/* As many kinds of load as there are: a step of both needs two sequences, two tokens, and pages for a prompt and a
 * decode. */
static void test_small_engines(void **state)
{
    static const uint32_t seqs[] = {1, 2, SEQS}, contexts[] = {1, 16, CONTEXT}, tokens[] = {1, 2, SEQS, 4 * CONTEXT},
                          kv[] = {1, SEQS};
    set_world(gains);
    for (size_t i = 0; i < WF_LEN(seqs) * WF_LEN(contexts) * WF_LEN(tokens) * WF_LEN(kv); i++) {
        uint32_t loads = 0, s = seqs[i % 3], c = contexts[i / 3 % 3], t = tokens[i / 9 % 4], k = kv[i / 36];
        struct weft_engine *e = open_small(s, c, t, k);
        bool never = e->layout.limits.seqs == 1 || e->layout.limits.step_tokens == 1,
             always = !never && wf_limits_guaranteed_pages(&e->layout.limits) > e->layout.limits.seq_pages;
        if (weft_ablation(e, &(struct weft_ablation_params){.rounds = 3, .on_row = count_loads, .user = &loads}))
            fail_msg("-c %u: %s", c, weft_last_error());
        if (loads < 2u + always || loads > 3u - never)
            fail_msg("%u sequences of %u tokens, steps of %u, a KV cache of %u: %u loads", s, c, t, k, loads);
        weft_engine_close(e);
    }
}

/* Plans decide how many KV pages a step has; here they leave fewer than there were when loads were chosen. */
static void test_fewer_pages(void **state)
{
    for (int tunes = 0; tunes < 2; tunes++) {
        char *said;
        size_t len;
        uint32_t loads = 0;
        FILE *f = open_memstream(&said, &len);
        set_world(gains);
        struct weft_engine *e = open_small(SEQS, CONTEXT, TOKENS, SEQS);
        e->layout.apart.pages = CONTEXT / e->sched.p.kv.page_tokens + SEQS;
        enum weft_status s = tunes ? weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL)
                                   : weft_ablation(e, &(struct weft_ablation_params){
                                                          .rounds = 3, .on_row = count_loads, .user = &loads});
        if (s) fail_msg("%s", weft_last_error());
        fclose(f);
        assert_int_equal(loads, tunes ? 0 : 3);
        weft_engine_close(e);
        free(said);
    }
}

SUITE(ablation, setup, teardown, CASE(test_ablation), CASE(test_offload), CASE(test_ablation_draws),
      CASE(test_ablation_refuses), CASE(test_ablation_without_a_damaged_plan), CASE(test_small_engines),
      CASE(test_fewer_pages))
