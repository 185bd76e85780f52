/* plan: the built-in plans and the choice between plans. See plan.h. */
#include "plan/text.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_plan_add_line(wf_plan *p, const wf_plan_line *l)
{
    if (!wf_grow(&p->lines, p->n_lines, &p->cap_lines, sizeof *l)) return WEFT_ERR_NOMEM;
    p->lines[p->n_lines++] = *l;
    return WEFT_OK;
}

const wf_plan_line *wf_plan_find_line(const wf_plan *p, const wf_node *n)
{
    for (size_t i = 0; i < p->n_lines; i++)
        if ((p->lines[i].where != WF_LINE_ONCE) == (n->layer != WF_ONCE) && !strcmp(p->lines[i].name, n->name))
            return &p->lines[i];
    return NULL;
}

const wf_node *wf_plan_find_node(const wf_graph *g, const wf_plan_line *l)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if ((g->nodes[i].layer != WF_ONCE) == (l->where != WF_LINE_ONCE) && !strcmp(g->nodes[i].name, l->name))
            return &g->nodes[i];
    return NULL;
}

wf_line_place wf_line_place_of(const wf_plan *p, const wf_plan_line *l)
{
    wf_line_place at = {"plan"};
    if (l && l->number) snprintf(at.text, sizeof at.text, "plan: %s:%u", p->path, l->number);
    return at;
}

weft_status wf_plan_copy_lines(const wf_plan *p, wf_plan *out)
{
    *out = (wf_plan){.bucket = p->bucket, .n_queues = p->n_queues, .tile = p->tile};
    for (size_t i = 0; i < p->n_lines; i++) WF_TRY(wf_plan_add_line(out, &p->lines[i]));
    return WEFT_OK;
}

/* Where the line of node i belongs: before that of the next op of its layer that has one. Layers may differ in their
 * ops, for one fuses what another cannot. */
static size_t place_of(const wf_plan *p, const wf_graph *g, size_t i)
{
    for (size_t next = i + 1; next < g->n_nodes && g->nodes[next].layer == g->nodes[i].layer; next++) {
        const wf_plan_line *l = wf_plan_find_line(p, &g->nodes[next]);
        if (l) return (size_t)(l - p->lines);
    }
    return p->n_lines;
}

static weft_status insert_line(wf_plan *p, size_t at, const wf_plan_line *l)
{
    WF_TRY(wf_plan_add_line(p, l));
    memmove(p->lines + at + 1, p->lines + at, (p->n_lines - 1 - at) * sizeof *l);
    p->lines[at] = *l;
    return WEFT_OK;
}

weft_status wf_plan_sequential(const wf_graph *g, wf_plan *out)
{
    *out = (wf_plan){.n_queues = 1, .tile = 1};
    for (size_t i = 0; i < g->n_nodes; i++) {
        const wf_node *n = &g->nodes[i];
        if (wf_plan_find_line(out, n)) continue;
        wf_plan_line l = {.where = n->layer != WF_ONCE ? WF_LINE_LAYER : WF_LINE_ONCE,
                          .end = {.end = true},
                          .kernel = "auto"};
        wf_copy(l.name, sizeof l.name, n->name);
        WF_TRY(insert_line(out, place_of(out, g, i), &l));
    }
    return WEFT_OK;
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* Does the node follow the op of that line, which all steps run, or those without adapters? */
static bool follows(const wf_graph *g, const wf_node *n, const wf_plan_line *l)
{
    if (n->when != WF_WHEN_ADAPTED) return false;
    while (n > g->nodes && n->when == WF_WHEN_ADAPTED) n--;
    return (n->layer == WF_ONCE) == (l->where == WF_LINE_ONCE) && !strcmp(n->name, l->name);
}

static weft_status add_followers(const wf_graph *g, const wf_plan *p, const wf_plan_line *l, wf_plan *out)
{
    size_t first = out->n_lines;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const wf_node *n = &g->nodes[i];
        const wf_plan own = {.lines = out->lines + first, .n_lines = out->n_lines - first};
        if (!follows(g, n, l) || wf_plan_find_line(p, n) || wf_plan_find_line(&own, n)) continue;
        wf_plan_line line = *l;
        line.groups = 0;
        wf_copy(line.name, sizeof line.name, n->name);
        wf_copy(line.kernel, sizeof line.kernel, "auto");
        WF_TRY(insert_line(out, first + place_of(&own, g, i), &line));
    }
    return WEFT_OK;
}

weft_status wf_plan_add_adapted(const wf_graph *g, wf_plan *p)
{
    wf_plan with = {0};
    weft_status s = WEFT_OK;
    for (size_t i = 0; g->adapted && i < p->n_lines && s == WEFT_OK; i++) {
        s = wf_plan_add_line(&with, &p->lines[i]);
        if (s == WEFT_OK) s = add_followers(g, p, &p->lines[i], &with);
    }
    if (s != WEFT_OK || !g->adapted) return wf_plan_free(&with), s;
    free(p->lines);
    p->lines = with.lines, p->n_lines = with.n_lines, p->cap_lines = with.cap_lines;
    return WEFT_OK;
}

/* ---- nano-batches of about equal size ---------------------------------------------------------------------------- */

typedef struct cut {
    const wf_graph *g;
    uint32_t tokens, parts, tile; /* of a full batch; nano-batches; multiples */
} cut;

static wf_boundary boundary_of(const cut *c, uint32_t i)
{
    uint64_t at = WF_UP((uint64_t)c->tokens * i / c->parts, (uint64_t)c->tile);
    return i == c->parts ? (wf_boundary){.end = true} : (wf_boundary){.tokens = (uint32_t)WF_MIN(at, c->tokens)};
}

static bool is_attention(const wf_graph *g, const wf_plan_line *l)
{
    return wf_plan_find_node(g, l)->op == WF_OP_ATTENTION;
}

static bool is_collective(const wf_graph *g, const wf_plan_line *l)
{
    return wf_plan_find_node(g, l)->kind >= WF_NODE_GATHER;
}

static bool is_sent(const wf_graph *g, const wf_plan_line *l)
{
    return wf_plan_find_node(g, l)->kind == WF_NODE_SEND;
}

static bool is_received(const wf_graph *g, const wf_plan_line *l)
{
    return wf_plan_find_node(g, l)->kind == WF_NODE_RECEIVE;
}

/* Is a line of [begin, end) such a one? The first of them; end: none. */
typedef bool line_test(const wf_graph *g, const wf_plan_line *l);
static size_t find_line(const wf_plan *p, size_t begin, size_t end, const wf_graph *g, line_test *test)
{
    while (begin < end && !test(g, &p->lines[begin])) begin++;
    return begin;
}

/* The lines [begin, end) for one nano-batch; those of the test (NULL: none) on a queue of their own. */
static weft_status add_nano_batch(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, const cut *c, uint32_t i,
                                  line_test *apart)
{
    for (size_t l = begin; l < end; l++) {
        wf_plan_line line = whole->lines[l];
        line.begin = boundary_of(c, i);
        line.end = boundary_of(c, i + 1);
        line.queue = apart && apart(c->g, &line);
        WF_TRY(wf_plan_add_line(p, &line));
    }
    return WEFT_OK;
}

static weft_status add_nano_batches(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, const cut *c,
                                    line_test *apart)
{
    for (uint32_t i = 0; i < c->parts; i++) WF_TRY(add_nano_batch(p, whole, begin, end, c, i, apart));
    return WEFT_OK;
}

/* Who submits waits at collectives: each comes once all nano-batches have what is before it, so that one is exchanged
 * while the others are computed. */
static weft_status cut_at_collectives(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, const cut *c)
{
    for (size_t next; begin < end; begin = next) {
        next = find_line(whole, begin + 1, end, c->g, is_collective);
        WF_TRY(add_nano_batches(p, whole, begin, next, c, is_collective));
    }
    return WEFT_OK;
}

/* Another device computes what it has of one nano-batch while this one computes another: one comes after the other,
 * from what is received to what is sent. */
static weft_status cut_at_messages(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, const cut *c)
{
    for (size_t next; begin < end; begin = next) {
        next = find_line(whole, find_line(whole, begin, end, c->g, is_sent), end, c->g, is_received);
        WF_TRY(add_nano_batches(p, whole, begin, next, c, NULL));
    }
    return WEFT_OK;
}

static weft_status cut_layers(wf_plan *p, const wf_plan *whole, const cut *c)
{
    size_t begin = 0, end;
    while (begin < whole->n_lines && whole->lines[begin].where == WF_LINE_ONCE) begin++;
    for (end = begin; end < whole->n_lines && whole->lines[end].where != WF_LINE_ONCE;) end++;
    for (size_t i = 0; i < begin; i++) WF_TRY(wf_plan_add_line(p, &whole->lines[i]));
    size_t middle = end;
    while (middle > begin && !is_attention(c->g, &whole->lines[middle - 1])) middle--;
    if (find_line(whole, begin, end, c->g, is_sent) < end) {
        WF_TRY(cut_at_messages(p, whole, begin, end, c));
    } else if (find_line(whole, begin, end, c->g, is_collective) < end) {
        WF_TRY(cut_at_collectives(p, whole, begin, end, c));
    } else { /* attention of one stands before what the others compute meanwhile */
        WF_TRY(add_nano_batches(p, whole, begin, middle, c, is_attention));
        WF_TRY(add_nano_batches(p, whole, middle, end, c, is_attention));
    }
    for (size_t i = end; i < whole->n_lines; i++) WF_TRY(wf_plan_add_line(p, &whole->lines[i]));
    return WEFT_OK;
}

static weft_status overlap_plan(const cut *c, wf_plan *out)
{
    wf_plan whole;
    *out = (wf_plan){.n_queues = 2, .tile = c->tile, .bucket.tokens = c->tokens};
    weft_status s = wf_plan_sequential(c->g, &whole);
    if (s == WEFT_OK) s = cut_layers(out, &whole, c);
    wf_plan_free(&whole);
    return s;
}

weft_status wf_plans_overlap(const wf_graph *g, uint32_t n_parts, uint32_t max_tokens, uint32_t tile, wf_plans *out)
{
    if (n_parts < 2 || n_parts > WF_MAX_RANGES)
        return wf_fail(WEFT_ERR_ARG, "%u nano-batches: want 2 to %d", n_parts, WF_MAX_RANGES);
    size_t n = 1;
    while (n < 9 && max_tokens >> n >= WF_MAX(n_parts, 2u)) n++;
    *out = (wf_plans){0};
    for (size_t i = 0; i < n; i++) {
        uint32_t tokens = max_tokens >> (n - 1 - i);
        cut c = {g, tokens, WF_MIN(n_parts, tokens), tokens / n_parts >= tile ? WF_MAX(tile, 1u) : 1};
        WF_TRY(overlap_plan(&c, &out->list[out->n++]));
    }
    out->list[n - 1].bucket = (wf_bucket){0};
    return WEFT_OK;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Decodes of n_tokens, in whole ones, so that a share holds for any number of tokens. */
static uint32_t decodes_of(float share, uint32_t n_tokens)
{
    return (uint32_t)((double)share * n_tokens);
}

static bool bucket_fits(const wf_bucket *b, uint32_t n_tokens, uint32_t n_decodes, uint32_t max_context)
{
    return n_tokens >= b->least_tokens && (!b->tokens || n_tokens <= b->tokens) && max_context >= b->least_context &&
           (!b->context || max_context <= b->context) && n_decodes >= decodes_of(b->least_decodes, n_tokens) &&
           (b->decodes == 0 || n_decodes <= decodes_of(b->decodes, n_tokens));
}

size_t wf_plans_choose(const wf_plans *p, uint32_t n_tokens, uint32_t n_decodes, uint32_t max_context)
{
    size_t i = 0;
    while (i + 1 < p->n && !bucket_fits(&p->list[i].bucket, n_tokens, n_decodes, max_context)) i++;
    return i;
}

void wf_plan_free(wf_plan *p)
{
    free(p->lines);
    free(p->nanos);
    free(p->waits);
    free(p->buffers);
    free(p->buffer_of);
    free(p->offset_of);
    memset(p, 0, sizeof *p);
}

void wf_plans_free(wf_plans *p)
{
    for (size_t i = 0; i < p->n; i++) wf_plan_free(&p->list[i]);
    p->n = 0;
}
