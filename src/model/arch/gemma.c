/* gemma: see gemma.h. */
#include "model/arch/gemma.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>

/* A folder has the weights of norms without the 1 that is added to them; in F32, as transformers computes with them. */
static weft_status plus_one(wf_gguf *g, wf_gguf_tensor *t)
{
    uint64_t n = t->n_dims == 1 ? t->dims[0] : 0;
    float *x = wf_folder_keep(g, NULL, n * sizeof *x);
    if (!n) return wf_fail(WEFT_ERR_FORMAT, "a norm has more than one dimension");
    if (!x) return WEFT_ERR_NOMEM;
    wf_dtypes[t->dtype].decode(t->data, x, n);
    for (uint64_t i = 0; i < n; i++) x[i] += 1;
    t->data = (const uint8_t *)x, t->bytes = n * sizeof *x;
    t->dtype = WF_F32, t->ggml_type = wf_dtypes[WF_F32].ggml;
    return WEFT_OK;
}

const wf_folder_name wf_gemma_names[] = {
    {"model.norm", "output_norm", plus_one},
    {"model.layers.#.input_layernorm", "blk.#.attn_norm", plus_one},
    {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm", plus_one},
    {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm", plus_one},
    {"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm", plus_one},
    {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm", plus_one},
    {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm", plus_one},
    {NULL, NULL, NULL},
};

weft_status wf_gemma_hparams(const wf_gguf *f, const char *arch, uint32_t layers_27b, wf_hparams *hp)
{
    hp->neox = true;
    hp->gate = WF_GELU_TANH;
    hp->post_norms = true;
    WF_TRY(wf_hparams_read(f, arch, hp));
    hp->embedding_gain = sqrtf((float)hp->hidden_size);
    if (hp->n_layer == layers_27b && !(hp->attention_scale > 0))
        hp->attention_scale = 1 / sqrtf((float)hp->hidden_size / (float)hp->n_head);
    return WEFT_OK;
}

weft_status wf_gemma_config(wf_gguf *g, const char *arch, const wf_json *config)
{
    char k[96];
    float scalar = 256;
    const wf_json *both = wf_json_get(config, "use_bidirectional_attention");
    if (!wf_json_absent(both) && !(wf_json_is(both, WF_JSON_BOOL) && !both->b))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'use_bidirectional_attention' is set: tokens would attend to later ones, "
                                             "as in a model of embeddings, which weft does not compute");
    WF_TRY(wf_json_float(config, "query_pre_attn_scalar", &scalar));
    if (!(scalar > 0) || !isfinite(scalar)) return wf_fail(WEFT_ERR_FORMAT, "'query_pre_attn_scalar' is not positive");
    snprintf(k, sizeof k, "%s.attention.scale", arch);
    WF_TRY(wf_folder_f32(g, k, 1 / sqrtf(scalar)));
    return wf_folder_window_period(g, arch, config);
}
