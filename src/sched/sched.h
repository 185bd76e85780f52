/* sched: decides which tokens the next step computes. It calls no device but to move pages, so tests simulate it.
 *
 * Order. The sequences of a client have one order: first come, first served, where each level of priority counts as an
 * arrival WF_PRIORITY_STEPS steps earlier. A sequence's place never changes, so none starves. Clients take turns by
 * what each has been served (fair.c). The same order over all clients says which of the running sequences is the
 * youngest.
 *
 * Admission and preemption. A sequence is admitted when the predicted peak of KV pages fits (NanoFlow, section 4.2.1);
 * while the one whose turn it is does not fit, no other is. It allocates pages as it grows. When the prediction was too
 * low, the youngest running sequence is preempted: its pages are swapped out to the host, and swapped in later, without
 * recomputation and before new sequences are admitted, but for the first one of a client, to which one of a client that
 * has several gives way. Full pages with equal prefixes are shared (kv/prefix.h).
 *
 * Unified pool. Where KV pages and activations share memory (kv/unified_pool.h), pages from wf_limits_guaranteed_pages
 * on exist only in small steps. They are allocated last, and only as far as one token of each running sequence plus a
 * quarter of the largest step still fit next to them. So decodes never wait for activation memory. A sequence is not
 * admitted while pages in use would break this rule, and prompt chunks are cut so that the step's activations stay
 * above the highest page in use.
 *
 * A step takes decodes first, then prefill as the policy says. The number of tokens is cut to a multiple of the GEMM
 * tile (Sarathi, section 4.4). A step may be formed while the previous one runs (NanoFlow, section 4.2.1): the tokens
 * that the previous step will sample count as present, although only the device knows them ("pending" tokens).
 *
 * Logits for the host. Of the steps in flight one has such: a sequence whose token the host samples is in no other step
 * meanwhile, while those that the device samples go on.
 *
 * Pipelines. Where a step goes through several stages, as many are in flight, and share out the sequences that decode.
 * One whose next token is in flight is in no other step; chunks of a prompt follow each other.
 *
 * Tiers. Blocks that are no longer on the device may be below it (kv/tiers.h). A sequence whose prompt begins with
 * such blocks, where loading them is expected to be faster than computing them, is admitted with pages for them and
 * computes nothing until they are there, while others run. If that fails or takes too long, it computes them.
 *
 * Drafts (speculative decoding). A decode may bring draft tokens, which the step computes like a prompt's and samples
 * behind, if no prompt waits and there is memory for them. After one that is rejected the same slots are computed
 * again.
 *
 * Not thread-safe: the engine's thread is the only user. */
#ifndef WF_SCHED_H
#define WF_SCHED_H

#include "kv/table.h"
#include "sched/batch.h"

enum wf_policy {
    WF_POLICY_NANOFLOW,
        /* decodes, and chunks of as many prompts as fill the dense batch exactly (NanoFlow, section 4.2.1) */
    WF_POLICY_SARATHI,
        /* decodes, and a chunk of one prompt: decode-maximal batching (Sarathi, section 4.3); see least_step */
    WF_POLICY_ORCA,
        /* decodes, and whole prompts: iteration-level scheduling; only a prompt longer than the dense batch is cut */
    WF_POLICY_REQUEST,
        /* request-level batching: prompts, then decodes, and new requests only after the whole batch has ended */
};
/* name NULL: nanoflow. WEFT_ERR_ARG lists the valid names. */
weft_status wf_policy_parse(const char *name, enum wf_policy *out);

typedef struct wf_sched_params {
    enum wf_policy policy;
    wf_kv_params kv;
    uint32_t tile;          /* tokens of a step are a multiple of this where prefill can be cut; 0: 1 */
    uint32_t stages;        /* steps that are in flight, of different sequences; 0 or 1: tokens of one are pending */
    bool whole_prompts;     /* a step computes a prompt whole or not at all: none is longer than the largest step */
    uint32_t seqs_per_client; /* most of a client that run at the same time; 0: no limit */
    /* Of WF_POLICY_SARATHI: chunks are as long as the ratio P:D of the load asks for (section 4.4), but steps with a
     * chunk have no fewer tokens than these; 0: chunks fill the step. */
    uint32_t least_step;
    /* tokens of a prompt and of an answer of the expected load, as if WF_RATIO_SEQS of such sequences had finished;
     * 0 both: unknown */
    double prefill, decode;
} wf_sched_params;

#define WF_PRIORITY_STEPS 1000
#define WF_PRIORITY_TOKENS 100000 /* the same between clients: a level counts as this number of tokens less served */
/* Service of a generated token, where that of a prompt token is 1, as in section 5.1 of the VTC paper. */
#define WF_FAIR_OUTPUT 2
#define WF_IDLE_CLIENTS 1024 /* most clients without requests whose service is remembered */
#define WF_LENGTH_BUCKETS 8 /* of prompt lengths; each has its own average decode length */
#define WF_RATIO_SEQS 64    /* that have finished last, about: over these the ratio P:D is an average */

enum wf_seq_state { WF_SEQ_NEW, WF_SEQ_WAITING, WF_SEQ_PREEMPTED, WF_SEQ_RUNNING };

/* A sequence, embedded in a request. The caller owns it and its tokens; sched owns the pages and everything from
 * `state` on. */
typedef struct wf_seq {
    struct wf_seq *next;
    const int32_t *tokens;  /* prompt and generated tokens */
    uint32_t n_tokens;      /* known tokens */
    /* more tokens, which steps in flight sample: positions up to n_tokens + n_pending may be scheduled */
    uint32_t n_pending;
    bool sampled_by_host;   /* its rows of logits come to the host; the caller sets it before wf_sched_add */
    bool awaited;           /* of stages: a step in flight samples its next token, which no other can have */
    uint32_t n_prompt;      /* 0: n_tokens at wf_sched_add */
    uint32_t max_tokens;    /* greatest length, prompt included */
    uint32_t n_computed;    /* tokens whose K and V are in the pages */
    uint32_t most_computed; /* the most that there ever were */
    uint32_t n_cached;      /* of these, prefix cache hits when it first ran, or loaded then */
    bool counted;           /* they are */
    int32_t priority;       /* > 0: earlier */
    uint64_t client_id;     /* who asks; 0: nobody in particular, a client like others */
    uint32_t adapter;       /* the place of its adapter; 0: none */
    uint8_t length_bucket;  /* < WF_LENGTH_BUCKETS */
    /* logits of every position, not only the last; turns prefix cache hits off, as all positions are computed */
    bool all_logits;
    uint32_t second_text;   /* of a pair of texts: where the second one begins; 0: it is one */
    bool first_logits;      /* of the first position alone; likewise */
    bool no_logits;         /* not even logits of the last position */
    enum wf_seq_state state;
    struct wf_client *client;
    uint32_t n_paid;        /* prompt tokens that its client has been served, or that were in the prefix cache */
    int64_t order;          /* smaller is earlier */
    wf_kv_seq kv;           /* its pages; the caller sets root and private */
    /* in the batch just formed: tokens; first row and number of rows of logits */
    uint32_t n_scheduled, logit0, n_logits;
    /* draft tokens behind the n_tokens known ones, in tokens[]: so many the caller has, and after wf_sched_batch so
     * many are in the step, each with logits of its own; 0 with pending tokens */
    uint32_t n_drafts;
    uint32_t pending_logit_row; /* row of logits, in the step formed last, that gives token n_tokens + n_pending - 1 */
} wf_seq;

/* Known and pending tokens. */
static inline uint32_t wf_seq_length(const wf_seq *q)
{
    return q->n_tokens + q->n_pending;
}

/* Who asks. Known while it has sequences, and after that while what it has been served matters. */
typedef struct wf_client {
    struct wf_client *next;
    uint64_t id;
    int64_t served;       /* virtual token counter: service received, and lifted where it was idle */
    int64_t promised;     /* tokens of prompts that have been admitted and will be computed */
    wf_seq *waiting;      /* in order; those that have not run yet */
    const wf_seq *prompt; /* the first of its running sequences with a prompt to compute, in the step being formed */
    uint32_t n_active;    /* running or preempted sequences */
    uint32_t n_running;   /* scratch of admit.c */
} wf_client;

typedef struct wf_peak {
    uint32_t remaining, tokens;
} wf_peak;

typedef struct wf_sched {
    wf_limits limits;
    wf_sched_params p;
    wf_kv kv;
    wf_seq *running, *preempted; /* both in order */
    uint32_t n_waiting, n_running; /* preempted ones wait */
    wf_client nobody, *clients; /* nobody, of id 0, is the last in the list, and always there */
    uint32_t n_clients;         /* besides nobody */
    int64_t floor;              /* what the last client had been served when nobody was left that waits */
    /* most tokens of a prompt in a step while nothing else runs or waits, where prompts are cut; 0: no limit. The
     * engine sets it */
    uint32_t alone;
    bool host_rows_taken; /* a step in flight has logits for the host, the one being formed has none; likewise */
    int64_t step, arrivals;
    double average[WF_LENGTH_BUCKETS]; /* decode length; < 0: no sequence of this bucket has finished yet */
    /* average tokens of a sequence: of its prompt, those that were in the prefix cache aside, and generated; 0 both:
     * none has finished, and none was expected */
    double prefill, decode;
    uint64_t n_preempted, prefix_queries, prefix_hits; /* the latter two in tokens */
    uint64_t tier_queries, tier_hits; /* likewise: not found on the device, and of these loaded from below */
    uint64_t n_recomputed;      /* tokens computed again, because a preempted sequence could not keep its pages */
    wf_peak *peaks;             /* scratch of wf_sched_predict */
    uint32_t *remainders;       /* [page_tokens], the same */
    wf_seq **prompts;           /* [limits.seqs] of the step being formed: sequences with prompts to compute, in turn */
    uint32_t n_prompts;
} wf_sched;

weft_status wf_sched_init(wf_sched *s, const wf_limits *l, const wf_sched_params *p);
void wf_sched_add(wf_sched *s, wf_seq *q);
/* Ends q and releases its pages. finished: its length counts towards the average of its bucket. */
void wf_sched_remove(wf_sched *s, wf_seq *q, bool finished);
/* P:D of Sarathi, section 4.4: prompt tokens for each generated one, of the sequences that have finished, and before
 * of those that are expected; 0: neither is known. */
double wf_sched_ratio(const wf_sched *s);
/* Admits what fits, moves pages of those that are preempted or go on, and fills b. b->n_tokens 0: nothing to do. */
void wf_sched_batch(wf_sched *s, wf_batch *b);
/* The batch has been computed, or will be before the next one: advances n_computed of its sequences. pending: the next
 * one may be formed before their next tokens are known; when the caller learns one it appends it to the sequence and
 * decrements n_pending; with stages it resets `awaited`. */
void wf_sched_advance(wf_sched *s, bool pending);
/* n of the drafts of the last step are what the tokens before them sampled: they count as computed. */
void wf_sched_accept(wf_seq *q, uint32_t n);
/* Peak of KV pages in use if each running sequence decodes as long as the average of its bucket. with: one more
 * sequence, or NULL. */
uint32_t wf_sched_predict(wf_sched *s, const wf_seq *with);
void wf_sched_free(wf_sched *s);

#endif
