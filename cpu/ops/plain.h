/* The level for every processor: 4 floats in a struct and no intrinsics; compilers use the vectors that the target
 * always has. */
#include <math.h>
#include <string.h>

#define VL         4
#define VREGS      16
#define F16_ELEMS  8
#define Q6K_UNROLL 8
typedef struct vf {
    float f[4];
} vf;
typedef struct q8 {
    int8_t b[32];
} q8;
typedef struct qf {
    float f[8];
} qf;

#define WF_LANES(type, n, expr)                                                                    \
    type r;                                                                                        \
    for (int i = 0; i < n; i++) r.f[i] = (expr);                                                   \
    return r

/* clang-format off: a table with one line per function, as far as they fit */
WF_INLINE vf v_set(float x) { WF_LANES(vf, 4, x); }
WF_INLINE vf v_zero(void) { return v_set(0); }
WF_INLINE vf v_load(const float *p) { WF_LANES(vf, 4, p[i]); }
WF_INLINE void v_store(float *p, vf a) { memcpy(p, a.f, sizeof(a.f)); }
WF_INLINE vf v_add(vf a, vf b) { WF_LANES(vf, 4, a.f[i] + b.f[i]); }
WF_INLINE vf v_sub(vf a, vf b) { WF_LANES(vf, 4, a.f[i] - b.f[i]); }
WF_INLINE vf v_mul(vf a, vf b) { WF_LANES(vf, 4, a.f[i] * b.f[i]); }
WF_INLINE vf v_div(vf a, vf b) { WF_LANES(vf, 4, a.f[i] / b.f[i]); }
WF_INLINE vf v_fma(vf a, vf b, vf c) { WF_LANES(vf, 4, a.f[i] * b.f[i] + c.f[i]); }
WF_INLINE vf v_max(vf a, vf b) { WF_LANES(vf, 4, a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
WF_INLINE vf v_round(vf a) { WF_LANES(vf, 4, rintf(a.f[i])); }
WF_INLINE vf v_pow2i(vf n)
{
    vf r;
    for (int i = 0; i < 4; i++) {
        uint32_t bits = n.f[i] >= -127 ? (uint32_t)((int32_t)n.f[i] + 127) << 23 : 0;
        memcpy(&r.f[i], &bits, 4);
    }
    return r;
}
WF_INLINE float v_reduce_add(vf a) { return (a.f[0] + a.f[2]) + (a.f[1] + a.f[3]); }
WF_INLINE float v_reduce_max(vf a) { return fmaxf(fmaxf(a.f[0], a.f[2]), fmaxf(a.f[1], a.f[3])); }
WF_INLINE vf v_load_f16(const void *p)
{
    vf r;
    wf_decode_f16(p, r.f, 4);
    return r;
}
WF_INLINE vf v_load_bf16(const void *p)
{
    vf r;
    wf_decode_bf16(p, r.f, 4);
    return r;
}
WF_INLINE vf v_load_i8(const void *p) { WF_LANES(vf, 4, ((const int8_t *)p)[i]); }
WF_INLINE vf v_load_i16(const void *p) { WF_LANES(vf, 4, ((const int16_t *)p)[i]); }
WF_INLINE void v_store_i8(void *p, vf a)
{
    for (int i = 0; i < 4; i++) ((int8_t *)p)[i] = (int8_t)wf_round_clamp(a.f[i], -127, 127);
}
WF_INLINE void v_store_f16(void *p, vf a) { for (int i = 0; i < 4; i++) ((uint16_t *)p)[i] = wf_float_to_half(a.f[i]); }
WF_INLINE void v_transpose(const float *p, size_t step, float *out, size_t out_step)
{
    for (size_t i = 0; i < VL; i++)
        for (size_t j = 0; j < VL; j++) out[j * out_step + i] = p[i * step + j];
}
WF_INLINE void v_transpose_f16(const uint16_t *const *rows, size_t at, uint16_t *out)
{
    for (size_t i = 0; i < VL; i++)
        for (size_t j = 0; j < F16_ELEMS; j++) out[j * VL + i] = rows[i][at + j];
}

WF_INLINE q8 q_load(const void *p)
{
    q8 r;
    memcpy(&r, p, sizeof(r));
    return r;
}
WF_INLINE q8 q_nibbles(const void *p)
{
    q8 r;
    for (int i = 0; i < 16; i++) {
        r.b[i] = ((const uint8_t *)p)[i] & 15;
        r.b[i + 16] = ((const uint8_t *)p)[i] >> 4;
    }
    return r;
}
WF_INLINE q8 q_4k(const void *p, uint32_t i)
{
    const uint8_t *q = (const uint8_t *)p + 32 * (i / 2);
    q8 r;
    for (int j = 0; j < 32; j++) r.b[j] = q[j] >> (i & 1 ? 4 : 0) & 15;
    return r;
}
WF_INLINE q8 q_5k(const void *p, const void *high, uint32_t i)
{
    q8 r = q_4k(p, i);
    for (int j = 0; j < 32; j++) r.b[j] |= (int8_t)((((const uint8_t *)high)[j] >> i & 1) << 4);
    return r;
}
WF_INLINE q8 q_6k(const void *p, uint32_t i)
{
    const uint8_t *ql = (const uint8_t *)p + 64 * (i / 4) + 32 * (i & 1);
    const uint8_t *qh = (const uint8_t *)p + 128 + 32 * (i / 4);
    q8 r;
    for (int j = 0; j < 32; j++)
        r.b[j] = (int8_t)((ql[j] >> (i & 2 ? 4 : 0) & 15) | (qh[j] >> 2 * (i & 3) & 3) << 4);
    return r;
}
WF_INLINE q8 q_pick(q8 codes, const int8_t values[16])
{
    for (int i = 0; i < 32; i++) codes.b[i] = values[codes.b[i]];
    return codes;
}
WF_INLINE q8 q_fifth(q8 q, const void *p)
{
    for (int i = 0; i < 32; i++) q.b[i] |= (int8_t)((((const uint8_t *)p)[i / 8] >> i % 8 & 1) << 4);
    return q;
}
WF_INLINE q8 q_grid(const uint64_t levels[2], uint32_t minus, const bool eights, const int8_t values[16])
{
    q8 r;
    for (int i = 0; i < 32; i++) {
        const int8_t v = values[eights ? levels[0] >> 2 * i & 3 : levels[i / 16] >> i % 16 * 4 & 7];
        r.b[i] = minus >> i & 1 ? (int8_t)-v : v;
    }
    return r;
}
WF_INLINE q8 q_2k(const void *p, uint32_t i)
{
    const uint8_t *q = (const uint8_t *)p + 32 * (i / 4);
    q8 r;
    for (int j = 0; j < 32; j++) r.b[j] = q[j] >> 2 * (i % 4) & 3;
    return r;
}
WF_INLINE q8 q_3k(const void *p, const void *high, uint32_t i)
{
    q8 r = q_2k(p, i);
    for (int j = 0; j < 32; j++) r.b[j] |= (int8_t)((((const uint8_t *)high)[j] >> i & 1) << 2);
    return r;
}
WF_INLINE qf q_dot(q8 w, const int8_t *x, const int32_t *comp)
{
    qf r;
    for (int i = 0; i < 8; i++) {
        int32_t sum = comp[i];
        for (int j = 4 * i; j < 4 * i + 4; j++) sum += w.b[j] * x[j];
        r.f[i] = (float)sum;
    }
    return r;
}
WF_INLINE qf qf_load(const float *p) { WF_LANES(qf, 8, p[i]); }
WF_INLINE qf qf_set(float x) { WF_LANES(qf, 8, x); }
WF_INLINE qf qf_zero(void) { return qf_set(0); }
WF_INLINE qf qf_half(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return qf_set(wf_half_to_float(h));
}
WF_INLINE qf qf_pair(const float *p) { WF_LANES(qf, 8, p[i / 4]); }
WF_INLINE qf qf_mul(qf a, qf b) { WF_LANES(qf, 8, a.f[i] * b.f[i]); }
WF_INLINE qf qf_fma(qf a, qf b, qf c) { WF_LANES(qf, 8, a.f[i] * b.f[i] + c.f[i]); }
WF_INLINE float qf_sum(qf a)
{
    return ((a.f[0] + a.f[4]) + (a.f[2] + a.f[6])) + ((a.f[1] + a.f[5]) + (a.f[3] + a.f[7]));
}
WF_INLINE void q_expand(q8 w, int bias, qf a, qf b, float *dst)
{
    for (int i = 0; i < 32; i++) dst[i] = (float)(w.b[i] - bias) * (i < 16 ? a : b).f[0];
}
WF_INLINE void q_scales(const void *p, qf d, float *out)
{
    for (int i = 0; i < 16; i++) out[i] = ((const int8_t *)p)[i] * d.f[0];
}
