/* gpt2: GPT-2. LayerNorm before blocks, learned positions instead of rotation, one matrix for q, k and v, a bias on
 * every product, and a feed-forward of GELU without a gate. A folder has its matrices transposed. */
#include "model/model.h"

#include "base/json.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = hp->learned_positions = true;
    hp->unrotated_step = 1;
    hp->activation = WF_GELU_TANH;
    return wf_hparams_read(f, "gpt2", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_mlp);
}

#define NAMES(prefix)                                                                              \
    {prefix "wte", "token_embd"}, {prefix "wpe", "position_embd"}, {prefix "ln_f", "output_norm"}, \
    {prefix "h.#.ln_1", "blk.#.attn_norm"}, {prefix "h.#.ln_2", "blk.#.ffn_norm"},                 \
    {prefix "h.#.attn.c_attn", "blk.#.attn_qkv", wf_folder_transpose},                             \
    {prefix "h.#.attn.c_proj", "blk.#.attn_output", wf_folder_transpose},                          \
    {prefix "h.#.mlp.c_fc", "blk.#.ffn_up", wf_folder_transpose},                                  \
    {prefix "h.#.mlp.c_proj", "blk.#.ffn_down", wf_folder_transpose},                              \
    {prefix "h.#.attn", NULL} /* masks */
static const wf_folder_name names[] = {NAMES("transformer."), NAMES(""), {NULL, NULL}};

static weft_status config(wf_gguf *g, const wf_json *o)
{
    bool scaled = true, by_layer = false, cross = false;
    uint32_t inner = 0, hidden = 0;
    WF_TRY(wf_json_bool(o, "scale_attn_weights", &scaled));
    WF_TRY(wf_json_bool(o, "scale_attn_by_inverse_layer_idx", &by_layer));
    WF_TRY(wf_json_bool(o, "add_cross_attention", &cross));
    if (!scaled || by_layer || cross)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is %s, which weft does not compute",
                       !scaled    ? "scale_attn_weights"
                       : by_layer ? "scale_attn_by_inverse_layer_idx"
                                  : "add_cross_attention",
                       scaled ? "true" : "false");
    WF_TRY(wf_json_u32(o, "n_embd", &hidden));
    WF_TRY(wf_json_u32(o, "n_inner", &inner));
    return wf_folder_u32(g, "gpt2.feed_forward_length", inner || hidden > UINT32_MAX / 4 ? inner : 4 * hidden);
}

static const wf_folder_key rows[] = {
    {"n_layer", "block_count", false, WF_KEY_REQUIRED},
    {"n_embd", "embedding_length", false, WF_KEY_REQUIRED},
    {"n_head", "attention.head_count", false, WF_KEY_REQUIRED},
    {"n_positions", "context_length", false, 1024},
    {NULL, "feed_forward_length", false, 0},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", true, 1e-5},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{"attn_qkv attn_output ffn_up ffn_down attn_norm ffn_norm output_norm"},
                                        {NULL}};
static const wf_folder_keys keys = {.biases = biases,
                                    .rows = rows,
                                    .act = "activation_function",
                                    .acts = "gelu_new gelu_pytorch_tanh",
                                    .tied = true,
                                    .read = config};
const wf_arch wf_arch_gpt2 = {"gpt2", "GPT2LMHeadModel", names, hparams, graph, &keys};
