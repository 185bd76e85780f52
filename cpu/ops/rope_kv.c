/* ROPE_KV with vectors, F32 only: rotates q and k by the table's angles, as loops that compilers make vectors of, and
 * writes k and v to their slots. */
#include <string.h>

#include "cpu/ops/ops.h"
#include "cpu/ops/simd.h"

/* One row: its angles, cosines apart from sines, and room for a head. */
typedef struct row {
    const wf_op_params *p;
    float *cosine, *sine, *head;
} row;

wf_cpu_scratch_size WF_SIMD(wf_cpu_rope_kv_scratch)(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * (c->p.n_rot / 2 * 2 + c->p.head_dim)};
}

static void rotate_halves(uint32_t n, const float *restrict x, const float *restrict c, const float *restrict s,
                          float *restrict out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float a = x[i], b = x[i + n];
        out[i] = a * c[i] - b * s[i];
        out[i + n] = a * s[i] + b * c[i];
    }
}

static void rotate_neighbours(uint32_t n, const float *restrict x, const float *restrict c, const float *restrict s,
                              float *restrict out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        out[2 * i] = a * c[i] - b * s[i];
        out[2 * i + 1] = a * s[i] + b * c[i];
    }
}

/* A head of x to r->head. */
static void rotate_head(const row *r, const float *x)
{
    const uint32_t half = r->p->n_rot / 2;
    if (r->p->neox)
        rotate_halves(half, x, r->cosine, r->sine, r->head);
    else
        rotate_neighbours(half, x, r->cosine, r->sine, r->head);
    memcpy(r->head + 2 * half, x + 2 * half, (r->p->head_dim - 2 * half) * sizeof(float));
}

static void store_halves(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;
    for (; i + VL <= n; i += VL) v_store_f16(out + i, v_load(x + i));
    for (; i < n; i++) out[i] = wf_float_to_half(x[i]);
}

/* A block of Q8_0, as wf_kv_store has it. */
static void store_block(const float *x, int8_t *q, uint16_t *scale)
{
    vf most = v_zero(), nan = v_zero();
    for (uint32_t i = 0; i < WF_KV_BLOCK; i += VL) {
        vf a = v_load(x + i);
        most = v_max(v_max(a, v_sub(v_zero(), a)), most);
        nan = v_fma(a, v_zero(), nan);
    }
    const float d = v_reduce_max(most) / 127 + v_reduce_add(nan), inverse = d > 0 ? 1 / d : 0;
    *scale = wf_float_to_half(d);
    for (uint32_t i = 0; i < WF_KV_BLOCK; i += VL) v_store_i8(q + i, v_mul(v_load(x + i), v_set(inverse)));
}

/* A head of k or v to where KV head h of a slot lies. */
static void store_head(const row *r, const wf_view *pool, uint32_t slot, uint32_t h, const float *x)
{
    const uint32_t dim = r->p->head_dim, per_page = r->p->page_tokens;
    uint8_t *page = wf_cpu_row(pool, slot / per_page);
    const size_t at = ((size_t)h * per_page + slot % per_page) * dim;
    if (pool->dtype == WF_F16) {
        store_halves(x, dim, (uint16_t *)page + at);
        return;
    }
    uint16_t *scales = wf_kv_scales(page, pool->cols, at);
    for (uint32_t d = 0; d < dim; d += WF_KV_BLOCK)
        store_block(x + d, (int8_t *)page + at + d, scales + d / WF_KV_BLOCK);
}

static void one_row(const wf_call *c, const row *r, uint32_t m)
{
    const uint32_t dim = r->p->head_dim, n = r->p->n_head, n_kv = r->p->n_kv_head;
    const float *x = wf_cpu_row(&c->in[WF_ROPE_KV_QKV], m), *k = x + (size_t)n * dim;
    const int32_t pos = ((const int32_t *)wf_cpu_at(&c->in[WF_ROPE_KV_POS]))[m],
                  slot = ((const int32_t *)wf_cpu_at(&c->in[WF_ROPE_KV_SLOT]))[m];
    float *q = wf_cpu_row(&c->out[WF_ROPE_KV_Q], m);
    const float *table = wf_cpu_row(&c->in[WF_ROPE_KV_TABLE], (uint32_t)pos);
    for (uint32_t i = 0; i < r->p->n_rot / 2; i++) r->cosine[i] = table[2 * i], r->sine[i] = table[2 * i + 1];
    for (uint32_t h = 0; h < n; h++) {
        rotate_head(r, x + (size_t)h * dim);
        memcpy(q + (size_t)h * dim, r->head, dim * sizeof(float));
    }
    const float *v = k + (size_t)n_kv * dim;
    for (uint32_t h = 0; slot >= 0 && h < n_kv; h++, k += dim, v += dim) {
        rotate_head(r, k);
        store_head(r, &c->out[WF_ROPE_KV_K_POOL], (uint32_t)slot, h, r->head);
        store_head(r, &c->out[WF_ROPE_KV_V_POOL], (uint32_t)slot, h, v);
    }
}

void WF_SIMD(wf_cpu_rope_kv)(const wf_cpu_work *w)
{
    const wf_call *c = w->call;
    const uint32_t half = c->p.n_rot / 2;
    float *room = w->per_thread;
    const row r = {&c->p, room, room + half, room + 2 * half};
    uint32_t begin, end;
    wf_cpu_part(w, c->out[WF_ROPE_KV_Q].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) one_row(c, &r, m);
}
