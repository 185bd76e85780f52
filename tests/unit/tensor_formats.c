/* tensor_formats: 16-bit floats at every boundary, and the block formats against their definition.
 */
#include "support/suite.h"
#include "cl/kernels/fragment_bytes.clh"
#include "tensor/joint.h"
#include "tensor/kv.h"

#include <float.h>
#include <math.h>

/* ---- 16-bit floats --------------------------------------------------------------------------- */

/* By the definition of the format, in double. */
static double value_of(uint16_t h, int exp_bits, int frac_bits)
{
    int bias = (1 << (exp_bits - 1)) - 1, exp = h >> frac_bits & ((1 << exp_bits) - 1);
    double frac = (double)(h & ((1 << frac_bits) - 1)) / (1 << frac_bits);
    double v = exp ? ldexp(1 + frac, exp - bias) : ldexp(frac, 1 - bias);
    return h & 0x8000 ? -v : v;
}

static void check_16(float (*widen)(uint16_t), uint16_t (*narrow)(float), int exp_bits, int frac_bits)
{
    const uint16_t inf = (uint16_t)(((1 << exp_bits) - 1) << frac_bits);
    for (uint32_t h = 0; h <= inf; h++) {
        uint16_t a = (uint16_t)h;
        double v = value_of(a, exp_bits, frac_bits); /* of infinity: the next power of two */
        if (a < inf) assert_true((double)widen(a) == v && (double)widen(a | 0x8000) == -v);
        assert_int_equal(narrow(widen(a)), a);
        assert_int_equal(narrow(widen(a | 0x8000)), a | 0x8000);
        if (a == inf) break;
        /* The middle to the next value goes to the even one; the floats beside it to their own side. */
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
    check_16(wf_half_to_float, wf_float_to_half, 5, 10);
}

static void bf16(void **state)
{
    for (uint32_t h = 0; h < 0x7F80; h++)
        assert_true((double)wf_bf16_to_float((uint16_t)h) == value_of((uint16_t)h, 8, 7));
    check_16(wf_bf16_to_float, wf_float_to_bf16, 8, 7);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void table(void **state)
{
    for (int t = 0; t < WF_N_DTYPES; t++) {
        uint32_t block, bytes;
        if (wf_dtypes[t].ggml == WF_NO_GGML) continue;
        assert_int_equal(wf_dtype_of_ggml(wf_dtypes[t].ggml), t);
        assert_string_equal(wf_ggml_type_name(wf_dtypes[t].ggml), wf_dtypes[t].name);
        assert_true(wf_ggml_type_size(wf_dtypes[t].ggml, &block, &bytes));
        assert_int_equal(block, wf_dtypes[t].block);
        assert_int_equal(bytes, wf_dtypes[t].block_bytes);
        assert_true(!wf_dtypes[t].decode == !wf_dtypes[t].encode);
        assert_int_equal(wf_dtype_bytes(t, 512), 512 / block * bytes);
    }
    assert_true(wf_dtype_bytes(WF_Q4_0, (uint64_t)1 << 40) == ((uint64_t)1 << 35) * 18);
    assert_int_equal(wf_dtype_of_ggml(15), -1);
    assert_int_equal(wf_dtype_of_ggml(0xFFFFFFFF), -1);
    assert_string_equal(wf_ggml_type_name(999), "unknown");
}

/* Name, block and bytes of all types as ggml 0.9 reports them. */
static void all_types(void **state)
{
    static const struct {
        const char *name;
        uint32_t block, bytes;
    } want[] = {
        {"F32", 1, 4},      {"F16", 1, 2},        {"Q4_0", 32, 18},     {"Q4_1", 32, 20},     {"Q4_2", 0, 0},
        {"Q4_3", 0, 0},     {"Q5_0", 32, 22},     {"Q5_1", 32, 24},     {"Q8_0", 32, 34},     {"Q8_1", 32, 36},
        {"Q2_K", 256, 84},  {"Q3_K", 256, 110},   {"Q4_K", 256, 144},   {"Q5_K", 256, 176},   {"Q6_K", 256, 210},
        {"Q8_K", 256, 292}, {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},  {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
        {"IQ4_NL", 32, 18}, {"IQ3_S", 256, 110},  {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136}, {"I8", 1, 1},
        {"I16", 1, 2},      {"I32", 1, 4},        {"I64", 1, 8},        {"F64", 1, 8},        {"IQ1_M", 256, 56},
        {"BF16", 1, 2},     {"Q4_0_4_4", 0, 0},   {"Q4_0_4_8", 0, 0},   {"Q4_0_8_8", 0, 0},   {"TQ1_0", 256, 54},
        {"TQ2_0", 256, 66}, {"IQ4_NL_4_4", 0, 0}, {"IQ4_NL_4_8", 0, 0}, {"IQ4_NL_8_8", 0, 0}, {"MXFP4", 32, 17},
        {"NVFP4", 64, 36},  {"Q1_0", 128, 18},    {"Q2_0", 64, 18},
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

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

/* 256 weights as numbers, whose scales and minimums F16 has rounded. */
static void assert_numbers(enum wf_dtype t, const wf_numbers *f, const uint8_t *b, const float *want)
{
    wf_numbers64 w;
    for (uint32_t i = 0; i < 256; i++) {
        if (i % 64 == 0) f->take(b, i, &w);
        const uint32_t g = i % 64 / f->group, q = w.q[i % 64],
                       code = f->codes ? FRAGMENT_TABLE(f->codes, q / 4) >> q % 4 * 8 & 255 : q;
        const float number = (float)((int)code - f->zero), min = f->min ? wf_half_to_float(w.min[g]) : 0,
                    x = number * wf_half_to_float(w.scale[g]);
        const float rounded = 0x1p-11f * (fabsf(x) + fabsf(min)) + 0x1p-25f * (fabsf(number) + 1);
        if (isfinite(x) && !(fabsf(x + min - want[i]) <= rounded))
            fail_msg("%s: weight %u is %a, by numbers %a", wf_dtypes[t].name, i, want[i], x + min);
    }
}

/* Every bit of the values that ggml's own package gives the same bytes (by their digest:
 * format_blocks.py has the values). */
static void known_values(void **state)
{
    static const struct known {
        enum wf_dtype t;
        const char *block;
        uint64_t fnv;
    } known[] = {
#define X(id, block, fnv) {WF_##id, block, fnv},
#include "unit/format_blocks.def"
#undef X
    };
    bool met[WF_N_DTYPES] = {0};
    for (size_t k = 0; k < WF_LEN(known); k++) {
        uint8_t b[256 * 4];
        uint64_t fnv = 0xcbf29ce484222325u;
        float y[256];
        enum wf_dtype t = known[k].t;
        assert_int_equal(from_hex(known[k].block, b), wf_dtype_bytes(t, 256));
        wf_dtypes[t].decode(b, y, 256);
        for (size_t i = 0; i < sizeof y; i++) fnv = (fnv ^ ((const uint8_t *)y)[i]) * 0x100000001b3u;
        if (fnv != known[k].fnv) fail_msg("%s: other values", wf_dtypes[t].name);
        if (wf_numbers_of(t)) assert_numbers(t, wf_numbers_of(t), b, y);
        met[t] = true;
    }
    for (int t = 0; t < WF_N_WEIGHT_DTYPES; t++)
        if (wf_dtypes[t].block > 1 && !met[t] && wf_dtypes[t].ggml != WF_NO_GGML)
            fail_msg("no known values of %s", wf_dtypes[t].name);
}

/* Weights of very different size from block to block, and both signs as the largest. */
static float weight(size_t i)
{
    double scale = exp(8 * wf_random_unit(1, i / 32) - 6);
    return (float)(scale * (2 * wf_random_unit(2, i) - 1));
}

static const struct bounds {
    double step, away, group, block, least, mean;
} bounds[WF_N_DTYPES] = {
#define FORMAT(format, ...) [WF_##format] = {__VA_ARGS__},
#include "verify/tolerances.def"
};

/* Weights that share a scale. */
static size_t group_of(enum wf_dtype t)
{
    switch (t) {
    case WF_Q2_K: case WF_Q3_K: case WF_Q6_K: case WF_K6: case WF_IQ2_XS: case WF_IQ2_S: return 16;
    default: return WF_MIN(wf_dtypes[t].block, 32u);
    }
}

/* Largest error allowed for one weight. */
static double tolerance(enum wf_dtype t, const float *x, size_t i)
{
    const struct bounds *a = &bounds[t];
    size_t block = wf_dtypes[t].block, group = group_of(t);
    float top = 0, block_top = 0, largest = 0; /* with its sign */
    for (size_t k = i / group * group; k < (i / group + 1) * group; k++)
        if (fabsf(x[k]) > top) top = fabsf(x[k]), largest = x[k];
    for (size_t k = i / block * block; k < (i / block + 1) * block; k++) block_top = fmaxf(block_top, fabsf(x[k]));
    double step = top * (x[i] * largest > 0 ? a->step : a->away);
    return block == 1 ? fmax(step, a->least) : step + top * a->group + block_top * a->block + a->least;
}

static void round_trip(void **state)
{
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
        if (sqrt(sum / square) > bounds[t].mean) fail_msg("%s: rms error %g", wf_dtypes[t].name, sqrt(sum / square));
        /* What came back is representable: encoding it again changes at most the last bit of a scale. */
        wf_dtypes[t].encode(y, b + 1, N);
        wf_dtypes[t].decode(b + 1, x, N);
        for (size_t i = 0; i < N; i++) assert_true(fabsf(x[i] - y[i]) <= tolerance(t, y, i));
        for (size_t i = 0; i < N; i++) x[i] = weight(i);
    }
    free(x);
    free(y);
    free(b);
}

/* A joint format says of each weight exactly what its format's numbers say once its scales are F16, and what the format
 * says within that rounding. */
static void assert_holds(enum wf_dtype joint, enum wf_dtype t)
{
    enum { N = 256 * 64 };
    const wf_numbers *f = wf_numbers_of(t);
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint8_t *b = malloc(N * 4), *held = malloc(wf_dtype_bytes(joint, N));
    for (size_t i = 0; i < N; i++) x[i] = (float)(2 * wf_random_unit(2, i) - 1);
    wf_dtypes[t].encode(x, b, N);
    wf_dtypes[t].decode(b, x, N);
    wf_joint_from(t, b, joint, held, N);
    wf_dtypes[joint].decode(held, y, N);
    for (size_t k = 0; k < N; k += 64) {
        wf_numbers64 w;
        f->take(b, (uint32_t)k, &w);
        for (size_t i = 0; i < 64; i++) {
            float scale = wf_half_to_float(w.scale[i / f->group]),
                  min = f->min ? wf_half_to_float(w.min[i / f->group]) : 0;
            if (y[k + i] != scale * ((float)w.q[i] - f->zero) + min)
                fail_msg("%s in %s: weight %zu is %a", wf_dtypes[t].name, wf_dtypes[joint].name, k + i, y[k + i]);
            assert_true(fabsf(y[k + i] - x[k + i]) <=
                        bounds[joint].group *
                            (fabsf(scale) * (float)((1 << wf_numbers_of(joint)->bits) - 1) + fabsf(min)));
        }
    }
    free(x), free(y), free(b), free(held);
}

/* The format of all three; WF_N_DTYPES: there is none. */
static enum wf_dtype joint_of(enum wf_dtype a, enum wf_dtype b, enum wf_dtype c)
{
    wf_joint j = wf_joint_of(a);
    return wf_joint_add(&j, b) && wf_joint_add(&j, c) ? j.dtype : WF_N_DTYPES;
}

static void assert_joint(enum wf_dtype a, enum wf_dtype b, enum wf_dtype c, enum wf_dtype dtype)
{
    const enum wf_dtype of[] = {joint_of(a, b, c), joint_of(a, c, b), joint_of(b, a, c),
                                joint_of(b, c, a), joint_of(c, a, b), joint_of(c, b, a)};
    for (size_t i = 0; i < WF_LEN(of); i++) assert_int_equal(of[i], dtype);
}

static void joint_formats_hold_others(void **state)
{
    static const enum wf_dtype six[] = {WF_Q4_0, WF_Q4_1, WF_Q5_0, WF_Q5_1, WF_Q2_K,
                                        WF_Q3_K, WF_Q4_K, WF_Q5_K, WF_Q6_K};
    for (size_t i = 0; i < WF_LEN(six); i++) {
        bool narrow = wf_numbers_of(six[i])->group == 32;
        assert_holds(WF_K6, six[i]);
        if (narrow) assert_holds(WF_K8, six[i]);
        assert_joint(six[i], six[i], six[(i + 1) % WF_LEN(six)], WF_K6);
        assert_joint(six[i], six[i], WF_Q8_0, narrow ? WF_K8 : WF_N_DTYPES);
        if (six[i] != WF_Q4_0) assert_joint(six[i], WF_Q4_0, WF_Q8_0, narrow ? WF_K8 : WF_N_DTYPES);
    }
    assert_holds(WF_K8, WF_Q8_0);
    assert_joint(WF_Q8_0, WF_Q8_0, WF_Q8_0, WF_Q8_0);
    assert_joint(WF_F16, WF_F16, WF_F16, WF_F16);
    assert_joint(WF_Q8_0, WF_Q8_0, WF_F16, WF_N_DTYPES);
    assert_joint(WF_Q4_0, WF_Q4_0, WF_MXFP4, WF_N_DTYPES);
    assert_joint(WF_IQ3_S, WF_IQ3_S, WF_IQ2_S, WF_N_DTYPES);
}

/* Scales of MXFP4 are powers of two: exact where F16 has them, zero below, and infinite above. */
static void scales_of_mxfp4(void **state)
{
    uint8_t blocks[34] = {0};
    for (int e = 0; e < 256; e++) {
        wf_numbers64 w;
        float want = e < 104 ? 0 : e > 143 ? INFINITY : ldexpf(1, e - 128);
        blocks[0] = blocks[17] = (uint8_t)e;
        wf_numbers_of(WF_MXFP4)->take(blocks, 0, &w);
        for (int g = 0; g < 2; g++)
            if (wf_half_to_float(w.scale[g]) != want)
                fail_msg("exponent %d: scale %a", e, wf_half_to_float(w.scale[g]));
    }
}

static void odd_values(void **state)
{
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

/* The same numbers as of Q8_0 in a file, but that bytes and scales lie apart, and that a number which is not finite
 * shows. */
static void pages_of_keys(void **state)
{
    enum { COLS = 128, AT = 32, N = 64 };
    uint8_t page[COLS / 32 * 34], blocks[N / 32 * 34];
    float x[N], y[N], want[N];
    (void)state;
    memset(page, 0xAA, sizeof page);
    for (int i = 0; i < N; i++) x[i] = (float)(i * i % 71) - 35 + (float)(i / 32) * 100;
    wf_kv_store(WF_Q8_0, page, COLS, AT, x, N);
    wf_kv_load(WF_Q8_0, page, COLS, AT, y, N);
    wf_encode_q8_0(x, blocks, N);
    wf_decode_q8_0(blocks, want, N);
    assert_memory_equal(y, want, sizeof y);
    for (int i = 0; i < AT; i++) assert_int_equal(page[i], 0xAA);
    for (int i = AT + N; i < COLS; i++) assert_int_equal(page[i], 0xAA);
    assert_int_equal(*wf_kv_scales(page, COLS, 0), 0xAAAA);
    assert_int_equal(*wf_kv_scales(page, COLS, AT + N), 0xAAAA);
    x[3] = INFINITY, x[40] = NAN;
    wf_kv_store(WF_Q8_0, page, COLS, AT, x, N);
    wf_kv_load(WF_Q8_0, page, COLS, AT, y, N);
    for (int i = 0; i < N; i++) assert_true(isnan(y[i]));
}

SUITE(tensor_formats, NULL, NULL, CASE(half), CASE(bf16), CASE(table), CASE(all_types), CASE(known_values),
      CASE(round_trip), CASE(joint_formats_hold_others), CASE(scales_of_mxfp4), CASE(odd_values), CASE(pages_of_keys))
