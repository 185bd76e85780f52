/* fuzz_frame: libFuzzer target. The input is what a client sends, behind a byte that says how it is divided. What the
 * frame says of it must be the same for any division. Written anew as requests, it must be read in one way only by the
 * plain reader here, and by the frame itself. */
#include <string.h>
#include <strings.h>

#include "fuzz_serve.h"
#include "serve/http/frame.h"

#define CHECK(x) ((x) ? (void)0 : abort())
#define REFUSED  "Refused: " /* in what is written here */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the frame ------------------------------------------------------------------------------------ */

/* Request line, fields, and those of the framing. */
static void write_head(const wf_frame *f, wf_text *out)
{
    const char *at = f->head.data, *path = at + strlen(at) + 1;
    wf_text_add(out, at, strlen(at));
    wf_text_add(out, " ", 1);
    wf_text_add(out, path, strlen(path));
    wf_text_print(out, " HTTP/1.%d\r\n", !f->old);
    for (at = path + strlen(path) + 1; *at;) {
        wf_text_add(out, at, strlen(at));
        wf_text_add(out, ": ", 2);
        at += strlen(at) + 1;
        wf_text_add(out, at, strlen(at));
        wf_text_add(out, "\r\n", 2);
        at += strlen(at) + 1;
    }
    CHECK(at + 1 == f->head.data + f->head.len);
    CHECK(!f->chunked || !f->length);
    if (f->expects) wf_text_print(out, "Expect: 100-continue\r\n");
    if (f->chunked) wf_text_print(out, "Transfer-Encoding: chunked\r\n");
    else if (f->length) wf_text_print(out, "Content-Length: %llu\r\n", (unsigned long long)f->length);
    if (f->close || f->old) wf_text_print(out, "Connection: %s\r\n", f->close ? "close" : "keep-alive");
    wf_text_print(out, "\r\n");
}

/* A chunk for each byte of a body in chunks, so that its division does not show. */
static void write_part(wf_slice part, bool chunked, wf_text *out)
{
    for (size_t i = 0; chunked && i < part.n; i++) {
        wf_text_add(out, "1\r\n", 3);
        wf_text_add(out, part.p + i, 1);
        wf_text_add(out, "\r\n", 2);
    }
    if (!chunked) wf_text_add(out, part.p, part.n);
}

/* In pieces of `step` bytes and one more each time; 0: whole. */
static wf_text feed(const char *data, size_t n, size_t step)
{
    wf_frame f = {0};
    wf_text out = {0};
    bool chunked = false, begun = false, ended = false;
    wf_text_add(&out, "", 0);
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = step ? WF_MIN(step++, n - at) : n;
        wf_slice from = {data + at, piece}, part = {0};
        enum wf_frame_news news;
        while ((news = wf_frame_next(&f, &from, &part)) != WF_FRAME_MORE) {
            CHECK(news != WF_FRAME_LACK && !ended &&
                  begun == (news == WF_FRAME_PART || news == WF_FRAME_WHOLE || (news == WF_FRAME_BAD && begun)));
            if (news == WF_FRAME_HEAD) write_head(&f, &out), chunked = f.chunked, begun = true;
            if (news == WF_FRAME_PART) write_part(part, chunked, &out);
            if (news == WF_FRAME_WHOLE) wf_text_print(&out, chunked ? "0\r\n\r\n" : ""), begun = false;
            if (news == WF_FRAME_BAD) {
                CHECK(strlen(f.bad) > 4);
                wf_text_print(&out,
                              begun ? "0\r\n" REFUSED "%s\r\n\r\n"
                                    : "BAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" REFUSED "%s\r\n\r\n",
                              f.bad);
                ended = true;
            }
        }
        CHECK(!from.n || f.state == WF_FRAME_END);
        CHECK(f.line.len <= WF_FRAME_MAX_HEAD && f.head.len <= 2 * WF_FRAME_MAX_HEAD);
    }
    CHECK(!out.failed);
    wf_frame_free(&f);
    return out;
}

/* ---- a plain reader of what comes out ------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
    bool refused;
    bool full; /* a head is beyond the frame's own limits: it was not, before Host and Connection were added, and a
                  blank behind each colon */
} reader;

/* The next line, without its end, which must be there. */
static const char *line(reader *r, size_t *n)
{
    const char *begin = r->at, *lf = memchr(begin, '\n', (size_t)(r->end - begin));
    CHECK(lf && lf > begin && lf[-1] == '\r');
    *n = (size_t)(lf - begin) - 1;
    for (size_t i = 0; i < *n; i++) CHECK(((unsigned char)begin[i] >= ' ' || begin[i] == '\t') && begin[i] != 127);
    r->at = lf + 1;
    return begin;
}

/* The value of a field of this name; NULL: it has another. */
static const char *value(const char *field, const char *name)
{
    size_t n = strlen(name);
    return strncasecmp(field, name, n) ? NULL : field + n;
}

/* As many bytes, or what has come of them. */
static bool skip(reader *r, uint64_t n)
{
    bool all = n <= (uint64_t)(r->end - r->at);
    r->at = all ? r->at + n : r->end;
    return all;
}

static void read_chunks(reader *r)
{
    size_t n;
    while (r->at < r->end) {
        char *digits_end;
        const char *size = line(r, &n);
        uint64_t left = strtoull(size, &digits_end, 16);
        CHECK(n && digits_end == size + n);
        if (left && !skip(r, left)) return;
        if (!left) break;
        if (r->at < r->end) CHECK(line(r, &n) && !n);
    }
    if (r->at == r->end) return;
    const char *trailer = line(r, &n);
    r->refused = n > 0;
    if (n) CHECK(value(trailer, REFUSED) && line(r, &n) && !n && r->at == r->end);
}

static void read_request(reader *r)
{
    uint64_t length = 0;
    unsigned framings = 0;
    bool chunked = false, close = false;
    size_t n, fields = 0;
    const char *head = r->at;
    CHECK(line(r, &n) && n);
    for (const char *f = line(r, &n), *v; n; f = line(r, &n)) {
        CHECK(*f != ' ' && *f != '\t' && *f != ':' && memchr(f, ':', n) &&
              !memchr(f, ' ', (size_t)((const char *)memchr(f, ':', n) - f)));
        if ((v = value(f, "Content-Length:"))) framings++, length = strtoull(v, NULL, 10);
        if (value(f, "Transfer-Encoding:")) framings++, chunked = n == strlen("Transfer-Encoding: chunked");
        if (value(f, "Connection: close")) close = true;
        r->refused |= value(f, REFUSED) != NULL;
        fields++;
    }
    CHECK(fields <= WF_FRAME_MAX_FIELDS + 2);
    r->full |= fields > WF_FRAME_MAX_FIELDS || r->at - head > WF_FRAME_MAX_HEAD;
    CHECK(framings <= 1 && (framings || !chunked));
    if (chunked) read_chunks(r);
    else skip(r, length);
    if (close && !chunked && !length) CHECK(r->at == r->end); /* nothing comes behind the last request */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const char *bytes = (const char *)data + 1;
    wf_text whole = feed(bytes, size - 1, 0), parts = feed(bytes, size - 1, 1 + data[0]),
            again = feed(whole.data, whole.len, 0);
    CHECK(whole.len == parts.len && !memcmp(whole.data, parts.data, whole.len));
    reader r = {.at = whole.data, .end = whole.data + whole.len};
    while (r.at < r.end) read_request(&r);
    if (!r.refused && !r.full) CHECK(whole.len == again.len && !memcmp(whole.data, again.data, whole.len));
    free(whole.data);
    free(parts.data);
    free(again.data);
    return 0;
}
