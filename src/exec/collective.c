/* collective: nodes of the network in a group of devices. What a device gives comes to pinned host memory, unless its
 * own is the host's; it is exchanged there (dist/comm.h), and what the device gets goes back. The thread that submits
 * waits meanwhile: what a plan puts before the node, on whatever queue, is computed beside it. See exec.h. */
#include "exec/internal.h"

_Static_assert((int)WF_COMM_QUEUED >= (int)WF_MAX_RANGES, "a device sends all nano-batches before it receives one");

/* Rows of a matrix in device memory, to or from rows without gaps. */
static weft_status copy_rows(wf_queue *q, bool out, const wf_view *v, uint8_t *host, wf_event *const *waits,
                             uint32_t n_waits, wf_event *end)
{
    uint64_t row = wf_dtype_bytes(v->dtype, v->cols), pitch = wf_dtype_bytes(v->dtype, v->stride);
    uint32_t n = pitch == row ? v->rows : 1;
    for (uint32_t i = 0; i < v->rows; i += n, n_waits = 0) {
        wf_event *signal = i + n >= v->rows ? end : NULL;
        uint64_t at = v->offset + i * pitch;
        WF_TRY(out ? wf_read(q, v->buf, at, host + i * row, n * row, waits, n_waits, signal)
                   : wf_write(q, v->buf, at, host + i * row, n * row, waits, n_waits, signal));
    }
    return WEFT_OK;
}

/* Queues hand over what was submitted: it may be what an event waits for. */
static weft_status flush_all(wf_exec *e, const wf_submission *now)
{
    for (uint32_t q = 0; q < e->n_queues; q++)
        if (now->f->used[q]) WF_TRY(wf_flush(e->queues[q]));
    return WEFT_OK;
}

/* Where a node's operands are for the exchange; give and get may be the same. */
typedef struct places {
    uint8_t *give, *get; /* get NULL: this device gets nothing */
    bool direct;         /* they are the device's own memory, which is the host's */
} places;

static uint8_t *memory_of(const wf_view *v)
{
    bool whole = v->cols == v->stride;
    return v->buf && v->buf->host && whole ? (uint8_t *)v->buf->host + v->offset : NULL;
}

static places place(const wf_exec *e, enum wf_node_kind kind, const wf_view *in, const wf_view *out)
{
    uint8_t *host = e->exchanged.host.data, *a = memory_of(in), *b = memory_of(out);
    bool gathers = kind == WF_NODE_ALL_GATHER, nothing = kind == WF_NODE_SEND || (gathers && e->group.layer->rank);
    places p = {host, gathers ? host + e->exchanged.get : host, false};
    if (kind == WF_NODE_SEND ? !!a : kind == WF_NODE_RECEIVE ? !!b : a && b && (gathers || a == b))
        p = (places){a, b, true};
    if (nothing) p.get = NULL;
    return p;
}

/* first: of its rows, which tells messages apart. */
static weft_status exchange(wf_exec *e, enum wf_node_kind kind, const wf_view *v, uint32_t first, const places *p)
{
    const wf_exec_group *g = &e->group;
    uint64_t row = wf_dtype_bytes((enum wf_dtype)v->dtype, v->cols);
    switch (kind) {
    case WF_NODE_SEND: return wf_comm_send(g->all, g->to, first, p->give, v->rows * row);
    case WF_NODE_RECEIVE: return wf_comm_receive(g->all, g->from, first, p->get, v->rows * row);
    case WF_NODE_ALL_REDUCE:
        return wf_comm_all_reduce(g->layer, p->give, (uint64_t)v->rows * v->cols, (enum wf_dtype)v->dtype);
    case WF_NODE_ALL_GATHER: return wf_comm_gather(g->layer, p->give, v->rows, row, p->get);
    default: return wf_fail(WEFT_ERR_UNSUPPORTED, "no device of a group does %s", wf_node_kind_name(kind));
    }
}

weft_status wf_collective_run(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows,
                              wf_event *const *waits, uint32_t n_waits, wf_event *end)
{
    enum wf_node_kind kind = c->node->kind;
    wf_queue *q = e->queues[c->nano->queue];
    wf_event *here = e->exchanged.here;
    wf_view in = c->call.in[0], out = c->call.out[0];
    uint32_t ms = e->dev->params.watchdog_ms;
    wf_command_view(&e->to, &now->f->step, rows, &c->in[0], &in);
    wf_command_view(&e->to, &now->f->step, rows, &c->out[0], &out);
    const places p = place(e, kind, &in, &out);
    WF_TRY(wf_wait(here, ms)); /* the memory for it is free again */
    WF_TRY(p.direct || kind == WF_NODE_RECEIVE ? wf_mark(q, waits, n_waits, here)
                                               : copy_rows(q, true, &in, p.give, waits, n_waits, here));
    WF_TRY(flush_all(e, now));
    WF_TRY(wf_wait(here, ms));
    WF_TRY(exchange(e, kind, kind == WF_NODE_RECEIVE ? &out : &in, rows.first, &p));
    if (p.get && !p.direct) WF_TRY(copy_rows(q, false, &out, p.get, NULL, 0, here));
    return end ? wf_mark(q, NULL, 0, end) : WEFT_OK;
}

weft_status wf_exec_join(wf_exec *e, const wf_exec_group *g)
{
    uint64_t give = 0, get = 0;
    for (const wf_node *n = e->g->nodes; n < e->g->nodes + e->g->n_nodes; n++) {
        if (n->kind < WF_NODE_SEND) continue;
        const wf_operand *o = n->kind == WF_NODE_RECEIVE ? n->out : n->in;
        const wf_value *v = &e->g->values[o->value];
        uint64_t rows = n->rows == WF_ROWS_LOGITS ? e->limits.logit_rows : e->limits.step_tokens;
        uint64_t bytes = rows * wf_dtype_bytes(v->dtype, v->cols);
        give = WF_MAX(give, bytes);
        if (n->kind == WF_NODE_ALL_GATHER && !g->layer->rank) get = WF_MAX(get, bytes * g->layer->ranks);
    }
    e->group = *g;
    e->exchanged.get = WF_UP(give, (uint64_t)e->dev->align);
    WF_TRY(wf_event_create(e->dev, &e->exchanged.here));
    return wf_host_create(e->dev, e->exchanged.get + get, &e->exchanged.host);
}

void wf_collective_close(wf_exec *e)
{
    if (e->exchanged.here) wf_event_destroy(e->exchanged.here);
    wf_host_destroy(e->dev, &e->exchanged.host);
}
