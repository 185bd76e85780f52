/* vocab_keys: the vocabulary of a folder as the tokenizer.* keys of a GGUF file. A tokenizer.json describes what is
 * done with text step by step; GGUF has a few kinds by name. So which name fits is found by trying them, and the result
 * is compared with the original on some texts. */
#include "model/files/folder.h"
#include "text/internal.h"
#include "text/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."
#define BESIDE                                                                                                         \
    (WF_RULE_LSTRIP | WF_RULE_RSTRIP | WF_RULE_SINGLE_WORD) /* rules of added tokens about what stands beside them */

/* Words, contractions, numbers, capitals, runs of spaces and lines, punctuation, several scripts, emoji: where
 * pre-tokenizers differ. */
static const char probe[] =
    "Hello world, I'm sure you'll see: they've 1234567 apples & 3.14 pears!!\n\n\n  Indented\tTabs \n \r\n"
    "CamelCaseWORDS snake_case (brackets) [x] {y} <z> a/b\\c http://x.y/?q=1#z -- ... \"quotes\" $5+7=12 ^~|`%@;*  "
    "Größe naïve ÉCOLE Ünïcödé DON'T We'RE it'S \xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab "
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 "
    "\xf0\x9f\x98\x80\xf0\x9f\x9a\x80 \xc2\xbd\xc2\xb2 \xe2\x80\x9cx\xe2\x80\x9d   end   ";

typedef struct keys {
    const wf_vocab_src *src;
    const wf_tokenizer *t; /* made of src */
    wf_gguf *out;
} keys;

/* ---- arrays ------------------------------------------------------------------------------------------ */

typedef void text_fn(const keys *k, uint32_t i, wf_text *out);

/* Texts as the file has them: each behind its length. */
static weft_status add_texts(const keys *k, const char *key, uint32_t n, text_fn *add)
{
    wf_text all = {0};
    for (uint32_t i = 0; i < n; i++) {
        size_t at = all.len;
        wf_text_add(&all, "\0\0\0\0\0\0\0", 8);
        add(k, i, &all);
        if (!all.failed) memcpy(all.data + at, &(uint64_t){all.len - at - 8}, 8);
    }
    weft_status s = all.failed ? wf_fail(WEFT_ERR_NOMEM, "out of host memory: the texts of a vocabulary")
                               : wf_folder_array(k->out, key, WF_GGUF_STRING, n, all.data ? all.data : "", all.len);
    free(all.data);
    return s;
}

/* Rows of the table without a token have names of their own, as converters give them. User-defined tokens are found in
 * text and written as they are, so that they have spaces where the folder has U+2581; not one that is a single space,
 * which would be found everywhere. */
static void add_token(const keys *k, uint32_t i, wf_text *out)
{
    const wf_vocab_token *t = &k->t->tokens[i];
    size_t at = out->len;
    if (t->len || t->type != WF_TOKEN_UNUSED) wf_text_add(out, t->text, t->len);
    else wf_text_print(out, "[PAD%u]", i);
    if (t->type == WF_TOKEN_USER && t->len > 3 && !out->failed)
        out->len = at + wf_token_piece(k->t, (int32_t)i, 0, out->data + at, t->len);
}

static void add_merge(const keys *k, uint32_t i, wf_text *out)
{
    const wf_vocab_merge *m = &k->src->merges[i];
    wf_text_add(out, m->left, m->n_left);
    wf_text_add(out, " ", 1);
    wf_text_add(out, m->right, m->n_right);
}

static weft_status add_types(const keys *k)
{
    int32_t *types = wf_calloc(k->t->n_tokens, sizeof *types);
    if (!types) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < k->t->n_tokens; i++)
        types[i] = (int32_t)i == k->t->unk && !k->t->json->byte_level ? WF_TOKEN_UNKNOWN : k->t->tokens[i].type;
    weft_status s = wf_folder_array(k->out, KEY "token_type", WF_GGUF_I32, k->t->n_tokens, types,
                                    k->t->n_tokens * sizeof *types);
    free(types);
    return s;
}

/* SentencePiece merges the pair whose token has the highest score: that of the first merge that gives it. */
static weft_status add_scores(const keys *k)
{
    const wf_tokenizer *t = k->t;
    float *scores = wf_calloc(t->n_tokens, sizeof *scores);
    if (!scores) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < t->n_tokens; i++) scores[i] = t->tokens[i].type == WF_TOKEN_NORMAL ? -1e6f : 0;
    for (size_t i = 0; t->pairs && i <= t->pair_mask; i++) {
        const wf_bpe_pair *p = &t->pairs[i];
        if (p->key != UINT64_MAX && -(float)p->rank > scores[p->id]) scores[p->id] = -(float)p->rank;
    }
    weft_status s = wf_folder_array(k->out, KEY "scores", WF_GGUF_F32, t->n_tokens, scores,
                                    t->n_tokens * sizeof *scores);
    free(scores);
    return s;
}

/* ---- the pre-tokenizer's name ------------------------------------------------------------------------- */

/* What GGUF's kind does before it merges, as a tokenizer.json says it. */
static weft_status steps_of(const wf_pre *pre, wf_steps *out)
{
    WF_TRY(wf_pre_steps(pre, out));
    return wf_steps_add(out, (wf_step){.kind = WF_STEP_BYTES});
}

static weft_status differences(const wf_pre *pre, const wf_pieces *theirs, size_t *n)
{
    wf_steps steps = {0};
    wf_pieces ours = {0};
    weft_status s = steps_of(pre, &steps);
    if (s == WEFT_OK) s = wf_pretokenise(&steps, probe, strlen(probe), 0, &ours);
    if (s == WEFT_OK) {
        /* How many ends of pieces are not common to both. */
        size_t count = 0, k = 0;
        for (size_t i = 0; i < theirs->n; i++) {
            for (; k < ours.n && ours.v[k].end < theirs->v[i].end; k++) count++;
            if (k < ours.n && ours.v[k].end == theirs->v[i].end) k++;
            else count++;
        }
        *n = count + ours.n - k;
    }
    wf_pieces_free(&ours);
    wf_steps_free(&steps);
    return s;
}

/* The name whose splits are nearest, and of such the one that treats merges as the folder does. "default" is what
 * readers take for an unknown name: it fits exactly or not. */
static weft_status nearest_pre(const keys *k, const wf_pre **nearest, size_t *least, bool *same_merges)
{
    wf_pieces theirs;
    const wf_pre *one;
    *least = SIZE_MAX;
    weft_status s = wf_pretokenise(&k->t->json->pretokenizers, probe, strlen(probe), wf_head_of(probe, strlen(probe)),
                                   &theirs);
    for (size_t i = 0; s == WEFT_OK && (one = wf_pre_at(i)); i++) {
        size_t n = 0;
        s = differences(one, &theirs, &n);
        bool same = one->ignore_merges == k->t->ignore_merges;
        if ((n && !strcmp(one->name, "default")) || n > *least || (n == *least && (*same_merges || !same))) continue;
        *nearest = one, *least = n, *same_merges = same;
    }
    wf_pieces_free(&theirs);
    return s;
}

static weft_status ids_by(const keys *k, const wf_steps *steps, bool ignore_merges, const char *text, size_t len,
                          wf_ids *out)
{
    wf_pieces pieces;
    weft_status s = wf_pretokenise(steps, text, len, wf_head_of(text, len), &pieces);
    for (size_t i = 0; i < pieces.n && s == WEFT_OK; i++)
        s = wf_json_bpe(k->t, pieces.text.data + pieces.v[i].begin, pieces.v[i].end - pieces.v[i].begin, ignore_merges,
                        out);
    wf_pieces_free(&pieces);
    return s;
}

static weft_status same_text(const keys *k, const wf_pre *pre, const wf_steps *steps, const char *text, size_t len,
                             bool *same)
{
    wf_ids a = {0}, b = {0};
    weft_status s = ids_by(k, &k->t->json->pretokenizers, k->t->ignore_merges, text, len, &a);
    if (s == WEFT_OK) s = ids_by(k, steps, pre->ignore_merges, text, len, &b);
    *same = a.n == b.n && (!a.n || !memcmp(a.v, b.v, a.n * sizeof *a.v));
    free(a.v);
    free(b.v);
    return s;
}

/* A split in another place matters where a merge crosses it, and then it takes a token apart. So the ids of every
 * token's own text tell. */
static weft_status same_ids(const keys *k, const wf_pre *pre, bool *same)
{
    const wf_tokenizer *t = k->t;
    wf_steps steps = {0};
    char *buf = wf_calloc(t->max_len + 1, 1);
    weft_status s = buf ? steps_of(pre, &steps) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) s = same_text(k, pre, &steps, probe, strlen(probe), same);
    for (uint32_t i = 0; i < t->n_tokens && s == WEFT_OK && *same; i++) {
        if (t->tokens[i].type != WF_TOKEN_NORMAL || !t->tokens[i].len) continue;
        size_t n = t->kind->piece(t, &t->tokens[i], buf, t->max_len);
        if (wf_utf8_valid(buf, n) == n) s = same_text(k, pre, &steps, buf, n, same);
    }
    wf_steps_free(&steps);
    free(buf);
    return s;
}

static weft_status find_pre(const keys *k, const wf_pre **pre)
{
    size_t n;
    bool same_merges = false, same = true;
    WF_TRY(nearest_pre(k, pre, &n, &same_merges));
    const char *name = (*pre)->name;
    if (!same_merges) {
        /* Do merges alone make every token? Then ignore_merges changes no id. */
        const wf_tokenizer *t = k->t;
        wf_ids ids = {0};
        weft_status s = WEFT_OK;
        same = true;
        for (uint32_t i = 0; i < t->n_tokens && s == WEFT_OK && same; i++) {
            if (t->tokens[i].type != WF_TOKEN_NORMAL || !t->tokens[i].len) continue;
            ids.n = 0;
            s = wf_json_bpe(t, t->tokens[i].text, t->tokens[i].len, false, &ids);
            same = ids.n == 1 && ids.v[0] == (int32_t)i;
        }
        free(ids.v);
        WF_TRY(s);
    }
    if (!same && !n)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "GGUF's '%s' splits text like this folder, but %s (ignore_merges), which changes ids: it cannot "
                       "be converted, but runs as a folder",
                       name,
                       k->t->ignore_merges ? "makes tokens by merges alone" : "takes whole tokens before it merges");
    if (same && n) WF_TRY(same_ids(k, *pre, &same));
    if (!same)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "no pre-tokenizer that GGUF has a name for splits text like that of this "
                                             "folder: it cannot be converted, but runs as a folder");
    if (n)
        wf_log(WEFT_LOG_INFO,
               "GGUF's '%s' does not split text in all places like this folder, but gives the ids of the folder for "
               "each of its tokens",
               name);
    return WEFT_OK;
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static weft_status add_bpe(const keys *k)
{
    const wf_pre *pre = NULL;
    WF_TRY(find_pre(k, &pre));
    WF_TRY(wf_folder_str(k->out, KEY "model", "gpt2"));
    WF_TRY(wf_folder_str(k->out, KEY "pre", pre->name));
    return add_texts(k, KEY "merges", k->src->n_merges, add_merge);
}

static enum wf_prepend prepend_of(const wf_steps *pretokenizers)
{
    for (size_t i = 0; i < pretokenizers->n; i++) {
        const wf_step *s = &pretokenizers->v[i];
        if (s->kind == WF_STEP_METASPACE && (s->always || s->first))
            return s->always ? WF_PREPEND_ALWAYS : WF_PREPEND_FIRST;
    }
    return WF_PREPEND_EVERY;
}

static weft_status add_spm(const keys *k)
{
    WF_TRY(wf_folder_str(k->out, KEY "model", "llama"));
    WF_TRY(wf_folder_str(k->out, KEY "pre", "default"));
    /* GGUF's key says whether a space is put before text, but not before which. */
    enum wf_prepend prepend = prepend_of(&k->t->json->pretokenizers);
    WF_TRY(wf_folder_bool(k->out, KEY "add_space_prefix", k->t->add_space_prefix));
    if (k->t->add_space_prefix && prepend != WF_PREPEND_EVERY) {
        wf_log(
            WEFT_LOG_WARN,
            "the folder's tokenizer puts a space before text that does not begin with one%s: weft reads this from the "
            "file, other programs give other ids where text begins with a space%s",
            prepend == WF_PREPEND_FIRST ? ", but not behind control tokens" : "",
            prepend == WF_PREPEND_FIRST ? ", and behind control tokens" : "");
        WF_TRY(wf_folder_str(k->out, WF_PREPEND_KEY, wf_prepend_names[prepend]));
    }
    return add_scores(k);
}

static weft_status add_keys(const keys *k)
{
    const wf_json_model *j = k->t->json;
    if (j->unigram)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "a Unigram tokenizer cannot be converted: no GGUF file that weft reads has one");
    if (!j->byte_level && !j->byte_fallback)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the tokenizer knows neither bytes nor byte fallback, as GGUF's do: it cannot be converted");
    WF_TRY(j->byte_level ? add_bpe(k) : add_spm(k));
    WF_TRY(add_texts(k, KEY "tokens", k->t->n_tokens, add_token));
    WF_TRY(add_types(k));
    const wf_tokenizer *t = k->t;
    int32_t eot = -1;
    for (uint32_t i = k->src->n_enders; i-- > 0;)
        if (k->src->enders[i] != t->eos) eot = k->src->enders[i];
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{KEY "bos_token_id", t->bos},
               {KEY "eos_token_id", t->eos},
               {KEY "unknown_token_id", t->unk},
               {KEY "eot_token_id", eot}};
    for (size_t i = 0; i < WF_LEN(ids); i++)
        if (ids[i].id >= 0) WF_TRY(wf_folder_u32(k->out, ids[i].key, (uint32_t)ids[i].id));
    WF_TRY(wf_folder_bool(k->out, KEY "add_bos_token", t->add_bos));
    return wf_folder_bool(k->out, KEY "add_eos_token", t->add_eos);
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

typedef struct comparison {
    const wf_tokenizer *folder, *gguf;
    wf_ids want, got;
} comparison;

/* Where the ids of a text differ first; SIZE_MAX: nowhere. */
static weft_status first_difference(comparison *c, const char *text, size_t *at)
{
    free(c->want.v);
    free(c->got.v);
    c->want = c->got = (wf_ids){0};
    WF_TRY(wf_tokenize(c->folder, text, strlen(text), WEFT_TEXT_DEFAULT, &c->want.v, &c->want.n));
    WF_TRY(wf_tokenize(c->gguf, text, strlen(text), WEFT_TEXT_DEFAULT, &c->got.v, &c->got.n));
    for (*at = 0; *at < c->want.n && *at < c->got.n && c->want.v[*at] == c->got.v[*at];) ++*at;
    if (*at == c->want.n && *at == c->got.n) *at = SIZE_MAX;
    return WEFT_OK;
}

static const char *name_token(const wf_tokenizer *t, const wf_ids *ids, size_t i, char buf[64])
{
    if (i >= ids->n) return "none";
    const wf_vocab_token *tok = &t->tokens[ids->v[i]];
    snprintf(buf, 64, "%d ('%.*s')", ids->v[i], (int)WF_MIN(tok->len, 40), tok->text);
    return buf;
}

static weft_status expect_same(comparison *c, const char *what, const char *text)
{
    char got[64], want[64];
    size_t i;
    WF_TRY(first_difference(c, text, &i));
    if (i == SIZE_MAX) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "as GGUF's '%s' the tokenizer would give other ids for %s: token %zu would be %s instead of %s; it "
                   "cannot be converted, but runs as a folder",
                   c->gguf->kind->model, what, i, name_token(c->gguf, &c->got, i, got),
                   name_token(c->folder, &c->want, i, want));
}

/* Behind and before a control token, whose neighbours are tokenised as any text. */
static weft_status expect_same_around(comparison *c)
{
    const wf_tokenizer *t = c->folder;
    char *text = NULL;
    uint32_t i = 0;
    for (; i < t->n_tokens; i++)
        if (t->tokens[i].type == WF_TOKEN_CONTROL && t->tokens[i].len && !(t->json->rules[i] & BESIDE)) break;
    if (i == t->n_tokens) return WEFT_OK;
    int n = (int)WF_MIN(t->tokens[i].len, 1u << 16);
    const char *mark = t->tokens[i].text;
    if (asprintf(&text, "a%.*sb%.*s c%.*s%.*s\nd  ", n, mark, n, mark, n, mark, n, mark) < 0) return WEFT_ERR_NOMEM;
    weft_status s = expect_same(c, "text between control tokens", text);
    free(text);
    return s;
}

/* What no key says, and other converters lose without a word. */
static weft_status warn_of_losses(comparison *c)
{
    const wf_tokenizer *t = c->folder;
    size_t at;
    WF_TRY(first_difference(c, "e\xcc\x81 A\xcc\x8a", &at));
    if (at != SIZE_MAX)
        wf_log(WEFT_LOG_WARN, "the folder's tokenizer normalises Unicode, which GGUF has no key for: accents that "
                              "follow their letters get other ids");
    uint32_t i = 0;
    while (i < t->n_tokens && !(t->json->rules[i] & BESIDE)) i++;
    if (i < t->n_tokens)
        wf_log(WEFT_LOG_WARN,
               "added tokens of the folder, such as '%.*s', take spaces beside them or match whole words only, which "
               "GGUF has no key for: ids beside them differ",
               (int)WF_MIN(t->tokens[i].len, 40), t->tokens[i].text);
    return WEFT_OK;
}

static weft_status compare(const wf_tokenizer *folder, const wf_tokenizer *gguf)
{
    static const struct {
        const char *what, *text;
    } texts[] = {{"a text of words, numbers and signs", probe}, {"an empty text", ""},
                 {"a text that begins with a space", " a"}, {"a text that begins with two spaces", "  a"},
                 {"a text that begins with a line end", "\n a"}, {"a space", " "},
                 {"a text that begins with U+2581", "\xe2\x96\x81x"}};
    comparison c = {folder, gguf, {0}, {0}};
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < WF_LEN(texts) && s == WEFT_OK; i++) s = expect_same(&c, texts[i].what, texts[i].text);
    if (s == WEFT_OK) s = expect_same_around(&c);
    if (s == WEFT_OK) s = warn_of_losses(&c);
    free(c.want.v);
    free(c.got.v);
    return s;
}

static weft_status write_keys(void *user, const wf_vocab_src *src)
{
    wf_tokenizer *t = NULL, *again = NULL;
    keys k = {.src = src, .out = user};
    WF_TRY(wf_tokenizer_of_kind(&wf_text_hf, src, &t));
    k.t = t;
    weft_status s = add_keys(&k);
    if (s == WEFT_OK) s = wf_gguf_index(k.out);
    if (s == WEFT_OK) s = wf_tokenizer_from_keys(k.out, &again);
    if (s == WEFT_OK) s = compare(t, again);
    wf_tokenizer_destroy(again);
    wf_tokenizer_destroy(t);
    return s;
}

weft_status wf_tokenizer_to_gguf(const wf_gguf *folder, wf_gguf *out)
{
    weft_status s = wf_vocab_of_folder(folder->path, wf_vocab_rows(folder), write_keys, out);
    return s ? wf_fail_context(s, "%s", folder->path) : WEFT_OK;
}
