/* shape: models of well-known shapes (shapes.def) without a file, to measure speed: metadata and a vocabulary of fillers; matrices have no bytes
 * (wf_gguf_tensor.data NULL) and are filled with random weights on their way to the device, or there. */
#ifndef WF_SHAPE_H
#define WF_SHAPE_H

#include "model/files/gguf.h"

/* type: as wf_recipe_open takes it. layers: 0: as many as the model has. WEFT_ERR_ARG: no such shape; the message lists them. */
weft_status wf_shape_open(const char *name, const char *type, uint32_t layers, wf_gguf **out);

/* Random weights for matrices without bytes. Each format and K has a pattern of WF_PATTERN_ROWS rows of N(0, 1 / K), and each group of rows of a matrix is one
 * of the pattern's, chosen by a hash of the file's seed, the tensor and the group. Groups hold whole heads of up to 128 rows, so that a pattern may have its
 * rows in the order of wf_pairs, too. Whoever makes weights elsewhere (pattern.h) needs the pattern and wf_filler_row alone. */
enum { WF_PATTERN_GROUP = 128, WF_PATTERN_ROWS = 4 * WF_PATTERN_GROUP };
typedef struct wf_filler wf_filler;
weft_status wf_filler_open(const wf_gguf *g, wf_filler **out);
void wf_filler_close(wf_filler *);
/* The row of the pattern that is a row of t. A tensor without a name is the pattern itself. */
uint64_t wf_filler_row(const wf_filler *, const wf_gguf_tensor *t, uint64_t row);
/* Bytes of t from `at` on; *n, how many are wanted, is cut to how many lie there. */
const uint8_t *wf_filler_bytes(const wf_filler *, const wf_gguf_tensor *t, uint64_t at, uint64_t *n);

#endif
