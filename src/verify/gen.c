/* gen.c: see gen.h. */
#include "verify/gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t wf_gen_next(wf_gen *g)
{
    return wf_random(g->seed, g->n++);
}

uint32_t wf_gen_below(wf_gen *g, uint32_t n)
{
    return (uint32_t)(wf_gen_next(g) % n);
}

float wf_gen_unit(wf_gen *g)
{
    return (float)(int32_t)(wf_gen_next(g) >> 32) * 0x1p-31f; /* [-1, 1) */
}

uint32_t *wf_gen_permutation(wf_gen *g, uint32_t n)
{
    uint32_t *a = wf_calloc(n, sizeof *a);
    for (uint32_t i = 0; a && i < n; i++) a[i] = i;
    if (a) {
        for (uint32_t i = n; i > 1; i--) {
            uint32_t j = wf_gen_below(g, i), t = a[i - 1];
            a[i - 1] = a[j];
            a[j] = t;
        }
    }
    return a;
}

/* ---- operands ------------------------------------------------------------------------------------- */

/* All bytes 0xFF: NaN in every float format, -1 as an id, and as a scale of a block format. */
static weft_status operand_of_stride(wf_check_operand *o, uint8_t dtype, uint32_t rows, uint32_t cols, uint32_t stride)
{
    o->view = (wf_view){.rows = rows, .cols = cols, .stride = stride, .dtype = dtype};
    o->bytes = wf_dtype_bytes(dtype, (uint64_t)rows * stride);
    o->data = wf_calloc(o->bytes, 1);
    if (o->data) memset(o->data, 0xFF, o->bytes);
    return o->data ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_gen_operand(wf_check_operand *o, uint8_t dtype, uint32_t rows, uint32_t cols, uint32_t pad)
{
    return operand_of_stride(o, dtype, rows, cols, wf_dtypes[dtype].block == 1 ? cols + pad : cols);
}

uint8_t *wf_gen_row(const wf_check_operand *o, uint32_t row)
{
    return o->data + wf_dtype_bytes(o->view.dtype, (uint64_t)row * o->view.stride);
}

float wf_gen_get(const wf_check_operand *o, uint32_t row, uint32_t col)
{
    const uint8_t *at = wf_gen_row(o, row);
    return o->view.dtype == WF_F16 ? wf_half_to_float(((const uint16_t *)at)[col]) : ((const float *)at)[col];
}

void wf_gen_set(const wf_check_operand *o, uint32_t row, uint32_t col, float x)
{
    uint8_t *at = wf_gen_row(o, row);
    if (o->view.dtype == WF_F16) ((uint16_t *)at)[col] = wf_float_to_half(x);
    else ((float *)at)[col] = x;
}

/* An encoder never emits some bit patterns that files may hold (e.g. -128 in Q8_0): replace a byte
 * here and there, wherever the block stays finite and of its old size. */
static void mutate_byte(wf_gen *g, const wf_dtype_info *t, uint8_t *block)
{
    float before[256], after[256], top = 0;
    uint32_t at = wf_gen_below(g, t->block_bytes);
    uint8_t old = block[at];
    t->decode(block, before, t->block);
    for (uint32_t i = 0; i < t->block; i++) top = fmaxf(top, fabsf(before[i]));
    block[at] = (uint8_t)wf_gen_next(g);
    t->decode(block, after, t->block);
    for (uint32_t i = 0; i < t->block; i++) {
        if (fabsf(after[i]) <= 1.1f * top) continue; /* false for NaN */
        block[at] = old;
        return;
    }
}

/* A block of a quantised format. Encoders search for the best scales, seconds for a matrix of millions, so that a block
 * behind the first FRESH is a copy of one of those, drawn anew for each: a block read from the wrong place still is
 * another one. */
static void fill_block(wf_check_operand *o, wf_gen *g, size_t at, float amplitude)
{
    enum { FRESH = 64 };
    const wf_dtype_info *t = &wf_dtypes[o->view.dtype];
    uint8_t *block = o->data + at * t->block_bytes;
    float x[256];
    if (at >= FRESH) {
        memcpy(block, o->data + (size_t)wf_gen_below(g, FRESH) * t->block_bytes, t->block_bytes);
        return;
    }
    for (uint32_t i = 0; i < t->block; i++) x[i] = amplitude * wf_gen_unit(g);
    t->encode(x, block, t->block);
}

static void fill_blocks(wf_check_operand *o, wf_gen *g, float amplitude)
{
    const wf_dtype_info *t = &wf_dtypes[o->view.dtype];
    size_t in_row = o->view.cols / t->block, n = in_row * o->view.rows;
    for (size_t b = 0; b < n; b++) {
        fill_block(o, g, b, amplitude);
        if (b % in_row % 4 == 0) mutate_byte(g, t, o->data + b * t->block_bytes);
    }
}

static weft_status wf_gen_fill(wf_check_operand *o, wf_gen *g, float amplitude)
{
    const wf_dtype_info *t = &wf_dtypes[o->view.dtype];
    if (g->shapes_only) return WEFT_OK;
    if (t->block > 1) return fill_blocks(o, g, amplitude), WEFT_OK;
    float *row = wf_calloc(o->view.cols, sizeof *row);
    if (!row) return WEFT_ERR_NOMEM;
    for (uint32_t r = 0; r < o->view.rows; r++) {
        for (uint32_t i = 0; i < o->view.cols; i++) row[i] = amplitude * wf_gen_unit(g);
        t->encode(row, wf_gen_row(o, r), o->view.cols);
    }
    free(row);
    return WEFT_OK;
}

weft_status wf_gen_floats(wf_check_operand *o, wf_gen *g, uint8_t dtype, uint32_t rows, uint32_t cols,
                          uint32_t pad, float amplitude)
{
    WF_TRY(wf_gen_operand(o, dtype, rows, cols, pad));
    return wf_gen_fill(o, g, amplitude);
}

weft_status wf_gen_ints(wf_check_operand *o, uint32_t n, int32_t **values)
{
    WF_TRY(wf_gen_operand(o, WF_I32, 1, n, 0));
    *values = (int32_t *)o->data;
    return WEFT_OK;
}

double wf_gen_bytes(const wf_check *c)
{
    double sum = 0;
    for (int i = 0; i < WF_MAX_IN; i++) sum += (double)c->in[i].bytes;
    for (int i = 0; i < WF_MAX_OUT; i++) sum += (double)c->out[i].bytes;
    return sum;
}

/* A KV pool; the gaps between pages keep what vector loads are aligned to. */
weft_status wf_gen_pool(wf_check_operand *o, const wf_case *c, uint32_t pages, uint32_t page)
{
    const uint8_t dtype = c->kv ? c->kv : WF_F16;
    return operand_of_stride(o, dtype, pages, page, page + c->pad * 8 * wf_dtypes[dtype].block);
}
