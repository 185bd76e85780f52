/* ops: the fast kernels, each built once a level: wf_cpu_<kernel>_<level> and its _scratch. A level
 * that the build or the processor does not have is never run (wf_cpu_has_<level>). */
#ifndef WF_CPU_OPS_H
#define WF_CPU_OPS_H

#include "cpu/cpu.h"

#define WF_CPU_LEVEL(level)                                                                        \
    bool wf_cpu_has_##level(void);                                                                 \
    void wf_cpu_gemm_rows_##level(const wf_cpu_work *);                                            \
    wf_cpu_scratch_size wf_cpu_gemm_rows_scratch_##level(const wf_call *);                         \
    void wf_cpu_gemm_int8_##level(const wf_cpu_work *);                                            \
    wf_cpu_scratch_size wf_cpu_gemm_int8_scratch_##level(const wf_call *);                         \
    void wf_cpu_attention_##level(const wf_cpu_work *);                                            \
    wf_cpu_scratch_size wf_cpu_attention_scratch_##level(const wf_call *);                         \
    void wf_cpu_decode_##level(uint8_t dtype, const void *src, float *dst, size_t n);              \
    void wf_cpu_rmsnorm_##level(const wf_cpu_work *);                                              \
    void wf_cpu_silu_mul_##level(const wf_cpu_work *);                                             \
    void wf_cpu_probe_read_##level(const wf_cpu_work *);                                           \
    void wf_cpu_probe_fma_##level(const wf_cpu_work *);                                            \
    void wf_cpu_probe_int8_##level(const wf_cpu_work *);                                           \
    uint32_t wf_cpu_probe_fma_ops_##level(void);                                                   \
    uint32_t wf_cpu_probe_int8_ops_##level(void);                                                  \
    void wf_cpu_argmax_##level(const wf_cpu_work *);
WF_CPU_LEVEL(c)
WF_CPU_LEVEL(avx2)
WF_CPU_LEVEL(avx512)
WF_CPU_LEVEL(neon)
WF_CPU_LEVEL(dotprod)
#undef WF_CPU_LEVEL

bool wf_cpu_has_amx(void);
void wf_cpu_gemm_q8_0x16(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_q8_0x16_scratch(const wf_call *);
void wf_cpu_gemm_amx_int8(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_amx_int8_scratch(const wf_call *);
void wf_cpu_gemm_amx(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_amx_scratch(const wf_call *);

/* n weights of any dtype to F32, by the best level there is. */
void wf_cpu_decode(uint8_t dtype, const void *src, float *dst, size_t n);

#endif
