/* blas: GEMM with OpenBLAS; empty if weft was built without it. */
#ifndef WF_CPU_BLAS_H
#define WF_CPU_BLAS_H

#include "cpu/cpu.h"

/* Limits OpenBLAS to one thread, because teams distribute the work, and leaves it alone where the address space is
 * limited. Warns if the environment slows it down. */
void wf_blas_setup(void);
const char *wf_blas_core(void); /* OpenBLAS's kernel set, e.g. "Cooperlake"; NULL where it is not used */
bool wf_blas_is_slow(void); /* it has an older processor's kernels: weft's own products are faster */
const char *wf_blas_config(void); /* its version and how it was built; "" without OpenBLAS */
void wf_blas_gemm(const wf_cpu_work *);
wf_cpu_scratch_size wf_blas_scratch(const wf_call *);

#endif
