/* vocab: reads a vocabulary from the tokenizer.* keys of a GGUF file. */
#include "base/json.h"
#include "model/files/gguf.h"
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>

#define KEY    "tokenizer.ggml."
#define GEMMA4 "gemma4" /* tokenizer.ggml.model */
#define MARK   "\xe2\x96\x81" /* U+2581, with which the first piece of a word begins */

/* ---- encoders, "bert" (WordPiece) and "t5" (Unigram): as a tokenizer.json says it, whose kind runs them ------ */

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

static bool is_encoder(const char *model) { return !strcmp(model, "bert") || !strcmp(model, "t5"); }

static weft_status make_encoder(const wf_gguf *f, wf_vocab_src *src, wf_tokenizer **out)
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

/* ---- the keys --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const wf_gguf *file;
    wf_vocab_token *tokens;
    wf_vocab_merge *merges;
    wf_vocab_src src;
    char model[64], pre[64];
} reader;

static weft_status take_token(void *user, uint64_t i, wf_str s)
{
    reader *r = user;
    if (s.len > UINT32_MAX) return wf_fail(WEFT_ERR_FORMAT, KEY "tokens: entry %u is too long", (unsigned)i);
    r->tokens[i] = (wf_vocab_token){.text = s.data, .len = (uint32_t)s.len, .type = WF_TOKEN_NORMAL};
    return WEFT_OK;
}

static weft_status take_merge(void *user, uint64_t i, wf_str s)
{
    reader *r = user;
    if (s.len > UINT32_MAX) return wf_fail(WEFT_ERR_FORMAT, KEY "merges: entry %u is too long", (unsigned)i);
    r->merges[i] = wf_merge_of(s.data, s.len);
    return WEFT_OK;
}

static weft_status read_name(const wf_gguf *g, const char *key, bool required, char *buf, size_t cap)
{
    wf_str s = {"", 0};
    WF_TRY(wf_gguf_str(g, key, required, &s));
    if (s.len >= cap || memchr(s.data, 0, s.len))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s is '%.*s', which weft does not know", key,
                       (int)WF_MIN(s.len, 40), s.data);
    memcpy(buf, s.data, s.len);
    return WEFT_OK;
}

/* An array with one number per token; *out NULL: the file has none. */
static weft_status find_numbers(const reader *r, const char *key, bool floats, const wf_gguf_kv **out)
{
    const wf_gguf_kv *kv = *out = wf_gguf_find(r->file, key);
    if (!kv) return WEFT_OK;
    bool real = kv->item == WF_GGUF_F32 || kv->item == WF_GGUF_F64;
    bool text = kv->item == WF_GGUF_STRING || kv->item == WF_GGUF_ARRAY || kv->item == WF_GGUF_BOOL;
    if (kv->type != WF_GGUF_ARRAY || text || (real && !floats))
        return wf_fail(WEFT_ERR_FORMAT, "%s is not an array of %s", key, floats ? "numbers" : "integers");
    if (kv->count < r->src.n_tokens)
        return wf_fail(WEFT_ERR_FORMAT, "%s has %llu entries for the %u of " KEY "tokens", key,
                       (unsigned long long)kv->count, r->src.n_tokens);
    return WEFT_OK;
}

/* fallback: the default id for files of this kind; -1: none. */
static weft_status read_id(const reader *r, const char *key, int32_t fallback, int32_t *out)
{
    uint32_t id = UINT32_MAX;
    *out = fallback >= 0 && (uint32_t)fallback < r->src.n_tokens ? fallback : -1;
    WF_TRY(wf_gguf_u32(r->file, key, false, &id));
    if (id == UINT32_MAX) return WEFT_OK; /* absent, or written as -1: none */
    if (id >= r->src.n_tokens)
        return wf_fail(WEFT_ERR_FORMAT, "%s is %u, outside of the vocabulary of %u tokens", key, id, r->src.n_tokens);
    *out = (int32_t)id;
    return WEFT_OK;
}

static weft_status read_flag(const reader *r, const char *key, int8_t *out)
{
    *out = -1;
    if (!wf_gguf_find(r->file, key)) return WEFT_OK;
    bool on = false;
    WF_TRY(wf_gguf_bool(r->file, key, true, &on));
    *out = on;
    return WEFT_OK;
}

const char *const wf_prepend_names[] = {"", "always", "first"};

static weft_status read_prepend(reader *r)
{
    char name[16] = "";
    WF_TRY(read_name(r->file, WF_PREPEND_KEY, false, name, sizeof name));
    for (size_t i = 0; i < WF_LEN(wf_prepend_names); i++)
        if (!strcmp(name, wf_prepend_names[i])) return r->src.prepend = (enum wf_prepend)i, WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, WF_PREPEND_KEY " is '%s'; weft knows 'always' and 'first'", name);
}

static weft_status read_all(reader *r)
{
    WF_TRY(read_name(r->file, KEY "model", true, r->model, sizeof r->model));
    WF_TRY(read_name(r->file, KEY "pre", false, r->pre, sizeof r->pre));
    bool gemma4 = !strcmp(r->model, GEMMA4);
    bool spm = !strcmp(r->model, wf_text_spm.model), bpe = gemma4 || !strcmp(r->model, wf_text_bpe.model);
    bool encoder = is_encoder(r->model), bert = !strcmp(r->model, "bert");
    r->src.model = r->model;
    r->src.pre = r->pre;
    if (!spm && !bpe && !encoder) return WEFT_OK; /* wf_tokenizer_create reports what is supported */
    uint64_t n = 0;
    WF_TRY(wf_gguf_strings(r->file, KEY "tokens", true, &n, NULL, NULL));
    if (!n || n > INT32_MAX) return wf_fail(WEFT_ERR_FORMAT, KEY "tokens has %llu entries", (unsigned long long)n);
    if (!(r->tokens = wf_calloc(n, sizeof *r->tokens))) return WEFT_ERR_NOMEM;
    WF_TRY(wf_gguf_strings(r->file, KEY "tokens", true, NULL, take_token, r));
    r->src.tokens = r->tokens;
    r->src.n_tokens = (uint32_t)n;
    if (bpe) {
        uint64_t count = 0;
        WF_TRY(wf_gguf_strings(r->file, KEY "merges", true, &count, NULL, NULL));
        if (count > INT32_MAX)
            return wf_fail(WEFT_ERR_FORMAT, KEY "merges has %llu entries", (unsigned long long)count);
        if (!(r->merges = wf_calloc(count, sizeof *r->merges))) return WEFT_ERR_NOMEM;
        WF_TRY(wf_gguf_strings(r->file, KEY "merges", true, NULL, take_merge, r));
        r->src.merges = r->merges;
        r->src.n_merges = (uint32_t)count;
    }
    const wf_gguf_kv *scores, *types;
    WF_TRY(find_numbers(r, KEY "scores", true, &scores));
    WF_TRY(find_numbers(r, KEY "token_type", false, &types));
    for (uint32_t i = 0; i < r->src.n_tokens; i++) {
        if (scores) r->tokens[i].score = (float)wf_gguf_num_at(scores, i);
        int64_t type = types ? wf_gguf_int_at(types, i) : WF_TOKEN_NORMAL;
        r->tokens[i].type = type >= WF_TOKEN_NORMAL && type <= WF_TOKEN_BYTE ? (uint8_t)type : WF_TOKEN_NORMAL;
    }
    /* SentencePiece's default ids, which old files rely on. */
    WF_TRY(read_id(r, KEY "bos_token_id", spm ? 1 : bert ? 101 : -1, &r->src.bos));
    WF_TRY(read_id(r, KEY "eos_token_id", spm ? 2 : bert ? 102 : -1, &r->src.eos));
    WF_TRY(read_id(r, KEY "unknown_token_id", spm ? 0 : bert ? 100 : -1, &r->src.unk));
    if (bert) WF_TRY(read_id(r, KEY "cls_token_id", r->src.bos, &r->src.bos));
    if (bert) WF_TRY(read_id(r, KEY "seperator_token_id", r->src.eos, &r->src.eos)); /* as the format spells it */
    WF_TRY(read_id(r, KEY "eot_token_id", -1, &r->src.eot));
    WF_TRY(read_id(r, KEY "eom_token_id", -1, &r->src.eom));
    WF_TRY(read_flag(r, KEY "add_bos_token", &r->src.add_bos));
    WF_TRY(read_flag(r, KEY "add_eos_token", &r->src.add_eos));
    WF_TRY(read_flag(r, KEY "add_space_prefix", &r->src.add_space_prefix));
    WF_TRY(read_prepend(r));
    if (gemma4) r->src.add_bos = r->src.bos >= 0; /* whatever the file says: some say otherwise */
    r->src.ignore_merges = -1;
    return WEFT_OK;
}

/* Gemma 4: bytes and U+2581 for spaces as SentencePiece has them, but merges by rank, through the whole text; as its
 * tokenizer.json says it, so that kind runs it. */
static weft_status describe_gemma4(wf_vocab_src *src)
{
    static const char spaces[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}";
    wf_json *step = NULL;
    wf_json_model *j = src->json = wf_calloc(1, sizeof *j);
    if (!j || !(j->rules = wf_calloc(src->n_tokens, 1))) return WEFT_ERR_NOMEM;
    j->byte_fallback = j->fuse_unk = true;
    WF_TRY(wf_json_load(spaces, strlen(spaces), "spaces", 0, &step));
    weft_status s = wf_steps_read_normaliser(&j->normalisers, step);
    wf_json_free(step);
    return s;
}

static weft_status make_gemma4(wf_vocab_src *src, wf_tokenizer **out)
{
    weft_status s = describe_gemma4(src);
    if (s) return wf_json_model_free(src->json), s;
    return wf_tokenizer_of_kind(&wf_text_hf, src, out);
}

uint32_t wf_vocab_rows(const wf_gguf *file)
{
    const wf_gguf_tensor *table = wf_gguf_tensor_find(file, "token_embd.weight");
    return table ? (uint32_t)WF_MIN(table->dims[1], 1u << 24) : 0;
}

weft_status wf_tokenizer_from_keys(const wf_gguf *file, wf_tokenizer **out)
{
    reader r = {.file = file};
    weft_status s = read_all(&r);
    if (!s && is_encoder(r.model)) s = make_encoder(file, &r.src, out);
    else if (!s) s = strcmp(r.model, GEMMA4) ? wf_tokenizer_create(&r.src, out) : make_gemma4(&r.src, out);
    free(r.tokens);
    free(r.merges);
    return s;
}

weft_status wf_tokenizer_from_gguf(const wf_gguf *file, wf_tokenizer **out)
{
    weft_status s = file->folder && !file->random ? wf_tokenizer_from_folder(file->path, wf_vocab_rows(file), out)
                                                  : wf_tokenizer_from_keys(file, out);
    return s ? wf_fail_context(s, "%s", file->path ? file->path : "vocabulary") : WEFT_OK;
}
