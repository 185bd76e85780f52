/* overlap_plans: what `weft tune --overlap` keeps, and what engines take of it by themselves: never what is slower than
 * the sequential plan. */
#include "unit/overlap_world.h"

#include "support/fewer.h"
#include "support/suite.h"

static double step_us(struct weft_engine *e, wf_step_load x, uint32_t context)
{
    wf_batch b;
    double us;
    assert_ok(wf_batch_init(&b, &e->layout.limits));
    assert_ok(wf_load_batch(e, x, context, &b));
    for (int i = 0; i < 2; i++) assert_ok(wf_load_step(e, &b, &us));
    wf_batch_free(&b);
    return us;
}

/* ---- what engines take ------------------------------------------------------------------------------------------- */

/* Those that plans are searched for, and others: prompts of as many tokens as there are decodes, smaller ones, other
 * parts of decodes. */
static const wf_step_load loads[] = {{SEQS, 0},       {1, TOKENS - 1}, {SEQS - 1, TOKENS - SEQS + 1}, {0, SEQS},
                                     {1, SEQS - 1},   {SEQS / 2, 0},   {SEQS / 2, SEQS / 2},          {0, TOKENS},
                                     {0, TOKENS / 2}, {1, TOKENS / 2}, {SEQS - 1, TOKENS / 2},        {SEQS - 1, 1}};
static const uint32_t contexts[] = {16, CONTEXT / 4, CONTEXT / 2, 3 * CONTEXT / 4, CONTEXT};

static double gain_with(struct weft_engine *sequential, struct weft_engine *own, wf_step_load x, uint32_t context,
                        const char *what)
{
    if (!wf_load_fits(own, x, context)) return 0;
    double us = step_us(own, x, context), before = step_us(sequential, x, context);
    if (us > before)
        fail_msg("%s: %u decodes and %u tokens of prompts, contexts of %u: %g us, sequential %g", what, x.decodes,
                 x.prefill, context, us, before);
    return 1 - us / before;
}

/* The largest gain, as a part of the time. */
static double compare_with_sequential(const char *what)
{
    struct weft_engine *sequential = open_engine(1), *own = open_engine(0);
    double gain = 0;
    for (size_t i = 0; i < WF_LEN(loads) * WF_LEN(contexts); i++)
        gain = WF_MAX(gain,
                      gain_with(sequential, own, loads[i / WF_LEN(contexts)], contexts[i % WF_LEN(contexts)], what));
    weft_engine_close(sequential);
    weft_engine_close(own);
    return gain;
}

/* Why steps run as they do, of an engine and without one. */
static void expect_source(uint32_t nano_batches, const char *want)
{
    char words[600];
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS,
                                   .nano_batches = nano_batches};
    struct weft_engine *e = open_engine(nano_batches);
    assert_string_equal(weft_engine_plan_source(e), want);
    weft_engine_close(e);
    assert_ok(weft_plan_source(model, &p, words, sizeof words));
    assert_string_equal(words, want);
}

static void test_takes_what_gains(void **state)
{
    char *said;
    want_programs();
    set_world(gains);
    assert_true(compare_with_sequential("nothing measured") == 0);
    expect_source(0, "sequential: never measured here (weft tune --overlap)");
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    double gain = compare_with_sequential("gains");
    if (gain < 0.02) printf("%s", said);
    assert_true(gain >= 0.02);
    expect_source(0, "the fastest that weft tune --overlap found");
    expect_source(1, "sequential, as weft_engine_params.nano_batches says");
    expect_source(2, "in 2 nano-batches, as weft_engine_params.nano_batches says");
    free(said);
}

/* The profile promises a gain that the device then does not have. */
static void test_takes_nothing_that_loses(void **state)
{
    char path[600], *said;
    wf_plans plans;
    struct world w = gains;
    want_programs();
    set_tuned_world();
    w.beside[0] = w.beside[1] = 4;
    world = w;
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    assert_non_null(strstr(said, "1.00x: simulation promised"));
    stored("plan", path, sizeof path);
    struct weft_engine *e = open_engine(1);
    assert_ok(wf_plans_load(&e->layout.graph, path, &plans));
    assert_int_equal(plans.n, 1);
    wf_plans_free(&plans);
    weft_engine_close(e);
    expect_source(0, "sequential: weft tune --overlap found nothing faster");
    free(said);
}

static double between(double low, double high, uint64_t seed, uint64_t at)
{
    return low + (high - low) * wf_random_unit(seed, at);
}

static void test_never_slower(void **state)
{
    enum { WORLDS = 5 };
    int gained = 0;
    want_programs();
    for (uint64_t seed = ONE_OF(2); seed <= WORLDS; seed += ONE_OF(2)) {
        char *said, what[32];
        set_world((struct world){{between(0.1, 0.5, seed, 1), between(0.1, 0.5, seed, 2)},
                                 {between(0.8, 1.3, seed, 3), between(0.8, 1.3, seed, 4)},
                                 between(60, 160, seed, 5),
                                 between(3000, 7000, seed, 6)});
        assert_ok(tune((struct weft_overlap_params){0}, &said));
        snprintf(what, sizeof what, "world %d", (int)seed);
        gained += compare_with_sequential(what) > 0;
        free(said);
    }
    printf("%d worlds: %d gained\n", WORLDS / ONE_OF(2), gained);
    assert_true(gained > 0);
}

static double gain_of(uint32_t seqs, wf_step_load x, uint32_t context)
{
    struct weft_engine *sequential = open_sized(seqs, 1), *own = open_sized(seqs, 0);
    assert_true(wf_load_fits(own, x, context));
    double gain = gain_with(sequential, own, x, context, "a world of its own");
    weft_engine_close(sequential);
    weft_engine_close(own);
    return gain;
}

/* Plans are measured with half of the longest context, and are to be taken for `kind`. */
static void tune_sized(struct world w, uint32_t seqs, const char *kind)
{
    char *said;
    set_world(w);
    assert_ok(tune_engine(open_sized(seqs, 1),
                          (struct weft_overlap_params){.quick = true, .context = CONTEXT / 2}, &said));
    const char *at = strstr(said, kind);
    if (!at || !strstr(at, "taken for steps of")) fail_msg("%s", said);
    free(said);
}

/* Overlap loses with the contexts that are not these. */
static void tune_with_keys(uint32_t least, uint32_t most)
{
    struct world w = gains;
    w.least_keys = least, w.most_keys = most;
    tune_sized(w, SEQS, "\nmixed: ");
    compare_with_sequential("contexts");
}

/* From half of the measured context to twice as much, as far as the plan wins there, too. */
static void test_contexts(void **state)
{
    const wf_step_load most = {SEQS - 1, TOKENS - SEQS + 1}, least = {SEQS / 2 - 1, TOKENS / 2 - SEQS / 2 + 1};
    want_programs();
    tune_with_keys(CONTEXT / 4, CONTEXT);
    assert_true(gain_of(SEQS, most, CONTEXT / 2) > 0 && gain_of(SEQS, most, CONTEXT) > 0);
    assert_true(gain_of(SEQS, least, CONTEXT / 4) > 0 && gain_of(SEQS, least, CONTEXT) > 0);
    assert_true(gain_of(SEQS, least, CONTEXT / 4 - 1) == 0);
    tune_with_keys(CONTEXT / 4 + 1, CONTEXT - 1);
    assert_true(gain_of(SEQS, most, CONTEXT / 2) > 0);
    assert_true(gain_of(SEQS, least, CONTEXT / 4) == 0 && gain_of(SEQS, most, CONTEXT) == 0);
}

/* A step is of one kind: plans of decodes are for decodes alone, and those of both for both. */
static void test_kinds(void **state)
{
    wf_decode_share share[WF_N_LOAD_KINDS];
    wf_batch b;
    set_world(gains);
    struct weft_engine *e = open_engine(1);
    assert_ok(wf_batch_init(&b, &e->layout.limits));
    for (size_t i = 0; i < WF_N_LOAD_KINDS; i++) {
        assert_ok(wf_load_of_kind(e, &wf_load_kinds[i], CONTEXT, &share[i], &b));
        assert_in_range(b.n_decodes, (uint32_t)((double)share[i].least * b.n_tokens),
                        (uint32_t)((double)share[i].most * b.n_tokens));
    }
    assert_true(share[WF_LOAD_DECODE].least == 1 && share[WF_LOAD_DECODE].most == 1);
    assert_true(share[WF_LOAD_PREFILL].least == 0 && share[WF_LOAD_PREFILL].most > 0);
    assert_true(share[WF_LOAD_MIXED].least == share[WF_LOAD_PREFILL].most && share[WF_LOAD_MIXED].most < 1);
    wf_batch_free(&b);
    weft_engine_close(e);
}

/* As weft wrote it before plans said for which contexts they are: with others they may lose. */
static void test_older_plans(void **state)
{
    char path[600], *said, *limits;
    want_programs();
    set_tuned_world();
    stored("plan", path, sizeof path);
    text plan = read_text(path);
    assert_non_null(limits = strstr(plan.v, "bucket tokens 32-64 decodes "));
    assert_non_null(limits = strstr(limits, " context "));
    memset(limits, ' ', strcspn(limits, "\n"));
    write_text(path, plan.v);
    struct weft_engine *e = open_engine(0);
    assert_int_equal(e->layout.plans.n, 1);
    assert_non_null(strstr(weft_engine_plan_source(e), "cannot be used"));
    weft_engine_close(e);
    assert_ok(tune((struct weft_overlap_params){0}, &said)); /* by the times that are kept */
    assert_true(compare_with_sequential("tuned again") > 0);
    free(said);
}

static void test_tune_small_engines(void **state)
{
    static const struct { uint32_t seqs, context, tokens, kv; } engines[] = {
        {1, CONTEXT, TOKENS, 1}, {SEQS, 16, 4 * CONTEXT, 1}, {SEQS, CONTEXT, 4 * CONTEXT, 2}, {2, 16, 1, 1}};
    for (size_t i = 0; i < WF_LEN(engines); i++) {
        char *said;
        set_world(gains);
        assert_ok(tune_engine(open_small(engines[i].seqs, engines[i].context, engines[i].tokens, engines[i].kv),
                              (struct weft_overlap_params){.quick = true}, &said));
        assert_non_null(strstr(said, "\ndecode: "));
        assert_non_null(strstr(said, "\nprefill: "));
        assert_true(!strstr(said, "\nmixed: left out") == (engines[i].seqs > 1 && engines[i].tokens > 1));
        free(said);
    }
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

static void test_damaged_files(void **state)
{
    char *said;
    want_programs();
    keep_damaged_plan();
    struct weft_engine *e = open_engine(0);
    assert_int_equal(e->layout.plans.n, 1);
    assert_non_null(strstr(weft_engine_plan_source(e), "cannot be used"));
    weft_engine_close(e);
    spoil("profile", "weft-profile 1\nop a compute\n");
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    assert_true(compare_with_sequential("mended") > 0);
    free(said);
}

/* Whatever fails, the error is told, nothing is left, and requests are answered or refused. */
static void test_failures(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_BUF_CREATE, WF_NULL_QUEUE_CREATE, WF_NULL_EVENT_CREATE,
                                              WF_NULL_SUBMIT,     WF_NULL_MARK,         WF_NULL_WAIT,
                                              WF_NULL_BIND};
    int failed = 0;
    for (size_t i = 0; i < WF_LEN(slots); i++)
        for (uint32_t nth = 1; nth < 3000; nth *= 150) {
            set_world(gains);
            struct weft_engine *e = open_engine(1);
            wf_null_config c = clock_of_world;
            c.slot = slots[i], c.nth = nth, c.status = WEFT_ERR_NOMEM;
            char *said;
            size_t len;
            FILE *f = open_memstream(&said, &len);
            wf_null_configure(&c);
            enum weft_status s = weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL);
            fclose(f);
            failed += s == WEFT_ERR_NOMEM;
            if (s && s != WEFT_ERR_NOMEM) fail_msg("slot %d, call %u: %s", (int)slots[i], nth, weft_last_error());
            wf_null_configure(&clock_of_world);
            enum weft_status then = answer(e); /* without a plan requests fail */
            assert_true(then == WEFT_OK || (s && then == WEFT_ERR_NOMEM));
            weft_engine_close(e);
            free(said);
            assert_int_equal(wf_null_alive(), 0);
        }
    assert_true(failed > 6);
}

/* ---- time that runs out while kernels are built ------------------------------------------------------------------ */

static uint32_t built, most_built;

static void on_build(const wf_call *c)
{
    built++;
}

static bool is_late(void *user)
{
    return built >= most_built;
}

/* Runs in a world that gains, until so many kernels have been built. */
static void tune_until(uint32_t most, char **said)
{
    wf_null_config c = clock_of_world;
    size_t len;
    FILE *f = open_memstream(said, &len);
    struct weft_engine *e = open_engine(1);
    c.bound = on_build;
    wf_null_configure(&c);
    built = 0, most_built = most;
    assert_ok(weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true, .stop = is_late}, f, NULL));
    fclose(f);
    wf_null_configure(&clock_of_world);
    assert_ok(answer(e));
    weft_engine_close(e);
}

static uint32_t built_for_one(void)
{
    wf_null_config c = clock_of_world;
    c.bound = on_build;
    built = 0;
    wf_null_configure(&c);
    weft_engine_close(open_engine(1));
    wf_null_configure(&clock_of_world);
    return built;
}

static void test_builds_end_in_time(void **state)
{
    char *said;
    want_programs();
    set_world(gains);
    tune_until(UINT32_MAX, &said); /* what is measured here is not measured again */
    free(said);
    uint32_t first = built;
    tune_until(UINT32_MAX, &said);
    free(said);
    uint32_t plans = built; /* of the plans alone */
    assert_in_range(plans, 10, first - 10);
    tune_until(plans / 2, &said);
    free(said);
    uint32_t stopped = built, sequential = built_for_one(); /* which are built again, when the plan is back */
    if (stopped > plans / 2 + WF_MAX_PIECES + sequential)
        fail_msg("%u kernels were built, where %u were to be the end, and %u are sequential", stopped, plans / 2,
                 sequential);
    wf_null_configure(&clock_of_world);
    empty_cache();
    uint32_t most = (first - plans) / 2; /* while ops are measured */
    tune_until(most, &said);
    if (built > most + WF_MAX_PIECES) fail_msg("%u kernels were built, where %u were to be the end", built, most);
    free(said);
}

/* The plan would take the place of the times. Engines do not look at the file of -o. */
static void test_output(void **state)
{
    char file[128], link_to[128], other[128], *said;
    set_world(gains);
    snprintf(file, sizeof file, "%s/profile", cache);
    snprintf(link_to, sizeof link_to, "%s/link", cache);
    snprintf(other, sizeof other, "%s/../%s/profile", cache, strrchr(cache, '/') + 1);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = other}, &said),
                     WEFT_ERR_ARG); /* neither is there yet */
    free(said);
    assert_ok(tune((struct weft_overlap_params){.profile = file}, &said));
    assert_non_null(strstr(said, "\nkept in "));
    free(said);
    assert_int_equal(symlink(file, link_to), 0);
    text before = read_text(file);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = link_to}, &said), WEFT_ERR_ARG);
    free(said);
    text after = read_text(file);
    assert_string_equal(before.v, after.v);
    unlink(link_to);
    empty_cache();
    assert_ok(tune((struct weft_overlap_params){.profile = file, .plan = link_to}, &said));
    assert_null(strstr(said, "\nkept in "));
    assert_non_null(strstr(said, "engines take it with --plan"));
    free(said);
    struct weft_engine *e = open_engine(0);
    assert_non_null(strstr(e->layout.plan_from, "never measured"));
    weft_engine_close(e);
    unlink(file), unlink(link_to);
}

static void test_refuses(void **state)
{
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS};
    set_world(gains);
    struct weft_engine *e = demo_engine(p);
    assert_error(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG, "profile");
    weft_engine_close(e);
    p.profile = true, p.nano_batches = 2;
    e = demo_engine(p);
    assert_int_equal(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG);
    weft_engine_close(e);
}

SUITE(overlap_plans, setup, teardown, CASE(test_takes_what_gains), CASE(test_takes_nothing_that_loses),
      CASE(test_never_slower), CASE(test_contexts), CASE(test_kinds), CASE(test_older_plans),
      CASE(test_tune_small_engines), CASE(test_damaged_files), CASE(test_failures), CASE(test_builds_end_in_time),
      CASE(test_output), CASE(test_refuses))
