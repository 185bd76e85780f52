/* serve, frame: where the requests of a connection begin and end, by RFC 9112.
 *
 * The bytes of a client go through a wf_frame before libmicrohttpd reads any of them. Version 0.9.75, Debian 12's, takes
 * `Content-Length : 42` for an unknown field and then the body for the next request, accepts NUL, bare LF and folded
 * lines, answers some bad lengths twice, and leaves requests with many cookies or arguments without an answer. None of
 * its options changes that; 1.0 is strict, but neither Debian 12 nor PyPI has it. llhttp is not in Debian 12, http_parser
 * is no longer maintained, and both only read: a server would have to be written around them.
 *
 * So nothing is passed on as it came. A request is read strictly and written anew in one form that every reader
 * understands in the same way: target in origin form, each field as `Name: value` on one line, one field for the framing.
 * A request that is refused becomes one whose field or trailer WF_FRAME_REFUSED says why. Since it takes the usual way,
 * requests before it are answered first. Behind it nothing is read any more. */
#ifndef WF_SERVE_FRAME_H
#define WF_SERVE_FRAME_H

#include "serve/api/internal.h"

/* "STATUS reason"; clients cannot send this field. */
#define WF_FRAME_REFUSED "Weft-Refused"

#define WF_FRAME_MAX_HEAD   32768 /* bytes of all lines; libmicrohttpd has memory for twice that */
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
    WF_FRAME_END        /* nothing counts any more: the last request was refused, or said "Connection: close" */
};

/* Zero is the start. */
typedef struct wf_frame {
    enum wf_frame_state state;
    uint64_t left;
    wf_text line; /* the line that is being read */
    wf_text head; /* what the library will get of this request's head */
    size_t n_bytes, n_fields, n_cookies; /* of this head, or of the lines between chunks and behind them */
    bool old;            /* HTTP/1.0 */
    bool absolute;       /* the target had a host, which counts */
    unsigned n_hosts, n_lengths, n_codings;
    bool chunked;        /* the last coding is "chunked" */
    bool unknown_coding;
    bool close, keep_alive;
    uint64_t length;
} wf_frame;

/* Takes n bytes from the client and appends to out what the library may read. Any division of the bytes into calls
 * gives the same. out->failed: out of memory. */
void wf_frame_feed(wf_frame *f, const char *data, size_t n, wf_text *out);
void wf_frame_free(wf_frame *f);

/* ---- head.c: the lines of a head --------------------------------------------------------------------------
 * They get a line without its end, and append to f->head. NULL: fine; else "STATUS reason". */

const char *wf_head_request(wf_frame *f, const char *line, size_t n);
const char *wf_head_field(wf_frame *f, const char *line, size_t n);
/* The empty line: may the whole be answered? Appends the fields of framing. */
const char *wf_head_end(wf_frame *f);
/* A field of a trailer, which is checked and then dropped. */
const char *wf_head_trailer(const char *line, size_t n);

#endif
