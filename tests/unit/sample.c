/* sample: the host sampler and the op SAMPLE give the same token, and both follow the rule as an independent
 * sort would. Philox gives the words its authors publish. */
#include <math.h>

#include "engine/engine.h"
#include "support/skip.h"
#include "verify/bind.h"
#include "support/suite.h"

#define N 500
#define WINDOW 64 /* most tokens of a request here */
#define MOST 128  /* room for its adjusted logits */
#define WORDS ((N + 31) / 32) /* of bits of what is allowed */

static uint64_t seed, draws;

static uint32_t below(uint32_t n) { return (uint32_t)(wf_random(seed, draws++) % n); }

/* Known answers of Random123's kat_vectors. */
static void test_philox(void **state)
{
    static const uint32_t in[3][6] = {
        {0}, {~0u, ~0u, ~0u, ~0u, ~0u, ~0u}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}};
    static const uint32_t want[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        wf_philox(in[i], in[i] + 4, out);
        assert_memory_equal(out, want[i], sizeof out);
    }
}

/* ---- the rule, by a full sort ---------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    const wf_token_logit *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

static uint32_t kept_of(const wf_sampling_params *params, const float *z, wf_token_logit *c)
{
    double sum = 0, part = 0;
    for (int32_t i = 0; i < N; i++) c[i] = (wf_token_logit){z[i], i};
    qsort(c, N, sizeof *c, descending);
    uint32_t n = params->top_k > 0 && params->top_k < N ? (uint32_t)params->top_k : N, kept = n;
    for (uint32_t i = 0; i < n; i++) sum += exp(c[i].logit);
    if (params->top_p > 0 && params->top_p < 1)
        for (kept = 0; part < params->top_p * sum && kept < n;) part += exp(c[kept++].logit);
    while (params->min_p > 0 && kept > 1 && exp(c[kept - 1].logit - c[0].logit) < params->min_p) kept--;
    return kept;
}

static int ascending(const void *a, const void *b)
{
    return ((const wf_token_logit *)a)->id - ((const wf_token_logit *)b)->id;
}

static int32_t by_sorting(const wf_sampling_params *params, const float *z)
{
    wf_token_logit c[N];
    uint32_t n = kept_of(params, z, c), i = 0;
    double sum = 0, part = 0;
    if (params->temperature == 0) return c[0].id;
    qsort(c, n, sizeof *c, ascending);
    for (i = 0; i < n; i++) sum += exp(c[i].logit / params->temperature);
    for (i = 0; i + 1 < n; i++) {
        part += exp(c[i].logit / params->temperature);
        if (part > wf_philox_unit(params->seed, params->counter) * sum) break;
    }
    return c[i].id;
}

static wf_sampling_params random_params(void)
{
    return (wf_sampling_params){.temperature = below(6) ? 0.2f + (float)below(20) / 10 : 0,
                                .top_k = below(2) ? (int32_t)below(N + 50) : 0,
                                .top_p = below(2) ? (float)below(101) / 100 : 0,
                                .min_p = below(3) ? 0 : (float)below(101) / 100, .seed = wf_random(seed, draws++),
                                .counter = below(1000)};
}

static void random_logits(float *z)
{
    bool coarse = below(2); /* with ties */
    for (int i = 0; i < N; i++) z[i] = coarse ? (float)below(30) / 2 - 8 : (float)below(1u << 20) * 0x1p-16f - 8;
}

static void test_rule(void **state)
{
    float z[N];
    wf_token_logit scratch[N];
    int clear = 0;
    for (int i = 0; i < 20000; i++) {
        double margin;
        wf_sampling_params params = random_params();
        random_logits(z);
        int32_t got = wf_sample_row(&params, z, N, scratch, &margin), want = by_sorting(&params, z);
        clear += margin > 1e-6;
        if (got != want && margin > 1e-6)
            fail_msg("seed %llu, %d: temperature %g top_k %d top_p %g min_p %g: %d, not %d", (unsigned long long)seed,
                     i, params.temperature, params.top_k, params.top_p, params.min_p, got, want);
    }
    assert_true(clear > 10000); /* else the margin would excuse everything */
}

/* Tokens come as often as their probabilities say: chi-square with 4 degrees of freedom, 1 in 10^6. */
static void test_frequencies(void **state)
{
    static const double share[] = {0.5, 0.25, 0.125, 0.0625, 0.0625};
    float z[5];
    wf_token_logit scratch[5];
    int count[5] = {0}, n = 100000;
    for (int i = 0; i < 5; i++) z[i] = (float)log(share[i]);
    for (int i = 0; i < n; i++)
        count[wf_sample_row(&(wf_sampling_params){.temperature = 1, .seed = seed, .counter = (uint64_t)i}, z, 5,
                            scratch, NULL)]++;
    double chi2 = 0;
    for (int i = 0; i < 5; i++) chi2 += (count[i] - n * share[i]) * (count[i] - n * share[i]) / (n * share[i]);
    assert_true(chi2 < 33.4);
}

/* ---- host and device ------------------------------------------------------------------------------------------ */

typedef struct device {
    wf_dev *dev;
    wf_queue *q;
    wf_buf *buf;
    wf_call call;
} device;

static wf_view place(device *d, uint64_t *at, uint8_t dtype, uint32_t rows, uint32_t cols)
{
    wf_view v = {.buf = d->buf, .offset = *at, .rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
    *at += WF_UP((uint64_t)rows * cols * 4, 4096);
    return v;
}

static void open_device(const char *name, device *d)
{
    uint64_t at = 0;
    assert_ok(wf_dev_open(name, NULL, &d->dev));
    assert_ok(wf_queue_create(d->dev, &d->q));
    assert_ok(wf_buf_create(d->dev, 1 << 20, &d->buf));
    static const struct {
        uint8_t dtype;
        uint32_t rows, cols;
    } in[] = {{WF_F32, 1, N}, {WF_F32, 1, 3}, {WF_I32, 1, 8}, {WF_I32, 1, 4}, {WF_I32, 1, MOST}, {WF_F32, MOST, 3},
            {WF_I32, 1, WORDS + 1}};
    d->call = (wf_call){.op = WF_OP_SAMPLE, .variant = -1};
    for (size_t i = 0; i < WF_LEN(in); i++) d->call.in[i] = place(d, &at, in[i].dtype, in[i].rows, in[i].cols);
    d->call.out[WF_SAMPLE_Y] = place(d, &at, WF_I32, 1, 1);
    d->call.out[WF_SAMPLE_Z] = place(d, &at, WF_F32, 1, N);
    assert_ok(wf_prepare(d->dev, &d->call, &d->call.variant));
}

static void close_device(device *d)
{
    wf_buf_destroy(d->buf);
    wf_queue_destroy(d->q);
    wf_dev_close(d->dev);
}

static void put(device *d, int operand, const void *data, size_t size)
{
    assert_ok(wf_write(d->q, d->buf, d->call.in[operand].offset, data, size, NULL, 0, NULL));
}

/* A request's penalties and biases, behind n tokens of which the first two are its prompt. pending: the last one is one
 * that the device alone knows, the third of the step. */
static int32_t on_device(device *d, const wf_sampling_params *p, const float *x, const wf_logits_processors *a,
                         const int32_t *tokens, uint32_t n, bool pending)
{
    const float params[3] = {p->temperature, p->top_p, p->min_p};
    const int32_t step[4] = {-1, -1, tokens[n - 1], -1};
    int32_t ids[MOST], id = -1;
    wf_adjust adjust[MOST];
    uint32_t k = wf_logits_processors_list(a, tokens, n - pending, pending, 2, ids + 1, adjust + 1);
    assert_true(k + 1 < MOST);
    const int32_t key[8] = {p->top_k, (int32_t)p->seed, (int32_t)(p->seed >> 32), (int32_t)p->counter,
                            (int32_t)(p->counter >> 32), 1, 1 + (int32_t)k, a->allowed ? 1 : -1};
    put(d, 0, x, N * sizeof *x), put(d, 1, params, sizeof params), put(d, 2, key, sizeof key);
    put(d, 3, step, sizeof step), put(d, 4, ids, sizeof ids), put(d, 5, adjust, sizeof adjust);
    uint32_t allowed[WORDS + 1] = {0};
    if (a->allowed) memcpy(allowed + 1, a->allowed, WORDS * sizeof *allowed);
    put(d, 6, allowed, sizeof allowed);
    assert_ok(wf_submit(d->q, &d->call));
    assert_ok(wf_read(d->q, d->buf, d->call.out[WF_SAMPLE_Y].offset, &id, sizeof id, NULL, 0, NULL));
    assert_ok(wf_finish(d->q));
    return id;
}

static struct weft_request_params random_request(struct weft_logit_bias bias[4])
{
    struct weft_request_params r = {.bias = bias, .n_bias = below(5)};
    for (size_t i = 0; i < r.n_bias; i++) bias[i] = (struct weft_logit_bias){(int32_t)below(20), (float)below(9) - 4};
    if (below(3)) r.sampling.repeat_penalty = 1 + (float)below(8) / 8, r.sampling.repeat_last_n = (int32_t)below(9) - 1;
    if (below(2)) r.sampling.frequency_penalty = (float)below(16) / 8;
    if (below(2)) r.sampling.presence_penalty = (float)below(16) / 8;
    return r;
}

/* What the host knows, and what the device finds out, give the token that the host samples. Draws in which rounding
 * decides may differ: they are recognised by their margin, and rare. */
static void compare_on(const char *name)
{
    enum { PROMPT = 2 };
    device d = {0};
    float x[N];
    wf_token_logit scratch[2 * N], more[N];
    int32_t tokens[WINDOW], want = -1;
    int unclear = 0;
    open_device(name, &d);
    for (int i = 0; i < 300; i++) {
        wf_sampling_params params = random_params();
        struct weft_logit_bias bias[4];
        struct weft_request_params r = random_request(bias);
        struct weft_sampling s = {params.temperature, params.top_k, params.top_p, params.min_p, 0, params.seed};
        uint32_t n = PROMPT + 1 + below(WINDOW - PROMPT);
        double margin = 1;
        random_logits(x);
        for (uint32_t k = 0; k < n; k++) tokens[k] = (int32_t)below(20);
        wf_logits_processors a;
        assert_ok(wf_logits_processors_init(&a, N, &r, tokens, PROMPT));
        assert_ok(wf_logits_processors_add_end(&a, (int32_t)below(20)));
        a.forbid_ends = below(2);
        uint32_t allowed[WORDS];
        for (uint32_t k = 0; k < WORDS; k++) allowed[k] = below(3) ? below(UINT32_MAX) & below(UINT32_MAX) : 0;
        allowed[below(N) / 32] |= 1; /* one at least */
        if (below(2)) a.allowed = allowed;
        uint64_t most = wf_logits_processors_most(&a, n - PROMPT);
        for (uint32_t k = PROMPT + 1; k < n; k++) assert_ok(wf_logits_processors_add_token(&a, tokens, k));
        int32_t pending = on_device(&d, &params, x, &a, tokens, n, true);
        assert_ok(wf_logits_processors_add_token(&a, tokens, n));
        assert_true(a.n <= most);
        int32_t known = on_device(&d, &params, x, &a, tokens, n, false);
        assert_ok(wf_sample(&s, &a, x, N, params.counter, scratch, &want));
        if (s.temperature > 0) wf_sample_row(&params, (float *)(scratch + N), N, more, &margin);
        wf_logits_processors_free(&a);
        unclear += margin < 2e-5;
        assert_int_equal(pending, known);
        if (known != want && margin >= 2e-5)
            fail_msg("%s, seed %llu, %d: %d on the device, %d on the host", name, (unsigned long long)seed, i, known,
                     want);
    }
    assert_true(unclear < 150);
    close_device(&d);
}

static void test_cpu(void **state) { compare_on("cpu"); }

/* A device that is listed and cannot be opened fails the test. */
static void test_opencl(void **state)
{
    struct weft_device_info list[16];
    size_t i = 0, n = wf_dev_list(list, WF_LEN(list));
    while (i < n && i < WF_LEN(list) && strncmp(list[i].id, "opencl:", 7)) i++;
    if (i == WF_MIN(n, WF_LEN(list))) SKIP_TEST("no OpenCL device");
    compare_on(list[i].id);
}

static void test_not_finite(void **state)
{
    float x[N] = {0};
    wf_token_logit scratch[2 * N];
    int32_t id = 0;
    x[7] = NAN;
    for (int hot = 0; hot < 2; hot++) {
        assert_int_equal(wf_sample(&(struct weft_sampling){.temperature = (float)hot}, NULL, x, N, 1, scratch, &id),
                         WEFT_ERR_NOT_FINITE);
        assert_says("token 7");
    }
    assert_error(wf_sample_chosen(-8, &id), WEFT_ERR_NOT_FINITE, "token 7");
    assert_ok(wf_sample_chosen(7, &id));
    assert_int_equal(id, 7);
}

/* As vLLM has them: the repetition penalty divides positive logits of tokens of prompt or answer and multiplies others;
 * presence and frequency are subtracted after it, for tokens of the answer alone. Powers of two: every value is exact.
 */
static void test_penalties(void **state)
{
    static const int32_t tokens[] = {1, 2, 2, 6, 3, 4, 5, 5, 5, 6, 6, 6}; /* four of them the prompt */
    static const float logits[8] = {2, 2, -2, 2, -2, 4, -4, -8};
    static const float want[8] = {2, 1, -4, 1 - 0.75f, -4 - 0.75f, 2 - 0.5f - 3 * 0.25f, -8 - 0.5f - 3 * 0.25f, -8};
    const struct weft_request_params p = {
        .sampling = {.repeat_penalty = 2, .presence_penalty = 0.5f, .frequency_penalty = 0.25f}};
    wf_logits_processors a;
    float z[8];
    assert_ok(wf_logits_processors_init(&a, 8, &p, tokens, 4));
    for (size_t n = 5; n <= WF_LEN(tokens); n++) assert_ok(wf_logits_processors_add_token(&a, tokens, n));
    memcpy(z, logits, sizeof z);
    wf_logits_processors_apply(&a, z);
    assert_memory_equal(z, want, sizeof z);
    wf_logits_processors_free(&a);
}

/* Tokens leave the window of the repetition penalty, and stay generated where that counts. */
static void test_penalty_window(void **state)
{
    static const int32_t tokens[6] = {0, 1, 1, 2, 1, 3}; /* three of them the prompt */
    static const struct {
        int32_t window;
        uint32_t want[4][2]; /* recent, generated */
    } rows[] = {
        {0, {{1, 0}, {3, 1}, {1, 1}, {1, 1}}}, {6, {{1, 0}, {3, 1}, {1, 1}, {1, 1}}},
        {5, {{0, 0}, {3, 1}, {1, 1}, {1, 1}}}, {3, {{0, 0}, {1, 1}, {1, 1}, {1, 1}}},
        {1, {{0, 0}, {0, 1}, {0, 1}, {1, 1}}},
    };
    for (size_t k = 0; k < 2 * WF_LEN(rows); k++) {
        const struct weft_request_params p = {.sampling = {.repeat_penalty = 2, .frequency_penalty = (float)(k % 2),
                                                           .repeat_last_n = rows[k / 2].window}};
        wf_logits_processors a;
        assert_ok(wf_logits_processors_init(&a, 4, &p, tokens, 3));
        for (size_t n = 4; n <= 6; n++) assert_ok(wf_logits_processors_add_token(&a, tokens, n));
        for (int32_t id = 0; id < 4; id++) {
            const uint32_t *want = rows[k / 2].want[id];
            bool there = want[0] || (want[1] && k % 2);
            assert_int_equal(a.place[id] > 0, there);
            if (!there) continue;
            const wf_changed *t = &a.list[a.place[id] - 1];
            assert_int_equal(t->id, id);
            assert_int_equal(t->recent, want[0]);
            if (k % 2) assert_int_equal(t->generated, want[1]);
        }
        wf_logits_processors_free(&a);
    }
}

SUITE_MAIN(sample)
{
    const struct CMUnitTest tests[] = {CASE(test_philox), CASE(test_rule), CASE(test_frequencies), CASE(test_cpu),
        CASE(test_opencl), CASE(test_not_finite), CASE(test_penalties), CASE(test_penalty_window)};
    seed = wf_now_ns();
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
