/* vocab_encoders: GGUF's kinds of tokenizers for encoders, "bert" (WordPiece) and "t5" (Unigram), as a tokenizer.json
 * would say them, so that its kind runs them. */
#include "base/json.h"
#include "model/files/gguf.h"
#include "text/internal.h"

#include <string.h>

#define KEY  "tokenizer.ggml."
#define MARK "\xe2\x96\x81" /* U+2581, with which the first piece of a word begins */

static weft_status add_steps(wf_steps *to, const char *json, weft_status (*read)(wf_steps *, const wf_json *))
{
    wf_json *step = NULL;
    WF_TRY(wf_json_load(json, strlen(json), "steps", 0, &step));
    weft_status s = read(to, step);
    wf_json_free(step);
    return s;
}

/* Files say nothing of capitals, and llama.cpp has none either. */
static weft_status describe_bert(wf_json_model *j)
{
    j->most_chars = 100;
    j->begin = wf_strdup(MARK), j->inside = wf_strdup("");
    if (!j->begin || !j->inside) return WEFT_ERR_NOMEM;
    WF_TRY(add_steps(&j->normalisers, "{\"type\":\"BertNormalizer\"}", wf_steps_read_normaliser));
    return add_steps(&j->pretokenizers, "{\"type\":\"BertPreTokenizer\"}", wf_steps_read_pretokenizer);
}

static weft_status add_map(const wf_gguf *f, wf_json_model *j)
{
    const wf_gguf_kv *kv = wf_gguf_find(f, KEY "precompiled_charsmap");
    if (!kv || !kv->count) return WEFT_OK;
    if (kv->type != WF_GGUF_ARRAY || (kv->item != WF_GGUF_U8 && kv->item != WF_GGUF_I8) || kv->bytes != kv->count)
        return wf_fail(WEFT_ERR_FORMAT, KEY "precompiled_charsmap is not an array of bytes");
    WF_TRY(wf_charmap_check(kv->data, kv->bytes));
    wf_step step = {.kind = WF_STEP_MAP, .map = wf_calloc(kv->bytes, 1), .n_map = kv->bytes};
    if (!step.map) return WEFT_ERR_NOMEM;
    memcpy(step.map, kv->data, kv->bytes);
    return wf_steps_add(&j->normalisers, step);
}

static weft_status describe_t5(const wf_gguf *f, const wf_vocab_src *src, wf_json_model *j)
{
    bool joined = false, prefix = true;
    WF_TRY(wf_gguf_bool(f, KEY "remove_extra_whitespaces", false, &joined));
    WF_TRY(wf_gguf_bool(f, KEY "add_space_prefix", false, &prefix));
    j->unigram = true;
    if (!(j->scores = wf_calloc(src->n_tokens, sizeof *j->scores))) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < src->n_tokens; i++) {
        j->scores[i] = (double)src->tokens[i].score;
        j->unknown_score = i ? WF_MIN(j->unknown_score, j->scores[i]) : j->scores[i];
    }
    j->unknown_score -= 10; /* the library's penalty */
    WF_TRY(add_map(f, j));
    if (joined)
        WF_TRY(add_steps(&j->normalisers,
                         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},"
                         "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]}",
                         wf_steps_read_normaliser));
    return add_steps(&j->pretokenizers,
                     prefix ? "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"}"
                            : "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\"}",
                     wf_steps_read_pretokenizer);
}

bool wf_vocab_is_encoder(const char *model) { return !strcmp(model, "bert") || !strcmp(model, "t5"); }

weft_status wf_vocab_make_encoder(const wf_gguf *f, wf_vocab_src *src, wf_tokenizer **out)
{
    bool bert = !strcmp(src->model, "bert");
    wf_json_model *j = src->json = wf_calloc(1, sizeof *j);
    weft_status s = j && (j->rules = wf_calloc(src->n_tokens, 1)) ? WEFT_OK : WEFT_ERR_NOMEM;
    if (src->add_bos < 0) src->add_bos = src->bos >= 0;
    if (src->add_eos < 0) src->add_eos = src->eos >= 0;
    src->between = bert ? 1 : 2;
    if (!s) s = bert ? describe_bert(j) : describe_t5(f, src, j);
    if (s) return wf_json_model_free(j), s;
    return wf_tokenizer_of_kind(&wf_text_hf, src, out);
}
