/* Synthetic loops that measure ceilings: memory reads, F32 multiply-adds, int8 dot products. in[0] is the memory to
 * read; in[1].rows is the number of rounds.
 */
#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

#define CHAINS 12 /* independent sums: latency 4 cycles, up to 3 per cycle */

/* Keeps the compiler from removing the computation. */
static void keep(const wf_cpu_work *w, float x)
{
    volatile float *out = w->per_thread;
    *out = x;
}

void WF_SIMD(wf_cpu_probe_read)(const wf_cpu_work *w)
{
    const wf_view *v = &w->call->in[0];
    const float *p = wf_cpu_at(v);
    uint32_t begin, end;
    vf sum[8];
    WF_UNROLL(8) for (int i = 0; i < 8; i++) sum[i] = v_zero();
    wf_cpu_part(w, v->cols, 8 * VL, &begin, &end);
    for (uint32_t k = begin; k + 8 * VL <= end; k += 8 * VL)
        WF_UNROLL(8) for (int i = 0; i < 8; i++) sum[i] = v_add(sum[i], v_load(p + k + i * VL));
    float all = 0;
    for (int i = 0; i < 8; i++) all += v_reduce_add(sum[i]);
    keep(w, all);
}

void WF_SIMD(wf_cpu_probe_fma)(const wf_cpu_work *w)
{
    vf c[CHAINS], a = v_set(0.999f), b = v_set(0.001f);
    WF_UNROLL(CHAINS) for (int i = 0; i < CHAINS; i++) c[i] = v_set((float)i);
    for (uint32_t r = 0; r < w->call->in[1].rows; r++)
        WF_UNROLL(CHAINS) for (int i = 0; i < CHAINS; i++) c[i] = v_fma(c[i], a, b);
    float all = 0;
    for (int i = 0; i < CHAINS; i++) all += v_reduce_add(c[i]);
    keep(w, all);
}

/* Operations per round; 0: this level has no such unit. */
uint32_t WF_SIMD(wf_cpu_probe_fma_ops)(void)
{
    return CHAINS * VL * 2;
}

#ifdef QI_BYTES
void WF_SIMD(wf_cpu_probe_int8)(const wf_cpu_work *w)
{
    qi c[CHAINS], a = qi_set(3), b = qi_set((int8_t)(1 + w->id));
    WF_UNROLL(CHAINS) for (int i = 0; i < CHAINS; i++) c[i] = qi_set(0);
    for (uint32_t r = 0; r < w->call->in[1].rows; r++)
        WF_UNROLL(CHAINS) for (int i = 0; i < CHAINS; i++)
            c[i] = qi_dot(c[i], a, b);
    float all = 0;
    for (int i = 0; i < CHAINS; i++) all += (float)qi_sum(c[i]);
    keep(w, all);
}

uint32_t WF_SIMD(wf_cpu_probe_int8_ops)(void)
{
    return CHAINS * QI_BYTES * 2;
}
#else
void WF_SIMD(wf_cpu_probe_int8)(const wf_cpu_work *w)
{
    (void)w;
}

uint32_t WF_SIMD(wf_cpu_probe_int8_ops)(void)
{
    return 0;
}
#endif
