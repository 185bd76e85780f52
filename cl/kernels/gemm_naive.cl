/* gemm_naive: Y = X W^T + bias + residual, one work-item an output, serial over K.
 *
 * The kernel that the faster ones are checked against on a device, and the last resort: no local
 * memory, no barrier, any M, N, K. Neighbours share a row of X and read different rows of W.
 *
 * Knobs: FRAG 1: W is MMA-fragment-major (layout.c), with the knobs of fragments.clh; GROUPED 1: experts.clh, and the
 * rows of an expert are then a multiple of 16 where FRAG is 1.
 */
#include "epilogue.clh"
#include "experts.clh"
#include "quant/f16.clh"

#ifndef FRAG
#define FRAG 0
#endif

#if FRAG
#include "fragment_bytes.clh"
#define W_TILE FRAGMENT_BYTES(W_BITS, W_GROUP, W_MIN)

/* Bits at..at + n of the low or the high half of a word. */
static uint bits_of(const __global uchar *words, uint word, uint at, uint n, uint high)
{
    return ((const __global uint *)words)[word] >> (at + high * 16) & ((1u << n) - 1);
}

/* q of the weight that is half `e` of pair p of a step for a lane. */
static uint quant_at(const __global uchar *tile, uint lane, uint step, uint p, uint e)
{
    const __global uchar *high = tile + 512 + lane * (FRAGMENT_WORDS(W_BITS) - 4) * 4;
    if (W_BITS == 8) return (step < 2 ? tile + lane * 16 : high)[step % 2 * 8 + p % 2 * 4 + e * 2 + p / 2];
    uint low = bits_of(tile + lane * 16, step, p * 4, 4, e);
    if (W_BITS == 6) return low | bits_of(high, step / 2, p / 2 * 8 + (step % 2 * 2 + p % 2) * 2, 2, e) << 4;
    if (W_BITS == 5) return low | bits_of(high, 0, p / 2 * 8 + step * 2 + p % 2, 1, e) << 4;
    return low;
}

/* What the table has for a code. */
static uint looked_up(uint code)
{
    return FRAGMENT_TABLE(W_CODES, code / 4) >> code % 4 * 8 & 255;
}

float w_at(const __global uchar *w, ulong row, uint k, uint K)
{
    uint lane = row % 8 * 4 + k % 8 / 2, p = row / 8 % 2 + k / 8 % 2 * 2, e = k % 2;
    const __global uchar *tile = w + (row / 16 * (K / FRAGMENT_K(W_BITS)) + k / FRAGMENT_K(W_BITS)) * W_TILE;
    if (W_BITS == 16) return vload_half(lane * 8 + p * 2 + e, (const __global half *)tile);
    uint number = quant_at(tile, lane, k / 16 % 4, p, e);
    float q = (float)(W_CODES ? looked_up(number) : number) - (float)W_ZERO;
    const __global half *scale = (const __global half *)(tile + FRAGMENT_WORDS(W_BITS) * 128) +
                                 lane / 4 * FRAGMENT_SCALES(W_BITS, W_GROUP, W_MIN) * 2;
    uint group = (p % 2 * 64 + k % 64) / W_GROUP;
    return W_MIN ? q * vload_half(group * 2, scale) + vload_half(group * 2 + 1, scale) : q * vload_half(group, scale);
}
#endif

KERNEL void gemm_naive(IN(x), IN(w), IN(bias), IN(res), OUT_ACT(y), uint M, uint N, uint K,
                       uint x_stride, ulong w_row_bytes, uint res_stride, uint y_stride EXPERT_ARGS)
{
#if GROUPED
    const experts g = EXPERTS_OF_ARGS;
    M = pairs;
#endif
    ulong n = (ulong)M * N;
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
        uint m = i / N, col = i % N;
#if GROUPED
        const __global act_t *x = IN_AT(act_t, x) + x_of(&g, m);
        const int expert = expert_of(&g, m);
        ulong row = w_row_of(&g, expert) + col;
#else
        const __global act_t *x = IN_AT(act_t, x) + (ulong)m * x_stride;
        ulong row = col;
#endif
        float acc = 0;
#if FRAG
        for (uint k = 0; k < K; k++) acc = MAD(ACT_LOAD(x, k), w_at(IN_AT(uchar, w), row, k, K), acc);
#else
        const __global uchar *w = IN_AT(uchar, w) + row * w_row_bytes;
        for (uint k = 0; k < K; k++) acc = MAD(ACT_LOAD(x, k), w_load(w, k), acc);
#endif
        epilogue e = EPILOGUE(bias, res, y, res_stride, y_stride);
#if GROUPED
        finish_pair(&e, &g, m, expert, col, acc);
#else
        finish(&e, m, col, acc);
#endif
    }
}
