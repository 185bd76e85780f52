/* ref: every op in plain loops with double accumulation. What all other kernels are compared with,
 * so it favours being obviously right over being fast; it only spreads rows or columns over the
 * team. */
#ifndef WF_CPU_REF_H
#define WF_CPU_REF_H

#include "cpu/cpu.h"

void wf_cpu_ref_get_rows(const wf_cpu_work *);
void wf_cpu_ref_rmsnorm(const wf_cpu_work *);
void wf_cpu_ref_gemm(const wf_cpu_work *);
void wf_cpu_ref_rope_kv(const wf_cpu_work *);
void wf_cpu_ref_attention(const wf_cpu_work *);
void wf_cpu_ref_silu_mul(const wf_cpu_work *);
void wf_cpu_ref_argmax(const wf_cpu_work *);
void wf_cpu_ref_page_copy(const wf_cpu_work *);
void wf_cpu_ref_token_subst(const wf_cpu_work *);
void wf_cpu_ref_sample(const wf_cpu_work *);

wf_cpu_scratch_size wf_cpu_ref_gemm_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_rope_kv_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_attention_scratch(const wf_call *);
wf_cpu_scratch_size wf_cpu_ref_sample_scratch(const wf_call *);

#endif
