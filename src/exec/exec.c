/* exec: walks a plan in its order and submits each nano-op with the events it waits for. See exec.h. */
#include "exec/exec.h"
#include "exec/token.h"
#include "verify/bind.h"

#include <stdlib.h>
#include <string.h>

/* A step between submission and the end of its work. */
typedef struct flight {
    wf_host staging;    /* the batch's arrays, packed as on the device */
    wf_host recomputed; /* a uint32_t: by asynchronous softmax, of all steps up to this one */
    wf_event *begun, *done;
    wf_event **ends;    /* by nano-op; NULL where nobody waits and no times are wanted */
    wf_event **starts;  /* likewise: the first kernel of several; only where times are wanted */
} flight;

struct wf_exec {
    wf_dev *dev;
    const wf_graph *g;
    const wf_plan *p;
    const wf_view *weights;
    wf_limits limits;
    wf_queue *queues[WF_MAX_QUEUES];
    wf_event *start, *ends[WF_MAX_QUEUES];
    flight flights[WF_EXEC_DEPTH];
    bool counts;                      /* attention with asynchronous softmax counts what it computes again */
    wf_exec_stats stats;
    uint64_t ended_ns;                /* the last step, on the device's clock; 0: there was nothing to do since */
    uint32_t first, n_flights;        /* flights[first % WF_EXEC_DEPTH] is the oldest in the air */
    wf_memory mem;
    wf_region inputs, recomputed;
    wf_tokens tokens;
    uint64_t input_at[WF_N_INPUTS], params_at, key_at; /* bytes in the input region; the latter of SAMPLE */
    uint64_t input_bytes;
    wf_exec_observer observer;        /* or NULL */
    void *observer_user;
};

/* ---- memory ------------------------------------------------------------------------------------------ */

static weft_status reserve_arrays(wf_exec *e)
{
    uint64_t ints = 5ull * e->limits.step_tokens + e->limits.seqs + 1 + (uint64_t)e->limits.seqs * e->limits.seq_pages;
    ints += (1ull + WF_SAMPLING_FLOATS + WF_SAMPLING_INTS) * e->limits.logit_rows;
    e->input_bytes = ints * sizeof(int32_t) + (WF_N_INPUTS + 2) * (uint64_t)e->dev->align;
    for (flight *f = e->flights; f < e->flights + WF_EXEC_DEPTH; f++) {
        WF_TRY(wf_host_create(e->dev, e->input_bytes, &f->staging));
        WF_TRY(wf_host_create(e->dev, sizeof(uint32_t), &f->recomputed));
    }
    WF_TRY(wf_arena_reserve(&e->mem.steps, e->input_bytes, &e->inputs));
    WF_TRY(wf_arena_reserve(&e->mem.steps, sizeof(int32_t), &e->recomputed));
    return wf_tokens_reserve(&e->tokens, e->dev, &e->mem.steps, e->limits.logit_rows, e->limits.seqs, e->g->values[e->g->logits].cols);
}

static weft_status create_events(wf_exec *e, flight *f)
{
    bool profile = e->dev->params.profile;
    f->ends = wf_calloc(e->p->n_nanos, sizeof *f->ends);
    f->starts = wf_calloc(e->p->n_nanos, sizeof *f->starts);
    if (!f->ends || !f->starts) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < e->p->n_nanos; i++) {
        if (profile || e->p->nanos[i].signal) WF_TRY(wf_event_create(e->dev, &f->ends[i]));
        if (profile) WF_TRY(wf_event_create(e->dev, &f->starts[i]));
    }
    return WEFT_OK;
}

static weft_status create_queues(wf_exec *e)
{
    for (uint32_t q = 0; q < e->p->n_queues; q++) {
        WF_TRY(wf_queue_create(e->dev, &e->queues[q]));
        WF_TRY(wf_event_create(e->dev, &e->ends[q]));
    }
    WF_TRY(wf_event_create(e->dev, &e->start));
    for (flight *f = e->flights; f < e->flights + WF_EXEC_DEPTH; f++) {
        WF_TRY(wf_event_create(e->dev, &f->begun));
        WF_TRY(wf_event_create(e->dev, &f->done));
        WF_TRY(create_events(e, f));
    }
    return WEFT_OK;
}

static weft_status start_counter(wf_exec *e)
{
    for (const wf_node *n = e->g->nodes; n < e->g->nodes + e->g->n_nodes; n++) e->counts |= n->op == WF_OP_ATTENTION && n->p.phi_lo < n->p.phi_hi;
    return wf_fill(e->queues[0], wf_arena_buf(&e->mem.steps, e->recomputed), e->recomputed.offset, sizeof(int32_t), 0);
}

weft_status wf_exec_create(wf_dev *dev, const wf_graph *g, const wf_plan *p, const wf_view *views, const wf_limits *l, wf_exec **out)
{
    wf_exec *e = wf_calloc(1, sizeof *e);
    if (!e) return WEFT_ERR_NOMEM;
    *e = (wf_exec){.dev = dev, .g = g, .p = p, .weights = views, .limits = *l};
    weft_status s = wf_profile_init(&e->stats.ops, p);
    if (s == WEFT_OK) s = wf_memory_init(&e->mem, dev, g, p, l);
    if (s == WEFT_OK) s = reserve_arrays(e);
    if (s == WEFT_OK) s = wf_memory_commit(&e->mem);
    if (s == WEFT_OK) s = create_queues(e);
    if (s == WEFT_OK) s = start_counter(e);
    if (s == WEFT_OK) *out = e;
    else wf_exec_destroy(e);
    return s;
}

static void destroy_events(const wf_exec *e, wf_event **list)
{
    for (size_t i = 0; list && i < e->p->n_nanos; i++)
        if (list[i]) wf_event_destroy(list[i]);
    free(list);
}

void wf_exec_destroy(wf_exec *e)
{
    if (!e) return;
    for (uint32_t q = 0; q < WF_MAX_QUEUES; q++) {
        if (e->queues[q]) wf_queue_destroy(e->queues[q]);
        if (e->ends[q]) wf_event_destroy(e->ends[q]);
    }
    if (e->start) wf_event_destroy(e->start);
    for (flight *f = e->flights; f < e->flights + WF_EXEC_DEPTH; f++) {
        if (f->begun) wf_event_destroy(f->begun);
        if (f->done) wf_event_destroy(f->done);
        destroy_events(e, f->ends);
        destroy_events(e, f->starts);
        wf_host_destroy(e->dev, &f->staging);
        wf_host_destroy(e->dev, &f->recomputed);
    }
    wf_memory_free(&e->mem);
    wf_profile_free(&e->stats.ops);
    free(e);
}

uint64_t wf_exec_kv_bytes(const wf_exec *e)
{
    return wf_memory_kv(&e->mem);
}

uint64_t wf_exec_activation_bytes(const wf_exec *e)
{
    return wf_memory_activations(&e->mem);
}

/* ---- pages to the host and back ------------------------------------------------------------------------- */

uint64_t wf_exec_page_bytes(const wf_exec *e)
{
    return wf_page_bytes(e->g);
}

static weft_status copy_pages(wf_exec *e, const int32_t *pages, uint32_t n, bool out, uint8_t *host)
{
    uint64_t bytes = wf_exec_page_bytes(e);
    for (uint32_t i = 0; i < n; i++) WF_TRY(wf_memory_copy(&e->mem, e->queues[0], pages[i], out, host + i * bytes));
    return wf_finish(e->queues[0]);
}

weft_status wf_exec_pages_out(wf_exec *e, const int32_t *pages, uint32_t n, void *host)
{
    return copy_pages(e, pages, n, true, host);
}

weft_status wf_exec_pages_in(wf_exec *e, const int32_t *pages, uint32_t n, const void *host)
{
    return copy_pages(e, pages, n, false, (uint8_t *)host); /* only read from */
}

/* ---- views --------------------------------------------------------------------------------------------- */

typedef struct span {
    uint32_t first, count;
} span;

static uint32_t rows_in(const wf_batch *b, enum wf_rows rows)
{
    return rows == WF_ROWS_LOGITS ? b->n_logits : b->n_tokens;
}

static span part_of(const wf_batch *b, enum wf_rows rows, const wf_nano *n)
{
    uint64_t m = rows_in(b, rows);
    uint32_t first = (uint32_t)(m * n->part / n->parts);
    return (span){first, (uint32_t)(m * (n->part + 1) / n->parts) - first};
}

static uint32_t input_count(const wf_batch *b, enum wf_input i)
{
    switch (i) {
    case WF_INPUT_INDPTR: return b->n_seqs + 1;
    case WF_INPUT_PAGES: return b->n_pages;
    case WF_INPUT_LOGIT_ROWS: return b->n_logits;
    default: return b->n_tokens;
    }
}

static wf_view act_view(const wf_exec *e, const wf_batch *b, const wf_value *v, int32_t slot, wf_operand o, span rows)
{
    uint64_t size = wf_dtype_bytes(v->dtype, 1), pitch = e->p->slots[slot].pitch;
    wf_view view = wf_memory_slot(&e->mem, slot, b->n_tokens, b->n_logits);
    view.offset += rows.first * pitch + o.col * size;
    view.rows = rows.count;
    view.cols = o.cols ? o.cols : v->cols;
    view.stride = (uint32_t)(pitch / size);
    view.dtype = v->dtype;
    return view;
}

/* rows: those that the call computes. */
static wf_view view_of(const wf_exec *e, const wf_batch *b, const wf_node *node, span rows, wf_operand o)
{
    if (o.value < 0) return (wf_view){0};
    const wf_value *v = &e->g->values[o.value];
    if (v->kind == WF_VALUE_WEIGHT) return e->weights[v->id];
    if (v->kind == WF_VALUE_KV) return wf_memory_pool(&e->mem, v, b->n_tokens, b->n_logits);
    bool own = v->rows == node->rows;
    if (!own) rows = (span){0, rows_in(b, v->rows)};
    if (v->kind == WF_VALUE_ACT) return act_view(e, b, v, e->p->slot_of[o.value], o, rows);
    if (!own) rows.count = input_count(b, (enum wf_input)v->id);
    return (wf_view){wf_arena_buf(&e->mem.steps, e->inputs), e->inputs.offset + e->input_at[v->id] + rows.first * sizeof(int32_t), rows.count, 1, 1, WF_I32, 0};
}

static wf_call call_of(const wf_exec *e, const wf_batch *b, const wf_nano *n, span rows)
{
    const wf_node *node = &e->g->nodes[n->node];
    wf_call c = {.op = node->op, .variant = -1, .max_groups = n->groups, .p = node->p};
    c.p.max_kv = b->max_kv;
    c.p.max_q = rows.first + rows.count <= b->n_decodes ? 1 : b->max_q;
    for (size_t i = 0; i < WF_MAX_IN; i++) c.in[i] = view_of(e, b, node, rows, node->in[i]);
    for (size_t i = 0; i < WF_MAX_OUT; i++) c.out[i] = view_of(e, b, node, rows, node->out[i]);
    if (node->op == WF_OP_ATTENTION && e->counts)
        c.out[WF_ATTENTION_RECOMPUTED] = (wf_view){wf_arena_buf(&e->mem.steps, e->recomputed), e->recomputed.offset, 1, 1, 1, WF_I32, 0};
    return c;
}

/* ---- running -------------------------------------------------------------------------------------------- */

/* The kernel that the plan names where it can run these shapes, else the backend's choice; built and checked. */
static weft_status bind(wf_exec *e, const wf_nano *n, wf_call *c, wf_binding *out)
{
    const char *kernel = e->p->lines[n->line].kernel;
    if (strcmp(kernel, "auto")) {
        int v = wf_variant_find(e->dev, c->op, kernel);
        if (v < 0) return wf_fail(WEFT_ERR_ARG, "plan: %s has no kernel '%s' for %s", e->dev->info.name, kernel, wf_ops[c->op].name);
        if (wf_is_fused(c) || e->dev->fns->supports(e->dev, c, v)) c->variant = v; /* of a fused one at least the product */
    }
    return wf_bind(e->dev, c, out);
}

static weft_status observe(wf_exec *e, const wf_batch *b, const wf_nano *n, uint32_t first, const wf_call *c)
{
    if (!e->observer) return WEFT_OK;
    WF_TRY(wf_finish(e->queues[n->queue]));
    return e->observer(e->observer_user, e->queues[n->queue], &e->g->nodes[n->node], b, first, c);
}

void wf_exec_observe(wf_exec *e, wf_exec_observer fn, void *user)
{
    e->observer = fn;
    e->observer_user = user;
}

/* The rows of the next call: decodes want another kernel for attention than prompts do. */
static span piece_of(const wf_batch *b, const wf_node *node, span left)
{
    if (node->op == WF_OP_ATTENTION && left.first < b->n_decodes) left.count = WF_MIN(left.count, b->n_decodes - left.first);
    return left;
}

static weft_status submit_nano(wf_exec *e, const wf_batch *b, const flight *f, size_t i)
{
    const wf_nano *n = &e->p->nanos[i];
    const wf_node *node = &e->g->nodes[n->node];
    wf_event *waits[WF_MAX_QUEUES]; /* the plan needs at most one a queue: the latest covers the rest */
    uint32_t n_waits = WF_MIN(n->n_waits, (uint32_t)WF_LEN(waits));
    span left = part_of(b, node->rows, n);
    for (uint32_t w = 0; w < n_waits; w++) waits[w] = f->ends[e->p->waits[n->wait + w]];
    if (!left.count) /* nothing to do, but others may wait for it */
        return wf_mark(e->queues[n->queue], waits, n_waits, f->ends[i]);
    for (wf_event *start = f->starts[i]; left.count; start = NULL, n_waits = 0) {
        span rows = piece_of(b, node, left);
        left = (span){left.first + rows.count, left.count - rows.count};
        wf_call c = call_of(e, b, n, rows);
        wf_binding bound;
        WF_TRY(bind(e, n, &c, &bound));
        c.waits = waits;
        c.n_waits = n_waits;
        c.signal = left.count ? start : f->ends[i];
        c.started = left.count ? NULL : start;
        WF_TRY(wf_launch(e->queues[n->queue], &c, &bound));
        WF_TRY(observe(e, b, n, rows.first, &c));
    }
    return WEFT_OK;
}

static uint64_t align_up(const wf_exec *e, uint64_t at)
{
    return WF_UP(at, (uint64_t)e->dev->align);
}

static void pack_inputs(wf_exec *e, const wf_batch *b, uint8_t *staging)
{
    uint64_t at = 0;
    for (size_t i = 0; i < WF_N_INPUTS; i++) {
        size_t bytes = input_count(b, (enum wf_input)i) * sizeof(int32_t);
        e->input_at[i] = at;
        memcpy(staging + at, b->in[i], bytes);
        at = align_up(e, at + bytes);
    }
    e->params_at = at;
    e->key_at = align_up(e, at + b->n_logits * WF_SAMPLING_FLOATS * sizeof(float));
}

static void pack_sampling(const wf_exec *e, const wf_batch *b, const wf_sampling_params *params, uint8_t *staging)
{
    float *floats = (float *)(staging + e->params_at);
    int32_t *ints = (int32_t *)(staging + e->key_at);
    for (uint32_t i = 0; i < b->n_logits; i++) wf_sampling_pack(&params[i], floats + i * WF_SAMPLING_FLOATS, ints + i * WF_SAMPLING_INTS);
}

/* An array of the input region. */
static wf_view input_view(const wf_exec *e, uint64_t at, enum wf_dtype dtype, uint32_t rows, uint32_t cols)
{
    return (wf_view){wf_arena_buf(&e->mem.steps, e->inputs), e->inputs.offset + at, rows, cols, cols, (uint8_t)dtype, 0};
}

static wf_view tokens_view(const wf_exec *e, const wf_batch *b)
{
    return input_view(e, e->input_at[WF_INPUT_TOKEN], WF_I32, b->n_tokens, 1);
}

static wf_view logits_view(const wf_exec *e, const wf_batch *b)
{
    int32_t logits = e->g->logits;
    return act_view(e, b, &e->g->values[logits], e->p->slot_of[logits], WF_ALL(logits), (span){0, b->n_logits});
}

static weft_status write_inputs(wf_exec *e, const wf_batch *b, const wf_sampling_params *params, const flight *f)
{
    pack_inputs(e, b, f->staging.data);
    if (params) pack_sampling(e, b, params, f->staging.data);
    uint64_t end = params ? e->key_at + b->n_logits * WF_SAMPLING_INTS * sizeof(int32_t) : e->input_at[WF_N_INPUTS - 1] + b->n_logits * sizeof(int32_t);
    WF_TRY(wf_write(e->queues[0], wf_arena_buf(&e->mem.steps, e->inputs), e->inputs.offset, f->staging.data, end, NULL, 0, f->begun));
    wf_view tokens = tokens_view(e, b);
    if (b->n_pending) WF_TRY(wf_tokens_subst(&e->tokens, e->queues[0], &tokens));
    if (e->p->n_queues > 1) WF_TRY(wf_mark(e->queues[0], NULL, 0, e->start));
    for (uint32_t q = 1; q < e->p->n_queues; q++) WF_TRY(wf_mark(e->queues[q], &e->start, 1, NULL));
    return WEFT_OK;
}

static weft_status sample_ids(wf_exec *e, const wf_batch *b, bool sample, int32_t *ids)
{
    wf_view logits = logits_view(e, b), params = input_view(e, e->params_at, WF_F32, b->n_logits, WF_SAMPLING_FLOATS),
            key = input_view(e, e->key_at, WF_I32, b->n_logits, WF_SAMPLING_INTS);
    WF_TRY(sample ? wf_tokens_sample(&e->tokens, e->queues[0], &logits, &params, &key) : wf_tokens_argmax(&e->tokens, e->queues[0], &logits));
    return wf_tokens_read(&e->tokens, e->queues[0], b->n_logits, ids);
}

static weft_status read_logits(wf_exec *e, const wf_batch *b, float *logits)
{
    wf_view v = logits_view(e, b);
    uint64_t row = wf_dtype_bytes(v.dtype, v.cols), pitch = wf_dtype_bytes(v.dtype, v.stride);
    uint32_t step = pitch == row ? b->n_logits : 1; /* rows without gaps go in one */
    for (uint32_t i = 0; i < b->n_logits; i += step)
        WF_TRY(wf_read(e->queues[0], v.buf, v.offset + i * pitch, logits + (size_t)i * v.cols, row * step, NULL, 0, NULL));
    return WEFT_OK;
}

/* Queue 0 waits for the others, then gives back what was asked for. */
static weft_status read_results(wf_exec *e, const wf_batch *b, bool sample, float *logits, int32_t *ids, flight *f)
{
    for (uint32_t q = 1; q < e->p->n_queues; q++) {
        WF_TRY(wf_mark(e->queues[q], NULL, 0, e->ends[q]));
        WF_TRY(wf_flush(e->queues[q]));
        WF_TRY(wf_mark(e->queues[0], &e->ends[q], 1, NULL));
    }
    if (ids && b->n_logits) WF_TRY(sample_ids(e, b, sample, ids));
    if (logits) WF_TRY(read_logits(e, b, logits));
    if (e->counts) WF_TRY(wf_read(e->queues[0], wf_arena_buf(&e->mem.steps, e->recomputed), e->recomputed.offset, f->recomputed.data, sizeof(uint32_t), NULL, 0, NULL));
    WF_TRY(wf_mark(e->queues[0], NULL, 0, f->done));
    return wf_flush(e->queues[0]);
}

bool wf_exec_can_sample(const wf_exec *e)
{
    return !e->tokens.cannot_sample;
}

static weft_status submit_nanos(wf_exec *e, const wf_batch *b, const flight *f)
{
    for (size_t i = 0; i < e->p->n_nanos; i++) {
        weft_status s = submit_nano(e, b, f, i);
        if (s != WEFT_OK) return wf_fail_context(s, "%s", e->g->nodes[e->p->nanos[i].node].name);
    }
    return WEFT_OK;
}

weft_status wf_exec_submit(wf_exec *e, const wf_batch *b, const wf_sampling_params *params, float *logits, int32_t *ids)
{
    if (e->n_flights == WF_EXEC_DEPTH) return wf_fail(WEFT_ERR_ARG, "%d steps are under way already", WF_EXEC_DEPTH);
    flight *f = &e->flights[(e->first + e->n_flights) % WF_EXEC_DEPTH];
    weft_status s = write_inputs(e, b, params, f);
    if (s == WEFT_OK) s = submit_nanos(e, b, f);
    if (s == WEFT_OK) s = read_results(e, b, params, logits, ids, f);
    if (s == WEFT_OK) e->n_flights++;
    for (uint32_t q = 0; s != WEFT_OK && !e->dev->lost && q < e->p->n_queues; q++) wf_finish(e->queues[q]); /* none may write to the caller's memory later */
    return s;
}

/* A device that cannot tell the times leaves the clock at zero. */
static void take_times(wf_exec *e, const flight *f)
{
    uint64_t began, end, t;
    if (wf_event_times(f->begun, &began, &t) || wf_event_times(f->done, &t, &end)) return;
    e->stats.busy_ns += e->stats.last_ns = end - began;
    if (e->ended_ns && began > e->ended_ns) e->stats.idle_ns += began - e->ended_ns;
    e->ended_ns = e->stats.ended_ns = end;
    wf_profile_take(&e->stats.ops, e->g, e->p, f->starts, f->ends, began);
}

weft_status wf_exec_wait(wf_exec *e)
{
    if (!e->n_flights) return WEFT_OK;
    const flight *f = &e->flights[e->first++ % WF_EXEC_DEPTH];
    e->n_flights--;
    WF_TRY(wf_wait(f->done, e->dev->params.watchdog_ms));
    e->stats.recomputed += *(const uint32_t *)f->recomputed.data - (uint32_t)e->stats.recomputed; /* the device's counter wraps */
    if (e->dev->params.profile) take_times(e, f);
    return WEFT_OK;
}

void wf_exec_mark_idle(wf_exec *e)
{
    e->ended_ns = 0;
}

const wf_exec_stats *wf_exec_stats_of(const wf_exec *e)
{
    return &e->stats;
}

/* Of attention alone: at another shape of the batch the other ops are the same. */
static weft_status prepare_batch(wf_exec *e, const wf_batch *b, bool attention)
{
    for (size_t i = 0; i < e->p->n_nanos; i++) {
        const wf_nano *n = &e->p->nanos[i];
        const wf_node *node = &e->g->nodes[n->node];
        span part = part_of(b, node->rows, n);
        wf_call c = call_of(e, b, n, part);
        if (attention && node->op != WF_OP_ATTENTION) continue;
        if (attention) c.p.max_kv = e->limits.seq_pages * c.p.page_tokens;
        wf_binding built;
        if (part.count) WF_TRY(bind(e, n, &c, &built));
    }
    return WEFT_OK;
}

/* Builds what a step of so many rows submits: of as many sequences as there may be; and, where compiling is cheap, of
 * whole contexts, whose keys some kernels cut into parts, and of one prompt. */
static weft_status prepare_rows(wf_exec *e, uint32_t rows)
{
    uint32_t seqs = WF_MIN(rows, e->limits.seqs);
    wf_batch b = {.n_tokens = rows, .n_seqs = seqs, .n_pages = seqs, .n_logits = WF_MIN(rows, e->limits.logit_rows), .max_q = rows / seqs};
    wf_batch prompt = b;
    prompt.n_seqs = prompt.n_pages = 1, prompt.max_q = rows;
    WF_TRY(prepare_batch(e, &b, false));
    if (e->dev->info.type != WEFT_DEVICE_CPU) WF_TRY(prepare_batch(e, &b, true));
    if (e->dev->info.type != WEFT_DEVICE_CPU) WF_TRY(prepare_batch(e, &prompt, true));
    wf_view logits = logits_view(e, &b), tokens = tokens_view(e, &b);
    return wf_tokens_prepare(&e->tokens, &logits, &tokens);
}

/* Kernels differ by rows in ways that only the backend knows, and one that is missing stops a step until it is built (H200,
 * 1,000 requests at once: 17,700 tokens/s with 25 kernels to build on the way, 21,100 with none). Not all on a CPU, where
 * OpenCL's compiler takes seconds a kernel. */
static uint32_t next_rows(const wf_exec *e, uint32_t rows)
{
    uint32_t next = rows + WF_MAX(1u, rows / 8);
    if (e->dev->info.type == WEFT_DEVICE_CPU) next = rows < 8 ? 8 : e->limits.step_tokens;
    return rows < e->limits.step_tokens ? WF_MIN(next, e->limits.step_tokens) : 0;
}

weft_status wf_exec_prepare(wf_exec *e, weft_progress_fn progress, void *user)
{
    uint32_t done = 0, n = 0;
    for (uint32_t rows = 1; rows; rows = next_rows(e, rows)) n++;
    for (uint32_t rows = 1; rows; rows = next_rows(e, rows)) {
        WF_TRY(prepare_rows(e, rows));
        if (progress) progress(user, "prepare", (double)++done / n);
    }
    return WEFT_OK;
}

weft_status wf_exec_poison(wf_exec *e)
{
    return wf_memory_poison(&e->mem, e->queues[0]);
}
