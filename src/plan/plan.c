/* plan: the text form of plans and the sequential plan. See plan.h. */
#include "plan/plan.h"

#include "base/file.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 64
#define MAX_PLAN_BYTES (1u << 20)

static weft_status add_line(wf_plan *p, const wf_plan_line *l)
{
    if (!wf_grow(&p->lines, p->n_lines, &p->cap_lines, sizeof *l)) return WEFT_ERR_NOMEM;
    p->lines[p->n_lines++] = *l;
    return WEFT_OK;
}

static const wf_plan_line *find_line(const wf_plan *p, const wf_node *n)
{
    for (size_t i = 0; i < p->n_lines; i++)
        if (p->lines[i].layer == (n->layer != WF_ONCE) && !strcmp(p->lines[i].name, n->name)) return &p->lines[i];
    return NULL;
}

static wf_plan_line whole_line(const wf_node *n)
{
    wf_plan_line l = {.layer = n->layer != WF_ONCE, .parts = 1, .kernel = "auto"};
    wf_copy(l.name, sizeof l.name, n->name);
    return l;
}

weft_status wf_plan_sequential(const wf_graph *g, wf_plan *out)
{
    memset(out, 0, sizeof *out);
    out->n_queues = 1;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (find_line(out, &g->nodes[i])) continue;
        wf_plan_line l = whole_line(&g->nodes[i]);
        WF_TRY(add_line(out, &l));
    }
    return WEFT_OK;
}

/* The lines of a layer up to and with attention, or those behind it, for one nano-batch. */
static weft_status add_side(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, uint32_t part, uint32_t parts)
{
    for (size_t i = begin; i < end; i++) {
        wf_plan_line l = whole->lines[i];
        l.part = part;
        l.parts = parts;
        l.queue = !strcmp(l.name, "attention");
        WF_TRY(add_line(p, &l));
    }
    return WEFT_OK;
}

/* Attention of part i stands before what the others compute meanwhile: all that come before it, then all behind. */
static weft_status add_layer(wf_plan *p, const wf_plan *whole, size_t begin, size_t end, uint32_t parts)
{
    size_t middle = begin;
    while (middle < end && strcmp(whole->lines[middle].name, "attention")) middle++;
    middle += middle < end;
    for (uint32_t i = 0; i < parts; i++) WF_TRY(add_side(p, whole, begin, middle, i, parts));
    for (uint32_t i = 0; i < parts; i++) WF_TRY(add_side(p, whole, middle, end, i, parts));
    return WEFT_OK;
}

static weft_status split_layers(wf_plan *p, const wf_plan *whole, uint32_t parts)
{
    size_t begin = 0, end;
    while (begin < whole->n_lines && !whole->lines[begin].layer) begin++;
    for (end = begin; end < whole->n_lines && whole->lines[end].layer;) end++;
    for (size_t i = 0; i < begin; i++) WF_TRY(add_line(p, &whole->lines[i]));
    WF_TRY(add_layer(p, whole, begin, end, parts));
    for (size_t i = end; i < whole->n_lines; i++) WF_TRY(add_line(p, &whole->lines[i]));
    return WEFT_OK;
}

weft_status wf_plan_overlap(const wf_graph *g, uint32_t parts, wf_plan *out)
{
    wf_plan whole;
    memset(out, 0, sizeof *out);
    out->n_queues = 2;
    if (parts < 2 || parts > MAX_PARTS) return wf_fail(WEFT_ERR_ARG, "%u nano-batches: want 2 to %d", parts, MAX_PARTS);
    weft_status s = wf_plan_sequential(g, &whole);
    if (s == WEFT_OK) s = split_layers(out, &whole, parts);
    wf_plan_free(&whole);
    return s;
}

/* ---- reading --------------------------------------------------------------------------------------- */

static bool node_exists(const wf_graph *g, const wf_plan_line *l)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if ((g->nodes[i].layer != WF_ONCE) == l->layer && !strcmp(g->nodes[i].name, l->name)) return true;
    return false;
}

static bool line_repeats(const wf_plan *p, const wf_plan_line *l)
{
    for (size_t i = 0; i < p->n_lines; i++) {
        const wf_plan_line *o = &p->lines[i];
        if (o->layer == l->layer && !strcmp(o->name, l->name) && (o->part == l->part || o->parts != l->parts)) return true;
    }
    return false;
}

static weft_status check_line(const wf_graph *g, const wf_plan *p, const wf_plan_line *l)
{
    if (!node_exists(g, l)) return wf_fail(WEFT_ERR_ARG, "this model has no %s op '%s'", l->layer ? "layer" : "once", l->name);
    if (l->parts < 1 || l->parts > MAX_PARTS || l->part >= l->parts)
        return wf_fail(WEFT_ERR_ARG, "rows %u/%u: want i/n with i < n <= %d", l->part, l->parts, MAX_PARTS);
    if (l->queue >= p->n_queues) return wf_fail(WEFT_ERR_ARG, "queue %u of %u", l->queue, p->n_queues);
    if (line_repeats(p, l)) return wf_fail(WEFT_ERR_ARG, "'%s' has this part already, or other lines split it differently", l->name);
    return WEFT_OK;
}

/* sscanf takes a sign and wraps what does not fit 32 bits: -1 and 2^32 would pass for other numbers. */
static bool numbers_fit(const char *text)
{
    for (size_t digits = 0; *text; text++) {
        digits = isdigit((unsigned char)*text) ? digits + 1 : 0;
        if ((*text == '-' || *text == '+') && isdigit((unsigned char)text[1])) return false;
        if (digits == 10) return false;
    }
    return true;
}

static weft_status read_line(const wf_graph *g, wf_plan *p, const char *text)
{
    char where[8];
    int end = 0;
    unsigned n;
    wf_plan_line l = {0};
    if (!numbers_fit(text)) return wf_fail(WEFT_ERR_ARG, "a number has a sign or more than 9 digits");
    if (sscanf(text, " queues %u %n", &n, &end) == 1 && !text[end]) {
        if (n < 1 || n > WF_MAX_QUEUES) return wf_fail(WEFT_ERR_ARG, "queues %u: want 1 to %d", n, WF_MAX_QUEUES);
        p->n_queues = n;
        return WEFT_OK;
    }
    if (sscanf(text, " %7s %15s %u/%u queue %u kernel %23s groups %u %n", where, l.name, &l.part, &l.parts, &l.queue, l.kernel, &l.groups,
               &end) != 7 || text[end] || (strcmp(where, "layer") && strcmp(where, "once")))
        return wf_fail(WEFT_ERR_ARG, "want 'once|layer OP I/N queue Q kernel NAME|auto groups G'");
    l.layer = where[0] == 'l';
    WF_TRY(check_line(g, p, &l));
    return add_line(p, &l);
}

static weft_status read_lines(const wf_graph *g, const char *path, char *text, wf_plan *p)
{
    char *rest = text;
    for (unsigned number = 1; rest; number++) {
        char *line = strsep(&rest, "\n");
        if (number == 1 && strcmp(line, "weft-plan 1"))
            return wf_fail(WEFT_ERR_FORMAT, "%s: not a plan: the first line is not 'weft-plan 1' (write one with --dump-plan)", path);
        line[strcspn(line, "#\r")] = 0;
        if (number == 1 || !line[strspn(line, " \t")]) continue;
        weft_status s = read_line(g, p, line);
        if (s != WEFT_OK) return wf_fail_context(s, "%s:%u", path, number);
    }
    return WEFT_OK;
}

/* An op left out would silently not run. */
static weft_status check_complete(const wf_graph *g, const char *path, wf_plan *p)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!find_line(p, &g->nodes[i]))
            return wf_fail(WEFT_ERR_ARG, "%s: no line for the op '%s'", path, g->nodes[i].name);
    return WEFT_OK;
}

weft_status wf_plan_load(const wf_graph *g, const char *path, wf_plan *out)
{
    char *text = NULL;
    size_t len;
    memset(out, 0, sizeof *out);
    out->n_queues = 1;
    WF_TRY(wf_read_file(path, MAX_PLAN_BYTES, &text, &len));
    weft_status s = read_lines(g, path, text, out);
    free(text);
    return s == WEFT_OK ? check_complete(g, path, out) : s;
}

/* ---- writing --------------------------------------------------------------------------------------- */

weft_status wf_plan_save(const wf_plan *p, const char *path)
{
    WF_TRY(wf_not_a_model(path));
    FILE *f = fopen(path, "w");
    if (!f) return wf_fail(WEFT_ERR_IO, "cannot write the plan to %s: %s", path, strerror(errno));
    fprintf(f, "weft-plan 1\nqueues %u\n# when  op               rows queue    kernel      groups (0: all)\n", p->n_queues);
    for (size_t i = 0; i < p->n_lines; i++) {
        const wf_plan_line *l = &p->lines[i];
        fprintf(f, "%-5s %-16s %u/%u queue %u kernel %s groups %u\n", l->layer ? "layer" : "once", l->name, l->part, l->parts, l->queue,
                l->kernel, l->groups);
    }
    bool bad = ferror(f);
    if (fclose(f) || bad) return wf_fail(WEFT_ERR_IO, "cannot write the plan to %s: %s", path, strerror(errno));
    return WEFT_OK;
}

void wf_plan_free(wf_plan *p)
{
    free(p->lines);
    free(p->nanos);
    free(p->waits);
    free(p->slots);
    free(p->slot_of);
    memset(p, 0, sizeof *p);
}
