/* simd: the vector abstraction of the kernels, which are compiled once per level (WF_LEVEL: c, avx2, avx512, neon,
 * dotprod). The header of a level defines, for VL floats at a time:
 *
 *   vf                      VL floats              VREGS  how many vectors stay in registers
 *   v_zero v_set v_load v_store v_add v_sub v_mul v_div v_fma(a, b, c) = a b + c
 *   v_max(a, b)             b if either is NaN     v_round  to nearest even
 *   v_pow2i(n)              2^n for whole n in [-126, 127], 0 for -127
 *   v_reduce_add v_reduce_max   sum and maximum of all lanes, in a fixed order
 *   v_load_f16 v_load_bf16 v_store_f16
 *   v_load_i8 v_load_i16 v_store_i8   whole numbers; stored to the nearest even one, of at most 127
 *   v_transpose(p, step, out, out_step)  VL rows of VL floats, rows `step` floats apart
 *   v_transpose_f16(rows, at, out)  F16_ELEMS elements of VL rows, from the one at `at`: out[F16_ELEMS][VL]
 *
 * and for products of 32 int8 pairs in 8 lanes of 4 (order of sums fixed):
 *
 *   q8, qf                  32 bytes; 8 floats
 *   q_load(p)               32 bytes
 *   q_nibbles(p)            16 bytes as 32: low nibbles, then high ones
 *   q_4k(p, i)              block i of 8 of the nibbles of a Q4_K superblock
 *   q_5k(p, high, i)        the same with the fifth bits of a Q5_K one
 *   q_6k(p, i)              block i of 8 of a Q6_K superblock, unsigned 0..63
 *   Q6K_UNROLL              how many of them in one piece: 8 if constant shifts are the faster ones
 *   q_2k(p, i)              block i of 8 of the pairs of bits of a Q2_K superblock
 *   q_3k(p, high, i)        the same with the third bits of a Q3_K one
 *   q_fifth(q, p)           q with bit i of p as the fifth of number i
 *   q_pick(codes, values)   values[code] for each
 *   q_grid(levels, minus, eights, values)   values[level], negative where minus has the bit; levels of two bits each,
 *                           or of four (grid_groups.h)
 *   q_dot(w, x, comp)       w times x plus comp[lane]; not on x86, whose kernels multiply wider registers
 *   q_expand(w, bias, a, b, dst)  32 floats: (byte - bias) times a, from the 16th on times b
 *   q_scales(p, d, out)     16 int8 times d[0] as floats
 *   qf_zero qf_load(p) qf_half(p) (one f16 in all lanes) qf_set qf_pair(p) (p[0], p[1] in 4 lanes each) qf_mul
 *   qf_fma qf_sum
 *
 * and, if the level has int8 dot products, for measuring their ceiling:
 *
 *   qi                      QI_BYTES int8, or a quarter as many sums
 *   qi_set qi_dot(sum, a, b)  opaque to the compiler, or equal products become one
 *   qi_sum(a)               of the lanes >> 8: they may fill 32 bits
 */
#ifndef WF_CPU_SIMD_H
#define WF_CPU_SIMD_H

#include "cpu/cpu.h"

#define WF_CAT_(a, b) a##b
#define WF_CAT(a, b)  WF_CAT_(a, b)
#define WF_SIMD(name) WF_CAT(name##_, WF_LEVEL) /* wf_cpu_gemm -> wf_cpu_gemm_avx2 */
#define WF_PRAGMA(x)  _Pragma(#x)
#ifdef __SANITIZE_ADDRESS__ /* its instrumentation changes loops, and gcc then warns about the annotation */
#define WF_UNROLL(n)
#else
#define WF_UNROLL(n)  WF_PRAGMA(GCC unroll n)
#endif
#define WF_INLINE     static inline __attribute__((always_inline))

#define WF_LEVEL_IS_c       1
#define WF_LEVEL_IS_avx2    2
#define WF_LEVEL_IS_avx512  3
#define WF_LEVEL_IS_neon    4
#define WF_LEVEL_IS_dotprod 5
#define WF_LEVEL_ID         WF_CAT(WF_LEVEL_IS_, WF_LEVEL)

#if WF_LEVEL_ID == WF_LEVEL_IS_avx512
#include "cpu/x86/avx512.h"
#elif WF_LEVEL_ID == WF_LEVEL_IS_avx2
#include "cpu/x86/avx2.h"
#elif WF_LEVEL_ID == WF_LEVEL_IS_neon || WF_LEVEL_ID == WF_LEVEL_IS_dotprod
#include "cpu/arm/neon.h"
#else
#include "cpu/ops/plain.h"
#endif

/* The first n < VL floats at p, the rest zero. */
WF_INLINE vf v_load_n(const float *p, uint32_t n)
{
    float t[VL] = {0};
    for (uint32_t i = 0; i < n; i++) t[i] = p[i];
    return v_load(t);
}

/* 2^x to 1e-7; 0 below -126.5, NaN for NaN. x at most 127. */
WF_INLINE vf v_exp2(vf x)
{
    x = v_max(v_set(-127), x);
    vf n = v_round(x), f = v_sub(x, n);
    vf y = v_set(1.5353361e-4f);
    y = v_fma(y, f, v_set(1.3398875e-3f));
    y = v_fma(y, f, v_set(9.6184369e-3f));
    y = v_fma(y, f, v_set(5.5503324e-2f));
    y = v_fma(y, f, v_set(2.4022648e-1f));
    y = v_fma(y, f, v_set(6.9314718e-1f));
    y = v_fma(y, f, v_set(1));
    return v_mul(y, v_pow2i(n));
}

#endif
