/* A check that cannot fail is a defect: the op check must pass the reference and catch each way in which
 * a kernel can be wrong. The CPU backend runs the call, then its submit is made to spoil the result. */
#include <math.h>

#include "support/fewer.h"
#include "tensor/kv.h"
#include "verify/check.h"
#include "support/suite.h"

enum spoil { NOTHING, ONE_ELEMENT, ALL_SLIGHTLY, UNWRITTEN, BEHIND, BEFORE, GAP, N_SPOILS, EACH_BY, LARGEST_BY };
static const char *const spoils[] = {"nothing", "one element", "all slightly", "an unwritten element",
                                     "write behind", "write before", "write between rows"};

static const wf_dev_fns *real;
static enum spoil spoil;
static int spoiled_output;
static float spoiled_by; /* of EACH_BY and LARGEST_BY */
static bool amplified; /* large logits: rounding inside counts more, and so must the spoiling */

static uint8_t *row_of(const wf_view *v, uint64_t row)
{
    return (uint8_t *)v->buf->host + v->offset + row * wf_dtype_bytes(v->dtype, v->stride);
}

/* Of a pool in Q8_0 the scale that it has. */
static uint8_t *element(const wf_view *v, uint64_t row, uint64_t col)
{
    uint8_t *at = row_of(v, row);
    return v->dtype == WF_Q8_0 ? (uint8_t *)wf_kv_scales(at, v->cols, col) : at + col * wf_dtypes[v->dtype].block_bytes;
}

/* False: nothing there to change, a zero or the poison of a pool. */
static bool scale(const wf_view *v, uint64_t row, uint64_t col, float by)
{
    uint8_t *at = element(v, row, col);
    float f;
    uint16_t h;
    if (v->dtype == WF_F32) {
        memcpy(&f, at, 4);
        f *= by;
        memcpy(at, &f, 4);
        return f != 0 && f == f;
    }
    if (v->dtype == WF_I32) return at[0] ^= 1, true;
    if (v->dtype == WF_Q8_0 && col % WF_KV_BLOCK) return false;
    memcpy(&h, at, 2);
    if (h == 0xFFFF || h == 0) return false;
    h = wf_float_to_half(wf_half_to_float(h) * by);
    memcpy(at, &h, 2);
    return true;
}

/* The place of the largest element of a view of F32. */
static uint32_t largest(const wf_view *v)
{
    uint32_t at = 0;
    float top = 0, x;
    for (uint32_t i = 0; i < v->rows * v->cols; i++) {
        memcpy(&x, element(v, i / v->cols, i % v->cols), sizeof x);
        if (fabsf(x) > top) top = fabsf(x), at = i;
    }
    return at;
}

static void spoil_view(const wf_view *v)
{
    uint32_t last = v->rows - 1;
    float slightly = v->dtype == WF_F32 && !amplified ? 1.0005f : 1.005f;
    switch (spoil) {
    case ONE_ELEMENT:
        for (uint32_t i = 0; i < v->rows * v->cols; i++) if (scale(v, i / v->cols, i % v->cols, 1.5f)) return;
        break;
    case ALL_SLIGHTLY:
        for (uint32_t r = 0; r <= last; r++) {
            for (uint32_t c = 0; c < v->cols; c++) scale(v, r, c, slightly);
        }
        break;
    case UNWRITTEN:
        memset(element(v, 0, v->cols - 1), 0xC3, v->dtype == WF_Q8_0 ? 2 : wf_dtypes[v->dtype].block_bytes);
        break;
    case BEHIND: row_of(v, last)[wf_dtype_bytes(v->dtype, v->cols)] ^= 1; break;
    case BEFORE: row_of(v, 0)[-1] ^= 1; break;
    case GAP: row_of(v, 0)[wf_dtype_bytes(v->dtype, v->cols)] ^= 1; break;
    case EACH_BY:
        for (uint32_t i = 0; i < v->rows * v->cols; i++) scale(v, i / v->cols, i % v->cols, spoiled_by);
        break;
    case LARGEST_BY: scale(v, largest(v) / v->cols, largest(v) % v->cols, spoiled_by); break;
    default: break;
    }
}

static weft_status spoiling_submit(wf_queue *q, const wf_call *c)
{
    wf_event *done;
    WF_TRY(real->submit(q, c));
    WF_TRY(real->event_create(q->dev, &done));
    weft_status s = real->mark(q, NULL, 0, done);
    if (!s) s = real->wait(done, 60000);
    real->event_destroy(q->dev, done);
    if (!s) spoil_view(&c->out[spoiled_output]);
    return s;
}

typedef struct devices {
    wf_dev *dev, *ref;
    wf_queue *q;
    wf_dev_fns fns;
} devices;

static int setup(void **state)
{
    static devices d;
    memset(&d, 0, sizeof d);
    assert_ok(wf_dev_open("cpu", NULL, &d.dev));
    assert_ok(wf_dev_open("cpu", NULL, &d.ref));
    assert_ok(wf_queue_create(d.dev, &d.q));
    real = d.dev->fns;
    d.fns = *real;
    d.fns.submit = spoiling_submit;
    d.fns.launch = NULL; /* what is bound is submitted, too */
    d.dev->fns = &d.fns;
    *state = &d;
    return 0;
}

static int teardown(void **state)
{
    devices *d = *state;
    wf_queue_destroy(d->q);
    wf_dev_close(d->dev);
    wf_dev_close(d->ref);
    return 0;
}

static bool passes(devices *d, wf_check *k)
{
    wf_check_result r;
    int ref = wf_variant_find(d->dev, k->c.op, "ref");
    assert_ok(wf_check_run(k, d->dev, d->q, ref, false, &r));
    assert_true(r.supported);
    return r.ok;
}

static void spoil_all(devices *d, wf_check *k, int output)
{
    char text[160];
    wf_case_text(&k->c, text, sizeof text);
    spoiled_output = output;
    amplified = k->amplify > 1;
    for (spoil = NOTHING; spoil < N_SPOILS; spoil++) {
        bool gap = k->out[output].view.stride > k->out[output].view.cols;
        if (spoil == GAP && !gap) continue;
        if (passes(d, k) == (spoil == NOTHING)) continue;
        fail_msg("%s [%s]: %s of output %d is judged wrongly", wf_ops[k->c.op].name, text, spoils[spoil], output);
    }
    spoil = NOTHING;
}

/* No kernel of the CPU runs a router with its norm and product. */
static bool runs_here(const wf_case *c)
{
    return !(c->op == WF_OP_ROUTER && c->norm);
}

static void catches_everything(void **state)
{
    devices *d = *state;
    wf_case c;
    for (size_t i = 0; wf_case_small(i, 77, &c); i += ONE_OF(7)) {
        wf_check *k;
        if (!runs_here(&c)) continue;
        assert_ok(wf_check_new(d->ref, &c, &k));
        for (int o = 0; o < WF_MAX_OUT; o++) if (k->out[o].data && !wf_is_workspace(c.op, o)) spoil_all(d, k, o);
        wf_check_free(k);
    }
}

/* The smallest change of that kind that is seen. */
static double least_seen(devices *d, wf_check *k, enum spoil kind)
{
    double by = 1e-7;
    spoiled_output = 0;
    for (spoil = kind, spoiled_by = 1; spoiled_by < 2 && passes(d, k); spoiled_by = (float)(1 + by)) by *= 1.1;
    spoil = NOTHING;
    return by;
}

/* One element may be off by eight standard deviations, all of them on average by one: the largest is about four times
 * as large as most. */
static void the_mean_square_counts(void **state)
{
    devices *d = *state;
    wf_check *k;
    wf_case c = {
        .op = WF_OP_GEMM, .in = WF_F32, .weight = WF_F32, .out = WF_F32, .m = 7, .n = 129, .k = 256, .seed = 5};
    assert_ok(wf_check_new(d->ref, &c, &k));
    double each = least_seen(d, k, EACH_BY), one = least_seen(d, k, LARGEST_BY);
    printf("each by %g, the largest by %g\n", each, one);
    assert_true(each < 1e-3 && each * 1.5 < one);
    wf_check_free(k);
}

static bool has_numbers(const wf_check_operand *in)
{
    return in->data && in->view.dtype != WF_I32;
}

/* Every operand that an op reads matters: NaN in it must show, or the generator does not cover it. A case loses one of
 * its operands, by turns, and the cases of an op lose them all. */
static void inputs_matter(void **state)
{
    devices *d = *state;
    wf_case c;
    for (size_t i = 0; wf_case_small(i, 78, &c); i += ONE_OF(3)) {
        wf_check *k;
        size_t n = 0, lost = 0;
        if (!runs_here(&c)) continue;
        assert_ok(wf_check_new(d->ref, &c, &k));
        for (int o = 0; o < WF_MAX_IN; o++) n += has_numbers(&k->in[o]);
        for (size_t at = i / 3 % WF_MAX(n, 1); n && (!has_numbers(&k->in[lost]) || at--);) lost++;
        if (n) memset(k->in[lost].data, 0xFF, k->in[lost].bytes);
        if (n && passes(d, k)) fail_msg("%s: input %zu does not matter", wf_ops[c.op].name, lost);
        wf_check_free(k);
    }
}

static void same_seed_same_problem(void **state)
{
    devices *d = *state;
    wf_case c;
    assert_true(wf_case_small(3, 5, &c));
    wf_check *a, *b;
    assert_ok(wf_check_new(d->ref, &c, &a));
    assert_ok(wf_check_new(d->ref, &c, &b));
    assert_memory_equal(a->in[0].data, b->in[0].data, a->in[0].bytes);
    assert_memory_equal(a->expect[0].data, b->expect[0].data, a->expect[0].bytes);
    wf_check_free(a);
    wf_check_free(b);
}

static void same_shape(const wf_check_operand *a, const wf_check_operand *b)
{
    assert_int_equal(!a->data, !b->data);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(&a->view, &b->view, sizeof a->view);
}

/* What supports() is asked about is the problem that is then run. */
static void shapes_need_no_numbers(void **state)
{
    devices *d = *state;
    wf_case c;
    for (size_t i = 0; wf_case_small(i, 79, &c); i += 5) {
        wf_check *whole, *shapes;
        assert_ok(wf_check_new(d->ref, &c, &whole));
        assert_ok(wf_check_new(NULL, &c, &shapes));
        assert_memory_equal(&whole->c.p, &shapes->c.p, sizeof c.p);
        for (int o = 0; o < WF_MAX_IN; o++) same_shape(&whole->in[o], &shapes->in[o]);
        for (int o = 0; o < WF_MAX_OUT; o++) same_shape(&whole->out[o], &shapes->out[o]);
        wf_check_free(whole);
        wf_check_free(shapes);
    }
}

/* Each activation has a name of its own. */
static void activations_have_names(void **state)
{
    char text[WF_N_ACTIVATIONS][160];
    for (uint32_t i = 0; i < WF_N_ACTIVATIONS; i++) {
        wf_case c = {.op = WF_OP_ACTIVATE, .m = 2, .k = 64, .p = {.activation = (enum wf_activation)i}};
        wf_case_text(&c, text[i], sizeof *text);
        assert_null(strstr(text[i], "null"));
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(text[i], text[k]);
    }
}

/* Kernels may multiply in F16, where logits of large keys must be the reference's. */
static void large_keys_are_of_f16(void **state)
{
    devices *d = *state;
    int large = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        wf_check *k;
        wf_case c = {.op = WF_OP_ATTENTION, .seed = seed, .in = WF_F16, .out = WF_F16, .kv = WF_Q8_0, .n_seqs = 2,
                     .max_kv = 40, .max_q = 3,
                     .p = {.n_head = 4, .n_kv_head = 2, .head_dim = 64, .page_tokens = 8, .scale = 0.125f}};
        assert_ok(wf_check_new(d->ref, &c, &k));
        const wf_view *pool = &k->in[WF_ATTENTION_K_POOL].view;
        for (uint64_t at = 0; at < (uint64_t)pool->rows * pool->cols; at += WF_KV_BLOCK) {
            const uint64_t page = at / pool->cols * wf_dtype_bytes(WF_Q8_0, pool->stride);
            float x[WF_KV_BLOCK];
            wf_kv_load(WF_Q8_0, k->in[WF_ATTENTION_K_POOL].data + page, pool->cols, at % pool->cols, x, WF_KV_BLOCK);
            for (uint32_t i = 0; i < WF_KV_BLOCK; i++) {
                bool is_large = fabsf(x[i]) > 100; /* NaN where no row attends */
                assert_true(!is_large || wf_half_to_float(wf_float_to_half(x[i])) == x[i]);
                large += is_large;
            }
        }
        wf_check_free(k);
    }
    assert_true(large > 0);
}

SUITE_EACH(verify_check, NULL, NULL, setup, teardown, CASE(catches_everything), CASE(inputs_matter),
           CASE(the_mean_square_counts), CASE(same_seed_same_problem), CASE(shapes_need_no_numbers),
           CASE(activations_have_names), CASE(large_keys_are_of_f16))
