/* shape: see shape.h. */
#include "model/files/shape.h"
#include "model/files/folder.h"
#include "model/files/gguf_write.h"
#include "model/files/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name, *arch;
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    float rope_base, eps;
    uint32_t experts, used;
    const char *parts;
} shape;

static const shape shapes[] = {
#define X(...) {__VA_ARGS__},
#include "model/shapes.def"
#undef X
};

static const shape *find(const char *name)
{
    char known[512] = "";
    for (size_t i = 0, n = 0; i < WF_LEN(shapes); i++) {
        if (!strcmp(shapes[i].name, name)) return &shapes[i];
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", shapes[i].name);
    }
    wf_fail(WEFT_ERR_ARG, "'%.32s' is no shape that weft knows; it knows %s", name, known);
    return NULL;
}

static bool has(const shape *s, char part)
{
    switch (part) {
    case 'D': return !s->experts;                     /* one feed-forward for all tokens, */
    case 'G': return !s->experts && !has(s, 'L');     /* with a gate */
    case 'A': return strpbrk(s->parts, "BL") != NULL; /* biases of q, k and v, */
    case 'O': return strpbrk(s->parts, "SL") != NULL; /* and of what attention gives */
    default: return strchr(s->parts, part) != NULL;
    }
}

/* ---- metadata ---------------------------------------------------------------------------------------- */

static weft_status add_number(wf_gguf *g, const shape *s, const char *name, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    return wf_folder_u32(g, key, v);
}

static weft_status add_real(wf_gguf *g, const shape *s, const char *name, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    return wf_folder_f32(g, key, v);
}

/* <unk> <s> </s>, the bytes, and fillers: SentencePiece's kind. */
static size_t token_text(uint32_t i, char buf[32])
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    if (i < 3) return (size_t)snprintf(buf, 32, "%s", first[i]);
    return (size_t)(i < 259 ? snprintf(buf, 32, "<0x%02X>", i - 3) : snprintf(buf, 32, "filler%u", i));
}

static weft_status add_tokens(wf_gguf *g, uint32_t n, char *texts, int32_t *types, float *scores)
{
    size_t at = 0;
    char buf[32];
    for (uint32_t i = 0; i < n; i++) {
        size_t len = token_text(i, buf);
        memcpy(texts + at, &(uint64_t){len}, 8);
        memcpy(texts + at + 8, buf, len);
        at += 8 + len;
        types[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1; /* unknown, control, byte, normal */
        scores[i] = i < 259 ? 0 : -(float)i;
    }
    WF_TRY(wf_folder_array(g, "tokenizer.ggml.tokens", WF_GGUF_STRING, n, texts, at));
    WF_TRY(wf_folder_array(g, "tokenizer.ggml.token_type", WF_GGUF_I32, n, types, n * sizeof *types));
    return wf_folder_array(g, "tokenizer.ggml.scores", WF_GGUF_F32, n, scores, n * sizeof *scores);
}

static weft_status add_vocab(wf_gguf *g, uint32_t n)
{
    char *texts = wf_calloc(n, 40);
    int32_t *types = wf_calloc(n, sizeof *types);
    float *scores = wf_calloc(n, sizeof *scores);
    weft_status s = texts && types && scores ? add_tokens(g, n, texts, types, scores) : WEFT_ERR_NOMEM;
    free(texts);
    free(types);
    free(scores);
    return s ? s : wf_folder_str(g, "tokenizer.ggml.model", "llama");
}

/* ---- tensors ------------------------------------------------------------------------------------------ */

static weft_status push(wf_gguf *g, const char *name, wf_gguf_tensor t, const float *values)
{
    const char *kept = wf_folder_keep(g, name, strlen(name));
    t.name = (wf_str){kept, strlen(name)}, t.ggml_type = wf_dtypes[WF_F32].ggml, t.dtype = WF_F32;
    t.bytes = values ? t.dims[0] * t.dims[1] * sizeof *values : 0;
    t.data = values ? wf_folder_keep(g, values, t.bytes) : NULL;
    return kept && (t.data || !values) ? wf_folder_push(g, &t) : WEFT_ERR_NOMEM;
}

static weft_status matrix(wf_gguf *g, const char *name, uint64_t cols, uint64_t rows)
{
    return push(g, name, (wf_gguf_tensor){.n_dims = 2, .dims = {cols, rows, 1, 1}}, NULL);
}

/* A vector of ones, as norms have it, or of zeros, as biases; of experts one each. */
static weft_status vectors(wf_gguf *g, const char *name, uint32_t n, uint32_t each, float value)
{
    float *x = wf_calloc((size_t)n * each, sizeof *x);
    if (!x) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n * each; i++) x[i] = value;
    weft_status s = push(g, name, (wf_gguf_tensor){.n_dims = each > 1 ? 2 : 1, .dims = {n, each, 1, 1}}, x);
    free(x);
    return s;
}

static weft_status vector(wf_gguf *g, const char *name, uint32_t n, float value)
{
    return vectors(g, name, n, 1, value);
}

typedef struct row {
    const char *name;
    uint32_t cols, rows; /* rows 0: a vector, of ones unless it is a bias */
    char part;           /* that the model must have; 0: all have it */
} row;

/* The router, and the matrices of all experts as one tensor each. */
static weft_status add_experts(wf_gguf *g, const shape *s, uint32_t layer)
{
    const row rows[] = {{"gate", s->hidden, s->ffn, 0}, {"up", s->hidden, s->ffn, 0}, {"down", s->ffn, s->hidden, 0}};
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", layer);
    WF_TRY(matrix(g, name, s->hidden, s->experts));
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.bias", layer);
    if (has(s, 'S')) WF_TRY(vector(g, name, s->experts, 0));
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", layer, rows[i].name);
        WF_TRY(push(g, name, (wf_gguf_tensor){.n_dims = 3, .dims = {rows[i].cols, rows[i].rows, s->experts, 1}}, NULL));
        snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.bias", layer, rows[i].name);
        if (has(s, 'S')) WF_TRY(vectors(g, name, rows[i].rows, s->experts, 0));
    }
    return WEFT_OK;
}

static weft_status add_layer(wf_gguf *g, const shape *s, uint32_t layer)
{
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const char *ffn_norm = has(s, 'S') ? "post_attention_norm.weight" : "ffn_norm.weight";
    const row rows[] = {{"attn_norm.weight", s->hidden, 0, 0},
                        {"attn_norm.bias", s->hidden, 0, 'L'},
                        {"attn_q.weight", s->hidden, q, 0},
                        {"attn_k.weight", s->hidden, kv, 0},
                        {"attn_v.weight", s->hidden, kv, 0},
                        {"attn_q.bias", q, 0, 'A'},
                        {"attn_k.bias", kv, 0, 'A'},
                        {"attn_v.bias", kv, 0, 'A'},
                        {"attn_q_norm.weight", s->head_dim, 0, 'N'},
                        {"attn_k_norm.weight", s->head_dim, 0, 'N'},
                        {"attn_output.weight", q, s->hidden, 0},
                        {"attn_output.bias", s->hidden, 0, 'O'},
                        {"attn_sinks.weight", s->heads, 0, 'S'},
                        {ffn_norm, s->hidden, 0, 0},
                        {"ffn_norm.bias", s->hidden, 0, 'L'},
                        {"ffn_gate.weight", s->hidden, s->ffn, 'G'},
                        {"ffn_up.weight", s->hidden, s->ffn, 'D'},
                        {"ffn_up.bias", s->ffn, 0, 'L'},
                        {"ffn_down.weight", s->ffn, s->hidden, 'D'},
                        {"ffn_down.bias", s->hidden, 0, 'L'}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        char name[64];
        if (rows[i].part && !has(s, rows[i].part)) continue;
        snprintf(name, sizeof name, "blk.%u.%s", layer, rows[i].name);
        WF_TRY(rows[i].rows ? matrix(g, name, rows[i].cols, rows[i].rows)
                            : vector(g, name, rows[i].cols, strstr(name, "bias") ? 0 : 1));
    }
    return s->experts ? add_experts(g, s, layer) : WEFT_OK;
}

static weft_status fill(wf_gguf *g, const shape *s, const char *type)
{
    const struct {
        const char *name;
        uint32_t v;
    } rows[] = {{"block_count", s->layers},
                {"embedding_length", s->hidden},
                {"feed_forward_length", s->ffn},
                {"attention.head_count", s->heads},
                {"attention.head_count_kv", s->kv_heads},
                {"attention.key_length", s->head_dim},
                {"attention.value_length", s->head_dim},
                {"context_length", s->context}};
    WF_TRY(wf_folder_str(g, "general.architecture", s->arch));
    WF_TRY(wf_folder_str(g, "general.name", s->name));
    for (size_t i = 0; i < WF_LEN(rows); i++) WF_TRY(add_number(g, s, rows[i].name, rows[i].v));
    if (s->experts) WF_TRY(add_number(g, s, "expert_count", s->experts));
    if (s->experts) WF_TRY(add_number(g, s, "expert_used_count", s->used));
    if (has(s, 'S')) WF_TRY(add_number(g, s, "attention.sliding_window", 128));
    if (!has(s, 'L')) WF_TRY(add_real(g, s, "rope.freq_base", s->rope_base));
    WF_TRY(add_real(g, s, has(s, 'L') ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", s->eps));
    WF_TRY(add_vocab(g, s->vocab));
    WF_TRY(matrix(g, "token_embd.weight", s->hidden, s->vocab));
    WF_TRY(vector(g, "output_norm.weight", s->hidden, 1));
    if (has(s, 'L')) WF_TRY(vector(g, "output_norm.bias", s->hidden, 0));
    if (has(s, 'L')) WF_TRY(matrix(g, "position_embd.weight", s->hidden, s->context));
    if (!has(s, 'T')) WF_TRY(matrix(g, "output.weight", s->hidden, s->vocab));
    if (has(s, 'F')) WF_TRY(vector(g, "rope_freqs.weight", s->head_dim / 2, 1));
    for (uint32_t i = 0; i < s->layers; i++) WF_TRY(add_layer(g, s, i));
    WF_TRY(wf_gguf_index(g));
    /* Matrices get the format of their type; vectors keep theirs and their bytes. */
    wf_recipe r;
    WF_TRY(wf_recipe_open(type, g, &r));
    WF_TRY(wf_folder_u32(g, "general.file_type", r.file_type));
    for (size_t i = 0; i < g->n_tensors; i++) {
        bool other;
        wf_gguf_tensor *t = &g->tensors[i];
        if (!t->data) t->dtype = (int)wf_recipe_dtype(&r, t, &other), t->ggml_type = wf_dtypes[t->dtype].ggml;
    }
    wf_gguf_place(g);
    return wf_gguf_index(g);
}

weft_status wf_shape_open(const char *name, const char *type, uint32_t layers, wf_gguf **out)
{
    const shape *known = find(name);
    if (!known) return WEFT_ERR_ARG;
    shape s = *known;
    if (layers) s.layers = layers;
    WF_TRY(wf_folder_new(name, out));
    (*out)->random = 1;
    weft_status st = fill(*out, &s, type);
    if (st) wf_gguf_close(*out), *out = NULL;
    return st;
}
