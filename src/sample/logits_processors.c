/* logits_processors: change logits before sampling: logit bias, presence and frequency penalties over the answer, a
 * repetition penalty over the last tokens of prompt and answer, and min_tokens, which forbids the end of generation. */
#include "sample/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float never = -1e30f; /* finite, so that sums of exp do not become NaN */

/* Its place in the list, which it gets now if it had none. */
static weft_status changed_token(wf_logits_processors *a, int32_t id, wf_changed **out)
{
    if (!a->place && !(a->place = wf_calloc(a->n_vocab, sizeof *a->place))) return WEFT_ERR_NOMEM;
    if (!a->place[id]) {
        if (!wf_grow(&a->list, a->n, &a->cap, sizeof *a->list)) return WEFT_ERR_NOMEM;
        a->list[a->n] = (wf_changed){.id = id};
        a->place[id] = (uint32_t)++a->n;
    }
    *out = &a->list[a->place[id] - 1];
    return WEFT_OK;
}

static weft_status add_bias(wf_logits_processors *a, const struct weft_logit_bias *b)
{
    wf_changed *t;
    if (b->id < 0 || (uint32_t)b->id >= a->n_vocab || !(fabsf(b->bias) <= 1e6f))
        return wf_fail(WEFT_ERR_ARG, "logit bias of token %d: want an id from 0 to %u and a bias from -1e6 to 1e6",
                       b->id, a->n_vocab - 1);
    WF_TRY(changed_token(a, b->id, &t));
    t->bias += b->bias;
    return WEFT_OK;
}

weft_status wf_logits_processors_add_end(wf_logits_processors *a, int32_t id)
{
    wf_changed *t;
    WF_TRY(changed_token(a, id, &t));
    t->ends = true;
    return WEFT_OK;
}

weft_status wf_logits_processors_init(wf_logits_processors *a, uint32_t n_vocab, const struct weft_request_params *p,
                                      const int32_t *prompt, size_t n)
{
    const struct weft_sampling *s = &p->sampling;
    *a = (wf_logits_processors){.repeat = s->repeat_penalty > 0 ? s->repeat_penalty : 1,
                                .presence = s->presence_penalty, .frequency = s->frequency_penalty,
                                .n_vocab = n_vocab};
    for (size_t i = 0; i < p->n_bias; i++) WF_TRY(add_bias(a, &p->bias[i]));
    if (a->repeat != 1) a->window = s->repeat_last_n > 0 ? (uint32_t)s->repeat_last_n : UINT32_MAX;
    for (size_t i = n - WF_MIN(n, a->window); i < n; i++) {
        wf_changed *t;
        WF_TRY(changed_token(a, prompt[i], &t));
        t->recent++;
    }
    return WEFT_OK;
}

void wf_logits_processors_free(wf_logits_processors *a)
{
    free(a->list);
    free(a->place);
}

static bool penalises_answer(const wf_logits_processors *a)
{
    return a->presence != 0 || a->frequency != 0;
}

static bool penalises(const wf_logits_processors *a)
{
    return a->window || penalises_answer(a);
}

static void leave_window(wf_logits_processors *a, int32_t id)
{
    wf_changed *t = &a->list[a->place[id] - 1], *last = &a->list[a->n - 1];
    if (--t->recent || (t->generated && penalises_answer(a)) || t->bias != 0 || t->ends) return;
    a->place[last->id] = a->place[id];
    a->place[id] = 0;
    *t = *last;
    a->n--;
}

weft_status wf_logits_processors_add_token(wf_logits_processors *a, const int32_t *tokens, size_t n)
{
    wf_changed *t;
    if (!penalises(a)) return WEFT_OK;
    WF_TRY(changed_token(a, tokens[n - 1], &t));
    t->generated++;
    t->recent++;
    if (n > a->window) leave_window(a, tokens[n - 1 - a->window]);
    return WEFT_OK;
}

uint64_t wf_logits_processors_most(const wf_logits_processors *a, uint32_t answer)
{
    uint64_t new = penalises_answer(a) ? answer : WF_MIN(answer, a->window);
    return a->n + new + penalises(a); /* a pending one may be there twice */
}

bool wf_logits_processors_active(const wf_logits_processors *a)
{
    return a->n || a->allowed;
}

static wf_adjust adjust_of(const wf_logits_processors *a, const wf_changed *t)
{
    float penalty = t->generated ? a->presence + a->frequency * (float)t->generated : 0;
    return (wf_adjust){.repeat = t->recent ? a->repeat : 1,
                       .after = t->ends && a->forbid_ends ? never : t->bias - penalty};
}

void wf_logits_processors_apply(const wf_logits_processors *a, float *z)
{
    for (const wf_changed *t = a->list; t < a->list + a->n; t++) {
        wf_adjust d = adjust_of(a, t);
        z[t->id] = wf_adjusted_logit(z[t->id], d.repeat, d.after);
    }
    if (a->allowed) wf_allow_row(a->allowed, z, a->n_vocab);
}

uint32_t wf_logits_processors_list(const wf_logits_processors *a, const int32_t *tokens, size_t n, bool pending,
                                   uint32_t row, int32_t *ids, wf_adjust *adjust)
{
    bool comes = pending && penalises(a);
    int32_t leaves = comes && a->window && n >= a->window ? tokens[n - a->window] : -1;
    uint32_t k = 0;
    for (const wf_changed *t = a->list; t < a->list + a->n; t++) {
        wf_changed now = *t, again = *t;
        now.recent -= t->id == leaves;
        again.generated++;
        wf_adjust d = adjust_of(a, &now);
        d.again = adjust_of(a, &again).after;
        if (d.repeat == 1 && d.after == 0 && !comes) continue;
        ids[k] = t->id;
        adjust[k++] = d;
    }
    if (!comes) return k;
    ids[k] = -1 - (int32_t)row;
    adjust[k++] = adjust_of(a, &(wf_changed){.recent = a->window > 0, .generated = 1});
    return k;
}
