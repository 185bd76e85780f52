/* qwen3: Qwen 3 without experts. As qwen2, but q and k are normalised head by head before RoPE, nothing has a bias, and heads
 * may be larger than their share of the hidden size. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    return wf_hparams_read(f, "qwen3", hp);
}

/* What comes between the product and RoPE forbids to fuse them. q and k stay F32 until their norm, which writes them beside v. */
static int32_t attention(wf_builder *b, int32_t x)
{
    const uint32_t q = b->hp->n_head * b->hp->head_dim, kv = b->hp->n_kv_head * b->hp->head_dim;
    const wf_linear qk[] = {{"q", "attn_q", q}, {"k", "attn_k", kv}}, v = {"v", "attn_v", kv};
    int32_t h = wf_build_norm(b, "attn_norm", "attn_norm", x);
    int32_t raw = wf_build_linears(b, "qk", qk, 2, h, NULL, -1, WF_F32), qkv = wf_build_columns(b, q + 2 * kv);
    wf_build_head_norm(b, "q_norm", "attn_q_norm", (wf_operand){raw, 0, q}, (wf_operand){qkv, 0, q});
    wf_build_head_norm(b, "k_norm", "attn_k_norm", (wf_operand){raw, q, kv}, (wf_operand){qkv, q, kv});
    wf_build_linear(b, &v, h, (wf_operand){qkv, q + kv, kv});
    return wf_build_rope_attention(b, qkv, x);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, attention, wf_build_swiglu);
}

const wf_arch wf_arch_qwen3 = {"qwen3", "Qwen3ForCausalLM", wf_folder_decoder, hparams, graph};
