/* gemv_host: Y = X W^T + bias + residual for few rows of X and quantised weights in planes, on processors, where
 * work-items are loops on a core: a work-group is one work-item, without a barrier, and has BN rows of W, an argument.
 *
 *   X --> integers of 16 bits, 32 neighbours by one scale, in local memory, which is the core's cache, in the order in
 *         which planes hold weights
 *   W --> STEP_K weights at a time as bytes, multiplied as integers (device/bytes.clh); sums become F32 by their scales
 *
 * The upper and the lower byte of X are multiplied apart: products of bytes with words have no instruction. Weights of
 * eight bits become words, as X is then.
 *
 * Knobs: MR, rows of X, at least M; KC: K, or more. K is a multiple of 128. Local memory: MR * KC * 3 bytes.
 */
#ifndef WG
#define WG 1
#endif
#include "host.clh"
#include "device/bytes.clh"
#include "epilogue.clh"
#include "quant/planes.clh"
#ifndef MR
#define MR 1
#define KC 2048
#endif

#define CHUNKS (VECTOR_BYTES / 16) /* of a step */
#define STEP_K (32 * CHUNKS)
#define X_MOST 32000.0f

/* A step of X: upper and lower bytes of the weights that planes hold in low and in high nibbles, or with eight bits the
 * words of its chunks. Of each lane the scale, and the sum of what it multiplies, scaled. */
typedef struct x_step {
    ints_t q[4];
    lanes_t scale, sum;
} x_step;

/* ---- X ----------------------------------------------------------------------------------------------------------- */

/* Sums of each eight neighbours. */
static INLINE int2 sums_of_8(int16 v)
{
    int8 a = v.even + v.odd;
    int4 b = a.even + a.odd;
    return b.even + b.odd;
}

static INLINE void pack_chunk(__local x_step *to, uint c, const __global act_t *x)
{
    float8 v0 = ACT_LOAD8(x, 0), v1 = ACT_LOAD8(x, 8), v2 = ACT_LOAD8(x, 16), v3 = ACT_LOAD8(x, 24);
    float8 m8 = fmax(fmax(fabs(v0), fabs(v1)), fmax(fabs(v2), fabs(v3)));
    float8 w8 = fabs(v0) + fabs(v1) + (fabs(v2) + fabs(v3));
    float4 m4 = fmax(m8.lo, m8.hi), w4 = w8.lo + w8.hi;
    float w = w4.x + w4.y + (w4.z + w4.w);
    float most = OR_INFINITY(fmax(fmax(m4.x, m4.y), fmax(m4.z, m4.w)), w);
    float inverse = most > 0 ? X_MOST / most : 0, scale = most / X_MOST;
    int16 a = convert_int16_rte((float16)(v0, v1) * inverse), b = convert_int16_rte((float16)(v2, v3) * inverse);
    __local uint *words = (__local uint *)to->q;
#if W_BITS == 8
    __local short *q = (__local short *)(words + 16 * c);
    vstore16(convert_short16(a), 0, q);
    vstore16(convert_short16(b), 1, q);
#else
    int16 up_a = (a + 128) >> 8, up_b = (b + 128) >> 8;
    uint4 u0 = as_uint4(convert_char16(up_a)), u1 = as_uint4(convert_char16(up_b));
    uint4 l0 = as_uint4(convert_char16(a - (up_a << 8))), l1 = as_uint4(convert_char16(b - (up_b << 8)));
    vstore4((uint4)(u0.even, u1.even), c, words);
    vstore4((uint4)(u0.odd, u1.odd), c, words + LANES);
    vstore4((uint4)(l0.even, l1.even), c, words + 2 * LANES);
    vstore4((uint4)(l0.odd, l1.odd), c, words + 3 * LANES);
#endif
    int4 sum = (int4)(sums_of_8(a), sums_of_8(b));
    vstore4((float4)(scale), c, (__local float *)&to->scale);
    vstore4(convert_float4(sum) * scale, c, (__local float *)&to->sum);
}

/* ---- W ----------------------------------------------------------------------------------------------------------- */

/* From the scales of a step's groups those of the lanes: lane l has word l % 4 of chunk l / 4. */
#define LANE_OF(l)    ((l) / 4 * GROUPS + ((l) % 4 / 2) * (GROUPS - 1))
#define EIGHT_LANES(v, l)                                                                          \
    (v)[LANE_OF(l)], (v)[LANE_OF((l) + 1)], (v)[LANE_OF((l) + 2)], (v)[LANE_OF((l) + 3)],          \
        (v)[LANE_OF((l) + 4)], (v)[LANE_OF((l) + 5)], (v)[LANE_OF((l) + 6)], (v)[LANE_OF((l) + 7)]
#if LANES == 16
#define OF_LANES(v) (lanes_t)(EIGHT_LANES(v, 0), EIGHT_LANES(v, 8))
#else
#define OF_LANES(v) (lanes_t)(EIGHT_LANES(v, 0))
#endif
#if CHUNKS * GROUPS == 8
#define STEP_VECTOR(what) what##8
#elif CHUNKS * GROUPS == 4
#define STEP_VECTOR(what) what##4
#else
#define STEP_VECTOR(what) what##2
#endif

/* A step of W: bytes by low and high nibbles, or words; of each lane scale and minimum. */
typedef struct w_step {
    uints_t low, high;
    ints_t words[4]; /* of eight bits */
    lanes_t scale, least;
} w_step;

static INLINE lanes_t lanes_of(const __global scale_t *from, const bool is_signed, float step)
{
#if W_PARTS
    STEP_VECTOR(uchar) s = STEP_VECTOR(vload)(0, from);
    STEP_VECTOR(float) v = STEP_VECTOR(convert_float)(s);
    if (is_signed) v = STEP_VECTOR(convert_float)(STEP_VECTOR(as_char)(s));
    v *= step;
#else
    STEP_VECTOR(float) v = STEP_VECTOR(vload_half)(0, (const __global half *)from);
#endif
    return OF_LANES(v);
}

static INLINE void load_scales(w_step *w, const __global uchar *block, uint at)
{
    const float2 steps = STEPS_OF(block);
    w->scale = lanes_of(SCALES_OF(block, at), true, steps.x);
    w->least = W_MIN ? lanes_of(MINS_OF(block, at), false, steps.y) : w->scale * -(float)W_ZERO;
    if (W_MIN && W_BITS == 8) w->least += 128 * w->scale;
}

#if N_HIGH
/* The words of bits above the low four of each lane, shifted to where its low nibbles begin. */
static INLINE uints_t high_words(const __global uchar *block, uint at)
{
    const __global uint *h = HIGH_OF(block, at);
#if N_HIGH == 1 && CHUNKS == 4
    uint4 v = vload4(0, h);
    return (uint16)((uint4)(v.x), (uint4)(v.y), (uint4)(v.z), (uint4)(v.w)) >>
           (uint16)(0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6);
#elif N_HIGH == 1
    return (uint8)((uint4)(h[0]), (uint4)(h[1])) >> (uint8)(0, 2, 4, 6, 0, 2, 4, 6);
#elif CHUNKS == 4
    uint8 v = vload8(0, h);
    return (uint16)(v.s00, v.s11, v.s22, v.s33, v.s44, v.s55, v.s66, v.s77) >>
           (uint16)(0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4);
#else
    uint4 v = vload4(0, h);
    return (uint8)(v.s00, v.s11, v.s22, v.s33) >> (uint8)(0, 4, 0, 4, 0, 4, 0, 4);
#endif
}
#endif

#if W_BITS == 8
/* A step of bytes as words, in order. */
static INLINE void load_words(ints_t words[4], const __global uchar *bytes)
{
    const __global char *from = (const __global char *)bytes;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if LANES == 16
        words[i] = (int16)(as_int8(convert_short16(vload16(2 * i, from))),
                           as_int8(convert_short16(vload16(2 * i + 1, from))));
#else
        words[i] = as_int8(convert_short16(vload16(i, from)));
#endif
    }
}
#endif

/* Adds the products of a step of W with one of X. */
static INLINE lanes_t add_step(lanes_t acc, const w_step *w, const __local x_step *x)
{
    lanes_t scale = w->scale * x->scale;
#if W_BITS == 8
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc = FUSED(LANES_OF(pairs(w->words[i], x->q[i])), (lanes_t)(scale[i * CHUNKS / 4 * 4]), acc);
#else
    ints_t sum = (products(w->low, x->q[0], w->high, x->q[1]) << 8) + products(w->low, x->q[2], w->high, x->q[3]);
    acc = FUSED(LANES_OF(sum), scale, acc);
#endif
    return W_MIN || W_ZERO ? FUSED(x->sum, w->least, acc) : acc;
}

/* Of a row of W with each row of X. */
static INLINE void multiply(lanes_t acc[MR], const __global uchar *row, const __local x_step *x, uint steps)
{
    for (uint i = 0; i < steps; i++) {
        const __global uchar *block = BLOCK_OF(row, i * STEP_K);
        uint at = i * CHUNKS % 8;
        w_step w;
        load_scales(&w, block, at);
#if W_BITS == 8
        load_words(w.words, block + at * 32);
#else
        uints_t q = LOAD_WORDS(LOW_OF(block, at));
        w.low = q & 0x0f0f0f0fu, w.high = q >> 4 & 0x0f0f0f0fu;
#if N_HIGH
        uints_t h = high_words(block, at);
        w.low |= (h & HIGH_MASK) << 4, w.high |= (h >> HIGH_BITS & HIGH_MASK) << 4;
#endif
#endif
#pragma unroll
        for (int m = 0; m < MR; m++) acc[m] = add_step(acc[m], &w, x + m * (KC / STEP_K) + i);
    }
}

KERNEL void gemv_host(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K, uint x_stride,
                      ulong w_row_bytes, uint res_stride, uint y_stride, uint BN)
{
    __local x_step xs[MR * (KC / STEP_K)] __attribute__((aligned(64)));
    uint tiles = (N + BN - 1) / BN;
    for (uint m = 0; m < MR; m++)
        for (uint k = 0; k < K; k += 32)
            pack_chunk(xs + m * (KC / STEP_K) + k / STEP_K, k / 32 % CHUNKS,
                       IN_AT(act_t, x) + (ulong)min(m, M - 1) * x_stride + k);
    for (uint tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
        for (uint n = tile * BN; n < min(tile * BN + BN, N); n++) {
            lanes_t acc[MR];
#pragma unroll
            for (int m = 0; m < MR; m++) acc[m] = (lanes_t)(0);
            multiply(acc, IN_AT(uchar, w) + n * w_row_bytes, xs, K / STEP_K);
#pragma unroll
            for (int m = 0; m < MR; m++)
                if (m < M) finish(&e, m, n, sum_of_lanes(acc[m]));
        }
    }
}
