/* blas: matrix products with many rows by OpenBLAS, or nothing when weft was built without it. */
#ifndef WF_CPU_BLAS_H
#define WF_CPU_BLAS_H

#include "cpu/cpu.h"

/* One thread a call, since the teams share the work out. Warns when the environment slows it down.
 */
void wf_blas_setup(void);
const char *wf_blas_core(void); /* the kernels that it picked, e.g. "Cooperlake"; NULL without it */
void wf_blas_gemm(const wf_cpu_work *);
wf_cpu_scratch_size wf_blas_scratch(const wf_call *);

#endif
