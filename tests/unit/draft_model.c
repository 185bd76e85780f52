/* draft_model: answers with drafts of a smaller model are those without, whatever it drafts. */
#include <weft/debug.h>

#include "support/answers.h"

static const struct weft_debug always = {.draft_always = true};

static struct weft_engine_params params_of(const struct weft_model *draft)
{
    return (struct weft_engine_params){.device = "cpu", .n_seqs = MANY, .context = 128, .max_batched_tokens = 64,
                                       .deterministic = true, .draft_tokens = draft ? 5 : 0, .draft_model = draft,
                                       .debug = &always};
}

static void answers_are_the_same(void **state)
{
    static answer want[MANY], got[MANY];
    struct weft_engine *e = demo_engine(params_of(NULL));
    ask_all(e, want);
    weft_engine_close(e);
    e = demo_engine(params_of(model)); /* the same: all that it drafts for greedy requests is right */
    ask_all(e, got);
    assert_same(got, want, MANY, 0);
    struct weft_stats s = stats_of(e);
    assert_true(s.draft_accepted >= ANSWER && s.draft_accepted < s.draft_tokens);
    weft_engine_close(e);
}

/* Up to the end of the context, which both models have; the caller has closed the draft model. */
static void to_the_end_of_the_context(void **state)
{
    static int32_t ids[2][128];
    uint32_t n[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct weft_model *draft = NULL;
        if (i) assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &draft));
        struct weft_engine *e = demo_engine(params_of(draft));
        weft_model_close(draft);
        struct weft_request *r = submit_to(e, (struct weft_request_params){
            .prompt = "One day", .max_tokens = 1000, .ignore_eos = true, .pull = true});
        for (const struct weft_event *ev; !weft_next(r, 60000, &ev) && ev->kind != WEFT_EVENT_DONE;)
            if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0) ids[i][n[i]++] = ev->id;
        weft_request_free(r);
        weft_engine_close(e);
    }
    assert_true(n[0] > 100 && n[0] == n[1]);
    assert_memory_equal(ids[0], ids[1], n[0] * sizeof *ids[0]);
}

/* Neither a cancelled request nor a closed engine waits for what is drafted. */
static void given_up(void **state)
{
    static answer a[MANY];
    struct weft_engine *e = demo_engine(params_of(model));
    struct weft_request *r[MANY];
    for (int i = 0; i < MANY; i++) r[i] = ask(e, i, &a[i]);
    while (!a[0].n) usleep(100);
    weft_cancel(r[0]);
    weft_wait(r[0], 0);
    weft_engine_close(e);
    for (int i = 0; i < MANY; i++) weft_request_free(r[i]);
}

static void refuse(struct weft_engine_params p, enum weft_status status, const char *words)
{
    struct weft_engine *e = NULL;
    assert_error(weft_engine_open(model, &p, &e), status, words);
    assert_null(e);
}

static void parameters(void **state)
{
    struct weft_model *other = NULL;
    struct weft_engine_params p = params_of(model);
    assert_ok(weft_model_open(&(struct weft_model_params){.path = "tests/model/data/llama"}, &other));
    refuse(params_of(other), WEFT_ERR_ARG, "has another text than that of");
    weft_model_close(other);
    p.draft_tokens = 0;
    refuse(p, WEFT_ERR_ARG, "drafts nothing");
    p = params_of(model);
    p.device = "cpu,cpu", p.tensor_parallel = 2;
    refuse(p, WEFT_ERR_UNSUPPORTED, "one device");
}

SUITE(draft_model, open_demo, close_demo, CASE(answers_are_the_same), CASE(to_the_end_of_the_context), CASE(given_up),
      CASE(parameters))
