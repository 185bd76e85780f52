/* recipe: see recipe.h. */
#include "model/files/recipe.h"

#include "model/model.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct type {
    const char *name;
    uint32_t number;
    enum wf_dtype dtype;
} types[] = {
#define X(name, number, dtype) {name, number, dtype},
#include "model/file_types.def"
#undef X
};

static const struct type *find_type(const char *name)
{
    for (size_t i = 0; i < WF_LEN(types); i++)
        if (name && !strcasecmp(types[i].name, name)) return &types[i];
    char known[256] = "";
    for (size_t i = 0, n = 0; i < WF_LEN(types); i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", types[i].name);
    wf_fail(WEFT_ERR_ARG, "'%.32s' is no type that a model can be converted to; choose one of %s", name ? name : "",
            known);
    return NULL;
}

const char *wf_file_type_name(uint32_t number)
{
    for (size_t i = 0; i < WF_LEN(types); i++)
        if (types[i].number == number) return types[i].name;
    return NULL;
}

/* A hyperparameter, of the first layer where they differ by layer; 0: the file does not say. */
static weft_status number(const wf_gguf *f, wf_str arch, const char *name, uint32_t *out)
{
    char key[128];
    snprintf(key, sizeof key, "%.*s.%s", (int)WF_MIN(arch.len, 64), arch.data, name);
    const wf_gguf_kv *kv = wf_gguf_find(f, key);
    bool list = kv && kv->type == WF_GGUF_ARRAY && kv->count && wf_gguf_type_size(kv->item);
    if (list) *out = (uint32_t)wf_gguf_int_at(kv, 0);
    return list ? WEFT_OK : wf_gguf_u32(f, key, false, out);
}

static const wf_mix_row most_down[] = {
    {WF_FILE_Q2_K, WF_Q3_K, WF_Q3_K},
    {WF_FILE_Q3_K_M, WF_Q4_K, WF_Q4_K, 16, WF_Q5_K},
    {WF_FILE_Q3_K_L, WF_Q5_K, WF_Q5_K},
    {WF_FILE_Q4_K_S, WF_Q4_K, WF_Q4_K, 8, WF_Q5_K},
    {WF_FILE_Q4_K_M, WF_Q6_K, WF_Q4_K},
    {WF_FILE_Q5_K_M, WF_Q6_K, WF_Q5_K},
    {WF_FILE_IQ4_NL, WF_IQ4_NL, WF_IQ4_NL, 8, WF_Q5_K},
    {WF_FILE_IQ4_XS, WF_IQ4_XS, WF_IQ4_XS, 8, WF_Q5_K},
    {0},
};
static const wf_mix_row most_attention_output[] = {
    {WF_FILE_Q2_K, WF_Q3_K, WF_Q3_K},
    {WF_FILE_Q3_K_M, WF_Q4_K, WF_Q4_K},
    {WF_FILE_Q3_K_L, WF_Q5_K, WF_Q5_K},
    {0},
};

weft_status wf_recipe_open(const char *type, const wf_gguf *f, wf_recipe *out)
{
    wf_str arch = {"", 0};
    const struct type *t = find_type(type);
    if (!t) return WEFT_ERR_ARG;
    *out = (wf_recipe){.name = t->name, .file_type = t->number, .dtype = t->dtype};
    WF_TRY(wf_gguf_str(f, "general.architecture", true, &arch));
    /* The mixes of an architecture that is not known here are those of most. */
    const wf_arch *a = wf_arch_named(arch);
    wf_mix mix = a && a->mix ? *a->mix : (wf_mix){0};
    if (!mix.down) mix.down = most_down;
    if (!mix.attention_output) mix.attention_output = most_attention_output;
    out->mix = mix;
    WF_TRY(number(f, arch, "block_count", &out->n_layer));
    WF_TRY(number(f, arch, "attention.head_count", &out->n_head));
    out->n_kv_head = out->n_head;
    WF_TRY(number(f, arch, "attention.head_count_kv", &out->n_kv_head));
    WF_TRY(number(f, arch, "expert_count", &out->n_expert));
    out->tied = !wf_gguf_tensor_find(f, "output.weight");
    return WEFT_OK;
}

/* ---- names ----------------------------------------------------------------------------------------- */

static bool has(const wf_gguf_tensor *t, const char *part)
{
    return memmem(t->name.data, t->name.len, part, strlen(part)) != NULL;
}

static bool is(const wf_gguf_tensor *t, const char *name)
{
    return t->name.len == strlen(name) && !memcmp(t->name.data, name, t->name.len);
}

/* Matrices, and stacks of them, except those that are small and matter much. */
static bool is_weight(const wf_gguf_tensor *t)
{
    static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight", "position_embd", "token_types",
                                       "attn_rel_b.weight"};
    bool weight = t->name.len > 6 && !memcmp(t->name.data + t->name.len - 6, "weight", 6) &&
                  t->dims[1] * t->dims[2] * t->dims[3] > 1;
    for (size_t i = 0; i < WF_LEN(kept); i++) weight = weight && !has(t, kept[i]);
    return weight;
}

/* ---- mixes ----------------------------------------------------------------------------------------- */

/* The first and the last eighth of the layers, and every third one between. */
static bool more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static enum wf_dtype output(const wf_recipe *r, const wf_gguf_tensor *t)
{
    if (r->file_type == WF_FILE_MXFP4 || r->mix.output_q8 || t->dims[0] % wf_dtypes[r->dtype].block) return WF_Q8_0;
    return r->dtype == WF_Q8_0 ? WF_Q8_0 : WF_Q6_K;
}

static enum wf_dtype value_matrix(const wf_recipe *r, uint32_t layer)
{
    bool shared = r->n_kv_head && r->n_head / r->n_kv_head >= 4;
    switch (r->file_type) {
    case WF_FILE_Q2_K: return shared ? WF_Q4_K : WF_Q3_K;
    case WF_FILE_Q3_K_M: return layer < 2 ? WF_Q5_K : WF_Q4_K;
    case WF_FILE_Q3_K_L: return WF_Q5_K;
    case WF_FILE_Q4_K_S: return layer < 4 ? WF_Q5_K : r->dtype;
    case WF_FILE_IQ4_NL: case WF_FILE_IQ4_XS: return shared ? WF_Q5_K : r->dtype;
    case WF_FILE_Q4_K_M: case WF_FILE_Q5_K_M: return more_bits(layer, r->n_layer) ? WF_Q6_K : r->dtype;
    default: return r->dtype;
    }
}

static enum wf_dtype in_layer(const wf_recipe *r, const wf_mix_row *row, uint32_t layer)
{
    while (row->type && row->type != r->file_type) row++;
    if (!row->type) return r->dtype;
    if (row->part && layer < r->n_layer / row->part) return row->first;
    return more_bits(layer, r->n_layer) ? row->more : row->others;
}

static enum wf_dtype attention_output(const wf_recipe *r, uint32_t layer)
{
    bool few_bits = r->dtype == WF_Q2_K || r->dtype == WF_Q3_K || r->dtype == WF_Q4_K || r->dtype == WF_IQ4_NL ||
                    r->dtype == WF_IQ4_XS;
    if (r->n_expert == 8) return few_bits && r->file_type != WF_FILE_Q3_K_L ? WF_Q5_K : r->dtype;
    return in_layer(r, r->mix.attention_output, layer);
}

static enum wf_dtype mixed(const wf_recipe *r, const wf_gguf_tensor *t)
{
    /* Of blk.<layer>.<rest>; 0 for others. */
    uint32_t layer = 0;
    for (size_t i = 4; i < t->name.len && i < 12 && t->name.data[i] >= '0' && t->name.data[i] <= '9' && has(t, "blk.");
         i++)
        layer = layer * 10 + (uint32_t)(t->name.data[i] - '0');
    bool embedding = is(t, "token_embd.weight");
    if (is(t, "output.weight") || (embedding && r->tied)) return output(r, t);
    /* MXFP4 is a format of experts; of models without, the matrices of the layers have it. */
    if (r->file_type == WF_FILE_MXFP4) return (r->n_expert ? t->dims[2] > 1 : has(t, "blk.")) ? WF_MXFP4 : WF_Q8_0;
    if (embedding) return r->dtype;
    if (has(t, "attn_qkv.weight") || has(t, "attn_kv_b.weight") || has(t, "attn_v.weight")) {
        /* The value matrix of a model of 70B is eight times smaller than the query matrix, that of eight experts much
         * smaller than those. */
        enum wf_dtype d = value_matrix(r, layer);
        bool large = r->mix.large_layers && r->mix.large_layers == r->n_layer &&
                     (!r->mix.large_shares || r->n_head != r->n_kv_head);
        if (r->n_expert == 8) return WF_Q8_0;
        return large && (d == WF_Q3_K || d == WF_Q4_K) ? WF_Q5_K : d;
    }
    if (has(t, "attn_k.weight")) return r->n_expert == 8 ? WF_Q8_0 : r->dtype;
    if (has(t, "attn_output.weight")) return attention_output(r, layer);
    if (has(t, "ffn_down")) return in_layer(r, r->mix.down, layer);
    return r->dtype;
}

/* ---- rows that are no multiple of the block -------------------------------------------------------- */

static enum wf_dtype smaller_block(enum wf_dtype d)
{
    switch (d) {
    case WF_Q2_K: case WF_Q3_K: return WF_Q4_0;
    case WF_Q4_K: return WF_Q5_0;
    case WF_Q5_K: return WF_Q5_1;
    case WF_Q6_K: return WF_Q8_0;
    case WF_IQ4_XS: return WF_IQ4_NL;
    default: return d;
    }
}

enum wf_dtype wf_recipe_dtype(const wf_recipe *r, const wf_gguf_tensor *t, bool *other)
{
    *other = false;
    if (!is_weight(t)) return WF_F32;
    enum wf_dtype d = wf_dtypes[r->dtype].block > 1 ? mixed(r, t) : r->dtype;
    *other = t->dims[0] % wf_dtypes[d].block != 0;
    if (*other) d = smaller_block(d);
    return t->dims[0] % wf_dtypes[d].block ? WF_F16 : d;
}
