/* selftest: checks every kernel variant of a device against the reference. */
#include "cli/cli.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

struct view {
    wf_tally t;
    wf_measuring v;
};

void wf_tally_end(wf_tally *t)
{
    if (t->op_all) t->on_op(t);
    t->op_ok = t->op_all = 0;
}

void wf_tally_add(wf_tally *t, const struct weft_selftest_row *r)
{
    if (strncmp(t->op, r->op, sizeof t->op - 1)) {
        wf_tally_end(t);
        wf_copy(t->op, sizeof t->op, r->op);
    }
    t->op_all++;
    t->all++;
    t->op_ok += r->ok;
    t->ok += r->ok;
}

static void print_op(const wf_tally *t)
{
    wf_progress_hide(&((struct view *)t)->v.bar);
    printf("%-20s %5zu of %zu passed\n", t->op, t->op_ok, t->op_all);
}

static void on_row(void *user, const struct weft_selftest_row *r)
{
    struct view *w = user;
    wf_tally_add(&w->t, r);
    if (!r->ok || w->v.o->verbose) {
        wf_progress_hide(&w->v.bar);
        printf("%-4s %-16s %-6s %-24s %-24s error %.3g, limit %.3g%s%s\n", r->ok ? "ok" : "FAIL", r->op, r->dtype,
               r->shape, r->variant, r->error, r->limit, *r->message ? ": " : "", r->message);
    }
    fflush(stdout);
    wf_on_measuring(&w->v, "self-test", r->done);
}

static int cmd_selftest(const wf_opts *o)
{
    struct view w = {.t.on_op = print_op, .v.o = o};
    weft_status s = weft_selftest(o->engine.device, o->engine.tier, o->seed, on_row, &w);
    wf_progress_end(&w.v.bar);
    wf_tally_end(&w.t);
    if (w.t.all) printf("%zu checks, %zu failed\n", w.t.all, w.t.all - w.t.ok);
    if (s && w.t.all > w.t.ok) {
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
