/* recipe: which storage format each tensor of a file gets.
 *
 * Types of files and their mixes are llama.cpp's (src/llama-quant.cpp), so that a file has the size and the quality
 * that its name stands for elsewhere: more bits for the value and down matrices of some layers and for the output,
 * another format where rows are no multiple of the block. Norms, vectors, routers and tables of positions stay F32. */
#ifndef WF_RECIPE_H
#define WF_RECIPE_H

#include "model/files/gguf.h"

enum wf_file_type { /* llama.cpp's numbers of those whose mixes have rules of their own */
    WF_FILE_Q2_K = 10, WF_FILE_Q3_K_M = 12, WF_FILE_Q3_K_L = 13, WF_FILE_Q4_K_S = 14, WF_FILE_Q4_K_M = 15,
    WF_FILE_Q5_K_M = 17, WF_FILE_IQ4_NL = 25, WF_FILE_IQ4_XS = 30, WF_FILE_MXFP4 = 38
};

/* Which formats one matrix of the layers has in files of a type: one in some layers, which get more bits (the first and
 * the last eighth, and every third one between), and one in the others; but in the first part of the layers, one in
 * `part` of them where that is not 0, the format `first`. */
typedef struct wf_mix_row {
    enum wf_file_type type;
    enum wf_dtype more, others;
    uint32_t part;
    enum wf_dtype first;
} wf_mix_row;

/* Where the mixes of an architecture differ from those of most. Rows end with zeros; a type without a row has its own
 * format everywhere. */
typedef struct wf_mix {
    const wf_mix_row *down, *attention_output; /* NULL: as of most */
    bool output_q8;        /* the output is Q8_0 in all mixes */
    /* A model with so many is the one of 70B, whose value matrix is small and gets more bits; 0: there is none. */
    uint32_t large_layers;
    bool large_shares;     /* and its query heads share KV heads; without that it is another model */
} wf_mix;

typedef struct wf_recipe {
    const char *name;
    uint32_t file_type; /* general.file_type */
    enum wf_dtype dtype; /* of most matrices */
    uint32_t n_layer, n_head, n_kv_head, n_expert;
    bool tied;
    wf_mix mix;
} wf_recipe;

/* The name of a general.file_type; NULL: not one that a model can be converted to. */
const char *wf_file_type_name(uint32_t number);
/* WEFT_ERR_ARG: no such type; the message lists them. */
weft_status wf_recipe_open(const char *type, const wf_gguf *f, wf_recipe *out);
/* *other: rows are no multiple of the format's block, so that it got another one. */
enum wf_dtype wf_recipe_dtype(const wf_recipe *r, const wf_gguf_tensor *t, bool *other);

#endif
