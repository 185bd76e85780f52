/* llama: Llama 1 to 3.3, CodeLlama, Vicuna, Mistral, DeepSeek-LLM and -Coder, TinyLlama; with experts Mixtral. Pre-norm
 * blocks with grouped-query attention, RoPE over adjacent pairs (of a folder: over pairs half a head apart) and a
 * SwiGLU feed-forward, or a mixture of them. */
#include "model/model.h"
#include "model/files/recipe.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->expert_normalise = true;
    hp->neox = f->folder; /* GGUF interleaves the rows that a folder has in halves */
    return wf_hparams_read(f, "llama", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, b->hp->n_expert ? wf_build_experts : wf_build_swiglu);
}

static const wf_folder_key rows[] = {
    {"sliding_window", "attention.sliding_window", false, 4096, WF_NULL_IS_NONE, "MistralForCausalLM"},
    {"sliding_window", "attention.sliding_window", false, 0, WF_NULL_IS_MISSING,
     "MixtralForCausalLM"}, /* Llama ignores it, as copies of Mistral's config.json have it */
    {"rope_theta", "rope.freq_base", true, 1e6f, WF_NULL_IS_MISSING, "MixtralForCausalLM"},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = { /* Mistral and Mixtral have none */
    {WF_ATTENTION_BIASES, "attention_bias", false, "LlamaForCausalLM"},
    {WF_MLP_BIASES, "mlp_bias", false, "LlamaForCausalLM"},
    {NULL},
};
static const wf_folder_keys keys = {.rows = rows, .windows = true, .biases = biases};
static const wf_folder_name names[] = { /* Mixtral's */
    {"model.layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"},
    {"model.layers.#.block_sparse_moe.experts.#.w1", "blk.#.ffn_gate.#"},
    {"model.layers.#.block_sparse_moe.experts.#.w3", "blk.#.ffn_up.#"},
    {"model.layers.#.block_sparse_moe.experts.#.w2", "blk.#.ffn_down.#"},
    {NULL, NULL},
};
static const wf_mix mix = {.large_layers = 80, .large_shares = true}; /* Llama 2 and 3; Llama 1 has as many */
const wf_arch wf_arch_llama = {
    "llama", "LlamaForCausalLM MistralForCausalLM MixtralForCausalLM", names, hparams, graph, &keys, &mix};
