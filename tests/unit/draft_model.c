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

SUITE(draft_model, open_demo, close_demo, CASE(answers_are_the_same), CASE(parameters))
