/* frame: cuts what a client sends into heads, bodies and chunks; frame.h says how strictly. Extensions of chunks and
 * trailers are checked and dropped. */
#include "serve/http/frame.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SIZE_DIGITS 15   /* of a chunk's size */
#define MAX_SIZE_LINE   1024 /* with its extensions */

void wf_frame_free(wf_frame *f)
{
    free(f->line.data);
    free(f->head.data);
    f->line = f->head = (wf_text){0};
}

/* ---- lines ----------------------------------------------------------------------------------------------- */

static const char too_long[] = "431 the headers have more than 32768 bytes";

/* Counts a line of fields, whose length has been checked. */
static const char *count_field(wf_frame *f)
{
    f->n_bytes += f->line.len + 2;
    return f->n_fields++ < WF_FRAME_MAX_FIELDS ? NULL : "431 there are more than 100 headers";
}

static const char *read_field(wf_frame *f)
{
    const char *bad = f->line.len ? count_field(f) : wf_head_end(f);
    if (bad || f->line.len) return bad ? bad : wf_head_field(f, f->line.data, f->line.len);
    f->n_bytes = f->n_fields = 0;
    f->left = f->length;
    f->state = f->chunked ? WF_FRAME_SIZE : f->left ? WF_FRAME_BODY : WF_FRAME_DONE;
    return NULL;
}

/* chunk-size [chunk-ext]. There may be any number of chunks, so only what is beyond the digits counts for the limit. */
static const char *read_size(wf_frame *f)
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
    return NULL;
}

static const char *read_line(wf_frame *f)
{
    const char *bad;
    switch (f->state) {
    case WF_FRAME_REQUEST: /* an empty line before it does not count (RFC 9112, 2.2) */
        f->n_bytes += f->line.len + 2;
        if (!f->line.len) return NULL;
        f->state = WF_FRAME_FIELD;
        return wf_head_request(f, f->line.data, f->line.len);
    case WF_FRAME_FIELD: return read_field(f);
    case WF_FRAME_SIZE: return read_size(f);
    case WF_FRAME_CHUNK_END: /* the line is empty: a longer one is refused before it ends */
        f->state = WF_FRAME_SIZE;
        return NULL;
    default: /* trailers */
        if (!f->line.len) return f->state = WF_FRAME_DONE, NULL;
        bad = count_field(f);
        return bad ? bad : wf_head_trailer(f->line.data, f->line.len);
    }
}

/* May the line have n bytes? */
static const char *check_length(const wf_frame *f, size_t n)
{
    if (f->state == WF_FRAME_CHUNK_END) return n > 2 ? "400 a chunk does not end where its size says" : NULL;
    if (f->state == WF_FRAME_SIZE)
        return n > MAX_SIZE_LINE ? "400 the line with the size of a chunk is too long" : NULL;
    if (f->n_bytes + n <= WF_FRAME_MAX_HEAD) return NULL;
    return f->state == WF_FRAME_REQUEST ? "414 the request line has more than 32768 bytes" : too_long;
}

/* Takes bytes up to the end of a line. */
static enum wf_frame_news take_line(wf_frame *f, wf_slice *from)
{
    const char *lf = memchr(from->p, '\n', from->n);
    size_t n = lf ? (size_t)(lf - from->p) + 1 : from->n;
    bool head = f->state == WF_FRAME_FIELD;
    f->bad = check_length(f, f->line.len + n);
    if (!f->bad) wf_text_add(&f->line, from->p, n);
    if (f->line.failed) return WF_FRAME_LACK;
    from->p += n;
    from->n -= n;
    if (!f->bad && !lf) return WF_FRAME_MORE;
    if (!f->bad && (f->line.len < 2 || f->line.data[f->line.len - 2] != '\r'))
        f->bad = "400 a line does not end in CR and LF";
    if (!f->bad) {
        f->line.data[f->line.len -= 2] = 0;
        f->bad = read_line(f);
    }
    f->line.len = 0;
    if (f->head.failed) return WF_FRAME_LACK;
    if (f->bad) {
        wf_frame_free(f);
        f->state = WF_FRAME_END;
        return WF_FRAME_BAD;
    }
    return head && f->state != WF_FRAME_FIELD ? WF_FRAME_HEAD : WF_FRAME_MORE;
}

/* ---- bodies ---------------------------------------------------------------------------------------------- */

static enum wf_frame_news take_body(wf_frame *f, wf_slice *from, wf_slice *part)
{
    *part = (wf_slice){from->p, (size_t)WF_MIN(f->left, from->n)};
    from->p += part->n;
    from->n -= part->n;
    f->left -= part->n;
    if (!f->left) f->state = f->state == WF_FRAME_BODY ? WF_FRAME_DONE : WF_FRAME_CHUNK_END;
    return WF_FRAME_PART;
}

/* The next request, or the end. */
static enum wf_frame_news end_request(wf_frame *f)
{
    wf_frame_free(f);
    *f = (wf_frame){.state = f->close ? WF_FRAME_END : WF_FRAME_REQUEST};
    return WF_FRAME_WHOLE;
}

enum wf_frame_news wf_frame_next(wf_frame *f, wf_slice *from, wf_slice *part)
{
    enum wf_frame_news news = WF_FRAME_MORE;
    if (f->state == WF_FRAME_DONE) return end_request(f);
    while (news == WF_FRAME_MORE && from->n && f->state != WF_FRAME_END && f->state != WF_FRAME_DONE) {
        bool body = f->state == WF_FRAME_BODY || f->state == WF_FRAME_CHUNK;
        news = body ? take_body(f, from, part) : take_line(f, from);
    }
    return news == WF_FRAME_MORE && f->state == WF_FRAME_DONE ? end_request(f) : news;
}
