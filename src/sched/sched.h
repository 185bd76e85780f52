/* sched: which rows the next step computes. No device call in here, so it can be simulated.
 *
 * Decodes go first, then prefill chunks in order of arrival fill the batch (sarathi §4.3). A sequence is
 * admitted once the pages for its whole length are free, so a running sequence never lacks one.
 * One owner (the engine's thread); no locks.
 */
#ifndef WF_SCHED_H
#define WF_SCHED_H

#include "exec/exec.h"
#include "mem/page.h"

/* A sequence, part of a request. Who adds it owns it and its tokens; sched owns pages and step fields. */
typedef struct wf_seq {
    struct wf_seq *next;
    const int32_t *tokens;  /* prompt and what was generated */
    uint32_t n_tokens;      /* rows 0..n_tokens may be computed */
    uint32_t max_tokens;    /* length it may reach */
    uint32_t n_done;        /* rows whose K and V are in the pages */
    bool all_logits;        /* of every row, not only the last */
    bool no_logits;         /* not even of the last */
    bool running;
    int32_t *pages;
    uint32_t n_pages;
    uint32_t n_rows, logit0, n_logits; /* of the batch just formed */
} wf_seq;

typedef struct wf_sched {
    wf_limits limits;
    uint32_t page_tokens;
    wf_pages pages;
    wf_seq *waiting, *running; /* in order of arrival */
    uint32_t n_waiting, n_running;
} wf_sched;

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, uint32_t page_tokens, uint64_t shuffle_pages);
void wf_sched_add(wf_sched *s, wf_seq *q);
void wf_sched_remove(wf_sched *s, wf_seq *q); /* ends it and gives its pages back */
/* Admits what fits and fills b; b->n_rows 0: nothing to do. */
void wf_sched_batch(wf_sched *s, wf_batch *b);
/* The batch was computed: moves n_done of its sequences on. */
void wf_sched_advance(wf_sched *s);
void wf_sched_free(wf_sched *s);

#endif
