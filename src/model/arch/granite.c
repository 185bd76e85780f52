/* granite: Granite 3 without experts. As llama, with factors of the embedding, of what blocks add to the residual
 * stream, of the attention's scores, and a divisor of the logits.
 *
 * The residual stream is kept divided by its factor r: then blocks add to it as they are, and the embedding is
 * multiplied by 1 / r besides. All that reads the stream is an RMSNorm, to which only eps / r^2 tells the difference.
 */
#include "model/model.h"

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    float embedding = 1, residual = 1, logits = 1;
    hp->neox = f->folder;
    WF_TRY(wf_hparams_read(f, "granite", hp));
    WF_TRY(wf_hparams_factor(f, "granite", "embedding_scale", &embedding));
    WF_TRY(wf_hparams_factor(f, "granite", "residual_scale", &residual));
    WF_TRY(wf_hparams_factor(f, "granite", "logit_scale", &logits));
    WF_TRY(wf_hparams_factor(f, "granite", "attention.scale", &hp->attention_scale));
    hp->embedding_gain = embedding / residual;
    hp->logit_gain = 1 / logits;
    hp->eps /= residual * residual;
    return WEFT_OK;
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_swiglu);
}

static const wf_folder_key rows[] = {
    {"embedding_multiplier", "embedding_scale", true, 1},
    {"residual_multiplier", "residual_scale", true, 1},
    {"logits_scaling", "logit_scale", true, 1},
    {"attention_multiplier", "attention.scale", true, 1},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {WF_MLP_BIASES, "mlp_bias"}, {NULL}};
static const wf_folder_keys keys = {.rows = rows, .biases = biases};
const wf_arch wf_arch_granite = {"granite", "GraniteForCausalLM", NULL, hparams, graph, &keys};
