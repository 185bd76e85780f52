/* tensor_formats: 16-bit floats at every boundary, and the block formats against their definition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/tensor.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- 16-bit floats --------------------------------------------------------------------------- */

/* By the definition of the format, in double. */
static double value_of(uint16_t h, int exp_bits, int frac_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, exp = h >> frac_bits & ((1 << exp_bits) - 1);
    double frac = (double)(h & ((1 << frac_bits) - 1)) / (1 << frac_bits);
    double v = exp ? ldexp(1 + frac, exp - bias) : ldexp(frac, 1 - bias);
    return h & 0x8000 ? -v : v;
}

static void check_16(float (*widen)(uint16_t), uint16_t (*narrow)(float), int exp_bits,
                     int frac_bits)
{
    const uint16_t inf = (uint16_t)(((1 << exp_bits) - 1) << frac_bits);
    for (uint32_t h = 0; h <= inf; h++) {
        uint16_t a = (uint16_t)h;
        double v = value_of(a, exp_bits, frac_bits); /* of infinity: the next power of two */
        if (a < inf) assert_true((double)widen(a) == v && (double)widen(a | 0x8000) == -v);
        assert_int_equal(narrow(widen(a)), a);
        assert_int_equal(narrow(widen(a | 0x8000)), a | 0x8000);
        if (a == inf) break;
        /* The middle to the next value goes to the even one; the floats beside it to their own
         * side. */
        float mid = (float)((v + value_of((uint16_t)(a + 1), exp_bits, frac_bits)) / 2);
        assert_int_equal(narrow(mid), a & 1 ? a + 1 : a);
        assert_int_equal(narrow(-mid), (a & 1 ? a + 1 : a) | 0x8000);
        assert_int_equal(narrow(nextafterf(mid, 0)), a);
        assert_int_equal(narrow(nextafterf(mid, INFINITY)), a + 1);
    }
    assert_true(isinf(widen(inf)) && widen(inf | 0x8000) < 0);
    assert_int_equal(narrow(INFINITY), inf);
    for (uint32_t h = inf + 1u; h < 0x8000; h++) { /* NaN stays NaN, with its sign */
        assert_true(isnan(widen((uint16_t)h)));
        assert_true(isnan(widen(narrow(widen((uint16_t)h)))));
        assert_int_equal(narrow(widen((uint16_t)(h | 0x8000))) & 0x8000, 0x8000);
    }
    const uint32_t low_nan = 0x7F800001; /* its fraction vanishes when cut */
    float f;
    memcpy(&f, &low_nan, 4);
    assert_true(isnan(widen(narrow(f))));
    assert_int_equal(narrow(FLT_MAX), inf);
    assert_int_equal(narrow(FLT_TRUE_MIN), 0);
}

static void half(void **state)
{
    (void)state;
    check_16(wf_half_to_float, wf_float_to_half, 5, 10);
}

static void bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7F80; h++)
        assert_true((double)wf_bf16_to_float((uint16_t)h) == value_of((uint16_t)h, 8, 7));
    check_16(wf_bf16_to_float, wf_float_to_bf16, 8, 7);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void table(void **state)
{
    (void)state;
    for (int t = 0; t < WF_N_DTYPES; t++) {
        uint32_t block, bytes;
        assert_int_equal(wf_dtype_of_ggml(wf_dtypes[t].ggml), t);
        assert_string_equal(wf_ggml_type_name(wf_dtypes[t].ggml), wf_dtypes[t].name);
        assert_true(wf_ggml_type_size(wf_dtypes[t].ggml, &block, &bytes));
        assert_int_equal(block, wf_dtypes[t].block);
        assert_int_equal(bytes, wf_dtypes[t].block_bytes);
        assert_true(!wf_dtypes[t].decode == !wf_dtypes[t].encode);
        assert_int_equal(wf_dtype_bytes(t, 512), 512 / block * bytes);
    }
    assert_true(wf_dtype_bytes(WF_Q4_0, (uint64_t)1 << 40) == ((uint64_t)1 << 35) * 18);
    assert_int_equal(wf_dtype_of_ggml(12), -1);
    assert_int_equal(wf_dtype_of_ggml(0xFFFFFFFF), -1);
    assert_string_equal(wf_ggml_type_name(999), "unknown");
}

/* Name, block and bytes of all types as ggml 0.9 reports them. */
static void all_types(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t block, bytes;
    } want[] = {
        {"F32", 1, 4},        {"F16", 1, 2},        {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
        {"Q4_2", 0, 0},       {"Q4_3", 0, 0},       {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
        {"Q8_0", 32, 34},     {"Q8_1", 32, 36},     {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
        {"Q4_K", 256, 144},   {"Q5_K", 256, 176},   {"Q6_K", 256, 210},   {"Q8_K", 256, 292},
        {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},  {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
        {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110},  {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136},
        {"I8", 1, 1},         {"I16", 1, 2},        {"I32", 1, 4},        {"I64", 1, 8},
        {"F64", 1, 8},        {"IQ1_M", 256, 56},   {"BF16", 1, 2},       {"Q4_0_4_4", 0, 0},
        {"Q4_0_4_8", 0, 0},   {"Q4_0_8_8", 0, 0},   {"TQ1_0", 256, 54},   {"TQ2_0", 256, 66},
        {"IQ4_NL_4_4", 0, 0}, {"IQ4_NL_4_8", 0, 0}, {"IQ4_NL_8_8", 0, 0}, {"MXFP4", 32, 17},
        {"NVFP4", 64, 36},    {"Q1_0", 128, 18},    {"Q2_0", 64, 18},
    };
    for (uint32_t i = 0; i < WF_LEN(want); i++) {
        uint32_t block, bytes;
        assert_string_equal(wf_ggml_type_name(i), want[i].name);
        assert_int_equal(wf_ggml_type_size(i, &block, &bytes), want[i].bytes > 0);
        assert_int_equal(block, want[i].block);
        assert_int_equal(bytes, want[i].bytes);
    }
    uint32_t block, bytes;
    assert_false(wf_ggml_type_size(WF_LEN(want), &block, &bytes));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Bytes 11, 48, 85 ... with the f16 0.0625 as scale; values from ggml's own conversion of these
 * bytes. */
static void pattern(uint8_t *b, size_t n, size_t scale_at)
{
    for (size_t i = 0; i < n; i++) b[i] = (uint8_t)(i * 37 + 11);
    b[scale_at] = 0x00;
    b[scale_at + 1] = 0x2C;
}

static void known_values(void **state)
{
    (void)state;
    static const float q8_0[32] = {5.3125,  7.625,  -6.0625, -3.75, -1.4375, 0.875,  3.1875,  5.5,
                                   7.8125,  -5.875, -3.5625, -1.25, 1.0625,  3.375,  5.6875,  -8.0,
                                   -5.6875, -3.375, -1.0625, 1.25,  3.5625,  5.875,  -7.8125, -5.5,
                                   -3.1875, -0.875, 1.4375,  3.75,  6.0625,  -7.625, -5.3125, -3.0};
    static const float q4_0[32] = {-0.1875, 0.125,   0.4375,  -0.25,   0.0625, 0.375,   -0.3125,
                                   0.0,     0.3125,  -0.375,  -0.0625, 0.25,   -0.4375, -0.125,
                                   0.1875,  -0.5,    -0.1875, -0.0625, 0.0625, 0.25,    0.375,
                                   -0.5,    -0.3125, -0.1875, -0.0625, 0.125,  0.25,    0.375,
                                   -0.4375, -0.3125, -0.1875, 0.0};
    static const float q4_1[32] = {-3.0625, -3.75,   -3.4375, -3.125,  -3.8125, -3.5,    -3.1875, -3.875,
                                   -3.5625, -3.25,   -3.9375, -3.625,  -3.3125, -4.0,    -3.6875, -3.375,
                                   -3.4375, -3.25,   -3.125,  -4.0,    -3.8125, -3.6875, -3.5625, -3.375,
                                   -3.25,   -3.125,  -3.9375, -3.8125, -3.6875, -3.5,    -3.375,  -3.25};
    static const float q6_k[18] = {-89.4375,  -19.875, 15.0,    36.75, -32.625, 59.375,  155.0,
                                   -168.5625, 93.75,   -11.375, -10.5, -45.75,  189.875, 37.8125,
                                   94.5,      44.0625, 8.125,   -3.75}; /* every 15th */
    uint8_t b[210];
    float y[256];
    pattern(b, 34, 0);
    wf_decode_q8_0(b, y, 32);
    assert_memory_equal(y, q8_0, sizeof q8_0);
    pattern(b, 18, 0);
    wf_decode_q4_0(b, y, 32);
    for (int i = 0; i < 32; i++) assert_true(y[i] == q4_0[i]);
    pattern(b, 20, 0);
    b[2] = 0x00, b[3] = 0xC4; /* m: -4 */
    wf_decode_q4_1(b, y, 32);
    for (int i = 0; i < 32; i++) assert_true(y[i] == q4_1[i]);
    pattern(b, 210, 208);
    wf_decode_q6_k(b, y, 256);
    for (int i = 0; i < 18; i++) assert_true(y[i * 15] == q6_k[i]);
}

/* Weights of very different size from block to block, and both signs as the largest. */
static float weight(size_t i)
{
    double scale = exp(8 * wf_random_unit(1, i / 32) - 6);
    return (float)(scale * (2 * wf_random_unit(2, i) - 1));
}

/* Largest error allowed for one weight: half a step of its block, and the step's own rounding. */
static float tolerance(enum wf_dtype t, const float *x, size_t i)
{
    size_t block = wf_dtypes[t].block, group = t == WF_Q6_K ? 16 : block;
    float top = 0, block_top = 0, largest = 0; /* with its sign */
    for (size_t k = i / group * group; k < (i / group + 1) * group; k++)
        if (fabsf(x[k]) > top) top = fabsf(x[k]), largest = x[k];
    for (size_t k = i / block * block; k < (i / block + 1) * block; k++)
        block_top = fmaxf(block_top, fabsf(x[k]));
    switch (t) {
    case WF_F16:
        return fmaxf(fabsf(x[i]) * 0x1p-11f, 0x1p-25f);
    case WF_BF16:
        return fabsf(x[i]) * 0x1p-8f;
    case WF_Q8_0:
        return top / 127 * 0.5f + top * 0x1p-10f + 0x1p-18f;
    case WF_Q4_0:
        return top / 8 * (x[i] * largest > 0 ? 0.5f : 1.0f) + top * 0x1p-10f + 0x1p-21f; /* 8 does not fit on the other side */
    case WF_Q4_1: /* top is at least half of what 15 steps span */
        return top * 2 / 15 * 0.5f + top * 0x1p-9f + 0x1p-20f;
    case WF_Q6_K:
        return top / 32 + block_top / 128 +
               0x1p-12f; /* scales are rounded to 1/128 of the largest */
    default:
        return 0;
    }
}

static void round_trip(void **state)
{
    (void)state;
    enum { N = 256 * 64 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint8_t *b = malloc(N * 4 + 1);
    for (size_t i = 0; i < N; i++) x[i] = weight(i);
    for (int t = 0; t < WF_N_DTYPES; t++) {
        if (!wf_dtypes[t].encode) continue;
        double sum = 0, square = 0;
        wf_dtypes[t].encode(x, b + 1, N); /* no alignment is promised */
        wf_dtypes[t].decode(b + 1, y, N);
        for (size_t i = 0; i < N; i++) {
            float e = fabsf(x[i] - y[i]);
            if (e > tolerance(t, x, i))
                fail_msg("%s: weight %zu is %g, came back as %g", wf_dtypes[t].name, i, x[i], y[i]);
            sum += (double)e * e;
            square += (double)x[i] * x[i];
        }
        static const double limit[WF_N_DTYPES] = {[WF_F16] = 5e-4,
                                                  [WF_BF16] = 3e-3,
                                                  [WF_Q8_0] = 5e-3,
                                                  [WF_Q4_0] = 8e-2,
                                                  [WF_Q4_1] = 8e-2,
                                                  [WF_Q6_K] = 2e-2};
        assert_true(sqrt(sum / square) <= limit[t]);
        /* What came back is representable: encoding it again changes at most the last bit of a
         * scale. */
        wf_dtypes[t].encode(y, b + 1, N);
        wf_dtypes[t].decode(b + 1, x, N);
        for (size_t i = 0; i < N; i++) assert_true(fabsf(x[i] - y[i]) <= tolerance(t, y, i));
        for (size_t i = 0; i < N; i++) x[i] = weight(i);
    }
    free(x);
    free(y);
    free(b);
}

static void odd_values(void **state)
{
    (void)state;
    float x[256], y[256];
    uint8_t b[1024];
    static const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, -0.0f};
    for (int t = 0; t < WF_N_DTYPES; t++) {
        if (!wf_dtypes[t].encode) continue;
        memset(x, 0, sizeof x);
        wf_dtypes[t].encode(x, b, 256);
        wf_dtypes[t].decode(b, y, 256);
        for (int i = 0; i < 256; i++) assert_true(y[i] == 0);
        for (size_t k = 0; k < WF_LEN(odd); k++) { /* no trap and no undefined conversion */
            for (int i = 0; i < 256; i++) x[i] = i % 7 ? (float)i : odd[k];
            wf_dtypes[t].encode(x, b, 256);
            wf_dtypes[t].decode(b, y, 256);
        }
        for (int seed = 0; seed < 50; seed++) { /* any bytes decode */
            for (size_t i = 0; i < sizeof b; i++) b[i] = (uint8_t)wf_random((uint64_t)seed, i);
            wf_dtypes[t].decode(b, y, 256);
        }
        wf_dtypes[t].encode(x, b, 0);
        wf_dtypes[t].decode(b, y, 0);
    }
    assert_int_equal(wf_round_clamp(2.5f, -8, 8), 2);
    assert_int_equal(wf_round_clamp(-3.5f, -8, 8), -4);
    assert_int_equal(wf_round_clamp(1e30f, -8, 8), 8);
    assert_int_equal(wf_round_clamp(-INFINITY, -8, 8), -8);
    assert_int_equal(wf_round_clamp(NAN, -8, 8), -8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half),       cmocka_unit_test(bf16),         cmocka_unit_test(table),
        cmocka_unit_test(all_types),  cmocka_unit_test(known_values), cmocka_unit_test(round_trip),
        cmocka_unit_test(odd_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
