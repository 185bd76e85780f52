/* shape: models of well-known shapes (shapes.def) without a file, to measure speed: metadata and a vocabulary of
 * fillers; matrices have no bytes (wf_gguf_tensor.data NULL) and are filled with random weights on their way to the
 * device. */
#ifndef WF_SHAPE_H
#define WF_SHAPE_H

#include "model/files/gguf.h"

/* type: as wf_recipe_open takes it. layers: 0: as many as the model has. WEFT_ERR_ARG: no such shape; the message lists
 * them. */
weft_status wf_shape_open(const char *name, const char *type, uint32_t layers, wf_gguf **out);

#endif
