/* nomic-bert: Nomic Embed 1 and 1.5. As bert, but positions are rotations over pairs half a head apart, products have
 * no biases, one matrix gives q, k and v, and the feed-forward is SwiGLU. */
#include "model/model.h"

#include "base/json.h"

#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = hp->neox = true;
    return wf_encoder_hparams(f, "nomic-bert", hp);
}

static int32_t attention(wf_builder *b, int32_t x) { return wf_build_attention_of(b, x, x); }
static int32_t feed_forward(wf_builder *b, int32_t x) { return wf_build_swiglu_of(b, x, x); }
static void graph(wf_builder *b) { wf_build_encoder(b, attention, feed_forward); }

static const wf_folder_name names[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.token_type_embeddings", "token_types"},
    {"emb_ln", "token_embd_norm"},
    {"encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"},
    {"encoder.layers.#.attn.out_proj", "blk.#.attn_output"},
    {"encoder.layers.#.norm1", "blk.#.attn_output_norm"},
    {"encoder.layers.#.mlp.fc11", "blk.#.ffn_up"},
    {"encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"},
    {"encoder.layers.#.mlp.fc2", "blk.#.ffn_down"},
    {"encoder.layers.#.norm2", "blk.#.layer_output_norm"},
    {NULL, NULL},
};

/* What the model's own code can do besides. */
static weft_status config(wf_gguf *g, const wf_json *o)
{
    static const struct {
        const char *key;
        bool want;
    } flags[] = {{"causal"}, {"prenorm"}, {"parallel_block"}, {"use_rms_norm"}, {"rotary_emb_interleaved"},
                 {"scale_attn_by_inverse_layer_idx"}, {"scale_attn_weights", true}};
    const char *act = "swiglu";
    float part = 1, base = 0, experts = 0;
    (void)g;
    for (size_t i = 0; i < WF_LEN(flags); i++) {
        bool is = flags[i].want;
        WF_TRY(wf_json_bool(o, flags[i].key, &is));
        if (is != flags[i].want)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is %s, which weft does not compute for Nomic's BERT",
                           flags[i].key, is ? "true" : "false");
    }
    WF_TRY(wf_json_str(o, "activation_function", &act));
    WF_TRY(wf_json_float(o, "rotary_emb_fraction", &part));
    WF_TRY(wf_json_float(o, "rotary_emb_scale_base", &base));
    WF_TRY(wf_json_float(o, "moe_every_n_layers", &experts));
    if (strcmp(act, "swiglu") || part != 1 || base != 0 || experts != 0)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "weft computes Nomic's BERT with 'activation_function' swiglu and 'rotary_emb_fraction' 1, "
                       "without 'rotary_emb_scale_base' and 'moe_every_n_layers'");
    return WEFT_OK;
}

/* Keys of transformers, and of the model's own code. The positions that it was trained with come first: beyond them its
 * rotations are others. */
static const wf_folder_key rows[] = {
    {"num_hidden_layers", "block_count", false, WF_KEY_REQUIRED},
    {"n_layer", "block_count", false, WF_KEY_REQUIRED},
    {"hidden_size", "embedding_length", false, WF_KEY_REQUIRED},
    {"n_embd", "embedding_length", false, WF_KEY_REQUIRED},
    {"intermediate_size", "feed_forward_length", false, WF_KEY_REQUIRED},
    {"n_inner", "feed_forward_length", false, WF_KEY_REQUIRED},
    {"num_attention_heads", "attention.head_count", false, WF_KEY_REQUIRED},
    {"n_head", "attention.head_count", false, WF_KEY_REQUIRED},
    {"max_trained_positions", "context_length", false, 2048},
    {"max_position_embeddings", "context_length", false, 2048},
    {"n_positions", "context_length", false, 2048},
    {"rope_theta", "rope.freq_base", true, 1000},
    {"rotary_emb_base", "rope.freq_base", true, 1000},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", true, 1e-12f},
    {"layer_norm_epsilon", "attention.layer_norm_epsilon", true, 1e-12f},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{"token_embd_norm attn_output_norm layer_output_norm"}, {NULL}};
static const wf_folder_keys keys = {.biases = biases, .rows = rows, .tied = true, .read = config};
const wf_arch wf_arch_nomic_bert = {"nomic-bert", "NomicBertModel", names, hparams, graph, &keys};
