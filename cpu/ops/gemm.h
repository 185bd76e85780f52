/* Shared by the GEMM kernels for few activation rows: operands, prepared activations, output. Weights are read once,
 * directly from the file's blocks, and used for all activation rows while they are in the cache. Each output is summed
 * over K in the same order, whatever the tile and the number of rows and threads: one invariance class per level.
 */
#ifndef WF_CPU_OPS_GEMM_H
#define WF_CPU_OPS_GEMM_H

#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#ifndef NROW
#define NROW        4                     /* weight rows of a tile */
#define MROW        (VREGS >= 32 ? 4 : 2) /* activation rows of a tile */
#define UNIT        NROW                  /* weight rows of which chunks are multiples */
#endif
/* Up to this many elements each thread converts all itself, which is cheaper than a barrier. */
#define SMALL_PREP 16384u
#define CHUNK_BYTES (128u << 10) /* weight bytes that a thread takes at a time */

typedef struct gemm {
    const wf_view *x, *w, *bias, *residual, *y;
    uint32_t m, n, k;
    const char *xp; /* prepared activations */
    size_t x_step;  /* bytes per prepared row */
    const char *wp;
    size_t w_step;
    bool stream; /* tiles read wp directly, not a decoded panel */
} gemm;

static inline gemm gemm_of(const wf_cpu_work *work)
{
    const wf_call *c = work->call;
    gemm g = {&c->in[WF_GEMM_X], &c->in[WF_GEMM_W], &c->in[WF_GEMM_BIAS], &c->in[WF_GEMM_RESIDUAL], &c->out[WF_GEMM_Y]};
    g.m = g.y->rows;
    g.n = g.y->cols;
    g.k = g.x->cols;
    g.wp = wf_cpu_at(g.w);
    g.w_step = (size_t)((char *)wf_cpu_row(g.w, 1) - g.wp);
    g.stream = true;
    return g;
}

/* Prefetches the next nr rows while the current tile is `done` bytes into each row and reads `bytes` of each: rows are
 * too short for the hardware prefetcher. near: into L1, for rows small enough not to evict the current tile. */
WF_INLINE void fetch_next(const char *w, size_t w_step, size_t done, size_t bytes, const int nr, const bool near)
{
    const char *next = w + nr * (w_step + done);
    for (size_t i = 0; i < nr * bytes; i += 64)
        if (near)
            __builtin_prefetch(next + i, 0, 3);
        else
            __builtin_prefetch(next + i, 0, 2);
}

static inline void store_output(const gemm *g, uint32_t m, uint32_t n, float v)
{
    if (wf_cpu_has(g->bias)) v += ((const float *)wf_cpu_at(g->bias))[n];
    wf_cpu_set(g->y, wf_cpu_row(g->y, m), n, v + wf_cpu_more(g->residual, m, n));
}

/* VL outputs, or as many as there are columns from n on. */
static inline void store_vector(const gemm *g, uint32_t m, uint32_t n, const float *sum)
{
    for (uint32_t i = 0; n + VL > g->n && n + i < g->n; i++) store_output(g, m, n + i, sum[i]);
    if (n + VL > g->n) return;
    vf v = v_load(sum);
    if (wf_cpu_has(g->bias)) v = v_add(v, v_load((const float *)wf_cpu_at(g->bias) + n));
    const bool half = g->y->dtype == WF_F16, more = wf_cpu_has(g->residual);
    if (more && half) v = v_add(v, v_load_f16((const uint16_t *)wf_cpu_row(g->residual, m) + n));
    if (more && !half) v = v_add(v, v_load((const float *)wf_cpu_row(g->residual, m) + n));
    if (half) v_store_f16((uint16_t *)wf_cpu_row(g->y, m) + n, v);
    else v_store((float *)wf_cpu_row(g->y, m) + n, v);
}

/* Weight rows that a thread takes at a time. */
static inline uint32_t chunk_of(const wf_cpu_work *work, const gemm *g)
{
    const uint32_t most = CHUNK_BYTES / (uint32_t)WF_MAX(g->w_step, 1u) / UNIT * UNIT;
    return wf_cpu_chunk(work, g->n, UNIT, WF_MAX(UNIT, most));
}

/* Prepares every activation row. Small inputs are prepared by each thread in its own scratch. */
static inline void prepare(const wf_cpu_work *work, gemm *g, size_t step,
                           void (*prep)(const gemm *, uint32_t m, void *dst))
{
    bool per_thread = (uint64_t)g->m * g->k <= SMALL_PREP;
    char *dst = per_thread ? work->per_thread : work->shared;
    uint32_t begin = 0, end = g->m;
    if (!per_thread) wf_cpu_part(work, g->m, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) prep(g, m, dst + m * step);
    if (!per_thread) wf_cpu_barrier(work);
    g->xp = dst;
    g->x_step = step;
}

static inline wf_cpu_scratch_size prep_scratch(const wf_call *c, size_t step)
{
    bool per_thread = (uint64_t)c->out[WF_GEMM_Y].rows * c->in[WF_GEMM_X].cols <= SMALL_PREP;
    size_t size = step * c->out[WF_GEMM_Y].rows;
    return per_thread ? (wf_cpu_scratch_size){.per_thread = size} : (wf_cpu_scratch_size){.shared = size};
}

/* An incomplete last panel of a row of W, from a copy padded with zeros. Not in the loop over panels, which it would
 * slow down. */
static __attribute__((noinline, unused)) const char *padded(const uint8_t dtype, const char *w, uint32_t k, char *copy,
                                                            size_t room)
{
    memset(copy, 0, room);
    return memcpy(copy, w, wf_dtype_bytes(dtype, k));
}

/* EACH_FORMAT(f) compiles f(g, format, begin, end) for each format of W, as functions of their own: in one, registers
 * are short. WITH_FORMAT calls that of g. */
#define FORMAT_FUNCTION(id, f)                                                                     \
    static __attribute__((noinline)) void f##_##id(const gemm *g, uint32_t begin, uint32_t end)    \
    {                                                                                              \
        f(g, WF_##id, begin, end);                                                                 \
    }
#define EACH_FORMAT(f) WF_CPU_INTEGER_FORMATS(FORMAT_FUNCTION, f)
#define IF_FORMAT(id, f, g, begin, end)                                                            \
    if ((g)->w->dtype == WF_##id) f##_##id(g, begin, end);
#define WITH_FORMAT(f, g, begin, end)                                                              \
    do {                                                                                           \
        WF_CPU_INTEGER_FORMATS(IF_FORMAT, f, g, begin, end)                                        \
    } while (0)

#endif
