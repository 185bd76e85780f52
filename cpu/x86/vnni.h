/* Weights in the order of the file as registers of 64 unsigned bytes, and their products with activations of two int8
 * (hi_lo.h): what the kernels for few rows of X on AVX-512 VNNI share. */
#ifndef WF_CPU_X86_VNNI_H
#define WF_CPU_X86_VNNI_H

#include "cpu/x86/hi_lo.h"

/* Low nibbles are the first half of a block. */
WF_INLINE bool has_low_first(const uint8_t dtype)
{
    return dtype != WF_Q8_0 && !in_halves(dtype) && !has_k_scales(dtype);
}

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
    return _mm512_ternarylogic_epi32(_mm512_and_si512(high, _mm512_set1_epi8((char)mask)), q, _mm512_set1_epi8(15),
                                     0xf8); /* a | (q & 15) */
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

/* Half a superblock of Q3_K or Q2_K: pairs of bits q, and bits above them. */
WF_INLINE void row_pairs(const uint8_t dtype, const char *p, const uint32_t half, __m512i *w)
{
    const __m512i mask = _mm512_set1_epi8(3);
    const char *q = p + (dtype == WF_Q3_K ? 32 : 16) + 32 * half;
    w[0] = _mm512_and_si512(shift_right(q, 0, 2), mask);
    w[1] = _mm512_and_si512(shift_right(q, 4, 6), mask);
    if (dtype != WF_Q3_K) return;
    const __m512i third = _mm512_set1_epi8(4);
    w[0] = _mm512_ternarylogic_epi32(half ? shift_right(p, 2, 3) : shift_left(p, 2, 1), third, w[0],
                                     0xea); /* (a & b) | c */
    w[1] = _mm512_ternarylogic_epi32(half ? shift_right(p, 4, 5) : shift_right(p, 0, 1), third, w[1], 0xea);
}

/* 16 bytes of each of four blocks. */
WF_INLINE __m512i four_quarters(const char *a, const char *b, const char *c, const char *d)
{
    __m512i v = _mm512_inserti32x4(_mm512_castsi128_si512(load16(a)), load16(b), 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(v, load16(c), 2), load16(d), 3);
}

/* Adds the fifth bits, which are in the first four bytes of each quarter: two for its first half, which w[0] has, two
 * for the other. */
WF_INLINE void add_fifth(__m512i bits, __m512i *w)
{
    const __m512i fifth = _mm512_set1_epi8(16), bit = _mm512_set1_epi64((int64_t)0x8040201008040201);
    const __m512i first = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0, 0x01010101, 0x01010101)),
                  second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
    w[0] = _mm512_mask_add_epi8(w[0], _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, first), bit), w[0], fifth);
    w[1] = _mm512_mask_add_epi8(w[1], _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, second), bit), w[1], fifth);
}

/* Four blocks from p on; of IQ4_XS a half of the superblock at p. */
WF_INLINE void row_nibbles(const uint8_t dtype, const char *p, const uint32_t half, __m512i *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    const uint32_t b = 4 * half;
    const __m512i q = four_quarters(nibbles_at(dtype, p, b), nibbles_at(dtype, p, b + 1), nibbles_at(dtype, p, b + 2),
                                    nibbles_at(dtype, p, b + 3));
    w[0] = _mm512_and_si512(q, low);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
    if (has_fifth(dtype))
        add_fifth(
            four_quarters(fifth_at(dtype, p, 0), fifth_at(dtype, p, 1), fifth_at(dtype, p, 2), fifth_at(dtype, p, 3)),
            w);
    for (int i = 0; i < 2 && values_of(dtype); i++) w[i] = _mm512_shuffle_epi8(unsigned_values(dtype), w[i]);
}

/* Unpacks group i of a span to unsigned bytes: it is at p; or it is a half of one of the superblocks there. */
WF_INLINE void unpack(const uint8_t dtype, const char *p, const uint32_t i, __m512i *w)
{
    const char *super = p + i / 2 * bytes_of(dtype);
    if (dtype == WF_Q8_0) w[0] = _mm512_xor_si512(load_2x32(p + 2, p + 36), _mm512_set1_epi8(-128));
    if (has_low_first(dtype)) row_nibbles(dtype, in_supers(dtype) ? super : p, in_supers(dtype) ? i % 2 : 0, w);
    if (dtype == WF_Q5_K) row_q5_k(super, i % 2, w);
    if (dtype == WF_Q6_K) row_q6_k(p, i, w);
    if (dtype == WF_Q2_K || dtype == WF_Q3_K) row_pairs(dtype, p, i, w);
    for (uint32_t k = 0; k < 2 && is_grid(dtype); k++)
        w[k] = _mm512_xor_si512(load_2x32(p + 128 * i + 64 * k, p + 128 * i + 64 * k + 32),
                                _mm512_set1_epi8(-128)); /* as stored */
    if (dtype != WF_Q4_K) return;
    const __m512i q = _mm512_loadu_si512(super + 16 + i % 2 * 64);
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
