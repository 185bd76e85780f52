/* matrix_host: plays AMD's and Intel's matrix units on the host, lane by lane, so that gemm_matrix.cl can be
 * run where neither is: do its loads, its stores and the documented layouts of the units fit together?
 *
 *   matrix_host --knobs               a line for each unit, variant and format: its name, then build options
 *   matrix_host KERNEL.so UNIT VARIANT FORMAT    runs the kernel, built with those (matrix.py), and compares
 *
 * A work-group runs at a time, a coroutine a work-item: it stops at a barrier and at the unit, where the
 * lanes of a wave meet. What the units do is written here from the vendors' documents alone: AMD's ISA guides
 * (CDNA3 7.1, RDNA3 7.9, RDNA4 7.12) and Intel's extension text.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "cl/cl.h"
#include "dev/check.h"

enum { MAX_ITEMS = 256, STACK = 256 << 10, K_STEP = 16 };

/* ---- the units ------------------------------------------------------------------------------------------ */

typedef struct place {
    int line, k; /* row of A or column of B, and K; of C: row and column */
} place;

typedef struct unit {
    const char *name, *macros;
    int lanes, rows, cols, n_a, n_b, n_c; /* n: elements that a lane holds */
    place (*a)(int lane, int i), (*b)(int lane, int i), (*c)(int lane, int v);
} unit;

/* 4 of K a lane, 16 lanes a K block; C: 4 rows of one column. */
static place mfma_ab(int lane, int i) { return (place){lane % 16, 4 * (lane / 16) + i}; }
static place mfma_c(int lane, int v) { return (place){4 * (lane / 16) + v, lane % 16}; }
/* A row in lanes l and l + 16; C: even rows in the lower half of the wave, odd ones in the upper. */
static place gfx11_ab(int lane, int i) { return (place){lane % 16, i}; }
static place gfx11_c(int lane, int v) { return (place){2 * v + lane / 16, lane % 16}; }
/* K 0 to 7 in the lower half of the wave, 8 to 15 in the upper; C: rows likewise. */
static place gfx12_ab(int lane, int i) { return (place){lane % 16, 8 * (lane / 16) + i}; }
static place gfx12_c(int lane, int v) { return (place){8 * (lane / 16) + v, lane % 16}; }
/* A: component m is row m, of which each lane has its part; B and C: a lane is a column. */
static place dpas16_a(int lane, int i) { return (place){i, lane}; }
static place dpas8_a(int lane, int i) { return (place){i / 2, 2 * lane + i % 2}; }
static place dpas_b(int lane, int i) { return (place){lane, i}; }
static place dpas_c(int lane, int v) { return (place){v, lane}; }

static const unit units[] = {
    {"mfma", "-D__AMDGCN__", 64, 16, 16, 4, 4, 4, mfma_ab, mfma_ab, mfma_c},
    {"wmma11", "-D__AMDGCN__", 32, 16, 16, 16, 16, 8, gfx11_ab, gfx11_ab, gfx11_c},
    {"wmma12", "-D__AMDGCN__ -D__GFX12__", 32, 16, 16, 8, 8, 8, gfx12_ab, gfx12_ab, gfx12_c},
    {"dpas16", "-DDPAS", 16, 8, 16, 8, 16, 8, dpas16_a, dpas_b, dpas_c},
    {"dpas8", "-DDPAS", 8, 8, 8, 16, 16, 8, dpas8_a, dpas_b, dpas_c},
};

/* ---- a work-group ----------------------------------------------------------------------------------------- */

enum stop { RUNNING, AT_BARRIER, AT_UNIT, ENDED };

typedef struct item {
    ucontext_t at;
    char *stack;
    enum stop stop;
    const uint16_t *a, *b;
    float *c;
} item;

static struct {
    const unit *unit;
    ucontext_t home;
    item item[MAX_ITEMS];
    unsigned n, now, group, groups;
    void (*body)(void);
    unsigned mistakes, products;
} host;

#define EXPORT __attribute__((visibility("default")))
EXPORT unsigned host_local_id(void);
EXPORT unsigned host_group_id(void);
EXPORT unsigned host_num_groups(void);
EXPORT unsigned host_lane(void);
EXPORT unsigned host_wave(void);
EXPORT void host_barrier(void);
EXPORT float host_from_half(unsigned long address);
EXPORT unsigned short host_to_half(float f);
EXPORT void host_mma(unsigned long a, unsigned long b, unsigned long c);

unsigned host_local_id(void) { return host.now; }
unsigned host_group_id(void) { return host.group; }
unsigned host_num_groups(void) { return host.groups; }
unsigned host_lane(void) { return host.now % (unsigned)host.unit->lanes; }
unsigned host_wave(void) { return host.now / (unsigned)host.unit->lanes; }
float host_from_half(unsigned long address) { return wf_half_to_float(*(const uint16_t *)address); }
unsigned short host_to_half(float f) { return wf_float_to_half(f); }

static void stop_at(enum stop where)
{
    item *me = &host.item[host.now];
    me->stop = where;
    swapcontext(&me->at, &host.home);
}

void host_barrier(void) { stop_at(AT_BARRIER); }

void host_mma(unsigned long a, unsigned long b, unsigned long c)
{
    item *me = &host.item[host.now];
    me->a = (const uint16_t *)a, me->b = (const uint16_t *)b, me->c = (float *)c;
    stop_at(AT_UNIT);
}

/* Lanes that hold the same element must agree; NaN (never given to a unit by a right kernel) counts, too. */
static void gather(const item *wave, bool of_a, float m[16][K_STEP])
{
    const unit *u = host.unit;
    bool seen[16][K_STEP] = {{false}};
    for (int lane = 0; lane < u->lanes; lane++) {
        for (int i = 0; i < (of_a ? u->n_a : u->n_b); i++) {
            place p = of_a ? u->a(lane, i) : u->b(lane, i);
            float x = wf_half_to_float((of_a ? wave[lane].a : wave[lane].b)[i]);
            if (isnan(x) || (seen[p.line][p.k] && m[p.line][p.k] != x)) host.mistakes++;
            m[p.line][p.k] = x;
            seen[p.line][p.k] = true;
        }
    }
}

static void multiply(item *wave)
{
    const unit *u = host.unit;
    float a[16][K_STEP], b[16][K_STEP];
    gather(wave, true, a);
    gather(wave, false, b);
    for (int lane = 0; lane < u->lanes; lane++) {
        for (int v = 0; v < u->n_c; v++) {
            place p = u->c(lane, v);
            for (int k = 0; k < K_STEP; k++) wave[lane].c[v] += a[p.line][k] * b[p.k][k];
        }
    }
    host.products++;
}

static void start_item(void)
{
    host.body();
    stop_at(ENDED);
}

static void enter(item *it)
{
    getcontext(&it->at);
    it->at.uc_stack.ss_sp = it->stack;
    it->at.uc_stack.ss_size = STACK;
    it->stop = RUNNING;
    makecontext(&it->at, start_item, 0);
}

/* All work-items to their next stop, which must be the same for all. */
static enum stop advance(void)
{
    for (host.now = 0; host.now < host.n; host.now++) swapcontext(&host.home, &host.item[host.now].at);
    for (unsigned i = 1; i < host.n; i++) {
        if (host.item[i].stop != host.item[0].stop) host.mistakes++;
    }
    return host.item[0].stop;
}

static void run_group(void)
{
    enum stop where;
    for (unsigned i = 0; i < host.n; i++) enter(&host.item[i]);
    while ((where = advance()) != ENDED && !host.mistakes) {
        for (unsigned i = 0; where == AT_UNIT && i < host.n; i += (unsigned)host.unit->lanes) multiply(&host.item[i]);
    }
}

/* ---- a problem ---------------------------------------------------------------------------------------------- */

static const char *const formats[] = {"F16", "Q8_0", "Q4_0", "Q6_K"};
static const uint8_t format_ids[] = {WF_F16, WF_Q8_0, WF_Q4_0, WF_Q6_K};

typedef void kernel_fn(const void *x, uint64_t, const void *w, uint64_t, const void *bias, uint64_t, const void *res,
                       uint64_t, void *y, uint64_t, uint32_t half, uint32_t M, uint32_t N, uint32_t K,
                       uint32_t x_stride, uint64_t w_row_bytes, uint32_t res_stride, uint32_t y_stride);

static kernel_fn *kernel;
static wf_check *problem;
static uint8_t *result;

static void call_kernel(void)
{
    const wf_check *p = problem;
    const wf_operand *x = &p->in[0], *w = &p->in[1], *bias = &p->in[2], *res = &p->in[3], *y = &p->out[0];
    kernel(x->data, 0, w->data, 0, bias->data, bias->data ? 0 : UINT64_MAX, res->data, res->data ? 0 : UINT64_MAX,
           result, 0, y->view.dtype == WF_F16, y->view.rows, y->view.cols, x->view.cols, x->view.stride,
           wf_cl_row_bytes(&w->view), res->view.stride, y->view.stride);
}

static wf_case case_of(uint8_t format, uint32_t turn)
{
    static const uint32_t m[] = {1, 37, 150, 128}, n[] = {129, 64, 200, 15}, k[] = {520, 8, 296, 64};
    uint32_t i = turn % 4, block = wf_dtypes[format].block;
    return (wf_case){.op = WF_OP_GEMM, .seed = turn, .in = WF_F16, .weight = format, .m = m[i], .n = n[i],
                     .k = block > 1 ? block * (1 + i) : k[i], .pad = i % 2 ? 8 : 0, .out = i > 1 ? WF_F16 : WF_F32,
                     .bias = i % 2 == 0, .residual = i < 2};
}

/* Mean square error against the reference, as a part of the sums' size; infinite for a write outside. */
static double distance(const wf_check *p)
{
    const wf_view *v = &p->out[0].view, *e = &p->expect[0].view;
    double err = 0, ref = 0;
    for (uint32_t r = 0; r < v->rows; r++) {
        for (uint32_t c = 0; c < v->stride; c++) {
            uint64_t i = (uint64_t)r * v->stride + c;
            double got = v->dtype == WF_F16 ? wf_half_to_float(((uint16_t *)result)[i]) : ((float *)result)[i];
            if (c >= v->cols) {
                if (!isnan(got)) return INFINITY;
                continue;
            }
            double want = ((const float *)p->expect[0].data)[(uint64_t)r * e->stride + c];
            err += (got - want) * (got - want);
            ref += want * want;
        }
    }
    return isnan(err) ? INFINITY : err / ref;
}

static bool run_case(wf_dev *ref, const wf_case *c, const cl_launch *l, uint32_t groups)
{
    if (wf_check_new(ref, c, &problem)) return false;
    result = malloc(problem->out[0].bytes);
    memset(result, 0xFF, problem->out[0].bytes);
    host.n = l->group;
    host.groups = groups ? groups : (uint32_t)l->groups;
    for (host.group = 0; host.group < host.groups; host.group++) run_group();
    double d = distance(problem);
    char text[160];
    wf_case_text(c, text, sizeof text);
    bool ok = d <= 1e-6 && !host.mistakes && host.products; /* the op tests' tolerance for F16 arithmetic */
    printf("%-4s %s: error %.2g, %u products, %u mistakes\n", ok ? "ok" : "FAIL", text, d, host.products, host.mistakes);
    free(result);
    wf_check_free(problem);
    return ok;
}

/* ---- the program -------------------------------------------------------------------------------------------- */

static const char *const variants[] = {"matrix16", "matrix64", "matrix128"};

static const cl_variant *variant_named(const char *name)
{
    const cl_variant *v = NULL;
    for (int i = 0; (v = wf_cl_variant_at(WF_OP_GEMM, i)) && strcmp(v->name, name);) i++;
    return v;
}

static bool plan(const unit *u, const char *variant, uint8_t format, uint32_t turn, cl_launch *l)
{
    cl_caps caps = {.max_group = 256, .mem_align = 128, .local_bytes = 64 << 10, .gpu = true,
                    .lanes = (uint32_t)u->lanes, .tier = WF_TIER_MATRIX};
    const cl_variant *v = variant_named(variant);
    wf_case c = case_of(format, turn);
    wf_view x = {.rows = c.m, .cols = c.k, .stride = c.k + c.pad, .dtype = WF_F16};
    wf_view w = {.rows = c.n, .cols = c.k, .stride = c.k + (wf_dtypes[format].block > 1 ? 0 : c.pad), .dtype = format};
    wf_view y = {.rows = c.m, .cols = c.n, .stride = c.n + c.pad, .dtype = c.out};
    wf_call call = {.op = WF_OP_GEMM, .in = {x, w}, .out = {y}};
    if (!v) return false;
    *l = (cl_launch){0};
    return v->plan(&caps, v, &call, 0, l);
}

static int print_knobs(void)
{
    cl_launch l;
    for (size_t u = 0; u < WF_LEN(units); u++) {
        for (size_t v = 0; v < WF_LEN(variants); v++) {
            for (size_t f = 0; f < WF_LEN(formats); f++) {
                if (!plan(&units[u], variants[v], format_ids[f], 0, &l)) return 1;
                printf("%s %s %s %s", units[u].name, variants[v], formats[f], units[u].macros);
                for (uint32_t i = 0; i < l.n_knobs; i++) printf(" -D%s=%d", l.knob[i].name, l.knob[i].value);
                printf("\n");
            }
        }
    }
    return 0;
}

static int run(const char *path, const char *unit_name, const char *variant, const char *format)
{
    size_t u = 0, f = 0;
    wf_dev *ref = NULL;
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib) return fprintf(stderr, "%s\n", dlerror()), 1;
    *(void **)&kernel = dlsym(lib, "gemm_matrix");
    while (u < WF_LEN(units) && strcmp(units[u].name, unit_name)) u++;
    while (f < WF_LEN(formats) && strcmp(formats[f], format)) f++;
    if (!kernel || u == WF_LEN(units) || f == WF_LEN(formats)) return 2;
    if (wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_BASE}, &ref)) return 1;
    host.unit = &units[u];
    host.body = call_kernel;
    for (unsigned i = 0; i < MAX_ITEMS; i++) host.item[i].stack = malloc(STACK);
    bool ok = true;
    for (uint32_t turn = 0; turn < 4; turn++) {
        cl_launch l;
        wf_case c = case_of(format_ids[f], turn);
        ok = plan(host.unit, variant, format_ids[f], turn, &l) && run_case(ref, &c, &l, turn == 2 ? 1 : 0) && ok;
    }
    for (unsigned i = 0; i < MAX_ITEMS; i++) free(host.item[i].stack);
    wf_dev_close(ref);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--knobs")) return print_knobs();
    if (argc == 5) return run(argv[1], argv[2], argv[3], argv[4]);
    fprintf(stderr, "usage: matrix_host --knobs | KERNEL.so UNIT VARIANT FORMAT\n");
    return 2;
}
