/* front: what the files of the front and src/verify share. */
#ifndef WF_FRONT_H
#define WF_FRONT_H

#include "dev/dev.h"

/* An error that says so if the device was lost; `what` is what was wanted. */
weft_status wf_dev_usable(const wf_dev *dev, const char *what);
/* Has the device a kernel for the call as it is? Always, but for fused ones. */
bool wf_has_fused_kernel(wf_dev *, const wf_call *);
/* The pieces that the device has kernels for, in order: of a fused call there may be several. Their number. */
size_t wf_pieces(wf_dev *, const wf_call *, enum wf_piece out[WF_MAX_PIECES]);
/* A piece as a call of its own, without events; c->variant stays where the piece is of the same op. */
wf_call wf_piece_of(const wf_call *c, enum wf_piece);

#endif
