/* ROPE_KV, the reference: rotates q and k by the table's angles and writes k and v to their slots.
 */
#include "cpu/ref/ref.h"

/* Rotates one head of `in` (from element `at`) into head[0..dim]. */
static void rotate_head(const wf_view *in, const void *row, uint64_t at, const float *cs,
                   const wf_op_params *p, float *head)
{
    for (uint32_t d = 0; d < p->head_dim; d++) head[d] = wf_cpu_get(in, row, at + d);
    for (uint32_t i = 0; i < p->n_rot / 2; i++) {
        uint32_t a = p->neox ? i : 2 * i, b = p->neox ? i + p->n_rot / 2 : 2 * i + 1;
        double x = head[a], y = head[b], c = cs[2 * i], s = cs[2 * i + 1];
        head[a] = (float)(x * c - y * s);
        head[b] = (float)(x * s + y * c);
    }
}

/* Rotates all heads of row m; `head`: scratch for one head. */
static void one_row(const wf_cpu_work *w, uint32_t m, float *head)
{
    const wf_call *c = w->call;
    const wf_op_params *p = &c->p;
    const wf_view *qkv = &c->in[WF_ROPE_KV_QKV], *q = &c->out[WF_ROPE_KV_Q];
    int32_t pos = ((const int32_t *)wf_cpu_at(&c->in[WF_ROPE_KV_POS]))[m];
    int32_t slot = ((const int32_t *)wf_cpu_at(&c->in[WF_ROPE_KV_SLOT]))[m];
    const float *cs = wf_cpu_row(&c->in[WF_ROPE_KV_TABLE], (uint32_t)pos);
    const void *in = wf_cpu_row(qkv, m);
    void *out = wf_cpu_row(q, m);
    uint64_t k_at = (uint64_t)p->n_head * p->head_dim,
             v_at = k_at + (uint64_t)p->n_kv_head * p->head_dim;

    for (uint32_t h = 0; h < p->n_head; h++) {
        uint64_t at = (uint64_t)h * p->head_dim;
        rotate_head(qkv, in, at, cs, p, head);
        for (uint32_t d = 0; d < p->head_dim; d++) wf_cpu_set(q, out, at + d, head[d]);
    }
    if (slot < 0) return;
    for (uint32_t h = 0; h < p->n_kv_head; h++) {
        uint64_t at = (uint64_t)h * p->head_dim;
        rotate_head(qkv, in, k_at + at, cs, p, head);
        wf_cpu_store_kv(&c->out[WF_ROPE_KV_K_POOL], p, (uint32_t)slot, h, head);
        for (uint32_t d = 0; d < p->head_dim; d++) head[d] = wf_cpu_get(qkv, in, v_at + at + d);
        wf_cpu_store_kv(&c->out[WF_ROPE_KV_V_POOL], p, (uint32_t)slot, h, head);
    }
}

wf_cpu_scratch_size wf_cpu_ref_rope_kv_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(float) * c->p.head_dim};
}

void wf_cpu_ref_rope_kv(const wf_cpu_work *w)
{
    uint32_t begin, end;
    wf_cpu_part(w, w->call->out[WF_ROPE_KV_Q].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) one_row(w, m, w->per_thread);
}
