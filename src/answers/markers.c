/* markers: see the header. */
#include "answers/markers.h"

#include <string.h>

bool wf_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

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
