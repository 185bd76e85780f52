/* matrix_attention: runs attention_matrix.cl on AMD's, Intel's and NVIDIA's matrix units as host.c plays them, all
 * variants on the same problems.
 *
 *   matrix_attention --knobs          a line for each unit, program and variant: unit, kernel, program, variant, then
 * build options matrix_attention FOLDER UNIT PROGRAM    runs the kernels VARIANT.so, built with those (matrix.py)
 *
 * Synchronous: the reference's result; the same bits by one work-group, of rows alone, and by matrix_decode as by
 * matrix_prefill. Asynchronous: the same tolerance, and rows counted that leave a narrow range. Where every row leaves,
 * above the range or below, the result is the synchronous kernel's bit for bit; and above it, all have left by the
 * first tile that they see, for no more than that is multiplied before they are computed again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/cl.h"
#include "op/host.h"
#include "op/judged.h"


/* masked: with windows, sinks and a soft cap. */
static const struct program {
    const char *name;
    uint32_t head_dim, per_kv, page_tokens;
    bool masked;
    enum wf_dtype kv;
} programs[] = {
    {"plain", 32, 20, 16, false, WF_F16}, /* groups larger than the unit */
    {"wide", 128, 3, 32, false, WF_F16},  /* columns of several waves */
    {"odd", 80, 2, 7, true, WF_F16},
    {"bytes", 96, 4, 16, true, WF_Q8_0},
    {"largest", 256, 2, 16, true, WF_F16}, /* of MFMA alone */
};
enum { SYNC, ASYNC, WAYS };
enum { PREFILL, DECODE, SPLIT, KINDS };
static const char *const variants[KINDS][WAYS] = {
    {"matrix_prefill", "matrix_prefill_async"},
    {"matrix_decode", NULL},
    {"matrix_decode_split", NULL},
};
enum { SEVERAL = 1, CASES = 4, SEED = 11 };

/* One prompt, several at once, decodes, a decode with chunks of two lengths. Some rows leave the range of the
 * asynchronous softmax, above it or below. */
static wf_case case_of(const struct program *p, uint32_t turn)
{
    static const uint32_t seqs[] = {1, 5, 4, 1}, keys[] = {150, 70, 100, 1250}, rows[] = {60, 30, 1, 1},
                          sinks[] = {5, 0, 16, 3};
    uint32_t i = turn % CASES, kv_heads = p->kv == WF_F16 ? 1 + i % 2 : 2; /* pages of bytes are of one size */
    wf_case c = {.op = WF_OP_ATTENTION, .seed = SEED + turn, .in = WF_F16, .out = turn % 2 ? WF_F16 : WF_F32,
                 .kv = p->kv, .n_seqs = seqs[i], .max_kv = keys[i], .max_q = rows[i],
                 .windows = p->masked ? WF_WINDOWS_MIXED : WF_WINDOWS_NONE, .sinks = p->masked, .pad = i * 8};
    c.p = (wf_op_params){.n_head = kv_heads * p->per_kv, .n_kv_head = kv_heads, .head_dim = p->head_dim,
                         .page_tokens = p->page_tokens, .sink = sinks[i], .softcap = p->masked ? 9 : 0, .phi = 4,
                         .phi_lo = -2, .phi_hi = 1};
    return c;
}

static bool configure(const unit *u, const char *variant, const wf_check *k, cl_launch *l)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    const cl_caps caps = {.max_group = 256, .mem_align = 128, .local_bytes = 64 << 10, .gpu = true,
                          .copies = u->copies, .lanes = (uint32_t)u->lanes, .tier = WF_TIER_MATRIX};
    const cl_variant *v = variant_named(WF_OP_ATTENTION, variant);
    wf_call call;
    wf_check_stand_in(k, NULL, NULL, &stand_in, &call);
    *l = (cl_launch){0};
    return v && v->configure(&caps, v, &call, 0, l);
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static void *kernels[KINDS][WAYS];
static const struct program *program;
static const unit *the_unit;
static const wf_check *problem;
static cl_launch launch;
static int kind, way;
static uint8_t *result;
static float *scratch;
static uint32_t count, pass;

#define VIEW const void *, uint64_t
#define HEAD                                                                                                           \
    VIEW, VIEW, VIEW, VIEW, VIEW, VIEW, VIEW, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,      \
        uint32_t, uint32_t, uint32_t, float
#define AT(i) p->in[i].data, 0
#define WITH(...) , __VA_ARGS__
#define BLOCKS uint32_t, uint32_t, float *, uint32_t
/* types, given: the arguments that are there only where keys are masked. */
#define CALL(types, given)                                                                                             \
    {                                                                                                                  \
        void *kernel = kernels[kind][way];                                                                             \
        if (way == SYNC) ((void (*)(HEAD types, BLOCKS, uint32_t))kernel)(BEGIN given, THE_BLOCKS, pass);              \
        else                                                                                                           \
            ((void (*)(HEAD types, BLOCKS, void *, uint64_t, float, float, uint32_t))kernel)(                          \
                BEGIN given, THE_BLOCKS, &count, 0, a[-2].f32, a[-1].f32, pass);                                       \
    }

/* The arguments of the last launch that say how rows are dealt out. */
enum { ROWS, HEADS, SCRATCH, CHUNKS };
static uint32_t blocks_arg(int which)
{
    const cl_arg *first = &launch.arg[launch.n_args - (way == SYNC ? 5 : 9)];
    return first[which].u32;
}

static void call_kernel(void)
{
    const wf_check *p = problem;
    const wf_view *q = &p->in[WF_ATTENTION_Q].view, *o = &p->out[WF_ATTENTION_O].view;
    const wf_op_params *w = &p->c.p;
    const cl_arg *a = &launch.arg[launch.n_args - 1];
#define BEGIN                                                                                                          \
    AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), result, 0, o->dtype == WF_F16, q->rows, w->n_head, w->n_kv_head,  \
        w->page_tokens, p->in[WF_ATTENTION_K_POOL].view.stride, q->stride, o->stride, w->scale
#define THE_BLOCKS blocks_arg(ROWS), blocks_arg(HEADS), scratch, blocks_arg(CHUNKS)
    if (program->masked)
        CALL(WITH(VIEW, int32_t, float, VIEW),
             WITH(AT(WF_ATTENTION_WINDOWS), (int32_t)w->sink, w->softcap, AT(WF_ATTENTION_SINKS)))
    else CALL(, )
}

static void run_pass(uint32_t which, const wf_check *k, uint64_t groups)
{
    pass = which;
    host_groups(launch.group, (uint32_t)(k->c.max_groups ? k->c.max_groups : groups), call_kernel);
}

/* The bits of a problem's result, for the caller to free; NULL: not configured. products: how many it took. */
static uint8_t *simulate(int by, const wf_check *k, uint32_t *products)
{
    uint32_t before = host_result().products;
    problem = k, way = by, count = 0;
    if (!configure(the_unit, variants[kind][by], k, &launch)) return NULL;
    result = malloc(k->out[WF_ATTENTION_O].bytes);
    scratch = malloc(launch.scratch);
    memset(result, 0xFF, k->out[WF_ATTENTION_O].bytes);
    memset(scratch, 0xFF, launch.scratch);
    run_pass(0, k, launch.groups);
    if (launch.then_groups) run_pass(1, k, launch.then_groups);
    free(scratch);
    *products = host_result().products - before;
    return result;
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static bool same_by_one_group(const wf_check *k, const uint8_t *expect)
{
    wf_check one = *k;
    uint32_t products;
    one.c.max_groups = 1;
    uint8_t *bits = simulate(SYNC, &one, &products);
    bool same = bits && !memcmp(bits, expect, k->out[WF_ATTENTION_O].bytes);
    free(bits);
    if (!same) printf("one work-group gives other bits\n");
    return same;
}

static bool same_alone(int by, const wf_check *k, const uint8_t *expect)
{
    const wf_view *o = &k->out[WF_ATTENTION_O].view;
    uint64_t size = wf_dtype_bytes(o->dtype, 1);
    wf_check one;
    for (uint32_t row = o->rows / 7, products; row < o->rows; row += 1 + o->rows / 3) {
        if (!wf_check_one_row(k, row, &one)) return true;
        uint8_t *bits = simulate(by, &one, &products);
        bool same = bits && !memcmp(bits, expect + row * o->stride * size, o->cols * size);
        free(bits);
        if (!same) return printf("row %u alone has other bits\n", row), false;
    }
    return true;
}

/* Products of one tile for each run of each block of the last launch. */
static uint32_t products_of_first_tiles(const wf_check *k)
{
    const int32_t *seq = (const int32_t *)k->in[WF_ATTENTION_SEQ].data;
    uint32_t rows = blocks_arg(ROWS), heads = blocks_arg(HEADS), runs = 0;
    uint32_t g = k->c.p.n_head / k->c.p.n_kv_head, d = knob_of(&launch, "D"), keys = knob_of(&launch, "TK"), cols = (uint32_t)the_unit->cols;
    uint32_t tiles = d / 16 * (keys / cols) * knob_of(&launch, "WC") + keys / 16 * (d / cols);
    for (uint32_t m = 0; m < k->out[WF_ATTENTION_O].view.rows; m++) runs += m % rows == 0 || seq[m] != seq[m - 1];
    return runs * k->c.p.n_kv_head * ((g + heads - 1) / heads) * (knob_of(&launch, "R") / (uint32_t)the_unit->rows) * tiles;
}

/* Every row leaves, for the range is so far from its scores: above it by the first tile, where rows see that. */
static bool all_again(const wf_check *k, bool above, const uint8_t *sync, uint32_t sync_products)
{
    wf_check far = *k;
    uint32_t products, pairs = k->out[WF_ATTENTION_O].view.rows * k->c.p.n_head;
    far.c.p.phi = above ? -100000 : 100000;
    uint8_t *bits = simulate(ASYNC, &far, &products);
    bool same = bits && !memcmp(bits, sync, k->out[WF_ATTENTION_O].bytes),
         at_once = products == sync_products + products_of_first_tiles(&far);
    free(bits);
    if (!same) printf("all rows %s the range: other bits than the synchronous kernel's\n", above ? "above" : "below");
    if (count != pairs) printf("all rows %s the range: %u counted of %u\n", above ? "above" : "below", count, pairs);
    if (above && !k->c.windows && !at_once)
        printf("rows went on: %u products, %u of the synchronous kernel and %u of first tiles\n", products,
               sync_products, products_of_first_tiles(&far));
    return same && count == pairs && (at_once || !above || k->c.windows);
}

static bool run_way(int by, const wf_check *k, uint8_t **bits, uint32_t *products)
{
    char text[160];
    wf_case_text(&k->c, text, sizeof text);
    *bits = simulate(by, k, products);
    if (!*bits) return fprintf(stderr, "%s: not configured\n", text), false;
    wf_check_result r = judged(k, WF_ATTENTION_O, *bits);
    uint32_t left = count;
    bool counted = by == ASYNC ? count >= k->redo_least && count <= k->redo_most : !count;
    host_run host = host_result();
    bool ok = r.ok && counted && !host.mistakes && !host.conflicts && *products;
    printf("%-4s %s: %s: %.2g of its tolerance, %u of %u to %u again, %u products, %u mistakes, %u bank conflicts %s\n",
           ok ? "ok" : "FAIL", variants[kind][by], text, r.error, left, k->redo_least, k->redo_most, *products,
           host.mistakes, host.conflicts, r.message);
    return ok;
}

/* As many rows and heads as left have the synchronous kernel's bits, at least. */
static bool same_where_left(const wf_check *k, const uint8_t *sync, const uint8_t *async, uint32_t left)
{
    const wf_view *o = &k->out[WF_ATTENTION_O].view;
    uint64_t head = wf_dtype_bytes(o->dtype, k->c.p.head_dim), stride = wf_dtype_bytes(o->dtype, o->stride);
    uint32_t same = 0;
    for (uint32_t m = 0; m < o->rows; m++)
        for (uint32_t h = 0; h < k->c.p.n_head; h++)
            same += !memcmp(sync + m * stride + h * head, async + m * stride + h * head, head);
    if (same < left) printf("%u rows left, %u have the synchronous kernel's bits\n", left, same);
    return same >= left;
}

static bool same_class(const wf_check *k, uint8_t *const *prefill, uint8_t *const *decode)
{
    bool same = !memcmp(prefill[SYNC], decode[SYNC], k->out[WF_ATTENTION_O].bytes);
    if (!same) printf("matrix_decode has other bits than matrix_prefill\n");
    return same;
}

static bool run_kind(const wf_check *k, uint32_t turn, uint8_t **bits)
{
    uint32_t products[WAYS] = {0};
    bool ok = run_way(SYNC, k, &bits[SYNC], &products[SYNC]);
    if (!variants[kind][ASYNC])
        return ok && (turn != SEVERAL || (same_by_one_group(k, bits[SYNC]) && same_alone(SYNC, k, bits[SYNC])));
    ok = run_way(ASYNC, k, &bits[ASYNC], &products[ASYNC]) && ok;
    ok = ok && same_where_left(k, bits[SYNC], bits[ASYNC], count) && all_again(k, true, bits[SYNC], products[SYNC]);
    if (turn == SEVERAL)
        ok = ok && all_again(k, false, bits[SYNC], products[SYNC]) && same_by_one_group(k, bits[SYNC]) &&
             same_alone(SYNC, k, bits[SYNC]) && same_alone(ASYNC, k, bits[ASYNC]);
    return ok;
}

static bool run_case(wf_dev *ref, uint32_t turn)
{
    wf_case c = case_of(program, turn);
    wf_check *k;
    uint8_t *bits[KINDS][WAYS] = {{NULL}};
    bool ok = true;
    if (wf_check_new(ref, &c, &k)) return fprintf(stderr, "%s\n", wf_error()), false;
    for (kind = 0; kind < KINDS; kind++) ok = run_kind(k, turn, bits[kind]) && ok;
    ok = ok && same_class(k, bits[PREFILL], bits[DECODE]);
    for (int i = 0; i < KINDS * WAYS; i++) free(bits[i / WAYS][i % WAYS]);
    wf_check_free(k);
    return ok && !host_result().mistakes;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int print_knobs(void)
{
    for (unsigned u = 0; u < n_host_units; u++) {
        for (size_t i = 0; i < WF_LEN(programs) * KINDS * WAYS; i++) {
            const char *variant = variants[i / WAYS % KINDS][i % WAYS];
            const struct program *p = &programs[i / WAYS / KINDS];
            wf_case c = case_of(p, 0);
            wf_check *k;
            cl_launch l;
            if (!variant || host_units[u].takes_nan) continue; /* of other kernels */
            if (wf_check_new(NULL, &c, &k)) return 1;
            if (configure(&host_units[u], variant, k, &l)) {
                printf("%s attention_matrix %s %s %s", host_units[u].name, p->name, variant, host_units[u].macros);
                print_options(&l);
            }
            wf_check_free(k);
        }
    }
    return 0;
}

static int run(wf_dev *ref, const char *folder, const char *unit_name, const char *name)
{
    bool ok = true;
    for (int i = 0; i < KINDS * WAYS; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.so", folder, variants[i / WAYS][i % WAYS]);
        if (!variants[i / WAYS][i % WAYS]) continue;
        if (!(kernels[i / WAYS][i % WAYS] = kernel_in(path, "attention_matrix"))) return 1;
    }
    for (size_t i = 0; i < WF_LEN(programs); i++)
        if (!strcmp(programs[i].name, name)) program = &programs[i];
    the_unit = host_unit_named(unit_name);
    if (!program || !the_unit) return 2;
    host_start(the_unit);
    for (uint32_t turn = 0; turn < CASES; turn++) ok = run_case(ref, turn) && ok;
    host_end();
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    wf_dev *ref = NULL;
    bool knobs = argc == 2 && !strcmp(argv[1], "--knobs");
    if (!knobs && argc != 4) return fprintf(stderr, "usage: matrix_attention --knobs | FOLDER UNIT PROGRAM\n"), 2;
    if (knobs) return print_knobs();
    if (wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_BASE}, &ref)) return 1;
    int rc = run(ref, argv[1], argv[2], argv[3]);
    wf_dev_close(ref);
    return rc;
}
