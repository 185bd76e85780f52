/* follow: may the next step be formed and submitted while the host has yet to sample tokens of one in flight? The
 * sequences that it samples for are in every other step then, and the device never waits for the host. Else all are in
 * each step, and between two steps the device waits until the host has sampled.
 *
 * Of n sequences that decode h are sampled by the host. With T a step and g what the device waits for, n tokens come in
 * T + g, or n - h / 2 in a step, which is no shorter than what the host does for one. */
#include "engine/engine.h"

static void follow_average(double *average, double value)
{
    *average += (value - *average) / (*average > 0 ? 8 : 1);
}

bool wf_follow_pays(const struct weft_engine *e)
{
    const wf_follow *f = &e->follow;
    double all = 0, held = 0;
    if (f->always || e->sched.p.stages > 1) return true; /* of stages each sequence is in one step of several */
    for (const struct weft_request *r = e->live; r; r = r->next) {
        const wf_seq *q = &r->seq;
        if (q->state != WF_SEQ_RUNNING) continue;
        held += q->sampled_by_host;
        all += q->sampled_by_host || wf_seq_length(q) > q->n_prompt;
    }
    return (all - held / 2) * (f->step_ns + f->host_ns) > all * WF_MAX(f->step_ns, f->host_ns);
}

void wf_follow_ended(struct weft_engine *e, const wf_step *step, uint64_t ns, uint64_t now)
{
    if (step->have_drafts) return;
    follow_average(&e->follow.step_ns, (double)ns);
    e->follow.ended_ns = step->have_logits ? now : 0;
}

void wf_follow_submits(struct weft_engine *e, const wf_step *step)
{
    wf_follow *f = &e->follow;
    if (f->ended_ns) follow_average(&f->host_ns, (double)(step->start_ns - f->ended_ns));
    f->ended_ns = 0;
}

void wf_follow_rests(struct weft_engine *e)
{
    e->follow.ended_ns = 0;
}
