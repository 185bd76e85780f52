/* paper_batches: throughput by batch, in FlashDecoding++Next's figures 11 and 12 and its table 2. Each load is a batch of equal requests that come at once. */
#include "cli/paper.h"

#include <string.h>

enum { GENERATED = 128, MOST_SEQS = 256 };

/* Generated tokens a second of n requests at once, prompts included. */
static int add_rate(wf_paper *p, wf_paper_engine *e, const char *series, double x, size_t n, uint32_t in)
{
    wf_paper_times t;
    uint32_t out = wf_paper_length(p, GENERATED);
    int rc = wf_paper_run(p, e, n, in, out, &t);
    for (size_t i = 0; i < t.n && !rc; i++) rc = wf_paper_add(p, series, x, x, (double)n * out / t.v[i]);
    return rc;
}

/* On one engine, as far as its memory reaches. */
static int add_batches(wf_paper *p, const char *series, const uint32_t *batches, size_t n, uint32_t in)
{
    wf_paper_engine e;
    const uint32_t tokens = wf_paper_length(p, in), last = p->o->paper.quick ? 8 : batches[n - 1];
    int rc = wf_paper_open(p, "nanoflow", last, tokens + wf_paper_length(p, GENERATED), 0, &e);
    if (rc) return rc;
    for (size_t i = 0; i < n && !rc && batches[i] <= e.n_seqs; i++) rc = add_rate(p, &e, series, batches[i], batches[i], tokens);
    weft_engine_close(e.e);
    return rc;
}

/* ---- figure 12 ------------------------------------------------------------------------------ */

int wf_paper_batches(wf_paper *p)
{
    static const uint32_t batches[] = {1, 8, 16, 32, 64, 128}, lens[] = {1024, 4096};
    int rc = wf_paper_fit(p, 4096 + GENERATED);
    for (size_t i = 0; i < (p->o->paper.quick ? 1 : WF_LEN(lens)) && !rc; i++) {
        char name[32];
        snprintf(name, sizeof name, "prompts of %uK", lens[i] / 1024);
        rc = add_batches(p, name, batches, WF_LEN(batches) - (i ? 1 : 0), lens[i]);
    }
    return rc ? rc : wf_paper_note(p, "generated tokens per second of the whole load with its prompts, %u for each; other engines are not run", wf_paper_length(p, GENERATED));
}

/* ---- figure 11 ------------------------------------------------------------------------------ */

static int add_largest(wf_paper *p, uint32_t len)
{
    wf_paper_engine e;
    const uint32_t tokens = wf_paper_length(p, len);
    int rc = wf_paper_open(p, "nanoflow", p->o->paper.quick ? 8 : MOST_SEQS, tokens + wf_paper_length(p, GENERATED), 0, &e);
    if (rc) return rc;
    rc = add_rate(p, &e, "weft", tokens, e.n_seqs, tokens);
    if (!rc) rc = wf_paper_note(p, "prompts of %u tokens: %u sequences at once", tokens, e.n_seqs);
    weft_engine_close(e.e);
    return rc;
}

int wf_paper_largest_batch(wf_paper *p)
{
    static const uint32_t lens[] = {1024, 2048, 4096};
    int rc = wf_paper_fit(p, lens[WF_LEN(lens) - 1] + GENERATED);
    for (size_t i = 0; i < (p->o->paper.quick ? 1 : WF_LEN(lens)) && !rc; i++) rc = add_largest(p, lens[i]);
    return rc ? rc : wf_paper_note(p, "at most %d sequences at once, halved until the memory holds them; other engines are not run, so rates are not over HuggingFace's", MOST_SEQS);
}

/* ---- table 2 -------------------------------------------------------------------------------- */

/* The kernel for 64 tokens: libraries pad to as many. */
static void on_candidate(void *user, const struct weft_candidate *k)
{
    char *name = user;
    if (k->chosen) snprintf(name, 80, "gemm=%.70s", k->name);
}

/* With that kernel also for fewer tokens. */
static int without_flat(wf_paper *p, const uint32_t *batches, size_t n)
{
    char force[80] = "", shape[64];
    const wf_opts *given = p->o;
    wf_opts o = *given;
    uint32_t width = p->o->paper.quick ? 256 : 4096;
    snprintf(shape, sizeof shape, "M=64,N=%u,K=%u", width, width);
    weft_status s = weft_candidates(o.engine.device, o.engine.tier, shape, wf_main_dtype(p->m), on_candidate, force);
    if (s) return wf_say_error(s);
    if (!*force || o.debug.force) return wf_paper_note(p, "without flat products: left out, for no kernel is chosen for 64 tokens, or --force says which");
    o.debug.force = force;
    p->o = &o;
    int rc = add_batches(p, "without flat products", batches, n, 1024);
    p->o = given;
    return rc ? rc : wf_paper_note(p, "without flat products: all products with the kernel for 64 tokens, %s", force + 5);
}

int wf_paper_without_flat(wf_paper *p)
{
    static const uint32_t batches[] = {1, 8, 16, 32, 64, 128};
    struct weft_memory memory;
    int rc = wf_paper_fit(p, 1024 + GENERATED);
    if (!rc) rc = add_batches(p, "full", batches, WF_LEN(batches), 1024);
    if (!rc) rc = without_flat(p, batches, WF_LEN(batches) - 1);
    struct weft_engine_params q = p->o->engine;
    q.context = wf_paper_length(p, 1024 + GENERATED);
    weft_status s = rc ? WEFT_OK : weft_memory(p->m, &q, &memory);
    if (rc || s) return rc ? rc : wf_say_error(s);
    return wf_paper_note(p, "the memory optimization has no switch, for buffers are always reused: of %u tokens %llu sequences fit with it, %llu without", q.context,
                         (unsigned long long)memory.reused.largest_batch, (unsigned long long)memory.apart.largest_batch);
}
