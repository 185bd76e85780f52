/* Plans at random, as text, for a graph with the ops of plan_graph.h; and which rows a nano-operation has, counted
 * without the code that runs them. */
#ifndef PLAN_WRITER_H
#define PLAN_WRITER_H

#include "plan_text.h"
#include "support/part.h"

enum { MAX_TEXT = 1 << 16 };

static uint64_t seed = 1;

static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % n;
}

static int rounds(int otherwise)
{
    return test_rounds("WEFT_PLAN_ROUNDS", otherwise);
}

/* Before a suite. */
static int seed_from_environment(void **state)
{
    const char *from = getenv("WEFT_PLAN_SEED");
    if (from) seed = strtoull(from, NULL, 10);
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct batch {
    uint32_t tokens, decodes, logits, absent; /* bits by `when`: conditions that do not hold in this step */
} batch;

typedef struct rows {
    uint32_t first, end;
} rows;

static uint32_t clamp(uint32_t x, uint32_t low, uint32_t high)
{
    return WF_MIN(WF_MAX(x, low), WF_MAX(low, high));
}

/* All rows of a node in a batch. */
static rows rows_of_node(const wf_node *n, const batch *b)
{
    switch (n->rows) {
    case WF_ROWS_DECODE: return (rows){0, b->decodes};
    case WF_ROWS_PREFILL: return (rows){b->decodes, b->tokens};
    case WF_ROWS_BATCH: return (rows){0, b->tokens};
    case WF_ROWS_LOGITS: return (rows){0, b->logits};
    default: return (rows){0, 1};
    }
}

static inline rows rows_of_nano(const wf_graph *g, const wf_nano *n, const batch *b)
{
    const wf_node *node = &g->nodes[n->node];
    rows all = rows_of_node(node, b);
    uint32_t count = node->rows == WF_ROWS_LOGITS ? b->logits : node->rows == WF_ROWS_WHOLE ? 1 : b->tokens;
    uint32_t first = clamp(wf_boundary_at(n->begin, b->decodes, count), all.first, all.end);
    return (rows){first, clamp(wf_boundary_at(n->end, b->decodes, count), first, all.end)};
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static const char *const once_before[] = {"upload", "token_subst", "embed"};
static const char *const layer[] = {"qkv", "rope", "decode_attention", "prefill_attention", "out"};

typedef struct writer {
    char text[MAX_TEXT];
    size_t len;
    uint32_t queues;
} writer;

static void add_line(writer *w, const char *where, const char *op, const char *range)
{
    w->len += (size_t)snprintf(w->text + w->len, sizeof w->text - w->len, "%s %s %s queue %u kernel auto groups 0\n",
                               where, op, range, draw(w->queues));
}

/* Up to four ranges; `decode` is one place to cut. Those of prefill cannot be cut there, nor those of decodes usefully.
 */
static uint32_t cut(bool named, char out[4][32])
{
    uint32_t n = 1 + draw(4), at = 0;
    char begin[16] = "0";
    for (uint32_t i = 0; i < n; i++) {
        char end[16] = "end";
        bool here = named && draw(4) == 0;
        if (i + 1 < n) here ? snprintf(end, sizeof end, "decode") : snprintf(end, sizeof end, "%u", at += 1 + draw(40));
        snprintf(out[i], 32, "%s-%s", begin, end);
        memcpy(begin, end, sizeof end);
        named = named && !here;
    }
    return n;
}

/* All ranges of an op behind those of the one before, or layer by layer in nano-batches where all are cut alike; at
 * times `next`. */
static void add_layers(writer *w)
{
    char alike[4][32], ranges[4][32];
    uint32_t n = cut(false, alike), mode = draw(3);
    for (uint32_t i = 0; mode == 0 && i < n; i++)
        for (size_t op = 0; op < WF_LEN(layer); op++) add_line(w, "layer", layer[op], alike[i]);
    for (size_t op = 0; mode && op < WF_LEN(layer); op++) {
        uint32_t parts = cut(!strstr(layer[op], "attention"), ranges);
        for (uint32_t i = 0; i < parts; i++) add_line(w, "layer", layer[op], ranges[i]);
    }
    if (mode == 2) add_line(w, "next", layer[0], "0-end");
}

static void add_once(writer *w, const char *const *ops, size_t n)
{
    char ranges[4][32];
    for (size_t op = 0; op < n; op++) {
        uint32_t parts = draw(3) ? 1 : cut(true, ranges);
        if (parts == 1) snprintf(ranges[0], 32, "0-end");
        for (uint32_t i = 0; i < parts; i++) add_line(w, "once", ops[op], ranges[i]);
    }
}

/* behind: the n ops behind the layers. */
static void write_plan(writer *w, const char *const *behind, size_t n)
{
    w->queues = 1 + draw(WF_MAX_QUEUES);
    w->len = (size_t)snprintf(w->text, sizeof w->text, "weft-plan 2\nqueues %u\ntile %u\n", w->queues, 1 + draw(20));
    add_once(w, once_before, WF_LEN(once_before));
    add_layers(w);
    add_once(w, behind, n);
}

#endif
