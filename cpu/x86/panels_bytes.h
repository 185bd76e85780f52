/* What gemm_panels.c needs of AVX-512 VNNI: weights as unsigned bytes, a line has 4 k of each of 16 rows; activations
 * as two int8 (hi_lo.h), of which the instruction broadcasts 4 k. Sums of a group of k that shares a scale of W are
 * exact in int32.
 *
 * Or as words (`words`), multiplied by the scales of their groups while they are unpacked, as activations are words: a
 * row's sums are added as floats, without a multiplication that would take turns with the products. int32 holds 16 k of
 * Q6_K, 32 * 128 by 32512, and 32 k of Q4_K and Q5_K, 31 * 63 by 32512. Formats in halves, which would multiply a sum
 * for each 16 products, always have words; Q4_K and Q5_K have them where there are enough rows of X to pay for twice
 * the bytes (int16x16). */
#ifndef WF_CPU_X86_PANELS_BYTES_H
#define WF_CPU_X86_PANELS_BYTES_H

#include "cpu/x86/hi_lo.h"

/* A row of X by 256 k. */
typedef struct x_panel {
    union {
        _Alignas(64) struct {
            int8_t hi[PANEL], lo[PANEL];
        };
        int16_t words[PANEL]; /* of each four k the even ones, then the odd ones */
    };
    _Alignas(64) int32_t comp[16]; /* of each group: compensation for the offset of W */
    float minus_sum[16]; /* or what its minimum is multiplied with */
    float scale;
} x_panel;

/* 16 rows of W by 256 k. As words, lines have 2 k, and all groups one scale. */
typedef struct w_panel {
    float scale[8][VL], min[16][VL]; /* [group][row] */
    char line[PANEL / 2][64];
} w_panel;

#define SIX_ROWS true /* of X, in a tile of words */

#define STRIPS_AT_ONCE(words) ((words) ? PAIR : STRIPS) /* whose panels fit in the first cache together */

WF_INLINE uint32_t groups_of(const uint8_t dtype)
{
    return in_halves(dtype) ? 16 : 8;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* The sums of 16 k each, of those of four k each. */
WF_INLINE __m512i sums_of_16(const __m512i four[4])
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i v[4];
    transpose_4x4(four, v);
    return _mm512_permutexvar_epi32(order,
                                    _mm512_add_epi32(_mm512_add_epi32(v[0], v[1]), _mm512_add_epi32(v[2], v[3])));
}

/* four: the sums of each four k. */
WF_INLINE void set_sums(const uint8_t dtype, const __m512i four[4], x_panel *out)
{
    const __m512i even = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i all = sums_of_16(four);
    if (groups_of(dtype) == 8) {
        const __m512i odd = _mm512_permutexvar_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(1)), all);
        all = _mm512_add_epi32(_mm512_permutexvar_epi32(even, all), odd);
    }
    all = _mm512_sub_epi32(_mm512_setzero_si512(), all);
    _mm512_store_si512(out->comp, _mm512_mullo_epi32(all, _mm512_set1_epi32(unsigned_offset_of(dtype))));
    _mm512_storeu_ps(out->minus_sum, _mm512_cvtepi32_ps(all));
}

/* Rounds the panel at x to words, with the sums where there are minima. */
WF_INLINE void round_to_words(const uint8_t dtype, const float *x, __m512 factor, x_panel *out)
{
    const __m512i ones = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i pairs[8], sum[4];
    WF_UNROLL(8)
    for (uint32_t i = 0; i < 8; i++) {
        const __m512i words = to_int16(x + 32 * i, factor);
        const __m512i low = _mm512_shufflelo_epi16(words, _MM_SHUFFLE(3, 1, 2, 0));
        _mm512_storeu_si512(out->words + 32 * i, _mm512_shufflehi_epi16(low, _MM_SHUFFLE(3, 1, 2, 0)));
        pairs[i] = _mm512_dpwssd_epi32(zero, ones, words);
    }
    if (!has_mins(dtype)) return;
    for (uint32_t i = 0; i < 4; i++) {
        const __m512i a = pairs[2 * i], b = pairs[2 * i + 1], odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        sum[i] = _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
    }
    set_sums(dtype, sum, out);
}

/* The same to bytes, with the sums. */
WF_INLINE void round_to_bytes(const uint8_t dtype, const float *x, __m512 factor, x_panel *out)
{
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i sum[4];
    WF_UNROLL(4)
    for (uint32_t i = 0; i < PANEL; i += 64) {
        __m512i hi, lo;
        split_hi_lo(to_int16(x + i, factor), to_int16(x + i + 32, factor), &hi, &lo);
        _mm512_storeu_si512(out->hi + i, hi);
        _mm512_storeu_si512(out->lo + i, lo);
        sum[i / 64] = _mm512_dpbusd_epi32(_mm512_slli_epi32(_mm512_dpbusd_epi32(zero, ones, hi), 8), ones, lo);
    }
    set_sums(dtype, sum, out);
}

/* Rounds the panel at x. */
WF_INLINE void round_floats(const uint8_t dtype, const bool words, const float *x, x_panel *out)
{
    __m512i top = _mm512_setzero_si512();
    for (uint32_t i = 0; i < PANEL; i += 16) top = max_abs(top, _mm512_loadu_ps(x + i));
    const float most = max_of(top);
    const __m512 factor = _mm512_set1_ps(most > 0 ? 127 * 256 / most : 0);
    if (words)
        round_to_words(dtype, x, factor, out);
    else
        round_to_bytes(dtype, x, factor, out);
    out->scale = most / (127 * 256);
}

/* Rounds a panel of n elements of a row of X; pads with zeros. */
static void round_panel(const wf_view *view, const uint8_t dtype, const bool words, uint32_t m, uint32_t p, uint32_t n,
                        x_panel *out)
{
    const wf_dtype_info *in = &wf_dtypes[view->dtype];
    const char *from = (const char *)wf_cpu_row(view, m) + (size_t)p * PANEL * in->block_bytes;
    float x[PANEL];
    if (view->dtype == WF_F32 && n == PANEL) {
        round_floats(dtype, words, (const float *)from, out);
        return;
    }
    memset(x, 0, sizeof x);
    in->decode(from, x, n);
    round_floats(dtype, words, x, out);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* 16 bytes of each row, from `at` on, as four registers of 4 bytes of each row. */
WF_INLINE void lines_of(const char *const w[VL], const size_t at, __m512i line[4])
{
    __m512i r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_castsi128_si512(load16(w[i] + at));
        r[i] = _mm512_inserti32x4(r[i], load16(w[i + 4] + at), 1);
        r[i] = _mm512_inserti32x4(r[i], load16(w[i + 8] + at), 2);
        r[i] = _mm512_inserti32x4(r[i], load16(w[i + 12] + at), 3);
    }
    transpose_4x4(r, line);
}

/* Byte i of each lane, as a float. */
WF_INLINE __m512 byte_of(__m512i lanes, const int i, const bool is_signed)
{
    const __m512i top = _mm512_slli_epi32(lanes, (unsigned)(24 - 8 * i));
    return _mm512_cvtepi32_ps(is_signed ? _mm512_srai_epi32(top, 24) : _mm512_srli_epi32(top, 24));
}

WF_INLINE __m512 halves(__m512i lanes)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

/* A word of each of eight blocks from w[r] + at on, blocks 2 i and 2 i + 1 in pair[i]: they are 9 or 17 words apart,
 * say. */
WF_INLINE void word_pairs(const uint8_t dtype, const char *const w[VL], const uint32_t at, __m512i pair[4])
{
    const uint32_t bytes = bytes_of(dtype);
    __m512i r[4];
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = _mm512_setzero_si512();
        for (uint32_t q = 0; q < 4; q++)
            for (uint32_t b = 0; b < 8; b += block_step(bytes))
                r[i] = block_words(r[i], 8 * q + b, bytes, w[i + 4 * q] + at + b * bytes);
    }
    transpose_4x4(r, pair);
}

/* The scales of eight blocks, and their minima. In MXFP4 a scale is a byte, of odd blocks the word's upper one. */
WF_INLINE void block_scales(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    __m512i pair[4];
    word_pairs(dtype, w, 0, pair);
    for (uint32_t i = 0; i < 4; i++) {
        const __m512i second = _mm512_srli_epi32(pair[i], 16);
        v_store(out->scale[2 * i], dtype == WF_MXFP4
                                       ? mxfp4_scales_16(_mm512_and_si512(pair[i], _mm512_set1_epi32(255)))
                                       : halves(pair[i]));
        v_store(out->scale[2 * i + 1],
                dtype == WF_MXFP4 ? mxfp4_scales_16(_mm512_srli_epi32(second, 8)) : halves(second));
    }
    if (!has_mins(dtype)) return;
    word_pairs(dtype, w, 2, pair);
    for (uint32_t i = 0; i < 4; i++) {
        v_store(out->min[2 * i], v_sub(v_zero(), halves(pair[i]))); /* added */
        v_store(out->min[2 * i + 1], v_sub(v_zero(), halves(_mm512_srli_epi32(pair[i], 16))));
    }
}

WF_INLINE void iq4_xs_panel_scales(const char *const w[VL], w_panel *out)
{
    __m512i v[4];
    lines_of(w, 0, v);
    const __m512 d = halves(v[0]);
    for (uint32_t g = 0; g < 8; g++) v_store(out->scale[g], v_mul(iq4_xs_steps(v[0], v[1], g), d));
}

/* Byte i of each lane, in both halves as a word. */
WF_INLINE __m512i byte_twice(__m512i lanes, const int i)
{
    const __m512i low = _mm512_and_si512(_mm512_srli_epi32(lanes, (unsigned)(8 * i)), _mm512_set1_epi32(255));
    return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}

/* Of superblocks with minima: d and dmin, then 12 bytes as wf_k_scales_unpack() takes them. part: what words are
 * multiplied with. */
WF_INLINE void k_panel_scales(const bool words, const char *const w[VL], __m512i part[8], w_panel *out)
{
    const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(48);
    __m512i v[4];
    lines_of(w, 0, v);
    const __m512 d = halves(v[0]), min = halves(_mm512_srli_epi32(v[0], 16));
    const __m512i of[4] = {
        _mm512_and_si512(v[1], six),
        _mm512_or_si512(_mm512_and_si512(v[3], four), _mm512_and_si512(_mm512_srli_epi32(v[1], 2), two)),
        _mm512_and_si512(v[2], six),
        _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(v[3], 4), four),
                        _mm512_and_si512(_mm512_srli_epi32(v[2], 2), two))};
    if (words) v_store(out->scale[0], d);
    for (int i = 0; i < 8; i++) {
        if (words)
            part[i] = byte_twice(of[i / 4], i % 4);
        else
            v_store(out->scale[i], v_mul(byte_of(of[i / 4], i % 4, false), d));
        v_store(out->min[i], v_mul(byte_of(of[2 + i / 4], i % 4, false), min));
    }
}

/* The minima of 16 groups of each row, above their scales. */
WF_INLINE void q2_k_panel_mins(const char *const w[VL], w_panel *out)
{
    const __m512 d = halves_of(w, 82);
    __m512i v[4];
    lines_of(w, 0, v);
    for (int i = 0; i < 16; i++)
        v_store(
            out->min[i],
            v_mul(byte_of(_mm512_and_si512(_mm512_srli_epi32(v[i / 4], 4), _mm512_set1_epi8(15)), i % 4, false), d));
}

/* The scales of 16 groups of each row, in both halves of a word; d is all groups' one. */
WF_INLINE void half_panel_scales(const uint8_t dtype, const char *const w[VL], __m512i part[16], w_panel *out)
{
    __m512i v[4];
    char scale[VL][16];
    const char *at[VL];
    for (uint32_t r = 0; r < VL; r++) {
        _mm_storeu_si128((__m128i *)scale[r], half_scale_bytes(dtype, w[r]));
        at[r] = scale[r];
    }
    v_store(out->scale[0], half_units(dtype, w));
    if (dtype == WF_Q2_K) q2_k_panel_mins(w, out);
    lines_of(at, 0, v);
    for (int i = 0; i < 16; i++) {
        const __m512i top = _mm512_slli_epi32(v[i / 4], (unsigned)(24 - 8 * (i % 4)));
        part[i] = _mm512_mask_srai_epi16(_mm512_srai_epi32(top, 24), 0xaaaaaaaa, top, 8);
    }
}

/* The low nibbles of v below the bits of `more`. */
WF_INLINE __m512i nibbles(__m512i more, __m512i v)
{
    return _mm512_ternarylogic_epi32(more, v, _mm512_set1_epi8(15), 0xf8); /* more | (v & 15) */
}

/* The bits of each byte from `from` on, moved to bit 4 and what `mask` leaves of them there. */
WF_INLINE __m512i above_nibble(__m512i v, const int from, const int mask)
{
    v = from < 4 ? _mm512_slli_epi32(v, (unsigned)(4 - from)) : _mm512_srli_epi32(v, (unsigned)(from - 4));
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

WF_INLINE void unpack_q8_0(const char *const w[VL], w_panel *out)
{
    WF_UNROLL(16)
    for (uint32_t c = 0; c < 16; c++) {
        __m512i v[4];
        lines_of(w, c / 2 * 34 + 2 + c % 2 * 16, v);
        for (uint32_t i = 0; i < 4; i++)
            _mm512_storeu_si512(out->line[4 * c + i], _mm512_xor_si512(v[i], _mm512_set1_epi8(-128)));
    }
}

/* The fifth bits of weights 4 i to 4 i + 3 of each row's 32. */
WF_INLINE __m512i fifth_bits(__m512i bits, const uint32_t i)
{
    const __m512i spread = _mm512_set_epi32(0x10101010, 0x10101000, 0x10100010, 0x10100000, 0x10001010, 0x10001000,
                                            0x10000010, 0x10000000, 0x00101010, 0x00101000, 0x00100010, 0x00100000,
                                            0x00001010, 0x00001000, 0x00000010, 0);
    return _mm512_permutexvar_epi32(_mm512_srli_epi32(bits, 4 * i), spread);
}

/* What low nibbles stand for; more: bits above them. */
WF_INLINE __m512i numbers(const uint8_t dtype, __m512i more, __m512i v)
{
    return values_of(dtype) ? _mm512_shuffle_epi8(unsigned_values(dtype), nibbles(more, v)) : nibbles(more, v);
}

/* Of formats whose low nibbles are the first half of a block. */
WF_INLINE void unpack_nibbles(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    const bool fifth = has_fifth(dtype);
    const __m512i none = _mm512_setzero_si512();
    WF_UNROLL(8)
    for (uint32_t b = 0; b < 8; b++) {
        __m512i v[4], bits[4];
        lines_of(w, (size_t)(nibbles_at(dtype, w[0], b) - w[0]), v);
        if (fifth) lines_of(w, (size_t)(fifth_at(dtype, w[0], b) - w[0]), bits);
        for (uint32_t i = 0; i < 4; i++) {
            _mm512_storeu_si512(out->line[8 * b + i], numbers(dtype, fifth ? fifth_bits(bits[0], i) : none, v[i]));
            _mm512_storeu_si512(out->line[8 * b + 4 + i],
                                numbers(dtype, fifth ? fifth_bits(bits[0], i + 4) : none, _mm512_srli_epi32(v[i], 4)));
        }
    }
}

/* Four k of each row, less an offset and times their group's scales: two lines. */
WF_INLINE void store_words(__m512i v, __m512i part, const int16_t less, char *out)
{
    const __m512i offset = _mm512_set1_epi16(less);
    const __m512i even = _mm512_and_si512(v, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(v, 8);
    _mm512_storeu_si512(out, _mm512_mullo_epi16(_mm512_sub_epi16(even, offset), part));
    _mm512_storeu_si512(out + 64, _mm512_mullo_epi16(_mm512_sub_epi16(odd, offset), part));
}

WF_INLINE void unpack_q6_k(const char *const w[VL], w_panel *out)
{
    __m512i part[16];
    half_panel_scales(WF_Q6_K, w, part, out);
    for (uint32_t h = 0; h < 2; h++) {
        __m512i high[8];
        for (uint32_t i = 0; i < 8; i += 4) lines_of(w, 128 + 32 * h + 4 * i, high + i);
        WF_UNROLL(4)
        for (uint32_t c = 0; c < 4; c++) {
            const int from = (int)(c / 2) * 2;
            __m512i v[4];
            lines_of(w, 64 * h + 16 * c, v);
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t at = c % 2 * 4 + i, line = 32 * h + c / 2 * 8 + at; /* of four k */
                const __m512i below = nibbles(above_nibble(high[at], from, 48), v[i]);
                const __m512i above = nibbles(above_nibble(high[at], from + 4, 48), _mm512_srli_epi32(v[i], 4));
                store_words(below, part[line / 4], 32, out->line[2 * line]);
                store_words(above, part[line / 4 + 4], 32, out->line[2 * line + 32]);
            }
        }
    }
}

/* Four k of Q3_K or Q2_K: pairs of bits from `from` on, and bit `above` of `high` on top. */
WF_INLINE __m512i pairs(const uint8_t dtype, __m512i v, const uint32_t from, __m512i high, const uint32_t above)
{
    v = _mm512_and_si512(_mm512_srli_epi32(v, from), _mm512_set1_epi8(3));
    if (dtype != WF_Q3_K) return v;
    high = above < 2 ? _mm512_slli_epi32(high, 2 - above) : _mm512_srli_epi32(high, above - 2);
    return _mm512_ternarylogic_epi32(high, _mm512_set1_epi8(4), v, 0xea); /* (high & 4) | v */
}

WF_INLINE void unpack_pairs(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    __m512i part[16], high[8] = {_mm512_setzero_si512()};
    half_panel_scales(dtype, w, part, out);
    for (uint32_t i = 0; i < 8 && dtype == WF_Q3_K; i += 4) lines_of(w, 4 * i, high + i);
    WF_UNROLL(4)
    for (uint32_t c = 0; c < 4; c++) { /* 16 bytes */
        const uint32_t half = c / 2;
        __m512i v[4];
        lines_of(w, (dtype == WF_Q3_K ? 32 : 16) + 16 * c, v);
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t r = 0; r < 4; r++) {
                const uint32_t at = c % 2 * 4 + i, line = 32 * half + 8 * r + at; /* of four k */
                store_words(pairs(dtype, v[i], 2 * r, high[at], 4 * half + r), part[line / 4],
                            (int16_t)offset_of(dtype), out->line[2 * line]);
            }
    }
}

WF_INLINE void unpack_grid(const uint8_t dtype, const char *const w[VL], w_panel *out)
{
    const char *row[VL];
    char room[VL][EXPANDED];
    __m512i part[16];
    for (uint32_t r = 0; r < VL; r++) row[r] = expanded(dtype, w[r], room[r]);
    half_panel_scales(dtype, row, part, out);
    WF_UNROLL(4)
    for (uint32_t g = 0; g < 16; g++) {
        __m512i v[4];
        lines_of(row, 16 * g, v);
        for (uint32_t i = 0; i < 4; i++)
            store_words(_mm512_xor_si512(v[i], _mm512_set1_epi8(-128)), part[g], 128, out->line[2 * (4 * g + i)]);
    }
}

/* Four k of group b: a line of bytes, or two of words times the group's scales. */
WF_INLINE void store_k(const bool words, __m512i v, const __m512i *part, const uint32_t b, const uint32_t at,
                       w_panel *out)
{
    if (words) store_words(v, part[b], 0, out->line[2 * (8 * b + at)]);
    else _mm512_storeu_si512(out->line[8 * b + at], v);
}

WF_INLINE void unpack_k(const uint8_t dtype, const bool words, const char *const w[VL], w_panel *out)
{
    __m512i high[8], part[8];
    k_panel_scales(words, w, part, out);
    for (uint32_t i = 0; i < 8 && dtype == WF_Q5_K; i += 4) lines_of(w, 16 + 4 * i, high + i);
    WF_UNROLL(8)
    for (uint32_t c = 0; c < 8; c++) {
        const uint32_t b = c / 2 * 2;
        __m512i v[4];
        lines_of(w, (dtype == WF_Q5_K ? 48 : 16) + 16 * c, v);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = c % 2 * 4 + i;
            const __m512i low = dtype == WF_Q5_K ? above_nibble(high[at], (int)b, 16) : _mm512_setzero_si512();
            const __m512i top = dtype == WF_Q5_K ? above_nibble(high[at], (int)b + 1, 16) : low;
            store_k(words, nibbles(low, v[i]), part, b, at, out);
            store_k(words, nibbles(top, _mm512_srli_epi32(v[i], 4)), part, b + 1, at, out);
        }
    }
}

/* Unpacks 16 rows. */
WF_INLINE void unpack_rows(const uint8_t dtype, const bool words, const char *const w[VL], w_panel *out)
{
    if (has_k_scales(dtype)) unpack_k(dtype, words, w, out);
    if (dtype == WF_Q6_K) unpack_q6_k(w, out);
    if (dtype == WF_Q2_K || dtype == WF_Q3_K) unpack_pairs(dtype, w, out);
    if (is_grid(dtype)) unpack_grid(dtype, w, out);
    if (in_halves(dtype) || has_k_scales(dtype)) return;
    if (dtype == WF_IQ4_XS)
        iq4_xs_panel_scales(w, out);
    else
        block_scales(dtype, w, out);
    if (dtype == WF_Q8_0)
        unpack_q8_0(w, out);
    else
        unpack_nibbles(dtype, w, out);
}

/* ---- products -------------------------------------------------------------------------------- */

/* As an instruction whose sum stays where it is: gcc 12 copies it before and after, which the front end has no room
 * for. */
WF_INLINE __m512i add_words(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* Adds the products of group i, as words: their sum needs no multiplication, which would take turns with the products.
 */
WF_INLINE void group_of_words(const uint8_t dtype, const w_panel *w, const x_panel *x, const uint32_t i, const int mr,
                              sums *acc)
{
    const uint32_t lines = PANEL / 2 / groups_of(dtype);
    __m512i sum[PAIR][MROW];
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) sum[s][m] = _mm512_setzero_si512();
    WF_UNROLL(16)
    for (uint32_t at = lines * i; at < lines * (i + 1); at++) {
        const __m512i q[PAIR] = {_mm512_loadu_si512(w[0].line[at]), _mm512_loadu_si512(w[1].line[at])};
        WF_UNROLL(MROW)
        for (int m = 0; m < mr; m++) {
            const __m512i both = four_bytes(x[m].words + 2 * at);
            for (int s = 0; s < PAIR; s++) sum[s][m] = add_words(sum[s][m], q[s], both);
        }
    }
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) {
            acc->of[s][m] = v_add(acc->of[s][m], _mm512_cvtepi32_ps(sum[s][m]));
            if (has_mins(dtype))
                acc->min[s][m] = _mm512_fmadd_ps(_mm512_loadu_ps(w[s].min[i]), _mm512_set1_ps(x[m].minus_sum[i]),
                                                 acc->min[s][m]);
        }
}

/* The same as bytes. */
WF_INLINE void group_of_bytes(const uint8_t dtype, const w_panel *w, const x_panel *x, const uint32_t i, const int mr,
                              sums *acc)
{
    const uint32_t lines = PANEL / 4 / groups_of(dtype);
    __m512i hi[PAIR][MROW], lo[PAIR][MROW];
    for (int m = 0; m < mr; m++)
        for (int s = 0; s < PAIR; s++) {
            hi[s][m] = _mm512_setzero_si512();
            lo[s][m] = unsigned_offset_of(dtype) ? _mm512_set1_epi32(x[m].comp[i]) : hi[s][m];
        }
    WF_UNROLL(8)
    for (uint32_t l = 0; l < lines; l++) {
        const uint32_t at = i * lines + l;
        const __m512i q[PAIR] = {_mm512_loadu_si512(w[0].line[at]), _mm512_loadu_si512(w[1].line[at])};
        WF_UNROLL(MROW)
        for (int m = 0; m < mr; m++) {
            const __m512i high = four_bytes(x[m].hi + 4 * at), low = four_bytes(x[m].lo + 4 * at);
            for (int s = 0; s < PAIR; s++) {
                hi[s][m] = _mm512_dpbusd_epi32(hi[s][m], q[s], high);
                lo[s][m] = _mm512_dpbusd_epi32(lo[s][m], q[s], low);
            }
        }
    }
    for (int s = 0; s < PAIR; s++)
        for (int m = 0; m < mr; m++) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[s][m], 8), lo[s][m])),
                   *to = &acc->of[s][m];
            *to = _mm512_fmadd_ps(sum, _mm512_loadu_ps(w[s].scale[i]), *to);
            if (has_mins(dtype))
                *to = _mm512_fmadd_ps(_mm512_loadu_ps(w[s].min[i]), _mm512_set1_ps(x[m].minus_sum[i]), *to);
        }
}

WF_INLINE void add_panel_group(const uint8_t dtype, const bool words, const w_panel *w, const x_panel *x,
                               const uint32_t i, const int mr, sums *acc)
{
    if (words) group_of_words(dtype, w, x, i, mr, acc);
    else group_of_bytes(dtype, w, x, i, mr, acc);
}

/* A sum of all groups, with the scale that they share. */
WF_INLINE vf scaled(const uint8_t dtype, const bool words, const w_panel *w, vf sum, vf min)
{
    if (words && has_mins(dtype)) return v_fma(sum, v_load(w->scale[0]), min);
    return words ? v_mul(sum, v_load(w->scale[0])) : sum;
}

#endif
