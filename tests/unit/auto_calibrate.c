/* auto_calibrate: when an engine measures ranges by itself, what it keeps of that, and that a start which measures
 * leads to what a later one finds. */
#include <sys/stat.h>

#include "engine/engine.h"
#include "support/fresh_cache.h"
#include "support/said.h"
#include "support/wraps.h"
#include <weft/debug.h>
#include "lab/lab.h"

#define DEMO     "models/demo.gguf"
#define RANDOM   "--shape" /* a path that stands for random weights */
#define MEASURED "measured on 256 tokens"
#define KEPT     "as measured at an earlier start"
enum { LAYERS = 5, CONTEXT = 512 };

static const char *cache;
static char entries[320], model_path[320];

/* ---- engines ---------------------------------------------------------------------------------------------- */

static struct weft_engine_params usual(void)
{
    return (struct weft_engine_params){.device = "cpu", .context = CONTEXT, .threads = 1};
}

static struct weft_model *open_model(const char *path)
{
    struct weft_model *m = NULL;
    struct weft_model_params p = {.path = path}, random = {.shape = "qwen2.5-0.5b", .type = "Q4_0", .layers = 1};
    assert_ok(weft_model_open(strcmp(path, RANDOM) ? &p : &random, &m));
    return m;
}

typedef struct opened {
    wf_phi ranges[LAYERS];
    uint32_t n_async;
    struct weft_stats stats;
} opened;

static void read_ranges(const struct weft_engine *e, opened *out)
{
    for (const wf_node *n = e->layout.graph.nodes; n < e->layout.graph.nodes + e->layout.graph.n_nodes; n++)
        if (n->op == WF_OP_ATTENTION) out->ranges[n->layer] = (wf_phi){n->p.phi, n->p.phi_lo, n->p.phi_hi};
    out->n_async = weft_engine_softmax(e, NULL, NULL, NULL, 0);
    weft_engine_stats(e, &out->stats);
}

static opened open_at(const char *path, const struct weft_engine_params *p)
{
    struct weft_model *m = open_model(path);
    struct weft_engine *e = NULL;
    opened o = {0};
    *said = 0;
    assert_ok(weft_engine_open(m, p, &e));
    read_ranges(e, &o);
    weft_engine_close(e);
    weft_model_close(m);
    return o;
}

static opened open_usual(void)
{
    struct weft_engine_params p = usual();
    return open_at(model_path, &p);
}

static void said_only(const char *text)
{
    assert_said(text);
    if (strcmp(text, MEASURED) && strstr(said, MEASURED)) fail_msg("it was measured: %s", said);
    if (strcmp(text, KEPT) && strstr(said, KEPT)) fail_msg("it was kept: %s", said);
}

/* Synchronous, for this reason, and nothing is kept. */
static void is_none(const char *path, const struct weft_engine_params *p, const char *why)
{
    opened o = open_at(path, p);
    said_only(why);
    assert_int_equal(o.n_async, 0);
    for (int i = 0; i < LAYERS; i++) assert_true(o.ranges[i].a == o.ranges[i].b);
    assert_int_not_equal(access(entries, F_OK), 0);
}

/* ---- entries ---------------------------------------------------------------------------------------------- */

/* The path of the only one, or of the one that is not `other`; the number of them. */
static int find_entry(const char *other, char *path, size_t cap)
{
    int n = 0;
    DIR *d = opendir(entries);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (*f->d_name == '.') continue;
        n++;
        if (!other || !strstr(other, f->d_name)) snprintf(path, cap, "%s/%s", entries, f->d_name);
    }
    if (d) closedir(d);
    return n;
}

static void shell(const char *fmt, const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command, fmt, a, b);
    assert_int_equal(system(command), 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

/* Both starts have the same ranges and programs, and no trace of the text is left in the first. */
static void later_starts_are_alike(void **state)
{
    opened first = open_usual();
    said_only(MEASURED);
    opened second = open_usual();
    said_only(KEPT);
    assert_memory_equal(first.ranges, second.ranges, sizeof first.ranges);
    assert_in_range(first.n_async, 1, LAYERS);
    assert_int_equal(first.n_async, second.n_async);
    assert_int_equal(first.stats.steps, 0);
    assert_int_equal(first.stats.step_tokens, 0);
    assert_int_equal(first.stats.softmax_recomputed, 0);
    assert_int_equal(first.stats.prefix_queries, 0);
    assert_int_equal(first.stats.kv_pages, second.stats.kv_pages);
    assert_int_equal(first.stats.activation_bytes, second.stats.activation_bytes);
}

/* Most rows of another text, which `weft calibrate` measures, are in the middle of them. */
static void ranges_are_those_of_a_text(void **state)
{
    static const char text[] = "One day a little girl found a red ball by the door. She gave it to the cat, and the "
                               "cat was happy. They played until the sun went down.";
    struct weft_engine_params p = usual();
    struct weft_engine *e = NULL;
    struct weft_calibration *c = NULL;
    opened o = open_usual();
    struct weft_model *m = open_model(model_path);
    p.calibration = "none";
    assert_ok(weft_engine_open(m, &p, &e));
    assert_ok(weft_calibrate(e, &(struct weft_calibrate_params){.text = text, .len = sizeof text - 1}, &c));
    for (int i = 0; i < LAYERS; i++) {
        if (o.ranges[i].a < o.ranges[i].b)
            assert_true(weft_logit_quantile(&c->layers[i].rows, 0.5) > o.ranges[i].phi + WF_PHI_F16_A);
        if (o.ranges[i].a < o.ranges[i].b)
            assert_true(weft_logit_quantile(&c->layers[i].rows, 0.5) < o.ranges[i].phi + WF_PHI_B);
    }
    weft_calibration_free(c);
    weft_engine_close(e);
    weft_model_close(m);
}

static void damaged_entries_are_measured_again(void **state)
{
    static const char *const damage[] = {"truncate -s 100 '%s'", "truncate -s -1 '%s'",
                                         "printf x | dd of='%s' bs=1 seek=90 conv=notrunc status=none",
                                         "printf foreign > '%s'", ": > '%s'"};
    char path[640] = "";
    opened first = open_usual();
    assert_int_equal(find_entry(NULL, path, sizeof path), 1);
    for (size_t i = 0; i < WF_LEN(damage); i++) {
        shell(damage[i], path, "");
        opened again = open_usual();
        said_only(MEASURED);
        assert_memory_equal(first.ranges, again.ranges, sizeof first.ranges);
        open_usual();
        said_only(KEPT);
    }
}

/* The same shape, size and name with one other weight; and its entry in the place of the first one's. */
static void other_weights_are_another_model(void **state)
{
    char first[640] = "", second[640] = "";
    open_usual();
    find_entry(NULL, first, sizeof first);
    struct weft_model *m = open_model(model_path);
    const wf_gguf_tensor *t = wf_gguf_tensor_find(m->file, "blk.0.attn_q.weight");
    assert_non_null(t);
    uint8_t was = t->data[t->bytes / 2];
    long at = (long)((const uint8_t *)t->data + t->bytes / 2 - (const uint8_t *)m->file->maps[0].data);
    weft_model_close(m);
    FILE *f = fopen(model_path, "r+b");
    assert_true(f && !fseek(f, at, SEEK_SET) && fputc(was ^ 1, f) != EOF && !fclose(f));
    open_usual();
    said_only(MEASURED);
    assert_int_equal(find_entry(first, second, sizeof second), 2);
    shell("cp '%s' '%s'", first, second);
    open_usual();
    said_only(MEASURED);
}

static void cache_that_cannot_be_written(void **state)
{
    shell("mkdir -p '%s/weft' && : > '%s'", cache, entries);
    opened first = open_usual();
    said_only(MEASURED);
    opened second = open_usual();
    said_only(MEASURED);
    assert_memory_equal(first.ranges, second.ranges, sizeof first.ranges);
    assert_int_equal(unlink(entries), 0);
    struct weft_engine_params p = usual();
    p.no_kernel_cache = true;
    open_at(model_path, &p);
    said_only(MEASURED);
    assert_int_not_equal(access(entries, F_OK), 0);
}

static void not_where_it_would_not_be_used(void **state)
{
    struct weft_engine_params none = usual(), same = usual(), decode = usual(), forced = usual();
    struct weft_debug debug = {.force = "attention=pages-c"};
    none.calibration = "none", same.deterministic = true, decode.max_batched_tokens = 1, forced.debug = &debug;
    is_none(model_path, &none, "");
    is_none(model_path, &same, "a deterministic engine takes it from a file only");
    is_none(model_path, &decode, "no kernel that would run here uses it"); /* decoding on a CPU does not gain */
    is_none(model_path, &forced, "no kernel that would run here uses it");
    is_none(RANDOM, &none, "");
    none.calibration = NULL;
    is_none(RANDOM, &none, "a model that is no file is not measured");
    is_none(WEFT_DEMO, &(struct weft_engine_params){.device = "cpu", .context = CONTEXT, .threads = 1},
            "a model that is no file is not measured");
}

/* Names, in *p, a file by which the device has these rates. */
static void set_rates(const char *rates, char path[400], struct weft_engine_params *p)
{
    struct weft_device_info list[16];
    size_t n = weft_devices(list, WF_LEN(list)), cpu = 0;
    while (cpu < n && strcmp(list[cpu].id, "cpu")) cpu++;
    assert_true(cpu < n);
    snprintf(path, 400, "%s/rates.tune", cache);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "weft-tuned 1\ndevice %s\nplatform %s\nunits %u\ncost device %s\n", list[cpu].name, list[cpu].platform,
            list[cpu].compute_units, rates);
    fclose(f);
    p->tuned = path;
}

/* By the estimate alone: this machine is as fast as before. */
static void not_where_it_would_take_long(void **state)
{
    char path[400];
    struct weft_engine_params p = usual();
    set_rates("read=0.0001,f32=0.0001,f16=0.0001,q8=0.0001", path, &p);
    is_none(model_path, &p, "are left to weft calibrate");
    open_usual();
    said_only(MEASURED);
    open_at(model_path, &p); /* what is kept costs nothing */
    said_only(KEPT);
}

/* Fewer tokens where the usual number takes more than a moment, and layers have ranges as with that. */
static void few_tokens_where_it_takes_a_while(void **state)
{
    char path[400];
    struct weft_engine_params p = usual();
    opened all = open_usual();
    shell("rm -r '%s'%s", entries, "");
    set_rates("read=1,f32=0.0004,f16=0.0004,q8=0.0004", path, &p);
    opened few = open_at(model_path, &p);
    said_only("measured on 128 tokens");
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(few.ranges[i].a < few.ranges[i].b, all.ranges[i].a < all.ranges[i].b);
    opened again = open_usual(); /* on a faster machine, as it were */
    said_only(KEPT);
    assert_memory_equal(few.ranges, again.ranges, sizeof few.ranges);
}

static void a_file_takes_precedence(void **state)
{
    char path[400];
    snprintf(path, sizeof path, "%s" WEFT_CALIBRATION_SUFFIX, model_path);
    struct weft_model *m = open_model(model_path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "weft-calibration 1\nmodel %llu bytes\n", (unsigned long long)weft_model_info(m)->file_bytes);
    for (int i = 0; i < LAYERS; i++) fprintf(f, "layer %d phi 4.25 a -55 b 10.39\n", i);
    fclose(f);
    weft_model_close(m);
    const char *const names[] = {NULL, "auto", path};
    for (size_t i = 0; i < WF_LEN(names); i++) {
        struct weft_engine_params p = usual();
        p.calibration = names[i];
        opened o = open_at(model_path, &p);
        said_only("asynchronous softmax in 5 of 5 layers");
        for (int k = 0; k < LAYERS; k++) assert_true(o.ranges[k].phi == 4.25f);
    }
    struct weft_engine_params none = usual();
    none.calibration = "none";
    opened o = open_at(model_path, &none);
    assert_int_equal(o.n_async, 0);
    unlink(path);
}

/* A plan of a model without ranges is run as it is; one with them when the ranges are still to be measured. */
static void plans_from_files(void **state)
{
    char with[400], without[400];
    struct weft_engine_params p = usual();
    snprintf(with, sizeof with, "%s/with.plan", cache), snprintf(without, sizeof without, "%s/without.plan", cache);
    p.dump_plan = without, p.calibration = "none";
    open_at(model_path, &p);
    p.dump_plan = with, p.calibration = NULL;
    opened first = open_at(model_path, &p);
    shell("rm -r '%s'%s", entries, "");
    p.dump_plan = NULL, p.plan = without;
    is_none(model_path, &p, "the plan is of a model without ranges");
    p.plan = with;
    opened again = open_at(model_path, &p);
    said_only(MEASURED);
    assert_memory_equal(first.ranges, again.ranges, sizeof first.ranges);
    open_at(model_path, &p);
    said_only(KEPT);
}

/* Kernels that need a range run also before there is one: rows that leave it are computed again. */
static void kernel_that_is_named(void **state)
{
    struct weft_engine_params p = usual();
    struct weft_debug debug = {.force = "attention=pages-async-c"};
    opened first = open_usual();
    shell("rm -r '%s'%s", entries, "");
    p.debug = &debug;
    opened forced = open_at(model_path, &p);
    said_only(MEASURED);
    assert_in_range(forced.n_async, 1, LAYERS - 1); /* those that fit, not the ones that stood in */
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(first.ranges[i].a < first.ranges[i].b, forced.ranges[i].a < forced.ranges[i].b);
}

static void on_progress(void *user, const char *what, double fraction)
{
    if (!strcmp(what, "calibrate") && fraction > 0.3) *(bool *)user = true;
}

static bool stops(void *user)
{
    return *(const bool *)user;
}

/* Between two pieces of the text: nothing is kept, and the next start measures. */
static void opening_is_given_up(void **state)
{
    bool stop = false;
    struct weft_model *m = open_model(model_path);
    struct weft_engine *e = NULL;
    struct weft_engine_params p = usual();
    p.context = 16, p.on_progress = on_progress, p.stop = stops, p.user = &stop;
    *said = 0;
    assert_int_equal(weft_engine_open(m, &p, &e), WEFT_ERR_CANCELLED);
    assert_true(stop);
    assert_null(e);
    assert_null(strstr(said, MEASURED));
    assert_int_not_equal(access(entries, F_OK), 0);
    weft_model_close(m);
    p.stop = NULL;
    open_at(model_path, &p);
    said_only(MEASURED);
}

/* ---- memory runs out ------------------------------------------------------------------------------------------- */

static void on_first_piece(void *user, const char *what, double fraction)
{
    int *nth = user;
    if (strcmp(what, "calibrate") || *nth < 0) return;
    atomic_store(&test_alloc_countdown, *nth);
    *nth = -1;
}

/* One allocation fails while pieces are measured, in a step or between two: the engine opens without ranges, and says
 * why. */
static void opens_without_memory_to_measure(void **state)
{
    int without = 0;
    for (int i = 0; i < 40; i++) {
        int nth = i;
        struct weft_engine_params p = usual();
        p.context = 16, p.on_progress = on_first_piece, p.user = &nth;
        opened o = open_at(model_path, &p);
        atomic_store(&test_alloc_countdown, -1);
        if (strstr(said, MEASURED)) shell("rm -r '%s'%s", entries, ""); /* it could do without */
        else if (o.n_async || !strstr(said, "the softmax is synchronous: ") || !strstr(said, "out of host memory"))
            fail_msg("allocation %d: %s", i, said);
        else without++;
    }
    assert_true(without > 20);
}

/* ---- setup ----------------------------------------------------------------------------------------------------- */

static int each(void **state)
{
    cache = fresh_cache();
    snprintf(entries, sizeof entries, "%s/weft/calibrations", cache);
    snprintf(model_path, sizeof model_path, "%s/m.gguf", cache);
    shell("cp '%s' '%s'", DEMO, model_path);
    listen_to(WEFT_LOG_INFO);
    return 0;
}

static int after(void **state)
{
    forget_cache(cache);
    return 0;
}

SUITE_EACH(auto_calibrate, NULL, NULL, each, after, CASE(later_starts_are_alike), CASE(ranges_are_those_of_a_text),
           CASE(damaged_entries_are_measured_again), CASE(other_weights_are_another_model),
           CASE(cache_that_cannot_be_written), CASE(not_where_it_would_not_be_used), CASE(not_where_it_would_take_long),
           CASE(few_tokens_where_it_takes_a_while), CASE(a_file_takes_precedence), CASE(plans_from_files),
           CASE(kernel_that_is_named), CASE(opening_is_given_up), CASE(opens_without_memory_to_measure))
