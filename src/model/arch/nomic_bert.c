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

/* The keys of the model's own code, beside those of transformers. */
static weft_status config(wf_gguf *g, const wf_json *o)
{
    static const struct {
        const char *theirs, *ours;
        bool real;
    } rows[] = {{"n_layer", "nomic-bert.block_count"},
                {"n_embd", "nomic-bert.embedding_length"},
                {"n_inner", "nomic-bert.feed_forward_length"},
                {"n_head", "nomic-bert.attention.head_count"},
                {"rotary_emb_base", "nomic-bert.rope.freq_base", true},
                {"layer_norm_epsilon", "nomic-bert.attention.layer_norm_epsilon", true}};
    const char *act = "swiglu";
    float part = 1;
    bool before = false;
    WF_TRY(wf_json_str(o, "activation_function", &act));
    WF_TRY(wf_json_float(o, "rotary_emb_fraction", &part));
    WF_TRY(wf_json_bool(o, "prenorm", &before));
    if (strcmp(act, "swiglu") || part != 1 || before)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "weft computes Nomic's BERT with 'activation_function' swiglu, 'rotary_emb_fraction' 1 and "
                       "without 'prenorm'");
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        float f = 0;
        uint32_t u = 0;
        if (wf_json_absent(wf_json_get(o, rows[i].theirs))) continue;
        WF_TRY(rows[i].real ? wf_json_float(o, rows[i].theirs, &f) : wf_json_u32(o, rows[i].theirs, &u));
        WF_TRY(rows[i].real ? wf_folder_f32(g, rows[i].ours, f) : wf_folder_u32(g, rows[i].ours, u));
    }
    return WEFT_OK;
}

static const wf_folder_key rows[] = {
    {"num_hidden_layers", "block_count", false, 0},
    {"hidden_size", "embedding_length", false, 0},
    {"intermediate_size", "feed_forward_length", false, 0},
    {"num_attention_heads", "attention.head_count", false, 0},
    {"max_trained_positions", "context_length", false, 2048},
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", true, 0},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {{"token_embd_norm attn_output_norm layer_output_norm"}, {NULL}};
static const wf_folder_keys keys = {.biases = biases, .rows = rows, .tied = true, .read = config};
const wf_arch wf_arch_nomic_bert = {"nomic-bert", "NomicBertModel", names, hparams, graph, &keys};
