/* serve, frame: where the requests of a connection begin and end, by RFC 9112. Read strictly: what the grammar does not
 * allow is refused, since a proxy in front may have understood it in another way, and behind a refusal nothing is read
 * any more. */
#ifndef WF_SERVE_FRAME_H
#define WF_SERVE_FRAME_H

#include "base/text.h"

#define WF_FRAME_MAX_HEAD   32768 /* bytes of all lines */
#define WF_FRAME_MAX_FIELDS 100
#define WF_FRAME_MAX_PARTS  100 /* arguments of the query; cookies */

enum wf_frame_state {
    WF_FRAME_REQUEST,   /* the request line */
    WF_FRAME_FIELD,     /* lines of the head behind it */
    WF_FRAME_BODY,      /* `left` more bytes of a body with Content-Length */
    WF_FRAME_SIZE,      /* a line with the size of a chunk */
    WF_FRAME_CHUNK,     /* `left` more bytes of a chunk, and the line end behind it */
    WF_FRAME_CHUNK_END, /* that line end */
    WF_FRAME_TRAILER,   /* lines behind the last chunk */
    WF_FRAME_DONE,      /* the request is complete, which has not been said yet */
    WF_FRAME_END        /* nothing counts any more: the last request was refused, or said "Connection: close" */
};

/* Zero is the start. */
typedef struct wf_frame {
    enum wf_frame_state state;
    uint64_t left;
    wf_text line; /* the line that is being read */
    wf_text head; /* of this request: method, path, names and values, each with its NUL, and one more at the end */
    size_t n_bytes, n_fields, n_cookies; /* of this head, or of the lines between chunks and behind them */
    bool old, absolute;  /* HTTP/1.0; the target had a host, which counts */
    unsigned n_hosts, n_lengths, n_codings;
    bool chunked, unknown_coding, close, keep_alive, expects; /* chunked: the last coding */
    uint64_t length;
    const char *bad;     /* "STATUS reason" of a refusal */
} wf_frame;

enum wf_frame_news {
    WF_FRAME_MORE, /* more bytes are needed */
    WF_FRAME_HEAD, /* the head is complete: the frame has it until the next call */
    WF_FRAME_PART, /* some of the body */
    WF_FRAME_WHOLE, /* the request is complete */
    WF_FRAME_BAD,  /* it is refused; before WF_FRAME_HEAD, for its head */
    WF_FRAME_LACK  /* out of memory */
};

/* Takes bytes of `from` until there is something to say. Any division of the bytes into calls says the same. */
enum wf_frame_news wf_frame_next(wf_frame *f, wf_slice *from, wf_slice *part);
void wf_frame_free(wf_frame *f);

/* ---- head.c: the lines of a head --------------------------------------------------------------------------
 * They get a line without its end, and append to f->head. NULL: fine; else "STATUS reason". */

const char *wf_head_request(wf_frame *f, const char *line, size_t n);
const char *wf_head_field(wf_frame *f, const char *line, size_t n);
const char *wf_head_end(wf_frame *f); /* the empty line: may the whole be answered? */
const char *wf_head_trailer(const char *line, size_t n); /* of a trailer, which is checked and then dropped */

#endif
