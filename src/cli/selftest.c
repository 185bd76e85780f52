/* selftest: checks every kernel variant of a device against the reference. */
#include "cli/cli.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

struct tally {
    char op[32];          /* current op */
    size_t op_ok, op_all; /* its checks */
    size_t ok, all;
    bool verbose;
    wf_progress bar;
    bool quiet;
};

static void end_op(struct tally *t)
{
    if (t->op_all) printf("%-20s %5zu of %zu passed\n", t->op, t->op_ok, t->op_all);
    t->op_ok = t->op_all = 0;
}

static void on_row(void *user, const struct weft_selftest_row *r)
{
    struct tally *t = user;
    bool next = strncmp(t->op, r->op, sizeof t->op - 1), shown = !r->ok || t->verbose;
    if (next || shown) wf_progress_hide(&t->bar);
    if (next) {
        end_op(t);
        wf_copy(t->op, sizeof t->op, r->op);
    }
    t->op_all++;
    t->all++;
    t->op_ok += r->ok;
    t->ok += r->ok;
    if (shown)
        printf("%-4s %-16s %-6s %-24s %-24s error %.3g, limit %.3g%s%s\n", r->ok ? "ok" : "FAIL", r->op, r->dtype,
               r->shape, r->variant, r->error, r->limit, *r->message ? ": " : "", r->message);
    fflush(stdout);
    if (!t->quiet) wf_progress_update(&t->bar, "self-test", r->done);
}

static int cmd_selftest(const wf_opts *o)
{
    struct tally t = {.verbose = o->verbose, .quiet = o->quiet};
    weft_status s = weft_selftest(o->engine.device, o->engine.tier, o->seed, on_row, &t);
    wf_progress_end(&t.bar);
    end_op(&t);
    if (t.all) printf("%zu checks, %zu failed\n", t.all, t.all - t.ok);
    if (s && t.all > t.ok) {
        fprintf(stderr, "weft: error: %s\n", wf_last_error());
        return WF_EXIT_RUNTIME;
    }
    return s ? wf_say_error(s) : 0;
}

static const wf_opt rows[] = {
    {0, "seed", "SEED", "random seed of shapes and values (default 0)", WF_OPT_U64, AT(seed), 0, 0x1p64},
};
static const WF_GROUP(group, "Checks", rows);
static const wf_opt_group *const groups[] = {&group, &wf_group_device, &wf_group_general, NULL};

const wf_command wf_cmd_selftest = {
    .name = "selftest",
    .usage = "[--device DEVICE] [--tier TIER] [-v]",
    .summary = "Checks every kernel of a device against the reference. Prints one line for each "
               "op and for each failed check; with -v for all checks.",
    .groups = groups,
    .run = cmd_selftest,
};
