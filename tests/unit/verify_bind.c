/* wf_bind and wf_launch on the null device with borrowed arithmetic: wrong, unbuildable and right variants. */
#include "unit/verify_null.h"
#include "support/suite.h"

static fixture f; /* of tests with one device */

static int set_up(void **state)
{
    right_from = 0;
    f.dev = NULL;
    return 0;
}

static int tear_down(void **state)
{
    if (f.dev) end(&f);
    return 0;
}

static void tests_each_kernel_once(void **state)
{
    int variant = -1;
    f = open_null((wf_null_config){0});
    assert_ok(wf_prepare(f.dev, &f.call, &variant));
    assert_int_equal(variant, 0);
    assert_int_equal(computed, 1);
    assert_ok(wf_prepare(f.dev, &f.call, &variant));
    assert_int_equal(computed, 1);
    assert_string_equal(said, "");
}

/* Tested once for all of a kind, built for each call that is bound; one that does not build leaves the next. */
static void builds_what_was_tested(void **state)
{
    wf_binding b;
    f = open_null((wf_null_config){.variants = 2, .slot = WF_NULL_BIND, .nth = 3, .status = WEFT_ERR_DEVICE});
    for (int i = 0; i < 2; i++) assert_ok(wf_bind(f.dev, &f.call, &b));
    assert_int_equal(wf_null_calls(WF_NULL_BIND), 2);
    assert_int_equal(computed, 1);
    assert_true(b.n == 1 && b.part[0].piece == WF_PIECE_WHOLE && b.part[0].op == WF_OP_SILU_MUL &&
                b.part[0].b.variant == 0);
    assert_ok(wf_bind(f.dev, &f.call, &b));
    assert_int_equal(b.part[0].b.variant, 1);
    assert_int_equal(computed, 2);
    assert_said("silu_mul kernel null does not build");
}

static void drops_wrong_variants(void **state)
{
    static const float values[] = {1e9f, NAN, INFINITY};
    for (size_t i = 0; i < WF_LEN(values); i++) {
        int variant = -1;
        right_from = 2;
        wrong_value = values[i];
        fixture f = open_null((wf_null_config){.variants = 3});
        assert_ok(wf_prepare(f.dev, &f.call, &variant));
        assert_int_equal(variant, 2);
        assert_said("null device): silu_mul kernel null computes wrong results");
        assert_said("silu_mul kernel null2 computes wrong results");
        assert_null(strstr(said, "null3"));
        assert_int_equal(wf_pick(f.dev, &f.call), 2);
        end(&f);
    }
}

static void a_wrong_choice_falls_back(void **state)
{
    int variant = -1;
    right_from = 1;
    wrong_value = 0;
    f = open_null((wf_null_config){.variants = 3});
    f.call.variant = 0;
    assert_ok(wf_prepare(f.dev, &f.call, &variant));
    assert_int_equal(variant, 1);
}

static void next_one_when_it_does_not_build(void **state)
{
    int variant = -1;
    f = open_null((wf_null_config){.variants = 2, .slot = WF_NULL_BIND, .nth = 1, .status = WEFT_ERR_DEVICE});
    assert_ok(wf_prepare(f.dev, &f.call, &variant));
    assert_int_equal(variant, 1);
    assert_said("silu_mul kernel null does not build");
    assert_false(f.dev->lost);
}

static void an_error_when_none_is_left(void **state)
{
    int variant = -1;
    right_from = 3;
    wrong_value = NAN;
    f = open_null((wf_null_config){.variants = 3});
    assert_error(wf_prepare(f.dev, &f.call, &variant), WEFT_ERR_DEVICE, "every kernel for silu_mul");
}

static void a_lost_device_is_no_verdict(void **state)
{
    int variant = -1;
    f = open_null((wf_null_config){.variants = 3, .slot = WF_NULL_SUBMIT, .nth = 1});
    assert_int_equal(wf_prepare(f.dev, &f.call, &variant), WEFT_ERR_TIMEOUT);
    assert_true(f.dev->lost);
    assert_string_equal(said, "");
}

/* ---- kernels for a product and what stands around it ------------------------------------------------------------ */

static void rmsnorm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_RMSNORM_X];
    for (uint32_t r = 0; r < x->rows; r++) {
        float sum = 0;
        for (uint32_t i = 0; i < x->cols; i++) sum += at(x, r)[i] * at(x, r)[i];
        for (uint32_t i = 0; i < x->cols; i++)
            at(&c->out[WF_RMSNORM_Y], r)[i] = at(x, r)[i] / sqrtf(sum / (float)x->cols + c->p.eps) *
                                              at(&c->in[WF_RMSNORM_W], 0)[i];
    }
}

static void product(const wf_call *c)
{
    for (uint32_t r = 0; r < c->out[WF_GEMM_Y].rows; r++)
        for (uint32_t n = 0; n < c->out[WF_GEMM_Y].cols; n++) {
            float sum = 0;
            for (uint32_t i = 0; i < c->in[WF_GEMM_X].cols; i++)
                sum += at(&c->in[WF_GEMM_X], r)[i] * at(&c->in[WF_GEMM_W], n)[i];
            at(&c->out[WF_GEMM_Y], r)[n] = sum;
        }
}

/* Right for one row alone. */
static weft_status of_one_row(const wf_call *c)
{
    product(c);
    if (c->variant == 0 && c->out[WF_GEMM_Y].rows > 1) at(&c->out[WF_GEMM_Y], 1)[0] = 1000;
    return WEFT_OK;
}

/* That a kernel is right for one row tells nothing about more, for which it may take another path. */
static void tests_each_class_of_rows(void **state)
{
    static const struct { uint32_t rows; int variant; } cases[] = {{1, 0}, {2, 1}, {4, 1}};
    f = open_null((wf_null_config){.compute = of_one_row, .variants = 2});
    wf_call c = {.op = WF_OP_GEMM, .variant = -1};
    c.in[WF_GEMM_W] = (wf_view){.buf = f.gu, .rows = 4, .cols = 32, .stride = 32};
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        wf_binding b;
        c.in[WF_GEMM_X] = (wf_view){.buf = f.y, .rows = cases[i].rows, .cols = 32, .stride = 32};
        c.out[WF_GEMM_Y] = (wf_view){.buf = f.y, .offset = 1024, .rows = cases[i].rows, .cols = 4, .stride = 4};
        assert_ok(wf_bind(f.dev, &c, &b));
        assert_int_equal(b.part[0].b.variant, cases[i].variant);
    }
}

/* Right in parts alone: a fused product leaves Y as it was. */
static weft_status in_parts(const wf_call *c)
{
    if (c->op == WF_OP_SILU_MUL) return silu_mul(c);
    if (c->op == WF_OP_RMSNORM) rmsnorm(c);
    else if (!wf_is_fused(c)) product(c);
    return WEFT_OK;
}

static const wf_dev_fns *null_fns;

static bool no_norm_supports(wf_dev *dev, const wf_call *c, int variant)
{
    return !(c->op == WF_OP_GEMM && c->in[WF_GEMM_NORM].buf) && null_fns->supports(dev, c, variant);
}

static size_t no_norm_rank(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    return c->op == WF_OP_GEMM && c->in[WF_GEMM_NORM].buf ? 0 : null_fns->rank(dev, c, class, out, cap);
}

static wf_call fused_call(const fixture *f)
{
    wf_call c = {.op = WF_OP_GEMM, .variant = -1, .p = {.silu = 1, .eps = 1e-5f}};
    c.in[WF_GEMM_X] = (wf_view){.buf = f->y, .rows = 1, .cols = 32, .stride = 32};
    c.in[WF_GEMM_W] = (wf_view){.buf = f->gu, .rows = 16, .cols = 32, .stride = 32};
    c.in[WF_GEMM_NORM] = (wf_view){.buf = f->y, .offset = 128, .rows = 1, .cols = 32, .stride = 32};
    c.out[WF_GEMM_Y] = (wf_view){.buf = f->y, .offset = 256, .rows = 1, .cols = 8, .stride = 8};
    c.out[WF_GEMM_NORM_WS] = (wf_view){.buf = f->y, .offset = 384, .rows = 1, .cols = 32, .stride = 32};
    c.out[WF_GEMM_GEMM_WS] = (wf_view){.buf = f->y, .offset = 512, .rows = 1, .cols = 16, .stride = 16};
    return c;
}

/* One fused kernel that is wrong, for all or for what is left behind the norm, leaves the three parts. */
static void fused_kernels_that_are_wrong(void **state)
{
    for (int norm_apart = 0; norm_apart < 2; norm_apart++) {
        wf_binding b;
        enum wf_piece piece[WF_MAX_PIECES];
        fixture f = open_null((wf_null_config){.compute = in_parts});
        wf_dev_fns fns = *f.dev->fns;
        null_fns = f.dev->fns;
        if (norm_apart) fns.supports = no_norm_supports, fns.rank = no_norm_rank;
        f.dev->fns = &fns;
        f.dev->has_fused_gemm = true;
        wf_call c = fused_call(&f), without = c;
        without.out[WF_GEMM_GEMM_WS] = (wf_view){0};
        assert_ok(wf_call_check(f.dev, &without));
        assert_int_equal(wf_pieces(f.dev, &c, piece), 1 + norm_apart);
        assert_ok(wf_bind(f.dev, &c, &b));
        assert_int_equal(b.n, 3);
        assert_int_equal(b.part[1].b.variant, 0);
        assert_said("gemm kernel null computes wrong results");
        wf_call norm_only = c;
        norm_only.p.silu = 0;
        assert_int_equal(wf_has_fused_kernel(f.dev, &norm_only),
                         !norm_apart); /* another kind of fusion is not dropped */
        assert_int_equal(wf_pieces(f.dev, &c, piece), 3);
        assert_int_equal(wf_bind(f.dev, &without, &b), WEFT_ERR_UNSUPPORTED); /* the parts lack a workspace */
        wf_call plain = wf_piece_of(&c, piece[1]);
        assert_int_equal(plain.in[WF_GEMM_X].offset, c.out[WF_GEMM_NORM_WS].offset);
        assert_int_equal(wf_pick(f.dev, &plain), 0); /* the plain product's kernel is not dropped */
        f.dev->fns = null_fns;
        end(&f);
    }
}

/* ---- what is left for a step to do ------------------------------------------------------------------------------- */

static const wf_dev_fns *real_fns;
static int searches, launches;
static wf_call launched[WF_MAX_PIECES];

static bool count_supports(wf_dev *dev, const wf_call *c, int variant)
{
    searches++;
    return real_fns->supports(dev, c, variant);
}

static size_t count_rank(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    searches++;
    return real_fns->rank(dev, c, class, out, cap);
}

static weft_status note_launch(wf_queue *q, const wf_call *c, const wf_bound *b)
{
    assert_ptr_equal(b->kernel, &launches);
    launched[launches++ % WF_MAX_PIECES] = *c;
    return WEFT_OK;
}

static weft_status bind_marked(wf_dev *dev, const wf_call *c, int variant, wf_bound *out)
{
    *out = (wf_bound){variant, &launches};
    return WEFT_OK;
}

/* A launch asks the backend nothing; of three pieces the first waits and says that it began, the last signals. */
static void a_launch_only_enqueues(void **state)
{
    wf_binding b;
    wf_queue *q;
    wf_event *ev[3];
    wf_null_configure(NULL);
    f = open_null((wf_null_config){.compute = in_parts});
    f.dev->timing_only = true;
    real_fns = f.dev->fns;
    wf_dev_fns fns = *real_fns;
    fns.supports = count_supports, fns.rank = count_rank, fns.launch = note_launch, fns.bind = bind_marked;
    f.dev->fns = &fns;
    assert_ok(wf_queue_create(f.dev, &q));
    for (int i = 0; i < 3; i++) assert_ok(wf_event_create(f.dev, &ev[i]));
    wf_call c = fused_call(&f);
    c.waits = ev, c.n_waits = 1, c.started = ev[1], c.signal = ev[2];
    assert_ok(wf_bind(f.dev, &c, &b));
    assert_true(b.n == 3 && searches > 0);
    searches = launches = 0;
    assert_ok(wf_launch(q, &c, &b));
    assert_int_equal(searches, 0);
    assert_int_equal(launches, 3);
    assert_true(launched[0].op == WF_OP_RMSNORM && launched[0].waits == c.waits && launched[0].signal == ev[1]);
    assert_true(launched[1].op == WF_OP_GEMM && !launched[1].n_waits && !launched[1].signal &&
                launched[1].out[WF_GEMM_Y].cols == 16);
    assert_true(launched[2].op == WF_OP_SILU_MUL && !launched[2].n_waits && launched[2].signal == ev[2]);
    f.dev->fns = real_fns;
    for (int i = 0; i < 3; i++) wf_event_destroy(ev[i]);
    wf_queue_destroy(q);
}

static weft_status refuse_first(wf_queue *q, const wf_call *c, const wf_bound *b)
{
    return b->variant ? WEFT_OK : wf_fail(WEFT_ERR_UNSUPPORTED, "too large a work-group");
}

/* A kernel that the driver refuses to start, although it was right once: the next binding takes another. */
static void refused_at_launch(void **state)
{
    wf_binding b;
    wf_queue *q;
    f = open_null((wf_null_config){.variants = 2});
    f.dev->timing_only = true;
    real_fns = f.dev->fns;
    wf_dev_fns fns = *real_fns;
    assert_ok(wf_queue_create(f.dev, &q));
    assert_ok(wf_bind(f.dev, &f.call, &b));
    fns.launch = refuse_first, f.dev->fns = &fns;
    assert_int_equal(wf_launch(q, &f.call, &b), WEFT_ERR_UNSUPPORTED);
    assert_false(f.dev->lost);
    assert_ok(wf_bind(f.dev, &f.call, &b));
    assert_int_equal(b.part[0].b.variant, 1);
    assert_ok(wf_launch(q, &f.call, &b));
    f.dev->fns = real_fns;
    wf_queue_destroy(q);
}

/* What a binding does not suit is noticed where that was asked for. */
static void launches_are_checked_on_request(void **state)
{
    wf_binding b;
    wf_queue *q;
    f = open_null((wf_null_config){0});
    assert_ok(wf_queue_create(f.dev, &q));
    assert_ok(wf_bind(f.dev, &f.call, &b));
    f.dev->params.check_calls = true;
    assert_ok(wf_launch(q, &f.call, &b));
    wf_call wrong = f.call;
    wrong.in[WF_SILU_MUL_GU].cols++;
    assert_int_equal(wf_launch(q, &wrong, &b), WEFT_ERR_ARG);
    wrong = f.call;
    wrong.n_waits = 1;
    assert_int_equal(wf_launch(q, &wrong, &b), WEFT_ERR_ARG);
    b.part[0].op = WF_OP_GEMM;
    assert_int_equal(wf_launch(q, &f.call, &b), WEFT_ERR_INTERNAL);
    b.n = 0;
    assert_int_equal(wf_launch(q, &f.call, &b), WEFT_ERR_INTERNAL);
    wf_queue_destroy(q);
}

SUITE_EACH(verify_bind, NULL, NULL, set_up, tear_down, CASE(tests_each_kernel_once), CASE(builds_what_was_tested),
           CASE(drops_wrong_variants), CASE(a_wrong_choice_falls_back), CASE(next_one_when_it_does_not_build),
           CASE(an_error_when_none_is_left), CASE(a_lost_device_is_no_verdict), CASE(tests_each_class_of_rows),
           CASE(fused_kernels_that_are_wrong), CASE(a_launch_only_enqueues), CASE(launches_are_checked_on_request),
           CASE(refused_at_launch))
