/* Replaces blas.c in builds without OpenBLAS: the variant exists and never runs. */
#include "cpu/blas.h"

void wf_blas_setup(void) {}

const char *wf_blas_core(void)
{
    return NULL;
}

bool wf_blas_is_slow(void)
{
    return false;
}

const char *wf_blas_config(void)
{
    return "";
}

void wf_blas_gemm(const wf_cpu_work *w)
{
    (void)w;
}

wf_cpu_scratch_size wf_blas_scratch(const wf_call *c)
{
    (void)c;
    return (wf_cpu_scratch_size){0};
}
