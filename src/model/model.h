/* model: hyperparameters, the op graph of an architecture, and its weights on a device.
 *
 * An architecture is one file in arch/ and one row in archs.def: it reads its hyperparameters and builds
 * the graph with the builder below (build.c), which finds, checks and lists the tensors as it goes.
 */
#ifndef WF_MODEL_H
#define WF_MODEL_H

#include "dev/arena.h"
#include "model/files/folder.h"
#include "model/files/gguf.h"
#include "model/files/pairs.h"
#include "plan/graph.h"

#include <stdatomic.h>

/* How the rows of a prompt's tokens become its embedding, numbered as in GGUF. NONE: the model generates text. */
enum wf_pooling { WF_POOLING_NONE, WF_POOLING_MEAN, WF_POOLING_CLS, WF_POOLING_LAST, WF_POOLING_RANK, WF_N_POOLINGS };
const char *wf_pooling_name(enum wf_pooling p); /* "mean"; NULL: NONE */
/* Of a model that has this one by itself: by name, or name NULL the model's. WEFT_ERR_ARG lists the names. */
weft_status wf_pooling_choose(enum wf_pooling own, const char *name, enum wf_pooling *out);

typedef struct wf_hparams {
    uint32_t n_layer, n_head, n_kv_head, head_dim, hidden_size, intermediate_size, n_vocab, context;
    uint32_t n_rot;         /* rotated elements of each head, even */
    bool neox;              /* pairs (i, i + n_rot/2) instead of (2i, 2i + 1) */
    float rope_base;
    float rope_factor;      /* linear scaling: positions are divided by it */
    /* YaRN: only pairs that turn less often in the original context are scaled, wholly below slow; 0: all are. */
    float yarn_fast, yarn_slow;
    bool yarn_exact;        /* the bounds between pairs are not rounded */
    float rope_gain;        /* factor of the rotation's cos and sin; 0: 1 */
    uint32_t original_context; /* that the model had before its rotation was scaled; 0: unknown */
    float eps;
    bool layer_norm;        /* norms of the residual stream subtract the mean and may have a bias */
    bool learned_positions; /* a table, added to the embeddings */
    uint32_t unrotated_step; /* every so many layers, q and k are not rotated; 1: never; 0: always rotated */
    enum wf_activation activation; /* of a feed-forward without a gate */
    float embedding_gain, logit_gain; /* factors; 0: 1 */
    float attention_scale;  /* of scores; 0: 1 / sqrt(head_dim) */
    enum wf_activation gate; /* of the feed-forward */
    bool gate_in_up;        /* the rows of gate may stand before those of up, in one matrix */
    bool post_norms;        /* norms of what attention and the feed-forward add to the residual stream */
    uint32_t window; /* keys that local layers attend to, the token's own included; 0: all layers attend to all keys */
    uint32_t window_period; /* every so many layers, one attends to all keys; 0: all are local */
    bool global_first;      /* the first of them, not the last */
    /* Beyond which some layers would have a window that the graph lacks; 0: there is no such. */
    uint32_t longest_context;
    float local_rope_base;  /* of local layers, which then have no scaling; 0: the same as the others */
    float attention_softcap, logit_softcap; /* 0: none */
    bool sinks; /* a score of each query head, which takes part in the sum that its weights are divided by */
    /* Of a mixture of experts; 0: one feed-forward of intermediate_size for all tokens. */
    uint32_t n_expert, n_expert_used, expert_size;
    bool expert_shared;     /* every token takes one expert besides, of shared_size, gated by a sigmoid */
    uint32_t shared_size;
    bool expert_normalise;  /* divide the weights of a token's experts by their sum; the file may say otherwise */
    bool expert_sigmoid;    /* they are sigmoids of the scores instead of a softmax */
    float expert_scale;     /* and are multiplied by this */
    enum wf_pooling pooling;
    uint32_t n_types;       /* of tokens, by the text of a pair that they are of; 0: one */
    bool bidirectional;     /* tokens attend to all of their prompt, which is computed in one step */
} wf_hparams;

typedef struct wf_builder wf_builder;

typedef struct wf_arch {
    const char *name;             /* general.architecture */
    const char *classes;          /* transformers' names of it, with a space between: config.json's architectures */
    const wf_folder_name *names; /* of its tensors in a folder, where they are not called as in Llama; NULL: they are */
    weft_status (*hparams)(const wf_gguf *f, wf_hparams *hp);
    void (*graph)(wf_builder *b); /* errors are kept in the builder */
    const wf_folder_keys *keys;   /* what its config.json has otherwise than Llama's; NULL: nothing */
    /* Formats of tensors in mixes, where they differ from those of most architectures (model/files/recipe.h); NULL:
     * nowhere. */
    const struct wf_mix *mix;
} wf_arch;

/* Is the word in a list with a space between? */
bool wf_listed(const char *list, const char *word);
/* By general.architecture; NULL: it is not known. */
const wf_arch *wf_arch_named(wf_str name);
/* The same; WEFT_ERR_UNSUPPORTED lists the known ones. */
weft_status wf_arch_find(const wf_gguf *f, const wf_arch **out);
bool wf_class_known(const char *class); /* of transformers: is it an architecture's? */
/* By transformers' class; the same. */
weft_status wf_arch_of_class(const char *class, const wf_arch **out);

/* Do rows of q and k of such a model have pairs in halves (files/pairs.h): in a folder, or in a GGUF file? */
weft_status wf_arch_halves(const wf_arch *arch, const wf_gguf *f, bool folder, bool *out);
bool wf_is_rotated(wf_str tensor); /* the weight or bias of q or k, by its name */

/* A model file, its vocabulary and hyperparameters; read-only once open. */
struct weft_model {
    wf_gguf *file;
    struct wf_tokenizer *tokenizer;
    const wf_arch *arch; /* NULL: vocabulary only */
    wf_hparams hp;
    struct weft_model_info info;
    struct weft_model_params opened; /* what names it: path, shape, type and layers; in another process, too */
    char *strings[11];   /* NUL-terminated copies that info and opened point to */
    size_t n_strings;
    struct wf_token_trie *tokens; /* for grammars; NULL: nobody has needed it yet (engine/constraint.c) */
    uint64_t open_ns;    /* how long opening it took */
    atomic_uint users;   /* who opened it, and engines */
};

/* ---- weights ------------------------------------------------------------------------------------ */

/* A RoPE table [positions, pairs] of (cos, sin), by how far each pair turns from one position to the next. */
typedef struct wf_rope {
    uint32_t pairs;
    double gain;
    double step[]; /* [pairs] radians */
} wf_rope;
void wf_rope_rows(const wf_rope *r, uint64_t first, uint64_t n, float *out);

/* Rows of a tensor. */
typedef struct wf_part {
    const wf_gguf_tensor *t;
    uint64_t first, rows; /* the first one, and how many */
} wf_part;

/* A matrix of the graph: rows of one tensor, of several stacked, or values computed on the host. */
typedef struct wf_weight {
    wf_part *parts;    /* owned by the list; of dtype, or of any that dtype holds (tensor/joint.h) */
    uint32_t n_parts;
    const void *made;  /* rows x cols of dtype, owned by the list; when n_parts is 0 and it is no RoPE table */
    /* Owned by the list; the rows of a RoPE table are computed when they are uploaded. NULL: it is none. */
    wf_rope *rope;
    enum wf_dtype dtype;
    uint32_t rows, cols;
    uint32_t experts;  /* whose matrices these rows are, one behind the other; 0: one matrix */
    wf_pairs pairs;    /* the order of the rows of one that is made of tensors */
    uint32_t turn;     /* rows that each part gives in turn, such as an expert's gate and up; 0: all of them at once */
    uint32_t step;     /* rows of a part from the first one of a turn to that of the next */
    uint32_t first_col, part_cols; /* the columns begin with that one of part_cols in the tensors; part_cols 0: all */
    bool matrix;       /* the W of a product: the backend may choose its layout */
    bool zeros;        /* nothing but zeros, until somebody writes to it; when there is nothing that it is made of */
    wf_view view;      /* after upload */
} wf_weight;

typedef struct wf_weights {
    wf_weight *list;
    size_t n, cap;
    wf_arena arena;
    wf_buf **files; /* the mapped files as buffers, if the device can use them in place */
    size_t n_files;
    bool in_file; /* some of them are read there: the file must not change */
    uint32_t n_packers; /* threads that packed them */
    uint64_t packed_ns, copied_ns; /* how long loading waited for packing and for copies */
} wf_weights;

/* Where a row of a weight that is made of tensors is: a row of a part, of which `left` rows of the weight, this one
 * included, follow each other. */
typedef struct wf_source {
    const wf_gguf_tensor *t;
    uint64_t row, left;
} wf_source;
wf_source wf_source_of(const wf_weight *w, uint64_t row);
/* In device memory, of that many rows in the layout of w's view. */
uint64_t wf_laid_out_bytes(wf_dev *, const wf_weight *w, uint32_t rows);

/* Adds a weight and returns its value in g; takes ownership of `parts`, `made` and `rope`. -1 on failure: they still
 * belong to the caller. */
int32_t wf_weights_add(wf_weights *w, wf_graph *g, const wf_weight *one);
/* As stored in the file; of tensors in one matrix of another format, in that; of those of which it has a part, of the
 * part. */
uint64_t wf_weights_bytes(const wf_weights *w);
/* As they lie there, which may be more; NULL: as in the file. */
uint64_t wf_weights_bytes_on(const wf_weights *w, wf_dev *dev);
uint64_t wf_weights_made_bytes(const wf_weights *w); /* of these, those that no file has */
/* Uploads every weight to the device. q is any queue of dev. */
weft_status wf_weights_upload(wf_weights *w, const wf_gguf *f, wf_dev *dev, wf_queue *q, weft_progress_fn progress,
                              void *user);
/* The same on a queue of its own. views: of each weight, for the caller to free. */
weft_status wf_weights_load(wf_weights *w, const wf_gguf *f, wf_dev *dev, weft_progress_fn progress, void *user,
                            wf_view **views);
void wf_weights_free(wf_weights *w);

/* ---- building graphs (for arch/) ------------------------------------------------------------------ */

/* Which part of a model that several devices compute: of each layer (tensor parallelism; ranks 0 or 1: all of it), of
 * the layers (pipeline parallelism; stages 0 or 1: all of them), and of the blocks (experts elsewhere). */
typedef struct wf_shard {
    uint32_t rank, ranks;
    uint32_t stage, stages;
    uint32_t away; /* the first so many layers have their feed-forward on another device */
    bool is_away;  /* this one: nothing else is here */
    enum wf_dtype sums; /* of the parts of sums that devices exchange: the same of all */
} wf_shard;

struct wf_builder {
    const wf_gguf *file;
    const wf_hparams *hp; /* of the shard: its heads, and its part of a feed-forward's width */
    const wf_hparams *whole; /* of the model */
    wf_shard shard;
    wf_graph *graph;
    wf_weights *weights;
    enum wf_dtype act;  /* dtype of activations between ops */
    enum wf_dtype residual; /* dtype of the residual stream */
    enum wf_stacking stack_weights; /* which matrices that share their input become one */
    bool interleave;    /* rows of q and k: the file has pairs in halves, and the device wants neighbours */
    uint32_t context;   /* rows of the RoPE table */
    uint32_t page_tokens;
    enum wf_dtype kv;
    enum wf_pooling pooling;
    int32_t layer;      /* of the nodes being built, as the file counts them */
    int32_t first_layer, end_layer; /* of the stage */
    /* Values of the RoPE table of local layers, and of the attention window of each query head. */
    int32_t local_rope, windows;
    /* Values of the RoPE table, of one that turns nothing, and of the embedding table. */
    int32_t rope, unrotated, embedding;
    bool normed;        /* what the last layer gives is: no norm follows it */
    float norm_gain;    /* factor of the weights of the norms being built; 0: 1 */
    uint8_t *used;      /* by tensor of the file */
    weft_status status; /* the first error; later calls do nothing */
};

/* What a graph depends on beside the model; as in wf_builder, and as a device wants it. */
typedef struct wf_build_params {
    enum wf_dtype act, residual, kv; /* kv: of pages, F16 or Q8_0 */
    enum wf_stacking stack_weights;
    bool adjacent_pairs; /* as in wf_dev */
    uint32_t context, page_tokens;
    enum wf_pooling pooling; /* NONE: as the model has it */
    wf_shard shard;
} wf_build_params;
/* As a GPU wants it, of which only that is known, where dev is NULL. */
wf_build_params wf_build_params_of(const wf_dev *dev, uint32_t context, uint32_t page_tokens);

/* Graph, weights list and every check of names and shapes. Of a shard: where all of a group's devices have computed a
 * part of each value that follows, an ALL_GATHER gives them all parts side by side, by rank, "attn_out_parts" and
 * "ffn_down_parts" in each layer, which each then adds in that order, "attn_out_sum" and "ffn_down_sum"; and the GATHER
 * "logits_gather" puts the first one's columns beside those of the others; all else each does by itself, and all end in
 * the same logits. Their graphs have the same nodes. WEFT_ERR_UNSUPPORTED: the model cannot be cut so; it says why, and
 * where only the number is wrong which would do. WEFT_ERR_ARG: the rank is none of ranks. */
weft_status wf_model_build(const wf_arch *arch, const wf_gguf *f, const wf_hparams *hp, const wf_build_params *p,
                           wf_graph *graph, wf_weights *weights);

/* One of up to three matrices that share an input. bias: look for "<tensor>.bias" too. */
typedef struct wf_linear {
    const char *name, *tensor; /* node "q", tensor "attn_q"; the name decides what of it a shard has (arch/shard.c) */
    uint32_t rows;
    uint32_t rotated; /* of them, the first: heads of q and k. 0: none */
} wf_linear;

/* All return value indexes; names inside a layer are completed to "blk.<layer>.<tensor>.weight". */
int32_t wf_build_embed(wf_builder *b);
int32_t wf_build_columns(wf_builder *b, uint32_t cols); /* an activation of which several nodes write columns */
int32_t wf_build_norm(wf_builder *b, const char *name, const char *tensor, int32_t x);
bool wf_build_has(const wf_builder *b, const char *tensor); /* does the file have that weight, in this layer? */
/* residual + RMSNorm of x. */
int32_t wf_build_post_norm(wf_builder *b, const char *name, const char *tensor, int32_t x, int32_t residual);
/* RMSNorm of each head of x, which is F32, by itself; x is q or k before its rotation. */
void wf_build_head_norm(wf_builder *b, const char *name, const char *tensor, wf_operand x, wf_operand y);
/* The same of all the columns at once. */
void wf_build_columns_norm(wf_builder *b, const char *name, const char *tensor, wf_operand x, wf_operand y);
void wf_build_linear(wf_builder *b, const wf_linear *l, int32_t x, wf_operand y);
/* Products of x side by side, in as few nodes as the formats of their matrices allow. */
int32_t wf_build_linears(wf_builder *b, const char *name, const wf_linear *l, uint32_t n, int32_t x, int32_t residual,
                         enum wf_dtype out);
/* What a block adds to the residual stream: x + product of h, or with post_norms x + RMSNorm of the product by that
 * tensor. */
int32_t wf_build_block_end(wf_builder *b, const wf_linear *l, const char *post_norm, int32_t h, int32_t x);
/* x + attention(norm(x)); q, k, v (of one matrix or of three), RoPE, KV pages, output projection. */
int32_t wf_build_attention(wf_builder *b, int32_t x);
/* Of h, which is normalised: x + attention(h), and so below. */
int32_t wf_build_attention_of(wf_builder *b, int32_t h, int32_t x);
/* The same with a norm of each head of q and k before RoPE. */
int32_t wf_build_attention_qk_norm(wf_builder *b, int32_t x);
/* The rest of attention, from q, k and v in adjacent columns, if they need only RoPE. */
int32_t wf_build_rope_attention(wf_builder *b, int32_t qkv, int32_t x);
/* x + down(f(gate(norm(x))) * up(norm(x))), f by the hyperparameters */
int32_t wf_build_swiglu(wf_builder *b, int32_t x);
int32_t wf_build_swiglu_of(wf_builder *b, int32_t h, int32_t x);
/* x + down(f(up(norm(x)))), f: hparams' activation */
int32_t wf_build_mlp(wf_builder *b, int32_t x);
int32_t wf_build_mlp_of(wf_builder *b, int32_t h, int32_t x);
/* Matrices of all experts, one expert behind the other, of each those of l stacked. Each is the tensor "<tensor>_exps",
 * or of each expert
 * "<tensor>.<number>". */
int32_t wf_build_expert_matrix(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t cols);
/* The same of "<tensor>_exps.bias", zeros for one without; -1 without an error: there is none. */
int32_t wf_build_expert_bias(wf_builder *b, const wf_linear *l, uint32_t n);
/* Can they be one matrix? As of wf_build_can_stack, and all of one kind of tensors. */
bool wf_build_can_stack_experts(const wf_builder *b, const wf_linear *l, uint32_t n);
/* experts.c: x + the feed-forward of the experts that a router chooses for each token. */
int32_t wf_build_experts(wf_builder *b, int32_t x);
/* Of h, which is normalised, without an expert for all. */
int32_t wf_build_experts_of(wf_builder *b, int32_t h, int32_t x);
/* output.c: gathers rows that need logits, or are pooled; final norm, unless they are normed; output matrix (tied to
 * the embedding if absent), or, of pooled rows, the head that scores, if there is one. */
void wf_build_logits(wf_builder *b, int32_t x);

/* All of it: embedding, n_layer blocks, logits. A block is this attention (of the residual stream x; gives x +
 * attention) and this feed-forward (NULL: the first part is the whole block). */
typedef int32_t wf_build_part(wf_builder *b, int32_t x);
void wf_build_decoder(wf_builder *b, wf_build_part *attention, wf_build_part *feed_forward);
/* encoder.c: the same of encoders whose norms follow what they add to: the embeddings, normalised; in each layer
 * norm(attention) and norm(feed-forward), which have added x; rows of the last norm, without another. */
void wf_build_encoder(wf_builder *b, wf_build_part *attention, wf_build_part *feed_forward);
weft_status wf_encoder_hparams(const wf_gguf *f, const char *arch, wf_hparams *hp); /* and wf_hparams_read */

/* The keys that llama-like architectures share, read from "<arch>.*" and checked. */
weft_status wf_hparams_read(const wf_gguf *f, const char *arch, wf_hparams *hp);
/* A factor, which is above 0; *out stays where the file has none. */
weft_status wf_hparams_factor(const wf_gguf *f, const char *arch, const char *name, float *out);

#endif
