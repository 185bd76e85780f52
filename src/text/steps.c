/* steps: runs normalisers and pre-tokenizers. See steps.h. */
#include "text/steps.h"
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_STEPS 64

weft_status wf_steps_add(wf_steps *s, wf_step step)
{
    weft_status st = s->n < MAX_STEPS ? WEFT_OK : wf_fail(WEFT_ERR_UNSUPPORTED, "more than %d steps", MAX_STEPS);
    if (!st && !wf_grow(&s->v, s->n, &s->cap, sizeof *s->v)) st = WEFT_ERR_NOMEM;
    if (!st) return s->v[s->n++] = step, WEFT_OK;
    wf_regex_close(step.regex);
    free(step.find);
    free(step.text);
    free(step.map);
    return st;
}

void wf_steps_free(wf_steps *s)
{
    for (size_t i = 0; i < s->n; i++) {
        wf_regex_close(s->v[i].regex);
        free(s->v[i].find);
        free(s->v[i].text);
        free(s->v[i].map);
    }
    free(s->v);
    *s = (wf_steps){0};
}

void wf_pieces_free(wf_pieces *p)
{
    free(p->text.data);
    free(p->subject);
    free(p->v);
    *p = (wf_pieces){0};
}

/* ---- growing text ---------------------------------------------------------------------------- */

/* Steps replace text by longer text, a character by 18 at most in NFKD; a file with many such steps could ask for any
 * amount. */
static size_t limit_of(size_t len) { return WF_MIN(len, WF_TEXT_MAX) * 64 + (64u << 10); }

static weft_status put(wf_pieces *o, const char *p, size_t n)
{
    WF_TRY(wf_stop_asked(&o->n_steps));
    if (n > o->limit - o->text.len)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the steps of tokenizer.json make text longer than %zu bytes, beyond what any tokenizer needs",
                       o->limit);
    wf_text_add(&o->text, p, n);
    return o->text.failed ? wf_fail(WEFT_ERR_NOMEM, "out of host memory: a text of %zu bytes before tokenisation",
                                    o->text.len + n)
                          : WEFT_OK;
}

static weft_status cut(wf_pieces *o, size_t begin, size_t end)
{
    WF_TRY(wf_stop_asked(&o->n_steps));
    if (begin == end) return WEFT_OK;
    if (!wf_grow(&o->v, o->n, &o->cap, sizeof *o->v)) return WEFT_ERR_NOMEM;
    o->v[o->n++] = (wf_text_span){begin, end};
    return WEFT_OK;
}

/* Text that became of what ends at `end` in a text with that head. */
static weft_status put_from(wf_pieces *o, const char *p, size_t n, size_t end, size_t head)
{
    WF_TRY(put(o, p, n));
    if (head && end <= head) o->head = o->text.len;
    return WEFT_OK;
}

size_t wf_head_of(const char *text, size_t len) { return len ? WF_MAX(wf_utf8_len(text, len), (size_t)1) : 0; }

/* ---- normalisers ------------------------------------------------------------------------------ */

static weft_status put_char(wf_pieces *o, utf8proc_int32_t c)
{
    uint8_t buf[4];
    return put(o, (const char *)buf, (size_t)utf8proc_encode_char(c, buf));
}

static bool is_han(utf8proc_int32_t c)
{
    static const utf8proc_int32_t ranges[][2] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                                 {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                                 {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < WF_LEN(ranges); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

/* What a step of BERT's normaliser makes of a character of n bytes. */
static weft_status put_for_bert(const wf_step *s, const char *text, size_t n, utf8proc_int32_t c, wf_pieces *o)
{
    utf8proc_category_t k = utf8proc_category(c);
    bool other = k == UTF8PROC_CATEGORY_CN || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
                 k == UTF8PROC_CATEGORY_CS || k == UTF8PROC_CATEGORY_CO;
    bool space = c == '\t' || c == '\n' || c == '\r', han = s->kind == WF_STEP_SPACE_HAN && is_han(c);
    if (s->kind == WF_STEP_STRIP_MARKS && k == UTF8PROC_CATEGORY_MN) return WEFT_OK;
    if (s->kind == WF_STEP_CLEAN) {
        if (!c || c == 0xfffd || (other && !space)) return WEFT_OK;
        if (space || wf_space_at(text, n)) return put(o, " ", 1);
    }
    if (han) WF_TRY(put(o, " ", 1));
    WF_TRY(put(o, text, n));
    return han ? put(o, " ", 1) : WEFT_OK;
}

static weft_status each_char(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    for (size_t i = 0, n; i < len; i += n) {
        if (i == head) o->head = o->text.len;
        utf8proc_int32_t c;
        n = wf_utf8_len(text + i, len - i);
        if (!n) {
            WF_TRY(put(o, text + i, n = 1));
            continue;
        }
        utf8proc_iterate((const uint8_t *)text + i, (utf8proc_ssize_t)n, &c);
        utf8proc_category_t k = utf8proc_category(c);
        bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
        /* as Rust's char::to_lowercase: one character's own mapping, which for one of them is two */
        if (s->kind == WF_STEP_LOWER) WF_TRY(c == 0x130 ? put(o, "i\xcc\x87", 3) : put_char(o, utf8proc_tolower(c)));
        else if (s->kind != WF_STEP_STRIP_ACCENTS) WF_TRY(put_for_bert(s, text + i, n, c, o));
        else if (!mark) WF_TRY(put(o, text + i, n));
    }
    if (head >= len) o->head = o->text.len;
    return WEFT_OK;
}

/* The stretches of valid UTF-8 take the form, other bytes stay. */
static weft_status take_form(const wf_step *s, const char *text, size_t len, wf_pieces *o)
{
    for (size_t i = 0; i < len;) {
        size_t end = i, n;
        while (end < len && (n = wf_utf8_len(text + end, len - end))) end += n;
        if (end == i) {
            WF_TRY(put(o, text + i++, 1));
            continue;
        }
        uint8_t *mapped = NULL;
        utf8proc_ssize_t size = utf8proc_map((const uint8_t *)text + i, (utf8proc_ssize_t)(end - i), &mapped,
                                             (utf8proc_option_t)s->form);
        if (size < 0)
            return wf_fail(size == UTF8PROC_ERROR_NOMEM ? WEFT_ERR_NOMEM : WEFT_ERR_INTERNAL, "normalising text: %s",
                           utf8proc_errmsg(size));
        weft_status st = put(o, (const char *)mapped, (size_t)size);
        free(mapped);
        WF_TRY(st);
        i = end;
    }
    return WEFT_OK;
}

/* Bytes of the character, with the marks and joiners that belong to it, at the start of text. */
static size_t grapheme_at(const char *text, size_t len)
{
    utf8proc_int32_t c, next, state = 0;
    size_t at = wf_head_of(text, len), n;
    if (!wf_utf8_len(text, len)) return at;
    utf8proc_iterate((const uint8_t *)text, (utf8proc_ssize_t)at, &c);
    for (; (n = at < len ? wf_utf8_len(text + at, len - at) : 0); at += n, c = next) {
        utf8proc_iterate((const uint8_t *)text + at, (utf8proc_ssize_t)n, &next);
        if (utf8proc_grapheme_break_stateful(c, next, &state)) break;
    }
    return at;
}

static size_t count_chars(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i += WF_MAX(wf_utf8_len(text + i, len - i), (size_t)1)) n++;
    return n;
}

/* What n_old characters became, of which the first *left are the head: each stands for one of them, and those that are
 * more for the last one. Where text begins with what becomes nothing, what follows stands in its place. */
static weft_status put_mapped(wf_pieces *o, const char *to, size_t made, size_t n_old, size_t *left)
{
    for (size_t i = 0, k = 0, n; i < made; i += n, k++) {
        n = wf_head_of(to + i, made - i);
        WF_TRY(put(o, to + i, n));
        if (WF_MIN(k, n_old - 1) < *left) o->head = o->text.len;
    }
    if (o->text.len) *left -= WF_MIN(*left, n_old);
    return WEFT_OK;
}

/* As the library does, a short one with its marks first, then each character for itself. */
static weft_status map_chars(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    enum { SHORT = 5 };
    size_t left = count_chars(text, head);
    for (size_t at = 0, end; at < len; at = end) {
        size_t n, made;
        end = at + grapheme_at(text + at, len - at);
        const char *to = end - at > SHORT ? NULL : wf_charmap_find(s, text + at, end - at, &made);
        if (to) WF_TRY(put_mapped(o, to, made, count_chars(text + at, end - at), &left));
        for (size_t i = at; !to && i < end; i += n) {
            n = wf_head_of(text + i, end - i);
            const char *one = wf_charmap_find(s, text + i, n, &made);
            WF_TRY(put_mapped(o, one ? one : text + i, one ? made : n, 1, &left));
        }
    }
    return WEFT_OK;
}

/* The head has as many characters as it would have alone: one that joins it from behind becomes a part of its last one.
 */
static weft_status form(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    wf_pieces alone = {.limit = o->limit};
    weft_status st = take_form(s, text, len, o);
    if (!st && head) st = take_form(s, text, head, &alone);
    for (size_t n = st ? 0 : count_chars(alone.text.data, alone.text.len); n && o->head < o->text.len; n--)
        o->head += wf_head_of(o->text.data + o->head, o->text.len - o->head);
    wf_pieces_free(&alone);
    return st;
}

static weft_status strip(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    size_t begin = 0, n;
    while (s->left && begin < len && (n = wf_space_at(text + begin, len - begin))) begin += n;
    while (s->right && len > begin && (n = wf_space_before(text + begin, len - begin))) len -= n;
    o->head = head > begin ? WF_MIN(head, len) - begin : 0;
    return put(o, text + begin, len - begin);
}

/* ---- matches ------------------------------------------------------------------------------------ */

typedef struct range {
    size_t begin, end;
    bool match;
} range;

typedef struct finder { /* of a step in the pieces of a text */
    const wf_step *step;
    wf_matcher m;
    const char *text; /* or its subject, for a pattern */
    size_t from, to, done, at; /* the piece; what has been given out; where to look for the next match */
    wf_text_span match;        /* found, but not yet given out */
    bool found;
} finder;

/* *subject: that of the text, which is made if the step needs it and it is NULL; the caller's. */
static weft_status finder_open(finder *f, const wf_step *s, const char *text, size_t len, char **subject)
{
    *f = (finder){.step = s, .text = text, .to = len};
    if (!s->regex) return WEFT_OK;
    if (!*subject) *subject = wf_regex_subject(text, len);
    f->text = *subject;
    return f->text ? wf_matcher_open(&f->m, s->regex, len) : WEFT_ERR_NOMEM;
}

static weft_status next_match(finder *f, bool *found, wf_text_span *match)
{
    const char *find = f->step->find;
    if (f->step->regex) {
        WF_TRY(wf_regex_next(&f->m, f->text + f->from, f->to - f->from, f->at - f->from, found, &match->begin,
                             &match->end));
        match->begin += f->from, match->end += f->from;
        return WEFT_OK;
    }
    const char *p = *find ? memmem(f->text + f->at, f->to - f->at, find, strlen(find)) : NULL;
    *found = p != NULL;
    if (p) *match = (wf_text_span){(size_t)(p - f->text), (size_t)(p - f->text) + strlen(find)};
    return WEFT_OK;
}

/* The next match in the piece, or the stretch before it. An empty match cuts, unless it stands where the last one
 * ended. *more false: the piece is at its end. */
static weft_status next_range(finder *f, range *r, bool *more)
{
    while (!f->found && f->at <= f->to) {
        bool found = false;
        wf_text_span m = {0};
        WF_TRY(next_match(f, &found, &m));
        bool empty = m.begin == m.end, stale = empty && m.begin == f->done && m.begin > f->from;
        size_t behind = empty ? m.end + (m.end < f->to ? wf_head_of(f->text + m.end, f->to - m.end) : 1) : m.end;
        f->at = found ? behind : f->to + 1;
        f->found = found && !stale;
        if (f->found) f->match = m;
    }
    size_t next = f->found ? f->match.begin : f->to;
    bool match = f->found && f->done == next;
    *more = f->found || f->done < f->to;
    *r = (range){f->done, match ? f->match.end : next, match};
    f->done = r->end;
    if (match) f->found = false;
    return WEFT_OK;
}

static weft_status replace(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    finder f;
    range r;
    bool more = true;
    char *subject = NULL;
    weft_status st = finder_open(&f, s, text, len, &subject);
    while (!st && !(st = next_range(&f, &r, &more)) && more) {
        /* a stretch may be of the head in part, what replaces a match is where its end was */
        size_t cut = WF_MIN(WF_MAX(r.begin, head), r.end);
        if (r.match) st = put_from(o, s->text, strlen(s->text), r.end, head);
        else st = put_from(o, text + r.begin, cut - r.begin, cut, head);
        if (!st && !r.match) st = put(o, text + cut, r.end - cut);
    }
    wf_matcher_close(&f.m);
    free(subject);
    return st;
}

static weft_status prepend(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    size_t n = len ? strlen(s->text) : 0;
    WF_TRY(put(o, s->text, n));
    o->head = head ? n + head : 0;
    return put(o, text, len);
}

static weft_status normalise_one(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    WF_TRY(put(o, "", 0));
    switch (s->kind) {
    case WF_STEP_FORM: return form(s, text, len, head, o);
    case WF_STEP_STRIP: return strip(s, text, len, head, o);
    case WF_STEP_REPLACE: return replace(s, text, len, head, o);
    case WF_STEP_PREPEND: return prepend(s, text, len, head, o);
    case WF_STEP_MAP: return map_chars(s, text, len, head, o);
    default: return each_char(s, text, len, head, o);
    }
}

weft_status wf_normalise(const wf_steps *steps, const char *text, size_t len, char **out, size_t *out_len, size_t *head)
{
    wf_pieces at = {.limit = limit_of(len), .head = *head};
    weft_status st = put(&at, text, len);
    for (size_t i = 0; i < steps->n && !st; i++) {
        wf_pieces next = {.limit = at.limit};
        st = normalise_one(&steps->v[i], at.text.data, at.text.len, at.head, &next);
        free(at.text.data);
        at = next;
    }
    if (st) return free(at.text.data), st;
    *out = at.text.data, *out_len = at.text.len, *head = at.head;
    return WEFT_OK;
}

/* ---- splitting ----------------------------------------------------------------------------------- */

/* Pieces of one piece. */
static weft_status split_piece(finder *f, wf_pieces *out)
{
    enum wf_split how = f->step->split;
    size_t first = out->n;
    bool previous = false, wide = false; /* was the last range a match, and not empty? */
    for (range r; f->done < f->to; wide = r.end > r.begin) { /* an empty match at the end cuts nothing */
        bool more, before = previous;
        WF_TRY(next_range(f, &r, &more));
        bool match = previous = r.match ^ f->step->invert;
        if (how == WF_SPLIT_REMOVED && match) continue;
        bool join = how == WF_SPLIT_CONTIGUOUS      ? match == before
                    : how == WF_SPLIT_WITH_PREVIOUS ? match && !before
                                                    : how == WF_SPLIT_WITH_NEXT && !match && before && wide;
        if (join && out->n > first && out->v[out->n - 1].end == r.begin) out->v[out->n - 1].end = r.end;
        else WF_TRY(cut(out, r.begin, r.end));
    }
    return WEFT_OK;
}

static weft_status split(const wf_step *s, wf_pieces *in, wf_pieces *out)
{
    finder f;
    weft_status st = finder_open(&f, s, in->text.data, in->text.len, &in->subject);
    for (size_t i = 0; i < in->n && !st; i++) {
        f.from = f.done = f.at = in->v[i].begin, f.to = in->v[i].end, f.found = false;
        st = split_piece(&f, out);
    }
    wf_matcher_close(&f.m);
    out->head = in->head;
    out->text = in->text, in->text = (wf_text){0}; /* it stays as it is */
    out->subject = in->subject, in->subject = NULL;
    return st;
}

/* ---- pieces that are rewritten -------------------------------------------------------------------- */

static bool starts_with(const char *text, size_t len, const char *what)
{
    size_t n = strlen(what);
    return len >= n && !memcmp(text, what, n);
}

/* Every mark but the first byte begins a new piece. */
static weft_status cut_at_marks(wf_pieces *o, size_t begin, const char *mark)
{
    for (size_t at = begin + 1; at < o->text.len; at++) {
        if (!starts_with(o->text.data + at, o->text.len - at, mark)) continue;
        WF_TRY(cut(o, begin, at));
        begin = at;
    }
    return cut(o, begin, o->text.len);
}

static weft_status metaspace(const wf_step *s, const wf_pieces *in, wf_pieces *o)
{
    size_t n = strlen(s->text);
    for (size_t i = 0; i < in->n; i++) {
        size_t begin = o->text.len, at = in->v[i].begin, len = in->v[i].end - at;
        const char *text = in->text.data + at;
        bool has = starts_with(text, len, " ") || starts_with(text, len, s->text);
        bool add = !has && (s->always || (s->first && at < in->head));
        if (add) WF_TRY(put(o, s->text, n));
        for (size_t k = 0; k < len; k++)
            WF_TRY(text[k] == ' ' ? put_from(o, s->text, n, at + k + 1, in->head)
                                  : put_from(o, text + k, 1, at + k + 1, in->head));
        WF_TRY(s->cut ? cut_at_marks(o, begin, s->text) : cut(o, begin, o->text.len));
    }
    return WEFT_OK;
}

static weft_status bytes(const wf_pieces *in, wf_pieces *o)
{
    uint16_t chars[256];
    wf_byte_chars(chars);
    for (size_t i = 0; i < in->n; i++) {
        size_t begin = o->text.len;
        for (size_t k = in->v[i].begin; k < in->v[i].end; k++) {
            WF_TRY(put_char(o, chars[(uint8_t)in->text.data[k]]));
            if (k < in->head) o->head = o->text.len;
        }
        WF_TRY(cut(o, begin, o->text.len));
    }
    return WEFT_OK;
}

weft_status wf_pretokenise(const wf_steps *steps, const char *text, size_t len, size_t head, wf_pieces *out)
{
    *out = (wf_pieces){.limit = limit_of(len), .head = head};
    weft_status st = put(out, text, len);
    if (!st) st = cut(out, 0, len);
    wf_pieces spare = {0};
    for (size_t i = 0; i < steps->n && !st; i++) {
        const wf_step *s = &steps->v[i];
        wf_pieces next = {.limit = out->limit, .v = spare.v, .cap = spare.cap};
        if (s->kind == WF_STEP_SPLIT) st = split(s, out, &next);
        else st = s->kind == WF_STEP_METASPACE ? metaspace(s, out, &next) : bytes(out, &next);
        spare = (wf_pieces){.v = out->v, .cap = out->cap};
        out->v = NULL;
        wf_pieces_free(out);
        *out = next;
    }
    wf_pieces_free(&spare);
    return st;
}
