/* roofline.c: see roofline.h. */
#include "dev/roofline.h"

#include <math.h>
#include <string.h>

/* ---- data -------------------------------------------------------------------------------------------------------- */

static const char *const units[WF_N_ARITH] = {
    [WF_ARITH_F32] = "f32", [WF_ARITH_F16] = "f16", [WF_ARITH_Q8] = "q8", [WF_ARITH_I8] = "dot"};

static wf_cost device_cost(const char *name, double value)
{
    wf_cost c = {.of = "device", .value = value};
    wf_copy(c.name, sizeof c.name, name);
    return c;
}

size_t wf_ceiling_costs(const wf_ceilings *top, wf_cost out[WF_CEILING_COSTS])
{
    size_t n = 0;
    if (top->read > 0) out[n++] = device_cost("read", top->read * 1e-9);
    for (size_t i = 0; i < WF_N_ARITH; i++)
        if (top->ops[i] > 0) out[n++] = device_cost(units[i], top->ops[i] * 1e-12);
    return n;
}

static bool set_efficiency(wf_efficiency *e, const char *name, double value)
{
    if (value > 1) return false;
    if (!strcmp(name, "memory")) return e->memory = (float)value, true;
    if (!strcmp(name, "compute")) return e->compute = (float)value, true;
    return false;
}

/* What an "op" or "op/variant" is about; NULL: nothing that the device has. */
static wf_efficiency *find_efficiency(wf_roofline *r, wf_dev *dev, const char *of)
{
    size_t n = strcspn(of, "/");
    for (int op = 0; op < WF_N_OPS; op++) {
        if (strlen(wf_ops[op].name) != n || strncmp(of, wf_ops[op].name, n)) continue;
        int v = of[n] ? wf_variant_find(dev, (enum wf_op)op, of + n + 1) : -1;
        if (!of[n]) return &r->of_op[op];
        return v >= 0 && v < WF_ROOFLINE_VARIANTS ? &r->of[op][v] : NULL;
    }
    return NULL;
}

bool wf_roofline_set(wf_roofline *r, wf_dev *dev, const wf_cost *c)
{
    if (!strcmp(c->of, "device")) {
        if (!strcmp(c->name, "read")) return r->read = c->value * 1e3, true;
        if (!strcmp(c->name, "launch")) return r->launch = c->value, true;
        for (size_t i = 0; i < WF_N_ARITH; i++)
            if (!strcmp(c->name, units[i])) return r->ops[i] = c->value * 1e6, true;
        return false;
    }
    wf_efficiency *e = find_efficiency(r, dev, c->of);
    return e && set_efficiency(e, c->name, c->value);
}

bool wf_roofline_measured(const wf_roofline *r, enum wf_op op, int variant)
{
    return variant < WF_ROOFLINE_VARIANTS && r->of[op][variant].memory > 0 && r->of[op][variant].compute > 0;
}

/* ---- work of a call ---------------------------------------------------------------------------------------------- */

static double view_bytes(const wf_view *v, double rows)
{
    return v->buf ? rows * (double)wf_dtype_bytes(v->dtype, v->cols) : 0;
}

static double rows_of(const wf_call *c)
{
    if (c->op == WF_OP_PAGE_COPY) return (double)c->in[WF_PAGE_COPY_SRC].rows * c->in[WF_PAGE_COPY_SRC].cols;
    return c->op == WF_OP_ARGMAX || c->op == WF_OP_SAMPLE ? c->in[0].rows : c->out[0].rows;
}

double wf_experts_read(double experts, double used, double tokens)
{
    return experts * (1 - pow(1 - WF_MIN(used / experts, 1.0), tokens));
}

/* What a product reads all of; NULL: nothing. */
static const wf_view *product_weight(const wf_call *c)
{
    const wf_view *w = c->op == WF_OP_GEMM ? &c->in[WF_GEMM_W] : c->op == WF_OP_ROUTER ? &c->in[WF_ROUTER_W] : NULL;
    return w && w->buf ? w : NULL;
}

/* Tables are read by rows of the call. Pools, whose rows are pages, are written by tokens; what attention reads of them
 * is counted apart. */
static double rows_moved(const wf_call *c, const wf_view *v)
{
    if (v == product_weight(c)) return v->rows;
    if (c->op == WF_OP_GROUPED_GEMM && v == &c->in[WF_GROUPED_GEMM_W]) {
        /* Of W: those of the experts that the tokens may be expected to need. */
        double used = c->in[WF_GROUPED_GEMM_IDS].cols,
               n = wf_expert_rows(&c->p, c->out[WF_GROUPED_GEMM_Y].cols, c->in[WF_GROUPED_GEMM_IDS].cols);
        return n * wf_experts_read(c->in[WF_GROUPED_GEMM_W].rows / n, used, c->out[WF_GROUPED_GEMM_Y].rows);
    }
    /* The V pool stands behind the K pool. */
    const wf_view *k = c->op == WF_OP_ATTENTION ? &c->in[WF_ATTENTION_K_POOL]
                       : c->op == WF_OP_ROPE_KV ? &c->out[WF_ROPE_KV_K_POOL]
                       : c->op == WF_OP_GEMM    ? &c->out[WF_GEMM_K_POOL]
                                                : NULL;
    if (k && (v == k || v == k + 1)) return c->op == WF_OP_ATTENTION ? 0 : rows_of(c) / WF_MAX(c->p.page_tokens, 1u);
    return WF_MIN(v->rows, rows_of(c));
}

static double operand_bytes(const wf_call *c)
{
    double bytes = 0;
    for (size_t i = 0; i < WF_MAX_IN; i++) bytes += view_bytes(&c->in[i], rows_moved(c, &c->in[i]));
    for (size_t i = 0; i < WF_MAX_OUT; i++) bytes += view_bytes(&c->out[i], rows_moved(c, &c->out[i]));
    return bytes;
}

typedef struct work {
    double flops, bytes;
} work;

/* A product does two operations for each weight and row; all else a few for each number it moves. */
static work work_of(const wf_call *c)
{
    const wf_view *w = product_weight(c);
    if (c->op == WF_OP_ATTENTION) {
        /* Each row of a prompt sees half of it. Sequences of unknown length have a thousand keys. */
        double rows = c->out[WF_ATTENTION_O].rows, longest = c->p.max_kv ? c->p.max_kv : 1024,
               most = c->p.max_q ? c->p.max_q : 1;
        double keys = longest - WF_MIN(most - 1, longest) / 2, sequences = most > rows ? 1 : rows / most,
               head = c->p.head_dim;
        double kv = 2 * sequences * longest * c->p.n_kv_head *
                    (double)wf_dtype_bytes(c->in[WF_ATTENTION_K_POOL].dtype, c->p.head_dim);
        return (work){4 * rows * keys * c->p.n_head * head, operand_bytes(c) + kv};
    }
    double bytes = operand_bytes(c);
    if (c->op == WF_OP_GROUPED_GEMM) {
        double outputs = (double)c->out[WF_GROUPED_GEMM_Y].cols * (c->p.silu ? 2 : 1);
        return (work){2.0 * c->out[WF_GROUPED_GEMM_Y].rows * outputs * c->in[WF_GROUPED_GEMM_W].cols, bytes};
    }
    return (work){w ? 2.0 * c->out[0].rows * w->rows * w->cols : bytes, bytes};
}

double wf_roofline_us(const wf_roofline *r, wf_dev *dev, const wf_call *c, int variant, double idle)
{
    if (r->read <= 0) return 0;
    double rate = r->ops[wf_variant_at(dev, c->op, variant)->arith];
    wf_efficiency e = wf_roofline_measured(r, c->op, variant) ? r->of[c->op][variant] : r->of_op[c->op];
    work w = work_of(c);
    if (rate <= 0) return 0;
    double memory = w.bytes / (r->read * (e.memory > 0 ? e.memory : 1)),
           compute = w.flops / (rate * (e.compute > 0 ? e.compute : 1));
    return r->launch + WF_MAX(memory, compute * idle);
}

double wf_modest_us(const wf_dev *dev, const wf_call *c)
{
    enum { OPS_PER_BYTE = 64 /* memory is the slower, the more units a device has */ };
    work w = work_of(c);
    return dev->modest_rate > 0 ? WF_MAX(w.flops, w.bytes * OPS_PER_BYTE) / dev->modest_rate : 0;
}
