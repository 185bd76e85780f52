/* The queue: a ring of commands that the host fills and the leader thread empties in order.
 *
 * The call is copied, so the caller may free its struct at once. A command waits for its events, runs, and fires its
 * signal. It fires the signal also if it is skipped because an earlier command failed or nobody wants it any more, so
 * that no wait blocks forever; wait() reports why.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

#define RING      512 /* commands; a power of two */
#define SHARE     (RING / 4) /* of whose end a host that waits for room is told: of each it would be woken, or spin */
#define CMD_WAITS 6
#define STOP_POLL_NS 50000000u /* how often a leader that waits for an event checks for stop */
#define ASK_NS 20000000u /* how often a host that waits asks whether the work is still wanted */
#define WORK_PER_THREAD 40000u /* multiply-adds that justify waking one more thread */

typedef struct cmd {
    enum { CMD_CALL, CMD_COPY, CMD_FILL, CMD_MARK, CMD_STOP } kind;
    wf_call call;
    const wf_cpu_variant *variant;
    void *dst;
    const void *src;
    uint64_t size;
    uint64_t dst_pitch, src_pitch; /* of copies of several rows */
    uint32_t rows, pattern;
    uint32_t n_waits;
    struct {
        wf_cpu_event *event;
        uint32_t target;
    } waits[CMD_WAITS];
    wf_cpu_event *signal;
} cmd;

typedef struct wf_cpu_queue {
    wf_queue base;
    wf_cpu_dev *dev;
    struct wf_cpu_queue *next; /* of the device */
    wf_cpu_team *team; /* NULL: only copies */
    pthread_t leader;
    wf_eventcount eventcount;
    atomic_uint head, tail; /* commands added by the host and removed by the leader */
    atomic_uint room_from;  /* tail, rounded down to whole shares */
    atomic_bool stop;       /* skip remaining commands */
    cmd ring[RING];
} cpu_queue;

/* ---- the queues of a device ------------------------------------------------------------------ */

bool wf_cpu_still_runs(const wf_cpu_dev *dev)
{
    if (!dev->base.lost) return false;
    for (const cpu_queue *q = dev->queues; q; q = q->next)
        if (atomic_load(&q->head) != atomic_load(&q->tail)) return true;
    return false;
}

/* ---- the leader ------------------------------------------------------------------------------ */

/* Estimates the work of a call in multiply-adds or loads, to choose the number of threads. */
static uint64_t call_work(const wf_call *c)
{
    uint64_t rows = c->out[0].rows, cols = c->out[0].cols;
    switch (c->op) {
    case WF_OP_GEMM: return rows * cols * c->in[WF_GEMM_X].cols;
    case WF_OP_GROUPED_GEMM: return rows * cols * c->in[WF_GROUPED_GEMM_W].cols;
    case WF_OP_ROUTER: return rows * cols * c->in[WF_ROUTER_X].cols;
    case WF_OP_WEIGHTED_SUM: return rows * c->in[WF_WEIGHTED_SUM_X].cols;
    case WF_OP_ATTENTION: return rows * cols * 2 * (c->p.max_kv ? c->p.max_kv : 256);
    case WF_OP_SAMPLE: return (uint64_t)c->in[WF_SAMPLE_X].rows * c->in[WF_SAMPLE_X].cols * 32;
    case WF_OP_ARGMAX: return (uint64_t)c->in[WF_ARGMAX_X].rows * c->in[WF_ARGMAX_X].cols;
    case WF_OP_PAGE_COPY: return (uint64_t)c->in[WF_PAGE_COPY_SRC].rows * c->in[WF_PAGE_COPY_SRC].cols * cols;
    default: return rows * cols * 4;
    }
}

static weft_status run_call(cpu_queue *q, const cmd *c)
{
    const wf_call *call = &c->call;
    uint64_t work = call_work(call);
    if (work == 0) return WEFT_OK;
    uint64_t n = WF_MIN(1 + work / WORK_PER_THREAD, (uint64_t)wf_cpu_team_size(q->team));
    if (call->max_groups) n = WF_MIN(n, call->max_groups);
    wf_cpu_scratch_size size = {0};
    if (c->variant->scratch) size = c->variant->scratch(call);
    return wf_cpu_team_run(q->team, c->variant->run, call, (uint32_t)n, size);
}

static void fill_words(void *dst, uint64_t n, uint32_t pattern)
{
    for (uint64_t i = 0; i < n; i++) memcpy((char *)dst + 4 * i, &pattern, 4);
}

/* Of nothing: a join, without buffers. */
static void copy(const cmd *c)
{
    for (uint32_t i = 0; c->size && i < c->rows; i++)
        memcpy((char *)c->dst + i * c->dst_pitch, (const char *)c->src + i * c->src_pitch, c->size);
}

static void run_cmd(cpu_queue *q, cmd *c)
{
    for (uint32_t i = 0; i < c->n_waits; i++)
        while (!atomic_load(&q->stop) &&
               !wf_cpu_event_wait(c->waits[i].event, c->waits[i].target, wf_now_ns() + STOP_POLL_NS)) {}
    uint64_t begin = c->signal ? wf_now_ns() : 0;
    if (!atomic_load(&q->stop) && !atomic_load(&q->dev->failed) && !atomic_load(&q->dev->skip)) {
        weft_status s = WEFT_OK;
        if (c->kind == CMD_CALL) s = run_call(q, c);
        if (c->kind == CMD_COPY) copy(c);
        if (c->kind == CMD_FILL) fill_words(c->dst, c->size / 4, c->pattern);
        if (s != WEFT_OK) wf_cpu_fail(q->dev, s, wf_error());
    }
    if (c->signal) c->signal->begin_ns = begin, c->signal->end_ns = wf_now_ns();
}

static void *leader_main(void *arg)
{
    cpu_queue *q = arg;
    for (uint32_t tail = 0;; tail++) {
        wf_eventcount_wait(&q->eventcount, &q->head, tail);
        cmd *c = &q->ring[tail % RING];
        if (c->kind == CMD_STOP) return NULL;
        run_cmd(q, c);
        if (c->signal) wf_cpu_event_fire(c->signal);
        atomic_store(&q->tail, tail + 1);
        if ((tail + 1) % SHARE) continue;
        atomic_store(&q->room_from, tail + 1);
        wf_eventcount_notify(&q->eventcount);
    }
}

weft_status wf_cpu_queue_create(wf_dev *dev, bool only_copies, wf_queue **out)
{
    cpu_queue *q = wf_calloc(1, sizeof(*q));
    if (!q) return WEFT_ERR_NOMEM;
    q->base.dev = dev;
    q->dev = (wf_cpu_dev *)dev;
    weft_status s = only_copies ? WEFT_OK : wf_cpu_team_of(q->dev, &q->team);
    if (s != WEFT_OK) {
        free(q);
        return s;
    }
    if (pthread_create(&q->leader, NULL, leader_main, q) == 0) {
        q->next = q->dev->queues;
        q->dev->queues = q;
        *out = &q->base;
        return WEFT_OK;
    }
    wf_cpu_team_destroy(q->team);
    free(q);
    return wf_fail(WEFT_ERR_NOMEM, "cpu: cannot start a queue's thread; use fewer threads");
}

static void ask_whether_wanted(wf_cpu_dev *dev)
{
    if (wf_dev_unwanted(&dev->base)) atomic_store(&dev->skip, true);
}

void wf_cpu_resume(wf_dev *dev)
{
    atomic_store(&((wf_cpu_dev *)dev)->skip, false);
}

/* Returns the next free command, cleared. Waits while no share of the ring is known to be free. This cannot deadlock,
 * because events are submitted before they are waited for, and a full ring has the end of a share. */
static cmd *begin_cmd(cpu_queue *q, int kind)
{
    uint32_t head = atomic_load(&q->head);
    for (uint32_t from; head - (from = atomic_load(&q->room_from)) >= RING; ask_whether_wanted(q->dev))
        wf_eventcount_wait_until(&q->eventcount, &q->room_from, from, wf_now_ns() + ASK_NS);
    cmd *c = &q->ring[head % RING];
    c->kind = kind;
    c->n_waits = 0;
    c->signal = NULL;
    return c;
}

static void end_cmd(cpu_queue *q)
{
    atomic_fetch_add(&q->head, 1);
    wf_eventcount_notify(&q->eventcount);
}

/* Stores the waits in c; those that do not fit go to marker commands before it. */
static cmd *add_waits(cpu_queue *q, cmd *c, wf_event *const *waits, uint32_t n)
{
    int kind = c->kind;
    for (uint32_t i = 0; i < n; i++) {
        wf_cpu_event *e = (wf_cpu_event *)waits[i];
        if (wf_cpu_event_due(e, e->armed)) continue;
        if (c->n_waits == CMD_WAITS) {
            c->kind = CMD_MARK;
            end_cmd(q);
            c = begin_cmd(q, kind);
        }
        c->waits[c->n_waits].event = e;
        c->waits[c->n_waits++].target = e->armed;
    }
    return c;
}

static void finish_cmd(cpu_queue *q, cmd *c, wf_event *signal)
{
    c->signal = (wf_cpu_event *)signal;
    if (signal) c->signal->armed++;
    end_cmd(q);
}

void wf_cpu_queue_destroy(wf_dev *dev, wf_queue *queue)
{
    cpu_queue *q = (cpu_queue *)queue;
    (void)dev;
    atomic_store(&q->stop, true);
    begin_cmd(q, CMD_STOP);
    end_cmd(q);
    pthread_join(q->leader, NULL);
    cpu_queue **at = &q->dev->queues;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    wf_cpu_team_destroy(q->team);
    free(q);
}

/* size: of each of the rows */
static weft_status submit_copy(wf_queue *queue, void *dst, const void *src, uint64_t size, uint32_t rows,
                               uint64_t dst_pitch, uint64_t src_pitch, wf_event *const *waits, uint32_t n_waits,
                               wf_event *signal)
{
    cpu_queue *q = (cpu_queue *)queue;
    WF_TRY(wf_cpu_check(q->dev));
    cmd *c = add_waits(q, begin_cmd(q, CMD_COPY), waits, n_waits);
    c->dst = dst;
    c->src = src;
    c->size = size;
    c->rows = rows;
    c->dst_pitch = dst_pitch;
    c->src_pitch = src_pitch;
    finish_cmd(q, c, signal);
    return WEFT_OK;
}

weft_status wf_cpu_write(wf_queue *q, wf_buf *b, uint64_t off, const void *src, uint64_t size,
                         wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    return submit_copy(q, (char *)b->host + off, src, size, 1, 0, 0, waits, n_waits, signal);
}

weft_status wf_cpu_read(wf_queue *q, wf_buf *b, uint64_t off, void *dst, uint64_t size,
                        wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    return submit_copy(q, dst, (const char *)b->host + off, size, 1, 0, 0, waits, n_waits, signal);
}

weft_status wf_cpu_copy_rows(wf_queue *q, bool out, const wf_view *v, void *host, wf_event *const *waits,
                             uint32_t n_waits, wf_event *signal)
{
    const uint64_t row = wf_dtype_bytes(v->dtype, v->cols), pitch = wf_dtype_bytes(v->dtype, v->stride);
    void *own = (char *)v->buf->host + v->offset;
    return out ? submit_copy(q, host, own, row, v->rows, row, pitch, waits, n_waits, signal)
               : submit_copy(q, own, host, row, v->rows, pitch, row, waits, n_waits, signal);
}

weft_status wf_cpu_fill(wf_queue *queue, wf_buf *b, uint64_t off, uint64_t size, uint32_t pattern)
{
    cpu_queue *q = (cpu_queue *)queue;
    WF_TRY(wf_cpu_check(q->dev));
    cmd *c = begin_cmd(q, CMD_FILL);
    c->dst = (char *)b->host + off;
    c->size = size;
    c->pattern = pattern;
    finish_cmd(q, c, NULL);
    return WEFT_OK;
}

static weft_status submit_call(wf_queue *queue, const wf_call *call, const wf_cpu_variant *variant)
{
    cpu_queue *q = (cpu_queue *)queue;
    WF_TRY(wf_cpu_check(q->dev));
    cmd *c = add_waits(q, begin_cmd(q, CMD_CALL), call->waits, call->n_waits);
    c->call = *call;
    c->call.waits = NULL;
    c->call.n_waits = 0;
    c->variant = variant;
    finish_cmd(q, c, call->signal);
    return WEFT_OK;
}

weft_status wf_cpu_submit(wf_queue *queue, const wf_call *call)
{
    size_t n;
    return submit_call(queue, call, wf_cpu_variant_of(call->op, &n) + call->variant);
}

weft_status wf_cpu_launch(wf_queue *queue, const wf_call *call, const wf_bound *b)
{
    return submit_call(queue, call, b->kernel);
}

/* Also after a failure, which the wait tells: a call may still run, and who gives up waits for its end. */
weft_status wf_cpu_mark(wf_queue *queue, wf_event *const *waits, uint32_t n, wf_event *signal)
{
    cpu_queue *q = (cpu_queue *)queue;
    finish_cmd(q, add_waits(q, begin_cmd(q, CMD_MARK), waits, n), signal);
    return WEFT_OK;
}

weft_status wf_cpu_flush(wf_queue *q)
{
    (void)q;
    return WEFT_OK; /* the leader needs none */
}

weft_status wf_cpu_wait(wf_event *ev, uint32_t timeout_ms)
{
    wf_cpu_event *e = (wf_cpu_event *)ev;
    wf_cpu_dev *dev = (wf_cpu_dev *)ev->dev;
    uint64_t until = wf_now_ns() + (uint64_t)timeout_ms * 1000000u;
    while (!wf_cpu_event_wait(e, e->armed, WF_MIN(until, wf_now_ns() + ASK_NS))) {
        if (wf_now_ns() < until) {
            ask_whether_wanted(dev);
            continue;
        }
        /* What has not run yet never does, on no queue: its inputs may be missing, for a queue that is destroyed fires
         * its events all the same. */
        dev->base.lost = true;
        atomic_store(&dev->skip, true);
        return wf_fail(WEFT_ERR_TIMEOUT, "cpu: a call did not end within %u ms", timeout_ms);
    }
    WF_TRY(wf_cpu_check(dev));
    return atomic_load(&dev->skip) ? wf_fail(WEFT_ERR_CANCELLED, "cpu: nobody wanted the work any more") : WEFT_OK;
}

weft_status wf_cpu_poll(wf_event *ev, bool *done)
{
    wf_cpu_event *e = (wf_cpu_event *)ev;
    wf_cpu_dev *dev = (wf_cpu_dev *)ev->dev;
    if (!wf_cpu_event_due(e, e->armed)) return WEFT_OK;
    WF_TRY(wf_cpu_check(dev)); /* commands that were skipped have ended, too */
    if (atomic_load(&dev->skip)) return wf_fail(WEFT_ERR_CANCELLED, "cpu: nobody wanted the work any more");
    return *done = true, WEFT_OK;
}

weft_status wf_cpu_event_times(wf_event *ev, uint64_t *begin, uint64_t *end)
{
    const wf_cpu_event *e = (const wf_cpu_event *)ev;
    *begin = e->begin_ns;
    *end = e->end_ns;
    return WEFT_OK;
}
