/* starcoder2: StarCoder 2. As llama, with LayerNorm, a bias on every product, and a feed-forward of GELU without a
 * gate. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    hp->layer_norm = true;
    hp->activation = WF_GELU_TANH;
    return wf_hparams_read(f, "starcoder2", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_mlp);
}

static const wf_folder_name names[] = {
    {"model.layers.#.mlp.c_fc", "blk.#.ffn_up"},
    {"model.layers.#.mlp.c_proj", "blk.#.ffn_down"},
    {NULL, NULL},
};
static const wf_folder_key rows[] = {
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"norm_epsilon", "attention.layer_norm_epsilon", true, 1e-5},
    {"sliding_window", "attention.sliding_window", false, 0},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {
    {WF_ATTENTION_BIASES " ffn_up ffn_down", "use_bias", true}, {"attn_norm ffn_norm output_norm"}, {NULL}};
static const wf_folder_keys keys = {.biases = biases,
                                    .rows = rows,
                                    .act = "hidden_act",
                                    .acts = "gelu_pytorch_tanh gelu_new",
                                    .windows = true,
                                    .tied = true};
const wf_arch wf_arch_starcoder2 = {"starcoder2", "Starcoder2ForCausalLM", names, hparams, graph, &keys};
