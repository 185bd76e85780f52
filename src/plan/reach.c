/* reach: how far a plan that won holds. See reach.h. */
#include "plan/reach.h"

#define ROUNDING 1e-5f /* of a share that is written as text */
enum { OTHERS = 2 /* other steps that a plan is tried with, in one direction */, INSIDE = 8, TURNS = 3 };

typedef struct reach {
    const wf_reach_params *p;
    wf_bucket *out; /* so far */
    double share;   /* of decodes, of the step that was won */
} reach;

static weft_status try_decodes(const reach *r, uint32_t tokens, uint32_t decodes, uint32_t context,
                               enum wf_verdict *out)
{
    return r->p->try_step(r->p->user, &(wf_step_kind){tokens, decodes, context}, out);
}

/* A share of none or all has others beside it which have one token of the other kind, and with it all that such a token
 * costs. */
static weft_status try_step(const reach *r, uint32_t tokens, double share, uint32_t context, enum wf_verdict *out)
{
    uint32_t decodes = (uint32_t)(share * tokens + 1e-3), beside = !decodes ? 1 : tokens - 1;
    bool edge = r->share < 1 && tokens > 1 && (!decodes || decodes == tokens) && share != r->share;
    WF_TRY(try_decodes(r, tokens, decodes, context, out));
    return edge && *out == WF_WINS ? try_decodes(r, tokens, beside, context, out) : WEFT_OK;
}

/* With the most and with the least of its tokens. At least one of the two must be a step that there is. */
static weft_status wins_at(const reach *r, uint32_t context, double share, bool *wins)
{
    const uint32_t tokens[] = {r->out->tokens, r->out->least_tokens};
    bool any = false;
    *wins = true;
    for (size_t i = 0; i < WF_LEN(tokens) && *wins && (!i || tokens[1] < tokens[0]); i++) {
        enum wf_verdict v;
        WF_TRY(try_step(r, tokens[i], share, context, &v));
        any |= v != WF_NO_SUCH_STEP;
        *wins = v != WF_LOSES;
    }
    *wins = *wins && any;
    return WEFT_OK;
}

/* The largest number below `tokens` to be tried, of some between all and half of them and those just behind a cut,
 * where a nano-batch has one token and costs nearly as much as with many; 0: none. */
static uint32_t fewer_tokens(const reach *r, uint32_t tokens)
{
    uint32_t all = r->p->won.tokens, half = all - all / 2, next = 0;
    const wf_plan *p = r->p->plan;
    for (uint32_t i = 1; i <= OTHERS; i++)
        if (all - i * (all / 2) / OTHERS < tokens) next = WF_MAX(next, all - i * (all / 2) / OTHERS);
    for (const wf_plan_line *l = p->lines; l < p->lines + p->n_lines; l++)
        if (l->begin.tokens >= half && l->begin.tokens + 1 < tokens) next = WF_MAX(next, l->begin.tokens + 1);
    return next;
}

/* From half of the context to twice as much. */
static weft_status find_contexts(const reach *r)
{
    bool wins;
    uint32_t context = r->p->won.context, less = WF_MAX(1u, context / 2),
             more = (uint32_t)WF_MIN(2 * (uint64_t)context, (uint64_t)r->p->most_context);
    WF_TRY(wins_at(r, less, r->share, &wins));
    if (wins) r->out->least_context = less;
    if (more <= context) return WEFT_OK;
    WF_TRY(wins_at(r, more, r->share, &wins));
    if (wins) r->out->context = more;
    return WEFT_OK;
}

/* To the last share; *reached: as far as it wins, of some between, with the shortest and the longest contexts, too. */
static weft_status find_share(const reach *r, double last, float *reached)
{
    const uint32_t contexts[] = {r->p->won.context, r->out->least_context, r->out->context};
    bool wins = r->share != last;
    for (uint32_t i = 1; i <= OTHERS && wins; i++) {
        double other = r->share + (last - r->share) * i / OTHERS;
        for (size_t c = 0; c < WF_LEN(contexts) && wins; c++)
            if (!c || contexts[c] != contexts[0]) WF_TRY(wins_at(r, contexts[c], other, &wins));
        if (wins) *reached = (float)other;
    }
    return WEFT_OK;
}

/* ---- inside ------------------------------------------------------------------------------------------------------ */

/* The step that was won, and what is a part of its tokens without being a round number as text. */
static wf_bucket only_won(const reach *r)
{
    const wf_step_kind *w = &r->p->won;
    float share = (float)r->share;
    /* decodes alone are not all but one */
    return (wf_bucket){w->tokens,
                       w->tokens,
                       w->context,
                       w->context,
                       share < 1 ? share * (1 - ROUNDING) : 1,
                       WF_MIN(share * (1 + ROUNDING), 1.0f)};
}

/* Does it win with some steps from all over what it has reached? */
static weft_status holds_inside(const reach *r, uint64_t seed, bool *holds)
{
    const wf_bucket *b = r->out;
    enum wf_verdict v = WF_WINS;
    for (uint64_t i = 0; i < 3 * INSIDE && v != WF_LOSES; i += 3) {
        uint32_t tokens = b->least_tokens + (uint32_t)(wf_random(seed, i) % (b->tokens - b->least_tokens + 1));
        uint32_t context = b->least_context + (uint32_t)(wf_random(seed, i + 1) % (b->context - b->least_context + 1));
        WF_TRY(try_step(
            r, tokens, (double)b->least_decodes + wf_random_unit(seed, i + 2) * (double)(b->decodes - b->least_decodes),
            context, &v));
    }
    *holds = v != WF_LOSES;
    return WEFT_OK;
}

weft_status wf_reach_find(const wf_reach_params *p, wf_bucket *out)
{
    reach r = {p, out, (double)((float)p->won.decodes / (float)p->won.tokens)};
    *out = only_won(&r);
    /* Down to the smallest step with which it wins. */
    enum wf_verdict v = WF_WINS;
    for (uint32_t t = r.p->won.tokens; (t = fewer_tokens(&r, t)) && v == WF_WINS;) {
        WF_TRY(try_step(&r, t, r.share, r.p->won.context, &v));
        if (v == WF_WINS) r.out->least_tokens = t;
    }
    WF_TRY(find_contexts(&r));
    WF_TRY(find_share(&r, (double)p->least_decodes, &out->least_decodes));
    WF_TRY(find_share(&r, (double)p->most_decodes, &out->decodes));
    bool holds = false;
    for (uint64_t turn = 0; turn < TURNS && !holds; turn++) {
        WF_TRY(holds_inside(&r, turn, &holds));
        if (!holds) {
            /* Half as far from the step that was won. */
            wf_bucket *b = r.out, won = only_won(&r);
            b->least_tokens = won.tokens - (won.tokens - b->least_tokens) / 2;
            b->least_context = won.context - (won.context - b->least_context) / 2;
            b->context = won.context + (b->context - won.context) / 2;
            b->least_decodes = (b->least_decodes + won.least_decodes) / 2;
            b->decodes = (b->decodes + won.decodes) / 2;
        }
    }
    if (!holds) *r.out = only_won(&r);
    out->decodes = WF_MAX(out->decodes, WF_NO_DECODES);
    return WEFT_OK;
}
