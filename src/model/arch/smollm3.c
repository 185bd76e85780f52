/* smollm3: SmolLM 3. As llama, but every fourth layer, or as the folder says, does not rotate q and k (NoPE). */
#include "model/model.h"

#include "base/json.h"

enum { STEP = 4 }; /* llama.cpp's, which writes no key for it */

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->neox = f->folder;
    hp->unrotated_step = STEP;
    WF_TRY(wf_gguf_u32(f, "smollm3.rope.unrotated_step", false, &hp->unrotated_step));
    return wf_hparams_read(f, "smollm3", hp);
}

static void graph(wf_builder *b)
{
    wf_build_decoder(b, wf_build_attention, wf_build_swiglu);
}

/* no_rope_layers has a 1 for each layer that rotates. */
static weft_status config(wf_gguf *g, const wf_json *o)
{
    const wf_json *list;
    uint32_t step = STEP, layers = 0;
    WF_TRY(wf_json_u32(o, "num_hidden_layers", &layers));
    WF_TRY(wf_json_u32(o, "no_rope_layer_interval", &step));
    WF_TRY(wf_json_array(o, "no_rope_layers", &list));
    if (list && wf_json_count(list) < layers)
        return wf_fail(WEFT_ERR_FORMAT, "'no_rope_layers' has fewer numbers than there are layers");
    for (uint32_t i = 0; list && i < layers; i++)
        if (!wf_json_is(wf_json_at(list, i), WF_JSON_INT) ||
            (wf_json_int(wf_json_at(list, i)) != 0) != (!step || (i + 1) % step != 0))
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "'no_rope_layers' is not every layer but each %uth, as 'no_rope_layer_interval' says", step);
    return wf_folder_u32(g, "smollm3.rope.unrotated_step", step);
}

static const wf_folder_key rows[] = {
    {"rope_theta", "rope.freq_base", true, 2e6f},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"}, {WF_MLP_BIASES, "mlp_bias"}, {NULL}};
static const wf_folder_keys keys = {
    .rows = rows, .early_windows = true, .tied = true, .read = config, .biases = biases};
const wf_arch wf_arch_smollm3 = {"smollm3", "SmolLM3ForCausalLM", NULL, hparams, graph, &keys};
