/* chunk: which steps `weft tune --dataset-path` chooses for a load, on the null device, whose steps take as long
 * as the test says; and the ratio that it keeps. */
#include "support/null_device.h"
#include "engine/engine.h"
#include "select/select.h"
#include "lab/lab.h"
#include "support/demo.h"
#include "support/folder.h"
#include "support/wraps.h"

static const char *path;

/* ---- time, which passes as the device computes: so much of it that what else the machine does is nothing ---- */

#define MS 1000000.0
static double (*step_ms)(uint32_t tokens);

/* Of an op that each layer has once. */
static uint64_t cost(const wf_call *c)
{
    uint64_t ns = c->op == WF_OP_ROPE_KV && step_ms
                      ? (uint64_t)(step_ms(c->out[0].rows) * MS / weft_model_info(model)->n_layer)
                      : 0;
    test_clock_ahead += ns;
    return ns;
}

static double per_token(uint32_t tokens) /* whatever their number */ { return 1e5 * tokens; }

static double until_128(uint32_t tokens) /* no longer than fewer */ { return 1e5 * (tokens <= 128 ? 128 : tokens); }

static double constant(uint32_t tokens)
{
    return 1e7;
}

/* ---- loads ----------------------------------------------------------------------------------------- */

enum { SEQS = 16, TOKENS = 512, CONTEXT = 1024, MOST = 32 };

typedef struct table {
    struct weft_chunk_row rows[MOST], chosen;
    size_t n, n_chosen;
    double ratio;
} table;

static void on_row(void *user, const struct weft_chunk_row *r)
{
    table *t = user;
    assert_true(t->n < MOST);
    t->rows[t->n++] = *r;
    if (r->chosen) t->chosen = *r, t->n_chosen++;
}

static bool stop(void *user)
{
    return true;
}

static struct weft_engine *open_engine(const char *policy, const char *tuned)
{
    return demo_engine((struct weft_engine_params){.device = "null",
                                                   .policy = policy,
                                                   .n_seqs = SEQS,
                                                   .context = CONTEXT,
                                                   .max_batched_tokens = TOKENS,
                                                   .tuned = tuned,
                                                   .watchdog_ms = 1000000000});
}

static weft_status tune_with(weft_stop_fn stops, uint32_t prompt, uint32_t generated, table *t)
{
    struct weft_engine *e = open_engine("sarathi", NULL);
    const uint32_t prompts[] = {prompt, prompt}, answers[] = {generated, generated};
    *t = (table){.n = 0};
    struct weft_chunk_params p = {.prompts = prompts, .generated = answers, .n = 2, .path = path, .ratio = &t->ratio,
                                  .on_row = on_row, .stop = stops, .user = t};
    weft_status s = weft_tune_chunk(e, &p, NULL, 0);
    weft_engine_close(e);
    return s;
}

static table tune(double (*ms)(uint32_t), uint32_t prompt, uint32_t generated)
{
    table t;
    step_ms = ms;
    assert_ok(tune_with(NULL, prompt, generated, &t));
    assert_int_equal(t.n_chosen, 1);
    return t;
}

/* Time of a load with such steps, one step after another: prompts come with decodes, then what is left of the answers
 * decodes alone. */
static double seconds(const struct weft_chunk_row *r, double (*ms)(uint32_t), double n, double prompt, double generated)
{
    double time = 0, prompts = n * prompt, answers = n * generated;
    for (; prompts > 0; prompts -= r->chunk, answers -= r->decodes) time += ms(r->chunk + r->decodes);
    for (; answers > 0; answers -= SEQS) time += ms(SEQS);
    return time / 1e3;
}

/* ---- tests ----------------------------------------------------------------------------------------- */

/* What rows say comes true. */
static void rates(void **state)
{
    static const uint32_t loads[][2] = {{500, 20}, {500, 100}, {20, 400}, {700, 1}};
    for (size_t i = 0; i < WF_LEN(loads); i++) {
        double p = loads[i][0], d = loads[i][1], n = 1000;
        table t = tune(until_128, loads[i][0], loads[i][1]);
        assert_true(t.ratio == p / d);
        for (const struct weft_chunk_row *r = t.rows; r < t.rows + t.n; r++) {
            double rate = n * (p + d) / seconds(r, until_128, n, p, d);
            assert_true(r->chunk + r->decodes <= r->tokens && r->decodes < SEQS && r->decodes <= r->chunk * d / p + 1);
            bool true_rate = r->rate < 1.02 * rate && rate < 1.02 * r->rate; /* whole steps */
            if (!true_rate)
                fail_msg("%g:%g, %s, %u tokens: %g tokens/s, not %g", p, d, r->policy, r->tokens, r->rate, rate);
        }
    }
}

/* Chunks last as long as decodes: 16 sequences at P:D = 5 have 15 decodes beside 75 prompt tokens. */
static void steps(void **state)
{
    table t = tune(per_token, 500, 100);
    bool balanced = false;
    for (const struct weft_chunk_row *r = t.rows; r < t.rows + t.n; r++)
        balanced |= r->tokens == 90 && r->decodes >= 14 && !strcmp(r->policy, "sarathi");
    assert_true(balanced && t.rows[0].tokens == 64 && t.rows[t.n - 1].tokens == TOKENS);
    for (size_t i = 1; i < t.n; i++)
        assert_true(t.rows[i].tokens > t.rows[i - 1].tokens || strcmp(t.rows[i].policy, t.rows[i - 1].policy));
}

static void choices(void **state)
{
    assert_int_equal(tune(per_token, 500, 50).chosen.tokens, 64);    /* larger ones gain nothing */
    assert_int_equal(tune(until_128, 500, 20).chosen.tokens, 128);
    assert_string_equal(tune(until_128, 500, 20).chosen.policy, "nanoflow"); /* the last chunk of a prompt is shorter */
    assert_string_equal(tune(until_128, 492, 20).chosen.policy, "sarathi");  /* four whole ones */
    assert_int_equal(tune(constant, 5020, 100).chosen.tokens, TOKENS);
    assert_string_equal(tune(constant, 5020, 100).chosen.policy, "sarathi");
    assert_string_equal(tune(constant, 40, 2).chosen.policy, "nanoflow"); /* one prompt does not fill a step */
}

/* The next engine begins with the ratio, also if nothing was measured. */
static void ratio_is_kept(void **state)
{
    table t;
    step_ms = constant;
    assert_ok(tune_with(stop, 300, 40, &t));
    assert_true(t.n == 0 && t.ratio == 7.5);
    for (int kept = 0; kept < 2; kept++) {
        struct weft_engine *e = open_engine("sarathi", kept ? path : "none");
        assert_true(stats_of(e).prefill_decode_ratio == (kept ? 7.5 : 0));
        weft_engine_close(e);
    }
}

static void odd_loads(void **state)
{
    table t;
    step_ms = constant;
    assert_int_equal(tune_with(NULL, 0, 10, &t), WEFT_ERR_ARG);
    assert_error(tune_with(NULL, 10, 0, &t), WEFT_ERR_ARG, "no ratio");
    assert_ok(tune_with(NULL, 10 * CONTEXT, 10 * CONTEXT, &t)); /* longer than the engine's */
    assert_true(t.n_chosen == 1);
}

static int setup(void **state)
{
    if (make_folder(state)) return 1;
    path = in_folder("a.tune");
    wf_null_configure(&(wf_null_config){.cost_ns = cost});
    return open_demo(state);
}

static int teardown(void **state)
{
    close_demo(state);
    return remove_folder(state);
}

SUITE(chunk, setup, teardown, CASE(rates), CASE(steps), CASE(choices), CASE(ratio_is_kept), CASE(odd_loads))
