/* batch_invariance: see batch_invariance.h. Where times are modelled, the class that costs least over all numbers of
 * rows; else one that has kernels for few rows and for many; else the one that the backend would take for few rows
 * comes first, since most steps decode. */
#include "select/batch_invariance.h"

#include <stdlib.h>
#include <string.h>

/* A call without the number of its rows. */
typedef struct shape {
    uint32_t op, n, k, n_head, n_kv_head, head_dim, n_rot;
    uint8_t in, weight, layout, out, bias, residual, fusion, gate, neox, windows, capped, sinks, async;
} shape;

struct wf_shape_class {
    shape shape;
    const char *class; /* NULL: there is none */
};

/* The same call with m rows and the whole device: another plan gives an op another share, and the same bits. */
static wf_call with_rows(const wf_call *c, uint32_t m)
{
    wf_call x = *c;
    x.max_groups = 0;
    for (int i = 0; i < WF_MAX_IN; i++)
        if (wf_ops[c->op].in[i].what & WF_OPERAND_BY_ROW) x.in[i].rows = m;
    for (int i = 0; i < WF_MAX_OUT; i++)
        if (wf_ops[c->op].out[i].what & WF_OPERAND_BY_ROW) x.out[i].rows = m;
    if (c->op == WF_OP_ATTENTION) x.p.max_q = m >= 64 ? m : 1;
    return x;
}

static const uint32_t probes[] = {1,  8,   16,
                                  64, 512, 65536}; /* the last: kernels with a limit fail there, if not before */

/* Can the class run the call with any number of rows? */
static bool serves_all(wf_pick_in pick, wf_dev *dev, const wf_call *c, const char *class)
{
    for (size_t i = 0; i < WF_LEN(probes); i++) {
        wf_call x = with_rows(c, probes[i]);
        if (pick(dev, &x, class) < 0) return false;
    }
    return true;
}

/* Microseconds of the fastest variant, of this class where it is not NULL. */
static double best_us(wf_pick_in pick, wf_dev *dev, const wf_call *c, const char *class)
{
    int v = pick(dev, c, class);
    return v >= 0 ? wf_expected_us(dev, c, v) : 0;
}

/* How much longer the class takes than what is the fastest for each number of rows, added up: decoding with few and
 * many sequences, prompts. */
static double slowdown(wf_pick_in pick, wf_dev *dev, const wf_call *c, const char *class)
{
    static const uint32_t rows[] = {16, 32, 64, 256, 1024};
    double sum = 0;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        wf_call x = with_rows(c, rows[i]);
        double best = best_us(pick, dev, &x, NULL);
        sum += best > 0 ? best_us(pick, dev, &x, class) / best : 0;
    }
    return sum;
}

static bool listed_before(wf_dev *dev, enum wf_op op, int variant, const char *class)
{
    for (int i = 0; i < variant; i++)
        if (!strcmp(wf_variant_at(dev, op, i)->class, class)) return true;
    return false;
}

/* The class that costs least over all numbers of rows, of those whose times are modelled; NULL: there is none. */
static const char *modelled_class(wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    const wf_variant *v;
    const char *best = NULL;
    double least = 0;
    for (int i = 0; (v = wf_variant_at(dev, c->op, i)); i++) {
        if (!(v->flags & WF_MODELLED) || (v->flags & WF_BATCH_DEPENDENT) || listed_before(dev, c->op, i, v->class))
            continue;
        if (!serves_all(pick, dev, c, v->class)) continue;
        double sum = slowdown(pick, dev, c, v->class);
        if (!best || sum < least) best = v->class, least = sum;
    }
    return best;
}

/* The class of the highest tier, of variants with all of these flags, that serves any number of rows; NULL: there is
 * none. */
static const char *class_with(wf_pick_in pick, wf_dev *dev, const wf_call *c, uint32_t flags)
{
    const wf_variant *v, *best = NULL;
    for (int i = 0; (v = wf_variant_at(dev, c->op, i)); i++)
        if (!(v->flags & WF_BATCH_DEPENDENT) && (v->flags & flags) == flags && (!best || v->tier > best->tier) &&
            serves_all(pick, dev, c, v->class))
            best = v;
    return best ? best->class : NULL;
}

static const char *choose_class(wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    const char *class = modelled_class(pick, dev, c);
    if (!class) class = class_with(pick, dev, c, WF_FOR_ANY_ROWS);
    for (size_t i = 0; i < WF_LEN(probes) && !class; i++) {
        wf_call x = with_rows(c, probes[i]);
        int picked = pick(dev, &x, NULL);
        const wf_variant *v = picked >= 0 ? wf_variant_at(dev, c->op, picked) : NULL;
        if (v && !(v->flags & WF_BATCH_DEPENDENT) && serves_all(pick, dev, c, v->class)) class = v->class;
    }
    return class ? class : class_with(pick, dev, c, 0);
}

static const char *class_for(wf_batch_invariance *b, wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    shape want;
    memset(&want, 0, sizeof want);
    want.op = c->op, want.n = c->out[0].cols, want.k = c->in[0].cols;
    want.n_head = c->p.n_head, want.n_kv_head = c->p.n_kv_head, want.head_dim = c->p.head_dim;
    want.in = c->in[0].dtype, want.weight = c->in[1].dtype, want.layout = c->in[1].layout, want.out = c->out[0].dtype;
    want.bias = (c->op == WF_OP_GEMM && c->in[WF_GEMM_BIAS].buf) ||
                (c->op == WF_OP_GROUPED_GEMM && c->in[WF_GROUPED_GEMM_BIAS].buf);
    want.residual = c->op == WF_OP_GEMM && c->in[WF_GEMM_RESIDUAL].buf;
    want.fusion = (uint8_t)wf_fusion_of(c);
    if (c->p.rope) want.n_rot = c->p.n_rot, want.neox = c->p.neox != 0;
    want.gate = c->p.silu ? (uint8_t)c->p.activation : 0;
    if (c->op == WF_OP_ATTENTION)
        want.windows = (uint8_t)((c->in[WF_ATTENTION_WINDOWS].buf != NULL) + (c->in[WF_ATTENTION_AROUND].buf != NULL));
    want.sinks = c->op == WF_OP_ATTENTION && c->in[WF_ATTENTION_SINKS].buf;
    want.capped = c->op == WF_OP_ATTENTION && c->p.softcap > 0;
    want.async = c->op == WF_OP_ATTENTION && c->p.phi_lo < c->p.phi_hi;
    for (size_t i = 0; i < b->n; i++)
        if (!memcmp(&b->list[i].shape, &want, sizeof want)) return b->list[i].class;
    const char *class = choose_class(pick, dev, c);
    if (wf_grow(&b->list, b->n, &b->cap, sizeof *b->list)) b->list[b->n++] = (struct wf_shape_class){want, class};
    return class;
}

/* c, a product with a norm before it, as it is behind the norm. */
static wf_call behind_norm(const wf_dev *dev, const wf_call *c)
{
    wf_call x = *c;
    x.in[WF_GEMM_NORM] = x.out[WF_GEMM_NORM_WS] = (wf_view){0};
    x.in[WF_GEMM_X].dtype = (uint8_t)dev->act, x.in[WF_GEMM_X].offset = 0,
    x.in[WF_GEMM_X].stride = x.in[WF_GEMM_X].cols;
    return x;
}

/* Does a norm alone have the order of additions that products of a class have in theirs? */
static bool norm_is_a_tree(wf_batch_invariance *b, wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    wf_call norm = {.op = WF_OP_RMSNORM, .variant = -1, .p = c->p};
    norm.in[WF_RMSNORM_X] = c->in[WF_GEMM_X], norm.in[WF_RMSNORM_W] = c->in[WF_GEMM_NORM];
    norm.out[WF_RMSNORM_Y] = behind_norm(dev, c).in[WF_GEMM_X];
    int v = wf_pick_batch_invariant(b, pick, dev, &norm);
    return v >= 0 && !strcmp(wf_variant_at(dev, WF_OP_RMSNORM, v)->class, WF_NORM_CLASS);
}

/* The norm is no part of the class: few rows may have it in the product's kernel, with the bits of one of its own. */
static int pick_with_norm(wf_batch_invariance *b, wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    wf_call rest = behind_norm(dev, c);
    const char *class = class_for(b, pick, dev, &rest);
    int v = class ? pick(dev, c, class) : -1;
    return v >= 0 && norm_is_a_tree(b, pick, dev, c) ? v : -1;
}

int wf_pick_batch_invariant(wf_batch_invariance *b, wf_pick_in pick, wf_dev *dev, const wf_call *c)
{
    if (wf_op_input(c->op, WF_OPERAND_BY_ROW) < 0) return pick(dev, c, NULL);
    if (c->op == WF_OP_GEMM && c->in[WF_GEMM_NORM].buf) return pick_with_norm(b, pick, dev, c);
    const char *class = class_for(b, pick, dev, c);
    return class ? pick(dev, c, class) : -1;
}

void wf_batch_invariance_reset(wf_batch_invariance *b)
{
    free(b->list);
    *b = (wf_batch_invariance){0};
}
