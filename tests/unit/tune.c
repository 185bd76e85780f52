/* What is measured is what was asked for: operands of the right shape, in the device's layout, and
 * another copy of the weights or pages with each launch. */
#include "support/null_device.h"
#include "lab/measure.h"
#include "support/suite.h"
#include "support/wraps.h"

#define MAX_SEEN 4096

/* Where the operand that rotates lay, launch by launch. */
static struct {
    int slot;
    uint32_t n;
    uint64_t at[MAX_SEEN];
    uint64_t first_ns; /* that the first launch takes */
} seen;

/* ---- time, which passes faster where a kernel takes long ---------------------------------------- */

static weft_status look(const wf_call *c)
{
    const wf_view *v = &c->in[seen.slot];
    if (!seen.n) test_clock_ahead += seen.first_ns;
    if (seen.n < MAX_SEEN) seen.at[seen.n] = (uint64_t)(uintptr_t)v->buf->host + v->offset;
    seen.n++;
    return WEFT_OK;
}

typedef struct fixture {
    wf_dev *dev;
    wf_queue *q;
} fixture;

static int setup(void **state)
{
    static fixture f;
    wf_open_params p = {.max_alloc = 1 << 20};
    wf_null_configure(&(wf_null_config){.compute = look});
    memset(&seen, 0, sizeof seen);
    *state = &f;
    return wf_dev_open("null", &p, &f.dev) || wf_queue_create(f.dev, &f.q);
}

static int teardown(void **state)
{
    fixture *f = *state;
    wf_queue_destroy(f->q);
    wf_dev_close(f->dev);
    bool clean = !wf_null_alive();
    wf_null_configure(NULL);
    return !clean;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The first `copies` launches have an operand each, `step` bytes apart at least, and then it begins anew. */
static void assert_rotated(uint32_t copies, uint64_t step)
{
    uint64_t first[MAX_SEEN];
    assert_true(copies > 1 && 2 * copies <= seen.n && copies <= MAX_SEEN / 2);
    for (uint32_t i = 0; i < copies; i++) assert_int_equal(seen.at[i], seen.at[i + copies]);
    memcpy(first, seen.at, copies * sizeof *first);
    qsort(first, copies, sizeof *first, by_value);
    for (uint32_t i = 1; i < copies; i++) assert_true(first[i] - first[i - 1] >= step);
}

static void weights_rotate(void **state)
{
    fixture *f = *state;
    wf_shape s = {.op = WF_TUNED_GEMM, .dtype = WF_Q8_0, .m = 3, .n = 100, .k = 64};
    uint64_t bytes = wf_dtype_bytes(WF_Q8_0, 6400), rotate = 3 << 20; /* in several buffers */
    wf_problem p;
    double ns = 0;
    assert_ok(wf_problem_create(f->dev, f->q, &s, rotate, &p));
    assert_true(p.copies * bytes >= rotate);
    assert_int_equal(p.call.in[WF_GEMM_W].rows, 100);
    assert_int_equal(p.call.in[WF_GEMM_X].rows, 3);
    seen.slot = 1;
    assert_ok(wf_clock_variant(&p, 0, &(wf_clock){.repeat = 1}, &ns));
    assert_true(ns > 0);
    assert_rotated(p.copies, bytes);
    assert_ok(wf_problem_rows(&p, 7));
    assert_int_equal(p.call.in[WF_GEMM_X].rows, 7);
    assert_int_equal(p.call.out[WF_GEMM_Y].cols, 100);
    wf_problem_destroy(&p);
}

/* Drivers load a program at its first launch. What follows is measured by many launches at a time, not one by one. */
static void a_slow_first_launch_is_no_estimate(void **state)
{
    fixture *f = *state;
    wf_shape s = {.op = WF_TUNED_GEMM, .dtype = WF_Q8_0, .m = 3, .n = 100, .k = 64};
    wf_problem p;
    double ns = 0;
    assert_ok(wf_problem_create(f->dev, f->q, &s, 1 << 20, &p));
    seen.slot = 1;
    seen.first_ns = 80000000;
    assert_ok(wf_clock_variant(&p, 0, &(wf_clock){.repeat = 5}, &ns));
    assert_true(seen.n > 100);
    wf_problem_destroy(&p);
}

/* ---- which kernel is the fastest ----------------------------------------------------------- */

static const uint64_t *takes; /* nanoseconds of each launch, one after the other */

static weft_status take_time(const wf_call *c)
{
    test_clock_ahead += takes[seen.n++];
    return WEFT_OK;
}

/* The first two launches tell that one is enough for a sample. */
static void the_median_counts(void **state)
{
    fixture *f = *state;
    static const uint64_t ns[] = {60000000, 60000000, 4000000000, 100000000, 1000000000, 100000000, 4000000000};
    wf_shape s = {.op = WF_TUNED_GEMM, .dtype = WF_Q8_0, .m = 3, .n = 100, .k = 64};
    wf_problem p;
    double measured = 0;
    assert_ok(wf_problem_create(f->dev, f->q, &s, 1 << 20, &p));
    takes = ns;
    wf_null_configure(&(wf_null_config){.compute = take_time});
    assert_ok(wf_clock_variant(&p, 0, &(wf_clock){.repeat = 5}, &measured));
    assert_int_equal(seen.n, WF_LEN(ns));
    assert_true(measured >= 1e9 && measured < 1.5e9);
    wf_problem_destroy(&p);
}

static uint32_t runs[3]; /* of each variant */

static float *at(const wf_view *v, uint32_t row)
{
    return (float *)(void *)((char *)v->buf->host + v->offset) + (size_t)row * v->stride;
}

/* A product; the later variants are faster. */
static weft_status product(const wf_call *c)
{
    static const uint64_t ns[] = {90000000, 70000000, 50000000};
    for (uint32_t r = 0; r < c->out[WF_GEMM_Y].rows; r++)
        for (uint32_t n = 0; n < c->out[WF_GEMM_Y].cols; n++) {
            float sum = 0;
            for (uint32_t i = 0; i < c->in[WF_GEMM_X].cols; i++)
                sum += at(&c->in[WF_GEMM_X], r)[i] * at(&c->in[WF_GEMM_W], n)[i];
            at(&c->out[WF_GEMM_Y], r)[n] = sum;
        }
    runs[c->variant]++;
    test_clock_ahead += ns[c->variant];
    return WEFT_OK;
}

/* Which variant the tuned file names for a small product, with these flags of the fastest. */
static void tune(uint8_t flags, const char *name)
{
    char path[] = "/tmp/weft-tune-XXXXXX", text[4096] = "";
    const char *const shapes[] = {"N=8,K=32"};
    const struct weft_tune_params p = {
        .device = "null", .shapes = shapes, .n_shapes = 1, .dtypes = "F32", .max_size = 2, .rotate = 1, .path = path};
    close(mkstemp(path));
    unlink(path);
    memset(runs, 0, sizeof runs);
    wf_null_configure(&(wf_null_config){.compute = product, .variants = 3, .flags = {0, 0, flags}});
    assert_ok(weft_tune(&p, NULL, 0));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    if (!strstr(text, name)) fail_msg("%s is not in %s", name, text);
    unlink(path);
}

/* Plain loops for comparison are not even measured; what runs on request alone, or has a fast rival, is. */
static void which_kernels_are_tried(void **state)
{
    tune(0, ":null3\n");
    tune(WF_ON_REQUEST, ":null3\n");
    tune(WF_REFERENCE, ":null2\n");
    assert_int_equal(runs[2], 0);
}

/* ---- runs that are ended ------------------------------------------------------------------ */

enum { SHAPES = 3 };

static bool at_once(void *user)
{
    return true;
}

/* Which of the shapes the file has; bit i: N = 8 + i. */
static uint32_t kept_in(const char *path)
{
    char text[4096] = "", name[16];
    uint32_t kept = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    for (uint32_t i = 0; i < SHAPES; i++) {
        snprintf(name, sizeof name, "N=%u,", 8 + i);
        if (strstr(text, name)) kept |= 1u << i;
    }
    return kept;
}

/* A shape takes more than a second here, so that in a second one is measured, and each run begins with one that the
 * file lacks. */
static void a_run_goes_on_from_the_last(void **state)
{
    char path[] = "/tmp/weft-tune-XXXXXX";
    const char *const shapes[SHAPES] = {"N=8,K=32", "N=9,K=32", "N=10,K=32"};
    uint64_t left;
    struct weft_tune_params p = {.device = "null", .shapes = shapes, .n_shapes = SHAPES, .dtypes = "F32", .max_size = 4,
                                 .rotate = 1, .path = path, .left = &left};
    close(mkstemp(path));
    unlink(path);
    wf_null_configure(&(wf_null_config){.compute = product, .variants = 3});
    p.seconds = 1;
    for (uint32_t run = 0; run < SHAPES; run++) {
        assert_ok(weft_tune(&p, NULL, 0));
        assert_int_equal(left, SHAPES - 1);
        assert_int_equal(kept_in(path), (2u << run) - 1);
    }
    p.stop = at_once;
    assert_ok(weft_tune(&p, NULL, 0));
    assert_int_equal(left, SHAPES);
    assert_int_equal(kept_in(path), (1u << SHAPES) - 1);
    p.stop = NULL, p.seconds = 0;
    assert_ok(weft_tune(&p, NULL, 0));
    assert_int_equal(left, 0);
    unlink(path);
}

/* ---- a device with a layout of its own: every byte is one more than in the file ----------- */

enum { LAYOUT = 5, HEAD = 64 };

static uint8_t layout_of(wf_dev *d, enum wf_dtype t, uint32_t rows, uint32_t cols)
{
    return LAYOUT;
}

/* The kernel that reads it. */
static size_t variants(wf_dev *d, enum wf_op op, const wf_variant **list)
{
    static const wf_variant only[] = {{.name = "plus one", .layouts = 1u << LAYOUT}};
    *list = only;
    return 1;
}

static uint64_t packed_bytes(wf_dev *d, uint8_t layout, enum wf_dtype t, uint32_t rows, uint32_t cols)
{
    return layout == LAYOUT ? HEAD + wf_dtype_bytes(t, (uint64_t)rows * cols) : 0;
}

static void pack(wf_dev *d, uint8_t layout, enum wf_dtype t, uint32_t rows, uint32_t cols, const void *src, void *dst)
{
    uint64_t n = wf_dtype_bytes(t, (uint64_t)rows * cols);
    memset(dst, 0xAB, HEAD);
    for (uint64_t i = 0; i < n; i++) ((uint8_t *)dst)[HEAD + i] = (uint8_t)(((const uint8_t *)src)[i] + 1);
}

static void weights_are_packed(void **state)
{
    fixture *f = *state;
    const wf_dev_fns *old = f->dev->fns;
    wf_dev_fns fns = *old;
    wf_shape s = {.op = WF_TUNED_GEMM, .dtype = WF_F16, .m = 1, .n = 40, .k = 64};
    wf_problem p;
    fns.variants = variants;
    fns.weight_layout = layout_of;
    fns.weight_bytes = packed_bytes;
    fns.weight_pack = pack;
    f->dev->fns = &fns;
    assert_ok(wf_problem_create(f->dev, f->q, &s, 100000, &p));
    for (uint32_t i = 0; i < p.copies; i++) {
        uint32_t zeros = 0;
        const uint8_t *at = (const uint8_t *)p.copy[i].buf->host + p.copy[i].offset;
        assert_int_equal(p.copy[i].layout, LAYOUT);
        for (int k = 0; k < HEAD; k++) assert_int_equal(at[k], 0xAB);
        for (uint32_t k = 0; k < 40 * 64; k++) {
            uint16_t half = (uint16_t)((uint8_t)(at[HEAD + 2 * k] - 1) | (uint8_t)(at[HEAD + 2 * k + 1] - 1) << 8);
            assert_true(wf_half_to_float(half) >= -0.125f && wf_half_to_float(half) <= 0.125f); /* 1 / sqrt(K) */
            zeros += half == 0;
        }
        assert_true(zeros < 10); /* random, not left out */
    }
    wf_problem_destroy(&p);
    f->dev->fns = old;
}

/* ---- attention ---------------------------------------------------------------------------- */

static const int32_t *ints(const wf_view *v)
{
    return (const int32_t *)((const uint8_t *)v->buf->host + v->offset);
}

static void pages_rotate(void **state)
{
    fixture *f = *state;
    wf_shape s = {.op = WF_TUNED_DECODE, .dtype = WF_F16, .seqs = 3, .length = 40, .n_head = 4, .n_kv_head = 2,
                  .head_dim = 8};
    wf_problem p;
    double ns;
    uint8_t used[MAX_SEEN] = {0};
    assert_ok(wf_problem_create(f->dev, f->q, &s, 100000, &p));
    uint32_t pages = 3 * 3, all = p.call.in[WF_ATTENTION_K_POOL].rows;
    assert_int_equal(all, p.copies * pages);
    assert_true(all * 16ull * 2 * 8 * 4 >= 100000 && all <= MAX_SEEN);
    for (uint32_t i = 0; i < p.copies; i++)
        for (uint32_t k = 0; k < pages; k++) {
            int32_t page = ints(&p.copy[i])[k];
            assert_in_range(page, 0, all - 1);
            assert_int_equal(used[page]++, 0); /* each page is of one sequence */
        }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ints(&p.call.in[WF_ATTENTION_SEQ])[i], i);
        assert_int_equal(ints(&p.call.in[WF_ATTENTION_POS])[i], 39);
        assert_int_equal(ints(&p.call.in[WF_ATTENTION_INDPTR])[i + 1], 3 * (i + 1));
    }
    assert_int_equal(p.call.p.max_q, 1);
    assert_int_equal(p.call.p.max_kv, 40);
    seen.slot = 6;
    assert_ok(wf_clock_variant(&p, 0, &(wf_clock){.repeat = 1}, &ns));
    assert_rotated(p.copies, pages * 4);
    wf_problem_destroy(&p);
}

static void prompts_are_causal(void **state)
{
    fixture *f = *state;
    wf_shape s = {.op = WF_TUNED_PREFILL, .async = true, .dtype = WF_F16, .seqs = 2, .length = 20, .n_head = 4,
                  .n_kv_head = 2, .head_dim = 8};
    wf_problem p;
    assert_ok(wf_problem_create(f->dev, f->q, &s, 1, &p));
    assert_int_equal(p.call.in[WF_ATTENTION_Q].rows, 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(ints(&p.call.in[WF_ATTENTION_SEQ])[i], i / 20);
        assert_int_equal(ints(&p.call.in[WF_ATTENTION_POS])[i], i % 20);
    }
    assert_true(p.call.p.phi_lo < p.call.p.phi_hi);
    assert_true(wf_shape_flops(&s) == 4.0 * 4 * 8 * 2 * 210);
    wf_problem_destroy(&p);
}

/* What does not fit is said, and nothing is left behind (teardown looks). */
static void too_large(void **state)
{
    fixture *f = *state;
    wf_shape s = {.op = WF_TUNED_GEMM, .dtype = WF_F32, .m = 1, .n = 1024, .k = 1024}; /* 4 MiB; buffers have 1 */
    wf_problem p;
    assert_int_equal(wf_problem_create(f->dev, f->q, &s, 1, &p), WEFT_ERR_NOMEM);
    s = (wf_shape){.op = WF_TUNED_DECODE, .dtype = WF_F16, .seqs = 1, .length = 1 << 20, .n_head = 8, .n_kv_head = 8,
                   .head_dim = 128};
    assert_int_equal(wf_problem_create(f->dev, f->q, &s, 1, &p), WEFT_ERR_NOMEM);
    s.seqs = 1 << 20;
    assert_int_equal(wf_problem_create(f->dev, f->q, &s, 1, &p), WEFT_ERR_ARG);
}

/* ---- rows of a step ----------------------------------------------------------------------- */

/* Times of two products for 1, 2, ... up to `most` rows, by a law of how a device behaves. */
static wf_step_times steps(double (*ns)(double rows), uint32_t most)
{
    wf_step_times t = {0};
    for (uint32_t rows = 1; rows <= most; rows *= 2) {
        wf_step_times_add(&t, rows, 0.25 * ns(rows));
        wf_step_times_add(&t, rows, 0.75 * ns(rows));
    }
    return t;
}

static double until_512(double rows) /* reading the weights, up to there */ { return 1000 * (rows < 512 ? 512 : rows); }

static double until_16(double rows)
{
    return rows < 16 ? 16 : rows;
}

static double creeping(double rows) /* rates: 0.780 at 1024, 0.877 at 2048, 0.934 at 4096 */ { return 288 + rows; }

static double steep_end(double rows) /* cache misses from 1024 on: half the rate of 512 */
{
    return rows <= 512 ? until_512(rows) : 2000 * rows;
}

/* The fewest rows that come within 8 % of the highest rate; at least 128. */
static void rows_of_a_step(void **state)
{
    static const struct {
        double (*ns)(double);
        uint32_t most, want;
    } cases[] = {
        {until_512, 2048, 512}, {until_512, 512, 512},   {until_512, 256, 256},  {until_16, 2048, 128},
        {creeping, 4096, 2048}, {creeping, 2048, 2048},  {steep_end, 4096, 512}, {until_16, 128, 128},
        {until_16, 64, 0}, /* too few sizes to tell */
    };
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_step_times t = steps(cases[i].ns, cases[i].most);
        uint32_t got = wf_dense_batch(&t);
        if (got != cases[i].want) fail_msg("case %zu: %u rows, not %u", i, got, cases[i].want);
    }
    wf_step_times none = {0};
    assert_int_equal(wf_dense_batch(&none), 0);
}

/* Where a product did not fit into memory, the others alone would seem fast. */
static void only_whole_steps_count(void **state)
{
    wf_step_times t = steps(until_512, 256);
    wf_step_times_add(&t, 512, 1);
    assert_int_equal(wf_dense_batch(&t), 256);
    wf_step_times_add(&t, 512, 1);
    assert_int_equal(wf_dense_batch(&t), 512);
}

SUITE_EACH(tune, NULL, NULL, setup, teardown, CASE(weights_rotate), CASE(a_slow_first_launch_is_no_estimate),
           CASE(the_median_counts), CASE(which_kernels_are_tried), CASE(a_run_goes_on_from_the_last),
           CASE(weights_are_packed), CASE(pages_rotate), CASE(prompts_are_causal), CASE(too_large),
           CASE(rows_of_a_step), CASE(only_whole_steps_count))
