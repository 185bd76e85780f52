/* qwen3moe: Qwen 3 with experts. As qwen3, but each token takes a few of many experts; their weights add up to one
 * where the model says so, which all that are published do. */
#include "model/arch/qwen.h"
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    hp->expert_normalise = !f->folder; /* config.json says it, and where it does not, they do not */
    WF_TRY(wf_hparams_read(f, "qwen3moe", hp));
    return hp->n_expert ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "%s: qwen3moe.expert_count is missing or 0", f->path);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention_qk_norm, wf_build_experts);
}

static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {NULL}};
static const wf_folder_keys keys = {
    .early_windows = true, .window = WF_QWEN_WINDOW, .read = wf_qwen_moe_config, .biases = biases};
const wf_arch wf_arch_qwen3moe = {"qwen3moe", "Qwen3MoeForCausalLM", NULL, hparams, graph, &keys};
