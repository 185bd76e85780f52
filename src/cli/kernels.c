/* kernels: lists the kernels of a device, or prints the source of one. */
#include "cli/cli.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static void print_row(void *user, const struct weft_kernel *k)
{
    bool *headed = user;
    if (!*headed)
        printf("%-12s %-20s %-8s %-18s %-18s %-8s %-5s %s\n", "op", "name", "tier", "weight layout", "invariance class",
               "batch", "runs", "source");
    *headed = true;
    printf("%-12s %-20s %-8s %-18s %-18s %-8s %-5s %s%s%s\n", k->op, k->name, k->tier, k->layout, k->invariance,
           k->batch_dependent ? "depends" : "no", k->runs ? "yes" : "no", k->file, *k->needs ? "; needs " : "",
           k->needs);
}

/* user: the shape until the first row, whose title it is; then NULL. */
static void print_candidate(void *user, const struct weft_candidate *k)
{
    char us[24] = "-";
    const char **shape = user;
    if (*shape) printf("%-12s %-20s %12s  %s\n", "op", "name", "est. us", *shape);
    *shape = NULL;
    if (k->us > 0) snprintf(us, sizeof us, "%.1f", k->us);
    printf("%-12s %-20s %12s  %s\n", k->op, k->name, us, k->chosen ? "chosen" : "");
}

static int print_candidates(const wf_opts *o)
{
    for (size_t i = 0; i < o->shapes.n; i++) {
        const char *shape = o->shapes.v[i];
        weft_status s = weft_candidates(o->engine.device, o->engine.tier, shape, o->dtypes, print_candidate, &shape);
        if (s) return wf_say_error(s);
    }
    return 0;
}

static int cmd_kernels(const wf_opts *o)
{
    if (o->n_args > 1) return wf_usage(&wf_cmd_kernels, "expected one kernel, got also '%s'", o->args[1]);
    if (o->n_args && o->shapes.n) return wf_usage(&wf_cmd_kernels, "--shape and a name conflict: use one of them");
    if (o->shapes.n) return print_candidates(o);
    if (o->n_args) {
        char *text = NULL;
        weft_status status = weft_kernel_source(o->engine.device, o->args[0], &text);
        if (status) return wf_say_error(status);
        wf_out(text, strlen(text));
        weft_free(text);
        return 0;
    }
    bool headed = false;
    weft_status s = weft_kernels(o->engine.device, o->engine.tier, print_row, &headed);
    return s ? wf_say_error(s) : 0;
}

static const wf_opt shape_rows[] = {
    {0, "shape", "SHAPE",
     "list the variants for this shape only, best first, with the estimated time: M=8,N=6144,K=4096 for a GEMM, "
     "B=64,L=4096 for decode attention; repeatable",
     WF_OPT_WORDS, AT(shapes)},
    {0, "type", "TYPE", "weight format for --shape (default F16)", WF_OPT_TEXT, AT(dtypes), .words = wf_weight_types},
};
static const WF_GROUP(shape_group, "Shapes", shape_rows);
static const wf_opt_group *const groups[] = {&shape_group, &wf_group_device, &wf_group_general, NULL};

const wf_command wf_cmd_kernels = {
    .name = "kernels",
    .usage = "[--device DEVICE] [NAME | OP/NAME | --shape SHAPE]",
    .summary = "Lists the kernels for a device, or prints the source of one. Each op has several variants. A row shows "
               "what a variant needs, whether this device can run it, and whether its results depend on the rest of "
               "the batch. Variants of one invariance class give the same bits. With a name it prints what the "
               "device's compiler gets for a small problem: "
               "OpenCL C with the compiler options in the first line, or PTX.",
    .groups = groups,
    .takes_args = true,
    .run = cmd_kernels,
};
