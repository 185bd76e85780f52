/* Replaces AMX if the target or compiler lacks it: its kernels never run.
 */
#include "cpu/ops/ops.h"

bool wf_cpu_has_amx(void)
{
    return false;
}

void wf_cpu_gemm_amx_int8(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_scratch_size wf_cpu_gemm_amx_int8_scratch(const wf_call *c)
{
    (void)c;
    return (wf_cpu_scratch_size){0};
}

void wf_cpu_gemm_q8_0x16(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_scratch_size wf_cpu_gemm_q8_0x16_scratch(const wf_call *c)
{
    (void)c;
    return (wf_cpu_scratch_size){0};
}

void wf_cpu_gemm_amx(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_scratch_size wf_cpu_gemm_amx_scratch(const wf_call *c)
{
    (void)c;
    return (wf_cpu_scratch_size){0};
}
