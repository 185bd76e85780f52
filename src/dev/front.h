/* front: what the files of the front and src/verify share. */
#ifndef WF_FRONT_H
#define WF_FRONT_H

#include "dev/dev.h"

/* An error if the device was lost; `what` names the requested operation. */
weft_status wf_dev_usable(const wf_dev *dev, const char *what);
/* What a backend answered: a failed or endless piece of work leaves queues in a state that no driver defines, so that
 * the device is lost. */
weft_status wf_dev_note(wf_dev *dev, weft_status);
/* Can this variant run the call, and was it not dropped? */
bool wf_can_use(wf_dev *, const wf_call *, int variant);
/* Does one kernel of the device run the whole call? Always true for calls that are not fused. */
bool wf_has_fused_kernel(wf_dev *, const wf_call *);
/* Splits a call into the pieces for which the device has kernels, in order, and returns their number: 1 unless it is
 * fused. */
size_t wf_pieces(wf_dev *, const wf_call *, enum wf_piece out[WF_MAX_PIECES]);
/* Outputs of c that such a piece takes as workspaces, as bits. */
uint8_t wf_piece_workspaces(const wf_call *c, enum wf_piece);
/* An error if the device has to run a call in pieces that hand results over in a workspace which the call lacks. */
weft_status wf_workspaces_check(wf_dev *, const wf_call *);
/* A piece as a call of its own, without events; it keeps c->variant where its op is the same. */
wf_call wf_piece_of(const wf_call *c, enum wf_piece);

#endif
