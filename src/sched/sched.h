/* sched: which rows the next step computes. No device call in here, so it can be simulated.
 *
 * Order is one for everything: first come, first served, where a level of priority counts as having come
 * WF_PRIORITY_STEPS steps earlier. It never changes while a sequence lives, so nobody starves.
 *
 * A sequence is admitted when the predicted peak of KV pages fits (nanoflow §4.2.1), and takes pages as it grows.
 * Where the prediction was wrong the last in order is put aside: its pages go to the host and come back without
 * recomputation. Full pages of equal tokens are shared (src/mem/prefix.h).
 *
 * Where pages and activations share memory (mem/space.h), those from wf_limits_base on are there in small steps only.
 * They are handed out last, and never so many that a row of each running sequence and a quarter of the largest step
 * would not fit beside them: so decodes never wait for activations, and nobody begins while pages in use forbid it.
 * Rows of prompts are cut so that the step's activations end above the highest page in use.
 *
 * Each step: decodes, then prefill as the policy says, cut so that the rows are a multiple of the GEMM's tile
 * (sarathi §4.4). A step may be formed while the one before runs (nanoflow §4.2.1): tokens which that one chooses
 * count as there, though only the device knows them. One owner (the engine's thread); no locks.
 */
#ifndef WF_SCHED_H
#define WF_SCHED_H

#include "exec/exec.h"
#include "mem/page.h"
#include "mem/prefix.h"

enum wf_policy {
    WF_POLICY_NANOFLOW, /* decodes, and chunks of as many prompts as fill the dense batch exactly */
    WF_POLICY_SARATHI,  /* decodes, and a chunk of one prompt */
    WF_POLICY_ORCA,     /* decodes, and whole prompts; one longer than the dense batch is cut all the same */
    WF_POLICY_REQUEST,  /* a batch of requests begins when the one before has ended: prompts, then decodes */
};
/* name NULL: nanoflow. WEFT_ERR_ARG names what there is. */
weft_status wf_policy_parse(const char *name, enum wf_policy *out);

typedef struct wf_sched_params {
    enum wf_policy policy;
    uint32_t page_tokens;
    uint32_t tile;          /* rows of a step are a multiple of this where prefill can be cut; 0: 1 */
    uint64_t shuffle_pages; /* see wf_pages_init */
    bool no_prefix;         /* share no pages */
} wf_sched_params;

#define WF_PRIORITY_STEPS 1000
#define WF_CLASSES        8 /* of requests, each with its own average decode length */

enum wf_seq_state { WF_SEQ_NEW, WF_SEQ_WAITING, WF_SEQ_RUNNING };

/* A sequence, part of a request. Who adds it owns it and its tokens; sched owns pages and step fields. */
typedef struct wf_seq {
    struct wf_seq *next;
    const int32_t *tokens;  /* prompt and what was generated */
    uint32_t n_tokens;      /* of these: that many are known */
    uint32_t n_ahead;       /* and that many more are chosen by steps under way: rows 0..n_tokens + n_ahead may be computed */
    uint32_t n_prompt;      /* 0: n_tokens when it was added */
    uint32_t max_tokens;    /* length it may reach */
    uint32_t n_done;        /* rows whose K and V are in the pages */
    uint32_t n_cached;      /* of these, found in shared pages when it first ran */
    int32_t priority;       /* above 0: earlier */
    uint8_t class;          /* below WF_CLASSES */
    bool all_logits;        /* of every row, not only the last; shares no pages, since all rows are computed */
    bool no_logits;         /* not even of the last */
    enum wf_seq_state state;
    bool aside;             /* waiting, and its K and V are on the host */
    int64_t order;          /* smaller is earlier */
    int32_t *pages;
    uint32_t n_pages, cap_pages;
    uint32_t n_registered;  /* pages whose content others can find */
    uint64_t prefix;        /* of the last one registered or shared, see prefix.h */
    uint32_t n_rows, logit0, n_logits; /* of the batch just formed */
    uint32_t fed;           /* the logits' row, of the step formed last, that chooses token n_tokens + n_ahead - 1 */
} wf_seq;

/* Tokens that there are, known or under way. */
static inline uint32_t wf_seq_length(const wf_seq *q)
{
    return q->n_tokens + q->n_ahead;
}

/* What must be copied before the step runs, in this order: pages of q to the host, or from there. */
typedef struct wf_move {
    wf_seq *q;
    bool out;
    int32_t *pages; /* n of them; of the move */
    uint32_t n;
} wf_move;

typedef struct wf_peak {
    uint32_t remaining, tokens;
} wf_peak;

typedef struct wf_sched {
    wf_limits limits;
    wf_sched_params p;
    wf_pages pages;
    wf_prefix prefix;
    wf_seq *waiting, *running; /* in order */
    uint32_t n_waiting, n_running;
    int64_t step, arrivals;
    double average[WF_CLASSES]; /* decode length; negative: none has ended yet */
    wf_move *moves;             /* of the batch just formed */
    size_t n_moves, cap_moves;
    uint64_t n_preempted, prefix_queries, prefix_hits; /* tokens, of the latter two */
    wf_peak *peaks;             /* scratch of the prediction */
    uint32_t *remainders;       /* [page_tokens], the same */
} wf_sched;

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, const wf_sched_params *p);
void wf_sched_add(wf_sched *s, wf_seq *q);
/* Ends it and gives its pages back; finished: its length counts for the average of its class. */
void wf_sched_remove(wf_sched *s, wf_seq *q, bool finished);
/* Admits what fits, fills b and s->moves; b->n_rows 0: nothing to do. */
void wf_sched_batch(wf_sched *s, wf_batch *b);
/* The batch was computed, or will have been before the next one: moves n_done of its sequences on. ahead: the device
 * chooses their next tokens, and who learns one adds it to its sequence and takes it off n_ahead. */
void wf_sched_advance(wf_sched *s, bool ahead);
/* The pages of q could not be kept on the host: what it had done is computed again. */
void wf_sched_forget(wf_sched *s, wf_seq *q);
/* Pages needed at most at one time if each running sequence decodes as long as the average of its class. */
uint32_t wf_sched_predict(wf_sched *s, const wf_seq *with); /* with: one more, or NULL */
void wf_sched_free(wf_sched *s);

#endif
