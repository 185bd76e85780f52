/* split_host: runs attention_split.cl, attention_rows.cl and attention_prefill.cl on NVIDIA's warps as host.c simulates
 * them.
 *
 *   split_host --knobs                a line for each program: its name, its kernel, one more header, then build
 * options split_host FOLDER NAME            runs the kernel in NAME.so, built with those (split.py), and compares with
 * the reference; attention_split and attention_prefill must multiply no tile of keys that is not seen; with chunks it
 * must give a row the same bits by any number of work-groups, in the batch and alone: there by the program NAME-alone,
 * where there is one. With the asynchronous softmax rows leave its range (leaving.h): they stop, and have the bits of
 * its synchronous twin split_host --given KERNEL.so OPERANDS RESULT   runs attention_split with operands from a file
 * (wgmma_attention.py), and writes o
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cl/cl.h"
#include "op/host.h"
#include "op/judged.h"
#include "op/leaving.h"

/* A program: a variant, with or without windows; chunk, grows: of attention_split, in place of the variant's, for rows
 * that are short enough to be simulated to have many chunks. */
static const struct program {
    const char *name, *variant;
    uint8_t windows;
    uint32_t head_dim, per_kv, page_tokens;
    int32_t chunk, grows;
    enum wf_dtype kv;
} programs[] = {
    {"plain", "mma_decode", WF_WINDOWS_NONE, 64, 4, 16},
    {"plain-windows", "mma_decode", WF_WINDOWS_MIXED, 48, 9, 32},
    {"plain-async", "mma_decode_async", WF_WINDOWS_NONE, 64, 4, 16},
    {"plain-windows-async", "mma_decode_async", WF_WINDOWS_MIXED, 48, 9, 32},
    {"chunks", "mma_decode", WF_WINDOWS_NONE, 32, 3, 16, 4, 16},
    {"one-buffer", "mma_decode", WF_WINDOWS_NONE, 192, 1, 16, 4, 64},
    {"windows", "mma_decode", WF_WINDOWS_MIXED, 48, 9, 32, 4, 8},
    {"bytes", "mma_decode", WF_WINDOWS_MIXED, 192, 4, 16, 0, 0, WF_Q8_0},
    {"bytes-chunks", "mma_decode", WF_WINDOWS_NONE, 128, 3, 32, 4, 16, WF_Q8_0},
    {"ring", "mma_ring", WF_WINDOWS_NONE, 64, 4, 16},
    {"ring-odd-heads", "mma_ring", WF_WINDOWS_NONE, 128, 9, 32},
    {"ring-chunks", "mma_ring", WF_WINDOWS_NONE, 64, 3, 32, 8, 16},
    {"prefill", "mma_prefill", WF_WINDOWS_NONE, 64, 4, 16},
    {"prefill-async", "mma_prefill_async", WF_WINDOWS_NONE, 64, 4, 16},
    {"prefill64", "mma_prefill64", WF_WINDOWS_NONE, 80, 5, 16},
    {"prefill64-async", "mma_prefill64_async", WF_WINDOWS_NONE, 80, 5, 16},
    {"prefill-windows", "mma_prefill", WF_WINDOWS_MIXED, 128, 2, 32},
    {"prefill-windows-async", "mma_prefill_async", WF_WINDOWS_MIXED, 128, 2, 32},
    {"prefill64-windows", "mma_prefill64", WF_WINDOWS_MIXED, 80, 1, 16},
    {"rows-alone", "mma_decode", WF_WINDOWS_NONE, 64, 3, 16, 4, 8},
    {"rows", "mma_rows_chunks", WF_WINDOWS_NONE, 64, 3, 16, 4, 8},
    {"rows-wide-alone", "mma_decode", WF_WINDOWS_NONE, 32, 9, 32, 4, 8},
    {"rows-wide", "mma_rows_chunks", WF_WINDOWS_NONE, 32, 9, 32, 4, 8},
};

enum {
    UNITS = 3 /* compute units: few work-groups share items in many ways */,
    MANY = 20,
    LONG = 4000,
    CASES = 6,
    BEHIND = 1 << 20
};

static bool is_rows(const struct program *p)
{
    return !strcmp(p->variant, "mma_rows_chunks");
}

/* It takes q in vectors of four. */
static bool is_ring(const struct program *p)
{
    return !strncmp(p->name, "ring", 4);
}

static bool is_prefill(const struct program *p)
{
    return !strncmp(p->name, "prefill", 7) || is_rows(p);
}

/* Few and many rows (a warp's lanes have one each, or a run of them), short and long ones; the first is one of which
 * more work-groups have a part than are added at once. */
static wf_case case_of(const struct program *p, uint64_t seed, uint32_t turn)
{
    static const uint32_t seqs[] = {1, 5, 3}, rows[] = {1, 1, 25};
    const uint32_t keys[] = {is_rows(p) ? 190 : is_prefill(p) ? 150 : turn ? 400 : LONG, 50, 130};
    static const uint32_t sinks[] = {0, 1, 5, 16, 21, 64};
    uint32_t i = turn % 3, kv_heads = p->kv == WF_Q8_0 ? 2 : 1 + turn % 4; /* pages of bytes are of one size */
    wf_case c = {.op = WF_OP_ATTENTION, .seed = wf_random(seed, turn), .in = WF_F16, .out = turn % 2 ? WF_F16 : WF_F32,
                 .kv = p->kv, .n_seqs = seqs[i], .max_kv = keys[i],
                 .max_q = is_prefill(p) ? keys[i] / 2 - turn : rows[i],
                 .windows = p->windows, .pad = turn % 5 * (is_ring(p) ? 4 : 1)};
    c.p = (wf_op_params){.n_head = kv_heads * p->per_kv, .n_kv_head = kv_heads, .head_dim = p->head_dim,
                         .page_tokens = p->page_tokens, .sink = sinks[turn % 6], .phi = (float)(turn % 2), .phi_lo = -6,
                         .phi_hi = turn % 2 ? 3 : 7};
    return c;
}

/* Of the operands' shapes; a stand-in tells which are there. */
static bool configure(const struct program *p, const wf_check *k, cl_launch *l)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    cl_variant v = *variant_named(WF_OP_ATTENTION, p->variant);
    const cl_caps caps = {.max_group = 256, .mem_align = 128, .local_bytes = 48 << 10, .scratch = 64 << 20, .gpu = true,
                          .fma = true, .units = k->c.max_kv < LONG ? UNITS : MANY, .nv_mma = true, .nv_wgmma = true,
                          .nv_local_bytes = 227 << 10, .tier = WF_TIER_MATRIX};
    wf_call call;
    wf_check_call(k, NULL, NULL, &call);
    for (int i = 0; i < WF_MAX_IN; i++) call.in[i].buf = call.in[i].rows ? &stand_in : NULL;
    for (int i = 0; i < WF_MAX_OUT; i++) call.out[i].buf = call.out[i].rows ? &stand_in : NULL;
    if (p->chunk) v.tile[2] = p->chunk, v.tile[3] = p->grows;
    *l = (cl_launch){0};
    return v.configure(&caps, &v, &call, 0, l);
}

/* ---- one case ------------------------------------------------------------------------------------------------- */

#define VIEW const void *, uint64_t
#define HEAD                                                                                                           \
    VIEW, VIEW, VIEW, VIEW, VIEW, VIEW, VIEW, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,      \
        uint32_t, uint32_t, uint32_t, float
#define TAIL void *, uint32_t, void *, uint64_t, float, float
typedef void plain_fn(HEAD, TAIL);
typedef void windows_fn(HEAD, VIEW, int32_t, TAIL);
#define PREFILL uint32_t, void *, uint64_t, float, float
typedef void prefill_fn(HEAD, PREFILL);
typedef void windows_prefill_fn(HEAD, VIEW, int32_t, PREFILL);
typedef void rows_fn(HEAD);

/* A program that was built. */
typedef struct loaded {
    const struct program *p;
    void *kernel;
} loaded;

static loaded now, for_one_row, synchronous;
static const wf_check *problem;
static cl_launch launch;
static uint8_t *result;
static uint32_t *scratch, count;
static bool prefills;

#define AT(i) p->in[i].data, 0
static void call_kernel(void)
{
    const wf_check *p = problem;
    const wf_view *q = &p->in[WF_ATTENTION_Q].view, *o = &p->out[WF_ATTENTION_O].view;
    const wf_op_params *w = &p->c.p;
    float base = launch.arg[launch.n_args - 2].f32, low = launch.arg[launch.n_args - 1].f32;
    void *kernel = now.kernel;
    bool windows = p->in[WF_ATTENTION_WINDOWS].data;
#define BEGIN                                                                                                          \
    AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), result, 0, o->dtype == WF_F16, q->rows, w->n_head, w->n_kv_head,  \
        w->page_tokens, p->in[WF_ATTENTION_K_POOL].view.stride, q->stride, o->stride, w->scale
#define END_OF_PREFILL launch.arg[launch.n_args - 5].u32, &count, 0, base, low
#define END scratch, launch.arg[launch.n_args - 5].u32, &count, 0, base, low
    if (is_rows(now.p)) ((rows_fn *)kernel)(BEGIN);
    else if (prefills && windows) ((windows_prefill_fn *)kernel)(BEGIN, AT(7), (int32_t)w->sink, END_OF_PREFILL);
    else if (prefills) ((prefill_fn *)kernel)(BEGIN, END_OF_PREFILL);
    else if (windows) ((windows_fn *)kernel)(BEGIN, AT(7), (int32_t)w->sink, END);
    else ((plain_fn *)kernel)(BEGIN, END);
}

/* Launches leave the counters at 0, and what is behind their scratch memory as it is. */
static bool clean(void)
{
    const uint32_t *behind = scratch + launch.scratch / sizeof *scratch;
    for (uint32_t i = 0; i < WF_CL_ZEROED / 4; i++)
        if (scratch[i]) return false;
    for (uint32_t i = 0; i < BEHIND / sizeof *scratch; i++)
        if (behind[i]) return false;
    return true;
}

/* Does a query head of the KV head? */
static bool sees_tile(const wf_check *k, uint32_t m, uint32_t kv_head, int32_t tile)
{
    const int32_t *windows = (const int32_t *)k->in[WF_ATTENTION_WINDOWS].data;
    int32_t pos = ((const int32_t *)k->in[WF_ATTENTION_POS].data)[m],
            window = windows ? wf_longest_window(&k->c.p, windows, kv_head) : 0;
    for (int32_t j = 16 * tile; j < 16 * tile + 16; j++)
        if (wf_attends(window, k->c.p.sink, pos, j)) return true;
    return false;
}

/* Matrix products for each tile of which a row sees some key, and no other: the work follows the windows. D / 16 for K,
 * as many for V, for each 8 query heads of a KV head. */
static uint32_t products_needed(const wf_check *k)
{
    const wf_op_params *p = &k->c.p;
    uint32_t tiles = 0;
    for (uint32_t m = 0; m < k->out[WF_ATTENTION_O].view.rows; m++)
        for (uint32_t h = 0; h < p->n_kv_head; h++)
            for (uint32_t t = 0; t <= k->c.max_kv / 16; t++) tiles += sees_tile(k, m, h, (int32_t)t);
    return tiles * ((p->n_head / p->n_kv_head + 7) / 8) * (p->head_dim / 8);
}

/* ---- blocks of attention_prefill ------------------------------------------------------------------------------ */

/* Where the rows of one sequence end that begin at m. */
static uint32_t end_of_run(const wf_check *k, uint32_t m, uint32_t most)
{
    const int32_t *seq = (const int32_t *)k->in[WF_ATTENTION_SEQ].data;
    uint32_t end = m;
    while (end < most && seq[end] == seq[m]) end++;
    return end;
}

/* The last key that a row from m to end - 1 sees of those whose packed rows a warp has, in the block from m0 on; -1:
 * none. */
static int32_t last_of_warp(const wf_check *k, uint32_t m0, uint32_t m, uint32_t end, uint32_t warp)
{
    const int32_t *pos = (const int32_t *)k->in[WF_ATTENTION_POS].data;
    uint32_t packed = 16 * knob_of(&launch, "MT");
    int32_t last = -1;
    for (uint32_t r = warp * packed; r < (warp + 1) * packed; r++) {
        uint32_t row = m0 + r / knob_of(&launch, "HB");
        if (row >= m && row < end && r / knob_of(&launch, "HB") < 4 * packed / knob_of(&launch, "HB")) last = WF_MAX(last, pos[row]);
    }
    return last;
}

/* Does some row of the run? Their positions need not follow each other: what lies between two rows' windows counts as
 * seen. */
static bool run_sees_tile(const wf_check *k, uint32_t m, uint32_t end, uint32_t kv_head, uint32_t tile)
{
    const int32_t *windows = (const int32_t *)k->in[WF_ATTENTION_WINDOWS].data,
                  *pos = (const int32_t *)k->in[WF_ATTENTION_POS].data;
    int32_t window = windows ? wf_longest_window(&k->c.p, windows, kv_head) : 0, first = INT32_MAX,
            keys = (int32_t)knob_of(&launch, "BN"), from = (int32_t)tile * keys;
    for (uint32_t row = m; row < end; row++)
        if (pos[row] >= 0) first = WF_MIN(first, pos[row]);
    return window <= 0 || from < (int32_t)k->c.p.sink || from + keys > first - window + 1;
}

/* Tiles of a run, by the warps that see so far. */
static uint32_t tiles_of_run(const wf_check *k, uint32_t m0, uint32_t m, uint32_t end)
{
    uint32_t n = 0, keys = knob_of(&launch, "BN");
    for (uint32_t kv_head = 0; kv_head < k->c.p.n_kv_head; kv_head++)
        for (uint32_t tile = 0; tile * keys <= k->c.max_kv; tile++)
            for (uint32_t warp = 0; warp < 4 && run_sees_tile(k, m, end, kv_head, tile); warp++)
                n += (int32_t)(tile * keys) <= last_of_warp(k, m0, m, end, warp);
    return n;
}

/* A tile takes a warp so many for K, and as many for V: all query heads of a KV head are one block's. */
static uint32_t products_of_blocks(const wf_check *k)
{
    uint32_t rows = 64 * knob_of(&launch, "MT") / knob_of(&launch, "HB"), all = k->out[WF_ATTENTION_O].view.rows, n = 0;
    for (uint32_t m0 = 0; m0 < all; m0 += rows)
        for (uint32_t m = m0, end; m < WF_MIN(m0 + rows, all); m = end) {
            end = end_of_run(k, m, WF_MIN(m0 + rows, all));
            n += tiles_of_run(k, m0, m, end);
        }
    return n * knob_of(&launch, "MT") * knob_of(&launch, "BN") * k->c.p.head_dim / 64;
}

/* ---- a run ---------------------------------------------------------------------------------------------------- */

/* Runs a problem, whose bits are in `result` then. */
static bool simulate(const loaded *by, wf_check *k)
{
    now = *by;
    prefills = is_prefill(by->p);
    if (!configure(by->p, k, &launch)) return false;
    problem = k;
    result = malloc(k->out[WF_ATTENTION_O].bytes);
    launch.scratch = WF_MAX(launch.scratch, WF_CL_ZEROED);
    scratch = calloc(launch.scratch + BEHIND, 1);
    if (!result || !scratch) return false;
    memset(result, 0xFF, k->out[WF_ATTENTION_O].bytes);
    count = 0;
    host_groups(launch.group, (uint32_t)(k->c.max_groups ? WF_MIN(launch.groups, k->c.max_groups) : launch.groups),
                call_kernel);
    return true;
}

static void forget(void)
{
    free(result);
    free(scratch);
    result = NULL, scratch = NULL;
}

/* The same bits by any number of work-groups. */
static bool same_by_groups(const loaded *by, const wf_check *k, const uint8_t *expect)
{
    static const uint32_t groups[] = {1, 3, 7, 13};
    bool same = true;
    for (size_t i = 0; i < WF_LEN(groups) && same; i++) {
        wf_check fewer = *k;
        fewer.c.max_groups = groups[i];
        same = simulate(by, &fewer) && !memcmp(result, expect, k->out[WF_ATTENTION_O].bytes) && clean();
        forget();
        if (!same) printf("%u work-groups give other bits\n", groups[i]);
    }
    return same;
}

/* The same bits for a row alone. */
static bool same_alone(const wf_check *k, const uint8_t *expect)
{
    const wf_view *o = &k->out[WF_ATTENTION_O].view;
    uint64_t size = wf_dtype_bytes(o->dtype, 1);
    wf_check one;
    for (uint32_t row = 0; row < o->rows; row += 1 + o->rows / 4) {
        if (!wf_check_one_row(k, row, &one)) return true;
        bool same = simulate(&for_one_row, &one) && !memcmp(result, expect + row * o->stride * size, o->cols * size);
        forget();
        if (!same) return printf("row %u alone has other bits\n", row), false;
    }
    return true;
}

static bool run_case(const loaded *by, wf_dev *ref, const wf_case *c)
{
    const struct program *p = by->p;
    char text[160];
    wf_check *k;
    wf_case_text(c, text, sizeof text);
    if (wf_check_new(ref, c, &k)) return fprintf(stderr, "%s: %s\n", text, wf_error()), false;
    uint32_t before = host_result().products;
    if (!simulate(by, k)) return fprintf(stderr, "%s: not configured\n", text), false;
    uint32_t need = is_prefill(p) && !is_rows(p) ? products_of_blocks(k) : products_needed(k);
    host_run host = host_result();
    uint32_t products = host.products - before;
    bool async = strstr(p->variant, "async"),
         counted = async ? count >= k->redo_least && count <= k->redo_most : !count;
    wf_check_result r = judged(k, WF_ATTENTION_O, result);
    bool worked = is_rows(p) || (async && count ? products > need : products == need);
    bool ok = r.ok && counted && clean() && !host.mistakes && worked;
    printf("%-4s %s: %s: %.2g of its tolerance, %u of %u to %u again, %u products of %u, %u mistakes %s\n",
           ok ? "ok" : "FAIL", p->name, text, r.error, count, k->redo_least, k->redo_most, products, need,
           host.mistakes, r.message);
    uint8_t *bits = result;
    result = NULL;
    forget();
    ok = ok && (!p->chunk || (same_by_groups(by, k, bits) && same_alone(k, bits)));
    free(bits);
    wf_check_free(k);
    return ok;
}

/* ---- rows that leave the range ----------------------------------------------------------------------------------- */

enum { SEED = 5, MOST_LEFT = 4096 };

static const int32_t *numbers(const wf_check *k, int in)
{
    return (const int32_t *)k->in[in].data;
}

static float draw(void)
{
    static uint64_t n;
    return (float)(wf_random(SEED, n++) % 2048) / 1024 - 1;
}

/* A key that some row sees, so large that maxima rise on the way. */
static void put_key(const wf_check *k, const leaving_rows *r, int32_t seq, int32_t j, uint32_t kv_head)
{
    const wf_op_params *p = &k->c.p;
    int32_t page = numbers(k, WF_ATTENTION_PAGES)[numbers(k, WF_ATTENTION_INDPTR)[seq] + j / (int32_t)p->page_tokens];
    const wf_check_operand *pool = &k->in[WF_ATTENTION_K_POOL];
    uint16_t *key = (uint16_t *)pool->data + (uint64_t)page * pool->view.stride +
                    (kv_head * p->page_tokens + (uint32_t)j % p->page_tokens) * p->head_dim;
    float columns[LEAVING_COLUMNS];
    if (isnan(wf_half_to_float(*key))) return;
    leaving_key(r, seq, j, columns);
    for (uint32_t d = 0; d < p->head_dim; d++)
        key[d] = wf_float_to_half(d < LEAVING_COLUMNS ? columns[d] : draw() * (1 + 2 * (float)j / (float)k->c.max_kv));
}

static void put_keys(const wf_check *k, const leaving_rows *r)
{
    for (uint32_t m = 0; m < r->n; m++)
        for (int32_t j = 0; j <= r->pos[m]; j++) {
            bool again = false; /* an earlier row has seen to it */
            for (uint32_t i = 0; i < m; i++) again |= r->seq[i] == r->seq[m] && r->pos[i] >= j;
            for (uint32_t h = 0; !again && h < k->c.p.n_kv_head; h++) put_key(k, r, r->seq[m], j, h);
        }
}

static uint16_t *query_of(const wf_check *k, uint32_t i)
{
    const wf_check_operand *q = &k->in[WF_ATTENTION_Q];
    return (uint16_t *)q->data + (uint64_t)(i / k->c.p.n_head) * q->view.stride + i % k->c.p.n_head * k->c.p.head_dim;
}

static void draw_queries(const wf_check *k, const leaving_rows *r)
{
    for (uint32_t i = 0; i < r->n * r->heads; i++)
        for (uint32_t d = 0; d < k->c.p.head_dim; d++) query_of(k, i)[d] = wf_float_to_half(draw());
}

static void put_queries(const wf_check *k, const leaving_rows *r, const uint8_t *left)
{
    float columns[LEAVING_COLUMNS];
    for (uint32_t i = 0; i < r->n * r->heads; i++) {
        leaving_query(left[i], columns);
        for (uint32_t d = 0; d < LEAVING_COLUMNS; d++) query_of(k, i)[d] = wf_float_to_half(columns[d]);
    }
}

/* The result of a problem, for the caller to free; used: what it took. */
static uint8_t *bits_by(const loaded *by, wf_check *k, host_run *used)
{
    host_run before = host_result();
    if (!simulate(by, k)) abort();
    uint8_t *bits = result;
    host_run after = host_result();
    *used = (host_run){after.mistakes + !clean(), after.products - before.products, after.barriers - before.barriers};
    result = NULL;
    forget();
    return bits;
}

/* What a block of rows takes until all have left: one tile of each warp that has rows of a run, and the barriers of two
 * tiles, at the end of each run, and between the block's two ways. */
static host_run first_tiles_of_blocks(const wf_check *k)
{
    enum { OF_RUN = 3, OF_BLOCK = 4 };
    uint32_t rows = k->out[WF_ATTENTION_O].view.rows, block = 64 * knob_of(&launch, "MT") / knob_of(&launch, "HB"), heads = k->c.p.n_kv_head;
    host_run r = {0};
    for (uint32_t m0 = 0; m0 < rows; m0 += block) {
        for (uint32_t m = m0, end; m < WF_MIN(m0 + block, rows); m = end) {
            end = end_of_run(k, m, WF_MIN(m0 + block, rows));
            for (uint32_t warp = 0; warp < 4; warp++) r.products += last_of_warp(k, m0, m, end, warp) >= 0;
            r.barriers += OF_RUN * heads;
        }
        r.barriers += OF_BLOCK * heads * launch.arg[launch.n_args - 5].u32; /* SHARE */
    }
    r.products *= heads * knob_of(&launch, "MT") * knob_of(&launch, "BN") * k->c.p.head_dim / 64;
    return r;
}

/* The keys of one tile for each warp of each part of an item. */
static host_run first_tiles_of_items(const wf_check *k)
{
    uint32_t items = k->out[WF_ATTENTION_O].view.rows * k->c.p.n_kv_head * ((k->c.p.n_head / k->c.p.n_kv_head + 7) / 8);
    return (host_run){.products = (uint32_t)(launch.groups + items) * 4 * (k->c.p.head_dim / 16),
                      .barriers = UINT32_MAX / 2};
}

/* And of one row that is computed again: those of a warp that has it, or of its item. */
static uint32_t products_of_a_row(const loaded *by, const wf_check *k)
{
    uint32_t keys = is_prefill(by->p) ? knob_of(&launch, "BN") : 16, tiles = k->c.max_kv / keys + 1;
    return tiles * (is_prefill(by->p) ? knob_of(&launch, "MT") * knob_of(&launch, "BN") / 8 : 1) * k->c.p.head_dim / 8;
}

/* Rows that leave stop, and are computed again alone. none: where none leaves. */
static bool stopped(const loaded *by, const wf_check *k, const char *pattern, host_run used, host_run sync,
                    host_run none)
{
    host_run most = {.products = UINT32_MAX, .barriers = UINT32_MAX},
             first = is_prefill(by->p) ? first_tiles_of_blocks(k) : first_tiles_of_items(k);
    if (!strcmp(pattern, "none")) most.products = sync.products;
    if (!strncmp(pattern, "one", 3)) most.products = none.products + products_of_a_row(by, k);
    if (!strcmp(pattern, "all above") && !k->c.windows)
        most.products = sync.products + first.products, most.barriers = sync.barriers + first.barriers;
    bool ok = used.products <= most.products && used.barriers <= most.barriers;
    if (!ok)
        printf("FAIL %s, %s: %u products, %u barriers, of at most %u, %u\n", by->p->name, pattern, used.products,
               used.barriers, most.products, most.barriers);
    return ok;
}

static bool run_pattern(const loaded *by, wf_check *k, const leaving_rows *r, const char *pattern, const uint8_t *none,
                        host_run of_none)
{
    static uint8_t left[MOST_LEFT];
    const wf_view *o = &k->out[WF_ATTENTION_O].view;
    uint32_t row, head, n = leaving_choose(r, pattern, left);
    host_run used, of_sync;
    put_queries(k, r, left);
    uint8_t *sync = bits_by(&synchronous, k, &of_sync), *async = bits_by(by, k, &used);
    const leaving_results got = {async, sync, none, wf_dtype_bytes(o->dtype, k->c.p.head_dim),
                                 wf_dtype_bytes(o->dtype, o->stride)};
    const char *wrong = leaving_wrong(r, left, &got, &row, &head);
    if (count != n) wrong = "wrong number of recomputed rows", row = count, head = n;
    if (wrong) printf("FAIL %s, %s: %s (row %u, head %u)\n", by->p->name, pattern, wrong, row, head);
    free(sync);
    free(async);
    return !wrong && stopped(by, k, pattern, used, of_sync, of_none) && !used.mistakes;
}

static bool run_leaving(const loaded *by, wf_dev *ref, uint32_t turn)
{
    wf_case c = case_of(by->p, SEED, turn);
    wf_check *k;
    c.p.phi = 0.5f, c.p.phi_lo = -6, c.p.phi_hi = 7;
    if (wf_check_new(ref, &c, &k)) return fprintf(stderr, "%s\n", wf_error()), false;
    const leaving_rows r = {k->out[WF_ATTENTION_O].view.rows, c.p.n_head, numbers(k, WF_ATTENTION_SEQ),
                            numbers(k, WF_ATTENTION_POS), c.windows};
    static uint8_t none[MOST_LEFT];
    host_run used;
    bool ok = r.n * r.heads <= MOST_LEFT;
    put_keys(k, &r);
    draw_queries(k, &r);
    put_queries(k, &r, none);
    uint8_t *bits = bits_by(by, k, &used);
    for (int i = 0; i < LEAVING_PATTERNS && ok; i++) ok = run_pattern(by, k, &r, leaving_pattern[i], bits, used);
    printf("%-4s %s: %u rows of %u heads leave\n", ok ? "ok" : "FAIL", by->p->name, r.n, r.heads);
    free(bits);
    wf_check_free(k);
    return ok;
}

/* ---- operands from elsewhere ------------------------------------------------------------------------------------- */

/* The file: this, then the operands as the kernel takes them. */
static struct given {
    uint32_t bytes[7], result_bytes, half, rows, n_head, n_kv_head, page_tokens, page_stride, q_stride, o_stride;
    float scale;
} given;
static void *operand[7];
enum { GIVEN_SLOTS = 64, GIVEN_GROUPS = 3, GIVEN_SCRATCH = 4 << 20 };

static void call_given(void)
{
    const struct given *g = &given;
#define OPERAND(i) operand[i], 0
    ((plain_fn *)now.kernel)(OPERAND(0), OPERAND(1), OPERAND(2), OPERAND(3), OPERAND(4), OPERAND(5), OPERAND(6), result,
                             0, g->half, g->rows, g->n_head, g->n_kv_head, g->page_tokens, g->page_stride, g->q_stride,
                             g->o_stride, g->scale, scratch, GIVEN_SLOTS, &count, 0, 0, 0);
}

static bool read_given(FILE *f)
{
    if (fread(&given, sizeof given, 1, f) != 1) return false;
    for (size_t i = 0; i < WF_LEN(operand); i++)
        if (!(operand[i] = malloc(given.bytes[i])) || fread(operand[i], 1, given.bytes[i], f) != given.bytes[i])
            return false;
    result = malloc(given.result_bytes);
    scratch = calloc(GIVEN_SCRATCH, 1);
    return result && scratch && fread(result, 1, given.result_bytes, f) == given.result_bytes;
}

static int run_given(const char *library, const char *operands, const char *to)
{
    FILE *f = fopen(operands, "rb"), *out = fopen(to, "wb");
    now.kernel = kernel_in(library, "attention_split");
    bool ok = now.kernel && f && out && read_given(f);
    if (ok) {
        host_start(host_unit_named("nvidia"));
        host_groups(128, GIVEN_GROUPS, call_given);
        host_end();
        ok = !host_result().mistakes && fwrite(result, 1, given.result_bytes, out) == given.result_bytes;
    }
    if (f) fclose(f);
    if (out) fclose(out);
    return !ok;
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

static int print_knobs(wf_dev *ref)
{
    for (size_t i = 0; i < WF_LEN(programs); i++) {
        wf_case c = case_of(&programs[i], 1, 0);
        wf_check *k;
        cl_launch l;
        if (wf_check_new(ref, &c, &k) || !configure(&programs[i], k, &l)) return 1;
        printf("%s %s", programs[i].name, variant_named(WF_OP_ATTENTION, programs[i].variant)->family);
        print_options(&l);
        wf_check_free(k);
    }
    return 0;
}

static const struct program *program_named(const char *name)
{
    for (size_t i = 0; i < WF_LEN(programs); i++)
        if (!strcmp(programs[i].name, name)) return &programs[i];
    return NULL;
}

static bool load(const char *folder, const struct program *p, loaded *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.so", folder, p->name);
    *out = (loaded){p, kernel_in(path, variant_named(WF_OP_ATTENTION, p->variant)->family)};
    return out->kernel != NULL;
}

/* Of NAME-async NAME; else the program itself. NULL: there is none. */
static const struct program *synchronous_twin(const char *name, const struct program *p)
{
    char other[64];
    const char *tail = strstr(name, "-async");
    if (!tail) return p;
    wf_copy(other, WF_MIN(sizeof other, (size_t)(tail - name) + 1), name);
    return program_named(other);
}

/* The program and the others that it is compared with: NAME-alone, or itself; of NAME-async also NAME. */
static bool load_all(const char *folder, const char *name, loaded *it)
{
    char other[64];
    const struct program *p = program_named(name), *alone, *twin = synchronous_twin(name, p);
    snprintf(other, sizeof other, "%s-alone", name);
    alone = program_named(other);
    if (!p || !twin) return fprintf(stderr, "no program %s, or none that it is compared with\n", name), false;
    return load(folder, p, it) && load(folder, alone ? alone : p, &for_one_row) && load(folder, twin, &synchronous);
}

static int run(wf_dev *ref, const char *folder, const char *name)
{
    uint64_t seed = wf_now_ns();
    loaded it;
    bool ok = true;
    if (!load_all(folder, name, &it)) return 1;
    printf("seed %llu\n", (unsigned long long)seed);
    host_start(host_unit_named("nvidia"));
    for (uint32_t turn = 0; turn < CASES; turn++) {
        wf_case c = case_of(it.p, seed, turn);
        ok = run_case(&it, ref, &c) && ok;
    }
    for (uint32_t turn = 0; turn < 4 && it.p != synchronous.p; turn++) ok = run_leaving(&it, ref, turn) && ok;
    host_end();
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    wf_dev *ref = NULL;
    if (argc == 5 && !strcmp(argv[1], "--given")) return run_given(argv[2], argv[3], argv[4]);
    bool knobs = argc == 2 && !strcmp(argv[1], "--knobs");
    if (!knobs && argc != 3) return fprintf(stderr, "usage: split_host --knobs | FOLDER NAME\n"), 2;
    if (wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_BASE}, &ref)) return 1;
    int rc = knobs ? print_knobs(ref) : run(ref, argv[1], argv[2]);
    wf_dev_close(ref);
    return rc;
}
