/* queue: work for queues, checked before a backend sees it. See dev.h. */
#include "dev/front.h"

static weft_status check_range(const wf_queue *q, const wf_buf *buf, uint64_t off, uint64_t size, const char *what)
{
    WF_TRY(wf_dev_usable(q->dev, what));
    if (!buf || buf->dev != q->dev)
        return wf_fail(WEFT_ERR_ARG, "%s: the buffer is not of device %s", what, q->dev->info.id);
    if (off > buf->size || size > buf->size - off) {
        return wf_fail(WEFT_ERR_ARG, "%s of %llu bytes at %llu leaves a buffer of %llu", what, (unsigned long long)size,
                       (unsigned long long)off, (unsigned long long)buf->size);
    }
    return WEFT_OK;
}

static weft_status check_events(const wf_dev *dev, wf_event *const *waits, uint32_t n_waits, const wf_event *signal,
                                const char *what)
{
    if (n_waits && !waits) return wf_fail(WEFT_ERR_ARG, "%s: wait list is NULL", what);
    for (uint32_t i = 0; i < n_waits; i++) {
        if (!waits[i] || waits[i]->dev != dev)
            return wf_fail(WEFT_ERR_ARG, "%s: wait %u is not an event of %s", what, i, dev->info.id);
        if (waits[i] == signal) return wf_fail(WEFT_ERR_ARG, "%s would wait for itself", what);
    }
    if (signal && signal->dev != dev)
        return wf_fail(WEFT_ERR_ARG, "%s: the signal is not an event of %s", what, dev->info.id);
    return WEFT_OK;
}

weft_status wf_write(wf_queue *q, wf_buf *buf, uint64_t off, const void *src, uint64_t size, wf_event *const *waits,
                     uint32_t n_waits, wf_event *signal)
{
    WF_TRY(check_range(q, buf, off, size, "write"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "write"));
    if (!src && size) return wf_fail(WEFT_ERR_ARG, "write from NULL");
    return wf_dev_note(q->dev, q->dev->fns->write(q, buf, off, src, size, waits, n_waits, signal));
}

weft_status wf_read(wf_queue *q, wf_buf *buf, uint64_t off, void *dst, uint64_t size, wf_event *const *waits,
                    uint32_t n_waits, wf_event *signal)
{
    WF_TRY(check_range(q, buf, off, size, "read"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "read"));
    if (!dst && size) return wf_fail(WEFT_ERR_ARG, "read to NULL");
    return wf_dev_note(q->dev, q->dev->fns->read(q, buf, off, dst, size, waits, n_waits, signal));
}

weft_status wf_copy_rows(wf_queue *q, bool out, const wf_view *v, void *host, wf_event *const *waits, uint32_t n_waits,
                         wf_event *signal)
{
    const uint64_t row = wf_dtype_bytes(v->dtype, v->cols), pitch = wf_dtype_bytes(v->dtype, v->stride);
    const uint32_t n = pitch == row ? v->rows : 1; /* in a piece */
    if (v->rows > n && q->dev->fns->copy_rows) {
        WF_TRY(check_range(q, v->buf, v->offset, (v->rows - 1) * pitch + row, "copy of rows"));
        WF_TRY(check_events(q->dev, waits, n_waits, signal, "copy of rows"));
        return wf_dev_note(q->dev, q->dev->fns->copy_rows(q, out, v, host, waits, n_waits, signal));
    }
    for (uint32_t i = 0; i < v->rows; i += n, n_waits = 0) {
        wf_event *end = i + n >= v->rows ? signal : NULL;
        uint64_t at = v->offset + i * pitch;
        uint8_t *to = (uint8_t *)host + i * row;
        WF_TRY(out ? wf_read(q, v->buf, at, to, n * row, waits, n_waits, end)
                   : wf_write(q, v->buf, at, to, n * row, waits, n_waits, end));
    }
    return WEFT_OK;
}

weft_status wf_fill(wf_queue *q, wf_buf *buf, uint64_t off, uint64_t size, uint32_t pattern)
{
    WF_TRY(check_range(q, buf, off, size, "fill"));
    if (off % 4 || size % 4) {
        return wf_fail(WEFT_ERR_ARG, "fill: offset %llu and size %llu must be multiples of 4", (unsigned long long)off,
                       (unsigned long long)size);
    }
    return size ? wf_dev_note(q->dev, q->dev->fns->fill(q, buf, off, size, pattern)) : WEFT_OK;
}

/* What a backend said to a call. A kernel that it refuses to start is no good here; who binds again gets another. */
static weft_status note_launch(wf_dev *dev, const wf_call *c, int variant, weft_status s)
{
    if (s == WEFT_ERR_UNSUPPORTED) wf_drop(dev, c, variant);
    return wf_dev_note(dev, s);
}

/* Puts a call whose shape is known to be good in the queue. */
static weft_status submit_call(wf_queue *q, const wf_call *c)
{
    wf_dev *dev = q->dev;
    wf_call picked = *c;
    if (c->variant < 0) picked.variant = wf_pick(dev, c);
    if (picked.variant < 0) {
        const wf_view *w = &c->in[WF_MAX(wf_op_input(c->op, WF_OPERAND_WEIGHT), 0)];
        if (!w->buf) w = &c->in[0];
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has no kernel for %s on %s [%u, %u] to %s [%u, %u]", dev->info.id,
                       wf_ops[c->op].name, wf_dtypes[w->dtype].name, w->rows, w->cols, wf_dtypes[c->out[0].dtype].name,
                       c->out[0].rows, c->out[0].cols);
    }
    return note_launch(dev, c, picked.variant, dev->fns->submit(q, &picked));
}

static weft_status check_call(const wf_dev *dev, const wf_call *c)
{
    WF_TRY(wf_call_check(dev, c));
    return check_events(dev, c->waits, c->n_waits, c->signal, wf_ops[c->op].name);
}

/* Piece i of n, with its share of the events. */
static wf_call part_of(const wf_call *c, enum wf_piece piece, size_t i, size_t n)
{
    wf_call part = wf_piece_of(c, piece);
    if (i == 0) part.waits = c->waits, part.n_waits = c->n_waits;
    part.signal = i + 1 == n ? c->signal : i == 0 ? c->started : NULL;
    return part;
}

weft_status wf_submit(wf_queue *q, const wf_call *c)
{
    wf_dev *dev = q->dev;
    enum wf_piece piece[WF_MAX_PIECES];
    WF_TRY(wf_dev_usable(dev, "submit"));
    WF_TRY(check_call(dev, c));
    size_t n = wf_pieces(dev, c, piece);
    if (n == 1) return submit_call(q, c);
    for (size_t i = 0; i < n; i++) {
        wf_call part = part_of(c, piece[i], i, n);
        if (part.variant >= 0 && !wf_can_use(dev, &part, part.variant)) part.variant = -1;
        WF_TRY(submit_call(q, &part));
    }
    return WEFT_OK;
}

static weft_status launch_bound(wf_queue *q, const wf_call *c, const wf_bound *b)
{
    const wf_dev_fns *fns = q->dev->fns;
    if (fns->launch) return note_launch(q->dev, c, b->variant, fns->launch(q, c, b));
    wf_call bound = *c;
    bound.variant = b->variant;
    return note_launch(q->dev, c, b->variant, fns->submit(q, &bound));
}

weft_status wf_launch(wf_queue *q, const wf_call *c, const wf_binding *b)
{
    WF_TRY(wf_dev_usable(q->dev, "launch"));
    if (q->dev->params.check_calls) {
        /* What runs is what was bound: the variant that the call names may not run this number of rows. */
        wf_call any = *c;
        any.variant = -1;
        WF_TRY(check_call(q->dev, &any));
        for (uint8_t i = 0; i < b->n; i++)
            if (wf_piece_of(c, b->part[i].piece).op != (enum wf_op)b->part[i].op)
                return wf_fail(WEFT_ERR_INTERNAL, "%s: bound for another call", wf_ops[c->op].name);
    }
    if (b->n == 1) return launch_bound(q, c, &b->part[0].b);
    if (!b->n)
        return wf_fail(WEFT_ERR_INTERNAL, "%s: launched before it was bound",
                       wf_ops[c->op].name); /* nothing would signal */
    for (uint8_t i = 0; i < b->n; i++) {
        wf_call part = part_of(c, b->part[i].piece, i, b->n);
        WF_TRY(launch_bound(q, &part, &b->part[i].b));
    }
    return WEFT_OK;
}

weft_status wf_mark(wf_queue *q, wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(wf_dev_usable(q->dev, "mark"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "mark"));
    return wf_dev_note(q->dev, q->dev->fns->mark(q, waits, n_waits, signal));
}

weft_status wf_transfer(wf_queue *q, uint64_t bytes, wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(wf_dev_usable(q->dev, "transfer"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "transfer"));
    if (!q->dev->fns->transfer) return wf_dev_note(q->dev, q->dev->fns->mark(q, waits, n_waits, signal));
    return wf_dev_note(q->dev, q->dev->fns->transfer(q, bytes, waits, n_waits, signal));
}

weft_status wf_flush(wf_queue *q)
{
    WF_TRY(wf_dev_usable(q->dev, "flush"));
    return wf_dev_note(q->dev, q->dev->fns->flush(q));
}

weft_status wf_wait(wf_event *ev, uint32_t timeout_ms)
{
    WF_TRY(wf_dev_usable(ev->dev, "wait"));
    return wf_dev_note(ev->dev, ev->dev->fns->wait(ev, timeout_ms));
}

weft_status wf_poll(wf_event *ev, bool *done)
{
    *done = false;
    WF_TRY(wf_dev_usable(ev->dev, "poll"));
    return wf_dev_note(ev->dev, ev->dev->fns->poll(ev, done));
}

void wf_dev_stop_by(wf_dev *dev, wf_stop_fn fn, void *user)
{
    dev->unwanted = fn;
    dev->unwanted_user = user;
}

bool wf_dev_unwanted(const wf_dev *dev)
{
    return dev->unwanted && dev->unwanted(dev->unwanted_user);
}

void wf_resume(wf_dev *dev)
{
    if (dev->fns->resume && !dev->lost) dev->fns->resume(dev);
}

weft_status wf_event_times(wf_event *ev, uint64_t *begin, uint64_t *end)
{
    WF_TRY(wf_dev_usable(ev->dev, "times"));
    if (!ev->dev->params.profile || !ev->dev->fns->times)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s does not note when commands begin and end", ev->dev->info.id);
    return wf_dev_note(ev->dev, ev->dev->fns->times(ev, begin, end));
}

weft_status wf_finish(wf_queue *q)
{
    wf_event *done;
    WF_TRY(wf_event_create(q->dev, &done));
    weft_status s = wf_mark(q, NULL, 0, done);
    if (!s) s = wf_flush(q);
    if (!s) s = wf_wait(done, q->dev->params.watchdog_ms);
    wf_event_destroy(done);
    return s;
}
