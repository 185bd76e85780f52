/* text: what filters and methods make of strings: other cases, replacements, lines. Each byte keeps the origin of the
 * character it comes from. */
#include "jinja/internal.h"

#include <utf8proc.h>

/* ---- cases -------------------------------------------------------------------------------------------- */

static bool is_cased(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static uint32_t other_case(uint32_t c, bool upper, bool title)
{
    utf8proc_int32_t u = (utf8proc_int32_t)c;
    return (uint32_t)(upper ? (title ? utf8proc_totitle(u) : utf8proc_toupper(u)) : utf8proc_tolower(u));
}

static const struct {
    uint32_t c;
    const char *upper, *title;
} special[] = {
#define X(c, upper, title) {c, upper, title},
#include "jinja/casing.def"
#undef X
};

/* What the character becomes where that is several; NULL: it is one. Sorted by character. */
static const char *several(uint32_t c, bool upper, bool title)
{
    size_t lo = 0, hi = WF_LEN(special);
    if (!upper) return c == 0x130 ? "i\xcc\x87" : NULL;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (special[mid].c < c) lo = mid + 1;
        else hi = mid;
    }
    if (lo == WF_LEN(special) || special[lo].c != c) return NULL;
    return title ? special[lo].title : special[lo].upper;
}

/* The character at `at` of from, c, in another case. */
static void add_cased(wf_jbuf *b, wf_jstr from, size_t at, uint32_t c, bool upper, bool title)
{
    char one[4];
    const char *text = several(c, upper, title);
    size_t n = text ? strlen(text) : wf_jchar_put(other_case(c, upper, title), one);
    wf_jbuf_add(b, text ? text : one, n, from.marks ? from.marks[at] : from.data);
}

wf_jstr wf_jstr_case(wf_jrun *r, wf_jstr s, enum wf_jcase how)
{
    wf_jbuf b = {.r = r};
    bool inside = false; /* behind a cased character */
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c = wf_jchar(s.p + at, &n);
        bool first = how == WF_JCAPITALIZE ? !at : !inside;
        bool upper = how == WF_JUPPER || (how != WF_JLOWER && first);
        inside = is_cased(c);
        add_cased(&b, s, at, c, upper, how != WF_JUPPER);
    }
    return wf_jbuf_take(&b);
}

static bool begins_word(uint32_t c)
{
    return wf_jspace(c) || (c < 128 && c && strchr("-({[<", (int)c));
}

wf_jstr wf_jstr_title(wf_jrun *r, wf_jstr s)
{
    wf_jbuf b = {.r = r};
    bool first = true;
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c = wf_jchar(s.p + at, &n);
        bool gap = begins_word(c);
        if (gap) wf_jbuf_str(&b, wf_jstr_sub(s, at, at + n));
        else add_cased(&b, s, at, c, first, false);
        first = gap;
    }
    return wf_jbuf_take(&b);
}

/* ---- replacements -------------------------------------------------------------------------------------- */

/* An empty text stands before each character and at the end. */
static wf_jstr insert_between(wf_jrun *r, wf_jstr s, wf_jstr to, int64_t count)
{
    wf_jbuf b = {.r = r};
    size_t at = 0, n = 0;
    for (; at < s.len && count; at += n, count -= count > 0) {
        wf_jchar(s.p + at, &n);
        wf_jbuf_str(&b, to);
        wf_jbuf_str(&b, wf_jstr_sub(s, at, at + n));
    }
    if (at == s.len && count) wf_jbuf_str(&b, to);
    wf_jbuf_str(&b, wf_jstr_sub(s, at, s.len));
    return wf_jbuf_take(&b);
}

wf_jstr wf_jstr_replace(wf_jrun *r, wf_jstr s, wf_jstr from, wf_jstr to, int64_t count)
{
    wf_jbuf b = {.r = r};
    size_t at = 0, found;
    wf_jstep(r, s.len / 64);
    if (!from.len) return insert_between(r, s, to, count);
    if (wf_jstr_find(s, from, 0) == SIZE_MAX) return s;
    for (; count && (found = wf_jstr_find(s, from, at)) != SIZE_MAX; at = found + from.len, count -= count > 0) {
        wf_jbuf_str(&b, wf_jstr_sub(s, at, found));
        wf_jbuf_str(&b, to);
    }
    wf_jbuf_str(&b, wf_jstr_sub(s, at, s.len));
    return wf_jbuf_take(&b);
}

/* ---- lines ----------------------------------------------------------------------------------------------- */

static bool ends_line(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool wf_jstr_line(wf_jstr s, size_t *at, wf_jstr *line, wf_jstr *end)
{
    size_t begin = *at, stop = begin, n = 0;
    if (begin >= s.len) return false;
    while (stop < s.len && !ends_line(wf_jchar(s.p + stop, &n))) stop += n;
    *at = stop < s.len ? stop + n : stop;
    if (stop + 1 < s.len && s.p[stop] == '\r' && s.p[stop + 1] == '\n') ++*at;
    *line = wf_jstr_sub(s, begin, stop);
    *end = wf_jstr_sub(s, stop, *at);
    return true;
}
