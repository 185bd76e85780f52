/* keep: what a device's own file of choices and costs keeps from one measurement to the next. See measure.h. */
#include "dev/roofline.h"
#include "select/select.h"
#include "lab/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

weft_status wf_keep_path(const wf_dev *dev, const char *named, char *path, size_t cap)
{
    if (!named) return wf_tuned_user_path(&dev->info, true, path, cap);
    wf_copy(path, cap, named);
    return strlen(named) < cap ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "the path is too long: %s", named);
}

void wf_kept_choices(wf_dev *dev, const char *path, wf_tuned_table *out)
{
    uint32_t kernels = wf_tuned_kernels(dev);
    *out = (wf_tuned_table){0};
    if (!access(path, F_OK) && wf_tuned_read(path, &dev->info, out)) wf_log(WEFT_LOG_WARN, "%s: replaced", wf_error());
    if (out->kernels && out->kernels != kernels) wf_tuned_forget_kernels(out);
    out->kernels = kernels;
}

weft_status wf_keep_ceilings(wf_dev *dev, wf_tuned_table *t, wf_ceilings *top)
{
    wf_ceilings own = {0};
    wf_cost costs[WF_CEILING_COSTS];
    if (dev->fns->measure) WF_TRY(dev->fns->measure(dev, &own));
    double *const rates[] = {&own.read, &own.ops[WF_ARITH_F32], &own.ops[WF_ARITH_F16], &own.ops[WF_ARITH_Q8],
                             &own.ops[WF_ARITH_I8]};
    _Static_assert(WF_N_ARITH + 1 == WF_LEN(rates), "a rate of each kind");
    /* as the file has them, to four digits, so that what follows is the same now and later */
    for (size_t i = 0; i < WF_LEN(rates); i++) {
        char text[32];
        snprintf(text, sizeof text, "%.4g", *rates[i]);
        *rates[i] = strtod(text, NULL);
    }
    if (top) *top = own;
    size_t n = wf_ceiling_costs(&own, costs);
    for (size_t i = 0; i < n; i++)
        if (costs[i].value >= WF_TUNED_LEAST_COST) WF_TRY(wf_tuned_put_cost(t, &costs[i]));
    return WEFT_OK;
}

bool wf_machine_has_rates(const wf_machine *m)
{
    return m->read > 0 && (m->ops[WF_ARITH_F32] > 0 || m->ops[WF_ARITH_F16] > 0);
}

weft_status wf_device_machine(wf_dev *dev, const wf_rates_params *p, wf_machine *out)
{
    wf_ceilings top;
    *out = (wf_machine){.n_devices = 1, .memory = (double)dev->info.memory};
    wf_copy(out->name, sizeof out->name, dev->info.name);
    wf_select_ceilings(dev, &top);
    out->read = top.read;
    memcpy(out->ops, top.ops, sizeof out->ops);
    if (wf_machine_has_rates(out) && !p->anew && !p->threads) return WEFT_OK;
    /* They are kept in the user's own file, as weft tune does; a folder that cannot be written only means that the
     * next run measures again. */
    char path[1100];
    wf_tuned_table all = {0};
    bool keep = !p->threads && !wf_tuned_user_path(&dev->info, true, path, sizeof path);
    if (keep) wf_kept_choices(dev, path, &all);
    if (p->on_progress) p->on_progress(p->user, "measure", 0);
    weft_status s = wf_keep_ceilings(dev, &all, &top);
    if (p->on_progress) p->on_progress(p->user, "measure", 1);
    if (!s && keep && wf_tuned_write(path, &dev->info, &all))
        wf_log(WEFT_LOG_WARN, "the measured rates are not kept: %s", wf_error());
    wf_tuned_free(&all);
    out->read = top.read;
    memcpy(out->ops, top.ops, sizeof out->ops);
    return s;
}
