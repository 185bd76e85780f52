/* open: an exec's memory, queues and events, and its programs. Nothing is allocated on the device afterwards. See
 * exec.h. */
#include "exec/internal.h"
#include "plan/cost.h"

#include <stdlib.h>

static uint64_t state_bytes(const wf_exec *e, int s)
{
    const wf_value *v = &e->g->values[e->g->states[s]];
    return wf_state_rows(&e->limits, (enum wf_state)s) * wf_dtype_bytes(v->dtype, v->cols);
}

static uint64_t counters_bytes(const wf_exec *e)
{
    return WF_MAX(e->g->n_layers, 1) * sizeof(uint32_t);
}

static weft_status reserve_arrays(wf_exec *e)
{
    e->input_bytes = wf_inputs_bytes(&e->limits, e->dev->align);
    for (wf_inflight *f = e->in_flight; f < e->in_flight + WF_EXEC_DEPTH; f++) {
        WF_TRY(wf_host_create(e->dev, e->input_bytes, &f->staging));
        WF_TRY(wf_host_create(e->dev, counters_bytes(e), &f->recomputed));
    }
    WF_TRY(wf_arena_reserve(&e->mem.steps, e->input_bytes, &e->input_region));
    for (int s = 0; s < WF_N_STATES; s++)
        if (e->g->states[s] >= 0) WF_TRY(wf_arena_reserve(&e->mem.steps, state_bytes(e, s), &e->state_regions[s]));
    return WEFT_OK;
}

/* ---- queues and events ------------------------------------------------------------------------------------------- */

static size_t most_commands(const wf_plans *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->n; i++) most = WF_MAX(most, p->list[i].n_nanos);
    return most;
}

static bool signals(const wf_plans *p, size_t command)
{
    for (size_t i = 0; i < p->n; i++)
        if (command < p->list[i].n_nanos && p->list[i].nanos[command].signal) return true;
    return false;
}

static weft_status create_events(wf_exec *e, wf_inflight *f)
{
    size_t n = most_commands(e->plans);
    bool profile = e->dev->params.profile;
    f->ends = wf_calloc(n, sizeof *f->ends);
    f->starts = wf_calloc(n, sizeof *f->starts);
    f->fired = wf_calloc(n, sizeof *f->fired);
    if (!f->ends || !f->starts || !f->fired) return WEFT_ERR_NOMEM;
    WF_TRY(wf_event_create(e->dev, &f->done));
    WF_TRY(wf_event_create(e->dev, &f->late));
    for (size_t i = 0; i < n; i++) {
        if (profile || signals(e->plans, i)) WF_TRY(wf_event_create(e->dev, &f->ends[i]));
        if (profile) WF_TRY(wf_event_create(e->dev, &f->starts[i]));
    }
    return WEFT_OK;
}

/* No plan runs a kernel there. */
static bool only_copies(const wf_exec *e, uint32_t queue)
{
    for (size_t p = 0; p < e->plans->n; p++)
        for (const wf_nano *n = e->plans->list[p].nanos; n < e->plans->list[p].nanos + e->plans->list[p].n_nanos; n++)
            if (n->queue == queue && e->g->nodes[n->node].kind == WF_NODE_KERNEL) return false;
    return queue > 0;
}

static weft_status create_queues(wf_exec *e)
{
    for (size_t i = 0; i < e->plans->n; i++) e->n_queues = WF_MAX(e->n_queues, e->plans->list[i].n_queues);
    for (uint32_t q = 0; q < e->n_queues; q++) {
        WF_TRY(only_copies(e, q) ? wf_copy_queue_create(e->dev, &e->queues[q])
                                 : wf_queue_create(e->dev, &e->queues[q]));
        WF_TRY(wf_event_create(e->dev, &e->ends[q]));
    }
    for (wf_inflight *f = e->in_flight; f < e->in_flight + WF_EXEC_DEPTH; f++) WF_TRY(create_events(e, f));
    return WEFT_OK;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static weft_status make_programs(wf_exec *e)
{
    e->to = (wf_bind_to){.dev = e->dev,
                         .g = e->g,
                         .weights = e->to.weights,
                         .mem = &e->mem,
                         .inputs = &e->inputs,
                         .states = e->states,
                         .limits = e->limits};
    e->programs = wf_calloc(e->plans->n, sizeof *e->programs);
    if (!e->programs) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < e->plans->n; i++) WF_TRY(wf_program_init(&e->programs[i], &e->to, &e->plans->list[i]));
    return WEFT_OK;
}

static weft_status start_counters(wf_exec *e)
{
    const wf_view *v = &e->states[WF_STATE_RECOMPUTED];
    for (const wf_node *n = e->g->nodes; n < e->g->nodes + e->g->n_nodes; n++)
        e->counts |= n->kind == WF_NODE_DOWNLOAD && n->when == WF_ALWAYS;
    e->stats.softmax = wf_calloc((size_t)WF_MAX(e->g->n_layers, 1), sizeof *e->stats.softmax);
    if (!e->stats.softmax) return WEFT_ERR_NOMEM;
    if (!v->buf) return WEFT_OK;
    WF_TRY(wf_fill(e->queues[0], v->buf, v->offset, counters_bytes(e), 0));
    return wf_finish(e->queues[0]); /* the first step may count on another queue */
}

weft_status wf_exec_create(wf_dev *dev, const wf_graph *g, const wf_plans *p, const wf_view *views, const wf_limits *l,
                           wf_exec **out)
{
    wf_exec *e = wf_calloc(1, sizeof *e);
    if (!e) return WEFT_ERR_NOMEM;
    *e = (wf_exec){
        .dev = dev, .g = g, .plans = p, .limits = *l, .can_sample = true, .only = WF_BY_BUCKET, .to.weights = views};
    weft_status s = wf_profile_init(&e->stats.ops, most_commands(p), wf_ridge(dev->info.type));
    if (s == WEFT_OK) s = wf_memory_init(&e->mem, dev, g, &p->list[0], l);
    if (s == WEFT_OK) s = reserve_arrays(e);
    if (s == WEFT_OK) s = wf_memory_commit(&e->mem);
    if (s == WEFT_OK) {
        e->inputs = (wf_view){.buf = wf_arena_buf(&e->mem.steps, e->input_region), .offset = e->input_region.offset};
        for (int i = 0; i < WF_N_STATES; i++)
            if (e->g->states[i] >= 0)
                e->states[i] = (wf_view){.buf = wf_arena_buf(&e->mem.steps, e->state_regions[i]),
                                         .offset = e->state_regions[i].offset,
                                         .rows = wf_state_rows(&e->limits, (enum wf_state)i)};
    }
    if (s == WEFT_OK) s = create_queues(e);
    if (s == WEFT_OK) s = make_programs(e);
    if (s == WEFT_OK) s = start_counters(e);
    if (s == WEFT_OK) *out = e;
    else wf_exec_destroy(e);
    return s;
}

weft_status wf_exec_bind(wf_exec *e, weft_progress_fn progress, void *user)
{
    WF_TRY(wf_programs_bind(&e->to, e->programs, e->plans->n, &e->can_sample, progress, user));
    e->scratch_bytes = 0;
    for (uint32_t q = 0; q < e->n_queues; q++)
        if (!only_copies(e, q)) WF_TRY(wf_queue_reserve(e->queues[q], &e->scratch_bytes));
    for (int32_t i = 0; i < e->g->n_layers; i++)
        e->stats.softmax[i].async = wf_programs_use_async(&e->to, e->programs, e->plans->n, i);
    return WEFT_OK;
}

static void destroy_events(wf_event **list, size_t n)
{
    for (size_t i = 0; list && i < n; i++)
        if (list[i]) wf_event_destroy(list[i]);
    free(list);
}

void wf_exec_destroy(wf_exec *e)
{
    if (!e) return;
    wf_moves_close(e);
    wf_collective_close(e);
    for (uint32_t q = 0; q < WF_MAX_QUEUES; q++) {
        if (e->queues[q]) wf_queue_destroy(e->queues[q]);
        if (e->ends[q]) wf_event_destroy(e->ends[q]);
    }
    for (wf_inflight *f = e->in_flight; f < e->in_flight + WF_EXEC_DEPTH; f++) {
        size_t n = most_commands(e->plans);
        if (f->done) wf_event_destroy(f->done);
        if (f->late) wf_event_destroy(f->late);
        destroy_events(f->ends, n);
        destroy_events(f->starts, n);
        free(f->fired);
        wf_host_destroy(e->dev, &f->staging);
        wf_host_destroy(e->dev, &f->recomputed);
    }
    for (size_t i = 0; e->programs && i < e->plans->n; i++) wf_program_free(&e->programs[i]);
    free(e->programs);
    wf_kernels_free(&e->to);
    wf_memory_free(&e->mem);
    wf_profile_free(&e->stats.ops);
    free(e->stats.softmax);
    free(e);
}

uint32_t wf_exec_queues(const wf_exec *e)
{
    return e->n_queues;
}

uint64_t wf_exec_page_bytes(const wf_exec *e)
{
    return wf_page_bytes(e->g);
}

uint64_t wf_exec_kv_bytes(const wf_exec *e)
{
    return wf_memory_kv(&e->mem);
}

uint64_t wf_exec_activation_bytes(const wf_exec *e)
{
    return wf_memory_activations(&e->mem);
}

uint64_t wf_exec_scratch_bytes(const wf_exec *e)
{
    return e->scratch_bytes;
}

weft_status wf_exec_poison(wf_exec *e)
{
    return wf_memory_fill(&e->mem, e->queues[0], 0x7e007e00u); /* NaN, twice, in F16 */
}

weft_status wf_exec_fill_kv(wf_exec *e)
{
    return wf_memory_fill(&e->mem, e->queues[0], 0x2c002a00u); /* 1/16 and 3/64 */
}
