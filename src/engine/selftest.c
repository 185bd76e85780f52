/* selftest: weft_selftest, a small form of the op test that runs on a user's machine. */
#include <weft/tune.h>

#include "verify/check.h"

typedef struct selftest {
    wf_dev *dev, *ref;
    wf_queue *q;
    weft_selftest_fn fn;
    void *user;
    unsigned rows, failed;
} selftest;

static void report(selftest *t, const wf_case *c, const char *variant, const wf_check_result *r,
                   const char *message)
{
    char shape[160];
    bool weight = c->op == WF_OP_GET_ROWS || c->op == WF_OP_GEMM;
    wf_case_text(c, shape, sizeof shape);
    struct weft_selftest_row row = {.op = wf_ops[c->op].name,
                                    .dtype = wf_dtypes[weight ? c->weight : c->in].name,
                                    .shape = shape, .variant = variant, .error = r->error,
                                    .limit = 1, .ok = r->ok, .message = message};
    t->rows++;
    t->failed += !r->ok;
    if (t->fn) t->fn(t->user, &row);
}

static weft_status test_case(selftest *t, const wf_case *c)
{
    wf_check *k;
    const wf_variant *v;
    WF_TRY(wf_check_new(t->ref, c, &k));
    for (int i = 0; !t->dev->lost && (v = wf_variant_at(t->dev, c->op, i)); i++) {
        wf_check_result r;
        weft_status s = wf_check_run(k, t->dev, t->q, i, false, &r);
        if (s) r.ok = false;
        if (s || r.supported) report(t, c, v->name, &r, s ? wf_error() : r.message);
    }
    wf_check_free(k);
    return t->dev->lost ? wf_fail_context(WEFT_ERR_DEVICE, "self-test") : WEFT_OK;
}

static weft_status open_both(selftest *t, const char *device, const char *tier)
{
    wf_open_params p = {0};
    WF_TRY(wf_tier_parse(tier, &p.tier));
    WF_TRY(wf_dev_open(device, &p, &t->dev));
    if (t->dev->timing_only) return wf_fail(WEFT_ERR_ARG, "%s computes nothing", t->dev->info.id);
    p.tier = WF_TIER_BASE;
    WF_TRY(wf_dev_open("cpu", &p, &t->ref));
    return wf_queue_create(t->dev, &t->q);
}

enum weft_status weft_selftest(const char *device, const char *tier, uint64_t seed,
                               weft_selftest_fn fn, void *user)
{
    selftest t = {.fn = fn, .user = user};
    wf_case c;
    weft_status s = open_both(&t, device, tier);
    for (size_t i = 0; !s && wf_case_small(i, seed, &c); i++) s = test_case(&t, &c);
    if (!s && t.failed) {
        s = wf_fail(WEFT_ERR_DEVICE, "%s (%s): %u of %u kernel checks failed", t.dev->info.id,
                    t.dev->info.name, t.failed, t.rows);
    }
    wf_queue_destroy(t.q);
    wf_dev_close(t.dev);
    wf_dev_close(t.ref);
    return s;
}
