/* beside: may the next step be formed and submitted while the host has yet to sample tokens of one in flight? The
 * sequences that it samples for are in every other step then, and the device does not wait for the host. Else all are
 * in each step, and between two steps the device waits until the host has sampled.
 *
 * Which gives more tokens is computed from how long steps took in either way. Of n sequences that decode the host
 * samples for h: a step that is waited for gives n tokens, one that is followed n - h / 2 on average. Now and then a
 * few steps run the other way, which shows how long those take. */
#include "engine/engine.h"

enum { PERIOD = 256, TRIES = 8, AVERAGED = 16 };

bool wf_beside_pays(const struct weft_engine *e)
{
    const wf_beside *f = &e->beside;
    const wf_beside_cost *waited = &f->costs[WF_WAITED], *followed = &f->costs[WF_FOLLOWED];
    double all = 0, held = 0;
    if (f->always || e->sched.p.stages > 1) return true; /* of stages each sequence is in one step of several */
    for (const struct weft_request *r = e->live; r; r = r->next) {
        const wf_seq *q = &r->seq;
        if (q->state != WF_SEQ_RUNNING) continue;
        held += q->sampled_by_host;
        all += q->sampled_by_host || wf_seq_length(q) > q->n_prompt;
    }
    if (held == all || waited->n < TRIES) return false;
    if (followed->n < TRIES) return true;
    bool pays = (all - held / 2) * waited->ns > all * followed->ns;
    return e->stats.steps % PERIOD < TRIES ? !pays : pays;
}

/* What was measured long ago says nothing. */
static void beside_cost(wf_beside_cost *c, double ns, uint64_t step)
{
    if (step - c->step > PERIOD / 2) c->n = 0;
    c->n++, c->step = step;
    c->ns += (ns - c->ns) / WF_MIN(c->n, (uint32_t)AVERAGED);
}

void wf_beside_ended(struct weft_engine *e, const wf_step *step, uint64_t ns)
{
    wf_beside *f = &e->beside;
    enum wf_beside_way way = step->have_drafts ? WF_RESTED : e->n_in_flight > 1 ? WF_FOLLOWED : WF_WAITED;
    if (way && f->way == way && (step->have_logits || f->had_logits))
        beside_cost(&f->costs[way], (double)ns, e->stats.steps);
    f->way = way;
    f->had_logits = step->have_logits;
}

void wf_beside_rests(struct weft_engine *e)
{
    e->beside.way = WF_RESTED;
}
