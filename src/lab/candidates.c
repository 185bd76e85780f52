/* candidates: what a device offers for a shape, and what it expects of each. See lab.h. */
#include "select/select.h"
#include "lab/measure.h"

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

/* A row of the tuned file may choose a kernel that the device offers only on request: it comes first. */
static void list_candidates(wf_dev *d, const wf_call *c, weft_candidate_fn fn, void *user)
{
    wf_candidate_kernel all[WF_MAX_VARIANTS + 1];
    int chosen = wf_pick(d, c);
    size_t n = d->fns->rank(d, c, NULL, all + 1, WF_LEN(all) - 1), first = chosen >= 0 ? 0 : 1;
    for (size_t i = 1; i <= n; i++)
        if (all[i].variant == chosen) first = 1;
    all[0] = (wf_candidate_kernel){.variant = chosen};
    for (size_t i = first; i <= n; i++)
        fn(user, &(struct weft_candidate){wf_ops[c->op].name, wf_variant_at(d, c->op, all[i].variant)->name, all[i].us,
                                          all[i].variant == chosen});
}

enum weft_status weft_candidates(const char *device, const char *tier, const char *shape, const char *dtype,
                                 weft_candidate_fn fn, void *user)
{
    wf_open_params o = {0};
    wf_shape s;
    wf_dev *d = NULL;
    wf_queue *q = NULL;
    wf_problem p;
    WF_TRY(shape_of(shape, dtype, &s));
    WF_TRY(wf_tier_parse(tier, &o.tier));
    WF_TRY(wf_select_open(device, &o, &d));
    weft_status st = wf_queue_create(d, &q);
    if (!st) st = wf_problem_create(d, q, &s, 1, &p);
    if (!st) list_candidates(d, &p.call, fn, user), wf_problem_destroy(&p);
    wf_queue_destroy(q);
    wf_dev_close(d);
    return st;
}
