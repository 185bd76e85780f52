/* budget: the memory that requests may take, each client's and all together. A little is always granted, so that what
 * is large has no effect on what is small: above its limit a budget grows by that much per connection at most. */
#include "serve/api/internal.h"
#include "serve/api/places.h"

static bool take_bytes(wf_budget *b, atomic_size_t *own, size_t more, bool granted)
{
    size_t used = atomic_fetch_add(&b->used, more), of_client = atomic_fetch_add(own, more);
    if (granted || wf_places_allow(2 * b->limit, used, of_client, more)) return true;
    atomic_fetch_sub(&b->used, more);
    atomic_fetch_sub(own, more);
    return false;
}

/* Sets what a job holds to `bytes`; false: more than is left, and nothing changes. */
static bool hold_bytes(const wf_job *j, wf_budget *b, size_t *held, size_t bytes, size_t granted)
{
    atomic_size_t *own = &b->of[j->client % WF_CLIENT_SLOTS];
    if (bytes > *held && !take_bytes(b, own, bytes - *held, bytes <= granted)) return false;
    if (bytes < *held) {
        atomic_fetch_sub(&b->used, *held - bytes);
        atomic_fetch_sub(own, *held - bytes);
    }
    *held = bytes;
    return true;
}

static bool hold_body(wf_job *j, size_t bytes, size_t granted)
{
    wf_budget *b = &j->server->bodies;
    return hold_bytes(j, b, &j->body_held, bytes, granted) ||
           wf_refuse(&j->refusal, 503, "",
                     "the server is busy: requests take the %zu bytes that one client's may, or all; try again later",
                     b->limit);
}

bool wf_budget_body(wf_job *j, size_t bytes) { return hold_body(j, bytes, WF_SMALL_BODY); }

/* A prompt of bytes that are tokens each takes four times the memory of its body; of a grammar the engine has what it
 * makes of it, too. */
bool wf_budget_prompts(wf_job *j)
{
    size_t n = j->out.len + j->tokens.n * sizeof *j->tokens.ids + 4 * j->params.grammar_text.len +
               j->params.echoed.len;
    for (size_t i = 0; i < j->params.n_prompts; i++)
        n += j->params.prompts[i].n * sizeof *j->params.prompts[i].ids * (j->params.prompts[i].offsets ? 2 : 1) +
             j->params.prompts[i].len;
    return hold_body(j, n, 5 * WF_SMALL_BODY);
}

bool wf_budget_reply(wf_job *j, size_t bytes)
{
    return hold_bytes(j, &j->server->replies, &j->reply_held, bytes, WF_SMALL_BODY);
}

void wf_budget_refuse_reply(const wf_job *j, wf_http_error *r)
{
    wf_refuse(r, 503, "",
              "the server is busy: replies that are not read yet take the %zu bytes that one client's may, or all; try "
              "again later",
              j->server->replies.limit);
}

void wf_budget_end(wf_job *j)
{
    hold_bytes(j, &j->server->bodies, &j->body_held, 0, 0);
    hold_bytes(j, &j->server->replies, &j->reply_held, 0, 0);
}
