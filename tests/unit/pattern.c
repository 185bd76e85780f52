/* pattern: random weights that a device makes of patterns are, bit by bit, those that the host makes: in rows and in the layout of NVIDIA's matrix
 * units, in every format, for stacks of one format and of several, heads whose pairs become neighbours, experts in turn, matrices of more than a
 * span, and some that patterns cannot make; on PoCL as on the CPU. What the host makes is looked at by itself. */
#include "unit/cl_test.h"

#include "dev/null.h"
#include "model/weights/pattern.h"
#include "support/suite.h"

#include <math.h>

enum { COLS = 256, HEAD = 64, TURN = 144, MOST_TENSORS = 16, MOST_WEIGHTS = 8 };

/* ---- models ---------------------------------------------------------------------------------------------------------- */

typedef struct model {
    wf_gguf file;
    wf_weights w;
    wf_gguf_tensor tensors[MOST_TENSORS];
} model;

static wf_weight *add(model *m, enum wf_dtype as, uint32_t cols, bool matrix)
{
    wf_weight w = {.parts = calloc(4, sizeof *w.parts), .dtype = as, .cols = cols, .matrix = matrix};
    assert_true(wf_grow(&m->w.list, m->w.n, &m->w.cap, sizeof w));
    m->w.list[m->w.n] = w;
    return &m->w.list[m->w.n++];
}

static void part(model *m, wf_weight *w, enum wf_dtype dtype, uint32_t rows)
{
    wf_gguf_tensor *t = &m->tensors[m->file.n_tensors++];
    *t = (wf_gguf_tensor){.name = {"t", 1}, .n_dims = 2, .dims = {w->cols, rows, 1, 1}, .dtype = (int)dtype, .bytes = wf_dtype_bytes(dtype, (uint64_t)rows * w->cols)};
    if (m->file.n_tensors > 1) t->offset = t[-1].offset + t[-1].bytes;
    w->parts[w->n_parts++] = t;
    w->rows += rows;
}

static void begin(model *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->file.path = "t.gguf", m->file.random = seed, m->file.tensors = m->tensors;
}

/* Heads with and without others behind them; many groups of rows; two experts; what is no whole band. */
static void of_format(model *m, enum wf_dtype d, uint64_t seed)
{
    begin(m, seed);
    wf_weight *w = add(m, d, COLS, true);
    part(m, w, d, 3 * HEAD), part(m, w, d, 2 * HEAD), part(m, w, d, 2 * HEAD + 16);
    w->pairs = (wf_pairs){HEAD, HEAD - 16, 5 * HEAD};
    w = add(m, d, COLS, true);
    part(m, w, d, WF_PATTERN_ROWS + WF_PATTERN_GROUP + 16);
    w = add(m, d, COLS, true);
    part(m, w, d, 2 * TURN), part(m, w, d, 2 * TURN);
    w->turn = TURN, w->experts = 2;
    w = add(m, d, COLS, true);
    part(m, w, d, 41);
}

static void of_several(model *m, enum wf_dtype as, const enum wf_dtype d[3])
{
    begin(m, 1);
    for (int pairs = 0; pairs < 2; pairs++) {
        wf_weight *w = add(m, as, COLS, true);
        for (int i = 0; i < 3; i++) part(m, w, d[i], (i + 1) * HEAD);
        if (pairs) w->pairs = (wf_pairs){HEAD, HEAD, 3 * HEAD};
    }
}

static void of_spans(model *m)
{
    begin(m, 1);
    part(m, add(m, WF_F32, 4096, false), WF_F32, 2304); /* 36 MiB */
}

/* Heads that no group holds, that a part ends within, and turns of no whole bands. */
static void of_none(model *m)
{
    begin(m, 1);
    wf_weight *w = add(m, WF_F16, COLS, true);
    part(m, w, WF_F16, 480), w->pairs = (wf_pairs){96, 96, 480};
    w = add(m, WF_F16, COLS, true);
    part(m, w, WF_F16, 48), part(m, w, WF_F16, 80), w->pairs = (wf_pairs){HEAD, HEAD, 2 * HEAD};
    w = add(m, WF_F16, COLS, false);
    part(m, w, WF_F16, 80), part(m, w, WF_F16, 80), w->turn = 40;
}

/* ---- devices --------------------------------------------------------------------------------------------------------- */

static wf_dev_fns fns;
static const wf_dev_fns *cpu_fns;

static uint8_t layout_of(wf_dev *d, enum wf_dtype t, uint32_t rows, uint32_t cols)
{
    return wf_cl_fragments(t) ? WF_CL_FRAGMENT_MAJOR : WF_CL_ROWS;
}

static size_t variants(wf_dev *d, enum wf_op op, const wf_variant **list)
{
    static const wf_variant reader[] = {{.name = "reader", .layout = WF_CL_FRAGMENT_MAJOR}};
    if (op != WF_OP_GEMM && op != WF_OP_GROUPED_GEMM) return cpu_fns->variants(d, op, list);
    *list = reader;
    return 1;
}

enum kind { HOST /* whose packers write in place */, DEVICE, OPENCL };

static wf_dev *open_dev(enum kind kind, bool fragments)
{
    wf_open_params p = {.tier = WF_TIER_BASE, .threads = 2};
    wf_dev *dev;
    if (wf_dev_open(kind == OPENCL ? "opencl" : "cpu", &p, &dev)) fail_msg("%s", wf_error());
    if (kind == OPENCL) return dev;
    cpu_fns = dev->fns, fns = *dev->fns;
    if (kind == DEVICE) fns.host_create = fns.buf_create;
    fns.weight_layout = NULL;
    if (fragments) fns.weight_layout = layout_of, fns.weight_bytes = wf_cl_weight_bytes, fns.weight_pack = wf_cl_weight_pack, fns.variants = variants;
    dev->fns = &fns;
    return dev;
}

static void load(model *m, wf_dev *dev, wf_queue *q)
{
    if (wf_weights_upload(&m->w, &m->file, dev, q, NULL, NULL)) fail_msg("%s", weft_last_error());
}

/* What the device has of all weights, one behind the other. */
static uint8_t *memory_of(const model *m, wf_dev *dev, wf_queue *q, uint64_t *bytes)
{
    uint8_t *all = NULL;
    *bytes = 0;
    for (size_t i = 0; i < m->w.n; i++) {
        const wf_view *v = &m->w.list[i].view;
        uint64_t n = v->layout ? dev->fns->weight_bytes(dev, v->layout, v->dtype, v->rows, v->cols) : v->rows * wf_dtype_bytes(v->dtype, v->cols);
        all = realloc(all, *bytes + n);
        assert_int_equal(wf_read(q, v->buf, v->offset, all + *bytes, n, NULL, 0, NULL), WEFT_OK);
        *bytes += n;
        assert_int_equal(wf_finish(q), WEFT_OK);
    }
    return all;
}

static uint8_t *made_by(enum kind kind, bool fragments, model *m, uint64_t *bytes)
{
    wf_dev *dev = open_dev(kind, fragments);
    wf_queue *q;
    assert_int_equal(wf_queue_create(dev, &q), WEFT_OK);
    load(m, dev, q);
    uint8_t *all = memory_of(m, dev, q, bytes);
    wf_queue_destroy(q);
    wf_weights_free(&m->w);
    wf_dev_close(dev);
    return all;
}

/* The model is made anew for each device: loading gives it views. */
typedef void make_fn(model *, const void *);

static void compare(const uint8_t *want, uint64_t want_bytes, model *m, enum kind kind, bool fragments, const char *what)
{
    uint64_t bytes;
    uint8_t *got = made_by(kind, fragments, m, &bytes);
    assert_int_equal(bytes, want_bytes);
    for (uint64_t i = 0; i < bytes; i++)
        if (got[i] != want[i]) fail_msg("%s: byte %llu of %llu", what, (unsigned long long)i, (unsigned long long)bytes);
    free(got);
}

/* In fragments on the CPU, which cannot read them but copies them; in rows also by OpenCL. */
static void assert_same(make_fn *make, const void *of, bool fragments, const char *what)
{
    model m;
    uint64_t bytes;
    make(&m, of);
    uint8_t *want = made_by(HOST, fragments, &m, &bytes);
    make(&m, of);
    compare(want, bytes, &m, DEVICE, fragments, what);
    if (!fragments) make(&m, of), compare(want, bytes, &m, OPENCL, false, what);
    free(want);
}

/* ---- the same bits --------------------------------------------------------------------------------------------------- */

typedef struct form {
    enum wf_dtype dtype;
    uint64_t seed;
} form;

static void make_format(model *m, const void *of)
{
    const form *f = of;
    of_format(m, f->dtype, f->seed);
}

static void make_k6(model *m, const void *of)
{
    of_several(m, WF_K6, (const enum wf_dtype[]){WF_Q4_K, WF_Q5_0, WF_Q6_K});
}

static void make_k8(model *m, const void *of)
{
    of_several(m, WF_K8, (const enum wf_dtype[]){WF_Q4_K, WF_Q8_0, WF_Q8_0});
}

static void make_spans(model *m, const void *of)
{
    of_spans(m);
}

static void make_none(model *m, const void *of)
{
    of_none(m);
}

/* Is it a format of files, and of that layout? */
static bool is_of(enum wf_dtype d, bool fragments)
{
    return wf_dtypes[d].encode && wf_dtypes[d].ggml != wf_dtypes[WF_K6].ggml && (!fragments || wf_cl_fragments(d));
}

static void assert_all_same(bool fragments)
{
    for (int d = 0; d < WF_N_DTYPES; d++)
        if (is_of((enum wf_dtype)d, fragments)) assert_same(make_format, &(form){(enum wf_dtype)d, 1}, fragments, wf_dtypes[d].name);
    for (uint64_t seed = 2; seed < 5; seed++) assert_same(make_format, &(form){WF_Q4_0, seed}, fragments, "another seed");
    assert_same(make_k6, NULL, fragments, "K6");
    assert_same(make_k8, NULL, fragments, "K8");
    assert_same(make_spans, NULL, fragments, "spans");
    assert_same(make_none, NULL, fragments, "what patterns cannot make");
}

static void rows_are_the_same(void **state)
{
    assert_all_same(false);
}

static void fragments_are_the_same(void **state)
{
    assert_all_same(true);
}

/* ---- what the host makes --------------------------------------------------------------------------------------------- */

/* Elements of a row of t. */
static void row_of(const wf_filler *f, const wf_gguf_tensor *t, uint64_t row, float *out)
{
    uint64_t each = wf_dtype_bytes((enum wf_dtype)t->dtype, t->dims[0]), at = 0;
    uint8_t *bytes = malloc(each);
    for (uint64_t n; at < each; at += n) {
        n = each - at;
        const uint8_t *from = wf_filler_bytes(f, t, row * each + at, &n);
        memcpy(bytes + at, from, n);
    }
    wf_dtypes[t->dtype].decode(bytes, out, t->dims[0]);
    free(bytes);
}

/* Groups are of the pattern, not all of them the same one; so much for two tensors and two seeds. */
static uint64_t groups_of(model *m, size_t tensor)
{
    wf_filler *f;
    uint64_t groups = 0;
    const wf_gguf_tensor *t = &m->tensors[tensor];
    wf_gguf_tensor own = *t;
    own.name.len = 0;
    float row[COLS], same[COLS];
    assert_int_equal(wf_filler_open(&m->file, &f), WEFT_OK);
    for (uint64_t r = 0; r < t->dims[1]; r++) {
        uint64_t from = wf_filler_row(f, t, r);
        assert_true(from < WF_PATTERN_ROWS && from % WF_PATTERN_GROUP == r % WF_PATTERN_GROUP);
        row_of(f, t, r, row);
        row_of(f, &own, from, same);
        assert_memory_equal(row, same, sizeof row);
        if (r % WF_PATTERN_GROUP == 0) groups = groups * 4 + from / WF_PATTERN_GROUP;
    }
    wf_filler_close(f);
    return groups;
}

static void groups_differ(void **state)
{
    uint64_t groups[4];
    for (uint64_t i = 0; i < 4; i++) {
        model m;
        begin(&m, 1 + i / 2);
        for (int t = 0; t < 2; t++) part(&m, add(&m, WF_F16, COLS, false), WF_F16, 16 * WF_PATTERN_GROUP);
        groups[i] = groups_of(&m, i % 2);
        for (uint64_t j = 0; j < i; j++) assert_true(groups[i] != groups[j]);
        wf_weights_free(&m.w);
    }
}

/* N(0, 1 / K), whose 131,072 elements are of 262,144: mean and variance within five standard deviations. No two rows are the same. */
static void weights_are_normal(void **state)
{
    model m;
    wf_filler *f;
    double sum = 0, squares = 0, n = WF_PATTERN_ROWS * COLS;
    float rows[2][COLS];
    begin(&m, 1);
    part(&m, add(&m, WF_F32, COLS, false), WF_F32, WF_PATTERN_ROWS);
    m.tensors[0].name.len = 0;
    assert_int_equal(wf_filler_open(&m.file, &f), WEFT_OK);
    for (uint64_t r = 0; r < WF_PATTERN_ROWS; r++) {
        row_of(f, &m.tensors[0], r, rows[r % 2]);
        for (int k = 0; k < COLS; k++) sum += rows[r % 2][k], squares += rows[r % 2][k] * rows[r % 2][k];
        if (r) assert_memory_not_equal(rows[0], rows[1], sizeof rows[0]);
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n * COLS));
    assert_true(fabs(squares / n * COLS - 1) < 5 * sqrt(2 / n));
    wf_filler_close(f);
    wf_weights_free(&m.w);
}

/* ---- what may go wrong ----------------------------------------------------------------------------------------------- */

static void on_progress(void *user, const char *what, double fraction)
{
    double *last = user;
    assert_string_equal(what, "load");
    assert_true(fraction > *last && fraction <= 1);
    *last = fraction;
}

static weft_status attempt(const wf_null_config *config, double *progress)
{
    model m;
    wf_dev *dev;
    wf_queue *q = NULL;
    *progress = 0;
    of_format(&m, WF_F16, 1);
    wf_null_configure(config);
    assert_int_equal(wf_dev_open("null", &(wf_open_params){.watchdog_ms = 100}, &dev), WEFT_OK);
    weft_status s = wf_queue_create(dev, &q);
    if (!s) s = wf_weights_upload(&m.w, &m.file, dev, q, on_progress, progress);
    wf_queue_destroy(q);
    wf_weights_free(&m.w);
    wf_dev_close(dev);
    assert_int_equal(wf_null_alive(), 0);
    return s;
}

static void every_call_may_fail(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_BUF_CREATE, WF_NULL_EVENT_CREATE, WF_NULL_WRITE, WF_NULL_SUBMIT, WF_NULL_FLUSH, WF_NULL_WAIT};
    double progress;
    assert_int_equal(attempt(NULL, &progress), WEFT_OK);
    assert_true(progress == 1);
    assert_true(wf_null_calls(WF_NULL_SUBMIT) > 4);
    for (size_t s = 0; s < WF_LEN(slots); s++) {
        attempt(NULL, &progress);
        for (uint32_t i = 1, n = (uint32_t)wf_null_calls(slots[s]); i <= n; i++) assert_int_equal(attempt(&(wf_null_config){.slot = slots[s], .nth = i, .status = WEFT_ERR_DEVICE}, &progress), WEFT_ERR_DEVICE);
    }
    wf_null_configure(NULL);
}

/* The second buffer is that of the patterns. */
static void without_memory_the_host_makes_them(void **state)
{
    double progress;
    assert_int_equal(attempt(&(wf_null_config){.slot = WF_NULL_BUF_CREATE, .nth = 2, .status = WEFT_ERR_NOMEM}, &progress), WEFT_OK);
    assert_true(progress == 1);
    assert_int_equal(wf_null_calls(WF_NULL_SUBMIT), 0);
    wf_null_configure(NULL);
}

SUITE_MAIN(pattern)
{
    const struct CMUnitTest tests[] = {CASE(groups_differ), CASE(weights_are_normal), CASE(every_call_may_fail),
        CASE(without_memory_the_host_makes_them), CASE(rows_are_the_same), CASE(fragments_are_the_same)};
    need_device();
    const char *cache = fresh_cache();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_cache(cache);
    return failed;
}
