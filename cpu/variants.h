/* variants: rank functions of the kernels in variants.def, and the description of the CPU. */
#ifndef WF_CPU_VARIANTS_H
#define WF_CPU_VARIANTS_H

#include "cpu/cpu.h"

/* 0: cannot run the call; the highest is selected. Ranks read shapes and dtypes, never memory. */
uint32_t wf_cpu_rank_ref(const wf_call *);
uint32_t wf_cpu_rank_router(const wf_call *); /* of scores: a fused one runs in pieces */
uint32_t wf_cpu_rank_gemm_blas(const wf_call *);
uint32_t wf_cpu_rank_gemm_rows_avx512(const wf_call *);
uint32_t wf_cpu_rank_gemm_amx(const wf_call *);
uint32_t wf_cpu_rank_gemm_amx_int8(const wf_call *);
uint32_t wf_cpu_rank_gemm_q8_0x16(const wf_call *);
uint32_t wf_cpu_rank_gemm_int8x16_few(const wf_call *);
uint32_t wf_cpu_rank_gemm_int8x16(const wf_call *);
uint32_t wf_cpu_rank_gemm_int16x16(const wf_call *);
uint32_t wf_cpu_rank_gemm_int16x8_few(const wf_call *);
uint32_t wf_cpu_rank_gemm_int16x8(const wf_call *);
#define WF_CPU_LEVEL(level)                                                                        \
    uint32_t wf_cpu_rank_##level(const wf_call *); /* any call, the higher the wider the vectors */ \
    uint32_t wf_cpu_rank_attention_async_##level(const wf_call *); /* one that has a range for it */ \
    uint32_t wf_cpu_rank_gemm_int8_##level(const wf_call *);                                       \
    uint32_t wf_cpu_rank_floats_##level(const wf_call *);                                        \
    uint32_t wf_cpu_rank_activate_##level(const wf_call *);
WF_CPU_LEVEL(c)
WF_CPU_LEVEL(avx2)
WF_CPU_LEVEL(avx512)
WF_CPU_LEVEL(neon)
WF_CPU_LEVEL(dotprod)
#undef WF_CPU_LEVEL

/* ops/grouped_gemm.c: a product with each token's experts by a kernel for GEMM. */
#define XG(id, ...)                                                                                \
    void wf_cpu_grouped_##id(const wf_cpu_work *);                                                 \
    wf_cpu_scratch_size wf_cpu_grouped_scratch_##id(const wf_call *);                              \
    uint32_t wf_cpu_rank_grouped_##id(const wf_call *);
#include "cpu/variants.def"

/* Fills tiers, features and driver of the device's description. */
void wf_cpu_describe(struct weft_device_info *);

#endif
