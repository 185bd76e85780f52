/* split: turns the lines of a plan into nano-operations and checks that they cover every op's tokens exactly once. */
#include "plan/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- expansion: lines x layers -> nano-operations ---------------------------------------------------------------- */

/* The nodes of a layer lie somewhere in [begin, end). */
typedef struct span {
    int32_t layer;
    size_t begin, end;
} span;

static span span_of(const wf_graph *g, int32_t layer)
{
    span s = {layer, 0, g->n_nodes};
    while (s.begin < s.end && g->nodes[s.begin].layer != layer) s.begin++;
    while (s.end > s.begin && g->nodes[s.end - 1].layer != layer) s.end--;
    return s;
}

static int32_t find_node(const wf_graph *g, const span *s, const char *name)
{
    for (size_t n = s->begin; n < s->end; n++)
        if (g->nodes[n].layer == s->layer && !strcmp(g->nodes[n].name, name)) return (int32_t)n;
    return -1;
}

static weft_status add_nano(const wf_graph *g, wf_plan *p, size_t line, const span *nodes)
{
    const wf_plan_line *l = &p->lines[line];
    int32_t node = find_node(g, nodes, l->name);
    if (node < 0) return WEFT_OK; /* this layer has no such op (say, fused there) */
    /* Where all ops are cut at `decode`, no token of one side is the other's. */
    if ((g->nodes[node].rows == WF_ROWS_DECODE && l->begin.decode) ||
        (g->nodes[node].rows == WF_ROWS_PREFILL && l->end.decode))
        return WEFT_OK;
    if (!wf_grow(&p->nanos, p->n_nanos, &p->cap_nanos, sizeof *p->nanos)) return WEFT_ERR_NOMEM;
    wf_nano *n = &p->nanos[p->n_nanos++];
    *n = (wf_nano){.node = (uint32_t)node,
                   .begin = l->begin,
                   .end = l->end,
                   .queue = l->queue,
                   .groups = l->groups,
                   .line = (uint32_t)line};
    /* A node of decodes ends where they end, one of prefill begins there. Where prefill begins behind a range's end,
     * the range is empty. */
    if (g->nodes[node].rows == WF_ROWS_DECODE && n->end.end) n->end = (wf_boundary){.decode = true};
    if (g->nodes[node].rows == WF_ROWS_PREFILL) n->begin.decode = true;
    return WEFT_OK;
}

/* ---- cover ------------------------------------------------------------------------------------------------------- */

static bool same_boundary(enum wf_rows rows, wf_boundary a, wf_boundary b)
{
    return a.end == b.end && (a.end || (a.tokens == b.tokens && (a.decode == b.decode || rows == WF_ROWS_PREFILL)));
}

/* The nano-operations of each node, as lists of numbers from 1; 0 ends a list. */
typedef struct parts {
    uint32_t *first; /* by node */
    uint32_t *next;  /* by nano-operation */
} parts;

/* The nano-operation of that list which begins there; NULL: none, or (*twice) more than one. */
static wf_nano *begins_at(wf_plan *p, const parts *of, enum wf_rows rows, uint32_t node, wf_boundary at, bool *twice)
{
    wf_nano *found = NULL;
    for (uint32_t i = of->first[node]; i; i = of->next[i - 1]) {
        if (!same_boundary(rows, p->nanos[i - 1].begin, at)) continue;
        *twice |= found != NULL;
        found = &p->nanos[i - 1];
    }
    return found;
}

/* Where a batch has more decodes than the number of a boundary behind `decode`, that boundary moves up with them. */
static wf_boundary boundary_behind(enum wf_rows rows, wf_boundary before, wf_boundary b)
{
    return (wf_boundary){WF_MAX(before.tokens, b.tokens), b.decode || (before.decode && rows != WF_ROWS_PREFILL),
                         b.end || before.end};
}

/* From the first boundary of its rows to the last, each range begins where one ends. */
static weft_status check_cover(const wf_graph *g, wf_plan *p, const parts *parts, uint32_t node)
{
    const wf_node *of = &g->nodes[node];
    wf_boundary at = {.decode = of->rows == WF_ROWS_PREFILL}, floor = at,
                end = {.decode = of->rows == WF_ROWS_DECODE, .end = of->rows != WF_ROWS_DECODE};
    size_t left = 0;
    bool twice = false;
    for (uint32_t i = parts->first[node]; i; i = parts->next[i - 1]) left++;
    for (wf_nano *n; left && (n = begins_at(p, parts, of->rows, node, at, &twice)) && !twice; left--) {
        at = n->end;
        n->begin.tokens = WF_MAX(n->begin.tokens, floor.tokens), n->begin.decode |= floor.decode,
        n->begin.end |= floor.end;
        n->end = floor = boundary_behind(of->rows, floor, n->end);
        if (same_boundary(of->rows, at, end) && left == 1) return WEFT_OK;
    }
    return wf_fail(WEFT_ERR_ARG,
                   "%s: the lines of '%s' do not cover its tokens exactly once: each range must begin where another "
                   "ends, from 0 to 'end'",
                   wf_line_place_of(p, wf_plan_find_line(p, of)).text, of->name);
}

/* ---- in a batch -------------------------------------------------------------------------------------------------- */

wf_range wf_nano_range(const wf_node *node, const wf_nano *nano, uint32_t n_decodes, uint32_t n_tokens,
                       uint32_t n_logits)
{
    enum wf_rows rows = node->rows;
    uint32_t n = rows == WF_ROWS_LOGITS ? n_logits : rows == WF_ROWS_WHOLE ? 1 : n_tokens;
    uint32_t low = rows == WF_ROWS_PREFILL ? n_decodes : 0, high = rows == WF_ROWS_DECODE ? n_decodes : n;
    uint32_t begin = WF_MIN(WF_MAX(wf_boundary_at(nano->begin, n_decodes, n), low), high);
    uint32_t end = WF_MIN(WF_MAX(wf_boundary_at(nano->end, n_decodes, n), begin), high);
    return (wf_range){begin, end - begin};
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

weft_status wf_plan_split(const wf_graph *g, wf_plan *p)
{
    span once = span_of(g, WF_ONCE);
    size_t first = 0, end;
    while (first < p->n_lines && p->lines[first].where == WF_LINE_ONCE) WF_TRY(add_nano(g, p, first++, &once));
    for (end = first; end < p->n_lines && p->lines[end].where != WF_LINE_ONCE;) end++;
    for (int32_t layer = -1; layer < g->n_layers; layer++) {
        /* `next` lines run an op of the layer behind; before the first layer they run its own. */
        span spans[] = {span_of(g, layer), span_of(g, layer + 1)};
        for (size_t i = first; i < end; i++) {
            bool next = p->lines[i].where == WF_LINE_NEXT;
            if (next ? layer + 1 < g->n_layers : layer >= 0) WF_TRY(add_nano(g, p, i, &spans[next]));
        }
    }
    for (; end < p->n_lines; end++) {
        if (p->lines[end].where != WF_LINE_ONCE)
            return wf_fail(WEFT_ERR_ARG, "%s: all 'layer' and 'next' lines must stand together (%s)",
                           wf_line_place_of(p, &p->lines[end]).text, p->lines[end].name);
        WF_TRY(add_nano(g, p, end, &once));
    }
    uint32_t *numbers = wf_calloc(g->n_nodes + p->n_nanos, sizeof *numbers);
    if (!numbers) return WEFT_ERR_NOMEM;
    parts of = {numbers, numbers + g->n_nodes};
    for (uint32_t i = 0; i < p->n_nanos; i++) {
        of.next[i] = of.first[p->nanos[i].node];
        of.first[p->nanos[i].node] = i + 1;
    }
    weft_status s = WEFT_OK;
    for (uint32_t n = 0; n < g->n_nodes && s == WEFT_OK; n++) s = check_cover(g, p, &of, n);
    free(numbers);
    return s;
}
