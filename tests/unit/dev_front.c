/* The front refuses every malformed call and names what is wrong; and device names mean what they say. */
#include <math.h>

#include "dev/front.h"
#include "support/null_device.h"
#include "support/suite.h"

#define BUF_BYTES (1u << 20)

typedef struct fixture {
    wf_dev *dev, *other;
    wf_buf *buf, *foreign;
} fixture;

static int setup(void **state)
{
    static fixture f;
    memset(&f, 0, sizeof f);
    assert_ok(wf_dev_open("null", NULL, &f.dev));
    assert_ok(wf_dev_open("null", NULL, &f.other));
    assert_ok(wf_buf_create(f.dev, BUF_BYTES, &f.buf));
    assert_ok(wf_buf_create(f.other, BUF_BYTES, &f.foreign));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    wf_buf_destroy(f->buf);
    wf_buf_destroy(f->foreign);
    wf_dev_close(f->dev);
    wf_dev_close(f->other);
    return wf_null_alive() != 0;
}

/* ---- a good call of each op ---------------------------------------------------------------------------- */

static wf_view view(fixture *f, uint64_t *at, uint8_t dtype, uint32_t rows, uint32_t cols)
{
    wf_view v = {.buf = f->buf, .offset = *at, .rows = rows, .cols = cols, .stride = cols, .dtype = dtype};
    *at += WF_UP(wf_dtype_bytes(dtype, (uint64_t)rows * cols), 64);
    return v;
}

/* Operands of a good call of each op, which lie one behind the other. */
#define IN(op, name, dtype, rows, cols)  {WF_OP_##op, WF_##op##_##name, WF_##dtype, rows, cols, false}
#define OUT(op, name, dtype, rows, cols) {WF_OP_##op, WF_##op##_##name, WF_##dtype, rows, cols, true}
static const struct { enum wf_op op; int at; uint8_t dtype; uint32_t rows, cols; bool out; } operands[] = {
    IN(GET_ROWS, TABLE, Q4_0, 10, 64), IN(GET_ROWS, IDS, I32, 1, 3), OUT(GET_ROWS, Y, F32, 3, 64),
    IN(RMSNORM, X, F32, 3, 10), IN(RMSNORM, W, F32, 1, 10), IN(RMSNORM, RESIDUAL, F16, 3, 10),
    OUT(RMSNORM, Y, F16, 3, 10),
    IN(LAYERNORM, X, F32, 3, 10), IN(LAYERNORM, W, F32, 1, 10), IN(LAYERNORM, B, F32, 1, 10),
    OUT(LAYERNORM, Y, F16, 3, 10),
    IN(GEMM, X, F16, 3, 64), IN(GEMM, W, Q8_0, 5, 64), IN(GEMM, BIAS, F32, 1, 5), IN(GEMM, RESIDUAL, F32, 3, 5),
    OUT(GEMM, Y, F32, 3, 5),
    IN(ROPE_KV, QKV, F32, 3, 64), IN(ROPE_KV, TABLE, F32, 20, 8), IN(ROPE_KV, POS, I32, 1, 3),
    IN(ROPE_KV, SLOT, I32, 3, 1), OUT(ROPE_KV, Q, F32, 3, 32), OUT(ROPE_KV, K_POOL, F16, 6, 64),
    OUT(ROPE_KV, V_POOL, F16, 6, 64),
    IN(ATTENTION, Q, F32, 3, 32), IN(ATTENTION, K_POOL, F16, 6, 64), IN(ATTENTION, V_POOL, F16, 6, 64),
    IN(ATTENTION, SEQ, I32, 1, 3), IN(ATTENTION, POS, I32, 1, 3), IN(ATTENTION, INDPTR, I32, 1, 3),
    IN(ATTENTION, PAGES, I32, 1, 4), OUT(ATTENTION, O, F32, 3, 32), OUT(ATTENTION, RECOMPUTED, I32, 1, 1),
    IN(ATTENTION, WINDOWS, I32, 1, 4), IN(ATTENTION, SINKS, F32, 1, 4), IN(ATTENTION, AROUND, I32, 1, 3),
    IN(ROUTER, X, F32, 3, 10), OUT(ROUTER, IDS, I32, 3, 2), OUT(ROUTER, WEIGHTS, F32, 3, 2),
    IN(GROUPED_GEMM, X, F16, 3, 64), IN(GROUPED_GEMM, W, Q8_0, 20, 64), IN(GROUPED_GEMM, IDS, I32, 3, 2),
    IN(GROUPED_GEMM, BIAS, F32, 1, 20), OUT(GROUPED_GEMM, Y, F32, 3, 10),
    IN(WEIGHTED_SUM, X, F16, 3, 20), IN(WEIGHTED_SUM, WEIGHTS, F32, 3, 2), IN(WEIGHTED_SUM, RESIDUAL, F32, 3, 10),
    OUT(WEIGHTED_SUM, Y, F32, 3, 10),
    IN(ARGMAX, X, F32, 3, 10), OUT(ARGMAX, Y, I32, 3, 1),
    IN(SAMPLE, X, F32, 3, 10), IN(SAMPLE, PARAMS, F32, 3, 3), IN(SAMPLE, KEY, I32, 3, 8), IN(SAMPLE, TOKENS, I32, 1, 4),
    IN(SAMPLE, IDS, I32, 6, 1), IN(SAMPLE, ADJUST, F32, 6, 3), IN(SAMPLE, ALLOWED, I32, 1, 3),
    OUT(SAMPLE, Y, I32, 3, 1), OUT(SAMPLE, Z, F32, 3, 10),
    IN(PAGE_COPY, FROM, F16, 6, 64), IN(PAGE_COPY, SRC, I32, 1, 3), IN(PAGE_COPY, DST, I32, 3, 1),
    OUT(PAGE_COPY, TO, F16, 5, 64),
    IN(TOKEN_SUBST, IDS, I32, 3, 1), IN(TOKEN_SUBST, FROM, I32, 1, 7), OUT(TOKEN_SUBST, Y, I32, 1, 3),
    IN(ACTIVATE, X, F16, 3, 20), OUT(ACTIVATE, Y, F32, 3, 20),
    IN(SILU_MUL, GU, F32, 3, 20), OUT(SILU_MUL, Y, F32, 3, 10)};

static wf_call good(fixture *f, enum wf_op op)
{
    wf_call c = {.op = op, .variant = -1};
    uint64_t at = 0;
    c.p = (wf_op_params){
        .eps = 1e-5f, .scale = 1, .n_head = 4, .n_kv_head = 2, .head_dim = 8, .n_rot = 8, .page_tokens = 4};
    for (size_t i = 0; i < WF_LEN(operands); i++)
        if (operands[i].op == op)
            (operands[i].out ? c.out : c.in)[operands[i].at] = view(f, &at, operands[i].dtype, operands[i].rows,
                                                                   operands[i].cols);
    return c;
}

/* ROPE_KV with pools in Q8_0, K and V of a page side by side. */
static void pools_of_bytes(fixture *f, wf_call *c)
{
    uint64_t at = 0;
    wf_view *k = &c->out[WF_ROPE_KV_K_POOL], *v = &c->out[WF_ROPE_KV_V_POOL];
    *c = good(f, WF_OP_ROPE_KV);
    c->p.n_head = 2, c->p.n_kv_head = 1, c->p.head_dim = 32, c->p.page_tokens = 2;
    c->in[WF_ROPE_KV_QKV] = view(f, &at, WF_F32, 3, 128);
    c->out[WF_ROPE_KV_Q] = view(f, &at, WF_F32, 3, 64);
    at = WF_MAX(at, c->in[WF_ROPE_KV_SLOT].offset + 64);
    c->in[WF_ROPE_KV_TABLE] = view(f, &at, WF_F32, 20, 8);
    c->in[WF_ROPE_KV_POS] = view(f, &at, WF_I32, 1, 3);
    c->in[WF_ROPE_KV_SLOT] = view(f, &at, WF_I32, 3, 1);
    *k = *v = view(f, &at, WF_Q8_0, 6, 64);
    k->stride = v->stride = 128;
    v->offset += 68;
}

static void good_calls_pass(void **state)
{
    fixture *f = *state;
    for (int op = 0; op < WF_N_OPS; op++) {
        wf_call c = good(f, (enum wf_op)op);
        assert_ok(wf_call_check(f->dev, &c));
    }
    wf_call c = good(f, WF_OP_GEMM);
    c.in[WF_GEMM_BIAS].buf = NULL;
    c.in[WF_GEMM_RESIDUAL] = c.out[WF_GEMM_Y]; /* residual is Y */
    assert_ok(wf_call_check(f->dev, &c));
    c.in[WF_GEMM_RESIDUAL].buf = NULL;
    assert_ok(wf_call_check(f->dev, &c));
    c = good(f, WF_OP_ATTENTION);
    c.out[WF_ATTENTION_RECOMPUTED].buf = NULL; /* nobody counts */
    c.in[WF_ATTENTION_WINDOWS].buf = NULL;  /* nobody looks less far than to the first key */
    c.in[WF_ATTENTION_AROUND].buf = NULL; /* nor past itself */
    c.in[WF_ATTENTION_SINKS].buf = NULL;
    assert_ok(wf_call_check(f->dev, &c));
    c = good(f, WF_OP_ROPE_KV); /* K and V of a page side by side */
    c.out[WF_ROPE_KV_K_POOL].stride = c.out[WF_ROPE_KV_V_POOL].stride = 128;
    c.out[WF_ROPE_KV_V_POOL].offset = c.out[WF_ROPE_KV_K_POOL].offset + 64 * 2;
    assert_ok(wf_call_check(f->dev, &c));
    pools_of_bytes(f, &c);
    assert_ok(wf_call_check(f->dev, &c));
    c.out[WF_ROPE_KV_V_POOL].offset -= 34; /* into the page of K */
    assert_int_equal(wf_call_check(f->dev, &c), WEFT_ERR_ARG);
    pools_of_bytes(f, &c);
    c.out[WF_ROPE_KV_V_POOL].dtype = WF_F16;
    assert_int_equal(wf_call_check(f->dev, &c), WEFT_ERR_ARG);
    pools_of_bytes(f, &c);
    c.p.head_dim = 16, c.p.n_head = 2, c.p.n_kv_head = 4; /* half a block */
    assert_int_equal(wf_call_check(f->dev, &c), WEFT_ERR_ARG);
    c = good(f, WF_OP_PAGE_COPY);
    c.out[WF_PAGE_COPY_TO] = c.in[WF_PAGE_COPY_FROM]; /* within one pool */
    assert_ok(wf_call_check(f->dev, &c));
    c.out[WF_PAGE_COPY_TO].rows--; /* pools that overlap */
    assert_int_equal(wf_call_check(f->dev, &c), WEFT_ERR_ARG);
}

/* ---- each operand of each op, spoilt in each way ------------------------------------------------------ */

enum { N_SPOILS = 14 };

static bool spoil(fixture *f, wf_view *v, int how)
{
    switch (how) {
    case 0: v->rows++; return true;
    case 1: v->cols += 256; v->stride += 256; return true;
    case 2: v->rows = 0; return true;
    case 3: v->cols = 0; return true;
    case 4: v->stride = v->cols - 1; return true;
    case 5: v->offset += 1; return true; /* inside an element */
    case 6: v->offset = BUF_BYTES; return true;
    case 7: v->offset = UINT64_MAX - 63; return true;
    case 8: v->dtype = WF_N_DTYPES; return true;
    case 9: v->dtype = 255; return true;
    case 10: v->buf = f->foreign; return true;
    case 11: v->layout = 1; return true; /* the null device knows none */
    case 12: v->stride = UINT32_MAX; return v->rows > 1;
    default: v->rows = v->cols = v->stride = UINT32_MAX; return true;
    }
}

static void refused(fixture *f, const wf_call *c, const char *what, int i, int how)
{
    weft_status s = wf_call_check(f->dev, c);
    const char *op = (unsigned)c->op < WF_N_OPS ? wf_ops[c->op].name : "unknown op";
    if (s != WEFT_ERR_ARG) fail_msg("%s: %s[%d] spoilt in way %d gives %d", op, what, i, how, (int)s);
    if (!strstr(weft_last_error(), op)) fail_msg("%s: the message is \"%s\"", op, weft_last_error());
}

/* Lengths of these are free: of indptr and pages, tokens of the step and of the one before, words of bits, the table's
 * rows, both pools' together, a row to search, and pools to copy between. */
static bool may_grow(const wf_call *c, bool out, int i, int how)
{
    if (how != 0 && how != 1) return false;
    if (c->op == WF_OP_ARGMAX && !out) return how == 1;
    if (c->op == WF_OP_PAGE_COPY && (out || i == WF_PAGE_COPY_FROM)) return how == 0;
    if (c->op == WF_OP_TOKEN_SUBST && !out && i == WF_TOKEN_SUBST_FROM) return true;
    if (c->op == WF_OP_SAMPLE && !out && (i == WF_SAMPLE_TOKENS || i == WF_SAMPLE_ALLOWED)) return true;
    if (c->op == WF_OP_ATTENTION && !out && (i == WF_ATTENTION_INDPTR || i == WF_ATTENTION_PAGES)) return true;
    return how == 0 && !out &&
           ((c->op == WF_OP_ROPE_KV && i == WF_ROPE_KV_TABLE) || (c->op == WF_OP_GET_ROWS && i == WF_GET_ROWS_TABLE));
}

static void spoil_operands(fixture *f, enum wf_op op, bool out)
{
    int n = out ? wf_ops[op].n_out : wf_ops[op].n_in;
    for (int i = 0; i < n; i++) {
        for (int how = 0; how < N_SPOILS; how++) {
            wf_call c = good(f, op);
            wf_view *v = out ? &c.out[i] : &c.in[i];
            if (!v->buf) continue; /* a room that only fused calls have */
            if (may_grow(&c, out, i, how) || !spoil(f, v, how)) continue;
            refused(f, &c, out ? "out" : "in", i, how);
        }
    }
}

static void spoilt_operands_are_refused(void **state)
{
    for (int op = 0; op < WF_N_OPS; op++) {
        spoil_operands(*state, (enum wf_op)op, false);
        spoil_operands(*state, (enum wf_op)op, true);
    }
}

static void missing_and_extra_operands(void **state)
{
    fixture *f = *state;
    for (int op = 0; op < WF_N_OPS; op++) {
        for (int i = 0; i < WF_MAX_IN; i++) {
            wf_call c = good(f, (enum wf_op)op);
            if (op == WF_OP_GEMM && (i == WF_GEMM_BIAS || i == WF_GEMM_RESIDUAL)) continue;
            if (op == WF_OP_RMSNORM && i == WF_RMSNORM_RESIDUAL) continue;
            if ((op == WF_OP_GROUPED_GEMM && i == WF_GROUPED_GEMM_BIAS) ||
                (op == WF_OP_WEIGHTED_SUM && i != WF_WEIGHTED_SUM_X))
                continue;
            if (op == WF_OP_ATTENTION && i >= WF_ATTENTION_WINDOWS) continue;
            if (c.in[i].buf) c.in[i].buf = NULL;
            else c.in[i] = c.in[0];
            refused(f, &c, "in", i, -1);
        }
        for (int i = 0; i < WF_MAX_OUT; i++) {
            wf_call c = good(f, (enum wf_op)op);
            if (op == WF_OP_ATTENTION && i == WF_ATTENTION_RECOMPUTED) continue;
            if (c.out[i].buf) c.out[i].buf = NULL;
            else c.out[i] = c.in[0];
            refused(f, &c, "out", i, -1);
        }
    }
}

/* A norm in front and a SiLU behind, each with its room, and neither without it. */
static void fused_gemms(void **state)
{
    fixture *f = *state;
    uint64_t at = 0;
    wf_call c = {.op = WF_OP_GEMM, .variant = -1, .p = {.eps = 1e-5f, .silu = 1}};
    c.in[WF_GEMM_X] = view(f, &at, WF_F32, 3, 64), c.in[WF_GEMM_W] = view(f, &at, WF_Q8_0, 6, 64);
    c.in[WF_GEMM_NORM] = view(f, &at, WF_F32, 1, 64);
    c.out[WF_GEMM_Y] = view(f, &at, WF_F32, 3, 3), c.out[WF_GEMM_NORM_WS] = view(f, &at, WF_F16, 3, 64);
    c.out[WF_GEMM_GEMM_WS] = view(f, &at, WF_F16, 3, 6);
    assert_true(wf_is_fused(&c));
    assert_ok(wf_call_check(f->dev, &c));
    for (int i = 1; i < 3; i++) {
        for (int how = 0; how < N_SPOILS; how++) {
            wf_call bad = c;
            if (spoil(f, &bad.out[i], how)) refused(f, &bad, "out", i, how);
        }
        wf_call bad = c;
        bad.out[i].buf = NULL; /* a workspace: the null device has no kernel that does without */
        assert_int_equal(wf_call_check(f->dev, &bad), WEFT_ERR_UNSUPPORTED);
    }
    wf_call halves = c, residual = c, wrong = c;
    halves.in[WF_GEMM_X].dtype = WF_F16;
    assert_ok(wf_call_check(f->dev, &halves));
    residual.in[WF_GEMM_RESIDUAL] = view(f, &at, WF_F32, 3, 3);
    refused(f, &residual, "in", 3, -1);
    wrong.p.eps = -1;
    refused(f, &wrong, "eps", 0, -1);
}

/* Gate and up of experts, with their room. */
static void fused_experts(void **state)
{
    fixture *f = *state;
    uint64_t at = 0;
    wf_call c = {.op = WF_OP_GROUPED_GEMM, .variant = -1, .p = {.silu = 1, .activation = WF_CLAMPED_SWIGLU}};
    c.in[WF_GROUPED_GEMM_X] = view(f, &at, WF_F16, 3, 64), c.in[WF_GROUPED_GEMM_W] = view(f, &at, WF_Q8_0, 4 * 10, 64);
    c.in[WF_GROUPED_GEMM_IDS] = view(f, &at, WF_I32, 3, 2),
    c.in[WF_GROUPED_GEMM_BIAS] = view(f, &at, WF_F32, 1, 4 * 10);
    c.out[WF_GROUPED_GEMM_Y] = view(f, &at, WF_F32, 3, 2 * 5),
    c.out[WF_GROUPED_GEMM_GEMM_WS] = view(f, &at, WF_F16, 3, 2 * 10);
    assert_true(wf_is_fused(&c));
    assert_ok(wf_call_check(f->dev, &c));
    wf_call silu = wf_piece_of(&c, WF_PIECE_AFTER), plain = wf_piece_of(&c, WF_PIECE_PRODUCT);
    assert_true(plain.out[0].cols == 20 && !plain.p.silu && wf_call_check(f->dev, &plain) == WEFT_OK);
    assert_true(silu.op == WF_OP_SILU_MUL && silu.in[0].rows == 3 && silu.in[0].cols == 20 && silu.p.groups == 2 &&
                wf_call_check(f->dev, &silu) == WEFT_OK);
    wf_call lacks = c, wide = c, gate = c, unfused = c;
    lacks.out[WF_GROUPED_GEMM_GEMM_WS].buf = NULL;
    assert_int_equal(wf_call_check(f->dev, &lacks), WEFT_ERR_UNSUPPORTED);
    wide.out[WF_GROUPED_GEMM_GEMM_WS].cols--;
    refused(f, &wide, "gemm_ws", 1, -1);
    gate.p.activation = WF_RELU;
    refused(f, &gate, "activation", 0, -1);
    unfused.p.silu = 0;
    refused(f, &unfused, "silu", 0, -1);
}

static wf_call fused_router(fixture *f, uint64_t *at)
{
    wf_call c = {.op = WF_OP_ROUTER, .variant = -1, .p = {.eps = 1e-5f, .scale = 1, .normalise = 1}};
    c.in[WF_ROUTER_X] = view(f, at, WF_F32, 3, 64), c.in[WF_ROUTER_W] = view(f, at, WF_Q8_0, 6, 64),
    c.in[WF_ROUTER_NORM] = view(f, at, WF_F32, 1, 64);
    c.out[WF_ROUTER_IDS] = view(f, at, WF_I32, 3, 2), c.out[WF_ROUTER_WEIGHTS] = view(f, at, WF_F32, 3, 2);
    c.out[WF_ROUTER_Y] = view(f, at, WF_F16, 3, 64), c.out[WF_ROUTER_SCORES_WS] = view(f, at, WF_F32, 3, 6);
    return c;
}

/* A norm and a product in front of the choice, all with what they take. */
static void fused_routers(void **state)
{
    fixture *f = *state;
    uint64_t at = 0;
    wf_call c = fused_router(f, &at);
    assert_ok(wf_call_check(f->dev, &c));
    for (int i = 0; i < WF_N_ROUTER_IN + WF_N_ROUTER_OUT; i++) {
        for (int how = -1; how < N_SPOILS; how++) {
            wf_call bad = c;
            wf_view *v = i < WF_N_ROUTER_IN ? &bad.in[i] : &bad.out[i - WF_N_ROUTER_IN];
            if (how < 0 && i == WF_N_ROUTER_IN + WF_ROUTER_SCORES_WS) continue;
            if (how < 0) v->buf = NULL;
            else if (!spoil(f, v, how)) continue;
            refused(f, &bad, "operand", i, how);
        }
    }
    wf_call lacks = c, many = c, eps = c;
    lacks.out[WF_ROUTER_SCORES_WS].buf = NULL; /* a workspace: the null device has no kernel that does without */
    assert_int_equal(wf_call_check(f->dev, &lacks), WEFT_ERR_UNSUPPORTED);
    many.out[WF_ROUTER_IDS] = view(f, &at, WF_I32, 3, 7), many.out[WF_ROUTER_WEIGHTS] = view(f, &at, WF_F32, 3, 7);
    refused(f, &many, "ids", 0, -1);
    eps.p.eps = -1;
    refused(f, &eps, "eps", 0, -1);
}

/* Where no kernel does all at once: the norm into y, of which the product is made, and the choice by its scores. */
static void pieces_of_routers(void **state)
{
    fixture *f = *state;
    uint64_t at = 0;
    wf_call c = fused_router(f, &at), part[3];
    enum wf_piece piece[WF_MAX_PIECES];
    assert_int_equal(wf_pieces(f->dev, &c, piece), 3);
    for (int i = 0; i < 3; i++) {
        part[i] = wf_piece_of(&c, piece[i]);
        if (wf_is_fused(&part[i]) || wf_call_check(f->dev, &part[i])) fail_msg("piece %d: %s", i, weft_last_error());
    }
    assert_true(part[0].op == WF_OP_RMSNORM && part[1].op == WF_OP_GEMM && part[2].op == WF_OP_ROUTER);
    assert_true(part[0].p.eps == c.p.eps && part[2].p.normalise);
    assert_int_equal(part[0].out[0].offset, c.out[WF_ROUTER_Y].offset);
    assert_int_equal(part[1].in[WF_GEMM_X].offset, c.out[WF_ROUTER_Y].offset);
    assert_int_equal(part[2].in[WF_ROUTER_X].offset, part[1].out[WF_GEMM_Y].offset);
    f->dev->has_fused_router = true;
    assert_int_equal(wf_pieces(f->dev, &c, piece), 1);
    f->dev->has_fused_router = false;
}

/* A rotation behind, with all that it takes. */
static void fused_ropes(void **state)
{
    fixture *f = *state;
    uint64_t at = 0;
    wf_call c = {.op = WF_OP_GEMM, .variant = -1};
    c.p = (wf_op_params){.rope = 1, .n_head = 4, .n_kv_head = 2, .head_dim = 8, .n_rot = 8, .page_tokens = 4};
    c.in[WF_GEMM_X] = view(f, &at, WF_F16, 3, 64), c.in[WF_GEMM_W] = view(f, &at, WF_Q8_0, 64, 64);
    c.in[WF_GEMM_TABLE] = view(f, &at, WF_F32, 20, 8);
    c.in[WF_GEMM_POS] = view(f, &at, WF_I32, 1, 3), c.in[WF_GEMM_SLOT] = view(f, &at, WF_I32, 3, 1);
    c.out[WF_GEMM_Y] = view(f, &at, WF_F32, 3, 32);
    c.out[WF_GEMM_GEMM_WS] = view(f, &at, WF_F16, 3, 64), c.out[WF_GEMM_K_POOL] = view(f, &at, WF_F16, 6, 64);
    c.out[WF_GEMM_V_POOL] = view(f, &at, WF_F16, 6, 64);
    assert_true(wf_is_fused(&c));
    assert_ok(wf_call_check(f->dev, &c));
    for (int i = WF_GEMM_TABLE; i < WF_MAX_IN + WF_MAX_OUT; i++) {
        for (int how = -1; how < N_SPOILS; how++) {
            wf_call bad = c;
            wf_view *v = i < WF_MAX_IN ? &bad.in[i] : &bad.out[i - WF_MAX_IN];
            if (!v->buf || (i == WF_GEMM_TABLE && how == 0)) continue; /* more positions do no harm */
            if (how < 0 && i == WF_MAX_IN + WF_GEMM_GEMM_WS) continue; /* as above */
            if (how < 0) v->buf = NULL;
            else if (!spoil(f, v, how)) continue;
            refused(f, &bad, "operand", i, how);
        }
    }
    wf_call silu = c, residual = c, heads = c, plain = c;
    silu.p.silu = 1;
    refused(f, &silu, "silu", 0, -1);
    residual.in[WF_GEMM_RESIDUAL] = view(f, &at, WF_F32, 3, 32);
    refused(f, &residual, "in", 3, -1);
    heads.p.n_head = 6;
    refused(f, &heads, "heads", 0, -1);
    plain.p.rope = 0;
    refused(f, &plain, "rope", 0, -1);
}

/* ---- params, aliasing ----------------------------------------------------------------------------------- */

static void spoilt_params_are_refused(void **state)
{
    fixture *f = *state;
    wf_call c;
#define REFUSED(op, change)                                                                       \
    do {                                                                                          \
        c = good(f, op);                                                                          \
        change;                                                                                   \
        refused(f, &c, #change, 0, 0);                                                            \
    } while (0)
    REFUSED(WF_OP_SILU_MUL, c.p.activation = WF_GELU);
    REFUSED(WF_OP_GEMM, (c.p.silu = 1, c.p.activation = WF_CLAMPED_SWIGLU));
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_SINKS].cols = c.in[WF_ATTENTION_SINKS].stride = 2);
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_AROUND].cols = c.in[WF_ATTENTION_AROUND].stride = 1); /* of rows */
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_WINDOWS].buf = NULL); /* there is nothing around */
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_WINDOWS].cols = c.in[WF_ATTENTION_WINDOWS].stride = 2); /* of KV heads */
    REFUSED(WF_OP_RMSNORM, c.in[WF_RMSNORM_RESIDUAL].cols = 9);
    REFUSED(WF_OP_RMSNORM, (c.in[WF_RMSNORM_RESIDUAL].dtype = WF_F32, c.in[WF_RMSNORM_RESIDUAL].stride = 10));
    REFUSED(WF_OP_GEMM, c.in[WF_GEMM_RESIDUAL].dtype = WF_F16);
    REFUSED(WF_OP_WEIGHTED_SUM, c.in[WF_WEIGHTED_SUM_RESIDUAL].dtype = WF_F16);
    REFUSED(WF_OP_ROUTER, c.in[WF_ROUTER_X].dtype = WF_F16); /* scores */
    REFUSED(WF_OP_RMSNORM, c.p.eps = -1);
    REFUSED(WF_OP_RMSNORM, c.p.eps = NAN);
    REFUSED(WF_OP_LAYERNORM, c.p.eps = NAN);
    REFUSED(WF_OP_GET_ROWS, c.p.gain = INFINITY);
    REFUSED(WF_OP_GET_ROWS, c.in[WF_GET_ROWS_ADD] = c.in[WF_GET_ROWS_IDS]);
    REFUSED(WF_OP_ACTIVATE, c.p.activation = WF_N_ACTIVATIONS);
    REFUSED(WF_OP_ACTIVATE, c.out[WF_ACTIVATE_Y].cols--);
    REFUSED(WF_OP_RMSNORM, c.in[WF_RMSNORM_W].cols = c.in[WF_RMSNORM_W].stride = 3);
    REFUSED(WF_OP_RMSNORM, c.in[WF_RMSNORM_W].cols = c.in[WF_RMSNORM_W].stride = 20);
    c = good(f, WF_OP_RMSNORM); /* two groups */
    c.in[WF_RMSNORM_W].cols = c.in[WF_RMSNORM_W].stride = 5;
    assert_ok(wf_call_check(f->dev, &c));
    REFUSED(WF_OP_ATTENTION, c.p.scale = NAN);
    REFUSED(WF_OP_ATTENTION, c.p.softcap = -1);
    REFUSED(WF_OP_ATTENTION, c.p.softcap = INFINITY);
    REFUSED(WF_OP_ATTENTION, c.p.sink = WF_MAX_SINK + 1);
    REFUSED(WF_OP_ATTENTION, c.p.scale = INFINITY);
    REFUSED(WF_OP_ATTENTION, c.p.phi = NAN);
    REFUSED(WF_OP_ATTENTION, c.p.phi_hi = INFINITY);
    REFUSED(WF_OP_ATTENTION, (c.p.phi_lo = 1, c.p.phi_hi = -1));
    REFUSED(WF_OP_ATTENTION, c.p.n_head = 0);
    REFUSED(WF_OP_ATTENTION, c.p.n_kv_head = 0);
    REFUSED(WF_OP_ATTENTION, c.p.n_kv_head = 3);
    REFUSED(WF_OP_ATTENTION, c.p.head_dim = 0);
    REFUSED(WF_OP_ATTENTION, c.p.page_tokens = 0);
    REFUSED(WF_OP_ATTENTION, c.p.page_tokens = UINT32_MAX);
    REFUSED(WF_OP_ATTENTION, c.p.head_dim = 1u << 31);
    REFUSED(WF_OP_ATTENTION, (c.p.n_head = 1u << 31, c.p.n_kv_head = 1u << 31, c.p.page_tokens = 1u << 31));
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_INDPTR].cols = c.in[WF_ATTENTION_INDPTR].stride = 1);
    REFUSED(WF_OP_ATTENTION, (c.in[WF_ATTENTION_K_POOL].rows = 3));
    /* another stride than V's */
    REFUSED(WF_OP_ATTENTION, (c.in[WF_ATTENTION_K_POOL].rows = c.in[WF_ATTENTION_V_POOL].rows = 2,
                              c.in[WF_ATTENTION_K_POOL].stride = 96));
    REFUSED(WF_OP_ATTENTION, c.in[WF_ATTENTION_K_POOL].stride = c.in[WF_ATTENTION_V_POOL].stride = UINT32_MAX);
    REFUSED(WF_OP_ROPE_KV,
            (c.out[WF_ROPE_KV_K_POOL].rows = c.out[WF_ROPE_KV_V_POOL].rows = 2, c.out[WF_ROPE_KV_V_POOL].stride = 96));
    REFUSED(WF_OP_PAGE_COPY, c.in[WF_PAGE_COPY_FROM].stride = UINT32_MAX);
    REFUSED(WF_OP_ROPE_KV, c.p.n_rot = 0);
    REFUSED(WF_OP_ROPE_KV, c.p.n_rot = 3);
    REFUSED(WF_OP_ROPE_KV, c.p.n_rot = 16);
    REFUSED(WF_OP_ROPE_KV, c.p.neox = 2);
    REFUSED(WF_OP_ROPE_KV, c.p.n_kv_head = 4);
    REFUSED(WF_OP_GEMM, c.variant = 1);
    REFUSED(WF_OP_GEMM, c.op = WF_N_OPS);
    REFUSED(WF_OP_GEMM, c.op = (enum wf_op)-1);
#undef REFUSED
}

static void overlaps_are_refused(void **state)
{
    fixture *f = *state;
    wf_call c = good(f, WF_OP_RMSNORM);
    c.out[WF_RMSNORM_Y].offset = c.in[WF_RMSNORM_X].offset;
    refused(f, &c, "y over x", 0, 0);
    c = good(f, WF_OP_GEMM);
    c.in[WF_GEMM_RESIDUAL] = c.out[WF_GEMM_Y];
    c.in[WF_GEMM_RESIDUAL].offset += 0;
    c.in[WF_GEMM_RESIDUAL].rows = c.out[WF_GEMM_Y].rows;
    c.out[WF_GEMM_Y].stride = c.in[WF_GEMM_RESIDUAL].stride + 1;
    refused(f, &c, "residual almost Y", 3, 0);
    c = good(f, WF_OP_ROPE_KV);
    c.out[WF_ROPE_KV_V_POOL].offset = c.out[WF_ROPE_KV_K_POOL].offset + 64;
    refused(f, &c, "V over K", 2, 0);
    c = good(f, WF_OP_RMSNORM);
    c.in[WF_RMSNORM_RESIDUAL] = c.out[WF_RMSNORM_Y];
    c.in[WF_RMSNORM_RESIDUAL].dtype = WF_F32;
    refused(f, &c, "residual of another dtype over y", 2, 0);
    c = good(f, WF_OP_RMSNORM); /* columns 0..16 and 16..32 of one matrix do not overlap */
    c.in[WF_RMSNORM_RESIDUAL].buf = NULL;
    c.in[WF_RMSNORM_X].cols = c.in[WF_RMSNORM_W].cols = c.in[WF_RMSNORM_W].stride = 16;
    c.in[WF_RMSNORM_X].stride = 32;
    c.out[WF_RMSNORM_Y] = c.in[WF_RMSNORM_X];
    c.out[WF_RMSNORM_Y].offset += 64;
    c.in[WF_RMSNORM_W].offset = 4096;
    assert_ok(wf_call_check(f->dev, &c));
    c.out[WF_RMSNORM_Y].cols = c.in[WF_RMSNORM_X].cols = c.in[WF_RMSNORM_W].cols = c.in[WF_RMSNORM_W].stride = 17;
    refused(f, &c, "17 columns 16 apart", 0, 0);
}

/* Element-wise ops write over what they read, where that is the first columns of it. */
static void results_in_place(void **state)
{
    fixture *f = *state;
    wf_call c = good(f, WF_OP_SILU_MUL), gelu = good(f, WF_OP_ACTIVATE);
    const wf_view gu = c.in[WF_SILU_MUL_GU];
    c.out[WF_SILU_MUL_Y] = gu;
    c.out[WF_SILU_MUL_Y].cols /= 2;
    assert_ok(wf_call_check(f->dev, &c));
    c.p.groups = 2;
    refused(f, &c, "two groups in place", 0, 0);
    c.p.groups = 1;
    c.out[WF_SILU_MUL_Y].offset += c.out[WF_SILU_MUL_Y].cols * wf_dtypes[gu.dtype].block_bytes;
    refused(f, &c, "y over up", 0, 0);
    gelu.out[WF_ACTIVATE_Y] = gelu.in[WF_ACTIVATE_X];
    assert_ok(wf_call_check(f->dev, &gelu));
    gelu.out[WF_ACTIVATE_Y].dtype = gelu.in[WF_ACTIVATE_X].dtype == WF_F16 ? WF_F32 : WF_F16;
    refused(f, &gelu, "y of another dtype over x", 0, 0);
}

/* And a product writes its gated result over gate in its workspace. */
static void results_in_a_workspace(void **state)
{
    fixture *f = *state;
    wf_call c = good(f, WF_OP_GEMM), silu;
    c.in[WF_GEMM_RESIDUAL] = c.in[WF_GEMM_BIAS] = (wf_view){0};
    c.in[WF_GEMM_W].rows = 6;
    c.out[WF_GEMM_GEMM_WS] = c.out[WF_GEMM_Y];
    c.out[WF_GEMM_GEMM_WS].cols = c.out[WF_GEMM_GEMM_WS].stride = c.out[WF_GEMM_Y].stride = 6;
    c.out[WF_GEMM_Y].cols = 3;
    c.p.silu = 1;
    silu = wf_piece_of(&c, WF_PIECE_AFTER);
    assert_ok(wf_call_check(f->dev, &c));
    assert_ok(wf_call_check(f->dev, &silu));
    c.out[WF_GEMM_Y].offset += 4;
    refused(f, &c, "Y beside gate", 0, -1);
}

/* Whatever is accepted stays inside its buffer: fields at random, from values that break arithmetic. */
static void random_calls(void **state)
{
    static const uint32_t nasty[] = {0, 1, 2, 3, 4, 8, 16, 32, 64, 255, 256, 65536, 1u << 31, UINT32_MAX};
    fixture *f = *state;
    uint64_t seed = wf_now_ns(), n = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 200000; round++) {
        wf_call c = good(f, (enum wf_op)(round % WF_N_OPS));
        for (int change = 0; change < 1 + round % 3; change++) {
            wf_view *v = &c.in[wf_random(seed, n++) % wf_ops[c.op].n_in];
            if (wf_random(seed, n++) % 3 == 0) v = &c.out[wf_random(seed, n++) % wf_ops[c.op].n_out];
            uint32_t x = nasty[wf_random(seed, n++) % WF_LEN(nasty)];
            uint32_t *fields[] = {&v->rows, &v->cols, &v->stride, &c.p.n_head, &c.p.n_kv_head,
                                  &c.p.head_dim, &c.p.page_tokens, &c.p.n_rot};
            *fields[wf_random(seed, n++) % WF_LEN(fields)] = x;
            if (wf_random(seed, n++) % 8 == 0) v->offset = wf_random(seed, n++) & ~63ull;
            if (wf_random(seed, n++) % 8 == 0) v->dtype = (uint8_t)(wf_random(seed, n++) % (WF_N_DTYPES + 2));
        }
        if (wf_call_check(f->dev, &c)) continue;
        for (int i = 0; i < wf_ops[c.op].n_in + wf_ops[c.op].n_out; i++) {
            const wf_view *v = i < wf_ops[c.op].n_in ? &c.in[i] : &c.out[i - wf_ops[c.op].n_in];
            if (!v->buf) continue;
            const wf_dtype_info *t = &wf_dtypes[v->dtype];
            double end = (((double)v->rows - 1) * v->stride + v->cols) / t->block * t->block_bytes;
            assert_true((double)v->offset + end <= BUF_BYTES);
        }
    }
}

/* ---- transfers and events --------------------------------------------------------------------------------- */

static void transfers_and_events(void **state)
{
    fixture *f = *state;
    char host[64] = {0};
    wf_queue *q;
    wf_event *mine, *theirs;
    assert_ok(wf_queue_create(f->dev, &q));
    assert_ok(wf_event_create(f->dev, &mine));
    assert_ok(wf_event_create(f->other, &theirs));
    assert_int_equal(wf_write(q, f->buf, BUF_BYTES - 63, host, 64, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->buf, UINT64_MAX, host, 64, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->buf, 0, NULL, 64, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->foreign, 0, host, 64, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->buf, 0, host, 64, NULL, 0, theirs), WEFT_ERR_ARG);
    assert_int_equal(wf_read(q, f->buf, 1, host, UINT64_MAX, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_read(q, NULL, 0, host, 64, NULL, 0, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->buf, 0, host, 64, &theirs, 1, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_write(q, f->buf, 0, host, 64, &mine, 1, mine), WEFT_ERR_ARG);
    assert_int_equal(wf_read(q, f->buf, 0, host, 64, NULL, 1, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_read(q, f->buf, 0, host, 64, &theirs, 1, NULL), WEFT_ERR_ARG);
    assert_int_equal(wf_fill(q, f->buf, 2, 4, 0), WEFT_ERR_ARG);
    assert_int_equal(wf_fill(q, f->buf, 0, 6, 0), WEFT_ERR_ARG);
    assert_int_equal(wf_mark(q, &theirs, 1, mine), WEFT_ERR_ARG);
    assert_int_equal(wf_mark(q, &mine, 1, mine), WEFT_ERR_ARG);
    assert_int_equal(wf_mark(q, NULL, 1, mine), WEFT_ERR_ARG);
    assert_ok(wf_write(q, f->buf, BUF_BYTES - 64, host, 64, NULL, 0, mine));
    assert_ok(wf_read(q, f->buf, 0, host, 64, &mine, 1, NULL));
    assert_ok(wf_wait(mine, 1000));
    wf_buf *none;
    assert_int_equal(wf_buf_create(f->dev, 0, &none), WEFT_ERR_ARG);
    assert_int_equal(wf_buf_create(f->dev, UINT64_MAX, &none), WEFT_ERR_NOMEM);
    assert_int_equal(wf_buf_wrap(f->dev, host, 64, 64, &none), WEFT_ERR_UNSUPPORTED);
    wf_event_destroy(mine);
    wf_event_destroy(theirs);
    wf_queue_destroy(q);
}

/* ---- device names -------------------------------------------------------------------------------------------- */

static void expect_device(const char *spec, const char *id)
{
    wf_dev *dev = NULL;
    if (wf_dev_open(spec, NULL, &dev)) fail_msg("%s: %s", spec ? spec : "NULL", weft_last_error());
    assert_string_equal(dev->info.id, id);
    assert_int_not_equal(dev->params.watchdog_ms, 0);
    wf_dev_close(dev);
}

static void device_names(void **state)
{
    wf_dev *dev = NULL;
    struct weft_device_info all[32];
    size_t n = wf_dev_list(all, WF_LEN(all)), gpus = 0;
    assert_in_range(n, 1, WF_LEN(all));
    for (size_t i = 0; i < n; i++) {
        assert_string_not_equal(all[i].id, "null");
        gpus += all[i].type == WEFT_DEVICE_GPU;
    }
    expect_device("cpu", "cpu");
    expect_device("CPU", "cpu");
    expect_device("null", "null");
    if (!gpus) { /* an OpenCL device of CPU type is not picked unless asked for */
        expect_device(NULL, "cpu");
        expect_device("", "cpu");
        expect_device("auto", "cpu");
        assert_error(wf_dev_open("gpu", NULL, &dev), WEFT_ERR_NODEVICE, "no GPU found");
    }
    assert_int_equal(wf_dev_open("opencl:99.7", NULL, &dev), WEFT_ERR_NODEVICE);
    assert_null(dev);
    assert_says("opencl:99.7");
    assert_says("cpu (");
    assert_int_equal(wf_dev_list(NULL, 0), n);
}

static void tiers(void **state)
{
    enum wf_tier t;
    for (int i = 0; i <= WF_TIER_MATRIX; i++) {
        assert_ok(wf_tier_parse(wf_tier_name((enum wf_tier)i), &t));
        assert_int_equal(t, i);
    }
    assert_ok(wf_tier_parse(NULL, &t));
    assert_int_equal(t, WF_TIER_MATRIX);
    assert_int_equal(wf_tier_parse("fast", &t), WEFT_ERR_ARG);
}

SUITE_EACH(dev_front, NULL, NULL, setup, teardown, CASE(good_calls_pass), CASE(spoilt_operands_are_refused),
           CASE(missing_and_extra_operands), CASE(fused_gemms), CASE(fused_experts), CASE(fused_routers),
           CASE(pieces_of_routers), CASE(fused_ropes), CASE(spoilt_params_are_refused), CASE(overlaps_are_refused),
           CASE(results_in_place), CASE(results_in_a_workspace), CASE(random_calls), CASE(transfers_and_events),
           CASE(device_names), CASE(tiers))
