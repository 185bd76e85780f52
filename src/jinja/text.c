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

/* Characters whose capitals are more than one character, and what they are in a title if that differs: those of
 * Unicode's SpecialCasing.txt without conditions. */
static const struct {
    uint32_t c;
    const char *upper, *title;
} special[] = {
    {0x00df, "SS", "Ss"}, {0x0149, "\312\274N"}, {0x01f0, "J\314\214"}, {0x0390, "\316\231\314\210\314\201"},
    {0x03b0, "\316\245\314\210\314\201"}, {0x0587, "\324\265\325\222", "\324\265\326\202"}, {0x1e96, "H\314\261"},
    {0x1e97, "T\314\210"}, {0x1e98, "W\314\212"}, {0x1e99, "Y\314\212"}, {0x1e9a, "A\312\276"},
    {0x1f50, "\316\245\314\223"}, {0x1f52, "\316\245\314\223\314\200"}, {0x1f54, "\316\245\314\223\314\201"},
    {0x1f56, "\316\245\314\223\315\202"}, {0x1f80, "\341\274\210\316\231", "\341\276\210"},
    {0x1f81, "\341\274\211\316\231", "\341\276\211"}, {0x1f82, "\341\274\212\316\231", "\341\276\212"},
    {0x1f83, "\341\274\213\316\231", "\341\276\213"}, {0x1f84, "\341\274\214\316\231", "\341\276\214"},
    {0x1f85, "\341\274\215\316\231", "\341\276\215"}, {0x1f86, "\341\274\216\316\231", "\341\276\216"},
    {0x1f87, "\341\274\217\316\231", "\341\276\217"}, {0x1f88, "\341\274\210\316\231", "\341\276\210"},
    {0x1f89, "\341\274\211\316\231", "\341\276\211"}, {0x1f8a, "\341\274\212\316\231", "\341\276\212"},
    {0x1f8b, "\341\274\213\316\231", "\341\276\213"}, {0x1f8c, "\341\274\214\316\231", "\341\276\214"},
    {0x1f8d, "\341\274\215\316\231", "\341\276\215"}, {0x1f8e, "\341\274\216\316\231", "\341\276\216"},
    {0x1f8f, "\341\274\217\316\231", "\341\276\217"}, {0x1f90, "\341\274\250\316\231", "\341\276\230"},
    {0x1f91, "\341\274\251\316\231", "\341\276\231"}, {0x1f92, "\341\274\252\316\231", "\341\276\232"},
    {0x1f93, "\341\274\253\316\231", "\341\276\233"}, {0x1f94, "\341\274\254\316\231", "\341\276\234"},
    {0x1f95, "\341\274\255\316\231", "\341\276\235"}, {0x1f96, "\341\274\256\316\231", "\341\276\236"},
    {0x1f97, "\341\274\257\316\231", "\341\276\237"}, {0x1f98, "\341\274\250\316\231", "\341\276\230"},
    {0x1f99, "\341\274\251\316\231", "\341\276\231"}, {0x1f9a, "\341\274\252\316\231", "\341\276\232"},
    {0x1f9b, "\341\274\253\316\231", "\341\276\233"}, {0x1f9c, "\341\274\254\316\231", "\341\276\234"},
    {0x1f9d, "\341\274\255\316\231", "\341\276\235"}, {0x1f9e, "\341\274\256\316\231", "\341\276\236"},
    {0x1f9f, "\341\274\257\316\231", "\341\276\237"}, {0x1fa0, "\341\275\250\316\231", "\341\276\250"},
    {0x1fa1, "\341\275\251\316\231", "\341\276\251"}, {0x1fa2, "\341\275\252\316\231", "\341\276\252"},
    {0x1fa3, "\341\275\253\316\231", "\341\276\253"}, {0x1fa4, "\341\275\254\316\231", "\341\276\254"},
    {0x1fa5, "\341\275\255\316\231", "\341\276\255"}, {0x1fa6, "\341\275\256\316\231", "\341\276\256"},
    {0x1fa7, "\341\275\257\316\231", "\341\276\257"}, {0x1fa8, "\341\275\250\316\231", "\341\276\250"},
    {0x1fa9, "\341\275\251\316\231", "\341\276\251"}, {0x1faa, "\341\275\252\316\231", "\341\276\252"},
    {0x1fab, "\341\275\253\316\231", "\341\276\253"}, {0x1fac, "\341\275\254\316\231", "\341\276\254"},
    {0x1fad, "\341\275\255\316\231", "\341\276\255"}, {0x1fae, "\341\275\256\316\231", "\341\276\256"},
    {0x1faf, "\341\275\257\316\231", "\341\276\257"}, {0x1fb2, "\341\276\272\316\231", "\341\276\272\315\205"},
    {0x1fb3, "\316\221\316\231", "\341\276\274"}, {0x1fb4, "\316\206\316\231", "\316\206\315\205"},
    {0x1fb6, "\316\221\315\202"}, {0x1fb7, "\316\221\315\202\316\231", "\316\221\315\202\315\205"},
    {0x1fbc, "\316\221\316\231", "\341\276\274"}, {0x1fc2, "\341\277\212\316\231", "\341\277\212\315\205"},
    {0x1fc3, "\316\227\316\231", "\341\277\214"}, {0x1fc4, "\316\211\316\231", "\316\211\315\205"},
    {0x1fc6, "\316\227\315\202"}, {0x1fc7, "\316\227\315\202\316\231", "\316\227\315\202\315\205"},
    {0x1fcc, "\316\227\316\231", "\341\277\214"}, {0x1fd2, "\316\231\314\210\314\200"},
    {0x1fd3, "\316\231\314\210\314\201"}, {0x1fd6, "\316\231\315\202"}, {0x1fd7, "\316\231\314\210\315\202"},
    {0x1fe2, "\316\245\314\210\314\200"}, {0x1fe3, "\316\245\314\210\314\201"}, {0x1fe4, "\316\241\314\223"},
    {0x1fe6, "\316\245\315\202"}, {0x1fe7, "\316\245\314\210\315\202"},
    {0x1ff2, "\341\277\272\316\231", "\341\277\272\315\205"}, {0x1ff3, "\316\251\316\231", "\341\277\274"},
    {0x1ff4, "\316\217\316\231", "\316\217\315\205"}, {0x1ff6, "\316\251\315\202"},
    {0x1ff7, "\316\251\315\202\316\231", "\316\251\315\202\315\205"}, {0x1ffc, "\316\251\316\231", "\341\277\274"},
    {0xfb00, "FF", "Ff"}, {0xfb01, "FI", "Fi"}, {0xfb02, "FL", "Fl"}, {0xfb03, "FFI", "Ffi"}, {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"}, {0xfb06, "ST", "St"}, {0xfb13, "\325\204\325\206", "\325\204\325\266"},
    {0xfb14, "\325\204\324\265", "\325\204\325\245"}, {0xfb15, "\325\204\324\273", "\325\204\325\253"},
    {0xfb16, "\325\216\325\206", "\325\216\325\266"}, {0xfb17, "\325\204\324\275", "\325\204\325\255"},
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
    return title && special[lo].title ? special[lo].title : special[lo].upper;
}

/* The character at `at` of from, c, in another case. */
static void add_cased(wf_jbuf *b, wf_jstr from, size_t at, uint32_t c, bool upper, bool title)
{
    char one[4];
    const char *text = several(c, upper, title);
    size_t n = text ? strlen(text) : wf_jchar_put(other_case(c, upper, title), one);
    wf_jbuf_add(b, text ? text : one, n, from.marks ? from.marks[at] : from.data);
}

static bool begins_word(uint32_t c) { return wf_jspace(c) || (c < 128 && c && strchr("-({[<", (int)c)); }

wf_jstr wf_jstr_case(wf_jrun *r, wf_jstr s, enum wf_jcase how)
{
    wf_jbuf b = {.r = r};
    bool first = true; /* of a word, or of all */
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c = wf_jchar(s.p + at, &n);
        bool upper = how == WF_JUPPER || (how != WF_JLOWER && first);
        add_cased(&b, s, at, c, upper, how == WF_JCAPITALIZE || how == WF_JTITLE);
        first = how == WF_JTITLE ? !is_cased(c) : how == WF_JWORDS && begins_word(c);
    }
    return wf_jbuf_take(&b);
}

bool wf_jchar_is(uint32_t c, int classes)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return (classes & WF_JLETTER && k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (classes & WF_JDIGIT && k == UTF8PROC_CATEGORY_ND) ||
           (classes & WF_JNUMBER && k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) ||
           (classes & WF_JSPACE && wf_jspace(c));
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
