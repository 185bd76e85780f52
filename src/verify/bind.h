/* bind: decides, once, which kernels a call is run as; wf_launch (dev/dev.h) then runs such calls in every step. No kernel
 * runs on user data before it was right once.
 */
#ifndef WF_BIND_H
#define WF_BIND_H

#include "dev/dev.h"

/* Checks the call, takes its variant (call->variant >= 0: that one, where it can run the call; else wf_pick's), builds it and
 * compares it once with the reference on a small problem of the same op, dtypes and head shape; one that fails to build or is
 * wrong is dropped with a warning and the next one tried. A fused call without a kernel for the whole is bound in pieces. */
weft_status wf_bind(wf_dev *, const wf_call *, wf_binding *out);
/* The same for those who submit by variant: *variant is that of the call itself, of a fused one in pieces that of its product. */
weft_status wf_prepare(wf_dev *, const wf_call *, int *variant);

#endif
