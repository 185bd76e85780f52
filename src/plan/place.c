/* place: gives every activation a slot, reusing slots whose value is dead (flashdecoding-next §V: a whole
 * layer needs only a few buffers, and every layer reuses them). */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct placer {
    const wf_graph *g;
    wf_plan *p;
    int32_t *last_use; /* by value: last node that reads it */
    bool *busy;        /* by slot */
    uint32_t pad;
} placer;

static void find_last_uses(placer *s)
{
    for (size_t v = 0; v < s->g->n_values; v++) s->last_use[v] = -1;
    for (size_t n = 0; n < s->g->n_nodes; n++)
        for (size_t i = 0; i < WF_MAX_IN; i++)
            if (s->g->nodes[n].in[i].value >= 0) s->last_use[s->g->nodes[n].in[i].value] = (int32_t)n;
    if (s->g->logits >= 0) s->last_use[s->g->logits] = INT32_MAX; /* the host reads it */
}

/* A GEMM may write onto the residual it adds if nobody needs the residual afterwards. */
static int32_t inherited_slot(const placer *s, const wf_node *node, int32_t n, const wf_value *v)
{
    int32_t y = node->out[WF_GEMM_Y].value;
    int32_t residual = node->op == WF_OP_GEMM && y >= 0 && &s->g->values[y] == v ? node->in[WF_GEMM_RESIDUAL].value : -1;
    if (residual < 0 || s->last_use[residual] != n || node->in[WF_GEMM_RESIDUAL].cols) return -1;
    const wf_value *r = &s->g->values[residual];
    return r->dtype == v->dtype && r->cols == v->cols ? s->p->slot_of[residual] : -1;
}

/* The free slot that grows least; a new one if there is none. */
static int32_t free_slot(placer *s, enum wf_rows rows, uint32_t pitch)
{
    wf_plan *p = s->p;
    int32_t best = -1;
    uint32_t best_growth = UINT32_MAX;
    for (size_t i = 0; i < p->n_slots; i++) {
        if (s->busy[i] || p->slots[i].rows != rows) continue;
        uint32_t growth = pitch > p->slots[i].pitch ? pitch - p->slots[i].pitch : 0;
        if (growth < best_growth) best = (int32_t)i, best_growth = growth;
    }
    if (best >= 0) {
        p->slots[best].pitch = WF_MAX(p->slots[best].pitch, pitch);
        return best;
    }
    if (!wf_grow(&p->slots, p->n_slots, &p->cap_slots, sizeof *p->slots)) return -1;
    p->slots[p->n_slots] = (wf_slot){rows, pitch};
    return (int32_t)p->n_slots++;
}

static weft_status place_outputs(placer *s, int32_t n)
{
    const wf_node *node = &s->g->nodes[n];
    for (size_t i = 0; i < WF_MAX_OUT; i++) {
        int32_t value = node->out[i].value;
        if (value < 0) continue;
        const wf_value *v = &s->g->values[value];
        if (v->kind != WF_VALUE_ACT || s->p->slot_of[value] >= 0) continue; /* a slice of it is placed */
        int32_t slot = inherited_slot(s, node, n, v);
        uint32_t pitch = (uint32_t)WF_UP(wf_dtype_bytes(v->dtype, v->cols), s->pad);
        if (slot < 0) slot = free_slot(s, v->rows, pitch);
        if (slot < 0) return WEFT_ERR_NOMEM;
        s->p->slot_of[value] = slot;
        s->busy[slot] = true;
    }
    return WEFT_OK;
}

static void release_inputs(placer *s, int32_t n)
{
    const wf_node *node = &s->g->nodes[n];
    for (size_t i = 0; i < WF_MAX_IN; i++) {
        int32_t v = node->in[i].value;
        if (v < 0 || s->p->slot_of[v] < 0 || s->last_use[v] != n) continue;
        bool handed_on = false;
        for (size_t o = 0; o < WF_MAX_OUT; o++) {
            int32_t out = node->out[o].value;
            handed_on |= out >= 0 && out != v && s->p->slot_of[out] == s->p->slot_of[v];
        }
        if (!handed_on) s->busy[s->p->slot_of[v]] = false;
    }
    for (size_t o = 0; o < WF_MAX_OUT; o++) { /* room that only this node uses */
        int32_t v = node->out[o].value;
        if (v >= 0 && s->p->slot_of[v] >= 0 && s->last_use[v] < 0) s->busy[s->p->slot_of[v]] = false;
    }
}

weft_status wf_plan_place(const wf_graph *g, wf_plan *p, uint32_t pad)
{
    placer s = {g, p, wf_calloc(g->n_values, sizeof(int32_t)), wf_calloc(g->n_values, 1), pad};
    weft_status status = WEFT_ERR_NOMEM;
    p->slot_of = wf_calloc(g->n_values, sizeof *p->slot_of);
    if (!s.last_use || !s.busy || !p->slot_of) goto out;
    for (size_t v = 0; v < g->n_values; v++) p->slot_of[v] = -1;
    find_last_uses(&s);
    status = WEFT_OK;
    for (size_t n = 0; n < g->n_nodes && status == WEFT_OK; n++) {
        status = place_outputs(&s, (int32_t)n);
        release_inputs(&s, (int32_t)n);
    }
out:
    free(s.last_use);
    free(s.busy);
    return status;
}
