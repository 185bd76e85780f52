/* MMA-fragment-major weights, without the device that reads them: packed tiles multiplied as the PTX ISA defines the
 * operands of mma.m16n8k16 give the product; and tiles suit the device. */
#include "unit/cl_test.h"

#include "base/file.h"
#include "dev/front.h"
#include "select/batch_invariance.h"
#include "select/tuned.h"
#include "verify/check.h"

#include <stdlib.h>

static wf_dev *device(bool mma, enum wf_tier tier)
{
    static cl_dev d;
    memset(&d, 0, sizeof d);
    d.ref.caps.nv_mma = mma;
    d.base.params.tier = tier;
    return &d.base;
}

static float number(uint64_t i)
{
    return (float)(int)(wf_random(7, i) % 17) - 8; /* sums of products are exact */
}

/* Element e of register r of operand A in lane l: row and k (PTX ISA, "Matrix Fragments for mma.m16n8k16"). */
static uint32_t a_row(uint32_t l, uint32_t r)
{
    return l / 4 + (r & 1 ? 8 : 0);
}

static uint32_t a_k(uint32_t l, uint32_t r, uint32_t e)
{
    return l % 4 * 2 + e + (r & 2 ? 8 : 0);
}

static void check_product(uint32_t rows, uint32_t cols)
{
    uint32_t padded = (rows + 15) / 16 * 16;
    wf_dev *d = device(true, WF_TIER_MATRIX);
    uint16_t *w = calloc((size_t)rows * cols, 2), *packed = calloc((size_t)padded * cols, 2);
    float *x = calloc(cols, sizeof *x), *y = calloc(padded, sizeof *y);
    for (uint32_t i = 0; i < rows * cols; i++) w[i] = wf_float_to_half(number(i));
    for (uint32_t k = 0; k < cols; k++) x[k] = number(1000000 + k);
    assert_int_equal(wf_cl_weight_bytes(d, WF_CL_FRAGMENT_MAJOR, WF_F16, rows, cols), (uint64_t)padded * cols * 2);
    wf_cl_weight_pack(d, WF_CL_FRAGMENT_MAJOR, WF_F16, rows, cols, w, packed);
    const uint16_t *at = packed;
    for (uint32_t row = 0; row < padded; row += 16)
        for (uint32_t k = 0; k < cols; k += 16)
            for (uint32_t lane = 0; lane < 32; lane++)
                for (uint32_t r = 0; r < 4; r++)
                    for (uint32_t e = 0; e < 2; e++) y[row + a_row(lane, r)] += wf_half_to_float(*at++) * x[k + a_k(lane, r, e)];
    for (uint32_t n = 0; n < padded; n++) {
        float want = 0;
        for (uint32_t k = 0; k < cols && n < rows; k++) want += wf_half_to_float(w[(size_t)n * cols + k]) * x[k];
        if (y[n] != want) fail_msg("%u x %u: row %u is %g and should be %g", rows, cols, n, (double)y[n], (double)want);
    }
    free(w), free(packed), free(x), free(y);
}

static void fragments_multiply(void **state)
{
    (void)state;
    check_product(16, 32);
    check_product(64, 96);
    check_product(1, 32);
    check_product(37, 160);
}

static void layout_follows_the_device(void **state)
{
    (void)state;
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_F16, 8, 64), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_F16, 8, 48), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_Q4_0, 8, 64), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_Q4_0, 8, 96), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_MATRIX), WF_BF16, 8, 64), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(true, WF_TIER_BASE), WF_F16, 8, 64), WF_CL_ROWS);
    assert_int_equal(wf_cl_weight_layout(device(false, WF_TIER_MATRIX), WF_F16, 8, 64), WF_CL_ROWS);
}

/* ---- tiles of mma.sync -------------------------------------------------------------------------------------- */

static const cl_dev *with_units(uint32_t units, uint32_t local_kib)
{
    cl_dev *d = (cl_dev *)device(false, WF_TIER_MATRIX);
    d->ref.caps = (cl_caps){.gpu = true, .nv_mma = true, .max_group = 1024, .units = units, .nv_local_bytes = local_kib << 10,
                              .tier = WF_TIER_MATRIX};
    return d;
}

static wf_call product(uint32_t m, uint32_t n, uint32_t k)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    wf_call c = {.op = WF_OP_GEMM};
    c.in[WF_GEMM_X] = (wf_view){&stand_in, 0, m, k, k, WF_F16, 0};
    c.in[WF_GEMM_W] = (wf_view){&stand_in, 0, n, k, k, WF_F16, WF_CL_FRAGMENT_MAJOR};
    c.out[WF_GEMM_Y] = (wf_view){&stand_in, 0, m, n, n, WF_F16, 0};
    return c;
}

static const char *picked(const cl_dev *d, uint32_t m, uint32_t n)
{
    wf_call c = product(m, n, 4096);
    return wf_cl_variant_at(WF_OP_GEMM, best_of((cl_dev *)d, &c))->name;
}

/* Those that were the fastest where they were compared. */
static void tiles_follow_the_device(void **state)
{
    (void)state;
    const cl_dev *d = with_units(132, 227);
    assert_string_equal(picked(d, 2048, 4096), "frag256");
    assert_string_equal(picked(d, 128, 28672), "frag256");
    assert_string_equal(picked(d, 256, 6144), "frag128");
    assert_string_equal(picked(d, 256, 4096), "frag64");
    assert_string_equal(picked(d, 64, 28672), "frag64");
    assert_string_equal(picked(with_units(24, 99), 256, 4096), "frag256");
}

static const char *picked_of_rows(bool gpu, uint32_t m)
{
    cl_dev *d = (cl_dev *)device(false, WF_TIER_BASE);
    d->ref.caps = (cl_caps){.gpu = gpu, .max_group = 256, .units = 132, .local_bytes = 48 << 10, .scratch = 128 << 20};
    wf_call c = product(m, 4096, 4096);
    c.in[WF_GEMM_W].layout = WF_CL_ROWS;
    return wf_cl_variant_at(WF_OP_GEMM, best_of(d, &c))->name;
}

/* Padded to 8 rows where that is faster: for more than gemv takes, and not where work-items are a loop on a core. */
static void flat_tiles_suit_gpus(void **state)
{
    (void)state;
    assert_string_equal(picked_of_rows(true, 9), "tile8");
    assert_string_equal(picked_of_rows(true, 16), "tile8");
    assert_string_equal(picked_of_rows(true, 17), "tile16");
    assert_string_equal(picked_of_rows(false, 16), "tile16");
    assert_non_null(strstr(picked_of_rows(true, 8), "gemv"));
}

static int32_t knob(const cl_launch *l, const char *name)
{
    for (uint32_t i = 0; i < l->n_knobs; i++)
        if (!strcmp(l->knob[i].name, name)) return l->knob[i].value;
    fail_msg("no knob %s", name);
    return 0;
}

/* As many work-groups as registers allow (eight warps) have room on a multiprocessor together; the last resort stays
 * within what OpenCL promises. */
static void parts_fit_local_memory(void **state)
{
    static const uint32_t kib[] = {227, 163, 99}, depth[] = {4096, 4096 + 32};
    (void)state;
    for (size_t i = 0; i < WF_LEN(kib) * WF_LEN(depth); i++)
        for (int j = 0; j < (int)wf_cl_n_variants(WF_OP_GEMM); j++) {
            const cl_variant *v = wf_cl_variant_at(WF_OP_GEMM, j);
            const cl_dev *d = with_units(132, kib[i / WF_LEN(depth)]);
            wf_call c = product(512, 4096, depth[i % WF_LEN(depth)]);
            cl_launch l;
            if (v->configure != wf_cl_configure_frag) continue;
            assert_true(wf_cl_configure(d, j, &c, &l));
            int32_t bytes = knob(&l, "STAGES") * (v->tile[0] + v->tile[1]) * knob(&l, "PK") * 2;
            assert_true(bytes * (256 / (int32_t)l.group) <= (int32_t)d->ref.caps.nv_local_bytes);
            assert_true(knob(&l, "STAGES") >= 2 && c.in[WF_GEMM_X].cols % (uint32_t)knob(&l, "PK") == 0);
            if (!strcmp(v->name, "frag_small")) assert_true(bytes <= 48 << 10);
        }
}

/* ---- decode attention ------------------------------------------------------------------------------------------ */

static wf_call attention(uint32_t seqs, uint32_t keys, uint32_t head_dim, uint32_t heads)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    enum { KV_HEADS = 8, PAGE = 16 };
    wf_call c = {.op = WF_OP_ATTENTION, .variant = -1};
    uint32_t row = heads * head_dim, page = KV_HEADS * PAGE * head_dim, pages = (keys + PAGE - 1) / PAGE * seqs;
    c.p = (wf_op_params){.n_head = heads, .n_kv_head = KV_HEADS, .head_dim = head_dim, .page_tokens = PAGE, .max_kv = keys, .max_q = 1, .scale = 1};
    c.in[WF_ATTENTION_Q] = c.out[WF_ATTENTION_O] = (wf_view){&stand_in, 0, seqs, row, row, WF_F16, 0};
    c.in[WF_ATTENTION_K_POOL] = c.in[WF_ATTENTION_V_POOL] = (wf_view){&stand_in, 0, pages, page, page, WF_F16, 0};
    c.in[WF_ATTENTION_SEQ] = c.in[WF_ATTENTION_POS] = (wf_view){&stand_in, 0, 1, seqs, seqs, WF_I32, 0};
    c.in[WF_ATTENTION_INDPTR] = (wf_view){&stand_in, 0, 1, seqs + 1, seqs + 1, WF_I32, 0};
    c.in[WF_ATTENTION_PAGES] = (wf_view){&stand_in, 0, 1, pages, pages, WF_I32, 0};
    return c;
}

static cl_dev *with_rings(uint32_t local_kib)
{
    cl_dev *d = (cl_dev *)with_units(132, local_kib);
    d->ref.caps.nv_wgmma = true;
    d->ref.caps.scratch = d->ref.caps.zeroed = 1 << 28;
    return d;
}

/* What kernels/attention/split_ring.clh and attention_split.cl ask for. */
static int32_t ring_bytes(const cl_launch *l)
{
    int32_t d = knob(l, "D"), warps = (int32_t)l->group / 32, pair = 2 * d + 4;
    int32_t slot = 2 * (8 * d * 2 + 64) + 4 * (4 * d * 2 + 32), sums = warps * (knob(l, "COLS") / 2 * pair * 4 + 8 * 8) + 8;
    return warps * knob(l, "SLOTS") * (slot + 8) + sums;
}

static bool is_ring(int variant)
{
    return wf_cl_variant_at(WF_OP_ATTENTION, variant)->configure == wf_cl_configure_split_ring;
}

/* With any number of query heads a KV head; a device that has less than one tile a warp refuses. */
static void rings_fit_local_memory(void **state)
{
    static const uint32_t kib[] = {227, 99, 40, 16};
    (void)state;
    int found = 0;
    for (size_t i = 0; i < WF_LEN(kib); i++)
        for (int j = 0; j < (int)wf_cl_n_variants(WF_OP_ATTENTION); j++)
            for (uint32_t per_kv = 1; per_kv <= 12 && is_ring(j); per_kv++)
                for (uint32_t dim = 64; dim <= 128; dim += 64) {
                    const cl_dev *d = with_rings(kib[i]);
                    wf_call c = attention(4, 1024, dim, 8 * per_kv);
                    cl_launch l;
                    if (!wf_cl_configure(d, j, &c, &l)) continue;
                    assert_true(ring_bytes(&l) <= (int32_t)kib[i] << 10);
                    assert_true(knob(&l, "COLS") >= (int32_t)WF_MIN(per_kv, 8));
                    found++;
                }
    assert_true(found >= 24);
}

static const char *picked_attention(cl_dev *d, const wf_call *c)
{
    wf_candidate_kernel best;
    return wf_cl_rank(&d->base, c, NULL, &best, 1) ? wf_cl_variant_at(WF_OP_ATTENTION, best.variant)->name : "none";
}

/* A share of the device is for the ring, where it can run; all of the device, prompts and windows are not. */
static void decodes_with_a_share(void **state)
{
    static wf_buf windows = {NULL, UINT64_MAX, NULL};
    (void)state;
    cl_dev *d = with_rings(227);
    wf_call c = attention(256, 1024, 128, 32);
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c.max_groups = 24;
    assert_string_equal(picked_attention(d, &c), "mma_ring");
    c.max_groups = 99;
    assert_string_equal(picked_attention(d, &c), "mma_ring");
    c.max_groups = 100;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 96, 32), c.max_groups = 24;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 128, 32), c.max_groups = 24;
    c.in[WF_ATTENTION_WINDOWS] = (wf_view){&windows, 0, 1, 32, 32, WF_I32, 0};
    assert_string_equal(picked_attention(d, &c), "mma_decode");
    c = attention(256, 1024, 128, 32), c.max_groups = 24, c.p.max_q = 100;
    assert_string_not_equal(picked_attention(d, &c), "mma_ring");
    d->ref.caps.nv_wgmma = false;
    c.p.max_q = 1;
    assert_string_equal(picked_attention(d, &c), "mma_decode");
}

static cl_dev *with_lanes(uint32_t lanes)
{
    static const wf_dev_fns fns = {.supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants};
    cl_dev *d = (cl_dev *)device(false, WF_TIER_MATRIX);
    d->ref.caps = (cl_caps){.gpu = true, .max_group = 256, .units = 96, .local_bytes = 64 << 10, .lanes = lanes, .tier = WF_TIER_MATRIX};
    d->base.fns = &fns;
    return d;
}

static int pick_in_class(wf_dev *d, const wf_call *c, const char *class)
{
    wf_candidate_kernel k;
    return wf_cl_rank(d, c, class, &k, 1) ? k.variant : -1;
}

/* AMD's and Intel's matrix units: rows of one sequence for each KV head, padded to the unit's; chunks of keys where those are too few for the
 * device. With --deterministic kernels of one class for decodes and prompts. A head that the unit has no registers for is the base tier's. */
static void decodes_on_other_units(void **state)
{
    static const struct {
        uint32_t lanes, seqs, keys, head_dim, heads, max_q;
        int32_t rows;
        const char *variant, *invariant;
    } cases[] = {
        {64, 256, 1024, 256, 32, 1, 16, "matrix_decode", "matrix_decode"},
        {32, 256, 1024, 128, 32, 1, 16, "matrix_decode", "matrix_decode"},
        {16, 256, 1024, 128, 32, 1, 8, "matrix_decode", "matrix_decode"},
        {16, 256, 1024, 128, 96, 1, 16, "matrix_decode", "matrix_decode"},
        {32, 256, 1024, 128, 8 * 71, 1, 64, "matrix_decode", "matrix_decode"},
        {32, 1, 4096, 128, 32, 1, 16, "matrix_decode_split", "matrix_decode"},
        {32, 1, 200, 128, 32, 1, 16, "matrix_decode", "matrix_decode"},
        {32, 2048, 2048, 128, 32, 2048, 64, "matrix_prefill_async", "matrix_prefill"},
        {32, 256, 1024, 256, 32, 1, 4, "decode", "decode"},
    };
    (void)state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_batch_invariance b = {0};
        cl_dev *d = with_lanes(cases[i].lanes);
        wf_call c = attention(cases[i].seqs, cases[i].keys, cases[i].head_dim, cases[i].heads);
        cl_launch l;
        c.p.max_q = cases[i].max_q;
        if (c.p.max_q > 1) c.p.phi_lo = -4, c.p.phi_hi = 4;
        assert_string_equal(picked_attention(d, &c), cases[i].variant);
        assert_true(wf_cl_configure(d, best_of(d, &c), &c, &l));
        assert_int_equal(knob(&l, "R"), cases[i].rows);
        c.p.phi_lo = c.p.phi_hi = 0;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_ATTENTION, v)->name, cases[i].invariant);
        wf_batch_invariance_reset(&b);
    }
}

/* ---- a rotation behind the product ------------------------------------------------------------------------- */

static wf_call qkv(uint32_t m, uint32_t head_dim, uint32_t n_rot, uint32_t neox)
{
    wf_call c = product(m, 48 * head_dim, 4096);
    wf_buf *stand_in = c.in[WF_GEMM_X].buf;
    uint32_t page = 8 * 16 * head_dim;
    c.p = (wf_op_params){.rope = 1, .n_head = 32, .n_kv_head = 8, .head_dim = head_dim, .n_rot = n_rot, .neox = neox, .page_tokens = 16};
    c.out[WF_GEMM_GEMM_WS] = c.out[WF_GEMM_Y];
    c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = 32 * head_dim;
    c.in[WF_GEMM_TABLE] = (wf_view){stand_in, 0, 512, n_rot, n_rot, WF_F32, 0};
    c.in[WF_GEMM_POS] = c.in[WF_GEMM_SLOT] = (wf_view){stand_in, 0, 1, m, m, WF_I32, 0};
    c.out[WF_GEMM_K_POOL] = c.out[WF_GEMM_V_POOL] = (wf_view){stand_in, 0, 9, page, page, WF_F16, 0};
    return c;
}

/* Few rows, where a work-group can hold whole pairs; as many work-groups as for the product alone. */
static void rotations_behind_products(void **state)
{
    static const struct {
        uint32_t m, head_dim, n_rot, neox;
        const char *variant;
    } cases[] = {{1, 128, 128, 0, "flat8"}, {8, 128, 128, 0, "flat8"}, {13, 256, 64, 0, "flat16"}, {1, 80, 40, 0, "flat8_split"},
                 {1, 64, 64, 0, "flat8_split"}, {2, 128, 80, 0, "flat8"}, {2, 128, 128, 1, NULL}, {17, 128, 128, 0, NULL}};
    (void)state;
    const cl_dev *d = with_units(132, 227);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = qkv(cases[i].m, cases[i].head_dim, cases[i].n_rot, cases[i].neox);
        int v = best_of((cl_dev *)d, &c);
        cl_launch l;
        if (!cases[i].variant) assert_int_equal(v, -1);
        if (!cases[i].variant) continue;
        assert_true(v >= 0);
        assert_string_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, cases[i].variant);
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(l.groups, 48 * cases[i].head_dim / 32);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
}

/* ---- products by wgmma ------------------------------------------------------------------------------------- */

static const wf_dev_fns offline_fns = {.supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants};

/* The defaults of GPUs, which hold the model of wgmma. */
static void take_default_costs(cl_dev *d)
{
    char *text;
    size_t size;
    wf_tuned_table t;
    assert_int_equal(wf_read_file("tuned/default/opencl-gpu.tune", 1 << 20, &text, &size), WEFT_OK);
    if (wf_tuned_parse(text, NULL, &t)) fail_msg("%s", wf_error());
    d->base.fns = &offline_fns;
    if (wf_cl_set_costs(&d->base, t.costs, t.n_costs)) fail_msg("%s", wf_error());
    wf_tuned_free(&t);
    free(text);
}

static cl_dev *with_wgmma(void)
{
    cl_dev *d = (cl_dev *)with_units(132, 227);
    d->ref.caps.nv_wgmma = true;
    d->ref.caps.local_bytes = 48 << 10;
    d->ref.caps.scratch = 128 << 20, d->ref.caps.zeroed = 20 << 20;
    return d;
}

/* So that a start need not ask for all numbers of rows (src/exec/bind.c). */
static void choices_change_where_tiles_begin(void **state)
{
    enum { RUN = 16, FIRST = 65, LAST = 2048 };
    static const uint32_t shapes[][2] = {{6144, 4096}, {28672, 4096}, {4096, 14336}, {2048, 5632}};
    static const enum wf_dtype formats[] = {WF_F16, WF_Q4_K, WF_Q6_K};
    cl_dev *d = with_wgmma();
    (void)state;
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(shapes) * WF_LEN(formats); i++)
        for (uint32_t m = FIRST, first = 0; m <= LAST; m++) {
            wf_call c = product(m, shapes[i % WF_LEN(shapes)][0], shapes[i % WF_LEN(shapes)][1]);
            c.in[WF_GEMM_W].dtype = (uint8_t)formats[i / WF_LEN(shapes)];
            uint32_t pick = (uint32_t)best_of(d, &c);
            if ((m - FIRST) % RUN) assert_int_equal(pick, first);
            first = pick;
        }
}

static int variant_named(enum wf_op op, const char *name)
{
    for (int i = 0; i < (int)wf_cl_n_variants(op); i++)
        if (!strcmp(wf_cl_variant_at(op, i)->name, name)) return i;
    fail_msg("no kernel %s", name);
    return -1;
}

/* Behind a norm few rows have as many work-groups as run at once, each of which normalises once for all of its tiles; else one a tile. */
static void work_groups_behind_a_norm(void **state)
{
    static const struct {
        const char *variant;
        enum wf_dtype w;
        uint32_t n;
        bool norm;
        uint64_t groups;
    } cases[] = {{"row_int16", WF_Q4_K, 28672, true, 3 * 132}, {"row_int16", WF_Q8_0, 28672, true, 2 * 132}, {"flat8", WF_F16, 28672, true, 2 * 132},
                 {"flat8", WF_Q4_0, 6144, true, 192},          {"row_int16", WF_Q4_K, 28672, false, 896},    {"flat8", WF_F16, 28672, false, 896}};
    (void)state;
    const cl_dev *d = with_wgmma();
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = product(1, cases[i].n, 4096);
        cl_launch l;
        c.in[WF_GEMM_W].dtype = cases[i].w;
        if (cases[i].norm) c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 4096, 4096, WF_F32, 0};
        if (cases[i].norm) c.in[WF_GEMM_X].dtype = WF_F32;
        assert_true(wf_cl_configure(d, variant_named(WF_OP_GEMM, cases[i].variant), &c, &l));
        assert_int_equal(l.groups, cases[i].groups);
    }
}

/* Few rows in the order of wgmma: one work-group a multiprocessor, as large as the others, for X is kept by each; where more rounds would be needed the
 * norm is a launch of its own. */
static void work_groups_that_keep_x(void **state)
{
    static const struct {
        const char *variant;
        uint32_t m, n, k;
        bool norm, silu;
        uint32_t group, groups; /* 0: in pieces */
    } cases[] = {{"flat_whole", 1, 28672, 4096, true, true, 448, 128}, {"flat_k4", 1, 6144, 4096, true, false, 384, 128},  {"flat_k4", 1, 4096, 14336, false, false, 256, 128},
                 {"flat_whole", 1, 57344, 4096, true, true, 448, 132}, {"flat_whole", 1, 28672, 4096, false, true, 64, 896}, {"flat_whole", 1, 128256, 4096, true, false, 0, 0},
                 {"flat_k4", 2, 4096, 14336, false, false, 0, 0},      {"flat_k8", 4, 4096, 4096, true, false, 512, 128}};
    (void)state;
    const cl_dev *d = with_wgmma();
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = product(cases[i].m, cases[i].n, cases[i].k);
        cl_launch l;
        c.p.silu = cases[i].silu;
        if (cases[i].silu) c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = cases[i].n / 2;
        if (cases[i].norm) c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, cases[i].k, cases[i].k, WF_F32, 0};
        if (cases[i].norm) c.in[WF_GEMM_X].dtype = WF_F32;
        assert_int_equal(wf_cl_configure(d, variant_named(WF_OP_GEMM, cases[i].variant), &c, &l), cases[i].groups > 0);
        if (!cases[i].groups) continue;
        assert_int_equal(l.group, cases[i].group);
        assert_int_equal(l.groups, cases[i].groups);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
}

/* Those that an H200 ran the fastest of all (bench/results/nvidia-h200.csv). */
static void products_follow_the_model(void **state)
{
    static const struct {
        uint32_t m, n, k;
        const char *variant;
        enum wf_dtype w;
    } fastest[] = {{1, 6144, 4096, "flat8"},         {8, 4096, 4096, "flat8_split"},  {16, 28672, 4096, "narrow16"},   {32, 28672, 4096, "wgmma32"},
                   {128, 28672, 4096, "wgmma128"},   {1024, 6144, 4096, "packed192"}, {2048, 28672, 4096, "packed256"},
                   {1, 28672, 4096, "row_int16", WF_Q4_0}, {1, 6144, 4096, "row_int16", WF_K6}, {1, 6144, 4096, "row_int16", WF_K8}, {1, 4096, 14336, "flat8_split", WF_Q6_K}, {2, 28672, 4096, "flat8", WF_Q4_0}, {16, 28672, 4096, "narrow16", WF_Q4_0},
                   {64, 28672, 4096, "wgmma64", WF_Q4_0}, {64, 28672, 4096, "wgmma64", WF_Q8_0}, {128, 28672, 4096, "wgmma128", WF_Q4_0},
                   {2048, 28672, 4096, "packed256", WF_Q8_0}};
    (void)state;
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(fastest); i++) {
        wf_call c = product(fastest[i].m, fastest[i].n, fastest[i].k);
        if (fastest[i].w) c.in[WF_GEMM_W].dtype = fastest[i].w;
        int v = best_of(d, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, fastest[i].variant);
        assert_true(wf_expected_us(&d->base, &c, v) > 0);
    }
}

/* Weights get a layout that their op has kernels for. */
static void layout_follows_the_op(void **state)
{
    static const wf_dev_fns fns = {.variants = wf_cl_variants, .weight_layout = wf_cl_weight_layout};
    (void)state;
    cl_dev *d = with_wgmma();
    d->base.fns = &fns;
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GEMM, WF_Q4_K, 64, 256), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GROUPED_GEMM, WF_Q4_K, 64, 256), WF_CL_FRAGMENT_MAJOR);
    assert_int_equal(wf_weight_layout(&d->base, WF_OP_GET_ROWS, WF_Q4_K, 64, 256), WF_CL_ROWS);
}

static wf_call with_experts(uint32_t tokens, uint32_t n, uint32_t k, uint8_t layout)
{
    wf_call c = product(tokens, n, k);
    c.op = WF_OP_GROUPED_GEMM;
    c.in[WF_GROUPED_GEMM_W].dtype = WF_Q4_K, c.in[WF_GROUPED_GEMM_W].rows = 8 * n, c.in[WF_GROUPED_GEMM_W].layout = layout;
    c.in[WF_GROUPED_GEMM_IDS] = (wf_view){.buf = c.in[0].buf, .rows = tokens, .cols = 2, .stride = 2, .dtype = WF_I32};
    c.out[WF_GROUPED_GEMM_Y].cols = c.out[WF_GROUPED_GEMM_Y].stride = 2 * n;
    return c;
}

/* Few pairs of each expert are read by gemv's kind, many in tiles; and an expert's blocks of 16 rows are whole. */
static void experts_by_pairs(void **state)
{
    static const struct {
        uint32_t tokens, n;
        uint8_t layout;
        const char *variant;
    } cases[] = {{1, 14336, 1, "row_int16"}, {2, 14336, 1, "flat8"}, {1, 1536, 1, "flat8_split"}, {16, 14336, 1, "flat8"}, {40, 14336, 1, "flat16"}, {100, 14336, 1, "frag64"},
                 {512, 14336, 1, "frag256"}, {1, 14344, 1, NULL}, {1, 14336, 0, "gemv"}, {64, 14336, 0, "mma16"}, {512, 14336, 0, "mma64"}};
    (void)state;
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_experts(cases[i].tokens, cases[i].n, 4096, cases[i].layout);
        int v = best_of(d, &c);
        if (!cases[i].variant) assert_true(v < 0);
        else assert_string_equal(wf_cl_variant_at(WF_OP_GROUPED_GEMM, v)->name, cases[i].variant);
    }
}

static wf_call with_gates(uint32_t tokens, uint32_t n, uint8_t layout)
{
    wf_call c = with_experts(tokens, 2 * n, 4096, layout);
    c.p.silu = 1;
    c.out[WF_GROUPED_GEMM_GEMM_WS] = c.out[WF_GROUPED_GEMM_Y];
    c.out[WF_GROUPED_GEMM_Y].cols = c.out[WF_GROUPED_GEMM_Y].stride = 2 * n;
    return c;
}

/* Gate and up of experts are one product and one launch with SiLU, with the kernels that dense ones have for it; other gates and rows as in the
 * file have SILU_MUL behind, and so do those with a bias. */
static void experts_gates(void **state)
{
    static const struct {
        uint32_t tokens, activation;
        uint8_t layout;
        bool bias;
        const char *variant;
    } cases[] = {{1, WF_SILU, 1, false, "row_int16"},
                 {2, WF_SILU, 1, false, "flat8"},
                 {40, WF_SILU, 1, false, "flat16"},
                 {512, WF_SILU, 1, false, "frag256"},
                 {1, WF_SILU, 1, true, NULL},
                 {512, WF_SILU, 1, true, NULL},
                 {1, WF_GELU_TANH, 1, false, NULL},
                 {1, WF_CLAMPED_SWIGLU, 1, false, NULL},
                 {1, WF_SILU, 0, false, NULL}};
    (void)state;
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_gates(cases[i].tokens, 14336, cases[i].layout);
        cl_launch l;
        c.p.activation = cases[i].activation;
        if (cases[i].bias) c.in[WF_GROUPED_GEMM_BIAS] = (wf_view){c.in[0].buf, 0, 1, 8 * 28672, 8 * 28672, WF_F32, 0};
        int v = best_of(d, &c);
        if (!cases[i].variant) assert_int_equal(v, -1);
        if (!cases[i].variant) continue;
        assert_string_equal(wf_cl_variant_at(WF_OP_GROUPED_GEMM, v)->name, cases[i].variant);
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(knob(&l, "SILU"), 1);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
}

static wf_call with_router(uint32_t tokens, uint32_t experts, uint32_t k)
{
    wf_call c = {.op = WF_OP_ROUTER, .p = {.scale = 1, .eps = 1e-5f}};
    wf_buf *buf = product(1, 16, 64).in[0].buf;
    c.in[WF_ROUTER_X] = (wf_view){buf, 0, tokens, k, k, WF_F32, 0}, c.in[WF_ROUTER_W] = (wf_view){buf, 0, experts, k, k, WF_F32, 0};
    c.in[WF_ROUTER_NORM] = (wf_view){buf, 0, 1, k, k, WF_F32, 0};
    c.out[WF_ROUTER_IDS] = (wf_view){buf, 0, tokens, 2, 2, WF_I32, 0}, c.out[WF_ROUTER_WEIGHTS] = (wf_view){buf, 0, tokens, 2, 2, WF_F32, 0};
    c.out[WF_ROUTER_Y] = (wf_view){buf, 0, tokens, k, k, WF_F16, 0}, c.out[WF_ROUTER_SCORES_WS] = (wf_view){buf, 0, tokens, experts, experts, WF_F32, 0};
    return c;
}

/* One launch for few tokens and as much of W as one work-group reads in little time, which lies as in the file. Lanes follow from the experts
 * alone: the bits of a token must not depend on others. */
static void routers_of_few_tokens(void **state)
{
    static const struct {
        uint32_t tokens, experts, k;
        uint8_t layout;
        int32_t lanes; /* 0: in pieces */
    } cases[] = {{1, 8, 4096, 0, 512}, {8, 8, 4096, 0, 512}, {9, 8, 4096, 0, 0}, {1, 4, 4096, 0, 1024}, {1, 64, 2048, 0, 64}, {1, 256, 512, 0, 32},
                 {1, 257, 256, 0, 0},  {1, 128, 2048, 0, 0}, {1, 8, 4096, 1, 0}};
    (void)state;
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns, d->base.has_fused_router = true;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = with_router(cases[i].tokens, cases[i].experts, cases[i].k);
        cl_launch l;
        enum wf_piece piece[WF_MAX_PIECES];
        c.in[WF_ROUTER_W].layout = cases[i].layout, c.variant = -1;
        int v = best_of(d, &c);
        assert_int_equal(wf_pieces(&d->base, &c, piece), cases[i].lanes ? 1 : 3);
        if (!cases[i].lanes) assert_int_equal(v, -1);
        if (!cases[i].lanes) continue;
        assert_string_equal(wf_cl_variant_at(WF_OP_ROUTER, v)->name, "norm");
        assert_true(wf_cl_configure(d, v, &c, &l));
        assert_int_equal(knob(&l, "LANES"), cases[i].lanes);
        assert_int_equal(knob(&l, "VEC"), 1);
        assert_int_equal(l.groups, cases[i].tokens);
        assert_true(l.n_args <= WF_CL_MAX_ARGS && l.n_knobs <= WF_CL_MAX_KNOBS);
    }
    wf_call scores = wf_piece_of(&(wf_call){.op = WF_OP_ROUTER, .in = {with_router(9, 8, 64).out[WF_ROUTER_SCORES_WS]}}, WF_PIECE_WHOLE);
    assert_string_equal(wf_cl_variant_at(WF_OP_ROUTER, best_of(d, &scores))->name, "naive");
}

/* A cut of K is for calls of any rows and share that have room for it, and then it is the name that says where. */
static void cuts_have_names(void **state)
{
    (void)state;
    cl_dev *d = with_wgmma();
    int cut = wf_variant_find((d->base.fns = &offline_fns, &d->base), WF_OP_GEMM, "wgmma64_k4");
    wf_call few = product(64, 4096, 4096), many = product(4096, 4096, 4096), shallow = product(64, 4096, 192);
    assert_true(cut > 0);
    assert_true(wf_cl_supports(&d->base, &few, cut));
    assert_false(wf_cl_supports(&d->base, &many, cut));
    assert_false(wf_cl_supports(&d->base, &shallow, cut));
    few.max_groups = 3; /* the four of a tile would wait for each other */
    assert_false(wf_cl_supports(&d->base, &few, cut));
}

/* `weft selftest` has a problem for each variant, one with rows enough for the largest tile and K enough for the most cuts. */
static void selftest_meets_wgmma(void **state)
{
    static const wf_dev_fns fns = {.supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants, .weight_layout = wf_cl_weight_layout};
    (void)state;
    const wf_case *larger;
    wf_check *k;
    assert_true(wf_cases_larger(&larger) > 0 && larger[0].op == WF_OP_GEMM && larger[0].m > 128);
    assert_int_equal(wf_check_new(NULL, &larger[0], &k), WEFT_OK);
    cl_dev *d = with_wgmma();
    d->base.fns = &fns;
    const wf_variant *v;
    unsigned n = 0;
    for (int i = 0; (v = wf_variant_at(&d->base, WF_OP_GEMM, i)); i++) {
        if (wf_cl_variant_at(WF_OP_GEMM, i)->configure != wf_cl_configure_wgmma) continue;
        if (!wf_check_supported(k, &d->base, i)) fail_msg("%s", v->name);
        n++;
    }
    assert_true(n > 20);
    wf_check_free(k);
}

/* Where the kernel of norms whose order products follow is not to be had. */
static int pick_but_tree(wf_dev *d, const wf_call *c, const char *class)
{
    return c->op == WF_OP_RMSNORM ? -1 : pick_in_class(d, c, class);
}

/* One class for any number of rows, and within it tiles that fit them: as many parts of K as few rows need and many bear. A share of the
 * device takes other tiles of that class, be it the first call of its shape. */
static void batch_invariant_products(void **state)
{
    static const struct {
        uint32_t m, n, k, groups;
        const char *variant;
    } cases[] = {{1, 28672, 4096, 0, "flat_whole"},  {8, 28672, 4096, 0, "flat_whole"},      {9, 28672, 4096, 0, "narrow16"},
                 {64, 28672, 4096, 0, "wgmma64"},
                 {2048, 28672, 4096, 0, "packed256"}, {64, 4096, 14336, 3, "wgmma64_p4"},     {1, 4096, 14336, 0, "flat_k4"},     {2, 4096, 14336, 0, "narrow16_k4"},
                 {64, 4096, 14336, 0, "wgmma64_k4"},  {256, 4096, 14336, 0, "wgmma128_k4"},   {2048, 4096, 14336, 0, "packed192_p4"},
                 {1, 6144, 4096, 0, "flat_k4"},   {2048, 6144, 4096, 0, "packed192_p4"}};
    wf_batch_invariance b = {0};
    (void)state;
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = product(cases[i].m, cases[i].n, cases[i].k);
        c.max_groups = cases[i].groups;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, cases[i].variant);
    }
    wf_batch_invariance_reset(&b);
}

/* SiLU behind a product is one kernel for any number of rows, also of experts; a bias of experts, or a router's norm and scores,
 * for none: few rows would have other bits than many. A norm before a product is in its kernel where rows have room in local memory, with the bits of a norm alone. */
static void batch_invariant_fusions(void **state)
{
    static const uint32_t rows[] = {1, 8, 64, 2048};
    wf_batch_invariance b = {0};
    (void)state;
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    d->base.act = WF_F16;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_call c = product(rows[i], 28672, 4096);
        c.p.silu = 1;
        c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = 14336;
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_true(v >= 0);
        assert_string_equal(wf_variant_at(&d->base, WF_OP_GEMM, v)->class, "wgmma");
        c.in[WF_GEMM_X].dtype = WF_F32;
        c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 4096, 4096, WF_F32, 0};
        v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        if (rows[i] > 1) assert_int_equal(v, -1);
        else assert_string_equal(wf_variant_at(&d->base, WF_OP_GEMM, v)->name, "flat_whole");
        assert_int_equal(wf_pick_batch_invariant(&b, pick_but_tree, &d->base, &c), -1);
        wf_call experts = with_gates(rows[i], 14336, WF_CL_FRAGMENT_MAJOR), biased = experts;
        biased.in[WF_GROUPED_GEMM_BIAS] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 8 * 28672, 8 * 28672, WF_F32, 0};
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &biased), -1); /* first: that it has no class is not the others' */
        v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &experts);
        assert_true(v >= 0);
        assert_string_equal(wf_variant_at(&d->base, WF_OP_GROUPED_GEMM, v)->class, "fragments");
        wf_call router = with_router(rows[i], 8, 4096);
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &router), -1);
    }
    wf_batch_invariance_reset(&b);
}

/* Queries, keys and values that turn behind the product, as bound for a model: pages of KV heads. */
static wf_call turning(uint32_t m, uint32_t heads, uint32_t kv_heads, uint32_t head)
{
    enum { PAGE = 16, PAGES = 100 };
    uint32_t page = kv_heads * head * PAGE;
    wf_call c = product(m, (heads + 2 * kv_heads) * head, 4096);
    wf_buf *b = c.in[WF_GEMM_X].buf;
    c.p = (wf_op_params){.rope = 1, .n_head = heads, .n_kv_head = kv_heads, .head_dim = head, .n_rot = head, .page_tokens = PAGE};
    c.in[WF_GEMM_TABLE] = (wf_view){b, 0, 8192, head, head, WF_F32, 0};
    c.in[WF_GEMM_POS] = c.in[WF_GEMM_SLOT] = (wf_view){b, 0, m, 1, 1, WF_I32, 0};
    c.out[WF_GEMM_K_POOL] = c.out[WF_GEMM_V_POOL] = (wf_view){b, 0, PAGES, page, page, WF_F16, 0};
    c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = heads * head;
    return c;
}

/* For any number of rows in one class, and not at all where pairs are halves of a head: they are interleaved as they are loaded. */
static void rotation_has_a_class(void **state)
{
    static const uint32_t rows[] = {1, 8, 16, 64, 1024, 2048};
    wf_batch_invariance b = {0};
    const char *class = NULL;
    (void)state;
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_call c = turning(rows[i], 32, 8, 128);
        int v = wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c);
        assert_true(v >= 0);
        const wf_variant *picked = wf_variant_at(&d->base, WF_OP_GEMM, v);
        assert_true((picked->flags & WF_MODELLED) && (!class || !strcmp(picked->class, class)));
        class = picked->class;
        c.p.neox = 1;
        assert_int_equal(wf_pick_batch_invariant(&b, pick_in_class, &d->base, &c), -1);
    }
    wf_batch_invariance_reset(&b);
}

/* Half a model is refused, and leaves what was there. */
static void models_are_whole(void **state)
{
    static const wf_cost half = {"wgmma", "unit", 3, 7}, other = {"wgmma", "colour", 3, 7};
    (void)state;
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    assert_int_equal(wf_cl_set_costs(&d->base, &half, 1), WEFT_ERR_FORMAT);
    assert_true(d->costs.model.wgmma.unit == 0);
    take_default_costs(d);
    assert_int_equal(wf_cl_set_costs(&d->base, &half, 1), WEFT_OK);
    assert_int_equal(wf_cl_set_costs(&d->base, &other, 1), WEFT_ERR_FORMAT);
    assert_non_null(strstr(wf_error(), "line 7"));
    assert_true(d->costs.model.wgmma.unit == 3);
}

/* ---- in how many launches ---------------------------------------------------------------------------------- */

/* Gate and up of M rows, the norm in front and SiLU behind: each product is one launch with what it can take along. */
static void products_keep_what_follows(void **state)
{
    static const struct {
        uint32_t m;
        bool wgmma;
        size_t parts;
    } cases[] = {{4, true, 1}, {4, false, 1}, {12, true, 2}, {12, false, 2}, {64, true, 2}, {2048, true, 2}, {64, false, 2}};
    static const wf_dev_fns fns = {.supports = wf_cl_supports, .rank = wf_cl_rank};
    (void)state;
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        cl_dev *d = (cl_dev *)with_units(132, 227);
        wf_call c = product(cases[i].m, 28672, 4096);
        enum wf_piece piece[WF_MAX_PIECES];
        d->base.fns = &fns, d->base.has_fused_gemm = true;
        d->ref.caps.nv_wgmma = cases[i].wgmma;
        d->ref.caps.local_bytes = 48 << 10;
        d->ref.caps.scratch = d->ref.caps.zeroed = 1 << 28;
        c.variant = -1;
        c.p.silu = 1;
        c.out[WF_GEMM_NORM_WS] = c.in[WF_GEMM_X], c.out[WF_GEMM_GEMM_WS] = c.out[WF_GEMM_Y];
        c.out[WF_GEMM_Y].cols = c.out[WF_GEMM_Y].stride = 14336;
        c.in[WF_GEMM_X].dtype = WF_F32;
        c.in[WF_GEMM_NORM] = (wf_view){c.in[WF_GEMM_X].buf, 0, 1, 4096, 4096, WF_F32, 0};
        assert_int_equal(wf_pieces(&d->base, &c, piece), cases[i].parts);
        if (cases[i].parts != 2) continue;
        wf_call norm = wf_piece_of(&c, piece[0]), rest = wf_piece_of(&c, piece[1]);
        assert_int_equal(norm.op, WF_OP_RMSNORM);
        assert_true(rest.op == WF_OP_GEMM && rest.p.silu && !rest.in[WF_GEMM_NORM].buf && !rest.out[WF_GEMM_NORM_WS].buf);
        assert_int_equal(rest.in[WF_GEMM_X].dtype, WF_F16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fragments_multiply),
        cmocka_unit_test(layout_follows_the_device),
        cmocka_unit_test(tiles_follow_the_device), cmocka_unit_test(flat_tiles_suit_gpus), cmocka_unit_test(choices_change_where_tiles_begin),
        cmocka_unit_test(parts_fit_local_memory),
        cmocka_unit_test(rings_fit_local_memory),
        cmocka_unit_test(decodes_with_a_share), cmocka_unit_test(decodes_on_other_units),
        cmocka_unit_test(rotations_behind_products),
        cmocka_unit_test(work_groups_behind_a_norm), cmocka_unit_test(work_groups_that_keep_x),
        cmocka_unit_test(products_follow_the_model),
        cmocka_unit_test(layout_follows_the_op),
        cmocka_unit_test(experts_by_pairs), cmocka_unit_test(experts_gates), cmocka_unit_test(routers_of_few_tokens),
        cmocka_unit_test(cuts_have_names), cmocka_unit_test(selftest_meets_wgmma),
        cmocka_unit_test(models_are_whole),
        cmocka_unit_test(batch_invariant_products),    cmocka_unit_test(batch_invariant_fusions), cmocka_unit_test(rotation_has_a_class),
        cmocka_unit_test(products_keep_what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
