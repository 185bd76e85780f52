/* bind: decides once which kernels run a call; wf_launch (dev/dev.h) then submits them in every step. No kernel runs on
 * user data before it has passed a self-test.
 */
#ifndef WF_BIND_H
#define WF_BIND_H

#include "dev/dev.h"

/* Checks the call, takes its variant (call->variant if it is >= 0 and can run the call; else wf_pick's), builds it and,
 * unless it passed at an earlier start (kept.h), compares it once with the reference on a small problem of the same op,
 * dtypes and head shape. A variant that does not build or is wrong is dropped with a warning, and the next one is
 * tried. A fused call without a fused kernel is bound in pieces. */
weft_status wf_bind(wf_dev *, const wf_call *, wf_binding *out);
/* Has the device compile side by side (prebuild() of dev.h) what wf_bind will build for these calls, the kernels'
 * self-tests included, as far as it can be foreseen: as if each kernel was the first of its kind, and none was dropped.
 * Binds nothing, and has no errors. */
void wf_bind_ahead(wf_dev *, const wf_call *calls, size_t n);
/* The same as wf_bind for callers that submit by variant: *variant is the call's, or that of the product of a call in
 * pieces. */
weft_status wf_prepare(wf_dev *, const wf_call *, int *variant);

#endif
