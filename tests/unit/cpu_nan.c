/* What is no number: every product of the CPU path keeps it, in its own row alone. */
#include <math.h>

#include "dev/dev.h"
#include "tensor/tensor.h"
#include "support/suite.h"

enum { N = 17, K = 512, M_MAX = 150 };

static wf_dev *dev;
static wf_queue *queue;
static wf_buf *x, *w, *y;

static float *floats(const wf_buf *b)
{
    return b->host;
}

static void draw(float *to, uint32_t n)
{
    static uint32_t state = 1;
    for (uint32_t i = 0; i < n; i++) to[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
}

static void set_weights(uint8_t dtype)
{
    float row[K];
    for (uint32_t n = 0; n < N; n++) {
        draw(row, K);
        wf_dtypes[dtype].encode(row, (char *)w->host + n * wf_dtype_bytes(dtype, K), K);
    }
}

static void run(const wf_call *c)
{
    assert_ok(wf_submit(queue, c));
    assert_ok(wf_finish(queue));
}

/* Element `at` of row `bad` becomes `what`. */
static void check(const wf_call *c, const float *without, uint32_t bad, uint32_t at, float what)
{
    float *element = floats(x) + bad * K + at, before = *element;
    *element = what;
    run(c);
    *element = before;
    for (uint32_t m = 0; m < c->out[WF_GEMM_Y].rows; m++)
        for (uint32_t n = 0; n < N; n++) {
            float got = floats(y)[m * N + n];
            if (m == bad ? isfinite(got) : got != without[m * N + n])
                fail_msg("%s, %s, %u rows: %g in row %u, element %u, gives %g in row %u, column %u",
                         wf_variant_at(dev, WF_OP_GEMM, c->variant)->name, wf_dtypes[c->in[WF_GEMM_W].dtype].name,
                         c->out[WF_GEMM_Y].rows, (double)what, bad, at, (double)got, m, n);
        }
}

static void check_rows(wf_call c, uint32_t rows)
{
    static const uint32_t elements[] = {0, 45, 300, K - 1};
    static float without[M_MAX * N];
    c.in[WF_GEMM_X] = (wf_view){.buf = x, .rows = rows, .cols = K, .stride = K};
    c.out[WF_GEMM_Y] = (wf_view){.buf = y, .rows = rows, .cols = N, .stride = N};
    if (!dev->fns->supports(dev, &c, c.variant)) return;
    run(&c);
    memcpy(without, y->host, sizeof(float) * rows * N);
    for (size_t i = 0; i < WF_LEN(elements); i++) {
        check(&c, without, rows / 2, elements[i], NAN);
        check(&c, without, rows - 1, elements[i], -INFINITY);
    }
}

static void products_keep_what_is_no_number(void **state)
{
    static const uint32_t rows[] = {1, 3, 6, 20, M_MAX};
    draw(floats(x), M_MAX * K);
    for (uint8_t t = 0; t < WF_N_WEIGHT_DTYPES; t++) {
        set_weights(t);
        for (int v = 0; wf_variant_at(dev, WF_OP_GEMM, v); v++)
            for (size_t m = 0; m < WF_LEN(rows); m++) {
                wf_call c = {.op = WF_OP_GEMM, .variant = v};
                c.in[WF_GEMM_W] = (wf_view){.buf = w, .rows = N, .cols = K, .stride = K, .dtype = t};
                check_rows(c, rows[m]);
            }
    }
}

SUITE_MAIN(cpu_nan)
{
    const struct CMUnitTest tests[] = {CASE(products_keep_what_is_no_number)};
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = 2};
    if (wf_dev_open("cpu", &p, &dev) || wf_queue_create(dev, &queue) ||
        wf_buf_create(dev, sizeof(float) * M_MAX * K, &x) || wf_buf_create(dev, sizeof(float) * N * K, &w) ||
        wf_buf_create(dev, sizeof(float) * M_MAX * N, &y))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    wf_buf_destroy(x);
    wf_buf_destroy(w);
    wf_buf_destroy(y);
    wf_queue_destroy(queue);
    wf_dev_close(dev);
    return failed;
}
