/* str: strings and their origin. A part of a string shares its bytes; what makes new ones adds to a wf_jbuf, piece by
 * piece. */
#include "jinja/internal.h"

#include <utf8proc.h>

static void grow(wf_jbuf *b, size_t more)
{
    if (b->cap - b->len > more) return;
    size_t cap = (b->len + more) * 3 / 2 + 64;
    char *p = wf_jalloc(b->r, cap, 1);
    uint8_t *marks = wf_jalloc(b->r, cap, 1);
    if (b->len) memcpy(p, b->p, b->len), memcpy(marks, b->marks, b->len);
    b->p = p, b->marks = marks, b->cap = cap;
}

void wf_jbuf_add(wf_jbuf *b, const char *p, size_t len, bool data)
{
    if (!len) return;
    wf_jstep(b->r, len / 64);
    grow(b, len);
    memcpy(b->p + b->len, p, len);
    memset(b->marks + b->len, data, len);
    b->len += len;
    b->n_data += data ? len : 0;
}

void wf_jbuf_str(wf_jbuf *b, wf_jstr s)
{
    size_t at = b->len;
    wf_jbuf_add(b, s.p, s.len, s.data);
    if (!s.marks || !s.len) return;
    memcpy(b->marks + at, s.marks, s.len);
    b->n_data -= s.data ? s.len : 0;
    for (size_t i = 0; i < s.len; i++) b->n_data += s.marks[i];
}

void wf_jbuf_text(wf_jbuf *b, const char *s) { wf_jbuf_add(b, s, strlen(s), false); }

wf_jstr wf_jbuf_take(wf_jbuf *b)
{
    bool mixed = b->n_data && b->n_data < b->len;
    return (wf_jstr){b->p ? b->p : "", mixed ? b->marks : NULL, b->len, b->n_data == b->len && b->len};
}

wf_jstr wf_jstr_of(const char *s) { return (wf_jstr){.p = s, .len = strlen(s)}; }

wf_jstr wf_jstr_sub(wf_jstr s, size_t begin, size_t end)
{
    end = WF_MIN(end, s.len);
    begin = WF_MIN(begin, end);
    return (wf_jstr){s.p + begin, s.marks ? s.marks + begin : NULL, end - begin, s.data};
}

bool wf_jstr_eq(wf_jstr a, wf_jstr b) { return a.len == b.len && !memcmp(a.p, b.p, a.len); }

bool wf_jstr_is(wf_jstr a, const char *b) { return wf_jstr_eq(a, wf_jstr_of(b)); }

int wf_jstr_cmp(wf_jstr a, wf_jstr b)
{
    int c = memcmp(a.p, b.p, WF_MIN(a.len, b.len));
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

bool wf_jstr_has_data(wf_jstr s) { return s.marks ? memchr(s.marks, 1, s.len) != NULL : s.data; }

size_t wf_jstr_find(wf_jstr s, wf_jstr what, size_t from)
{
    if (from > s.len) return SIZE_MAX;
    if (!what.len) return from;
    const char *at = memmem(s.p + from, s.len - from, what.p, what.len);
    return at ? (size_t)(at - s.p) : SIZE_MAX;
}

size_t wf_jstr_count(wf_jstr s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return n;
}

size_t wf_jstr_offset(wf_jstr s, size_t character)
{
    size_t i = 0;
    while (i < s.len && (character || ((uint8_t)s.p[i] & 0xC0) == 0x80))
        character -= ((uint8_t)s.p[i++] & 0xC0) != 0x80;
    return i;
}

uint32_t wf_jchar(const char *p, size_t *n)
{
    const uint8_t *u = (const uint8_t *)p;
    *n = u[0] < 0x80 ? 1 : u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    uint32_t c = *n == 1 ? u[0] : u[0] & (0x7Fu >> *n);
    for (size_t i = 1; i < *n; i++) c = c << 6 | (u[i] & 0x3F);
    return c;
}

size_t wf_jchar_put(uint32_t c, char out[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

bool wf_jspace(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool stripped(wf_jrun *r, wf_jstr s, const wf_jstr *chars, size_t at)
{
    size_t n;
    uint32_t c = wf_jchar(s.p + at, &n);
    if (chars) wf_jstep(r, chars->len / 64);
    return chars ? wf_jstr_find(*chars, wf_jstr_sub(s, at, at + n), 0) != SIZE_MAX : wf_jspace(c);
}

wf_jstr wf_jstr_strip(wf_jrun *r, wf_jstr s, const wf_jstr *chars, unsigned sides)
{
    size_t begin = 0, end = s.len, n;
    for (; sides & 1 && begin < end && stripped(r, s, chars, begin); begin += n) wf_jchar(s.p + begin, &n);
    while (sides & 2 && begin < end) {
        size_t at = end - 1;
        while (((uint8_t)s.p[at] & 0xC0) == 0x80) at--;
        if (!stripped(r, s, chars, at)) break;
        end = at;
    }
    return wf_jstr_sub(s, begin, end);
}
