/* merge: merges adjacent symbols, best pair first, until no pair forms a token.
 *
 * Symbols form a linked list, candidate pairs a binary heap. A candidate is not removed when one of its symbols merges
 * with another one. It is found to be stale by its length when it is popped: a symbol only grows or dies, so a pair
 * with an unchanged length is unchanged. Each merge adds at most two candidates, so the time is O(n log n) for any
 * text. */
#include "text/internal.h"

#include <stdlib.h>

void wf_merger_free(wf_merger *m)
{
    free(m->sym);
    free(m->heap);
    m->sym = NULL;
    m->heap = NULL;
}

weft_status wf_merger_add(wf_merger *m, size_t len, int32_t id)
{
    WF_TRY(wf_stop_asked(&m->n_steps));
    if (!wf_grow(&m->sym, m->n_sym, &m->cap_sym, sizeof *m->sym)) return WEFT_ERR_NOMEM;
    const wf_symbol *last = m->n_sym ? &m->sym[m->n_sym - 1] : NULL;
    m->sym[m->n_sym] = (wf_symbol){.start = last ? last->start + last->len : 0,
                                   .len = (uint32_t)len,
                                   .id = id,
                                   .prev = (int32_t)m->n_sym - 1,
                                   .next = (int32_t)m->n_sym + 1};
    m->n_sym++;
    return WEFT_OK;
}

static wf_candidate heap_pop(wf_merger *m)
{
    wf_candidate top = m->heap[0], c = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < m->n_heap; i = k) {
        if (k + 1 < m->n_heap && m->heap[k + 1].key < m->heap[k].key) k++;
        if (c.key <= m->heap[k].key) break;
        m->heap[i] = m->heap[k];
    }
    m->heap[i] = c;
    return top;
}

/* Queues the pair of a symbol and the next one if they form a token. */
static weft_status consider(wf_merger *m, int32_t left)
{
    if (left < 0 || m->sym[left].next < 0) return WEFT_OK;
    WF_TRY(wf_stop_asked(&m->n_steps));
    const wf_symbol *l = &m->sym[left], *r = &m->sym[l->next];
    uint32_t priority;
    int32_t id;
    if (!m->pair(m, l, r, &priority, &id)) return WEFT_OK;
    wf_candidate c = (wf_candidate){(uint64_t)priority << 32 | (uint32_t)left, l->len + r->len, id};
    if (!wf_grow(&m->heap, m->n_heap, &m->cap_heap, sizeof *m->heap)) return WEFT_ERR_NOMEM;
    size_t i = m->n_heap++;
    while (i && c.key < m->heap[(i - 1) / 2].key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
    return WEFT_OK;
}

static weft_status merge_best(wf_merger *m)
{
    wf_candidate c = heap_pop(m);
    int32_t left = (int32_t)(uint32_t)c.key;
    wf_symbol *l = &m->sym[left];
    if (!l->len || l->next < 0 || l->len + m->sym[l->next].len != c.len) return WEFT_OK;
    wf_symbol *r = &m->sym[l->next];
    l->len = c.len;
    l->id = c.id;
    l->next = r->next;
    if (r->next >= 0) m->sym[r->next].prev = left;
    r->len = 0;
    WF_TRY(consider(m, l->prev));
    return consider(m, left);
}

weft_status wf_merger_run(wf_merger *m, wf_ids *out)
{
    if (!m->n_sym) return WEFT_OK;
    m->sym[m->n_sym - 1].next = -1;
    for (size_t i = 0; i + 1 < m->n_sym; i++) WF_TRY(consider(m, (int32_t)i));
    while (m->n_heap) WF_TRY(merge_best(m));
    for (int32_t i = 0; i >= 0; i = m->sym[i].next) {
        const wf_symbol *s = &m->sym[i];
        if (s->id >= 0) WF_TRY(wf_ids_push(out, s->id));
        else WF_TRY(wf_fallback(m->tok, m->text + s->start, s->len, out));
    }
    m->n_sym = 0;
    return WEFT_OK;
}
