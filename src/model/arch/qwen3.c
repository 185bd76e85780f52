/* qwen3: Qwen 3 without experts. As qwen2, but q and k are normalised head by head before RoPE, nothing has a bias, and
 * heads may be larger than their share of the hidden size. */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    return wf_hparams_read(f, "qwen3", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention_qk_norm, wf_build_swiglu);
}

static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {NULL}};
static const wf_folder_keys keys = {.window = WF_QWEN_WINDOW, .biases = biases};
const wf_arch wf_arch_qwen3 = {"qwen3", "Qwen3ForCausalLM", NULL, hparams, graph, &keys};
