/* report: all that weft finds out about a device, in one file for those who have no such device. What fails is part of
 * the report, and the file is written anew after each part: a driver may crash or hang. */
#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "cli/bench.h"
#include "cli/rows.h"

#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SELF_TEST_S  300
#define SHOWN_FAILED 40 /* checks that the report names */

struct report {
    wf_measuring view;
    wf_tally tests;
    struct weft_device_info device;
    const char *tier; /* the present one */
    char path[300];
    uint64_t end_ns; /* of the self-tests */
    bool whole;      /* they were all done by then */
    wf_text head, checked, failed_checks, ops, models, failures;
    char ceilings[200]; /* of the present tier */
};

/* ---- nothing personal ---------------------------------------------------------------------------------------- */

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

/* Replaces a name where it is a whole word. */
static void hide_word(char *text, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (char *p = text; n > 1 && (p = strstr(p, name)); p++)
        if ((p == text || !in_word(p[-1])) && !in_word(p[n])) memset(p, '*', n);
}

/* Hides paths, of which one in the user's folder may have blanks, and the names of the user and the host. */
static void hide_personal(char *text)
{
    const char *home = getenv("HOME");
    const struct passwd *user = getpwuid(getuid());
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    hide_word(text, home && strlen(home) > 1 ? home : NULL);
    for (char *p = text; *p; p++)
        if (*p == '/' && (p == text || !in_word(p[-1])))
            while (*p && !strchr(" \n\t\"'`,;:()", *p)) *p++ = '*';
    const char *const names[] = {host, user ? user->pw_name : NULL, getenv("USER"), getenv("LOGNAME")};
    for (size_t i = 0; i < WF_LEN(names); i++) hide_word(text, names[i]);
}

static void add_failure(struct report *r, const char *what, const char *message)
{
    char text[1024];
    wf_show(text, sizeof text, message);
    hide_personal(text);
    wf_progress_hide(&r->view.bar);
    wf_note(r->view.o, "%s%s%s failed, which the report says: %s", what, r->tier ? ", tier " : "",
            r->tier ? r->tier : "", message);
    wf_json_comma(&r->failures);
    wf_json_print(&r->failures, "\n  {'what': %s, 'tier': %s, 'error': %s}", what, r->tier, text);
}

/* ---- the file ------------------------------------------------------------------------------------------------ */

static void put_words(wf_text *t, const char *key, const char *words)
{
    wf_json_print(t, ", %s: [", key);
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        wf_json_comma(t);
        wf_json_print(t, "%.*s", (int)n, words);
    }
    wf_json_print(t, "]");
}

static void put_list(wf_text *t, const char *key, const wf_text *list)
{
    wf_json_print(t, ",\n%s: [", key);
    if (list->len) wf_text_add(t, list->data, list->len);
    wf_json_print(t, "]");
}

/* All that is known so far; complete: that is all. */
static weft_status write_report(const struct report *r, bool complete)
{
    wf_text t = {0};
    wf_output out;
    bool to_stdout = !strcmp(r->path, "-");
    if (to_stdout && !complete) return WEFT_OK;
    wf_json_print(&t, "{'weft_report': 1, 'complete': %hhd, ", complete);
    wf_text_add(&t, r->head.data, r->head.len);
    wf_json_print(&t, "},\n'checks': {'passed': %zu, 'failed': %zu, 'whole': %hhd", r->tests.ok,
                  r->tests.all - r->tests.ok, r->whole);
    put_list(&t, "ops", &r->checked);
    put_list(&t, "failed_checks", &r->failed_checks);
    wf_json_print(&t, "}");
    put_list(&t, "ops", &r->ops);
    put_list(&t, "models", &r->models);
    put_list(&t, "failures", &r->failures);
    wf_json_print(&t, "}");
    if (to_stdout) return wf_print_json(&t) ? wf_fail(WEFT_ERR_IO, "cannot print the report") : WEFT_OK;
    weft_status s = t.failed ? WEFT_ERR_NOMEM : wf_output_open(r->path, &out);
    if (!s) s = fprintf(out.f, "%s\n", t.data) < 0 ? wf_output_end(&out, false) : wf_output_end(&out, true);
    free(t.data);
    return s;
}

/* ---- self-tests ---------------------------------------------------------------------------------------------- */

static void end_op(const wf_tally *t)
{
    wf_text *o = &((struct report *)((char *)t - offsetof(struct report, tests)))->checked;
    wf_json_comma(o);
    wf_json_print(o, "\n  {'op': %s, 'passed': %zu, 'failed': %zu}", t->op, t->op_ok, t->op_all - t->op_ok);
}

static void on_check(void *user, const struct weft_selftest_row *c)
{
    struct report *r = user;
    char message[1024];
    wf_tally_add(&r->tests, c);
    wf_on_measuring(&r->view, "self-test", c->done);
    if (c->ok || r->tests.all - r->tests.ok > SHOWN_FAILED) return;
    wf_show(message, sizeof message, c->message);
    hide_personal(message);
    wf_json_comma(&r->failed_checks);
    wf_json_print(&r->failed_checks,
                  "\n  {'op': %s, 'dtype': %s, 'shape': %s, 'variant': %s, 'error': %.9g, 'message': %s}", c->op,
                  c->dtype, c->shape, c->variant, c->error, message);
}

static bool time_is_over(void *user) { return wf_now_ns() > ((struct report *)user)->end_ns; }

static void run_checks(struct report *r)
{
    const wf_opts *o = r->view.o;
    uint64_t seconds = o->overlaps.seconds ? o->overlaps.seconds : SELF_TEST_S;
    r->end_ns = wf_now_ns() + seconds * 1000000000u;
    wf_stopper before = wf_stop_by(time_is_over, r);
    weft_status s = weft_selftest(o->engine.device, o->engine.tier, 0, on_check, r);
    wf_stop_by(before.fn, before.user);
    wf_tally_end(&r->tests);
    wf_progress_end(&r->view.bar);
    r->whole = s != WEFT_ERR_CANCELLED;
    if (!r->whole) wf_note(o, "not all self-tests were done within %llu s (--seconds)", (unsigned long long)seconds);
    else if (s) add_failure(r, "self-test", wf_last_error());
}

/* ---- ops ----------------------------------------------------------------------------------------------------- */

static void on_op(void *user, const struct weft_op_row *w)
{
    struct report *r = user;
    char what[160];
    snprintf(what, sizeof what, "%s %s %s", w->op, w->dtype, w->shape);
    if (!w->variant) {
        add_failure(r, what, w->message);
        return;
    }
    wf_json_comma(&r->ops);
    if (!*r->ceilings) {
        wf_ceilings_json(w->ceilings, r->ceilings, sizeof r->ceilings);
        wf_json_print(&r->ops, "\n  {'tier': %s, 'ceilings': ", r->tier);
        wf_text_print(&r->ops, "%s},", r->ceilings);
    }
    wf_json_print(&r->ops, "\n  {'tier': %s, 'op': %s, 'dtype': %s, 'shape': %s, 'variant': %s,", r->tier, w->op,
                  w->dtype, w->shape, w->variant);
    wf_json_print(&r->ops, " 'us': %.9g, 'rate': %.9g, 'unit': %s, 'ceiling_pct': %.9g}", w->median_us, w->rate,
                  w->unit, w->ceiling_pct < 0 ? NAN : w->ceiling_pct);
}

/* Weights of 32 MB in F16, and half a gigabyte of copies of them, for caches are large. */
static void measure_ops(struct report *r)
{
    static const char *const shapes[] = {"M=1,N=4096,K=4096", "M=64,N=4096,K=4096", "M=512,N=4096,K=4096",
                                         "B=16,L=1024"};
    static const char *const small[] = {"M=1,N=256,K=256", "B=1,L=64"}, *const prompt[] = {"B=1,L=512"};
    const wf_opts *o = r->view.o;
    bool quick = o->overlaps.quick, gpu = r->device.type == WEFT_DEVICE_GPU;
    const struct {
        const char *ops;
        const char *const *shapes;
        size_t n;
    } parts[] = {
        {"gemm,decode_attention", quick ? small : shapes, quick ? WF_LEN(small) : WF_LEN(shapes)},
        {"prefill_attention", quick ? small + 1 : prompt, 1},
    };
    for (size_t i = 0; i < WF_LEN(parts); i++) {
        struct weft_op_params p = wf_op_params(o, quick ? "F16" : "F16,Q8_0,Q4_0,Q4_K", parts[i].shapes, parts[i].n);
        p.ops = parts[i].ops;
        p.tier = r->tier;
        p.tuned = "none"; /* reports are compared */
        p.repeat = quick ? 1 : 3;
        p.rotate = o->rotate ? o->rotate : gpu ? 512 << 20 : 0;
        p.go_on = true;
        p.limit_ms = 250;
        p.on_row = on_op;
        p.on_progress = wf_on_measuring;
        p.user = r;
        if (weft_bench_ops(&p)) add_failure(r, parts[i].ops, wf_last_error());
        wf_progress_end(&r->view.bar);
    }
}

/* ---- models -------------------------------------------------------------------------------------------------- */

static weft_status measure_test(struct report *r, struct weft_engine *e, const char *type, uint32_t prompt,
                                uint32_t gen)
{
    struct weft_bench_result b;
    struct weft_bench_params p = {.n_prompt = prompt, .n_gen = gen, .repeat = r->view.o->overlaps.quick ? 1 : 2,
                                  .on_progress = wf_on_measuring, .user = r};
    WF_TRY(weft_bench(e, &p, &b));
    wf_json_comma(&r->models);
    wf_json_print(&r->models, "\n  {'tier': %s, 'type': %s, 'test': ", r->tier, type);
    wf_text_print(&r->models, "\"%s%u\"", prompt ? "pp" : "tg", prompt + gen);
    wf_json_print(&r->models, ", 'tokens_s': %.9g}", b.median);
    return WEFT_OK;
}

/* A few layers, so that they fit small cards and slow ones are done in minutes. */
static weft_status measure_model(struct report *r, const char *type)
{
    const wf_opts *o = r->view.o;
    uint32_t prompt = o->overlaps.quick ? 4 : 128, gen = o->overlaps.quick ? 2 : 16;
    struct weft_model_params mp = {.shape = "llama-1.1b", .type = type, .layers = 2};
    struct weft_engine_params p = o->engine;
    struct weft_model *m = NULL;
    struct weft_engine *e = NULL;
    if (o->overlaps.quick) mp = (struct weft_model_params){.path = WEFT_DEMO};
    p.tier = r->tier;
    p.tuned = "none";
    p.context = 2 * prompt;
    p.n_seqs = 1;
    p.no_prefix = true;
    p.on_progress = wf_on_measuring;
    p.user = r;
    weft_status s = weft_model_open(&mp, &m);
    if (!s) s = wf_try_engine(o, m, p, &e);
    if (!s) s = measure_test(r, e, type, prompt, 0);
    if (!s) s = measure_test(r, e, type, 0, gen);
    weft_engine_close(e);
    weft_model_close(m);
    wf_progress_end(&r->view.bar);
    return s;
}

static weft_status measure_tier(struct report *r)
{
    static const char *const types[] = {"F16", "Q4_K_M"};
    char what[32];
    *r->ceilings = 0;
    measure_ops(r);
    WF_TRY(write_report(r, false));
    for (size_t i = 0; i < (r->view.o->overlaps.quick ? 1 : WF_LEN(types)); i++) {
        snprintf(what, sizeof what, "model %s", types[i]);
        weft_status s = measure_model(r, types[i]);
        if (s == WEFT_ERR_CANCELLED) return s;
        if (s) add_failure(r, what, wf_last_error());
    }
    return write_report(r, false);
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static weft_status make_report(struct report *r)
{
    const wf_opts *o = r->view.o;
    char name[160];
    WF_TRY(weft_device_named(o->engine.device, &r->device));
    weft_device_file(&r->device, name, sizeof name);
    if (o->write_to) wf_copy(r->path, sizeof r->path, o->write_to);
    else snprintf(r->path, sizeof r->path, "weft-report-%s.json", name);
    if (o->write_to && strlen(o->write_to) >= sizeof r->path) return wf_fail(WEFT_ERR_ARG, "-o: the path is too long");
    static const char *const types[] = {"CPU", "GPU", "other"};
    const struct weft_device_info *d = &r->device;
    char date[16];
    wf_date("%Y-%m-%d", date, sizeof date);
    wf_json_print(&r->head, "'weft': {'version': %s, 'commit': %s}, 'date': %s,\n'device': {'name': %s, 'type': %s,",
                  weft_version(), wf_commit(), date, d->name, types[WF_MIN(d->type, WEFT_DEVICE_OTHER)]);
    wf_json_print(&r->head, "\n 'platform': %s, 'driver': %s, 'version': %s,", d->platform, d->driver, d->version);
    wf_json_print(&r->head, "\n 'memory': %llu, 'available': %llu, 'own_memory': %llu, 'max_alloc': %llu,",
                  (unsigned long long)d->memory, (unsigned long long)d->available, (unsigned long long)d->own_memory,
                  (unsigned long long)d->max_alloc);
    wf_json_print(&r->head, "\n 'compute_units': %u, 'local_memory': %u, 'max_group': %u", d->compute_units,
                  d->local_memory, d->max_group);
    put_words(&r->head, "tiers", d->tiers);
    put_words(&r->head, "features", d->features);
    WF_TRY(write_report(r, false));
    run_checks(r);
    WF_TRY(write_report(r, false));
    /* Of the tiers up to the one of --tier. */
    const char *most = r->view.o->engine.tier;
    char tiers[sizeof r->device.tiers];
    bool last = false;
    wf_copy(tiers, sizeof tiers, r->device.tiers);
    for (char *p = tiers, *tier; !last && (tier = strsep(&p, " "));) {
        r->tier = tier;
        WF_TRY(measure_tier(r));
        last = most && !strcmp(most, tier);
    }
    r->tier = NULL;
    return write_report(r, true);
}

static int cmd_report(const wf_opts *o)
{
    struct report r = {.view.o = o, .tests.on_op = end_op};
    weft_status s = make_report(&r);
    int rc = s == WEFT_ERR_CANCELLED ? wf_interrupted_exit() : s ? wf_say_error(s) : 0;
    if (!s && strcmp(r.path, "-"))
        printf("The report is in %s: nothing personal is in it, and you can read it.\n"
               "To send it, add it to bench/devices/ by a pull request (docs/devices.md).\n",
               r.path);
    wf_text *const texts[] = {&r.head, &r.checked, &r.failed_checks, &r.ops, &r.models, &r.failures};
    for (size_t i = 0; i < WF_LEN(texts); i++) free(texts[i]->data);
    return rc;
}

static const wf_opt rows[] = {
    {'o', "output", "FILE", "the file to write; - is standard output (default: weft-report-DEVICE.json)", WF_OPT_TEXT,
     AT(write_to)},
    {0, "seconds", "N", "about the most time for the self-tests (default 300); the rest takes minutes", WF_OPT_U32,
     AT(overlaps.seconds), 1, 86400},
};
static const WF_GROUP(group, "Report", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_threads, &wf_group_device, &wf_group_general, NULL};

const wf_command wf_cmd_report = {
    .name = "report",
    .usage = "[--device DEVICE] [--tier TIER] [-o FILE]",
    .summary = "Writes a file that tells how weft does on a device, to be sent to its developers. In it are what the "
               "device and its driver are, which self-tests of the kernels failed, and the speed of ops and of a small "
               "model with each tier of kernels; what fails is in it, too. Nothing personal is: no names of users or "
               "hosts, no paths.",
    .groups = groups,
    .run = cmd_report,
};
