/* olmo2: OLMo 2. As llama, with norms behind attention and feed-forward instead of before them, and of all of q and all
 * of k, before RoPE, whose pairs are half a head apart. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = hp->post_norms = true;
    return wf_hparams_read(f, "olmo2", hp);
}

/* q and k stay F32 until their norm, which writes them beside v. */
static int32_t attention(wf_builder *b, int32_t x)
{
    const uint32_t q = b->hp->n_head * b->hp->head_dim, kv = b->hp->n_kv_head * b->hp->head_dim;
    const wf_linear qk[] = {{"q", "attn_q", q, q}, {"k", "attn_k", kv, kv}}, v = {"v", "attn_v", kv};
    int32_t raw = wf_build_linears(b, "qk", qk, 2, x, -1, WF_F32), qkv = wf_build_columns(b, q + 2 * kv);
    wf_build_columns_norm(b, "q_norm", "attn_q_norm", (wf_operand){raw, 0, q}, (wf_operand){qkv, 0, q});
    wf_build_columns_norm(b, "k_norm", "attn_k_norm", (wf_operand){raw, q, kv}, (wf_operand){qkv, q, kv});
    wf_build_linear(b, &v, x, (wf_operand){qkv, q + kv, kv});
    return wf_build_rope_attention(b, qkv, x);
}

static int32_t feed_forward(wf_builder *b, int32_t x)
{
    return wf_build_swiglu_of(b, x, x);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, attention, feed_forward);
}

static const wf_folder_name names[] = {
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
    {NULL, NULL},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {NULL}};
static const wf_folder_keys keys = {.biases = biases};
const wf_arch wf_arch_olmo2 = {"olmo2", "Olmo2ForCausalLM", names, hparams, graph, &keys};
