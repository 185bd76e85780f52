/* modern-bert: ModernBERT. An encoder whose norms come before blocks, but of the first attention, which takes the
 * normalised embeddings; with rotation, GeGLU, no biases, and, in two layers of three, windows on both sides of a
 * token, which rotate with a base of their own. GELU is its approximation by tanh, as in llama.cpp. */
#include "model/arch/build.h"

#include "base/json.h"

#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = hp->neox = hp->gate_in_up = hp->global_first = true;
    hp->gate = WF_GELU_TANH;
    hp->window_period = 3;
    hp->local_rope_base = 10000;
    WF_TRY(wf_encoder_hparams(f, "modern-bert", hp));
    if (hp->window) hp->window = hp->window / 2 + 1; /* from both sides to one, and the token itself */
    return WEFT_OK;
}

static void graph(wf_builder *b)
{
    int32_t sum = wf_build_embed(b), h = wf_build_norm(b, "embed_norm", "token_embd_norm", sum), x = h;
    if (b->residual != b->act) x = wf_build_norm_as(b, "residual_norm", "token_embd_norm", sum, b->residual);
    for (b->layer = 0; b->layer < (int32_t)b->hp->n_layer && b->status == WEFT_OK; b->layer++) {
        x = b->layer ? wf_build_attention(b, x) : wf_build_attention_of(b, h, x);
        x = wf_build_swiglu(b, x);
    }
    wf_build_logits(b, x);
}

#define NAMES(prefix)                                       \
    {prefix "embeddings.tok_embeddings", "token_embd"},     \
    {prefix "embeddings.norm", "token_embd_norm"},          \
    {prefix "final_norm", "output_norm"}
static const wf_folder_name names[] = {
    NAMES(""),
    NAMES("model."),
    {"model.layers.#.attn_norm", "blk.#.attn_norm"},
    {"model.layers.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"model.layers.#.attn.Wo", "blk.#.attn_output"},
    {"model.layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"model.layers.#.mlp.Wi", "blk.#.ffn_up"},
    {"model.layers.#.mlp.Wo", "blk.#.ffn_down"},
    {NULL, NULL},
};

/* Every so many layers, from the first on, one attends to all tokens. */
static weft_status check_types(const wf_json *o, uint32_t period)
{
    const wf_json *list;
    WF_TRY(wf_json_array(o, "layer_types", &list));
    for (uint32_t i = 0; list && i < wf_json_count(list); i++) {
        const char *name = wf_json_text(wf_json_at(list, i));
        if (!name || strcmp(name, i % period ? "sliding_attention" : "full_attention"))
            return wf_fail(WEFT_ERR_UNSUPPORTED, "'layer_types' does not have full_attention every %u layers, at %u",
                           period, i);
    }
    return WEFT_OK;
}

static weft_status config(wf_gguf *g, const wf_json *o)
{
    const wf_json *scaling;
    uint32_t period = 3, window = 128;
    WF_TRY(wf_json_u32(o, "global_attn_every_n_layers", &period));
    WF_TRY(wf_json_u32(o, "local_attention", &window));
    if (!period || !window)
        return wf_fail(WEFT_ERR_FORMAT, "'%s' is 0", period ? "local_attention" : "global_attn_every_n_layers");
    WF_TRY(check_types(o, period));
    WF_TRY(wf_folder_u32(g, "modern-bert.attention.sliding_window_pattern", period));
    WF_TRY(wf_json_object(o, "rope_scaling", &scaling));
    if (wf_json_size(scaling))
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "'rope_scaling' is set, which weft does not compute for layers with a window");
    return wf_folder_local_base(g, "modern-bert", o, "local_rope_theta");
}

static const wf_folder_key rows[] = {
    {"local_attention", "attention.sliding_window", false, 128},
    {"rope_theta", "rope.freq_base", true, 160000},
    {"global_rope_theta", "rope.freq_base", true, 160000},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"norm_eps", "attention.layer_norm_epsilon", true, 1e-5f},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{WF_ATTENTION_BIASES, "attention_bias"},
                                        {WF_MLP_BIASES, "mlp_bias"},
                                        {"token_embd_norm attn_norm ffn_norm output_norm", "norm_bias"},
                                        {NULL}};
static const wf_folder_keys keys = {.rows = rows,
                                    .biases = biases,
                                    .act = "hidden_activation",
                                    .acts = "gelu gelu_pytorch_tanh",
                                    .windows = true,
                                    .tied = true,
                                    .read = config};
const wf_arch wf_arch_modern_bert = {"modern-bert", "ModernBertModel", names, hparams, graph, &keys};
