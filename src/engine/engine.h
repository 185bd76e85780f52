/* engine: loads a model onto a device and runs one thread, which owns the scheduler, the KV pages, the plan and the device.
 * Other threads only queue requests and wait.
 *
 * Locking: engine.lock guards the inbox, the flags, the statistics, and the end of each request. The engine's thread owns
 * everything else of a request from the moment it leaves the inbox until its DONE event. */
#ifndef WF_ENGINE_H
#define WF_ENGINE_H

#include "sample/sampler.h"
#include "model/model.h"
#include "plan/machine.h"
#include "plan/op_profile.h"
#include "sched/sched.h"
#include "engine/swap.h"
#include "text/text.h"
#include <pthread.h>
#include <stdatomic.h>

/* A model file, its vocabulary and hyperparameters; read-only once open. */
struct weft_model {
    wf_gguf *file;
    wf_tokenizer *tokenizer;
    const wf_arch *arch; /* NULL: vocabulary only */
    wf_hparams hp;
    struct weft_model_info info;
    char *strings[8];    /* NUL-terminated copies that info points to */
    size_t n_strings;
    uint64_t open_ns;    /* how long opening it took */
    atomic_uint users;   /* who opened it, and engines */
};
void wf_model_use(const struct weft_model *m); /* one user more; weft_model_close is one less */
weft_status wf_demo_open(wf_gguf **out);       /* demo.c or no_demo.c */

/* startup.c: where the time from opening a model to the first step goes; told to the log. */
enum wf_startup_part { WF_STARTUP_DEVICE, WF_STARTUP_GRAPH, WF_STARTUP_WEIGHTS, WF_STARTUP_MEMORY, WF_STARTUP_KERNELS, WF_STARTUP_N };
typedef struct wf_startup {
    uint64_t begin_ns, ready_ns, part_ns[WF_STARTUP_N];
    bool stepped;
} wf_startup;
struct weft_engine;
void wf_startup_begin(wf_startup *s);
void wf_startup_part(wf_startup *s, enum wf_startup_part part, uint64_t since_ns); /* it lasted from then until now */
void wf_startup_ready(struct weft_engine *e);                /* the engine is open */
void wf_startup_step(wf_startup *s, uint64_t start_ns, uint32_t tokens); /* a step that began then is over */

/* limits.c: WEFT_ERR_ARG for parameters out of their range, of which each function that takes some asks first. */
weft_status wf_engine_check_context(const struct weft_model *m, uint32_t context); /* can it be so long? */
weft_status wf_engine_check_params(const struct weft_model *m, const struct weft_engine_params *p);
/* Derives an engine's limits from its parameters: tokens per page, tokens per sequence, and the rest. step_tokens: the default for
 * max_batched_tokens. */
uint32_t wf_engine_page(const struct weft_engine_params *p);
uint32_t wf_engine_context(const struct weft_model *m, const struct weft_engine_params *p);
/* Does the KV cache take what a device leaves (weft_engine_params.memory_utilization)? d NULL: it is unknown, and so no. */
bool wf_engine_fills_memory(const struct weft_engine_params *p, const struct weft_device_info *d);
/* The parameters with what they mean there: the other functions take these. */
struct weft_engine_params wf_engine_params_on(const struct weft_engine_params *p, const struct weft_device_info *d);
/* Tokens of a step where parameters say nothing: as measured by `weft tune`, else by the type of device. */
uint32_t wf_engine_step_tokens(wf_dev *dev);
uint32_t wf_engine_usual_step(enum weft_device_type type);
/* Fills in what follows from plan and limits; weights, context and n_seqs_from are left to the caller. */
void wf_engine_fill_budget(const struct weft_model *m, const wf_graph *g, const wf_plan *plan, const wf_limits *l, struct weft_budget *out);
/* Tells the log which sizes are smaller than what p asks for. */
void wf_engine_say_capped(const struct weft_engine_params *p, const wf_limits *l, uint64_t page_bytes);
weft_status wf_engine_limits(const struct weft_model *m, const struct weft_engine_params *p, enum wf_policy policy, uint32_t step_tokens, wf_graph *g, const wf_weights *w, wf_limits *l);
/* Limits have the most sequences at first; where the KV cache decides how many there are, those follow from the pages. Pages that they cannot use go. */
void wf_engine_count_seqs(const struct weft_model *m, const struct weft_engine_params *p, wf_limits *l);

/* Why so many sequences run, for people. */
const char *wf_engine_seqs_from(const struct weft_engine_params *p, const struct weft_budget *b);

/* available.c: what decides how much memory an engine takes, on a device that need not be open. The plan is placed. */
typedef struct wf_sizing {
    const struct weft_model *model;
    const struct weft_engine_params *params;
    const wf_graph *graph;
    const wf_plan *plan;
    const wf_weights *weights;
    const struct weft_device_info *device;
    wf_dev *dev; /* the same, open; NULL: it is not, and weights count as in the file */
    uint64_t align, max_alloc;
    bool in_place; /* it can use weights where the file is mapped */
} wf_sizing;
/* Where weights fit the device as they lie in the file but not as its fastest kernels read them, they stay as in the file, with a warning. Before layouts are asked for. */
void wf_engine_save_memory(wf_dev *dev, const wf_weights *w);
/* Takes pages from `apart` until the engine fits; one context stays. out: the same with KV pages and activations in one pool. A kv_memory that was given stays. */
void wf_engine_fit_cache(const wf_sizing *s, wf_limits *apart, wf_limits *out);
/* Takes an eighth of them, for the device has less memory than it said; false: nothing is left to take, or their number was given. */
bool wf_engine_shrink_cache(const wf_sizing *s, wf_limits *apart, wf_limits *out);
/* WEFT_ERR_NOMEM, with the sizes, if the engine does not fit the memory that is available. Before anything is loaded. */
weft_status wf_engine_check_available(const wf_sizing *s, const wf_limits *l);

/* stored.c: what `weft tune --overlap` keeps in the cache folder for a device and the shape of a model: the times of ops ("profile") and the plans
 * that were the fastest ("plan"). Devices that were opened otherwise (tier, threads, deterministic) or have other kernels have others. */
weft_status wf_stored_path(wf_dev *dev, const wf_graph *g, const char *what, char *buf, size_t cap);
/* The kept plans, finished; n 0: there are none. A failure, which frees them, names what is wrong with the file. */
weft_status wf_stored_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap);
/* The same of the plans that weft ships in tuned/plans for this kind of device, whatever its driver, and the shape of the model, with or without ranges for the
 * asynchronous softmax: for builds that search no plans. Name: of their file, below tuned/. */
weft_status wf_shipped_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap);
weft_status wf_shipped_plans_name(wf_dev *dev, const wf_graph *g, char *buf, size_t cap);
/* Notes in a profile what it is made for. */
weft_status wf_stored_sign(wf_dev *dev, const wf_graph *g, wf_op_profile *p);
/* WEFT_ERR_ARG: the profile of that path is not made for the device and the shape of the model that `own` is made for. */
weft_status wf_stored_check(const wf_op_profile *p, const wf_op_profile *own, const char *path);
/* For what needs no device, or may be of another one, which a warning says: `what` is of that one. WEFT_ERR_ARG: the profile is of another model. One that was
 * written by hand says of neither what it is made for. */
weft_status wf_stored_fits(const struct weft_engine *e, const wf_op_profile *p, const char *path, const char *what);
/* plan_source.c: what parameters say of plans, in words, "": nothing; and the plans that are kept, if there are any that can be used. */
void wf_plan_asked(const struct weft_engine_params *p, char *from, size_t cap);
bool wf_kept_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *from, size_t cap);
/* Those of an engine whose graph is complete: e->plans, and where they come from. tile: as in weft_engine_params. */
weft_status wf_engine_choose_plans(struct weft_engine *e, const struct weft_engine_params *p, uint32_t tile);
/* Other threads run steps of their own between these two. Lending waits until all requests have ended; new ones wait until the return. */
void wf_engine_lend(struct weft_engine *e);
void wf_engine_return(struct weft_engine *e);
/* Puts other plans, whose lines are given, in the place of a lent engine's, and takes them, also after a failure: then all requests fail. */
weft_status wf_engine_replan(struct weft_engine *e, wf_plans *plans);

/* explain.c: measures the peak rates of the device, which estimates then go by. */
weft_status wf_explain_rates(struct weft_engine *e, wf_explain *x);

/* detokenizer.c: incremental detokenization. It never delivers an incomplete UTF-8 character. */
typedef struct wf_detokenizer {
    const wf_tokenizer *tokenizer;
    unsigned flags;
    int32_t shown[WEFT_MAX_SHOWN];
    size_t n_shown;
    bool drop_space; /* drop the first space, which the tokenizer added at the start of the text */
    char held[8];    /* start of an incomplete character */
    size_t n_held;
    char *text;      /* what the last call delivered */
    size_t cap;
} wf_detokenizer;
void wf_detokenizer_init(wf_detokenizer *s, const wf_tokenizer *t, unsigned flags);
/* These are in the text even if flags hide them: at most WEFT_MAX_SHOWN, which are copied. */
weft_status wf_detokenizer_show(wf_detokenizer *s, const int32_t *ids, size_t n);
/* The text that id completes. *out is valid until the next call. */
weft_status wf_detokenizer_add(wf_detokenizer *s, int32_t id, const char **out, size_t *len);
/* The rest at the end: the bytes of an incomplete character. */
size_t wf_detokenizer_end(wf_detokenizer *s, const char **out);
void wf_detokenizer_free(wf_detokenizer *s);

/* stop.c: finds stop texts in a growing text, and holds back what may become one. */
typedef struct wf_stop {
    char **texts; /* copies */
    size_t n;
    bool include;
    char *held;
    size_t n_held, n_shown, cap; /* n_shown: leading bytes of `held` that the last call delivered */
} wf_stop;
weft_status wf_stop_init(wf_stop *s, const char *const *texts, size_t n, bool include);
/* Appends text and sets *out to the text that may be delivered, valid until the next call. *found: a stop text is complete, and
 * *out ends before it, or after it if `include`. armed false: nothing stops, and all text is delivered. */
weft_status wf_stop_add(wf_stop *s, bool armed, const char *text, size_t len, const char **out, size_t *out_len, bool *found);
size_t wf_stop_end(wf_stop *s, const char **out); /* the text held back; then nothing is */
void wf_stop_free(wf_stop *s);

/* logits_processors.c: changes to logits before sampling: logit bias, penalties, min_tokens. Zero: none. */
typedef struct wf_seen {
    uint32_t recent, generated; /* how often a token is among those that the repetition penalty covers, and in the answer */
} wf_seen;
typedef struct wf_logits_processors {
    struct weft_logit_bias *bias;
    size_t n_bias;
    wf_seen *seen;              /* [n_vocab]; NULL: not needed */
    uint32_t window;            /* the last tokens that the repetition penalty covers */
    int32_t *ends;              /* end-of-generation and stop tokens, which min_tokens forbids at first */
    size_t n_ends;
    bool forbid_ends;
} wf_logits_processors;
weft_status wf_logits_processors_init(wf_logits_processors *a, const wf_tokenizer *t, const struct weft_request_params *p, const int32_t *prompt, size_t n);
void wf_logits_processors_add_token(wf_logits_processors *a, const int32_t *tokens, size_t n); /* the last of all n was generated */
bool wf_logits_processors_active(const wf_logits_processors *a);
void wf_logits_processors_free(wf_logits_processors *a);

void wf_logits_processors_apply(const wf_logits_processors *a, const struct weft_sampling *p, wf_token_logit *c, uint32_t n_vocab);
/* sample.c: samples on the host. processors: NULL for none. scratch: 2 * n_vocab entries, reused between
 * calls: processed logits, then workspace. WEFT_ERR_NOT_FINITE if a logit is not. */
weft_status wf_sample(const struct weft_sampling *p, const wf_logits_processors *processors, const float *logits, uint32_t n_vocab, uint64_t position,
                      wf_token_logit *scratch, int32_t *out);
/* logprob.c: returns the log probability of id (-1: none), and fills the n_top most likely tokens in descending order. */
float wf_logprob(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, struct weft_logprob *top);
weft_status wf_sample_check(const float *logits, uint32_t n); /* WEFT_ERR_NOT_FINITE if one is not */
/* The token that the device's ARGMAX chose; WEFT_ERR_NOT_FINITE if it found that a logit is not finite. */
weft_status wf_sample_chosen(int32_t argmax, int32_t *out);
weft_status wf_sampling_check(const struct weft_sampling *p);

/* events.c: the queue of a request that is pulled from. Thread-safe. */
typedef struct wf_events wf_events;
weft_status wf_events_create(wf_events **out);
weft_status wf_events_add(wf_events *q, const struct weft_event *ev, uint32_t n_vocab); /* copies it; of DONE it cannot fail */
weft_status wf_events_next(wf_events *q, int32_t ms, const struct weft_event **out); /* as weft_next */
int wf_events_fd(wf_events *q);
void wf_events_free(wf_events *q); /* NULL is allowed */
/* request.c: waits until a request has ended, which is a part of long work, says meanwhile how far that is, and cancels the request if it is to stop. */
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
struct weft_request {
    struct weft_engine *engine;
    struct weft_request *next;     /* in the inbox, then in the engine's live list */
    wf_seq seq;
    int32_t *tokens;               /* [seq.max_tokens + 1] */
    uint32_t n_prompt, n_reported; /* n_reported: prompt positions whose events have been delivered */
    wf_swap_memory host;           /* its KV pages while it is swapped out; from weft_engine.swaps */
    struct weft_request_params p;  /* the caller's pointers are cleared */
    wf_events *events;             /* NULL: it is not pulled from */
    wf_detokenizer detokenizer;
    wf_stop stop;
    wf_logits_processors processors;
    int32_t *stop_ids;
    atomic_bool cancel;
    bool stopped;                  /* a stop text is complete: no text after it is delivered */
    int32_t end_id;                /* the token that ended it; -1: none has */
    bool detached;                 /* freed by its owner in a callback: no more events */
    uint64_t submit_ns, start_ns, first_ns;
    /* under engine.lock: */
    enum wf_request_state state;
    bool owned;                    /* its owner has not freed it yet */
    weft_status status;
    char message[256];
};

/* timeline.c: records what the engine and its device do. All functions accept NULL: no timeline. Times as wf_now_ns. */
typedef struct wf_timeline wf_timeline;
enum wf_track { WF_TRACK_ENGINE = 1, WF_TRACK_DEVICE, WF_TRACK_QUEUES /* one each */ };
/* path must pass wf_output_check. The file is written in place, not to a temporary one: after a crash it shows what led to it. */
weft_status wf_timeline_open(const char *path, uint32_t n_queues, wf_timeline **out);
void wf_timeline_span(wf_timeline *t, uint32_t track, const char *name, uint64_t begin_ns, uint64_t end_ns, uint64_t step, uint32_t tokens);
weft_status wf_timeline_flush(wf_timeline *t); /* after each step: a full disk is told while there is somebody to tell */
void wf_timeline_close(wf_timeline *t);

/* A step in flight, and the sequences that have tokens in it. */
typedef struct wf_step_seq {
    struct weft_request *r; /* NULL: it has ended meanwhile, and its results are dropped */
    uint32_t first, n_tokens, logit0, n_logits; /* tokens from position `first` on; its rows of the logits */
    bool samples;           /* these are its last tokens, so the step gives the next one */
    bool cancelled;         /* r is NULL because it was cancelled: what its tokens left in KV pages is in no cache */
} wf_step_seq;
typedef struct wf_step {
    wf_step_seq *seqs;      /* [limits.seqs] */
    uint32_t n_seqs, n_tokens;
    bool have_logits;       /* the host gets logits, for requests that need them */
    wf_host ids;            /* [limits.logit_rows] int32_t */
    uint64_t number, start_ns;
} wf_step;

/* KV pages are copied on a queue of their own, except where the same cores would copy. */
#define wf_engine_copy_queue(e) ((e)->dev->info.type != WEFT_DEVICE_CPU)

struct weft_engine {
    const struct weft_model *model;
    wf_dev *dev;
    wf_graph graph;
    wf_weights weights;
    wf_view *views;
    wf_plans plans;
    wf_swaps swaps;
    wf_exec *exec;
    wf_sched sched;
    wf_batch batch;
    wf_limits limits, apart; /* apart: as limits were before KV pages and activations were unified, which plans decide about */
    char plan_from[600];     /* where the plans come from, or why steps are sequential, for people */
    uint32_t context, step_ms;
    wf_step steps[WF_EXEC_DEPTH]; /* a ring; the n_in_flight steps from steps[oldest_step % WF_EXEC_DEPTH] on are in flight */
    uint32_t oldest_step, n_in_flight;
    uint64_t n_submitted, completed_ns; /* steps submitted so far; when the last one completed */
    wf_timeline *timeline;
    wf_sampling_params *sampling; /* [limits.logit_rows], of the step being submitted */
    wf_host logits;                /* float [limits.logit_rows, n_vocab]; at most one step in flight has logits */
    wf_token_logit *scratch;
    struct weft_request *live;     /* requests taken from the inbox; engine's thread only */
    pthread_t thread;
    atomic_uint users;             /* who opened it, and requests: the last one frees what is left after closing, this struct */
    wf_startup startup;
    struct weft_budget budget;     /* as it was opened */

    pthread_mutex_t lock;
    pthread_cond_t wake, ended;    /* work for the engine; a request has ended */
    struct weft_request *inbox;
    bool stop;
    bool lent, resting;            /* lent: another thread runs steps; resting: the engine's own waits and touches nothing */
    uint64_t oldest_ns;            /* when the sequence that waits for longest was submitted; 0: none waits */
    weft_status failed;            /* the device is lost: every request fails with this */
    char failure[256];
    struct weft_stats stats;
    wf_exec_softmax *softmax;      /* [n_layer], of completed steps */
    wf_machine machine;            /* with the peak rates of the device, once weft_timeline has measured them: it is asked for many steps */
};

#define WF_ALONE_LEAST 64 /* tokens of a step for which weft_engine_params.step_ms cuts no further: with fewer, prompts take longer */
/* step.c: one iteration. */
bool wf_engine_busy(const struct weft_engine *e);
void wf_engine_step(struct weft_engine *e);
void wf_engine_count(struct weft_engine *e); /* updates the present state in weft_stats */
bool wf_engine_unwanted(void *engine);       /* nobody wants the steps in flight any more; on its thread */
/* r has ended: steps in flight drop its results. Returns the first position that they compute of it; UINT32_MAX: none. */
uint32_t wf_engine_drop(struct weft_engine *e, const struct weft_request *r, bool cancelled);
/* request.c: used by the engine's thread. */
void wf_request_start(struct weft_request *r);
/* Its KV pages go to the host in the next step, or come back. Without host memory they are recomputed, which is not an error. */
weft_status wf_request_swap(struct weft_request *r, const wf_swap *m);
/* false: the request has ended, for a logit is not finite or there is no memory for events. */
bool wf_request_prompt_logits(struct weft_request *r, const float *logits, uint32_t n, uint32_t first_position);
/* Does its next token need the logits on the host? Otherwise the device samples it. This depends on the request alone, which
 * keeps results batch-invariant. */
bool wf_request_needs_logits(const struct weft_request *r);
wf_sampling_params wf_request_sampling(const struct weft_request *r); /* for the device, for the token after the pending ones */
/* Samples from logits, or takes the device's token if logits is NULL, and delivers it. Ends the request after its last token. */
void wf_request_token(struct weft_request *r, const float *logits, int32_t sampled);
void wf_request_end(struct weft_request *r, enum weft_finish finish, weft_status status, const char *message);
void wf_request_destroy(struct weft_request *r);
void wf_engine_release(struct weft_engine *e); /* one user less */

#endif
