/* steps: runs normalisers and pre-tokenizers. See steps.h. */
#include "text/steps.h"
#include "text/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void wf_steps_free(wf_steps *s)
{
    for (size_t i = 0; i < s->n; i++) {
        wf_regex_close(s->v[i].regex);
        free(s->v[i].find);
        free(s->v[i].text);
    }
    free(s->v);
    *s = (wf_steps){0};
}

void wf_pieces_free(wf_pieces *p)
{
    free(p->text);
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
    if (n > o->limit - o->len)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the steps of tokenizer.json make text longer than %zu bytes, beyond what any tokenizer needs",
                       o->limit);
    if (o->cap_text - o->len < n + 1) { /* one for a NUL */
        size_t cap = (o->len + n + 64) * 3 / 2;
        char *text = realloc(o->text, cap);
        if (!text)
            return wf_fail(WEFT_ERR_NOMEM, "out of host memory: a text of %zu bytes before tokenisation", o->len + n);
        o->text = text;
        o->cap_text = cap;
    }
    if (n) memcpy(o->text + o->len, p, n);
    o->text[o->len += n] = 0;
    return WEFT_OK;
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
    if (head && end <= head) o->head = o->len;
    return WEFT_OK;
}

size_t wf_head_of(const char *text, size_t len) { return len ? WF_MAX(wf_utf8_len(text, len), (size_t)1) : 0; }

/* ---- normalisers ------------------------------------------------------------------------------ */

static weft_status put_char(wf_pieces *o, utf8proc_int32_t c)
{
    uint8_t buf[4];
    return put(o, (const char *)buf, (size_t)utf8proc_encode_char(c, buf));
}

/* Rust's char::to_lowercase: one character's own mapping, which for one of them is two. */
static weft_status lower(wf_pieces *o, utf8proc_int32_t c)
{
    return c == 0x130 ? put(o, "i\xcc\x87", 3) : put_char(o, utf8proc_tolower(c));
}

static bool is_mark(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

static weft_status each_char(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    for (size_t i = 0, n; i < len; i += n) {
        if (i == head) o->head = o->len;
        utf8proc_int32_t c;
        n = wf_utf8_len(text + i, len - i);
        if (!n) {
            WF_TRY(put(o, text + i, n = 1));
            continue;
        }
        utf8proc_iterate((const uint8_t *)text + i, (utf8proc_ssize_t)n, &c);
        if (s->kind == WF_STEP_LOWER) WF_TRY(lower(o, c));
        else if (!is_mark(c)) WF_TRY(put(o, text + i, n));
    }
    if (head >= len) o->head = o->len;
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

static size_t count_chars(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i += WF_MAX(wf_utf8_len(text + i, len - i), (size_t)1)) n++;
    return n;
}

/* The head has as many characters as it would have alone: one that joins it from behind becomes a part of its last one.
 */
static weft_status form(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    wf_pieces alone = {.limit = o->limit};
    weft_status st = take_form(s, text, len, o);
    if (!st && head) st = take_form(s, text, head, &alone);
    for (size_t n = st ? 0 : count_chars(alone.text, alone.len); n && o->head < o->len; n--)
        o->head += wf_head_of(o->text + o->head, o->len - o->head);
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

typedef struct finder { /* of a step in one text */
    const wf_step *step;
    wf_matcher m;
    const char *text; /* or its subject, for a pattern */
    char *subject;
    size_t len;
} finder;

static weft_status finder_open(finder *f, const wf_step *s, const char *text, size_t len)
{
    *f = (finder){.step = s, .text = text, .len = len};
    if (!s->regex) return WEFT_OK;
    f->text = f->subject = wf_regex_subject(text, len);
    return f->subject ? wf_matcher_open(&f->m) : WEFT_ERR_NOMEM;
}

static void finder_close(finder *f)
{
    if (f->step->regex) wf_matcher_close(&f->m);
    free(f->subject);
}

/* The next match from `at` on in the piece that ends at `to` and begins at `from`; *found false: none. */
static weft_status next_match(const finder *f, size_t from, size_t to, size_t at, bool *found, size_t *start,
                              size_t *end)
{
    const char *find = f->step->find;
    if (f->step->regex) {
        WF_TRY(wf_regex_next(&f->m, f->step->regex, f->text + from, to - from, at - from, found, start, end));
        *start += from, *end += from;
        return WEFT_OK;
    }
    const char *p = *find ? memmem(f->text + at, to - at, find, strlen(find)) : NULL;
    *found = p != NULL;
    if (p) *start = (size_t)(p - f->text), *end = *start + strlen(find);
    return WEFT_OK;
}

/* Calls fn for every match and every stretch between them. An empty match cuts, unless it stands where the last one
 * ended. */
typedef weft_status range_fn(void *user, size_t begin, size_t end, bool match);
static weft_status each_range(const finder *f, size_t from, size_t to, range_fn *fn, void *user)
{
    size_t done = from, at = from, start = 0, end = 0;
    for (bool found = true; at <= to;) {
        WF_TRY(next_match(f, from, to, at, &found, &start, &end));
        if (!found) break;
        bool empty = start == end, stale = empty && start == done && start > from;
        if (!stale && start > done) WF_TRY(fn(user, done, start, false));
        if (!stale) WF_TRY(fn(user, start, end, true));
        if (!stale) done = end;
        at = empty ? end + WF_MAX(end < to ? wf_utf8_len(f->text + end, to - end) : 1, (size_t)1) : end;
    }
    return done < to ? fn(user, done, to, false) : WEFT_OK;
}

typedef struct replacing {
    wf_pieces *out;
    const wf_step *step;
    const char *text;
    size_t head;
} replacing;

static weft_status put_range(void *user, size_t begin, size_t end, bool match)
{
    const replacing *r = user;
    size_t cut = WF_MIN(WF_MAX(begin, r->head),
                        end); /* a stretch may be of the head in part, what replaces a match is where its end was */
    if (match) return put_from(r->out, r->step->text, strlen(r->step->text), end, r->head);
    WF_TRY(put_from(r->out, r->text + begin, cut - begin, cut, r->head));
    return put(r->out, r->text + cut, end - cut);
}

static weft_status replace(const wf_step *s, const char *text, size_t len, size_t head, wf_pieces *o)
{
    finder f;
    replacing r = {o, s, text, head};
    weft_status st = finder_open(&f, s, text, len);
    if (!st) st = each_range(&f, 0, len, put_range, &r);
    finder_close(&f);
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
    default: return each_char(s, text, len, head, o);
    }
}

weft_status wf_normalise(const wf_steps *steps, const char *text, size_t len, char **out, size_t *out_len, size_t *head)
{
    wf_pieces at = {.limit = limit_of(len), .head = *head};
    weft_status st = put(&at, text, len);
    for (size_t i = 0; i < steps->n && !st; i++) {
        wf_pieces next = {.limit = at.limit};
        st = normalise_one(&steps->v[i], at.text, at.len, at.head, &next);
        free(at.text);
        at = next;
    }
    if (st) return free(at.text), st;
    *out = at.text, *out_len = at.len, *head = at.head;
    return WEFT_OK;
}

/* ---- splitting ----------------------------------------------------------------------------------- */

typedef struct splitting {
    wf_pieces *out;
    const wf_step *step;
    size_t first;  /* piece of `out` that is the first one of the piece that is split */
    bool previous; /* was the last range a match? */
} splitting;

static weft_status add_range(void *user, size_t begin, size_t end, bool match)
{
    splitting *s = user;
    enum wf_split how = s->step->split;
    match ^= s->step->invert;
    bool previous = s->previous, any = s->out->n > s->first;
    s->previous = match;
    if (how == WF_SPLIT_REMOVED && match) return WEFT_OK;
    bool join = how == WF_SPLIT_CONTIGUOUS ? match == previous : how == WF_SPLIT_WITH_PREVIOUS && match && !previous;
    if (join && any && s->out->v[s->out->n - 1].end == begin) return s->out->v[s->out->n - 1].end = end, WEFT_OK;
    return cut(s->out, begin, end);
}

/* All ranges of a piece: WF_SPLIT_WITH_NEXT looks ahead. */
typedef struct range {
    size_t begin, end;
    bool match;
} range;
typedef struct ranges {
    range *v;
    size_t n, cap;
    bool invert;
} ranges;

static weft_status keep_range(void *user, size_t begin, size_t end, bool match)
{
    ranges *r = user;
    if (!wf_grow(&r->v, r->n, &r->cap, sizeof *r->v)) return WEFT_ERR_NOMEM;
    r->v[r->n++] = (range){begin, end, match ^ r->invert};
    return WEFT_OK;
}

static weft_status with_next(const finder *f, wf_text_span piece, wf_pieces *out)
{
    ranges r = {.invert = f->step->invert};
    weft_status st = each_range(f, piece.begin, piece.end, keep_range, &r);
    for (size_t i = 0; i < r.n && !st; i++) {
        size_t begin = r.v[i].begin;
        /* As from the right: a match joins its right neighbour where that is no match. */
        if (r.v[i].match && i + 1 < r.n && !r.v[i + 1].match) i++;
        st = cut(out, begin, r.v[i].end);
    }
    free(r.v);
    return st;
}

static weft_status split(const wf_step *s, const wf_pieces *in, wf_pieces *out)
{
    finder f;
    weft_status st = finder_open(&f, s, in->text, in->len);
    for (size_t i = 0; i < in->n && !st; i++) {
        splitting to = {out, s, out->n, false};
        if (s->split == WF_SPLIT_WITH_NEXT) st = with_next(&f, in->v[i], out);
        else st = each_range(&f, in->v[i].begin, in->v[i].end, add_range, &to);
    }
    finder_close(&f);
    out->head = in->head;
    return st ? st : put(out, in->text, in->len);
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
    for (size_t at = begin + 1; at < o->len; at++) {
        if (!starts_with(o->text + at, o->len - at, mark)) continue;
        WF_TRY(cut(o, begin, at));
        begin = at;
    }
    return cut(o, begin, o->len);
}

static weft_status metaspace(const wf_step *s, const wf_pieces *in, wf_pieces *o)
{
    size_t n = strlen(s->text);
    for (size_t i = 0; i < in->n; i++) {
        size_t begin = o->len, at = in->v[i].begin, len = in->v[i].end - at;
        const char *text = in->text + at;
        bool has = starts_with(text, len, " ") || starts_with(text, len, s->text);
        bool add = !has && (s->always || (s->first && at < in->head));
        if (add) WF_TRY(put(o, s->text, n));
        for (size_t k = 0; k < len; k++)
            WF_TRY(text[k] == ' ' ? put_from(o, s->text, n, at + k + 1, in->head)
                                  : put_from(o, text + k, 1, at + k + 1, in->head));
        WF_TRY(s->cut ? cut_at_marks(o, begin, s->text) : cut(o, begin, o->len));
    }
    return WEFT_OK;
}

static weft_status bytes(const wf_pieces *in, wf_pieces *o)
{
    uint16_t chars[256];
    wf_byte_chars(chars);
    for (size_t i = 0; i < in->n; i++) {
        size_t begin = o->len;
        for (size_t k = in->v[i].begin; k < in->v[i].end; k++) {
            WF_TRY(put_char(o, chars[(uint8_t)in->text[k]]));
            if (k < in->head) o->head = o->len;
        }
        WF_TRY(cut(o, begin, o->len));
    }
    return WEFT_OK;
}

weft_status wf_pretokenise(const wf_steps *steps, const char *text, size_t len, size_t head, wf_pieces *out)
{
    *out = (wf_pieces){.limit = limit_of(len), .head = head};
    weft_status st = put(out, text, len);
    if (!st) st = cut(out, 0, len);
    for (size_t i = 0; i < steps->n && !st; i++) {
        const wf_step *s = &steps->v[i];
        wf_pieces next = {.limit = out->limit};
        if (s->kind == WF_STEP_SPLIT) st = split(s, out, &next);
        else st = s->kind == WF_STEP_METASPACE ? metaspace(s, out, &next) : bytes(out, &next);
        wf_pieces_free(out);
        *out = next;
    }
    return st;
}
