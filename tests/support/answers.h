/* answers: requests of all kinds to an engine of the built-in model, and whether others answer alike. */
#ifndef WF_TEST_ANSWERS_H
#define WF_TEST_ANSWERS_H

#include <stdatomic.h>
#include "support/demo.h"

enum { MANY = 9, ANSWER = 12 }; /* kinds of requests, one behind the other; tokens of an answer */

typedef struct answer {
    int32_t ids[ANSWER];
    float logprobs[ANSWER];
    atomic_int n;
    enum weft_status status;
} answer;

static inline void take_event(void *user, const struct weft_event *ev)
{
    answer *a = user;
    if (ev->kind == WEFT_EVENT_DONE) a->status = ev->status;
    if (ev->kind != WEFT_EVENT_TOKEN || ev->id < 0) return;
    a->logprobs[a->n] = ev->logprob;
    a->ids[atomic_fetch_add(&a->n, 1)] = ev->id;
}

/* Of several kinds: greedy and sampled on the device, and by what needs logits on the host. */
static inline struct weft_request *ask(struct weft_engine *e, int i, answer *a)
{
    static const char *const prompts[] = {"One day", "The sun was warm and the children went out to play in the park.",
                                          ("Tom had a red ball. He gave the ball to his friend, and his friend gave it "
                                          "back to him. Then they both ran home, where mother had made a cake")};
    *a = (answer){.status = WEFT_ERR_INTERNAL};
    struct weft_request_params p = {.prompt = prompts[i % 3], .max_tokens = ANSWER, .ignore_eos = true,
                                    .on_event = take_event, .user = a, .logprobs = i % 5 == 1};
    if (i % 3 == 1) p.sampling = (struct weft_sampling){.temperature = 0.8f, .top_k = 40, .seed = 7 + (uint64_t)i};
    if (i % 4 == 2) p.sampling.repeat_penalty = 1.2f;
    return submit_to(e, p);
}

static inline void ask_all(struct weft_engine *e, answer *a)
{
    struct weft_request *r[MANY];
    for (int i = 0; i < MANY; i++) r[i] = ask(e, i, &a[i]);
    for (int i = 0; i < MANY; i++) assert_ok(end_of(r[i]));
}

static inline void assert_same(const answer *a, const answer *b, int n, float tolerance)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(a[i].n, b[i].n);
        assert_memory_equal(a[i].ids, b[i].ids, sizeof a[i].ids);
        for (int k = 0; k < ANSWER; k++) assert_true(a[i].logprobs[k] - b[i].logprobs[k] <= tolerance &&
                                                     b[i].logprobs[k] - a[i].logprobs[k] <= tolerance);
    }
}

#endif
