/* steps_json: reads the normalisers and pre-tokenizers of a tokenizer.json. See steps.h. */
#include "base/json.h"
#include "model/model.h"
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- fields ------------------------------------------------------------------------------------ */

/* Of each type of step and of decoder: what the library writes, and wrote once. */
static const struct {
    const char *types, *fields;
} known[] = {
    {"NFC NFD NFKC NFKD Lowercase StripAccents WhitespaceSplit ByteFallback Fuse", "type"},
    {"Sequence", "type normalizers pretokenizers decoders"},
    {"Strip", "type strip_left strip_right content start stop"},
    {"Replace", "type pattern content"},
    {"Prepend", "type prepend"},
    {"Split", "type pattern behavior invert"},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex"},
    {"Metaspace", "type replacement add_prefix_space prepend_scheme split str_rep"},
    {"Digits", "type individual_digits"},
    {"Punctuation", "type behavior"},
    {"BertNormalizer", "type clean_text handle_chinese_chars strip_accents lowercase"},
    {"BertPreTokenizer", "type"},
    {"WordPiece", "type prefix cleanup"},
    {"Precompiled", "type precompiled_charsmap"},
};

static bool is_set(const wf_json *v)
{
    if (v->kind == WF_JSON_BOOL) return v->b;
    return wf_json_is_number(v) ? wf_json_number(v) != 0 : v->n > 0; /* null has no length */
}

weft_status wf_fields_known(const wf_json *o, const char *fields, const char *of)
{
    WF_JSON_EACH_MEMBER(m, o) {
        const char *key = m->name.text;
        if (is_set(&m->value) && !wf_listed(fields, key))
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "'%.32s' of %.32s is not known, so ids or text might be others than it asks for", key, of);
    }
    return WEFT_OK;
}

weft_status wf_step_fields_known(const wf_json *o, const char *type)
{
    for (size_t i = 0; i < WF_LEN(known); i++)
        if (wf_listed(known[i].types, type)) return wf_fields_known(o, known[i].fields, type);
    return WEFT_OK; /* the type itself is not known: whoever reads it says so */
}

#define PUNCTUATION "[\\p{P}$+<=>^`|~]"

/* ---- adding steps ------------------------------------------------------------------------------ */

static weft_status copy(const char *s, char **out)
{
    *out = wf_strdup(s);
    return *out ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status need_str(const wf_json *o, const char *key, const char **out)
{
    *out = NULL;
    WF_TRY(wf_json_str(o, key, out));
    return *out ? WEFT_OK : wf_fail(WEFT_ERR_FORMAT, "'%s' is missing", key);
}

/* {"String": s} or {"Regex": s} */
static weft_status read_pattern(const wf_json *o, wf_step *step)
{
    const wf_json *p;
    const char *text = NULL, *regex = NULL;
    WF_TRY(wf_json_object(o, "pattern", &p));
    WF_TRY(wf_json_str(p, "String", &text));
    WF_TRY(wf_json_str(p, "Regex", &regex));
    if (regex) return wf_regex_open_foreign(regex, &step->regex);
    return text ? copy(text, &step->find) : wf_fail(WEFT_ERR_FORMAT, "'pattern' is neither a String nor a Regex");
}

static weft_status add_regex(wf_steps *s, const char *pattern, enum wf_split split, bool invert)
{
    wf_step step = {.kind = WF_STEP_SPLIT, .split = split, .invert = invert};
    WF_TRY(wf_regex_open(pattern, &step.regex));
    return wf_steps_add(s, step);
}

/* ---- normalisers -------------------------------------------------------------------------------- */

static weft_status read_replace(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_REPLACE};
    const char *content;
    WF_TRY(need_str(o, "content", &content));
    WF_TRY(read_pattern(o, &step));
    weft_status st = copy(content, &step.text);
    if (!st) return wf_steps_add(s, step);
    wf_regex_close(step.regex);
    free(step.find);
    return st;
}

static weft_status read_prepend(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_PREPEND};
    const char *text;
    WF_TRY(need_str(o, "prepend", &text));
    WF_TRY(copy(text, &step.text));
    return wf_steps_add(s, step);
}

static weft_status read_strip(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_STRIP, .left = true, .right = true};
    WF_TRY(wf_json_bool(o, "strip_left", &step.left));
    WF_TRY(wf_json_bool(o, "strip_right", &step.right));
    return wf_steps_add(s, step);
}

static weft_status read_sequence(wf_steps *s, const wf_json *o, const char *key,
                                 weft_status (*read)(wf_steps *, const wf_json *))
{
    const wf_json *list;
    WF_TRY(wf_json_array(o, key, &list));
    if (!list) return wf_fail(WEFT_ERR_FORMAT, "'%s' is missing", key);
    WF_JSON_EACH(one, list) WF_TRY(read(s, one));
    return WEFT_OK;
}

/* Files without a table say so by null. */
static weft_status read_map(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_MAP};
    const char *base64 = NULL;
    WF_TRY(wf_json_str(o, "precompiled_charsmap", &base64));
    if (!base64 || !*base64) return WEFT_OK;
    WF_TRY(wf_charmap_read(base64, &step.map, &step.n_map));
    return wf_steps_add(s, step);
}

/* Accents go with capitals unless the file says otherwise. */
static weft_status read_bert(wf_steps *s, const wf_json *o)
{
    bool clean = true, han = true, lower = true;
    WF_TRY(wf_json_bool(o, "clean_text", &clean));
    WF_TRY(wf_json_bool(o, "handle_chinese_chars", &han));
    WF_TRY(wf_json_bool(o, "lowercase", &lower));
    bool strip = lower;
    WF_TRY(wf_json_bool(o, "strip_accents", &strip));
    if (clean) WF_TRY(wf_steps_add(s, (wf_step){.kind = WF_STEP_CLEAN}));
    if (han) WF_TRY(wf_steps_add(s, (wf_step){.kind = WF_STEP_SPACE_HAN}));
    if (strip)
        WF_TRY(wf_steps_add(s, (wf_step){.kind = WF_STEP_FORM, .form = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE}));
    if (strip) WF_TRY(wf_steps_add(s, (wf_step){.kind = WF_STEP_STRIP_MARKS}));
    return lower ? wf_steps_add(s, (wf_step){.kind = WF_STEP_LOWER}) : WEFT_OK;
}

weft_status wf_steps_read_normaliser(wf_steps *s, const wf_json *o)
{
    static const struct {
        const char *type;
        int options;
    } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
                 {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
                 {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                 {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    const char *type;
    WF_TRY(need_str(o, "type", &type));
    WF_TRY(wf_step_fields_known(o, type));
    for (size_t i = 0; i < WF_LEN(forms); i++)
        if (!strcmp(forms[i].type, type))
            return wf_steps_add(s, (wf_step){.kind = WF_STEP_FORM, .form = forms[i].options});
    if (!strcmp(type, "Sequence")) return read_sequence(s, o, "normalizers", wf_steps_read_normaliser);
    if (!strcmp(type, "Lowercase")) return wf_steps_add(s, (wf_step){.kind = WF_STEP_LOWER});
    if (!strcmp(type, "StripAccents")) return wf_steps_add(s, (wf_step){.kind = WF_STEP_STRIP_ACCENTS});
    if (!strcmp(type, "Strip")) return read_strip(s, o);
    if (!strcmp(type, "Replace")) return read_replace(s, o);
    if (!strcmp(type, "Prepend")) return read_prepend(s, o);
    if (!strcmp(type, "BertNormalizer")) return read_bert(s, o);
    if (!strcmp(type, "Precompiled")) return read_map(s, o);
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "normaliser '%.32s' is not supported (supported: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
                   "Strip, Replace, Prepend, Precompiled, BertNormalizer, Sequence)",
                   type);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------------- */

static weft_status read_split(const wf_json *o, enum wf_split *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = names[*out];
    WF_TRY(wf_json_str(o, "behavior", &name));
    for (size_t i = 0; i < WF_LEN(names); i++)
        if (!strcmp(names[i], name)) return *out = (enum wf_split)i, WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "'behavior' is '%.32s'", name);
}

static weft_status read_own_split(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_SPLIT, .split = WF_SPLIT_REMOVED};
    WF_TRY(read_split(o, &step.split));
    WF_TRY(wf_json_bool(o, "invert", &step.invert));
    WF_TRY(read_pattern(o, &step));
    return wf_steps_add(s, step);
}

static weft_status read_bytes(wf_steps *s, const wf_json *o)
{
    bool prefix = true, regex = true;
    wf_step space = {.kind = WF_STEP_METASPACE, .always = true};
    WF_TRY(wf_json_bool(o, "add_prefix_space", &prefix));
    WF_TRY(wf_json_bool(o, "use_regex", &regex));
    if (prefix) {
        WF_TRY(copy(" ", &space.text));
        WF_TRY(wf_steps_add(s, space));
    }
    if (regex) WF_TRY(add_regex(s, wf_pattern_gpt2, WF_SPLIT_ISOLATED, false));
    return wf_steps_add(s, (wf_step){.kind = WF_STEP_BYTES});
}

/* Older files say add_prefix_space in place of prepend_scheme. */
static weft_status read_metaspace(wf_steps *s, const wf_json *o)
{
    wf_step step = {.kind = WF_STEP_METASPACE, .cut = true};
    bool prefix = true;
    const char *mark, *scheme = NULL;
    WF_TRY(need_str(o, "replacement", &mark));
    WF_TRY(wf_json_bool(o, "add_prefix_space", &prefix));
    WF_TRY(wf_json_str(o, "prepend_scheme", &scheme));
    WF_TRY(wf_json_bool(o, "split", &step.cut));
    if (scheme && !prefix && strcmp(scheme, "never"))
        return wf_fail(WEFT_ERR_FORMAT, "'add_prefix_space' is false, but 'prepend_scheme' is '%.32s'", scheme);
    if (!scheme) scheme = prefix ? "always" : "never";
    step.always = !strcmp(scheme, "always"), step.first = !strcmp(scheme, "first");
    if (!step.always && !step.first && strcmp(scheme, "never"))
        return wf_fail(WEFT_ERR_FORMAT, "'prepend_scheme' is '%.32s'", scheme);
    if (!*mark || mark[wf_head_of(mark, strlen(mark))])
        return wf_fail(WEFT_ERR_FORMAT, "'replacement' is '%.32s', not one character", mark);
    WF_TRY(copy(mark, &step.text));
    return wf_steps_add(s, step);
}

static weft_status read_digits(wf_steps *s, const wf_json *o)
{
    bool each = false;
    WF_TRY(wf_json_bool(o, "individual_digits", &each));
    return add_regex(s, "\\p{N}", each ? WF_SPLIT_ISOLATED : WF_SPLIT_CONTIGUOUS, false);
}

static weft_status read_punctuation(wf_steps *s, const wf_json *o)
{
    enum wf_split split = WF_SPLIT_ISOLATED;
    WF_TRY(read_split(o, &split));
    return add_regex(s, PUNCTUATION, split, false);
}

weft_status wf_steps_read_pretokenizer(wf_steps *s, const wf_json *o)
{
    const char *type;
    WF_TRY(need_str(o, "type", &type));
    WF_TRY(wf_step_fields_known(o, type));
    if (!strcmp(type, "Sequence")) return read_sequence(s, o, "pretokenizers", wf_steps_read_pretokenizer);
    if (!strcmp(type, "Split")) return read_own_split(s, o);
    if (!strcmp(type, "ByteLevel")) return read_bytes(s, o);
    if (!strcmp(type, "Metaspace")) return read_metaspace(s, o);
    if (!strcmp(type, "Digits")) return read_digits(s, o);
    if (!strcmp(type, "Punctuation")) return read_punctuation(s, o);
    bool bert = !strcmp(type, "BertPreTokenizer");
    if (bert || !strcmp(type, "WhitespaceSplit")) WF_TRY(add_regex(s, "\\s", WF_SPLIT_REMOVED, false));
    if (bert) return add_regex(s, PUNCTUATION, WF_SPLIT_ISOLATED, false);
    if (!strcmp(type, "WhitespaceSplit")) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "pre-tokenizer '%.32s' is not supported (supported: Split, ByteLevel, Metaspace, Digits, "
                   "Punctuation, WhitespaceSplit, BertPreTokenizer, Sequence)",
                   type);
}

/* ---- lengths ------------------------------------------------------------------------------------------ */

static bool shrinks(const wf_step *s)
{
    if (s->kind == WF_STEP_SPLIT) return s->split == WF_SPLIT_REMOVED;
    if (s->kind == WF_STEP_REPLACE) return s->regex || strlen(s->text) < strlen(s->find);
    return s->kind == WF_STEP_FORM || s->kind == WF_STEP_STRIP || s->kind == WF_STEP_STRIP_ACCENTS ||
           s->kind == WF_STEP_LOWER || s->kind == WF_STEP_CLEAN || s->kind == WF_STEP_STRIP_MARKS ||
           s->kind == WF_STEP_MAP;
}

bool wf_steps_shrink(const wf_steps *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (shrinks(&s->v[i])) return true;
    return false;
}
