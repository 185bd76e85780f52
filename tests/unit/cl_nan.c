/* cl_nan: products that quantise X to integers propagate NaN, in its own row alone. The scales of X come from maxima,
 * which leave it out. */
#include <math.h>
#include <string.h>

#include "support/skip.h"
#include "support/suite.h"
#include "verify/check.h"

static const char *const variants[] = {"dot16",      "dot64_parts", "dot64",    "dot128",
                                       "gemv_int16", "rows_host",   "row_int16"};

typedef struct devices {
    wf_dev *dev, *ref;
    wf_queue *queue;
} devices;

static int open_devices(void **state)
{
    static devices d;
    struct weft_device_info list[16];
    size_t n = WF_MIN(wf_dev_list(list, WF_LEN(list)), WF_LEN(list)), i = 0;
    while (i < n && strncmp(list[i].id, "opencl:", 7) != 0) i++;
    memset(&d, 0, sizeof d);
    if (i < n && (wf_dev_open(list[i].id, NULL, &d.dev) || wf_queue_create(d.dev, &d.queue))) return -1;
    *state = &d;
    return wf_dev_open("cpu", NULL, &d.ref);
}

static int close_devices(void **state)
{
    devices *d = *state;
    if (d->queue) wf_queue_destroy(d->queue);
    if (d->dev) wf_dev_close(d->dev);
    wf_dev_close(d->ref);
    return 0;
}

/* One element of row `bad` becomes NaN, and with it the row of the result. */
static void spoil(wf_check *k, uint32_t bad, uint32_t at)
{
    const wf_view *x = &k->in[WF_GEMM_X].view, *y = &k->expect[0].view;
    float *row = (float *)k->in[WF_GEMM_X].data + (size_t)bad * x->stride;
    float *result = (float *)k->expect[0].data + (size_t)bad * y->stride;
    assert_int_equal(x->dtype, WF_F32);
    assert_int_equal(y->dtype, WF_F32);
    row[at] = NAN;
    for (uint32_t n = 0; n < y->cols; n++) result[n] = NAN;
}

static int run_variants(devices *d, wf_check *k)
{
    int n = 0;
    for (size_t i = 0; i < WF_LEN(variants); i++) {
        wf_check_result r;
        int v = wf_variant_find(d->dev, WF_OP_GEMM, variants[i]);
        if (v < 0 || !wf_check_supported(k, d->dev, v)) continue;
        assert_ok(wf_check_run(k, d->dev, d->queue, v, false, &r));
        if (!r.ok) fail_msg("%s, %u rows: %s", variants[i], k->c.m, r.message);
        n++;
    }
    return n;
}

static void kept(void **state)
{
    static const uint32_t rows[] = {1, 20};
    devices *d = *state;
    int n = 0;
    if (!d->dev) SKIP_TEST("no OpenCL device");
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_check *k;
        wf_case c = {.op = WF_OP_GEMM, .in = WF_F32, .weight = WF_Q4_1, .out = WF_F32, .m = rows[i], .n = 64, .k = 512};
        assert_ok(wf_check_new(d->ref, &c, &k));
        spoil(k, rows[i] / 2, 45 + 7 * rows[i]);
        n += run_variants(d, k);
        wf_check_free(k);
    }
    assert_true(n > 0);
}

SUITE(cl_nan, open_devices, close_devices, CASE(kept))
