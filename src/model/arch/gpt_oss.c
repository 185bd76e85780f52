/* gpt-oss: gpt-oss 20B and 120B. Attention with sinks and a bias on every product, whose first layer of two has a
 * sliding window; a mixture of experts whose gate is clamped and whose weights are a softmax over the chosen experts;
 * YaRN whose bounds are not rounded.
 *
 * A folder has gate and up of all experts as one tensor, their columns in turns, and matrices the other way round than
 * GGUF. Where they are quantised (MXFP4), rows stand as in GGUF, and scales beside the blocks, in which neighbours
 * share a byte. */
#include "base/json.h"
#include "model/model.h"
#include "model/files/safetensors.h"

#include <stdio.h>
#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = hp->sinks = hp->yarn_exact = true;
    hp->window_period = 2;
    hp->gate = WF_CLAMPED_SWIGLU;
    WF_TRY(wf_hparams_read(f, "gpt-oss", hp));
    hp->expert_normalise = true;
    return hp->n_expert ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "%s: gpt-oss.expert_count is missing or 0", f->path);
}

static int32_t experts(wf_builder *b, int32_t x)
{
    return wf_build_experts_of(b, wf_build_norm(b, "ffn_norm", "post_attention_norm", x), x);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, experts);
}

/* ---- tensors of a folder ------------------------------------------------------------------------------ */

/* The matrices of all experts with columns `first`, first + step, ... as rows; of biases, these elements. */
static weft_status take(wf_gguf *g, const wf_gguf_tensor *t, uint64_t first, uint64_t step, wf_gguf_tensor *out)
{
    bool bias = t->n_dims == 2;
    uint64_t cols = t->dims[0], rows = bias ? 1 : t->dims[1], n = bias ? t->dims[1] : t->dims[2], kept = cols / step;
    if ((!bias && t->n_dims != 3) || cols % step || !t->bytes)
        return wf_fail(WEFT_ERR_FORMAT, "it is not of all experts, gate and up in turns");
    size_t each = t->bytes / (cols * rows * n);
    uint8_t *to = wf_folder_keep(g, NULL, t->bytes / step);
    if (!to) return WEFT_ERR_NOMEM;
    *out = *t;
    out->data = to, out->bytes = t->bytes / step;
    out->dims[0] = bias ? kept : rows, out->dims[1] = bias ? n : kept;
    for (uint64_t e = 0; e < n; e++)
        for (uint64_t c = 0; c < kept; c++)
            for (uint64_t r = 0; r < rows; r++, to += each)
                memcpy(to, t->data + ((e * rows + r) * cols + first + c * step) * each, each);
    return WEFT_OK;
}

/* t becomes the gate; the other is pushed as up, with that part of its name. */
static weft_status push_up(wf_gguf *g, const wf_gguf_tensor *t, wf_gguf_tensor *up)
{
    char name[96];
    const char *part = "ffn_gate", *at = strstr(t->name.data, part);
    snprintf(name, sizeof name, "%.*sffn_up%s", (int)(at - t->name.data), t->name.data, at + strlen(part));
    up->name = (wf_str){wf_folder_keep(g, name, strlen(name)), strlen(name)};
    return up->name.data ? wf_folder_push(g, up) : WEFT_ERR_NOMEM;
}

static weft_status split(wf_gguf *g, wf_gguf_tensor *t)
{
    wf_gguf_tensor gate, up;
    WF_TRY(take(g, t, 0, 2, &gate));
    WF_TRY(take(g, t, 1, 2, &up));
    *t = gate;
    return push_up(g, t, &up);
}

static weft_status turn(wf_gguf *g, wf_gguf_tensor *t)
{
    const wf_gguf_tensor from = *t;
    return take(g, &from, 0, 1, t);
}

/* ---- MXFP4 ------------------------------------------------------------------------------------------------ */

enum { BLOCK = 32, CODES = BLOCK / 2 };

static uint8_t code_at(const uint8_t *pairs, uint32_t i)
{
    return i % 2 ? pairs[i / 2] >> 4 : pairs[i / 2] & 15;
}

static weft_status find_scales(const wf_gguf *g, const wf_gguf_tensor *t, const char *matrix, const wf_safetensor **out)
{
    char name[96];
    const char *layer = t->name.data + strlen("blk.");
    snprintf(name, sizeof name, "model.layers.%.*s.mlp.experts.%s_scales", (int)strcspn(layer, "."), layer, matrix);
    const wf_safetensor *s = *out = wf_folder_source(g, name);
    if (!s) return wf_fail(WEFT_ERR_FORMAT, "tensor '%s' is missing", name);
    bool fit = !strcmp(s->type, "U8") && t->n_dims == 4 && t->dims[0] == CODES && s->n_dims == 3;
    for (uint32_t i = 0; fit && i < 3; i++) fit = s->shape[i] == t->dims[3 - i];
    return fit ? WEFT_OK
               : wf_fail(WEFT_ERR_FORMAT, "its shape does not fit that of '%s', or has not 16 bytes last", name);
}

/* Rows `first`, first + step, ... of all experts. */
static weft_status join(wf_gguf *g, const wf_gguf_tensor *t, const wf_safetensor *scales, uint64_t first, uint64_t step,
                        wf_gguf_tensor *out)
{
    uint64_t blocks = t->dims[1], rows = t->dims[2], kept = rows / step, size = 1 + CODES, row = blocks * t->dims[3];
    if (rows % step) return wf_fail(WEFT_ERR_FORMAT, "it has not as many rows of gate as of up");
    uint8_t *to = wf_folder_keep(g, NULL, row * kept * size);
    if (!to) return WEFT_ERR_NOMEM;
    *out = *t;
    out->n_dims = 3, out->dtype = WF_MXFP4, out->ggml_type = wf_dtypes[WF_MXFP4].ggml;
    out->dims[0] = blocks * BLOCK, out->dims[1] = kept, out->dims[2] = t->dims[3], out->dims[3] = 1;
    out->data = to, out->bytes = row * kept * size;
    for (uint64_t i = 0; i < t->dims[3] * kept; i++) {
        uint64_t at = (i / kept * rows + first + i % kept * step) * blocks;
        for (uint64_t b = 0; b < blocks; b++, to += size) {
            /* A block of GGUF: the scale, then element i and i + 16 in a byte. */
            const uint8_t *pairs = t->data + (at + b) * CODES;
            to[0] = scales->data[at + b];
            for (uint32_t k = 0; k < CODES; k++)
                to[1 + k] = (uint8_t)(code_at(pairs, k) | code_at(pairs, k + CODES) << 4);
        }
    }
    return WEFT_OK;
}

static weft_status split_blocks(wf_gguf *g, wf_gguf_tensor *t)
{
    const wf_safetensor *scales;
    wf_gguf_tensor gate, up;
    WF_TRY(find_scales(g, t, "gate_up_proj", &scales));
    WF_TRY(join(g, t, scales, 0, 2, &gate));
    WF_TRY(join(g, t, scales, 1, 2, &up));
    *t = gate;
    return push_up(g, t, &up);
}

static weft_status join_blocks(wf_gguf *g, wf_gguf_tensor *t)
{
    const wf_safetensor *scales;
    const wf_gguf_tensor from = *t;
    WF_TRY(find_scales(g, t, "down_proj", &scales));
    return join(g, &from, scales, 0, 1, t);
}

/* ---- config.json ------------------------------------------------------------------------------------------ */

#define EXPERTS "model.layers.#.mlp.experts."
static const wf_folder_name names[] = {
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.self_attn.sinks", "blk.#.attn_sinks.weight", .whole = true},
    {"model.layers.#.mlp.router", "blk.#.ffn_gate_inp"},
    {EXPERTS "gate_up_proj", "blk.#.ffn_gate_exps.weight", split, .whole = true},
    {EXPERTS "gate_up_proj_bias", "blk.#.ffn_gate_exps.bias", split, .whole = true},
    {EXPERTS "gate_up_proj_blocks", "blk.#.ffn_gate_exps.weight", split_blocks, .whole = true, .bytes = true},
    {EXPERTS "gate_up_proj_scales", NULL, .whole = true}, /* read with the blocks */
    {EXPERTS "down_proj", "blk.#.ffn_down_exps.weight", turn, .whole = true},
    {EXPERTS "down_proj_bias", "blk.#.ffn_down_exps.bias", .whole = true},
    {EXPERTS "down_proj_blocks", "blk.#.ffn_down_exps.weight", join_blocks, .whole = true, .bytes = true},
    {EXPERTS "down_proj_scales", NULL, .whole = true},
    {NULL, NULL},
};

static weft_status read(wf_gguf *g, const wf_json *config)
{
    float limit = WF_SWIGLU_LIMIT, alpha = WF_SWIGLU_ALPHA;
    WF_TRY(wf_json_float(config, "swiglu_limit", &limit));
    WF_TRY(wf_json_float(config, "swiglu_alpha", &alpha));
    if (limit != WF_SWIGLU_LIMIT || alpha != WF_SWIGLU_ALPHA)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'swiglu_limit' is %g and 'swiglu_alpha' %g; weft computes %g and %g",
                       limit, alpha, WF_SWIGLU_LIMIT, WF_SWIGLU_ALPHA);
    const wf_json *older = wf_json_get(config, "rope_scaling"), *rope = wf_json_get(config, "rope_parameters");
    if (!wf_json_is(older, WF_JSON_OBJECT) && !wf_json_is(rope, WF_JSON_OBJECT))
        return wf_fail(WEFT_ERR_FORMAT, "both 'rope_scaling' and 'rope_parameters' are missing");
    return wf_folder_window_period(g, "gpt-oss", config);
}

static const wf_folder_key rows[] = {
    {"head_dim", "attention.key_length", false, 64},
    {"head_dim", "attention.value_length", false, 64},
    {"sliding_window", "attention.sliding_window", false, 128},
    {"rope_theta", "rope.freq_base", true, 150000},
    {"num_local_experts", "expert_count", false, WF_KEY_REQUIRED},
    {"num_experts_per_tok", "expert_used_count", false, WF_KEY_REQUIRED},
    {"intermediate_size", "expert_feed_forward_length", false, WF_KEY_REQUIRED},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias", true}, {"ffn_gate_inp"}, {NULL}};
static const wf_folder_keys keys = {
    .biases = biases, .rows = rows, .windows = true, .quantised = "mxfp4", .read = read};
const wf_arch wf_arch_gpt_oss = {"gpt-oss", "GptOssForCausalLM", names, hparams, graph, &keys};
