/* NEON of 64-bit ARM: 4 floats. For two levels: neon, which every such processor runs, and dotprod,
 * whose compiler flags add the int8 dot products of ARMv8.2. Both give the same bits. */
#include <arm_neon.h>
#include <string.h>

#define VL         4
#define VREGS      32
#define F16_ELEMS  8
#define Q6K_UNROLL 1 /* shifts need a register, and 8 unrolled would spill */
typedef float32x4_t vf;
typedef struct q8 {
    int8x16_t low, high;
} q8;
typedef struct qf {
    float32x4_t low, high;
} qf;

/* clang-format off: a table with one line per function, as far as they fit */
WF_INLINE vf v_zero(void) { return vdupq_n_f32(0); }
WF_INLINE vf v_set(float x) { return vdupq_n_f32(x); }
WF_INLINE vf v_load(const float *p) { return vld1q_f32(p); }
WF_INLINE void v_store(float *p, vf a) { vst1q_f32(p, a); }
WF_INLINE vf v_add(vf a, vf b) { return vaddq_f32(a, b); }
WF_INLINE vf v_sub(vf a, vf b) { return vsubq_f32(a, b); }
WF_INLINE vf v_mul(vf a, vf b) { return vmulq_f32(a, b); }
WF_INLINE vf v_div(vf a, vf b) { return vdivq_f32(a, b); }
WF_INLINE vf v_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
/* Not vmaxq, which gives NaN for either NaN. */
WF_INLINE vf v_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
WF_INLINE vf v_round(vf a) { return vrndnq_f32(a); }
WF_INLINE vf v_pow2i(vf n)
{
    int32x4_t e = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}
WF_INLINE float v_reduce_add(vf a) { return vaddvq_f32(a); }
WF_INLINE float v_reduce_max(vf a) { return vmaxnmvq_f32(a); }
WF_INLINE vf v_load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
WF_INLINE void v_store_f16(void *p, vf a) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(a))); }
WF_INLINE vf v_load_i16(const void *p) { return vcvtq_f32_s32(vmovl_s16(vreinterpret_s16_u8(vld1_u8(p)))); }
WF_INLINE vf v_load_i8(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}
WF_INLINE void v_store_i8(void *p, vf a)
{
    int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(a));
    int32_t four = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
    memcpy(p, &four, sizeof four);
}
WF_INLINE vf v_load_bf16(const void *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

/* Pairs of rows, then pairs of those. */
WF_INLINE void v_transpose(const float *p, size_t step, float *out, size_t out_step)
{
    float64x2_t t[4];
    for (int i = 0; i < 2; i++) {
        float32x4_t a = vld1q_f32(p + 2 * i * step), b = vld1q_f32(p + (2 * i + 1) * step);
        t[2 * i] = vreinterpretq_f64_f32(vtrn1q_f32(a, b));
        t[2 * i + 1] = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
    }
    for (int i = 0; i < 2; i++) {
        vst1q_f32(out + i * out_step, vreinterpretq_f32_f64(vtrn1q_f64(t[i], t[i + 2])));
        vst1q_f32(out + (i + 2) * out_step, vreinterpretq_f32_f64(vtrn2q_f64(t[i], t[i + 2])));
    }
}

WF_INLINE void v_transpose_f16(const uint16_t *const *rows, size_t at, uint16_t *out)
{
    vst4q_u16(out, (uint16x8x4_t){{vld1q_u16(rows[0] + at), vld1q_u16(rows[1] + at), vld1q_u16(rows[2] + at),
                                   vld1q_u16(rows[3] + at)}});
}

/* ---- 32 int8 products ------------------------------------------------------------------------ */

WF_INLINE q8 q_load(const void *p) { return (q8){vld1q_s8(p), vld1q_s8((const int8_t *)p + 16)}; }
WF_INLINE q8 q_nibbles(const void *p)
{
    uint8x16_t b = vld1q_u8(p);
    return (q8){vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(15))),
                vreinterpretq_s8_u8(vshrq_n_u8(b, 4))};
}
WF_INLINE uint8x16_t q_shifted(const uint8_t *p, uint32_t by, uint8_t mask)
{
    return vandq_u8(vshlq_u8(vld1q_u8(p), vdupq_n_s8((int8_t)-(int)by)), vdupq_n_u8(mask));
}
WF_INLINE q8 q_4k(const void *p, uint32_t i)
{
    const uint8_t *q = (const uint8_t *)p + 32 * (i / 2);
    const uint32_t by = i & 1 ? 4 : 0;
    return (q8){vreinterpretq_s8_u8(q_shifted(q, by, 15)), vreinterpretq_s8_u8(q_shifted(q + 16, by, 15))};
}
WF_INLINE q8 q_5k(const void *p, const void *high, uint32_t i)
{
    const uint8_t *h = high;
    const q8 q = q_4k(p, i);
    return (q8){vorrq_s8(q.low, vreinterpretq_s8_u8(vshlq_n_u8(q_shifted(h, i, 1), 4))),
                vorrq_s8(q.high, vreinterpretq_s8_u8(vshlq_n_u8(q_shifted(h + 16, i, 1), 4)))};
}
/* Unpacks 16: the low 4 bits from ql, the high 2 from qh, which is shifted right first. */
WF_INLINE int8x16_t q_6k_half(const uint8_t *ql, int by_low, const uint8_t *qh, int by_high)
{
    uint8x16_t low = vshlq_u8(vld1q_u8(ql), vdupq_n_s8((int8_t)-by_low));
    uint8x16_t high = vshlq_u8(vld1q_u8(qh), vdupq_n_s8((int8_t)-by_high));
    low = vandq_u8(low, vdupq_n_u8(15));
    high = vandq_u8(high, vdupq_n_u8(3));
    return vreinterpretq_s8_u8(vorrq_u8(low, vshlq_n_u8(high, 4)));
}
WF_INLINE q8 q_6k(const void *p, uint32_t i)
{
    const uint8_t *ql = (const uint8_t *)p + 64 * (i / 4) + 32 * (i & 1);
    const uint8_t *qh = (const uint8_t *)p + 128 + 32 * (i / 4);
    const int by_low = i & 2 ? 4 : 0, by_high = 2 * (int)(i & 3);
    return (q8){q_6k_half(ql, by_low, qh, by_high), q_6k_half(ql + 16, by_low, qh + 16, by_high)};
}
WF_INLINE q8 q_pick(q8 codes, const int8_t values[16])
{
    const int8x16_t of = vld1q_s8(values);
    return (q8){vqtbl1q_s8(of, vreinterpretq_u8_s8(codes.low)), vqtbl1q_s8(of, vreinterpretq_u8_s8(codes.high))};
}
/* Each of 16 bits in all of a byte. */
WF_INLINE uint8x16_t q_spread(uint32_t bits)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    return vtstq_u8(vcombine_u8(vdup_n_u8((uint8_t)bits), vdup_n_u8((uint8_t)(bits >> 8))), bit);
}
WF_INLINE int8x16_t q_fifth_half(const uint8_t *p)
{
    return vreinterpretq_s8_u8(vandq_u8(q_spread(p[0] | (uint32_t)p[1] << 8), vdupq_n_u8(16)));
}
WF_INLINE q8 q_fifth(q8 q, const void *p)
{
    return (q8){vorrq_s8(q.low, q_fifth_half(p)), vorrq_s8(q.high, q_fifth_half((const uint8_t *)p + 2))};
}
/* 16 of two bits each. */
WF_INLINE uint8x16_t q_twos(uint32_t levels)
{
    const uint8x16_t byte = vreinterpretq_u8_u64(
        vcombine_u64(vcreate_u64(0x0101010100000000), vcreate_u64(0x0303030302020202)));
    const int8x16_t by = vreinterpretq_s8_u32(vdupq_n_u32(0xfafcfe00)); /* 0, -2, -4, -6 */
    return vandq_u8(vshlq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(levels)), byte), by), vdupq_n_u8(3));
}
/* 16 of four bits each, of which three count. */
WF_INLINE uint8x16_t q_fours(uint64_t levels)
{
    const uint8x8_t both = vcreate_u8(levels), low = vand_u8(both, vdup_n_u8(7)),
                    high = vand_u8(vshr_n_u8(both, 4), vdup_n_u8(7));
    return vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high));
}
WF_INLINE int8x16_t q_signed(int8x16_t v, uint32_t minus)
{
    const int8x16_t sign = vreinterpretq_s8_u8(q_spread(minus));
    return vsubq_s8(veorq_s8(v, sign), sign);
}
WF_INLINE q8 q_grid(const uint64_t levels[2], uint32_t minus, const bool eights, const int8_t values[16])
{
    const uint8x16_t low = eights ? q_twos((uint32_t)levels[0]) : q_fours(levels[0]),
                     high = eights ? q_twos((uint32_t)(levels[0] >> 32)) : q_fours(levels[1]);
    const q8 v = q_pick((q8){vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)}, values);
    return (q8){q_signed(v.low, minus), q_signed(v.high, minus >> 16)};
}
WF_INLINE q8 q_2k(const void *p, uint32_t i)
{
    const uint8_t *q = (const uint8_t *)p + 32 * (i / 4);
    const uint32_t by = 2 * (i % 4);
    return (q8){vreinterpretq_s8_u8(q_shifted(q, by, 3)), vreinterpretq_s8_u8(q_shifted(q + 16, by, 3))};
}
WF_INLINE q8 q_3k(const void *p, const void *high, uint32_t i)
{
    const uint8_t *h = high;
    const q8 q = q_2k(p, i);
    return (q8){vorrq_s8(q.low, vreinterpretq_s8_u8(vshlq_n_u8(q_shifted(h, i, 1), 2))),
                vorrq_s8(q.high, vreinterpretq_s8_u8(vshlq_n_u8(q_shifted(h + 16, i, 1), 2)))};
}

/* sum plus products, four to a lane. */
#ifdef __ARM_FEATURE_DOTPROD
WF_INLINE int32x4_t q_dot16(int32x4_t sum, int8x16_t w, int8x16_t x) { return vdotq_s32(sum, w, x); }
#else
/* Pairs of products stay below 2 * 128 * 127, because x is at least -127. */
WF_INLINE int32x4_t q_dot16(int32x4_t sum, int8x16_t w, int8x16_t x)
{
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
#endif
WF_INLINE qf q_dot(q8 w, const int8_t *x, const int32_t *comp)
{
    return (qf){vcvtq_f32_s32(q_dot16(vld1q_s32(comp), w.low, vld1q_s8(x))),
                vcvtq_f32_s32(q_dot16(vld1q_s32(comp + 4), w.high, vld1q_s8(x + 16)))};
}

WF_INLINE qf qf_load(const float *p) { return (qf){vld1q_f32(p), vld1q_f32(p + 4)}; }
WF_INLINE qf qf_set(float x) { return (qf){vdupq_n_f32(x), vdupq_n_f32(x)}; }
WF_INLINE qf qf_zero(void) { return qf_set(0); }
WF_INLINE qf qf_half(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    vf x = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
    return (qf){x, x};
}
WF_INLINE qf qf_pair(const float *p) { return (qf){vdupq_n_f32(p[0]), vdupq_n_f32(p[1])}; }
WF_INLINE qf qf_mul(qf a, qf b) { return (qf){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
WF_INLINE qf qf_fma(qf a, qf b, qf c)
{
    return (qf){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
WF_INLINE float qf_sum(qf a) { return vaddvq_f32(vaddq_f32(a.low, a.high)); }

/* 16 int8, less bias, times d. */
WF_INLINE void q_expand16(int8x16_t w, int bias, vf d, float *dst)
{
    const int16x8_t less = vdupq_n_s16((int16_t)bias);
    int16x8_t x[2] = {vsubq_s16(vmovl_s8(vget_low_s8(w)), less), vsubq_s16(vmovl_high_s8(w), less)};
    for (int i = 0; i < 2; i++) {
        vst1q_f32(dst + 8 * i, vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(x[i]))), d));
        vst1q_f32(dst + 8 * i + 4, vmulq_f32(vcvtq_f32_s32(vmovl_high_s16(x[i])), d));
    }
}
WF_INLINE void q_expand(q8 w, int bias, qf a, qf b, float *dst)
{
    q_expand16(w.low, bias, a.low, dst);
    q_expand16(w.high, bias, b.low, dst + 16);
}
WF_INLINE void q_scales(const void *p, qf d, float *out) { q_expand16(vld1q_s8(p), 0, d.low, out); }

#ifdef __ARM_FEATURE_DOTPROD
#define QI_BYTES 16
typedef int32x4_t qi;

WF_INLINE qi qi_set(int8_t x) { return vreinterpretq_s32_s8(vdupq_n_s8(x)); }
WF_INLINE qi qi_dot(qi sum, qi a, qi b)
{
    sum = vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
    __asm__ volatile("" : "+w"(sum));
    return sum;
}
WF_INLINE int32_t qi_sum(qi a) { return vaddvq_s32(vshrq_n_s32(a, 8)); }
#endif
