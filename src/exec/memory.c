/* memory: regions of everything that changes. See memory.h. */
#include "exec/memory.h"

#include <stdlib.h>

/* ---- sizes ------------------------------------------------------------------------------------------------- */

/* Of a page in this pool; 0: the value is none. */
static uint64_t pool_bytes(const wf_value *v)
{
    return v->kind == WF_VALUE_KV ? wf_dtype_bytes(v->dtype, v->cols) : 0;
}

uint64_t wf_page_bytes(const wf_graph *g)
{
    uint64_t bytes = 0;
    for (size_t v = 0; v < g->n_values; v++) bytes += pool_bytes(&g->values[v]);
    return bytes;
}

uint64_t wf_activation_bytes(const wf_plan *p, uint32_t rows, uint32_t logit_rows)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->n_buffers; i++) bytes += (uint64_t)p->buffers[i].pitch * (p->buffers[i].rows == WF_ROWS_LOGITS ? logit_rows : rows);
    return bytes;
}

void wf_limits_unify_pool(wf_limits *l, const wf_graph *g, const wf_plan *p, uint64_t align, uint64_t max_alloc)
{
    enum { WORTH_SHARING = 64 /* that part more pages */ };
    wf_unified_pool s = {.page = wf_page_bytes(g), .token = wf_activation_bytes(p, 1, 0), .logit_row = wf_activation_bytes(p, 0, 1)};
    s.bytes = WF_UP(l->pages * s.page, align) + wf_unified_pool_step_bytes(&s, l->step_tokens, l->logit_rows);
    if (!s.page || s.page > UINT32_MAX || s.bytes > max_alloc) return;
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

static void list_pools(wf_memory *m, uint64_t *bytes)
{
    uint64_t page = 0;
    for (size_t v = 0; v < m->g->n_values; v++)
        if (pool_bytes(&m->g->values[v])) bytes[m->g->values[v].id] = pool_bytes(&m->g->values[v]);
    for (size_t id = 0; id < m->n_pools; page += bytes[id++]) m->pools[id] = (wf_pool){0, page};
}

static weft_status reserve_kv(wf_memory *m)
{
    uint64_t *bytes = wf_calloc(m->n_pools, sizeof *bytes);
    if (!bytes) return WEFT_ERR_NOMEM;
    list_pools(m, bytes);
    const wf_unified_pool *s = &m->limits.pool;
    weft_status st = s->bytes ? add_group(m, s->page, s->bytes) : reserve_apart(m, bytes);
    free(bytes);
    return st;
}

static weft_status reserve_buffers(wf_memory *m)
{
    uint64_t row = 0, logit_row = 0;
    for (size_t i = 0; i < m->p->n_buffers; i++) {
        const wf_act_buffer *s = &m->p->buffers[i];
        bool logits = s->rows == WF_ROWS_LOGITS;
        *(logits ? &logit_row : &row) += s->pitch;
        m->from_end[i][0] = row;
        m->from_end[i][1] = logit_row;
        if (m->limits.pool.bytes) m->buffers[i] = m->groups[0].at;
        else WF_TRY(wf_arena_reserve(&m->steps, (uint64_t)s->pitch * (logits ? m->limits.logit_rows : m->limits.step_tokens), &m->buffers[i]));
    }
    return WEFT_OK;
}

/* Not all commands have these. */
#define SMALLER "where the command has them, lower --max-num-batched-tokens, --max-num-seqs, --kv-memory or --ctx-size"

weft_status wf_memory_init(wf_memory *m, wf_dev *dev, const wf_graph *g, const wf_plan *p, const wf_limits *l)
{
    *m = (wf_memory){.g = g, .p = p, .limits = *l};
    wf_arena_init(&m->steps, dev, "activations", SMALLER);
    wf_arena_init(&m->kv, dev, l->pool.bytes ? "KV cache and activations" : "KV cache", SMALLER);
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WF_VALUE_KV) m->n_pools = WF_MAX(m->n_pools, (size_t)g->values[v].id + 1);
    m->buffers = wf_calloc(p->n_buffers, sizeof *m->buffers);
    m->from_end = wf_calloc(p->n_buffers, sizeof *m->from_end);
    m->pools = wf_calloc(m->n_pools, sizeof *m->pools);
    m->groups = wf_calloc(m->n_pools + 1, sizeof *m->groups);
    if (!m->buffers || !m->from_end || !m->pools || !m->groups) return WEFT_ERR_NOMEM;
    WF_TRY(reserve_kv(m));
    return reserve_buffers(m);
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
    free(m->from_end);
    free(m->pools);
    free(m->groups);
}

uint64_t wf_memory_kv(const wf_memory *m)
{
    const wf_limits *l = &m->limits;
    return wf_arena_bytes(&m->kv) - (l->pool.bytes ? wf_unified_pool_step_bytes(&l->pool, l->step_tokens, l->logit_rows) : 0);
}

uint64_t wf_memory_activations(const wf_memory *m)
{
    return wf_arena_bytes(&m->steps) + wf_arena_bytes(&m->kv) - wf_memory_kv(m);
}

/* ---- views --------------------------------------------------------------------------------------------------- */

wf_view wf_memory_buffer(const wf_memory *m, int32_t buffer, uint32_t rows, uint32_t logits)
{
    wf_region r = m->buffers[buffer];
    const wf_unified_pool *s = &m->limits.pool;
    if (!s->bytes) return (wf_view){.buf = wf_arena_buf(&m->steps, r), .offset = r.offset};
    return (wf_view){.buf = wf_arena_buf(&m->kv, r), .offset = r.offset + s->bytes - rows * m->from_end[buffer][0] - logits * m->from_end[buffer][1]};
}

wf_view wf_memory_pool(const wf_memory *m, const wf_value *v, uint32_t rows, uint32_t logits)
{
    const wf_pool *p = &m->pools[v->id];
    const wf_group *g = &m->groups[p->group];
    return (wf_view){.buf = wf_arena_buf(&m->kv, g->at), .offset = g->at.offset + p->offset, .rows = wf_limits_pages(&m->limits, rows, logits),
                     .cols = v->cols, .stride = (uint32_t)(g->page / wf_dtype_bytes(v->dtype, 1)), .dtype = v->dtype};
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

weft_status wf_memory_copy(const wf_memory *m, wf_queue *q, int32_t page, bool out, uint8_t *host)
{
    for (const wf_group *g = m->groups; g < m->groups + m->n_groups; host += g++->page) {
        wf_buf *buf = wf_arena_buf(&m->kv, g->at);
        uint64_t at = g->at.offset + (uint64_t)page * g->page;
        WF_TRY(out ? wf_read(q, buf, at, host, g->page, NULL, 0, NULL) : wf_write(q, buf, at, host, g->page, NULL, 0, NULL));
    }
    return WEFT_OK;
}

weft_status wf_memory_poison(const wf_memory *m, wf_queue *q)
{
    for (size_t i = 0; i < m->kv.n_slabs; i++) WF_TRY(wf_fill(q, m->kv.slabs[i].buf, 0, m->kv.slabs[i].size & ~3ull, 0x7e007e00u));
    return wf_finish(q);
}
