/* ref: every op in plain loops with double accumulation. What all other kernels are compared with,
 * so it favours being obviously right over being fast; it only spreads rows or columns over the
 * team. */
#ifndef WF_CPU_REF_H
#define WF_CPU_REF_H

#include "cpu/cpu.h"

/* cpu/ref/<op>.c */
#define X(id, name, ...) void wf_cpu_ref_##name(const wf_cpu_work *);
#include "dev/ops.def"
#undef X

wf_cpu_scratch_size wf_cpu_ref_gemm_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_rope_kv_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_attention_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_sample_scratch(const wf_call *);

#endif
