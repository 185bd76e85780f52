/* front: what the files of the front share. */
#ifndef WF_FRONT_H
#define WF_FRONT_H

#include "dev/dev.h"

/* An error that says so if the device was lost; `what` is what was wanted. */
weft_status wf_dev_usable(const wf_dev *dev, const char *what);
#define WF_MAX_DECOMPOSED 3
/* Has the device a kernel for the call as it is? Always, but for fused ones. */
bool wf_has_fused_kernel(wf_dev *, const wf_call *);
/* The plain calls that a fused one stands for, in order; c->variant is that of the product. Their number. */
size_t wf_decompose(wf_dev *, const wf_call *c, wf_call part[WF_MAX_DECOMPOSED]);
/* What wf_prepare remembers (wf_dev.selftest_cache); freed before the device closes. NULL is allowed. */
void wf_selftest_cache_free(struct wf_selftest_cache *);

/* Tuned choices of a device that was just opened; an error only where p->tuned names a file that is no good. */
weft_status wf_tuned_open(wf_dev *, const wf_open_params *p);
void wf_tuned_close(wf_dev *);
/* batch_invariance.c: pick() where the results must not depend on the rest of the batch. Freed before the device closes. */
int wf_pick_batch_invariant(wf_dev *, const wf_call *);
void wf_batch_invariance_reset(wf_dev *); /* choose the classes anew */
/* Never pick this variant again: neither the backend nor the table. */
void wf_drop(wf_dev *, enum wf_op, int variant);

#endif
