/* phi3: Phi 3 and 4. As llama, but q, k and v are one matrix, gate and up another, and RoPE pairs are half a head
 * apart; long contexts divide the frequencies by other factors than short ones. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    hp->gate_in_up = true;
    return wf_hparams_read(f, "phi3", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_swiglu);
}

static const wf_folder_name names[] = {
    {"model.layers.#.self_attn.qkv_proj", "blk.#.attn_qkv", NULL},
    {"model.layers.#.mlp.gate_up_proj", "blk.#.ffn_up", NULL},
    {NULL, NULL, NULL},
};
static const wf_folder_key rows[] = {
    {"sliding_window", "attention.sliding_window", false, 0},
    {NULL, NULL, false, 0},
};
static const wf_folder_keys keys = {.rows = rows, .windows = true, .partial = true};
const wf_arch wf_arch_phi3 = {"phi3", "Phi3ForCausalLM", names, hparams, graph, &keys};
