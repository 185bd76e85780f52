/* adapter: a LoRA adapter as its file has it: of some of a model's matrices W, two matrices whose product times a
 * factor is added to W. GGUF files as llama.cpp writes them, and folders of PEFT, whose tensors get GGUF's names.
 *
 * What is computed otherwise than so is refused by its name. Read-only after opening. */
#ifndef WF_ADAPTER_H
#define WF_ADAPTER_H

#include "model/model.h"

#define WF_ADAPTER_RANK 4096 /* no more */

/* y = W x + scale B (A x) of the model's tensor of that name. */
typedef struct wf_adapter_part {
    const char *tensor; /* "blk.0.attn_q.weight" */
    const wf_gguf_tensor *a, *b; /* [rank, cols], [rows, rank] */
    uint32_t rank;
    float scale;
} wf_adapter_part;

typedef struct wf_adapter {
    wf_gguf *file;
    bool halves; /* rows of q and k have pairs in halves whatever the model's file has: PEFT (files/pairs.h) */
    wf_adapter_part *parts; /* sorted by tensor */
    size_t n_parts;
    uint32_t rank;          /* the largest */
} wf_adapter;

/* arch: of the model that it is for. */
weft_status wf_adapter_open(const char *path, const wf_arch *arch, wf_adapter **out);
void wf_adapter_close(wf_adapter *); /* NULL is allowed */
const wf_adapter_part *wf_adapter_find(const wf_adapter *, const char *tensor); /* NULL: it leaves that one as it is */
/* Decodes the matrix t, one of a part's, to n floats; WEFT_ERR_FORMAT if one is not finite or too large for F16 with
 * that factor, by which they are multiplied. */
weft_status wf_adapter_decode(const wf_adapter *, const wf_gguf_tensor *t, float factor, float *out);

#endif
