/* upload: fills the device's memory of weights from their bytes: packed on threads, copied meanwhile. */
#ifndef WF_UPLOAD_H
#define WF_UPLOAD_H

#include "model/model.h"
#include "model/files/shape.h"

/* Fills every weight that has a view outside of the files. The calling thread alone uses the device, and calls progress. fill: bytes of
 * tensors without, or what the device makes them of (pattern.h); NULL: all have theirs. On failure nothing is in flight, unless the device is lost. */
weft_status wf_upload(wf_weights *w, const wf_filler *fill, wf_dev *dev, wf_queue *q, weft_progress_fn progress, void *user);

#endif
