/* AMX's tiles in AVX-512, for processors without them: included before the AMX kernels. Every tile has 16 rows of 64
 * bytes, as these kernels configure them. */
#ifndef WEFT_TESTS_AMX_TILES_H
#define WEFT_TESTS_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static _Thread_local struct {
    _Alignas(64) char row[16][64];
} amx_tile[8];

static inline __m512i tile_row(int t, int row)
{
    return _mm512_load_si512(amx_tile[t].row[row]);
}

/* Four bytes, or two BF16, of a row in all columns. */
static inline __m512i tile_word(int t, int row, int k)
{
    int32_t word;
    memcpy(&word, amx_tile[t].row[row] + 4 * k, 4);
    return _mm512_set1_epi32(word);
}

static inline void tile_load(int t, const char *from, size_t step)
{
    for (int i = 0; i < 16; i++) memcpy(amx_tile[t].row[i], from + (size_t)i * step, 64);
}

static inline void tile_store(int t, char *to, size_t step)
{
    for (int i = 0; i < 16; i++) memcpy(to + (size_t)i * step, amx_tile[t].row[i], 64);
}

/* Bytes of b are signed, and those of a where `flip` is -128: AVX-512 multiplies unsigned by signed ones. */
static inline void tile_dot(int sum, int a, int b, char flip)
{
    const __m512i flips = _mm512_set1_epi8(flip);
    for (int i = 0; i < 16; i++) {
        __m512i s = tile_row(sum, i);
        for (int k = 0; k < 16; k++) {
            s = _mm512_dpbusd_epi32(s, _mm512_xor_si512(tile_word(a, i, k), flips), tile_row(b, k));
            s = _mm512_sub_epi32(s, _mm512_dpbusd_epi32(_mm512_setzero_si512(), flips, tile_row(b, k)));
        }
        _mm512_store_si512(amx_tile[sum].row[i], s);
    }
}

static inline void tile_dot_bf16(int sum, int a, int b)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    for (int i = 0; i < 16; i++) {
        __m512 s = _mm512_castsi512_ps(tile_row(sum, i));
        for (int k = 0; k < 16; k++) {
            __m512i x = tile_word(a, i, k), y = tile_row(b, k);
            s = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), s);
            s = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                                _mm512_castsi512_ps(_mm512_and_si512(y, high)), s);
        }
        _mm512_store_si512(amx_tile[sum].row[i], _mm512_castps_si512(s));
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbusd
#undef _tile_dpbf16ps
#undef _tile_zero
#undef _tile_loadconfig
#undef _tile_release
#define _tile_loadd(t, from, step)   tile_load(t, (const char *)(from), step)
#define _tile_stored(t, to, step)    tile_store(t, (char *)(to), step)
#define _tile_dpbssd(sum, a, b)      tile_dot(sum, a, b, -128)
#define _tile_dpbusd(sum, a, b)      tile_dot(sum, a, b, 0)
#define _tile_dpbf16ps(sum, a, b)    tile_dot_bf16(sum, a, b)
#define _tile_zero(t)                memset(&amx_tile[t], 0, sizeof amx_tile[t])
#define _tile_loadconfig(config)     (void)(config)
#define _tile_release()              (void)0

#endif
