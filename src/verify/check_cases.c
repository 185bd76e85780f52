/* check_cases.c: the problems of weft_selftest, and a case as text. */
#include "verify/check.h"

#include <stdio.h>
#include <string.h>

static const char *const activations[] = {"silu", "relu", "gelu", "gelu_tanh", "softcap"};
_Static_assert(WF_LEN(activations) == WF_N_ACTIVATIONS, "a name for each activation");

static int text_heads(const wf_case *c, char *buf, size_t cap)
{
    const wf_op_params *p = &c->p;
    return snprintf(buf, cap, "heads %u/%u x %u rot %u%s page %u", p->n_head, p->n_kv_head, p->head_dim, p->n_rot,
                    p->neox ? " neox" : "", p->page_tokens);
}

static int text_shape(const wf_case *c, char *buf, size_t cap)
{
    const wf_op_params *p = &c->p;
    int n;
    switch (c->op) {
    case WF_OP_GET_ROWS:
        n = snprintf(buf, cap, "%u of %u x %u", c->m, c->n, c->k);
        return p->gain && n > 0 && (size_t)n < cap ? n + snprintf(buf + n, cap - (size_t)n, " x %g", p->gain) : n;
    case WF_OP_GEMM:
        n = snprintf(buf, cap, "M %u N %u K %u%s", c->m, c->n, c->k, p->rope ? " rope " : "");
        return p->rope && n > 0 && (size_t)n < cap ? n + text_heads(c, buf + n, cap - (size_t)n) : n;
    case WF_OP_ROPE_KV:
        n = snprintf(buf, cap, "M %u ", c->m);
        return n > 0 && (size_t)n < cap ? n + text_heads(c, buf + n, cap - (size_t)n) : n;
    case WF_OP_ATTENTION:
        return snprintf(buf, cap, "%u seqs kv %u q %u heads %u/%u x %u page %u%s%s", c->n_seqs, c->max_kv, c->max_q,
                        p->n_head, p->n_kv_head, p->head_dim, p->page_tokens,
                        (const char *[]){"", " windows", " wide windows", " windows around"}[c->windows],
                        c->sinks ? " sinks" : "");
    case WF_OP_ACTIVATE:
        return snprintf(buf, cap, "%u x %u %s%s", c->m, c->k, activations[p->activation],
                        c->in_place ? " in place" : "");
    case WF_OP_SILU_MUL: return snprintf(buf, cap, "%u x %u%s", c->m, c->k, c->in_place ? " in place" : "");
    case WF_OP_ROUTER:
        n = snprintf(buf, cap, "%u x %u top %u", c->m, c->k, c->used);
        return c->norm && n > 0 && (size_t)n < cap ? n + snprintf(buf + n, cap - (size_t)n, " of %u", c->n) : n;
    case WF_OP_GROUPED_GEMM:
        return snprintf(buf, cap, "M %u N %u K %u experts %u of %u%s", c->m, c->n, c->k, c->used, c->n_experts,
                        c->one_x ? " one x" : "");
    case WF_OP_WEIGHTED_SUM: return snprintf(buf, cap, "%u x %u x %u", c->m, c->used, c->k);
    case WF_OP_RMSNORM: return snprintf(buf, cap, "%u x %u x %u", c->m, WF_MAX(c->n, 1u), c->k);
    case WF_OP_PAGE_COPY:
        return snprintf(buf, cap, "%u of %u pages x %u%s", c->m, c->n, c->k, c->in_place ? " in one pool" : "");
    case WF_OP_TOKEN_SUBST: return snprintf(buf, cap, "%u of %u%s", c->m, c->k, c->in_place ? " in place" : "");
    default: return snprintf(buf, cap, "%u x %u", c->m, c->k);
    }
}

void wf_case_text(const wf_case *c, char *buf, size_t cap)
{
    int n = text_shape(c, buf, cap);
    if (n < 0 || (size_t)n >= cap) return;
    if (c->p.phi_lo < c->p.phi_hi && (size_t)n < cap) {
        n += snprintf(buf + n, cap - (size_t)n, " phi %g %g %g", c->p.phi, c->p.phi_lo, c->p.phi_hi);
    }
    if ((size_t)n >= cap) return;
    bool weight = wf_case_has_weight(c), product = weight && c->op != WF_OP_GET_ROWS;
    snprintf(buf + n, cap - (size_t)n, " %s%s%s>%s%s%s%s%s%s%s%s", c->op == WF_OP_GET_ROWS ? "" : wf_dtypes[c->in].name,
             product ? "*" : "", weight ? wf_dtypes[c->weight].name : "", wf_dtypes[c->out].name,
             c->bias && product ? " bias" : "", c->residual ? c->in_place ? " residual=Y" : " residual" : "",
             c->norm ? " norm" : "", c->p.silu ? " silu" : "",
             c->p.activation == WF_GELU_TANH        ? " gelu"
             : c->p.activation == WF_CLAMPED_SWIGLU ? " clamped"
                                                    : "",
             c->pad ? " padded" : "", c->kv == WF_Q8_0 ? " kv Q8_0" : "");
}

/* At least one row for each op but the row-wise ones, which are alike; the code below varies dtypes and a few flags
 * over all their values. */
static const wf_case small[] = {
    {.op = WF_OP_GET_ROWS, .m = 9, .n = 37, .k = 512, .pad = 3},
    {.op = WF_OP_GET_ROWS, .m = 7, .n = 12, .k = 256, .residual = true, .pad = 5, .p = {.gain = 12}},
    {.op = WF_OP_RMSNORM, .m = 5, .n = 6, .k = 64, .pad = 4},
    {.op = WF_OP_RMSNORM, .m = 7, .k = 320, .residual = true, .in_place = true},
    {.op = WF_OP_SILU_MUL, .m = 4, .k = 330, .p = {.activation = WF_GELU_TANH}},
    {.op = WF_OP_SILU_MUL, .m = 4, .k = 330, .p = {.activation = WF_CLAMPED_SWIGLU}},
    {.op = WF_OP_SILU_MUL, .m = 4, .k = 330, .pad = 4, .p = {.groups = 3}},
    {.op = WF_OP_SILU_MUL, .m = 5, .k = 332, .in_place = true, .pad = 4},
    {.op = WF_OP_GEMM, .m = 1, .n = 67, .k = 512, .bias = true},
    {.op = WF_OP_GEMM, .m = 7, .n = 129, .k = 256, .residual = true, .pad = 4},
    {.op = WF_OP_GEMM, .m = 70, .n = 96, .k = 768, .residual = true, .in_place = true},
    {.op = WF_OP_ROPE_KV, .m = 7, .n = 40, .pad = 2,
     .p = {.n_head = 6, .n_kv_head = 2, .head_dim = 64, .n_rot = 64, .page_tokens = 16}},
    {.op = WF_OP_ROPE_KV, .m = 5, .n = 40,
     .p = {.n_head = 2, .n_kv_head = 2, .head_dim = 80, .n_rot = 40, .page_tokens = 16}},
    {.op = WF_OP_ROPE_KV, .m = 5, .n = 40,
     .p = {.n_head = 2, .n_kv_head = 2, .head_dim = 80, .n_rot = 40, .neox = 1, .page_tokens = 16}},
    {.op = WF_OP_ROPE_KV, .m = 7, .n = 40, .pad = 2, .kv = WF_Q8_0,
     .p = {.n_head = 6, .n_kv_head = 2, .head_dim = 64, .n_rot = 40, .page_tokens = 16}},
    {.op = WF_OP_ROPE_KV, .m = 5, .n = 40, .kv = WF_Q8_0,
     .p = {.n_head = 2, .n_kv_head = 2, .head_dim = 96, .n_rot = 96, .neox = 1, .page_tokens = 4}},
    {.op = WF_OP_ATTENTION, .n_seqs = 4, .max_kv = 77, .max_q = 1, .pad = 4, .kv = WF_Q8_0,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16, .phi_lo = -6, .phi_hi = 7}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 21, .kv = WF_Q8_0,
     .p = {.n_head = 4, .n_kv_head = 4, .head_dim = 128, .page_tokens = 16, .phi = 1, .phi_lo = -2, .phi_hi = 3}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 21, .windows = WF_WINDOWS_MIXED, .kv = WF_Q8_0,
     .p = {.n_head = 4, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16, .softcap = 1.5f}},
    {.op = WF_OP_ATTENTION, .n_seqs = 4, .max_kv = 77, .max_q = 1, .pad = 4,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16, .phi_lo = -6, .phi_hi = 7}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 21,
     .p = {.n_head = 4, .n_kv_head = 4, .head_dim = 128, .page_tokens = 16, .phi = 1, .phi_lo = -2, .phi_hi = 3}},
    /* several chunks of attention_split, whole ones too */
    {.op = WF_OP_ATTENTION, .n_seqs = 2, .max_kv = 610, .max_q = 40,
     .p = {.n_head = 4, .n_kv_head = 1, .head_dim = 128, .page_tokens = 16, .phi = 1, .phi_lo = -2, .phi_hi = 3}},
    {.op = WF_OP_ATTENTION, .n_seqs = 4, .max_kv = 77, .max_q = 1, .windows = WF_WINDOWS_MIXED,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16, .sink = 5}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 21, .windows = WF_WINDOWS_MIXED,
     .p = {.n_head = 4, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16, .softcap = 1.5f}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 21, .windows = WF_WINDOWS_MIXED, .sinks = true,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16}},
    {.op = WF_OP_ATTENTION, .n_seqs = 3, .max_kv = 90, .max_q = 90, .windows = WF_WINDOWS_AROUND,
     .p = {.n_head = 8, .n_kv_head = 4, .head_dim = 64, .page_tokens = 16, .sink = 3}},
    {.op = WF_OP_ATTENTION, .n_seqs = 4, .max_kv = 77, .max_q = 1, .sinks = true,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16}},
    {.op = WF_OP_ACTIVATE, .m = 4, .k = 330, .p = {.activation = WF_SOFTCAP, .softcap = 3}},
    {.op = WF_OP_ACTIVATE, .m = 3, .k = 331, .pad = 5, .p = {.activation = WF_RELU}},
    {.op = WF_OP_ACTIVATE, .m = 3, .k = 331, .pad = 5, .p = {.activation = WF_GELU}},
    {.op = WF_OP_ACTIVATE, .m = 3, .k = 332, .p = {.activation = WF_GELU_TANH}},
    {.op = WF_OP_ACTIVATE, .m = 5, .k = 331, .in_place = true, .pad = 5},
    {.op = WF_OP_ROUTER, .m = 9, .k = 67, .used = 5, .pad = 3, .p = {.normalise = 1}},
    {.op = WF_OP_ROUTER, .m = 1, .n = 8, .k = 1024, .used = 2, .norm = true},
    {.op = WF_OP_ROUTER, .m = 5, .n = 70, .k = 512, .used = 6, .norm = true, .pad = 3},
    {.op = WF_OP_GROUPED_GEMM, .m = 1, .n = 35, .k = 512, .n_experts = 5, .used = 3, .one_x = true, .bias = true},
    {.op = WF_OP_GROUPED_GEMM, .m = 37, .n = 80, .k = 256, .n_experts = 4, .used = 2, .pad = 8},
    /* for kernels of one token and whole blocks of rows */
    {.op = WF_OP_GROUPED_GEMM, .m = 1, .n = 48, .k = 512, .n_experts = 5, .used = 2},
    {.op = WF_OP_GROUPED_GEMM, .m = 1, .n = 32, .k = 512, .n_experts = 3, .used = 2, .one_x = true, .p = {.silu = 1}},
    {.op = WF_OP_GROUPED_GEMM, .m = 37, .n = 64, .k = 256, .n_experts = 3, .used = 2, .one_x = true, .pad = 8,
     .p = {.silu = 1}},
    {.op = WF_OP_GROUPED_GEMM, .m = 3, .n = 38, .k = 256, .n_experts = 3, .used = 3, .one_x = true, .bias = true,
     .p = {.silu = 1, .activation = WF_CLAMPED_SWIGLU}},
    {.op = WF_OP_WEIGHTED_SUM, .m = 7, .k = 130, .used = 3, .bias = true, .residual = true, .in_place = true, .pad = 4},
    {.op = WF_OP_WEIGHTED_SUM, .m = 7, .k = 130, .used = 2, .residual = true, .pad = 4},
    {.op = WF_OP_ARGMAX, .in = WF_F32, .out = WF_I32, .m = 5, .k = 1031, .pad = 3},
    {.op = WF_OP_SAMPLE, .in = WF_F32, .out = WF_I32, .m = 9, .k = 331, .pad = 3},
    {.op = WF_OP_SAMPLE, .in = WF_F32, .out = WF_I32, .m = 6, .k = 1100},
    {.op = WF_OP_PAGE_COPY, .in = WF_F16, .out = WF_F16, .m = 9, .n = 14, .k = 260, .pad = 3},
    {.op = WF_OP_PAGE_COPY, .in = WF_F16, .out = WF_F16, .m = 6, .n = 14, .k = 512, .in_place = true, .pad = 8},
    {.op = WF_OP_TOKEN_SUBST, .in = WF_I32, .out = WF_I32, .m = 70, .k = 33, .in_place = true},
};

/* An operand of that kind that is always there? */
static bool takes(enum wf_op op, enum wf_operand_kind kind)
{
    int i = wf_op_input(op, kind);
    return i >= 0 && !(wf_ops[op].in[i].what & WF_OPERAND_OPTIONAL);
}

static bool takes_weight(enum wf_op op)
{
    return takes(op, WF_OPERAND_WEIGHT);
}

bool wf_case_has_weight(const wf_case *c)
{
    return takes_weight(c->op) || (c->op == WF_OP_ROUTER && c->norm);
}

bool wf_op_row_wise(enum wf_op op)
{
    return wf_op_input(op, WF_OPERAND_BY_ROW) == 0 && !takes_weight(op) && !takes(op, WF_OPERAND_I32);
}

bool wf_op_fixed(enum wf_op op)
{
    return !takes_weight(op) && !(wf_ops[op].in[0].what & WF_OPERAND_ACT) && !(wf_ops[op].out[0].what & WF_OPERAND_ACT);
}

/* Fills in the v-th choice of dtypes; false past the last. */
static bool dtypes_of(wf_case *c, size_t v)
{
    static const uint8_t acts[] = {WF_F32, WF_F16};
    bool router = c->op == WF_OP_ROUTER && c->norm; /* whose activations are an output behind the first */
    if (wf_op_fixed(c->op) || (c->op == WF_OP_ROUTER && !router)) return v == 0;
    size_t n_weights = wf_case_has_weight(c) ? WF_N_WEIGHT_DTYPES : 1;
    size_t n_acts = wf_ops[c->op].in[0].what & WF_OPERAND_ACT ? 2 : 1;
    size_t n_outs = (!(wf_ops[c->op].out[0].what & WF_OPERAND_ACT) && !router) || c->in_place ? 1 : 2;
    if (v >= n_weights * n_acts * n_outs) return false;
    c->weight = (uint8_t)(v % n_weights);
    c->in = acts[v / n_weights % n_acts];
    c->out = c->in_place ? c->in : acts[v / n_weights / n_acts];
    return true;
}

/* Row i of all: those above, then one for each row-wise op; false past the last. */
static bool small_row(size_t i, wf_case *out)
{
    if (i < WF_LEN(small)) return *out = small[i], true;
    i -= WF_LEN(small);
    for (int op = 0; op < WF_N_OPS; op++)
        if (wf_op_row_wise((enum wf_op)op) && !i--)
            return *out = (wf_case){.op = (enum wf_op)op, .m = 3, .k = 331, .pad = 5}, true;
    return false;
}

bool wf_case_small(size_t i, uint64_t seed, wf_case *out)
{
    for (size_t row = 0, v = 0; small_row(row, out);) {
        out->seed = wf_random(seed, i);
        if (!dtypes_of(out, v)) {
            row++;
            v = 0;
        } else if (v++, !i--) {
            return true;
        }
    }
    return false;
}

/* Two tiles of 128 rows of X and of W, neither full, and K enough to cut in eight; keys for more than one work-group.
 */
static const wf_case larger[] = {
    {.op = WF_OP_GEMM, .in = WF_F16, .weight = WF_F16, .out = WF_F16, .m = 136, .n = 132, .k = 512, .residual = true},
    {.op = WF_OP_ATTENTION, .n_seqs = 1, .max_kv = 512, .max_q = 1,
     .p = {.n_head = 8, .n_kv_head = 2, .head_dim = 64, .page_tokens = 16}},
};

size_t wf_cases_larger(const wf_case **out)
{
    *out = larger;
    return WF_LEN(larger);
}
