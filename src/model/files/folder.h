/* folder: a model as Hugging Face lays it out, config.json beside safetensors files, as the same object that a GGUF
 * file gives: the metadata under GGUF's keys, the tensors under GGUF's names. So nothing behind knows two formats.
 *
 * One thing differs and is told by wf_gguf.folder: the rows of q and k stand as the model was trained, each head's
 * halves rotated with one another. Converters to GGUF interleave them for `llama`. The tokenizer is read from the
 * folder by text/. */
#ifndef WF_FOLDER_H
#define WF_FOLDER_H

#include "model/files/gguf.h"

weft_status wf_model_file_open(const char *path, wf_gguf **out); /* opens a GGUF file or a folder */
/* A folder without its weights, which weft may not be able to read: tokenizer and templates. Anything else:
 * WEFT_ERR_UNSUPPORTED, and the error before stays. */
weft_status wf_folder_vocabulary(const char *path, wf_gguf **out);
void wf_folder_close(struct wf_folder *); /* by wf_gguf_close */
/* The tensors of PEFT's adapter_model.safetensors in that folder, for a model of that architecture, named as in a GGUF
 * file of an adapter: "blk.0.attn_q.weight.lora_a". */
struct wf_arch;
weft_status wf_folder_adapter(const char *path, const struct wf_arch *arch, wf_gguf **out);

/* Names of tensors without their last part (".weight") unless `whole`, '#' standing for the number of a layer, then of
 * an expert; ours NULL: no weight of the model. A row of an architecture comes before those of Llama, which all have.
 * The list ends with NULL. */
typedef struct wf_folder_name {
    const char *theirs, *ours;
    weft_status (*change)(wf_gguf *g, wf_gguf_tensor *t); /* what GGUF has otherwise; it has its new name; or NULL */
    bool whole;
    bool bytes; /* it is of bytes (U8), of which `change` makes something */
} wf_folder_name;

/* A number of config.json, and its key of ours behind the architecture. A row takes the place of Llama's with the same
 * `ours`, of which there may be several; theirs NULL: there is no such number, or `read` adds it. */
#define WF_KEY_REQUIRED (-1)
typedef struct wf_folder_key {
    const char *theirs, *ours;
    bool real;
    float missing; /* its value where config.json has none; 0: none either */
    enum { WF_NULL_IS_MISSING, WF_NULL_IS_0, WF_NULL_IS_NONE } null; /* what null means: GGUF has 0, or no key */
    const char *class; /* the only one of the architecture's classes that has it; NULL: all have */
} wf_folder_key;

/* Biases that transformers reads, of products and norms: always, or where a key of config.json is true. It leaves out
 * all others. */
typedef struct wf_folder_bias {
    const char *of;    /* GGUF's names of their tensors, without layer and last part, with a space between */
    const char *key;   /* NULL: always */
    bool missing;      /* its value where config.json has none */
    const char *class; /* as of wf_folder_key */
} wf_folder_bias;
#define WF_ATTENTION_BIASES "attn_q attn_k attn_v attn_output"
#define WF_MLP_BIASES       "ffn_gate ffn_up ffn_down"

#define WF_QWEN_WINDOW 4096 /* of transformers' configuration classes of Qwen 2 and 3 */
struct wf_json;
typedef struct wf_folder_keys {
    const wf_folder_key *rows; /* ends with NULLs; NULL: no rows */
    const char *act, *acts;    /* key of the activation; what weft computes, with blanks between; NULL: Llama's */
    bool windows;              /* its layers may have sliding windows, which the graph computes */
    bool early_windows;        /* use_sliding_window is also of layers before max_window_layers */
    uint32_t window;           /* with use_sliding_window, where sliding_window is missing, not null; 0: none */
    bool partial;              /* heads may rotate in part (partial_rotary_factor) */
    const char *quantised;     /* quant_methods that its names read, with blanks between; NULL: none */
    bool tied;                 /* tie_word_embeddings where config.json does not say */
    const wf_folder_bias *biases; /* ends with NULLs; NULL: none */
    weft_status (*read)(wf_gguf *g, const struct wf_json *config); /* adds or refuses more; NULL: nothing */
} wf_folder_keys;

/* folder_lacks.c, of a folder without safetensors files: fails if its weights are in another format; if it is not even
 * a vocabulary; always. */
weft_status wf_folder_other_weights(const char *folder);
weft_status wf_folder_no_model(const char *folder);
weft_status wf_folder_no_weights(const char *folder);

/* For wf_folder_name: a matrix, kept by g, whose rows were columns; vectors stay. */
weft_status wf_folder_transpose(wf_gguf *g, wf_gguf_tensor *t);

/* For the same: leaves out the first rows of a table of positions, which must have more. */
weft_status wf_folder_skip_rows(wf_gguf_tensor *t, uint64_t rows);

/* A tensor of the folder by its own name; NULL: there is none. */
struct wf_safetensor;
const struct wf_safetensor *wf_folder_source(const wf_gguf *g, const char *name);

/* The next tensor from *at on that is a bias, and what of, as wf_folder_bias has it; NULL: there is none. names: the
 * architecture's own. */
const struct wf_safetensor *wf_folder_next_bias(const wf_gguf *g, const wf_folder_name *names, size_t *at,
                                                const char **of);

/* " (name in the folder)" of a tensor, also of one that it lacks, if others show which of several names it would have;
 * "": a GGUF file, or it is not known. */
const char *wf_folder_their_name(const wf_gguf *g, wf_str ours, char out[256]);

/* Adds the period of local layers, "attention.sliding_window_pattern" of arch, from layer_types or the older
 * sliding_window_pattern, where config.json has either. */
weft_status wf_folder_window_period(wf_gguf *g, const char *arch, const struct wf_json *config);

/* The same of the base of their rotation, "rope.freq_base_swa", which is all that it has: of rope_parameters, or under
 * the older key; 10000 where there is neither. */
weft_status wf_folder_local_base(wf_gguf *g, const char *arch, const struct wf_json *config, const char *older);

/* ---- filling an object: the folder reader, and who writes a file --------------------------------- */

/* One without content that owns what the functions below add; then wf_gguf_index. */
weft_status wf_folder_new(const char *name, wf_gguf **out);
/* Adds metadata, copied. */
weft_status wf_folder_u32(wf_gguf *g, const char *key, uint32_t v);
weft_status wf_folder_i32(wf_gguf *g, const char *key, int32_t v);
weft_status wf_folder_f32(wf_gguf *g, const char *key, float v);
weft_status wf_folder_str(wf_gguf *g, const char *key, const char *v);
weft_status wf_folder_bool(wf_gguf *g, const char *key, bool v);
weft_status wf_folder_array(wf_gguf *g, const char *key, enum wf_gguf_type item, uint64_t count, const void *data,
                            size_t bytes);
/* What these point at must outlive g. */
weft_status wf_folder_add(wf_gguf *g, const wf_gguf_kv *kv);
weft_status wf_folder_push(wf_gguf *g, const wf_gguf_tensor *t);
uint32_t wf_folder_get(const wf_gguf *g, const char *key); /* as added; 0: it was not */
/* Memory that lives as long as g, with a copy of data, or zeros where that is NULL; NULL with a message. */
void *wf_folder_keep(wf_gguf *g, const void *data, size_t size);
/* pooling.c: how the model of a folder of this class pools, from sentence-transformers' files; adds the key
 * "pooling_type" of arch. bare: it has no output matrix, and so its last token where no file says how. Sets *pooled. */
weft_status wf_folder_pooling(wf_gguf *g, const char *arch, const char *class, bool bare, bool *pooled);
/* config.c: the hyperparameters of path, a config.json. *tied: the output matrix is the embedding table;
 * *bare: it is a model without an output matrix, as its *class says, which g keeps. */
struct wf_arch;
/* Fails if it can be read and names an architecture that is not supported. */
weft_status wf_folder_class(const char *path);
weft_status wf_folder_config(wf_gguf *g, const char *path, const struct wf_arch **arch, const char **class, bool *tied,
                             bool *bare);

#endif
