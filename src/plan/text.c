/* text: reads and writes plans. See plan.h for the form. */
#include "plan/text.h"

#include "base/file.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PLAN_BYTES (1u << 20)

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* sscanf takes a sign and wraps what does not fit 32 bits: -1 and 2^32 would pass for other numbers. A range has a
 * minus between its ends, never in front of a number that begins a word. */
static bool numbers_fit(const char *text)
{
    size_t digits = 0;
    for (char before = ' '; *text; before = *text++) {
        digits = isdigit((unsigned char)*text) ? digits + 1 : 0;
        bool sign = *text == '+' || (*text == '-' && isspace((unsigned char)before));
        if (digits == 10 || (sign && isdigit((unsigned char)text[1]))) return false;
    }
    return true;
}

static bool read_boundary(const char *word, uint32_t tile, wf_boundary *out)
{
    char *rest;
    *out = (wf_boundary){0};
    if (!strcmp(word, "end")) return out->end = true;
    if (!strcmp(word, "decode") || !strcmp(word, "prefill")) return out->decode = true;
    if (!isdigit((unsigned char)*word)) return false;
    unsigned long n = strtoul(word, &rest, 10);
    bool tiles = !strcmp(rest, "t");
    if (n > UINT32_MAX / tile || (*rest && !tiles)) return false;
    out->tokens = (uint32_t)n * (tiles ? tile : 1);
    return true;
}

/* Whatever the batch. */
static bool ends_before(wf_boundary begin, wf_boundary end)
{
    return (begin.end && !end.end) || (!end.end && !end.decode && begin.tokens > end.tokens);
}

static weft_status read_range(const char *word, uint32_t tile, wf_plan_line *l)
{
    char text[32];
    wf_copy(text, sizeof text, word);
    char *end = strchr(text, '-');
    if (end) *end++ = 0;
    bool read = end && read_boundary(text, tile, &l->begin) && read_boundary(end, tile, &l->end);
    if (read && ends_before(l->begin, l->end))
        return wf_fail(WEFT_ERR_ARG, "token range %s ends before it begins", word);
    return read ? WEFT_OK
                : wf_fail(WEFT_ERR_ARG,
                          "token range %s: want BEGIN-END, each a number of tokens, of tiles (2t), 'decode', 'prefill' "
                          "or 'end'",
                          word);
}

/* Devices fuse ops differently, so that a plan of one may name ops that another has not. */
static weft_status no_such_op(const wf_plan_line *l)
{
    const char *where = l->where == WF_LINE_ONCE ? "once" : "layer";
    return wf_fail(
        WEFT_ERR_ARG,
        "this model has no %s op '%s' on this device (weft_engine_params.dump_plan writes the ops that it has)", where,
        l->name);
}

static weft_status read_op(const wf_graph *g, wf_plan *p, const char *text, unsigned number)
{
    static const char *const places[] = {[WF_LINE_ONCE] = "once", [WF_LINE_LAYER] = "layer", [WF_LINE_NEXT] = "next"};
    char where[8], range[32];
    int end = 0;
    wf_plan_line l = {.number = number};
    bool read = sscanf(text, " %7s %23s %31s queue %u kernel %23s groups %u %n", where, l.name, range, &l.queue,
                       l.kernel, &l.groups, &end) == 6;
    size_t w = 0;
    while (read && w < WF_LEN(places) && strcmp(where, places[w])) w++;
    if (!read || text[end] || w == WF_LEN(places))
        return wf_fail(WEFT_ERR_ARG, "want 'once|layer|next OP BEGIN-END queue Q kernel NAME|auto groups G'");
    l.where = (enum wf_line_where)w;
    if (!wf_plan_find_node(g, &l)) return no_such_op(&l);
    if (l.queue >= p->n_queues)
        return wf_fail(WEFT_ERR_ARG,
                       "queue %u, but 'queues %u' counts from 0: name a lower one, or ask for more queues", l.queue,
                       p->n_queues);
    WF_TRY(read_range(range, p->tile, &l));
    /* An op cut this often has nothing left to compute in a range, and what follows takes time by the square of the
     * ranges. */
    size_t n = 0;
    for (size_t i = 0; i < p->n_lines; i++)
        n += (p->lines[i].where == WF_LINE_ONCE) == (l.where == WF_LINE_ONCE) && !strcmp(p->lines[i].name, l.name);
    if (n >= WF_MAX_RANGES) return wf_fail(WEFT_ERR_ARG, "more than %d lines for the op '%s'", WF_MAX_RANGES, l.name);
    return wf_plan_add_line(p, &l);
}

/* LEAST-MOST, or only the most. */
static bool read_limits(const char *word, double *least, double *most)
{
    char *rest;
    *least = 0;
    *most = strtod(word, &rest);
    if (rest == word) return false;
    if (*rest == '-') {
        *least = *most;
        *most = strtod(word = rest + 1, &rest);
    }
    return rest != word && !*rest && *least >= 0 && *least <= *most;
}

static bool is_whole(double v)
{
    return v >= 0 && v <= UINT32_MAX && v == (uint32_t)v;
}

static bool put_limits(const char *word, double least, double most, wf_bucket *b)
{
    bool tokens = !strcmp(word, "tokens");
    if (!strcmp(word, "decodes")) {
        b->least_decodes = (float)least, b->decodes = (float)most;
        return most <= 1 && b->decodes > 0;
    }
    if ((!tokens && strcmp(word, "context")) || !is_whole(least) || !is_whole(most) || !(most > 0)) return false;
    if (tokens) b->least_tokens = (uint32_t)least, b->tokens = (uint32_t)most;
    else b->least_context = (uint32_t)least, b->context = (uint32_t)most;
    return true;
}

static weft_status read_bucket(const char *text, wf_bucket *b)
{
    char word[16], limits[48];
    int used = 0;
    double least, most;
    for (; sscanf(text, " %15s %47s%n", word, limits, &used) == 2; text += used)
        if (!read_limits(limits, &least, &most) || !put_limits(word, least, most, b)) break;
    if (!text[strspn(text, " \t")]) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "want 'bucket [tokens N] [decodes SHARE] [context N]', a share above 0 and up to 1, "
                                 "each the most, or LEAST-MOST");
}

static bool has_limits(const wf_bucket *b)
{
    return b->tokens || b->context || b->decodes != 0;
}

/* The lines above would have been read by another number. */
static weft_status check_first(const wf_plan *p, const char *what)
{
    return p->n_lines ? wf_fail(WEFT_ERR_ARG, "'%s' behind ops: it must stand before those of its plan", what)
                      : WEFT_OK;
}

/* A line that is no op of a plan; *used: it was one. */
static weft_status read_header(wf_plans *all, const char *text, bool *used)
{
    wf_plan *p = &all->list[all->n - 1];
    unsigned n;
    int end = 0;
    *used = true;
    if (sscanf(text, " queues %u %n", &n, &end) == 1 && !text[end]) {
        WF_TRY(check_first(p, "queues"));
        p->n_queues = n;
        return n >= 1 && n <= WF_MAX_QUEUES ? WEFT_OK
                                            : wf_fail(WEFT_ERR_ARG, "queues %u: want 1 to %d", n, WF_MAX_QUEUES);
    }
    if (sscanf(text, " tile %u %n", &n, &end) == 1 && !text[end]) {
        WF_TRY(check_first(p, "tile"));
        p->tile = n;
        return n >= 1 && n <= 65536 ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "tile %u: want 1 to 65536", n);
    }
    *used = false;
    return WEFT_OK;
}

/* A bucket begins a plan, unless nothing came before it; queues and tile hold on until they are named anew. */
static weft_status begin_bucket(wf_plans *all, const char *text)
{
    wf_plan *p = &all->list[all->n - 1];
    bool limits = has_limits(&p->bucket);
    if (!p->n_lines && limits) return wf_fail(WEFT_ERR_ARG, "the bucket before this one has no ops");
    if (p->n_lines && !limits)
        return wf_fail(WEFT_ERR_ARG,
                       "the plan before this bucket has no limits and takes every batch: it must be the last");
    if (p->n_lines) {
        if (all->n == WF_MAX_PLANS) return wf_fail(WEFT_ERR_ARG, "more than %d buckets", WF_MAX_PLANS);
        all->list[all->n++] = (wf_plan){.n_queues = p->n_queues, .tile = p->tile};
        p++;
    }
    return read_bucket(text, &p->bucket);
}

static weft_status read_line(const wf_graph *g, wf_plans *all, const char *text, unsigned number)
{
    int rest = 0;
    bool used;
    if (!numbers_fit(text)) return wf_fail(WEFT_ERR_ARG, "a number has a sign or more than 9 digits");
    if (sscanf(text, " bucket%n", &rest) == 0 && rest && (!text[rest] || isspace((unsigned char)text[rest])))
        return begin_bucket(all, text + rest);
    WF_TRY(read_header(all, text, &used));
    return used ? WEFT_OK : read_op(g, &all->list[all->n - 1], text, number);
}

static weft_status read_lines(const wf_graph *g, const char *path, char *text, wf_plans *all)
{
    char *rest = text;
    for (unsigned number = 1; rest; number++) {
        char *line = strsep(&rest, "\n");
        line[strcspn(line, "#\r")] = 0;
        if (number == 1 && strcmp(line, "weft-plan 2"))
            return wf_fail(
                WEFT_ERR_FORMAT,
                "%s: not a plan: the first line is not 'weft-plan 2' (weft_engine_params.dump_plan writes one)", path);
        if (number == 1 || !line[strspn(line, " \t")]) continue;
        weft_status s = read_line(g, all, line, number);
        if (s != WEFT_OK) return wf_fail_context(s, "%s:%u", path, number);
    }
    return WEFT_OK;
}

/* An op left out would silently not run, a batch without a plan not at all. */
static weft_status check_complete(const wf_graph *g, const char *path, const wf_plans *all)
{
    const wf_bucket *last = &all->list[all->n - 1].bucket;
    for (size_t p = 0; p < all->n; p++)
        for (size_t i = 0; i < g->n_nodes; i++)
            if (!wf_plan_find_line(&all->list[p], &g->nodes[i]))
                return wf_fail(WEFT_ERR_ARG, "%s: no line for the op '%s'%s", path, g->nodes[i].name,
                               all->n > 1 ? " in one of the buckets" : "");
    if (has_limits(last))
        return wf_fail(WEFT_ERR_ARG, "%s: the last bucket must take every batch: write 'bucket' without limits", path);
    return WEFT_OK;
}

weft_status wf_plans_load(const wf_graph *g, const char *path, wf_plans *out)
{
    char *text = NULL;
    size_t len;
    *out = (wf_plans){.list[0] = {.n_queues = 1, .tile = 1}, .n = 1};
    WF_TRY(wf_read_file(path, MAX_PLAN_BYTES, &text, &len));
    weft_status s = read_lines(g, path, text, out);
    free(text);
    for (size_t i = 0; i < out->n; i++) wf_copy(out->list[i].path, sizeof out->list[i].path, path);
    for (size_t i = 0; i < out->n && s == WEFT_OK; i++) s = wf_plan_add_adapted(g, &out->list[i]);
    return s == WEFT_OK ? check_complete(g, path, out) : s;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static const char *boundary_text(wf_boundary b, bool begins, char out[16])
{
    if (b.end || b.decode) return b.end ? "end" : begins ? "prefill" : "decode";
    snprintf(out, 16, "%u", b.tokens);
    return out;
}

static void print_limits(const char *word, uint32_t least, uint32_t most, FILE *f)
{
    if (most) fprintf(f, least ? " %s %u-" : " %s ", word, least);
    if (most) fprintf(f, "%u", most);
}

void wf_plan_print(const wf_plan *p, FILE *f)
{
    static const char *const places[] = {[WF_LINE_ONCE] = "once", [WF_LINE_LAYER] = "layer", [WF_LINE_NEXT] = "next"};
    const wf_bucket *b = &p->bucket;
    fputs("bucket", f);
    print_limits("tokens", b->least_tokens, b->tokens, f);
    if (b->decodes != 0) fputs(" decodes ", f);
    if (b->decodes != 0 && b->least_decodes > 0) fprintf(f, "%g-", (double)b->least_decodes);
    if (b->decodes != 0) fprintf(f, "%g", (double)b->decodes);
    print_limits("context", b->least_context, b->context, f);
    fputc('\n', f);
    fprintf(f, "queues %u\ntile %u\n# where op                tokens          queue    kernel       groups (0: all)\n",
            p->n_queues, p->tile);
    for (size_t i = 0; i < p->n_lines; i++) {
        const wf_plan_line *l = &p->lines[i];
        char begin[16], end[16], range[32];
        snprintf(range, sizeof range, "%s-%s", boundary_text(l->begin, true, begin), boundary_text(l->end, false, end));
        fprintf(f, "%-5s %-18s %-14s queue %u kernel %s groups %u\n", places[l->where], l->name, range, l->queue,
                l->kernel, l->groups);
    }
}

weft_status wf_plans_save(const wf_plans *p, const char *path)
{
    wf_output out;
    WF_TRY(wf_not_a_model(path));
    WF_TRY(wf_output_open(path, &out));
    fputs("weft-plan 2\n", out.f);
    for (size_t i = 0; i < p->n; i++) wf_plan_print(&p->list[i], out.f);
    return wf_output_end(&out, true);
}
