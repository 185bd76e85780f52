/* wait: what each nano-operation must wait for, from what it touches. See plan.h. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a node touches ----------------------------------------------------------------------------------------- */

/* Resources in one numbering: buffers of activations, KV pools, inputs, states. */
typedef struct touch {
    uint32_t resource;
    uint32_t begin, end; /* bytes of a row, of an activation */
    bool writes;
    bool tokens; /* its rows are tokens of the batch, or those whose logits are wanted; and only the range counts */
    bool keys;   /* attention reads keys from first_key() on */
    bool adds;   /* counts by atomic additions, whose order does not matter */
} touch;

enum { MAX_TOUCHES = WF_MAX_IN + WF_MAX_OUT };

typedef struct touches {
    touch list[MAX_TOUCHES];
    size_t n;
} touches;

static uint32_t resource_of(const wf_graph *g, const wf_plan *p, int32_t value, uint32_t pools)
{
    const wf_value *v = &g->values[value];
    uint32_t base = (uint32_t)p->n_buffers;
    if (v->kind == WF_VALUE_ACT) return (uint32_t)p->buffer_of[value];
    if (v->kind == WF_VALUE_KV) return base + v->id;
    base += pools;
    return v->kind == WF_VALUE_INPUT ? base + v->id : base + WF_N_INPUTS + v->id;
}

static bool same_space(enum wf_rows a, enum wf_rows b)
{
    return (wf_rows_are_tokens(a) && wf_rows_are_tokens(b)) || (a == WF_ROWS_LOGITS && b == a);
}

/* ---- do two depend? ---------------------------------------------------------------------------------------------- */

/* Surely, whatever the batch: */
static bool not_behind(wf_boundary a, wf_boundary b)
{
    return b.end || (!a.end && a.tokens <= b.tokens && (!a.decode || b.decode));
}

/* Prefill attention reads the keys of all prefill tokens before its end; a decode reads, of this step, only its own. */
static wf_boundary first_key(const wf_node *node, const wf_nano *n)
{
    return node->rows == WF_ROWS_PREFILL ? (wf_boundary){.decode = true}
           : node->rows == WF_ROWS_BATCH ? (wf_boundary){0}
                                         : n->begin;
}

static wf_boundary begin_of(const wf_graph *g, const wf_nano *n, const touch *t)
{
    return t->keys ? first_key(&g->nodes[n->node], n) : n->begin;
}

static bool touches_apart(const wf_graph *g, const wf_nano *a, const touch *ta, const wf_nano *b, const touch *tb)
{
    if (ta->end <= tb->begin || tb->end <= ta->begin) return true;
    return ta->tokens && tb->tokens &&
           (not_behind(a->end, begin_of(g, b, tb)) || not_behind(b->end, begin_of(g, a, ta)));
}

static bool has_input(const wf_graph *g, const wf_node *n)
{
    for (size_t i = 0; i < MAX_TOUCHES; i++) {
        int32_t v = i < WF_MAX_IN ? n->in[i].value : n->out[i - WF_MAX_IN].value;
        if (v >= 0 && g->values[v].kind == WF_VALUE_INPUT) return true;
    }
    return false;
}

/* The upload writes all inputs, which are too many for operands. */
static bool meets_upload(const wf_graph *g, const wf_node *a, const wf_node *b)
{
    return (a->kind == WF_NODE_UPLOAD && has_input(g, b)) || (b->kind == WF_NODE_UPLOAD && has_input(g, a));
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

/* done[i * n_queues + q]: how many nano-operations of queue q have surely ended before nano-operation i starts. */
typedef struct waiter {
    const wf_graph *g;
    wf_plan *p;
    touches *touches;       /* by node */
    uint32_t *done, *rank;  /* rank[i]: position of i in its queue, from 1 */
    /* before[i]: the one before it in its queue, from 1; top[i]: the last node of [0, i] in the graph's order. */
    uint32_t *before, *top;
    uint32_t last[WF_MAX_QUEUES]; /* of each queue so far, from 1; 0: none */
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

static bool depends_on(const waiter *w, size_t i, size_t on)
{
    w->p->n_compared++;
    const wf_nano *a = &w->p->nanos[on], *b = &w->p->nanos[i];
    const touches *of_a = &w->touches[a->node], *of_b = &w->touches[b->node];
    if (meets_upload(w->g, &w->g->nodes[a->node], &w->g->nodes[b->node])) return true;
    for (const touch *ta = of_a->list; ta < of_a->list + of_a->n; ta++)
        for (const touch *tb = of_b->list; tb < of_b->list + of_b->n; tb++)
            if (ta->resource == tb->resource && (ta->writes || tb->writes) && !(ta->adds && tb->adds) &&
                !touches_apart(w->g, a, ta, b, tb))
                return true;
    return false;
}

static wf_line_place place_of(const waiter *w, const wf_nano *n)
{
    return wf_line_place_of(w->p, &w->p->lines[n->line]);
}

/* The latest nano-operation of another queue among `at` that has not surely ended before i starts, from 1; 0: none. */
static uint32_t latest_other(const waiter *w, size_t i, const uint32_t at[WF_MAX_QUEUES])
{
    const wf_plan *p = w->p;
    uint32_t best = 0;
    for (uint32_t q = 0; q < p->n_queues; q++)
        if (q != p->nanos[i].queue && at[q] > best && w->rank[at[q] - 1] > w->done[i * p->n_queues + q]) best = at[q];
    return best;
}

/* Latest first: waiting for the last of a queue covers the ones before it. So there is at most one wait a queue. Nodes
 * that come later in the graph have been compared. */
static weft_status find_waits(waiter *w, size_t i)
{
    wf_plan *p = w->p;
    wf_nano *n = &p->nanos[i];
    uint32_t at[WF_MAX_QUEUES];
    memcpy(at, w->last, sizeof at);
    n->wait = (uint32_t)p->n_waits;
    for (uint32_t j; (j = latest_other(w, i, at)); at[p->nanos[j - 1].queue] = w->before[j - 1])
        if (p->nanos[j - 1].node <= n->node && depends_on(w, i, j - 1)) WF_TRY(add_wait(w, i, j - 1));
    if (n->n_waits < WF_MAX_QUEUES) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "%s: '%s' waits for %u others, more than the %d that a command can",
                   place_of(w, n).text, w->g->nodes[n->node].name, n->n_waits, WF_MAX_QUEUES - 1);
}

/* Queues nano-operation i behind the last one of its queue. */
static void queue_nano(waiter *w, size_t i)
{
    uint32_t nq = w->p->n_queues, *last = &w->last[w->p->nanos[i].queue], node = w->p->nanos[i].node;
    if (*last) memcpy(w->done + i * nq, w->done + (*last - 1) * nq, nq * sizeof *w->done);
    w->rank[i] = *last ? w->rank[*last - 1] + 1 : 1;
    w->before[i] = *last;
    w->top[i] = i ? WF_MAX(w->top[i - 1], node) : node;
    *last = (uint32_t)i + 1;
}

static weft_status wait_all(waiter *w)
{
    uint32_t pools = 0;
    for (size_t v = 0; v < w->g->n_values; v++)
        if (w->g->values[v].kind == WF_VALUE_KV) pools = WF_MAX(pools, w->g->values[v].id + 1);
    for (size_t i = 0; i < w->g->n_nodes; i++) {
        const wf_node *node = &w->g->nodes[i];
        for (size_t k = 0; k < MAX_TOUCHES; k++) {
            bool writes = k >= WF_MAX_IN;
            int32_t value = writes ? wf_node_out(node, k - WF_MAX_IN) : node->in[k].value;
            const wf_value *v = &w->g->values[WF_MAX(value, 0)];
            if (value < 0 || v->kind == WF_VALUE_WEIGHT) continue;
            bool kv = v->kind == WF_VALUE_KV,
                 adds = node->op == WF_OP_ATTENTION && k == WF_MAX_IN + WF_ATTENTION_RECOMPUTED;
            uint32_t at = w->p->offset_of[value],
                     bytes = v->kind == WF_VALUE_ACT ? (uint32_t)wf_dtype_bytes(v->dtype, v->cols) : 1;
            w->touches[i].list[w->touches[i].n++] = (touch){resource_of(w->g, w->p, value, pools),
                                                            at,
                                                            at + bytes,
                                                            writes,
                                                            kv || same_space(v->rows, node->rows),
                                                            kv && !writes,
                                                            adds};
        }
    }
    for (size_t i = 0; i < w->p->n_nanos; i++) {
        queue_nano(w, i);
        /* Only nodes that come later in the graph can stand wrongly before i, and before `top` reaches it there are
         * none. */
        const wf_nano *n = w->p->nanos;
        for (size_t j = i; j-- > 0 && w->top[j] > n[i].node;)
            if (n[j].node > n[i].node && depends_on(w, i, j))
                return wf_fail(WEFT_ERR_ARG, "%s: '%s' stands before '%s', whose result it needs or overwrites",
                               place_of(w, &n[j]).text, w->g->nodes[n[j].node].name, w->g->nodes[n[i].node].name);
        WF_TRY(find_waits(w, i));
    }
    return WEFT_OK;
}

weft_status wf_plan_wait(const wf_graph *g, wf_plan *p)
{
    size_t n = p->n_nanos;
    uint32_t *numbers = wf_calloc(n * (p->n_queues + 3), sizeof *numbers);
    touches *of = wf_calloc(g->n_nodes, sizeof *of);
    waiter w = {.g = g,
                .p = p,
                .touches = of,
                .rank = numbers,
                .before = numbers + n,
                .top = numbers + 2 * n,
                .done = numbers + 3 * n};
    weft_status s = numbers && of ? wait_all(&w) : WEFT_ERR_NOMEM;
    free(numbers);
    free(of);
    return s;
}
