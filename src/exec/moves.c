/* moves: copies of KV pages to host memory and back (kv/move.h), on two queues of their own, so that both directions
 * overlap with each other and with steps. */
#include "exec/internal.h"

weft_status wf_exec_open_moves(wf_exec *e)
{
    for (int out = 0; out < 2; out++)
        if (!e->moves.queues[out]) WF_TRY(wf_copy_queue_create(e->dev, &e->moves.queues[out]));
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_MOVES; m++)
        if (!m->end) WF_TRY(wf_event_create(e->dev, &m->end));
    for (int i = 0; i < 2; i++)
        if (!e->moves.gates[i]) WF_TRY(wf_event_create(e->dev, &e->moves.gates[i]));
    return e->moves.passed ? WEFT_OK : wf_event_create(e->dev, &e->moves.passed);
}

void wf_moves_close(wf_exec *e)
{
    wf_exec_finish_moves(e); /* host memory goes to others */
    for (int out = 0; out < 2; out++)
        if (e->moves.queues[out]) wf_queue_destroy(e->moves.queues[out]);
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_MOVES; m++)
        if (m->end) wf_event_destroy(m->end);
    for (int i = 0; i < 2; i++)
        if (e->moves.gates[i]) wf_event_destroy(e->moves.gates[i]);
    if (e->moves.passed) wf_event_destroy(e->moves.passed);
}

/* Behind the step submitted last, and a move or NULL, which may still read what this one overwrites; a queue keeps the
 * order. */
static weft_status copy_pages(wf_exec *e, bool out, const wf_page_copy *list, uint32_t n, wf_event *behind,
                              wf_event *end)
{
    wf_queue *q = e->moves.queues[out];
    wf_event *waits[2];
    uint64_t next = e->first + e->n_in_flight;
    uint32_t n_waits = 0;
    if (next) waits[n_waits++] = e->in_flight[(next - 1) % WF_EXEC_DEPTH].done;
    if (behind) waits[n_waits++] = behind;
    if (n_waits) WF_TRY(wf_mark(q, waits, n_waits, NULL));
    for (uint32_t i = 0; i < n; i++) WF_TRY(wf_memory_copy(&e->mem, q, list[i].page, out, list[i].host, NULL));
    WF_TRY(wf_mark(q, NULL, 0, end));
    return wf_flush(q);
}

weft_status wf_exec_move(wf_exec *e, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket)
{
    uint32_t i = 0;
    if (e->rest.f) return wf_fail(WEFT_ERR_INTERNAL, "a copy cannot wait for a step of which a part is to come");
    while (ticket && i < WF_MOVES && e->moves.list[i].runs) i++;
    if (i == WF_MOVES) return wf_fail(WEFT_ERR_ARG, "%d copies are in flight already", WF_MOVES);
    wf_exec_copy *m = &e->moves.list[i];
    wf_event *end = ticket ? m->end : e->moves.gates[e->moves.last == e->moves.gates[0]];
    weft_status s = copy_pages(e, out, list, n, e->moves.last, end);
    if (s != WEFT_OK && !e->dev->lost) wf_finish(e->moves.queues[out]); /* what has begun touches nothing later */
    if (s != WEFT_OK) return s;
    if (ticket) m->runs = true, m->is_void = false, m->began_ns = wf_now_ns(), *ticket = i;
    else e->moves.last = end, e->moves.gated = true;
    return WEFT_OK;
}

weft_status wf_moves_gate(wf_exec *e, wf_event **before)
{
    if (!e->moves.gated) return WEFT_OK;
    WF_TRY(wf_mark(e->queues[0], &e->moves.last, 1, e->moves.passed));
    *before = e->moves.passed;
    e->moves.gated = false;
    return WEFT_OK;
}

void wf_exec_finish_moves(wf_exec *e)
{
    if (e->moves.last) wf_wait(e->moves.last, e->dev->params.watchdog_ms);
    e->moves.last = NULL;
    e->moves.gated = false;
}

/* Has it had longer than the steps before it and itself may take? */
static bool is_late(const wf_exec *e, const wf_exec_copy *m)
{
    return wf_now_ns() - m->began_ns > (WF_EXEC_DEPTH + 1) * 1000000ull * e->dev->params.watchdog_ms;
}

enum wf_moved wf_exec_moved(wf_exec *e, uint32_t ticket)
{
    wf_exec_copy *m = &e->moves.list[ticket];
    bool done = false;
    weft_status s = m->is_void ? WEFT_OK : wf_poll(m->end, &done);
    if (s == WEFT_OK && !done && !m->is_void && is_late(e, m)) s = wf_wait(m->end, 1); /* the device is lost */
    if (s == WEFT_ERR_CANCELLED || (s == WEFT_OK && !done && !m->is_void)) return WF_MOVING;
    m->runs = false;
    return s == WEFT_OK && !m->is_void ? WF_MOVED : WF_MOVE_VOID;
}

/* The device has skipped commands, and will not skip later ones: those of its queues are waited for. */
void wf_moves_void(wf_exec *e)
{
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_MOVES; m++)
        if (m->runs && !m->is_void) wf_wait(m->end, e->dev->params.watchdog_ms), m->is_void = true;
    wf_exec_finish_moves(e);
}
