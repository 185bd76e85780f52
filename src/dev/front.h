/* front: what the files of the front and src/verify share. */
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

#endif
