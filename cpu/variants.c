/* Ranks of all kernels: decides which one is selected when. */
#include <stdio.h>
#include <string.h>

#include "cpu/blas.h"
#include "cpu/ops/ops.h"
#include "cpu/variants.h"

/* Number of activation rows from which OpenBLAS on decoded panels is faster. */
#define BLAS_ROWS 128u
/* Number of activation rows from which AMX is faster than vectors, with bf16 and with int8. */
#define AMX_ROWS  6u
#define AMX_INT8_ROWS 5u
/* Number of activation rows from which unpacking and transposing panels of W pays on AVX-512 and on AVX2. */
#define INT8X16_ROWS 5u
#define INT16X8_ROWS 9u
/* The same beside int16x8-few. */
#define INT16X8_MANY 6u
/* The same of panels of Q4_K and Q5_K in words on AVX-512, which have twice the bytes. */
#define INT16X16_ROWS 64u
/* Number of activation rows below which int8 products are used: they are bound by memory or twice as fast there. With
 * more rows F32 is as fast and exact. Plain C, for which a compiler finds no such instructions, takes 2 to 6 times as
 * long as F32 for any number. */
#define INT8_ROWS 16u

enum {
    RANK_REF = 1,
    RANK_BLAS_FEW = 2,
    RANK_AMX_FEW = 2,
    RANK_INT8_FEW = 2,
    RANK_INT8_MANY = 3,
    RANK_C = 10,
    RANK_AVX2 = 20,
    RANK_AVX512 = 30,
    RANK_NEON = 20,
    RANK_DOTPROD = 30,
    RANK_INT8 = 100,
    RANK_BLAS = 200,
    RANK_ROWS = 210,
    RANK_PANELS = 250,
    RANK_AMX = 300
};

uint32_t wf_cpu_rank_ref(const wf_call *c)
{
    (void)c;
    return RANK_REF;
}

uint32_t wf_cpu_rank_router(const wf_call *c)
{
    return wf_is_fused(c) ? 0 : RANK_REF;
}

uint32_t wf_cpu_rank_gemm_blas(const wf_call *c)
{
    if (!wf_blas_core()) return 0;
    return c->out[WF_GEMM_Y].rows >= BLAS_ROWS && !wf_blas_is_slow() ? RANK_BLAS : RANK_BLAS_FEW;
}

/* F16 and BF16 are converted in registers, while OpenBLAS has them decoded to F32 and then packed, with X once more for
 * each panel: a tenth to a third slower on processors with AVX-512 alone. Those with AMX, whose vectors multiply twice
 * as much in the same time, keep it. */
uint32_t wf_cpu_rank_gemm_rows_avx512(const wf_call *c)
{
    const uint8_t t = c->in[WF_GEMM_W].dtype;
    if (!wf_cpu_has_avx512()) return 0;
    return (t == WF_F16 || t == WF_BF16) && !wf_cpu_has_amx() ? RANK_ROWS : RANK_AVX512;
}

uint32_t wf_cpu_rank_gemm_amx(const wf_call *c)
{
    uint8_t t = c->in[WF_GEMM_W].dtype;
    if (!wf_cpu_has_amx() || (t != WF_F32 && t != WF_BF16)) return 0;
    return c->out[WF_GEMM_Y].rows >= AMX_ROWS ? RANK_AMX : RANK_AMX_FEW;
}

static bool quantised(const wf_call *c)
{
#define IS_FORMAT(id, type) || type == WF_##id
    return false WF_CPU_INTEGER_FORMATS(IS_FORMAT, c->in[WF_GEMM_W].dtype);
#undef IS_FORMAT
}

uint32_t wf_cpu_rank_gemm_amx_int8(const wf_call *c)
{
    if (!wf_cpu_has_amx() || (c->in[WF_GEMM_W].dtype != WF_F16 && !quantised(c))) return 0;
    return c->out[WF_GEMM_Y].rows >= AMX_INT8_ROWS ? RANK_AMX : RANK_AMX_FEW;
}

/* Of panels of W, unpacked and transposed. */
static uint32_t rank_panels(const wf_call *c, uint32_t from, uint32_t rank)
{
    if (!quantised(c)) return 0;
    return c->out[WF_GEMM_Y].rows >= from ? RANK_PANELS + rank : RANK_INT8_MANY;
}

uint32_t wf_cpu_rank_gemm_int8x16(const wf_call *c)
{
    return wf_cpu_has_avx512() ? rank_panels(c, INT8X16_ROWS, RANK_AVX512) : 0;
}

/* Of its class the best for few rows; else as fast as int8-avx512 or a little slower. */
uint32_t wf_cpu_rank_gemm_int8x16_few(const wf_call *c)
{
    if (!wf_cpu_has_avx512() || !quantised(c)) return 0;
    return c->out[WF_GEMM_Y].rows < INT8X16_ROWS ? RANK_INT8 : RANK_INT8_FEW;
}

uint32_t wf_cpu_rank_gemm_int16x16(const wf_call *c)
{
    const uint8_t t = c->in[WF_GEMM_W].dtype;
    return wf_cpu_has_avx512() && (t == WF_Q4_K || t == WF_Q5_K) ? rank_panels(c, INT16X16_ROWS, RANK_AVX512 + 1) : 0;
}

uint32_t wf_cpu_rank_gemm_int16x8(const wf_call *c)
{
    return wf_cpu_has_avx2() ? rank_panels(c, INT16X8_ROWS, RANK_AVX2) : 0;
}

/* Of its class the best for few rows; else as fast as int8-avx2 or slower. */
uint32_t wf_cpu_rank_gemm_int16x8_few(const wf_call *c)
{
    if (!wf_cpu_has_avx2() || !quantised(c)) return 0;
    return c->out[WF_GEMM_Y].rows < INT16X8_MANY ? RANK_INT8 : RANK_INT8_FEW;
}

uint32_t wf_cpu_rank_gemm_q8_0x16(const wf_call *c)
{
    if (!wf_cpu_has_amx()) return 0;
    return c->out[WF_GEMM_Y].rows < AMX_INT8_ROWS ? RANK_INT8 : RANK_INT8_MANY;
}

static bool floats(const wf_call *c)
{
    return c->in[0].dtype == WF_F32 && c->out[0].dtype == WF_F32;
}

/* Asynchronous softmax, above or below the synchronous attention of its level. It pays where several rows share the
 * keys (median of 11 alternating runs on two cores, others on them: prompts of 512 and 1024 tokens 1.04 to 1.06 on
 * AVX-512, 1.04 on AVX2; quartiles 0.92 to 1.14), not in decoding (0.96 to 1.01). */
static uint32_t rank_async(const wf_call *c, uint32_t sync)
{
    if (!(c->p.phi_lo < c->p.phi_hi)) return 0;
    return c->p.max_q > 1 ? sync + 1 : sync - 1;
}

#define WF_CPU_LEVEL(level, rank)                                                                  \
    uint32_t wf_cpu_rank_##level(const wf_call *c)                                                 \
    {                                                                                              \
        (void)c;                                                                                   \
        return wf_cpu_has_##level() ? rank : 0;                                                    \
    }                                                                                              \
    uint32_t wf_cpu_rank_attention_async_##level(const wf_call *c)                                 \
    {                                                                                              \
        return wf_cpu_has_##level() ? rank_async(c, rank) : 0;                                     \
    }                                                                                              \
    uint32_t wf_cpu_rank_gemm_int8_##level(const wf_call *c)                                       \
    {                                                                                              \
        if (!wf_cpu_has_##level() || !quantised(c)) return 0;                                      \
        return rank > RANK_C && c->out[WF_GEMM_Y].rows < INT8_ROWS ? RANK_INT8 + rank : RANK_INT8_MANY; \
    }                                                                                              \
    uint32_t wf_cpu_rank_activate_##level(const wf_call *c)                                        \
    {                                                                                              \
        return wf_cpu_has_##level() && floats(c) && c->p.activation != WF_SOFTCAP ? rank : 0;      \
    }                                                                                              \
    uint32_t wf_cpu_rank_floats_##level(const wf_call *c)                                        \
    {                                                                                              \
        return wf_cpu_has_##level() && floats(c) ? rank : 0;                                       \
    }
WF_CPU_LEVEL(c, RANK_C)
WF_CPU_LEVEL(avx2, RANK_AVX2)
WF_CPU_LEVEL(avx512, RANK_AVX512)
WF_CPU_LEVEL(neon, RANK_NEON)
WF_CPU_LEVEL(dotprod, RANK_DOTPROD)
#undef WF_CPU_LEVEL

void wf_cpu_describe(struct weft_device_info *info)
{
    bool simd = wf_cpu_has_avx2() || wf_cpu_has_avx512() || wf_cpu_has_neon();
    const char *core = wf_blas_core();
    const char *tiers = wf_cpu_has_amx() ? "base simd matrix" : simd ? "base simd" : "base";
    wf_copy(info->tiers, sizeof(info->tiers), tiers);
    snprintf(info->features, sizeof(info->features), "%s%s%s%s%s%s%s",
             wf_cpu_has_avx2() ? "avx2 fma f16c " : "", wf_cpu_has_avx512() ? "avx512 vnni " : "",
             wf_cpu_has_amx() ? "amx " : "", wf_cpu_has_neon() ? "neon " : "",
             wf_cpu_has_dotprod() ? "dotprod " : "", core ? "OpenBLAS " : "", core ? core : "");
    size_t n = strlen(info->features);
    if (n && info->features[n - 1] == ' ') info->features[n - 1] = '\0';
    if (core) snprintf(info->driver, sizeof(info->driver), "OpenBLAS %s", core);
}
