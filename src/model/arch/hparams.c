/* hparams: finds the architecture of a file and reads the hyperparameters that llama-like architectures share. It
 * checks every number, so that the graph and kernels can trust them. Keys: ggml's docs/gguf.md. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define X(name) extern const wf_arch wf_arch_##name;
#include "model/archs.def"
#undef X

static const wf_arch *const archs[] = {
#define X(name) &wf_arch_##name,
#include "model/archs.def"
#undef X
};

#define MAX_WIDTH                                                                                                      \
    (1u << 20) /* of any matrix dimension except the vocabulary; far above real models, far below overflow */

const wf_arch *wf_arch_named(wf_str name)
{
    for (size_t i = 0; i < WF_LEN(archs); i++)
        if (strlen(archs[i]->name) == name.len && !memcmp(archs[i]->name, name.data, name.len)) return archs[i];
    return NULL;
}

weft_status wf_arch_find(const wf_gguf *f, const wf_arch **out)
{
    wf_str name = {0};
    WF_TRY(wf_gguf_str(f, "general.architecture", true, &name));
    char known[512] = "";
    if ((*out = wf_arch_named(name))) return WEFT_OK;
    for (size_t i = 0; i < WF_LEN(archs); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", archs[i]->name);
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: architecture '%.*s' is not supported (supported: %s)", f->path,
                   (int)WF_MIN(name.len, 64), name.data, known);
}

/* Is the word one of the list's? */
bool wf_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && !strncmp(at, word, n)) return true;
    return false;
}

bool wf_class_known(const char *class)
{
    for (size_t i = 0; i < WF_LEN(archs); i++)
        if (wf_listed(archs[i]->classes, class)) return true;
    return false;
}

weft_status wf_arch_of_class(const char *class, const wf_arch **out)
{
    char known[1024] = "";
    for (size_t i = 0; i < WF_LEN(archs); i++) {
        *out = archs[i];
        if (wf_listed(archs[i]->classes, class)) return WEFT_OK;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? " " : "", archs[i]->classes);
    }
    return wf_fail(WEFT_ERR_UNSUPPORTED, "architecture '%.64s' is not supported (supported: %s)", class, known);
}

static const char *const poolings[WF_N_POOLINGS] = {NULL, "mean", "cls", "last", "rank"};

const char *wf_pooling_name(enum wf_pooling p) { return poolings[p]; }

weft_status wf_pooling_choose(enum wf_pooling own, const char *name, enum wf_pooling *out)
{
    *out = own;
    for (int i = WF_POOLING_MEAN; name && i < WF_N_POOLINGS; i++)
        if (!strcmp(name, poolings[i])) *out = (enum wf_pooling)i, name = NULL;
    if (name) return wf_fail(WEFT_ERR_ARG, "pooling '%.40s' does not exist; want mean, cls or last", name);
    if ((*out == WF_POOLING_RANK) == (own == WF_POOLING_RANK)) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "pooling '%s' is not possible: the model %s", poolings[*out],
                   own == WF_POOLING_RANK ? "scores pairs of texts" : "has no head that scores");
}

static const char *key(char buf[96], const char *arch, const char *name)
{
    snprintf(buf, 96, "%s.%s", arch, name);
    return buf;
}

static weft_status read_u32(const wf_gguf *f, const char *arch, const char *name, bool required, uint32_t max,
                            uint32_t *out)
{
    char k[96];
    WF_TRY(wf_gguf_u32(f, key(k, arch, name), required, out));
    if (*out < 1 || *out > max) return wf_fail(WEFT_ERR_FORMAT, "%s: %s is %u, want 1 to %u", f->path, k, *out, max);
    return WEFT_OK;
}

static weft_status read_f32(const wf_gguf *f, const char *arch, const char *name, bool required, float *out)
{
    char k[96];
    WF_TRY(wf_gguf_f32(f, key(k, arch, name), required, out));
    if (!isfinite(*out) || *out <= 0)
        return wf_fail(WEFT_ERR_FORMAT, "%s: %s is %g, want a positive number", f->path, k, *out);
    return WEFT_OK;
}

weft_status wf_hparams_factor(const wf_gguf *f, const char *arch, const char *name, float *out)
{
    char k[96];
    return wf_gguf_find(f, key(k, arch, name)) ? read_f32(f, arch, name, true, out) : WEFT_OK;
}

/* Beside the frequencies, YaRN makes scores larger with the logarithm of the factor. */
static weft_status read_yarn(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    char k[96];
    bool rounded = !hp->yarn_exact;
    hp->yarn_fast = 32, hp->yarn_slow = 1;
    WF_TRY(wf_gguf_bool(f, key(k, arch, "rope.scaling.yarn_truncate"), false, &rounded)); /* of weft's own files */
    hp->yarn_exact = !rounded;
    WF_TRY(read_f32(f, arch, "rope.scaling.factor", true, &hp->rope_factor));
    WF_TRY(wf_hparams_factor(f, arch, "rope.scaling.yarn_beta_fast", &hp->yarn_fast));
    WF_TRY(wf_hparams_factor(f, arch, "rope.scaling.yarn_beta_slow", &hp->yarn_slow));
    if (!hp->original_context) hp->original_context = hp->context;
    if (!(hp->rope_gain > 0)) hp->rope_gain = 1;
    if (hp->rope_factor > 1) hp->rope_gain *= 1 + 0.1f * logf(hp->rope_factor);
    return WEFT_OK;
}

/* As llama.cpp reads it, also where no type is named: the factor, else that of older files; 0 is none. */
static weft_status read_linear(const wf_gguf *f, const char *arch, float *factor)
{
    const char *const names[] = {"rope.scale_linear", "rope.scaling.factor"};
    char k[96];
    for (size_t i = 0; i < WF_LEN(names); i++) {
        float given = 0;
        WF_TRY(wf_gguf_f32(f, key(k, arch, names[i]), false, &given));
        if (!isfinite(given) || given < 0)
            return wf_fail(WEFT_ERR_FORMAT, "%s: %s is %g, want a positive number", f->path, k, given);
        if (given > 0) *factor = given;
    }
    return WEFT_OK;
}

/* 0 switches off what the architecture has set. */
static weft_status read_cap(const wf_gguf *f, const char *arch, const char *name, float *out)
{
    char k[96];
    WF_TRY(wf_gguf_f32(f, key(k, arch, name), false, out));
    return isfinite(*out) && *out >= 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_FORMAT, "%s: %s is %g, want 0 or a positive number", f->path, k, *out);
}

/* What keeps what the architecture has set, unless the file says otherwise. */
static weft_status read_attention(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    char k[96];
    WF_TRY(wf_gguf_u32(f, key(k, arch, "attention.sliding_window"), false, &hp->window));
    if (hp->window > INT32_MAX)
        return wf_fail(WEFT_ERR_FORMAT, "%s: %s is %u, want at most %d", f->path, k, hp->window, INT32_MAX);
    WF_TRY(wf_gguf_u32(f, key(k, arch, "attention.sliding_window_pattern"), false, &hp->window_period));
    WF_TRY(wf_hparams_factor(f, arch, "attention.scale", &hp->attention_scale));
    WF_TRY(wf_gguf_u32(f, key(k, arch, "attention.longest_context"), false, &hp->longest_context));
    WF_TRY(read_cap(f, arch, "attn_logit_softcapping", &hp->attention_softcap));
    WF_TRY(read_cap(f, arch, "final_logit_softcapping", &hp->logit_softcap));
    return wf_hparams_factor(f, arch, "rope.freq_base_swa", &hp->local_rope_base);
}

static weft_status read_rope(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    hp->rope_base = 10000;
    WF_TRY(read_f32(f, arch, "rope.freq_base", false, &hp->rope_base));
    hp->n_rot = hp->head_dim;
    WF_TRY(read_u32(f, arch, "rope.dimension_count", false, hp->head_dim, &hp->n_rot));
    if (hp->n_rot % 2)
        return wf_fail(WEFT_ERR_FORMAT, "%s: %s.rope.dimension_count %u is odd", f->path, arch, hp->n_rot);
    char k[96];
    wf_str type = {"linear", 6};
    hp->rope_factor = 1;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "rope.scaling.original_context_length"), false, &hp->original_context));
    WF_TRY(wf_hparams_factor(f, arch, "rope.scaling.attn_factor", &hp->rope_gain));
    WF_TRY(wf_gguf_str(f, key(k, arch, "rope.scaling.type"), false, &type));
    if (type.len == 4 && !memcmp(type.data, "none", 4)) return WEFT_OK;
    if (type.len == 6 && !memcmp(type.data, "linear", 6)) return read_linear(f, arch, &hp->rope_factor);
    if (type.len == 8 && !memcmp(type.data, "longrope", 8)) return WEFT_OK; /* its factors are tensors */
    if (type.len == 4 && !memcmp(type.data, "yarn", 4)) return read_yarn(f, arch, hp);
    return wf_fail(
        WEFT_ERR_UNSUPPORTED,
        "%s: %s '%.*s' is not supported (supported: none, linear, yarn, longrope, and Llama 3.1's rope_freqs tensor)",
        f->path, k, (int)WF_MIN(type.len, 32), type.data);
}

/* How scores become weights: llama.cpp writes 1 for a softmax and 2 for sigmoids. */
static weft_status read_gating(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    char k[96];
    uint32_t gating = 1;
    hp->expert_scale = 1;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "expert_gating_func"), false, &gating));
    if (gating != 1 && gating != 2)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %s is %u, which weft does not know (1: softmax, 2: sigmoid)", f->path,
                       k, gating);
    hp->expert_sigmoid = gating == 2;
    WF_TRY(wf_gguf_bool(f, key(k, arch, "expert_weights_norm"), false, &hp->expert_normalise));
    return read_f32(f, arch, "expert_weights_scale", false, &hp->expert_scale);
}

static weft_status read_experts(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    enum { MOST = 1024 };
    char k[96];
    hp->n_expert = 0;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "expert_count"), false, &hp->n_expert));
    if (!hp->n_expert) return WEFT_OK;
    WF_TRY(read_u32(f, arch, "expert_count", true, MOST, &hp->n_expert));
    WF_TRY(read_u32(f, arch, "expert_used_count", true, hp->n_expert, &hp->n_expert_used));
    hp->expert_size = hp->intermediate_size;
    WF_TRY(read_u32(f, arch, "expert_feed_forward_length", false, MAX_WIDTH / 2, &hp->expert_size));
    hp->shared_size = hp->expert_shared ? hp->intermediate_size : 0;
    if (hp->expert_shared)
        WF_TRY(read_u32(f, arch, "expert_shared_feed_forward_length", false, MAX_WIDTH / 2, &hp->shared_size));
    uint64_t widest = WF_MAX(hp->expert_size, hp->hidden_size);
    if (2 * widest * hp->n_expert > UINT32_MAX || 2 * widest * hp->n_expert_used > UINT32_MAX)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %u experts of %u are more than weft can run", f->path, hp->n_expert,
                       hp->expert_size);
    return read_gating(f, arch, hp);
}

/* 0 leaves what the architecture has set. */
static weft_status read_pooling(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    char k[96];
    uint32_t type = 0;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "pooling_type"), false, &type));
    if (type >= WF_N_POOLINGS)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %s is %u, which weft does not know (1: mean, 2: cls, 3: last, "
                       "4: rank)", f->path, k, type);
    if (type) hp->pooling = (enum wf_pooling)type;
    return WEFT_OK;
}

weft_status wf_hparams_read(const wf_gguf *f, const char *arch, wf_hparams *hp)
{
    if (!f->n_tensors)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s holds a vocabulary only, no weights: it can tokenize, not write",
                       f->path);
    WF_TRY(read_u32(f, arch, "block_count", true, (uint32_t)WF_MIN(f->n_tensors, 4096), &hp->n_layer));
    WF_TRY(read_u32(f, arch, "embedding_length", true, MAX_WIDTH, &hp->hidden_size));
    WF_TRY(read_u32(f, arch, "feed_forward_length", true, MAX_WIDTH / 2, &hp->intermediate_size));
    WF_TRY(read_u32(f, arch, "context_length", true, 1u << 24, &hp->context));
    WF_TRY(read_f32(f, arch, hp->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", true,
                    &hp->eps));
    WF_TRY(read_u32(f, arch, "attention.head_count", true, 65536, &hp->n_head));
    hp->n_kv_head = hp->n_head;
    WF_TRY(read_u32(f, arch, "attention.head_count_kv", false, hp->n_head, &hp->n_kv_head));
    if (hp->n_head % hp->n_kv_head)
        return wf_fail(WEFT_ERR_FORMAT, "%s: %s.attention.head_count %u is no multiple of head_count_kv %u", f->path,
                       arch, hp->n_head, hp->n_kv_head);
    char k[96];
    hp->head_dim = 0;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "attention.key_length"), false, &hp->head_dim));
    if (!hp->head_dim && hp->hidden_size % hp->n_head)
        return wf_fail(WEFT_ERR_FORMAT, "%s: %s.embedding_length %u is no multiple of attention.head_count %u", f->path,
                       arch, hp->hidden_size, hp->n_head);
    if (!hp->head_dim) hp->head_dim = hp->hidden_size / hp->n_head;
    uint32_t value_length = hp->head_dim;
    WF_TRY(wf_gguf_u32(f, key(k, arch, "attention.value_length"), false, &value_length));
    if (value_length != hp->head_dim)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %s is %u but key_length is %u: heads must be alike", f->path, k,
                       value_length, hp->head_dim);
    if (hp->head_dim > 1024 || (uint64_t)hp->head_dim * hp->n_head > MAX_WIDTH)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %u heads of %u elements are more than weft can run", f->path,
                       hp->n_head, hp->head_dim);
    WF_TRY(read_rope(f, arch, hp));
    WF_TRY(read_attention(f, arch, hp));
    WF_TRY(read_experts(f, arch, hp));
    WF_TRY(read_pooling(f, arch, hp));
    const wf_gguf_tensor *embd = wf_gguf_tensor_find(f, "token_embd.weight");
    if (!embd)
        return wf_fail(WEFT_ERR_FORMAT, "%s: tensor 'token_embd.weight' is missing%s", f->path,
                       f->n_tensors ? "" : " (this is a vocabulary without a model)");
    if (embd->dims[1] < 1 || embd->dims[1] > 1u << 24)
        return wf_fail(WEFT_ERR_FORMAT, "%s: tensor 'token_embd.weight' has %llu rows", f->path,
                       (unsigned long long)embd->dims[1]);
    hp->n_vocab = (uint32_t)embd->dims[1];
    return WEFT_OK;
}

weft_status wf_arch_halves(const wf_arch *arch, const wf_gguf *f, bool folder, bool *out)
{
    wf_gguf as = *f;
    wf_hparams hp = {0};
    as.folder = folder ? (struct wf_folder *)&as : NULL; /* hyperparameters only ask whether it is one */
    WF_TRY(arch->hparams(&as, &hp));
    *out = hp.neox;
    return WEFT_OK;
}

bool wf_is_rotated(wf_str tensor)
{
    static const char *const names[] = {".attn_q.weight", ".attn_k.weight", ".attn_q.bias", ".attn_k.bias"};
    for (size_t i = 0; i < WF_LEN(names); i++) {
        size_t n = strlen(names[i]);
        if (tensor.len > n && !memcmp(tensor.data + tensor.len - n, names[i], n)) return true;
    }
    return false;
}
