/* Files of measured kernel choices: what is written reads back, every broken file is refused whole
 * with its line, and a device picks by its file wherever the kernel named can run. */
#include <sys/stat.h>

#include "dev/front.h"
#include "support/null_device.h"
#include "select/select.h"
#include "select/tuned.h"
#include "verify/bind.h"
#include "lab/lab.h"
#include "support/folder.h"
#include "support/rows.h"
#include "support/said.h"

#define HEAD "weft-tuned 1\ndevice null device\nplatform weft null\nunits 1\ndriver 9.9\n"
#define ROW  "gemm F16 N=64,K=32 1:null2 9:null3\n"

static struct weft_device_info null_info(void)
{
    struct weft_device_info i = {.name = "null device", .platform = "weft null", .driver = "0", .compute_units = 1,
                                 .type = WEFT_DEVICE_OTHER};
    return i;
}

static const char *find(const wf_tuned_table *t, enum wf_tuned_op kind, const uint32_t *key, uint32_t size)
{
    wf_tuned_row want = {.kind = kind, .dtype = WF_F16};
    memcpy(want.key, key, sizeof want.key);
    return wf_tuned_find(t, &want, size);
}

static void assert_name(const char *got, const char *want)
{
    if (!want) assert_null(got);
    else assert_string_equal(got ? got : "(none)", want);
}

static void rows_are_found(void **state)
{
    struct weft_device_info info = null_info();
    wf_tuned_table t;
    const char *text = "# comment\n\n" HEAD "  " ROW "gemm Q8_0 N=64,K=32 1:q\r\n"
                       "decode_attention F16 H=32,KV=8,D=128,B=8 1:few 1024:many\n"
                       "decode_attention F16 H=32,KV=8,D=128,B=64 1:wide\n"
                       "prefill_attention F16 H=32,KV=8,D=128 16:flash\n"
                       "prefill_attention_async F16 H=32,KV=8,D=128 1:async";
    assert_ok(wf_tuned_parse(text, &info, &t));
    assert_int_equal(t.n, 6);
    static const struct {
        enum wf_tuned_op kind;
        uint32_t key[4], size;
        const char *want;
    } looks[] = {
        {WF_TUNED_GEMM, {64, 32}, 1, "null2"},
        {WF_TUNED_GEMM, {64, 32}, 8, "null2"},
        {WF_TUNED_GEMM, {64, 32}, 9, "null3"},
        {WF_TUNED_GEMM, {64, 32}, 4096, "null3"},
        {WF_TUNED_GEMM, {32, 64}, 9, NULL},
        {WF_TUNED_DECODE, {32, 8, 128, 7}, 9, NULL},
        {WF_TUNED_DECODE, {32, 8, 128, 8}, 1023, "few"},
        {WF_TUNED_DECODE, {32, 8, 128, 63}, 1024, "many"},
        {WF_TUNED_DECODE, {32, 8, 128, 500}, 1, "wide"},
        {WF_TUNED_DECODE, {32, 4, 128, 64}, 1, NULL},
        {WF_TUNED_PREFILL, {32, 8, 128}, 15, NULL},
        {WF_TUNED_PREFILL, {32, 8, 128}, 16, "flash"},
        {WF_TUNED_PREFILL_ASYNC, {32, 8, 128}, 16, "async"},
        {WF_TUNED_DECODE_ASYNC, {32, 8, 128, 8}, 16, NULL},
    };
    for (size_t i = 0; i < WF_LEN(looks); i++)
        assert_name(find(&t, looks[i].kind, looks[i].key, looks[i].size), looks[i].want);
    for (uint32_t seqs = 1; seqs <= 64; seqs++) { /* those that others stand for are not there */
        const wf_tuned_row shape = {.kind = WF_TUNED_DECODE, .dtype = WF_F16, .key = {32, 8, 128, seqs}};
        assert_int_equal(wf_tuned_has(&t, &shape), seqs == 8 || seqs == 64);
    }
    wf_tuned_free(&t);
}

static void refuse(char *const *column)
{
    struct weft_device_info info = null_info();
    wf_tuned_table t;
    if (!wf_tuned_parse(column[0], &info, &t)) fail_msg("accepted: %s", column[0]);
    if (!strstr(weft_last_error(), column[1])) fail_msg("%s\nsays: %s", column[0], weft_last_error());
    assert_int_equal(t.n, 0);
    assert_null(t.rows);
    assert_null(t.costs);
}

static void broken_files_are_refused(void **state)
{
    each_row("tests/unit/select_tuned.txt", 2, refuse);
}

/* Every cut of a good file either reads as what stands before the cut, or is refused; no cut crashes. */
static void cut_files(void **state)
{
    struct weft_device_info info = null_info();
    char text[] = HEAD ROW;
    size_t whole = strlen(text), good = 0;
    for (size_t n = whole; n-- > 0;) {
        wf_tuned_table t;
        text[n] = 0;
        good += !wf_tuned_parse(text, &info, &t);
        assert_true(t.n <= 1);
        wf_tuned_free(&t);
    }
    assert_in_range(good, 5, 40); /* after the head, and inside the last word */
}

static int set_up(void **state)
{
    return make_folder(state) || setenv("XDG_CONFIG_HOME", folder, 1);
}

static int tear_down(void **state)
{
    wf_null_configure(NULL);
    return remove_folder(state);
}

/* A text that is for any device has neither head nor rows' need of one. */
static void costs_are_read(void **state)
{
    wf_tuned_table t;
    assert_ok(wf_tuned_parse("weft-tuned 1\ncost a b=1,c=0.25\ncost a/x b=3\ncost a b=2\n", NULL, &t));
    assert_int_equal(t.n_costs, 3);
    assert_string_equal(t.costs[0].of, "a");
    assert_string_equal(t.costs[0].name, "b");
    assert_true(t.costs[0].value == 2 && t.costs[0].line == 4); /* the last counts */
    assert_true(t.costs[1].value == 0.25 && t.costs[2].value == 3);
    wf_tuned_free(&t);
    assert_int_equal(wf_tuned_parse("weft-tuned 1\ndevice null device\n", NULL, &t), WEFT_ERR_FORMAT);
}

static void written_reads_back(void **state)
{
    struct weft_device_info info = null_info();
    wf_tuned_table t, back;
    char path[256];
    assert_ok(wf_tuned_parse(HEAD "cost device read=4545.5,launch=0.0001\ncost gemm/x memory=0.3333\n" ROW
                                  "prefill_attention F16 H=4,KV=2,D=64 1:null\n",
                             &info, &t));
    wf_tuned_row row = t.rows[0];
    row.n_steps = 1;
    memset(&row.step[1], 0, sizeof row.step[1]);
    assert_ok(wf_tuned_put(&t, &row)); /* replaces */
    assert_int_equal(t.n, 2);
    t.dense_batch = 768, t.load = (wf_tuned_load){1155.25, 0.0001};
    snprintf(path, sizeof path, "%s/a.tune", folder);
    assert_ok(wf_tuned_write(path, &info, &t));
    assert_ok(wf_tuned_read(path, &info, &back));
    assert_int_equal(back.n, t.n);
    assert_int_equal(back.dense_batch, 768);
    assert_true(back.load.prompt == 1155.25 && back.load.generated == 0.0001);
    assert_memory_equal(back.rows, t.rows, t.n * sizeof *t.rows);
    assert_int_equal(back.n_costs, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(back.costs[i].value == t.costs[i].value && !strcmp(back.costs[i].of, t.costs[i].of) &&
                    !strcmp(back.costs[i].name, t.costs[i].name));
    wf_tuned_forget_kernels(&back);
    assert_true(!back.n && !back.n_costs && !back.dense_batch && back.load.prompt == 1155.25);
    wf_tuned_free(&t);
    wf_tuned_free(&back);
    snprintf(path, sizeof path, "%s/none/a.tune", folder);
    assert_int_equal(wf_tuned_write(path, &info, &t), WEFT_ERR_IO);
}

static void put_file(const char *text)
{
    struct weft_device_info info = null_info();
    char path[1100];
    info.type = WEFT_DEVICE_OTHER;
    assert_ok(wf_tuned_user_path(&info, true, path, sizeof path));
    write_text(path, text);
}

/* The null device offers null, null2 and null3, all of which run everything, and picks the first.
 */
static int picked(const wf_open_params *p, uint32_t m, int dropped)
{
    wf_dev *dev;
    wf_buf *buf;
    wf_null_configure(&(wf_null_config){.variants = 3});
    if (wf_select_open("null", p, &dev)) return -2;
    assert_ok(wf_buf_create(dev, 1 << 20, &buf));
    wf_call c = {.op = WF_OP_GEMM, .variant = -1};
    c.in[WF_GEMM_X] = (wf_view){.buf = buf, .rows = m, .cols = 32, .stride = 32, .dtype = WF_F16};
    c.in[WF_GEMM_W] = (wf_view){.buf = buf, .rows = 64, .cols = 32, .stride = 32, .dtype = WF_F16};
    c.out[WF_GEMM_Y] = (wf_view){.buf = buf, .offset = 1 << 19, .rows = m, .cols = 64, .stride = 64, .dtype = WF_F16};
    if (dropped >= 0) wf_drop(dev, &c, dropped);
    int v = wf_pick(dev, &c);
    int prepared = -1;
    assert_ok(wf_prepare(dev, &c, &prepared));
    assert_int_equal(prepared, v);
    wf_buf_destroy(buf);
    wf_dev_close(dev);
    return v;
}

static void devices_pick_by_file(void **state)
{
    wf_open_params none = {.tuned = "none"}, forced = {.force = "gemm=null"}, other = {.force = "get_rows=null2"};
    assert_int_equal(picked(NULL, 1, -1), 0);
    put_file(HEAD ROW);
    assert_int_equal(picked(NULL, 1, -1), 1);
    assert_int_equal(picked(NULL, 9, -1), 2);
    assert_int_equal(picked(NULL, 9, 2), 0);
    assert_int_equal(picked(&none, 9, -1), 0);
    assert_int_equal(picked(&forced, 9, -1), 0);
    assert_int_equal(picked(&other, 9, -1), 2);
    put_file(HEAD "gemm F16 N=64,K=32 1:null2 9:auto\n"); /* the backend's own choice */
    assert_int_equal(picked(NULL, 8, -1), 1);
    assert_int_equal(picked(NULL, 9, -1), 0);
    put_file(HEAD "gemm F16 N=64,K=32 1:gone 9:null2\n"); /* a kernel that no longer exists */
    assert_int_equal(picked(NULL, 1, -1), 0);
    assert_int_equal(picked(NULL, 9, -1), 1);
}

/* ---- forced and dropped ---------------------------------------------------------------------------- */

static wf_call some_product(uint32_t m, enum wf_dtype weights)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    wf_call c = {.op = WF_OP_GEMM, .variant = -1};
    c.in[WF_GEMM_X] = (wf_view){.buf = &stand_in, .rows = m, .cols = 64, .stride = 64};
    c.in[WF_GEMM_W] = (wf_view){.buf = &stand_in, .rows = 32, .cols = 64, .stride = 64, .dtype = (uint8_t)weights};
    c.out[WF_GEMM_Y] = (wf_view){.buf = &stand_in, .rows = m, .cols = 32, .stride = 32};
    return c;
}

/* Choices of attention were measured with all of the device; with a share of it other kernels are the fastest. */
static void shares_are_not_tuned(void **state)
{
    wf_call c = {.op = WF_OP_ATTENTION,
                 .p = {.n_head = 32, .n_kv_head = 8, .head_dim = 128, .max_q = 1, .max_kv = 100}};
    wf_tuned_row row;
    uint32_t size;
    assert_true(wf_tuned_key(&c, &row, &size));
    c.max_groups = 24;
    assert_false(wf_tuned_key(&c, &row, &size));
}

static void forced_by_name(void **state)
{
    static const char *const bad[] = {"gemm", "gemm=", "gemm=nosuch", "nosuch=ref", "=", "gemm=ref,x=y"};
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = 1, .tuned = "none", .force = "*=ref,,gemm=ref"};
    wf_call c = some_product(3, WF_F32);
    wf_dev *dev;
    assert_ok(wf_select_open("cpu", &p, &dev));
    assert_string_equal(wf_variant_at(dev, WF_OP_GEMM, wf_pick(dev, &c))->name, "ref");
    assert_int_equal(wf_weight_layout(dev, WF_OP_GEMM, WF_Q8_0, 32, 64), 0); /* what the reference reads */
    wf_drop(dev, &c, wf_pick(dev, &c));
    assert_string_not_equal(wf_variant_at(dev, WF_OP_GEMM, wf_pick(dev, &c))->name,
                            "ref"); /* wrong ones not even then */
    wf_dev_close(dev);
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        p.force = bad[i];
        assert_int_equal(wf_select_open("cpu", &p, &dev), WEFT_ERR_ARG);
        assert_null(dev);
    }
}

/* Opens the CPU with a file of these lines behind its head. */
static weft_status open_with_lines(const char *lines, wf_dev **dev)
{
    wf_open_params p = {.tier = WF_TIER_BASE, .threads = 1};
    struct weft_device_info cpu = {0};
    char path[256], text[1024];
    assert_true(wf_backend_cpu.list(&cpu, 1) == 1);
    snprintf(path, sizeof path, "%s/costs.tune", folder);
    snprintf(text, sizeof text, "weft-tuned 1\ndevice %s\nplatform %s\nunits %u\n%s", cpu.name, cpu.platform,
             cpu.compute_units, lines);
    write_text(path, text);
    p.tuned = path;
    return wf_select_open("cpu", &p, dev);
}

static const char *picked_with(const char *lines)
{
    wf_dev *dev;
    wf_call c = some_product(3, WF_F32);
    assert_ok(open_with_lines(lines, &dev));
    const char *name = wf_variant_at(dev, WF_OP_GEMM, wf_pick(dev, &c))->name;
    assert_true(wf_expected_us(dev, &c, wf_pick(dev, &c)) > 0);
    wf_dev_close(dev);
    return name;
}

/* Measured kernels come first, by expected time; a kernel with half of its coefficients is none. */
static void costs_order_kernels(void **state)
{
    static const char *const bad[] = {"cost device speed=1\n", "cost gemm/none memory=1\n", "cost gemm memory=1.5\n",
                                      "cost wgmma unit=1\n", "cost x y=1\n"};
    wf_dev *dev;
    assert_string_equal(picked_with("cost device read=1,f32=1\n"), "rows-c");
    assert_string_equal(picked_with("cost gemm/ref memory=0.5,compute=0.5\n"), "ref");
    assert_string_equal(picked_with("cost gemm/ref memory=0.5\n"), "rows-c");
    assert_string_equal(
        picked_with("cost gemm/ref memory=0.0002,compute=0.0001\ncost gemm/rows-c memory=0.5,compute=0.5\n"), "rows-c");
    assert_string_equal(picked_with("cost gemm/ref memory=0.6,compute=0.6\ncost gemm/rows-c memory=0.5,compute=0.5\n"),
                        "ref");
    for (size_t i = 0; i < WF_LEN(bad); i++) assert_error(open_with_lines(bad[i], &dev), WEFT_ERR_ARG, "line 5");
}

/* All that can run the call are dropped one by one, each once. */
static void dropped_until_none_is_left(void **state)
{
    wf_open_params p = {.tier = WF_TIER_MATRIX, .threads = 1, .tuned = "none"};
    wf_call c = some_product(3, WF_F32);
    wf_candidate_kernel all[32];
    wf_dev *dev;
    assert_ok(wf_select_open("cpu", &p, &dev));
    size_t n = dev->fns->rank(dev, &c, NULL, all, WF_LEN(all));
    assert_true(n >= 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(wf_pick(dev, &c), all[i].variant);
        wf_drop(dev, &c, all[i].variant);
        assert_false(wf_can_use(dev, &c, all[i].variant));
    }
    assert_int_equal(wf_pick(dev, &c), -1);
    wf_dev_close(dev);
}

/* A fused kernel that fails is dropped alone: not the plain one, not other fusions of it; a wrong plain one in all
 * ways. */
static void fused_ones_are_dropped_alone(void **state)
{
    wf_dev *dev;
    wf_call plain = some_product(1, WF_F32), silu = plain, norm_silu, norm = plain;
    silu.p.silu = 1;
    norm.in[WF_GEMM_NORM] = norm.in[WF_GEMM_W];
    norm_silu = norm, norm_silu.p.silu = 1;
    wf_null_configure(&(wf_null_config){.variants = 2});
    assert_ok(wf_select_open("null", &(wf_open_params){.tuned = "none"}, &dev));
    wf_drop(dev, &norm_silu, 0);
    assert_int_equal(wf_pick(dev, &norm_silu), 1);
    assert_int_equal(wf_pick(dev, &silu), 0);
    assert_int_equal(wf_pick(dev, &norm), 0);
    assert_int_equal(wf_pick(dev, &plain), 0);
    wf_drop(dev, &norm_silu, 1);
    assert_int_equal(wf_pick(dev, &norm_silu), -1);
    wf_drop(dev, &plain, 0);
    assert_true(wf_pick(dev, &plain) == 1 && wf_pick(dev, &silu) == 1 && wf_pick(dev, &norm) == 1);
    wf_dev_close(dev);
    wf_null_configure(NULL);
}

static void bad_files_are_warned_of(void **state)
{
    listen_to(WEFT_LOG_WARN);
    put_file(HEAD "nonsense\n");
    assert_int_equal(picked(NULL, 9, -1), 0);
    assert_true(said_times("kernel choices are not used") == 1 && said_times("line ") == 1);
    put_file("weft-tuned 1\ndevice another\n");
    assert_int_equal(picked(NULL, 9, -1), 0);
    assert_true(said_times("kernel choices are not used") == 2 && said_times("line ") == 2);
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
}

/* Choices among other kernels are out of date; but whoever names the file gets it. */
static void other_kernels(void **state)
{
    char path[1100], text[512];
    wf_dev *dev;
    struct weft_device_info info = null_info();
    wf_null_configure(&(wf_null_config){.variants = 3});
    assert_ok(wf_select_open("null", NULL, &dev));
    uint32_t now = wf_tuned_kernels(dev);
    wf_null_configure(&(wf_null_config){.variants = 2});
    assert_int_not_equal(wf_tuned_kernels(dev), now);
    wf_dev_close(dev);
    snprintf(text, sizeof text, HEAD "kernels %08x\n" ROW, now);
    put_file(text);
    assert_int_equal(picked(NULL, 9, -1), 2);
    snprintf(text, sizeof text, HEAD "kernels %08x\n" ROW, now ^ 1);
    put_file(text);
    listen_to(WEFT_LOG_ERROR); /* the warning is no failure of this test */
    assert_int_equal(picked(NULL, 9, -1), 0);
    assert_ok(wf_tuned_user_path(&info, false, path, sizeof path));
    wf_open_params p = {.tuned = path};
    assert_int_equal(picked(&p, 9, -1), 2);
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
}

/* A file that was asked for by name is no guess: what is wrong with it is an error. */
/* What a device's choices hash to. */
static uint64_t hash_of(const wf_open_params *p)
{
    uint64_t hash;
    wf_dev *d = NULL;
    wf_blake2b b;
    assert_ok(wf_select_open("null", p, &d));
    wf_blake2b_begin(&b, sizeof hash, NULL, 0);
    wf_select_hash(d, &b);
    wf_blake2b_end(&b, &hash);
    wf_dev_close(d);
    return hash;
}

static void named_files(void **state)
{
    char path[1100];
    struct weft_device_info info = null_info();
    put_file(HEAD ROW);
    assert_ok(wf_tuned_user_path(&info, false, path, sizeof path));
    wf_open_params p = {.tuned = path};
    assert_int_equal(picked(&p, 9, -1), 2);
    uint64_t hash = hash_of(&p);
    assert_int_equal(hash_of(&p), hash);
    assert_int_equal(hash_of(&(wf_open_params){0}), hash); /* where the file lies is nothing to it */
    put_file(HEAD "gemm F16 N=64,K=32 1:null2 10:null3\n");
    assert_int_not_equal(hash_of(&p), hash);
    put_file(HEAD ROW "cost device read=4545\n");
    assert_int_not_equal(hash_of(&p), hash);
    put_file(HEAD "nonsense\n");
    assert_int_equal(picked(&p, 9, -1), -2);
    assert_says("line 6");
    p.tuned = "/absent/file";
    assert_int_equal(picked(&p, 9, -1), -2);
    assert_int_equal(wf_null_alive(), 0);
}

static void slugs(void **state)
{
    char text[64];
    struct weft_device_info gpu = {.name = "NVIDIA H200", .platform = "NVIDIA CUDA", .type = WEFT_DEVICE_GPU,
                                   .compute_units = 132};
    struct weft_device_info cpu = {.name = "Intel(R) Xeon(R)", .platform = "weft cpu", .type = WEFT_DEVICE_CPU,
                                   .compute_units = 2};
    weft_device_file(&gpu, text, sizeof text);
    assert_string_equal(text, "nvidia-h200");
    weft_device_file(&cpu, text, sizeof text);
    assert_string_equal(text, "weft-cpu-intel-r-xeon-r-2");
    weft_device_file(&cpu, text, 9);
    assert_string_equal(text, "weft-cpu");
}

static bool never_the_third(wf_dev *dev, const wf_call *c, int variant)
{
    return variant != 2;
}

/* Measured choices that cannot run are passed over, with one warning each, which names the kernel. */
static void choices_that_cannot_run(void **state)
{
    wf_dev *dev;
    wf_call c;
    put_file(HEAD "gemm F16 N=32,K=64 1:null2 9:null3 100:gone\n");
    wf_null_configure(&(wf_null_config){.variants = 3});
    assert_ok(wf_select_open("null", NULL, &dev));
    wf_dev_fns fns = *dev->fns;
    fns.supports = never_the_third;
    dev->fns = &fns;
    listen_to(WEFT_LOG_WARN);
    for (uint32_t m = 1; m < 200; m++) {
        c = some_product(m, WF_F16);
        assert_int_equal(wf_pick(dev, &c), m < 9);
    }
    weft_log_to(NULL, NULL, WEFT_LOG_WARN);
    assert_int_equal(said_times("\n"), 2);
    assert_int_equal(said_times("kernel 'null3' cannot run 'gemm' on null device with 9 rows"), 1);
    assert_int_equal(said_times("no kernel 'gone' for gemm"), 1);
    wf_dev_close(dev);
}

SUITE_EACH(select_tuned, NULL, NULL, set_up, tear_down, CASE(rows_are_found), CASE(broken_files_are_refused),
           CASE(cut_files), CASE(costs_are_read), CASE(written_reads_back), CASE(devices_pick_by_file),
           CASE(choices_that_cannot_run), CASE(bad_files_are_warned_of), CASE(other_kernels), CASE(named_files),
           CASE(costs_order_kernels), CASE(shares_are_not_tuned), CASE(forced_by_name),
           CASE(dropped_until_none_is_left), CASE(fused_ones_are_dropped_alone), CASE(slugs))
