/* frame: cuts what a client sends into heads, bodies and chunks, and writes them anew for libmicrohttpd; frame.h says why. Bodies
 * pass as they are, chunks without their extensions and trailers. */
#include "serve/http/frame.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SIZE_DIGITS 15   /* of a chunk's size */
#define MAX_SIZE_LINE   1024 /* with its extensions */

static void text_free(wf_text *t)
{
    free(t->data);
    *t = (wf_text){0};
}

void wf_frame_free(wf_frame *f)
{
    text_free(&f->line);
    text_free(&f->head);
}

/* The next request, or the end. */
static void begin(wf_frame *f)
{
    bool end = f->close;
    wf_frame_free(f);
    *f = (wf_frame){.state = end ? WF_FRAME_END : WF_FRAME_REQUEST};
}

/* In a head the library gets a request that only says why; in a body, its end with a trailer that does. */
static void refuse(wf_frame *f, const char *why, wf_text *out)
{
    bool head = f->state == WF_FRAME_REQUEST || f->state == WF_FRAME_FIELD;
    const char *before = head                             ? "BAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         : f->state == WF_FRAME_CHUNK_END ? "\r\n0\r\n"
                                                          : "0\r\n";
    wf_text_print(out, "%s" WF_FRAME_REFUSED ": %s\r\n\r\n", before, why);
    f->close = true;
    begin(f);
}

/* ---- lines ----------------------------------------------------------------------------------------------- */

static const char too_long[] = "431 the headers have more than 32768 bytes";

/* Counts the line; take_line has checked its length. */
static const char *count_field(wf_frame *f)
{
    f->n_bytes += f->line.len + 2;
    return f->n_fields++ < WF_FRAME_MAX_FIELDS ? NULL : "431 there are more than 100 headers";
}

/* An empty line before it does not count (RFC 9112, 2.2). */
static const char *read_request(wf_frame *f)
{
    f->n_bytes += f->line.len + 2;
    if (!f->line.len) return NULL;
    f->state = WF_FRAME_FIELD;
    return wf_head_request(f, f->line.data, f->line.len);
}

static const char *end_head(wf_frame *f, wf_text *out)
{
    const char *bad = wf_head_end(f);
    if (bad) return bad;
    out->failed |= f->head.failed;
    wf_text_add(out, f->head.data, f->head.len);
    text_free(&f->head);
    f->n_bytes = f->n_fields = 0;
    f->left = f->length;
    f->state = f->chunked ? WF_FRAME_SIZE : WF_FRAME_BODY;
    if (!f->chunked && !f->left) begin(f);
    return NULL;
}

static const char *read_field(wf_frame *f, wf_text *out)
{
    const char *bad = f->line.len ? count_field(f) : NULL;
    if (bad) return bad;
    return f->line.len ? wf_head_field(f, f->line.data, f->line.len) : end_head(f, out);
}

/* chunk-size [chunk-ext]. There may be any number of chunks, so only what is beyond the digits counts for the limit. */
static const char *read_size(wf_frame *f, wf_text *out)
{
    static const char bad[] = "400 the size of a chunk is not a hexadecimal number";
    const char *line = f->line.data;
    size_t n = strspn(line, "0123456789abcdefABCDEF"), after = n + strspn(line + n, " \t");
    if (!n || n > MAX_SIZE_DIGITS || (f->line.len > n && line[after] != ';')) return bad;
    for (size_t i = n; i < f->line.len; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 127) return bad;
    f->n_bytes += f->line.len - n;
    if (f->n_bytes > WF_FRAME_MAX_HEAD) return too_long;
    f->left = strtoull(line, NULL, 16);
    f->state = f->left ? WF_FRAME_CHUNK : WF_FRAME_TRAILER;
    if (f->left) wf_text_print(out, "%llx\r\n", (unsigned long long)f->left);
    return NULL;
}

/* The line is empty: a longer one is refused before it ends. */
static const char *end_chunk(wf_frame *f, wf_text *out)
{
    wf_text_add(out, "\r\n", 2);
    f->state = WF_FRAME_SIZE;
    return NULL;
}

static const char *read_trailer(wf_frame *f, wf_text *out)
{
    const char *bad = f->line.len ? count_field(f) : NULL;
    if (bad) return bad;
    if (f->line.len) return wf_head_trailer(f->line.data, f->line.len);
    wf_text_add(out, "0\r\n\r\n", 5);
    begin(f);
    return NULL;
}

static const char *read_line(wf_frame *f, wf_text *out)
{
    switch (f->state) {
    case WF_FRAME_REQUEST:
        return read_request(f);
    case WF_FRAME_FIELD:
        return read_field(f, out);
    case WF_FRAME_SIZE:
        return read_size(f, out);
    case WF_FRAME_CHUNK_END:
        return end_chunk(f, out);
    default:
        return read_trailer(f, out);
    }
}

/* May the line have n bytes? */
static const char *check_length(const wf_frame *f, size_t n)
{
    if (f->state == WF_FRAME_CHUNK_END) return n > 2 ? "400 a chunk does not end where its size says" : NULL;
    if (f->state == WF_FRAME_SIZE) return n > MAX_SIZE_LINE ? "400 the line with the size of a chunk is too long" : NULL;
    if (f->n_bytes + n <= WF_FRAME_MAX_HEAD) return NULL;
    return f->state == WF_FRAME_REQUEST ? "414 the request line has more than 32768 bytes" : too_long;
}

/* Reads up to the end of a line; returns the bytes taken. */
static size_t take_line(wf_frame *f, const char *data, size_t n, wf_text *out)
{
    const char *lf = memchr(data, '\n', n);
    if (lf) n = (size_t)(lf - data) + 1;
    const char *bad = check_length(f, f->line.len + n);
    if (!bad) wf_text_add(&f->line, data, n);
    out->failed |= f->line.failed;
    if (!bad && (!lf || out->failed)) return n;
    if (!bad && (f->line.len < 2 || f->line.data[f->line.len - 2] != '\r')) bad = "400 a line does not end in CR and LF";
    if (!bad) {
        f->line.data[f->line.len -= 2] = 0;
        bad = read_line(f, out);
    }
    f->line.len = 0;
    if (bad) refuse(f, bad, out);
    return n;
}

/* ---- bodies ---------------------------------------------------------------------------------------------- */

static size_t take_body(wf_frame *f, const char *data, size_t n, wf_text *out)
{
    n = (size_t)WF_MIN(f->left, n);
    wf_text_add(out, data, n);
    f->left -= n;
    if (f->left) return n;
    if (f->state == WF_FRAME_BODY)
        begin(f);
    else
        f->state = WF_FRAME_CHUNK_END;
    return n;
}

void wf_frame_feed(wf_frame *f, const char *data, size_t n, wf_text *out)
{
    while (n && f->state != WF_FRAME_END && !out->failed) {
        bool body = f->state == WF_FRAME_BODY || f->state == WF_FRAME_CHUNK;
        size_t took = body ? take_body(f, data, n, out) : take_line(f, data, n, out);
        data += took;
        n -= took;
    }
}
