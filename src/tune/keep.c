/* keep: what a device's own file of choices and costs keeps from one measurement to the next. See measure.h. */
#include "dev/roofline.h"
#include "tune/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void wf_kept_choices(wf_dev *dev, const char *path, wf_tuned_table *out)
{
    uint32_t kernels = wf_tuned_kernels(dev);
    *out = (wf_tuned_table){0};
    if (!access(path, F_OK) && wf_tuned_read(path, &dev->info, out)) wf_log(WEFT_LOG_WARN, "%s: replaced", wf_error());
    if (out->kernels && out->kernels != kernels) wf_tuned_free(out);
    out->kernels = kernels;
}

/* To four digits, more than any measurement has, so that what is computed from a rate now and from the file later is the same. */
static double rounded(double rate)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", rate);
    return strtod(text, NULL);
}

static weft_status measure(wf_dev *dev, wf_ceilings *out)
{
    if (dev->fns->measure) WF_TRY(dev->fns->measure(dev, out));
    out->read = rounded(out->read);
    for (size_t i = 0; i < WF_N_ARITH; i++) out->ops[i] = rounded(out->ops[i]);
    return WEFT_OK;
}

weft_status wf_keep_ceilings(wf_dev *dev, wf_tuned_table *t, wf_ceilings *top)
{
    wf_ceilings own = {0};
    wf_cost costs[WF_CEILING_COSTS];
    WF_TRY(measure(dev, &own));
    if (top) *top = own;
    size_t n = wf_ceiling_costs(&own, costs);
    for (size_t i = 0; i < n; i++)
        if (costs[i].value >= WF_TUNED_LEAST_COST) WF_TRY(wf_tuned_put_cost(t, &costs[i]));
    return WEFT_OK;
}
