/* draft: speculative decoding. What followed the last place that ends like a sequence's text is drafted as its next
 * tokens (prompt lookup), or a smaller model drafts them (draft_model.c), and one step verifies several of them: it
 * computes them like tokens of a prompt and samples behind each. The tokens that come are those that would have come
 * without; drafts decide how long it takes, and nothing else.
 *
 * A step with drafts gives more tokens and takes longer, and the next one cannot be formed while it runs. Whether that
 * pays is computed from what was seen: how many drafts were accepted or, while none are verified, would have been, and
 * how long steps of so many tokens took. */
#include "engine/engine.h"

enum { MATCH_LEAST = 2, MATCH_MOST = 8, LOOK_BACK = 1 << 15, AGE_MOST = 512 };
static const double GAIN_LEAST = 1.05; /* below it waiting for each step is not worth the noise of the estimate */

/* Finds the last place that ends like t[0 .. len): the longest match, of `least` tokens or more. Writes the n tokens
 * after it behind t, and returns n; 0: there is none. */
static uint32_t look_up(int32_t *t, uint32_t len, uint32_t least, uint32_t n)
{
    uint32_t best = least - 1, at = 0, first = len > LOOK_BACK ? len - LOOK_BACK : 0;
    for (uint32_t end = len - 1; end > first && best < MATCH_MOST; end--) {
        uint32_t same = 0;
        while (same < MATCH_MOST && same < end - first && t[end - 1 - same] == t[len - 1 - same]) same++;
        if (same > best) best = same, at = end;
    }
    for (uint32_t i = 0; at && i < n; i++) t[len + i] = t[at + i]; /* what repeats goes on to */
    return at ? n : 0;
}

/* So many tokens of an answer more may come than the one that is sure. */
uint32_t wf_draft_most(const struct weft_engine *e, const struct weft_request *r)
{
    uint32_t left = r->seq.max_tokens - r->seq.n_tokens;
    return left ? WF_MIN(left - 1, e->draft_tokens) : 0;
}

void wf_draft_look_up(struct weft_engine *e, struct weft_request *r)
{
    enum { SELDOM = 8 };
    wf_draft *d = &r->draft;
    d->n = 0;
    if (!e->drafts_pay && r->seq.n_tokens % SELDOM) return; /* enough to see whether they would */
    uint32_t least = e->drafter ? MATCH_MOST : MATCH_LEAST; /* a model knows better than a short match */
    d->n = !e->draft_tokens || r->seq.all_logits ? 0 : look_up(r->tokens, r->seq.n_tokens, least, wf_draft_most(e, r));
    if (!e->drafter) d->coverage += ((d->n > 0) - d->coverage) / 16;
}

void wf_draft_compared(struct weft_request *r, bool same)
{
    r->draft.acceptance += (same - r->draft.acceptance) / 8;
}

/* ---- how many ------------------------------------------------------------------------------------------------ */

/* Four buckets an octave. */
static uint32_t bucket_of(uint32_t tokens)
{
    uint32_t octave = 0;
    while (tokens >> octave > 7) octave++;
    return WF_MIN(octave * 4 + (tokens >> octave), (uint32_t)WF_DRAFT_BUCKETS - 1);
}

void wf_draft_timed(struct weft_engine *e, uint32_t tokens, bool alone, uint64_t ns)
{
    wf_draft_cost *c = &e->draft_costs[alone][bucket_of(tokens)];
    c->ns += ((double)ns - c->ns) / (c->ns > 0 ? 8 : 1);
    c->step = e->stats.steps;
}

/* How long a step of n sequences takes without drafts: beside the next one, or, where there never is one, alone. */
static double plain_cost_of(const struct weft_engine *e, uint32_t n)
{
    const wf_draft_cost *c = &e->draft_costs[false][bucket_of(n)];
    return c->ns > 0 ? c->ns : e->draft_costs[true][bucket_of(n)].ns;
}

/* How long a step of so many tokens takes alone. One that was not seen lately counts as fast as the next smaller one,
 * so that it is tried; 0: nothing is known. */
static double cost_of(const struct weft_engine *e, uint32_t tokens)
{
    for (uint32_t b = bucket_of(tokens) + 1; b--;) {
        const wf_draft_cost *c = &e->draft_costs[true][b];
        if (c->ns > 0 && e->stats.steps - c->step < AGE_MOST) return c->ns;
        if (e->draft_costs[false][b].ns > 0) return e->draft_costs[false][b].ns;
    }
    return 0;
}

/* Drafts of n that are accepted on average. */
static double gain_of(const wf_draft *d, uint32_t n)
{
    double all = 0, chance = 1;
    for (uint32_t i = 0; i < n; i++) all += chance *= d->acceptance;
    return all;
}

/* The number of drafts a sequence that gives the most tokens a second; 0: none gives more than steps without. known:
 * the drafts are; else there are as many as there were before. */
static uint32_t best_number(const struct weft_engine *e, bool known)
{
    double plain = 0, best = 0;
    uint32_t number = 0, n = 0;
    for (uint32_t k = 0; k <= e->draft_tokens; k = k ? 2 * k : 1) {
        double given = 0, computed = 0;
        for (const struct weft_request *r = e->live; r; r = r->next) {
            if (r->seq.state != WF_SEQ_RUNNING || r->seq.n_tokens < r->n_prompt) continue;
            uint32_t most = WF_MIN(k, known ? r->draft.n : wf_draft_most(e, r));
            double part = known ? 1 : r->draft.coverage;
            n += !k;
            computed += 1 + part * most;
            given += 1 + part * gain_of(&r->draft, most);
        }
        double ns = k ? cost_of(e, (uint32_t)(computed + 0.5)) : plain_cost_of(e, n);
        if (k && !known) ns += k * e->drafter_ns;
        if (!(ns > 0)) return 0;
        if (!k) plain = best = given / ns * GAIN_LEAST;
        else if (given / ns > best) best = given / ns, number = k;
    }
    return best > plain ? number : 0;
}

/* Now and then steps run without drafts, which shows how long these take, and a few with those of a model, which shows
 * how many are accepted. */
bool wf_draft_pays(struct weft_engine *e)
{
    enum { PLAIN_STEPS = 4, DRAFTED_STEPS = 6 };
    if (!e->draft_tokens || !e->live) return false;
    uint64_t step = e->stats.steps % AGE_MOST;
    bool tries = e->drafter && step >= PLAIN_STEPS && step < DRAFTED_STEPS;
    e->drafts_pay = e->draft_always || tries || (step >= PLAIN_STEPS && best_number(e, false));
    return e->drafts_pay;
}

void wf_draft_choose(struct weft_engine *e)
{
    for (struct weft_request *r = e->live; r; r = r->next) r->seq.n_drafts = 0;
    if (!wf_draft_pays(e)) return;
    if (e->drafter) {
        wf_drafter_draft(e, e->draft_always ? e->draft_tokens : WF_MAX(best_number(e, false), 1u));
        for (struct weft_request *r = e->live; r; r = r->next)
            if (!r->seq.n_pending) r->draft.coverage += ((r->draft.n > 0) - r->draft.coverage) / 16;
    }
    uint32_t n = e->draft_always ? e->draft_tokens : best_number(e, true);
    for (struct weft_request *r = e->live; r; r = r->next)
        if (!r->seq.n_pending) r->seq.n_drafts = WF_MIN(n, r->draft.n);
}
