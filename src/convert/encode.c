/* encode: see encode.h. Threads take chunks of rows in the order of the file, so that reading and writing stay nearly
 * sequential. */
#include "convert/encode.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK ((uint64_t)1 << 18) /* elements of one step of a thread, if a row has no more */
#define MAX_THREADS 64

/* The rows of a tensor as this file sees them. A vector whose elements move has one a row. */
typedef struct shape {
    uint64_t cols, rows, step; /* step: rows of a chunk */
    bool copied;               /* the format stays: bytes are copied */
} shape;

typedef struct encoder {
    const wf_encode *e;
    atomic_uint_fast64_t next;  /* chunk */
    atomic_uint_fast64_t done;  /* chunks */
    atomic_bool ended;          /* somebody failed or it is to stop */
    uint64_t n_chunks, *first;  /* [n + 1]: of each tensor */
    uint64_t most;              /* elements of a chunk */
    pthread_mutex_t lock;       /* for the rest */
    weft_status status;
    char message[512];
} encoder;

typedef struct worker {
    encoder *c;
    size_t tensor; /* chunks come in order, so the next one's tensor is this or a later one */
    float *values;
    uint8_t *bytes;
} worker;

static shape shape_of(const wf_encode_tensor *t)
{
    uint64_t n = t->from->dims[0] * t->from->dims[1] * t->from->dims[2] * t->from->dims[3];
    bool vector = t->pairs.rows && t->from->n_dims == 1;
    shape s = {.cols = vector ? 1 : t->from->dims[0], .copied = t->from->ggml_type == t->to.ggml_type};
    s.rows = n / s.cols;
    s.step = WF_MAX(CHUNK / s.cols, (uint64_t)1);
    return s;
}

/* ---- one chunk --------------------------------------------------------------------------------------- */

static weft_status bad_value(const wf_encode_tensor *t, uint64_t row, uint64_t col, float x)
{
    const char *name = WF_SHOW(t->from->name), *type = wf_dtypes[t->to.dtype].name;
    if (!isfinite(x))
        return wf_fail(WEFT_ERR_FORMAT, "tensor '%s' holds a value that is not finite, in row %llu at %llu", name,
                       (unsigned long long)row, (unsigned long long)col);
    return wf_fail(WEFT_ERR_FORMAT,
                   "tensor '%s' holds %g, in row %llu at %llu, more than %s can hold: choose BF16 or F32 "
                   "(weft_convert_params.type)",
                   name, x, (unsigned long long)row, (unsigned long long)col, type);
}

/* Scales of blocks are F16, and so are its limits. */
static weft_status check_values(const wf_encode_tensor *t, const float *x, uint64_t n, uint64_t row)
{
    bool wide = t->to.dtype == WF_F32 || t->to.dtype == WF_BF16 || t->to.dtype == WF_MXFP4;
    float most = wide ? 3.4028235e38f : 65504.0f;
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= most)) return bad_value(t, row, i, x[i]);
    return WEFT_OK;
}

/* Bytes of one row; of a type that weft does not read, too. */
static uint64_t row_bytes(const wf_gguf_tensor *t, const shape *s) { return t->bytes / s->rows; }

static weft_status write_bytes(const wf_encode *e, const uint8_t *p, uint64_t n, uint64_t at)
{
    while (n) {
        ssize_t done = pwrite(e->fd, p, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", e->path, done ? strerror(errno) : "nothing was written");
        p += done, n -= (uint64_t)done, at += (uint64_t)done;
    }
    return WEFT_OK;
}

static weft_status encode_chunk(worker *w, uint64_t chunk)
{
    const wf_encode *e = w->c->e;
    while (chunk >= w->c->first[w->tensor + 1]) w->tensor++;
    const wf_encode_tensor *t = &e->list[w->tensor];
    shape s = shape_of(t);
    uint64_t row = (chunk - w->c->first[w->tensor]) * s.step, n = WF_MIN(s.step, s.rows - row),
             size = row_bytes(&t->to, &s);
    uint64_t bytes = row_bytes(t->from, &s);
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *src = t->from->data + wf_pairs_from(&t->pairs, row + i) * bytes;
        float *x = w->values + i * s.cols;
        if (s.copied) memcpy(w->bytes + i * bytes, src, bytes);
        else wf_dtypes[t->from->dtype].decode(src, x, s.cols);
        if (!s.copied) WF_TRY(check_values(t, x, s.cols, row + i));
    }
    if (!s.copied) wf_dtypes[t->to.dtype].encode(w->values, w->bytes, n * s.cols);
    return write_bytes(e, w->bytes, n * size, e->data + t->to.offset + row * size);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* Messages belong to threads: the first failure's is kept for the caller's. */
static void end_with(encoder *c, weft_status s)
{
    pthread_mutex_lock(&c->lock);
    if (c->status == WEFT_OK) c->status = s, wf_copy(c->message, sizeof c->message, wf_error());
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->ended, true);
}

/* With what only the caller's thread may do. */
static weft_status report_progress(const encoder *c)
{
    const wf_encode *e = c->e;
    if (e->stop && e->stop(e->user)) return wf_fail(WEFT_ERR_CANCELLED, "stopped");
    if (e->on_progress) e->on_progress(e->user, "convert", (double)c->done / (double)c->n_chunks);
    return WEFT_OK;
}

static void work_chunks(encoder *c, bool callers)
{
    worker w = {.c = c, .values = wf_calloc(c->most, sizeof *w.values),
                .bytes = wf_calloc(c->most, 8)}; /* no format takes more an element */
    weft_status s = w.values && w.bytes ? WEFT_OK : WEFT_ERR_NOMEM;
    while (s == WEFT_OK && !atomic_load(&c->ended)) {
        uint64_t chunk = atomic_fetch_add(&c->next, 1);
        if (chunk >= c->n_chunks) break;
        s = encode_chunk(&w, chunk);
        atomic_fetch_add(&c->done, 1);
        if (s == WEFT_OK && callers) s = report_progress(c);
    }
    if (s != WEFT_OK) end_with(c, s);
    free(w.values);
    free(w.bytes);
}

static void *thread_main(void *c)
{
    work_chunks(c, false);
    return NULL;
}

static weft_status plan_chunks(encoder *c)
{
    const wf_encode *e = c->e;
    c->first = wf_calloc(e->n + 1, sizeof *c->first);
    if (!c->first) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < e->n; i++) {
        shape s = shape_of(&e->list[i]);
        c->first[i + 1] = c->first[i] + (s.rows + s.step - 1) / s.step;
        c->most = WF_MAX(c->most, s.step * s.cols);
    }
    c->n_chunks = c->first[e->n];
    return WEFT_OK;
}

weft_status wf_encode_run(const wf_encode *e)
{
    encoder c = {.e = e, .lock = PTHREAD_MUTEX_INITIALIZER};
    weft_status s = plan_chunks(&c);
    if (s == WEFT_OK) {
        /* Fewer threads than asked for are no failure: this one works, too. */
        pthread_t threads[MAX_THREADS];
        size_t n = 0, want = WF_MIN(WF_MIN(c.e->threads, (uint64_t)MAX_THREADS), c.n_chunks);
        while (n + 1 < want && !pthread_create(&threads[n], NULL, thread_main, &c)) n++;
        work_chunks(&c, true);
        while (n) pthread_join(threads[--n], NULL);
    }
    free(c.first);
    if (s != WEFT_OK || c.status == WEFT_OK) return s;
    return *c.message ? wf_fail(c.status, "%s", c.message) : c.status;
}
