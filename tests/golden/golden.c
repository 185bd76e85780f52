/* golden: a real trained model writes the known story, greedily from BOS, on each device in every way that
 * weft can run it: page orders and sizes, each kernel variant forced, one and several queues.
 *
 * The expected ids are those of llama.cpp, llama2.c and a float64 forward pass. The first EXACT must match;
 * at 185 the two best logits lie 0.004 apart, which f16 keys and values may flip, and then the rest differs.
 *
 * Usage: golden DEVICE   (cpu, opencl, or anything --device takes; opencl: the first OpenCL device)
 */
#include "base/file.h"
#include "engine/engine.h"
#include "kept/plans.h"
#include "support/build_once.h"
#include "support/data.h"
#include "support/kept_plan.h"
#include "support/skip.h"
#include <weft/debug.h>
#include "lab/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TOKENS 200
#define EXACT 180
#define DEBUG(...) .debug = &(struct weft_debug){__VA_ARGS__}

static int32_t expected[N_TOKENS];
static char *expected_text;
static const struct weft_model *model;
static char device[24];
static bool no_kernel_cache;
static int n_runs, n_failed, n_flipped;

/* ---- one run -------------------------------------------------------------------------------------------- */

typedef struct result {
    int32_t ids[N_TOKENS];
    int n;
    char text[8192];
    size_t len;
    char message[256];
} result;

static void on_event(void *user, const struct weft_event *ev)
{
    result *r = user;
    if (ev->kind == WEFT_EVENT_DONE) snprintf(r->message, sizeof r->message, "%s", ev->message);
    if (ev->kind != WEFT_EVENT_TOKEN) return;
    if (ev->id >= 0 && r->n < N_TOKENS) r->ids[r->n++] = ev->id;
    if (r->len + ev->text_len < sizeof r->text)
        memcpy(r->text + r->len, ev->text, ev->text_len), r->len += ev->text_len;
}

/* prompt: BOS and this many of the expected ids; the rest is generated. */
static int generate(const struct weft_engine_params *p, int prompt, result *r)
{
    int32_t tokens[N_TOKENS + 1] = {weft_model_info(model)->bos};
    memcpy(tokens + 1, expected, (size_t)prompt * sizeof *tokens);
    memcpy(r->ids, expected, (size_t)prompt * sizeof *tokens);
    struct weft_engine *e = NULL;
    struct weft_request *q = NULL;
    r->n = prompt;
    if (weft_engine_open(model, p, &e)) return snprintf(r->message, sizeof r->message, "%s", weft_last_error());
    struct weft_request_params rp = {.tokens = tokens, .n_tokens = (size_t)prompt + 1,
                                     .max_tokens = (uint32_t)(N_TOKENS - prompt), .ignore_eos = true,
                                     .on_event = on_event, .user = r};
    int status = weft_submit(e, &rp, &q);
    if (!status) status = weft_wait(q, 0);
    weft_request_free(q);
    weft_engine_close(e);
    return status;
}

static void check_from(const char *what, struct weft_engine_params p, int prompt)
{
    result *r = calloc(1, sizeof *r);
    struct weft_debug debug = p.debug ? *p.debug : (struct weft_debug){0};
    debug.poison = true;
    p.device = device;
    p.no_kernel_cache = no_kernel_cache;
    p.debug = &debug;
    if (!p.calibration) p.calibration = "none"; /* the synchronous softmax; check_async has the other */
    p.context = 256;
    int status = generate(&p, prompt, r), same = 0;
    while (same < r->n && r->ids[same] == expected[same]) same++;
    bool text_ok = prompt || same < N_TOKENS ||
                   (r->len == strlen(expected_text) && !memcmp(r->text, expected_text, r->len));
    bool ok = !status && same >= EXACT && text_ok;
    n_runs++;
    n_failed += !ok;
    n_flipped += ok && same < N_TOKENS;
    printf("%-6s %s: %s: %d of %d ids%s%s%s\n", ok ? "ok" : "FAILED", device, what, same, N_TOKENS,
           text_ok ? "" : ", text differs", status ? ": " : "", r->message);
    free(r);
}

static void check(const char *what, struct weft_engine_params p)
{
    check_from(what, p, 0);
}

static void check_refused(struct weft_engine_params p, enum weft_status s, const char *words)
{
    p.device = device, p.no_kernel_cache = no_kernel_cache, p.context = 256, p.calibration = "none";
    struct weft_engine *e = NULL;
    bool ok = weft_engine_open(model, &p, &e) == s && strstr(weft_last_error(), words);
    n_runs++;
    n_failed += !ok;
    printf("%-6s %s: not here: %s\n", ok ? "ok" : "FAILED", device, weft_last_error());
    weft_engine_close(e);
}

/* ---- ways to run --------------------------------------------------------------------------------------- */

static void check_pages(void)
{
    check("default", (struct weft_engine_params){0});
    check("shuffled pages", (struct weft_engine_params){DEBUG(.shuffle_pages = 7)});
    check("pages of 1", (struct weft_engine_params){.page_tokens = 1, DEBUG(.shuffle_pages = 11)});
    check("pages of 32", (struct weft_engine_params){.page_tokens = 32});
    check("small buffers", (struct weft_engine_params){DEBUG(.max_alloc = 600000)});
    check("buffers for K or V of a layer", (struct weft_engine_params){DEBUG(.max_alloc = 160000, .shuffle_pages = 5),
                                                                       .n_seqs = 4, .max_batched_tokens = 16});
    check_from("prefill of 150", (struct weft_engine_params){0}, 150);
    check_from("prefill of 150 in chunks of 32",
               (struct weft_engine_params){.max_batched_tokens = 32, DEBUG(.shuffle_pages = 3)}, 150);
    check("base tier", (struct weft_engine_params){.tier = "base"});
    /* heads of 8 */
    check_refused((struct weft_engine_params){.kv_dtype = "q8_0"}, WEFT_ERR_UNSUPPORTED, "multiple of 32");
    check_refused((struct weft_engine_params){.kv_dtype = "q4_0"}, WEFT_ERR_ARG, "want f16 or q8_0");
}

/* Whether k, which cannot run here, is of another op than the last such variant, or needs something else: what refuses
 * a name knows no more. */
static bool is_new_refusal(const struct weft_kernel *k)
{
    static char last[128];
    char now[sizeof last];
    snprintf(now, sizeof now, "%s %s", k->op, k->needs);
    bool is_new = strcmp(now, last) != 0;
    memcpy(last, now, sizeof last);
    return is_new;
}

/* Other kernels see rows of one step, wherever in the sequence these are. */
static bool knows_positions(const char *op)
{
    return !strcmp(op, "attention") || !strcmp(op, "rope_kv");
}

/* Each variant that can run in some step of this model: in a step of 151 rows and in those of one row behind it, and
 * where it knows of positions in steps of one row from the first token on. Naming another one is an error. */
static void check_variant(void *user, const struct weft_kernel *k)
{
    char force[96];
    (void)user;
    snprintf(force, sizeof force, "%s=%s", k->op, k->name);
    struct weft_engine_params p = {DEBUG(.force = force)};
    if (k->runs && knows_positions(k->op)) check(force, p);
    if (k->runs) check_from(force, p, 150);
    else if (is_new_refusal(k)) check_refused(p, WEFT_ERR_ARG, "cannot run");
}

static void check_variants(void)
{
    struct weft_engine_params p = {
        .device = device, .no_kernel_cache = no_kernel_cache, .context = 256, .calibration = "none"};
    struct weft_engine *e = NULL;
    if (weft_engine_open(model, &p, &e) || weft_engine_kernels(e, check_variant, NULL)) {
        printf("FAILED %s: %s\n", device, weft_last_error());
        n_failed++;
    }
    weft_engine_close(e);
}

/* Edits a dumped plan as a person would: every op of a layer in two halves, one on each queue. */
static bool split_plan(const char *from, const char *to)
{
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    char line[256], op[32], rest[200];
    unsigned n_split = 0;
    while (in && out && fgets(line, sizeof line, in)) {
        bool split = sscanf(line, "layer %31s 0-end queue 0 %199[^\n]", op, rest) == 2;
        if (split) fprintf(out, "layer %s 0-8 queue 0 %s\nlayer %s 8-end queue 1 %s\n", op, rest, op, rest);
        else fputs(strncmp(line, "queues", 6) ? line : "queues 2\n", out);
        n_split += split;
    }
    bool ok = in && out && n_split > 2;
    if (in) fclose(in);
    if (out) fclose(out);
    return ok;
}

static void check_plans(void)
{
    char dumped[] = "/tmp/weft-plan-XXXXXX", edited[] = "/tmp/weft-plan-XXXXXX";
    close(mkstemp(dumped));
    close(mkstemp(edited));
    check("plan dumped", (struct weft_engine_params){.dump_plan = dumped});
    check("plan loaded", (struct weft_engine_params){.plan = dumped});
    if (!split_plan(dumped, edited)) n_failed++;
    check("plan on two queues, rows split", (struct weft_engine_params){.plan = edited});
    check_from("prefill of 150 on two queues", (struct weft_engine_params){.plan = edited}, 150);
    unlink(dumped);
    unlink(edited);
    check("two nano-batches", (struct weft_engine_params){.nano_batches = 2});
    check_from("prefill of 150 in three nano-batches", (struct weft_engine_params){.nano_batches = 3}, 150);
}

/* The file that such an engine takes its plan from. */
static bool stored_path(bool deterministic, char *path, size_t cap)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = device, .no_kernel_cache = no_kernel_cache, .context = 256,
                                   .calibration = "none", .nano_batches = 1, .deterministic = deterministic};
    bool ok = !weft_engine_open(model, &p, &e) && !wf_stored_path(e->dev, &e->layout.graph, "plan", path, cap);
    char folder[600];
    snprintf(folder, sizeof folder, "%.*s", ok ? (int)(strrchr(path, '/') - path) : 0, path);
    weft_engine_close(e);
    return ok && !wf_folder_check(folder);
}

static bool is_taken(struct weft_engine *e)
{
    return strstr(weft_engine_plan_source(e), "weft tune --overlap found");
}

static void store(bool deterministic)
{
    char path[600];
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = device, .no_kernel_cache = no_kernel_cache, .context = 256,
                                   .calibration = "none", .nano_batches = 2, .deterministic = deterministic};
    bool ok = stored_path(deterministic, path, sizeof path) && !weft_engine_open(model, &p, &e) && !keep_plans(e, path);
    weft_engine_close(e);
    e = NULL;
    p.nano_batches = 0;
    ok = ok && !weft_engine_open(model, &p, &e) && is_taken(e);
    weft_engine_close(e);
    if (!ok) n_failed++, printf("a stored plan is not taken: %s\n", weft_last_error());
}

static void check_stored(bool deterministic)
{
    store(deterministic);
    check("stored plan", (struct weft_engine_params){.deterministic = deterministic});
    check_from("prefill of 150 by a stored plan", (struct weft_engine_params){.deterministic = deterministic}, 150);
}

/* Nano-batches as weft tune --overlap may find them, which engines take by themselves. The cache is another one for
 * that time, for the user may have such plans. */
static void check_stored_plans(void)
{
    char cache[] = "/tmp/weft-cache-XXXXXX", command[128];
    const char *own = getenv("XDG_CACHE_HOME");
    char *before = own ? strdup(own) : NULL;
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1)) n_failed++;
    check_stored(false);
    check_stored(true);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    if (system(command)) n_failed++;
    if (before) setenv("XDG_CACHE_HOME", before, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(before);
}

/* A maximum of the softmax that suits all rows, some, and none: what leaves its range is recomputed. Devices without
 * kernels for that compute as ever. */
static void check_async(void)
{
    static const char *const ranges[] = {"phi 4 a -55 b 10.39", "phi 1 a -2 b 1", "phi -40 a -6 b 7"};
    const struct weft_model_info *info = weft_model_info(model);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        char path[] = "/tmp/weft-calibration-XXXXXX";
        FILE *f = fdopen(mkstemp(path), "w");
        if (f) fprintf(f, "weft-calibration 1\nmodel %llu bytes\n", (unsigned long long)info->file_bytes);
        for (uint32_t l = 0; f && l < info->n_layer; l++) fprintf(f, "layer %u %s\n", l, ranges[i]);
        if (!f || fclose(f)) n_failed++;
        check(ranges[i], (struct weft_engine_params){.calibration = path});
        check_from(ranges[i], (struct weft_engine_params){.calibration = path, .nano_batches = 2}, 150);
        unlink(path);
    }
}

/* ---- main ---------------------------------------------------------------------------------------------- */

static bool read_expected(void)
{
    char *ids = NULL, *at;
    size_t len;
    int n = 0;
    const char *path = test_data("stories260K.tokens.txt");
    if (!path || wf_read_file(path, 1 << 20, &ids, &len)) return false;
    for (at = ids; n < N_TOKENS && *at; n++) expected[n] = (int32_t)strtol(at, &at, 10);
    free(ids);
    path = test_data("stories260K.txt");
    return n == N_TOKENS && path && !wf_read_file(path, 1 << 20, &expected_text, &len);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!device_named(argc > 1 ? argv[1] : "cpu", device, &no_kernel_cache)) return skip_program("no OpenCL device");
    if (!read_expected()) return skip_program(NO_TEST_DATA);
    struct weft_model *m = NULL;
    if (weft_model_open(&(struct weft_model_params){.path = test_data("stories260K.gguf")}, &m))
        return puts(weft_last_error()), 1;
    model = m;
    check_pages();
    check_variants();
    check("residual stream in F16", (struct weft_engine_params){.f16_residual = true});
    check_from("prefill of 150, residual stream in F16",
               (struct weft_engine_params){.f16_residual = true, .nano_batches = 2}, 150);
    check_plans();
    check_stored_plans();
    check_async();
    printf("%s: %d runs, %d failed, %d flipped at the near tie after %d\n", device, n_runs, n_failed, n_flipped, EXACT);
    weft_model_close(m);
    free(expected_text);
    return n_failed > 0;
}
