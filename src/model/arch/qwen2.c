/* qwen2: Qwen 2 and 2.5. Like llama, but RoPE pairs are half a head apart, and q, k and v have a bias (which the
 * builder adds if the file has one). */
#include "model/model.h"
#include "model/files/recipe.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = true;
    return wf_hparams_read(f, "qwen2", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_swiglu);
}

static const wf_folder_bias biases[] = {{"attn_q attn_k attn_v"}, {NULL}};
static const wf_folder_keys keys = {.biases = biases, .window = WF_QWEN_WINDOW};
static const wf_mix mix = {.large_layers = 80};
const wf_arch wf_arch_qwen2 = {"qwen2", "Qwen2ForCausalLM", NULL, hparams, graph, &keys, &mix};
