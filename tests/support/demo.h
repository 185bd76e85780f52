/* demo: the built-in model, which suites of engines share, and what they do with its engines. */
#ifndef WF_TEST_DEMO_H
#define WF_TEST_DEMO_H

#include <semaphore.h>
#include "support/suite.h"

static struct weft_model *model;

/* Before and after a suite. */
static inline int open_demo(void **state)
{
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    return weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model);
}

static inline int close_demo(void **state)
{
    weft_model_close(model);
    return 0;
}

static inline struct weft_engine *engine_of(const struct weft_model *m, struct weft_engine_params p)
{
    struct weft_engine *e = NULL;
    assert_ok(weft_engine_open(m, &p, &e));
    return e;
}

static inline struct weft_engine *demo_engine(struct weft_engine_params p)
{
    return engine_of(model, p);
}

static inline struct weft_stats stats_of(const struct weft_engine *e)
{
    struct weft_stats s;
    weft_engine_stats(e, &s);
    return s;
}

static inline struct weft_request *submit_to(struct weft_engine *e, struct weft_request_params p)
{
    struct weft_request *r = NULL;
    assert_ok(weft_submit(e, &p, &r));
    return r;
}

/* The engine stands still in a callback while the gate is closed: what is submitted meanwhile comes at once. */
static sem_t gate, at_gate;

static inline void wait_at_gate(void *user, const struct weft_event *ev)
{
    if (ev->kind == WEFT_EVENT_DONE) sem_post(&at_gate), sem_wait(&gate);
}

static inline void close_gate(struct weft_engine *e)
{
    const int32_t prompt = 1;
    sem_init(&gate, 0, 0);
    sem_init(&at_gate, 0, 0);
    struct weft_request_params p = {
        .tokens = &prompt, .n_tokens = 1, .max_tokens = 1, .ignore_eos = true, .client = 99, .on_event = wait_at_gate};
    assert_ok(weft_submit(e, &p, NULL));
    sem_wait(&at_gate);
}

/* Waits for the end, and frees it. */
static inline enum weft_status end_of(struct weft_request *r)
{
    enum weft_status s = weft_wait(r, 0);
    weft_request_free(r);
    return s;
}

#endif
