/* engine_beside: requests whose tokens the host samples beside others, on the CPU, with batch-invariant kernels. They
 * are in every other step then, and give what they give alone, however the engine goes on: with preemption, drafts, two
 * nano-batches, stages, and while some are cancelled. */
#include <weft/debug.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "support/demo.h"

enum { TOKENS = 24, COUNTED = 20, COPIES = 3, MOST = 64 };

typedef struct tally {
    int32_t ids[TOKENS + 1];
    atomic_int n, done;
    struct weft_engine *engine; /* NULL, or whose steps are counted */
    uint64_t steps;
} tally;

static void on_event(void *user, const struct weft_event *ev)
{
    tally *t = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0 && t->n <= TOKENS) t->ids[t->n++] = ev->id;
    if (ev->kind == WEFT_EVENT_DONE) t->done++;
    else if (t->engine && t->n <= COUNTED) t->steps = stats_of(t->engine).steps;
}

static const struct weft_logit_bias bias[] = {{300, 4}, {17, -3}, {301, 2.5f}};
static const struct weft_request_params kinds[] = {
    {.ignore_eos = true},
    {.ignore_eos = true, .logprobs = true},
    {.ignore_eos = true, .sampling = {.temperature = 0.8f, .seed = 3}},
    {.ignore_eos = true, .sampling = {.frequency_penalty = 0.7f, .presence_penalty = 0.3f}},
    {.ignore_eos = true, .sampling = {.temperature = 0.9f, .seed = 5, .top_k = 30, .repeat_penalty = 1.3f}},
    {.ignore_eos = true, .sampling = {.temperature = 1.1f, .seed = 7}, .bias = bias, .n_bias = 3},
    {.min_tokens = 12},
    {.grammar = WEFT_GRAMMAR_REGEX, .grammar_text = "[a-z ]{40}"},
    {.grammar = WEFT_GRAMMAR_OBJECT, .sampling = {.temperature = 0.9f, .seed = 2}},
    {.ignore_eos = true, .prompt_logprobs = true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct weft_request *submit_kind(struct weft_engine *e, int kind, tally *t)
{
    int32_t prompt[40];
    struct weft_request_params p = kinds[kind];
    p.tokens = prompt, p.n_tokens = 3 + (uint32_t)kind * 7 % 37, p.max_tokens = TOKENS;
    for (size_t i = 0; i < p.n_tokens; i++) prompt[i] = (int32_t)(200 + (i * 7919 + (size_t)kind * 104729) % 300);
    p.on_event = on_event, p.user = t;
    return submit_to(e, p);
}

static struct weft_engine *open_cpu(struct weft_engine_params p)
{
    if (!p.device) p.device = "cpu";
    if (!p.context) p.context = 128;
    p.threads = 2, p.deterministic = true;
    return demo_engine(p);
}

/* ---- which steps they are in ----------------------------------------------------------------------------------- */

/* In how many steps the first of n requests, p, gets COUNTED tokens, which the others get, too, and more. */
static uint64_t steps_of(struct weft_request_params p, int n)
{
    static const struct weft_debug always = {.beside_always = true};
    struct weft_request *r[4];
    tally t[4] = {0};
    struct weft_engine *e = open_cpu((struct weft_engine_params){.n_seqs = 4, .context = 1200, .debug = &always});
    close_gate(e);
    t[0].engine = e;
    for (int i = 0; i < n; i++) {
        struct weft_request_params plain = {.max_tokens = 3 * COUNTED}, *q = i ? &plain : &p;
        q->prompt = "One day a cat", q->ignore_eos = true, q->on_event = on_event, q->user = &t[i];
        r[i] = submit_to(e, *q);
    }
    uint64_t before = stats_of(e).steps;
    sem_post(&gate);
    for (int i = 1; i < n; i++) assert_ok(end_of(r[i]));
    while (t[0].n <= COUNTED && !t[0].done) wf_sleep_ns(100000);
    assert_false(t[0].done);
    weft_cancel(r[0]);
    weft_request_free(r[0]);
    weft_engine_close(e);
    return t[0].steps - before;
}

/* What the host samples, be it since too many logits may change, is in every other step, and nothing is beside one that
 * is alone. What the device samples is in each. */
static void every_other_step(void **state)
{
    assert_in_range(steps_of((struct weft_request_params){.logprobs = true}, 4), 2 * COUNTED - 2, 2 * COUNTED + 1);
    assert_in_range(steps_of((struct weft_request_params){.logprobs = true}, 1), COUNTED, COUNTED + 2);
    struct weft_request_params penalised = {.sampling.presence_penalty = 0.5f, .max_tokens = WF_MOST_ADJUSTED};
    assert_in_range(steps_of(penalised, 4), 2 * COUNTED - 2, 2 * COUNTED + 1);
    penalised.max_tokens--;
    assert_in_range(steps_of(penalised, 4), COUNTED, COUNTED + 2);
    penalised.bias = bias, penalised.n_bias = 3;
    assert_in_range(steps_of(penalised, 4), 2 * COUNTED - 2, 2 * COUNTED + 1);
    penalised.max_tokens -= 3;
    assert_in_range(steps_of(penalised, 4), COUNTED, COUNTED + 2);
    struct weft_request_params kept = {.grammar = WEFT_GRAMMAR_REGEX, .grammar_text = "[a-z ]{300}"};
    assert_in_range(steps_of(kept, 4), COUNTED, COUNTED + 2);
    kept.logprobs = true;
    assert_in_range(steps_of(kept, 4), 2 * COUNTED - 2, 2 * COUNTED + 1);
}

/* Of 16 requests the host samples for so many; steps that are waited for take so much longer than others. */
static bool is_followed(int held, double longer)
{
    static struct weft_request r[16];
    static struct weft_engine e;
    e.beside = (wf_beside){.costs = {[WF_WAITED] = {5e6 * longer, 8}, [WF_FOLLOWED] = {5e6, 8}}};
    e.stats.steps = 100;
    e.live = r;
    for (int i = 0; i < 16; i++) {
        r[i].seq = (wf_seq){.state = WF_SEQ_RUNNING, .n_tokens = 9, .n_prompt = 8, .sampled_by_host = i < held};
        r[i].next = i < 15 ? &r[i + 1] : NULL;
    }
    return wf_beside_pays(&e);
}

/* One that is in half of the steps gives up the 32nd part of all tokens. */
static void followed_where_it_pays(void **state)
{
    assert_true(!is_followed(1, 1.03) && is_followed(1, 1.04));
    assert_true(!is_followed(8, 1.3) && is_followed(8, 1.4));
    assert_false(is_followed(1, 0.9) || is_followed(16, 9)); /* nobody else could be in the step between */
}

/* ---- what they give -------------------------------------------------------------------------------------------- */

static void answer_alone(struct weft_engine_params p, tally t[KINDS])
{
    memset(t, 0, KINDS * sizeof *t);
    p.n_seqs = 1, p.no_prefix = true;
    struct weft_engine *e = open_cpu(p);
    for (int i = 0; i < KINDS; i++) assert_ok(end_of(submit_kind(e, i, &t[i])));
    weft_engine_close(e);
}

/* Each kind so many times, and others between them that do not stay. */
static void answer_together(struct weft_engine_params p, const tally alone[KINDS])
{
    static const struct weft_debug always = {
        .beside_always = true, .draft_always = true, .kv_store_always = true, .kv_load_always = true};
    static tally t[KINDS * COPIES], gone[KINDS];
    struct weft_request *r[KINDS * COPIES], *cancelled[KINDS];
    memset(t, 0, sizeof t);
    memset(gone, 0, sizeof gone);
    p.debug = &always;
    struct weft_engine *e = open_cpu(p);
    for (int i = 0; p.kv_seqs && i < 60; i++) /* all seem to be short, and too many are admitted */
        assert_ok(weft_submit(e, &(struct weft_request_params){.prompt = "a", .max_tokens = 1, .ignore_eos = true},
                              NULL));
    for (int i = 0; i < KINDS * COPIES; i++) {
        r[i] = submit_kind(e, i % KINDS, &t[i]);
        if (i < KINDS) cancelled[i] = submit_kind(e, i, &gone[i]);
    }
    for (int i = 0; i < KINDS; i++) {
        while (gone[i].n < i && !gone[i].done) wf_sleep_ns(100000);
        weft_cancel(cancelled[i]);
        weft_request_free(cancelled[i]);
    }
    for (int i = 0; i < KINDS * COPIES; i++) {
        assert_ok(end_of(r[i]));
        assert_int_equal(t[i].n, alone[i % KINDS].n);
        assert_memory_equal(t[i].ids, alone[i % KINDS].ids, sizeof t[i].ids);
    }
    if (p.kv_seqs) assert_true(stats_of(e).preempted > 0); /* or nothing was tried */
    if (p.draft_tokens) assert_true(stats_of(e).draft_accepted > 0);
    struct weft_kv_tier_stats tier;
    if (p.kv_host) {
        assert_ok(weft_engine_kv_tier_stats(e, WEFT_KV_TIER_HOST, &tier));
        assert_true(tier.stored_bytes > 0 && tier.loaded_bytes > 0 && !tier.failed);
    }
    weft_engine_close(e);
}

static void same_tokens(void **state)
{
    static tally alone[KINDS];
    answer_alone((struct weft_engine_params){0}, alone);
    for (int i = 0; i < KINDS; i++) assert_true(alone[i].n > 5);
    answer_together((struct weft_engine_params){.n_seqs = 12, .max_batched_tokens = 41}, alone);
    answer_together((struct weft_engine_params){.n_seqs = 12, .max_batched_tokens = 41, .nano_batches = 2}, alone);
    answer_together((struct weft_engine_params){.n_seqs = MOST, .kv_seqs = 2, .max_batched_tokens = 41}, alone);
    answer_together((struct weft_engine_params){.n_seqs = 12, .draft_tokens = 4}, alone);
    answer_together((struct weft_engine_params){.n_seqs = MOST, .kv_seqs = 2, .max_batched_tokens = 41,
                                                .kv_host = 64u << 20}, alone);
}

static void same_tokens_of_several_devices(void **state)
{
    static const struct weft_engine_params ways[] = {{.device = "cpu,cpu", .pipeline_parallel = 2},
                                                     {.device = "cpu,cpu", .tensor_parallel = 2}};
    static tally alone[KINDS];
    for (int i = 0; i < 2; i++) {
        struct weft_engine_params p = ways[i];
        answer_alone(p, alone);
        p.n_seqs = 12, p.max_batched_tokens = 41;
        answer_together(p, alone);
    }
}

SUITE(engine_beside, open_demo, close_demo, CASE(every_other_step), CASE(followed_where_it_pays), CASE(same_tokens),
      CASE(same_tokens_of_several_devices))
