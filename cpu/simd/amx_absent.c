/* Stands in for AMX where the target or the compiler does not have it: its kernels are never run.
 */
#include "cpu/ops/ops.h"

bool wf_cpu_has_amx(void)
{
    return false;
}

void wf_cpu_gemm_amx8(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_need wf_cpu_gemm_amx8_need(const wf_call *c)
{
    (void)c;
    return (wf_cpu_need){0};
}

void wf_cpu_gemm_strips(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_need wf_cpu_gemm_strips_need(const wf_call *c)
{
    (void)c;
    return (wf_cpu_need){0};
}

void wf_cpu_gemm_amx(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_need wf_cpu_gemm_amx_need(const wf_call *c)
{
    (void)c;
    return (wf_cpu_need){0};
}
