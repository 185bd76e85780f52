/* place: gives every activation a buffer, reusing buffers whose value is dead (FlashDecoding++Next, section V: a whole
 * layer needs only a few, and every layer reuses them).
 *
 * Where all ops of a layer are cut at the same tokens, nano-batches never touch each other's rows, and what matters is the
 * order of the ops for one of them, which is the graph's. Else, and where layers are interleaved, it is the plan's.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct placer {
    const wf_graph *g;
    wf_plan *p;
    uint32_t *first, *last;  /* by node: when it begins and ends */
    uint32_t *order;         /* nodes by when they begin */
    uint32_t *dies;          /* by value: when it is read last; 0: never read */
    uint32_t *busy_until;    /* by buffer */
    uint32_t pad;
} placer;

#define READ_BY_HOST UINT32_MAX

static bool same_boundary(wf_boundary a, wf_boundary b)
{
    return a.tokens == b.tokens && a.decode == b.decode && a.end == b.end;
}

static size_t count_lines(const wf_plan *p, const wf_plan_line *like)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_lines; i++) n += !strcmp(p->lines[i].name, like->name) && p->lines[i].where == like->where;
    return n;
}

static bool has_cut(const wf_plan *p, const wf_plan_line *op, const wf_plan_line *cut)
{
    for (size_t i = 0; i < p->n_lines; i++) {
        const wf_plan_line *l = &p->lines[i];
        if (l->where == op->where && !strcmp(l->name, op->name) && same_boundary(l->begin, cut->begin) && same_boundary(l->end, cut->end)) return true;
    }
    return false;
}

/* All layer lines cut alike, and none interleaved? */
static bool same_cuts(const wf_plan *p)
{
    const wf_plan_line *first = NULL;
    for (const wf_plan_line *l = p->lines; l < p->lines + p->n_lines; l++) {
        if (l->where == WF_LINE_NEXT) return false;
        if (l->where != WF_LINE_LAYER) continue;
        if (!first) first = l;
        if (!has_cut(p, first, l) || count_lines(p, l) != count_lines(p, first)) return false;
    }
    return true;
}

static void find_times(placer *s)
{
    bool by_graph = !s->p->n_nanos || same_cuts(s->p);
    for (size_t n = 0; n < s->g->n_nodes; n++) s->first[n] = by_graph ? (uint32_t)n + 1 : UINT32_MAX, s->last[n] = by_graph ? (uint32_t)n + 1 : 0;
    for (size_t i = 0; i < s->p->n_nanos && !by_graph; i++) {
        uint32_t node = s->p->nanos[i].node, at = (uint32_t)i + 1;
        s->first[node] = WF_MIN(s->first[node], at);
        s->last[node] = WF_MAX(s->last[node], at);
    }
}

static void sort_nodes(placer *s)
{
    for (uint32_t n = 0; n < s->g->n_nodes; n++) {
        uint32_t at = n;
        for (; at && s->first[s->order[at - 1]] > s->first[n]; at--) s->order[at] = s->order[at - 1];
        s->order[at] = n;
    }
}

static void find_deaths(placer *s)
{
    for (size_t n = 0; n < s->g->n_nodes; n++)
        for (size_t i = 0; i < WF_MAX_IN; i++) {
            int32_t v = s->g->nodes[n].in[i].value;
            if (v >= 0) s->dies[v] = WF_MAX(s->dies[v], s->last[n]);
        }
    if (s->g->logits >= 0) s->dies[s->g->logits] = READ_BY_HOST;
}

/* Does another node than this one read the value when this one has begun? */
static bool read_by_others(const placer *s, int32_t value, uint32_t node)
{
    for (uint32_t n = 0; n < s->g->n_nodes; n++)
        for (size_t i = 0; i < WF_MAX_IN && n != node; i++)
            if (s->g->nodes[n].in[i].value == value && s->last[n] >= s->first[node]) return true;
    return false;
}

/* Values that a node may overwrite with its result, where nobody needs them afterwards: an input that may share the output's storage,
 * as a residual, and what a collective combines in place. */
static int32_t replaceable(const wf_node *n)
{
    int shared = n->kind == WF_NODE_KERNEL ? wf_op_input(n->op, WF_OPERAND_SHARED) : -1;
    if (n->kind == WF_NODE_KERNEL) return shared >= 0 && !n->in[shared].cols ? n->in[shared].value : -1;
    return n->kind >= WF_NODE_SEND ? n->in[0].value : -1;
}

static int32_t inherited_buffer(const placer *s, uint32_t node, int32_t value)
{
    const wf_node *n = &s->g->nodes[node];
    int32_t old = n->out[0].value == value ? replaceable(n) : -1;
    if (old < 0 || s->g->values[old].kind != WF_VALUE_ACT || s->dies[old] == READ_BY_HOST || read_by_others(s, old, node)) return -1;
    const wf_value *a = &s->g->values[old], *v = &s->g->values[value];
    return a->dtype == v->dtype && a->cols == v->cols ? s->p->buffer_of[old] : -1;
}

/* The free buffer that grows least; a new one if there is none. */
static int32_t free_buffer(placer *s, enum wf_rows rows, uint32_t pitch, uint32_t now)
{
    wf_plan *p = s->p;
    int32_t best = -1;
    uint32_t best_growth = UINT32_MAX;
    for (size_t i = 0; i < p->n_buffers; i++) {
        if (s->busy_until[i] >= now || p->buffers[i].rows != rows) continue;
        uint32_t growth = pitch > p->buffers[i].pitch ? pitch - p->buffers[i].pitch : 0;
        if (growth < best_growth) best = (int32_t)i, best_growth = growth;
    }
    if (best >= 0) {
        p->buffers[best].pitch = WF_MAX(p->buffers[best].pitch, pitch);
        return best;
    }
    if (!wf_grow(&p->buffers, p->n_buffers, &p->cap_buffers, sizeof *p->buffers)) return -1;
    p->buffers[p->n_buffers] = (wf_act_buffer){rows, pitch};
    return (int32_t)p->n_buffers++;
}

static weft_status place_value(placer *s, uint32_t node, int32_t value)
{
    const wf_value *v = &s->g->values[value];
    uint32_t pitch = (uint32_t)WF_UP(wf_dtype_bytes(v->dtype, v->cols), s->pad);
    int32_t buffer = inherited_buffer(s, node, value);
    if (buffer < 0) buffer = free_buffer(s, v->rows, pitch, s->first[node]);
    if (buffer < 0) return WEFT_ERR_NOMEM;
    s->p->buffer_of[value] = buffer;
    s->busy_until[buffer] = WF_MAX(s->dies[value], s->last[node]);
    return WEFT_OK;
}

static weft_status place_outputs(placer *s, uint32_t node)
{
    for (size_t i = 0; i < WF_MAX_OUT; i++) {
        int32_t value = s->g->nodes[node].out[i].value;
        /* a slice of it may be placed already */
        if (value >= 0 && s->g->values[value].kind == WF_VALUE_ACT && s->p->buffer_of[value] < 0) WF_TRY(place_value(s, node, value));
    }
    return WEFT_OK;
}

static weft_status place_all(placer *s)
{
    find_times(s);
    sort_nodes(s);
    find_deaths(s);
    for (size_t i = 0; i < s->g->n_nodes; i++) WF_TRY(place_outputs(s, s->order[i]));
    return WEFT_OK;
}

weft_status wf_plan_place(const wf_graph *g, wf_plan *p, uint32_t pad)
{
    size_t nodes = g->n_nodes, values = g->n_values;
    uint32_t *numbers = wf_calloc(3 * nodes + 2 * values, sizeof *numbers);
    p->buffer_of = wf_calloc(values, sizeof *p->buffer_of);
    weft_status s = WEFT_ERR_NOMEM;
    for (size_t v = 0; p->buffer_of && v < values; v++) p->buffer_of[v] = -1;
    if (numbers && p->buffer_of) {
        placer placing = {g, p, numbers, numbers + nodes, numbers + 2 * nodes, numbers + 3 * nodes, numbers + 3 * nodes + values, pad};
        s = place_all(&placing);
    }
    free(numbers);
    return s;
}

/* ---- one set of buffers for all plans -------------------------------------------------------------------------------- */

/* The n-th buffer of that kind of rows; -1: there are fewer. */
static int32_t nth_buffer(const wf_plan *p, enum wf_rows rows, size_t n)
{
    for (size_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].rows == rows && !n--) return (int32_t)i;
    return -1;
}

static size_t rank_of(const wf_plan *p, int32_t buffer)
{
    size_t n = 0;
    for (int32_t i = 0; i < buffer; i++) n += p->buffers[i].rows == p->buffers[buffer].rows;
    return n;
}

/* Grows all to hold the buffers of p. */
static weft_status merge_into(wf_plan *all, const wf_plan *p)
{
    for (size_t i = 0; i < p->n_buffers; i++) {
        const wf_act_buffer *s = &p->buffers[i];
        int32_t to = nth_buffer(all, s->rows, rank_of(p, (int32_t)i));
        if (to >= 0) {
            all->buffers[to].pitch = WF_MAX(all->buffers[to].pitch, s->pitch);
            continue;
        }
        if (!wf_grow(&all->buffers, all->n_buffers, &all->cap_buffers, sizeof *s)) return WEFT_ERR_NOMEM;
        all->buffers[all->n_buffers++] = *s;
    }
    return WEFT_OK;
}

/* Renumbers p's buffers as those of all. */
static weft_status adopt(const wf_graph *g, wf_plan *p, const wf_plan *all)
{
    for (size_t v = 0; v < g->n_values; v++)
        if (p->buffer_of[v] >= 0) p->buffer_of[v] = nth_buffer(all, p->buffers[p->buffer_of[v]].rows, rank_of(p, p->buffer_of[v]));
    wf_act_buffer *buffers = wf_calloc(all->n_buffers, sizeof *buffers);
    if (!buffers) return WEFT_ERR_NOMEM;
    memcpy(buffers, all->buffers, all->n_buffers * sizeof *buffers);
    free(p->buffers);
    p->buffers = buffers;
    p->n_buffers = p->cap_buffers = all->n_buffers;
    return WEFT_OK;
}

weft_status wf_plans_finish(const wf_graph *g, wf_plans *p, uint32_t pad)
{
    wf_plan all = {0};
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < p->n && s == WEFT_OK; i++) {
        s = wf_plan_split(g, &p->list[i]);
        if (s == WEFT_OK) s = wf_plan_place(g, &p->list[i], pad);
        if (s == WEFT_OK) s = merge_into(&all, &p->list[i]);
    }
    for (size_t i = 0; i < p->n && s == WEFT_OK; i++) {
        s = adopt(g, &p->list[i], &all);
        if (s == WEFT_OK) s = wf_plan_wait(g, &p->list[i]);
    }
    wf_plan_free(&all);
    return s;
}
