/* cluster: pipelines whose bubbles are known by hand, and what `weft simulate` makes of a model and a layout. */
#include <math.h>

#include "lab/cluster.h"
#include "engine/engine.h"
#include "support/suite.h"

static void near(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%s: %.12g, and should be %.12g", what, got, want);
}

/* ---- times by hand --------------------------------------------------------------------------------------------- */

static double hop;
static uint32_t largest; /* step so far */

static double one_second(const void *user, uint32_t stage, const wf_load *l)
{
    return 1;
}

static double by_tokens(const void *user, uint32_t stage, const wf_load *l)
{
    largest = WF_MAX(largest, (uint32_t)wf_load_tokens(l));
    return wf_load_tokens(l);
}

static double send(const void *user, uint32_t stage, const wf_load *l)
{
    return hop;
}

typedef double stage_fn(const void *, uint32_t, const wf_load *);

static wf_cluster cluster_of(uint32_t replicas, uint32_t stages, stage_fn *stage)
{
    return (wf_cluster){.replicas = replicas, .stages = stages, .stage = stage, .send = send,
                        .limits = {.step_tokens = 64, .logit_rows = 64, .seqs = 8, .seq_pages = 16, .pages = 128},
                        .sched = {.policy = WF_POLICY_SARATHI, .kv = {.page_tokens = 16, .no_prefix = true}}};
}

/* Four equal micro-batches fill four stages: the only bubbles are those of the first one on its way, 1 + 2 + 3. With
 * hops a round takes 4 more of them, for which each stage waits once a round, before the micro-batch that is first. */
static void equal_steps(void **state)
{
    for (hop = 0; hop < 1; hop += 0.25) {
        struct weft_sim_request r[4];
        struct weft_sim_use use;
        wf_cluster c = cluster_of(1, 4, one_second);
        for (int i = 0; i < 4; i++) r[i] = (struct weft_sim_request){.n_in = 8, .n_out = 5};
        assert_ok(wf_cluster_run(&c, r, 4, &use));
        near("first bubbles", r[0].bubble, 6 * (1 + hop) + 4 * 16 * hop);
        for (int i = 1; i < 4; i++) near("bubbles", r[i].bubble, 0);
        near("bubbles", use.bubbles, r[0].bubble);
        near("busy", use.busy, 4 * 5 * 4);
        near("first", r[2].first, 2 + 4 + 4 * hop);
        near("last", r[2].last, 2 + 5 * (4 + 4 * hop));
        near("seconds", use.seconds, 3 + 5 * (4 + 4 * hop));
        assert_int_equal(use.steps, 4 * 5);
        assert_int_equal(use.tokens, 4 * (8 + 4));
    }
    hop = 0;
}

/* PB1 of figure 5: a long prompt behind a short one keeps the second stage waiting; the other way round none does,
 * once the pipeline is full. */
static void unequal_prompts(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 1}, {.n_in = 4}}, other[] = {{.n_in = 4}, {.n_in = 1}};
    struct weft_sim_use use;
    wf_cluster c = cluster_of(1, 2, by_tokens);
    assert_ok(wf_cluster_run(&c, r, 2, &use));
    near("short", r[0].bubble, 1), near("long", r[1].bubble, 3), near("end", use.seconds, 9);
    assert_ok(wf_cluster_run(&c, other, 2, &use));
    near("long", other[0].bubble, 4), near("short", other[1].bubble, 0), near("end", use.seconds, 9);
}

/* A stage does not wait for what has not arrived. */
static void nothing_to_do(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 3, .at = 100}, {.n_in = 2, .at = 10}};
    struct weft_sim_use use;
    wf_cluster c = cluster_of(1, 2, by_tokens);
    assert_ok(wf_cluster_run(&c, r, 2, &use));
    near("later", r[0].bubble, 3), near("earlier", r[1].bubble, 2);
    near("end", r[0].last, 106), near("seconds", use.seconds, 96);
}

/* Chunks: the longer prompt is cut, so that steps are equal, and decodes ride on it. */
static void policies(void **state)
{
    struct weft_sim_request r[2];
    struct weft_sim_use use;
    for (int whole = 0; whole < 2; whole++) {
        wf_cluster c = cluster_of(1, 1, by_tokens);
        r[0] = (struct weft_sim_request){.n_in = 8, .n_out = 3}, 
        r[1] = (struct weft_sim_request){.n_in = 40, .n_out = 1};
        c.limits.step_tokens = whole ? 64 : 16;
        c.sched.policy = whole ? WF_POLICY_ORCA : WF_POLICY_SARATHI;
        largest = 0;
        assert_ok(wf_cluster_run(&c, r, 2, &use));
        assert_int_equal(largest, whole ? 48 : 16);
        /* 8; 15 + 1; 15 + 1; 10 of the second, or 48; 1; 1 */
        assert_int_equal(use.steps, whole ? 3 : 4);
        near("first", r[0].first, whole ? 48 : 8), near("last", r[0].last, whole ? 50 : 8 + 16 + 16);
        near("second", r[1].last, whole ? 48 : 50);
    }
}

/* Random requests: all end, each token is computed once, twice gives the same, and more replicas are not slower. */
static void many(void **state)
{
    enum { N = 300 };
    struct weft_sim_request r[N], again[N];
    struct weft_sim_use use[4], twice;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < N; i++) {
        r[i] = (struct weft_sim_request){1 + (uint32_t)(wf_random(1, i) % 200), (uint32_t)(wf_random(2, i) % 50),
                                         (double)(wf_random(3, i) % 9)};
        tokens += r[i].n_in + WF_MAX(r[i].n_out, 1u) - 1;
    }
    for (uint32_t replicas = 1; replicas < 4; replicas++) {
        wf_cluster c = cluster_of(replicas, 3, by_tokens);
        memcpy(again, r, sizeof r);
        assert_ok(wf_cluster_run(&c, r, N, &use[replicas]));
        assert_ok(wf_cluster_run(&c, again, N, &twice));
        assert_memory_equal(r, again, sizeof r);
        assert_memory_equal(&use[replicas], &twice, sizeof twice);
        assert_int_equal(twice.tokens - twice.recomputed, tokens);
        for (uint32_t i = 0; i < N; i++) assert_true(r[i].first > r[i].at && r[i].last >= r[i].first);
        near("busy", twice.busy, 3.0 * (double)twice.tokens);
        assert_true(replicas == 1 || twice.seconds < use[replicas - 1].seconds);
    }
}

static bool stop(void *user)
{
    return true;
}

static void stopped(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 3, .n_out = 9}, {.n_in = 2, .at = 1e9}};
    struct weft_sim_use use;
    wf_cluster c = cluster_of(1, 1, by_tokens);
    c.stop = stop;
    assert_int_equal(wf_cluster_run(&c, r, 2, &use), WEFT_ERR_CANCELLED);
    c.stop = NULL, c.limits.pages = 0; /* none ever fits */
    assert_int_equal(wf_cluster_run(&c, r, 1, &use), WEFT_ERR_INTERNAL);
}

/* ---- of a model -------------------------------------------------------------------------------------------------- */

static struct weft_model *model;

static int open_model(void **state)
{
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = "gpt3-175b"}, &model));
    return 0;
}

static int close_model(void **state)
{
    weft_model_close(model);
    return 0;
}

static struct weft_simulate_params params_of(uint32_t tp, uint32_t pp, struct weft_sim_request *r, size_t n)
{
    return (struct weft_simulate_params){.model = model, .on = "dgx-a100", .tp = tp, .pp = pp, .policy = "sarathi",
                                         .max_batched_tokens = 256, .requests = r, .n = n};
}

/* Section 5.3: 27 whole contexts of 4,096 tokens fit a micro-batch of a pipeline of eight stages, 11 one replica. */
static void batches_that_fit(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 256}};
    struct weft_simulate_params p = params_of(8, 8, r, 1);
    struct weft_simulation s;
    p.context = 4096;
    assert_ok(weft_simulate(&p, &s));
    near("contexts", s.whole_contexts, 27);
    assert_int_equal(s.n_devices, 64);
    p.pp = 1, p.replicas = 8;
    assert_ok(weft_simulate(&p, &s));
    near("contexts", s.whole_contexts, 11);
    assert_int_equal(s.n_devices, 64);
    struct weft_model *few; /* of four KV heads, which eight devices copy */
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = "llama-1.1b"}, &few));
    p = (struct weft_simulate_params){.model = few, .on = "dgx-a100", .tp = 8, .context = 2048, .requests = r, .n = 1};
    assert_ok(weft_simulate(&p, &s));
    near("contexts", s.whole_contexts, floor((8 * 72e9 - s.weight_bytes) / (2 * 22528.0 * 2048)));
    weft_model_close(few);
}

/* A prompt takes what the cost model says of its step; the stages of a pipeline take the same, and messages between. */
static void layouts_cost_the_same(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 256}};
    struct weft_simulate_params p = params_of(8, 1, r, 1);
    struct weft_simulation s;
    wf_load load = {.prefill = 256, .prefill_keys = 257 / 2.0};
    wf_layout l = {.model = model, .context = 256, .page_tokens = 16};
    wf_machine one;
    wf_step_cost cost;
    assert_ok(wf_machine_find(NULL, "dgx-a100", &one));
    wf_machine m = wf_machine_times(&one, 8);
    assert_ok(wf_layout_graph(&l));
    assert_ok(wf_step_cost_make(&l.graph, &load, &m, &cost));
    assert_ok(weft_simulate(&p, &s));
    near("one stage", r[0].last, cost.total.alone);
    p.pp = 8;
    assert_ok(weft_simulate(&p, &s));
    near("busy", s.use.busy, cost.total.alone);
    near("eight stages", r[0].last, cost.total.alone + 7 * (256 * 12288 * 4 / 25e9 + 14e-6) + 14e-6);
    p.tp = 4;
    m = wf_machine_times(&one, 4);
    wf_step_cost_free(&cost);
    assert_ok(wf_step_cost_make(&l.graph, &load, &m, &cost));
    p.memory_utilization = 1, p.pp = 3; /* the third one is in another host */
    assert_ok(weft_simulate(&p, &s));
    near("two hosts", r[0].last,
         cost.total.alone + 256 * 12288 * 4 * (1 / 300e9 + 1 / 25e9) + 1.9e-6 + 14e-6 + 14e-6);
    wf_step_cost_free(&cost);
    wf_layout_free(&l);
}

static void refuse(const struct weft_simulate_params *p, const char *message)
{
    struct weft_simulation s;
    assert_int_equal(weft_simulate(p, &s), WEFT_ERR_ARG);
    if (!strstr(wf_error(), message)) fail_msg("it says \"%s\", not \"%s\"", wf_error(), message);
}

static void refused(void **state)
{
    struct weft_sim_request r[] = {{.n_in = 256, .n_out = 16}};
    struct weft_simulate_params p = params_of(1, 1, r, 1);
    refuse(&p, "1 x 1 devices with 72 GB for weights and KV pages each do not hold 349.3 GB of weights");
    p.tp = 7, refuse(&p, "7 devices cannot share 96 heads evenly");
    p.tp = 8, p.pp = 97, refuse(&p, "97 stages needs as many layers, and there are 96");
    p.pp = 8, p.replicas = 513, refuse(&p, "513 replicas of 8 stages: more than 4096 steps");
    p.pp = 1, p.replicas = 1, p.context = 271, refuse(&p, "256 tokens in and 16 out does not fit a context of 271");
    p.context = 0, p.policy = "none", refuse(&p, "policy 'none' does not exist");
    p.policy = NULL, p.on = "abacus", refuse(&p, "'abacus' is no device");
    r[0].n_in = 0, p.on = "dgx-a100", refuse(&p, "0 tokens in");
}

SUITE(cluster, open_model, close_model, CASE(equal_steps), CASE(unequal_prompts), CASE(nothing_to_do), CASE(policies),
      CASE(many), CASE(stopped), CASE(batches_that_fit), CASE(layouts_cost_the_same), CASE(refused))
