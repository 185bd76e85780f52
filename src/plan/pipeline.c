/* pipeline: blocks of a layer, what they need, and plans from schedules. See pipeline.h. */
#include "plan/pipeline.h"

#include "plan/text.h"
#include <stdlib.h>
#include <string.h>

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static const wf_op_times *times_of(const wf_pipeline *p, size_t line)
{
    return wf_op_profile_find(p->profile, p->whole.lines[line].name);
}

static uint32_t rows_of(const wf_pipeline *p, size_t line, wf_boundary begin, wf_boundary end)
{
    const wf_node *node = wf_plan_find_node(p->g, &p->whole.lines[line]);
    wf_nano n = {.begin = begin, .end = end};
    return wf_nano_range(node, &n, p->batch.decodes, p->batch.tokens, p->batch.logits).count;
}

static double whole_us(const wf_pipeline *p, size_t line)
{
    return wf_op_us(times_of(p, line), rows_of(p, line, (wf_boundary){0}, (wf_boundary){.end = true}));
}

/* What is bound by compute stands only with its like: it is what others are to run beside. */
static bool joins_block(const wf_pipeline *p, size_t line, const wf_block *b, double least)
{
    double us = whole_us(p, line);
    const wf_op_times *op = times_of(p, line);
    return us <= 0 || (us < least && (op->class != WF_CLASS_COMPUTE || b->class == WF_CLASS_COMPUTE));
}

/* A block that holds nothing large yet takes its class from the next op. */
static void join_block(const wf_pipeline *p, wf_block *b, size_t line, double *largest)
{
    double us = whole_us(p, line);
    b->n++;
    if (us <= *largest) return;
    *largest = us;
    b->class = times_of(p, line)->class;
}

/* ---- needs ------------------------------------------------------------------------------------------------------- */

static int find_block(const wf_pipeline *p, const wf_node *n)
{
    for (size_t b = 0; b < p->n_blocks; b++)
        for (size_t l = p->blocks[b].first; l < p->blocks[b].first + p->blocks[b].n; l++)
            if (!strcmp(p->whole.lines[l].name, n->name)) return (int)b;
    return -1;
}

static bool has_value(const wf_operand *list, size_t n, int32_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].value == value) return true;
    return false;
}

/* Does node b read what a writes, or write into the same value behind it? 0: no. */
static int need_between(const wf_graph *g, const wf_node *b, const wf_node *a)
{
    int need = 0;
    for (size_t i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++) {
        bool writes = i >= WF_MAX_IN;
        int32_t v = writes ? b->out[i - WF_MAX_IN].value : b->in[i].value;
        if (v < 0 || !has_value(a->out, WF_MAX_OUT, v) || g->values[v].kind == WF_VALUE_STATE) continue;
        /* Keys of earlier tokens are read by attention, but not by that of decodes. */
        need |= writes                                                          ? WF_NEEDS_ROWS
                : g->values[v].kind == WF_VALUE_KV && b->rows != WF_ROWS_DECODE ? WF_NEEDS_KEYS
                                                                                : WF_NEEDS_ROWS;
    }
    return need;
}

bool wf_slot_needs(const wf_pipeline *p, const wf_slot *of, const wf_slot *what, bool before)
{
    uint8_t need = p->needs[before][of->block][what->block];
    return need && what->first < of->end && ((need & WF_NEEDS_KEYS) || of->first < what->end);
}

weft_status wf_pipeline_init(const wf_graph *g, const wf_op_profile *profile, const wf_sim_batch *b, double small,
                             wf_pipeline *out)
{
    *out = (wf_pipeline){.g = g, .profile = profile, .batch = *b};
    WF_TRY(wf_plan_sequential(g, &out->whole));
    while (out->begin < out->whole.n_lines && out->whole.lines[out->begin].where == WF_LINE_ONCE) out->begin++;
    for (out->end = out->begin; out->end < out->whole.n_lines && out->whole.lines[out->end].where != WF_LINE_ONCE;)
        out->end++;
    double all = 0, largest = 0;
    for (size_t l = out->begin; l < out->end; l++) all += whole_us(out, l);
    if (all <= 0)
        return wf_fail(WEFT_ERR_ARG, "the profile has no time of any op of this model's layers, such as '%s'",
                       out->begin < out->end ? out->whole.lines[out->begin].name : "");
    for (size_t l = out->begin; l < out->end; l++) {
        wf_block *last = out->n_blocks ? &out->blocks[out->n_blocks - 1] : NULL;
        if (!last || (largest >= small * all && !joins_block(out, l, last, small * all))) {
            if (out->n_blocks == WF_MAX_BLOCKS)
                return wf_fail(WEFT_ERR_UNSUPPORTED, "more than %d ops of a layer that take long", WF_MAX_BLOCKS);
            last = &out->blocks[out->n_blocks++];
            *last = (wf_block){.first = l, .class = WF_CLASS_MEMORY};
            largest = 0;
        }
        join_block(out, last, l, &largest);
    }
    /* Queue 0 is that of compute, if anything is. */
    for (size_t c = 0; c < WF_N_CLASSES; c++) {
        bool used = false;
        for (wf_block *b = out->blocks; b < out->blocks + out->n_blocks; b++)
            if (b->class == (enum wf_class)c) used = true, b->queue = out->n_queues;
        out->n_queues += used;
    }
    const wf_node *nodes = g->nodes;
    for (size_t b = 0; b < g->n_nodes; b++)
        for (size_t a = b; nodes[b].layer >= 0 && a-- > 0 && nodes[a].layer >= nodes[b].layer - 1;) {
            int of = find_block(out, &nodes[b]), what = find_block(out, &nodes[a]);
            bool before = nodes[a].layer < nodes[b].layer;
            if (nodes[a].layer >= 0 && of >= 0 && what >= 0 && (before || of != what))
                out->needs[before][of][what] |= (uint8_t)need_between(g, &nodes[b], &nodes[a]);
        }
    return WEFT_OK;
}

void wf_pipeline_free(wf_pipeline *p)
{
    wf_plan_free(&p->whole);
}

double wf_slot_us(const wf_pipeline *p, const wf_slot *s, const wf_cut *c, double share, bool alone)
{
    double us = 0;
    const wf_block *b = &p->blocks[s->block];
    for (size_t l = b->first; l < b->first + b->n; l++) {
        const wf_op_times *op = times_of(p, l);
        uint32_t rows = rows_of(p, l, c->at[s->first], c->at[s->end]);
        if (op && rows) us += wf_op_us(op, rows) / wf_op_rate(p->profile, op, rows, share, alone);
    }
    return us;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

void wf_schedule_init(const wf_pipeline *p, const wf_cut *c, const wf_split *split, wf_schedule *out)
{
    *out = (wf_schedule){.cut = *c};
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        uint32_t n = split ? WF_MIN(split->parts[b], c->parts) : c->parts;
        for (uint32_t i = 0; i < n; i++)
            out->slots[out->n++] = (wf_slot){
                .block = b, .first = i * c->parts / n, .end = (i + 1) * c->parts / n, .share = 1};
    }
}

/* Of one round, which needs it? */
static bool comes_behind(const wf_pipeline *p, const wf_slot *of, const wf_slot *what)
{
    for (int before = 0; before < 2; before++)
        if (wf_slot_needs(p, of, what, before) && before + what->next == of->next) return true;
    return false;
}

/* The first of those whose needs stand already; -1: none. */
static int next_slot(const wf_pipeline *p, const wf_schedule *s, const bool *stands)
{
    int best = -1;
    for (size_t i = 0; i < s->n; i++) {
        bool ready = !stands[i];
        for (size_t k = 0; k < s->n && ready; k++)
            ready = stands[k] || k == i || !comes_behind(p, &s->slots[i], &s->slots[k]);
        if (ready && (best < 0 || s->slots[i].begin < s->slots[best].begin)) best = (int)i;
    }
    return best;
}

weft_status wf_schedule_sort(const wf_pipeline *p, wf_schedule *s)
{
    bool stands[WF_MAX_SLOTS] = {0};
    wf_slot sorted[WF_MAX_SLOTS];
    for (size_t n = 0; n < s->n; n++) {
        int i = next_slot(p, s, stands);
        if (i < 0) return wf_fail(WEFT_ERR_ARG, "a schedule in which slots need each other in a circle");
        stands[i] = true;
        sorted[n] = s->slots[i];
    }
    memcpy(s->slots, sorted, s->n * sizeof *sorted);
    return WEFT_OK;
}

static weft_status add_slot(const wf_pipeline *p, const wf_schedule *s, const wf_slot *slot, wf_plan *out)
{
    const wf_block *b = &p->blocks[slot->block];
    for (size_t i = b->first; i < b->first + b->n; i++) {
        wf_plan_line l = p->whole.lines[i];
        l.where = slot->next ? WF_LINE_NEXT : WF_LINE_LAYER;
        l.begin = s->cut.at[slot->first];
        l.end = s->cut.at[slot->end];
        l.queue = b->queue;
        l.groups = wf_groups_of_share(p->profile, slot->share);
        WF_TRY(wf_plan_add_line(out, &l));
    }
    return WEFT_OK;
}

static weft_status add_once(const wf_pipeline *p, size_t begin, size_t end, wf_plan *out)
{
    for (size_t i = begin; i < end; i++) WF_TRY(wf_plan_add_line(out, &p->whole.lines[i]));
    return WEFT_OK;
}

weft_status wf_schedule_plan(const wf_pipeline *p, const wf_schedule *s, wf_plan *out)
{
    *out = (wf_plan){.n_queues = p->n_queues, .tile = p->profile->tile};
    WF_TRY(add_once(p, 0, p->begin, out));
    for (size_t i = 0; i < s->n; i++) WF_TRY(add_slot(p, s, &s->slots[i], out));
    return add_once(p, p->end, p->whole.n_lines, out);
}
