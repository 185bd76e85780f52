/* gemma2: Gemma 2. Norms before and behind each block, whose weights a folder has without the 1 that is added to them,
 * GeGLU, embeddings scaled by sqrt(width), soft caps of scores and logits, and a sliding window in every other layer,
 * from the first on. */
#include "model/arch/gemma.h"
#include "base/json.h"
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    enum { LAYERS_27B = 46 };
    hp->attention_softcap = 50, hp->logit_softcap = 30; /* where the file says nothing: llama.cpp's */
    hp->window = 4096, hp->window_period = 2;
    return wf_gemma_hparams(f, "gemma2", LAYERS_27B, hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_swiglu);
}

static weft_status read(wf_gguf *g, const wf_json *config)
{
    return wf_gemma_config(g, "gemma2", config);
}

static const wf_folder_key rows[] = {
    {"head_dim", "attention.key_length", false, 256},
    {"head_dim", "attention.value_length", false, 256},
    {"sliding_window", "attention.sliding_window", false, 4096, WF_NULL_IS_0},
    {"attn_logit_softcapping", "attn_logit_softcapping", true, 50, WF_NULL_IS_0},
    {"final_logit_softcapping", "final_logit_softcapping", true, 30, WF_NULL_IS_0},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {NULL}};
static const wf_folder_keys keys = {.rows = rows,
                                    .act = "hidden_activation",
                                    .acts = "gelu_pytorch_tanh",
                                    .windows = true,
                                    .tied = true,
                                    .biases = biases,
                                    .read = read};
const wf_arch wf_arch_gemma2 = {"gemma2", "Gemma2ForCausalLM", wf_gemma_names, hparams, graph, &keys};
