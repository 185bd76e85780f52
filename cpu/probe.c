/* Measures the ceilings of this processor with the device's threads: the best of a few runs of synthetic loops at the
 * highest SIMD level. */
#include <string.h>

#include "cpu/ops/ops.h"

#define RUNS    6        /* the fastest counts */
#define WORK_NS 20000000 /* target time of a run */

typedef struct level {
    wf_cpu_run_fn read, fma, int8;
    uint32_t (*fma_ops)(void), (*int8_ops)(void);
} level;

static level best_level(void)
{
#define LEVEL(l)                                                                                                       \
    ((level){wf_cpu_probe_read_##l, wf_cpu_probe_fma_##l, wf_cpu_probe_int8_##l, wf_cpu_probe_fma_ops_##l,             \
             wf_cpu_probe_int8_ops_##l})
    return wf_cpu_has_avx512()    ? LEVEL(avx512)
           : wf_cpu_has_avx2()    ? LEVEL(avx2)
           : wf_cpu_has_dotprod() ? LEVEL(dotprod)
           : wf_cpu_has_neon()    ? LEVEL(neon)
                                  : LEVEL(c);
#undef LEVEL
}

static weft_status time_run(wf_cpu_team *t, wf_cpu_run_fn run, const wf_call *c, double *seconds)
{
    uint64_t start = wf_now_ns();
    WF_TRY(wf_cpu_team_run(t, run, c, wf_cpu_team_size(t), (wf_cpu_scratch_size){.per_thread = 64}));
    *seconds = (double)(wf_now_ns() - start) * 1e-9;
    return WEFT_OK;
}

static weft_status time_fastest(wf_cpu_team *t, wf_cpu_run_fn run, const wf_call *c, double *seconds)
{
    *seconds = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double s;
        WF_TRY(time_run(t, run, c, &s));
        *seconds = WF_MIN(*seconds, s);
    }
    return WEFT_OK;
}

static weft_status measure_read(wf_dev *dev, wf_cpu_team *t, wf_cpu_run_fn run, wf_ceilings *out)
{
    wf_buf *buf;
    wf_call c = {0};
    double seconds = 1;
    uint64_t bytes = WF_MIN(WF_MIN(wf_cache_flush_bytes(dev), dev->max_alloc), 4ull << 30);
    WF_TRY(dev->fns->buf_create(dev, bytes, &buf));
    for (uint64_t i = 0; i < bytes / 4; i++) ((float *)buf->host)[i] = (float)(i & 1023);
    c.in[0] = (wf_view){.buf = buf, .rows = 1, .cols = (uint32_t)(bytes / 4), .dtype = WF_F32};
    weft_status s = time_fastest(t, run, &c, &seconds);
    out->read = (double)bytes / seconds;
    dev->fns->buf_destroy(dev, buf);
    return s;
}

static weft_status measure_ops(wf_cpu_team *t, wf_cpu_run_fn run, double ops, double *out)
{
    wf_call c = {.in[1].rows = 1u << 16};
    double seconds = 0;
    if (ops == 0) return WEFT_OK;
    for (; seconds * 1e9 < WORK_NS / 2 && c.in[1].rows < 1u << 30; c.in[1].rows *= 2) {
        WF_TRY(time_run(t, run, &c, &seconds));
    }
    WF_TRY(time_fastest(t, run, &c, &seconds));
    *out = ops * c.in[1].rows * wf_cpu_team_size(t) / seconds;
    return WEFT_OK;
}

weft_status wf_cpu_measure(wf_dev *dev, wf_ceilings *out)
{
    wf_cpu_team *t;
    level l = best_level();
    memset(out, 0, sizeof *out);
    WF_TRY(wf_cpu_team_of((wf_cpu_dev *)dev, &t));
    weft_status s = measure_read(dev, t, l.read, out);
    if (!s) s = measure_ops(t, l.fma, l.fma_ops(), &out->ops[WF_ARITH_F32]);
    if (!s) s = measure_ops(t, l.int8, l.int8_ops(), &out->ops[WF_ARITH_Q8]);
    wf_cpu_team_destroy(t);
    return s;
}
