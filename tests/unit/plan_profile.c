/* plan_profile: what lies between the measured points of a profile, its text, and errors in it. */
#include "profile_text.h"
#include "support/rows.h"

#include <math.h>

#define HEAD "weft-profile 1\n"
#define TEXT                                                                                                           \
    HEAD "device a device\nmodel a model\ngroups 100\ntile 64\ncontext 1024\n"                                         \
         "op qkv compute\n"                                                                                            \
         "time qkv tokens 128 share 1 us 30 spread 1\ntime qkv tokens 256 share 1 us 50 spread 1\ntime qkv tokens "    \
         "384 share 1 us 45 spread 1\n"                                                                                \
         "time qkv tokens 128 share 0.5 us 40 spread 1\ntime qkv tokens 256 share 0.5 us 80 spread 1\n"                \
         "op attention memory\ntime attention tokens 64 share 1 us 10 spread 0\n"                                      \
         "together memory share 0 rate 0 spread 0\ntogether memory share 0.2 rate 0.6 spread 0.02\ntogether memory "   \
         "share 0.5 rate 0.55 spread 0.1\n"                                                                            \
         "together memory share 1 rate 1 spread 0\n"

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9) fail_msg("%.12g instead of %.12g", got, want);
}

static void test_times_by_tokens(void **state)
{
    wf_op_profile p = profile_of(TEXT);
    const wf_op_times *qkv = wf_op_profile_find(&p, "qkv");
    near(wf_op_us(qkv, 0), 0);
    near(wf_op_us(qkv, 1), 30);
    near(wf_op_us(qkv, 128), 30);
    near(wf_op_us(qkv, 192), 40);
    near(wf_op_us(qkv, 320), 50);  /* 45 at 384 is noise */
    near(wf_op_us(qkv, 768), 100); /* twice the last */
    near(wf_op_us(NULL, 128), 0);
    wf_op_profile_free(&p);
}

static void test_rates_by_share(void **state)
{
    wf_op_profile p = profile_of(TEXT);
    const wf_op_times *qkv = wf_op_profile_find(&p, "qkv"), *attention = wf_op_profile_find(&p, "attention");
    near(wf_class_rate(&p, WF_CLASS_MEMORY, 0.1), 0.29); /* 0.6 less its spread at 0.2 */
    near(wf_class_rate(&p, WF_CLASS_MEMORY, 0.4), 0.58); /* 0.55 at 0.5 is noise */
    near(wf_class_rate(&p, WF_CLASS_MEMORY, 0.75), 0.79);
    near(wf_class_rate(&p, WF_CLASS_COMPUTE, 0.3), 0.3); /* no table: by definition */
    near(wf_class_rate(&p, WF_CLASS_COPY, 0), 1);
    near(wf_op_rate(&p, qkv, 128, 0.5, true), 0.75);
    near(wf_op_rate(&p, qkv, 128, 0.75, true), 0.875);
    near(wf_op_rate(&p, qkv, 128, 0.25, true), 0.375);
    near(wf_op_rate(&p, qkv, 128, 0.5, false), 0.5); /* no faster than in company */
    near(wf_op_rate(&p, attention, 64, 0.2, true), 0.58);
    near(wf_op_rate(&p, attention, 64, 1, true), 1);
    wf_op_profile_free(&p);
}

/* Whatever was measured, more rows never take less, and a larger share is never slower. */
static void test_monotone(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        char text[8192] = HEAD "op a memory\n";
        size_t len = strlen(text);
        for (uint32_t i = 0; i < 24; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "time a tokens %u share %g us %g spread 0\n",
                                    64 * (1 + i / 4), 1 - 0.25 * (i % 4), 1 + 99 * wf_random_unit(seed, i));
        for (uint32_t i = 0; i <= 5; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "together memory share %g rate %g spread 0\n",
                                    i / 5.0, wf_random_unit(seed, 100 + i));
        wf_op_profile p = profile_of(text);
        for (uint32_t n = 0; n < 500; n += 7) assert_true(wf_op_us(p.ops, n) <= wf_op_us(p.ops, n + 7) + 1e-9);
        for (uint32_t n = 1; n < 500; n += 41)
            for (int alone = 0; alone < 2; alone++)
                for (double r = 0; r < 1; r += 0.03) {
                    double slow = wf_op_rate(&p, p.ops, n, r, alone), fast = wf_op_rate(&p, p.ops, n, r + 0.03, alone);
                    if (slow > fast + 1e-9 || slow <= 0)
                        fail_msg("seed %d: share %g: %g, then %g", (int)seed, r, slow, fast);
                }
        wf_op_profile_free(&p);
    }
}

static char *text_of(const wf_op_profile *p)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    wf_op_profile_write(p, f);
    fclose(f);
    return text;
}

static void test_text(void **state)
{
    wf_op_profile p = profile_of(TEXT);
    char *once = text_of(&p);
    wf_op_profile again = profile_of(once);
    char *twice = text_of(&again);
    assert_string_equal(once, twice);
    assert_non_null(strstr(once, "device a device\nmodel a model\ngroups 100\ntile 64\ncontext 1024\n"));
    assert_non_null(strstr(once, "together memory share 0.2 rate 0.6 spread 0.02\n"));
    free(once);
    free(twice);
    wf_op_profile_free(&p);
    wf_op_profile_free(&again);
}

/* What is left of a trial's profile is one that can be read again: without ops whose times with the whole device are
 * gone. */
static void test_quick(void **state)
{
    wf_op_profile p = profile_of(
        HEAD "made-for 0123456789abcdef fedcba9876543210\nop a compute\ntime a tokens 1 share 1 us 1 spread 0\ntime a "
             "tokens 2 share 1 us 2 spread 0 quick\n"
             "op b memory\ntime b tokens 1 share 1 us 1 spread 0 quick \ntime b tokens 1 share 0.5 us 1 spread 0\n"
             "together memory share 0.5 rate 0.6 spread 0 quick\ntogether memory share 1 rate 1 spread 0\n");
    char *all = text_of(&p);
    assert_non_null(strstr(all, "time a tokens 2 share 1 us 2 spread 0 quick\n"));
    assert_non_null(strstr(all, "together memory share 0.5 rate 0.6 spread 0 quick\n"));
    wf_op_profile_drop_quick(&p);
    char *left = text_of(&p);
    assert_string_equal(left, HEAD "made-for 0123456789abcdef fedcba9876543210\ngroups 1\ntile 1\ncontext 1\nop a "
                                   "compute\ntime a tokens 1 share 1 us 1 spread 0\n"
                                   "together memory share 1 rate 1 spread 0\n");
    free(all);
    free(left);
    wf_op_profile_free(&p);
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

#define ONE "op a compute\ntime a tokens 1 share 1 us 1 spread 0\n"

static void is_about(double x, double wanted)
{
    if (!(fabs(x / wanted - 1) < 1e-6)) fail_msg("%.9g where %.9g was wanted", x, wanted);
}

/* Of a device that draws 150 W whatever it does, 0.8 pJ a flop and 80 pJ a byte. */
static wf_energy_point point_of(double seconds, double gflop, double mb)
{
    return (wf_energy_point){150 * seconds + 0.8e-3 * gflop + 80e-6 * mb, seconds, gflop * 1e9, mb * 1e6};
}

static void test_energy_fit(void **state)
{
    wf_energy_point points[] = {point_of(400e-6, 224, 60), point_of(250e-6, 4, 1070), point_of(800e-6, 224, 60),
                                point_of(480e-6, 4, 1070)};
    wf_energy e = {.idle = 120, .power_limit = 700};
    assert_true(wf_energy_fit(points, 4, &e));
    is_about(e.static_power, 150), is_about(e.flop, 0.8e-12), is_about(e.byte, 80e-12);
    is_about(wf_energy_seconds(&e, 550e12, 0), 0.8);
    e = (wf_energy){.idle = 150}; /* two do not tell what is always drawn: idle says it */
    assert_true(wf_energy_fit(points, 2, &e));
    is_about(e.static_power, 150), is_about(e.flop, 0.8e-12), is_about(e.byte, 80e-12);
    assert_true(wf_energy_seconds(&e, 1e12, 0) == 0); /* without a limit nothing is said */
    wf_energy_point alike[] = {point_of(400e-6, 224, 60), point_of(800e-6, 448, 120)};
    e = (wf_energy){.idle = 100};
    assert_false(wf_energy_fit(alike, 2, &e));
    assert_false(wf_energy_fit(alike, 0, &e));
    assert_true(e.static_power == 0 && e.flop == 0 && e.byte == 0 && e.idle == 100);
    wf_energy_point more = {
        .joules = 1e-3, .seconds = 1e-5, .flops = 1}; /* more than idle watts would explain: no negative constants */
    points[1] = more;
    e = (wf_energy){.idle = 500};
    assert_false(wf_energy_fit(points, 2, &e));
}

static void test_energy_text(void **state)
{
    wf_op_profile p = profile_of(HEAD ONE "energy a tokens 1 share 1 joules 0.2 us 400 gflop 224 mb 60\nenergy a "
                                          "tokens 1 share 0.5 joules 0.3 us 800 gflop 224 mb 60 quick\n"
                                          "power idle 118 static 150 limit 700 flop 0.82 byte 77\n");
    char *text = text_of(&p);
    assert_non_null(strstr(text, "energy a tokens 1 share 1 joules 0.2 us 400 gflop 224 mb 60\nenergy a tokens 1 share "
                                 "0.5 joules 0.3 us 800 gflop 224 mb 60 quick\n"
                                 "power idle 118 static 150 limit 700 flop 0.82 byte 77\n"));
    free(text);
    is_about(p.energy.byte, 77e-12), is_about(p.energy.power_limit, 700);
    assert_true(wf_op_profile_has_energy(&p, "a", 1, 0.5) && !wf_op_profile_has_energy(&p, "a", 2, 0.5));
    wf_op_profile_drop_quick(&p);
    assert_int_equal(p.n_energies, 1);
    is_about(p.energy.static_power, 150);
    wf_op_profile_free(&p);
    p = profile_of(HEAD ONE "power idle 118 static 150 limit 700 flop 0.82 byte 77 quick\n");
    wf_op_profile_drop_quick(&p);
    assert_true(p.energy.idle == 0 && p.energy.power_limit == 0);
    wf_op_profile_free(&p);
}

static void refuse(char *const *column)
{
    wf_op_profile p;
    assert_int_not_equal(try_profile(column[0], &p), WEFT_OK);
    if (!strstr(wf_error(), column[1])) fail_msg("'%s' is not in '%s'", column[1], wf_error());
    wf_op_profile_free(&p);
}

static void test_errors(void **state)
{
    each_row("tests/unit/plan_profile.txt", 2, refuse);
}

SUITE(plan_profile, NULL, NULL, CASE(test_times_by_tokens), CASE(test_rates_by_share), CASE(test_monotone),
      CASE(test_text), CASE(test_energy_fit), CASE(test_energy_text), CASE(test_quick), CASE(test_errors))
