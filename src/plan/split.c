/* split: turns lines into nano-ops and derives what each must wait for. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- expansion: lines x layers -> nano-ops ------------------------------------------------------- */

static int32_t find_node(const wf_graph *g, int32_t layer, const char *name)
{
    for (size_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].layer == layer && !strcmp(g->nodes[n].name, name)) return (int32_t)n;
    return -1;
}

static weft_status add_nano(const wf_graph *g, wf_plan *p, size_t line, int32_t layer)
{
    const wf_plan_line *l = &p->lines[line];
    int32_t node = find_node(g, layer, l->name);
    if (node < 0) return WEFT_OK; /* this layer has no such op (say, fused there) */
    if (!wf_grow(&p->nanos, p->n_nanos, &p->cap_nanos, sizeof *p->nanos)) return WEFT_ERR_NOMEM;
    p->nanos[p->n_nanos++] = (wf_nano){.node = (uint32_t)node, .part = l->part, .parts = l->parts,
                                       .queue = l->queue, .groups = l->groups, .line = (uint32_t)line};
    return WEFT_OK;
}

static weft_status expand(const wf_graph *g, wf_plan *p)
{
    size_t first = 0, end;
    while (first < p->n_lines && !p->lines[first].layer) WF_TRY(add_nano(g, p, first++, WF_ONCE));
    for (end = first; end < p->n_lines && p->lines[end].layer;) end++;
    for (int32_t layer = 0; layer < g->n_layers; layer++)
        for (size_t i = first; i < end; i++) WF_TRY(add_nano(g, p, i, layer));
    for (; end < p->n_lines; end++) {
        if (p->lines[end].layer)
            return wf_fail(WEFT_ERR_ARG, "plan: all 'layer' lines must stand together (%s)", p->lines[end].name);
        WF_TRY(add_nano(g, p, end, WF_ONCE));
    }
    return WEFT_OK;
}

/* ---- dependencies ---------------------------------------------------------------------------------- */

/* What a nano-op touches: resources are slots, then KV pools; rows are those of the resource. */
typedef struct touch {
    uint32_t resource;
    enum wf_rows rows;
    bool writes, whole; /* whole: all rows; else the nano-op's own */
    bool prefix;        /* rows before the nano-op's end */
} touch;

static size_t touches(const wf_graph *g, const wf_plan *p, const wf_nano *n, touch *out)
{
    const wf_node *node = &g->nodes[n->node];
    size_t count = 0;
    for (size_t i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++) {
        bool writes = i >= WF_MAX_IN;
        int32_t value = writes ? node->out[i - WF_MAX_IN].value : node->in[i].value;
        if (value < 0) continue;
        const wf_value *v = &g->values[value];
        if (v->kind == WF_VALUE_ACT)
            out[count++] = (touch){(uint32_t)p->slot_of[value], v->rows, writes, v->rows != node->rows, false};
        else if (v->kind == WF_VALUE_KV)
            out[count++] = (touch){(uint32_t)p->n_slots + v->id, WF_ROWS_BATCH, writes, false, !writes};
    }
    return count;
}

/* Do row ranges [ap, ...) of a and b intersect? In 1/(parts * parts) units, so exact. */
static bool rows_meet(const wf_nano *a, const touch *ta, const wf_nano *b, const touch *tb)
{
    uint64_t a0 = ta->whole || ta->prefix ? 0 : (uint64_t)a->part * b->parts;
    uint64_t b0 = tb->whole || tb->prefix ? 0 : (uint64_t)b->part * a->parts;
    uint64_t a1 = ta->whole ? (uint64_t)a->parts * b->parts : (uint64_t)(a->part + 1) * b->parts;
    uint64_t b1 = tb->whole ? (uint64_t)a->parts * b->parts : (uint64_t)(b->part + 1) * a->parts;
    return a0 < b1 && b0 < a1;
}

static bool depends(const wf_graph *g, const wf_plan *p, const wf_nano *a, const wf_nano *b)
{
    touch ta[WF_MAX_IN + WF_MAX_OUT], tb[WF_MAX_IN + WF_MAX_OUT];
    size_t na = touches(g, p, a, ta), nb = touches(g, p, b, tb);
    for (size_t i = 0; i < na; i++)
        for (size_t j = 0; j < nb; j++)
            if (ta[i].resource == tb[j].resource && (ta[i].writes || tb[j].writes) && rows_meet(a, &ta[i], b, &tb[j]))
                return true;
    return false;
}

/* done[i * n_queues + q]: how many nano-ops of queue q have surely ended before nano-op i starts. */
typedef struct waiter {
    const wf_graph *g;
    wf_plan *p;
    uint32_t *done, *rank; /* rank[i]: position of i in its queue, from 1 */
} waiter;

static weft_status add_wait(waiter *w, size_t i, size_t on)
{
    wf_plan *p = w->p;
    uint32_t nq = p->n_queues, *mine = w->done + i * nq, *theirs = w->done + on * nq;
    if (!wf_grow(&p->waits, p->n_waits, &p->cap_waits, sizeof *p->waits)) return WEFT_ERR_NOMEM;
    p->waits[p->n_waits++] = (uint32_t)on;
    p->nanos[i].n_waits++;
    p->nanos[on].signal = true;
    for (uint32_t q = 0; q < nq; q++) mine[q] = WF_MAX(mine[q], theirs[q]);
    mine[p->nanos[on].queue] = WF_MAX(mine[p->nanos[on].queue], w->rank[on]);
    return WEFT_OK;
}

/* Latest first: waiting for the last of a queue covers the ones before it. */
static weft_status find_waits(waiter *w, size_t i)
{
    wf_plan *p = w->p;
    wf_nano *n = &p->nanos[i];
    n->wait = (uint32_t)p->n_waits;
    for (size_t j = i; j-- > 0;) {
        const wf_nano *before = &p->nanos[j];
        bool covered = before->queue == n->queue || w->rank[j] <= w->done[i * p->n_queues + before->queue];
        if (covered && before->node <= n->node) continue;
        if (!depends(w->g, p, before, n)) continue;
        if (before->node > n->node)
            return wf_fail(WEFT_ERR_ARG, "plan: '%s' stands before '%s', whose result it needs or overwrites",
                           w->g->nodes[before->node].name, w->g->nodes[n->node].name);
        WF_TRY(add_wait(w, i, j));
    }
    return WEFT_OK;
}

static weft_status derive_waits(const wf_graph *g, wf_plan *p)
{
    uint32_t nq = p->n_queues, count[WF_MAX_QUEUES] = {0};
    size_t last[WF_MAX_QUEUES];
    waiter w = {g, p, wf_calloc(p->n_nanos * nq, sizeof(uint32_t)), wf_calloc(p->n_nanos, sizeof(uint32_t))};
    weft_status s = w.done && w.rank ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; i < p->n_nanos && s == WEFT_OK; i++) {
        uint32_t q = p->nanos[i].queue;
        if (count[q]) memcpy(w.done + i * nq, w.done + last[q] * nq, nq * sizeof *w.done);
        w.rank[i] = ++count[q];
        last[q] = i;
        s = find_waits(&w, i);
    }
    free(w.done);
    free(w.rank);
    return s;
}

/* Each op's lines must cover its rows exactly once. */
static weft_status check_cover(const wf_graph *g, const wf_plan *p)
{
    uint64_t *seen = wf_calloc(g->n_nodes, sizeof *seen);
    if (!seen) return WEFT_ERR_NOMEM;
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < p->n_nanos; i++) seen[p->nanos[i].node] |= 1ull << p->nanos[i].part;
    for (size_t i = 0; i < p->n_nanos && s == WEFT_OK; i++) {
        const wf_nano *n = &p->nanos[i];
        uint64_t all = n->parts == 64 ? UINT64_MAX : (1ull << n->parts) - 1;
        if (seen[n->node] != all)
            s = wf_fail(WEFT_ERR_ARG, "plan: the lines of '%s' do not cover its rows exactly once", g->nodes[n->node].name);
    }
    free(seen);
    return s;
}

weft_status wf_plan_split(const wf_graph *g, wf_plan *p)
{
    WF_TRY(expand(g, p));
    WF_TRY(check_cover(g, p));
    return derive_waits(g, p);
}
