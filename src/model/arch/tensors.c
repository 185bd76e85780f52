/* tensors: the weights of a graph from the tensors of a file, found by their names, checked, and stacked where matrices
 * share their input. */
#include "model/arch/build.h"
#include "model/files/folder.h"

#include "tensor/joint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t wf_build_fail(wf_builder *b, weft_status s)
{
    if (b->status == WEFT_OK) b->status = s;
    return -1;
}

static void tensor_name(const wf_builder *b, char out[96], const char *tensor, const char *suffix)
{
    if (b->layer == WF_ONCE) snprintf(out, 96, "%s.%s", tensor, suffix);
    else snprintf(out, 96, "blk.%d.%s.%s", b->layer, tensor, suffix);
}

const wf_gguf_tensor *wf_build_find(const wf_builder *b, const char *tensor, const char *suffix)
{
    char name[96];
    tensor_name(b, name, tensor, suffix);
    return wf_gguf_tensor_find(b->file, name);
}

static weft_status check_stack(const wf_builder *b, const wf_gguf_tensor *t, uint32_t rows, uint32_t cols, uint32_t n)
{
    if (t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == n && t->dims[3] == 1) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%.*s' is [%llu, %llu, %llu], want [%u, %u, %u]", b->file->path,
                   (int)t->name.len, t->name.data, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                   (unsigned long long)t->dims[2], cols, rows, n);
}

/* Checks shape (n > 1: of n matrices) and type, and marks the tensor as used. */
static weft_status check_tensors(wf_builder *b, const wf_gguf_tensor *t, uint32_t rows, uint32_t cols, uint32_t n)
{
    const char *path = b->file->path;
    char buf[256];
    int len = (int)t->name.len;
    if (n > 1) WF_TRY(check_stack(b, t, rows, cols, n));
    else if (t->dims[2] != 1 || t->dims[3] != 1)
        return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%.*s' has more than two dimensions, want [%u, %u]", path, len,
                       t->name.data, cols, rows);
    else if (t->dims[0] != cols || t->dims[1] != rows)
        return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%.*s'%s is [%llu, %llu], want [%u, %u]", path, len, t->name.data,
                       wf_folder_their_name(b->file, t->name, buf), (unsigned long long)t->dims[0],
                       (unsigned long long)t->dims[1], cols, rows);
    if (t->dtype < 0 || t->dtype == WF_I32)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s: tensor '%.*s' has type %s, which weft does not read; it reads %s (requantise the model)",
                       path, len, t->name.data, wf_ggml_type_name(t->ggml_type), wf_weight_dtype_names);
    b->used[t - b->file->tensors] = 1;
    return WEFT_OK;
}

static weft_status check_tensor(wf_builder *b, const wf_gguf_tensor *t, uint32_t rows, uint32_t cols)
{
    return check_tensors(b, t, rows, cols, 1);
}

int32_t wf_build_weight(wf_builder *b, const wf_weight *w)
{
    int32_t v = wf_weights_add(b->weights, b->graph, w);
    return v < 0 ? wf_build_fail(b, WEFT_ERR_NOMEM) : v;
}

/* F32 values computed on the host; takes ownership of `made`. */
int32_t wf_build_made(wf_builder *b, float *made, uint32_t rows, uint32_t cols)
{
    int32_t v = made ? wf_build_weight(b, &(wf_weight){.made = made, .dtype = WF_F32, .rows = rows, .cols = cols})
                     : wf_build_fail(b, WEFT_ERR_NOMEM);
    if (v < 0) free(made);
    return v;
}

static weft_status check_finite(const wf_builder *b, const wf_gguf_tensor *t, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%.*s' holds a value that is not finite at %u", b->file->path,
                           (int)t->name.len, t->name.data, i);
    return WEFT_OK;
}

/* One-dimensional tensors (norms, biases) are few and small: they are decoded to F32 and checked here. */
weft_status wf_build_decode_vector(wf_builder *b, const wf_gguf_tensor *t, uint32_t n, float *out)
{
    WF_TRY(check_tensor(b, t, 1, n));
    wf_dtypes[t->dtype].decode(t->data, out, n);
    return check_finite(b, t, out, n);
}

/* The order of rows of which the first so many are heads of q and k. */
static wf_pairs pairs_of(const wf_builder *b, uint32_t rotated)
{
    if (!b->interleave || !rotated) return (wf_pairs){0};
    return (wf_pairs){b->hp->head_dim, b->hp->n_rot, rotated};
}

/* Of matrices that share their input: v, whose rows stay, comes last. */
static wf_pairs stacked_pairs(const wf_builder *b, const wf_linear *l, uint32_t n)
{
    uint32_t rotated = 0;
    for (uint32_t i = 0; i < n; i++) rotated += l[i].rotated;
    return pairs_of(b, rotated);
}

static weft_status reorder(const wf_pairs *p, float *x, uint32_t n)
{
    float *from = p->rows ? wf_calloc(n, sizeof *x) : NULL;
    if (!from) return p->rows ? WEFT_ERR_NOMEM : WEFT_OK;
    memcpy(from, x, n * sizeof *x);
    for (uint32_t i = 0; i < n; i++) x[i] = from[wf_pairs_from(p, i)];
    free(from);
    return WEFT_OK;
}

static weft_status missing(const wf_builder *b, const char *name)
{
    char buf[256];
    return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%s'%s is missing", b->file->path, name,
                   wf_folder_their_name(b->file, (wf_str){name, strlen(name)}, buf));
}

static int32_t build_vector(wf_builder *b, const char *tensor, const char *suffix, uint32_t n, wf_pairs order)
{
    const wf_gguf_tensor *t = wf_build_find(b, tensor, suffix);
    char name[96];
    tensor_name(b, name, tensor, suffix);
    if (!t && strcmp(suffix, "bias")) return wf_build_fail(b, missing(b, name));
    float *x = wf_calloc(n, sizeof *x);
    if (!x) return wf_build_fail(b, WEFT_ERR_NOMEM);
    weft_status s = t ? wf_build_decode_vector(b, t, n, x) : WEFT_OK;
    for (uint32_t i = 0; i < n && b->norm_gain != 0; i++) x[i] *= b->norm_gain;
    if (s == WEFT_OK) s = reorder(&order, x, n);
    if (s == WEFT_OK) return wf_build_made(b, x, 1, n);
    free(x);
    return wf_build_fail(b, s);
}

int32_t wf_build_norm_vector(wf_builder *b, const char *tensor, const char *suffix, uint32_t n)
{
    return build_vector(b, tensor, suffix, n, (wf_pairs){0});
}

int32_t wf_build_vector(wf_builder *b, const char *tensor, uint32_t n)
{
    return wf_build_norm_vector(b, tensor, "weight", n);
}

int32_t wf_build_heads_vector(wf_builder *b, const char *tensor)
{
    wf_stripe heads = wf_shard_heads(b);
    const wf_gguf_tensor *t = wf_build_find(b, tensor, "weight");
    if (!wf_is_shard(b) || !t) return wf_build_vector(b, tensor, heads.size);
    float *x = wf_calloc(heads.whole, sizeof *x);
    weft_status s = x ? wf_build_decode_vector(b, t, heads.whole, x) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) {
        memmove(x, x + heads.first, heads.size * sizeof *x);
        return wf_build_made(b, x, 1, heads.size);
    }
    free(x);
    return wf_build_fail(b, s);
}

int32_t wf_build_rotated_vector(wf_builder *b, const char *tensor, uint32_t n)
{
    return build_vector(b, tensor, "weight", n, pairs_of(b, n));
}

/* Of a product, which may have a part of its rows. */
static weft_status decode_bias(wf_builder *b, const wf_linear *l, float *out)
{
    const wf_gguf_tensor *t = wf_build_find(b, l->tensor, "bias");
    if (!t) return WEFT_OK;
    wf_shard_cut c = wf_shard_cut_of(b, l, 0);
    float *whole = wf_calloc(wf_shard_rows(&c), sizeof *whole);
    weft_status s = whole ? wf_build_decode_vector(b, t, wf_shard_rows(&c), whole) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) wf_shard_copy(&c, whole, out);
    free(whole);
    return s;
}

/* Does another device add the bias of that tensor to a sum of all? */
static bool is_elsewhere(wf_builder *b, const wf_linear *l, const wf_gguf_tensor *bias)
{
    wf_shard_cut c = wf_shard_cut_of(b, l, 0);
    bool elsewhere = bias && b->shard.rank && wf_shard_is_partial(&c);
    if (elsewhere) b->used[bias - b->file->tensors] = 1;
    return elsewhere;
}

int32_t wf_build_stacked_bias(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t rows)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const wf_gguf_tensor *t = wf_build_find(b, l[i].tensor, "bias");
        any |= t && !is_elsewhere(b, &l[i], t);
    }
    if (!any) return -1;
    float *x = wf_calloc(rows, sizeof *x);
    if (!x) return wf_build_fail(b, WEFT_ERR_NOMEM);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n && b->status == WEFT_OK; at += l[i++].rows) {
        weft_status s = decode_bias(b, &l[i], x + at);
        if (s != WEFT_OK) wf_build_fail(b, s);
    }
    wf_pairs order = stacked_pairs(b, l, n);
    weft_status s = reorder(&order, x, rows);
    if (s != WEFT_OK) wf_build_fail(b, s);
    if (b->status == WEFT_OK) return wf_build_made(b, x, 1, rows);
    free(x);
    return -1;
}

static wf_part *new_parts(wf_builder *b, uint32_t n)
{
    wf_part *parts = wf_calloc(n, sizeof *parts);
    if (!parts) wf_build_fail(b, WEFT_ERR_NOMEM);
    return parts;
}

/* Can the tensor join those that are of this one format, or held by it? */
static bool can_join(const wf_builder *b, const wf_gguf_tensor *t, wf_joint *of)
{
    enum { BLOCK = 64 /* of joint formats */ };
    if ((enum wf_dtype)t->dtype == of->dtype) return true;
    return b->stack_weights == WF_STACK_MIXED && t->dims[0] % BLOCK == 0 && wf_joint_add(of, (enum wf_dtype)t->dtype);
}

static wf_joint joint_of(const wf_weight *w)
{
    wf_joint of = wf_joint_of((enum wf_dtype)w->parts[0].t->dtype);
    for (uint32_t i = 1; i < w->n_parts; i++) wf_joint_add(&of, (enum wf_dtype)w->parts[i].t->dtype);
    return of;
}

static bool can_join_parts(const wf_builder *b, const wf_weight *w, const wf_gguf_tensor *t)
{
    if (!w->n_parts) return true;
    wf_joint of = joint_of(w);
    return can_join(b, t, &of);
}

/* Tensors that may become one matrix, in their order. */
typedef struct stack {
    wf_joint of;
    uint64_t weights, bytes; /* as they lie in the file */
} stack;

static uint64_t weights_of(const wf_gguf_tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static stack stack_of(const wf_gguf_tensor *t)
{
    return (stack){wf_joint_of((enum wf_dtype)t->dtype), weights_of(t), t->bytes};
}

/* A wider format is read with each token. Two launches less of a layer are worth about as much as reading 40 MB: an
 * H200 saved 8 us where queries, keys and values of Mixtral joined, 9 MB wider, and reads 28 MB in that time. */
static bool can_stack(const wf_builder *b, stack *s, const wf_gguf_tensor *t)
{
    enum { WIDENED_BY = 40 << 20 };
    stack with = {s->of, s->weights + weights_of(t), s->bytes + t->bytes};
    if (!can_join(b, t, &with.of)) return false;
    if (with.of.dtype != (enum wf_dtype)t->dtype &&
        wf_dtype_bytes(with.of.dtype, with.weights) > with.bytes + WIDENED_BY * (uint64_t)WF_MAX(b->shard.ranks, 1u))
        return false;
    *s = with;
    return true;
}

/* Appends what a cut leaves of a tensor to the parts of w, which it must be able to join. */
static void add_part(wf_builder *b, wf_weight *w, const char *tensor, const wf_shard_cut *c)
{
    char name[96];
    tensor_name(b, name, tensor, "weight");
    const wf_gguf_tensor *t = wf_gguf_tensor_find(b->file, name);
    if (b->status != WEFT_OK) return;
    weft_status s = t ? check_tensor(b, t, wf_shard_rows(c), c->cols.whole) : missing(b, name);
    if (s == WEFT_OK && !can_join_parts(b, w, t))
        s = wf_fail(WEFT_ERR_UNSUPPORTED, "%s: tensor '%s' is %s, but those before it are %s", b->file->path, name,
                    wf_dtypes[t->dtype].name, wf_dtypes[w->parts[0].t->dtype].name);
    if (s != WEFT_OK) wf_build_fail(b, s);
    uint64_t at = 0;
    for (uint32_t i = 0; i < c->n && s == WEFT_OK; at += c->rows[i++].whole)
        w->parts[w->n_parts++] = (wf_part){t, at + c->rows[i].first, c->rows[i].size};
}

/* Where a matrix has some of its tensors' columns. */
static void cut_cols(wf_builder *b, wf_weight *w, const wf_shard_cut *c)
{
    if (!wf_shard_is_partial(c)) return;
    w->first_col = c->cols.first, w->part_cols = c->cols.whole;
    for (uint32_t i = 0; i < w->n_parts && b->status == WEFT_OK; i++) {
        const wf_gguf_tensor *t = w->parts[i].t;
        weft_status s = wf_shard_check_cols(b, t, WF_MAX(wf_dtypes[t->dtype].block, wf_dtypes[w->dtype].block));
        if (s != WEFT_OK) wf_build_fail(b, s);
    }
}

/* The weight made of its parts, which it frees on failure; c: the cut of one of them. */
static int32_t add_parts(wf_builder *b, wf_weight *w, const wf_shard_cut *c)
{
    int32_t v = -1;
    if (b->status == WEFT_OK) w->dtype = joint_of(w).dtype;
    if (b->status == WEFT_OK) cut_cols(b, w, c);
    if (b->status == WEFT_OK) v = wf_build_weight(b, w);
    if (v < 0) free(w->parts);
    return v;
}

int32_t wf_build_stacked_matrix(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t cols)
{
    wf_weight w = {
        .cols = cols, .matrix = true, .pairs = stacked_pairs(b, l, n), .parts = new_parts(b, n * WF_MOST_STRIPES)};
    wf_shard_cut c = {0};
    for (uint32_t i = 0; i < n; i++) {
        c = wf_shard_cut_of(b, &l[i], cols);
        add_part(b, &w, l[i].tensor, &c);
        w.rows += l[i].rows;
    }
    return add_parts(b, &w, &c);
}

/* "<tensor>_exps.<suffix>"; NULL: the file has none. */
static const wf_gguf_tensor *find_experts(const wf_builder *b, const char *tensor, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "%s_exps", tensor);
    return wf_build_find(b, name, suffix);
}

int32_t wf_build_expert_matrix(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t cols)
{
    uint32_t experts = b->hp->n_expert;
    wf_weight w = {.cols = cols, .experts = experts, .matrix = true, .parts = new_parts(b, n * experts)};
    wf_shard_cut c = {0};
    for (uint32_t i = 0; i < n; i++) w.rows += experts * l[i].rows;
    /* Appends the tensors of all experts, or those of each. */
    for (uint32_t i = 0; i < n * experts && b->status == WEFT_OK; i++) {
        const wf_gguf_tensor *all = find_experts(b, l[i % n].tensor, "weight");
        char name[64];
        snprintf(name, sizeof name, "%s.%u", l[i % n].tensor, i / n);
        c = wf_shard_cut_of(b, &l[i % n], cols);
        if (!all) add_part(b, &w, name, &c);
        else if (i < n) {
            weft_status s = check_tensors(b, all, c.rows->whole, c.cols.whole, experts);
            if (s != WEFT_OK) wf_build_fail(b, s);
            w.parts[w.n_parts++] = (wf_part){all, c.rows->first, (uint64_t)experts * c.rows->size};
        }
    }
    /* those of all experts: an expert's stand apart, as those that it has here do from its others */
    if (w.n_parts == n && (n > 1 || c.rows->size < c.rows->whole)) w.turn = l[0].rows, w.step = c.rows->whole;
    return add_parts(b, &w, &c);
}

/* Of l that of each expert, `every` apart in out. */
static weft_status decode_experts(wf_builder *b, const wf_linear *l, uint32_t every, float *out)
{
    const wf_gguf_tensor *t = find_experts(b, l->tensor, "bias");
    if (!t) return WEFT_OK;
    wf_shard_cut c = wf_shard_cut_of(b, l, 0);
    uint32_t experts = b->hp->n_expert, whole = wf_shard_rows(&c), n = experts * whole; /* hparams.c: it fits */
    WF_TRY(check_tensor(b, t, experts, whole));
    float *x = wf_calloc(n, sizeof *x);
    if (!x) return WEFT_ERR_NOMEM;
    wf_dtypes[t->dtype].decode(t->data, x, n);
    for (uint32_t e = 0; e < experts; e++) wf_shard_copy(&c, x + (size_t)e * whole, out + (size_t)e * every);
    weft_status s = check_finite(b, t, x, n);
    free(x);
    return s;
}

int32_t wf_build_expert_bias(wf_builder *b, const wf_linear *l, uint32_t n)
{
    bool any = false;
    uint32_t every = 0, at = 0;
    for (uint32_t i = 0; i < n; every += l[i++].rows) {
        const wf_gguf_tensor *t = find_experts(b, l[i].tensor, "bias");
        any |= t && !is_elsewhere(b, &l[i], t);
    }
    if (!any || b->status != WEFT_OK) return -1;
    float *x = wf_calloc((size_t)b->hp->n_expert * every, sizeof *x);
    weft_status s = x ? WEFT_OK : WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n && s == WEFT_OK; at += l[i++].rows) s = decode_experts(b, &l[i], every, x + at);
    if (s == WEFT_OK) return wf_build_made(b, x, 1, b->hp->n_expert * every);
    free(x);
    return wf_build_fail(b, s);
}

bool wf_build_can_stack_experts(const wf_builder *b, const wf_linear *l, uint32_t n)
{
    bool can = b->stack_weights != WF_STACK_NONE;
    const wf_gguf_tensor *first = NULL;
    stack s;
    for (uint32_t i = 0; i < n && can; i++) {
        char name[64];
        const wf_gguf_tensor *all = find_experts(b, l[i].tensor, "weight");
        snprintf(name, sizeof name, "%s.0", l[i].tensor);
        const wf_gguf_tensor *t = all ? all : wf_build_find(b, name, "weight");
        can = t && (!i || (l[i].rows == l[0].rows && t->dims[2] == first->dims[2] && can_stack(b, &s, t)));
        if (can && !i) first = t, s = stack_of(t);
    }
    return can;
}

uint32_t wf_build_can_stack(const wf_builder *b, const wf_linear *l, uint32_t n)
{
    const wf_gguf_tensor *first = wf_build_find(b, l[0].tensor, "weight");
    stack s = first ? stack_of(first) : (stack){0};
    uint32_t alike = 1;
    for (bool same = b->stack_weights && first; same && alike < n; alike += same) {
        const wf_gguf_tensor *t = wf_build_find(b, l[alike].tensor, "weight");
        same = t && can_stack(b, &s, t);
    }
    return alike;
}
