/* startup: where the time from opening a model to the first step goes. Parts may run beside each other, so they can
 * add up to more than the whole. See engine.h. */
#include "engine/engine.h"

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

void wf_startup_part(wf_startup *s, enum wf_startup_part part, uint64_t since_ns)
{
    s->part_ns[part] += wf_now_ns() - since_ns; /* some happen twice where ranges are measured */
}

void wf_startup_ready(struct weft_engine *e)
{
    wf_startup *s = &e->startup;
    const uint64_t *ns = s->part_ns;
    s->ready_ns = wf_now_ns();
    wf_log(WEFT_LOG_INFO,
           "start: model file %.2f s, then %.2f s: device %.2f, graph and plan %.2f, weights %.2f, memory %.2f, "
           "kernels %.2f",
           seconds(e->model->open_ns), seconds(s->ready_ns - s->begin_ns), seconds(ns[WF_STARTUP_DEVICE]),
           seconds(ns[WF_STARTUP_GRAPH]), seconds(ns[WF_STARTUP_WEIGHTS]), seconds(ns[WF_STARTUP_MEMORY]),
           seconds(ns[WF_STARTUP_KERNELS]));
    const wf_weights *w = &e->layout.weights;
    wf_log(WEFT_LOG_INFO, "start, weights: %.2f GiB by %u threads, waited for packing %.2f s and for copies %.2f s",
           (double)wf_weights_bytes(w) / 0x1p30, w->n_packers, seconds(w->packed_ns), seconds(w->copied_ns));
    const wf_kernel_work *k = &e->dev->kernel_work;
    wf_log(WEFT_LOG_INFO,
           "start, kernels: %u built side by side in %.2f s and %u one by one in %.2f s, %u from the kernel cache in "
           "%.2f s, %u self-tests in %.2f s with what they built, %u passed at an earlier start",
           k->prebuilt, seconds(k->prebuilt_ns), k->built, seconds(k->built_ns), k->kept, seconds(k->kept_ns),
           k->tested, seconds(k->tested_ns), k->tested_before);
}

void wf_startup_step(wf_startup *s, uint64_t start_ns, uint32_t tokens)
{
    uint64_t now = wf_now_ns();
    if (s->stepped) return;
    s->stepped = true;
    wf_log(WEFT_LOG_INFO, "start: first step (%u tokens) %.2f s, %.2f s after the engine was ready", tokens,
           seconds(now - start_ns), seconds(now - s->ready_ns));
}
