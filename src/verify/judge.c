/* judge.c: see judge.h. */
#include "verify/judge.h"

#include "tensor/kv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct tolerance {
    double f32;
    double nmse[WF_N_ARITH];
} tolerances[WF_N_OPS] = {
#define OP(op, f32_, f16, q8, i8) [WF_OP_##op] = {.f32 = f32_, .nmse = {0, f16, q8, i8}},
#include "verify/tolerances.def"
};

static const struct kv_tolerance {
    double most, mean; /* steps */
} kv_tolerances[WF_N_DTYPES] = {
#define KV(format, most, mean, perplexity) [WF_##format] = {most, mean},
#include "verify/tolerances.def"
};

/* Outputs hold NaN before the run, so that a read of them shows. Those of ops that must write NaN themselves do not. */
int wf_judge_poison(const wf_check *k)
{
    return k->c.op == WF_OP_GET_ROWS || k->c.op == WF_OP_GROUPED_GEMM || k->c.op == WF_OP_ROUTER ? 0xC3 : 0xFF;
}

typedef struct judge {
    const wf_check *k;
    uint8_t arith;
    bool async;
    wf_check_result *out;
    double sigma, eps, tiny; /* of the tolerance table; rounding of the output's dtype */
    double scale;            /* < 0: each element's own size */
    double err2, ref2;
    uint64_t n;
} judge;

static double element_at(const wf_view *v, const uint8_t *data, uint64_t i)
{
    float f;
    int32_t n;
    if (v->dtype == WF_I32) return memcpy(&n, data + 4 * i, 4), n;
    if (v->dtype == WF_F16) return wf_half_to_float(((const uint16_t *)data)[i]);
    memcpy(&f, data + 4 * i, 4);
    return f;
}

static double own_size(const wf_check_operand *o)
{
    double sum = 0;
    uint64_t n = 0;
    for (uint32_t r = 0; r < o->view.rows; r++) {
        for (uint32_t c = 0; c < o->view.cols; c++) {
            double x = element_at(&o->view, o->data, (uint64_t)r * o->view.stride + c);
            if (isfinite(x)) sum += x * x, n++;
        }
    }
    return n ? sqrt(sum / (double)n) : 0;
}

static void note_fault(judge *j, double error, const char *fmt, ...) WF_PRINTF(3, 4);
static void note_fault(judge *j, double error, const char *fmt, ...)
{
    if (!(error > j->out->error)) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(j->out->message, sizeof j->out->message, fmt, ap);
    va_end(ap);
    j->out->error = error;
}

static void judge_element(judge *j, int o, uint32_t row, uint32_t col, double got, double want)
{
    double error;
    if (isnan(want) || isinf(want)) {
        error = isnan(want) ? (isfinite(got) ? INFINITY : 0) : got == want ? 0 : INFINITY;
    } else {
        double diff = fabs(got - want), scale = j->scale < 0 ? fabs(want) : j->scale;
        error = diff / (j->eps * fabs(want) + 8 * j->sigma * scale + j->tiny);
        if (!isfinite(got)) error = INFINITY;
        j->err2 += diff * diff;
        j->ref2 += want * want;
        j->n++;
    }
    if (error > j->out->error)
        note_fault(j, error, "out[%d] (%u, %u) is %.9g and should be %.9g", o, row, col, got, want);
}

/* Slots of a pool that the call must not touch still hold the reference's poison, bit for bit. */
static bool is_untouched(const wf_check_operand *expect, uint64_t i)
{
    return expect->view.dtype == WF_F16 && ((const uint16_t *)expect->data)[i] == 0xFFFF;
}

static void judge_rows(judge *j, int o, const uint8_t *got)
{
    const wf_check_operand *e = &j->k->expect[o];
    const wf_view *v = &j->k->out[o].view;
    for (uint32_t r = 0; r < v->rows; r++) {
        for (uint32_t c = 0; c < v->cols; c++) {
            uint64_t i = (uint64_t)r * v->stride + c;
            if (!is_untouched(e, i)) judge_element(j, o, r, c, element_at(v, got, i), element_at(&e->view, e->data, i));
            else if (((const uint16_t *)got)[i] != 0xFFFF)
                note_fault(j, INFINITY, "out[%d] (%u, %u) was written and should not be", o, r, c);
        }
    }
}

/* A few elements may by chance all be above the standard deviation: the factor shrinks to 1 with n. */
static void judge_mean(judge *j, int o)
{
    if (!j->n) return;
    double n = (double)j->n, scale2 = j->scale < 0 ? j->ref2 / n : j->scale * j->scale;
    double allowed = (j->sigma * j->sigma * scale2 + j->eps * j->eps * j->ref2 / n) * (1 + 63 / n);
    double error = sqrt(j->err2 / n / (allowed + j->tiny * j->tiny));
    note_fault(j, error, "out[%d]: mean square error %.3g, relative to its size %.3g", o, j->err2 / n,
               j->err2 / j->ref2);
}

/* A byte of the buffer before the run: poison, or what the input holds in whose place the output is. */
static uint8_t byte_before(const judge *j, int o, uint64_t at, uint64_t first)
{
    int shared = o ? -1 : wf_case_shared(&j->k->c);
    const wf_check_operand *in = shared < 0 ? NULL : &j->k->in[shared];
    return in && at >= first && at - first < in->bytes ? in->data[at - first] : (uint8_t)wf_judge_poison(j->k);
}

/* The bytes [begin, end) lie outside of what is to be written. */
static bool judge_gap(judge *j, int o, const uint8_t *image, uint64_t begin, uint64_t end, uint64_t first)
{
    for (uint64_t i = begin; i < end; i++) {
        if (image[i] == byte_before(j, o, i, first)) continue;
        note_fault(j, INFINITY, "wrote outside of out[%d]: %lld bytes after its first", o, (long long)(i - first));
        return false;
    }
    return true;
}

static void judge_guards(judge *j, int o, const uint8_t *image, const wf_view *v, uint64_t size)
{
    uint64_t used = wf_dtype_bytes(v->dtype, v->cols), pitch = wf_dtype_bytes(v->dtype, v->stride), at = 0;
    for (uint32_t r = 0; r < j->k->out[o].view.rows; r++) {
        uint64_t row = v->offset + r * pitch;
        if (!judge_gap(j, o, image, at, row, v->offset)) return;
        at = row + used;
    }
    judge_gap(j, o, image, at, size, v->offset);
}

/* One block of a page in Q8_0 against the reference's; whether it is that one's poison, and must stay as it was. */
static void judge_block(judge *j, int o, uint32_t r, uint32_t at, const uint8_t *got, const uint8_t *want)
{
    const uint64_t cols = j->k->out[o].view.cols;
    float x[WF_KV_BLOCK], y[WF_KV_BLOCK];
    if (*wf_kv_scales(want, cols, at) == 0xFFFF) {
        if (*wf_kv_scales(got, cols, at) != 0xFFFF || memcmp(got + at, want + at, WF_KV_BLOCK))
            note_fault(j, INFINITY, "out[%d] (%u, %u) was written and should not be", o, r, at);
        return;
    }
    wf_kv_load(WF_Q8_0, got, cols, at, x, WF_KV_BLOCK);
    wf_kv_load(WF_Q8_0, want, cols, at, y, WF_KV_BLOCK);
    double step = wf_half_to_float(*wf_kv_scales(want, cols, at)) + 1e-30;
    for (uint32_t i = 0; i < WF_KV_BLOCK; i++) {
        double off = fabs((double)x[i] - y[i]) / step;
        if (!(off <= kv_tolerances[WF_Q8_0].most))
            note_fault(j, isfinite(off) ? off / kv_tolerances[WF_Q8_0].most : INFINITY,
                       "out[%d] (%u, %u) is %.9g and should be %.9g", o, r, at + i, (double)x[i], (double)y[i]);
        j->err2 += off * off;
        j->n++;
    }
}

/* Pools in Q8_0: what lies between two steps may be rounded either way, which seldom happens. */
static void judge_pool(judge *j, int o, const uint8_t *got)
{
    const wf_check_operand *e = &j->k->expect[o];
    const wf_view *v = &e->view;
    j->err2 = 0, j->n = 0;
    for (uint32_t r = 0; r < v->rows; r++)
        for (uint32_t at = 0; at < v->cols; at += WF_KV_BLOCK) {
            uint64_t row = r * wf_dtype_bytes(v->dtype, v->stride);
            judge_block(j, o, r, at, got + row, e->data + row);
        }
    double off = j->n ? sqrt(j->err2 / (double)j->n) : 0;
    note_fault(j, off / (kv_tolerances[v->dtype].mean * (1 + 8 / sqrt((double)j->n + 1))),
               "out[%d]: mean error of %.3g steps", o, off);
}

static uint64_t hash_rows(const wf_view *v, const uint8_t *data, uint64_t h)
{
    for (uint32_t r = 0; r < v->rows; r++) {
        const uint8_t *row = data + r * wf_dtype_bytes(v->dtype, v->stride);
        for (uint64_t i = 0; i < wf_dtype_bytes(v->dtype, v->cols); i++) h = (h ^ row[i]) * 0x100000001b3u; /* FNV-1a */
    }
    return h;
}

static double sigma_of(const wf_check *k, int o, const struct tolerance *t, uint8_t arith)
{
    double amplify = k->plain >> o & 1 ? 1 : k->amplify;
    if (arith != WF_ARITH_F32) return sqrt(t->nmse[arith]);
    return fmin(t->f32 * 0x1p-24 * sqrt(k->reduce) * amplify, sqrt(t->nmse[WF_ARITH_F16]));
}

static void judge_numbers(judge *j, int o, const uint8_t *rows, const wf_view *v)
{
    const struct tolerance *t = &tolerances[j->k->c.op];
    const wf_check_operand *e = &j->k->expect[o];
    bool half = v->dtype == WF_F16;
    if (v->dtype == WF_Q8_0) {
        judge_pool(j, o, rows);
        return;
    }
    j->sigma = sigma_of(j->k, o, t, j->arith < WF_N_ARITH ? j->arith : WF_ARITH_F32);
    j->eps = half ? 0x1p-11 * (e->view.dtype == WF_F16 ? 2 : 1) : 0x1p-24; /* 2: both were rounded */
    j->tiny = half ? 0x1p-24 : 1e-37;
    if (!t->f32 || v->dtype == WF_I32) j->eps = j->sigma = 0, j->tiny = 1e-37;
    j->scale = j->k->scale ? j->k->scale : own_size(e);
    j->err2 = j->ref2 = 0;
    j->n = 0;
    judge_rows(j, o, rows);
    judge_mean(j, o);
}

static void judge_image(judge *j, int o, const uint8_t *image, const wf_view *v, uint64_t size)
{
    judge_numbers(j, o, image + v->offset, v);
    judge_guards(j, o, image, v, size);
    j->out->hash = hash_rows(v, image + v->offset, j->out->hash);
    if (o) return;
    wf_view row = *v;
    row.rows = 1;
    uint64_t pitch = wf_dtype_bytes(v->dtype, v->stride);
    j->out->row_hash = hash_rows(&row, image + v->offset + v->rows / 2 * pitch, WF_JUDGE_HASH);
}

void wf_judge_output(const wf_check *k, const wf_variant *variant, int o, const uint8_t *image, const wf_view *v,
                     wf_check_result *out)
{
    judge j = {.k = k, .arith = variant->arith, .async = variant->flags & WF_ASYNC_SOFTMAX, .out = out};
    if (k->c.op == WF_OP_ATTENTION && o == 1) {
        /* ATTENTION adds to its counter the number of rows and heads that left phi's range; variants that do not use
         * phi add nothing. */
        uint32_t n, poisoned;
        memset(&poisoned, wf_judge_poison(j.k), sizeof poisoned);
        memcpy(&n, image + v->offset, sizeof n);
        n -= poisoned;
        uint32_t least = j.async ? j.k->redo_least : 0, most = j.async ? j.k->redo_most : 0;
        if (n < least || n > most)
            note_fault(&j, INFINITY, "%u rows were recomputed and should be %u to %u", n, least, most);
        judge_guards(&j, o, image, v, v->buf->size);
    } else judge_image(&j, o, image, v, v->buf->size);
}

void wf_judge_rows(const wf_check *k, enum wf_arith arith, int o, const uint8_t *rows, wf_check_result *out)
{
    judge j = {.k = k, .arith = (uint8_t)arith, .out = out};
    judge_numbers(&j, o, rows, &k->out[o].view);
    out->ok = out->error <= 1;
}
