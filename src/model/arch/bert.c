/* bert: BERT, RoBERTa and XLM-RoBERTa (bge, e5). Encoders, which give embeddings, or scores of pairs of texts.
 * LayerNorm behind blocks, learned positions, a bias on every product, and a feed-forward of GELU without a gate. */
#include "model/model.h"

#include "base/json.h"

#include <string.h>

static weft_status hparams(const wf_gguf *f, wf_hparams *hp)
{
    hp->layer_norm = hp->learned_positions = true;
    hp->unrotated_step = 1;
    hp->activation = WF_GELU;
    return wf_encoder_hparams(f, "bert", hp);
}

static int32_t attention(wf_builder *b, int32_t x) { return wf_build_attention_of(b, x, x); }
static int32_t feed_forward(wf_builder *b, int32_t x) { return wf_build_mlp_of(b, x, x); }
static void graph(wf_builder *b) { wf_build_encoder(b, attention, feed_forward); }

/* RoBERTa counts positions from behind the number of its padding; 0: BERT, which counts from 0. */
#define FIRST_POSITION "bert.first_position"
static weft_status skip_positions(wf_gguf *g, wf_gguf_tensor *t)
{
    return wf_folder_skip_rows(t, wf_folder_get(g, FIRST_POSITION));
}

#define NAMES(prefix)                                                                                  \
    {prefix "embeddings.word_embeddings", "token_embd"},                                               \
    {prefix "embeddings.position_embeddings", "position_embd", skip_positions},                        \
    {prefix "embeddings.token_type_embeddings", "token_types"},                                        \
    {prefix "embeddings.LayerNorm", "token_embd_norm"},                                                \
    {prefix "embeddings.position_ids", NULL, NULL, true},                                              \
    {prefix "encoder.layer.#.attention.self.query", "blk.#.attn_q"},                                   \
    {prefix "encoder.layer.#.attention.self.key", "blk.#.attn_k"},                                     \
    {prefix "encoder.layer.#.attention.self.value", "blk.#.attn_v"},                                   \
    {prefix "encoder.layer.#.attention.output.dense", "blk.#.attn_output"},                            \
    {prefix "encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"},                   \
    {prefix "encoder.layer.#.intermediate.dense", "blk.#.ffn_up"},                                     \
    {prefix "encoder.layer.#.output.dense", "blk.#.ffn_down"},                                         \
    {prefix "encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"}
static const wf_folder_name names[] = {
    NAMES("bert."),
    NAMES("roberta."),
    NAMES(""),
    {"bert.pooler.dense", "cls"}, /* only a head that scores is behind it; embeddings do without it */
    {"pooler.dense", NULL},
    {"classifier", "cls.output"},
    {"classifier.dense", "cls"},
    {"classifier.out_proj", "cls.output"},
    {NULL, NULL},
};

/* The class decides how positions are counted, as in transformers; another type would have other defaults. */
static weft_status config(wf_gguf *g, const wf_json *o)
{
    const char *class = wf_json_text(wf_json_at(wf_json_get(o, "architectures"), 0)), *type = NULL,
               *positions = "absolute";
    bool roberta = class && strstr(class, "Roberta"), decoder = false;
    const char *types = !roberta ? "bert" : *class == 'X' ? "xlm-roberta" : "roberta";
    uint32_t padding = 1;
    WF_TRY(wf_json_str(o, "model_type", &type));
    WF_TRY(wf_json_str(o, "position_embedding_type", &positions));
    WF_TRY(wf_json_bool(o, "is_decoder", &decoder));
    WF_TRY(wf_json_u32(o, "pad_token_id", &padding));
    if (decoder || strcmp(positions, "absolute"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is %s; weft computes encoders with absolute positions",
                       decoder ? "is_decoder" : "position_embedding_type", decoder ? "true" : positions);
    if (type && strcmp(type, types))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'model_type' is '%.32s', but %s is of '%s': make one of them what the "
                       "model was trained as", type, class, types);
    if (!roberta) return WEFT_OK;
    if (padding > INT32_MAX) return wf_fail(WEFT_ERR_FORMAT, "'pad_token_id' is %u", padding);
    return wf_folder_u32(g, FIRST_POSITION, padding + 1);
}

static const wf_folder_key rows[] = {
    {NULL, "attention.layer_norm_rms_epsilon", true, 0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", true, 1e-12f},
    {NULL, NULL, false, 0},
};
static const wf_folder_bias biases[] = {
    {WF_ATTENTION_BIASES " ffn_up ffn_down token_embd_norm attn_output_norm layer_output_norm cls cls.output"}, {NULL}};
static const wf_folder_keys keys = {
    .biases = biases, .rows = rows, .act = "hidden_act", .acts = "gelu", .tied = true, .read = config};
const wf_arch wf_arch_bert = {"bert",
                              "BertModel BertForSequenceClassification RobertaModel RobertaForSequenceClassification "
                              "XLMRobertaModel XLMRobertaForSequenceClassification",
                              names, hparams, graph, &keys};
