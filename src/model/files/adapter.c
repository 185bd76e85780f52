/* adapter: see adapter.h. From top to bottom: pairs of tensors; GGUF; PEFT; opening; values. */
#include "model/files/adapter.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CONFIG (1u << 20)
#define F16_MOST   65504.0f

/* ---- pairs of tensors ------------------------------------------------------------------------------------------ */

/* "<tensor>.lora_a" or "_b"; its length without, 0: neither. */
static size_t base_length(wf_str name, bool *is_b)
{
    enum { END = sizeof ".lora_a" - 1 };
    if (name.len <= END || memcmp(name.data + name.len - END, ".lora_", END - 1)) return 0;
    char last = name.data[name.len - 1];
    *is_b = last == 'b';
    return last == 'a' || last == 'b' ? name.len - END : 0;
}

static weft_status check_shapes(const wf_adapter_part *p)
{
    const wf_gguf_tensor *a = p->a, *b = p->b;
    if (a->n_dims > 2 || b->n_dims > 2)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%s' has more than two dimensions: adapters of the matrices of "
                       "experts are not supported", WF_SHOW(a->n_dims > 2 ? a->name : b->name));
    if (a->dims[1] != b->dims[0])
        return wf_fail(WEFT_ERR_FORMAT, "the A of '%s' is of rank %llu, its B of rank %llu", p->tensor,
                       (unsigned long long)a->dims[1], (unsigned long long)b->dims[0]);
    if (a->dims[1] < 1 || a->dims[1] > WF_ADAPTER_RANK)
        return wf_fail(WEFT_ERR_FORMAT, "the rank of '%s' is %llu: want 1 to %d", p->tensor,
                       (unsigned long long)a->dims[1], WF_ADAPTER_RANK);
    for (const wf_gguf_tensor *t = a;; t = b) {
        if (t->dtype < 0 || t->dtype == WF_I32 || !t->data)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%s' has type %s, which weft does not read", WF_SHOW(t->name),
                           wf_ggml_type_name(t->ggml_type));
        if (t == b) return WEFT_OK;
    }
}

static weft_status add_pair(wf_adapter *x, const wf_gguf_tensor *a, size_t len)
{
    char name[96];
    if (len > 64) return wf_fail(WEFT_ERR_FORMAT, "the name of tensor '%s' is too long", WF_SHOW(a->name));
    snprintf(name, sizeof name, "%.*s.lora_b", (int)len, a->name.data);
    wf_adapter_part *p = &x->parts[x->n_parts];
    *p = (wf_adapter_part){.a = a, .b = wf_gguf_tensor_find(x->file, name)};
    if (!p->b) return wf_fail(WEFT_ERR_FORMAT, "tensor '%s' is missing", name);
    name[len] = 0;
    if (!(p->tensor = wf_strdup(name))) return WEFT_ERR_NOMEM;
    x->n_parts++;
    WF_TRY(check_shapes(p));
    p->rank = (uint32_t)a->dims[1];
    x->rank = WF_MAX(x->rank, p->rank);
    return WEFT_OK;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const wf_adapter_part *)a)->tensor, ((const wf_adapter_part *)b)->tensor);
}

static weft_status find_pairs(wf_adapter *x)
{
    size_t n_b = 0;
    if (!(x->parts = wf_calloc(WF_MAX(x->file->n_tensors, 1), sizeof *x->parts))) return WEFT_ERR_NOMEM;
    for (const wf_gguf_tensor *t = x->file->tensors; t < x->file->tensors + x->file->n_tensors; t++) {
        bool is_b = false;
        size_t len = base_length(t->name, &is_b);
        if (!len)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "tensor '%s' is neither the A nor the B of a matrix, and weft knows "
                           "nothing else that an adapter changes", WF_SHOW(t->name));
        n_b += is_b;
        if (!is_b) WF_TRY(add_pair(x, t, len));
    }
    if (!x->n_parts) return wf_fail(WEFT_ERR_FORMAT, "the adapter has no matrices");
    if (n_b != x->n_parts) return wf_fail(WEFT_ERR_FORMAT, "a matrix of the adapter has a B, but no A");
    qsort(x->parts, x->n_parts, sizeof *x->parts, by_tensor);
    return WEFT_OK;
}

const wf_adapter_part *wf_adapter_find(const wf_adapter *x, const char *tensor)
{
    const wf_adapter_part key = {.tensor = tensor};
    return bsearch(&key, x->parts, x->n_parts, sizeof key, by_tensor);
}

static weft_status check_number(float v, const char *what)
{
    return isfinite(v) && fabsf(v) <= F16_MOST ? WEFT_OK
        : wf_fail(WEFT_ERR_FORMAT, "%s is %g, which is no factor", what, (double)v);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

static bool is_word(wf_str s, const char *word) { return s.len == strlen(word) && !memcmp(s.data, word, s.len); }

/* llama.cpp takes an alpha of 0 for one that says nothing. */
static weft_status read_gguf(wf_adapter *x, const char *path, const wf_arch *arch)
{
    wf_str type = {0}, kind = {0}, of = {0};
    float alpha = 0;
    WF_TRY(wf_gguf_open(path, &x->file));
    WF_TRY(wf_gguf_str(x->file, "general.type", false, &type));
    if (!is_word(type, "adapter"))
        return wf_fail(WEFT_ERR_FORMAT, "this is no adapter: its general.type is '%s', not 'adapter'", WF_SHOW(type));
    WF_TRY(wf_gguf_str(x->file, "adapter.type", true, &kind));
    if (!is_word(kind, "lora"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "its adapter.type is '%s'; weft has 'lora'", WF_SHOW(kind));
    if (wf_gguf_find(x->file, "adapter.alora.invocation_tokens"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "adapter.alora.invocation_tokens: activated LoRA is not supported");
    WF_TRY(wf_gguf_str(x->file, "general.architecture", true, &of));
    if (!is_word(of, arch->name))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "the adapter is of a model of architecture '%s', and this one is of '%s'",
                       WF_SHOW(of), arch->name);
    WF_TRY(wf_gguf_f32(x->file, "adapter.lora.alpha", true, &alpha));
    WF_TRY(check_number(alpha, "adapter.lora.alpha"));
    WF_TRY(find_pairs(x));
    for (size_t i = 0; i < x->n_parts; i++)
        x->parts[i].scale = alpha != 0 ? alpha / (float)x->parts[i].rank : 1;
    return WEFT_OK;
}

/* ---- PEFT -------------------------------------------------------------------------------------------------------- */

/* Nothing, as far as this says: null, false, an empty list or object, or "none". */
static bool says_nothing(const wf_json *v)
{
    const char *text = wf_json_text(v);
    if (text) return !*text || !strcmp(text, "none");
    if (wf_json_is(v, WF_JSON_LIST)) return !wf_json_count(v);
    return wf_json_absent(v) || (wf_json_is(v, WF_JSON_OBJECT) && !wf_json_size(v)) ||
           (wf_json_is(v, WF_JSON_BOOL) && !wf_json_is_true(v));
}

/* What would change the numbers and is not computed. Other keys say how it was trained. */
static weft_status check_config(const wf_json *config)
{
    static const char *const refused[] = {
        "use_dora", "bias", "lora_bias", "modules_to_save", "fan_in_fan_out", "rank_pattern", "alpha_pattern",
        "layer_replication", "target_parameters", "trainable_token_indices", "use_qalora", "alora_invocation_tokens"};
    const char *type = wf_json_text(wf_json_get(config, "peft_type"));
    if (!type || strcmp(type, "LORA"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "its peft_type is '%.32s'; weft has 'LORA'", type ? type : "");
    for (size_t i = 0; i < WF_LEN(refused); i++)
        if (!says_nothing(wf_json_get(config, refused[i])))
            return wf_fail(WEFT_ERR_UNSUPPORTED, "it has %s, which is not supported", refused[i]);
    return WEFT_OK;
}

static weft_status read_config(wf_adapter *x, const wf_json *config, uint32_t *rank, float *scale)
{
    float alpha = 8; /* PEFT's defaults */
    bool sqrt_rank = false;
    *rank = 8;
    WF_TRY(check_config(config));
    WF_TRY(wf_json_u32(config, "r", rank));
    WF_TRY(wf_json_float(config, "lora_alpha", &alpha));
    WF_TRY(wf_json_bool(config, "use_rslora", &sqrt_rank));
    WF_TRY(check_number(alpha, "lora_alpha"));
    if (*rank < 1 || *rank > WF_ADAPTER_RANK)
        return wf_fail(WEFT_ERR_FORMAT, "the rank 'r' is %u: want 1 to %d", *rank, WF_ADAPTER_RANK);
    *scale = alpha / (sqrt_rank ? sqrtf((float)*rank) : (float)*rank);
    x->halves = true;
    return WEFT_OK;
}

static weft_status read_peft(wf_adapter *x, const char *path, const wf_arch *arch)
{
    char file[PATH_MAX];
    wf_json *config;
    uint32_t rank = 0;
    float scale = 0;
    if ((size_t)snprintf(file, sizeof file, "%s/adapter_config.json", path) >= sizeof file)
        return wf_fail(WEFT_ERR_IO, "the path is too long");
    WF_TRY(wf_json_load_file(file, MAX_CONFIG, &config));
    weft_status s = read_config(x, config, &rank, &scale);
    wf_json_free(config);
    if (s) return wf_fail_context(s, "adapter_config.json");
    WF_TRY(wf_folder_adapter(path, arch, &x->file));
    WF_TRY(find_pairs(x));
    for (size_t i = 0; i < x->n_parts; i++) {
        x->parts[i].scale = scale;
        if (x->parts[i].rank != rank)
            return wf_fail(WEFT_ERR_FORMAT, "the rank of '%s' is %u, but adapter_config.json has %u",
                           x->parts[i].tensor, x->parts[i].rank, rank);
    }
    return WEFT_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

weft_status wf_adapter_open(const char *path, const wf_arch *arch, wf_adapter **out)
{
    struct stat st;
    *out = NULL;
    wf_adapter *x = wf_calloc(1, sizeof *x);
    if (!x) return WEFT_ERR_NOMEM;
    bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    weft_status s = folder ? read_peft(x, path, arch) : read_gguf(x, path, arch);
    if (s == WEFT_OK) return *out = x, s;
    wf_adapter_close(x);
    return strstr(wf_error(), path) ? s : wf_fail_context(s, "%s", path);
}

void wf_adapter_close(wf_adapter *x)
{
    if (!x) return;
    for (size_t i = 0; i < x->n_parts; i++) free((char *)x->parts[i].tensor);
    free(x->parts);
    wf_gguf_close(x->file);
    free(x);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

weft_status wf_adapter_decode(const wf_adapter *x, const wf_gguf_tensor *t, float factor, float *out)
{
    uint64_t n = t->dims[0] * t->dims[1];
    wf_dtypes[t->dtype].decode(t->data, out, n);
    for (uint64_t i = 0; i < n; i++) {
        out[i] *= factor;
        if (!(fabsf(out[i]) <= F16_MOST))
            return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%s' holds a number that is not finite, or too large for F16",
                           x->file->path, WF_SHOW(t->name));
    }
    return wf_gguf_broken(x->file) ? wf_fail(WEFT_ERR_IO, "%s changed while it was read", x->file->path) : WEFT_OK;
}
