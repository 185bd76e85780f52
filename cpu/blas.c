/* GEMM with OpenBLAS for many activation rows. Each thread processes blocks of output columns: it decodes a panel of NC
 * weight rows by KC to F32 in its own scratch (F32 weights are used in place) and adds its product with a
 * single-threaded cblas_sgemm. Panel boundaries are fixed, so results do not depend on the number of threads.
 */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "cpu/blas.h"
#include "cpu/ops/ops.h"

#define NC 128u /* weight rows of a panel */
#define KC 2048u /* columns of a panel, a multiple of all block sizes: 1 MiB, about an L2 cache */

static bool usable;

const char *wf_blas_core(void)
{
    wf_blas_setup();
    return usable ? openblas_get_corename() : NULL;
}

const char *wf_blas_config(void)
{
    return openblas_get_config();
}

/* Kernels of processors that lack what this one has: those of AVX2, and older ones. */
static bool is_for_older(const char *core)
{
#if defined(__x86_64__)
    static const char *const avx2[] = {"Haswell", "Zen"}, *const older[] = {"Sandybridge", "Nehalem", "Prescott",
                                                                            "Core2"};
    for (size_t i = 0; i < WF_LEN(avx2); i++)
        if (!strcasecmp(core, avx2[i])) return wf_cpu_has_avx512();
    for (size_t i = 0; i < WF_LEN(older); i++)
        if (!strcasecmp(core, older[i])) return wf_cpu_has_avx2();
#endif
    (void)core;
    return false;
}

bool wf_blas_is_slow(void)
{
    const char *core = wf_blas_core();
    return core && is_for_older(core);
}

static void set_up_blas(void)
{
    const char *set = getenv("OPENBLAS_CORETYPE"), *core = openblas_get_corename();
    struct rlimit space;
    openblas_set_num_threads(1);
    /* OpenBLAS maps 128 MiB for each thread that calls it at once. Where the address space has no room for them it
     * tries again, for ever. */
    usable = getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY;
    /* It reads OPENBLAS_CORETYPE when it is loaded; a wrong value can halve its speed. Releases that are older than the
     * processor may not know it, and take kernels that any one can run: 0.3.21 those of Prescott on some Xeons. */
    if (!usable)
        wf_log(WEFT_LOG_INFO,
               "the address space is limited (ulimit -v): weft's own matrix products take the place of OpenBLAS, "
               "which would wait for memory without an end");
    else if (is_for_older(core) && set && *set)
        wf_log(WEFT_LOG_WARN, "OPENBLAS_CORETYPE=%s makes OpenBLAS use %s kernels on a newer processor; unset it", set,
               core);
    else if (is_for_older(core))
        wf_log(WEFT_LOG_INFO,
               "OpenBLAS does not know this processor and has %s kernels for it: weft's own matrix products take its "
               "place",
               core);
}

void wf_blas_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up_blas);
}

static bool copies_x(const wf_call *c)
{
    return c->in[WF_GEMM_X].dtype != WF_F32;
}

static bool copies_y(const wf_call *c)
{
    return c->out[WF_GEMM_Y].dtype != WF_F32;
}

static size_t y_floats(const wf_call *c)
{
    return copies_y(c) ? (size_t)c->out[WF_GEMM_Y].rows * NC : 0;
}

wf_cpu_scratch_size wf_blas_scratch(const wf_call *c)
{
    wf_cpu_scratch_size size = {.per_thread = (y_floats(c) + (size_t)NC * KC) * sizeof(float)};
    if (copies_x(c)) size.shared = (size_t)c->out[WF_GEMM_Y].rows * c->in[WF_GEMM_X].cols * sizeof(float);
    return size;
}

/* Adds x times weight rows begin..end to the same columns of y (step floats per row). */
static void multiply_columns(const wf_call *c, const float *x, size_t x_step, uint32_t begin, uint32_t end,
                  float *y, size_t step, float *panel)
{
    const wf_view *w = &c->in[WF_GEMM_W];
    const wf_dtype_info *t = &wf_dtypes[w->dtype];
    for (uint32_t k = 0; k < w->cols; k += KC) {
        uint32_t kn = WF_MIN(KC, w->cols - k);
        const float *b = panel;
        size_t b_step = kn;
        if (w->dtype == WF_F32) {
            b = (const float *)wf_cpu_row(w, begin) + k;
            b_step = w->stride;
        } else {
            for (uint32_t n = begin; n < end; n++)
                wf_cpu_decode(w->dtype, (const char *)wf_cpu_row(w, n) + (size_t)k / t->block * t->block_bytes,
                              panel + (size_t)(n - begin) * kn, kn);
        }
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)c->out[WF_GEMM_Y].rows,
                    (int)(end - begin), (int)kn, 1, x + k, (int)x_step, b, (int)b_step, 1, y,
                    (int)step);
    }
}

void wf_blas_gemm(const wf_cpu_work *work)
{
    const wf_call *c = work->call;
    const wf_view *xv = &c->in[WF_GEMM_X], *yv = &c->out[WF_GEMM_Y];
    const float *x = wf_cpu_at(xv), *bias = wf_cpu_has(&c->in[WF_GEMM_BIAS]) ? wf_cpu_at(&c->in[WF_GEMM_BIAS]) : NULL;
    size_t x_step = xv->stride, step = copies_y(c) ? NC : yv->stride;
    float *panel = (float *)work->per_thread + y_floats(c);
    uint32_t begin, end;

    if (copies_x(c)) {
        wf_cpu_part(work, xv->rows, 1, &begin, &end);
        for (uint32_t m = begin; m < end; m++)
            wf_cpu_decode(xv->dtype, wf_cpu_row(xv, m), (float *)work->shared + (size_t)m * xv->cols, xv->cols);
        wf_cpu_barrier(work);
        x = work->shared;
        x_step = xv->cols;
    }
    while (wf_cpu_next(work, yv->cols, NC, &begin, &end)) {
        float *y = copies_y(c) ? work->per_thread : (float *)wf_cpu_at(yv) + begin;
        for (uint32_t m = 0; m < yv->rows; m++)
            for (uint32_t n = begin; n < end; n++)
                y[m * step + n - begin] = (bias ? bias[n] : 0) + wf_cpu_more(&c->in[WF_GEMM_RESIDUAL], m, n);
        multiply_columns(c, x, x_step, begin, end, y, step, panel);
        for (uint32_t m = 0; copies_y(c) && m < yv->rows; m++)
            for (uint32_t n = begin; n < end; n++)
                wf_cpu_set(yv, wf_cpu_row(yv, m), n, y[m * step + n - begin]);
    }
}
