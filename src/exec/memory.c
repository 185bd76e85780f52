/* memory: regions of everything that changes. See memory.h. */
#include "exec/memory.h"

#include <stdlib.h>

/* ---- sizes ------------------------------------------------------------------------------------------------- */

/* Layers of several page tables take turns in a pool: those of the first table need all of them. */
static size_t pool_of_value(const wf_graph *g, const wf_value *v)
{
    return 2 * (size_t)wf_kv_slot(&g->kv, v->id / 2) + v->id % 2;
}

/* Of a page in the pool that this value is the first of; else 0. */
static uint64_t pool_bytes(const wf_graph *g, const wf_value *v)
{
    return v->kind == WF_VALUE_KV && !wf_kv_table(&g->kv, v->id / 2) ? wf_dtype_bytes(v->dtype, v->cols) : 0;
}

uint64_t wf_page_bytes(const wf_graph *g)
{
    uint64_t bytes = 0;
    for (size_t v = 0; v < g->n_values; v++) bytes += pool_bytes(g, &g->values[v]);
    return bytes;
}

uint64_t wf_activation_bytes(const wf_plan *p, uint32_t rows, uint32_t logit_rows)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->n_buffers; i++)
        bytes += (uint64_t)p->buffers[i].pitch * (p->buffers[i].rows == WF_ROWS_LOGITS ? logit_rows : rows);
    return bytes;
}

/* ---- one space for pages and activations ----------------------------------------------------------------------- */

static size_t count_pools(const wf_graph *g)
{
    size_t n = 0;
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WF_VALUE_KV) n = WF_MAX(n, pool_of_value(g, &g->values[v]) + 1);
    return n;
}

/* K and V of a layer lie in one part: layers are shared out evenly. */
static uint32_t part_of_pool(size_t id, size_t n_pools, uint32_t n_parts)
{
    return (uint32_t)(id / 2 * n_parts / ((n_pools + 1) / 2));
}

static void add_pools(wf_unified_pool *s, const wf_graph *g)
{
    size_t n = count_pools(g);
    for (const wf_value *v = g->values; v < g->values + g->n_values; v++)
        if (pool_bytes(g, v)) s->parts[part_of_pool(pool_of_value(g, v), n, s->n)].page += pool_bytes(g, v);
}

static void add_buffer(wf_pool_part *part, const wf_act_buffer *b)
{
    *(b->rows == WF_ROWS_LOGITS ? &part->logit_row : &part->token) += b->pitch;
}

static uint64_t buffer_bytes(const wf_act_buffer *b, const wf_limits *l)
{
    return (uint64_t)b->pitch * (b->rows == WF_ROWS_LOGITS ? l->logit_rows : l->step_tokens);
}

/* How much of a part's share of pages its activations take, when they have grown by `more` bytes. */
static double load_of(const wf_pool_part *p, const wf_limits *l, uint64_t more)
{
    return (double)(wf_pool_part_step_bytes(p, l->step_tokens, l->logit_rows) + more) / (double)WF_MAX(p->page, 1u);
}

/* Each buffer, as they come from the widest to the narrowest, to the part that has least; into part_of, unless that is
 * NULL. */
static void add_buffers(wf_unified_pool *s, const wf_plan *p, const wf_limits *l, uint32_t *part_of)
{
    for (size_t i = 0; i < p->n_buffers; i++) {
        uint32_t best = 0;
        uint64_t bytes = buffer_bytes(&p->buffers[i], l);
        for (uint32_t k = 1; k < s->n; k++)
            if (load_of(&s->parts[k], l, bytes) < load_of(&s->parts[best], l, bytes)) best = k;
        add_buffer(&s->parts[best], &p->buffers[i]);
        if (part_of) part_of[i] = best;
    }
}

static bool fits_buffers(const wf_unified_pool *s, uint64_t max_alloc)
{
    for (const wf_pool_part *p = s->parts; p < s->parts + s->n; p++)
        if (!p->page || p->page > UINT32_MAX || p->bytes > max_alloc) return false; /* strides have 32 bits */
    return true;
}

static wf_unified_pool unified_pool_of(const wf_limits *l, const wf_graph *g, const wf_plan *p, uint32_t n_parts,
                                       uint64_t align)
{
    wf_unified_pool s = {.n = n_parts};
    add_pools(&s, g);
    add_buffers(&s, p, l, NULL);
    /* All parts hold l->pages pages beside the activations of the largest step, and as many more without them. */
    const wf_pool_part *fullest = s.parts;
    for (wf_pool_part *p = s.parts; p < s.parts + s.n; p++)
        if (load_of(p, l, 0) > load_of(fullest, l, 0)) fullest = p;
    uint64_t step = wf_pool_part_step_bytes(fullest, l->step_tokens, l->logit_rows), page = WF_MAX(fullest->page, 1u);
    for (wf_pool_part *p = s.parts; p < s.parts + s.n; p++) {
        uint64_t own = wf_pool_part_step_bytes(p, l->step_tokens, l->logit_rows),
                 as_many = (uint64_t)((double)step / (double)page * (double)p->page);
        p->bytes = WF_UP(l->pages * p->page, align) + WF_UP(WF_MAX(own, as_many), align);
    }
    return s;
}

void wf_limits_unify_pool(wf_limits *l, const wf_graph *g, const wf_plan *p, uint64_t align, uint64_t max_alloc)
{
    enum { WORTH_SHARING = 64 /* that part more pages */ };
    uint64_t apart = wf_activation_bytes(p, l->step_tokens, l->logit_rows), kv = l->pages * wf_page_bytes(g);
    wf_unified_pool s = {.n = 0};
    for (uint32_t n = 1; n <= WF_MIN(WF_MAX_POOL_PARTS, (count_pools(g) + 1) / 2); n++)
        if (s = unified_pool_of(l, g, p, n, align), fits_buffers(&s, max_alloc)) break;
    /* Parts whose activations differ much would take more memory than they save. */
    if (!s.n || !fits_buffers(&s, max_alloc) || wf_unified_pool_bytes(&s) > kv + 2 * apart) return;
    uint64_t wanted = (uint64_t)wf_limits_held_pages(l) * l->seqs;
    l->pool = s;
    l->pages = (uint32_t)WF_MIN(WF_MAX(wanted, l->pages), (uint64_t)INT32_MAX);
    uint32_t pages = wf_limits_max_pages(l, 1), base = wf_limits_guaranteed_pages(l);
    l->pages = pages - base >= base / WORTH_SHARING ? pages : base;
}

/* ---- reserving --------------------------------------------------------------------------------------------- */

static weft_status add_group(wf_memory *m, uint64_t page, uint64_t bytes)
{
    wf_group *last = &m->groups[m->n_groups++];
    last->page = page;
    return wf_arena_reserve(&m->kv, bytes, &last->at);
}

/* Closes the last group where its pages and `more` would be too much for a buffer. */
static weft_status make_room(wf_memory *m, uint64_t *page, uint64_t more)
{
    uint64_t most = WF_MIN(m->kv.dev->max_alloc / WF_MAX(m->limits.pages, 1u), UINT32_MAX); /* strides have 32 bits */
    if (!*page || *page + more <= most) return WEFT_OK;
    WF_TRY(add_group(m, *page, m->limits.pages * *page));
    *page = 0;
    return WEFT_OK;
}

/* K and V of a layer lie in one group, or each in one of its own: so they have one stride. */
static weft_status reserve_apart(wf_memory *m, const uint64_t *bytes)
{
    uint64_t page = 0;
    for (size_t id = 0; id < m->n_pools; id += 2) {
        WF_TRY(make_room(m, &page, bytes[id] + (id + 1 < m->n_pools ? bytes[id + 1] : 0)));
        for (size_t i = id; i < WF_MIN(id + 2, m->n_pools); page += bytes[i++]) {
            WF_TRY(make_room(m, &page, bytes[i]));
            m->pools[i] = (wf_pool){(uint32_t)m->n_groups, page};
        }
    }
    return page ? add_group(m, page, m->limits.pages * page) : WEFT_OK;
}

/* The parts of the unified pool, each a group of layers. */
static weft_status reserve_parts(wf_memory *m, const uint64_t *bytes)
{
    const wf_unified_pool *s = &m->limits.pool;
    uint64_t page[WF_MAX_POOL_PARTS] = {0};
    for (const wf_pool_part *p = s->parts; p < s->parts + s->n; p++) WF_TRY(add_group(m, p->page, p->bytes));
    for (size_t id = 0; id < m->n_pools; id++) {
        uint32_t part = part_of_pool(id, m->n_pools, s->n);
        m->pools[id] = (wf_pool){part, page[part]};
        page[part] += bytes[id];
    }
    return WEFT_OK;
}

static weft_status reserve_buffers(wf_memory *m)
{
    for (size_t i = 0; i < m->p->n_buffers; i++)
        WF_TRY(wf_arena_reserve(&m->steps, buffer_bytes(&m->p->buffers[i], &m->limits), &m->buffers[i].at));
    return WEFT_OK;
}

/* Each buffer ends where the one before it in its part begins. */
static weft_status locate_buffers(wf_memory *m)
{
    uint32_t *part_of = wf_calloc(m->p->n_buffers, sizeof *part_of);
    wf_unified_pool s = {.n = m->limits.pool.n};
    if (!part_of) return WEFT_ERR_NOMEM;
    add_pools(&s, m->g);
    add_buffers(&s, m->p, &m->limits, part_of);
    wf_pool_part used[WF_MAX_POOL_PARTS] = {{0}};
    for (size_t i = 0; i < m->p->n_buffers; i++) {
        wf_pool_part *part = &used[part_of[i]];
        add_buffer(part, &m->p->buffers[i]);
        m->buffers[i] = (wf_buffer_place){.at = m->groups[part_of[i]].at,
                                          .end = m->limits.pool.parts[part_of[i]].bytes,
                                          .token = part->token,
                                          .logit_row = part->logit_row};
    }
    free(part_of);
    return WEFT_OK;
}

#define SMALLER                                                                                                        \
    "lower weft_engine_params.max_batched_tokens, weft_engine_params.n_seqs, weft_engine_params.kv_memory or "         \
    "weft_engine_params.context"

weft_status wf_memory_init(wf_memory *m, wf_dev *dev, const wf_graph *g, const wf_plan *p, const wf_limits *l)
{
    *m = (wf_memory){.g = g, .p = p, .limits = *l};
    wf_arena_init(&m->steps, dev, "activations", SMALLER);
    wf_arena_init(&m->kv, dev, l->pool.n ? "KV cache and activations" : "KV cache", SMALLER);
    m->n_pools = count_pools(g);
    m->buffers = wf_calloc(p->n_buffers, sizeof *m->buffers);
    m->pools = wf_calloc(m->n_pools, sizeof *m->pools);
    m->groups = wf_calloc(m->n_pools + 1, sizeof *m->groups);
    if (!m->buffers || !m->pools || !m->groups) return WEFT_ERR_NOMEM;
    uint64_t *bytes = wf_calloc(m->n_pools, sizeof *bytes);
    if (!bytes) return WEFT_ERR_NOMEM;
    for (const wf_value *v = m->g->values; v < m->g->values + m->g->n_values; v++)
        if (pool_bytes(m->g, v)) bytes[pool_of_value(m->g, v)] = pool_bytes(m->g, v);
    weft_status st = m->limits.pool.n ? reserve_parts(m, bytes) : reserve_apart(m, bytes);
    free(bytes);
    WF_TRY(st);
    return l->pool.n ? locate_buffers(m) : reserve_buffers(m);
}

weft_status wf_memory_commit(wf_memory *m)
{
    WF_TRY(wf_arena_commit(&m->steps));
    return wf_arena_commit(&m->kv);
}

void wf_memory_free(wf_memory *m)
{
    wf_arena_free(&m->steps);
    wf_arena_free(&m->kv);
    free(m->buffers);
    free(m->pools);
    free(m->groups);
}

uint64_t wf_memory_kv(const wf_memory *m)
{
    const wf_limits *l = &m->limits;
    return l->pool.n ? wf_limits_guaranteed_pages(l) * wf_page_bytes(m->g) : wf_arena_bytes(&m->kv);
}

uint64_t wf_memory_activations(const wf_memory *m)
{
    return wf_arena_bytes(&m->steps) + wf_arena_bytes(&m->kv) - wf_memory_kv(m);
}

/* ---- views --------------------------------------------------------------------------------------------------- */

wf_view wf_memory_buffer(const wf_memory *m, int32_t buffer, uint32_t rows, uint32_t logits)
{
    const wf_buffer_place *b = &m->buffers[buffer];
    return (wf_view){.buf = wf_arena_buf(m->limits.pool.n ? &m->kv : &m->steps, b->at),
                     .offset = b->at.offset + b->end - rows * b->token - logits * b->logit_row};
}

wf_view wf_memory_pool(const wf_memory *m, const wf_value *v, uint32_t rows, uint32_t logits)
{
    const wf_pool *p = &m->pools[pool_of_value(m->g, v)];
    const wf_group *g = &m->groups[p->group];
    return (wf_view){.buf = wf_arena_buf(&m->kv, g->at),
                     .offset = g->at.offset + p->offset,
                     .rows = wf_limits_pages(&m->limits, rows, logits),
                     .cols = v->cols,
                     .stride = (uint32_t)wf_dtype_elements(v->dtype, g->page),
                     .dtype = v->dtype};
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

weft_status wf_memory_copy(const wf_memory *m, wf_queue *q, int32_t page, bool out, uint8_t *host, wf_event *end)
{
    for (const wf_group *g = m->groups; g < m->groups + m->n_groups; host += g++->page) {
        wf_buf *buf = wf_arena_buf(&m->kv, g->at);
        uint64_t at = g->at.offset + (uint64_t)page * g->page;
        wf_event *signal = g + 1 == m->groups + m->n_groups ? end : NULL;
        WF_TRY(out ? wf_read(q, buf, at, host, g->page, NULL, 0, signal)
                   : wf_write(q, buf, at, host, g->page, NULL, 0, signal));
    }
    return WEFT_OK;
}

weft_status wf_memory_fill(const wf_memory *m, wf_queue *q, uint32_t pattern)
{
    for (size_t i = 0; i < m->kv.n_slabs; i++)
        WF_TRY(wf_fill(q, m->kv.slabs[i].buf, 0, m->kv.slabs[i].size & ~3ull, pattern));
    return wf_finish(q);
}
