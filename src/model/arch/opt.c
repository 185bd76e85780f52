/* opt: OPT. llama.cpp has no files of it, so they are folders, or what weft converts. LayerNorm before blocks, learned
 * positions instead of rotation, whose table begins with two rows that no token has, a bias on every product, and a
 * feed-forward of ReLU without a gate. */
#include "model/model.h"

#include "base/json.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = hp->learned_positions = true;
    hp->unrotated_step = 1;
    hp->activation = WF_RELU;
    return wf_hparams_read(f, "opt", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_mlp);
}

static weft_status skip_two(wf_gguf *g, wf_gguf_tensor *t)
{
    (void)g;
    return wf_folder_skip_rows(t, 2);
}

#define NAMES(prefix)                                                                              \
    {prefix "embed_tokens", "token_embd"}, {prefix "embed_positions", "position_embd", skip_two},  \
    {prefix "final_layer_norm", "output_norm"},                                                    \
    {prefix "layers.#.self_attn_layer_norm", "blk.#.attn_norm"},                                   \
    {prefix "layers.#.self_attn.q_proj", "blk.#.attn_q"},                                          \
    {prefix "layers.#.self_attn.k_proj", "blk.#.attn_k"},                                          \
    {prefix "layers.#.self_attn.v_proj", "blk.#.attn_v"},                                          \
    {prefix "layers.#.self_attn.out_proj", "blk.#.attn_output"},                                   \
    {prefix "layers.#.final_layer_norm", "blk.#.ffn_norm"},                                        \
    {prefix "layers.#.fc1", "blk.#.ffn_up"}, {prefix "layers.#.fc2", "blk.#.ffn_down"}
static const wf_folder_name names[] = {NAMES("model.decoder."), NAMES("decoder."), {NULL, NULL}};

static weft_status config(wf_gguf *g, const wf_json *o)
{
    bool before = true;
    uint32_t hidden = 0;
    WF_TRY(wf_json_bool(o, "do_layer_norm_before", &before));
    if (!before)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "'do_layer_norm_before' is false; weft computes norms before blocks (OPT of any size but 350M)");
    WF_TRY(wf_json_u32(o, "hidden_size", &hidden));
    uint32_t embedding = hidden;
    WF_TRY(wf_json_u32(o, "word_embed_proj_dim", &embedding));
    if (embedding != hidden)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "'word_embed_proj_dim' is %u and 'hidden_size' %u; weft projects no embeddings", embedding,
                       hidden);
    return wf_folder_f32(g, "opt.attention.layer_norm_epsilon", 1e-5f); /* PyTorch's, for the file has none */
}

static const wf_folder_key rows[] = {
    {"ffn_dim", "feed_forward_length", false, WF_KEY_REQUIRED},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES " ffn_up ffn_down", "enable_bias", true},
                                        {"attn_norm ffn_norm output_norm", "layer_norm_elementwise_affine", true},
                                        {NULL}};
static const wf_folder_keys keys = {
    .biases = biases, .rows = rows, .act = "activation_function", .acts = "relu", .tied = true, .read = config};
const wf_arch wf_arch_opt = {"opt", "OPTForCausalLM", names, hparams, graph, &keys};
