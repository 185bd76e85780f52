/* Replaces a level that the target lacks: its kernels exist and never run. */
#include "cpu/ops/ops.h"

#define CAT_(a, b)  a##b
#define CAT(a, b)   CAT_(a, b)
#define LEVEL(name) CAT(name##_, WF_LEVEL)

#define RUN(name)                                                                                  \
    void LEVEL(wf_cpu_##name)(const wf_cpu_work *w)                                                \
    {                                                                                              \
        (void)w;                                                                                   \
    }
#define RUN_SCRATCH(name)                                                                          \
    RUN(name)                                                                                      \
    wf_cpu_scratch_size LEVEL(wf_cpu_##name##_scratch)(const wf_call *c)                           \
    {                                                                                              \
        (void)c;                                                                                   \
        return (wf_cpu_scratch_size){0};                                                           \
    }
#include "cpu/ops/levels.def"
RUN_SCRATCH(gemm_int8)
RUN_SCRATCH(gemm_panels)
RUN(gemm_panels_int16)
RUN(gemm_panels_few)
RUN(attention_async)
RUN(probe_read)
RUN(probe_fma)
RUN(probe_int8)

#define ABSENT_OPS(name)                                                                           \
    uint32_t LEVEL(name)(void)                                                                     \
    {                                                                                              \
        return 0;                                                                                  \
    }
ABSENT_OPS(wf_cpu_probe_fma_ops)
ABSENT_OPS(wf_cpu_probe_int8_ops)

void LEVEL(wf_cpu_decode)(uint8_t dtype, const void *src, float *dst, size_t n)
{
    wf_dtypes[dtype].decode(src, dst, n);
}
