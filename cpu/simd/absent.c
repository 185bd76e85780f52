/* Stands in for a level that the target does not have: its kernels exist and are never run. */
#include "cpu/ops/ops.h"

#define CAT_(a, b)  a##b
#define CAT(a, b)   CAT_(a, b)
#define LEVEL(name) CAT(name##_, WF_LEVEL)

#define ABSENT_RUN(name)                                                                           \
    void LEVEL(name)(const wf_cpu_work *w)                                                         \
    {                                                                                              \
        (void)w;                                                                                   \
    }
#define ABSENT_SCRATCH(name)                                                                       \
    wf_cpu_scratch_size LEVEL(name)(const wf_call *c)                                              \
    {                                                                                              \
        (void)c;                                                                                   \
        return (wf_cpu_scratch_size){0};                                                           \
    }
ABSENT_RUN(wf_cpu_gemm_rows)
ABSENT_SCRATCH(wf_cpu_gemm_rows_scratch)
ABSENT_RUN(wf_cpu_gemm_int8)
ABSENT_SCRATCH(wf_cpu_gemm_int8_scratch)
ABSENT_RUN(wf_cpu_attention)
ABSENT_SCRATCH(wf_cpu_attention_scratch)
ABSENT_RUN(wf_cpu_rmsnorm)
ABSENT_RUN(wf_cpu_silu_mul)
ABSENT_RUN(wf_cpu_probe_read)
ABSENT_RUN(wf_cpu_probe_fma)
ABSENT_RUN(wf_cpu_probe_int8)

#define ABSENT_OPS(name)                                                                           \
    uint32_t LEVEL(name)(void)                                                                     \
    {                                                                                              \
        return 0;                                                                                  \
    }
ABSENT_OPS(wf_cpu_probe_fma_ops)
ABSENT_OPS(wf_cpu_probe_int8_ops)
ABSENT_RUN(wf_cpu_argmax)

void LEVEL(wf_cpu_decode)(uint8_t dtype, const void *src, float *dst, size_t n)
{
    wf_dtypes[dtype].decode(src, dst, n);
}
