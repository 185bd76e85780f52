/* gguf_write: writes what stands before the tensors' bytes in a GGUF file (version 3; github.com/ggml-org/ggml,
 * docs/gguf.md). */
#ifndef WF_GGUF_WRITE_H
#define WF_GGUF_WRITE_H

#include "model/files/gguf.h"

#define WF_GGUF_ALIGN 32 /* of the tensors' bytes: the format's default */

/* Gives each tensor its bytes by dims and ggml_type, and its offset, one behind the other. Returns the bytes of all,
 * padding included. */
uint64_t wf_gguf_place(wf_gguf *g);
/* Writes header, metadata, tensor list and padding. Returns their bytes; failures stay in f (ferror). */
uint64_t wf_gguf_write_head(const wf_gguf *g, FILE *f);

#endif
