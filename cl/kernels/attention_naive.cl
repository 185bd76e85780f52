/* attention_naive: one work-item a row and query head, serial over the keys it may see.
 *
 * o = softmax(q . k * scale) v with a running maximum: when a larger score comes, what was summed so
 * far is scaled down. Key j of sequence s lies in page pages[indptr[s] + j / P] at index j % P.
 *
 * Knobs: D head size; WINDOWS 1: each query head has a window, SOFTCAP 1: scores a soft cap, SINKS 1: query heads a
 * sink (attention/mask.clh). AROUND 1: windows lie around a position of each row, on both sides.
 */
#include "common.clh"
#include "attention/mask.clh"
#include "kv/f16.clh"
#ifndef AROUND
#define AROUND 0
#endif
#if AROUND
#define AROUND_ARGS , IN(around)
#else
#define AROUND_ARGS
#endif
#ifndef D
#define D 64
#endif

KERNEL void attention_naive(IN(q), IN(kp), IN(vp), IN(seq), IN(pos), IN(indptr), IN(pages),
                            OUT_ACT(o), uint M, uint Hq, uint Hkv, uint P,
                            uint page_stride, uint q_stride, uint o_stride, float scale WINDOW_ARGS AROUND_ARGS)
{
    const mask_t mask = MASK;
    ulong n = (ulong)M * Hq;
    for (ulong i = get_global_id(0); i < n; i += get_global_size(0)) {
        uint m = i / Hq, h = i % Hq, kvh = h / (Hq / Hkv);
        const __global act_t *q = IN_AT(act_t, q) + (ulong)m * q_stride + (ulong)h * D;
        const __global int *page = IN_AT(int, pages) + IN_AT(int, indptr)[IN_AT(int, seq)[m]];
        sight seen = sight_of(&mask, IN_AT(int, pos)[m], h);
#if AROUND
        int middle = IN_AT(int, around)[m], window = mask.windows[h], behind = seen.last;
        if (window > 0 && behind - middle >= window) behind = middle + window - 1;
        seen.after = after_masked(middle, window, mask.sink);
        seen.last = max(behind, min(seen.last, mask.sink - 1));
#endif
        float acc[D], max_score = -INFINITY, sum = 0;
        for (uint d = 0; d < D; d++) acc[d] = 0;
        for (int j = next_seen(seen, 0, 1); j <= seen.last; j = next_seen(seen, j + 1, 1)) {
            ulong at = kv_place(page[j / P], page_stride, (kvh * P + j % P) * D);
            float s = 0;
            for (uint d = 0; d < D; d++) s = MAD(ACT_LOAD(q, d), kv_load(IN_AT(uchar, kp), at + d), s);
            s = capped(&mask, s * scale);
            float top = fmax(max_score, s);
            float keep = exp(max_score - top), p = exp(s - top);
            sum = MAD(sum, keep, p);
            for (uint d = 0; d < D; d++) acc[d] = MAD(p, kv_load(IN_AT(uchar, vp), at + d), acc[d] * keep);
            max_score = top;
        }
        sum = with_sink(&mask, sum, max_score, h);
        for (uint d = 0; d < D; d++)
            STORE(o, (ulong)m * o_stride + (ulong)h * D + d, sum == 0 ? 0 : acc[d] / sum)
    }
}
