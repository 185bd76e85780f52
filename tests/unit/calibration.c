/* calibration: the rule that chooses phi, the file with every kind of damage, and that an engine takes it over. */
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "lab/lab.h"
#include "support/folder.h"
#include "support/rows.h"
#include "support/said.h"

#define DEMO "models/demo.gguf"
#define BYTES 1000u
#define HEAD "weft-calibration 1\nmodel 1000 bytes\n"
#define TWO "layer 1 phi -3.5 a -2.77 b 10.39\nlayer 0 phi 1 a -60 b 10.39 # too wide\n"

static char path[96], model_path[64];

/* ---- the rule ---------------------------------------------------------------------------------------- */

static struct weft_logit_histogram uniform(double low, double high)
{
    struct weft_logit_histogram l = {.min = low, .max = high, .bins = calloc(WEFT_LOGIT_BINS, sizeof *l.bins)};
    assert_non_null(l.bins);
    for (int i = 0; i < 100000; i++, l.n++)
        l.bins[(size_t)((low + (high - low) * i / 1e5 - WEFT_LOGIT_LOW) / WEFT_LOGIT_STEP)]++;
    return l;
}

static void test_quantiles(void **state)
{
    struct weft_logit_histogram l = uniform(-3, 7), none = {.bins = l.bins};
    for (double part = 0; part <= 1; part += 0.01)
        assert_true(fabs(weft_logit_quantile(&l, part) - (-3 + 10 * part)) <= WEFT_LOGIT_STEP);
    assert_true(isnan(weft_logit_quantile(&none, 0.5)));
    free(l.bins);
}

/* Rows narrower than F16's range lie in its middle; wider ones fill it, and if many are left out nothing fits. */
static void test_rule(void **state)
{
    const double low = WF_PHI_F16_A, high = WF_PHI_B;
    for (double width = 0.5; width < 140; width += 0.5) {
        struct weft_logit_histogram l = uniform(5, 5 + width);
        double outside, below, above;
        wf_phi p = wf_phi_choose(&l, &outside);
        free(l.bins);
        below = 5 - (p.phi + low), above = p.phi + high - (5 + width);
        if (width < high - low - 0.1) assert_true(outside == 0 && fabs(below - above) < 0.1);
        else assert_true(below < 0.1 && above < 0.1 && fabs(outside - (1 - (high - low) / width)) < 0.01);
        assert_int_equal(wf_phi_fits(&p), outside <= 0.01);
        if (wf_phi_fits(&p)) assert_true(p.a == WF_PHI_A && p.b == WF_PHI_B);
        else assert_true(p.a == p.b);
    }
    assert_true(exp(high) < 65504 / 1.9 && exp(low) > 0x1p-24 * 0x1p19 && exp(WF_PHI_A) > 0x1p-126 * 0x1p45);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static void test_good_files(void **state)
{
    static const char *const good[] = {HEAD TWO, HEAD "# remark\n\n \t\n" TWO, TWO,
                                       "weft-calibration 1\r\nmodel 1000 bytes\r\n" TWO};
    for (size_t i = 0; i < WF_LEN(good); i++) {
        wf_phi p[2] = {{0}};
        char text[512];
        snprintf(text, sizeof text, "%s%s", i == 2 ? HEAD : "", good[i]);
        write_file(path, text, strlen(text) - (i == 1)); /* once without the last newline */
        assert_ok(wf_calibration_load(path, BYTES, 2, p));
        assert_true(p[0].phi == 1 && p[0].a == -60 && p[0].b == 10.39f && !wf_phi_fits(&p[0]));
        assert_true(p[1].phi == -3.5f && p[1].a == -2.77f && p[1].b == 10.39f && wf_phi_fits(&p[1]));
    }
}

static void refuse(char *const *column)
{
    wf_phi p[2];
    write_text(path, column[0]);
    if (wf_calibration_load(path, BYTES, 2, p) == WEFT_OK) fail_msg("%s: was read", column[0]);
    if (!strstr(wf_error(), column[1]) || !strstr(wf_error(), path)) fail_msg("%s: %s", column[0], wf_error());
}

static void test_broken_files(void **state)
{
    wf_phi p[2];
    each_row("tests/unit/calibration.txt", 2, refuse);
    char zero[] = HEAD "\0" TWO;
    write_file(path, zero, sizeof zero - 1);
    assert_int_equal(wf_calibration_load(path, BYTES, 2, p), WEFT_ERR_FORMAT);
    assert_int_equal(wf_calibration_load(folder, BYTES, 2, p), WEFT_ERR_IO);
    assert_int_equal(wf_calibration_load("/nonexistent", BYTES, 2, p), WEFT_ERR_IO);
}

/* Cut anywhere, a file is read whole or refused. */
static void test_truncated(void **state)
{
    const char *text = HEAD "layer 0 phi 1 a -2 b 2\nlayer 1 phi 1 a -2 b 2.5\n";
    for (size_t n = 0; n < strlen(text) - 4; n++) { /* "b 2" is a number, too */
        wf_phi p[2];
        write_file(path, text, n);
        assert_int_not_equal(wf_calibration_load(path, BYTES, 2, p), WEFT_OK);
    }
}

/* ---- use ---------------------------------------------------------------------------------------------- */

static struct weft_model *copy_of_demo(void)
{
    struct weft_model *m = NULL;
    char command[256];
    snprintf(command, sizeof command, "cp " DEMO " %s", model_path);
    assert_int_equal(system(command), 0);
    assert_ok(weft_model_open(&(struct weft_model_params){.path = model_path}, &m));
    return m;
}

/* Attention nodes of a fresh engine that are asynchronous. */
static unsigned used_layers(const struct weft_model *m, const char *file, wf_op_params *first)
{
    struct weft_engine *e = NULL;
    unsigned used = 0;
    struct weft_engine_params p = {.device = "null", .context = 64, .calibration = file};
    assert_ok(weft_engine_open(m, &p, &e));
    for (size_t i = 0; i < e->layout.graph.n_nodes; i++) {
        const wf_node *n = &e->layout.graph.nodes[i];
        if (n->op != WF_OP_ATTENTION) continue;
        if (n->layer == 0) *first = n->p;
        used += n->p.phi_lo < n->p.phi_hi;
    }
    weft_engine_close(e);
    assert_int_equal(used % 2, 0); /* of decodes and of prefill */
    return used / 2;
}

static void write_layers(const struct weft_model *m, uint32_t n, const char *range)
{
    char text[8192];
    int at = snprintf(text, sizeof text, "weft-calibration 1\nmodel %llu bytes\n",
                      (unsigned long long)weft_model_info(m)->file_bytes);
    for (uint32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "layer %u phi 4.25 %s\n", i, i ? range : "a -2 b 10");
    write_file(path, text, (size_t)at);
}

static void test_engine(void **state)
{
    struct weft_model *m = copy_of_demo();
    uint32_t n = weft_model_info(m)->n_layer;
    wf_op_params p = {0};
    listen_to(WEFT_LOG_WARN);
    assert_int_equal(used_layers(m, NULL, &p), 0); /* no file: synchronous, and nobody is warned */
    assert_true(p.phi_lo == 0 && p.phi_hi == 0);
    assert_string_equal(said, "");
    snprintf(path, sizeof path, "%s" WEFT_CALIBRATION_SUFFIX, model_path);
    write_layers(m, n, "a -55 b 10.39");
    assert_int_equal(used_layers(m, NULL, &p), n);
    assert_true(p.phi == 4.25f && p.phi_lo == -2 && p.phi_hi == 10);
    static const char *const synchronous[] = {"a -55.1 b 10", "a -55 b 55.1", "a 0 b 0"}; /* only layer 0 is left */
    for (size_t i = 0; i < WF_LEN(synchronous); i++) {
        write_layers(m, n, synchronous[i]);
        assert_int_equal(used_layers(m, NULL, &p), 1);
    }
    assert_string_equal(said, "");
    write_layers(m, n - 1, "a -55 b 10");
    assert_int_equal(used_layers(m, NULL, &p), 0);
    assert_int_equal(said_times("\n"), 1);
    assert_said(path);
    struct weft_engine *e = NULL;
    struct weft_engine_params named = {.device = "null", .context = 64, .calibration = "/nonexistent"};
    assert_int_equal(weft_engine_open(m, &named, &e), WEFT_ERR_ARG); /* who names a file wants it used */
    named.calibration = path;
    assert_int_equal(weft_engine_open(m, &named, &e), WEFT_ERR_ARG);
    assert_int_equal(said_times("\n"), 1);
    unlink(path);
    weft_model_close(m);
}

/* What was measured comes back from the file as it was chosen. */
static void test_round_trip(void **state)
{
    struct weft_model *m = copy_of_demo();
    struct weft_calibration_layer layers[2] = {{.all = uniform(-9, 30), .rows = uniform(2, 8)},
                                               {.all = uniform(-9, 30), .rows = uniform(-90, 90)}};
    struct weft_calibration c = {.n_layers = 2, .n_tokens = 7, .context = 5, .layers = layers};
    wf_phi p[2];
    for (int i = 0; i < 2; i++) {
        wf_phi chosen = wf_phi_choose(&layers[i].rows, &layers[i].outside);
        layers[i].phi = chosen.phi, layers[i].a = chosen.a, layers[i].b = chosen.b;
    }
    assert_ok(weft_calibration_save(&c, m, path));
    assert_ok(wf_calibration_load(path, weft_model_info(m)->file_bytes, 2, p));
    for (int i = 0; i < 2; i++) {
        assert_true(fabsf(p[i].phi - layers[i].phi) < 1e-4f && fabsf(p[i].a - layers[i].a) < 1e-4f &&
                    fabsf(p[i].b - layers[i].b) < 1e-4f);
        assert_int_equal(wf_phi_fits(&p[i]), i == 0);
        free(layers[i].all.bins);
        free(layers[i].rows.bins);
    }
    assert_int_equal(weft_calibration_save(&c, m, "/nonexistent/file"), WEFT_ERR_IO);
    weft_model_close(m);
}

/* ---- reading back --------------------------------------------------------------------------------------- */

static const wf_dev_fns *own_fns;
static uint64_t page_bytes; /* K of a page in one layer */
static unsigned page_reads;

static weft_status count_read(wf_queue *q, wf_buf *buf, uint64_t off, void *dst, uint64_t size, wf_event *const *waits,
                              uint32_t n_waits, wf_event *signal)
{
    page_reads += size == page_bytes;
    return own_fns->read(q, buf, off, dst, size, waits, n_waits, signal);
}

enum { PAGE = 16, SEQS = 16 };
static const char text[] = "One day a cat sat by the door. The cat was sad. A dog came by, and they had fun.";

static struct weft_engine *open_engine(struct weft_model *m)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {
        .device = "cpu", .context = 128, .n_seqs = SEQS, .max_batched_tokens = 128, .page_tokens = PAGE, .threads = 1};
    assert_ok(weft_engine_open(m, &p, &e));
    page_bytes = wf_dtype_bytes(WF_F16, e->model->hp.n_kv_head * e->model->hp.head_dim * PAGE), page_reads = 0;
    own_fns = e->dev->fns;
    return e;
}

/* With another way to read. */
static weft_status calibrate(struct weft_engine *e,
                             weft_status (*read)(wf_queue *, wf_buf *, uint64_t, void *, uint64_t, wf_event *const *,
                                                 uint32_t, wf_event *),
                             weft_stop_fn stop, struct weft_calibration **c)
{
    wf_dev_fns fns = *own_fns;
    fns.read = read;
    e->dev->fns = &fns;
    weft_status s = weft_calibrate(
        e, &(struct weft_calibrate_params){.text = text, .len = sizeof text - 1, .stop = stop}, c);
    e->dev->fns = own_fns;
    return s;
}

/* Of each layer's keys only the pages of the sequence are read, not the whole pool, which may be most of a device's
 * memory. */
static void test_pages_of_the_sequence(void **state)
{
    struct weft_model *m = copy_of_demo();
    struct weft_engine *e = open_engine(m);
    const struct weft_model_info *info = weft_model_info(m);
    struct weft_calibration *c = NULL;
    assert_ok(calibrate(e, count_read, NULL, &c));
    assert_in_range(c->n_tokens, PAGE + 1, 128); /* one piece, in one step, of several pages */
    assert_int_equal(page_reads, info->n_layer * ((c->n_tokens + PAGE - 1) / PAGE));
    weft_calibration_free(c);
    weft_engine_close(e);
    weft_model_close(m);
}

static atomic_bool reads;
static atomic_uint stopped;

/* Once the step has come to a layer's keys. */
static bool stop_in_step(void *user)
{
    if (atomic_load(&reads)) atomic_fetch_add(&stopped, 1);
    return atomic_load(&reads);
}

/* The first waits until what was answered has had its effect: then the question comes again. */
static weft_status read_until_stopped(wf_queue *q, wf_buf *buf, uint64_t off, void *dst, uint64_t size,
                                      wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    atomic_store(&reads, true);
    while (atomic_load(&stopped) < 2) wf_sleep_ns(1000000);
    return count_read(q, buf, off, dst, size, waits, n_waits, signal);
}

/* A step that is looked at ends behind the layer in which nobody wants it any more, which may be a minute before its
 * last one. The engine goes on. */
static void test_stops_between_layers(void **state)
{
    struct weft_model *m = copy_of_demo();
    struct weft_engine *e = open_engine(m);
    struct weft_calibration *c = NULL;
    assert_int_equal(calibrate(e, read_until_stopped, stop_in_step, &c), WEFT_ERR_CANCELLED);
    assert_null(c);
    assert_in_range(page_reads, 1, 128 / PAGE); /* of the first one */
    assert_ok(weft_calibrate(e, &(struct weft_calibrate_params){.text = text, .len = sizeof text - 1}, &c));
    weft_calibration_free(c);
    weft_engine_close(e);
    weft_model_close(m);
}

static int setup(void **state)
{
    listen_to(WEFT_LOG_WARN);
    if (make_folder(state)) return 1;
    snprintf(model_path, sizeof model_path, "%s/m.gguf", folder);
    return 0;
}

static int each(void **state)
{
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

SUITE_EACH(calibration, setup, remove_folder, each, NULL, CASE(test_quantiles), CASE(test_rule), CASE(test_good_files),
           CASE(test_broken_files), CASE(test_truncated), CASE(test_engine), CASE(test_round_trip),
           CASE(test_pages_of_the_sequence), CASE(test_stops_between_layers))
