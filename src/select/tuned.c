/* tuned.c: lookups in a table of measured choices. */
#include "select/tuned.h"

#include <string.h>

uint32_t wf_tuned_kernels(wf_dev *dev)
{
    static const enum wf_op ops[] = {WF_OP_GEMM, WF_OP_ATTENTION};
    const wf_variant *v;
    uint32_t hash = 0x811c9dc5u; /* FNV-1a */
    for (size_t o = 0; o < WF_LEN(ops); o++)
        for (int i = 0; (v = wf_variant_at(dev, ops[o], i)); i++)
            for (const char *p = v->name;; p++) {
                hash = (hash ^ (uint8_t)*p) * 0x01000193u; /* the end counts, too */
                if (!*p) break;
            }
    return hash ? hash : 1;
}

bool wf_tuned_key(const wf_call *c, wf_tuned_row *row, uint32_t *size)
{
    *row = (wf_tuned_row){0};
    if (c->op == WF_OP_GEMM) {
        row->kind = WF_TUNED_GEMM;
        row->dtype = c->in[WF_GEMM_W].dtype;
        row->key[0] = c->in[WF_GEMM_W].rows, row->key[1] = c->in[WF_GEMM_W].cols;
        *size = c->out[WF_GEMM_Y].rows;
        return true;
    }
    if (c->op != WF_OP_ATTENTION || !c->p.max_q || c->max_groups) return false;
    bool decode = c->p.max_q == 1;
    row->kind = (decode ? WF_TUNED_DECODE : WF_TUNED_PREFILL) + (c->p.phi_lo < c->p.phi_hi ? WF_TUNED_ASYNC : 0);
    row->dtype = c->in[WF_ATTENTION_K_POOL].dtype;
    row->key[0] = c->p.n_head, row->key[1] = c->p.n_kv_head, row->key[2] = c->p.head_dim;
    row->key[3] = decode ? c->out[WF_ATTENTION_O].rows : 0;
    *size = decode ? c->p.max_kv : c->p.max_q;
    return *size != 0;
}

/* The row of that shape. Of several that differ in their number of sequences, the largest that is not above the call's.
 */
static const wf_tuned_row *row_for(const wf_tuned_table *t, const wf_tuned_row *want)
{
    const wf_tuned_row *best = NULL;
    for (size_t i = 0; i < t->n; i++) {
        const wf_tuned_row *r = &t->rows[i];
        if (r->kind != want->kind || r->dtype != want->dtype) continue;
        if (memcmp(r->key, want->key, 3 * sizeof *r->key) || r->key[3] > want->key[3]) continue;
        if (!best || r->key[3] > best->key[3]) best = r;
    }
    return best;
}

const char *wf_tuned_find(const wf_tuned_table *t, const wf_tuned_row *want, uint32_t size)
{
    const wf_tuned_row *r = row_for(t, want);
    const char *name = NULL;
    for (uint32_t i = 0; r && i < r->n_steps && r->step[i].from <= size; i++) name = r->step[i].variant;
    return name;
}
