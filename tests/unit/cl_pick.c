/* Which kernel of products a device takes: by its kind, by the model of their times, by a name that is forced. */
#include "unit/cl_offline.h"

#include "verify/check.h"
#include "support/suite.h"

static const char *picked(const cl_dev *d, uint32_t m, uint32_t n)
{
    wf_call c = product(m, n, 4096);
    return wf_cl_variant_at(WF_OP_GEMM, best_of((cl_dev *)d, &c))->name;
}

/* Those that were the fastest where they were compared. */
static void tiles_follow_the_device(void **state)
{
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
    assert_string_equal(picked_of_rows(true, 9), "tile8");
    assert_string_equal(picked_of_rows(true, 16), "tile8");
    assert_string_equal(picked_of_rows(true, 17), "tile16");
    assert_string_equal(picked_of_rows(false, 16), "host");
    assert_non_null(strstr(picked_of_rows(true, 8), "gemv"));
}

static cl_dev *with_matrix_units(uint32_t local_kib, uint32_t max_group)
{
    cl_dev *d = (cl_dev *)device(false, WF_TIER_NEUTRAL);
    d->ref.caps = (cl_caps){.gpu = true, .copies = local_kib == 48, .lanes = 32, .max_group = max_group, .units = 132,
                            .local_bytes = local_kib << 10, .nv_local_bytes = 227 << 10, .panels = 512 << 20,
                            .expanded = 512 << 20, .registers = true, .tier = WF_TIER_NEUTRAL};
    return d;
}

static const char *picked_in_format(cl_dev *d, enum wf_dtype w, uint32_t m, uint32_t n, uint32_t k)
{
    wf_call c = product(m, n, k);
    c.in[WF_GEMM_W].layout = WF_CL_ROWS;
    c.in[WF_GEMM_W].dtype = (uint8_t)w;
    return wf_cl_variant_at(WF_OP_GEMM, best_of(d, &c))->name;
}

/* Those that an H200 ran the fastest of the kernels for any vendor's matrix units. A device that has too little for one
 * takes another, but none of the reference's loops. */
static void any_matrix_units(void **state)
{
    static const struct {
        uint32_t m, n, k;
        const char *f16, *q4_k;
    } fastest[] = {{8, 4096, 4096, "matrix8", "matrix8"},
                   {64, 4096, 4096, "matrix64_narrow", "matrix64_shares"},
                   {64, 28672, 4096, "matrix64", "matrix64_shares"},
                   {64, 4096, 14336, "matrix64_shares", "matrix64_shares"},
                   {128, 4096, 14336, "matrix256_shares", "matrix64"},
                   {256, 4096, 4096, "matrix64", "matrix256_expand_shares"},
                   {512, 1024, 4096, "matrix64", "matrix64"},
                   {512, 4096, 4096, "matrix256_shares", "matrix256_expand_shares"},
                   {2048, 28672, 4096, "matrix256", "matrix256_expand"}};
    static const uint32_t local_kib[] = {48, 64, 32}, groups[] = {1024, 256, 256};
    for (size_t i = 0; i < WF_LEN(fastest); i++) {
        const uint32_t m = fastest[i].m, n = fastest[i].n, k = fastest[i].k;
        assert_string_equal(picked_in_format(with_matrix_units(48, 1024), WF_F16, m, n, k), fastest[i].f16);
        assert_string_equal(picked_in_format(with_matrix_units(48, 1024), WF_Q4_K, m, n, k), fastest[i].q4_k);
        for (size_t j = 0; j < WF_LEN(groups); j++)
            for (int w = 0; w < 2; w++)
                assert_null(strstr(picked_in_format(with_matrix_units(local_kib[j], groups[j]), w ? WF_Q4_K : WF_F16, m,
                                                    n, k), "naive"));
    }
}

/* So that a start need not ask for all numbers of rows (src/exec/bind.c). */
static void choices_change_where_tiles_begin(void **state)
{
    enum { RUN = 16, FIRST = 65, LAST = 2048 };
    static const uint32_t shapes[][2] = {{6144, 4096}, {28672, 4096}, {4096, 14336}, {2048, 5632}};
    static const enum wf_dtype formats[] = {WF_F16, WF_Q4_K, WF_Q6_K};
    cl_dev *d = with_wgmma();
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

/* Those that an H200 ran the fastest of all (bench/results/nvidia-h200.csv). */
static void products_follow_the_model(void **state)
{
    static const struct {
        uint32_t m, n, k;
        const char *variant;
        enum wf_dtype w;
    } fastest[] = {{1, 6144, 4096, "flat8"},
                   {8, 4096, 4096, "flat8_split"},
                   {16, 28672, 4096, "narrow16"},
                   {32, 28672, 4096, "wgmma32"},
                   {128, 28672, 4096, "wgmma128"},
                   {1024, 6144, 4096, "packed192"},
                   {2048, 28672, 4096, "packed256"},
                   {1, 28672, 4096, "row_int16", WF_Q4_0},
                   {1, 6144, 4096, "row_int16", WF_K6},
                   {1, 6144, 4096, "row_int16", WF_K8},
                   {1, 4096, 14336, "flat8_split", WF_Q6_K},
                   {2, 28672, 4096, "flat8", WF_Q4_0},
                   {16, 28672, 4096, "narrow16", WF_Q4_0},
                   {64, 28672, 4096, "wgmma64", WF_Q4_0},
                   {64, 28672, 4096, "wgmma64", WF_Q8_0},
                   {128, 28672, 4096, "wgmma128", WF_Q4_0},
                   {2048, 28672, 4096, "packed256", WF_Q8_0}};
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

/* A cut of K is for calls of any rows and share that have room for it, and then it is the name that says where. */
static void cuts_have_names(void **state)
{
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

/* On a share of the device the tiles of the last round share their K, by as many work-groups as that round has room
 * for; on all of it nobody measured that, and batch-invariant kernels never do. */
static void last_round_is_short(void **state)
{
    static const struct {
        uint32_t groups, shared_by, whole;
        const char *variant;
    } cases[] = {{0, 0, 0, "packed256"},
                 {108, 5, 108, "packed256_tail"},
                 {96, 3, 96, "packed256_tail"},
                 {64, 0, 0, "packed256"}};
    cl_dev *d = with_wgmma();
    take_default_costs(d);
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_call c = product(1024, 4096, 14336);
        cl_launch l;
        c.max_groups = cases[i].groups;
        int v = best_of(d, &c);
        assert_string_equal(wf_cl_variant_at(WF_OP_GEMM, v)->name, cases[i].variant);
        assert_string_not_equal(wf_cl_variant_at(WF_OP_GEMM, pick_in_class(&d->base, &c, "wgmma"))->name,
                                "packed256_tail");
        assert_true(wf_cl_configure(d, v, &c, &l));
        if (!cases[i].shared_by) continue;
        assert_int_equal(knob(&l, "SPLIT_K"), cases[i].shared_by);
        assert_int_equal(l.arg[l.n_args - 1].u32, cases[i].whole);
        assert_true(l.groups >= c.max_groups && l.zeroed <= d->ref.caps.zeroed);
    }
}

/* `weft selftest` has a problem for each variant, one with rows enough for the largest tile and K enough for the most
 * cuts. */
static void selftest_meets_wgmma(void **state)
{
    static const wf_dev_fns fns = {.supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants,
                                   .weight_layout = wf_cl_weight_layout};
    const wf_case *larger;
    wf_check *k;
    assert_true(wf_cases_larger(&larger) > 0 && larger[0].op == WF_OP_GEMM && larger[0].m > 128);
    assert_ok(wf_check_new(NULL, &larger[0], &k));
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

/* Half a model is refused, and leaves what was there. */
static void models_are_whole(void **state)
{
    static const wf_cost half = {"wgmma", "unit", 3, 7}, other = {"wgmma", "colour", 3, 7};
    cl_dev *d = with_wgmma();
    d->base.fns = &offline_fns;
    assert_int_equal(wf_cl_set_costs(&d->base, &half, 1), WEFT_ERR_FORMAT);
    assert_true(d->costs.model.wgmma.unit == 0);
    take_default_costs(d);
    assert_ok(wf_cl_set_costs(&d->base, &half, 1));
    assert_error(wf_cl_set_costs(&d->base, &other, 1), WEFT_ERR_FORMAT, "line 7");
    assert_true(d->costs.model.wgmma.unit == 3);
}

SUITE(cl_pick, NULL, NULL, CASE(tiles_follow_the_device), CASE(flat_tiles_suit_gpus), CASE(any_matrix_units),
      CASE(choices_change_where_tiles_begin), CASE(products_follow_the_model), CASE(cuts_have_names),
      CASE(last_round_is_short), CASE(selftest_meets_wgmma), CASE(models_are_whole))
