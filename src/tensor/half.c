/* half: 16-bit floats to and from float, by their bits, so that every machine gives the same result. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Binary16: sign, 5 bits of exponent (bias 15), 10 of fraction. */
float wf_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 1023;
    if (exp == 31) return of_bits(sign | 0x7F800000 | frac << 13);
    if (exp) return of_bits(sign | (exp + 112) << 23 | frac << 13);
    float f = (float)frac * 0x1p-24f; /* subnormal: exact in float */
    return sign ? -f : f;
}

uint16_t wf_float_to_half(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, mag = u & 0x7FFFFFFF;
    if (mag > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (mag >> 13 & 1023)); /* NaN stays one */
    if (mag >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* 65520 and up round to infinity */
    if (mag >= 0x38800000) { /* normal: a carry out of the fraction is the right next exponent */
        uint32_t odd = mag >> 13 & 1;
        return (uint16_t)(sign | ((mag - 0x38000000 + 0xFFF + odd) >> 13));
    }
    /* Subnormal: adding 0.5 leaves the multiple of 2^-24, rounded to even, in the lowest bits. */
    return (uint16_t)(sign | (bits_of(of_bits(mag) + 0.5f) - bits_of(0.5f)));
}

float wf_bf16_to_float(uint16_t h)
{
    return of_bits((uint32_t)h << 16);
}

uint16_t wf_float_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

int wf_round_clamp(float x, int lo, int hi)
{
    if (!(x > (float)lo)) return lo;
    return x >= (float)hi ? hi : (int)rintf(x);
}

void wf_decode_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

void wf_encode_f32(const float *src, void *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *src);
}

static uint16_t load16(const void *src, size_t i)
{
    uint16_t h;
    memcpy(&h, (const uint8_t *)src + 2 * i, 2);
    return h;
}

static void store16(void *dst, size_t i, uint16_t h)
{
    memcpy((uint8_t *)dst + 2 * i, &h, 2);
}

/* Eight are loaded at a time: the thread sanitizer looks at each copy of an address that it does not know to be even.
 */
void wf_decode_f16(const void *src, float *dst, size_t n)
{
    enum { EIGHT = 8 };
    size_t i = 0;
    for (; i + EIGHT <= n; i += EIGHT) {
        uint16_t h[EIGHT];
        memcpy(h, (const uint8_t *)src + 2 * i, sizeof h);
        for (int j = 0; j < EIGHT; j++) dst[i + (size_t)j] = wf_half_to_float(h[j]);
    }
    for (; i < n; i++) dst[i] = wf_half_to_float(load16(src, i));
}

void wf_encode_f16(const float *src, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) store16(dst, i, wf_float_to_half(src[i]));
}

void wf_decode_bf16(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = wf_bf16_to_float(load16(src, i));
}

void wf_encode_bf16(const float *src, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) store16(dst, i, wf_float_to_bf16(src[i]));
}
