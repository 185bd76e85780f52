/* candidates: what a device offers for a shape, and what it expects of each. See tune.h. */
#include "select/select.h"
#include "tune/measure.h"

static weft_status shape_of(const char *text, const char *dtype, wf_shape *out)
{
    size_t n;
    WF_TRY(wf_shape_parse(text, out));
    WF_TRY(wf_shape_dtypes(dtype, &out->dtype, 1, &n));
    bool gemm = out->op == WF_TUNED_GEMM;
    if (!gemm) out->dtype = WF_F16;
    if (gemm ? !out->m : !out->seqs || !out->length)
        return wf_fail(WEFT_ERR_ARG, "shape '%s': %s", text, gemm ? "M is needed" : "B and L are needed");
    return WEFT_OK;
}

static bool is_among(const wf_candidate_kernel *all, size_t n, int variant)
{
    while (n && all[n - 1].variant != variant) n--;
    return n;
}

static void tell(wf_dev *d, const wf_call *c, wf_candidate_kernel k, int chosen, weft_candidate_fn fn, void *user)
{
    fn(user, &(struct weft_candidate){wf_ops[c->op].name, wf_variant_at(d, c->op, k.variant)->name, k.us, k.variant == chosen});
}

/* A row of the tuned file may choose a kernel that the device offers only on request: it comes first. */
static void list(wf_dev *d, const wf_call *c, weft_candidate_fn fn, void *user)
{
    wf_candidate_kernel all[WF_MAX_VARIANTS];
    int chosen = wf_pick(d, c);
    size_t n = d->fns->rank(d, c, NULL, all, WF_LEN(all));
    if (chosen >= 0 && !is_among(all, n, chosen)) tell(d, c, (wf_candidate_kernel){.variant = chosen}, chosen, fn, user);
    for (size_t i = 0; i < n; i++) tell(d, c, all[i], chosen, fn, user);
}

static weft_status list_for(wf_dev *d, const wf_shape *s, weft_candidate_fn fn, void *user)
{
    wf_queue *q;
    wf_problem p;
    WF_TRY(wf_queue_create(d, &q));
    weft_status st = wf_problem_create(d, q, s, 1, &p);
    if (!st) list(d, &p.call, fn, user), wf_problem_destroy(&p);
    wf_queue_destroy(q);
    return st;
}

enum weft_status weft_candidates(const char *device, const char *tier, const char *shape, const char *dtype, weft_candidate_fn fn, void *user)
{
    WF_NOT_NULL(shape);
    WF_NOT_NULL(fn);
    wf_open_params o = {0};
    wf_shape s;
    wf_dev *d = NULL;
    WF_TRY(shape_of(shape, dtype, &s));
    WF_TRY(wf_tier_parse(tier, &o.tier));
    WF_TRY(wf_select_open(device, &o, &d));
    weft_status st = list_for(d, &s, fn, user);
    wf_dev_close(d);
    return st;
}
