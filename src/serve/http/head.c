/* head: the request line and the fields of a head, read by the grammar of RFC 9112 (sections 2, 3, 5 and 6) and RFC 9110 (5, 7)
 * and written in one form; frame.h says why. Whatever the grammar does not allow is refused. What it allows and two readers may
 * understand differently does not survive: blanks at the ends of lines and values, and a host in the target. */
#include "serve/http/frame.h"

#include <string.h>
#include <strings.h>

#define MAX_METHOD 32

typedef struct span { /* bytes of a line */
    const char *at;
    size_t n;
} span;

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

static bool is_token(span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_alnum((unsigned char)s.at[i]) && !is_one_of(s.at[i], "!#$%&'*+-.^_`|~")) return false;
    return s.n > 0;
}

static bool is(span s, const char *word)
{
    return s.n == strlen(word) && !strncasecmp(s.at, word, s.n);
}

static span trim(span s)
{
    while (s.n && is_blank(s.at[s.n - 1])) s.n--;
    while (s.n && is_blank(*s.at)) s.at++, s.n--;
    return s;
}

/* Cuts the part before the first `mark` from s, which keeps the rest; without one, all of it. */
static span cut(span *s, char mark)
{
    const char *end = s->n ? memchr(s->at, mark, s->n) : NULL;
    span first = {s->at, end ? (size_t)(end - s->at) : s->n};
    s->at += first.n + !!end;
    s->n -= first.n + !!end;
    return first;
}

static void add(wf_text *t, span s)
{
    wf_text_add(t, s.at, s.n);
}

/* ---- the request line ------------------------------------------------------------------------------------ */

/* Bytes of a URI (RFC 3986) that are alphanumeric, percent-encoded or in `set`. */
static bool is_uri(span s, const char *set)
{
    for (size_t i = 0; i < s.n; i++) {
        bool escape = s.at[i] == '%';
        if (escape && (s.n - i < 3 || !is_hex(s.at[i + 1]) || !is_hex(s.at[i + 2]))) return false;
        if (!escape && !is_alnum((unsigned char)s.at[i]) && !is_one_of(s.at[i], set)) return false;
    }
    return true;
}

/* host [":" port] */
static bool is_host(span s)
{
    const char *close = s.n && *s.at == '[' ? memchr(s.at, ']', s.n) : NULL;
    if (s.n && *s.at == '[' && !close) return false;
    span host = close ? (span){s.at + 1, (size_t)(close - s.at) - 1} : cut(&s, ':');
    if (close) { /* an IP literal, and the port behind it */
        s = (span){close + 1, s.n - host.n - 2};
        if (!host.n || !is_uri(host, ":.") || (s.n && *s.at != ':')) return false;
        cut(&s, ':');
    }
    for (size_t i = 0; i < s.n; i++)
        if (!is_digit(s.at[i])) return false;
    return close || is_uri(host, "-._~!$&'()*+,;=");
}

static const char *read_version(wf_frame *f, span v)
{
    bool formed = v.n == 8 && !memcmp(v.at, "HTTP/", 5) && is_digit(v.at[5]) && v.at[6] == '.' && is_digit(v.at[7]);
    if (!formed) return "400 the request line does not end in a version like HTTP/1.1";
    if (v.at[5] != '1') return "505 this server speaks HTTP/1.1";
    f->old = v.at[7] == '0';
    return NULL;
}

static const char *check_query(span target)
{
    size_t n = 0;
    cut(&target, '?');
    while (target.n) cut(&target, '&'), n++;
    return n > WF_FRAME_MAX_PARTS ? "400 the query has more than 100 arguments" : NULL;
}

/* The part of a target before its path, as in http://host:port/path; its host counts as the Host field. */
static const char *read_authority(wf_frame *f, span *target, span *host)
{
    span scheme = cut(target, ':');
    if (!(is(scheme, "http") || is(scheme, "https")) || target->n < 2 || memcmp(target->at, "//", 2))
        return "400 the target of the request is neither a path nor a http address";
    span rest = {target->at + 2, target->n - 2};
    *host = rest;
    for (host->n = 0; host->n < rest.n && !is_one_of(rest.at[host->n], "/?#"); host->n++) {
    }
    f->absolute = true;
    *target = (span){rest.at + host->n, rest.n - host->n};
    return host->n && is_host(*host) ? NULL : "400 the host in the target of the request is not valid";
}

static const char *read_target(wf_frame *f, span method, span target, span *host, span *path)
{
    bool asterisk = target.n == 1 && *target.at == '*' && is(method, "OPTIONS");
    const char *bad = asterisk || (target.n && *target.at == '/') ? NULL : read_authority(f, &target, host);
    if (!bad && !asterisk && !is_uri(target, "-._~!$&'()*+,;=:@/?"))
        bad = "400 the target of the request has characters that belong percent-encoded";
    *path = target;
    return bad ? bad : check_query(target);
}

const char *wf_head_request(wf_frame *f, const char *line, size_t n)
{
    span rest = {line, n}, host = {0}, path;
    while (rest.n && is_blank(rest.at[rest.n - 1])) rest.n--;
    span method = cut(&rest, ' '), target = cut(&rest, ' ');
    if (!is_token(method)) return "400 the request line does not begin with a method";
    if (method.n > MAX_METHOD) return "501 this method is not known";
    const char *bad = read_version(f, rest);
    if (!bad) bad = read_target(f, method, target, &host, &path);
    if (bad) return bad;
    add(&f->head, method);
    wf_text_print(&f->head, path.n && *path.at != '?' ? " " : " /");
    add(&f->head, path);
    wf_text_print(&f->head, " HTTP/1.%d\r\n", !f->old);
    if (!f->absolute) return NULL;
    wf_text_print(&f->head, "Host: ");
    add(&f->head, host);
    wf_text_print(&f->head, "\r\n");
    return NULL;
}

/* ---- fields with a meaning for the framing --------------------------------------------------------------- */

static const char *read_host(wf_frame *f, span value)
{
    if (f->n_hosts++) return "400 Host stands more than once";
    return is_host(value) ? NULL : "400 the Host header is not a valid host";
}

static const char *read_length(wf_frame *f, span value)
{
    static const char bad[] = "400 Content-Length is not a number of bytes";
    if (f->n_lengths++) return "400 Content-Length stands more than once";
    if (!value.n) return bad;
    for (size_t i = 0; i < value.n; i++) {
        if (!is_digit(value.at[i]) || f->length > (INT64_MAX - 9) / 10) return bad;
        f->length = f->length * 10 + (uint64_t)(value.at[i] - '0');
    }
    return NULL;
}

static const char *read_codings(wf_frame *f, span value)
{
    do {
        span coding = trim(cut(&value, ','));
        if (f->chunked) return "400 Transfer-Encoding has something behind chunked";
        f->n_codings++;
        f->chunked = is(coding, "chunked");
        f->unknown_coding |= !f->chunked;
    } while (value.n);
    return NULL;
}

static const char *read_connection(wf_frame *f, span value)
{
    while (value.n) {
        span option = trim(cut(&value, ','));
        if (option.n && !is_token(option)) return "400 the Connection header is not a list of words";
        f->close |= is(option, "close");
        f->keep_alive |= is(option, "keep-alive");
    }
    return NULL;
}

static const char *read_expect(wf_frame *f, span value)
{
    if (!is(value, "100-continue")) return "417 only 'Expect: 100-continue' is known";
    if (!f->old) wf_text_print(&f->head, "Expect: 100-continue\r\n");
    return NULL;
}

/* Nothing here uses cookies, and the library would spend its memory on them. */
static const char *read_cookies(wf_frame *f, span value)
{
    while (value.n) cut(&value, ';'), f->n_cookies++;
    return f->n_cookies > WF_FRAME_MAX_PARTS ? "431 there are more than 100 cookies" : NULL;
}

static const char *drop(wf_frame *f, span value)
{
    (void)f, (void)value;
    return NULL;
}

/* These are not copied, but written anew where they count. */
static const struct {
    const char *name;
    const char *(*read)(wf_frame *f, span value);
} special[] = {
    {"Content-Length", read_length}, {"Transfer-Encoding", read_codings}, {"Connection", read_connection},
    {"Expect", read_expect},         {"Cookie", read_cookies},            {WF_FRAME_REFUSED, drop},
};

/* ---- all fields ------------------------------------------------------------------------------------------ */

static const char *split_field(const char *line, size_t n, span *name, span *value)
{
    *value = (span){line, n};
    if (is_blank(*line)) return "400 a header is continued on a second line";
    *name = cut(value, ':');
    if (name->n == n) return "400 a line of the header has no colon";
    if (!is_token(*name)) return "400 the name of a header has characters that names do not have";
    *value = trim(*value);
    for (size_t i = 0; i < value->n; i++) {
        unsigned char c = (unsigned char)value->at[i];
        if ((c < ' ' && c != '\t') || c == 127) return "400 a header has control characters";
    }
    return NULL;
}

const char *wf_head_trailer(const char *line, size_t n)
{
    span name, value;
    return split_field(line, n, &name, &value);
}

const char *wf_head_field(wf_frame *f, const char *line, size_t n)
{
    span name, value;
    const char *bad = split_field(line, n, &name, &value);
    if (bad) return bad;
    for (size_t i = 0; i < WF_LEN(special); i++)
        if (is(name, special[i].name)) return special[i].read(f, value);
    bool host = is(name, "Host");
    if (host) bad = read_host(f, value);
    if (bad || (host && f->absolute)) return bad;
    add(&f->head, name);
    wf_text_print(&f->head, ": ");
    add(&f->head, value);
    wf_text_print(&f->head, "\r\n");
    return NULL;
}

static const char *check_framing(const wf_frame *f)
{
    if (!f->old && !f->n_hosts) return "400 HTTP/1.1 needs a Host header";
    if (!f->n_codings) return NULL;
    if (f->n_lengths) return "400 Content-Length and Transfer-Encoding exclude each other";
    if (f->old) return "400 HTTP/1.0 has no Transfer-Encoding";
    return f->unknown_coding ? "501 the only transfer coding that is known is chunked" : NULL;
}

const char *wf_head_end(wf_frame *f)
{
    const char *bad = check_framing(f);
    if (bad) return bad;
    f->close |= f->old && !f->keep_alive;
    if (f->chunked) wf_text_print(&f->head, "Transfer-Encoding: chunked\r\n");
    if (f->n_lengths) wf_text_print(&f->head, "Content-Length: %llu\r\n", (unsigned long long)f->length);
    if (f->close || f->old) wf_text_print(&f->head, "Connection: %s\r\n", f->close ? "close" : "keep-alive");
    wf_text_print(&f->head, "\r\n");
    return NULL;
}
