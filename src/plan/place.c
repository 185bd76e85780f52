/* place: gives every activation columns of a buffer, reusing those whose value is dead (FlashDecoding++Next, section V:
 * a whole layer needs only three buffers, and every layer reuses them).
 *
 * Values that are computed in place are one block: element-wise ops, as a residual's addition or SiLU, write over what
 * they read. Blocks are placed from the widest to the narrowest, each into the first gap of a buffer that is free as
 * long as it lives, and else into a new buffer, so that buffers never grow: in a Llama layer the widest is the result
 * of gate and up, and holds what attention needs before it; the second is the residual stream, the third the normalised
 * input.
 *
 * Where all ops of a layer are cut at the same tokens, nano-batches never touch each other's rows, and what matters is
 * the order of the ops for one of them, which is the graph's. Else, and where layers are interleaved, it is the plan's.
 * Queues that run side by side are safe all the same: nano-operations whose rows and columns meet wait for each other
 * (wait.c).
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Values that share their storage: one after another is computed in place. */
typedef struct block {
    uint32_t born, dies; /* when it is written first and read last */
    uint32_t width;      /* bytes of a row */
    enum wf_rows rows;
    int32_t buffer;      /* -1: not placed yet */
    uint32_t offset;
} block;

typedef struct placer {
    const wf_graph *g;
    wf_plan *p;
    uint32_t *first, *last; /* by node: when it begins and ends */
    uint32_t *order;        /* nodes by when they begin */
    uint32_t *dies;         /* by value: when it is read last; 0: never read */
    int32_t *block_of;      /* by value; -1: none yet */
    block *blocks;
    uint32_t n_blocks, pad;
} placer;

#define READ_BY_HOST UINT32_MAX

static bool same_boundary(wf_boundary a, wf_boundary b)
{
    return a.tokens == b.tokens && a.decode == b.decode && a.end == b.end;
}

static size_t count_lines(const wf_plan *p, const wf_plan_line *like)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_lines; i++)
        n += !strcmp(p->lines[i].name, like->name) && p->lines[i].where == like->where;
    return n;
}

static bool has_cut(const wf_plan *p, const wf_plan_line *op, const wf_plan_line *cut)
{
    for (size_t i = 0; i < p->n_lines; i++) {
        const wf_plan_line *l = &p->lines[i];
        if (l->where == op->where && !strcmp(l->name, op->name) && same_boundary(l->begin, cut->begin) &&
            same_boundary(l->end, cut->end))
            return true;
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

/* Values that a node may overwrite with its result, where nobody needs them afterwards: an input or a workspace that
 * may share the output's storage, as a residual or a gate, and what a collective combines in place. */
static int32_t replaceable_value(const wf_node *n)
{
    if (n->kind != WF_NODE_KERNEL) return n->kind >= WF_NODE_SEND ? n->in[0].value : -1;
    int shared = wf_op_input(n->op, WF_OPERAND_SHARED);
    if (!wf_may_share(&n->p)) return -1;
    if (shared < 0 || n->in[shared].value < 0) {
        /* The whole of a node's own workspace, in which its result may be. */
        for (size_t i = 1; i < wf_ops[n->op].n_out; i++)
            if (wf_ops[n->op].out[i].what & WF_OPERAND_SHARED) return wf_node_out(n, i);
        return -1;
    }
    return n->in[shared].cols ? -1 : n->in[shared].value;
}

/* Can a result be in the place of an older value? In its first columns only where the node writes the whole of it. */
static bool fits_in(const wf_value *v, const wf_operand *written, const wf_value *old)
{
    return v->rows == old->rows && v->dtype == old->dtype &&
           (v->cols == old->cols || (!written->cols && v->cols < old->cols));
}

static int32_t inherited_block(const placer *s, uint32_t node, int32_t value)
{
    const wf_node *n = &s->g->nodes[node];
    int32_t old = n->out[0].value == value ? replaceable_value(n) : -1;
    if (old < 0 || s->g->values[old].kind != WF_VALUE_ACT || s->dies[old] == READ_BY_HOST ||
        read_by_others(s, old, node))
        return -1;
    return fits_in(&s->g->values[value], &n->out[0], &s->g->values[old]) ? s->block_of[old] : -1;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* In the order of the nodes, and of one its workspaces first. Several may write columns or rows of one value. */
static void find_blocks(placer *s)
{
    for (size_t i = 0; i < s->g->n_nodes; i++)
        for (size_t o = WF_MAX_OUT; o-- > 0;) {
            int32_t value = wf_node_out(&s->g->nodes[s->order[i]], o);
            if (value >= 0 && s->g->values[value].kind == WF_VALUE_ACT) {
                uint32_t node = s->order[i];
                const wf_value *v = &s->g->values[value];
                if (s->block_of[value] < 0) s->block_of[value] = inherited_block(s, node, value);
                if (s->block_of[value] < 0) {
                    s->blocks[s->n_blocks] = (block){
                        .born = s->first[node],
                        .rows = v->rows,
                        .buffer = -1,
                        .width = (uint32_t)WF_UP(wf_dtype_bytes(v->dtype, v->cols), s->pad)};
                    s->block_of[value] = (int32_t)s->n_blocks++;
                }
                block *b = &s->blocks[s->block_of[value]];
                b->dies = WF_MAX(b->dies, WF_MAX(s->dies[value], s->last[node]));
            }
        }
}

static void by_width(const placer *s, uint32_t *order)
{
    for (uint32_t b = 0; b < s->n_blocks; b++) {
        uint32_t at = b;
        for (; at && s->blocks[order[at - 1]].width < s->blocks[b].width; at--) order[at] = order[at - 1];
        order[at] = b;
    }
}

/* ---- gaps -------------------------------------------------------------------------------------------------------- */

/* The end of a block that lives in these columns of the buffer while b does; `from` itself if there is none. */
static uint32_t end_of_conflict(const placer *s, const block *b, int32_t buffer, uint32_t from)
{
    for (const block *o = s->blocks; o < s->blocks + s->n_blocks; o++)
        if (o->buffer == buffer && o->born <= b->dies && b->born <= o->dies && o->offset < from + b->width &&
            from < o->offset + o->width)
            return o->offset + o->width;
    return from;
}

/* Its lowest columns that are free as long as b lives; false if there are none. */
static bool block_fits(const placer *s, const block *b, int32_t buffer, uint32_t *offset)
{
    const wf_act_buffer *to = &s->p->buffers[buffer];
    uint32_t at = 0, next;
    if (to->rows != b->rows) return false;
    while (at + b->width <= to->pitch && (next = end_of_conflict(s, b, buffer, at)) != at) at = next;
    *offset = at;
    return at + b->width <= to->pitch;
}

static weft_status place_block(placer *s, block *b)
{
    wf_plan *p = s->p;
    for (int32_t i = 0; i < (int32_t)p->n_buffers; i++)
        if (block_fits(s, b, i, &b->offset)) {
            b->buffer = i;
            return WEFT_OK;
        }
    if (!wf_grow(&p->buffers, p->n_buffers, &p->cap_buffers, sizeof *p->buffers)) return WEFT_ERR_NOMEM;
    p->buffers[p->n_buffers] = (wf_act_buffer){b->rows, b->width};
    b->buffer = (int32_t)p->n_buffers++;
    b->offset = 0;
    return WEFT_OK;
}

static weft_status place_all(placer *s)
{
    bool by_graph = !s->p->n_nanos || same_cuts(s->p);
    for (size_t n = 0; n < s->g->n_nodes; n++)
        s->first[n] = by_graph ? (uint32_t)n + 1 : UINT32_MAX, s->last[n] = by_graph ? (uint32_t)n + 1 : 0;
    for (size_t i = 0; i < s->p->n_nanos && !by_graph; i++) {
        uint32_t node = s->p->nanos[i].node, at = (uint32_t)i + 1;
        s->first[node] = WF_MIN(s->first[node], at);
        s->last[node] = WF_MAX(s->last[node], at);
    }
    sort_nodes(s);
    find_deaths(s);
    find_blocks(s);
    uint32_t *order = s->order; /* of blocks, from here on */
    by_width(s, order);
    for (uint32_t i = 0; i < s->n_blocks; i++) WF_TRY(place_block(s, &s->blocks[order[i]]));
    for (size_t v = 0; v < s->g->n_values; v++) {
        if (s->block_of[v] < 0) continue;
        s->p->buffer_of[v] = s->blocks[s->block_of[v]].buffer;
        s->p->offset_of[v] = s->blocks[s->block_of[v]].offset;
    }
    return WEFT_OK;
}

weft_status wf_plan_place(const wf_graph *g, wf_plan *p, uint32_t pad)
{
    size_t nodes = g->n_nodes, values = g->n_values;
    uint32_t *numbers = wf_calloc(2 * nodes + WF_MAX(nodes, values) + values, sizeof *numbers);
    int32_t *block_of = wf_calloc(values, sizeof *block_of);
    block *blocks = wf_calloc(values, sizeof *blocks);
    p->buffer_of = wf_calloc(values, sizeof *p->buffer_of);
    p->offset_of = wf_calloc(values, sizeof *p->offset_of);
    weft_status s = WEFT_ERR_NOMEM;
    if (numbers && block_of && blocks && p->buffer_of && p->offset_of) {
        for (size_t v = 0; v < values; v++) p->buffer_of[v] = block_of[v] = -1;
        placer placing = {.g = g,
                          .p = p,
                          .first = numbers,
                          .last = numbers + nodes,
                          .dies = numbers + 2 * nodes,
                          .order = numbers + 2 * nodes + values,
                          .block_of = block_of,
                          .blocks = blocks,
                          .pad = pad};
        s = place_all(&placing);
    }
    free(numbers);
    free(block_of);
    free(blocks);
    return s;
}

/* ---- one set of buffers for all plans ---------------------------------------------------------------------------- */

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
static weft_status adopt_buffers(const wf_graph *g, wf_plan *p, const wf_plan *all)
{
    for (size_t v = 0; v < g->n_values; v++)
        if (p->buffer_of[v] >= 0)
            p->buffer_of[v] = nth_buffer(all, p->buffers[p->buffer_of[v]].rows, rank_of(p, p->buffer_of[v]));
    wf_act_buffer *buffers = wf_calloc(all->n_buffers, sizeof *buffers);
    if (!buffers) return WEFT_ERR_NOMEM;
    memcpy(buffers, all->buffers, all->n_buffers * sizeof *buffers);
    free(p->buffers);
    p->buffers = buffers;
    p->n_buffers = p->cap_buffers = all->n_buffers;
    return WEFT_OK;
}

/* All but its lines. */
static void forget_all_but_lines(wf_plan *p)
{
    wf_plan lines = *p;
    p->lines = NULL;
    wf_plan_free(p);
    memcpy(p->path, lines.path, sizeof p->path);
    p->bucket = lines.bucket, p->n_queues = lines.n_queues, p->tile = lines.tile;
    p->lines = lines.lines, p->n_lines = lines.n_lines, p->cap_lines = lines.cap_lines;
}

weft_status wf_plans_finish(const wf_graph *g, wf_plans *p, uint32_t pad)
{
    wf_plan all = {0};
    weft_status s = WEFT_OK;
    for (size_t i = 0; i < p->n && s == WEFT_OK; i++) {
        forget_all_but_lines(&p->list[i]);
        s = wf_plan_split(g, &p->list[i]);
        if (s == WEFT_OK) s = wf_plan_place(g, &p->list[i], pad);
        if (s == WEFT_OK) s = merge_into(&all, &p->list[i]);
    }
    for (size_t i = 0; i < p->n && s == WEFT_OK; i++) {
        s = adopt_buffers(g, &p->list[i], &all);
        if (s == WEFT_OK) s = wf_plan_wait(g, &p->list[i]);
    }
    wf_plan_free(&all);
    return s;
}
