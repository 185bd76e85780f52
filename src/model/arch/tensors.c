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

int32_t wf_build_rotated_vector(wf_builder *b, const char *tensor, uint32_t n)
{
    return build_vector(b, tensor, "weight", n, pairs_of(b, n));
}

int32_t wf_build_stacked_bias(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t rows)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) any |= wf_build_find(b, l[i].tensor, "bias") != NULL;
    if (!any) return -1;
    float *x = wf_calloc(rows, sizeof *x);
    if (!x) return wf_build_fail(b, WEFT_ERR_NOMEM);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n && b->status == WEFT_OK; at += l[i++].rows) {
        const wf_gguf_tensor *t = wf_build_find(b, l[i].tensor, "bias");
        weft_status s = t ? wf_build_decode_vector(b, t, l[i].rows, x + at) : WEFT_OK;
        if (s != WEFT_OK) wf_build_fail(b, s);
    }
    wf_pairs order = stacked_pairs(b, l, n);
    weft_status s = reorder(&order, x, rows);
    if (s != WEFT_OK) wf_build_fail(b, s);
    if (b->status == WEFT_OK) return wf_build_made(b, x, 1, rows);
    free(x);
    return -1;
}

static const wf_gguf_tensor **new_parts(wf_builder *b, uint32_t n)
{
    const wf_gguf_tensor **parts = wf_calloc(n, sizeof *parts);
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
    wf_joint of = wf_joint_of((enum wf_dtype)w->parts[0]->dtype);
    for (uint32_t i = 1; i < w->n_parts; i++) wf_joint_add(&of, (enum wf_dtype)w->parts[i]->dtype);
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
        wf_dtype_bytes(with.of.dtype, with.weights) > with.bytes + WIDENED_BY)
        return false;
    *s = with;
    return true;
}

/* Appends a tensor to those of w, which it must be able to join. */
static void add_part(wf_builder *b, wf_weight *w, const char *tensor, uint32_t rows)
{
    char name[96];
    tensor_name(b, name, tensor, "weight");
    const wf_gguf_tensor *t = wf_gguf_tensor_find(b->file, name);
    if (b->status != WEFT_OK) return;
    weft_status s = t ? check_tensor(b, t, rows, w->cols) : missing(b, name);
    if (s == WEFT_OK && !can_join_parts(b, w, t))
        s = wf_fail(WEFT_ERR_UNSUPPORTED, "%s: tensor '%s' is %s, but those before it are %s", b->file->path, name,
                    wf_dtypes[t->dtype].name, wf_dtypes[w->parts[0]->dtype].name);
    if (s == WEFT_OK) w->parts[w->n_parts++] = t;
    else wf_build_fail(b, s);
}

/* The weight made of its parts, which it frees on failure. */
static int32_t add_parts(wf_builder *b, wf_weight *w)
{
    int32_t v = -1;
    if (b->status == WEFT_OK) {
        w->dtype = joint_of(w).dtype;
        v = wf_build_weight(b, w);
    }
    if (v < 0) free(w->parts);
    return v;
}

int32_t wf_build_stacked_matrix(wf_builder *b, const wf_linear *l, uint32_t n, uint32_t cols)
{
    wf_weight w = {.cols = cols, .matrix = true, .pairs = stacked_pairs(b, l, n), .parts = new_parts(b, n)};
    for (uint32_t i = 0; i < n; i++) {
        add_part(b, &w, l[i].tensor, l[i].rows);
        w.rows += l[i].rows;
    }
    return add_parts(b, &w);
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
    for (uint32_t i = 0; i < n; i++) w.rows += experts * l[i].rows;
    /* Appends the tensors of all experts, or those of each. */
    for (uint32_t i = 0; i < n * b->hp->n_expert && b->status == WEFT_OK; i++) {
        const wf_gguf_tensor *all = find_experts(b, l[i % n].tensor, "weight");
        char name[64];
        snprintf(name, sizeof name, "%s.%u", l[i % n].tensor, i / n);
        if (!all) add_part(b, &w, name, l[i % n].rows);
        else if (i < n) {
            weft_status s = check_tensors(b, all, l[i].rows, w.cols, b->hp->n_expert);
            if (s != WEFT_OK) wf_build_fail(b, s);
            w.parts[w.n_parts++] = all;
        }
    }
    if (n > 1 && w.n_parts == n) w.turn = l[0].rows; /* those of all experts: an expert's stand apart */
    return add_parts(b, &w);
}

/* Of l that of each expert, `every` apart in out. */
static weft_status decode_experts(wf_builder *b, const wf_linear *l, uint32_t every, float *out)
{
    const wf_gguf_tensor *t = find_experts(b, l->tensor, "bias");
    uint32_t experts = b->hp->n_expert, n = experts * l->rows; /* hparams.c: it fits */
    if (!t) return WEFT_OK;
    WF_TRY(check_tensor(b, t, experts, l->rows));
    float *x = wf_calloc(n, sizeof *x);
    if (!x) return WEFT_ERR_NOMEM;
    wf_dtypes[t->dtype].decode(t->data, x, n);
    for (uint32_t e = 0; e < experts; e++)
        memcpy(out + (size_t)e * every, x + (size_t)e * l->rows, l->rows * sizeof *x);
    weft_status s = check_finite(b, t, x, n);
    free(x);
    return s;
}

int32_t wf_build_expert_bias(wf_builder *b, const wf_linear *l, uint32_t n)
{
    bool any = false;
    uint32_t every = 0, at = 0;
    for (uint32_t i = 0; i < n; every += l[i++].rows) any |= find_experts(b, l[i].tensor, "bias") != NULL;
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
