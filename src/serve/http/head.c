/* head: the request line and the fields of a head, read by the grammar of RFC 9112 (sections 2, 3, 5 and 6) and RFC
 * 9110 (5, 7). Whatever the grammar does not allow is refused. */
#include "serve/http/frame.h"

#include <string.h>
#include <strings.h>

#define MAX_METHOD 32
#define DIGITS     "0123456789"
#define ALNUM      DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static bool is_of(wf_slice s, const char *set)
{
    for (size_t i = 0; i < s.n; i++)
        if (!s.p[i] || !strchr(set, s.p[i])) return false;
    return true;
}

static bool is_token(wf_slice s) { return s.n && is_of(s, ALNUM "!#$%&'*+-.^_`|~"); }

/* A URI (RFC 3986), or a part of one, of bytes that are alphanumeric, percent-encoded or in `set`. */
static bool is_uri(wf_slice s, const char *set)
{
    for (size_t i = 0; i < s.n; i++) {
        bool escape = s.p[i] == '%';
        if (escape && (s.n - i < 3 || !is_of((wf_slice){s.p + i + 1, 2}, DIGITS "ABCDEFabcdef"))) return false;
        if (!escape && !is_of((wf_slice){s.p + i, 1}, ALNUM) && !is_of((wf_slice){s.p + i, 1}, set)) return false;
    }
    return true;
}

static bool slice_is(wf_slice s, const char *word) { return s.n == strlen(word) && !strncasecmp(s.p, word, s.n); }

static wf_slice trim_blanks(wf_slice s)
{
    while (s.n && is_blank(s.p[s.n - 1])) s.n--;
    while (s.n && is_blank(*s.p)) s.p++, s.n--;
    return s;
}

/* Cuts the part before the first `mark` from s, which keeps the rest; without one, all of it. */
static wf_slice cut_at(wf_slice *s, char mark)
{
    const char *end = s->n ? memchr(s->p, mark, s->n) : NULL;
    wf_slice first = {s->p, end ? (size_t)(end - s->p) : s->n};
    s->p += first.n + !!end;
    s->n -= first.n + !!end;
    return first;
}

static size_t count_parts(wf_slice s, char mark)
{
    size_t n = 0;
    for (; s.n; n++) cut_at(&s, mark);
    return n;
}

/* One more text of the head. */
static void add_text(wf_frame *f, wf_slice s)
{
    wf_text_add(&f->head, s.p, s.n);
    wf_text_add(&f->head, "", 1);
}

/* ---- the request line ------------------------------------------------------------------------------------ */

/* host [":" port] */
static bool is_host(wf_slice s)
{
    const char *close = s.n && *s.p == '[' ? memchr(s.p, ']', s.n) : NULL;
    if (s.n && *s.p == '[' && !close) return false;
    wf_slice host = close ? (wf_slice){s.p + 1, (size_t)(close - s.p) - 1} : cut_at(&s, ':');
    if (close) { /* an IP literal, and the port behind it */
        s = (wf_slice){close + 1, s.n - host.n - 2};
        if (!host.n || !is_uri(host, ":.") || (s.n && *s.p != ':')) return false;
        cut_at(&s, ':');
    }
    return is_of(s, DIGITS) && (close || is_uri(host, "-._~!$&'()*+,;="));
}

static const char *read_version(wf_frame *f, wf_slice v)
{
    bool formed = v.n == 8 && !memcmp(v.p, "HTTP/", 5) && v.p[6] == '.' && is_of((wf_slice){v.p + 5, 1}, DIGITS) &&
                  is_of((wf_slice){v.p + 7, 1}, DIGITS);
    if (!formed) return "400 the request line does not end in a version like HTTP/1.1";
    if (v.p[5] != '1') return "505 this server speaks HTTP/1.1";
    f->old = v.p[7] == '0';
    return NULL;
}

/* Takes the part of a target before its path, as in http://host:port/path; its host counts as the Host field. */
static const char *read_authority(wf_frame *f, wf_slice *target, wf_slice *host)
{
    wf_slice scheme = cut_at(target, ':');
    if (!(slice_is(scheme, "http") || slice_is(scheme, "https")) || target->n < 2 || memcmp(target->p, "//", 2))
        return "400 the target of the request is neither a path nor a http address";
    *host = (wf_slice){target->p + 2, 0};
    while (host->n + 2 < target->n && !is_of((wf_slice){host->p + host->n, 1}, "/?#")) host->n++;
    f->absolute = true;
    *target = (wf_slice){host->p + host->n, target->n - 2 - host->n};
    return host->n && is_host(*host) ? NULL : "400 the host in the target of the request is not valid";
}

const char *wf_head_request(wf_frame *f, const char *line, size_t n)
{
    wf_slice rest = {line, n}, host = {0};
    while (rest.n && is_blank(rest.p[rest.n - 1])) rest.n--;
    wf_slice method = cut_at(&rest, ' '), query = cut_at(&rest, ' ');
    if (!is_token(method)) return "400 the request line does not begin with a method";
    if (method.n > MAX_METHOD) return "501 this method is not known";
    const char *bad = read_version(f, rest);
    bool asterisk = slice_is(query, "*") && slice_is(method, "OPTIONS");
    if (!bad && !asterisk && !(query.n && *query.p == '/')) bad = read_authority(f, &query, &host);
    if (bad) return bad;
    if (!asterisk && !is_uri(query, "-._~!$&'()*+,;=:@/?"))
        return "400 the target of the request has characters that belong percent-encoded";
    wf_slice path = cut_at(&query, '?');
    if (count_parts(query, '&') > WF_FRAME_MAX_PARTS) return "400 the query has more than 100 arguments";
    add_text(f, method);
    add_text(f, path.n ? path : (wf_slice){"/", 1});
    if (f->absolute) add_text(f, (wf_slice){"Host", 4}), add_text(f, host);
    return NULL;
}

/* ---- fields with a meaning for the framing --------------------------------------------------------------- */

static const char *read_length(wf_frame *f, wf_slice value)
{
    if (f->n_lengths++) return "400 Content-Length stands more than once";
    bool good = value.n && is_of(value, DIGITS);
    for (size_t i = 0; good && i < value.n; i++) {
        good = f->length <= (INT64_MAX - 9) / 10;
        f->length = f->length * 10 + (uint64_t)(value.p[i] - '0');
    }
    return good ? NULL : "400 Content-Length is not a number of bytes";
}

static const char *read_codings(wf_frame *f, wf_slice value)
{
    do {
        wf_slice coding = trim_blanks(cut_at(&value, ','));
        if (f->chunked) return "400 Transfer-Encoding has something behind chunked";
        f->n_codings++;
        f->chunked = slice_is(coding, "chunked");
        f->unknown_coding |= !f->chunked;
    } while (value.n);
    return NULL;
}

static const char *read_connection(wf_frame *f, wf_slice value)
{
    while (value.n) {
        wf_slice option = trim_blanks(cut_at(&value, ','));
        if (option.n && !is_token(option)) return "400 the Connection header is not a list of words";
        f->close |= slice_is(option, "close");
        f->keep_alive |= slice_is(option, "keep-alive");
    }
    return NULL;
}

static const char *read_expect(wf_frame *f, wf_slice value)
{
    f->expects = !f->old;
    return slice_is(value, "100-continue") ? NULL : "417 only 'Expect: 100-continue' is known";
}

static const char *read_cookies(wf_frame *f, wf_slice value)
{
    f->n_cookies += count_parts(value, ';');
    return f->n_cookies > WF_FRAME_MAX_PARTS ? "431 there are more than 100 cookies" : NULL;
}

/* These are not kept: they count here, or for nothing. */
static const struct {
    const char *name;
    const char *(*read)(wf_frame *f, wf_slice value);
} special[] = {
    {"Content-Length", read_length}, {"Transfer-Encoding", read_codings}, {"Connection", read_connection},
    {"Expect", read_expect},         {"Cookie", read_cookies},
};

/* ---- all fields ------------------------------------------------------------------------------------------ */

static const char *split_field(const char *line, size_t n, wf_slice *name, wf_slice *value)
{
    *value = (wf_slice){line, n};
    if (is_blank(*line)) return "400 a header is continued on a second line";
    *name = cut_at(value, ':');
    if (name->n == n) return "400 a line of the header has no colon";
    if (!is_token(*name)) return "400 the name of a header has characters that names do not have";
    *value = trim_blanks(*value);
    for (size_t i = 0; i < value->n; i++) {
        unsigned char c = (unsigned char)value->p[i];
        if ((c < ' ' && c != '\t') || c == 127) return "400 a header has control characters";
    }
    return NULL;
}

const char *wf_head_trailer(const char *line, size_t n)
{
    wf_slice name, value;
    return split_field(line, n, &name, &value);
}

const char *wf_head_field(wf_frame *f, const char *line, size_t n)
{
    wf_slice name, value;
    const char *bad = split_field(line, n, &name, &value);
    if (bad) return bad;
    for (size_t i = 0; i < WF_LEN(special); i++)
        if (slice_is(name, special[i].name)) return special[i].read(f, value);
    bool host = slice_is(name, "Host");
    if (host && f->n_hosts++) return "400 Host stands more than once";
    if (host && !is_host(value)) return "400 the Host header is not a valid host";
    if (host && f->absolute) return NULL;
    add_text(f, name);
    add_text(f, value);
    return NULL;
}

const char *wf_head_end(wf_frame *f)
{
    f->close |= f->old && !f->keep_alive;
    wf_text_add(&f->head, "", 1);
    if (!f->old && !f->n_hosts) return "400 HTTP/1.1 needs a Host header";
    if (!f->n_codings) return NULL;
    if (f->n_lengths) return "400 Content-Length and Transfer-Encoding exclude each other";
    if (f->old) return "400 HTTP/1.0 has no Transfer-Encoding";
    return f->unknown_coding ? "501 the only transfer coding that is known is chunked" : NULL;
}
