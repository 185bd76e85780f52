/* matrix_host: runs gemm_matrix.cl on AMD's, Intel's and NVIDIA's matrix units as host.c plays them, so that it can be
 * run where none is: do its loads, its stores and the documented layouts of the units fit together?
 *
 *   matrix_host --knobs               a line for each unit, variant and format: unit, kernel, variant, format, then
 * build options matrix_host KERNEL.so UNIT PROGRAM FORMAT    runs the kernel, built with those (matrix.py), and
 * compares
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/cl.h"
#include "op/host.h"
#include "op/judged.h"

/* ---- a problem ---------------------------------------------------------------------------------------------- */

/* The last one is Q4_K in planes. */
static const char *const formats[] = {"F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "planes"};
static const uint8_t format_ids[] = {WF_F16, WF_Q8_0, WF_Q4_0, WF_Q4_K, WF_Q6_K, WF_Q4_K};

static uint8_t layout_of(size_t format) { return format + 1 == WF_LEN(formats) ? WF_CL_PLANES : WF_CL_ROWS; }

typedef void kernel_fn(const void *x, uint64_t, const void *w, uint64_t, const void *bias, uint64_t, const void *res,
                       uint64_t, void *y, uint64_t, uint32_t half, uint32_t M, uint32_t N, uint32_t K,
                       uint32_t x_stride, uint64_t w_row_bytes, uint32_t res_stride, uint32_t y_stride, void *scratch,
                       uint32_t shares);

static kernel_fn *kernel;
static wf_check *problem;
static uint8_t *result;
static wf_view weights; /* as the kernel gets them, at: */
static void *packed;
/* What kernels that need scratch memory take more: that, and the number of shares where there are any. Others leave
 * them on the stack. */
static void *scratch;
static uint32_t shares;
static bool zeros_written; /* of its first bytes, on which others count */

static void call_kernel(void)
{
    const wf_check *p = problem;
    const wf_check_operand *x = &p->in[WF_GEMM_X], *bias = &p->in[WF_GEMM_BIAS];
    const wf_check_operand *res = &p->in[WF_GEMM_RESIDUAL], *y = &p->out[WF_GEMM_Y];
    kernel(x->data, 0, packed, 0, bias->data, bias->data ? 0 : UINT64_MAX, res->data, res->data ? 0 : UINT64_MAX,
           result, 0, y->view.dtype == WF_F16, y->view.rows, y->view.cols, x->view.cols, x->view.stride,
           wf_cl_row_bytes(&weights), res->view.stride, y->view.stride, scratch, shares);
}

/* All launches of l. groups: work-groups of one without scratch memory; 0: as l says. */
static void launch(const char *path, const cl_launch *l, uint32_t groups)
{
    kernel_fn *product = kernel;
    if (l->scratch) {
        scratch = aligned_alloc(128, WF_UP(l->scratch, 128));
        memset(scratch, 0, WF_CL_ZEROED);
        shares = l->after ? l->arg[l->n_args - 1].u32 : 0;
    }
    if (l->before && (*(void **)&kernel = kernel_in(path, "gemm_matrix_before")))
        host_groups(l->group, (uint32_t)l->before_groups, call_kernel);
    kernel = product;
    host_groups(l->group, groups && !l->scratch ? groups : (uint32_t)l->groups, call_kernel);
    if (l->after_groups && (*(void **)&kernel = kernel_in(path, "gemm_matrix_after")))
        host_groups(l->group, (uint32_t)l->after_groups, call_kernel);
    kernel = product;
    for (uint32_t i = 0; l->scratch && i < WF_CL_ZEROED; i++) zeros_written |= ((uint8_t *)scratch)[i] != 0;
    free(scratch);
    scratch = NULL;
}

static wf_case case_of(uint8_t format, uint32_t turn)
{
    static const uint32_t m[] = {1, 37, 150, 128, 3}, n[] = {129, 64, 200, 15, 8192 + 3}, k[] = {520, 8, 296, 64, 72};
    uint32_t i = turn % 5, block = wf_dtypes[format].block;
    return (wf_case){.op = WF_OP_GEMM, .seed = turn, .in = WF_F16, .weight = format, .m = m[i], .n = n[i],
                     .k = block > 1 ? block * (1 + i % 4) : k[i], .pad = i % 2 ? 8 : 0, .out = i > 1 ? WF_F16 : WF_F32,
                     .bias = i % 2 == 0, .residual = i < 2};
}

/* Rows that have no gaps, or F16's. */
static void pack_weights(uint8_t layout)
{
    const wf_check_operand *w = &problem->in[WF_GEMM_W];
    weights = w->view;
    weights.layout = layout;
    const uint64_t bytes = wf_cl_weight_bytes(NULL, layout, w->view.dtype, w->view.rows, w->view.cols);
    packed = layout ? aligned_alloc(128, WF_UP(bytes, 128)) : w->data;
    if (layout) wf_cl_weight_pack(NULL, layout, w->view.dtype, w->view.rows, w->view.cols, w->data, packed);
}

static bool run_case(wf_dev *ref, const char *path, const wf_case *c, uint8_t layout, const cl_launch *l,
                     uint32_t groups)
{
    if (wf_check_new(ref, c, &problem)) return false;
    pack_weights(layout);
    result = malloc(problem->out[WF_GEMM_Y].bytes);
    memset(result, 0xFF, problem->out[WF_GEMM_Y].bytes);
    launch(path, l, groups);
    host_run host = host_result();
    wf_check_result r = judged(problem, WF_GEMM_Y, result);
    char text[160];
    wf_case_text(c, text, sizeof text);
    bool ok = r.ok && !host.mistakes && !host.conflicts && host.products && !zeros_written;
    printf("%-4s %s: %.2g of its tolerance, %u products, %u mistakes, %u bank conflicts%s %s\n", ok ? "ok" : "FAIL", text,
           r.error, host.products, host.mistakes, host.conflicts, zeros_written ? ", zeros overwritten" : "", r.message);
    free(result);
    if (layout) free(packed);
    wf_check_free(problem);
    return ok;
}

/* ---- the program -------------------------------------------------------------------------------------------- */

/* Turns of case_of() that a program runs: flat products of many rows of W have another one. */
static const struct program {
    const char *name, *variant;
    uint32_t first, n;
} programs[] = {{"matrix8", "matrix8", 0, 4},
                {"matrix8_wide", "matrix8", 4, 1},
                {"matrix64_shares", "matrix64_shares", 0, 4},
                {"matrix64_narrow", "matrix64_narrow", 0, 4},
                {"matrix64", "matrix64", 0, 4},
                {"matrix64_wide", "matrix64_wide", 0, 4},
                {"matrix128", "matrix128", 0, 4},
                {"matrix128_fours", "matrix128", 1, 2},
                {"matrix256", "matrix256", 0, 4},
                {"matrix256_shares", "matrix256_shares", 0, 4},
                {"matrix256_expand_shares", "matrix256_expand_shares", 0, 4},
                {"matrix128_expand", "matrix128_expand", 0, 4}};

static const struct program *program_named(const char *name)
{
    for (size_t i = 0; i < WF_LEN(programs); i++)
        if (!strcmp(programs[i].name, name)) return &programs[i];
    return NULL;
}

static bool configure(const unit *u, const char *variant, size_t f, uint32_t turn, cl_launch *l)
{
    cl_caps caps = {.max_group = 256, .mem_align = 128, .local_bytes = 64 << 10, .gpu = true, .copies = u->copies,
                    .nv_local_bytes = 227 << 10, .panels = 64 << 20, .expanded = 64 << 20, .units = 4,
                    .lanes = (uint32_t)u->lanes, .tier = WF_TIER_MATRIX};
    const cl_variant *v = variant_named(WF_OP_GEMM, variant);
    const uint8_t format = format_ids[f];
    wf_case c = case_of(format, turn);
    wf_view x = {.rows = c.m, .cols = c.k, .stride = c.k + c.pad, .dtype = WF_F16};
    wf_view w = {.rows = c.n, .cols = c.k, .stride = c.k + (wf_dtypes[format].block > 1 ? 0 : c.pad), .dtype = format,
                 .layout = layout_of(f)};
    wf_view y = {.buf = (wf_buf *)l, .rows = c.m, .cols = c.n, .stride = c.n + c.pad, .dtype = c.out}; /* any buffer */
    wf_call call = {.op = WF_OP_GEMM, .in = {x, w}, .out = {y}};
    if (!v) return false;
    *l = (cl_launch){0};
    return v->configure(&caps, v, &call, 0, l);
}

static int print_knobs(void)
{
    cl_launch l;
    bool shown[WF_LEN(programs)] = {false};
    for (unsigned u = 0; u < n_host_units; u++) {
        if (host_units[u].takes_nan) continue; /* not of gemm_matrix.cl */
        for (size_t v = 0; v < WF_LEN(programs); v++) {
            for (size_t f = 0; f < WF_LEN(formats); f++) {
                if (!configure(&host_units[u], programs[v].variant, f, programs[v].first, &l)) continue;
                shown[v] = true;
                printf("%s gemm_matrix %s %s %s", host_units[u].name, programs[v].name, formats[f],
                       host_units[u].macros);
                print_options(&l);
            }
        }
    }
    for (size_t v = 0; v < WF_LEN(programs); v++)
        if (!shown[v]) return fprintf(stderr, "%s suits no unit\n", programs[v].name), 1;
    return 0;
}

static int run(const char *path, const char *unit_name, const char *program, const char *format)
{
    size_t f = 0;
    const struct program *p = program_named(program);
    const unit *u = host_unit_named(unit_name);
    wf_dev *ref = NULL;
    *(void **)&kernel = kernel_in(path, "gemm_matrix");
    while (f < WF_LEN(formats) && strcmp(formats[f], format)) f++;
    if (!kernel || !u || !p || f == WF_LEN(formats)) return 2;
    if (wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_BASE}, &ref)) return 1;
    host_start(u);
    bool ok = true;
    for (uint32_t turn = p->first; turn < p->first + p->n; turn++) {
        cl_launch l;
        wf_case c = case_of(format_ids[f], turn);
        ok = configure(u, p->variant, f, turn, &l) && run_case(ref, path, &c, layout_of(f), &l, turn == 2) && ok;
    }
    host_end();
    wf_dev_close(ref);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--knobs")) return print_knobs();
    if (argc == 5) return run(argv[1], argv[2], argv[3], argv[4]);
    fprintf(stderr, "usage: matrix_host --knobs | KERNEL.so UNIT PROGRAM FORMAT\n");
    return 2;
}
