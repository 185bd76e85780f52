/* 32 int8 in a 256-bit register, shared by both x86 levels, whose kernels multiply them in other ways than q_dot. */
#ifndef WF_CPU_X86_AVX_INT8_H
#define WF_CPU_X86_AVX_INT8_H

typedef __m256i q8;
typedef __m256 qf;

/* clang-format off: a table with one line per function, as far as they fit */
WF_INLINE q8 q_load(const void *p) { return _mm256_loadu_si256(p); }
WF_INLINE q8 q_nibbles(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
WF_INLINE q8 q_4k(const void *p, uint32_t i)
{
    __m256i q = _mm256_srli_epi16(q_load((const uint8_t *)p + 32 * (i / 2)), i & 1 ? 4 : 0);
    return _mm256_and_si256(q, _mm256_set1_epi8(15));
}
WF_INLINE q8 q_5k(const void *p, const void *high, uint32_t i)
{
    __m256i h = _mm256_and_si256(_mm256_srli_epi16(q_load(high), (int)i), _mm256_set1_epi8(1));
    return _mm256_or_si256(q_4k(p, i), _mm256_slli_epi16(h, 4));
}
WF_INLINE q8 q_6k(const void *p, uint32_t i)
{
    const uint8_t *ql = (const uint8_t *)p + 64 * (i / 4) + 32 * (i & 1);
    const uint8_t *qh = (const uint8_t *)p + 128 + 32 * (i / 4);
    __m256i low = _mm256_srli_epi16(q_load(ql), i & 2 ? 4 : 0);
    __m256i high = _mm256_srli_epi16(q_load(qh), 2 * (int)(i & 3));
    low = _mm256_and_si256(low, _mm256_set1_epi8(15));
    high = _mm256_and_si256(high, _mm256_set1_epi8(3));
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}
WF_INLINE q8 q_pick(q8 codes, const int8_t values[16])
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values)), codes);
}
/* Each of 32 bits in all of a byte. */
WF_INLINE __m256i q_spread(uint32_t bits)
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), byte), bit), bit);
}
WF_INLINE q8 q_fifth(q8 q, const void *p)
{
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm256_or_si256(q, _mm256_and_si256(q_spread(bits), _mm256_set1_epi8(16)));
}
/* Bytes of four levels each, four times, or of two, twice; what is wanted of them comes to the lowest bits. */
WF_INLINE q8 q_grid(const uint64_t levels[2], uint32_t minus, const bool eights, const int8_t values[16])
{
    const __m256i byte = _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606,
                                           0x07070707);
    const __m256i sign = q_spread(minus);
    __m256i q;
    if (eights) {
        q = _mm256_shuffle_epi8(_mm256_set1_epi64x((int64_t)levels[0]), byte);
        q = _mm256_and_si256(_mm256_blend_epi16(q, _mm256_srli_epi16(q, 4), 0xaa), _mm256_set1_epi16(0x0c03));
        q = _mm256_and_si256(_mm256_or_si256(q, _mm256_srli_epi16(q, 2)), _mm256_set1_epi8(3));
    } else {
        q = _mm256_cvtepu8_epi16(_mm_set_epi64x((int64_t)levels[1], (int64_t)levels[0]));
        q = _mm256_and_si256(_mm256_or_si256(q, _mm256_slli_epi16(q, 4)), _mm256_set1_epi8(7));
    }
    return _mm256_sub_epi8(_mm256_xor_si256(q_pick(q, values), sign), sign);
}
WF_INLINE q8 q_2k(const void *p, uint32_t i)
{
    __m256i q = _mm256_srli_epi16(q_load((const uint8_t *)p + 32 * (i / 4)), 2 * (int)(i % 4));
    return _mm256_and_si256(q, _mm256_set1_epi8(3));
}
WF_INLINE q8 q_3k(const void *p, const void *high, uint32_t i)
{
    __m256i h = _mm256_and_si256(_mm256_srli_epi16(q_load(high), (int)i), _mm256_set1_epi8(1));
    return _mm256_or_si256(q_2k(p, i), _mm256_slli_epi16(h, 2));
}
WF_INLINE qf qf_zero(void) { return _mm256_setzero_ps(); }
WF_INLINE qf qf_load(const float *p) { return _mm256_loadu_ps(p); }
WF_INLINE qf qf_set(float x) { return _mm256_set1_ps(x); }
WF_INLINE qf qf_half(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
WF_INLINE qf qf_pair(const float *p) { return _mm256_set_m128(_mm_broadcast_ss(p + 1), _mm_broadcast_ss(p)); }
WF_INLINE qf qf_mul(qf a, qf b) { return _mm256_mul_ps(a, b); }
WF_INLINE qf qf_fma(qf a, qf b, qf c) { return _mm256_fmadd_ps(a, b, c); }
WF_INLINE float qf_sum(qf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* (byte - bias) * scale; the first 16 by a, the others by b. */
WF_INLINE void q_expand(q8 w, int bias, qf a, qf b, float *dst)
{
    __m128i half[2] = {_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)};
    for (int i = 0; i < 4; i++) {
        __m128i bytes = i & 1 ? _mm_unpackhi_epi64(half[i / 2], half[i / 2]) : half[i / 2];
        __m256i x = _mm256_sub_epi32(_mm256_cvtepi8_epi32(bytes), _mm256_set1_epi32(bias));
        _mm256_storeu_ps(dst + 8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(x), i < 2 ? a : b));
    }
}
/* 16 int8 times d. */
WF_INLINE void q_scales(const void *p, qf d, float *out)
{
    __m128i b = _mm_loadu_si128(p);
    __m256i low = _mm256_cvtepi8_epi32(b), high = _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(b, b));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(low), d));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), d));
}

/* Of the kernels that are for x86 alone. */
WF_INLINE __m128i load16(const char *p) { return _mm_loadu_si128((const void *)p); }

/* The eight scales of 6 bits of the Q4_K or Q5_K superblock at p, then its eight minima: wf_k_scales_unpack() in a
 * register. */
WF_INLINE __m128i k_scale_bytes(const char *p)
{
    const __m128i four = _mm_set1_epi8(15), six = _mm_set1_epi8(63);
    __m128i words = load16(p + 4), first = _mm_shuffle_epi32(words, 0x50);
    __m128i low = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(words, 0xaa), _mm_set_epi32(4, 0, 0, 0)), four);
    __m128i high = _mm_and_si128(_mm_srli_epi16(first, 2), _mm_andnot_si128(four, six));
    return _mm_blend_epi32(_mm_and_si128(first, six), _mm_or_si128(low, high), 0xa);
}

/* The same of Q3_K's 16 scales, less 32; p: the superblock. */
WF_INLINE __m128i q3_k_scale_bytes(const char *p)
{
    const __m128i words = _mm_bsrli_si128(load16(p + 94), 2), shifts = _mm_set_epi32(6, 4, 2, 0);
    const __m128i low = _mm_unpacklo_epi64(words, _mm_srli_epi16(words, 4));
    const __m128i high = _mm_slli_epi16(
        _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(words, 0xaa), shifts), _mm_set1_epi8(3)), 4);
    return _mm_sub_epi8(_mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), high), _mm_set1_epi8(32));
}

/* The 16 scales of a superblock with one for each 16 weights; their minima, of Q2_K. */
WF_INLINE __m128i half_scale_bytes(const uint8_t dtype, const char *p)
{
    if (dtype == WF_Q2_K) return _mm_and_si128(load16(p), _mm_set1_epi8(15));
    return dtype == WF_Q3_K ? q3_k_scale_bytes(p)
                            : load16(p + (dtype == WF_Q6_K ? 192 : 256)); /* IQ2 and IQ3: of expanded() */
}

WF_INLINE __m128i q2_k_min_bytes(const char *p)
{
    return _mm_and_si128(_mm_srli_epi16(load16(p), 4), _mm_set1_epi8(15));
}

/* The eight scales of the IQ4_XS superblock at p. */
WF_INLINE __m256 iq4_xs_scales(const char *p)
{
    uint32_t word[2];
    memcpy(word, p, sizeof word);
    const __m256i g = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)word[1]), _mm256_slli_epi32(g, 1)),
                                   _mm256_set1_epi32(15));
    __m256i high = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)(word[0] >> 16)), g),
                                    _mm256_set1_epi32(3));
    __m256i scale = _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(scale), qf_half(p));
}

/* wf_mxfp4_scale() of words: the product of two powers of two, neither of which is subnormal. */
WF_INLINE __m256 mxfp4_scales(__m256i e)
{
    const __m256i bias = _mm256_set1_epi32(63), half = _mm256_srli_epi32(e, 1);
    const __m256i a = _mm256_add_epi32(half, bias), b = _mm256_add_epi32(_mm256_sub_epi32(e, half), bias);
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 23)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 23)));
}

#endif
