/* GROUPED_GEMM by the kernels for GEMM: the tokens of an expert are gathered, ROWS of them at a time, and multiplied
 * with CHUNK rows of its matrix, a thread each. So only experts that a token chose are read, and results are those of
 * the kernel for any number of tokens. */
#include <math.h>
#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/variants.h"

enum { ROWS = 32, CHUNK = 64 };

/* Some of an expert's tokens: order[first], ... order[first + n - 1]. A token is counted once for each of its experts.
 */
typedef struct group {
    uint32_t expert, first, n;
} group;

typedef struct grouped {
    const wf_view *x, *w, *ids, *bias, *y;
    uint32_t used, each, k, n_experts, n_pairs, n_groups;
    uint32_t *order, *start; /* pairs (token x used + which) by expert; where each expert's begin */
    group *groups;
    char *gathered, *results, *shared, *per_thread;
} grouped;

static size_t element(const wf_view *v)
{
    return wf_dtypes[v->dtype].block_bytes;
}

static grouped grouped_of(const wf_call *c)
{
    grouped g = {&c->in[WF_GROUPED_GEMM_X], &c->in[WF_GROUPED_GEMM_W], &c->in[WF_GROUPED_GEMM_IDS],
                 &c->in[WF_GROUPED_GEMM_BIAS], &c->out[WF_GROUPED_GEMM_Y]};
    g.used = g.ids->cols;
    g.each = g.y->cols / g.used;
    g.k = g.w->cols;
    g.n_experts = g.w->rows / g.each;
    g.n_pairs = g.y->rows * g.used;
    return g;
}

/* The product of n tokens with `rows` rows of W from `first` on, without its buffers for X and Y. */
static wf_call product(const grouped *g, uint32_t n, uint64_t first, uint32_t rows)
{
    wf_call c = {.op = WF_OP_GEMM};
    uint64_t row_bytes = wf_dtype_bytes(g->w->dtype, g->w->stride);
    c.in[WF_GEMM_X] = (wf_view){.rows = n, .cols = g->k, .stride = g->k, .dtype = g->x->dtype};
    c.in[WF_GEMM_W] = (wf_view){g->w->buf, g->w->offset + first * row_bytes, rows, g->k, g->w->stride, g->w->dtype, 0};
    if (wf_cpu_has(g->bias))
        c.in[WF_GEMM_BIAS] = (wf_view){g->bias->buf, g->bias->offset + first * 4, 1, rows, rows, WF_F32, 0};
    c.out[WF_GEMM_Y] = (wf_view){.rows = n, .cols = rows, .stride = rows, .dtype = WF_F32};
    return c;
}

/* ---- scratch memory ---------------------------------------------------------------------------------------- */

/* Takes the next bytes of the thread's scratch memory; base NULL only counts. */
static char *take_bytes(char *base, size_t *at, size_t bytes)
{
    char *p = base ? base + *at : NULL;
    *at += WF_UP(bytes, (size_t)64);
    return p;
}

static size_t place_all(grouped *g, const wf_cpu_variant *k, char *base)
{
    size_t at = 0;
    wf_cpu_scratch_size own = {0}; /* the kernel's, for any number of tokens of a group */
    for (uint32_t n = 1; n <= WF_MIN((uint32_t)ROWS, g->n_pairs); n++) {
        wf_call c = product(g, n, 0, WF_MIN((uint32_t)CHUNK, g->each));
        wf_cpu_scratch_size s = k->scratch(&c);
        own.shared = WF_MAX(own.shared, s.shared), own.per_thread = WF_MAX(own.per_thread, s.per_thread);
    }
    g->order = (uint32_t *)take_bytes(base, &at, sizeof *g->order * g->n_pairs);
    g->start = (uint32_t *)take_bytes(base, &at, sizeof *g->start * ((size_t)g->n_experts + 1));
    g->groups = (group *)take_bytes(base, &at, sizeof *g->groups * ((size_t)g->n_experts + g->n_pairs / ROWS));
    g->gathered = take_bytes(base, &at, element(g->x) * ROWS * g->k);
    g->results = take_bytes(base, &at, sizeof(float) * ROWS * CHUNK);
    g->shared = take_bytes(base, &at, own.shared);
    g->per_thread = take_bytes(base, &at, own.per_thread);
    return at;
}

/* ---- tokens by expert ---------------------------------------------------------------------------------------- */

/* n_experts: it names none. */
static uint32_t expert_of(const grouped *g, uint32_t pair)
{
    int32_t e = ((const int32_t *)wf_cpu_row(g->ids, pair / g->used))[pair % g->used];
    return e >= 0 && (uint32_t)e < g->n_experts ? (uint32_t)e : g->n_experts;
}

/* Each thread sorts for itself: that takes less than waiting for one that does it for all. */
static void sort_pairs(grouped *g)
{
    memset(g->start, 0, sizeof *g->start * ((size_t)g->n_experts + 1));
    for (uint32_t p = 0; p < g->n_pairs; p++) {
        uint32_t e = expert_of(g, p);
        if (e < g->n_experts) g->start[e + 1]++;
    }
    for (uint32_t e = 0; e < g->n_experts; e++) {
        g->start[e + 1] += g->start[e];
        for (uint32_t first = g->start[e]; first < g->start[e + 1]; first += ROWS)
            g->groups[g->n_groups++] = (group){e, first, WF_MIN((uint32_t)ROWS, g->start[e + 1] - first)};
    }
    for (uint32_t p = 0; p < g->n_pairs; p++) {
        uint32_t e = expert_of(g, p);
        if (e < g->n_experts) g->order[g->start[e]++] = p;
    }
}

static void *y_of(const grouped *g, uint32_t pair, uint32_t col)
{
    return (char *)wf_cpu_row(g->y, pair / g->used) + ((size_t)(pair % g->used) * g->each + col) * element(g->y);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Columns col..col + rows of the outputs of one group. */
static void multiply_group(const grouped *g, wf_cpu_run_fn run, const group *of, uint32_t col, uint32_t rows)
{
    size_t bytes = element(g->x) * g->k;
    wf_buf x = {.host = g->gathered}, y = {.host = g->results};
    wf_call c = product(g, of->n, (uint64_t)of->expert * g->each + col, rows);
    for (uint32_t i = 0; i < of->n; i++) {
        uint32_t pair = g->order[of->first + i];
        size_t part = g->x->cols > g->k ? pair % g->used * bytes : 0;
        memcpy(g->gathered + i * bytes, (char *)wf_cpu_row(g->x, pair / g->used) + part, bytes);
    }
    c.in[WF_GEMM_X].buf = &x, c.out[WF_GEMM_Y].buf = &y;
    wf_cpu_run_alone(run, &c, g->shared, g->per_thread);
    for (uint32_t i = 0; i < of->n; i++) {
        void *out = y_of(g, g->order[of->first + i], col);
        for (uint32_t n = 0; n < rows; n++) wf_cpu_set(g->y, out, n, ((const float *)g->results)[i * rows + n]);
    }
}

static void run_grouped(const wf_cpu_work *w, const wf_cpu_variant *k)
{
    grouped g = grouped_of(w->call);
    uint32_t begin, end, chunks = (g.each + CHUNK - 1) / CHUNK;
    place_all(&g, k, w->per_thread);
    sort_pairs(&g);
    wf_cpu_part(w, g.n_pairs, 1, &begin, &end);
    for (uint32_t p = begin; p < end; p++) /* ids that name no expert */
        for (uint32_t n = 0; n < g.each && expert_of(&g, p) == g.n_experts; n++)
            wf_cpu_set(g.y, y_of(&g, p, 0), n, NAN);
    while (wf_cpu_next(w, g.n_groups * chunks, 1, &begin, &end)) {
        uint32_t col = begin % chunks * CHUNK;
        multiply_group(&g, k->run, &g.groups[begin / chunks], col, WF_MIN((uint32_t)CHUNK, g.each - col));
    }
}

static wf_cpu_scratch_size grouped_scratch(const wf_call *c, const wf_cpu_variant *k)
{
    grouped g = grouped_of(c);
    return (wf_cpu_scratch_size){.per_thread = place_all(&g, k, NULL)};
}

/* As for the number of tokens that an expert has if they are spread evenly. */
static uint32_t rank_grouped(const wf_call *c, const wf_cpu_variant *k)
{
    grouped g = grouped_of(c);
    uint32_t n = WF_MIN((uint32_t)ROWS, (g.n_pairs + g.n_experts - 1) / g.n_experts);
    wf_call typical = product(&g, n, 0, WF_MIN((uint32_t)CHUNK, g.each));
    return k->rank(&typical);
}

#define XG(id, name, tier, class, arith, flags, ...)                                               \
    static const wf_cpu_variant kernel_##id = {{0}, __VA_ARGS__};                                  \
    void wf_cpu_grouped_##id(const wf_cpu_work *w)                                                 \
    {                                                                                              \
        run_grouped(w, &kernel_##id);                                                              \
    }                                                                                              \
    wf_cpu_scratch_size wf_cpu_grouped_scratch_##id(const wf_call *c)                              \
    {                                                                                              \
        return grouped_scratch(c, &kernel_##id);                                                   \
    }                                                                                              \
    uint32_t wf_cpu_rank_grouped_##id(const wf_call *c)                                            \
    {                                                                                              \
        return rank_grouped(c, &kernel_##id);                                                      \
    }
#include "cpu/variants.def"
