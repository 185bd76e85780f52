/* build.h: the parts of a graph that the parts in model.h consist of. All keep the first error in the builder and give
 * -1 from then on. */
#ifndef WF_MODEL_BUILD_H
#define WF_MODEL_BUILD_H

#include "model/model.h"

int32_t wf_build_fail(wf_builder *b, weft_status s);
/* build.c: adds an activation, and a node. */
int32_t wf_build_activation(wf_builder *b, enum wf_rows rows, enum wf_dtype dtype, uint32_t cols);
void wf_build_node(wf_builder *b, const wf_node *n);
/* A node of the layer being built, without operands. */
wf_node wf_build_blank(const wf_builder *b, enum wf_node_kind kind, enum wf_op op, const char *name, enum wf_rows rows);
wf_node wf_build_node_of(const wf_builder *b, enum wf_op op, const char *name, enum wf_rows rows);
/* Rows of a table, with a factor (0: 1), and added to rows of `add` (-1: none). */
int32_t wf_build_gather(wf_builder *b, const char *name, int32_t table, enum wf_input ids, float gain, int32_t add,
                        enum wf_dtype out);
int32_t wf_build_norm_as(wf_builder *b, const char *name, const char *tensor, int32_t x, enum wf_dtype out);
/* f(gate) * up, f by the hyperparameters; groups as of SILU_MUL. */
int32_t wf_build_silu_mul(wf_builder *b, const char *name, int32_t gate_up, uint32_t groups);
int32_t wf_build_activate(wf_builder *b, const char *name, enum wf_activation f, float softcap, int32_t x,
                          enum wf_dtype out);

/* ---- tensors.c: values of the graph from tensors of the file; "<tensor>.<suffix>", in a layer
 * "blk.<layer>.<tensor>.<suffix>" ---- */

/* NULL: the file has none. */
const wf_gguf_tensor *wf_build_find(const wf_builder *b, const char *tensor, const char *suffix);
/* Checked to be finite. */
weft_status wf_build_decode_vector(wf_builder *b, const wf_gguf_tensor *t, uint32_t n, float *out);
int32_t wf_build_weight(wf_builder *b, const wf_weight *w);
int32_t wf_build_made(wf_builder *b, float *made, uint32_t rows, uint32_t cols); /* takes `made` */
int32_t wf_build_vector(wf_builder *b, const char *tensor, uint32_t n);
int32_t wf_build_heads_vector(wf_builder *b, const char *tensor); /* of a number for each query head */
/* Of elements of heads, in the order of the rows of q and k. */
int32_t wf_build_rotated_vector(wf_builder *b, const char *tensor, uint32_t n);
/* Of a norm: its weights ("weight"), or its bias ("bias"), which is zeros where the file has none. */
int32_t wf_build_norm_vector(wf_builder *b, const char *tensor, const char *suffix, uint32_t n);
/* Biases of stacked matrices, zeros for a matrix without one; -1 without an error if none has a bias. */
int32_t wf_build_stacked_bias(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t rows);
int32_t wf_build_stacked_matrix(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t cols);
/* How many of the first matrices can be one: neighbours of one format. */
uint32_t wf_build_can_stack(const wf_builder *b, const wf_linear *l, uint32_t n);

/* ---- shard.c: what a device has of a model that several compute together ---- */

enum { WF_MOST_STRIPES = 3 };
/* `size` of `whole`, from `first` on. */
typedef struct wf_stripe {
    uint32_t whole, first, size;
} wf_stripe;
/* Of a product's matrix: rows of each of n stacked upon the other in the file, and columns. */
typedef struct wf_shard_cut {
    uint32_t n;
    wf_stripe rows[WF_MOST_STRIPES], cols;
} wf_shard_cut;
bool wf_is_shard(const wf_builder *b); /* of more than one device? */
/* The hyperparameters of a device. Errors as of wf_model_build. */
weft_status wf_shard_hparams(const wf_gguf *f, const wf_hparams *whole, const wf_shard *shard, wf_hparams *out);
/* Where l's product, by its name, has rows and columns in the file, and all of them where it is not cut; cols: those
 * that it has here. */
wf_shard_cut wf_shard_cut_of(const wf_builder *b, const wf_linear *l, uint32_t cols);
uint32_t wf_shard_rows(const wf_shard_cut *c); /* in the file */
void wf_shard_copy(const wf_shard_cut *c, const float *whole, float *out); /* of a vector, what belongs to its rows */
bool wf_shard_is_partial(const wf_shard_cut *c); /* is what the product gives a part of a sum? */
wf_stripe wf_shard_heads(const wf_builder *b); /* query heads */
bool wf_shard_cuts_vocabulary(const wf_builder *b); /* has each device the logits of a part of it? */
/* Has each device whole blocks of that many columns? */
weft_status wf_shard_check_cols(const wf_builder *b, const wf_gguf_tensor *t, uint32_t block);
weft_status wf_shard_refuse(const wf_builder *b, const char *what);
/* Nodes: the columns of all devices' logits; x where one device has them all. */
int32_t wf_shard_gather(wf_builder *b, int32_t x);
/* Of a group's devices, the parts of a sum side by side, and of them those columns that are this one's; and nodes that
 * fetch the others', and add all to a residual (-1: none). name: "attn_out", of "attn_out_parts" and "attn_out_sum". */
wf_operand wf_shard_part(wf_builder *b, enum wf_rows rows, enum wf_dtype dtype);
int32_t wf_shard_sum(wf_builder *b, const char *name, wf_operand part, int32_t residual, enum wf_dtype out);

/* The residual stream from another device, and to it. */
int32_t wf_shard_receive(wf_builder *b, const char *name);
void wf_shard_send(wf_builder *b, int32_t x);

/* ---- rope_table.c ---- */

enum wf_rope_table {
    WF_ROPE_NONE,
    WF_ROPE_LOCAL,
    WF_ROPE_ALL
}; /* no rotation; that of layers with a window; that of the others */
/* [context, n_rot] pairs (cos, sin), computed in double on the host, once they are uploaded: more accurate than any
 * device's sin(), and one load per row. */
int32_t wf_build_rope_table(wf_builder *b, enum wf_rope_table how);

#endif
