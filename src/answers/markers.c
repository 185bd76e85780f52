/* markers: see the header. */
#include "answers/markers.h"

#include <string.h>

#define PIECE 4096

bool wf_slice_is(wf_slice s, const char *word) { return s.n == strlen(word) && !memcmp(s.p, word, s.n); }

void wf_held_drop(wf_text *held, size_t n)
{
    held->len -= n;
    if (n) memmove(held->data, held->data + n, held->len);
}

bool wf_held_add(wf_text *held, const char **text, size_t *len)
{
    size_t n = WF_MIN(*len, (size_t)PIECE);
    if (!n || held->failed) return false;
    while (n < *len && n > 1 && ((unsigned char)(*text)[n] & 0xC0) == 0x80) n--; /* no part of a character */
    wf_text_add(held, *text, n);
    *text += n, *len -= n;
    return !held->failed;
}

void wf_list_name(char *list, size_t cap, const char *name)
{
    size_t n = strlen(list);
    wf_copy(list + n, cap - n, n ? ", " : "");
    n += strlen(list + n);
    wf_copy(list + n, cap - n, name);
}

bool wf_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

wf_slice wf_trim(wf_slice s)
{
    while (s.n && wf_is_blank(*s.p)) s.p++, s.n--;
    while (s.n && wf_is_blank(s.p[s.n - 1])) s.n--;
    return s;
}

size_t wf_skip_blanks(wf_slice text, size_t at)
{
    while (at < text.n && wf_is_blank(text.p[at])) at++;
    return at;
}

enum wf_found wf_look(wf_slice text, size_t at, const char *marker)
{
    size_t n = strlen(marker), left = text.n - at;
    if (left && memcmp(text.p + at, marker, WF_MIN(n, left))) return WF_NO;
    return left < n ? WF_PARTLY : WF_YES;
}

enum wf_found wf_pass(wf_slice text, size_t *at, const char *marker)
{
    size_t p = wf_is_blank(*marker) ? *at : wf_skip_blanks(text, *at);
    if (p - *at > WF_MAX_BLANKS) return WF_NO;
    enum wf_found f = wf_look(text, p, marker);
    if (f == WF_YES) *at = p + strlen(marker);
    return f;
}
