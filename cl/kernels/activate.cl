/* activate: y = f(x). One work-item VEC elements.
 *
 * Knobs: ACTIVATION 0: SiLU; 1: ReLU; 2: GELU; 3: its approximation by tanh, whose (1 + tanh(u)) / 2 is 1 / (1 + exp(-2
 * u)); 4: the soft cap. VEC 4: K is a multiple of 4 and rows are aligned to four elements; 1: any.
 */
#include "common.clh"
#ifndef ACTIVATION
#define ACTIVATION 0
#define VEC 1
#endif

#if ACTIVATION == 0
#define F(x) ((x) / (1.0f + exp(-(x))))
#elif ACTIVATION == 1
#define F(x) ((x) < 0.0f ? (x) * 0.0f : (x)) /* NaN stays */
#elif ACTIVATION == 2
#define F(x) ((x) * 0.5f * erfc((x) * -0.70710678f))
#elif ACTIVATION == 3
#define F(x) ((x) / (1.0f + exp(-1.59576912f * MAD(0.044715f * (x) * (x), (x), (x)))))
#else
#define F(x) (softcap * tanh((x) / softcap))
#endif

KERNEL void activate(IN(x), OUT_ACT(y), uint M, uint K, uint x_stride, uint y_stride, float softcap)
{
    FOR_EACH (m, part, M, K / VEC) {
        ulong at = (ulong)m * y_stride + part * VEC;
        const __global act_t *row = IN_AT(act_t, x) + (ulong)m * x_stride;
#if VEC == 1
        float x = ACT_LOAD(row, part);
        STORE(y, at, F(x))
#else
        float4 x = ACT_LOAD4(row, part * 4);
        STORE4(y, at, F(x))
#endif
    }
}
