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

/* RoBERTa counts positions from behind that of its padding. */
#define FIRST_POSITION "bert.first_position"
static weft_status skip_positions(wf_gguf *g, wf_gguf_tensor *t)
{
    uint64_t skipped = wf_folder_get(g, FIRST_POSITION);
    if (t->dims[1] <= skipped)
        return wf_fail(WEFT_ERR_FORMAT, "the table of positions has only %llu rows", (unsigned long long)t->dims[1]);
    uint64_t bytes = t->bytes / t->dims[1] * skipped;
    t->data += bytes, t->offset += bytes, t->bytes -= bytes;
    t->dims[1] -= skipped;
    return WEFT_OK;
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

static weft_status config(wf_gguf *g, const wf_json *o)
{
    const char *type = "bert", *positions = "absolute";
    uint32_t padding = 0;
    bool decoder = false;
    WF_TRY(wf_json_str(o, "model_type", &type));
    WF_TRY(wf_json_str(o, "position_embedding_type", &positions));
    WF_TRY(wf_json_bool(o, "is_decoder", &decoder));
    WF_TRY(wf_json_u32(o, "pad_token_id", &padding));
    if (decoder || strcmp(positions, "absolute"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is %s; weft computes encoders with absolute positions",
                       decoder ? "is_decoder" : "position_embedding_type", decoder ? "true" : positions);
    return strcmp(type, "bert") ? wf_folder_u32(g, FIRST_POSITION, padding + 1) : WEFT_OK;
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
