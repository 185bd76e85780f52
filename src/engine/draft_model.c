/* draft_model: speculative decoding with a smaller model of the same vocabulary. It has an engine of its own on the same
 * device, which continues the texts of sequences greedily while the engine waits for its drafts; how they are verified,
 * and whether that pays, is draft.c's. The prefix cache of that engine keeps what a sequence had in the round before.
 */
#include "engine/engine.h"

#include <string.h>

enum { CONTEXTS = 4 /* of its KV cache, and sequences that are drafted for at one time */ };

/* Tokens have the same texts; one of both vocabularies may be padded. */
static weft_status check_vocabularies(const struct weft_model *m, const struct weft_model *draft)
{
    uint32_t n = WF_MIN(m->hp.n_vocab, draft->hp.n_vocab);
    for (uint32_t i = 0; i < n; i++) {
        char a[256], b[256];
        size_t len = weft_token_text(m, (int32_t)i, 0, a, sizeof a);
        size_t other = weft_token_text(draft, (int32_t)i, 0, b, sizeof b);
        if (len != other || memcmp(a, b, WF_MIN(len, sizeof a)))
            return wf_fail(WEFT_ERR_ARG, "draft_model: token %u of %s has another text than that of %s", i,
                           draft->info.path, m->info.path);
    }
    return WEFT_OK;
}

weft_status wf_drafter_open(struct weft_engine *e, const struct weft_engine_params *p)
{
    if (!p->draft_model) return WEFT_OK;
    if (!p->draft_tokens) return wf_fail(WEFT_ERR_ARG, "draft_model drafts nothing while draft_tokens is 0");
    if (wf_n_ranks(p) > 1 || e->model->hp.bidirectional)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "draft_model needs an engine with one device that generates text");
    WF_TRY(check_vocabularies(e->model, p->draft_model));
    const struct weft_engine_params own = {
        .device = p->device, .tier = p->tier, .threads = p->threads, .watchdog_ms = p->watchdog_ms,
        .context = WF_MIN(p->context ? p->context : WF_MIN(e->model->hp.context, WEFT_DEFAULT_CONTEXT),
                          p->draft_model->hp.context),
        .n_seqs = CONTEXTS, .kv_seqs = CONTEXTS, .calibration = "none", .nano_batches = 1, .tuned = p->tuned,
        .no_kernel_cache = p->no_kernel_cache, .on_progress = p->on_progress, .stop = p->stop, .user = p->user};
    weft_status s = weft_engine_open(p->draft_model, &own, &e->drafter);
    return s == WEFT_OK ? s : wf_fail_context(s, "draft_model");
}

/* What it drafts for one sequence. */
typedef struct drafting {
    struct weft_request *of, *own;
    int32_t ids[WF_MOST_DRAFTS];
    uint32_t n;
} drafting;

static void take_draft(void *user, const struct weft_event *ev)
{
    drafting *d = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0 && d->n < WF_MOST_DRAFTS) d->ids[d->n++] = ev->id;
}

static bool begin_drafting(struct weft_engine *e, struct weft_request *r, uint32_t n, drafting *d)
{
    *d = (drafting){.of = r};
    uint64_t number = (uint64_t)(uintptr_t)r; /* nobody else finds these pages */
    const struct weft_request_params p = {.tokens = r->tokens, .n_tokens = r->seq.n_tokens, .max_tokens = n,
                                          .ignore_eos = true, .on_event = take_draft, .user = d,
                                          .cache_salt = (const char *)&number, .cache_salt_len = sizeof number};
    bool fits = r->seq.n_tokens + n <= weft_engine_context(e->drafter);
    return fits && weft_submit(e->drafter, &p, &d->own) == WEFT_OK;
}

/* Behind the known tokens, as far as the model has such ids. */
static void put_draft(const struct weft_engine *e, const drafting *d)
{
    struct weft_request *r = d->of;
    uint32_t n = 0;
    while (n < d->n && (uint32_t)d->ids[n] < e->model->hp.n_vocab) r->tokens[r->seq.n_tokens + n] = d->ids[n], n++;
    r->draft.n = n;
}

void wf_drafter_draft(struct weft_engine *e, uint32_t n_drafts)
{
    drafting list[CONTEXTS];
    uint32_t n = 0, tokens = 0;
    uint64_t began = wf_now_ns();
    for (struct weft_request *r = e->live; r && n < CONTEXTS; r = r->next) {
        uint32_t most = r->seq.all_logits || r->seq.n_pending ? 0 : WF_MIN(n_drafts, wf_draft_most(e, r));
        bool generates = r->seq.state == WF_SEQ_RUNNING && r->seq.n_tokens > r->n_prompt;
        if (most && generates && !r->draft.n) n += begin_drafting(e, r, most, &list[n]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (weft_wait(list[i].own, 0) == WEFT_OK) put_draft(e, &list[i]);
        weft_request_free(list[i].own);
        tokens = WF_MAX(tokens, list[i].n);
    }
    double ns = tokens ? (double)(wf_now_ns() - began) / tokens : 0;
    if (tokens) e->drafter_ns += (ns - e->drafter_ns) / (e->drafter_ns > 0 ? 8 : 1);
}

void wf_drafter_close(struct weft_engine *e)
{
    weft_engine_close(e->drafter);
    e->drafter = NULL;
}
