/* falcon: Falcon 7B, 40B, 180B and Falcon 2. Attention and a feed-forward of GELU without a gate both read the residual
 * stream as it is before the block, through one LayerNorm or each through its own, and both are added to it. One matrix
 * for q, k and v: in a folder the queries of a KV head stand before it, in a GGUF file all of q stand before all of k
 * and v. */
#include "model/model.h"

#include "base/json.h"
#include "model/files/recipe.h"

#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = hp->layer_norm = true;
    hp->activation = WF_GELU;
    return wf_hparams_read(f, "falcon", hp);
}

static int32_t block(wf_builder *b, int32_t x)
{
    int32_t h = wf_build_norm(b, "attn_norm", "attn_norm", x), q = h;
    if (wf_build_has(b, "attn_norm_2")) q = wf_build_norm(b, "attn_norm_2", "attn_norm_2", x);
    return wf_build_mlp_of(b, h, wf_build_attention_of(b, q, x));
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, block, NULL);
}

/* Rows of a weight or elements of a bias: from q, k and v of each KV head to all q, all k and all v. */
static weft_status regroup(wf_gguf *g, wf_gguf_tensor *t)
{
    uint32_t heads = wf_folder_get(g, "falcon.attention.head_count"),
             kv = wf_folder_get(g, "falcon.attention.head_count_kv");
    uint64_t rows = t->n_dims > 1 ? t->dims[1] : t->dims[0], of_head = rows / (heads + 2ull * kv),
             each = t->bytes / WF_MAX(rows, 1u);
    if (!heads || !kv || heads % kv || rows != of_head * (heads + 2ull * kv))
        return wf_fail(WEFT_ERR_FORMAT, "%llu rows of q, k and v do not fit %u heads and %u KV heads",
                       (unsigned long long)rows, heads, kv);
    uint64_t head = of_head * each, q = heads / kv;
    uint8_t *out = wf_folder_keep(g, t->data, t->bytes);
    if (!out) return WEFT_ERR_NOMEM;
    for (uint64_t i = 0; i < kv; i++) {
        const uint8_t *group = t->data + i * (q + 2) * head;
        memcpy(out + i * q * head, group, q * head);
        for (uint64_t v = 0; v < 2; v++) memcpy(out + (heads + v * kv + i) * head, group + (q + v) * head, head);
    }
    t->data = out;
    return WEFT_OK;
}

#define NAMES(prefix)                                                                              \
    {prefix "word_embeddings", "token_embd"}, {prefix "ln_f", "output_norm"},                      \
    {prefix "h.#.input_layernorm", "blk.#.attn_norm"}, {prefix "h.#.ln_mlp", "blk.#.attn_norm"},   \
    {prefix "h.#.ln_attn", "blk.#.attn_norm_2"},                                                   \
    {prefix "h.#.self_attention.query_key_value", "blk.#.attn_qkv", regroup},                      \
    {prefix "h.#.self_attention.dense", "blk.#.attn_output"},                                      \
    {prefix "h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"}, {prefix "h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"}
static const wf_folder_name names[] = {NAMES("transformer."), NAMES(""), {NULL, NULL}};

static weft_status config(wf_gguf *g, const wf_json *o)
{
    bool newer = false, one_kv = true, parallel = true, alibi = false;
    uint32_t heads = 0, hidden = 0, inner = 0;
    WF_TRY(wf_json_bool(o, "new_decoder_architecture", &newer));
    WF_TRY(wf_json_bool(o, "multi_query", &one_kv));
    WF_TRY(wf_json_bool(o, "parallel_attn", &parallel));
    WF_TRY(wf_json_bool(o, "alibi", &alibi));
    if (alibi) return wf_fail(WEFT_ERR_UNSUPPORTED, "'alibi' is true; weft computes rotary positions for Falcon");
    if (!newer && !parallel)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'parallel_attn' is false, which weft does not compute for Falcon");
    WF_TRY(wf_json_u32(o, "num_attention_heads", &heads));
    WF_TRY(wf_json_u32(o, "hidden_size", &hidden));
    uint32_t kv = heads;
    WF_TRY(wf_json_u32(o, "num_kv_heads", &kv));
    WF_TRY(wf_json_u32(o, "ffn_hidden_size", &inner));
    WF_TRY(wf_folder_u32(g, "falcon.attention.head_count_kv", !newer && one_kv ? 1 : kv));
    return wf_folder_u32(g, "falcon.feed_forward_length", inner || hidden > UINT32_MAX / 4 ? inner : 4 * hidden);
}

static const wf_folder_key rows[] = {
    {"max_position_embeddings", "context_length", false, 2048},
    {NULL, "attention.head_count_kv", false, 0},
    {NULL, "feed_forward_length", false, 0},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", true, 1e-5},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {
    {"attn_qkv attn_output ffn_up ffn_down", "bias"}, {"attn_norm attn_norm_2 output_norm"}, {NULL}};
static const wf_folder_keys keys = {
    .biases = biases, .rows = rows, .act = "activation", .acts = "gelu", .tied = true, .read = config};

static const wf_mix_row down[] = {
    {WF_FILE_Q2_K, WF_Q3_K, WF_Q3_K},
    {WF_FILE_Q3_K_M, WF_Q4_K, WF_Q3_K, 16, WF_Q5_K},
    {WF_FILE_Q3_K_L, WF_Q4_K, WF_Q4_K},
    {WF_FILE_Q4_K_M, WF_Q5_K, WF_Q4_K, 16, WF_Q6_K},
    {WF_FILE_Q5_K_M, WF_Q6_K, WF_Q5_K},
    {WF_FILE_IQ4_NL, WF_IQ4_NL, WF_IQ4_NL, 8, WF_Q5_K},
    {WF_FILE_IQ4_XS, WF_IQ4_XS, WF_IQ4_XS, 8, WF_Q5_K},
    {0},
};
static const wf_mix_row attention_output[] = {{WF_FILE_Q3_K_L, WF_Q4_K, WF_Q4_K}, {0}};
static const wf_mix mix = {.down = down, .attention_output = attention_output, .output_q8 = true};
const wf_arch wf_arch_falcon = {"falcon", "FalconForCausalLM", names, hparams, graph, &keys, &mix};
