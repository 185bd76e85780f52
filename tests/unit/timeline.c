/* timeline: when each op of a step runs and what it uses, predicted as the simulator says, and measured on the null
 * device, whose clock knows what each op costs. */
#include "support/null_device.h"
#include "plan/simulate.h"
#include "lab/overlap.h"
#include "support/demo.h"
#include "support/folder.h"

#include <math.h>

enum { SEQS = 8, TOKENS = 64, CONTEXT = 128 };

static char path[80];

static uint64_t cost(const wf_call *c)
{
    return c->op == WF_OP_GEMM ? 20000 : c->op == WF_OP_ATTENTION ? 50000 : 1000;
}

static struct weft_engine *open_engine(uint32_t nano_batches, bool profile)
{
    return demo_engine((struct weft_engine_params){.device = "null", .n_seqs = SEQS + 1, .context = CONTEXT,
                                                   .max_batched_tokens = TOKENS, .nano_batches = nano_batches,
                                                   .profile = profile});
}

static struct weft_timeline *draw(struct weft_engine *e, struct weft_timeline_params p)
{
    struct weft_timeline *t = NULL;
    assert_ok(weft_timeline(e, &p, &t));
    return t;
}

/* Of another device, so that nothing has to be measured. Attention has half its rate with a third of the device. */
static void write_profile(void)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("weft-profile 1\ndevice a test\ngroups 8\ntile 8\ncontext 128\n", f);
    static const char *const ops[] = {"q compute 20", "k compute 12.5", "attn_out compute 20",
                                      "decode_attention memory 40", "prefill_attention compute 33", "down compute 30"};
    for (size_t i = 0; i < WF_LEN(ops); i++) {
        char name[24], class[16];
        double us;
        assert_int_equal(sscanf(ops[i], "%23s %15s %lf", name, class, &us), 3);
        fprintf(f, "op %s %s\ntime %s tokens 8 share 1 us %g spread 0\ntime %s tokens 64 share 1 us %g spread 0\n",
                name, class, name, us, name, us * 5);
    }
    fputs("together memory share 0.3 rate 0.5 spread 0\ntogether memory share 1 rate 1 spread 0\n", f);
    assert_int_equal(fclose(f), 0);
}

/* ---- what holds for each step ------------------------------------------------------------------------------------ */

static void queues_in_order(const struct weft_timeline_step *s)
{
    double until[WF_MAX_QUEUES] = {0};
    for (const struct weft_timeline_op *op = s->ops; op < s->ops + s->n_ops; op++) {
        assert_true(op->begin_us >= until[op->queue] && op->end_us >= op->begin_us && op->end_us <= s->us + 1e-6);
        until[op->queue] = op->end_us;
    }
}

static void whole_use(const struct weft_timeline_step *s)
{
    double at = 0;
    for (const struct weft_timeline_use *u = s->uses; u < s->uses + s->n_uses; u++) {
        assert_true(u->begin_us == at && u->end_us > at);
        for (int c = 0; c < WEFT_N_CLASSES; c++) assert_true(u->use[c] >= 0 && u->use[c] <= 1);
        at = u->end_us;
    }
    assert_true(at == s->us);
}

/* The nano-operations that such a step has, in the plan's order. */
static size_t count_work(const struct weft_engine *e, const wf_plan *p, const wf_sim_batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_nanos; i++) {
        const wf_node *node = &e->layout.graph.nodes[p->nanos[i].node];
        bool not_here = node->when == WF_WHEN_PENDING || node->when == WF_WHEN_SAMPLED ||
            node->when == WF_WHEN_LOGITS;
        n += !not_here && wf_nano_range(node, &p->nanos[i], b->decodes, b->tokens, b->logits).count;
    }
    return n;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void agree(struct weft_engine *e, uint32_t decodes)
{
    wf_op_profile profile;
    wf_sim_batch b = {TOKENS, decodes, decodes + 1};
    struct weft_timeline *t = draw(
        e, (struct weft_timeline_params){.tokens = TOKENS, .decodes = decodes, .profile = path});
    const wf_plan *p = &e->layout.plans.list[wf_plans_choose(&e->layout.plans, TOKENS, decodes, CONTEXT)];
    wf_sim_span *spans = calloc(p->n_nanos, sizeof *spans);
    double us;
    assert_ok(wf_op_profile_load(path, &profile));
    assert_ok(wf_simulate(&e->layout.graph, p, &profile, &b, spans, &us));
    assert_true(t->predicted.us == us && us > 0);
    assert_int_equal(t->predicted.n_ops, count_work(e, p, &b));
    const struct weft_timeline_op *op = t->predicted.ops;
    for (size_t i = 0; i < p->n_nanos && op < t->predicted.ops + t->predicted.n_ops; i++) {
        const wf_node *node = &e->layout.graph.nodes[p->nanos[i].node];
        wf_range r = wf_nano_range(node, &p->nanos[i], b.decodes, b.tokens, b.logits);
        if (strcmp(node->name, op->name) || node->layer != op->layer || r.first != op->begin || !r.count) continue;
        assert_true(op->begin_us == spans[i].begin && op->end_us == spans[i].end && op->queue == p->nanos[i].queue);
        op++;
    }
    assert_ptr_equal(op, t->predicted.ops + t->predicted.n_ops);
    queues_in_order(&t->predicted);
    whole_use(&t->predicted);
    assert_true(t->predicted.peak_of_ops && t->predicted.compute > 0 && t->predicted.read > 0);
    assert_int_equal(t->measured.n_ops, 0);
    weft_timeline_free(t);
    wf_op_profile_free(&profile);
    free(spans);
}

static void test_predicted(void **state)
{
    for (uint32_t parts = 1; parts <= 2; parts++) {
        struct weft_engine *e = open_engine(parts, false);
        agree(e, 8);
        agree(e, 1);
        weft_engine_close(e);
    }
}

/* Microseconds of the peak of compute. */
static double computed(uint32_t nano_batches)
{
    double us = 0;
    struct weft_engine *e = open_engine(nano_batches, false);
    struct weft_timeline *t = draw(e, (struct weft_timeline_params){.tokens = TOKENS, .decodes = 8, .profile = path});
    for (const struct weft_timeline_use *u = t->predicted.uses; u < t->predicted.uses + t->predicted.n_uses; u++)
        us += u->use[WEFT_CLASS_COMPUTE] * (u->end_us - u->begin_us);
    weft_timeline_free(t);
    weft_engine_close(e);
    return us;
}

/* Ops beside each other are slower, and do what they do alone. */
static void test_same_work(void **state)
{
    long alone = lround(computed(1)), beside = lround(computed(2));
    assert_true(alone > 100);
    assert_int_equal(alone, beside);
}

/* An op that is the fastest of the profile uses all of its resource, as long as nothing runs beside it. */
static void test_peak(void **state)
{
    double most = 0;
    struct weft_engine *e = open_engine(1, false);
    struct weft_timeline *t = draw(e, (struct weft_timeline_params){.tokens = TOKENS, .decodes = 8, .profile = path});
    for (size_t i = 0; i < t->predicted.n_uses; i++) most = WF_MAX(most, t->predicted.uses[i].use[WEFT_CLASS_COMPUTE]);
    assert_true(most > 0.8);
    weft_timeline_free(t);
    weft_engine_close(e);
}

static void test_measured(void **state)
{
    wf_null_configure(&(wf_null_config){.cost_ns = cost, .compute_units = 8});
    struct weft_engine *e = open_engine(2, true);
    struct weft_timeline *t = draw(
        e, (struct weft_timeline_params){.tokens = TOKENS, .decodes = 8, .profile = path, .measure = true});
    assert_true(t->predicted.n_ops && t->measured.n_ops);
    size_t products = 0;
    for (const struct weft_timeline_op *op = t->measured.ops; op < t->measured.ops + t->measured.n_ops; op++)
        if (!strcmp(op->name, "down")) products++, assert_int_equal(lround(op->end_us - op->begin_us), 20);
    assert_int_equal(products, 2 * t->n_layers);
    queues_in_order(&t->measured);
    whole_use(&t->measured);
    weft_timeline_free(t);
    weft_engine_close(e);
    wf_null_configure(NULL);
}

/* By what it was made for: times of another model would be drawn as if they were of this one. */
static void test_other_model(void **state)
{
    char other[100], line[200], copy[4096];
    struct weft_timeline *t = NULL;
    wf_op_profile own = {0};
    struct weft_engine *e = open_engine(1, false);
    assert_ok(wf_stored_sign(e->dev, &e->layout.graph, &own));
    for (int same = 0; same < 2; same++) {
        snprintf(other, sizeof other, "%s.made", path);
        FILE *from = fopen(path, "r"), *f = fopen(other, "w");
        size_t n = fread(copy, 1, sizeof copy, from);
        snprintf(line, sizeof line, "made-for %s %s\n", own.device_key,
                 same ? own.model_key : "0123456789abcdef0123456789abcdef");
        fwrite(copy, 1, n, f), fputs(line, f);
        fclose(from), fclose(f);
        assert_int_equal(weft_timeline(e, &(struct weft_timeline_params){.tokens = TOKENS, .profile = other}, &t),
                         same ? WEFT_OK : WEFT_ERR_ARG);
        if (!same) assert_says("another shape");
    }
    weft_timeline_free(t);
    unlink(other);
    weft_engine_close(e);
}

static void test_refused(void **state)
{
    static const struct { struct weft_timeline_params p; weft_status status;
    } bad[] = {{{.measure = true, .profile = path}, WEFT_ERR_ARG},
               {{.tokens = 4, .decodes = 5, .profile = path}, WEFT_ERR_ARG},
               {{.tokens = TOKENS, .profile = "/absent/profile"}, WEFT_ERR_ARG},
               {{.context = CONTEXT + 1, .profile = path}, WEFT_ERR_ARG},
               {{.tokens = TOKENS, .estimate = true}, WEFT_ERR_UNSUPPORTED}};
    struct weft_timeline *t = NULL;
    struct weft_engine *e = open_engine(1, false);
    assert_error(weft_timeline(e, &(struct weft_timeline_params){.tokens = TOKENS}, &t), WEFT_ERR_ARG,
                 "weft tune --overlap");
    for (size_t i = 0; i < WF_LEN(bad); i++) assert_int_equal(weft_timeline(e, &bad[i].p, &t), bad[i].status);
    assert_null(t);
    weft_timeline_free(NULL);
    weft_engine_close(e);
}

static int set_up(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/profile", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("XDG_CONFIG_HOME", folder, 1);
    write_profile();
    return open_demo(state);
}

static int tear_down(void **state)
{
    close_demo(state);
    return remove_folder(state);
}

SUITE(timeline, set_up, tear_down, CASE(test_predicted), CASE(test_same_work), CASE(test_peak), CASE(test_measured),
      CASE(test_refused), CASE(test_other_model))
