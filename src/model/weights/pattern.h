/* pattern: random weights that the device makes. The pattern of each format and K (shape.h) goes there once, in the layout that the device wants;
 * a kernel, PAGE_COPY, whose pages are bands of rows, then copies bands of it to where they stand in each matrix. So nothing of the size of the
 * weights is made on the host or comes from there, and the values are those of wf_filler_bytes, bit for bit. */
#ifndef WF_PATTERN_H
#define WF_PATTERN_H

#include "model/model.h"
#include "model/files/shape.h"

typedef struct wf_patterns wf_patterns;

/* Is that weight made of patterns? Only one whose tensors have no bytes and come in whole bands, also by heads. */
bool wf_pattern_makes(const wf_weight *);
/* The patterns of w's weights, which must have their views, and device memory for them. `fill` must live as long. WEFT_ERR_NOMEM is also that the
 * device has no memory to spare. */
weft_status wf_patterns_open(const wf_weights *w, const wf_filler *fill, wf_dev *dev, wf_patterns **out);
void wf_patterns_close(wf_patterns *); /* with nothing in flight, or after the device is lost; NULL is allowed */
/* What has to be uploaded before the weights can be made: i from 0 on; NULL: that was all. */
const wf_weight *wf_patterns_weight(const wf_patterns *, size_t i);
uint64_t wf_patterns_bytes(const wf_patterns *); /* of the rows that are made of them */
/* Makes the weights, behind the upload on the same queue. *done: bytes so far, of total. On failure something may be in flight. */
weft_status wf_patterns_copy(wf_patterns *, wf_queue *q, uint64_t *done, uint64_t total, weft_progress_fn progress, void *user);

#endif
