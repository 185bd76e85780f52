/* overlap_plans: what `weft tune --overlap` keeps, and what engines take of it by themselves: never what is slower than the sequential plan. */
#include "unit/overlap_world.h"

static double step_us(struct weft_engine *e, uint32_t decodes, uint32_t prefill)
{
    wf_batch b;
    double us;
    assert_int_equal(wf_batch_init(&b, &e->limits), WEFT_OK);
    assert_int_equal(wf_load_batch(e, (wf_step_load){decodes, prefill}, CONTEXT, &b), WEFT_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(wf_load_step(e, &b, &us), WEFT_OK);
    wf_batch_free(&b);
    return us;
}

/* ---- what engines take --------------------------------------------------------------------------------------------- */

static const struct { uint32_t decodes, prefill; } loads[] = {{SEQS, 0}, {1, TOKENS - 1}, {SEQS - 1, TOKENS - SEQS + 1}};

/* The largest gain, as a part of the time. */
static double compare_with_sequential(const char *what)
{
    struct weft_engine *sequential = open_engine(1), *own = open_engine(0);
    double gain = 0;
    for (size_t i = 0; i < WF_LEN(loads); i++) {
        double us = step_us(own, loads[i].decodes, loads[i].prefill), before = step_us(sequential, loads[i].decodes, loads[i].prefill);
        if (us > before) fail_msg("%s: %u decodes and %u tokens of prompts: %g us, sequential %g", what, loads[i].decodes, loads[i].prefill, us, before);
        gain = WF_MAX(gain, 1 - us / before);
    }
    weft_engine_close(sequential);
    weft_engine_close(own);
    return gain;
}

/* Why steps run as they do, of an engine and without one. */
static void expect_source(uint32_t nano_batches, const char *want)
{
    char words[600];
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS, .nano_batches = nano_batches};
    struct weft_engine *e = open_engine(nano_batches);
    assert_string_equal(weft_engine_plan_source(e), want);
    weft_engine_close(e);
    assert_int_equal(weft_plan_source(model, &p, words, sizeof words), WEFT_OK);
    assert_string_equal(words, want);
}

static void test_takes_what_gains(void **state)
{
    char *said;
    (void)state;
    set_world(gains);
    assert_true(compare_with_sequential("nothing measured") == 0);
    expect_source(0, "sequential: never measured here (weft tune --overlap)");
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
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
    (void)state;
    set_world(gains);
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    w.beside[0] = w.beside[1] = 4;
    world = w;
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    assert_non_null(strstr(said, "1.00x: simulation promised"));
    stored("plan", path, sizeof path);
    struct weft_engine *e = open_engine(1);
    assert_int_equal(wf_plans_load(&e->graph, path, &plans), WEFT_OK);
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
    (void)state;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        char *said, what[32];
        set_world((struct world){{between(0.1, 0.5, seed, 1), between(0.1, 0.5, seed, 2)}, {between(0.8, 1.3, seed, 3), between(0.8, 1.3, seed, 4)},
                                 between(60, 160, seed, 5), between(3000, 7000, seed, 6)});
        if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
        snprintf(what, sizeof what, "world %d", (int)seed);
        gained += compare_with_sequential(what) > 0;
        free(said);
    }
    printf("%d worlds: %d gained\n", WORLDS, gained);
    assert_true(gained > 0);
}

static void test_tune_small_engines(void **state)
{
    static const struct { uint32_t seqs, context, tokens, kv; } engines[] = {
        {1, CONTEXT, TOKENS, 1}, {SEQS, 16, 4 * CONTEXT, 1}, {SEQS, CONTEXT, 4 * CONTEXT, 2}, {2, 16, 1, 1}};
    (void)state;
    for (size_t i = 0; i < WF_LEN(engines); i++) {
        char *said;
        size_t len;
        FILE *f = open_memstream(&said, &len);
        set_world(gains);
        struct weft_engine *e = open_small(engines[i].seqs, engines[i].context, engines[i].tokens, engines[i].kv);
        if (weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL)) fail_msg("engine %zu: %s", i, weft_last_error());
        fclose(f);
        assert_non_null(strstr(said, "\ndecode: "));
        assert_non_null(strstr(said, "\nprefill: "));
        assert_true(!strstr(said, "\nmixed: left out") == (engines[i].seqs > 1 && engines[i].tokens > 1));
        weft_engine_close(e);
        free(said);
    }
}

/* ---- what goes wrong ----------------------------------------------------------------------------------------------- */

static void test_damaged_files(void **state)
{
    char *said;
    (void)state;
    keep_damaged_plan();
    struct weft_engine *e = open_engine(0);
    assert_int_equal(e->plans.n, 1);
    assert_non_null(strstr(weft_engine_plan_source(e), "cannot be used"));
    weft_engine_close(e);
    spoil("profile", "weft-profile 1\nop a compute\n");
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    assert_true(compare_with_sequential("mended") > 0);
    free(said);
}

/* Whatever fails, the error is told, nothing is left, and requests are answered or refused. */
static void test_failures(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_BUF_CREATE, WF_NULL_QUEUE_CREATE, WF_NULL_EVENT_CREATE, WF_NULL_SUBMIT, WF_NULL_MARK, WF_NULL_WAIT, WF_NULL_BIND};
    int failed = 0;
    (void)state;
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

/* The plan would take the place of the times. Engines do not look at the file of -o. */
static void test_output(void **state)
{
    char file[128], link_to[128], other[128], *said;
    (void)state;
    set_world(gains);
    snprintf(file, sizeof file, "%s/profile", cache);
    snprintf(link_to, sizeof link_to, "%s/link", cache);
    snprintf(other, sizeof other, "%s/../%s/profile", cache, strrchr(cache, '/') + 1);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = other}, &said), WEFT_ERR_ARG); /* neither is there yet */
    free(said);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file}, &said), WEFT_OK);
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
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = link_to}, &said), WEFT_OK);
    assert_null(strstr(said, "\nkept in "));
    assert_non_null(strstr(said, "engines take it with --plan"));
    free(said);
    struct weft_engine *e = open_engine(0);
    assert_non_null(strstr(e->plan_from, "never measured"));
    weft_engine_close(e);
    unlink(file), unlink(link_to);
}

static void test_refuses(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS};
    (void)state;
    set_world(gains);
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_OK);
    assert_int_equal(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_last_error(), "profile"));
    weft_engine_close(e);
    p.profile = true, p.nano_batches = 2;
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_OK);
    assert_int_equal(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG);
    weft_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_gains),
        cmocka_unit_test(test_takes_nothing_that_loses),
        cmocka_unit_test(test_never_slower),
        cmocka_unit_test(test_tune_small_engines),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
