/* paper_pipeline: SARATHI's figure 12a by simulation, as in the paper: bubbles of a pipeline of stages whose micro-batches are not equally long. What a
 * micro-batch takes is what the cost model says of it, an equal part in each stage; links between stages cost nothing. */
#include "cli/paper.h"

#include <stdlib.h>
#include <string.h>

enum { STAGES = 8, SEQS = 27, CHUNK = 256, GRAIN = 128, MOST_TOKENS = 4096 + SEQS, GRAINS = MOST_TOKENS / GRAIN + 2, REQUESTS = 10000, QUICK_REQUESTS = 500 };

typedef struct request {
    uint32_t prompt, out; /* tokens that are left */
    double bubbles;       /* seconds, of all stages */
} request;

/* A micro-batch: it is in one stage at a time, and its sequences stay together. */
typedef struct lane {
    request *slots[SEQS];
    size_t n;
    double ready; /* when it left the last stage */
} lane;

typedef struct pipeline {
    const struct weft_model *m;
    uint32_t chunk; /* 0: whole prompts */
    request *all;
    size_t n, next; /* next: of those that wait */
    lane lanes[STAGES];
    double free[STAGES];              /* when the stage has done what came before */
    double seconds[GRAINS][SEQS + 1]; /* of a stage by tokens and decodes; 0: not asked yet */
} pipeline;

/* ---- time ----------------------------------------------------------------------------------- */

/* Of eight devices; tokens are rounded up, as tiles do. */
static int ask_cost(const pipeline *x, uint32_t tokens, uint32_t decodes, double *seconds)
{
    struct weft_cost *c = NULL;
    weft_status s = weft_cost(&(struct weft_cost_params){.model = x->m, .on = "a100-80", .n_devices = 8, .tokens = tokens, .decodes = WF_MAX(decodes, 1u)}, &c);
    if (s) return wf_say_error(s);
    *seconds = c->total.alone / STAGES;
    weft_cost_free(c);
    return 0;
}

static int time_stage(pipeline *x, uint32_t tokens, uint32_t decodes, double *seconds)
{
    uint32_t grain = (tokens + GRAIN - 1) / GRAIN;
    double *known = &x->seconds[tokens == decodes ? 0 : grain][decodes];
    int rc = *known > 0 ? 0 : ask_cost(x, tokens == decodes ? decodes : grain * GRAIN, decodes, known);
    *seconds = *known;
    return rc;
}

/* ---- micro-batches --------------------------------------------------------------------------- */

typedef struct micro_batch {
    uint32_t decodes, tokens;
    request *chunk_of; /* whose prompt is in it; NULL: none */
    uint32_t chunk;
} micro_batch;

static void admit(pipeline *x, lane *l)
{
    while (l->n < SEQS && x->next < x->n) l->slots[l->n++] = &x->all[x->next++];
}

/* A token of each sequence whose prompt is done, and the first prompt that is not, or a chunk of it. */
static micro_batch compose(const pipeline *x, const lane *l)
{
    micro_batch b = {0};
    for (size_t i = 0; i < l->n; i++) {
        b.decodes += !l->slots[i]->prompt;
        if (l->slots[i]->prompt && !b.chunk_of) b.chunk_of = l->slots[i];
    }
    if (b.chunk_of) b.chunk = x->chunk ? WF_MIN(b.chunk_of->prompt, x->chunk - b.decodes) : b.chunk_of->prompt;
    b.tokens = b.decodes + b.chunk;
    return b;
}

/* Through all stages. Returns how long they waited for it. */
static double pass(pipeline *x, lane *l, double seconds)
{
    double at = l->ready, bubbles = 0;
    for (size_t s = 0; s < STAGES; s++) {
        bubbles += WF_MAX(at - x->free[s], 0);
        at = WF_MAX(at, x->free[s]) + seconds;
        x->free[s] = at;
    }
    l->ready = at;
    return bubbles;
}

/* Sequences that are done leave. A prompt gives the first token. */
static void advance(lane *l, const micro_batch *b, double bubbles)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        request *r = l->slots[i];
        if (!r->prompt || r == b->chunk_of) r->bubbles += bubbles;
        if (r == b->chunk_of) r->prompt -= b->chunk, r->out -= !r->prompt;
        else if (!r->prompt) r->out--;
        if (r->prompt || r->out) l->slots[kept++] = r;
    }
    l->n = kept;
}

/* One micro-batch of a lane. *ran: there was one. */
static int step(pipeline *x, lane *l, bool *ran)
{
    double seconds;
    admit(x, l);
    micro_batch b = compose(x, l);
    if (!b.tokens) return 0;
    int rc = time_stage(x, b.tokens, b.decodes, &seconds);
    if (rc) return rc;
    advance(l, &b, pass(x, l, seconds));
    *ran = true;
    return wf_interrupted() ? wf_interrupted_exit() : 0;
}

static int simulate(pipeline *x)
{
    int rc = 0;
    for (bool ran = true; ran && !rc;) {
        ran = false;
        for (size_t i = 0; i < STAGES && !rc; i++) rc = step(x, &x->lanes[i], &ran);
    }
    return rc;
}

/* ---- the figure ------------------------------------------------------------------------------- */

static int by_bubbles(const void *a, const void *b)
{
    double x = ((const request *)a)->bubbles, y = ((const request *)b)->bubbles;
    return (x > y) - (x < y);
}

static int add_quantiles(wf_paper *p, const char *series, request *all, size_t n)
{
    int rc = 0;
    qsort(all, n, sizeof *all, by_bubbles);
    for (size_t percent = 10; percent < 100 && !rc; percent += 10) rc = wf_paper_add(p, series, (double)percent, (double)percent, all[n * percent / 100].bubbles);
    return rc;
}

static int run_policy(wf_paper *p, const struct weft_model *m, const wf_request_specs *specs, const char *series, uint32_t chunk)
{
    pipeline *x = wf_calloc(1, sizeof *x);
    request *all = wf_calloc(specs->n, sizeof *all);
    int rc = x && all ? 0 : wf_say_error(WEFT_ERR_NOMEM);
    for (size_t i = 0; !rc && i < specs->n; i++) all[i] = (request){.prompt = specs->list[i].n_in, .out = specs->list[i].n_out};
    if (!rc) {
        *x = (pipeline){.m = m, .chunk = chunk, .all = all, .n = specs->n};
        rc = simulate(x);
    }
    if (!rc) rc = add_quantiles(p, series, all, specs->n);
    free(x), free(all);
    return rc;
}

int wf_paper_bubbles(wf_paper *p)
{
    struct weft_model *m = NULL;
    wf_request_specs specs = {0};
    size_t n = p->o->paper.quick ? QUICK_REQUESTS : REQUESTS;
    p->scale = 1;
    weft_status s = weft_model_open(&(struct weft_model_params){.shape = "llama2-70b"}, &m);
    if (!s) s = wf_paper_zipf(p, n, &specs);
    int rc = s ? wf_say_error(s) : run_policy(p, m, &specs, "Orca", 0);
    if (!rc) rc = run_policy(p, m, &specs, "SARATHI", CHUNK);
    wf_request_specs_free(&specs);
    weft_model_close(m);
    if (!rc) wf_paper_divide(p, wf_paper_find(p, "Orca", 50));
    if (!rc) rc = wf_paper_note(p, "a chunk takes as long wherever it is in its prompt, and links cost nothing, so that chunks leave fewer bubbles than in the paper");
    return rc ? rc : wf_paper_note(p, "simulated for %d stages of 8 A100 80 GB by weft's cost model of LLaMA-2-70B, for GPT-3 has no shape here: %zu requests, %d in a micro-batch", STAGES, n, SEQS);
}
