/* explain: lists what a step runs, as readable text. See tune.h. */
#include "dev/roofline.h"
#include "engine/engine.h"
#include <weft/tune.h>

/* The peak arithmetic rate of the device, and its memory bandwidth, which the backend's own expectations then go by, too. */
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
    WF_NOT_NULL(e);
    WF_NOT_NULL(p);
    WF_NOT_NULL(f);
    WF_TRY(WF_UNUSED(p));
    if (p->context > e->context) return wf_fail(WEFT_ERR_ARG, "context %u: this engine holds %u tokens a sequence (weft_engine_params.context)", p->context, e->context);
    wf_explain x = {.tokens = p->tokens ? p->tokens : e->limits.step_tokens, .decodes = p->decodes, .context = p->context ? p->context : e->context};
    if (p->measure) WF_TRY(wf_explain_rates(e, &x));
    WF_TRY(wf_exec_explain(e->exec, &x, f));
    return fflush(f) ? wf_fail(WEFT_ERR_IO, "the plan could not be written whole") : WEFT_OK;
}
