/* Memory of a grammar, the bounds on its work, and the way out of a call that cannot go on. */
#include "grammar/internal.h"
#include "grammar/regex_pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 << 10, MAX_BYTES = 32 << 20, MAX_WORK = 3000000, MAX_DEPTH = 600 };

size_t grammar_most_bytes = 1u << 30;
static atomic_size_t all_bytes;

void grammar_count(wf_grammar *g, size_t bytes)
{
    g->bytes += bytes;
    if (atomic_fetch_add(&all_bytes, bytes) + bytes <= grammar_most_bytes) return;
    snprintf(g->message, sizeof g->message, "the grammars of all requests take more than %zu MB: try again later",
             grammar_most_bytes >> 20);
    g->status = WEFT_ERR_NOMEM;
    longjmp(*g->out, 1);
}

void grammar_uncount(wf_grammar *g, size_t bytes)
{
    g->bytes -= bytes;
    atomic_fetch_sub(&all_bytes, bytes);
}

void grammar_grow(wf_grammar *g, void *array, size_t n, size_t *cap, size_t size)
{
    size_t before = *cap;
    if (!wf_grow(array, n, cap, size)) grammar_no_memory(g);
    grammar_count(g, (*cap - before) * size);
}

static void *arena_take(wf_grammar *g, arena *a, size_t size)
{
    size = WF_UP(WF_MAX(size, 1u), 16);
    if (!a->last || a->last->size - a->last->used < size) {
        size_t want = WF_MAX(size, (size_t)PIECE);
        if (a->bytes + want > MAX_BYTES) grammar_no_memory(g);
        grammar_count(g, want);
        arena_piece *p = malloc(sizeof *p + want);
        if (!p) grammar_no_memory(g);
        p->before = a->last, p->used = 0, p->size = want;
        a->last = p;
        a->bytes += want;
    }
    void *at = a->last->bytes + a->last->used;
    a->last->used += size;
    return memset(at, 0, size);
}

void *grammar_take(wf_grammar *g, size_t size) { return arena_take(g, &g->kept, size); }
void *grammar_hold(wf_grammar *g, size_t size) { return arena_take(g, &g->held, size); }
void *grammar_mark(wf_grammar *g) { return grammar_hold(g, 1); }

void grammar_release(wf_grammar *g, void *mark)
{
    for (;;) {
        arena_piece *p = g->held.last;
        if ((unsigned char *)mark >= p->bytes && (unsigned char *)mark < p->bytes + p->used) {
            p->used = (size_t)((unsigned char *)mark - p->bytes);
            return;
        }
        g->held.last = p->before;
        g->held.bytes -= p->size;
        grammar_uncount(g, p->size);
        free(p);
    }
}

void arena_free(arena *a)
{
    while (a->last) {
        arena_piece *p = a->last;
        a->last = p->before;
        free(p);
    }
}

_Noreturn void grammar_fail(wf_grammar *g, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->message, sizeof g->message, fmt, ap);
    va_end(ap);
    g->status = WEFT_ERR_UNSUPPORTED;
    longjmp(*g->out, 1);
}

_Noreturn void grammar_no_memory(wf_grammar *g)
{
    wf_copy(g->message, sizeof g->message, "it takes too much memory");
    g->status = WEFT_ERR_UNSUPPORTED;
    longjmp(*g->out, 1);
}

void grammar_work(wf_grammar *g, size_t steps)
{
    if ((g->work += steps) > MAX_WORK) grammar_fail(g, "it takes too much work");
}

void grammar_deeper(wf_grammar *g)
{
    if (++g->depth > MAX_DEPTH) grammar_fail(g, "it is nested too deeply");
}

void grammar_shallower(wf_grammar *g) { g->depth--; }

wf_grammar *grammar_of(const re_pool *p) { return p->grammar; }
