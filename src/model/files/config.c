/* config: config.json of a folder as metadata under GGUF's keys. What would change the numbers and is not known is
 * refused by name. Keys and their defaults: transformers' configuration classes. */
#include "model/files/folder.h"
#include "base/json.h"
#include "model/model.h"
#include "model/files/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_CONFIG (8u << 20)
#define MAX_PAIRS  4096 /* of a head that rotates */

typedef struct reader {
    wf_gguf *g;
    const wf_json *config;
    const wf_arch *arch;
    const char *class;
    bool bare; /* LlamaModel in place of LlamaForCausalLM */
    float rotated; /* part of each head */
} reader;

/* The key behind the name of r's architecture. */
#define KEY(name) key(r, (char[96]){0}, name)
static const char *key(const reader *r, char buf[96], const char *name)
{
    snprintf(buf, 96, "%s.%s", r->arch->name, name);
    return buf;
}

/* ---- numbers ------------------------------------------------------------------------------------- */

/* Llama's; context_length is read apart. */
static const wf_folder_key rows[] = {
    {"num_hidden_layers", "block_count", false, WF_KEY_REQUIRED},
    {"hidden_size", "embedding_length", false, WF_KEY_REQUIRED},
    {"intermediate_size", "feed_forward_length", false, WF_KEY_REQUIRED},
    {"num_attention_heads", "attention.head_count", false, WF_KEY_REQUIRED},
    {"num_key_value_heads", "attention.head_count_kv", false, 0},
    {"head_dim", "attention.key_length", false, 0},
    {"head_dim", "attention.value_length", false, 0},
    {"num_local_experts", "expert_count", false, 0},
    {"num_experts", "expert_count", false, 0},
    {"num_experts_per_tok", "expert_used_count", false, 0},
    {"moe_intermediate_size", "expert_feed_forward_length", false, 0},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", true, WF_KEY_REQUIRED},
};
/* Read apart: */
static const wf_folder_key context_row = {"max_position_embeddings", "context_length", false, WF_KEY_REQUIRED};
static const wf_folder_key theta_row = {"rope_theta", "rope.freq_base", true, 0};

/* The architecture's own row of the class for the same key of ours: of several, the first one that config.json has a
 * number for, else the first. NULL: it has none. */
static const wf_folder_key *own_row(const reader *r, const char *ours)
{
    const wf_folder_key *first = NULL;
    for (const wf_folder_key *row = r->arch->keys ? r->arch->keys->rows : NULL; row && row->ours; row++) {
        if (strcmp(row->ours, ours) || (row->class && strcmp(row->class, r->class))) continue;
        if (row->theirs && !wf_json_absent(wf_json_get(r->config, row->theirs))) return row;
        if (!first) first = row;
    }
    return first;
}

static weft_status copy_number(const reader *r, const wf_json *from, const wf_folder_key *row)
{
    float f = row->missing;
    uint32_t u = row->missing > 0 ? (uint32_t)row->missing : 0;
    const wf_json *v = row->theirs ? wf_json_get(from, row->theirs) : NULL;
    bool absent = wf_json_absent(v);
    if (v && absent && row->null == WF_NULL_IS_NONE) return WEFT_OK;
    if (v && absent && row->null == WF_NULL_IS_0) f = 0, u = 0;
    else if (absent && row->missing == WF_KEY_REQUIRED) return wf_fail(WEFT_ERR_FORMAT, "'%s' is missing", row->theirs);
    else if (absent && row->missing == 0) return WEFT_OK;
    WF_TRY(absent ? WEFT_OK : row->real ? wf_json_float(from, row->theirs, &f) : wf_json_u32(from, row->theirs, &u));
    return row->real ? wf_folder_f32(r->g, KEY(row->ours), f) : wf_folder_u32(r->g, KEY(row->ours), u);
}

static weft_status copy_numbers(const reader *r)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (!own_row(r, rows[i].ours)) WF_TRY(copy_number(r, r->config, &rows[i]));
    for (const wf_folder_key *row = r->arch->keys ? r->arch->keys->rows : NULL; row && row->ours; row++)
        if (own_row(r, row->ours) == row && strcmp(row->ours, context_row.ours) && strcmp(row->ours, theta_row.ours))
            WF_TRY(copy_number(r, r->config, row));
    return WEFT_OK;
}

/* Has one of the layers a sliding window? Qwen 2 and SmolLM 3 say so by keys of their own, of which use_sliding_window
 * is false where it is missing. */
static weft_status has_local(const reader *r, uint32_t *window, bool *out)
{
    uint32_t first = 28, layers = 1;
    bool early = r->arch->keys && r->arch->keys->early_windows;
    const wf_json *types;
    *out = false;
    if (r->arch->keys && r->arch->keys->window && !wf_json_get(r->config, "sliding_window"))
        *window = r->arch->keys->window;
    WF_TRY(wf_json_u32(r->config, "sliding_window", window));
    WF_TRY(wf_json_bool(r->config, "use_sliding_window", out));
    WF_TRY(wf_json_u32(r->config, "max_window_layers", &first));
    WF_TRY(wf_json_u32(r->config, "num_hidden_layers", &layers));
    WF_TRY(wf_json_array(r->config, "layer_types", &types));
    bool any = !types && (early || first < layers);
    WF_JSON_EACH(one, types) any |= wf_json_is(one, WF_JSON_STRING) && !strcmp(one->text, "sliding_attention");
    *out &= any;
    return WEFT_OK;
}

/* A window changes nothing in a context that fits it: where the graph has none, longer ones are not run. */
static weft_status copy_context(const reader *r)
{
    const wf_folder_key *own = own_row(r, context_row.ours), *row = own ? own : &context_row;
    uint32_t context = row->missing > 0 ? (uint32_t)row->missing : 0, window = UINT32_MAX;
    bool local;
    WF_TRY(wf_json_u32(r->config, row->theirs, &context));
    WF_TRY(has_local(r, &window, &local));
    if (!context) return wf_fail(WEFT_ERR_FORMAT, "'%s' is missing or 0", row->theirs);
    if (local && !(r->arch->keys && r->arch->keys->windows) && window < context) {
        wf_log(WEFT_LOG_WARN,
               "layers of the model attend to the last %u tokens (sliding_window), which weft does not compute for %s: "
               "its context of %u is cut to that",
               window, r->arch->name, context);
        context = window;
        WF_TRY(wf_folder_u32(r->g, KEY("attention.longest_context"), window));
    }
    return wf_folder_u32(r->g, KEY("context_length"), context);
}

/* The place of the first layer that attends to all keys tells the period, which the others have to follow. */
static weft_status period_of(const wf_json *list, uint32_t *period)
{
    *period = 0;
    for (size_t i = 0; i < list->n; i++) {
        const char *name = wf_json_text(wf_json_at(list, i));
        if (!name || !wf_listed("full_attention sliding_attention", name))
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "'layer_types' has '%.32s'; weft knows full_attention and sliding_attention",
                           name ? name : "what is no name");
        bool full = *name == 'f';
        if (full && !*period) *period = (uint32_t)i + 1;
        if (full != (*period && (i + 1) % *period == 0))
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "'layer_types' does not have full_attention every so many layers, at %zu", i);
    }
    return WEFT_OK;
}

/* As transformers wants it. */
static weft_status one_a_layer(const wf_json *config, const wf_json *list)
{
    uint32_t layers = 0;
    WF_TRY(wf_json_u32(config, "num_hidden_layers", &layers));
    if (wf_json_count(list) == layers) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "'layer_types' has %zu entries for %u layers ('num_hidden_layers')",
                   wf_json_count(list), layers);
}

weft_status wf_folder_window_period(wf_gguf *g, const char *arch, const wf_json *config)
{
    char k[96];
    const wf_json *list;
    uint32_t period = 0;
    snprintf(k, sizeof k, "%s.attention.sliding_window_pattern", arch);
    WF_TRY(wf_json_array(config, "layer_types", &list));
    if (list) WF_TRY(one_a_layer(config, list));
    if (list) WF_TRY(period_of(list, &period));
    else WF_TRY(wf_json_u32(config, "sliding_window_pattern", &period));
    return list || period ? wf_folder_u32(g, k, period) : WEFT_OK;
}

weft_status wf_folder_local_base(wf_gguf *g, const char *arch, const wf_json *config, const char *older)
{
    char k[96];
    const wf_json *rope, *local = NULL;
    const char *type = "default";
    float base = 10000;
    snprintf(k, sizeof k, "%s.rope.freq_base_swa", arch);
    WF_TRY(wf_json_object(config, "rope_parameters", &rope));
    if (rope) WF_TRY(wf_json_object(rope, "sliding_attention", &local));
    if (local) WF_TRY(wf_json_str(local, "rope_type", &type));
    if (strcmp(type, "default"))
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "RoPE scaling '%.32s' of 'sliding_attention' is not supported (supported: default)", type);
    WF_TRY(wf_json_float(local ? local : config, local ? "rope_theta" : older, &base));
    return wf_folder_f32(g, k, base);
}

/* ---- rotation -------------------------------------------------------------------------------------- */

/* Llama 3.1 divides the low frequencies by a factor and leaves the high ones alone, with a smooth passage between
 * (transformers' modeling_rope_utils.py). */
static double llama3_factor(double frequency, double factor, double low, double high, double old)
{
    double length = 2 * M_PI / frequency;
    if (length < old / high) return 1;
    if (length > old / low) return factor;
    double smooth = (old / length - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

static weft_status positive(const wf_json *o, const char *name, float *out)
{
    WF_TRY(wf_json_float(o, name, out));
    return isfinite(*out) && *out > 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_FORMAT, "'%s' of the RoPE scaling is missing or not positive", name);
}

/* Of the part that rotates. */
static weft_status head_pairs(const reader *r, uint32_t *pairs)
{
    uint32_t hidden = 0, heads = 0, dim = 0;
    WF_TRY(wf_json_u32(r->config, "hidden_size", &hidden));
    WF_TRY(wf_json_u32(r->config, "num_attention_heads", &heads));
    WF_TRY(wf_json_u32(r->config, "head_dim", &dim));
    if (!dim && heads) dim = hidden / heads;
    double rotated = (double)dim * r->rotated;
    if (!(rotated >= 2 && rotated <= 2 * MAX_PAIRS))
        return wf_fail(WEFT_ERR_FORMAT, "heads of %g elements cannot be rotated", rotated);
    *pairs = (uint32_t)rotated / 2;
    return WEFT_OK;
}

static weft_status push_vector(const reader *r, const char *name, const float *values, uint32_t n)
{
    wf_gguf_tensor t = {.name = {name, strlen(name)},
                        .n_dims = 1,
                        .dims = {n, 1, 1, 1},
                        .ggml_type = wf_dtypes[WF_F32].ggml,
                        .dtype = WF_F32,
                        .data = wf_folder_keep(r->g, values, n * sizeof *values),
                        .bytes = n * sizeof *values};
    return t.data ? wf_folder_push(r->g, &t) : WEFT_ERR_NOMEM;
}

static weft_status read_llama3(const reader *r, const wf_json *o, float base)
{
    float factor = 0, low = 0, high = 0, old = 0, values[MAX_PAIRS];
    uint32_t pairs;
    WF_TRY(positive(o, "factor", &factor));
    WF_TRY(positive(o, "low_freq_factor", &low));
    WF_TRY(positive(o, "high_freq_factor", &high));
    WF_TRY(positive(wf_json_get(o, "original_max_position_embeddings") ? o : r->config,
                    "original_max_position_embeddings", &old));
    if (!(low < high)) return wf_fail(WEFT_ERR_FORMAT, "'low_freq_factor' is not below 'high_freq_factor'");
    WF_TRY(head_pairs(r, &pairs));
    for (uint32_t i = 0; i < pairs; i++)
        values[i] = (float)llama3_factor(pow(base, -(double)i / pairs), factor, low, high, old);
    return push_vector(r, "rope_freqs.weight", values, pairs);
}

/* The type and the factor of a scaling that GGUF knows. */
static weft_status copy_scaling(const reader *r, const wf_json *o, const char *type, float *factor)
{
    WF_TRY(positive(o, "factor", factor));
    WF_TRY(wf_folder_str(r->g, KEY("rope.scaling.type"), type));
    return wf_folder_f32(r->g, KEY("rope.scaling.factor"), *factor);
}

static weft_status copy_original(const reader *r, const wf_json *o, float *out)
{
    uint32_t old = 0;
    WF_TRY(wf_json_u32(wf_json_get(o, "original_max_position_embeddings") ? o : r->config,
                       "original_max_position_embeddings", &old));
    if (!old) return wf_fail(WEFT_ERR_FORMAT, "'original_max_position_embeddings' of the RoPE scaling is missing or 0");
    *out = (float)old;
    return wf_folder_u32(r->g, KEY("rope.scaling.original_context_length"), old);
}

/* Under transformers' name attention_factor is all of it; GGUF leaves out what follows from the factor. */
static weft_status read_yarn(const reader *r, const wf_json *o)
{
    float factor = 0, old = 0, gain = 0, mscale = 0, all = 0;
    bool truncate = true;
    WF_TRY(copy_scaling(r, o, "yarn", &factor));
    WF_TRY(copy_original(r, o, &old));
    WF_TRY(wf_json_bool(o, "truncate", &truncate));
    WF_TRY(wf_folder_bool(r->g, KEY("rope.scaling.yarn_truncate"), truncate));
    WF_TRY(wf_json_float(o, "mscale", &mscale));
    WF_TRY(wf_json_float(o, "mscale_all_dim", &all));
    WF_TRY(wf_json_float(o, "attention_factor", &gain));
    double each = factor > 1 ? 0.1 * log(factor) : 0;
    if (gain == 0 && mscale > 0 && all > 0) gain = (float)((1 + mscale * each) / (1 + all * each));
    if (gain != 0) WF_TRY(wf_folder_f32(r->g, KEY("rope.scaling.attn_factor"), (float)(gain / (1 + each))));
    WF_TRY(copy_number(r, o, &(wf_folder_key){"beta_fast", "rope.scaling.yarn_beta_fast", true, 0}));
    return copy_number(r, o, &(wf_folder_key){"beta_slow", "rope.scaling.yarn_beta_slow", true, 0});
}

/* Adds a list of factors as the tensor that GGUF has. */
static weft_status push_factors(const reader *r, const wf_json *o, const char *theirs, const char *ours)
{
    float values[MAX_PAIRS];
    uint32_t pairs;
    const wf_json *list;
    WF_TRY(head_pairs(r, &pairs));
    WF_TRY(wf_json_array(o, theirs, &list));
    if (!list || wf_json_count(list) != pairs)
        return wf_fail(WEFT_ERR_FORMAT, "'%s' of the RoPE scaling is not a list of %u numbers", theirs, pairs);
    for (uint32_t i = 0; i < pairs; i++) {
        values[i] = (float)wf_json_number(wf_json_at(list, i));
        if (!(values[i] > 0) || !isfinite(values[i]))
            return wf_fail(WEFT_ERR_FORMAT, "'%s' of the RoPE scaling has no positive number at %u", theirs, i);
    }
    return push_vector(r, ours, values, pairs);
}

static weft_status read_longrope(const reader *r, const wf_json *o)
{
    float old = 0, context = 0, factor = 0, gain = 0;
    WF_TRY(copy_original(r, o, &old));
    WF_TRY(positive(r->config, "max_position_embeddings", &context));
    WF_TRY(wf_json_float(o, "factor", &factor));
    WF_TRY(wf_json_float(o, "attention_factor", &gain));
    if (!(factor > 0)) factor = context / old;
    if (!(gain > 0)) gain = factor > 1 && old > 1 ? (float)sqrt(1 + log(factor) / log(old)) : 1;
    WF_TRY(wf_folder_f32(r->g, KEY("rope.scaling.attn_factor"), gain));
    WF_TRY(push_factors(r, o, "long_factor", "rope_factors_long.weight"));
    return push_factors(r, o, "short_factor", "rope_factors_short.weight");
}

/* rope_parameters holds all of it since transformers 5; before, rope_scaling holds what differs from plain rotation,
 * and where both are there, as in folders to which it was added for a longer context, it counts, as there. */
static weft_status read_rope(const reader *r)
{
    const wf_json *o, *newer;
    const wf_folder_key *own = own_row(r, theta_row.ours), *row = own ? own : &theta_row;
    float base = row->missing > 0 ? row->missing : 10000;
    const char *type = NULL;
    if (r->rotated != 1) {
        uint32_t pairs;
        WF_TRY(head_pairs(r, &pairs));
        WF_TRY(wf_folder_u32(r->g, KEY("rope.dimension_count"), 2 * pairs));
    }
    WF_TRY(wf_json_object(r->config, "rope_scaling", &o));
    WF_TRY(wf_json_object(r->config, "rope_parameters", &newer));
    const wf_json *with_base = r->config;
    if (newer && wf_json_get(newer, "full_attention"))
        WF_TRY(wf_json_object(newer, "full_attention", &newer)); /* Gemma 3 has two */
    if (newer && wf_json_get(newer, "rope_theta")) with_base = newer;
    if (o && wf_json_get(o, "rope_theta")) with_base = o;
    if (newer && !(o && wf_json_size(o))) o = newer;
    wf_folder_key theta = *row;
    if (with_base != r->config) theta.theirs = theta_row.theirs; /* whatever the older form calls it */
    WF_TRY(copy_number(r, with_base, &theta));
    WF_TRY(wf_json_float(with_base, theta.theirs, &base));
    if (!(base > 0)) return wf_fail(WEFT_ERR_FORMAT, "'rope_theta' is not positive");
    if (o) WF_TRY(wf_json_str(o, "type", &type));
    if (o) WF_TRY(wf_json_str(o, "rope_type", &type));
    if (!type || !strcmp(type, "default")) return WEFT_OK;
    if (!strcmp(type, "linear")) return copy_scaling(r, o, type, &(float){0});
    if (!strcmp(type, "llama3")) return read_llama3(r, o, base);
    if (!strcmp(type, "yarn")) return read_yarn(r, o);
    if (!strcmp(type, "longrope") || !strcmp(type, "su")) return read_longrope(r, o);
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "RoPE scaling '%.32s' is not supported (supported: default, linear, llama3, yarn, longrope)", type);
}

/* ---- what weft has no place for ---------------------------------------------------------------------- */

static weft_status check_quantisation(const reader *r)
{
    static const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < WF_LEN(keys); i++) {
        const wf_json *o;
        WF_TRY(wf_json_object(r->config, keys[i], &o));
        if (!o) continue;
        bool four = wf_json_is_true(wf_json_get(o, "load_in_4bit")),
             eight = wf_json_is_true(wf_json_get(o, "load_in_8bit"));
        const char *method = four || eight ? "bitsandbytes" : "of an unknown kind"; /* as older files of it have it */
        WF_TRY(wf_json_str(o, "quant_method", &method));
        const wf_folder_keys *own = r->arch->keys;
        if (own && own->quantised && wf_listed(own->quantised, method)) continue;
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the weights are quantised (%s: %.32s), which weft does not read; take the folder of the "
                       "unquantised model, which `weft convert` can quantise, or a GGUF file",
                       keys[i], method);
    }
    return WEFT_OK;
}

static weft_status check_activation(const reader *r)
{
    const wf_folder_keys *own = r->arch->keys;
    const char *key = own && own->act ? own->act : "hidden_act", *known = own && own->acts ? own->acts : "silu swish",
               *act = NULL;
    WF_TRY(wf_json_str(r->config, key, &act));
    if (!act || wf_listed(known, act)) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is '%.32s'; weft computes %s for this architecture", key, act, known);
}

static weft_status check_rotated(reader *r)
{
    const wf_json *rope;
    r->rotated = 1;
    WF_TRY(wf_json_float(r->config, "partial_rotary_factor", &r->rotated));
    WF_TRY(wf_json_object(r->config, "rope_parameters", &rope));
    if (rope) WF_TRY(wf_json_float(rope, "partial_rotary_factor", &r->rotated));
    bool partial = r->arch->keys && r->arch->keys->partial;
    if (r->rotated != 1 && !partial)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "'partial_rotary_factor' is %g; weft rotates whole heads in this architecture", r->rotated);
    return r->rotated > 0 && r->rotated <= 1
               ? WEFT_OK
               : wf_fail(WEFT_ERR_FORMAT, "'partial_rotary_factor' is %g, want more than 0 and at most 1", r->rotated);
}

/* ---- architecture ---------------------------------------------------------------------------------------- */

/* Without its head a model of text has another class. */
static weft_status find_whole(reader *r)
{
    char name[80];
    const char *end = strstr(r->class, "Model");
    if (!end || strcmp(end, "Model") || end - r->class > 64) return WEFT_OK;
    int n = snprintf(name, sizeof name, "%.*sForCausalLM", (int)(end - r->class), r->class);
    if (!wf_class_known(name)) return WEFT_OK;
    r->class = wf_folder_keep(r->g, name, (size_t)n);
    r->bare = true;
    return r->class ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status find_arch(reader *r)
{
    const wf_json *list, *text;
    WF_TRY(wf_json_array(r->config, "architectures", &list));
    r->class = wf_json_text(wf_json_at(list, 0));
    if (!r->class) return wf_fail(WEFT_ERR_FORMAT, "'architectures' names no class");
    WF_TRY(find_whole(r));
    WF_TRY(wf_arch_of_class(r->class, &r->arch));
    WF_TRY(check_quantisation(r));
    WF_TRY(wf_json_object(r->config, "text_config", &text));
    if (text) r->config = text; /* of a model with a vision tower besides */
    return WEFT_OK;
}

static const wf_folder_bias *find_bias(const reader *r, const char *of)
{
    const wf_folder_bias *b = r->arch->keys ? r->arch->keys->biases : NULL;
    while (b && b->of && !((!b->class || !strcmp(b->class, r->class)) && wf_listed(b->of, of))) b++;
    return b && b->of ? b : NULL;
}

/* transformers leaves out biases that its class lacks or config.json does not announce, and says so. Who is right, only
 * the model's author knows. */
static weft_status check_biases(const reader *r)
{
    const char *of;
    const wf_safetensor *t;
    for (size_t at = 0; (t = wf_folder_next_bias(r->g, r->arch->names, &at, &of));) {
        const wf_folder_bias *b = find_bias(r, of);
        if (!b)
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "tensor '%.200s' is there, but transformers' %s has no such biases and leaves them out: "
                           "name the class that the model was trained as, or remove them",
                           t->name, r->class);
        bool there = !b->key || (b->missing && !wf_json_get(r->config, b->key)); /* null is no */
        if (b->key) WF_TRY(wf_json_bool(r->config, b->key, &there));
        if (!there)
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "tensor '%.200s' is there, but '%s' is not true, so transformers leaves such biases out: "
                           "make it true if the model was trained with them, or remove them",
                           t->name, b->key);
    }
    return WEFT_OK;
}

static weft_status read_config(reader *r, bool *tied)
{
    WF_TRY(find_arch(r));
    WF_TRY(check_quantisation(r)); /* of the text part, too */
    WF_TRY(check_activation(r));
    WF_TRY(check_rotated(r));
    WF_TRY(wf_folder_str(r->g, "general.architecture", r->arch->name));
    WF_TRY(check_biases(r));
    WF_TRY(copy_numbers(r));
    bool normalise = false;
    WF_TRY(wf_json_bool(r->config, "norm_topk_prob", &normalise));
    if (wf_json_get(r->config, "norm_topk_prob")) WF_TRY(wf_folder_bool(r->g, KEY("expert_weights_norm"), normalise));
    WF_TRY(copy_context(r));
    const wf_folder_keys *own = r->arch->keys;
    *tied = own && own->tied;
    WF_TRY(wf_json_bool(r->config, "tie_word_embeddings", tied));
    WF_TRY(read_rope(r));
    return own && own->read ? own->read(r->g, r->config) : WEFT_OK;
}

weft_status wf_folder_class(const char *path)
{
    wf_json *config;
    const wf_arch *arch;
    if (wf_json_load_file(path, MAX_CONFIG, &config)) return WEFT_OK;
    const char *class = wf_json_text(wf_json_at(wf_json_get(config, "architectures"), 0));
    weft_status s = class ? wf_arch_of_class(class, &arch) : WEFT_OK;
    wf_json_free(config);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

weft_status wf_folder_config(wf_gguf *g, const char *path, const wf_arch **arch, const char **class, bool *tied,
                             bool *bare)
{
    wf_json *config;
    *tied = false;
    WF_TRY(wf_json_load_file(path, MAX_CONFIG, &config));
    reader r = {.g = g, .config = config};
    weft_status s = read_config(&r, tied);
    *class = r.class ? wf_folder_keep(g, r.class, strlen(r.class)) : NULL;
    if (!s && !*class) s = WEFT_ERR_NOMEM;
    wf_json_free(config);
    *arch = r.arch, *bare = r.bare;
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}
