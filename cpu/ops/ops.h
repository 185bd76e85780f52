/* ops: the fast kernels, compiled once per SIMD level: wf_cpu_<kernel>_<level> and its _scratch. A level that the build
 * or processor lacks never runs (wf_cpu_has_<level>). */
#ifndef WF_CPU_OPS_H
#define WF_CPU_OPS_H

#include "cpu/cpu.h"

#define WF_CPU_RUN(name, level)         void wf_cpu_##name##_##level(const wf_cpu_work *);
#define WF_CPU_RUN_SCRATCH(name, level)                                                                                \
    WF_CPU_RUN(name, level) wf_cpu_scratch_size wf_cpu_##name##_scratch_##level(const wf_call *);
#define WF_CPU_LEVELS(what, name)                                                                  \
    what(name, c) what(name, avx2) what(name, avx512) what(name, neon) what(name, dotprod)
#define RUN(name)         WF_CPU_LEVELS(WF_CPU_RUN, name)
#define RUN_SCRATCH(name) WF_CPU_LEVELS(WF_CPU_RUN_SCRATCH, name)
#include "cpu/ops/levels.def"
RUN_SCRATCH(gemm_int8) /* gemm_vnni.c, gemm_int16.c on AVX2, or gemm_int8.c */
RUN_SCRATCH(gemm_panels) /* on AVX-512 and AVX2 */
RUN(gemm_panels_int16) /* Q4_K and Q5_K on AVX-512 */
RUN(gemm_panels_few) /* on AVX-512 and AVX2 */
RUN(attention_async) /* attention.c */
RUN(probe_read)
RUN(probe_fma)
RUN(probe_int8)
#undef RUN
#undef RUN_SCRATCH

#define WF_CPU_LEVEL(level)                                                                        \
    bool wf_cpu_has_##level(void);                                                                 \
    void wf_cpu_decode_##level(uint8_t dtype, const void *src, float *dst, size_t n);              \
    uint32_t wf_cpu_probe_fma_ops_##level(void);                                                   \
    uint32_t wf_cpu_probe_int8_ops_##level(void);
WF_CPU_LEVEL(c)
WF_CPU_LEVEL(avx2)
WF_CPU_LEVEL(avx512)
WF_CPU_LEVEL(neon)
WF_CPU_LEVEL(dotprod)
#undef WF_CPU_LEVEL

/* Each format of weights that products of integers take (blocks.h): what(format, ...). */
#define WF_CPU_INTEGER_FORMATS(what, ...)                                                                              \
    what(Q8_0, __VA_ARGS__) what(Q4_0, __VA_ARGS__) what(Q4_1, __VA_ARGS__) what(Q5_0, __VA_ARGS__)                    \
        what(Q5_1, __VA_ARGS__) what(IQ4_NL, __VA_ARGS__) what(IQ4_XS, __VA_ARGS__) what(MXFP4, __VA_ARGS__)           \
            what(Q2_K, __VA_ARGS__) what(Q3_K, __VA_ARGS__) what(Q4_K, __VA_ARGS__) what(Q5_K, __VA_ARGS__)            \
                what(Q6_K, __VA_ARGS__) what(IQ2_XXS, __VA_ARGS__) what(IQ2_XS, __VA_ARGS__) what(IQ2_S, __VA_ARGS__)  \
                    what(IQ3_XXS, __VA_ARGS__) what(IQ3_S, __VA_ARGS__)

bool wf_cpu_has_amx(void);
void wf_cpu_gemm_q8_0x16(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_q8_0x16_scratch(const wf_call *);
void wf_cpu_gemm_amx_int8(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_amx_int8_scratch(const wf_call *);
void wf_cpu_gemm_amx(const wf_cpu_work *);
wf_cpu_scratch_size wf_cpu_gemm_amx_scratch(const wf_call *);

/* Decodes n weights of any dtype to F32 at the best available level. */
void wf_cpu_decode(uint8_t dtype, const void *src, float *dst, size_t n);

#endif
