/* silu_mul: y = gate / (1 + exp(-gate)) * up, or GELU of gate in SiLU's place, where each `each` columns of y have in a
 * row of gu their gate, then their up. One work-item VEC elements.
 *
 * Knobs: VEC 4: `each` is a multiple of 4 and rows are aligned to four elements; 1: any. GELU 1: in place of SiLU.
 * CLAMPED 1: gpt-oss's, where gate is at most 7, up is within 7 of 0, and y = gate / (1 + exp(-1.702 gate)) * (up + 1);
 * NaN stays.
 */
#include "epilogue.clh"
#ifndef VEC
#define VEC 1
#endif
#ifndef GELU
#define GELU 0
#endif

#ifndef CLAMPED
#define CLAMPED 0
#endif

#if VEC == 1
#define AT_MOST(x) ((x) > 7.0f ? 7.0f : (x))
#else
#define AT_MOST(x) ((x) > 7.0f ? (float4)(7.0f) : (x))
#endif
#if CLAMPED
#define GATED(gate, up) (AT_MOST(gate) / (1.0f + exp(-1.702f * AT_MOST(gate))) * (1.0f - AT_MOST(-AT_MOST(up))))
#elif GELU
#define GATED(gate, up) GELU_MUL(gate, up)
#else
#define GATED(gate, up) SILU_MUL(gate, up)
#endif

#if VEC == 1
#define LOAD(p, i) ACT_LOAD(p, i)
#else
#define LOAD(p, i) ACT_LOAD4(p, i)
#endif

KERNEL void silu_mul(IN(gu), OUT_ACT(y), uint M, uint F, uint gu_stride, uint y_stride, uint each)
{
    FOR_EACH (m, part, M, F / VEC) {
        uint f = part * VEC, from = f + f / each * each;
        ulong at = (ulong)m * y_stride + f;
        const __global act_t *gu = IN_AT(act_t, gu) + (ulong)m * gu_stride;
#if VEC == 1
        float g = LOAD(gu, from), u = LOAD(gu, each + from);
        STORE(y, at, GATED(g, u))
#else
        float4 g = LOAD(gu, from), u = LOAD(gu, each + from);
        STORE4(y, at, GATED(g, u))
#endif
    }
}
