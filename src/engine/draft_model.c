/* draft_model: speculative decoding with a smaller model of the same vocabulary. It has an engine of its own on the
 * same device, which continues the texts of sequences greedily while the engine waits for its drafts; how they are
 * verified, and whether that pays, is draft.c's. The prefix cache of that engine keeps what a sequence had in the round
 * before. Where it fails, sequences go on without. */
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
    WF_TRY(check_vocabularies(e->model, p->draft_model));
    const struct weft_engine_params own = {
        .device = p->device, .tier = p->tier, .threads = p->threads, .watchdog_ms = p->watchdog_ms,
        .context = WF_MIN(p->context ? p->context : WF_MIN(e->model->hp.context, WEFT_DEFAULT_CONTEXT),
                          p->draft_model->hp.context),
        .n_seqs = CONTEXTS, .kv_seqs = CONTEXTS, .calibration = "none", .nano_batches = 1, .tuned = p->tuned,
        .no_kernel_cache = p->no_kernel_cache, .step_ms = p->step_ms, .stop = p->stop, .user = p->user};
    weft_status s = weft_engine_open(p->draft_model, &own, &e->drafter);
    if (s != WEFT_OK) return wf_fail_context(s, "draft_model");
    wf_drafter_count(e, &e->drafter_stats);
    wf_log(WEFT_LOG_INFO, "draft_model: %s has %.1f MiB of the device", p->draft_model->info.path,
           (double)(e->drafter_stats.weight_bytes + e->drafter_stats.kv_bytes) / 0x1p20);
    return WEFT_OK;
}

void wf_drafter_count(const struct weft_engine *e, struct weft_stats *s)
{
    struct weft_stats own;
    if (!e->drafter) return;
    weft_engine_stats(e->drafter, &own);
    s->weight_bytes += own.weight_bytes, s->kv_bytes += own.kv_bytes;
    s->activation_bytes += own.activation_bytes, s->scratch_bytes += own.scratch_bytes;
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

/* Who may find each other's prompts in the engine's prefix cache finds them here. */
static weft_status begin_drafting(struct weft_engine *e, struct weft_request *r, uint32_t n, drafting *d)
{
    *d = (drafting){.of = r};
    const struct weft_request_params p = {.tokens = r->tokens, .n_tokens = r->seq.n_tokens, .max_tokens = n,
                                          .ignore_eos = true, .on_event = take_draft, .user = d,
                                          .cache_salt = (const char *)&r->seq.kv.root,
                                          .cache_salt_len = sizeof r->seq.kv.root};
    return weft_submit(e->drafter, &p, &d->own);
}

/* A failure that is of one sequence alone: of a token that the drafter does not have, say. It goes on without. */
static weft_status of_one(struct weft_request *r, weft_status s)
{
    if (s != WEFT_ERR_ARG && s != WEFT_ERR_FULL && s != WEFT_ERR_NOT_FINITE) return s;
    r->draft.refused = true;
    return WEFT_OK;
}

static bool is_unwanted(struct weft_engine *e, const drafting *d)
{
    pthread_mutex_lock(&e->lock);
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    return stop || atomic_load(&d->of->cancel);
}

/* Takes what was drafted behind the known tokens, as far as the engine's model has such ids. */
static weft_status end_drafting(struct weft_engine *e, drafting *d)
{
    enum { LOOK_MS = 20 };
    struct weft_request *r = d->of;
    weft_status s;
    while ((s = weft_wait(d->own, LOOK_MS)) == WEFT_ERR_TIMEOUT)
        if (is_unwanted(e, d)) weft_cancel(d->own);
    weft_request_free(d->own);
    uint32_t n = 0;
    while (s == WEFT_OK && n < d->n && (uint32_t)d->ids[n] < e->model->hp.n_vocab)
        r->tokens[r->seq.n_tokens + n] = d->ids[n], n++;
    r->draft.n = n;
    return s == WEFT_ERR_CANCELLED ? WEFT_OK : of_one(r, s);
}

/* How many tokens may be drafted for it now. */
static uint32_t drafts_wanted(const struct weft_engine *e, const struct weft_request *r, uint32_t n)
{
    uint32_t length = r->seq.n_tokens, context = weft_engine_context(e->drafter);
    bool generates = r->seq.state == WF_SEQ_RUNNING && length > r->n_prompt && !r->seq.all_logits && !r->seq.n_pending;
    generates &= !r->draft.refused;
    return !generates || r->draft.n || length >= context ? 0 : WF_MIN(WF_MIN(n, wf_draft_most(e, r)), context - length);
}

void wf_drafter_draft(struct weft_engine *e, uint32_t n_drafts)
{
    drafting list[CONTEXTS];
    weft_status failed = WEFT_OK;
    uint32_t n = 0, tokens = 0;
    bool first = false; /* for one of them, whose prompt is computed as well */
    uint64_t began = wf_now_ns();
    for (struct weft_request *r = e->live; r && n < CONTEXTS && failed == WEFT_OK; r = r->next) {
        uint32_t most = drafts_wanted(e, r, n_drafts);
        if (!most) continue;
        first |= !r->draft.known;
        r->draft.known = true;
        failed = of_one(r, begin_drafting(e, r, most, &list[n]));
        n += failed == WEFT_OK && !r->draft.refused;
    }
    for (uint32_t i = 0; i < n; i++) {
        weft_status s = end_drafting(e, &list[i]);
        failed = failed == WEFT_OK ? s : failed;
        tokens = WF_MAX(tokens, list[i].n);
    }
    double ns = tokens ? (double)(wf_now_ns() - began) / tokens : 0;
    if (tokens && !first) e->drafter_ns += (ns - e->drafter_ns) / (e->drafter_ns > 0 ? 8 : 1);
    if (failed == WEFT_OK) return;
    wf_log(WEFT_LOG_WARN, "draft_model drafts no more: %s", wf_error());
    wf_drafter_close(e);
}

void wf_drafter_close(struct weft_engine *e)
{
    weft_engine_close(e->drafter);
    e->drafter = NULL;
}
