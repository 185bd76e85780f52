/* collective: nodes of the network in a group of devices. What a device gives comes to pinned host memory, goes to the
 * others there (dist/comm.h), and what the device gets goes back. The thread that submits waits meanwhile: what a plan
 * puts before the node, on whatever queue, is computed beside it. See exec.h.
 *
 * An exchange goes in pieces: while one is under way between the ranks, the one before goes to the device, and the next
 * comes from there. What others give they read where it lies, for their devices to get it: two halves of the memory
 * serve exchanges in turn, and no rank begins one before its device has all of the last. */
#include "exec/internal.h"

_Static_assert((int)WF_COMM_QUEUED >= (int)WF_MAX_RANGES, "a device sends all nano-batches before it receives one");

/* Bytes. Two H200s exchange 4 MB so at 31 GB/s of 37; a piece costs some 20 us besides, in which as much is moved. */
enum { PIECE = 1 << 20 };

/* Queues hand over what was submitted: it may be what an event waits for. */
static weft_status flush_all(wf_exec *e, const wf_submission *now)
{
    for (uint32_t q = 0; q < e->n_queues; q++)
        if (now->f->used[q]) WF_TRY(wf_flush(e->queues[q]));
    return WEFT_OK;
}

/* One of the network's nodes with the rows of a step. */
typedef struct passage {
    const wf_submission *now;
    wf_queue *q, *back; /* back: what the device gets comes on it */
    wf_view in, out;
    uint64_t row;       /* bytes that a device gives of each row */
} passage;

static wf_view some_rows(const wf_view *v, uint32_t first, uint32_t n)
{
    wf_view some = *v;
    some.offset += first * wf_dtype_bytes(v->dtype, v->stride);
    some.rows = n;
    return some;
}

/* The rows of a piece, from all ranks, to the columns of each. What the device gave may be there already. */
static weft_status put_back(wf_exec *e, const passage *p, uint32_t first, uint32_t n, const void *const *all, bool last)
{
    const wf_comm *c = e->group.layer;
    bool in_place = p->in.buf == p->out.buf && p->in.offset == p->out.offset + c->rank * p->row;
    uint32_t end = in_place && c->rank + 1 == c->ranks ? c->rank : c->ranks;
    for (uint32_t r = 0; r < end; r++) {
        wf_view to = some_rows(&p->out, first, n);
        if (in_place && r == c->rank) continue;
        to.offset += r * p->row;
        to.cols = p->in.cols;
        WF_TRY(wf_copy_rows(p->back, false, &to, (void *)all[r], NULL, 0,
                            last && r + 1 == end ? e->exchanged.back : NULL));
    }
    return wf_flush(p->back);
}

static weft_status exchange(wf_exec *e, const passage *p, uint32_t takers, wf_event *const *waits, uint32_t n_waits)
{
    wf_comm *c = e->group.layer;
    const void *all[WF_COMM_RANKS];
    uint32_t ms = e->dev->params.watchdog_ms, rows = p->in.rows, most = (uint32_t)WF_MAX(PIECE / p->row, 1u);
    uint8_t *give = (uint8_t *)e->exchanged.host.data + e->exchanged.n++ % 2 * e->exchanged.part;
    WF_TRY(wf_wait(e->exchanged.back, ms));
    for (uint32_t first = 0, read = 0, k = 0; first < rows; first += most, k++) {
        for (; read < rows && read <= first + most; read += most, n_waits = 0) { /* two are under way */
            wf_view some = some_rows(&p->in, read, WF_MIN(most, rows - read));
            WF_TRY(wf_copy_rows(p->q, true, &some, give + read * p->row, waits, n_waits,
                                e->exchanged.here[read / most % 2]));
        }
        uint32_t n = WF_MIN(most, rows - first);
        WF_TRY(flush_all(e, p->now));
        WF_TRY(wf_wait(e->exchanged.here[k % 2], ms));
        WF_TRY(wf_comm_exchange(c, give + first * p->row, n * p->row, takers,
                                e->exchanged.room + first * p->row * c->ranks, all));
        if (c->rank < takers) WF_TRY(put_back(e, p, first, n, all, first + n == rows));
    }
    return WEFT_OK;
}

/* first: of its rows, which tells messages apart. */
static weft_status pass_on(wf_exec *e, const passage *p, bool sends, uint32_t first, wf_event *const *waits,
                           uint32_t n_waits)
{
    const wf_exec_group *g = &e->group;
    uint32_t ms = e->dev->params.watchdog_ms;
    wf_event *here = e->exchanged.here[0];
    uint8_t *host = e->exchanged.message;
    WF_TRY(wf_wait(here, ms)); /* the memory for it is free again */
    WF_TRY(sends ? wf_copy_rows(p->q, true, &p->in, host, waits, n_waits, here) : wf_mark(p->q, waits, n_waits, here));
    WF_TRY(flush_all(e, p->now));
    WF_TRY(wf_wait(here, ms));
    if (sends) return wf_comm_send(g->all, g->to, first, host, p->in.rows * p->row);
    WF_TRY(wf_comm_receive(g->all, g->from, first, host, p->out.rows * p->row));
    return wf_copy_rows(p->q, false, &p->out, host, NULL, 0, here);
}

weft_status wf_collective_run(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows,
                              wf_event *const *waits, uint32_t n_waits, wf_event *end)
{
    enum wf_node_kind kind = c->node->kind;
    passage p = {now, e->queues[c->nano->queue], NULL, c->call.in[0], c->call.out[0], 0};
    wf_command_view(&e->to, &now->f->step, rows, &c->in[0], &p.in);
    wf_command_view(&e->to, &now->f->step, rows, &c->out[0], &p.out);
    const wf_view *v = kind == WF_NODE_RECEIVE ? &p.out : &p.in;
    p.row = wf_dtype_bytes(v->dtype, v->cols);
    /* a queue of its own, if there is something that goes out meanwhile */
    p.back = e->exchanged.queue && v->rows * p.row > PIECE ? e->exchanged.queue : p.q;
    if (kind == WF_NODE_SEND || kind == WF_NODE_RECEIVE)
        WF_TRY(pass_on(e, &p, kind == WF_NODE_SEND, rows.first, waits, n_waits));
    else if (kind == WF_NODE_ALL_GATHER || kind == WF_NODE_GATHER)
        WF_TRY(exchange(e, &p, kind == WF_NODE_GATHER ? 1 : e->group.layer->ranks, waits, n_waits));
    else return wf_fail(WEFT_ERR_UNSUPPORTED, "no device of a group does %s", wf_node_kind_name(kind));
    if (p.back != p.q) return wf_mark(p.q, &e->exchanged.back, 1, end);
    return end ? wf_mark(p.q, NULL, 0, end) : WEFT_OK;
}

weft_status wf_exec_join(wf_exec *e, const wf_exec_group *g)
{
    uint64_t part = 0, message = 0;
    for (const wf_node *n = e->g->nodes; n < e->g->nodes + e->g->n_nodes; n++) {
        if (n->kind < WF_NODE_SEND) continue;
        const wf_operand *o = n->kind == WF_NODE_RECEIVE ? n->out : n->in;
        const wf_value *v = &e->g->values[o->value];
        uint64_t rows = n->rows == WF_ROWS_LOGITS ? e->limits.logit_rows : e->limits.step_tokens;
        uint64_t bytes = WF_UP(rows * wf_dtype_bytes(v->dtype, o->cols ? o->cols : v->cols), (uint64_t)e->dev->align);
        if (n->kind == WF_NODE_SEND || n->kind == WF_NODE_RECEIVE) message = WF_MAX(message, bytes);
        else part = WF_MAX(part, bytes);
    }
    e->group = *g;
    e->exchanged.part = part;
    for (int i = 0; i < 2; i++) WF_TRY(wf_event_create(e->dev, &e->exchanged.here[i]));
    WF_TRY(wf_event_create(e->dev, &e->exchanged.back));
    /* the same cores would copy for both queues of a CPU */
    if (part && e->dev->info.type != WEFT_DEVICE_CPU) WF_TRY(wf_copy_queue_create(e->dev, &e->exchanged.queue));
    uint64_t room = part && g->layer->apart ? part * g->layer->ranks : 0;
    WF_TRY(wf_host_create(e->dev, 2 * part + message + room, &e->exchanged.host));
    e->exchanged.message = (uint8_t *)e->exchanged.host.data + 2 * part;
    e->exchanged.room = e->exchanged.message + message;
    return WEFT_OK;
}

void wf_collective_close(wf_exec *e)
{
    for (int i = 0; i < 2; i++)
        if (e->exchanged.here[i]) wf_event_destroy(e->exchanged.here[i]);
    if (e->exchanged.back) wf_event_destroy(e->exchanged.back);
    if (e->exchanged.queue) wf_queue_destroy(e->exchanged.queue);
    wf_host_destroy(e->dev, &e->exchanged.host);
}
