/* call_check.c: what makes a call well formed — operands, dtypes, shapes, bounds, aliasing. Backends
 * trust what passes here, so every size is computed in 64 bits with overflow checked. */
#include "dev/front.h"

#include <math.h>

static weft_status bad_call(const wf_call *c, const char *why)
{
    return wf_fail(WEFT_ERR_ARG, "%s: %s", wf_ops[c->op].name, why);
}

/* ---- one view ------------------------------------------------------------------------------------- */

typedef struct place {
    const wf_dev *dev;
    const wf_call *call;
    const char *name; /* of the operand */
} place;

static weft_status bad_view(const place *at, const wf_view *v, const char *why)
{
    return wf_fail(WEFT_ERR_ARG, "%s: %s %s (%s [%u, %u], stride %u, offset %llu, layout %u)",
                   wf_ops[at->call->op].name, at->name, why,
                   v->dtype < WF_N_DTYPES ? wf_dtypes[v->dtype].name : "bad dtype", v->rows, v->cols, v->stride,
                   (unsigned long long)v->offset, v->layout);
}

static bool dtype_fits(uint16_t need, uint8_t dtype)
{
    if (dtype >= WF_N_DTYPES) return false;
    if (need & WF_OPERAND_WEIGHT) return wf_dtypes[dtype].decode != NULL;
    if (need & WF_OPERAND_ACT) return dtype == WF_F32 || dtype == WF_F16;
    if (need & WF_OPERAND_KV) return dtype == WF_F16 || dtype == WF_Q8_0;
    return dtype == (need & WF_OPERAND_F32 ? WF_F32 : need & WF_OPERAND_F16 ? WF_F16 : WF_I32);
}

/* Bytes from the view's offset to its last element. False: more than 64 bits hold. */
static bool view_bytes(const wf_dev *dev, const wf_view *v, uint64_t *out)
{
    if (v->layout) {
        *out = dev->fns->weight_bytes((wf_dev *)dev, v->layout, v->dtype, v->rows, v->cols);
        return *out != 0;
    }
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    uint64_t n = (uint64_t)(v->rows - 1) * v->stride + v->cols; /* < 2^64 for 32-bit factors */
    return !__builtin_mul_overflow(n / t->block, (uint64_t)t->block_bytes, out);
}

static weft_status check_shape(const place *at, const wf_view *v, uint16_t need)
{
    uint32_t block = wf_dtypes[v->dtype].block;
    if (!v->rows || !v->cols) return bad_view(at, v, "is empty");
    if (v->stride < v->cols) return bad_view(at, v, "has rows that overlap");
    if (v->cols % block) return bad_view(at, v, "has a partial block in each row");
    if (need & WF_OPERAND_KV && v->stride % block) return bad_view(at, v, "has a partial block between its pages");
    if (v->stride != v->cols && (v->layout || (block > 1 && !(need & WF_OPERAND_KV))))
        return bad_view(at, v, "must be contiguous");
    return WEFT_OK;
}

/* A view may be a column slice, so only its elements must be aligned; blocks may hold FP16 scales. */
static uint32_t element_align(const wf_view *v)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    return t->block == 1 ? t->block_bytes : 2;
}

static weft_status check_view(const place *at, const wf_view *v, uint16_t need)
{
    if (!v->buf && (need & WF_OPERAND_OPTIONAL || !need)) return WEFT_OK;
    if (!v->buf) return bad_view(at, v, "is missing");
    if (!need) return bad_view(at, v, "is one operand too many");
    if (v->buf->dev != at->dev) return bad_view(at, v, "is memory of another device");
    if (!dtype_fits(need, v->dtype)) return bad_view(at, v, "has a dtype that the op does not take");
    if (v->layout && !(need & WF_OPERAND_WEIGHT && at->dev->fns->weight_bytes))
        return bad_view(at, v, "cannot have a layout of its own");
    WF_TRY(check_shape(at, v, need));
    uint64_t bytes;
    if (v->offset % element_align(v)) return bad_view(at, v, "is not aligned");
    if (!view_bytes(at->dev, v, &bytes) || v->offset > v->buf->size || bytes > v->buf->size - v->offset)
        return bad_view(at, v, "leaves its buffer");
    return WEFT_OK;
}

static weft_status check_operands(const wf_dev *dev, const wf_call *c, const wf_view *v, const wf_operand_info *info,
                                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        place at = {dev, c, info[i].name ? info[i].name : "what comes behind the last operand"};
        WF_TRY(check_view(&at, &v[i], info[i].what));
    }
    return WEFT_OK;
}

/* ---- aliasing ------------------------------------------------------------------------------------- */

/* Column ranges of one wide matrix interleave without overlap: with equal pitch, compare within it. */
static bool views_overlap(const wf_dev *dev, const wf_view *a, const wf_view *b)
{
    uint64_t na, nb;
    if (!a->buf || a->buf != b->buf) return false;
    if (!view_bytes(dev, a, &na) || !view_bytes(dev, b, &nb)) return true;
    if (a->offset + na <= b->offset || b->offset + nb <= a->offset) return false;
    uint64_t pitch = wf_dtype_bytes(a->dtype, a->stride);
    if (a->layout || b->layout || pitch != wf_dtype_bytes(b->dtype, b->stride)) return true;
    uint64_t from_a = a->offset % pitch, from_b = b->offset % pitch;
    uint64_t wa = wf_dtype_bytes(a->dtype, a->cols), wb = wf_dtype_bytes(b->dtype, b->cols);
    uint64_t gap = (from_b + pitch - from_a) % pitch; /* from a's first column on to b's */
    return !(gap >= wa && pitch - gap >= wb);
}

static bool are_first_columns(const wf_view *v, const wf_view *of)
{
    return v->buf == of->buf && v->offset == of->offset && v->stride == of->stride && v->dtype == of->dtype &&
           v->rows == of->rows && v->cols <= of->cols;
}

/* Is v the storage of the first output, as this kind of operand may be? */
static bool is_shared(const wf_call *c, const wf_operand_info *o, const wf_view *v)
{
    return o->what & WF_OPERAND_SHARED && wf_may_share(&c->p) && are_first_columns(&c->out[0], v);
}

static weft_status check_aliases(const wf_dev *dev, const wf_call *c)
{
    const wf_op_info *op = &wf_ops[c->op];
    for (unsigned o = 0; o < op->n_out; o++) {
        const wf_view *out = &c->out[o];
        for (unsigned i = 0; i < op->n_in; i++)
            if (views_overlap(dev, out, &c->in[i]) && (o || !is_shared(c, &op->in[i], &c->in[i])))
                return bad_call(c, "an output overlaps an input");
        for (unsigned i = 0; i < o; i++)
            if (views_overlap(dev, out, &c->out[i]) && (i || !is_shared(c, &op->out[o], out)))
                return bad_call(c, "two outputs overlap");
    }
    return WEFT_OK;
}

/* ---- shapes of each op ------------------------------------------------------------------------------ */

static bool has_shape(const wf_view *v, uint64_t rows, uint64_t cols)
{
    return v->rows == rows && v->cols == cols;
}

static uint64_t view_length(const wf_view *v)
{
    return (uint64_t)v->rows * v->cols;
}

static bool is_vector(const wf_view *v, uint64_t n)
{
    return view_length(v) == n && (v->stride == v->cols || v->rows == 1);
}

static weft_status check_get_rows(const wf_call *c)
{
    const wf_view *y = &c->out[WF_GET_ROWS_Y];
    if (y->cols != c->in[WF_GET_ROWS_TABLE].cols) return bad_call(c, "table and y differ in columns");
    if (!is_vector(&c->in[WF_GET_ROWS_IDS], y->rows)) return bad_call(c, "ids are not one for each row of y");
    if (c->in[WF_GET_ROWS_ADD].buf && !has_shape(&c->in[WF_GET_ROWS_ADD], y->rows, y->cols))
        return bad_call(c, "add and y differ in shape");
    return isfinite(c->p.gain) ? WEFT_OK : bad_call(c, "gain is not a number");
}

static weft_status check_eps(const wf_call *c)
{
    return c->p.eps >= 0 && isfinite(c->p.eps) ? WEFT_OK : bad_call(c, "eps is not a number >= 0");
}

/* What is added to the first output. */
static weft_status check_residual(const wf_call *c, const wf_view *residual)
{
    const wf_view *y = &c->out[0];
    if (!residual->buf) return WEFT_OK;
    if (!has_shape(residual, y->rows, y->cols)) return bad_call(c, "the residual and the output differ in shape");
    return residual->dtype == y->dtype ? WEFT_OK : bad_call(c, "the residual and the output differ in dtype");
}

static weft_status check_rmsnorm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_RMSNORM_X], *w = &c->in[WF_RMSNORM_W];
    uint64_t group = view_length(w);
    if (!has_shape(&c->out[WF_RMSNORM_Y], x->rows, x->cols)) return bad_call(c, "x and y differ in shape");
    if (!is_vector(w, group) || x->cols % group)
        return bad_call(c, "w is not one for each column of x, or of its groups");
    WF_TRY(check_residual(c, &c->in[WF_RMSNORM_RESIDUAL]));
    return check_eps(c);
}

static weft_status check_layernorm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_LAYERNORM_X];
    if (!has_shape(&c->out[WF_LAYERNORM_Y], x->rows, x->cols)) return bad_call(c, "x and y differ in shape");
    if (!is_vector(&c->in[WF_LAYERNORM_W], x->cols)) return bad_call(c, "w is not one for each column of x");
    if (!is_vector(&c->in[WF_LAYERNORM_B], x->cols)) return bad_call(c, "b is not one for each column of x");
    return check_eps(c);
}

static weft_status check_heads(const wf_call *c)
{
    const wf_op_params *p = &c->p;
    if (!p->n_head || !p->n_kv_head || !p->head_dim || !p->page_tokens)
        return bad_call(c, "heads, KV heads, head size and page size must not be 0");
    if (p->n_head % p->n_kv_head) return bad_call(c, "the KV heads do not divide the heads");
    return WEFT_OK;
}

static weft_status check_pools(const wf_call *c, const wf_view *k, const wf_view *v)
{
    const wf_op_params *p = &c->p;
    uint64_t page = 0;
    if (__builtin_mul_overflow((uint64_t)p->n_kv_head * p->page_tokens, (uint64_t)p->head_dim, &page) ||
        k->cols != page || v->cols != page)
        return bad_call(c, "a row of the K or V pool is not KV heads x page tokens x head size");
    if (k->stride != v->stride || k->dtype != v->dtype) return bad_call(c, "K and V pools differ in stride or dtype");
    if (p->head_dim % wf_dtypes[k->dtype].block) return bad_call(c, "a head of K or V is no whole number of blocks");
    return k->rows == v->rows ? WEFT_OK : bad_call(c, "K and V pools differ in pages");
}

/* Columns of n heads; 0 where 32 bits do not hold them. */
static uint32_t head_cols(const wf_call *c, uint64_t n)
{
    uint64_t cols = 0;
    if (__builtin_mul_overflow(n, (uint64_t)c->p.head_dim, &cols) || cols > UINT32_MAX) return 0;
    return (uint32_t)cols;
}

static weft_status check_rope_kv(const wf_call *c)
{
    const wf_op_params *p = &c->p;
    const wf_view *qkv = &c->in[WF_ROPE_KV_QKV], *q = &c->out[WF_ROPE_KV_Q];
    WF_TRY(check_heads(c));
    WF_TRY(check_pools(c, &c->out[WF_ROPE_KV_K_POOL], &c->out[WF_ROPE_KV_V_POOL]));
    if (qkv->cols != head_cols(c, p->n_head + 2ull * p->n_kv_head))
        return bad_call(c, "qkv has not (heads + 2 KV heads) x head size columns");
    if (!has_shape(q, qkv->rows, head_cols(c, p->n_head))) return bad_call(c, "q is not [rows, heads x head size]");
    if (!p->n_rot || p->n_rot % 2 || p->n_rot > p->head_dim || p->neox > 1)
        return bad_call(c, "n_rot must be even, above 0 and at most the head size; neox 0 or 1");
    if (c->in[WF_ROPE_KV_TABLE].cols != p->n_rot) return bad_call(c, "the table has not n_rot columns");
    if (!is_vector(&c->in[WF_ROPE_KV_POS], qkv->rows)) return bad_call(c, "pos is not one for each row");
    if (!is_vector(&c->in[WF_ROPE_KV_SLOT], qkv->rows)) return bad_call(c, "slot is not one for each row");
    return WEFT_OK;
}

/* The fused norm, before the product. */
static weft_status check_norm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_GEMM_X], *norm = &c->in[WF_GEMM_NORM], *norm_ws = &c->out[WF_GEMM_NORM_WS];
    if (!norm->buf) return norm_ws->buf ? bad_call(c, "norm_ws comes with norm") : WEFT_OK;
    if (!is_vector(norm, x->cols)) return bad_call(c, "norm is not one for each column of X");
    if (norm_ws->buf && !has_shape(norm_ws, x->rows, x->cols)) return bad_call(c, "X and norm_ws differ in shape");
    return check_eps(c);
}

/* The fused SiLU or RoPE, after the product, and its workspace. */
static weft_status check_gemm_ws(const wf_call *c)
{
    const wf_view *gemm_ws = &c->out[WF_GEMM_GEMM_WS];
    if (c->p.silu && c->p.rope) return bad_call(c, "silu and rope exclude each other");
    if (!c->p.silu && !c->p.rope) return gemm_ws->buf ? bad_call(c, "gemm_ws comes with silu or rope") : WEFT_OK;
    if (c->in[WF_GEMM_RESIDUAL].buf) return bad_call(c, "silu and rope want no residual");
    return !gemm_ws->buf || has_shape(gemm_ws, c->in[WF_GEMM_X].rows, c->in[WF_GEMM_W].rows)
               ? WEFT_OK
               : bad_call(c, "gemm_ws is not [rows of X, rows of W]");
}

/* The operands of the product's ROPE_KV. */
static weft_status check_rope(const wf_call *c)
{
    const wf_view *const own[] = {&c->in[WF_GEMM_TABLE], &c->in[WF_GEMM_POS], &c->in[WF_GEMM_SLOT],
                                  &c->out[WF_GEMM_K_POOL], &c->out[WF_GEMM_V_POOL]};
    for (size_t i = 0; i < WF_LEN(own); i++)
        if (!own[i]->buf != !c->p.rope) return bad_call(c, "rope comes with table, pos, slot and pools");
    if (!c->p.rope) return WEFT_OK;
    wf_view product = {.rows = c->in[WF_GEMM_X].rows, .cols = c->in[WF_GEMM_W].rows};
    wf_call rope = {.op = c->op,
                    .p = c->p,
                    .in = {[WF_ROPE_KV_QKV] = product,
                           [WF_ROPE_KV_TABLE] = c->in[WF_GEMM_TABLE],
                           [WF_ROPE_KV_POS] = c->in[WF_GEMM_POS],
                           [WF_ROPE_KV_SLOT] = c->in[WF_GEMM_SLOT]},
                    .out = {[WF_ROPE_KV_Q] = c->out[WF_GEMM_Y],
                            [WF_ROPE_KV_K_POOL] = c->out[WF_GEMM_K_POOL],
                            [WF_ROPE_KV_V_POOL] = c->out[WF_GEMM_V_POOL]}};
    return check_rope_kv(&rope);
}

static weft_status check_gate(const wf_call *c)
{
    return c->p.activation == WF_SILU || c->p.activation == WF_GELU_TANH
               ? WEFT_OK
               : bad_call(c, "the gate has SiLU or GELU by tanh");
}

static weft_status check_gate_or_clamped(const wf_call *c)
{
    return c->p.activation == WF_CLAMPED_SWIGLU ? WEFT_OK : check_gate(c);
}

static weft_status check_gemm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_GEMM_X], *w = &c->in[WF_GEMM_W], *y = &c->out[WF_GEMM_Y];
    if (x->cols != w->cols) return bad_call(c, "X and W differ in columns");
    WF_TRY(check_norm(c));
    WF_TRY(check_gemm_ws(c));
    WF_TRY(check_rope(c));
    if (c->p.silu && w->rows % 2) return bad_call(c, "silu wants gate and up in W");
    if (c->p.silu) WF_TRY(check_gate(c));
    if (!c->p.rope && !has_shape(y, x->rows, c->p.silu ? w->rows / 2 : w->rows))
        return bad_call(c, "Y is not [rows of X, rows of W]");
    if (c->in[WF_GEMM_BIAS].buf && !is_vector(&c->in[WF_GEMM_BIAS], w->rows))
        return bad_call(c, "bias is not one for each row of W");
    return check_residual(c, &c->in[WF_GEMM_RESIDUAL]);
}

static weft_status check_attention(const wf_call *c)
{
    const wf_op_params *p = &c->p;
    const wf_view *q = &c->in[WF_ATTENTION_Q], *indptr = &c->in[WF_ATTENTION_INDPTR],
                  *pages = &c->in[WF_ATTENTION_PAGES];
    WF_TRY(check_heads(c));
    WF_TRY(check_pools(c, &c->in[WF_ATTENTION_K_POOL], &c->in[WF_ATTENTION_V_POOL]));
    if (q->cols != head_cols(c, p->n_head)) return bad_call(c, "q has not heads x head size columns");
    if (!has_shape(&c->out[WF_ATTENTION_O], q->rows, q->cols)) return bad_call(c, "q and o differ in shape");
    if (!is_vector(&c->in[WF_ATTENTION_SEQ], q->rows)) return bad_call(c, "seq is not one for each row");
    if (!is_vector(&c->in[WF_ATTENTION_POS], q->rows)) return bad_call(c, "pos is not one for each row");
    if (!is_vector(indptr, view_length(indptr)) || view_length(indptr) < 2)
        return bad_call(c, "indptr is not a vector of at least 2");
    if (!is_vector(pages, view_length(pages))) return bad_call(c, "pages is not a vector");
    if (c->in[WF_ATTENTION_WINDOWS].buf && !is_vector(&c->in[WF_ATTENTION_WINDOWS], p->n_head))
        return bad_call(c, "windows are not one for each query head");
    const wf_view *around = &c->in[WF_ATTENTION_AROUND];
    if (around->buf && (!c->in[WF_ATTENTION_WINDOWS].buf || !is_vector(around, q->rows)))
        return bad_call(c, "around is not one for each row, with windows");
    if (c->in[WF_ATTENTION_SINKS].buf && !is_vector(&c->in[WF_ATTENTION_SINKS], p->n_head))
        return bad_call(c, "sinks are not one for each query head");
    if (p->sink > WF_MAX_SINK) return bad_call(c, "sink is too large");
    if (!isfinite(p->scale)) return bad_call(c, "scale is not a number");
    if (!isfinite(p->softcap) || p->softcap < 0) return bad_call(c, "softcap is not a number >= 0");
    if (c->out[WF_ATTENTION_RECOMPUTED].buf && !is_vector(&c->out[WF_ATTENTION_RECOMPUTED], 1))
        return bad_call(c, "recomputed is not one number");
    if (!isfinite(p->phi) || !isfinite(p->phi_lo) || !isfinite(p->phi_hi) || p->phi_lo > p->phi_hi)
        return bad_call(c, "phi, phi_lo and phi_hi must be numbers, phi_lo at most phi_hi");
    return WEFT_OK;
}

static weft_status check_silu_mul(const wf_call *c)
{
    const wf_view *gu = &c->in[WF_SILU_MUL_GU], *y = &c->out[WF_SILU_MUL_Y];
    if (gu->cols != 2ull * y->cols || gu->rows != y->rows)
        return bad_call(c, "gu is not [rows of y, 2 x columns of y]");
    if (c->p.groups && y->cols % c->p.groups) return bad_call(c, "y has not whole groups of columns");
    return check_gate_or_clamped(c);
}

static weft_status check_activate(const wf_call *c)
{
    const wf_view *x = &c->in[WF_ACTIVATE_X];
    if (!has_shape(&c->out[WF_ACTIVATE_Y], x->rows, x->cols)) return bad_call(c, "x and y differ in shape");
    if (c->p.activation == WF_SOFTCAP && !(c->p.softcap > 0 && isfinite(c->p.softcap)))
        return bad_call(c, "softcap is not a number > 0");
    return c->p.activation < WF_N_ACTIVATIONS ? WEFT_OK : bad_call(c, "there is no such activation");
}

/* The fused norm and product, and their results. */
static weft_status check_router_scores(const wf_call *c)
{
    const wf_view *x = &c->in[WF_ROUTER_X], *w = &c->in[WF_ROUTER_W], *norm = &c->in[WF_ROUTER_NORM];
    const wf_view *y = &c->out[WF_ROUTER_Y], *ws = &c->out[WF_ROUTER_SCORES_WS];
    if (!w->buf != !norm->buf || !w->buf != !y->buf) return bad_call(c, "W, norm and y come together");
    if (!w->buf && x->dtype != WF_F32) return bad_call(c, "x, which are scores, is not F32");
    if (!w->buf) return ws->buf ? bad_call(c, "scores_ws comes with W") : WEFT_OK;
    if (w->cols != x->cols) return bad_call(c, "x and W differ in columns");
    if (!is_vector(norm, x->cols)) return bad_call(c, "norm is not one for each column of x");
    if (!has_shape(y, x->rows, x->cols)) return bad_call(c, "x and y differ in shape");
    if (ws->buf && !has_shape(ws, x->rows, w->rows)) return bad_call(c, "scores_ws is not [rows of x, rows of W]");
    return check_eps(c);
}

static weft_status check_router(const wf_call *c)
{
    const wf_view *x = &c->in[WF_ROUTER_X], *ids = &c->out[WF_ROUTER_IDS];
    uint32_t experts = c->in[WF_ROUTER_W].buf ? c->in[WF_ROUTER_W].rows : x->cols;
    WF_TRY(check_router_scores(c));
    if (ids->rows != x->rows || ids->cols > experts)
        return bad_call(c, "ids are not [rows of x, at most as many as there are scores]");
    if (!has_shape(&c->out[WF_ROUTER_WEIGHTS], ids->rows, ids->cols))
        return bad_call(c, "ids and weights differ in shape");
    if (experts > INT32_MAX) return bad_call(c, "there are more scores than ids");
    return isfinite(c->p.scale) ? WEFT_OK : bad_call(c, "scale is not a number");
}

/* The fused SiLU, after the product, and its workspace. */
static weft_status check_experts_silu(const wf_call *c)
{
    const wf_view *y = &c->out[WF_GROUPED_GEMM_Y], *ws = &c->out[WF_GROUPED_GEMM_GEMM_WS];
    if (!c->p.silu) return ws->buf ? bad_call(c, "gemm_ws comes with silu") : WEFT_OK;
    WF_TRY(check_gate_or_clamped(c));
    if (y->cols > UINT32_MAX / 2) return bad_call(c, "Y is too large for silu");
    return !ws->buf || has_shape(ws, y->rows, 2 * y->cols)
               ? WEFT_OK
               : bad_call(c, "gemm_ws is not [rows of Y, 2 x columns of Y]");
}

static weft_status check_grouped_gemm(const wf_call *c)
{
    const wf_view *x = &c->in[WF_GROUPED_GEMM_X], *w = &c->in[WF_GROUPED_GEMM_W], *ids = &c->in[WF_GROUPED_GEMM_IDS];
    const wf_view *bias = &c->in[WF_GROUPED_GEMM_BIAS], *y = &c->out[WF_GROUPED_GEMM_Y];
    uint32_t n = wf_expert_rows(&c->p, y->cols, ids->cols);
    WF_TRY(check_experts_silu(c));
    if (ids->rows != x->rows || y->rows != x->rows) return bad_call(c, "X, ids and Y differ in rows");
    if (y->cols % ids->cols || w->rows % n)
        return bad_call(c, "Y is not [rows of X, columns of ids x an expert's rows of W]");
    if (x->cols != w->cols && x->cols != (uint64_t)ids->cols * w->cols)
        return bad_call(c, "X has neither the columns of W nor those times the columns of ids");
    if (bias->buf && !is_vector(bias, w->rows)) return bad_call(c, "bias is not one for each row of W");
    return WEFT_OK;
}

static weft_status check_weighted_sum(const wf_call *c)
{
    const wf_view *x = &c->in[WF_WEIGHTED_SUM_X], *weights = &c->in[WF_WEIGHTED_SUM_WEIGHTS];
    const wf_view *y = &c->out[WF_WEIGHTED_SUM_Y];
    if ((weights->buf && weights->rows != x->rows) || y->rows != x->rows)
        return bad_call(c, "x, weights and y differ in rows");
    if (x->cols % y->cols || (weights->buf && weights->cols != x->cols / y->cols))
        return bad_call(c, "x is not [rows, columns of weights x columns of y]");
    return check_residual(c, &c->in[WF_WEIGHTED_SUM_RESIDUAL]);
}

static weft_status check_argmax(const wf_call *c)
{
    if (!is_vector(&c->out[WF_ARGMAX_Y], c->in[WF_ARGMAX_X].rows)) return bad_call(c, "y is not one for each row of x");
    return c->in[WF_ARGMAX_X].cols <= INT32_MAX ? WEFT_OK : bad_call(c, "x has more columns than ids");
}

static weft_status check_page_copy(const wf_call *c)
{
    const wf_view *from = &c->in[WF_PAGE_COPY_FROM], *to = &c->out[WF_PAGE_COPY_TO];
    const wf_view *src = &c->in[WF_PAGE_COPY_SRC], *dst = &c->in[WF_PAGE_COPY_DST];
    if (from->cols != to->cols) return bad_call(c, "the pages of the pools differ in size");
    if (!is_vector(src, view_length(src))) return bad_call(c, "src is not a vector");
    if (!is_vector(dst, view_length(src))) return bad_call(c, "src and dst differ in length");
    return WEFT_OK;
}

static weft_status check_token_subst(const wf_call *c)
{
    const wf_view *ids = &c->in[WF_TOKEN_SUBST_IDS], *from = &c->in[WF_TOKEN_SUBST_FROM];
    if (!is_vector(ids, view_length(ids))) return bad_call(c, "ids is not a vector");
    if (!is_vector(from, view_length(from))) return bad_call(c, "from is not a vector");
    return is_vector(&c->out[WF_TOKEN_SUBST_Y], view_length(ids)) ? WEFT_OK : bad_call(c, "ids and y differ in length");
}

static weft_status check_sample(const wf_call *c)
{
    const wf_view *x = &c->in[WF_SAMPLE_X], *tokens = &c->in[WF_SAMPLE_TOKENS], *adjust = &c->in[WF_SAMPLE_ADJUST];
    const wf_view *allowed = &c->in[WF_SAMPLE_ALLOWED];
    if (!has_shape(&c->in[WF_SAMPLE_PARAMS], x->rows, 3) || c->in[WF_SAMPLE_PARAMS].stride != 3)
        return bad_call(c, "params is not [rows of x, 3] without gaps");
    if (!has_shape(&c->in[WF_SAMPLE_KEY], x->rows, 8) || c->in[WF_SAMPLE_KEY].stride != 8)
        return bad_call(c, "key is not [rows of x, 8] without gaps");
    if (!is_vector(tokens, view_length(tokens))) return bad_call(c, "tokens is not a vector");
    if (!is_vector(&c->in[WF_SAMPLE_IDS], adjust->rows)) return bad_call(c, "ids are not one for each row of adjust");
    if (adjust->cols != 3 || adjust->stride != 3) return bad_call(c, "adjust is not [*, 3] without gaps");
    if (!is_vector(allowed, view_length(allowed))) return bad_call(c, "allowed is not a vector");
    if (!is_vector(&c->out[WF_SAMPLE_Y], x->rows)) return bad_call(c, "y is not one for each row of x");
    if (!has_shape(&c->out[WF_SAMPLE_Z], x->rows, x->cols)) return bad_call(c, "x and z differ in shape");
    return x->cols <= INT32_MAX ? WEFT_OK : bad_call(c, "x has more columns than ids");
}

static weft_status (*const check_op[WF_N_OPS])(const wf_call *) = {
#define X(id, name, ...) [WF_OP_##id] = check_##name,
#include "dev/ops.def"
#undef X
};

static weft_status check_variant(wf_dev *dev, const wf_call *c)
{
    const wf_variant *list = NULL;
    if (c->variant < 0) return WEFT_OK;
    if ((size_t)c->variant >= dev->fns->variants(dev, c->op, &list))
        return wf_fail(WEFT_ERR_ARG, "%s: %s has no variant %d", wf_ops[c->op].name, dev->info.id, c->variant);
    /* The variant of a fused call may be one for its product only. */
    if (!wf_is_fused(c) && !dev->fns->supports(dev, c, c->variant)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: variant %s of %s cannot run these operands", wf_ops[c->op].name,
                       list[c->variant].name, dev->info.id);
    }
    return WEFT_OK;
}

weft_status wf_call_check(const wf_dev *dev, const wf_call *c)
{
    if ((unsigned)c->op >= WF_N_OPS) return wf_fail(WEFT_ERR_ARG, "unknown op %d", (int)c->op);
    WF_TRY(check_operands(dev, c, c->in, wf_ops[c->op].in, WF_MAX_IN));
    WF_TRY(check_operands(dev, c, c->out, wf_ops[c->op].out, WF_MAX_OUT));
    WF_TRY(check_op[c->op](c));
    WF_TRY(check_aliases(dev, c));
    WF_TRY(check_variant((wf_dev *)dev, c));
    return wf_workspaces_check((wf_dev *)dev, c);
}
