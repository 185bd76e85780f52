/* json_scan: walks through JSON text where it stands, without a tree: what a model writes is taken as it is, byte for byte, and the reader
 * of bodies (reader.c) is for one text at a time. As strict as that: RFC 8259, no NUL in strings, a limited depth. */
#include "answers/json_scan.h"

#include <string.h>

#define MAX_DEPTH 64

static const char *value(const char *p, const char *end, unsigned depth);

static const char *blank(const char *p, const char *end)
{
    while (p < end && strchr(" \t\r\n", *p) && *p) p++;
    return p;
}

static const char *word(const char *p, const char *end, const char *w)
{
    size_t n = strlen(w);
    return (size_t)(end - p) >= n && !memcmp(p, w, n) ? p + n : NULL;
}

static const char *digits(const char *p, const char *end)
{
    const char *from = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p > from ? p : NULL;
}

static const char *number(const char *p, const char *end)
{
    p += *p == '-';
    const char *first = p;
    if (!(p = digits(p, end)) || (*first == '0' && p > first + 1)) return NULL;
    if (p < end && *p == '.' && !(p = digits(p + 1, end))) return NULL;
    if (p == end || (*p != 'e' && *p != 'E')) return p;
    p++;
    if (p < end && (*p == '+' || *p == '-')) p++;
    return digits(p, end);
}

/* Behind a backslash. */
static const char *escape(const char *p, const char *end)
{
    if (p == end || !*p || !strchr("\"\\/bfnrtu", *p)) return NULL;
    if (*p++ != 'u') return p;
    for (int i = 0; i < 4; i++)
        if (p + i >= end || !p[i] || !strchr("0123456789abcdefABCDEF", p[i])) return NULL;
    return memcmp(p, "0000", 4) ? p + 4 : NULL;
}

/* Behind the first quote. */
static const char *string(const char *p, const char *end)
{
    while (p && p < end && *p != '"') {
        if ((unsigned char)*p < 0x20) return NULL;
        p = *p == '\\' ? escape(p + 1, end) : p + 1;
    }
    return p && p < end ? p + 1 : NULL;
}

static const char *name_and_colon(const char *p, const char *end)
{
    p = blank(p, end);
    if (p == end || *p != '"' || !(p = string(p + 1, end))) return NULL;
    p = blank(p, end);
    return p < end && *p == ':' ? p + 1 : NULL;
}

/* A list or an object, behind its bracket. */
static const char *members(const char *p, const char *end, char close, unsigned depth)
{
    p = blank(p, end);
    if (p < end && *p == close) return p + 1;
    for (;; p++) {
        if (close == '}' && !(p = name_and_colon(p, end))) return NULL;
        if (!(p = value(p, end, depth))) return NULL;
        p = blank(p, end);
        if (p < end && *p == close) return p + 1;
        if (p == end || *p != ',') return NULL;
    }
}

static const char *value(const char *p, const char *end, unsigned depth)
{
    p = blank(p, end);
    if (p == end || depth > MAX_DEPTH) return NULL;
    switch (*p) {
    case '{': return members(p + 1, end, '}', depth + 1);
    case '[': return members(p + 1, end, ']', depth + 1);
    case '"': return string(p + 1, end);
    case 't': return word(p, end, "true");
    case 'f': return word(p, end, "false");
    case 'n': return word(p, end, "null");
    default: return number(p, end);
    }
}

const char *wf_json_end(const char *p, const char *end)
{
    return value(p, end, 0);
}

bool wf_json_whole(const char *p, size_t len)
{
    const char *end = wf_json_end(p, p + len);
    return end && blank(end, p + len) == p + len;
}

/* A value that is known to be valid. */
static wf_slice take(const char **at, const char *end)
{
    const char *from = blank(*at, end);
    *at = wf_json_end(from, end);
    return (wf_slice){from, (size_t)(*at - from)};
}

bool wf_json_next(const char **at, const char *end, wf_slice *name, wf_slice *out)
{
    const char *p = blank(*at, end);
    if (p < end && *p == ',') p = blank(p + 1, end);
    *at = p;
    if (p == end || *p == ']' || *p == '}') return false;
    if (name) {
        *name = take(at, end);
        *name = (wf_slice){name->p + 1, name->n - 2};
        *at = blank(*at, end) + 1;
    }
    *out = take(at, end);
    return true;
}
