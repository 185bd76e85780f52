/* overlap: `weft tune --overlap` on the null device, whose clock knows what each op costs with each share and beside others: the profile says what the clock
 * does, and what engines take by themselves afterwards is never slower than the sequential plan. */
#include "base/file.h"
#include "dev/null.h"
#include "tune/overlap.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { UNITS = 8, SEQS = 8, TOKENS = 64, CONTEXT = 128 };

static struct weft_model *model;
static char cache[64];

/* ---- worlds ---------------------------------------------------------------------------------------------------------- */

static struct world {
    double bend[2];   /* of products and of all else: rate = share ^ bend */
    double beside[2]; /* factors of the time beside others */
    double product, attention;
} world;

/* Attention of prompts is bound by compute as well. */
static bool is_product(const wf_call *c)
{
    return c->op == WF_OP_GEMM || (c->op == WF_OP_ATTENTION && c->p.max_q != 1);
}

/* What the device has drawn, and for how long, by all that was launched one behind the other. */
static struct drawn {
    double joules;
    uint64_t ns;
} drawn;
enum { STATIC_W = 150, PRODUCT_W = 600, OTHER_W = 400, LIMIT_W = 700 };

/* The same work with a part of the device takes longer, and draws as much besides what is always drawn. */
static void draw(const wf_call *c, double alone_ns, uint64_t ns)
{
    drawn.joules += (STATIC_W * (double)ns + ((is_product(c) ? PRODUCT_W : OTHER_W) - STATIC_W) * alone_ns) / 1e9;
    drawn.ns += ns;
}

static uint64_t cost(const wf_call *c)
{
    double each = is_product(c) ? world.product : c->op == WF_OP_ATTENTION ? world.attention : 5;
    double share = c->max_groups ? (double)c->max_groups / UNITS : 1, alone = 500 + each * c->out[0].rows;
    uint64_t ns = (uint64_t)(alone / pow(share, world.bend[is_product(c)]));
    draw(c, alone, ns);
    return ns;
}

static double beside(const wf_call *c)
{
    return world.beside[is_product(c)];
}

static const wf_null_config clock_of_world = {.cost_ns = cost, .beside = beside, .compute_units = UNITS};

static void empty_cache(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/weft/overlap", cache);
    assert_int_equal(system(command), 0);
}

static void set_world(struct world w)
{
    world = w;
    wf_null_configure(&clock_of_world);
    empty_cache();
}

/* ---- engines --------------------------------------------------------------------------------------------------------- */

static struct weft_engine *open_engine(uint32_t nano_batches)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS, .nano_batches = nano_batches, .profile = true};
    if (weft_engine_open(model, &p, &e)) fail_msg("%s", weft_last_error());
    return e;
}

static enum weft_status answer(struct weft_engine *e)
{
    static const int32_t prompt[] = {1, 2, 3};
    struct weft_request *r = NULL;
    enum weft_status s = weft_submit(e, &(struct weft_request_params){.tokens = prompt, .n_tokens = 3, .max_tokens = 2, .ignore_eos = true}, &r);
    if (s == WEFT_OK) s = weft_wait(r, 0);
    weft_request_free(r);
    return s;
}

static enum weft_status tune_as(struct weft_overlap_params p, char **said)
{
    size_t len;
    FILE *f = open_memstream(said, &len);
    struct weft_engine *e = open_engine(1);
    enum weft_status s = weft_tune_overlap(e, &p, f, NULL);
    fclose(f);
    weft_engine_close(e);
    return s;
}

static enum weft_status tune(struct weft_overlap_params p, char **said)
{
    p.quick = true;
    return tune_as(p, said);
}

/* The file that was stored. */
static void stored(const char *what, char *path, size_t cap)
{
    struct weft_engine *e = open_engine(1);
    assert_int_equal(wf_stored_path(e->dev, &e->graph, what, path, cap), WEFT_OK);
    weft_engine_close(e);
}

/* What was measured holds for any context: only tables of positions are longer. */
static void test_any_context(void **state)
{
    char path[2][600];
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_engine *e = NULL;
        struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT << i, .max_batched_tokens = TOKENS};
        assert_int_equal(weft_engine_open(model, &p, &e), WEFT_OK);
        assert_int_equal(wf_stored_path(e->dev, &e->graph, "plan", path[i], sizeof path[i]), WEFT_OK);
        weft_engine_close(e);
    }
    assert_string_equal(path[0], path[1]);
}

static double step_us(struct weft_engine *e, uint32_t decodes, uint32_t prefill)
{
    wf_batch b;
    double us;
    assert_int_equal(wf_batch_init(&b, &e->limits), WEFT_OK);
    assert_int_equal(wf_load_batch(e, (wf_step_load){decodes, prefill}, CONTEXT, &b), WEFT_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(wf_load_step(e, &b, &us), WEFT_OK);
    wf_batch_free(&b);
    return us;
}

/* ---- the profile ----------------------------------------------------------------------------------------------------- */

static const struct world gains = {.bend = {0.2, 0.3}, .beside = {1, 1}, .product = 100, .attention = 4000};

static void test_profile(void **state)
{
    char path[600], *said;
    wf_op_profile p;
    (void)state;
    set_world(gains);
    if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
    stored("profile", path, sizeof path);
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    assert_int_equal(p.groups, UNITS);
    const wf_op_times *down = wf_op_profile_find(&p, "down"), *attention = wf_op_profile_find(&p, "decode_attention");
    assert_non_null(down);
    assert_non_null(attention);
    assert_true(fabs(wf_op_us(down, TOKENS) - (500 + 100.0 * TOKENS) / 1e3) < 0.01);
    assert_true(fabs(wf_op_us(attention, SEQS) - (500 + 4000.0 * SEQS) / 1e3) < 0.01);
    assert_true(fabs(wf_op_rate(&p, down, TOKENS, 0.5, true) - pow(0.5, gains.bend[1])) < 0.01);
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COMPUTE, 0.5) - pow(0.5, gains.bend[1])) < 0.03);
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_MEMORY, 0.5) - pow(0.5, gains.bend[0])) < 0.01);
    assert_non_null(strstr(said, path));
    wf_op_profile_free(&p);
    free(said);
}

/* Copies to the host take longer beside kernels, and these beside copies, whatever part of the device they have. */
static uint64_t slow_beside(uint64_t bytes, bool beside)
{
    return bytes / 9 * (beside ? 2 : 1); /* about as long as a product, so that both have company all the time */
}

static void test_copies(void **state)
{
    char path[600], *said;
    wf_op_profile p;
    (void)state;
    wf_null_config c = clock_of_world;
    set_world((struct world){.bend = {0.2, 0.3}, .beside = {1.25, 1.25}, .product = 100, .attention = 4000});
    c.read_ns = slow_beside;
    wf_null_configure(&c);
    if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
    stored("profile", path, sizeof path);
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    assert_true(wf_op_profile_has_rate(&p, WF_CLASS_COPY, 0));
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COPY, 0) - 0.5) < 0.03);
    assert_true(wf_op_profile_has_rate(&p, WF_CLASS_COMPUTE, 1));
    assert_true(fabs(wf_class_rate(&p, WF_CLASS_COMPUTE, 1) - 0.8) < 0.05);
    assert_null(wf_op_profile_find(&p, "swap_out"));
    wf_op_profile_free(&p);
    free(said);
}

/* ---- energy ---------------------------------------------------------------------------------------------------------- */

#define PCI "0000:19:00.0"

static char sensor[200];

static void write_number(const char *name, double v)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", sensor, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.0f\n", v);
    assert_int_equal(fclose(f), 0);
}

/* Who reads power asks for the time first. */
static uint64_t clock_of_sensor(void)
{
    write_number("energy1_input", drawn.joules * 1e6);
    return drawn.ns;
}

static void make_sensor(void)
{
    char command[256];
    wf_null_config c = clock_of_world;
    c.pci = PCI;
    wf_null_configure(&c);
    snprintf(sensor, sizeof sensor, "%s/sys/bus/pci/devices/" PCI "/hwmon/hwmon0", cache);
    snprintf(command, sizeof command, "mkdir -p %s", sensor);
    assert_int_equal(system(command), 0);
    write_number("power1_max", LIMIT_W * 1e6);
    clock_of_sensor();
    wf_power_configure(&(wf_power_config){.root = cache, .nvml = "/absent/nvml", .now_ns = clock_of_sensor});
}

static const wf_op_energy *energy_of(const wf_op_profile *p, const char *name, double share)
{
    for (const wf_op_energy *e = p->energies; e < p->energies + p->n_energies; e++)
        if (!strcmp(e->name, name) && fabs(e->share - share) < 0.01) return e;
    fail_msg("no joules of %s with a share of %g", name, share);
    return NULL;
}

static void draws(const wf_op_profile *p, const char *name, double share, double bend, double watts)
{
    const wf_op_energy *e = energy_of(p, name, share);
    double us = wf_op_us(wf_op_profile_find(p, name), e->tokens) / 1e6, longer = us / pow(share, bend), joules = STATIC_W * longer + (watts - STATIC_W) * us;
    if (fabs(e->each.seconds / longer - 1) > 1e-3 || fabs(e->each.joules / joules - 1) > 1e-3)
        fail_msg("%s with %g: %g J in %g s, where %g and %g were wanted", name, share, e->each.joules, e->each.seconds, joules, longer);
    assert_true(e->each.bytes > 0 && e->quick);
}

static void test_energy(void **state)
{
    char path[600], *said;
    wf_op_profile p;
    (void)state;
    set_world(gains);
    make_sensor();
    if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
    stored("profile", path, sizeof path);
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    draws(&p, "down", 1, gains.bend[1], PRODUCT_W);
    draws(&p, "down", 0.5, gains.bend[1], PRODUCT_W);
    draws(&p, "decode_attention", 1, gains.bend[0], OTHER_W);
    draws(&p, "decode_attention", 0.5, gains.bend[0], OTHER_W);
    assert_true(p.energy.power_limit == LIMIT_W);
    assert_non_null(strstr(said, "\npower: hwmon; "));
    assert_true(drawn.joules > 0);
    free(said);
    size_t n = p.n_energies; /* the same command measures nothing anew */
    wf_op_profile_free(&p);
    if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    assert_int_equal(p.n_energies, n);
    wf_op_profile_free(&p);
    wf_power_configure(NULL);
    free(said);
}

static void test_no_energy(void **state)
{
    char path[600], *said;
    wf_op_profile p;
    (void)state;
    set_world(gains);
    if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
    stored("profile", path, sizeof path);
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    assert_int_equal(p.n_energies, 0);
    assert_true(p.energy.power_limit == 0 && p.energy.static_power == 0);
    assert_non_null(strstr(said, "\npower: not readable\n"));
    wf_op_profile_free(&p);
    free(said);
}

/* ---- going on -------------------------------------------------------------------------------------------------------- */

/* Ends after so many questions. */
static bool stop_later(void *user)
{
    return --*(int *)user < 0;
}

static void test_goes_on(void **state)
{
    int left = 3;
    char path[600], *said, *whole;
    wf_op_profile part, all;
    (void)state;
    set_world(gains);
    struct weft_overlap_params p = {.stop = stop_later, .user = &left};
    assert_int_equal(tune(p, &said), WEFT_OK);
    stored("profile", path, sizeof path);
    assert_int_equal(wf_op_profile_load(path, &part), WEFT_OK);
    world.product *= 2; /* what was measured before is not measured again */
    assert_int_equal(tune((struct weft_overlap_params){0}, &whole), WEFT_OK);
    assert_int_equal(wf_op_profile_load(path, &all), WEFT_OK);
    assert_true(all.n_ops >= part.n_ops);
    assert_true(wf_op_us(wf_op_profile_find(&all, "down"), TOKENS) == wf_op_us(wf_op_profile_find(&part, "down"), TOKENS));
    wf_op_profile_free(&part);
    free(said);
    assert_int_equal(tune((struct weft_overlap_params){.anew = true}, &said), WEFT_OK);
    assert_int_equal(wf_op_profile_load(path, &part), WEFT_OK);
    assert_true(wf_op_us(wf_op_profile_find(&part, "down"), TOKENS) > 1.5 * wf_op_us(wf_op_profile_find(&all, "down"), TOKENS));
    wf_op_profile_free(&part);
    wf_op_profile_free(&all);
    free(said);
    free(whole);
}

static double product_us(const char *path)
{
    wf_op_profile p;
    assert_int_equal(wf_op_profile_load(path, &p), WEFT_OK);
    double us = wf_op_us(wf_op_profile_find(&p, "down"), TOKENS);
    wf_op_profile_free(&p);
    return us;
}

/* Ends when the largest step has been measured. */
static bool stop_after_first(void *user)
{
    return ++*(int *)user > 1;
}

/* A trial's times are none of a run in earnest, whose times a later trial takes. */
static void test_quick_times_are_replaced(void **state)
{
    int asked = 0;
    char path[600], *said;
    (void)state;
    set_world(gains);
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    stored("profile", path, sizeof path);
    double trial = product_us(path);
    world.product *= 2;
    assert_int_equal(tune_as((struct weft_overlap_params){.stop = stop_after_first, .user = &asked}, &said), WEFT_OK);
    free(said);
    double earnest = product_us(path);
    assert_true(earnest > 1.5 * trial);
    world.product /= 4;
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    assert_true(product_us(path) == earnest);
}

typedef struct text {
    char v[1 << 16];
} text;

static text read_text(const char *path)
{
    text t = {{0}};
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    t.v[fread(t.v, 1, sizeof t.v - 1, f)] = 0;
    fclose(f);
    return t;
}

static void write_text(const char *path, const char *t)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(t, f);
    fclose(f);
}

/* Changes a digit of the nth word behind "made-for"; 0: that of the device. */
static void forge_key(const char *path, int nth)
{
    text t = read_text(path);
    char *at = strstr(t.v, "made-for ");
    assert_non_null(at);
    for (at += strlen("made-for "); nth; nth--) at += strcspn(at, " ") + 1;
    *at = *at == '0' ? '1' : '0';
    write_text(path, t.v);
}

static void test_profile_of_others(void **state)
{
    static const char *const says[] = {"another device", "a model of another shape"};
    char path[128], *said;
    (void)state;
    set_world(gains);
    snprintf(path, sizeof path, "%s/profile", cache);
    for (int nth = 0; nth < 2; nth++) {
        assert_int_equal(tune((struct weft_overlap_params){.profile = path, .anew = true}, &said), WEFT_OK);
        free(said);
        forge_key(path, nth);
        text before = read_text(path);
        assert_int_equal(tune((struct weft_overlap_params){.profile = path}, &said), WEFT_ERR_ARG);
        if (!strstr(weft_last_error(), says[nth])) fail_msg("%s", weft_last_error());
        text after = read_text(path);
        assert_string_equal(before.v, after.v);
        free(said);
        struct weft_engine *e = open_engine(1);
        FILE *f = fopen("/dev/null", "w");
        assert_int_equal(weft_search(e, &(struct weft_search_params){.profile = path, .seconds = 1}, f, NULL), nth ? WEFT_ERR_ARG : WEFT_OK);
        fclose(f);
        weft_engine_close(e);
    }
    unlink(path);
}

/* ---- what engines take ------------------------------------------------------------------------------------------------- */

static const struct { uint32_t decodes, prefill; } loads[] = {{SEQS, 0}, {1, TOKENS - 1}, {SEQS - 1, TOKENS - SEQS + 1}};

/* The largest gain, as a part of the time. */
static double compare_with_sequential(const char *what)
{
    struct weft_engine *sequential = open_engine(1), *own = open_engine(0);
    double gain = 0;
    for (size_t i = 0; i < WF_LEN(loads); i++) {
        double us = step_us(own, loads[i].decodes, loads[i].prefill), before = step_us(sequential, loads[i].decodes, loads[i].prefill);
        if (us > before) fail_msg("%s: %u decodes and %u tokens of prompts: %g us, sequential %g", what, loads[i].decodes, loads[i].prefill, us, before);
        gain = WF_MAX(gain, 1 - us / before);
    }
    weft_engine_close(sequential);
    weft_engine_close(own);
    return gain;
}

/* Why steps run as they do, of an engine and without one. */
static void expect_source(uint32_t nano_batches, const char *want)
{
    char words[600];
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS, .nano_batches = nano_batches};
    struct weft_engine *e = open_engine(nano_batches);
    assert_string_equal(weft_engine_plan_source(e), want);
    weft_engine_close(e);
    assert_int_equal(weft_plan_source(model, &p, words, sizeof words), WEFT_OK);
    assert_string_equal(words, want);
}

static void test_takes_what_gains(void **state)
{
    char *said;
    (void)state;
    set_world(gains);
    assert_true(compare_with_sequential("nothing measured") == 0);
    expect_source(0, "sequential: never measured here (weft tune --overlap)");
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    double gain = compare_with_sequential("gains");
    if (gain < 0.02) printf("%s", said);
    assert_true(gain >= 0.02);
    expect_source(0, "the fastest that weft tune --overlap found");
    expect_source(1, "sequential, as weft_engine_params.nano_batches says");
    expect_source(2, "in 2 nano-batches, as weft_engine_params.nano_batches says");
    free(said);
}

/* The profile promises a gain that the device then does not have. */
static void test_takes_nothing_that_loses(void **state)
{
    char path[600], *said;
    wf_plans plans;
    struct world w = gains;
    (void)state;
    set_world(gains);
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    w.beside[0] = w.beside[1] = 4;
    world = w;
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    assert_non_null(strstr(said, "1.00x: simulation promised"));
    stored("plan", path, sizeof path);
    struct weft_engine *e = open_engine(1);
    assert_int_equal(wf_plans_load(&e->graph, path, &plans), WEFT_OK);
    assert_int_equal(plans.n, 1);
    wf_plans_free(&plans);
    weft_engine_close(e);
    expect_source(0, "sequential: weft tune --overlap found nothing faster");
    free(said);
}

static double between(double low, double high, uint64_t seed, uint64_t at)
{
    return low + (high - low) * wf_random_unit(seed, at);
}

static void test_never_slower(void **state)
{
    enum { WORLDS = 5 };
    int gained = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        char *said, what[32];
        set_world((struct world){{between(0.1, 0.5, seed, 1), between(0.1, 0.5, seed, 2)}, {between(0.8, 1.3, seed, 3), between(0.8, 1.3, seed, 4)},
                                 between(60, 160, seed, 5), between(3000, 7000, seed, 6)});
        if (tune((struct weft_overlap_params){0}, &said)) fail_msg("%s", weft_last_error());
        snprintf(what, sizeof what, "world %d", (int)seed);
        gained += compare_with_sequential(what) > 0;
        free(said);
    }
    printf("%d worlds: %d gained\n", WORLDS, gained);
    assert_true(gained > 0);
}

/* ---- ablation ---------------------------------------------------------------------------------------------------------- */

/* Speedups by load and plan, as they come. */
typedef struct table {
    double speedup[3][5], watts[3][5], joules[3][5];
    size_t n;
} table;

static void on_row(void *user, const struct weft_ablation_row *r)
{
    static const char *const loads[] = {"decode", "prefill", "mixed"}, *const plans[] = {"no split", "split only", "overlap", "overlap + offload", "tuned"};
    table *t = user;
    size_t load = 0, plan = 0;
    while (strcmp(loads[load], r->load)) assert_true(++load < 3);
    while (strcmp(plans[plan], r->plan)) assert_true(++plan < 5);
    assert_true(r->us > 0 && r->spread_us == 0 && r->tokens == (load ? TOKENS : SEQS) && r->decodes < (load ? SEQS : SEQS + 1u));
    t->speedup[load][plan] = r->speedup, t->watts[load][plan] = r->watts, t->joules[load][plan] = r->joules_per_token;
    assert_string_equal(r->power_source, r->watts > 0 ? "hwmon" : "not readable");
    t->n++;
}

static table ablate(void)
{
    table t = {0};
    struct weft_engine *e = open_engine(1);
    if (weft_ablation(e, &(struct weft_ablation_params){.rounds = 3, .on_row = on_row, .user = &t})) fail_msg("%s", weft_last_error());
    assert_int_equal(answer(e), WEFT_OK);
    weft_engine_close(e);
    return t;
}

/* Splitting costs a launch of each op more, and overlapping pays where attention and products hardly slow each other down. */
static void test_ablation(void **state)
{
    char *said;
    (void)state;
    set_world(gains);
    table t = ablate();
    assert_int_equal(t.n, 12);
    for (size_t load = 0; load < 3; load++) assert_true(t.speedup[load][0] == 1 && t.speedup[load][1] < 1 && t.speedup[load][2] > t.speedup[load][1]);
    assert_true(t.speedup[2][2] > 1);
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    t = ablate();
    assert_int_equal(t.n, 15);
    for (size_t load = 0; load < 3; load++) assert_true(t.speedup[load][4] >= 1 && t.watts[load][4] == 0);
}

/* Copies that are shorter than a step cost nothing on this device, and longer ones last as long as they last: four pages of 64 tokens. */
static uint64_t read_time;
static uint64_t fixed_read(uint64_t bytes, bool beside)
{
    (void)beside;
    return bytes * read_time;
}

static void test_offload(void **state)
{
    (void)state;
    wf_null_config c = clock_of_world;
    set_world(gains);
    c.read_ns = fixed_read;
    for (read_time = 0; read_time < 1000; read_time += 500) {
        wf_null_configure(&c);
        table t = ablate();
        assert_int_equal(t.n, 12);
        for (size_t load = 0; load < 3; load++) assert_true(read_time ? t.speedup[load][3] < t.speedup[load][2] / 2 : t.speedup[load][3] == t.speedup[load][2]);
    }
}

/* Watts are between those of what a step consists of, and a token's joules are those of a step over its tokens. */
static void test_ablation_draws(void **state)
{
    (void)state;
    set_world(gains);
    make_sensor();
    table t = ablate();
    assert_int_equal(t.n, 12);
    for (size_t load = 0; load < 3; load++)
        for (size_t plan = 0; plan < 4; plan++)
            if (!(t.watts[load][plan] > OTHER_W && t.watts[load][plan] < PRODUCT_W && t.joules[load][plan] > 0)) fail_msg("load %zu, plan %zu: %g W", load, plan, t.watts[load][plan]);
    assert_true(t.joules[0][1] > t.joules[0][0]); /* split: each op is launched twice */
    wf_power_configure(NULL);
}

static bool stop_at_once(void *user)
{
    (void)user;
    return true;
}

static void test_ablation_refuses(void **state)
{
    struct weft_engine *e = open_engine(1);
    table t = {0};
    (void)state;
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){0}), WEFT_ERR_ARG);
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row, .rounds = 2}), WEFT_ERR_ARG);
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row, .user = &t, .stop = stop_at_once}), WEFT_ERR_CANCELLED);
    assert_int_equal(t.n, 0);
    weft_engine_close(e);
    e = open_engine(2);
    assert_int_equal(weft_ablation(e, &(struct weft_ablation_params){.on_row = on_row}), WEFT_ERR_ARG);
    weft_engine_close(e);
}

/* ---- small engines ------------------------------------------------------------------------------------------------------- */

static struct weft_engine *open_small(uint32_t seqs, uint32_t context, uint32_t tokens, uint32_t contexts)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null", .n_seqs = seqs, .context = context, .max_batched_tokens = tokens, .kv_seqs = contexts, .nano_batches = 1,
                                   .profile = true};
    if (weft_engine_open(model, &p, &e)) fail_msg("%s", weft_last_error());
    return e;
}

static void count_loads(void *user, const struct weft_ablation_row *r)
{
    bool prefill = strcmp(r->load, "decode") != 0;
    assert_true(r->us > 0 && r->tokens > 0 && prefill == (r->decodes < r->tokens) && (r->decodes > 0 || !strcmp(r->load, "prefill")));
    *(uint32_t *)user += !strcmp(r->plan, "no split");
}

/* As many kinds of load as there are: a step of both needs two sequences, two tokens, and pages for a prompt and a decode. */
static void test_small_engines(void **state)
{
    static const uint32_t seqs[] = {1, 2, SEQS}, contexts[] = {1, 16, CONTEXT}, tokens[] = {1, 2, SEQS, 4 * CONTEXT}, kv[] = {1, SEQS};
    (void)state;
    set_world(gains);
    for (size_t i = 0; i < WF_LEN(seqs) * WF_LEN(contexts) * WF_LEN(tokens) * WF_LEN(kv); i++) {
        uint32_t loads = 0, s = seqs[i % 3], c = contexts[i / 3 % 3], t = tokens[i / 9 % 4], k = kv[i / 36];
        struct weft_engine *e = open_small(s, c, t, k);
        bool never = e->limits.seqs == 1 || e->limits.step_tokens == 1, always = !never && wf_limits_guaranteed_pages(&e->limits) > e->limits.seq_pages;
        if (weft_ablation(e, &(struct weft_ablation_params){.rounds = 3, .on_row = count_loads, .user = &loads})) fail_msg("-c %u: %s", c, weft_last_error());
        if (loads < 2u + always || loads > 3u - never) fail_msg("%u sequences of %u tokens, steps of %u, a KV cache of %u: %u loads", s, c, t, k, loads);
        weft_engine_close(e);
    }
}

static void test_tune_small_engines(void **state)
{
    static const struct { uint32_t seqs, context, tokens, kv; } engines[] = {
        {1, CONTEXT, TOKENS, 1}, {SEQS, 16, 4 * CONTEXT, 1}, {SEQS, CONTEXT, 4 * CONTEXT, 2}, {2, 16, 1, 1}};
    (void)state;
    for (size_t i = 0; i < WF_LEN(engines); i++) {
        char *said;
        size_t len;
        FILE *f = open_memstream(&said, &len);
        set_world(gains);
        struct weft_engine *e = open_small(engines[i].seqs, engines[i].context, engines[i].tokens, engines[i].kv);
        if (weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL)) fail_msg("engine %zu: %s", i, weft_last_error());
        fclose(f);
        assert_non_null(strstr(said, "\ndecode: "));
        assert_non_null(strstr(said, "\nprefill: "));
        assert_true(!strstr(said, "\nmixed: left out") == (engines[i].seqs > 1 && engines[i].tokens > 1));
        weft_engine_close(e);
        free(said);
    }
}

/* Plans decide how many KV pages a step has; here they leave fewer than there were when loads were chosen. */
static void test_fewer_pages(void **state)
{
    (void)state;
    for (int tunes = 0; tunes < 2; tunes++) {
        char *said;
        size_t len;
        uint32_t loads = 0;
        FILE *f = open_memstream(&said, &len);
        set_world(gains);
        struct weft_engine *e = open_small(SEQS, CONTEXT, TOKENS, SEQS);
        e->apart.pages = CONTEXT / e->sched.p.page_tokens + SEQS;
        enum weft_status s = tunes ? weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL)
                                   : weft_ablation(e, &(struct weft_ablation_params){.rounds = 3, .on_row = count_loads, .user = &loads});
        if (s) fail_msg("%s", weft_last_error());
        fclose(f);
        assert_int_equal(loads, tunes ? 0 : 3);
        weft_engine_close(e);
        free(said);
    }
}

/* ---- what goes wrong ----------------------------------------------------------------------------------------------------- */

static void spoil(const char *what, const char *t)
{
    char path[600];
    stored(what, path, sizeof path);
    write_text(path, t);
}

static void test_damaged_files(void **state)
{
    char *said;
    (void)state;
    set_world(gains);
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    free(said);
    spoil("plan", "weft-plan 2\nonce nothing 0-end queue 0 kernel auto groups 0\n");
    struct weft_engine *e = open_engine(0);
    assert_int_equal(e->plans.n, 1);
    assert_non_null(strstr(weft_engine_plan_source(e), "cannot be used"));
    weft_engine_close(e);
    assert_int_equal(ablate().n, 12); /* without the kept one */
    spoil("profile", "weft-profile 1\nop a compute\n");
    assert_int_equal(tune((struct weft_overlap_params){0}, &said), WEFT_OK);
    assert_true(compare_with_sequential("mended") > 0);
    free(said);
}

/* Whatever fails, the error is told, nothing is left, and requests are answered or refused. */
static void test_failures(void **state)
{
    static const enum wf_null_slot slots[] = {WF_NULL_BUF_CREATE, WF_NULL_QUEUE_CREATE, WF_NULL_EVENT_CREATE, WF_NULL_SUBMIT, WF_NULL_MARK, WF_NULL_WAIT, WF_NULL_BIND};
    int failed = 0;
    (void)state;
    for (size_t i = 0; i < WF_LEN(slots); i++)
        for (uint32_t nth = 1; nth < 3000; nth *= 150) {
            set_world(gains);
            struct weft_engine *e = open_engine(1);
            wf_null_config c = clock_of_world;
            c.slot = slots[i], c.nth = nth, c.status = WEFT_ERR_NOMEM;
            char *said;
            size_t len;
            FILE *f = open_memstream(&said, &len);
            wf_null_configure(&c);
            enum weft_status s = weft_tune_overlap(e, &(struct weft_overlap_params){.quick = true}, f, NULL);
            fclose(f);
            failed += s == WEFT_ERR_NOMEM;
            if (s && s != WEFT_ERR_NOMEM) fail_msg("slot %d, call %u: %s", (int)slots[i], nth, weft_last_error());
            wf_null_configure(&clock_of_world);
            enum weft_status then = answer(e); /* without a plan requests fail */
            assert_true(then == WEFT_OK || (s && then == WEFT_ERR_NOMEM));
            weft_engine_close(e);
            free(said);
            assert_int_equal(wf_null_alive(), 0);
        }
    assert_true(failed > 6);
}

/* The plan would take the place of the times. Engines do not look at the file of -o. */
static void test_output(void **state)
{
    char file[128], link_to[128], other[128], *said;
    (void)state;
    set_world(gains);
    snprintf(file, sizeof file, "%s/profile", cache);
    snprintf(link_to, sizeof link_to, "%s/link", cache);
    snprintf(other, sizeof other, "%s/../%s/profile", cache, strrchr(cache, '/') + 1);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = other}, &said), WEFT_ERR_ARG); /* neither is there yet */
    free(said);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file}, &said), WEFT_OK);
    assert_non_null(strstr(said, "\nkept in "));
    free(said);
    assert_int_equal(symlink(file, link_to), 0);
    text before = read_text(file);
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = link_to}, &said), WEFT_ERR_ARG);
    free(said);
    text after = read_text(file);
    assert_string_equal(before.v, after.v);
    unlink(link_to);
    empty_cache();
    assert_int_equal(tune((struct weft_overlap_params){.profile = file, .plan = link_to}, &said), WEFT_OK);
    assert_null(strstr(said, "\nkept in "));
    assert_non_null(strstr(said, "engines take it with --plan"));
    free(said);
    struct weft_engine *e = open_engine(0);
    assert_non_null(strstr(e->plan_from, "never measured"));
    weft_engine_close(e);
    unlink(file), unlink(link_to);
}

static void test_refuses(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null", .n_seqs = SEQS, .context = CONTEXT, .max_batched_tokens = TOKENS};
    (void)state;
    set_world(gains);
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_OK);
    assert_int_equal(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_last_error(), "profile"));
    weft_engine_close(e);
    p.profile = true, p.nano_batches = 2;
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_OK);
    assert_int_equal(weft_tune_overlap(e, &(struct weft_overlap_params){0}, stdout, NULL), WEFT_ERR_ARG);
    weft_engine_close(e);
}

static int setup(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "/tmp/weft-overlap-XXXXXX");
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1)) return -1;
    return weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model);
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    weft_model_close(model);
    wf_null_configure(NULL);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_context), cmocka_unit_test(test_profile),       cmocka_unit_test(test_goes_on),       cmocka_unit_test(test_quick_times_are_replaced), cmocka_unit_test(test_profile_of_others),
        cmocka_unit_test(test_takes_what_gains), cmocka_unit_test(test_takes_nothing_that_loses),
        cmocka_unit_test(test_copies), cmocka_unit_test(test_energy), cmocka_unit_test(test_no_energy), cmocka_unit_test(test_ablation), cmocka_unit_test(test_offload), cmocka_unit_test(test_ablation_draws),      cmocka_unit_test(test_ablation_refuses),
        cmocka_unit_test(test_small_engines), cmocka_unit_test(test_tune_small_engines), cmocka_unit_test(test_fewer_pages),
        cmocka_unit_test(test_damaged_files), cmocka_unit_test(test_output),        cmocka_unit_test(test_refuses),       cmocka_unit_test(test_failures),         cmocka_unit_test(test_never_slower),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
