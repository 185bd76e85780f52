/* overlap: the profile that `weft tune --overlap` measures on the null device says what its clock does. */
#include "unit/overlap_world.h"
#include "support/suite.h"

/* What was measured is kept for engines of any context: only tables of positions are longer. A plan says for which
 * contexts it is. */
static void test_any_context(void **state)
{
    char path[2][600];
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_engine *e = NULL;
        struct weft_engine_params p = {
            .device = "null", .n_seqs = SEQS, .context = CONTEXT << i, .max_batched_tokens = TOKENS};
        assert_ok(weft_engine_open(model, &p, &e));
        assert_ok(wf_stored_path(e->dev, &e->layout.graph, "plan", path[i], sizeof path[i]));
        weft_engine_close(e);
    }
    assert_string_equal(path[0], path[1]);
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

/* What tuning stores. said: what it says, for the caller to free. */
static wf_op_profile profile_by(struct weft_overlap_params how, char **said)
{
    char path[600];
    wf_op_profile p;
    assert_ok(tune(how, said));
    stored("profile", path, sizeof path);
    assert_ok(wf_op_profile_load(path, &p));
    return p;
}

static void test_profile(void **state)
{
    char path[600], *said;
    wf_op_profile p;
    set_world(gains);
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    stored("profile", path, sizeof path);
    assert_ok(wf_op_profile_load(path, &p));
    assert_int_equal(p.groups, UNITS);
    const wf_op_times *down = wf_op_profile_find(&p, "down"), *attention = wf_op_profile_find(&p, "decode_attention");
    assert_non_null(down);
    assert_non_null(attention);
    assert_true(fabs(wf_op_us(down, TOKENS) - (500 + 100.0 * TOKENS) / 1e3) < 0.01);
    assert_true(fabs(wf_op_us(attention, SEQS) - (500 + 4000.0 * SEQS) / 1e3) < 0.01);
    assert_true(fabs(wf_op_rate(&p, down, TOKENS, 0.5, true) - pow(0.5, gains.bend[1])) < 0.01);
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COMPUTE, 0.5) - pow(0.5, gains.bend[1])) < 0.03);
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_MEMORY, 0.5) - pow(0.5, gains.bend[0])) < 0.01);
    assert_non_null(strstr(said, path));
    wf_op_profile_free(&p);
    free(said);
}

/* Copies to the host take longer beside kernels, and these beside copies, whatever part of the device they have. */
static uint64_t slow_beside(uint64_t bytes, bool beside)
{
    return bytes / 10 * (beside ? 2 : 1); /* about as long as a product, so that both have company all the time */
}

static void test_copies(void **state)
{
    char *said;
    wf_null_config c = clock_of_world;
    set_world((struct world){.bend = {0.2, 0.3}, .beside = {1.25, 1.25}, .product = 100, .attention = 4000});
    c.read_ns = slow_beside;
    wf_null_configure(&c);
    wf_op_profile p = profile_by((struct weft_overlap_params){0}, &said);
    assert_true(wf_op_profile_has_rate(&p, WF_CLASS_COPY, 0));
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COPY, 0) - 0.5) < 0.03);
    assert_true(wf_op_profile_has_rate(&p, WF_CLASS_COMPUTE, 1));
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COMPUTE, 1) - 0.8) < 0.05);
    wf_op_profile_free(&p);
    free(said);
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

static const wf_op_energy *energy_of(const wf_op_profile *p, const char *name, double share)
{
    for (const wf_op_energy *e = p->energies; e < p->energies + p->n_energies; e++)
        if (!strcmp(e->name, name) && fabs(e->share - share) < 0.01) return e;
    fail_msg("no joules of %s with a share of %g", name, share);
    return NULL;
}

static void draws(const wf_op_profile *p, const char *name, double share, double bend, double watts)
{
    const wf_op_energy *e = energy_of(p, name, share);
    double us = wf_op_us(wf_op_profile_find(p, name), e->tokens) / 1e6, longer = us / pow(share, bend),
           joules = STATIC_W * longer + (watts - STATIC_W) * us;
    if (fabs(e->each.seconds / longer - 1) > 1e-3 || fabs(e->each.joules / joules - 1) > 1e-3)
        fail_msg("%s with %g: %g J in %g s, where %g and %g were wanted", name, share, e->each.joules, e->each.seconds,
                 joules, longer);
    assert_true(e->each.bytes > 0 && e->quick);
}

static void test_energy(void **state)
{
    char *said;
    set_world(gains);
    make_sensor();
    wf_op_profile p = profile_by((struct weft_overlap_params){0}, &said);
    draws(&p, "down", 1, gains.bend[1], PRODUCT_W);
    draws(&p, "down", 0.5, gains.bend[1], PRODUCT_W);
    draws(&p, "decode_attention", 1, gains.bend[0], OTHER_W);
    draws(&p, "decode_attention", 0.5, gains.bend[0], OTHER_W);
    assert_true(p.energy.power_limit == LIMIT_W);
    assert_non_null(strstr(said, "\npower: hwmon; "));
    assert_true(drawn.joules > 0);
    free(said);
    size_t n = p.n_energies; /* the same command measures nothing anew */
    wf_op_profile_free(&p);
    p = profile_by((struct weft_overlap_params){0}, &said);
    assert_int_equal(p.n_energies, n);
    wf_op_profile_free(&p);
    wf_power_configure(NULL);
    free(said);
}

static void test_no_energy(void **state)
{
    char *said;
    set_world(gains);
    wf_op_profile p = profile_by((struct weft_overlap_params){0}, &said);
    assert_int_equal(p.n_energies, 0);
    assert_true(p.energy.power_limit == 0 && p.energy.static_power == 0);
    assert_non_null(strstr(said, "\npower: not readable\n"));
    wf_op_profile_free(&p);
    free(said);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* Ends when so many batches have been measured, which progress is told of before each. */
static void count_batch(void *user, const char *what, double fraction)
{
    if (!strcmp(what, "ops")) --*(int *)user;
}

static bool stop_later(void *user)
{
    return *(int *)user < 0;
}

static void test_goes_on(void **state)
{
    int left = 2;
    char *said[3];
    set_world(gains);
    wf_op_profile part = profile_by(
        (struct weft_overlap_params){.on_progress = count_batch, .stop = stop_later, .user = &left}, &said[0]);
    world.product *= 2; /* what was measured before is not measured again */
    wf_op_profile all = profile_by((struct weft_overlap_params){0}, &said[1]);
    assert_true(all.n_ops >= part.n_ops);
    double us = wf_op_us(wf_op_profile_find(&all, "down"), TOKENS);
    assert_true(us == wf_op_us(wf_op_profile_find(&part, "down"), TOKENS));
    wf_op_profile anew = profile_by((struct weft_overlap_params){.anew = true}, &said[2]);
    assert_true(wf_op_us(wf_op_profile_find(&anew, "down"), TOKENS) > 1.5 * us);
    wf_op_profile_free(&part), wf_op_profile_free(&all), wf_op_profile_free(&anew);
    for (int i = 0; i < 3; i++) free(said[i]);
}

static double product_us(const char *path)
{
    wf_op_profile p;
    assert_ok(wf_op_profile_load(path, &p));
    double us = wf_op_us(wf_op_profile_find(&p, "down"), TOKENS);
    wf_op_profile_free(&p);
    return us;
}

/* A trial's times are none of a run in earnest, whose times a later trial takes. */
static void test_quick_times_are_replaced(void **state)
{
    int left = 1; /* the largest step */
    char path[600], *said;
    set_tuned_world();
    stored("profile", path, sizeof path);
    double trial = product_us(path);
    world.product *= 2;
    assert_ok(tune_engine(open_engine(1),
                          (struct weft_overlap_params){.on_progress = count_batch, .stop = stop_later, .user = &left},
                          &said));
    free(said);
    double earnest = product_us(path);
    assert_true(earnest > 1.5 * trial);
    world.product /= 4;
    assert_ok(tune((struct weft_overlap_params){0}, &said));
    free(said);
    assert_true(product_us(path) == earnest);
}

/* Changes a digit of the nth word behind "made-for"; 0: that of the device. */
static void forge_key(const char *path, int nth)
{
    text t = read_text(path);
    char *at = strstr(t.v, "made-for ");
    assert_non_null(at);
    for (at += strlen("made-for "); nth; nth--) at += strcspn(at, " ") + 1;
    *at = *at == '0' ? '1' : '0';
    write_text(path, t.v);
}

static void test_profile_of_others(void **state)
{
    static const char *const says[] = {"another device", "a model of another shape"};
    char path[128], *said;
    set_world(gains);
    snprintf(path, sizeof path, "%s/profile", cache);
    for (int nth = 0; nth < 2; nth++) {
        assert_ok(tune((struct weft_overlap_params){.profile = path, .anew = true}, &said));
        free(said);
        forge_key(path, nth);
        text before = read_text(path);
        assert_int_equal(tune((struct weft_overlap_params){.profile = path}, &said), WEFT_ERR_ARG);
        if (!strstr(weft_last_error(), says[nth])) fail_msg("%s", weft_last_error());
        text after = read_text(path);
        assert_string_equal(before.v, after.v);
        free(said);
        struct weft_engine *e = open_engine(1);
        FILE *f = fopen("/dev/null", "w");
        assert_int_equal(weft_search(e, &(struct weft_search_params){.profile = path, .seconds = 1}, f, NULL),
                         nth ? WEFT_ERR_ARG : WEFT_OK);
        fclose(f);
        weft_engine_close(e);
    }
    unlink(path);
}

SUITE(overlap, setup, teardown, CASE(test_any_context), CASE(test_profile), CASE(test_copies), CASE(test_energy),
      CASE(test_no_energy), CASE(test_goes_on), CASE(test_quick_times_are_replaced), CASE(test_profile_of_others))
