/* Weights in the order of the file as registers of 64 unsigned bytes, and their products with activations of two int8 (hi_lo.h): what the
 * kernels for few rows of X on AVX-512 VNNI share. */
#ifndef WF_CPU_OPS_VNNI_H
#define WF_CPU_OPS_VNNI_H

#include "cpu/ops/hi_lo.h"

/* Shifts the words of the 32 bytes at p, for each half of the register. */
WF_INLINE __m512i shift_left(const char *p, const int low, const int high)
{
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);
    return _mm512_sllv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)), by);
}

WF_INLINE __m512i shift_right(const char *p, const int low, const int high)
{
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);
    return _mm512_srlv_epi16(_mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)), by);
}

/* Low nibbles of q below those bits of `high` that `mask` has. */
WF_INLINE __m512i join(__m512i q, __m512i high, const int mask)
{
    return _mm512_ternarylogic_epi32(_mm512_and_si512(high, _mm512_set1_epi8((char)mask)), q, _mm512_set1_epi8(15), 0xf8); /* a | (q & 15) */
}

/* Half a superblock at p: nibbles q, and bits above them. */
WF_INLINE void row_q5_k(const char *p, const bool second, __m512i *w)
{
    const __m512i q = _mm512_loadu_si512(p + 48 + 64 * second);
    w[0] = join(q, second ? shift_right(p + 16, 0, 2) : shift_left(p + 16, 4, 2), 16);
    w[1] = join(_mm512_srli_epi16(q, 4), second ? shift_right(p + 16, 1, 3) : shift_left(p + 16, 3, 1), 16);
}

WF_INLINE void row_q6_k(const char *p, const uint32_t half, __m512i *w)
{
    const __m512i q = _mm512_loadu_si512(p + 64 * half);
    w[0] = join(q, shift_left(p + 128 + 32 * half, 4, 2), 48);
    w[1] = join(_mm512_srli_epi16(q, 4), shift_right(p + 128 + 32 * half, 0, 2), 48);
}

WF_INLINE void row_q4_0(const char *p, __m512i *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i q = _mm512_castsi128_si512(load16(p + 2));
    q = _mm512_inserti32x4(q, load16(p + 20), 1);
    q = _mm512_inserti32x4(q, load16(p + 38), 2);
    q = _mm512_inserti32x4(q, load16(p + 56), 3);
    w[0] = _mm512_and_si512(q, low);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
}

/* Unpacks group i of a span to unsigned bytes: it is at p; or it is a half of one of the superblocks there. */
WF_INLINE void unpack(const uint8_t dtype, const char *p, const uint32_t i, __m512i *w)
{
    if (dtype == WF_Q8_0) w[0] = _mm512_xor_si512(load_2x32(p + 2, p + 36), _mm512_set1_epi8(-128));
    if (dtype == WF_Q4_0) row_q4_0(p, w);
    if (dtype == WF_Q5_K) row_q5_k(p + i / 2 * 176, i % 2, w);
    if (dtype == WF_Q6_K) row_q6_k(p, i, w);
    if (dtype != WF_Q4_K) return;
    const __m512i q = _mm512_loadu_si512(p + i / 2 * 144 + 16 + i % 2 * 64);
    w[0] = _mm512_and_si512(q, _mm512_set1_epi8(15));
    w[1] = _mm512_andnot_si512(_mm512_set1_epi8(15), q);
}

/* Products of registers of weights with hi and lo: the sums of each four neighbours, of all registers. */
WF_INLINE __m512i dot_hi_lo(const __m512i *w, const __m512i *hi, const __m512i *lo, const uint32_t regs)
{
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t i = 0; i < regs; i++) sum = _mm512_dpbusd_epi32(sum, w[i], hi[i]);
    sum = _mm512_slli_epi32(sum, 8);
    for (uint32_t i = 0; i < regs; i++) sum = _mm512_dpbusd_epi32(sum, w[i], lo[i]);
    return sum;
}

#endif
