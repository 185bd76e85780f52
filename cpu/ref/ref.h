/* ref: every op in plain loops with double accumulation. All other kernels are compared with it, so it is written to be
 * obviously correct, not fast. Only rows or columns are distributed over the team. */
#ifndef WF_CPU_REF_H
#define WF_CPU_REF_H

#include "cpu/cpu.h"

/* cpu/ref/<op>.c */
#define X(id, name, ...) void wf_cpu_ref_##name(const wf_cpu_work *);
#include "dev/ops.def"
#undef X

double wf_cpu_ref_dot(const float *a, const float *b, uint32_t n);  /* gemm.c */
double wf_cpu_ref_activation(const wf_op_params *p, double x); /* activate.c */
wf_cpu_scratch_size wf_cpu_ref_get_rows_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_gemm_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_grouped_gemm_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_rope_kv_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_attention_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_sample_scratch(const wf_call *);

#endif
