/* shape: models of well-known shapes (shapes.def) without a file, to measure speed: metadata and a vocabulary of fillers; matrices have no bytes
 * (wf_gguf_tensor.data NULL) and are filled with random weights on their way to the device. */
#ifndef WF_SHAPE_H
#define WF_SHAPE_H

#include "model/gguf.h"

/* type: as wf_recipe_open takes it. layers: 0: as many as the model has. WEFT_ERR_ARG: no such shape; the message lists them. */
weft_status wf_shape_open(const char *name, const char *type, uint32_t layers, wf_gguf **out);

/* Random weights for a matrix without bytes: N(0, 1 / K), repeated from a pool for each format and K, from another place for each matrix. */
typedef struct wf_filler wf_filler;
weft_status wf_filler_open(const wf_gguf *g, wf_filler **out);
void wf_filler_close(wf_filler *);
/* Bytes of t from `at` on; *n, how many are wanted, is cut to how many lie there. */
const uint8_t *wf_filler_bytes(const wf_filler *, const wf_gguf_tensor *t, uint64_t at, uint64_t *n);

#endif
