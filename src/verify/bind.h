/* bind: decides once which kernels run a call; wf_launch (dev/dev.h) then submits them in every step. No kernel runs on user
 * data before it has passed a self-test.
 */
#ifndef WF_BIND_H
#define WF_BIND_H

#include "dev/dev.h"

/* Checks the call, takes its variant (call->variant if it is >= 0 and can run the call; else wf_pick's), builds it and, unless it passed
 * at an earlier start (kept.h), compares it once with the reference on a small problem of the same op, dtypes and head shape. A variant
 * that does not build or is wrong is dropped with a warning, and the next one is tried. A fused call without a fused kernel is bound in
 * pieces. */
weft_status wf_bind(wf_dev *, const wf_call *, wf_binding *out);
/* The same for callers that submit by variant: *variant is the call's, or that of the product of a call in pieces. */
weft_status wf_prepare(wf_dev *, const wf_call *, int *variant);

#endif
