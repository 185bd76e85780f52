/* moves: copies of KV pages to host memory and back beside steps (kv/tiers.h), on two queues of their own, so that
 * both directions overlap with each other and with steps. No step waits for them. */
#include "exec/internal.h"

weft_status wf_exec_open_moves(wf_exec *e)
{
    for (int out = 0; out < 2; out++)
        if (!e->moves.queues[out]) WF_TRY(wf_copy_queue_create(e->dev, &e->moves.queues[out]));
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_TIER_MOVES; m++)
        if (!m->end) WF_TRY(wf_event_create(e->dev, &m->end));
    return WEFT_OK;
}

void wf_moves_close(wf_exec *e)
{
    for (int out = 0; out < 2; out++)
        if (e->moves.queues[out]) wf_queue_destroy(e->moves.queues[out]);
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_TIER_MOVES; m++)
        if (m->end) wf_event_destroy(m->end);
}

/* The first waits for the step submitted last; a queue keeps the order. */
static weft_status copy_pages(wf_exec *e, wf_queue *q, bool out, const wf_tier_copy *list, uint32_t n, wf_event *end)
{
    uint64_t next = e->first + e->n_in_flight;
    if (next) WF_TRY(wf_mark(q, &e->in_flight[(next - 1) % WF_EXEC_DEPTH].done, 1, NULL));
    for (uint32_t i = 0; i < n; i++) WF_TRY(wf_memory_copy(&e->mem, q, list[i].page, out, list[i].host, NULL));
    WF_TRY(wf_mark(q, NULL, 0, end));
    return wf_flush(q);
}

weft_status wf_exec_move(wf_exec *e, bool out, const wf_tier_copy *list, uint32_t n, uint32_t *ticket)
{
    uint32_t i = 0;
    while (i < WF_TIER_MOVES && e->moves.list[i].runs) i++;
    if (i == WF_TIER_MOVES) return wf_fail(WEFT_ERR_ARG, "%d copies are in flight already", WF_TIER_MOVES);
    wf_exec_copy *m = &e->moves.list[i];
    weft_status s = copy_pages(e, e->moves.queues[out], out, list, n, m->end);
    if (s != WEFT_OK && !e->dev->lost) wf_finish(e->moves.queues[out]); /* what has begun touches nothing later */
    if (s != WEFT_OK) return s;
    m->runs = true, m->is_void = false;
    *ticket = i;
    return WEFT_OK;
}

enum wf_tier_moved wf_exec_moved(wf_exec *e, uint32_t ticket)
{
    wf_exec_copy *m = &e->moves.list[ticket];
    bool done = false;
    weft_status s = m->is_void ? WEFT_OK : wf_poll(m->end, &done);
    if (s == WEFT_ERR_CANCELLED || (s == WEFT_OK && !done && !m->is_void)) return WF_TIER_MOVING;
    m->runs = false;
    return s == WEFT_OK && !m->is_void ? WF_TIER_MOVED : WF_TIER_VOID;
}

/* The device has skipped commands, and will not skip later ones: those of its queues are waited for. */
void wf_moves_void(wf_exec *e)
{
    for (wf_exec_copy *m = e->moves.list; m < e->moves.list + WF_TIER_MOVES; m++)
        if (m->runs && !m->is_void) wf_wait(m->end, e->dev->params.watchdog_ms), m->is_void = true;
}
