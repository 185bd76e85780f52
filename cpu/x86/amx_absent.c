/* Replaces AMX if the target or compiler lacks it: its kernels never run. */
#include "cpu/ops/ops.h"

bool wf_cpu_has_amx(void)
{
    return false;
}

#define ABSENT(name)                                                                               \
    void wf_cpu_##name(const wf_cpu_work *w)                                                       \
    {                                                                                              \
        (void)w;                                                                                   \
    }                                                                                              \
    wf_cpu_scratch_size wf_cpu_##name##_scratch(const wf_call *c)                                  \
    {                                                                                              \
        (void)c;                                                                                   \
        return (wf_cpu_scratch_size){0};                                                           \
    }
ABSENT(gemm_amx)
ABSENT(gemm_amx_int8)
ABSENT(gemm_q8_0x16)
