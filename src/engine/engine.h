/* engine: loads a model onto a device and runs one thread, which owns the scheduler, the KV pages, the plan and the
 * device. Other threads only queue requests and wait.
 *
 * Locking: engine.lock guards the inbox, the flags, the statistics, and the end of each request. The engine's thread
 * owns everything else of a request from the moment it leaves the inbox until its DONE event. */
#ifndef WF_ENGINE_H
#define WF_ENGINE_H

#include "engine/layout.h"
#include "grammar/grammar.h"
#include "plan/machine.h"
#include "sample/sampling.h"
#include "text/stream.h"

#include <pthread.h>
#include <stdatomic.h>

void wf_model_use(const struct weft_model *m); /* one user more; weft_model_close is one less */
weft_status wf_demo_open(wf_gguf **out);       /* demo.c or no_demo.c */

/* startup.c: where the time from opening a model to the first step goes; told to the log. */
enum wf_startup_part { WF_STARTUP_DEVICE, WF_STARTUP_GRAPH, WF_STARTUP_WEIGHTS, WF_STARTUP_MEMORY, WF_STARTUP_KERNELS,
                       WF_STARTUP_N };
typedef struct wf_startup {
    uint64_t begin_ns, ready_ns, part_ns[WF_STARTUP_N];
    bool stepped;
} wf_startup;
struct weft_engine;
void wf_startup_part(wf_startup *s, enum wf_startup_part part, uint64_t since_ns); /* it lasted from then until now */
void wf_startup_ready(struct weft_engine *e);                /* the engine is open */
void wf_startup_step(wf_startup *s, uint64_t start_ns, uint32_t tokens); /* a step that began then is over */

/* engine.c: what lab/ does with an engine. Ranges of the softmax are measured by it. */
wf_ranges_runner wf_engine_ranges_runner(struct weft_engine *e);
/* How devices of an engine are opened. */
weft_status wf_engine_device_params(const struct weft_engine_params *p, wf_open_params *out);
/* A device's exec, with its kernels; what was opened before a failure stays in *out. g NULL: it is in no group. */
weft_status wf_engine_open_exec(const wf_layout *l, const wf_view *views, const wf_exec_group *g,
                                const struct weft_engine_params *p, wf_startup *startup, wf_exec **out);
/* Other threads run steps of their own between these two. Lending waits until all requests have ended; new ones wait
 * until the return. */
void wf_engine_lend(struct weft_engine *e);
void wf_engine_return(struct weft_engine *e);
/* Puts other plans, whose lines are given, in the place of a lent engine's, and takes them, also after a failure:
 * then all requests fail. */
weft_status wf_engine_replan(struct weft_engine *e, wf_plans *plans);

/* events.c: the queue of a request that is pulled from. Thread-safe. */
typedef struct wf_events wf_events;
weft_status wf_events_create(wf_events **out);
/* copies it; of DONE it cannot fail */
weft_status wf_events_add(wf_events *q, const struct weft_event *ev, uint32_t n_vocab);
weft_status wf_events_next(wf_events *q, int32_t ms, const struct weft_event **out); /* as weft_next */
int wf_events_fd(wf_events *q);
void wf_events_free(wf_events *q); /* NULL is allowed */
/* request.c: waits until a request has ended, which is a part of long work, says meanwhile how far that is, and
 * cancels the request if it is to stop. */
typedef struct wf_watch {
    const char *what;
    weft_progress_fn on_progress; /* may be NULL, as stop */
    weft_stop_fn stop;
    void *user;
    double done, part; /* of all work: before this part, and this part */
    uint64_t before, tokens; /* step_tokens of the engine before this part, and what it adds to them */
} wf_watch;
weft_status wf_wait_watched(struct weft_request *r, const wf_watch *w);
uint64_t wf_step_tokens(struct weft_engine *e);
void wf_deadline(struct timespec *t, uint32_t ms); /* so many from now on, for conditions on the monotonic clock */

enum wf_request_state { WF_REQUEST_INBOX, WF_REQUEST_LIVE, WF_REQUEST_DONE };
/* constraint.c: the grammar of an answer. Zero: none. Of the engine's thread once the request is submitted. */
typedef struct wf_constraint {
    wf_grammar *grammar; /* NULL: none */
    wf_match *match;
    const wf_token_trie *tokens;
    const wf_tokenizer *tokenizer;
    uint32_t *allowed, *ends; /* bits of the tokens that may come next; tokens that end an answer */
    size_t n_ends, cap_ends;
    uint32_t n_vocab;
    char *after;    /* the grammar begins behind it; NULL: it has begun */
    size_t n_after; /* bytes of it that have come */
    char *unless;   /* an answer that begins so is free; NULL: this one does not */
    size_t n_unless;
    bool only_unless; /* nothing else can become of what has come */
    bool is_free;
    bool masked; /* `allowed` is of the next token, or there is none, for this reason: */
    weft_status status;
    char message[256];
} wf_constraint;
weft_status wf_constraint_init(wf_constraint *, const struct weft_model *, const struct weft_request_params *);
void wf_constraint_free(wf_constraint *);
static inline bool wf_constraint_begun(const wf_constraint *c) { return c->grammar && !c->after && !c->is_free; }
static inline bool wf_constraint_over(const wf_constraint *c)
{
    return wf_constraint_begun(c) && !c->only_unless && wf_match_over(c->match);
}
weft_status wf_constraint_mask(wf_constraint *);             /* fills allowed, unless it is there */
weft_status wf_constraint_token(wf_constraint *, int32_t id); /* one that came */

/* adapters.c: an adapter that is loaded, or being loaded. Under engine.lock. */
typedef struct wf_loaded {
    char name[128];
    uint32_t place, rank, requests;
    bool ready;
    wf_key base; /* in place of the engine's kv_base */
} wf_loaded;
struct wf_adapter_job;
weft_status wf_engine_open_adapters(struct weft_engine *e, const struct weft_engine_params *p); /* after identify_kv */
void wf_engine_close_adapters(struct weft_engine *e);
/* r uses the adapter of that name (NULL: none) from now on; base: what its blocks of KV are for. */
weft_status wf_engine_take_adapter(struct weft_engine *e, struct weft_request *r, const char *name, wf_key *base);
void wf_engine_leave_adapter(struct weft_engine *e, struct weft_request *r); /* under lock */
/* Does what another thread waits for, if nothing is in flight. True: something is, and no step may follow it. */
bool wf_engine_adapter_job(struct weft_engine *e);

/* draft.c: tokens drafted for a request, which stand behind those it has. */
typedef struct wf_draft {
    uint32_t n;
    bool known; /* by the drafter: it has its prompt */
    bool refused; /* by the drafter, which cannot continue it */
    float coverage, acceptance; /* how often there were some, and the next token was the first: moving averages */
} wf_draft;
/* How long steps of decodes alone took. */
typedef struct wf_draft_cost {
    double ns;     /* moving average; 0: there was none */
    uint64_t step; /* the last one */
} wf_draft_cost;
enum { WF_DRAFT_BUCKETS = 40 };

/* beside.c: whether a step is followed while the host has tokens of it to sample. */
enum wf_beside_way { WF_RESTED, WF_WAITED, WF_FOLLOWED, WF_BESIDE_WAYS };
typedef struct wf_beside_cost {
    double ns;     /* moving average: from the end of one step to that of the next */
    uint32_t n;    /* of so many */
    uint64_t step; /* the last one */
} wf_beside_cost;
typedef struct wf_beside {
    bool always;
    wf_beside_cost costs[WF_BESIDE_WAYS];
    enum wf_beside_way way; /* how the last step ended */
    bool had_logits;        /* it had */
} wf_beside;

/* draft_model.c: an engine with a smaller model that drafts. It is opened first, so that the device tells what it
 * leaves of its memory, and closed when it fails. */
enum { WF_MOST_DRAFTS = 64 };
weft_status wf_drafter_open(struct weft_engine *e, const struct weft_engine_params *p);
void wf_drafter_draft(struct weft_engine *e, uint32_t n_drafts); /* for sequences that have none */
void wf_drafter_count(const struct weft_engine *e, struct weft_stats *s); /* adds what it has taken of memory */
void wf_drafter_close(struct weft_engine *e); /* there may be none */

/* pool.c: the embedding of a prompt, or its scores, from the rows of its tokens. */
typedef struct wf_pool_sum {
    double *sum;  /* [n], of the rows so far */
    uint32_t n;   /* 0: the request generates */
} wf_pool_sum;
struct weft_request;
struct wf_step_seq;
weft_status wf_pool_init(struct weft_request *r);
/* Takes the rows of a step, and ends the request with the last ones. */
void wf_pool_rows(struct weft_request *r, const float *rows, const struct wf_step_seq *p);

struct weft_request {
    struct weft_engine *engine;
    struct weft_request *next;     /* in the inbox, then in the engine's live list */
    wf_seq seq;
    int32_t *tokens;               /* [seq.max_tokens + 1] */
    uint32_t n_prompt, n_reported; /* n_reported: prompt positions whose events have been delivered */
    struct weft_request_params p;  /* the caller's pointers are cleared */
    wf_events *events;             /* NULL: it is not pulled from */
    wf_detokenizer detokenizer;
    wf_stop stop;
    wf_logits_processors processors;
    wf_constraint constraint;
    wf_draft draft;
    wf_pool_sum pooled;
    int32_t *stop_ids;
    atomic_bool cancel;
    int32_t end_id;                /* the token that ended it; -1: none has */
    bool detached;                 /* freed by its owner in a callback: no more events */
    uint64_t submit_ns, start_ns, first_ns;
    /* under engine.lock: */
    enum wf_request_state state;
    bool owned;                    /* its owner has not freed it yet */
    weft_status status;
    char message[256];
};

/* ranks.c: one of the devices of an engine that has several. Of rank 0 dev, layout and views are the engine's; of one
 * in another process there is nothing here but what it said. */
typedef struct wf_rank_bytes { /* that it has taken of memory */
    uint64_t weights, kv, activations, scratch;
} wf_rank_bytes;
typedef struct wf_rank {
    struct weft_engine *engine;
    wf_dev *dev;
    wf_layout layout;
    wf_view *views;
    wf_exec *exec;
    wf_exec_group group;
    bool away;          /* it is in another process */
    wf_rank_bytes bytes;
    pthread_t thread;
    bool started;
    /* under wf_ranks.lock: */
    uint64_t n_done;    /* steps */
    weft_status status; /* of its part of the last one; it does no more after a failure */
    char message[256];
} wf_rank;
typedef struct wf_rank_step { /* a copy of what was submitted */
    wf_batch batch;
    wf_step_io io;
    bool *wanted;
} wf_rank_step;
enum { WF_MOST_STEPS = 8 /* in flight */ };
typedef struct wf_ranks {
    wf_rank *list;
    uint32_t n;     /* 0: the engine has one device */
    uint32_t depth; /* steps in flight: as many as stages */
    uint32_t number; /* of this engine among those whose devices are in several processes; 0: they are in one */
    bool threads;   /* the rest is there */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    wf_rank_step steps[WF_MOST_STEPS]; /* step i is in [i % depth] */
    uint64_t n_steps, n_waited;
    const wf_rank *failed; /* the first one; NULL: none */
    bool stop;
} wf_ranks;
/* In this order: devices and comms; layouts, with the same limits on all, the engine's own included; weights, execs and
 * threads. All do nothing for an engine with one device. */
weft_status wf_ranks_open(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o);
weft_status wf_ranks_lay_out(struct weft_engine *e, const struct weft_engine_params *p);
weft_status wf_ranks_load(struct weft_engine *e, const struct weft_engine_params *p);
/* As wf_exec_submit and wf_exec_wait, on all devices: of several, a failure is seen when a step is waited for, and no
 * step has what comes late. */
weft_status wf_ranks_submit(struct weft_engine *e, const wf_batch *b, const wf_step_io *io);
weft_status wf_ranks_wait(struct weft_engine *e);
/* The parts of these that one rank does, in this process or in another one (follow.c). */
weft_status wf_ranks_list(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o);
weft_status wf_rank_open(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o,
                         uint32_t i);
/* With steps like those of rank 0: its limits.step_tokens, its tile, and its sums. */
weft_status wf_rank_lay_out(wf_rank *r, const struct weft_engine_params *p, uint32_t step_tokens, uint32_t tile,
                            enum wf_dtype sums);
weft_status wf_rank_load(wf_rank *r, const struct weft_engine_params *p);
weft_status wf_rank_make_step(wf_rank_step *s, const wf_limits *l);
weft_status wf_rank_run(wf_rank *r, const wf_rank_step *s);
wf_rank_bytes wf_rank_count(const wf_rank *r);
void wf_ranks_count(const struct weft_engine *e, struct weft_stats *s); /* adds what they have taken of memory */
void wf_ranks_end(struct weft_engine *e); /* their threads: nobody else uses the engine's exec any more */
void wf_ranks_close(struct weft_engine *e);

/* follow.c: orders to ranks that are away, in this order, and what they answer. The others follow them
 * (weft_follow). */
weft_status wf_away_open(struct weft_engine *e, const struct weft_engine_params *p);
/* Their limits, where they have fewer pages. */
weft_status wf_away_lay_out(struct weft_engine *e, wf_limits *least);
weft_status wf_away_load(struct weft_engine *e);
weft_status wf_away_step(struct weft_engine *e, const wf_batch *b);
void wf_away_close(struct weft_engine *e);

/* kv_tiers.c: */
wf_mover wf_engine_mover(struct weft_engine *e);
weft_status wf_model_identify(const struct weft_model *m, wf_key *out); /* by what it computes: reads all weights */
weft_status wf_engine_identify_kv(struct weft_engine *e, const struct weft_engine_params *p); /* sets kv_base */
weft_status wf_engine_open_tiers(struct weft_engine *e, const struct weft_engine_params *p); /* after identify_kv */
void wf_engine_use_tiers(struct weft_engine *e); /* by a new scheduler; without tiers nothing */
void wf_engine_pause(struct weft_engine *e);            /* for a moment, while only copies run */
void wf_engine_learn_compute(struct weft_engine *e, uint32_t tokens, uint64_t ns);
void wf_engine_count_tiers(struct weft_engine *e); /* under lock */

/* timeline.c: records what the engine and its device do. All functions accept NULL: no timeline. Times as wf_now_ns. */
typedef struct wf_timeline wf_timeline;
enum wf_track { WF_TRACK_ENGINE = 1, WF_TRACK_DEVICE, WF_TRACK_QUEUES /* one each */ };
/* path must pass wf_output_check. The file is written in place, not to a temporary one: after a crash it shows what
 * led to it. */
weft_status wf_timeline_open(const char *path, uint32_t n_queues, wf_timeline **out);
void wf_timeline_span(wf_timeline *t, uint32_t track, const char *name, uint64_t begin_ns, uint64_t end_ns,
                      uint64_t step, uint32_t tokens);
/* after each step: a full disk is told while there is somebody to tell */
weft_status wf_timeline_flush(wf_timeline *t);
void wf_timeline_close(wf_timeline *t);

/* A step in flight, and the sequences that have tokens in it. */
typedef struct wf_step_seq {
    struct weft_request *r; /* NULL: it has ended meanwhile, and its results are dropped */
    uint32_t first, n_tokens, logit0, n_logits; /* tokens from position `first` on; its rows of the logits */
    bool samples;           /* these are its last tokens, so the step gives the next one */
    uint32_t n_drafts;      /* the last of these tokens that are drafts */
    bool cancelled;         /* r is NULL because it was cancelled: what its tokens left in KV pages is in no cache */
    uint32_t n_words, word; /* of the batch's bits of what its grammar allows, where the device samples; the first */
} wf_step_seq;
typedef struct wf_step {
    wf_step_seq *seqs;      /* [limits.seqs] */
    uint32_t n_seqs, n_tokens;
    bool have_logits;       /* the host gets logits, for requests that need them */
    bool have_drafts;       /* what it computes of some sequence ends with drafts */
    bool decodes;           /* it computes no prompt */
    bool waits;             /* what grammars allow is not there yet, and the device waits for it before it samples */
    wf_host ids;            /* [limits.logit_rows] int32_t */
    uint64_t number, start_ns;
} wf_step;

struct weft_engine {
    const struct weft_model *model;
    wf_dev *dev;
    enum wf_pooling pooling;
    wf_layout layout;  /* its parameters are there while the engine is opened only */
    wf_view *views;    /* of the weights */
    wf_swaps swaps;
    wf_exec *exec;
    wf_ranks ranks;
    wf_sched sched;
    wf_tiers tiers; /* pool.n 0: there are none */
    wf_key kv_base; /* for which blocks of KV are: model, format and layout */
    wf_queue *adapter_queue;
    wf_batch batch;
    uint32_t step_ms;
    uint32_t draft_tokens; /* most of a sequence; 0: none */
    struct weft_engine *drafter; /* NULL: drafts are looked up only */
    struct weft_stats drafter_stats; /* what it has taken of memory */
    double drafter_ns;     /* of a round, for each token that it drafts: a moving average */
    bool draft_always;     /* also where they do not pay */
    bool drafts_pay;       /* as it was found last */
    wf_draft_cost draft_costs[2][WF_DRAFT_BUCKETS]; /* by tokens: of steps beside others, and of steps alone */
    wf_beside beside;
    /* a ring; the n_in_flight steps from steps[oldest_step % depth] on are in flight, at most `depth` */
    wf_step steps[WF_MOST_STEPS];
    uint32_t n_in_flight, depth;
    uint64_t oldest_step, n_submitted, completed_ns; /* steps submitted so far; when the last one completed */
    wf_timeline *timeline;
    bool *wanted;                  /* [limits.logit_rows], of the step being submitted: those that the host wants */
    wf_host logits;                /* float [limits.logit_rows, n_vocab]; at most one step in flight has logits */
    wf_token_logit *scratch;
    struct weft_request *live;     /* requests taken from the inbox; engine's thread only */
    pthread_t thread;
    /* who opened it, and requests: the last one frees what is left after closing, this struct */
    atomic_uint users;
    wf_startup startup;
    struct weft_budget budget;     /* as it was opened */

    pthread_mutex_t lock;
    pthread_cond_t wake, ended;    /* work for the engine; a request has ended */
    struct weft_request *inbox, *inbox_last; /* the last one: only while there are some */
    bool stop;
    /* lent: another thread runs steps; resting: the engine's own waits and touches nothing */
    bool lent, resting;
    wf_loaded *adapters;           /* [layout.adapters.places], in the order of loading */
    size_t n_adapters;
    struct wf_adapter_job *adapter_job; /* that the engine's thread has to do; NULL: none */
    uint64_t oldest_ns;            /* when the sequence that waits for longest was submitted; 0: none waits */
    weft_status failed;            /* the device is lost: every request fails with this */
    char failure[256];
    struct weft_stats stats;
    struct weft_kv_tier_stats tier_stats[WEFT_N_KV_TIERS];
    wf_exec_softmax *softmax;      /* [n_layer], of completed steps */
    /* with the peak rates of the device, once weft_timeline has measured them: it is asked for many steps */
    wf_machine machine;
};

/* Tokens of a step for which weft_engine_params.step_ms cuts no further: with fewer, prompts take longer. */
#define WF_ALONE_LEAST 64
/* step.c: one iteration. */
bool wf_engine_busy(const struct weft_engine *e);
void wf_engine_step(struct weft_engine *e);
void wf_engine_count(struct weft_engine *e); /* updates the present state in weft_stats */
bool wf_engine_unwanted(void *engine);       /* nobody wants the steps in flight any more; on its thread */
/* r has ended: steps in flight drop its results. Returns the first position that they compute of it; UINT32_MAX:
 * none. */
uint32_t wf_engine_drop(struct weft_engine *e, const struct weft_request *r, bool cancelled);
/* beside.c: used by the engine's thread. */
bool wf_beside_pays(const struct weft_engine *e); /* of steps in flight one has logits */
void wf_beside_ended(struct weft_engine *e, const wf_step *step, uint64_t ns); /* since the end of the one before */
void wf_beside_rests(struct weft_engine *e); /* nothing is submitted now */
/* draft.c: used by the engine's thread. */
uint32_t wf_draft_most(const struct weft_engine *e, const struct weft_request *r); /* tokens that may be drafted */
void wf_draft_look_up(struct weft_engine *e, struct weft_request *r); /* after its last token is known */
void wf_draft_compared(struct weft_request *r, bool same);            /* with the token that was sampled */
bool wf_draft_pays(struct weft_engine *e);   /* would steps with drafts give more, though each is waited for? */
void wf_draft_choose(struct weft_engine *e); /* how many the next step verifies: sets n_drafts */
/* A step of decodes alone took so long; alone: none was in flight beside it. */
void wf_draft_timed(struct weft_engine *e, uint32_t tokens, bool alone, uint64_t ns);
/* request.c: used by the engine's thread. */
/* false: the request has ended, for a logit is not finite or there is no memory for events. */
bool wf_request_prompt_logits(struct weft_request *r, const float *logits, uint32_t n, uint32_t first_position);
/* Does its next token need the logits on the host? Otherwise the device samples it. This depends on the request
 * alone, which keeps results batch-invariant. */
bool wf_request_needs_logits(const struct weft_request *r);
/* for the device, for the token after the pending ones, and after so many drafts */
wf_sampling_params wf_request_sampling(const struct weft_request *r, uint32_t drafts);
/* likewise: what adjusts the logits of token `row` of the step; returns how many */
uint32_t wf_request_adjust(struct weft_request *r, uint32_t row, int32_t *ids, wf_adjust *adjust);
/* Samples from logits, or takes the device's token if logits is NULL, and delivers it. Ends the request after its
 * last token. Returns it; -1: there is none. */
int32_t wf_request_token(struct weft_request *r, const float *logits, int32_t sampled);
weft_status wf_request_emit(struct weft_request *r, struct weft_event ev);
void wf_request_end(struct weft_request *r, enum weft_finish finish, weft_status status, const char *message);
void wf_request_destroy(struct weft_request *r);
void wf_engine_release(struct weft_engine *e); /* one user less */

#endif
