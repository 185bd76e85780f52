/* load: statistics against numpy's figures, arrivals against their distribution, traces good and bad, and
 * events cut at every place. */
#include "loadgen/dataset.h"
#include "loadgen/sse.h"
#include "loadgen/stats.h"
#include "support/suite.h"

#include <math.h>

/* ---- statistics ------------------------------------------------------------------------------- */

#define MS 1000000u

static const double limits[WF_N_METRICS]; /* none */

struct sample {
    unsigned ttft;
    unsigned gaps[4], n_gaps; /* ms */
};
static const struct sample samples[] = {{10, {5, 7, 6}, 3}, {25, {4}, 1}, {3, {0}, 0}, {40, {11, 2, 9, 30}, 4}};

static wf_request_result play(const struct sample *s, uint64_t start)
{
    wf_request_result a = {.start_ns = start, .n_in = 100, .n_out = s->n_gaps + 1, .ok = true};
    uint64_t now = start + (uint64_t)s->ttft * MS;
    wf_request_result_token(&a, now);
    for (unsigned i = 0; i < s->n_gaps; i++) wf_request_result_token(&a, now += (uint64_t)s->gaps[i] * MS);
    return a;
}

/* numpy.mean, std, and percentile 50, 90, 99.9 of the samples. */
static const double numpy[WF_N_METRICS][6] = {
    [WF_TTFT] = {4, 19.5, 14.2565774, 17.5, 35.5, 39.955},      [WF_TPOT] = {3, 7.66666667, 3.8586123, 6, 11.6, 12.986},
    [WF_ITL] = {8, 9.25, 8.27269605, 6.5, 16.7, 29.867},        [WF_E2EL] = {4, 38, 32.8709598, 28.5, 73.1, 91.811},
    [WF_NORM] = {4, 10.725, 6.05614357, 10.75, 17.23, 18.3883},
};

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-5 * WF_MAX(fabs(want), 1))) fail_msg("%.9g, want %.9g", got, want);
}

static wf_request_result *played(size_t *n)
{
    *n = WF_LEN(samples) + 1;
    wf_request_result *a = wf_calloc(*n, sizeof *a);
    for (size_t i = 0; i < WF_LEN(samples); i++) a[i] = play(&samples[i], 5000 * MS + (i > 1 ? 1000 * MS : 0));
    a[*n - 1] = (wf_request_result){.start_ns = 1, .n_in = 7, .n_out = 7}; /* failed: counts nowhere else */
    return a;
}

static void test_metrics(void **state)
{
    size_t n;
    wf_load_stats s;
    wf_request_result *a = played(&n);
    assert_ok(wf_load_stats_make(a, n, 2, limits, &s));
    assert_int_equal(s.completed, 4);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.good, 4);
    assert_int_equal(s.n_in, 400);
    assert_int_equal(s.n_out, 12);
    assert_int_equal(s.peak_requests, 2);
    near(s.peak_out, 6);
    for (int m = 0; m < WF_N_METRICS; m++) {
        const wf_series *v = &s.metric[m];
        const double *want = numpy[m];
        assert_int_equal(v->n, (size_t)want[0]);
        near(v->mean, want[1]);
        near(v->stddev, want[2]);
        near(wf_percentile(v, 50), want[3]);
        near(wf_percentile(v, 90), want[4]);
        near(wf_percentile(v, 99.9), want[5]);
    }
    wf_load_stats_free(&s);
    wf_request_results_free(a, n);
}

/* Four tokens in 0.1 s, in runs of several lengths: the peak is never below the mean. */
static void test_peak(void **state)
{
    static const struct sample fast = {40, {20, 20, 20}, 3};
    static const struct { double seconds, peak; } cases[] = {{0.1, 40}, {0.5, 8}, {1, 4}, {1.6, 4}};
    wf_request_result a = play(&fast, (uint64_t)5000 * MS);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_load_stats s;
        assert_ok(wf_load_stats_make(&a, 1, cases[i].seconds, limits, &s));
        near(s.peak_out, cases[i].peak);
        wf_load_stats_free(&s);
    }
    free(a.gaps);
}

/* As many tokens in the first second of a run as in the 0.2 s of the next one. */
static void test_peak_of_a_part(void **state)
{
    static const struct sample slow = {300, {300, 420, 30}, 3};
    wf_request_result a = play(&slow, (uint64_t)5000 * MS);
    wf_load_stats s;
    assert_ok(wf_load_stats_make(&a, 1, 1.2, limits, &s));
    near(s.peak_out, 4 / 1.2);
    wf_load_stats_free(&s);
    free(a.gaps);
}

/* Three requests one behind the other, and a fourth beside the last. */
static void test_requests_that_touch(void **state)
{
    static const struct sample second = {1000, {0}, 0};
    wf_request_result a[4];
    wf_load_stats s;
    for (size_t i = 0; i < 3; i++) a[i] = play(&second, (5000 + 1000 * i) * MS);
    a[3] = play(&second, (uint64_t)7500 * MS);
    for (size_t n = 3; n <= 4; n++) {
        assert_ok(wf_load_stats_make(a, n, 4, limits, &s));
        assert_int_equal(s.peak_requests, n - 2);
        wf_load_stats_free(&s);
    }
    for (size_t i = 0; i < 4; i++) free(a[i].gaps);
}

/* E2E latencies are 28, 29, 3 and 92 ms; the one with a single token has no TPOT to be too slow. */
static void test_goodput(void **state)
{
    static const struct { double ttft, tpot, e2el; size_t good; } cases[] = {
        {30, 0, 0, 3}, {0, 5, 0, 2}, {0, 0, 28.5, 2}, {12, 7, 0, 2}, {1, 0, 0, 0}, {40.5, 13.5, 92.5, 4},
    };
    size_t n;
    wf_request_result *a = played(&n);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        const double limits[WF_N_METRICS] = {
            [WF_TTFT] = cases[i].ttft, [WF_TPOT] = cases[i].tpot, [WF_E2EL] = cases[i].e2el};
        wf_load_stats s;
        assert_ok(wf_load_stats_make(a, n, 2, limits, &s));
        assert_int_equal(s.good, cases[i].good);
        wf_load_stats_free(&s);
    }
    wf_request_results_free(a, n);
}

static void test_nothing(void **state)
{
    wf_load_stats s;
    assert_ok(wf_load_stats_make(NULL, 0, 0, limits, &s));
    assert_int_equal(s.completed + s.failed + s.peak_requests, 0);
    near(wf_percentile(&s.metric[WF_TTFT], 99), 0);
    wf_load_stats_free(&s);
}

/* ---- arrivals --------------------------------------------------------------------------------- */

/* Gaps of a gamma process at rate r have mean 1/r and variance 1/(r * r * burstiness). */
static void test_arrivals(void **state)
{
    enum { N = 20000 };
    static double at[N];
    const double burst[] = {0.3, 1, 4};
    for (size_t b = 0; b < WF_LEN(burst); b++) {
        double sum = 0, squares = 0, rate = 8;
        wf_arrivals(rate, burst[b], 3, N, at);
        assert_true(at[0] == 0);
        for (int i = 1; i < N; i++) {
            double gap = at[i] - at[i - 1];
            assert_true(gap >= 0);
            sum += gap;
            squares += gap * gap;
        }
        double mean = sum / (N - 1), variance = squares / (N - 1) - mean * mean;
        assert_true(fabs(mean * rate - 1) < 0.05);
        assert_true(fabs(variance * rate * rate * burst[b] - 1) < 0.1);
    }
    wf_arrivals(HUGE_VAL, 1, 3, N, at);
    assert_true(at[N - 1] == 0);
}

static void test_random_lengths(void **state)
{
    wf_request_specs a = {0};
    uint32_t low = UINT32_MAX, high = 0;
    assert_ok(wf_request_specs_random(2000, 100, 10, 0.25, 1, &a));
    for (size_t i = 0; i < a.n; i++) {
        low = WF_MIN(low, a.list[i].n_in);
        high = WF_MAX(high, a.list[i].n_in);
        assert_true(a.list[i].n_out >= 7 && a.list[i].n_out <= 13);
    }
    assert_int_equal(low, 75);
    assert_int_equal(high, 125);
    wf_request_specs_free(&a);
}

/* ---- traces ----------------------------------------------------------------------------------- */

static weft_status read_text(const char *text, wf_request_specs *out)
{
    const char *path = file_of(text);
    weft_status s = wf_trace_read(path, out);
    unlink(path);
    return s;
}

static void test_trace(void **state)
{
    wf_request_specs a = {0};
    assert_ok(read_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,374,44\r\n"
                        "2023-11-17 00:00:01.2500000,396,109\n\n2023-11-17 00:00:00.5,1,0\n",
                        &a));
    assert_int_equal(a.n, 3);
    assert_int_equal(a.list[0].n_in, 374);
    assert_int_equal(a.list[1].n_out, 109);
    near(a.list[0].at, 0);
    near(a.list[1].at, 1.75);
    near(a.list[2].at, 1);
    assert_ok(wf_request_specs_repeat(&a, 7));
    assert_int_equal(a.n, 7);
    assert_int_equal(a.list[6].n_in, 374);
    wf_request_specs_free(&a);
    assert_ok(read_text("GeneratedTokens,x,ContextTokens\n5,y,6", &a));
    assert_int_equal(a.list[0].n_in, 6);
    assert_true(a.list[0].at < 0);
    wf_request_specs_free(&a);
}

static void test_bad_traces(void **state)
{
    static const struct { const char *text, *says;
    } cases[] = {
        {"", "ContextTokens"},
        {"a,b\n1,2\n", "ContextTokens"},
        {"ContextTokens,GeneratedTokens\n", "no requests"},
        {"ContextTokens,GeneratedTokens\n1,2\n3\n", "line 3"},
        {"ContextTokens,GeneratedTokens\n-1,2\n", "line 2"},
        {"ContextTokens,GeneratedTokens\n1,2x\n", "line 2"},
        {"ContextTokens,GeneratedTokens\n99999999999999999999,2\n", "line 2"},
        {"ContextTokens,GeneratedTokens\n1,20000000\n", "line 2"},
    };
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_request_specs a = {0};
        assert_error(read_text(cases[i].text, &a), WEFT_ERR_IO, cases[i].says);
        wf_request_specs_free(&a);
    }
}

/* ---- events ----------------------------------------------------------------------------------- */

static bool collect(void *user, const char *data, size_t len)
{
    strncat(user, data, len);
    strcat(user, "|");
    return len != 4 || memcmp(data, "STOP", 4) != 0;
}

static void test_events(void **state)
{
    static const char text[] =
        ": comment\nevent: x\ndata: {\"a\": 1}\r\n\r\ndata:b\n\ndata:\ndata:  c \n\nid\ndata: [DONE]\n\n";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        char got[256] = "";
        wf_sse s = {0};
        assert_true(wf_sse_add(&s, text, cut, collect, got));
        assert_true(wf_sse_add(&s, text + cut, sizeof text - 1 - cut, collect, got));
        assert_string_equal(got, "{\"a\": 1}|b|| c |[DONE]|");
        assert_int_equal(s.n_events, 5);
        wf_sse_free(&s);
    }
    char got[64] = "";
    wf_sse s = {0};
    assert_false(wf_sse_add(&s, "data: STOP\ndata: x\n", 19, collect, got));
    assert_string_equal(got, "STOP|");
    wf_sse_free(&s);
}

static void test_endless_line(void **state)
{
    static char block[1 << 16];
    char got[8] = "";
    wf_sse s = {0};
    size_t sent = 0;
    memset(block, 'x', sizeof block);
    while (sent <= WF_SSE_LINE && wf_sse_add(&s, block, sizeof block, collect, got)) sent += sizeof block;
    assert_int_equal(sent, WF_SSE_LINE);
    wf_sse_free(&s);
}

SUITE(loadgen, NULL, NULL, CASE(test_metrics), CASE(test_peak), CASE(test_peak_of_a_part),
      CASE(test_requests_that_touch), CASE(test_goodput), CASE(test_nothing), CASE(test_arrivals),
      CASE(test_random_lengths), CASE(test_trace), CASE(test_bad_traces), CASE(test_events), CASE(test_endless_line))
