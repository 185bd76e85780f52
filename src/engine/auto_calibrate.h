/* auto_calibrate: ranges of the asynchronous softmax for models without a file of `weft calibrate` (weft_engine_params.calibration). A model that
 * comes from a file, and whose attention would run by kernels that need ranges, computes a built-in text once when it is opened. What that gives is
 * kept in the cache (base/cache.h), so that later starts do the same without measuring: one seed gives one text from start to start.
 *
 * What could change the ranges is the key of an entry: the device, its driver and tier; the model, by its graph and a sample of each tensor; its
 * attention windows; the tokens of the text and the context. The build of weft, whose kernels compute them, is a part of what an entry holds, so that a
 * new build replaces what an older one left. With deterministic nothing is measured or taken, and with no_kernel_cache nothing is taken or kept.
 *
 * Whether to measure, and how many tokens, depends on an estimate of the time, never on a clock: what else the machine does decides nothing. An entry stays
 * as it is when a later estimate, by other rates, would have taken more.
 */
#ifndef WF_AUTO_CALIBRATE_H
#define WF_AUTO_CALIBRATE_H

#include "base/cache.h"
#include "engine/calibration.h"

typedef struct wf_auto_calibration {
    bool missing;     /* kernels need ranges, and there are none */
    bool stand_ins;   /* there are ranges that say nothing, until then: a plan or a kernel that is named needs some */
    int32_t *ids;     /* of the built-in text */
    size_t n_ids;
    char dir[512];
    wf_cache_key key; /* text NULL: not to be kept */
} wf_auto_calibration;

/* Sets the ranges of g's ATTENTION nodes, before wf_graph_end: those of a file, else those that are kept, if p wants any. step_tokens: most of a
 * step. Free out in any case. */
weft_status wf_ranges_find(const struct weft_model *m, const struct weft_engine_params *p, wf_dev *dev, wf_graph *g, uint32_t step_tokens, wf_auto_calibration *out);
void wf_auto_calibration_free(wf_auto_calibration *a);
/* Measures what is missing, if that does not take long, and keeps it; out: [n_layer], zero. The thread of e runs, and no other request. *ran: the model
 * has; what failed then, other than an error, which opening e ends with, leaves the softmax synchronous. */
weft_status wf_auto_calibrate(struct weft_engine *e, const struct weft_engine_params *p, const wf_auto_calibration *a, wf_phi *out, bool *ran);

#endif
