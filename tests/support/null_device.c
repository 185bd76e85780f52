/* null_device: the malloc device. See null_device.h. */
#include "support/null_device.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX /* the end of work that hangs */

static struct {
    wf_null_config c;
    uint64_t calls[WF_NULL_N_SLOTS];
    uint32_t alive;
    uint64_t bytes; /* of buffers */
} state;

typedef struct null_queue {
    wf_queue base;
    struct null_queue *next; /* of the device */
    uint64_t end; /* fake time at which its last work ends */
    enum wf_op op; /* that work; WF_N_OPS: a copy, say */
    uint32_t number; /* of those that the device has made, from 1 */
} null_queue;

typedef struct null_dev {
    wf_dev base;
    null_queue *queues;
    uint32_t n_made; /* queues, also those that are gone */
    uint64_t now;
} null_dev;

typedef struct null_event {
    wf_event base;
    uint64_t began, at;
    bool mark;
} null_event;

void wf_null_configure(const wf_null_config *c)
{
    uint32_t alive = state.alive;
    uint64_t bytes = state.bytes;
    memset(&state, 0, sizeof state);
    if (c) state.c = *c;
    state.alive = alive;
    state.bytes = bytes;
}

uint64_t wf_null_calls(enum wf_null_slot slot)
{
    return state.calls[slot];
}

uint32_t wf_null_alive(void)
{
    return state.alive;
}

uint64_t wf_null_now(const wf_dev *dev)
{
    return ((const null_dev *)dev)->now;
}

/* Counts a call of a slot; q: NULL where it has no queue. True: this is the one to fail. */
static bool is_due(enum wf_null_slot slot, const wf_queue *q)
{
    const wf_null_config *c = &state.c;
    if (c->queue && (!q || ((const null_queue *)q)->number != c->queue)) return false;
    state.calls[slot]++;
    state.calls[WF_NULL_ANY]++;
    return c->nth && (slot == c->slot || c->slot == WF_NULL_ANY) && state.calls[c->slot] == c->nth;
}

static weft_status count_call(enum wf_null_slot slot, const wf_queue *q)
{
    static const char *const names[] = {"open", "buffer", "queue", "event", "write", "read",
                                        "fill", "submit", "mark",  "transfer", "flush", "wait",  "poll", "bind"};
    if (!is_due(slot, q) || !state.c.status) return WEFT_OK;
    return wf_fail(state.c.status, "null device: injected failure of %s", names[slot]);
}

/* ---- memory, queues, events --------------------------------------------------------------------------- */

static void *make_object(size_t size)
{
    void *p = wf_calloc(1, size);
    state.alive += p != NULL;
    return p;
}

static void free_object(void *p)
{
    state.alive -= p != NULL;
    free(p);
}

static weft_status null_buf_create(wf_dev *dev, uint64_t size, wf_buf **out)
{
    WF_TRY(count_call(WF_NULL_BUF_CREATE, NULL));
    if (state.c.full && state.bytes + size > state.c.full) return wf_fail(WEFT_ERR_NOMEM, "null device: full");
    wf_buf *b = make_object(sizeof *b);
    if (!b) return WEFT_ERR_NOMEM;
    *b = (wf_buf){dev, size, wf_calloc(size, 1)};
    if (!b->host) {
        free_object(b);
        return WEFT_ERR_NOMEM;
    }
    state.bytes += size;
    *out = b;
    return WEFT_OK;
}

static void null_buf_destroy(wf_dev *dev, wf_buf *b)
{
    (void)dev;
    state.bytes -= b->size;
    free(b->host);
    free_object(b);
}

static weft_status null_queue_create(wf_dev *dev, bool only_copies, wf_queue **out)
{
    (void)only_copies;
    WF_TRY(count_call(WF_NULL_QUEUE_CREATE, NULL));
    null_queue *q = make_object(sizeof *q);
    if (!q) return WEFT_ERR_NOMEM;
    q->base.dev = dev;
    q->number = ++((null_dev *)dev)->n_made;
    q->next = ((null_dev *)dev)->queues;
    ((null_dev *)dev)->queues = q;
    *out = &q->base;
    return WEFT_OK;
}

static void null_queue_destroy(wf_dev *dev, wf_queue *q)
{
    null_queue **at = &((null_dev *)dev)->queues;
    while (&(*at)->base != q) at = &(*at)->next;
    *at = (*at)->next;
    free_object(q);
}

static weft_status null_event_create(wf_dev *dev, wf_event **out)
{
    WF_TRY(count_call(WF_NULL_EVENT_CREATE, NULL));
    null_event *e = make_object(sizeof *e);
    if (!e) return WEFT_ERR_NOMEM;
    e->base.dev = dev;
    *out = &e->base;
    return WEFT_OK;
}

static void null_event_destroy(wf_dev *dev, wf_event *e)
{
    (void)dev;
    free_object(e);
}

/* ---- work: done at once, but ends later on the fake clock ----------------------------------------------- */

/* Work cannot begin before what the host had already waited for when it submitted this. */
static void catch_up(null_queue *q)
{
    q->end = WF_MAX(q->end, ((const null_dev *)q->base.dev)->now);
}

static weft_status advance_queue(wf_queue *q, enum wf_null_slot slot, uint64_t cost, wf_event *signal)
{
    null_queue *nq = (null_queue *)q;
    bool hang = is_due(slot, q);
    catch_up(nq);
    nq->op = WF_N_OPS;
    if (hang && state.c.status) return wf_fail(state.c.status, "null device: injected failure of its work");
    if (hang) nq->end = NEVER;
    uint64_t began = nq->end;
    if (nq->end != NEVER) nq->end += cost;
    if (signal) *(null_event *)signal = (null_event){((null_event *)signal)->base, began, nq->end};
    return WEFT_OK;
}

static void await_events(wf_queue *q, wf_event *const *waits, uint32_t n)
{
    null_queue *nq = (null_queue *)q;
    for (uint32_t i = 0; i < n; i++) nq->end = WF_MAX(nq->end, ((null_event *)waits[i])->at);
}

/* The queue which works, and that the longest, when this one goes on; NULL: none. */
static const null_queue *company_of(null_queue *q)
{
    const null_queue *longest = NULL;
    catch_up(q);
    for (const null_queue *o = ((const null_dev *)q->base.dev)->queues; o; o = o->next)
        if (o != q && o->end != NEVER && o->end > (longest ? longest->end : q->end)) longest = o;
    return longest;
}

static weft_status null_write(wf_queue *q, wf_buf *b, uint64_t off, const void *src, uint64_t size,
                              wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    await_events(q, waits, n_waits);
    if (size) memcpy((char *)b->host + off, src, size);
    return advance_queue(q, WF_NULL_WRITE, 1000, signal);
}

static weft_status null_read(wf_queue *q, wf_buf *b, uint64_t off, void *dst, uint64_t size,
                             wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    await_events(q, waits, n_waits);
    if (size) memcpy(dst, (char *)b->host + off, size);
    uint64_t ns = state.c.read_ns ? state.c.read_ns(size, company_of((null_queue *)q) != NULL) : 1000;
    return advance_queue(q, WF_NULL_READ, ns, signal);
}

static weft_status null_fill(wf_queue *q, wf_buf *b, uint64_t off, uint64_t size, uint32_t pattern)
{
    for (uint64_t i = 0; i < size; i += 4) memcpy((char *)b->host + off + i, &pattern, 4);
    return advance_queue(q, WF_NULL_FILL, 1000, NULL);
}

static uint64_t cost_of(null_queue *q, const wf_call *c)
{
    uint64_t ns = state.c.cost_ns ? state.c.cost_ns(c) : 1000;
    const null_queue *other = company_of(q);
    return state.c.beside && other ? (uint64_t)((double)ns * state.c.beside(c, other->op)) : ns;
}

static weft_status null_submit(wf_queue *q, const wf_call *c)
{
    await_events(q, c->waits, c->n_waits);
    if (state.c.compute) WF_TRY(state.c.compute(c));
    WF_TRY(advance_queue(q, WF_NULL_SUBMIT, cost_of((null_queue *)q, c), c->signal));
    ((null_queue *)q)->op = c->op;
    return WEFT_OK;
}

static weft_status null_mark(wf_queue *q, wf_event *const *waits, uint32_t n, wf_event *signal)
{
    await_events(q, waits, n);
    weft_status s = advance_queue(q, WF_NULL_MARK, 0, signal);
    if (s == WEFT_OK && signal) ((null_event *)signal)->mark = true;
    return s;
}

static weft_status null_transfer(wf_queue *q, uint64_t bytes, wf_event *const *waits, uint32_t n, wf_event *signal)
{
    await_events(q, waits, n);
    return advance_queue(q, WF_NULL_TRANSFER, state.c.transfer_ns ? state.c.transfer_ns(bytes) : 1000, signal);
}

static weft_status null_flush(wf_queue *q)
{
    return count_call(WF_NULL_FLUSH, q);
}

static weft_status null_wait(wf_event *e, uint32_t timeout_ms)
{
    null_dev *dev = (null_dev *)e->dev;
    uint64_t at = ((null_event *)e)->at;
    WF_TRY(count_call(WF_NULL_WAIT, NULL));
    if (at == NEVER) return wf_fail(WEFT_ERR_TIMEOUT, "null device: work did not end in %u ms", timeout_ms);
    dev->now = WF_MAX(dev->now, at);
    return WEFT_OK;
}

/* Each look takes a microsecond, so that who only looks sees the end, too. */
static weft_status null_poll(wf_event *e, bool *done)
{
    null_dev *dev = (null_dev *)e->dev;
    uint64_t at = ((null_event *)e)->at;
    WF_TRY(count_call(WF_NULL_POLL, NULL));
    dev->now += at > dev->now ? 1000 : 0;
    return *done = at <= dev->now, WEFT_OK;
}

/* On the fake clock. Nobody may want those of a mark, which other devices do not know. */
static weft_status null_times(wf_event *e, uint64_t *begin, uint64_t *end)
{
    if (((null_event *)e)->mark) return wf_fail(WEFT_ERR_UNSUPPORTED, "null device: a mark has no times");
    *begin = ((null_event *)e)->began;
    *end = ((null_event *)e)->at;
    return WEFT_OK;
}

/* ---- variants: as many as the test asks for, all of which support everything ---------------------------- */

static size_t null_variants(wf_dev *dev, enum wf_op op, const wf_variant **list)
{
    static wf_variant all[] = {
        {"null", WF_TIER_BASE, 1, "null", WF_ARITH_F32},
        {"null2", WF_TIER_BASE, 1, "null", WF_ARITH_F32},
        {"null3", WF_TIER_BASE, 1, "null", WF_ARITH_F32},
    };
    (void)dev;
    (void)op;
    for (size_t i = 0; i < WF_LEN(all); i++) all[i].flags = state.c.flags[i];
    *list = all;
    return WF_MAX(1, WF_MIN(state.c.variants, WF_LEN(all)));
}

static bool null_supports(wf_dev *dev, const wf_call *c, int variant)
{
    (void)dev;
    (void)c;
    (void)variant;
    return true;
}

static size_t null_rank(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    const wf_variant *list;
    size_t n = null_variants(dev, c->op, &list), found = 0;
    for (size_t i = 0; i < n && found < cap; i++)
        if (!(list[i].flags & WF_ON_REQUEST) && (!class || !strcmp(class, list[i].class)))
            out[found++] = (wf_candidate_kernel){(int)i,
                                                 state.c.expected_ns ? (float)state.c.expected_ns(c) / 1000 : 0};
    return found;
}

static weft_status null_bind(wf_dev *dev, const wf_call *c, int variant, wf_bound *out)
{
    *out = (wf_bound){variant, NULL};
    if (state.c.bound) state.c.bound(c);
    if (dev->params.on_progress) dev->params.on_progress(dev->params.user, "compile", 0); /* as those that compile do */
    return count_call(WF_NULL_BIND, NULL);
}

/* ---- the backend ------------------------------------------------------------------------------------------ */

static void null_close(wf_dev *dev)
{
    free_object(dev);
}

static const wf_dev_fns fns = {
    .close = null_close, .buf_create = null_buf_create, .host_create = null_buf_create, .buf_destroy = null_buf_destroy,
    .queue_create = null_queue_create, .queue_destroy = null_queue_destroy, .event_create = null_event_create,
    .event_destroy = null_event_destroy, .write = null_write, .read = null_read, .fill = null_fill,
    .submit = null_submit, .mark = null_mark, .transfer = null_transfer, .flush = null_flush, .wait = null_wait, .poll = null_poll,
    .times = null_times, .variants = null_variants, .supports = null_supports, .rank = null_rank, .bind = null_bind,
};

static size_t null_list(struct weft_device_info *out, size_t cap)
{
    if (!cap) return 1;
    *out = (struct weft_device_info){.id = "null", .name = "null device", .platform = "weft null", .driver = WF_VERSION,
                                     .version = "fake", .tiers = "base", .type = WEFT_DEVICE_OTHER,
                                     .available = state.c.available,
                                     .memory = state.c.memory ? state.c.memory : 1ull << 40,
                                     .own_memory = state.c.own_memory ? state.c.memory : 0,
                                     .max_alloc = state.c.max_alloc ? state.c.max_alloc : 1ull << 40,
                                     .compute_units = WF_MAX(1u, state.c.compute_units), .max_group = 1};
    return 1;
}

static weft_status null_open(size_t i, const wf_open_params *p, wf_dev **out)
{
    (void)i;
    WF_TRY(count_call(WF_NULL_OPEN, NULL));
    null_dev *dev = make_object(sizeof *dev);
    if (!dev) return WEFT_ERR_NOMEM;
    null_list(&dev->base.info, 1);
    dev->base.fns = &fns;
    dev->base.params = *p;
    if (p->force && !strstr(p->force, "=null"))
        dev->base.params.force = NULL; /* those of other devices: one is as good as another */
    dev->base.max_alloc = p->max_alloc ? WF_MIN(p->max_alloc, dev->base.info.max_alloc) : dev->base.info.max_alloc;
    if (state.c.pci) wf_copy(dev->base.pci, sizeof dev->base.pci, state.c.pci);
    dev->base.align = 64;
    dev->base.act = WF_F32;
    dev->base.stack_weights = WF_STACK_ALIKE;
    dev->base.adjacent_pairs = true;
    dev->base.has_fused_gemm = dev->base.has_fused_router = state.c.fused;
    dev->base.timing_only = !state.c.compute;
    *out = &dev->base;
    return WEFT_OK;
}

const wf_backend wf_backend_null = {"null", null_list, null_open};
