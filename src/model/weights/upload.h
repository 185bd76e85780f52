/* upload: fills the device's memory of weights from their bytes, packed on threads and copied meanwhile; and random
 * bytes for those of shapes (files/shape.h), which have none. */
#ifndef WF_UPLOAD_H
#define WF_UPLOAD_H

#include "model/model.h"

/* Rows of N(0, 1 / K) for matrices without bytes. Each format and K has a pattern of 512 rows; each group of 128 rows
 * of a matrix is one of the pattern's, chosen by a hash of the file's seed, the tensor and the group. */
typedef struct wf_filler wf_filler;
weft_status wf_filler_open(const wf_gguf *g, wf_filler **out);
void wf_filler_close(wf_filler *); /* NULL is allowed */
/* Bytes of t from `at` on; *n, how many are wanted, is cut to how many lie there. */
const uint8_t *wf_filler_bytes(const wf_filler *, const wf_gguf_tensor *t, uint64_t at, uint64_t *n);

/* Fills every weight that has a view outside of the files. The calling thread alone uses the device, and calls
 * progress. fill: bytes of tensors without; NULL: all have theirs. On failure nothing is in flight, unless the device
 * is lost. */
weft_status wf_upload(wf_weights *w, const wf_filler *fill, wf_dev *dev, wf_queue *q, weft_progress_fn progress,
                      void *user);

#endif
