/* check_gen.c: generates the operands of a check. The same case (with its seed) gives the same bytes. */
#include "verify/gen.h"
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one function for each op ----------------------------------------------------------------------- */

static weft_status gen_get_rows(wf_check *k, wf_gen *g)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    const wf_case *c = &k->c;
    int32_t *ids;
    WF_TRY(wf_gen_floats(&k->in[WF_GET_ROWS_TABLE], g, c->weight, c->n, c->k, c->pad, 1));
    WF_TRY(wf_gen_ints(&k->in[WF_GET_ROWS_IDS], c->m, &ids));
    for (uint32_t i = 0; i < c->m; i++) {
        uint32_t kind = i ? wf_gen_below(g, 16) : 15; /* the first one is always in range */
        ids[i] = kind < 3 ? wild[kind] : kind == 3 ? (int32_t)c->n : (int32_t)wf_gen_below(g, c->n);
    }
    if (c->residual) WF_TRY(wf_gen_floats(&k->in[WF_GET_ROWS_ADD], g, WF_F32, c->m, c->k, c->pad, 1));
    WF_TRY(wf_gen_operand(&k->out[WF_GET_ROWS_Y], c->out, c->m, c->k, c->pad));
    k->scale = c->residual ? 1 + fabs(c->p.gain) : -1; /* a sum may be small by chance */
    k->bytes = (double)k->out[WF_GET_ROWS_Y].bytes + (double)wf_dtype_bytes(c->weight, (uint64_t)c->m * c->k);
    return WEFT_OK;
}

static weft_status gen_rmsnorm(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    uint32_t cols = WF_MAX(c->n, 1u) * c->k;
    WF_TRY(wf_gen_floats(&k->in[WF_RMSNORM_X], g, c->in, c->m, cols, c->pad, 3));
    WF_TRY(wf_gen_floats(&k->in[WF_RMSNORM_W], g, WF_F32, 1, c->k, 0, 2));
    if (c->residual) WF_TRY(wf_gen_floats(&k->in[WF_RMSNORM_RESIDUAL], g, c->out, c->m, cols, c->pad, 2));
    WF_TRY(wf_gen_operand(&k->out[WF_RMSNORM_Y], c->out, c->m, cols, c->pad));
    k->reduce = c->k;
    k->scale = c->residual ? 1 : -1; /* a sum may be small by chance */
    return WEFT_OK;
}

/* Rows whose mean is larger than what is left without it: it must not be subtracted too late. */
static weft_status gen_layernorm(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_floats(&k->in[WF_LAYERNORM_X], g, c->in, c->m, c->k, c->pad, 3));
    for (uint32_t m = 0; m < c->m; m++) {
        float mean = 8 * wf_gen_unit(g);
        for (uint32_t i = 0; i < c->k; i++)
            wf_gen_set(&k->in[WF_LAYERNORM_X], m, i, wf_gen_get(&k->in[WF_LAYERNORM_X], m, i) + mean);
    }
    WF_TRY(wf_gen_floats(&k->in[WF_LAYERNORM_W], g, WF_F32, 1, c->k, 0, 2));
    WF_TRY(wf_gen_floats(&k->in[WF_LAYERNORM_B], g, WF_F32, 1, c->k, 0, 2));
    WF_TRY(wf_gen_operand(&k->out[WF_LAYERNORM_Y], c->out, c->m, c->k, c->pad));
    k->reduce = c->k;
    k->amplify = 5; /* the mean against the spread */
    return WEFT_OK;
}

/* Table, pos and slot, and the pools, of a rotation of m rows. */
static weft_status gen_rotation(wf_check *k, wf_gen *g, uint32_t positions, wf_check_operand in[3],
                                wf_check_operand pools[2])
{
    const wf_case *c = &k->c;
    const wf_op_params *p = &c->p;
    uint32_t pages = c->m / p->page_tokens + 3, page = p->n_kv_head * p->page_tokens * p->head_dim;
    int32_t *pos, *slot;
    WF_TRY(wf_gen_operand(&in[0], WF_F32, positions, p->n_rot, c->pad));
    for (uint32_t i = 0; i < positions * p->n_rot / 2; i++) {
        float *pair = (float *)wf_gen_row(&in[0], i / (p->n_rot / 2)) + i % (p->n_rot / 2) * 2;
        double angle = 7.0 * wf_gen_unit(g);
        pair[0] = (float)cos(angle);
        pair[1] = (float)sin(angle);
    }
    WF_TRY(wf_gen_ints(&in[1], c->m, &pos));
    WF_TRY(wf_gen_ints(&in[2], c->m, &slot));
    uint32_t *order = wf_gen_permutation(g, pages * p->page_tokens);
    if (!order) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < c->m; i++) {
        pos[i] = (int32_t)wf_gen_below(g, positions);
        slot[i] = i % 5 == 3 ? -1 : (int32_t)order[i];
    }
    free(order);
    WF_TRY(wf_gen_pool(&pools[0], c, pages, page));
    return wf_gen_pool(&pools[1], c, pages, page);
}

static weft_status gen_gemm(wf_check *k, wf_gen *g)
{
    enum { POSITIONS = 37 };
    const wf_case *c = &k->c;
    float w = 1 / sqrtf((float)c->k);
    uint32_t cols = c->p.silu ? c->n / 2 : c->p.rope ? c->p.n_head * c->p.head_dim : c->n;
    WF_TRY(wf_gen_floats(&k->in[WF_GEMM_X], g, c->in, c->m, c->k, c->pad, 2));
    WF_TRY(wf_gen_floats(&k->in[WF_GEMM_W], g, c->weight, c->n, c->k, c->pad, w));
    if (c->bias) WF_TRY(wf_gen_floats(&k->in[WF_GEMM_BIAS], g, WF_F32, 1, c->n, 0, 1));
    if (c->residual) WF_TRY(wf_gen_floats(&k->in[WF_GEMM_RESIDUAL], g, c->out, c->m, c->n, c->pad, 1));
    if (c->norm) WF_TRY(wf_gen_floats(&k->in[WF_GEMM_NORM], g, WF_F32, 1, c->k, 0, 2));
    if (c->p.rope) WF_TRY(gen_rotation(k, g, POSITIONS, &k->in[WF_GEMM_TABLE], &k->out[WF_GEMM_K_POOL]));
    WF_TRY(wf_gen_operand(&k->out[WF_GEMM_Y], c->out, c->m, cols, c->pad));
    if (c->norm) WF_TRY(wf_gen_operand(&k->out[WF_GEMM_NORM_WS], WF_F32, c->m, c->k, c->pad));
    if (c->p.silu || c->p.rope) WF_TRY(wf_gen_operand(&k->out[WF_GEMM_GEMM_WS], WF_F32, c->m, c->n, c->pad));
    k->reduce = c->k;
    /* sqrt(K) x rms of X x rms of W. Behind SiLU, where gate and up multiply each other's errors by about as much, the
     * outputs' own size would be too little for the few large ones. */
    k->scale = 2.0 / 3;
    k->flops = 2.0 * c->m * c->n * c->k;
    return WEFT_OK;
}

static weft_status gen_rope_kv(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    const wf_op_params *p = &c->p;
    WF_TRY(
        wf_gen_floats(&k->in[WF_ROPE_KV_QKV], g, c->in, c->m, (p->n_head + 2 * p->n_kv_head) * p->head_dim, c->pad, 2));
    WF_TRY(gen_rotation(k, g, c->n, &k->in[WF_ROPE_KV_TABLE], &k->out[WF_ROPE_KV_K_POOL]));
    k->reduce = 2;
    return wf_gen_operand(&k->out[WF_ROPE_KV_Q], c->out, c->m, p->n_head * p->head_dim, c->pad);
}

static weft_status gen_silu_mul(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    /* GELU by tanh ends as fast as exp(-x^3 / 14): what it takes is 11 at 4, where SiLU's is 11 at 11. */
    WF_TRY(wf_gen_floats(&k->in[WF_SILU_MUL_GU], g, c->in, c->m, 2 * c->k, c->pad,
                         c->p.activation == WF_GELU_TANH ? 4 : 10));
    WF_TRY(wf_gen_operand(&k->out[WF_SILU_MUL_Y], c->out, c->m, c->k, c->in_place ? c->k + c->pad : c->pad));
    k->scale = c->p.activation == WF_CLAMPED_SWIGLU ? 3 : -1; /* of which up + 1 may be small by chance */
    return WEFT_OK;
}

/* The largest results are what a product sums up behind it: errors of the smallest, which GELU has, do not count
 * against these. */
static weft_status gen_activate(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_floats(&k->in[WF_ACTIVATE_X], g, c->in, c->m, c->k, c->pad, 7));
    k->scale = 2; /* that of many results, for one alone may be such a smallest */
    return wf_gen_operand(&k->out[WF_ACTIVATE_Y], c->out, c->m, c->k, c->pad);
}

/* Of a row of x the scores, in double, in descending order. */
static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void scores_of(const wf_check *k, const float *w, uint32_t row, double *scores)
{
    const wf_check_operand *x = &k->in[WF_ROUTER_X];
    const float *norm = (const float *)k->in[WF_ROUTER_NORM].data;
    double squares = 0;
    for (uint32_t i = 0; i < k->c.k; i++) squares += pow(wf_gen_get(x, row, i), 2);
    for (uint32_t e = 0; e < k->c.n; e++) {
        scores[e] = 0;
        for (uint32_t i = 0; i < k->c.k; i++)
            scores[e] += (double)wf_gen_get(x, row, i) * norm[i] * w[(size_t)e * k->c.k + i];
        scores[e] /= sqrt(squares / k->c.k + k->c.p.eps);
    }
    qsort(scores, k->c.n, sizeof *scores, descending);
}

/* Are those that are chosen, and the next, equal or so far apart that rounding cannot decide? */
static bool is_clear(const wf_case *c, const double *scores)
{
    const double clear = 1e-3;
    for (uint32_t t = 0; t < c->used && t + 1 < c->n; t++)
        if (scores[t] != scores[t + 1] && scores[t] - scores[t + 1] < clear) return false;
    return true;
}

/* A row of x for which the choice is the same in any arithmetic. */
static weft_status gen_clear_row(const wf_check *k, wf_gen *g, const float *w, uint32_t r, double *scores)
{
    for (int try = 0; try < 1000; try++) {
        scores_of(k, w, r, scores);
        if (is_clear(&k->c, scores)) return WEFT_OK;
        for (uint32_t i = 0; i < k->c.k; i++) wf_gen_set(&k->in[WF_ROUTER_X], r, i, 2 * wf_gen_unit(g));
    }
    return wf_fail(WEFT_ERR_INTERNAL, "no row with a clear choice of %u experts in 1000", k->c.n);
}

static weft_status gen_clear_rows(const wf_check *k, wf_gen *g, const float *w, double *scores)
{
    for (uint32_t r = 0; r < k->c.m; r++) {
        WF_TRY(gen_clear_row(k, g, w, r, scores));
        if (r % 6 == 4) wf_gen_set(&k->in[WF_ROUTER_X], r, wf_gen_below(g, k->c.k), NAN);
    }
    return WEFT_OK;
}

/* An expert in four has the weights of the one before it, so that equal scores occur. */
static weft_status gen_choice(wf_check *k, wf_gen *g)
{
    const wf_check_operand *w = &k->in[WF_ROUTER_W];
    float *decoded = wf_calloc((size_t)k->c.n * k->c.k, sizeof *decoded);
    double *scores = wf_calloc(k->c.n, sizeof *scores);
    bool ok = decoded && scores;
    for (uint32_t e = 0; ok && e < k->c.n; e++) {
        if (e % 4 == 3) memcpy(wf_gen_row(w, e), wf_gen_row(w, e - 1), wf_dtype_bytes(k->c.weight, k->c.k));
        wf_dtypes[k->c.weight].decode(wf_gen_row(w, e), decoded + (size_t)e * k->c.k, k->c.k);
    }
    weft_status s = ok ? gen_clear_rows(k, g, decoded, scores) : WEFT_ERR_NOMEM;
    free(decoded);
    free(scores);
    return s;
}

/* With the norm and the product of its scores. */
static weft_status gen_fused_router(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_floats(&k->in[WF_ROUTER_X], g, c->in, c->m, c->k, c->pad, 2));
    WF_TRY(wf_gen_floats(&k->in[WF_ROUTER_W], g, c->weight, c->n, c->k, c->pad, 4 / sqrtf((float)c->k)));
    WF_TRY(wf_gen_floats(&k->in[WF_ROUTER_NORM], g, WF_F32, 1, c->k, 0, 2));
    if (!g->shapes_only) WF_TRY(gen_choice(k, g));
    k->reduce = c->k;
    k->amplify = 4; /* of a score by its weight */
    k->plain = 1u << WF_ROUTER_Y;
    k->scale = -1;
    WF_TRY(wf_gen_operand(&k->out[WF_ROUTER_Y], c->out, c->m, c->k, c->pad));
    return wf_gen_operand(&k->out[WF_ROUTER_SCORES_WS], WF_F32, c->m, c->n, c->pad);
}

/* Scores are multiples of 2^-4, so that equal ones occur; a row in six has a NaN, a row in six the same score for all.
 */
static weft_status gen_scores(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_operand(&k->in[WF_ROUTER_X], WF_F32, c->m, c->k, c->pad));
    for (uint32_t r = 0; r < c->m; r++) {
        float *row = (float *)wf_gen_row(&k->in[WF_ROUTER_X], r);
        for (uint32_t e = 0; e < c->k; e++) row[e] = (float)((int32_t)wf_gen_below(g, 128) - 64) / 16;
        if (r % 6 == 4) row[wf_gen_below(g, c->k)] = NAN;
        for (uint32_t e = 1; r % 6 == 5 && e < c->k; e++) row[e] = row[0];
    }
    k->reduce = c->k;
    k->scale = -1;
    return WEFT_OK;
}

static weft_status gen_router(wf_check *k, wf_gen *g)
{
    wf_case *c = &k->c;
    if (!c->used) c->used = WF_MIN(2u, c->norm ? c->n : c->k);
    if (c->p.scale == 0) c->p.scale = 1.5f, c->p.sigmoid = wf_gen_below(g, 2), c->p.normalise = wf_gen_below(g, 2);
    if (c->norm && c->p.eps == 0) c->p.eps = 1e-5f;
    WF_TRY(c->norm ? gen_fused_router(k, g) : gen_scores(k, g));
    WF_TRY(wf_gen_operand(&k->out[WF_ROUTER_IDS], WF_I32, c->m, c->used, c->pad));
    return wf_gen_operand(&k->out[WF_ROUTER_WEIGHTS], WF_F32, c->m, c->used, 2 * c->pad);
}

/* As a router's: of each token others. By the seed all tokens take the same experts, so that others have none, and some
 * ids name none. */
static void gen_experts(wf_check *k, wf_gen *g)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    const wf_case *c = &k->c;
    bool alike = wf_gen_below(g, 4) == 0, some_wild = wf_gen_below(g, 4) == 0;
    uint32_t first = wf_gen_below(g, c->n_experts);
    for (uint32_t m = 0; m < c->m; m++) {
        int32_t *ids = (int32_t *)wf_gen_row(&k->in[WF_GROUPED_GEMM_IDS], m);
        if (!alike) first = wf_gen_below(g, c->n_experts);
        for (uint32_t t = 0; t < c->used; t++) ids[t] = (int32_t)((first + t) % c->n_experts);
        if (some_wild && m % 5 == 2)
            ids[wf_gen_below(g, c->used)] = wf_gen_below(g, 4) ? wild[wf_gen_below(g, 3)] : (int32_t)c->n_experts;
    }
}

static weft_status gen_grouped_gemm(wf_check *k, wf_gen *g)
{
    wf_case *c = &k->c;
    if (!c->used) c->used = WF_MIN(2u, c->n_experts);
    WF_TRY(wf_gen_floats(&k->in[WF_GROUPED_GEMM_X], g, c->in, c->m, c->one_x ? c->k : c->used * c->k, c->pad, 2));
    WF_TRY(wf_gen_floats(&k->in[WF_GROUPED_GEMM_W], g, c->weight, c->n_experts * c->n, c->k, c->pad,
                         1 / sqrtf((float)c->k)));
    WF_TRY(wf_gen_operand(&k->in[WF_GROUPED_GEMM_IDS], WF_I32, c->m, c->used, c->pad));
    gen_experts(k, g);
    if (c->bias) WF_TRY(wf_gen_floats(&k->in[WF_GROUPED_GEMM_BIAS], g, WF_F32, 1, c->n_experts * c->n, 0, 1));
    k->reduce = c->k;
    k->scale = 2.0 / 3; /* as of GEMM */
    k->flops = 2.0 * c->m * c->used * c->n * c->k;
    if (c->p.silu) WF_TRY(wf_gen_operand(&k->out[WF_GROUPED_GEMM_GEMM_WS], WF_F32, c->m, c->used * c->n, c->pad));
    return wf_gen_operand(&k->out[WF_GROUPED_GEMM_Y], c->out, c->m, c->used * (c->p.silu ? c->n / 2 : c->n), c->pad);
}

static weft_status gen_weighted_sum(wf_check *k, wf_gen *g)
{
    wf_case *c = &k->c;
    if (!c->used) c->used = 2;
    WF_TRY(wf_gen_floats(&k->in[WF_WEIGHTED_SUM_X], g, c->in, c->m, c->used * c->k, c->pad, 2));
    if (c->bias) WF_TRY(wf_gen_floats(&k->in[WF_WEIGHTED_SUM_WEIGHTS], g, WF_F32, c->m, c->used, c->pad, 1));
    if (c->residual) WF_TRY(wf_gen_floats(&k->in[WF_WEIGHTED_SUM_RESIDUAL], g, c->out, c->m, c->k, c->pad, 1));
    k->reduce = c->used + 1;
    k->scale = 2;
    return wf_gen_operand(&k->out[WF_WEIGHTED_SUM_Y], c->out, c->m, c->k, c->pad);
}

/* Some rows have ties for the largest value, some have NaN or infinity. */
static weft_status gen_argmax(wf_check *k, wf_gen *g)
{
    static const float wild[] = {NAN, INFINITY, -INFINITY};
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_floats(&k->in[WF_ARGMAX_X], g, WF_F32, c->m, c->k, c->pad, 20));
    for (uint32_t r = 0; r < c->m; r++) {
        float *row = (float *)wf_gen_row(&k->in[WF_ARGMAX_X], r);
        uint32_t kind = wf_gen_below(g, 6);
        for (int i = 0; i < 3 && kind < 2; i++) row[wf_gen_below(g, c->k)] = kind ? 21 : wild[wf_gen_below(g, 3)];
    }
    k->scale = -1;
    return wf_gen_operand(&k->out[WF_ARGMAX_Y], WF_I32, c->m, 1, 0);
}

/* Of every other row, whose last entry is a token, which half of the time another one names, too. Exact in any
 * arithmetic: repeat is a power of two, and x has few digits. */
static weft_status gen_adjust(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    uint32_t each = WF_MIN(c->k, 12u);
    int32_t *tokens, *ids;
    WF_TRY(wf_gen_ints(&k->in[WF_SAMPLE_TOKENS], c->m, &tokens));
    WF_TRY(wf_gen_ints(&k->in[WF_SAMPLE_IDS], c->m * each, &ids));
    WF_TRY(wf_gen_operand(&k->in[WF_SAMPLE_ADJUST], WF_F32, c->m * each, 3, 0));
    float *adjust = (float *)k->in[WF_SAMPLE_ADJUST].data;
    for (uint32_t r = 0; r < c->m; r++) {
        uint32_t first = wf_gen_below(g, c->k), step = c->k / each, end = (r + 1) * each;
        int32_t *key = (int32_t *)wf_gen_row(&k->in[WF_SAMPLE_KEY], r);
        key[5] = (int32_t)(r * each), key[6] = r % 2 ? key[5] : (int32_t)end;
        for (uint32_t i = r * each; i < end; i++, adjust += 3) {
            ids[i] = i % 7 == 6 ? (int32_t)c->k : (int32_t)((first + (i - r * each) * step) % c->k);
            adjust[0] = (float[]){1, 2, 0.5f}[wf_gen_below(g, 3)];
            adjust[1] = i % 5 == 4 ? -100 : (float)wf_gen_below(g, 64) / 16 - 2;
            adjust[2] = (float)wf_gen_below(g, 64) / 16 - 2;
        }
        tokens[r] = wf_gen_below(g, 2) ? ids[r * each + wf_gen_below(g, each)] : ids[end - 1];
        ids[end - 1] = -1 - (int32_t)r;
    }
    return WEFT_OK;
}

/* Of every third row, a quarter of the columns and one of all. */
static weft_status gen_allowed(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    uint32_t words = (c->k + 31) / 32;
    int32_t *bits;
    WF_TRY(wf_gen_ints(&k->in[WF_SAMPLE_ALLOWED], (c->m + 1) / 3 * words + 1, &bits));
    for (uint32_t r = 0, at = 0; r < c->m; r++) {
        int32_t *key = (int32_t *)wf_gen_row(&k->in[WF_SAMPLE_KEY], r);
        key[7] = r % 3 == 1 ? (int32_t)at : -1;
        if (r % 3 != 1) continue;
        for (uint32_t i = 0; i < words; i++) bits[at + i] = (int32_t)(wf_gen_next(g) & wf_gen_next(g));
        uint32_t one = wf_gen_below(g, c->k);
        bits[at + one / 32] |= (int32_t)(1u << one % 32);
        at += words;
    }
    return WEFT_OK;
}

/* Generates sampling parameters of a row until rounding cannot decide: the result must be the same in any arithmetic.
 */
static void gen_params(wf_gen *g, const float *z, uint32_t n, wf_token_logit *scratch, float *params, int32_t *key)
{
    const double clear = 5e-5;
    double margin = 0;
    for (int try = 0; try < 1000 && margin < clear; try++) {
        wf_sampling_params c = {.temperature = wf_gen_below(g, 6) ? 0.25f + (float)wf_gen_below(g, 16) / 8 : 0,
                                .seed = wf_gen_next(g),
                                .counter = wf_gen_below(g, 3) ? wf_gen_below(g, 9999) : wf_gen_next(g)};
        c.top_k = wf_gen_below(g, 2) || try > 500 ? 1 + (int32_t)wf_gen_below(g, try > 500 ? 20 : n + 2) : 0;
        c.top_p = wf_gen_below(g, 2) ? (float)wf_gen_below(g, 33) / 32 : 0;
        c.min_p = wf_gen_below(g, 3) ? 0 : (float)wf_gen_below(g, 33) / 32;
        params[0] = c.temperature, params[1] = c.top_p, params[2] = c.min_p;
        key[0] = c.top_k, key[1] = (int32_t)c.seed, key[2] = (int32_t)(c.seed >> 32), key[3] = (int32_t)c.counter,
        key[4] = (int32_t)(c.counter >> 32);
        wf_sample_row(&c, z, n, scratch, &margin);
    }
}

static weft_status gen_all_params(wf_check *k, wf_gen *g)
{
    uint32_t n = k->c.k;
    float *z = wf_calloc(n, sizeof *z);
    wf_token_logit *scratch = wf_calloc(n, sizeof *scratch);
    bool ok = z && scratch;
    for (uint32_t r = 0; ok && r < k->c.m; r++) {
        int32_t *key = (int32_t *)wf_gen_row(&k->in[WF_SAMPLE_KEY], r);
        memcpy(z, wf_gen_row(&k->in[WF_SAMPLE_X], r), k->c.k * sizeof *z);
        wf_adjust_row((const int32_t *)k->in[WF_SAMPLE_IDS].data + key[5],
                      (const wf_adjust *)k->in[WF_SAMPLE_ADJUST].data + key[5], (uint32_t)(key[6] - key[5]),
                      (const int32_t *)k->in[WF_SAMPLE_TOKENS].data, k->c.m, z, n);
        if (key[7] >= 0) wf_allow_row((const uint32_t *)k->in[WF_SAMPLE_ALLOWED].data + key[7], z, n);
        gen_params(g, z, n, scratch, (float *)wf_gen_row(&k->in[WF_SAMPLE_PARAMS], r), key);
    }
    free(z);
    free(scratch);
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* Logits are multiples of 2^-10, so that equal ones occur. */
static weft_status gen_sample(wf_check *k, wf_gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(wf_gen_operand(&k->in[WF_SAMPLE_X], WF_F32, c->m, c->k, c->pad));
    for (uint32_t r = 0; r < c->m; r++) {
        float *row = (float *)wf_gen_row(&k->in[WF_SAMPLE_X], r);
        for (uint32_t i = 0; i < c->k; i++) row[i] = (float)((int32_t)wf_gen_below(g, 16384) - 8192) * 0x1p-10f;
    }
    WF_TRY(wf_gen_operand(&k->in[WF_SAMPLE_PARAMS], WF_F32, c->m, 3, 0));
    WF_TRY(wf_gen_operand(&k->in[WF_SAMPLE_KEY], WF_I32, c->m, 8, 0));
    WF_TRY(gen_adjust(k, g));
    WF_TRY(gen_allowed(k, g));
    if (!g->shapes_only) WF_TRY(gen_all_params(k, g));
    if (c->m > 3)
        ((float *)wf_gen_row(&k->in[WF_SAMPLE_X], 2))[wf_gen_below(g, c->k)] = wf_gen_below(g, 2) ? NAN : -INFINITY;
    k->scale = -1; /* columns that are not allowed are very large */
    WF_TRY(wf_gen_operand(&k->out[WF_SAMPLE_Y], WF_I32, c->m, 1, 0));
    return wf_gen_operand(&k->out[WF_SAMPLE_Z], WF_F32, c->m, c->k, c->pad);
}

static weft_status gen_page_copy(wf_check *k, wf_gen *g)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    const wf_case *c = &k->c;
    uint32_t pages = c->in_place ? WF_MAX(c->n, 2 * c->m) : c->n, to = c->in_place ? pages : c->m + 3;
    int32_t *src, *dst;
    WF_TRY(wf_gen_floats(&k->in[WF_PAGE_COPY_FROM], g, WF_F16, pages, c->k, c->pad, 3));
    WF_TRY(wf_gen_ints(&k->in[WF_PAGE_COPY_SRC], c->m, &src));
    WF_TRY(wf_gen_ints(&k->in[WF_PAGE_COPY_DST], c->m, &dst));
    uint32_t *order = wf_gen_permutation(g, to);
    if (!order) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < c->m; i++) { /* in place, the second half of the order is read */
        dst[i] = (int32_t)order[i];
        src[i] = (int32_t)(c->in_place ? order[c->m + i] : wf_gen_below(g, pages));
        if (i % 5 == 3)
            *(wf_gen_below(g, 2) ? &src[i] : &dst[i]) = wf_gen_below(g, 2) ? (int32_t)WF_MAX(pages, to)
                                                                           : wild[wf_gen_below(g, 3)];
    }
    free(order);
    k->scale = -1;
    k->bytes = 4.0 * c->m * c->k;
    return wf_gen_operand(&k->out[WF_PAGE_COPY_TO], WF_F16, to, c->k, c->in_place ? c->pad : 2 * c->pad);
}

/* Some tokens are given, some come from the step before, a few indices are out of range. */
static weft_status gen_token_subst(wf_check *k, wf_gen *g)
{
    static const int32_t wild[] = {INT32_MIN, INT32_MIN + 1};
    const wf_case *c = &k->c;
    int32_t *ids, *from;
    WF_TRY(wf_gen_ints(&k->in[WF_TOKEN_SUBST_IDS], c->m, &ids));
    WF_TRY(wf_gen_ints(&k->in[WF_TOKEN_SUBST_FROM], c->k, &from));
    for (uint32_t i = 0; i < c->k; i++) from[i] = (int32_t)wf_gen_below(g, 200000) - 100;
    for (uint32_t i = 0; i < c->m; i++) {
        ids[i] = wf_gen_below(g, 3) ? -1 - (int32_t)wf_gen_below(g, c->k) : (int32_t)wf_gen_below(g, 200000);
        if (i % 7 == 5) ids[i] = wf_gen_below(g, 2) ? -1 - (int32_t)c->k : wild[wf_gen_below(g, 2)];
    }
    k->scale = -1;
    return wf_gen_operand(&k->out[WF_TOKEN_SUBST_Y], WF_I32, k->in[WF_TOKEN_SUBST_IDS].view.rows,
                          k->in[WF_TOKEN_SUBST_IDS].view.cols, 0);
}

static weft_status gen_attention(wf_check *k, wf_gen *g)
{
    return wf_gen_attention(k, g);
}

static weft_status (*const gen_op[WF_N_OPS])(wf_check *, wf_gen *) = {
#define X(id, name, ...) [WF_OP_##id] = gen_##name,
#include "dev/ops.def"
#undef X
};

weft_status wf_check_generate(wf_check *c, bool shapes_only)
{
    wf_gen g = {.seed = c->c.seed, .shapes_only = shapes_only};
    c->reduce = c->amplify = 1;
    WF_TRY(gen_op[c->c.op](c, &g));
    if (c->c.op == WF_OP_ATTENTION)
        c->bytes += (double)c->in[WF_ATTENTION_Q].bytes + (double)c->out[WF_ATTENTION_O].bytes;
    if (!c->bytes) c->bytes = wf_gen_bytes(c);
    return WEFT_OK;
}
