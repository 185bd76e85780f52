/* qwen2moe: Qwen 1.5 and 2 with experts. As qwen2, but each token takes a few of many experts, whose weights need not
 * add up to one, and besides them one that all tokens take, gated by a sigmoid. */
#include "model/arch/qwen.h"
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = hp->expert_shared = true;
    WF_TRY(wf_hparams_read(f, "qwen2moe", hp));
    return hp->n_expert ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "%s: qwen2moe.expert_count is missing or 0", f->path);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_experts);
}

static const wf_folder_key rows[] = {
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", false, WF_KEY_REQUIRED},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{"attn_q attn_k attn_v", "qkv_bias", true}, {NULL}};
static const wf_folder_keys keys = {
    .biases = biases, .rows = rows, .early_windows = true, .window = WF_QWEN_WINDOW, .read = wf_qwen_moe_config};
static const wf_folder_name names[] = {
    {"model.layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"},
    {"model.layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"},
    {"model.layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"},
    {"model.layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"},
    {NULL, NULL},
};
const wf_arch wf_arch_qwen2moe = {"qwen2moe", "Qwen2MoeForCausalLM", names, hparams, graph, &keys};
