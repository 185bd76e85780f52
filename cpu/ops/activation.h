/* activation: the functions of ACTIVATE and of SILU_MUL's gate on a vector, with a vector exponential. */
#ifndef WF_CPU_ACTIVATION_H
#define WF_CPU_ACTIVATION_H

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

/* x / (1 + 2^-e). The exponent is clamped, so that the power stays finite. */
WF_INLINE vf gated(vf x, vf e)
{
    vf power = v_exp2(v_sub(v_zero(), v_max(v_set(-126), e)));
    return v_div(x, v_add(v_set(1), power));
}

/* x (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2, with erfc(z) = exp(-z^2) times a polynomial
 * in 1 / (1 + p z), which is off by 1.5e-7 at most (Abramowitz and Stegun, 7.1.26; its coefficients are halved
 * here). */
WF_INLINE vf gelu(vf x)
{
    vf size = v_max(v_sub(v_zero(), x), x);
    vf t = v_div(v_set(1), v_fma(size, v_set(0.3275911f * 0.70710678f), v_set(1)));
    vf sum = v_fma(t, v_set(0.530702715f), v_set(-0.726576014f));
    sum = v_fma(t, sum, v_set(0.710706871f));
    sum = v_fma(t, sum, v_set(-0.142248368f));
    sum = v_mul(t, v_fma(t, sum, v_set(0.127414796f)));
    vf power = v_exp2(v_max(v_set(-126), v_mul(v_mul(size, size), v_set(-0.721347520f)))); /* exp(-x^2 / 2) */
    return v_sub(v_max(v_zero(), x), v_mul(size, v_mul(sum, power)));
}

/* GELU's (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)). */
WF_INLINE vf activate(enum wf_activation f, vf x)
{
    if (f == WF_RELU) return v_max(v_zero(), x); /* NaN stays */
    if (f == WF_SILU) return gated(x, v_mul(x, v_set(1.44269504f)));
    if (f == WF_GELU) return gelu(x);
    vf cubic = v_fma(v_mul(v_mul(x, x), x), v_set(0.044715f), x);
    return gated(x, v_mul(cubic, v_set(2.30220822f))); /* 2 sqrt(2 / pi) log2 e */
}

WF_INLINE vf at_most(vf x, float most)
{
    return v_sub(v_zero(), v_max(v_set(-most), v_sub(v_zero(), x))); /* NaN stays */
}

/* What SILU_MUL makes of gate and up. */
WF_INLINE vf gated_by(enum wf_activation f, vf gate, vf up)
{
    if (f != WF_CLAMPED_SWIGLU) return v_mul(activate(f, gate), up);
    gate = at_most(gate, WF_SWIGLU_LIMIT);
    up = v_max(v_set(-WF_SWIGLU_LIMIT), at_most(up, WF_SWIGLU_LIMIT));
    return v_mul(gated(gate, v_mul(gate, v_set(WF_SWIGLU_ALPHA * 1.44269504f))), v_add(up, v_set(1)));
}

#endif
