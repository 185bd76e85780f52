/* command-r: Command R and Aya 23. Attention and SwiGLU both read the residual stream as it is before the block,
 * through one LayerNorm without a bias, and both are added to it. RoPE over adjacent pairs, and logits with a factor.
 */
#include "base/json.h"
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = true;
    WF_TRY(wf_hparams_read(f, "command-r", hp));
    return wf_hparams_factor(f, "command-r", "logit_scale", &hp->logit_gain);
}

static int32_t block(wf_builder *b, int32_t x)
{
    int32_t h = wf_build_norm(b, "attn_norm", "attn_norm", x);
    return wf_build_swiglu_of(b, h, wf_build_attention_of(b, h, x));
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, block, NULL);
}

static weft_status read(wf_gguf *g, const wf_json *config)
{
    (void)g;
    bool norms = false;
    WF_TRY(wf_json_bool(config, "use_qk_norm", &norms));
    return norms ? wf_fail(WEFT_ERR_UNSUPPORTED, "'use_qk_norm' is true, as in Command R+; weft computes this "
                                                 "architecture without norms of q and k")
                 : WEFT_OK;
}

static const wf_folder_key rows[] = {
    {"max_position_embeddings", "context_length", false, 8192},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", true, 1e-5},
    {"logit_scale", "logit_scale", true, 0.0625},
    {"rope_theta", "rope.freq_base", true, WF_KEY_REQUIRED}, /* 10000 in transformers 4, 500000 in 5 */
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {NULL}};
static const wf_folder_keys keys = {.rows = rows, .tied = true, .read = read, .biases = biases};
const wf_arch wf_arch_command_r = {"command-r", "CohereForCausalLM", NULL, hparams, graph, &keys};
