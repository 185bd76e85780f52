/* json_read: reads the tokenizer of a Hugging Face folder: tokenizer.json, and what tokenizer_config.json,
 * generation_config.json and config.json say about its special tokens. The formats are those of the libraries
 * tokenizers and transformers. */
#include "base/file.h"
#include "base/json.h"
#include "model/model.h"
#include "text/internal.h"
#include "text/steps.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE   (256u << 20)
#define MAX_TOKENS (1u << 22)
#define MAX_ENDERS 16

typedef struct reader {
    const char *folder;
    wf_json *root, *config, *generation, *model_config; /* NULL: the file is not there */
    wf_json_model *json;
    wf_vocab_token *tokens;
    wf_vocab_merge *merges;
    int32_t enders[MAX_ENDERS];
    wf_vocab_src src;
} reader;

/* ---- files ---------------------------------------------------------------------------------------- */

static weft_status load(const reader *r, const char *name, wf_json **out)
{
    return wf_json_load_of(r->folder, name, MAX_FILE, WF_JSON_AN_OBJECT, out);
}

static weft_status load_all(reader *r)
{
    WF_TRY(load(r, "tokenizer.json", &r->root));
    WF_TRY(load(r, "config.json", &r->model_config));
    if (!r->root && !r->model_config)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "there is neither config.json nor tokenizer.json, so it is not the folder of a model");
    if (!r->root)
        return wf_fail(
            WEFT_ERR_UNSUPPORTED,
            "there is no tokenizer.json, which weft reads in place of tokenizer.model; transformers writes it: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
    WF_TRY(load(r, "tokenizer_config.json", &r->config));
    return load(r, "generation_config.json", &r->generation);
}

/* ---- vocabulary ------------------------------------------------------------------------------------- */

static weft_status set_token(reader *r, int64_t id, const wf_json *text, uint8_t type)
{
    if (id < 0 || id >= r->src.n_tokens)
        return wf_fail(WEFT_ERR_FORMAT, "token '%.64s' has the id %lld, outside of 0 to %u", text->text, (long long)id,
                       r->src.n_tokens - 1);
    r->tokens[id] = (wf_vocab_token){.text = text->text, .len = text->n, .type = type};
    return WEFT_OK;
}

static uint8_t type_of(const reader *r, const wf_json *text)
{
    return r->json->byte_fallback && wf_byte_token(text->text, text->n) >= 0 ? WF_TOKEN_BYTE : WF_TOKEN_NORMAL;
}

/* {"text": id, ...} */
static weft_status read_bpe_vocab(reader *r, const wf_json *vocab)
{
    WF_JSON_EACH_MEMBER(m, vocab) {
        const char *text = m->name.text;
        int64_t i = wf_json_int(&m->value);
        if (m->value.kind != WF_JSON_INT)
            return wf_fail(WEFT_ERR_FORMAT, "token '%.64s' of the vocabulary has no integer as id", text);
        if (i >= 0 && i < r->src.n_tokens && r->tokens[i].text)
            return wf_fail(WEFT_ERR_FORMAT, "tokens '%.64s' and '%.64s' have the same id %lld", r->tokens[i].text, text,
                           (long long)i);
        WF_TRY(set_token(r, i, &m->name, type_of(r, &m->name)));
    }
    return WEFT_OK;
}

/* [["text", score], ...] */
static weft_status read_unigram_vocab(reader *r, const wf_json *vocab)
{
    double least = 0;
    r->json->scores = wf_calloc(r->src.n_tokens, sizeof *r->json->scores);
    if (!r->json->scores) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < vocab->n; i++) {
        const wf_json *text = wf_json_at(&vocab->list[i], 0), *score = wf_json_at(&vocab->list[i], 1);
        if (!wf_json_is(text, WF_JSON_STRING) || !wf_json_is_number(score))
            return wf_fail(WEFT_ERR_FORMAT, "entry %zu of the vocabulary is not a text and a score", i);
        WF_TRY(set_token(r, (int64_t)i, text, type_of(r, text)));
        r->json->scores[i] = wf_json_number(score);
        least = i ? WF_MIN(least, r->json->scores[i]) : r->json->scores[i];
    }
    r->json->unknown_score = least - 10; /* the library's penalty */
    return WEFT_OK;
}

static weft_status read_rules(reader *r, const wf_json *o, int64_t id)
{
    static const struct {
        const char *key;
        uint8_t rule;
    } rows[] = {{"lstrip", WF_RULE_LSTRIP},
                {"rstrip", WF_RULE_RSTRIP},
                {"single_word", WF_RULE_SINGLE_WORD},
                {"normalized", WF_RULE_NORMALIZED}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        bool on = false;
        WF_TRY(wf_json_bool(o, rows[i].key, &on));
        if (on) r->json->rules[id] |= rows[i].rule;
    }
    return WEFT_OK;
}

static weft_status read_added_token(reader *r, const wf_json *o)
{
    bool special = false;
    const wf_json *id = wf_json_get(o, "id"), *text = wf_json_get(o, "content");
    WF_TRY(wf_json_bool(o, "special", &special));
    if (!wf_json_is(text, WF_JSON_STRING) || !wf_json_is(id, WF_JSON_INT))
        return wf_fail(WEFT_ERR_FORMAT, "'added_tokens' holds an entry without id or content");
    int64_t i = wf_json_int(id);
    const char *own = i >= 0 && i < r->src.n_tokens ? r->tokens[i].text : NULL;
    bool added = !own || strcmp(own, text->text);
    uint8_t type = special ? WF_TOKEN_CONTROL
                           : WF_TOKEN_USER; /* bytes stay bytes: text falls back to them, wherever they are listed */
    WF_TRY(set_token(r, i, text, type_of(r, text) == WF_TOKEN_BYTE ? WF_TOKEN_BYTE : type));
    r->json->rules[i] = added ? WF_RULE_ADDED : 0;
    return read_rules(r, o, i);
}

/* Rows of the embedding table without a token are unused tokens. */
static weft_status read_tokens(reader *r, const wf_json *model, uint32_t least)
{
    const wf_json *added, *vocab = wf_json_get(model, "vocab");
    if (r->json->unigram ? !wf_json_is(vocab, WF_JSON_LIST) : !wf_json_is(vocab, WF_JSON_OBJECT))
        return wf_fail(WEFT_ERR_FORMAT, "'vocab' of the model is missing or of the wrong kind");
    WF_TRY(wf_json_array(r->root, "added_tokens", &added));
    /* One more than the highest id. */
    int64_t most = (int64_t)wf_json_count(vocab) - 1;
    WF_JSON_EACH_MEMBER(m, vocab) most = WF_MAX(most, wf_json_int(&m->value));
    WF_JSON_EACH(o, added) most = WF_MAX(most, wf_json_int(wf_json_get(o, "id")));
    if (most < 0) return wf_fail(WEFT_ERR_FORMAT, "the vocabulary is empty");
    if (most >= MAX_TOKENS)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "the highest id of the vocabulary is %lld, more than %u", (long long)most,
                       MAX_TOKENS - 1);
    r->src.n_tokens = WF_MAX((uint32_t)most + 1, least);
    r->src.tokens = r->tokens = wf_calloc(r->src.n_tokens, sizeof *r->tokens);
    r->json->rules = wf_calloc(r->src.n_tokens, 1);
    if (!r->tokens || !r->json->rules) return WEFT_ERR_NOMEM;
    WF_TRY(r->json->unigram ? read_unigram_vocab(r, vocab) : read_bpe_vocab(r, vocab));
    WF_JSON_EACH(one, added) WF_TRY(read_added_token(r, one));
    for (size_t i = 0; i < r->src.n_tokens; i++)
        if (!r->tokens[i].text) r->tokens[i] = (wf_vocab_token){.text = "", .type = WF_TOKEN_UNUSED};
    return WEFT_OK;
}

/* ---- merges ------------------------------------------------------------------------------------------- */

/* "left right", or ["left", "right"] in newer files. */
static weft_status read_merges(reader *r, const wf_json *model)
{
    const wf_json *list;
    WF_TRY(wf_json_array(model, "merges", &list));
    if (!list) return wf_fail(WEFT_ERR_FORMAT, "'merges' of the model is missing");
    r->src.merges = r->merges = wf_calloc(list->n, sizeof *r->merges);
    if (!r->merges) return WEFT_ERR_NOMEM;
    for (r->src.n_merges = 0; r->src.n_merges < list->n; r->src.n_merges++) {
        const wf_json *one = &list->list[r->src.n_merges], *left = wf_json_at(one, 0), *right = wf_json_at(one, 1);
        wf_vocab_merge m = {0};
        if (wf_json_text(left) && wf_json_text(right) && one->n == 2)
            m = (wf_vocab_merge){left->text, right->text, left->n, right->n};
        if (one->kind == WF_JSON_STRING) m = wf_merge_of(one->text, one->n);
        if (!m.right || (one->kind == WF_JSON_STRING && strchr(one->text, ' ') != strrchr(one->text, ' ')))
            return wf_fail(WEFT_ERR_FORMAT, "entry %u of 'merges' is not two texts", r->src.n_merges);
        r->merges[r->src.n_merges] = m;
    }
    return WEFT_OK;
}

/* ---- the model ------------------------------------------------------------------------------------------ */

static int32_t find_text(const reader *r, const char *text)
{
    for (uint32_t i = 0; text && i < r->src.n_tokens; i++)
        if (r->tokens[i].len == strlen(text) && r->tokens[i].len && !memcmp(r->tokens[i].text, text, r->tokens[i].len))
            return (int32_t)i;
    return -1;
}

static weft_status read_unknown(reader *r, const wf_json *model)
{
    const char *text = NULL;
    uint32_t id = UINT32_MAX;
    if (!r->json->unigram) {
        WF_TRY(wf_json_str(model, "unk_token", &text));
        r->src.unk = find_text(r, text);
        return WEFT_OK;
    }
    WF_TRY(wf_json_u32(model, "unk_id", &id));
    if (id != UINT32_MAX && id >= r->src.n_tokens)
        return wf_fail(WEFT_ERR_FORMAT, "'unk_id' is %u, outside of the vocabulary", id);
    r->src.unk = id == UINT32_MAX ? -1 : (int32_t)id;
    return WEFT_OK;
}

/* Old files name no type: one with merges is BPE. */
static weft_status read_model(reader *r, uint32_t least)
{
    const wf_json *model;
    bool ignore_merges = false;
    const char *type = NULL;
    WF_TRY(wf_json_object(r->root, "model", &model));
    WF_TRY(wf_json_str(model, "type", &type));
    if (!type) type = wf_json_get(model, "merges") ? "BPE" : "of no type";
    r->json->unigram = !strcmp(type, "Unigram");
    if (!strcmp(type, "WordPiece")) {
        const char *inside = "##";
        r->json->most_chars = 100;
        WF_TRY(wf_json_str(model, "continuing_subword_prefix", &inside));
        WF_TRY(wf_json_u32(model, "max_input_chars_per_word", &r->json->most_chars));
        r->json->inside = wf_strdup(inside);
        WF_TRY(r->json->inside ? WEFT_OK : WEFT_ERR_NOMEM);
    } else if (!r->json->unigram && strcmp(type, "BPE"))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "a model '%.32s' is not supported (supported: BPE, Unigram, WordPiece)",
                       type);
    WF_TRY(wf_fields_known(model,
                           "type vocab merges unk_token unk_id byte_fallback fuse_unk ignore_merges "
                           "continuing_subword_prefix end_of_word_suffix dropout max_input_chars_per_word",
                           "the model"));
    WF_TRY(wf_json_bool(model, "byte_fallback", &r->json->byte_fallback));
    WF_TRY(wf_json_bool(model, "fuse_unk", &r->json->fuse_unk));
    WF_TRY(wf_json_bool(model, "ignore_merges", &ignore_merges));
    r->src.ignore_merges = ignore_merges;
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    float dropout = 0;
    for (size_t i = r->json->inside != NULL; i < WF_LEN(keys); i++) {
        const char *text = "";
        WF_TRY(wf_json_str(model, keys[i], &text));
        if (*text) return wf_fail(WEFT_ERR_UNSUPPORTED, "'%s' is not supported", keys[i]);
    }
    WF_TRY(wf_json_float(model, "dropout", &dropout));
    WF_TRY(dropout != 0 ? wf_fail(WEFT_ERR_UNSUPPORTED, "'dropout' would make ids random") : WEFT_OK);
    WF_TRY(read_tokens(r, model, least));
    WF_TRY(read_unknown(r, model));
    return r->json->unigram || r->json->inside ? WEFT_OK : read_merges(r, model);
}

/* ---- special tokens ------------------------------------------------------------------------------------- */

/* A token by its text, or by an object with it. */
static int32_t named(const reader *r, const char *key)
{
    const wf_json *o = wf_json_get(r->config, key);
    return find_text(r, wf_json_text(wf_json_is(o, WF_JSON_OBJECT) ? wf_json_get(o, "content") : o));
}

static void add_ender(reader *r, const wf_json *id)
{
    int64_t i = wf_json_int(id);
    if (wf_json_is(id, WF_JSON_INT) && i >= 0 && i < r->src.n_tokens && r->src.n_enders < MAX_ENDERS)
        r->enders[r->src.n_enders++] = (int32_t)i;
}

/* eos_token_id: a number or several. */
static void add_enders(reader *r, const wf_json *config)
{
    const wf_json *ids = wf_json_get(config, "eos_token_id");
    add_ender(r, ids);
    WF_JSON_EACH(one, ids) add_ender(r, one);
}

static weft_status read_all(reader *r, uint32_t least)
{
    r->src.eot = r->src.eom = -1;
    r->json = r->src.json = wf_calloc(1, sizeof *r->json);
    if (!r->json) return WEFT_ERR_NOMEM;
    const wf_json *normaliser, *pretokenizer;
    WF_TRY(wf_json_object(r->root, "normalizer", &normaliser));
    WF_TRY(wf_json_object(r->root, "pre_tokenizer", &pretokenizer));
    if (normaliser) WF_TRY(wf_steps_read_normaliser(&r->json->normalisers, normaliser));
    if (pretokenizer) WF_TRY(wf_steps_read_pretokenizer(&r->json->pretokenizers, pretokenizer));
    r->json->shrinks = wf_steps_shrink(&r->json->normalisers) || wf_steps_shrink(&r->json->pretokenizers);
    WF_TRY(read_model(r, least));
    const wf_json *processor, *decoder;
    r->src.bos = named(r, "bos_token"), r->src.eos = named(r, "eos_token");
    add_enders(r, r->generation);
    add_enders(r, r->model_config);
    if (r->src.eos < 0 && r->src.n_enders) r->src.eos = r->enders[0];
    r->src.enders = r->enders;
    WF_TRY(wf_json_object(r->root, "post_processor", &processor));
    WF_TRY(wf_json_object(r->root, "decoder", &decoder));
    if (processor) WF_TRY(wf_json_read_processor(&r->src, processor));
    if (decoder) WF_TRY(wf_json_read_decoder(&r->src, decoder));
    /* Llama's classes make the template anew from these flags; the others follow tokenizer.json. */
    const char *class = "";
    WF_TRY(wf_json_str(r->config, "tokenizer_class", &class));
    bool bos = r->src.add_bos > 0, eos = r->src.add_eos > 0;
    if (strncmp(class, "LlamaTokenizer", 14) && strncmp(class, "CodeLlamaTokenizer", 18)) return WEFT_OK;
    WF_TRY(wf_json_bool(r->config, "add_bos_token", &bos));
    WF_TRY(wf_json_bool(r->config, "add_eos_token", &eos));
    r->src.add_bos = bos && r->src.bos >= 0, r->src.add_eos = eos && r->src.eos >= 0;
    if (r->src.add_bos) r->src.between = WF_NO_PAIRS; /* the second text has one, too */
    return WEFT_OK;
}

/* On success fn owns what the model was read into. */
static weft_status make(reader *r, uint32_t least, wf_vocab_fn fn, void *user)
{
    weft_status s = read_all(r, least);
    if (!s) s = fn(user, &r->src);
    else wf_json_model_free(r->json);
    free(r->tokens);
    free(r->merges);
    if (s == WEFT_ERR_UNSUPPORTED) s = wf_fail(s, "%s; a GGUF file of the model may have what weft reads", wf_error());
    return s ? wf_fail_context(s, "tokenizer.json") : WEFT_OK;
}

weft_status wf_vocab_of_folder(const char *folder, uint32_t n_vocab, wf_vocab_fn fn, void *user)
{
    reader r = {.folder = folder};
    weft_status s = load_all(&r);
    if (!s) s = make(&r, n_vocab, fn, user);
    wf_json_free(r.root);
    wf_json_free(r.config);
    wf_json_free(r.generation);
    wf_json_free(r.model_config);
    return s;
}

static weft_status create(void *out, const wf_vocab_src *src) { return wf_tokenizer_of_kind(&wf_text_hf, src, out); }

weft_status wf_tokenizer_from_folder(const char *folder, uint32_t n_vocab, wf_tokenizer **out)
{
    return wf_vocab_of_folder(folder, n_vocab, create, out);
}

weft_status wf_tokenizer_from_json(const char *text, size_t len, wf_tokenizer **out)
{
    reader r = {.folder = ""};
    WF_TRY(wf_json_load(text, len, "tokenizer.json", WF_JSON_UNIQUE | WF_JSON_AN_OBJECT, &r.root));
    weft_status s = make(&r, 0, create, out);
    wf_json_free(r.root);
    return s;
}
