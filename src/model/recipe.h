/* recipe: which storage format each tensor of a file gets.
 *
 * Types of files and their mixes are llama.cpp's (src/llama-quant.cpp), so that a file has the size and the quality that its name stands
 * for elsewhere: more bits for the value and down matrices of some layers and for the output, another format where rows are no multiple of
 * the block. Norms, vectors, routers and tables of positions stay F32. */
#ifndef WF_RECIPE_H
#define WF_RECIPE_H

#include "model/gguf.h"

typedef struct wf_recipe {
    const char *name;
    uint32_t file_type; /* general.file_type */
    enum wf_dtype dtype; /* of most matrices */
    uint32_t n_layer, n_head, n_kv_head, n_expert;
    bool tied, falcon, llama;
} wf_recipe;

/* The name of a general.file_type; NULL: not one that a model can be converted to. */
const char *wf_file_type_name(uint32_t number);
/* WEFT_ERR_ARG: no such type; the message lists them. */
weft_status wf_recipe_open(const char *type, const wf_gguf *f, wf_recipe *out);
/* *other: rows are no multiple of the format's block, so that it got another one. */
enum wf_dtype wf_recipe_dtype(const wf_recipe *r, const wf_gguf_tensor *t, bool *other);

#endif
