/* ranks: engines that compute on several devices: what they answer is what one device answers, whatever runs beside it,
 * and a device that fails takes its requests with it and nothing else. On CPUs, of which a device may be several. */
#include <weft/debug.h>

#include "support/null_device.h"
#include "support/answers.h"
#include "support/said.h"

enum { CONTEXT = 128 };
typedef struct layout {
    const char *device;
    uint32_t tp, pp, nano_batches;
    const char *reduce;
} layout;
static const layout alone = {"cpu", 0, 0}, layouts[] = {{"cpu,cpu", 2, 0}, {"cpu,cpu", 2, 0, 2},
    {"cpu,cpu", 2, 0, 1, "f16"}, {"cpu,cpu,cpu", 1, 3}, {"cpu,cpu,cpu,cpu", 2, 2, 3, "f32"}};

/* How far logprobs are from those of one device. */
static float rounding_of(layout l)
{
    return l.tp < 2 ? 0 : l.reduce && !strcmp(l.reduce, "f16") ? 1e-2f : 1e-3f;
}

static struct weft_engine_params params_of(layout l)
{
    return (struct weft_engine_params){.device = l.device, .tensor_parallel = l.tp, .pipeline_parallel = l.pp,
                                       .nano_batches = l.nano_batches, .reduce_dtype = l.reduce,
                                       .n_seqs = MANY, .context = CONTEXT, .max_batched_tokens = 48, .threads = 2,
                                       .deterministic = true};
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

/* Several at once as one after the other, bit by bit; and as on one device, where sums of parts round otherwise. */
static void same_answers(void **state)
{
    static answer want[MANY], together[MANY], single[MANY];
    struct weft_engine *e = demo_engine(params_of(alone));
    ask_all(e, want);
    weft_engine_close(e);
    for (size_t l = 0; l < WF_LEN(layouts); l++) {
        e = demo_engine(params_of(layouts[l]));
        ask_all(e, together);
        for (int i = 0; i < MANY; i++) assert_ok(end_of(ask(e, i, &single[i])));
        assert_same(together, single, MANY, 0);
        assert_same(together, want, MANY, rounding_of(layouts[l]));
        weft_engine_close(e);
    }
}

/* Prompts of more tokens in a step than devices exchange in a piece, which is a megabyte. */
static void several_pieces(void **state)
{
    enum { LONG = 420, N = 4 }; /* the first may be alone in its step */
    static answer a[2][N];
    static int32_t ids[LONG];
    for (size_t l = 0; l < 2; l++) {
        struct weft_engine_params p = params_of(l ? layouts[0] : alone);
        struct weft_request *r[N];
        p.context = 512, p.max_batched_tokens = 2048;
        struct weft_engine *e = demo_engine(p);
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < LONG; k++) ids[k] = 3 + (k * k + 7 * k * i + i) % 2000;
            a[l][i] = (answer){.status = WEFT_ERR_INTERNAL};
            r[i] = submit_to(e, (struct weft_request_params){.tokens = ids, .n_tokens = LONG,
                                                             .max_tokens = ANSWER, .ignore_eos = true,
                                                             .on_event = take_event, .user = &a[l][i]});
        }
        for (int i = 0; i < N; i++) assert_ok(end_of(r[i]));
        weft_engine_close(e);
    }
    assert_same(a[1], a[0], N, 1e-3f);
}

/* Sequences lose their pages, which are computed again; others are cancelled. */
static void little_memory(void **state)
{
    static answer want[MANY], got[MANY], gone;
    struct weft_engine *e = demo_engine(params_of(alone));
    for (int i = 0; i < MANY; i++) assert_ok(end_of(ask(e, i, &want[i])));
    weft_engine_close(e);
    for (size_t l = 0; l < WF_LEN(layouts); l++) {
        struct weft_engine_params p = params_of(layouts[l]);
        p.kv_seqs = 1;
        e = demo_engine(p);
        struct weft_request *cancelled = ask(e, 2, &gone);
        for (int round = 0; round < 2; round++) {
            struct weft_request *r[MANY];
            for (int i = 0; i < MANY; i++) r[i] = ask(e, i, &got[i]);
            if (!round) weft_cancel(cancelled);
            for (int i = 0; i < MANY; i++) assert_ok(end_of(r[i]));
            assert_same(got, want, MANY, rounding_of(layouts[l]));
        }
        weft_request_free(cancelled);
        struct weft_stats s = stats_of(e);
        assert_int_equal(s.running + s.waiting, 0);
        weft_engine_close(e);
    }
}

/* Another device computes the feed-forwards of a mixture, or of its first layers: the same bits. */
static void experts_elsewhere(void **state)
{
    static const char *const where[] = {NULL, "cpu", "cpu=1", "cpu"};
    static answer a[WF_LEN(where)][MANY];
    struct weft_model *mixture = NULL;
    assert_ok(weft_model_open(&(struct weft_model_params){.path = "tests/model/data/qwen3moe"}, &mixture));
    for (size_t i = 0; i < WF_LEN(where); i++) {
        struct weft_engine_params p = params_of(alone);
        p.experts = where[i];
        p.context = 2 * CONTEXT; /* it has more tokens for a text */
        p.nano_batches = i == 3 ? 12 : 1;
        struct weft_engine *e = engine_of(mixture, p);
        ask_all(e, a[i]);
        weft_engine_close(e);
        assert_same(a[i], a[0], MANY, 0);
    }
    weft_model_close(mixture);
}

/* Closing ends what is in flight on all devices. */
static void close_in_the_middle(void **state)
{
    static answer a[MANY];
    for (size_t l = 0; l < WF_LEN(layouts); l++) {
        struct weft_engine *e = demo_engine(params_of(layouts[l]));
        struct weft_request *r[MANY];
        for (int i = 0; i < MANY; i++) r[i] = ask(e, i, &a[i]);
        while (!a[0].n) usleep(100);
        weft_engine_close(e);
        for (int i = 0; i < MANY; i++) weft_request_free(r[i]);
    }
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

/* The second device fails, or never answers, at the nth call; what waits for it is told. */
static void one_device_fails(void **state)
{
    static const layout mixed[] = {{"cpu,null", 2, 0}, {"cpu,null", 0, 2}, {"null,cpu", 0, 2}};
    static const uint32_t nths[] = {1, 2, 40, 300};
    for (size_t l = 0; l < WF_LEN(mixed); l++)
        for (size_t i = 0; i < 2 * WF_LEN(nths); i++) {
            answer a;
            struct weft_engine_params p = params_of(mixed[l]);
            p.calibration = "none";
            struct weft_engine *e = demo_engine(p);
            wf_null_configure(&(wf_null_config){.slot = i % 2 ? WF_NULL_SUBMIT : WF_NULL_ANY, .nth = nths[i / 2],
                                                .status = WEFT_ERR_DEVICE});
            enum weft_status s = end_of(ask(e, 0, &a));
            assert_true(s == WEFT_ERR_DEVICE || s == WEFT_ERR_NOT_FINITE || s == WEFT_OK);
            if (s == WEFT_ERR_DEVICE) {
                assert_int_equal(stats_of(e).failed, WEFT_ERR_DEVICE);
                assert_error(weft_submit(e, &(struct weft_request_params){.prompt = "One day"}, NULL), WEFT_ERR_DEVICE,
                             "failed: null device: "); /* told at once, and whose fault it is */
            }
            weft_engine_close(e);
            wf_null_configure(NULL);
            assert_int_equal(wf_null_alive(), 0);
        }
}

/* Opening fails at the nth call of the second device, and leaves nothing. */
static void opening_fails(void **state)
{
    static const layout mixed[] = {{"cpu,null", 2, 0}, {"null,cpu", 0, 2}};
    for (size_t l = 0; l < WF_LEN(mixed); l++)
        for (uint32_t nth = 1; nth < 3000; nth += 1 + nth / 8) {
            struct weft_engine_params p = params_of(mixed[l]);
            struct weft_engine *e = NULL;
            wf_null_configure(&(wf_null_config){.slot = WF_NULL_ANY, .nth = nth, .status = WEFT_ERR_NOMEM});
            enum weft_status s = weft_engine_open(model, &p, &e);
            assert_true(s == WEFT_OK || s == WEFT_ERR_NOMEM);
            assert_int_equal(e == NULL, s != WEFT_OK);
            weft_engine_close(e);
            wf_null_configure(NULL);
            assert_int_equal(wf_null_alive(), 0);
        }
}

/* ---- parameters ------------------------------------------------------------------------------------------------- */

static void refuse(struct weft_engine_params p, enum weft_status status, const char *words)
{
    struct weft_engine *e = NULL;
    assert_error(weft_engine_open(model, &p, &e), status, words);
    assert_null(e);
}

static void parameters(void **state)
{
    refuse(params_of((layout){"cpu", 2, 0}), WEFT_ERR_ARG, "device names 1:");
    refuse(params_of((layout){NULL, 2, 0}), WEFT_ERR_ARG, "device names none:");
    refuse(params_of((layout){"cpu,cpu", 0, 0}), WEFT_ERR_ARG, "1 devices compute");
    refuse(params_of((layout){"cpu,cpu,cpu", 2, 2}), WEFT_ERR_ARG, "4 devices compute");
    refuse(params_of((layout){"cpu,nothing", 0, 2}), WEFT_ERR_NODEVICE, "nothing");
    refuse(params_of((layout){"cpu,", 2, 0}), WEFT_ERR_ARG, "missing beside a comma");
    refuse(params_of((layout){"cpu,cpu,cpu", 3, 0}), WEFT_ERR_UNSUPPORTED, "numbers that can");
    refuse(params_of((layout){"cpu", 0, 60}), WEFT_ERR_ARG, "layers");
    refuse(params_of((layout){"cpu", 64, 2}), WEFT_ERR_ARG, "at most 64");
    refuse(params_of((layout){"cpu,cpu", 2, 0, 1, "f64"}), WEFT_ERR_ARG, "want f16 or f32");
    struct weft_engine_params p = params_of(layouts[0]);
    p.kv_host = 1 << 20;
    refuse(p, WEFT_ERR_UNSUPPORTED, "one device");
    p = params_of(layouts[0]);
    p.calibration = "/nowhere";
    refuse(p, WEFT_ERR_UNSUPPORTED, "one device");
    p = params_of(alone);
    p.experts = "cpu";
    refuse(p, WEFT_ERR_UNSUPPORTED, "no experts");
    static const char *const wrong[] = {"cpu=no", "cpu=0", "cpu=1x", "=1", ""};
    for (size_t i = 0; i < WF_LEN(wrong); i++) {
        p.experts = wrong[i];
        refuse(p, WEFT_ERR_ARG, "DEVICE=N");
    }
}

SUITE(ranks, open_demo, close_demo, CASE(same_answers), CASE(several_pieces), CASE(little_memory),
      CASE(experts_elsewhere), CASE(close_in_the_middle),
      CASE(one_device_fails), CASE(opening_fails), CASE(parameters))
