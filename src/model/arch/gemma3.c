/* gemma3: Gemma 3, text. As Gemma 2, but q and k are normalised head by head instead of a soft cap, five layers of six
 * have a sliding window, and these rotate with a base of their own. */
#include "model/arch/gemma.h"
#include "base/json.h"
#include "model/model.h"

#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    enum { LAYERS_27B = 62 };
    hp->window_period = 6;
    hp->local_rope_base = 10000;
    return wf_gemma_hparams(f, "gemma3", LAYERS_27B, hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention_qk_norm, wf_build_swiglu);
}

static weft_status read(wf_gguf *g, const wf_json *config)
{
    WF_TRY(wf_folder_local_base(g, "gemma3", config, "rope_local_base_freq"));
    return wf_gemma_config(g, "gemma3", config);
}

/* Models with a vision tower leave out what is the default. */
static const wf_folder_key rows[] = {
    {"num_attention_heads", "attention.head_count", false, 8},
    {"num_key_value_heads", "attention.head_count_kv", false, 4},
    {"max_position_embeddings", "context_length", false, 131072},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", true, 1e-6f},
    {"head_dim", "attention.key_length", false, 256},
    {"head_dim", "attention.value_length", false, 256},
    {"sliding_window", "attention.sliding_window", false, 4096},
    {"rope_theta", "rope.freq_base", true, 1e6f},
    {"final_logit_softcapping", "final_logit_softcapping", true,
     0}, /* attn_logit_softcapping is read by transformers, too, and never used */
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
const wf_arch wf_arch_gemma3 = {
    "gemma3", "Gemma3ForCausalLM Gemma3ForConditionalGeneration", wf_gemma_names, hparams, graph, &keys};
