/* ROPE_KV with vectors, F32 only: rotates q and k by the table's angles, as loops that compilers make vectors of, and
 * writes k and v to their slots as F16. */
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
        store_halves(r->head, dim, wf_cpu_slot(&c->out[WF_ROPE_KV_K_POOL], r->p, (uint32_t)slot, h));
        store_halves(v, dim, wf_cpu_slot(&c->out[WF_ROPE_KV_V_POOL], r->p, (uint32_t)slot, h));
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
