/* dev: the front of the device contract, of devices, memory, queues, events and variants; queue.c has the work that is
 * put into queues. Together they own three promises: a backend sees only calls that are well formed, a lost device is
 * never called again, and no wait is without a limit. */
#include "dev/front.h"

#include <stdlib.h>
#include <string.h>

enum { /* as ops.def calls them */
    ACT = WF_OPERAND_ACT, F32 = WF_OPERAND_F32, F16 = WF_OPERAND_F16, I32 = WF_OPERAND_I32, WEIGHT = WF_OPERAND_WEIGHT,
    OPTIONAL = WF_OPERAND_OPTIONAL, SHARED = WF_OPERAND_SHARED, BY_ROW = WF_OPERAND_BY_ROW, KV = WF_OPERAND_KV
};

const wf_op_info wf_ops[WF_N_OPS] = {
#define OPERAND(id, name, what) [WF_##id] = {name, what},
#define X(id, name, class, in, out)                                                                                    \
    [WF_OP_##id] = {#name, WF_CLASS_##class, WF_N_##id##_IN, WF_N_##id##_OUT, {in}, {out}},
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

static const char *const tier_names[] = {"base", "dot", "neutral", "matrix"};

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
    return wf_fail(WEFT_ERR_ARG, "unknown tier \"%s\": use base, dot (on CPUs simd), neutral or matrix", name);
}

/* ---- a lost device -------------------------------------------------------------------------------- */

weft_status wf_dev_usable(const wf_dev *dev, const char *what)
{
    if (!dev->lost) return WEFT_OK;
    return wf_fail(WEFT_ERR_DEVICE, "%s: device %s (%s) was lost; close and open it again", what,
                   dev->info.id, dev->info.name);
}

weft_status wf_dev_note(wf_dev *dev, weft_status s)
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
    return wf_dev_note(dev, dev->fns->buf_create(dev, size, out));
}

weft_status wf_host_create(wf_dev *dev, uint64_t size, wf_host *out)
{
    *out = (wf_host){0};
    WF_TRY(wf_dev_usable(dev, "host memory"));
    weft_status s = dev->fns->host_create ? wf_dev_note(dev, dev->fns->host_create(dev, size, &out->pinned))
                                          : WEFT_ERR_UNSUPPORTED;
    if (dev->lost) return s;
    if (s == WEFT_OK) {
        out->data = out->pinned->host;
        memset(out->data, 0, size);
        return WEFT_OK;
    }
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

weft_status wf_buf_wrap(wf_dev *dev, const void *host, uint64_t size, uint64_t together, wf_buf **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "buffer"));
    if (!dev->fns->buf_wrap) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s cannot use host memory in place", dev->info.id);
    }
    if (!host || !size) return wf_fail(WEFT_ERR_ARG, "wrapping %llu bytes at %p",
                                       (unsigned long long)size, host);
    return wf_dev_note(dev, dev->fns->buf_wrap(dev, host, size, together, out));
}

void wf_buf_destroy(wf_buf *buf)
{
    if (buf) buf->dev->fns->buf_destroy(buf->dev, buf);
}

weft_status wf_queue_create(wf_dev *dev, wf_queue **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "queue"));
    return wf_dev_note(dev, dev->fns->queue_create(dev, false, out));
}

weft_status wf_copy_queue_create(wf_dev *dev, wf_queue **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "queue"));
    return wf_dev_note(dev, dev->fns->queue_create(dev, true, out));
}

weft_status wf_queue_reserve(wf_queue *q, uint64_t *bytes)
{
    uint64_t has = 0;
    WF_TRY(wf_dev_usable(q->dev, "reserve"));
    if (q->dev->fns->reserve) WF_TRY(wf_dev_note(q->dev, q->dev->fns->reserve(q, &has)));
    *bytes += has;
    return WEFT_OK;
}

void wf_queue_destroy(wf_queue *q)
{
    if (q) q->dev->fns->queue_destroy(q->dev, q);
}

weft_status wf_event_create(wf_dev *dev, wf_event **out)
{
    *out = NULL;
    WF_TRY(wf_dev_usable(dev, "event"));
    return wf_dev_note(dev, dev->fns->event_create(dev, out));
}

void wf_event_destroy(wf_event *ev)
{
    if (ev) ev->dev->fns->event_destroy(ev->dev, ev);
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
    wf_candidate_kernel all[WF_MAX_VARIANTS];
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

static bool reads_layout(wf_dev *dev, enum wf_op op, uint8_t layout)
{
    const wf_variant *v;
    for (int i = 0; (v = wf_variant_at(dev, op, i)); i++)
        if (wf_reads_layout(v, layout)) return true;
    return false;
}

uint8_t wf_weight_layout(wf_dev *dev, enum wf_op op, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    uint8_t layout = dev->fns->weight_layout ? dev->fns->weight_layout(dev, dtype, rows, cols) : 0;
    if (dev->saves_memory && layout &&
        dev->fns->weight_bytes(dev, layout, dtype, rows, cols) > rows * wf_dtype_bytes(dtype, cols))
        layout = 0;
    int forced = dev->selector ? dev->selector->forced(dev, op) : -1;
    if (forced >= 0) return wf_reads_layout(wf_variant_at(dev, op, forced), layout) ? layout : 0;
    return reads_layout(dev, op, layout) ? layout : 0;
}
