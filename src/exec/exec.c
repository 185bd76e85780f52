/* exec: walks a program and puts each command into its queue. See exec.h. */
#include "exec/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a step has to run -------------------------------------------------------------------------------------- */

/* With batch-invariant kernels a token's results must not depend on whether others have an adapter. */
static bool is_adapted(const wf_exec *e, const wf_batch *b)
{
    return b->n_adapted || (e->g->adapted && e->dev->params.deterministic);
}

static bool is_wanted(const wf_exec *e, const wf_submission *now, const wf_node *n)
{
    const wf_step_io *io = &now->io;
    switch (n->when) {
    case WF_WHEN_PENDING: return now->b->n_pending;
    case WF_WHEN_GREEDY: return io->ids && !now->b->sampled;
    case WF_WHEN_SAMPLED: return io->ids && now->b->sampled;
    case WF_WHEN_IDS: return io->ids;
    case WF_WHEN_LOGITS: return io->logits;
    case WF_WHEN_ADAPTED: return is_adapted(e, now->b);
    case WF_WHEN_PLAIN: return !is_adapted(e, now->b);
    default: return n->kind != WF_NODE_DOWNLOAD || e->counts;
    }
}

/* ---- one command ------------------------------------------------------------------------------------------------- */

typedef struct order {
    wf_event *waits[WF_MAX_QUEUES + 2];
    uint32_t n_waits;
    wf_event *start, *end; /* or NULL */
} order;

/* Events of commands that had nothing to do in this step, and never will, are left out. */
static order order_of(const wf_exec *e, const wf_submission *now, size_t i)
{
    const wf_plan *plan = now->f->program->plan;
    const wf_nano *n = &plan->nanos[i];
    order o = {.start = now->f->starts[i], .end = n->signal || e->dev->params.profile ? now->f->ends[i] : NULL};
    for (uint32_t w = 0; w < n->n_waits; w++)
        if (now->f->fired[plan->waits[n->wait + w]]) o.waits[o.n_waits++] = now->f->ends[plan->waits[n->wait + w]];
    /* Behind the step before, which ends on queue 0. */
    if (n->queue && !now->f->used[n->queue] && now->before) o.waits[o.n_waits++] = now->before;
    return o;
}

static weft_status observe_call(wf_exec *e, const wf_batch *b, const wf_command *c, uint32_t first, const wf_call *call)
{
    if (!e->observer) return WEFT_OK;
    WF_TRY(wf_finish(e->queues[c->nano->queue]));
    return e->observer(e->observer_user, e->queues[c->nano->queue], c->node, b, first, call);
}

/* A driver may refuse a kernel that it has built; the device drops that one, and another is bound. */
static weft_status launch_call(wf_exec *e, const wf_command *c, const wf_call *call)
{
    const wf_binding *b;
    weft_status s = WEFT_OK;
    for (int tries = 0; tries < 3; tries++) {
        WF_TRY(wf_command_kernels(&e->to, c, call, &b));
        s = wf_launch(e->queues[c->nano->queue], call, b);
        /* rows that are computed again */
        bool counts = s == WEFT_OK && c->node->op == WF_OP_ATTENTION && wf_binding_is_async(e->dev, b);
        if (counts) e->stats.softmax[c->node->layer].rows += (uint64_t)call->out[0].rows * call->p.n_head;
        if (s != WEFT_ERR_UNSUPPORTED || e->dev->lost) return s;
        wf_command_unbind(c, call);
    }
    return s;
}

static weft_status run_kernel(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range left, order *o)
{
    uint32_t context = wf_context_class(c->node->op, now->f->step.max_kv), most = wf_rows_at_once(c, context);
    for (uint32_t rest; left.count; left = (wf_range){left.first + left.count, rest}, o->n_waits = 0, o->start = NULL) {
        wf_call call;
        rest = left.count - WF_MIN(left.count, most);
        left.count -= rest;
        /* Before a call that would make the submission too long. */
        double us = wf_rows_us(c, context, left.count);
        double *queued = &e->queued_us[c->nano->queue];
        bool full = *queued > 0 && *queued + us > WF_SUBMISSION_US;
        *queued = full ? us : *queued + us;
        if (full) WF_TRY(wf_flush(e->queues[c->nano->queue]));
        wf_command_call(&e->to, c, &now->f->step, left, &call);
        call.waits = o->waits;
        call.n_waits = o->n_waits;
        call.signal = rest ? o->start : o->end;
        call.started = rest ? NULL : o->start;
        WF_TRY(launch_call(e, c, &call));
        WF_TRY(observe_call(e, now->b, c, left.first, &call));
    }
    return WEFT_OK;
}

static weft_status run_download(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows,
                                const order *o)
{
    wf_view v = c->call.in[0];
    uint8_t *to = c->node->when == WF_WHEN_IDS      ? (uint8_t *)now->io.ids
                  : c->node->when == WF_WHEN_LOGITS ? (uint8_t *)now->io.logits
                                                    : now->f->recomputed.data;
    wf_command_view(&e->to, &now->f->step, rows, &c->in[0], &v);
    const bool *wanted = c->node->when == WF_WHEN_LOGITS && now->io.wanted ? now->io.wanted + rows.first : NULL;
    uint64_t row = wf_dtype_bytes(v.dtype, v.cols), pitch = wf_dtype_bytes(v.dtype, v.stride);
    wf_queue *q = e->queues[c->nano->queue];
    uint32_t end = v.rows, n_waits = o->n_waits;
    while (wanted && end && !wanted[end - 1]) end--;
    if (!end) return wf_mark(q, o->waits, n_waits, o->end);
    for (uint32_t i = 0, n; i < end; i += n) {
        n = 1;
        if (wanted && !wanted[i]) continue;
        while (pitch == row && i + n < end && (!wanted || wanted[i + n])) n++; /* rows without gaps go in one piece */
        WF_TRY(wf_read(q, v.buf, v.offset + i * pitch, to + (rows.first + i) * row, row * n, o->waits, n_waits,
                       i + n >= end ? o->end : NULL));
        n_waits = 0; /* a queue keeps the order */
    }
    return WEFT_OK;
}

weft_status wf_exec_read_page(wf_exec *e, wf_queue *q, int32_t page, void *host, wf_event *end)
{
    return wf_memory_copy(&e->mem, q, page, true, host, end);
}

/* A device without others has sent, received and combined everything already, and may know what that costs. */
static weft_status run_network(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows, const order *o)
{
    if (e->exchanged.host.data) return wf_collective_run(e, now, c, rows, o->waits, o->n_waits, o->end);
    wf_queue *q = e->queues[c->nano->queue];
    const wf_view *v = c->node->in[0].value >= 0 ? &c->call.in[0] : &c->call.out[0];
    return wf_transfer(q, rows.count * wf_dtype_bytes(v->dtype, v->cols), o->waits, o->n_waits, o->end);
}

/* Does it read what comes late? */
static bool reads_late(const wf_submission *now, const wf_command *c)
{
    return now->b->n_allowed && c->node->op == WF_OP_SAMPLE;
}

/* The first command that reads what comes late uploads it. */
static weft_status wait_for_late(wf_exec *e, const wf_submission *now, const wf_command *c, order *o)
{
    wf_inflight *f = now->f;
    if (!f->is_late) WF_TRY(wf_inputs_late(e, now, e->queues[c->nano->queue], o->waits, o->n_waits));
    f->is_late = true;
    o->waits[o->n_waits++] = f->late;
    return WEFT_OK;
}

static weft_status run_node(wf_exec *e, const wf_submission *now, const wf_command *c, wf_range rows, order *o)
{
    wf_queue *q = e->queues[c->nano->queue];
    if (reads_late(now, c)) WF_TRY(wait_for_late(e, now, c, o));
    switch (c->node->kind) {
    case WF_NODE_KERNEL: return run_kernel(e, now, c, rows, o);
    case WF_NODE_UPLOAD:
        return wf_write(q, e->inputs.buf, e->inputs.offset, now->f->staging.data, now->upload_bytes, o->waits,
                        o->n_waits, o->end);
    case WF_NODE_DOWNLOAD: return run_download(e, now, c, rows, o);
    default: return run_network(e, now, c, rows, o);
    }
}

/* A command without work still stands for the ones before it in its queue, where others wait for it. */
static weft_status run_command(wf_exec *e, const wf_submission *now, size_t i)
{
    const wf_command *c = &now->f->program->commands[i];
    const wf_nano *n = c->nano;
    wf_range rows = is_wanted(e, now, c->node) ? wf_command_range(c, &now->f->step) : (wf_range){0};
    order o = order_of(e, now, i);
    bool stands_for = n->n_waits || (n->signal && now->f->used[n->queue]);
    now->f->fired[i] = rows.count || stands_for;
    if (!now->f->fired[i]) return WEFT_OK;
    now->f->used[n->queue] = true;
    weft_status s = rows.count ? run_node(e, now, c, rows, &o)
                               : wf_mark(e->queues[n->queue], o.waits, o.n_waits, o.end);
    return s == WEFT_OK ? s : wf_fail_context(s, "%s", c->node->name);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* The commands up to the first that reads what comes late. */
static weft_status run_first(wf_exec *e, wf_submission *now)
{
    const wf_program *p = now->f->program;
    memset(now->f->used, 0, sizeof now->f->used);
    memset(e->queued_us, 0, sizeof e->queued_us); /* the step before was flushed at its end */
    now->f->is_late = false;
    for (; now->next < p->n && !reads_late(now, &p->commands[now->next]); now->next++)
        WF_TRY(run_command(e, now, now->next));
    for (uint32_t q = 0; now->next < p->n && q < e->n_queues; q++)
        if (now->f->used[q]) {
            WF_TRY(wf_flush(e->queues[q]));
            e->queued_us[q] = 0;
        }
    return WEFT_OK;
}

/* The others, and what ends the step. */
static weft_status run_rest(wf_exec *e, wf_submission *now)
{
    for (; now->next < now->f->program->n; now->next++) WF_TRY(run_command(e, now, now->next));
    /* Queue 0 waits for the others: a step has ended when its last command there has. */
    for (uint32_t q = 1; q < e->n_queues; q++) {
        if (!now->f->used[q]) continue;
        WF_TRY(wf_mark(e->queues[q], NULL, 0, e->ends[q]));
        WF_TRY(wf_flush(e->queues[q]));
        WF_TRY(wf_mark(e->queues[0], &e->ends[q], 1, NULL));
    }
    WF_TRY(wf_mark(e->queues[0], NULL, 0, now->f->done));
    return wf_flush(e->queues[0]);
}

static wf_inflight *inflight_at(wf_exec *e, uint64_t i)
{
    return &e->in_flight[i % WF_EXEC_DEPTH];
}

/* What of a step could be submitted ends. */
static weft_status drop_submission(wf_exec *e, weft_status s)
{
    for (uint32_t q = 0; !e->dev->lost && q < e->n_queues; q++)
        wf_finish(e->queues[q]); /* none may write to the caller's memory later */
    if (!e->dev->lost && e->exchanged.queue) wf_finish(e->exchanged.queue); /* or read another rank's */
    if (s == WEFT_ERR_CANCELLED && !e->n_in_flight) wf_moves_void(e), wf_resume(e->dev);
    return s;
}

weft_status wf_exec_submit(wf_exec *e, const wf_batch *b, const wf_step_io *io)
{
    if (e->rest.f) return wf_fail(WEFT_ERR_INTERNAL, "a part of the step before is to come first");
    if (e->n_in_flight == WF_EXEC_DEPTH) return wf_fail(WEFT_ERR_ARG, "%d steps are in flight already", WF_EXEC_DEPTH);
    uint64_t next = e->first + e->n_in_flight;
    wf_submission now = {
        .f = inflight_at(e, next), .b = b, .io = *io, .before = next ? inflight_at(e, next - 1)->done : NULL};
    now.f->program =
        &e->programs[e->only != WF_BY_BUCKET ? e->only
                                             : wf_plans_choose(e->plans, b->n_tokens, b->n_decodes, b->max_kv)];
    now.f->step = (wf_step_shape){.n_tokens = b->n_tokens,
                                  .n_decodes = b->n_decodes,
                                  .n_seqs = b->n_seqs,
                                  .n_pages = b->n_pages,
                                  .n_logits = b->n_logits,
                                  .n_adjusted = b->n_adjusted,
                                  .n_allowed = b->n_allowed,
                                  .max_kv = b->max_kv,
                                  .max_q = b->max_q};
    wf_inputs_pack(e, &now);
    weft_status s = wf_moves_gate(e, &now.before);
    if (s == WEFT_OK) s = run_first(e, &now);
    bool waits = now.next < now.f->program->n;
    if (s == WEFT_OK && !waits) s = run_rest(e, &now);
    if (s != WEFT_OK) return drop_submission(e, s);
    if (waits) e->rest = now;
    e->n_in_flight++;
    return WEFT_OK;
}

weft_status wf_exec_submit_rest(wf_exec *e)
{
    if (!e->rest.f) return WEFT_OK;
    wf_submission now = e->rest;
    e->rest.f = NULL;
    weft_status s = run_rest(e, &now);
    if (s == WEFT_OK) return WEFT_OK;
    e->n_in_flight--;
    return drop_submission(e, s);
}

/* From the first command's start to the last one's end; marks may have no times. */
static bool step_times(const wf_inflight *f, uint64_t *began, uint64_t *end)
{
    *began = UINT64_MAX, *end = 0;
    for (size_t i = 0; i < f->program->n; i++) {
        uint64_t b, t;
        if (!f->fired[i] || wf_event_times(f->ends[i], &b, &t)) continue;
        *began = WF_MIN(*began, b);
        *end = WF_MAX(*end, t);
    }
    return *end > *began;
}

/* A device that cannot tell the times leaves the clock at zero. */
static void take_times(wf_exec *e, const wf_inflight *f)
{
    uint64_t began, end;
    if (!step_times(f, &began, &end)) return;
    e->stats.busy_ns += e->stats.last_ns = end - began;
    if (e->ended_ns && began > e->ended_ns) e->stats.idle_ns += began - e->ended_ns;
    e->ended_ns = e->stats.ended_ns = end;
    wf_profile_take(&e->stats.ops, e->g, f->program, &f->step, f->fired, f->starts, f->ends, began);
}

static weft_status wait_oldest(wf_exec *e)
{
    e->n_in_flight--;
    return wf_wait(inflight_at(e, e->first++)->done, e->dev->params.watchdog_ms);
}

/* Of steps that nobody wants, the device runs no more. */
static weft_status drop_steps(wf_exec *e)
{
    weft_status s = WEFT_ERR_CANCELLED;
    wf_exec_submit_rest(e); /* so that the step ends of which a part was to come */
    while (e->n_in_flight && s == WEFT_ERR_CANCELLED) s = wait_oldest(e);
    wf_moves_void(e);
    wf_resume(e->dev);
    return s;
}

weft_status wf_exec_wait(wf_exec *e)
{
    if (!e->n_in_flight) return WEFT_OK;
    const wf_inflight *f = inflight_at(e, e->first);
    if (e->n_in_flight == 1) WF_TRY(wf_exec_submit_rest(e));
    weft_status s = wait_oldest(e);
    if (s == WEFT_ERR_CANCELLED) return drop_steps(e);
    WF_TRY(s);
    if (e->counts) {
        /* The device's counters, one a layer, wrap. */
        const uint32_t *counted = f->recomputed.data;
        wf_exec_softmax *l = e->stats.softmax;
        for (int32_t i = 0; i < e->g->n_layers; i++) l[i].recomputed += counted[i] - (uint32_t)l[i].recomputed;
    }
    if (e->dev->params.profile) take_times(e, f);
    return WEFT_OK;
}

void wf_exec_use_plan(wf_exec *e, size_t plan)
{
    e->only = plan;
}

void wf_exec_mark_idle(wf_exec *e)
{
    e->ended_ns = 0;
}

const wf_exec_stats *wf_exec_stats_of(const wf_exec *e)
{
    return &e->stats;
}

bool wf_exec_can_run(const wf_exec *e, enum wf_op op, int variant)
{
    return wf_programs_can_run(&e->to, e->programs, e->plans->n, op, variant);
}

bool wf_exec_can_sample(const wf_exec *e)
{
    return e->can_sample;
}

void wf_exec_observe(wf_exec *e, wf_exec_observer fn, void *user)
{
    e->observer = fn;
    e->observer_user = user;
}
