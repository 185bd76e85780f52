/* dev.c: the validating front of the device contract. It owns three promises: a backend sees only calls
 * that are well formed, a lost device is never called again, and no wait is without a limit. */
#include "dev/front.h"

#include <stdlib.h>
#include <string.h>

enum { /* as ops.def calls them */
    ACT = WF_OPERAND_ACT, F32 = WF_OPERAND_F32, F16 = WF_OPERAND_F16, I32 = WF_OPERAND_I32, WEIGHT = WF_OPERAND_WEIGHT,
    OPTIONAL = WF_OPERAND_OPTIONAL, SHARED = WF_OPERAND_SHARED, BY_ROW = WF_OPERAND_BY_ROW
};

const wf_op_info wf_ops[WF_N_OPS] = {
#define OPERAND(id, name, what) [WF_##id] = {name, what},
#define X(id, name, class, in, out) [WF_OP_##id] = {#name, WF_CLASS_##class, WF_N_##id##_IN, WF_N_##id##_OUT, {in}, {out}},
#include "dev/ops.def"
#undef X
#undef OPERAND
};

int wf_op_input(enum wf_op op, enum wf_operand_kind kind)
{
    for (int i = 0; i < wf_ops[op].n_in; i++)
        if (wf_ops[op].in[i].what & kind) return i;
    return -1;
}

static const char *const tier_names[] = {"base", "fp16", "subgroup", "matrix"};

const char *wf_tier_name(enum wf_tier t)
{
    return (size_t)t < WF_LEN(tier_names) ? tier_names[t] : "unknown";
}

const char *wf_tier_name_on(const wf_dev *d, enum wf_tier t)
{
    return t == WF_TIER_SIMD && strstr(d->info.tiers, "simd") ? "simd" : wf_tier_name(t);
}

weft_status wf_tier_parse(const char *name, enum wf_tier *out)
{
    *out = name && !strcmp(name, "simd") ? WF_TIER_SIMD : WF_TIER_MATRIX;
    if (!name || *out == WF_TIER_SIMD) return WEFT_OK;
    for (size_t i = 0; i < WF_LEN(tier_names); i++) {
        if (strcmp(name, tier_names[i])) continue;
        *out = (enum wf_tier)i;
        return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_ARG, "unknown tier \"%s\": use base, fp16 (on CPUs simd), subgroup or matrix", name);
}

/* ---- a lost device -------------------------------------------------------------------------------- */

weft_status wf_dev_usable(const wf_dev *dev, const char *what)
{
    if (!dev->lost) return WEFT_OK;
    return wf_fail(WEFT_ERR_DEVICE, "%s: device %s (%s) was lost; close and open it again", what,
                   dev->info.id, dev->info.name);
}

/* A failed or endless piece of work leaves queues in a state that no driver defines. */
static weft_status note(wf_dev *dev, weft_status s)
{
    if (s == WEFT_ERR_DEVICE || s == WEFT_ERR_TIMEOUT) dev->lost = true;
    return s;
}

/* ---- memory, queues, events ------------------------------------------------------------------------ */

void wf_dev_close(wf_dev *dev)
{
    if (!dev) return;
    if (dev->verifier) dev->verifier->close(dev);
    if (dev->selector) dev->selector->close(dev);
    dev->fns->close(dev);
}

weft_status wf_buf_create(wf_dev *dev, uint64_t size, wf_buf **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "buffer"));
    if (!size) return wf_fail(WEFT_ERR_ARG, "buffer of 0 bytes");
    if (size > dev->max_alloc) {
        return wf_fail(WEFT_ERR_NOMEM, "a buffer of %llu bytes is above the limit of %s, %llu bytes",
                       (unsigned long long)size, dev->info.id, (unsigned long long)dev->max_alloc);
    }
    return note(dev, dev->fns->buf_create(dev, size, out));
}

weft_status wf_host_create(wf_dev *dev, uint64_t size, wf_host *out)
{
    *out = (wf_host){0};
    WF_TRY(wf_dev_usable(dev, "host memory"));
    if (dev->fns->host_create && note(dev, dev->fns->host_create(dev, size, &out->pinned)) == WEFT_OK) {
        out->data = out->pinned->host;
        memset(out->data, 0, size);
        return WEFT_OK;
    }
    WF_TRY(wf_dev_usable(dev, "host memory"));
    out->data = wf_calloc(size, 1);
    return out->data ? WEFT_OK : WEFT_ERR_NOMEM;
}

void wf_host_destroy(wf_dev *dev, wf_host *h)
{
    if (h->pinned) wf_buf_destroy(h->pinned);
    else if (dev->lost) wf_leak_on_purpose(h->data);
    else free(h->data);
    *h = (wf_host){0};
}

weft_status wf_buf_wrap(wf_dev *dev, const void *host, uint64_t size, wf_buf **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "buffer"));
    if (!dev->fns->buf_wrap) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s cannot use host memory in place", dev->info.id);
    }
    if (!host || !size) return wf_fail(WEFT_ERR_ARG, "wrapping %llu bytes at %p",
                                       (unsigned long long)size, host);
    return note(dev, dev->fns->buf_wrap(dev, host, size, out));
}

void wf_buf_destroy(wf_buf *buf)
{
    if (buf) buf->dev->fns->buf_destroy(buf->dev, buf);
}

weft_status wf_queue_create(wf_dev *dev, wf_queue **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "queue"));
    return note(dev, dev->fns->queue_create(dev, false, out));
}

weft_status wf_copy_queue_create(wf_dev *dev, wf_queue **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "queue"));
    return note(dev, dev->fns->queue_create(dev, true, out));
}

void wf_queue_destroy(wf_queue *q)
{
    if (q) q->dev->fns->queue_destroy(q->dev, q);
}

weft_status wf_event_create(wf_dev *dev, wf_event **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "event"));
    return note(dev, dev->fns->event_create(dev, out));
}

void wf_event_destroy(wf_event *ev)
{
    if (ev) ev->dev->fns->event_destroy(ev->dev, ev);
}

/* ---- work ------------------------------------------------------------------------------------------- */

static weft_status check_range(const wf_queue *q, const wf_buf *buf, uint64_t off, uint64_t size,
                               const char *what)
{
    WF_TRY(wf_dev_usable(q->dev, what));
    if (!buf || buf->dev != q->dev) {
        return wf_fail(WEFT_ERR_ARG, "%s: the buffer is not of device %s", what, q->dev->info.id);
    }
    if (off > buf->size || size > buf->size - off) {
        return wf_fail(WEFT_ERR_ARG, "%s of %llu bytes at %llu leaves a buffer of %llu", what,
                       (unsigned long long)size, (unsigned long long)off,
                       (unsigned long long)buf->size);
    }
    return WEFT_OK;
}

static weft_status check_events(const wf_dev *dev, wf_event *const *waits, uint32_t n_waits,
                                const wf_event *signal, const char *what)
{
    if (n_waits && !waits) return wf_fail(WEFT_ERR_ARG, "%s: wait list is NULL", what);
    for (uint32_t i = 0; i < n_waits; i++) {
        if (!waits[i] || waits[i]->dev != dev) {
            return wf_fail(WEFT_ERR_ARG, "%s: wait %u is not an event of %s", what, i, dev->info.id);
        }
        if (waits[i] == signal) return wf_fail(WEFT_ERR_ARG, "%s would wait for itself", what);
    }
    if (signal && signal->dev != dev) {
        return wf_fail(WEFT_ERR_ARG, "%s: the signal is not an event of %s", what, dev->info.id);
    }
    return WEFT_OK;
}

weft_status wf_write(wf_queue *q, wf_buf *buf, uint64_t off, const void *src, uint64_t size,
                     wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(check_range(q, buf, off, size, "write"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "write"));
    if (!src && size) return wf_fail(WEFT_ERR_ARG, "write from NULL");
    return note(q->dev, q->dev->fns->write(q, buf, off, src, size, waits, n_waits, signal));
}

weft_status wf_read(wf_queue *q, wf_buf *buf, uint64_t off, void *dst, uint64_t size,
                    wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(check_range(q, buf, off, size, "read"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "read"));
    if (!dst && size) return wf_fail(WEFT_ERR_ARG, "read to NULL");
    return note(q->dev, q->dev->fns->read(q, buf, off, dst, size, waits, n_waits, signal));
}

weft_status wf_fill(wf_queue *q, wf_buf *buf, uint64_t off, uint64_t size, uint32_t pattern)
{
    WF_TRY(check_range(q, buf, off, size, "fill"));
    if (off % 4 || size % 4) {
        return wf_fail(WEFT_ERR_ARG, "fill: offset %llu and size %llu must be multiples of 4",
                       (unsigned long long)off, (unsigned long long)size);
    }
    return size ? note(q->dev, q->dev->fns->fill(q, buf, off, size, pattern)) : WEFT_OK;
}

static weft_status no_kernel(const wf_dev *dev, const wf_call *c)
{
    const wf_view *w = &c->in[WF_MAX(wf_op_input(c->op, WF_OPERAND_WEIGHT), 0)];
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has no kernel for %s on %s [%u, %u] to %s [%u, %u]",
                   dev->info.id, wf_ops[c->op].name, wf_dtypes[w->dtype].name, w->rows, w->cols,
                   wf_dtypes[c->out[0].dtype].name, c->out[0].rows, c->out[0].cols);
}

/* What a backend said to a call. A kernel that it refuses to start is no good here; who binds again gets another. */
static weft_status done(wf_dev *dev, const wf_call *c, int variant, weft_status s)
{
    if (s == WEFT_ERR_UNSUPPORTED) wf_drop(dev, c, variant);
    return note(dev, s);
}

/* Puts a call whose shape is known to be good in the queue. */
static weft_status submit(wf_queue *q, const wf_call *c)
{
    wf_dev *dev = q->dev;
    wf_call picked = *c;
    if (c->variant < 0) picked.variant = wf_pick(dev, c);
    if (picked.variant < 0) return no_kernel(dev, c);
    return done(dev, c, picked.variant, dev->fns->submit(q, &picked));
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
    if (n == 1) return submit(q, c);
    for (size_t i = 0; i < n; i++) {
        wf_call part = part_of(c, piece[i], i, n);
        if (part.variant >= 0 && !wf_can_use(dev, &part, part.variant)) part.variant = -1;
        WF_TRY(submit(q, &part));
    }
    return WEFT_OK;
}

static weft_status launch(wf_queue *q, const wf_call *c, const wf_bound *b)
{
    const wf_dev_fns *fns = q->dev->fns;
    if (fns->launch) return done(q->dev, c, b->variant, fns->launch(q, c, b));
    wf_call bound = *c;
    bound.variant = b->variant;
    return done(q->dev, c, b->variant, fns->submit(q, &bound));
}

static weft_status check_binding(const wf_dev *dev, const wf_call *c, const wf_binding *b)
{
    WF_TRY(check_call(dev, c));
    for (uint8_t i = 0; i < b->n; i++)
        if (wf_piece_of(c, b->part[i].piece).op != (enum wf_op)b->part[i].op) return wf_fail(WEFT_ERR_INTERNAL, "%s: bound for another call", wf_ops[c->op].name);
    return WEFT_OK;
}

weft_status wf_launch(wf_queue *q, const wf_call *c, const wf_binding *b)
{
    WF_TRY(wf_dev_usable(q->dev, "launch"));
    if (q->dev->params.check_calls) WF_TRY(check_binding(q->dev, c, b));
    if (b->n == 1) return launch(q, c, &b->part[0].b);
    if (!b->n) return wf_fail(WEFT_ERR_INTERNAL, "%s: launched before it was bound", wf_ops[c->op].name); /* nothing would signal */
    for (uint8_t i = 0; i < b->n; i++) {
        wf_call part = part_of(c, b->part[i].piece, i, b->n);
        WF_TRY(launch(q, &part, &b->part[i].b));
    }
    return WEFT_OK;
}

/* ---- fused calls ------------------------------------------------------------------------------------ */

uint32_t wf_fusion_of(const wf_call *c)
{
    if (c->op != WF_OP_GEMM) return 0;
    return (c->in[WF_GEMM_NORM].buf ? WF_FUSES_NORM : 0) | (c->p.silu ? WF_FUSES_SILU : 0) | (c->p.rope ? WF_FUSES_ROPE : 0);
}

bool wf_is_fused(const wf_call *c)
{
    return wf_fusion_of(c) != 0;
}

bool wf_has_fused_kernel(wf_dev *dev, const wf_call *c)
{
    if (!wf_is_fused(c)) return true;
    if (!dev->has_fused_gemm) return false;
    return c->variant >= 0 ? wf_can_use(dev, c, c->variant) : wf_pick(dev, c) >= 0;
}

size_t wf_pieces(wf_dev *dev, const wf_call *c, enum wf_piece out[WF_MAX_PIECES])
{
    size_t n = 0;
    bool norm = c->in[WF_GEMM_NORM].buf;
    if (wf_has_fused_kernel(dev, c)) return out[0] = WF_PIECE_WHOLE, 1;
    wf_call rest = wf_piece_of(c, WF_PIECE_REST);
    if (norm) out[n++] = WF_PIECE_NORM;
    if (norm && wf_is_fused(&rest) && wf_has_fused_kernel(dev, &rest)) return out[n++] = WF_PIECE_REST, n;
    out[n++] = WF_PIECE_PRODUCT;
    if (c->p.silu || c->p.rope) out[n++] = WF_PIECE_AFTER;
    return n;
}

/* A call of another op on behalf of c, without operands. */
static wf_call of_op(const wf_call *c, enum wf_op op)
{
    return (wf_call){.op = op, .variant = op == c->op ? c->variant : -1, .max_groups = c->max_groups, .p = c->p};
}

static wf_call norm_of(const wf_call *c)
{
    wf_call norm = of_op(c, WF_OP_RMSNORM);
    norm.in[WF_RMSNORM_X] = c->in[WF_GEMM_X], norm.in[WF_RMSNORM_W] = c->in[WF_GEMM_NORM];
    norm.out[WF_RMSNORM_Y] = c->out[WF_GEMM_NORM_WS];
    return norm;
}

/* All of c but its norm, and without events. */
static wf_call behind_norm(const wf_call *c)
{
    wf_call left = *c;
    left.waits = NULL, left.n_waits = 0, left.signal = left.started = NULL;
    if (!c->in[WF_GEMM_NORM].buf) return left;
    left.in[WF_GEMM_X] = c->out[WF_GEMM_NORM_WS];
    left.in[WF_GEMM_NORM] = left.out[WF_GEMM_NORM_WS] = (wf_view){0};
    return left;
}

/* The product alone. */
static wf_call product_of(const wf_call *c)
{
    wf_call plain = of_op(c, c->op);
    for (int i = WF_GEMM_X; i <= WF_GEMM_RESIDUAL; i++) plain.in[i] = c->in[i];
    if (c->in[WF_GEMM_NORM].buf) plain.in[WF_GEMM_X] = c->out[WF_GEMM_NORM_WS];
    plain.out[WF_GEMM_Y] = c->out[c->p.silu || c->p.rope ? WF_GEMM_GEMM_WS : WF_GEMM_Y];
    plain.p.silu = plain.p.rope = 0;
    return plain;
}

/* What follows the product of c, which is in the room for it. */
static wf_call after_product(const wf_call *c)
{
    wf_call silu = of_op(c, WF_OP_SILU_MUL), rope = of_op(c, WF_OP_ROPE_KV);
    silu.in[WF_SILU_MUL_GU] = rope.in[WF_ROPE_KV_QKV] = c->out[WF_GEMM_GEMM_WS];
    silu.out[WF_SILU_MUL_Y] = rope.out[WF_ROPE_KV_Q] = c->out[WF_GEMM_Y];
    rope.in[WF_ROPE_KV_TABLE] = c->in[WF_GEMM_TABLE];
    rope.in[WF_ROPE_KV_POS] = c->in[WF_GEMM_POS];
    rope.in[WF_ROPE_KV_SLOT] = c->in[WF_GEMM_SLOT];
    rope.out[WF_ROPE_KV_K_POOL] = c->out[WF_GEMM_K_POOL];
    rope.out[WF_ROPE_KV_V_POOL] = c->out[WF_GEMM_V_POOL];
    return c->p.silu ? silu : rope;
}

wf_call wf_piece_of(const wf_call *c, enum wf_piece piece)
{
    wf_call whole = *c;
    switch (piece) {
    case WF_PIECE_NORM: return norm_of(c);
    case WF_PIECE_REST: return behind_norm(c);
    case WF_PIECE_PRODUCT: return product_of(c);
    case WF_PIECE_AFTER: return after_product(c);
    default: break;
    }
    whole.waits = NULL, whole.n_waits = 0, whole.signal = whole.started = NULL;
    return whole;
}

weft_status wf_mark(wf_queue *q, wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(wf_dev_usable(q->dev, "mark"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "mark"));
    return note(q->dev, q->dev->fns->mark(q, waits, n_waits, signal));
}

weft_status wf_transfer(wf_queue *q, uint64_t bytes, wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    WF_TRY(wf_dev_usable(q->dev, "transfer"));
    WF_TRY(check_events(q->dev, waits, n_waits, signal, "transfer"));
    if (!q->dev->fns->transfer) return note(q->dev, q->dev->fns->mark(q, waits, n_waits, signal));
    return note(q->dev, q->dev->fns->transfer(q, bytes, waits, n_waits, signal));
}

weft_status wf_flush(wf_queue *q)
{
    WF_TRY(wf_dev_usable(q->dev, "flush"));
    return note(q->dev, q->dev->fns->flush(q));
}

weft_status wf_wait(wf_event *ev, uint32_t timeout_ms)
{
    WF_TRY(wf_dev_usable(ev->dev, "wait"));
    return note(ev->dev, ev->dev->fns->wait(ev, timeout_ms));
}

weft_status wf_event_times(wf_event *ev, uint64_t *begin, uint64_t *end)
{
    WF_TRY(wf_dev_usable(ev->dev, "times"));
    if (!ev->dev->params.profile || !ev->dev->fns->times)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s does not note when commands begin and end", ev->dev->info.id);
    return note(ev->dev, ev->dev->fns->times(ev, begin, end));
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

uint64_t wf_cache_flush_bytes(const wf_dev *dev)
{
    uint64_t least = dev->info.type == WEFT_DEVICE_GPU ? 4ull << 30 : 128ull << 20;
    return WF_MIN(WF_MAX(dev->cache / 4 * 9, least), dev->info.memory / 4);
}

/* ---- variants --------------------------------------------------------------------------------------- */

const wf_variant *wf_variant_at(wf_dev *dev, enum wf_op op, int variant)
{
    const wf_variant *list = NULL;
    size_t n = dev->fns->variants(dev, op, &list);
    return variant >= 0 && (size_t)variant < n ? list + variant : NULL;
}

int wf_variant_find(wf_dev *dev, enum wf_op op, const char *name)
{
    const wf_variant *v;
    for (int i = 0; (v = wf_variant_at(dev, op, i)); i++) {
        if (!strcmp(v->name, name)) return i;
    }
    return -1;
}

int wf_pick(wf_dev *dev, const wf_call *c)
{
    wf_candidate_kernel best;
    if (dev->selector) return dev->selector->pick(dev, c);
    return dev->fns->rank(dev, c, NULL, &best, 1) ? best.variant : -1;
}

double wf_expected_us(wf_dev *dev, const wf_call *c, int variant)
{
    wf_candidate_kernel all[64];
    size_t n = dev->fns->rank(dev, c, NULL, all, WF_LEN(all));
    for (size_t i = 0; i < n; i++)
        if (all[i].variant == variant) return all[i].us;
    return 0;
}

void wf_drop(wf_dev *dev, const wf_call *c, int variant)
{
    if (dev->selector) dev->selector->drop(dev, c, variant);
}

bool wf_can_use(wf_dev *dev, const wf_call *c, int variant)
{
    return dev->fns->supports(dev, c, variant) && !(dev->selector && dev->selector->dropped(dev, c, variant));
}

uint8_t wf_weight_layout(wf_dev *dev, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    uint8_t layout = dev->fns->weight_layout ? dev->fns->weight_layout(dev, dtype, rows, cols) : 0;
    int forced = dev->selector ? dev->selector->forced(dev, WF_OP_GEMM) : -1;
    return forced < 0 || wf_variant_at(dev, WF_OP_GEMM, forced)->layout == layout ? layout : 0;
}
