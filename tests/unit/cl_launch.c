/* How products are launched: local memory, work-groups, and in how many launches with what stands before and behind
 * them. */
#include "unit/cl_offline.h"
#include "support/suite.h"

/* As many work-groups as registers allow (eight warps) have room on a multiprocessor together; the last resort stays
 * within what OpenCL promises. */
static void parts_fit_local_memory(void **state)
{
    static const uint32_t kib[] = {227, 163, 99}, depth[] = {4096, 4096 + 32};
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

/* Few rows, where a work-group can hold whole pairs; as many work-groups as for the product alone. */
static void rotations_behind_products(void **state)
{
    static const struct {
        uint32_t m, head_dim, n_rot, neox;
        const char *variant;
    } cases[] = {{1, 128, 128, 0, "flat8"},     {8, 128, 128, 0, "flat8"},     {13, 256, 64, 0, "flat16"},
                 {1, 80, 40, 0, "flat8_split"}, {1, 64, 64, 0, "flat8_split"}, {2, 128, 80, 0, "flat8"},
                 {2, 128, 128, 1, NULL},        {17, 128, 128, 0, NULL}};
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

/* A device with 32 KiB of local memory and work-groups of 256 runs something better than the last resort. */
static void little_local_memory_is_enough(void **state)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 9, 30, 100, 500}, k[] = {2048, 4096, 14336, 28672};
    static const enum wf_dtype formats[] = {WF_F16, WF_Q4_0, WF_Q4_K, WF_Q6_K, WF_Q8_0};
    cl_dev *d = (cl_dev *)device(false, WF_TIER_DOT);
    d->ref.caps = (cl_caps){.gpu = true, .max_group = 256, .units = 32, .local_bytes = 32 << 10, .panels = 1 << 30,
                            .dot = WF_CL_DOT_KHRONOS, .tier = WF_TIER_DOT};
    for (size_t i = 0; i < WF_LEN(rows) * WF_LEN(k) * WF_LEN(formats); i++) {
        wf_call c = product(rows[i % 8], 4096, k[i / 8 % 4]);
        c.in[WF_GEMM_W].dtype = (uint8_t)formats[i / 32];
        c.in[WF_GEMM_W].layout = i < 32 ? WF_CL_ROWS : WF_CL_PLANES;
        int v = best_of(d, &c);
        assert_true(v >= 0);
        assert_string_not_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, "naive");
    }
    for (uint32_t head = 64; head <= 512; head *= 2)
        for (uint32_t each = 1; each <= 16; each *= 2) {
            wf_call c = attention(4, 4096, head, 8 * each), prompt = c;
            prompt.p.max_q = 1024;
            int v = best_of(d, &c), many = best_of(d, &prompt);
            assert_true(v >= 0 && many >= 0);
            assert_string_not_equal(wf_cl_variant_at(WF_OP_ATTENTION, v)->name, "naive");
            assert_string_not_equal(wf_cl_variant_at(WF_OP_ATTENTION, many)->name, "naive");
        }
}

/* Behind a norm few rows have as many work-groups as run at once, each of which normalises once for all of its tiles;
 * else one a tile. */
static void work_groups_behind_a_norm(void **state)
{
    static const struct {
        const char *variant;
        enum wf_dtype w;
        uint32_t n;
        bool norm;
        uint64_t groups;
    } cases[] = {{"row_int16", WF_Q4_K, 28672, true, 3 * 132}, {"row_int16", WF_Q8_0, 28672, true, 2 * 132},
                 {"flat8", WF_F16, 28672, true, 2 * 132},      {"flat8", WF_Q4_0, 6144, true, 192},
                 {"row_int16", WF_Q4_K, 28672, false, 896},    {"flat8", WF_F16, 28672, false, 896}};
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

/* Few rows in the order of wgmma: one work-group a multiprocessor, as large as the others, for X is kept by each; where
 * more rounds would be needed the norm is a launch of its own. */
static void work_groups_that_keep_x(void **state)
{
    static const struct {
        const char *variant;
        uint32_t m, n, k;
        bool norm, silu;
        uint32_t group, groups; /* 0: in pieces */
    } cases[] = {
        {"flat_whole", 1, 28672, 4096, true, true, 448, 128}, {"flat_k4", 1, 6144, 4096, true, false, 384, 128},
        {"flat_k4", 1, 4096, 14336, false, false, 256, 128},  {"flat_whole", 1, 57344, 4096, true, true, 448, 132},
        {"flat_whole", 1, 28672, 4096, false, true, 64, 896}, {"flat_whole", 1, 128256, 4096, true, false, 0, 0},
        {"flat_k4", 2, 4096, 14336, false, false, 0, 0},      {"flat_k8", 4, 4096, 4096, true, false, 512, 128}};
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

/* Gate and up of M rows, the norm in front and SiLU behind: each product is one launch with what it can take along. */
static void products_keep_what_follows(void **state)
{
    static const struct {
        uint32_t m;
        bool wgmma;
        size_t parts;
    } cases[] = {{4, true, 1},  {4, false, 1},   {12, true, 2}, {12, false, 2},
                 {64, true, 2}, {2048, true, 2}, {64, false, 2}};
    static const wf_dev_fns fns = {.supports = wf_cl_supports, .rank = wf_cl_rank};
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
        assert_true(rest.op == WF_OP_GEMM && rest.p.silu && !rest.in[WF_GEMM_NORM].buf &&
                    !rest.out[WF_GEMM_NORM_WS].buf);
        assert_int_equal(rest.in[WF_GEMM_X].dtype, WF_F16);
    }
}

SUITE(cl_launch, NULL, NULL, CASE(parts_fit_local_memory), CASE(rotations_behind_products),
      CASE(little_local_memory_is_enough), CASE(work_groups_behind_a_norm), CASE(work_groups_that_keep_x),
      CASE(products_keep_what_follows))
