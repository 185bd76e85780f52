/* explain: lists what a step runs, as readable text. See lab.h. */
#include "dev/roofline.h"
#include "lab/overlap.h"

/* The peak arithmetic rate of the device, and its memory bandwidth, which the backend's own expectations then go by,
 * too. */
weft_status wf_explain_rates(struct weft_engine *e, wf_explain *x)
{
    wf_ceilings c = {0};
    if (!e->dev->fns->measure) return WEFT_OK;
    WF_TRY(e->dev->fns->measure(e->dev, &c));
    for (size_t i = 0; i < WF_N_ARITH; i++) x->flops_rate = WF_MAX(x->flops_rate, c.ops[i]);
    x->byte_rate = c.read;
    wf_cost costs[WF_CEILING_COSTS];
    size_t n = wf_ceiling_costs(&c, costs);
    return e->dev->fns->set_costs ? e->dev->fns->set_costs(e->dev, costs, n) : WEFT_OK;
}

weft_status weft_explain(struct weft_engine *e, const struct weft_explain_params *p, FILE *f)
{
    if (p->context > e->layout.context)
        return wf_fail(WEFT_ERR_ARG, "context %u: this engine holds %u tokens a sequence (weft_engine_params.context)",
                       p->context, e->layout.context);
    wf_explain x = {.tokens = p->tokens ? p->tokens : e->layout.limits.step_tokens, .decodes = p->decodes,
                    .context = p->context ? p->context : e->layout.context};
    if (p->measure) WF_TRY(wf_explain_rates(e, &x));
    WF_TRY(wf_exec_explain(e->exec, &x, f));
    return fflush(f) ? wf_fail(WEFT_ERR_IO, "the plan could not be written whole") : WEFT_OK;
}

const char *weft_engine_plan_source(const struct weft_engine *e) { return e->layout.plan_from; }

weft_status weft_plan_source(const struct weft_model *m, const struct weft_engine_params *p, char *out, size_t cap)
{
    wf_layout l;
    wf_dev *dev = NULL;
    WF_TRY(wf_layout_check(m, p));
    WF_TRY(wf_layout_device(p, p->device, &dev));
    weft_status s = wf_layout_make(m, p, &dev->info, dev, &l);
    if (s == WEFT_OK) wf_copy(out, cap, l.plan_from);
    wf_layout_free(&l);
    wf_dev_close(dev);
    return s;
}
