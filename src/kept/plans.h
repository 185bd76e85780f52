/* plans: what `weft tune --overlap` keeps in the cache folder for a device and the shape of a model: the times of
 * ops ("profile") and the plans that were the fastest ("plan"); and the plans that weft ships. Devices that were
 * opened otherwise (tier, threads, deterministic) or have other kernels have others.
 */
#ifndef WF_KEPT_PLANS_H
#define WF_KEPT_PLANS_H

#include "plan/op_profile.h"
#include "plan/plan.h"

weft_status wf_stored_path(wf_dev *dev, const wf_graph *g, const char *what, char *buf, size_t cap);
/* The kept plans, finished; n 0: there are none. A failure, which frees them, names what is wrong with the file. */
weft_status wf_stored_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap);
/* The same of the plans that weft ships in tuned/plans for this kind of device, whatever its driver, and the shape
 * of the model, with or without ranges for the asynchronous softmax: for builds that search no plans. Name: of their
 * file, below tuned/. */
weft_status wf_shipped_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap);
weft_status wf_shipped_plans_name(wf_dev *dev, const wf_graph *g, char *buf, size_t cap);
/* Those of both that an engine takes by itself, if there are any that can be used. from: where they come from, or
 * why there are none, in words. */
bool wf_kept_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *from, size_t cap);
/* Notes in a profile what it is made for. */
weft_status wf_stored_sign(wf_dev *dev, const wf_graph *g, wf_op_profile *p);
/* WEFT_ERR_ARG: the profile of that path is not made for the device and the shape of the model that `own` is made
 * for. */
weft_status wf_stored_check(const wf_op_profile *p, const wf_op_profile *own, const char *path);

#endif
