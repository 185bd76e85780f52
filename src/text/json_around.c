/* json_around: what stands around the model in a tokenizer.json: decoders, which say how tokens become text, and
 * post-processors, which put special tokens around texts. */
#include "base/json.h"
#include "model/model.h"
#include "text/internal.h"
#include "text/steps.h"

#include <string.h>

/* U+2581 stands for a space: what a decoder writes in place of what. */
static weft_status check_space(const char *from, const char *to)
{
    if (from && to && !strcmp(from, "\xe2\x96\x81") && !strcmp(to, " ")) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "a decoder writes '%.32s' in place of '%.32s'; weft only writes spaces in place of U+2581",
                   to ? to : "", from ? from : "a pattern");
}

static weft_status read_strip(const wf_json *o, bool *prefix)
{
    const char *content = " ";
    uint32_t start = 0, stop = 0;
    WF_TRY(wf_json_str(o, "content", &content));
    WF_TRY(wf_json_u32(o, "start", &start));
    WF_TRY(wf_json_u32(o, "stop", &stop));
    *prefix = start;
    if (!strcmp(content, " ") && start <= 1 && !stop) return WEFT_OK;
    return wf_fail(
        WEFT_ERR_UNSUPPORTED,
        "a decoder strips '%.32s' %u times at the start and %u at the end; weft only strips one space at the start",
        content, start, stop);
}

/* A decoder of bytes or of spaces, the latter with or without a space before the first word. */
weft_status wf_json_read_decoder(wf_vocab_src *src, const wf_json *o)
{
    const char *type = "of no type";
    const wf_json *list;
    bool prefix = false;
    WF_TRY(wf_json_str(o, "type", &type));
    WF_TRY(wf_json_array(o, "decoders", &list));
    if (!strcmp(type, "WordPiece")) return wf_step_fields_known(o, type); /* such models write no text */
    if (!wf_listed("ByteLevel Metaspace Replace Strip ByteFallback Fuse Sequence", type))
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "decoder '%.32s' is not supported (supported: ByteLevel, Metaspace, Replace, Strip, "
                       "ByteFallback, Fuse, Sequence)",
                       type);
    WF_TRY(wf_step_fields_known(o, type));
    WF_JSON_EACH(one, list) WF_TRY(wf_json_read_decoder(src, one));
    src->json->byte_level |= !strcmp(type, "ByteLevel");
    if (!strcmp(type, "Replace")) {
        const wf_json *pattern;
        const char *from = NULL, *to = NULL;
        WF_TRY(wf_json_object(o, "pattern", &pattern));
        if (pattern) WF_TRY(wf_json_str(pattern, "String", &from));
        WF_TRY(wf_json_str(o, "content", &to));
        WF_TRY(check_space(from, to));
    }
    if (!strcmp(type, "Strip")) WF_TRY(read_strip(o, &prefix));
    if (!strcmp(type, "Metaspace")) {
        /* With a prefix, text gets a space before the first word, which is taken away again. */
        const char *scheme = "always", *mark = NULL;
        bool older = true;
        WF_TRY(wf_json_str(o, "replacement", &mark));
        WF_TRY(wf_json_bool(o, "add_prefix_space", &older));
        if (!older) scheme = "never";
        WF_TRY(wf_json_str(o, "prepend_scheme", &scheme));
        prefix = strcmp(scheme, "never");
        if (!wf_listed("always first never", scheme))
            return wf_fail(WEFT_ERR_FORMAT, "'prepend_scheme' of the decoder is '%.32s'", scheme);
        WF_TRY(check_space(mark, " "));
    }
    if (prefix) src->add_space_prefix = 1;
    return WEFT_OK;
}

/* {"SpecialToken": {"id": text}} -> its id in the template's own table; -1: a sequence. */
static weft_status special_of(const wf_json *processor, const wf_json *item, int32_t *id)
{
    const wf_json *token = wf_json_get(item, "SpecialToken");
    const char *text = wf_json_text(wf_json_get(token, "id"));
    *id = -1;
    if (!token) return WEFT_OK;
    const wf_json *ids = text ? wf_json_get(wf_json_get(wf_json_get(processor, "special_tokens"), text), "ids") : NULL;
    const wf_json *one = wf_json_at(ids, 0);
    if (wf_json_count(ids) != 1 || !wf_json_is(one, WF_JSON_INT) || wf_json_int(one) < 0 ||
        wf_json_int(one) >= INT32_MAX)
        return wf_fail(WEFT_ERR_FORMAT, "the post-processor's special token '%.64s' has no single id",
                       text ? text : "");
    *id = (int32_t)wf_json_int(one);
    return WEFT_OK;
}

typedef struct pair { /* of texts, as far as it is read */
    int texts, begins, ends[2];
    int64_t type; /* of the tokens of the second one */
    bool known;   /* it is what wf_tokenize_pair makes */
} pair;

static void read_pair_item(const wf_vocab_src *src, const wf_json *o, const wf_json *item, pair *p)
{
    const wf_json *text = wf_json_get(item, "Sequence"), *part = text ? text : wf_json_get(item, "SpecialToken");
    const char *name = wf_json_text(wf_json_get(text, "id"));
    int64_t type = wf_json_int(wf_json_get(part, "type_id"));
    int32_t id = -1;
    if (text) p->known &= p->texts < 2 && name && !strcmp(name, p->texts++ ? "B" : "A");
    else p->known &= !special_of(o, item, &id) && id >= 0 && id == (p->texts ? src->eos : src->bos);
    if (!p->known) return;
    if (!text) ++*(p->texts ? &p->ends[p->texts - 1] : &p->begins);
    if (p->texts == 2 && text) p->type = type;
    p->known &= type == (p->texts == 2 ? p->type : 0) && (type == 0 || type == 1);
}

/* A tokenizer that makes other pairs has none, and is of use without. */
static weft_status read_pair(wf_vocab_src *src, const wf_json *o)
{
    enum { MOST = 8 };
    const wf_json *items;
    pair p = {.known = true};
    WF_TRY(wf_json_array(o, "pair", &items));
    WF_JSON_EACH(item, items) read_pair_item(src, o, item, &p);
    bool ends = p.texts == 2 && p.ends[0] >= 1 && p.ends[0] <= MOST && p.ends[1] == 1;
    src->between = p.known && ends && p.begins == src->add_bos ? (uint8_t)p.ends[0] : WF_NO_PAIRS;
    src->one_type = !p.type;
    return WEFT_OK;
}

static weft_status read_template(wf_vocab_src *src, const wf_json *o)
{
    const wf_json *items;
    bool text = false;
    WF_TRY(wf_json_array(o, "single", &items));
    src->add_bos = src->add_eos = 0;
    WF_JSON_EACH(item, items) {
        int32_t id;
        WF_TRY(special_of(o, item, &id));
        if (id < 0 && text) return wf_fail(WEFT_ERR_UNSUPPORTED, "the post-processor repeats the text");
        int8_t *flag = text ? &src->add_eos : &src->add_bos;
        int32_t *token = text ? &src->eos : &src->bos;
        text |= id < 0;
        if (id < 0) continue;
        if (*flag)
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "the post-processor puts more than one token before or after the text");
        *flag = 1, *token = id;
    }
    return read_pair(src, o);
}

/* {"cls": [text, id], "sep": [text, id]}: before a text, and behind it. */
static weft_status read_ends(wf_vocab_src *src, const wf_json *o, uint8_t between)
{
    const wf_json *first = wf_json_at(wf_json_get(o, "cls"), 1), *last = wf_json_at(wf_json_get(o, "sep"), 1);
    const wf_json *const ids[] = {first, last};
    for (size_t i = 0; i < WF_LEN(ids); i++)
        if (!wf_json_is(ids[i], WF_JSON_INT) || wf_json_int(ids[i]) < 0 || wf_json_int(ids[i]) >= src->n_tokens)
            return wf_fail(WEFT_ERR_FORMAT, "the post-processor does not name the ids of 'cls' and 'sep'");
    src->add_bos = src->add_eos = 1, src->between = between, src->one_type = between == 2;
    src->bos = (int32_t)wf_json_int(first), src->eos = (int32_t)wf_json_int(last);
    return WEFT_OK;
}

weft_status wf_json_read_processor(wf_vocab_src *src, const wf_json *o)
{
    const char *type = "";
    const wf_json *list;
    WF_TRY(wf_json_str(o, "type", &type));
    WF_TRY(wf_json_array(o, "processors", &list));
    WF_JSON_EACH(one, list) WF_TRY(wf_json_read_processor(src, one));
    if (!strcmp(type, "TemplateProcessing")) return read_template(src, o);
    if (!strcmp(type, "BertProcessing")) return read_ends(src, o, 1);
    if (!strcmp(type, "RobertaProcessing")) return read_ends(src, o, 2);
    if (!strcmp(type, "ByteLevel") || !strcmp(type, "Sequence") || !*type) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "post-processor '%.32s' is not supported (supported: TemplateProcessing, BertProcessing, "
                   "RobertaProcessing, ByteLevel, Sequence)",
                   type);
}
