/* check_gen.c: generates the operands of a check. The same case (with its seed) gives the same bytes. */
#include "verify/check.h"
#include "sampling/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct gen {
    uint64_t seed, n;
} gen;

static uint64_t next_random(gen *g)
{
    return wf_random(g->seed, g->n++);
}

static uint32_t below(gen *g, uint32_t n)
{
    return (uint32_t)(next_random(g) % n);
}

static float unit(gen *g)
{
    return (float)(int32_t)(next_random(g) >> 32) * 0x1p-31f; /* [-1, 1) */
}

static void shuffle(gen *g, uint32_t *a, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = below(g, i), t = a[i - 1];
        a[i - 1] = a[j];
        a[j] = t;
    }
}

static uint32_t *permutation(gen *g, uint32_t n)
{
    uint32_t *a = wf_calloc(n, sizeof *a);
    for (uint32_t i = 0; a && i < n; i++) a[i] = i;
    if (a) shuffle(g, a, n);
    return a;
}

/* ---- operands ------------------------------------------------------------------------------------- */

/* All bytes 0xFF: NaN in every float format, -1 as an id, and as a scale of a block format. */
static weft_status make(wf_check_operand *o, uint8_t dtype, uint32_t rows, uint32_t cols, uint32_t pad)
{
    uint32_t stride = wf_dtypes[dtype].block == 1 ? cols + pad : cols;
    o->view = (wf_view){.rows = rows, .cols = cols, .stride = stride, .dtype = dtype};
    o->bytes = wf_dtype_bytes(dtype, (uint64_t)rows * stride);
    o->data = wf_calloc(o->bytes, 1);
    if (o->data) memset(o->data, 0xFF, o->bytes);
    return o->data ? WEFT_OK : WEFT_ERR_NOMEM;
}

static uint8_t *row_of(const wf_check_operand *o, uint32_t row)
{
    return o->data + wf_dtype_bytes(o->view.dtype, (uint64_t)row * o->view.stride);
}

/* An encoder never emits some bit patterns that files may hold (e.g. -128 in Q8_0): replace a byte
 * here and there, wherever the block stays finite and of its old size. */
static void mutate(gen *g, const wf_dtype_info *t, uint8_t *block)
{
    float before[256], after[256], top = 0;
    uint32_t at = below(g, t->block_bytes);
    uint8_t old = block[at];
    t->decode(block, before, t->block);
    for (uint32_t i = 0; i < t->block; i++) top = fmaxf(top, fabsf(before[i]));
    block[at] = (uint8_t)next_random(g);
    t->decode(block, after, t->block);
    for (uint32_t i = 0; i < t->block; i++) {
        if (fabsf(after[i]) <= 1.1f * top) continue; /* false for NaN */
        block[at] = old;
        return;
    }
}

static weft_status fill(wf_check_operand *o, gen *g, float amplitude)
{
    const wf_dtype_info *t = &wf_dtypes[o->view.dtype];
    float *row = wf_calloc(o->view.cols, sizeof *row);
    if (!row) return WEFT_ERR_NOMEM;
    for (uint32_t r = 0; r < o->view.rows; r++) {
        for (uint32_t i = 0; i < o->view.cols; i++) row[i] = amplitude * unit(g);
        t->encode(row, row_of(o, r), o->view.cols);
        for (uint32_t b = 0; t->block > 1 && b < o->view.cols / t->block; b++) {
            if (b % 4 == 0) mutate(g, t, row_of(o, r) + (size_t)b * t->block_bytes);
        }
    }
    free(row);
    return WEFT_OK;
}

static weft_status floats(wf_check_operand *o, gen *g, uint8_t dtype, uint32_t rows, uint32_t cols,
                          uint32_t pad, float amplitude)
{
    WF_TRY(make(o, dtype, rows, cols, pad));
    return fill(o, g, amplitude);
}

static weft_status ints(wf_check_operand *o, uint32_t n, int32_t **values)
{
    WF_TRY(make(o, WF_I32, 1, n, 0));
    *values = (int32_t *)o->data;
    return WEFT_OK;
}

static double total_bytes(const wf_check *c)
{
    double sum = 0;
    for (int i = 0; i < WF_MAX_IN; i++) sum += (double)c->in[i].bytes;
    for (int i = 0; i < WF_MAX_OUT; i++) sum += (double)c->out[i].bytes;
    return sum;
}

/* A KV pool; the gaps between pages keep what vector loads are aligned to. */
static weft_status make_pool(wf_check_operand *o, const wf_case *c, uint32_t pages, uint32_t page)
{
    return make(o, WF_F16, pages, page, 8 * c->pad);
}

/* ---- one function for each op ----------------------------------------------------------------------- */

static weft_status gen_get_rows(wf_check *k, gen *g)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    const wf_case *c = &k->c;
    int32_t *ids;
    WF_TRY(floats(&k->in[WF_GET_ROWS_TABLE], g, c->weight, c->n, c->k, c->pad, 1));
    WF_TRY(ints(&k->in[WF_GET_ROWS_IDS], c->m, &ids));
    for (uint32_t i = 0; i < c->m; i++) {
        uint32_t kind = i ? below(g, 16) : 15; /* the first one is always in range */
        ids[i] = kind < 3 ? wild[kind] : kind == 3 ? (int32_t)c->n : (int32_t)below(g, c->n);
    }
    WF_TRY(make(&k->out[WF_GET_ROWS_Y], c->out, c->m, c->k, c->pad));
    k->scale = -1;
    k->bytes = (double)k->out[WF_GET_ROWS_Y].bytes + (double)wf_dtype_bytes(c->weight, (uint64_t)c->m * c->k);
    return WEFT_OK;
}

static weft_status gen_rmsnorm(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    uint32_t cols = WF_MAX(c->n, 1u) * c->k;
    WF_TRY(floats(&k->in[WF_RMSNORM_X], g, WF_F32, c->m, cols, c->pad, 3));
    WF_TRY(floats(&k->in[WF_RMSNORM_W], g, WF_F32, 1, c->k, 0, 2));
    WF_TRY(make(&k->out[WF_RMSNORM_Y], c->out, c->m, cols, c->pad));
    k->reduce = c->k;
    k->scale = -1;
    return WEFT_OK;
}

/* Rows whose mean is larger than what is left without it: it must not be subtracted too late. */
static weft_status gen_layernorm(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(floats(&k->in[WF_LAYERNORM_X], g, WF_F32, c->m, c->k, c->pad, 3));
    for (uint32_t m = 0; m < c->m; m++) {
        float mean = 8 * unit(g), *x = (float *)row_of(&k->in[WF_LAYERNORM_X], m);
        for (uint32_t i = 0; i < c->k; i++) x[i] += mean;
    }
    WF_TRY(floats(&k->in[WF_LAYERNORM_W], g, WF_F32, 1, c->k, 0, 2));
    WF_TRY(floats(&k->in[WF_LAYERNORM_B], g, WF_F32, 1, c->k, 0, 2));
    WF_TRY(make(&k->out[WF_LAYERNORM_Y], c->out, c->m, c->k, c->pad));
    k->reduce = c->k;
    k->amplify = 5; /* the mean against the spread */
    return WEFT_OK;
}

/* Table, pos and slot, and the pools, of a rotation of m rows. */
static weft_status gen_rotation(wf_check *k, gen *g, uint32_t positions, wf_check_operand in[3], wf_check_operand pools[2])
{
    const wf_case *c = &k->c;
    const wf_op_params *p = &c->p;
    uint32_t pages = c->m / p->page_tokens + 3, page = p->n_kv_head * p->page_tokens * p->head_dim;
    int32_t *pos, *slot;
    WF_TRY(make(&in[0], WF_F32, positions, p->n_rot, c->pad));
    for (uint32_t i = 0; i < positions * p->n_rot / 2; i++) {
        float *pair = (float *)row_of(&in[0], i / (p->n_rot / 2)) + i % (p->n_rot / 2) * 2;
        double angle = 7.0 * unit(g);
        pair[0] = (float)cos(angle);
        pair[1] = (float)sin(angle);
    }
    WF_TRY(ints(&in[1], c->m, &pos));
    WF_TRY(ints(&in[2], c->m, &slot));
    uint32_t *order = permutation(g, pages * p->page_tokens);
    if (!order) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < c->m; i++) {
        pos[i] = (int32_t)below(g, positions);
        slot[i] = i % 5 == 3 ? -1 : (int32_t)order[i];
    }
    free(order);
    WF_TRY(make_pool(&pools[0], c, pages, page));
    return make_pool(&pools[1], c, pages, page);
}

static weft_status gen_gemm(wf_check *k, gen *g)
{
    enum { POSITIONS = 37 };
    const wf_case *c = &k->c;
    float w = 1 / sqrtf((float)c->k);
    uint32_t cols = c->p.silu ? c->n / 2 : c->p.rope ? c->p.n_head * c->p.head_dim : c->n;
    WF_TRY(floats(&k->in[WF_GEMM_X], g, c->norm ? WF_F32 : c->in, c->m, c->k, c->pad, 2));
    WF_TRY(floats(&k->in[WF_GEMM_W], g, c->weight, c->n, c->k, c->pad, w));
    if (c->bias) WF_TRY(floats(&k->in[WF_GEMM_BIAS], g, WF_F32, 1, c->n, 0, 1));
    if (c->residual) WF_TRY(floats(&k->in[WF_GEMM_RESIDUAL], g, WF_F32, c->m, c->n, c->pad, 1));
    if (c->norm) WF_TRY(floats(&k->in[WF_GEMM_NORM], g, WF_F32, 1, c->k, 0, 2));
    if (c->p.rope) WF_TRY(gen_rotation(k, g, POSITIONS, &k->in[WF_GEMM_TABLE], &k->out[WF_GEMM_K_POOL]));
    WF_TRY(make(&k->out[WF_GEMM_Y], c->out, c->m, cols, c->pad));
    if (c->norm) WF_TRY(make(&k->out[WF_GEMM_NORM_WS], WF_F32, c->m, c->k, c->pad));
    if (c->p.silu || c->p.rope) WF_TRY(make(&k->out[WF_GEMM_GEMM_WS], WF_F32, c->m, c->n, c->pad));
    k->reduce = c->k;
    /* sqrt(K) x rms of X x rms of W. Behind SiLU, where gate and up multiply each other's errors by about as much, the outputs'
     * own size would be too little for the few large ones. */
    k->scale = 2.0 / 3;
    k->flops = 2.0 * c->m * c->n * c->k;
    return WEFT_OK;
}

static weft_status gen_rope_kv(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    const wf_op_params *p = &c->p;
    WF_TRY(floats(&k->in[WF_ROPE_KV_QKV], g, c->in, c->m, (p->n_head + 2 * p->n_kv_head) * p->head_dim, c->pad, 2));
    WF_TRY(gen_rotation(k, g, c->n, &k->in[WF_ROPE_KV_TABLE], &k->out[WF_ROPE_KV_K_POOL]));
    k->reduce = 2;
    return make(&k->out[WF_ROPE_KV_Q], c->out, c->m, p->n_head * p->head_dim, c->pad);
}

static weft_status gen_silu_mul(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(floats(&k->in[WF_SILU_MUL_GU], g, c->in, c->m, 2 * c->k, c->pad, 10));
    WF_TRY(make(&k->out[WF_SILU_MUL_Y], c->out, c->m, c->k, c->pad));
    k->scale = -1;
    return WEFT_OK;
}

/* Some rows have ties for the largest value, some have NaN or infinity. */
static weft_status gen_argmax(wf_check *k, gen *g)
{
    static const float wild[] = {NAN, INFINITY, -INFINITY};
    const wf_case *c = &k->c;
    WF_TRY(floats(&k->in[WF_ARGMAX_X], g, WF_F32, c->m, c->k, c->pad, 20));
    for (uint32_t r = 0; r < c->m; r++) {
        float *row = (float *)row_of(&k->in[WF_ARGMAX_X], r);
        uint32_t kind = below(g, 6);
        for (int i = 0; i < 3 && kind < 2; i++) row[below(g, c->k)] = kind ? 21 : wild[below(g, 3)];
    }
    k->scale = -1;
    return make(&k->out[WF_ARGMAX_Y], WF_I32, c->m, 1, 0);
}

/* Exact in any arithmetic: repeat is a power of two, and x has few digits. */
static weft_status gen_adjust(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    uint32_t each = WF_MIN(c->k, 12u);
    int32_t *indptr, *ids;
    WF_TRY(ints(&k->in[WF_SAMPLE_INDPTR], c->m + 1, &indptr));
    WF_TRY(ints(&k->in[WF_SAMPLE_IDS], c->m * each, &ids));
    WF_TRY(make(&k->in[WF_SAMPLE_ADJUST], WF_F32, c->m * each, 3, 0));
    float *adjust = (float *)k->in[WF_SAMPLE_ADJUST].data;
    for (uint32_t r = 0; r < c->m; r++) {
        uint32_t first = below(g, c->k), step = c->k / each;
        indptr[r + 1] = (int32_t)((r + 1) * each);
        for (uint32_t i = r * each; i < (r + 1) * each; i++, adjust += 3) {
            ids[i] = i % 7 == 6 ? (i % 2 ? -1 : (int32_t)c->k) : (int32_t)((first + (i - r * each) * step) % c->k);
            adjust[0] = i % 3 ? 0 : (float)below(g, 64) / 16 - 2;
            adjust[1] = (float[]){1, 2, 0.5f}[below(g, 3)];
            adjust[2] = i % 5 == 4 ? -100 : (float)below(g, 64) / 16 - 2;
        }
    }
    indptr[0] = 0;
    return WEFT_OK;
}

static void edit_row(const wf_check *k, uint32_t r, float *z)
{
    const int32_t *indptr = (const int32_t *)k->in[WF_SAMPLE_INDPTR].data, *ids = (const int32_t *)k->in[WF_SAMPLE_IDS].data;
    memcpy(z, row_of(&k->in[WF_SAMPLE_X], r), k->c.k * sizeof *z);
    for (int32_t i = indptr ? indptr[r] : 0; indptr && i < indptr[r + 1]; i++) {
        const float *e = (const float *)k->in[WF_SAMPLE_ADJUST].data + 3 * i;
        if ((uint32_t)ids[i] >= k->c.k) continue;
        float v = z[ids[i]] + e[0];
        z[ids[i]] = (v > 0 ? v / e[1] : v * e[1]) + e[2];
    }
}

/* Generates sampling parameters of a row until rounding cannot decide: the result must be the same in any arithmetic. */
static void gen_params(gen *g, const float *z, uint32_t n, wf_token_logit *scratch, float *params, int32_t *key)
{
    const double clear = 5e-5;
    double margin = 0;
    for (int try = 0; try < 1000 && margin < clear; try++) {
        wf_sampling_params c = {.temperature = below(g, 6) ? 0.25f + (float)below(g, 16) / 8 : 0, .seed = next_random(g), .counter = below(g, 3) ? below(g, 9999) : next_random(g)};
        c.top_k = below(g, 2) || try > 500 ? 1 + (int32_t)below(g, try > 500 ? 20 : n + 2) : 0;
        c.top_p = below(g, 2) ? (float)below(g, 33) / 32 : 0;
        c.min_p = below(g, 3) ? 0 : (float)below(g, 33) / 32;
        params[0] = c.temperature, params[1] = c.top_p, params[2] = c.min_p;
        key[0] = c.top_k, key[1] = (int32_t)c.seed, key[2] = (int32_t)(c.seed >> 32), key[3] = (int32_t)c.counter, key[4] = (int32_t)(c.counter >> 32);
        wf_sample_row(&c, z, n, scratch, &margin);
    }
}

static weft_status gen_all_params(wf_check *k, gen *g)
{
    uint32_t n = k->c.k;
    float *z = wf_calloc(n, sizeof *z);
    wf_token_logit *scratch = wf_calloc(n, sizeof *scratch);
    bool ok = z && scratch;
    for (uint32_t r = 0; ok && r < k->c.m; r++) {
        edit_row(k, r, z);
        gen_params(g, z, n, scratch, (float *)row_of(&k->in[WF_SAMPLE_PARAMS], r), (int32_t *)row_of(&k->in[WF_SAMPLE_KEY], r));
    }
    free(z);
    free(scratch);
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* Logits are multiples of 2^-10, so that equal ones occur. */
static weft_status gen_sample(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    WF_TRY(make(&k->in[WF_SAMPLE_X], WF_F32, c->m, c->k, c->pad));
    for (uint32_t r = 0; r < c->m; r++) {
        float *row = (float *)row_of(&k->in[WF_SAMPLE_X], r);
        for (uint32_t i = 0; i < c->k; i++) row[i] = (float)((int32_t)below(g, 16384) - 8192) * 0x1p-10f;
    }
    WF_TRY(make(&k->in[WF_SAMPLE_PARAMS], WF_F32, c->m, 3, 0));
    WF_TRY(make(&k->in[WF_SAMPLE_KEY], WF_I32, c->m, 5, 0));
    if (c->bias) WF_TRY(gen_adjust(k, g));
    WF_TRY(gen_all_params(k, g));
    if (c->m > 3) ((float *)row_of(&k->in[WF_SAMPLE_X], 2))[below(g, c->k)] = below(g, 2) ? NAN : -INFINITY;
    k->reduce = c->k;
    WF_TRY(make(&k->out[WF_SAMPLE_Y], WF_I32, c->m, c->n, 0));
    WF_TRY(make(&k->out[WF_SAMPLE_P], WF_F32, c->m, c->n, 0));
    return make(&k->out[WF_SAMPLE_Z], WF_F32, c->m, c->k, c->pad);
}

static weft_status gen_page_copy(wf_check *k, gen *g)
{
    static const int32_t wild[] = {-1, INT32_MIN, INT32_MAX};
    const wf_case *c = &k->c;
    uint32_t pages = c->in_place ? WF_MAX(c->n, 2 * c->m) : c->n, to = c->in_place ? pages : c->m + 3;
    int32_t *src, *dst;
    WF_TRY(floats(&k->in[WF_PAGE_COPY_FROM], g, WF_F16, pages, c->k, c->pad, 3));
    WF_TRY(ints(&k->in[WF_PAGE_COPY_SRC], c->m, &src));
    WF_TRY(ints(&k->in[WF_PAGE_COPY_DST], c->m, &dst));
    uint32_t *order = permutation(g, to);
    if (!order) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < c->m; i++) { /* in place, the second half of the order is read */
        dst[i] = (int32_t)order[i];
        src[i] = (int32_t)(c->in_place ? order[c->m + i] : below(g, pages));
        if (i % 5 == 3) *(below(g, 2) ? &src[i] : &dst[i]) = below(g, 2) ? (int32_t)WF_MAX(pages, to) : wild[below(g, 3)];
    }
    free(order);
    k->scale = -1;
    k->bytes = 4.0 * c->m * c->k;
    return make(&k->out[WF_PAGE_COPY_TO], WF_F16, to, c->k, c->in_place ? c->pad : 2 * c->pad);
}

/* Some tokens are given, some come from the step before, a few indices are out of range. */
static weft_status gen_token_subst(wf_check *k, gen *g)
{
    static const int32_t wild[] = {INT32_MIN, INT32_MIN + 1};
    const wf_case *c = &k->c;
    int32_t *ids, *from;
    WF_TRY(ints(&k->in[WF_TOKEN_SUBST_IDS], c->m, &ids));
    WF_TRY(ints(&k->in[WF_TOKEN_SUBST_FROM], c->k, &from));
    for (uint32_t i = 0; i < c->k; i++) from[i] = (int32_t)below(g, 200000) - 100;
    for (uint32_t i = 0; i < c->m; i++) {
        ids[i] = below(g, 3) ? -1 - (int32_t)below(g, c->k) : (int32_t)below(g, 200000);
        if (i % 7 == 5) ids[i] = below(g, 2) ? -1 - (int32_t)c->k : wild[below(g, 2)];
    }
    k->scale = -1;
    return make(&k->out[WF_TOKEN_SUBST_Y], WF_I32, k->in[WF_TOKEN_SUBST_IDS].view.rows, k->in[WF_TOKEN_SUBST_IDS].view.cols, 0);
}

/* ---- attention: sequences of mixed lengths over shuffled pages ---------------------------------------- */

typedef struct seqs {
    uint32_t *len, *rows, *first; /* keys; rows in this call; start in the page list */
    uint32_t n, m, pages;
} seqs;

static void gen_seqs(const wf_case *c, gen *g, seqs *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        s->len[i] = i ? 1 + below(g, c->max_kv) : c->max_kv;
        uint32_t most = WF_MIN(c->max_q, s->len[i]);
        s->rows[i] = i && below(g, 3) == 0 ? 1 : i ? 1 + below(g, most) : most;
        if (s->n > 2 && i == s->n / 2) s->rows[i] = 0; /* a sequence without rows in this call */
        s->first[i] = s->pages;
        s->pages += (s->len[i] + c->p.page_tokens - 1) / c->p.page_tokens + below(g, 2);
        s->m += s->rows[i];
    }
    s->first[s->n] = s->pages;
}

/* One key far larger than the others now and then: the softmax must neither overflow nor lose it.
 * Only with F16 queries, whose products are exact: where two such logits almost tie, rounding an F32
 * query to F16, which a variant may do, decides between them. */
#define KEY 1.7f
#define LARGE_KEY 1000.0f

static int32_t window_of(const wf_check *k, uint32_t head)
{
    return k->in[WF_ATTENTION_WINDOWS].data ? ((const int32_t *)k->in[WF_ATTENTION_WINDOWS].data)[head] : 0;
}

/* Does any row attend to key t of a KV head? The first row is at position first, and every later key has a row. */
static bool is_seen(const wf_check *k, uint32_t head, uint32_t first, uint32_t t)
{
    return t > first || wf_attends(window_of(k, head), k->c.p.sink, (int32_t)first, (int32_t)t);
}

/* Keys of all KV heads to which the row at pos attends. */
static double count_seen(const wf_check *k, uint32_t pos)
{
    double n = 0;
    for (uint32_t h = 0; h < k->c.p.n_kv_head; h++) {
        int64_t window = window_of(k, h), hidden = window ? (int64_t)pos + 1 - window - k->c.p.sink : 0;
        n += (double)(pos + 1 - WF_MAX(hidden, 0));
    }
    return n;
}

/* Of len keys, the last `rows` of which have rows; keys to which none of these attends stay NaN. */
static void fill_sequence(wf_check *k, gen *g, uint32_t len, uint32_t rows, const int32_t *pages)
{
    const wf_op_params *p = &k->c.p;
    uint32_t spike = k->c.in == WF_F16 && !below(g, 4) ? below(g, len) : len;
    if (spike < len) k->amplify = LARGE_KEY / KEY;
    for (uint32_t t = 0; t < len; t++) {
        for (uint32_t h = 0; h < p->n_kv_head; h++) {
            uint64_t at = ((uint64_t)h * p->page_tokens + t % p->page_tokens) * p->head_dim;
            uint32_t page = (uint32_t)pages[t / p->page_tokens];
            if (!is_seen(k, h, len - rows, t)) continue;
            k->bytes += 4.0 * p->head_dim;
            uint16_t *key = (uint16_t *)row_of(&k->in[WF_ATTENTION_K_POOL], page) + at;
            uint16_t *value = (uint16_t *)row_of(&k->in[WF_ATTENTION_V_POOL], page) + at;
            for (uint32_t d = 0; d < p->head_dim; d++) {
                key[d] = wf_float_to_half(unit(g) * (t == spike ? LARGE_KEY : KEY));
                value[d] = wf_float_to_half(unit(g));
            }
        }
    }
}

static void fill_rows(const seqs *s, const uint32_t *order, int32_t *seq, int32_t *pos)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t q = order[i];
        for (uint32_t r = 0; r < s->rows[q]; r++, m++) {
            seq[m] = (int32_t)q;
            pos[m] = (int32_t)(s->len[q] - s->rows[q] + r);
        }
    }
}

/* Sometimes rows are shuffled, so that those of a sequence are scattered. */
static void scatter_rows(gen *g, uint32_t m, int32_t *seq, int32_t *pos)
{
    for (uint32_t n = below(g, 3) ? 0 : WF_MIN(m, 24); n; n--) {
        uint32_t a = below(g, m), b = below(g, m);
        int32_t s = seq[a], p = pos[a];
        seq[a] = seq[b], pos[a] = pos[b];
        seq[b] = s, pos[b] = p;
    }
}

/* One of each kind: all keys, fewer than the sink, a page and a bit, more than there are, the row's own key alone, random. */
static weft_status gen_windows(wf_check *k, gen *g)
{
    const wf_op_params *p = &k->c.p;
    int32_t *windows;
    if (k->c.windows == WF_WINDOWS_NONE) return WEFT_OK;
    WF_TRY(ints(&k->in[WF_ATTENTION_WINDOWS], p->n_kv_head, &windows));
    for (uint32_t h = 0, turn = below(g, 6); h < p->n_kv_head; h++, turn++) {
        const uint32_t kinds[] = {0, 1 + below(g, WF_MAX(p->sink, 1u)), p->page_tokens + 1 + below(g, p->page_tokens),
                                  k->c.max_kv + below(g, 2), 1, 1 + below(g, k->c.max_kv)};
        windows[h] = (int32_t)(k->c.windows == WF_WINDOWS_WIDE ? kinds[turn % 2 * 3] : kinds[turn % 6]);
    }
    return WEFT_OK;
}

static weft_status attention_operands(wf_check *k, gen *g, const seqs *s, const uint32_t *order,
                                      const uint32_t *where)
{
    const wf_case *c = &k->c;
    uint32_t cols = c->p.n_head * c->p.head_dim;
    uint32_t page = c->p.n_kv_head * c->p.page_tokens * c->p.head_dim;
    int32_t *seq, *pos, *indptr, *pages;
    WF_TRY(floats(&k->in[WF_ATTENTION_Q], g, c->in, s->m, cols, c->pad, 3));
    WF_TRY(make_pool(&k->in[WF_ATTENTION_K_POOL], c, s->pages + 3, page));
    WF_TRY(make_pool(&k->in[WF_ATTENTION_V_POOL], c, s->pages + 3, page));
    WF_TRY(ints(&k->in[WF_ATTENTION_SEQ], s->m, &seq));
    WF_TRY(ints(&k->in[WF_ATTENTION_POS], s->m, &pos));
    WF_TRY(ints(&k->in[WF_ATTENTION_INDPTR], s->n + 1, &indptr));
    WF_TRY(ints(&k->in[WF_ATTENTION_PAGES], s->pages, &pages));
    WF_TRY(gen_windows(k, g));
    for (uint32_t i = 0; i <= s->n; i++) indptr[i] = (int32_t)s->first[i];
    for (uint32_t i = 0; i < s->pages; i++) pages[i] = (int32_t)where[i];
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->rows[i]) continue; /* its pages stay NaN */
        fill_sequence(k, g, s->len[i], s->rows[i], pages + s->first[i]);
        for (uint32_t r = 0; r < s->rows[i]; r++) {
            k->flops += 4.0 * cols / c->p.n_kv_head * count_seen(k, s->len[i] - 1 - r);
        }
    }
    fill_rows(s, order, seq, pos);
    scatter_rows(g, s->m, seq, pos);
    return make(&k->out[WF_ATTENTION_O], c->out, s->m, cols, c->pad);
}

static float number_at(const wf_check_operand *o, uint32_t row, uint32_t col)
{
    const uint8_t *at = row_of(o, row);
    return o->view.dtype == WF_F16 ? wf_half_to_float(((const uint16_t *)at)[col]) : ((const float *)at)[col];
}

static double largest_score(const wf_check *k, uint32_t m, uint32_t h)
{
    const wf_op_params *p = &k->c.p;
    uint32_t seq = ((const uint32_t *)k->in[WF_ATTENTION_SEQ].data)[m], kv_head = h / (p->n_head / p->n_kv_head), d = p->head_dim;
    const int32_t *pages = (const int32_t *)k->in[WF_ATTENTION_PAGES].data + ((const int32_t *)k->in[WF_ATTENTION_INDPTR].data)[seq];
    int32_t pos = ((const int32_t *)k->in[WF_ATTENTION_POS].data)[m], window = window_of(k, kv_head);
    double top = -INFINITY;
    for (int32_t j = 0; j <= pos; j++) {
        if (!wf_attends(window, p->sink, pos, j)) continue;
        uint32_t page = (uint32_t)pages[(uint32_t)j / p->page_tokens];
        uint32_t at = (kv_head * p->page_tokens + (uint32_t)j % p->page_tokens) * d;
        double s = 0;
        for (uint32_t i = 0; i < d; i++)
            s += (double)number_at(&k->in[WF_ATTENTION_Q], m, h * d + i) * number_at(&k->in[WF_ATTENTION_K_POOL], page, at + i);
        top = fmax(top, s * p->scale);
    }
    return top;
}

/* Counts the rows and heads that leave the range of phi: at least, and at most, since a variant rounds and may represent only
 * the upper 13 of the range. */
static void count_redone(wf_check *k)
{
    const wf_op_params *p = &k->c.p;
    double low = fmax(p->phi_lo, p->phi_hi - 13.0);
    for (uint32_t m = 0; m < k->out[WF_ATTENTION_O].view.rows; m++) {
        for (uint32_t h = 0; h < p->n_head; h++) {
            double top = largest_score(k, m, h), x = top - p->phi, near = 2e-3 + 1e-4 * fabs(top);
            k->redo_least += x < p->phi_lo - near || x > p->phi_hi + near;
            k->redo_most += !(x > low + near && x < p->phi_hi - near);
        }
    }
}

static weft_status gen_attention(wf_check *k, gen *g)
{
    const wf_case *c = &k->c;
    seqs s = {.n = c->n_seqs};
    uint32_t *mem = wf_calloc(3 * (size_t)s.n + 1, sizeof *mem);
    if (!mem) return WEFT_ERR_NOMEM;
    s.len = mem;
    s.rows = mem + s.n;
    s.first = mem + 2 * (size_t)s.n;
    gen_seqs(c, g, &s);
    uint32_t *order = permutation(g, s.n), *where = permutation(g, s.pages + 3);
    weft_status st = order && where ? attention_operands(k, g, &s, order, where) : WEFT_ERR_NOMEM;
    k->c.p.scale = 1 / sqrtf((float)c->p.head_dim);
    k->c.p.max_kv = c->max_kv;
    k->c.p.max_q = c->max_q;
    k->reduce = c->p.head_dim + c->max_kv;
    if (st == WEFT_OK && c->p.phi_lo < c->p.phi_hi) {
        count_redone(k);
        st = make(&k->out[WF_ATTENTION_RECOMPUTED], WF_I32, 1, 1, 0);
    }
    free(mem);
    free(order);
    free(where);
    return st;
}

static weft_status (*const gen_op[WF_N_OPS])(wf_check *, gen *) = {
#define X(id, name, ...) [WF_OP_##id] = gen_##name,
#include "dev/ops.def"
#undef X
};

weft_status wf_check_generate(wf_check *c)
{
    gen g = {c->c.seed, 0};
    c->reduce = c->amplify = 1;
    WF_TRY(gen_op[c->c.op](c, &g));
    if (c->c.op == WF_OP_ATTENTION) c->bytes += (double)c->in[WF_ATTENTION_Q].bytes + (double)c->out[WF_ATTENTION_O].bytes;
    if (!c->bytes) c->bytes = total_bytes(c);
    return WEFT_OK;
}
