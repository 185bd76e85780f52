/* selftest: weft_selftest, a small form of the op test that runs on a user's machine. */
#include "lab/lab.h"

#include "verify/check.h"

enum { MAX_VARIANTS = 256 };

typedef struct selftest {
    wf_dev *dev, *ref;
    wf_queue *q;
    weft_selftest_fn fn;
    void *user;
    unsigned rows, failed;
    size_t n_cases, begun; /* problems, and those that were looked at */
    bool met[WF_N_OPS][MAX_VARIANTS]; /* variants that a problem so far suited */
} selftest;

static void report_check(selftest *t, const wf_case *c, const char *variant, const wf_check_result *r,
                   const char *message)
{
    char shape[160];
    bool weight = wf_case_has_weight(c);
    wf_case_text(c, shape, sizeof shape);
    struct weft_selftest_row row = {.op = wf_ops[c->op].name, .dtype = wf_dtypes[weight ? c->weight : c->in].name,
                                    .shape = shape, .variant = variant, .error = r->error, .limit = 1, .ok = r->ok,
                                    .message = message, .done = (double)t->begun / (double)t->n_cases};
    t->rows++;
    t->failed += !r->ok;
    if (t->fn) t->fn(t->user, &row);
}

static weft_status test_case(selftest *t, const wf_case *c)
{
    wf_check *k;
    const wf_variant *v;
    weft_status s = wf_stop_now();
    if (s) return s;
    WF_TRY(wf_check_new(t->ref, c, &k));
    for (int i = 0; !t->dev->lost && (v = wf_variant_at(t->dev, c->op, i)); i++) {
        wf_check_result r;
        s = wf_check_run(k, t->dev, t->q, i, false, &r);
        if (s == WEFT_ERR_CANCELLED) break;
        if (s) r.ok = false;
        if (s || r.supported) {
            report_check(t, c, v->name, &r, s ? wf_error() : r.message);
            t->met[c->op][i % MAX_VARIANTS] = true;
        }
    }
    wf_check_free(k);
    if (s == WEFT_ERR_CANCELLED) return s;
    return t->dev->lost ? wf_fail_context(WEFT_ERR_DEVICE, "self-test") : WEFT_OK;
}

/* Small problems suit most variants and take no time; the larger ones are for the rest. */
static weft_status test_op(selftest *t, enum wf_op op, uint64_t seed)
{
    const wf_case *larger;
    wf_case c;
    for (size_t i = 0; wf_case_small(i, seed, &c); i++) {
        if (c.op != op) continue;
        t->begun++;
        WF_TRY(test_case(t, &c));
    }
    for (size_t i = 0, n = wf_cases_larger(&larger); i < n; i++) {
        bool needed = false;
        c = larger[i];
        c.seed = seed;
        if (c.op != op) continue;
        t->begun++;
        wf_check *k; /* does it suit a variant that has met none? */
        WF_TRY(wf_check_new(NULL, &c, &k));
        for (int v = 0; wf_variant_at(t->dev, op, v); v++)
            needed |= !t->met[op][v % MAX_VARIANTS] && wf_check_supported(k, t->dev, v);
        wf_check_free(k);
        if (needed) WF_TRY(test_case(t, &c));
    }
    return WEFT_OK;
}

enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed, weft_selftest_fn fn, void *user)
{
    const wf_case *larger;
    wf_case c;
    wf_open_params p = {0};
    selftest t = {.fn = fn, .user = user, .n_cases = wf_cases_larger(&larger)};
    for (size_t i = 0; wf_case_small(i, seed, &c); i++) t.n_cases++;
    weft_status s = wf_tier_parse(tier, &p.tier);
    if (!s) s = wf_dev_open(device, &p, &t.dev);
    if (!s && t.dev->timing_only) s = wf_fail(WEFT_ERR_ARG, "%s computes nothing", t.dev->info.id);
    if (!s) s = wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_BASE}, &t.ref);
    if (!s) s = wf_queue_create(t.dev, &t.q);
    for (int op = 0; !s && op < WF_N_OPS; op++) s = test_op(&t, (enum wf_op)op, seed);
    if (!s && t.failed)
        s = wf_fail(WEFT_ERR_DEVICE, "%s (%s): %u of %u kernel checks failed", t.dev->info.id, t.dev->info.name,
                    t.failed, t.rows);
    wf_queue_destroy(t.q);
    wf_dev_close(t.dev);
    wf_dev_close(t.ref);
    return s;
}
