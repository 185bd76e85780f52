/* replay: runs a load on an engine in this process, through the public API only. The caller's thread submits and frees
 * requests; the engine's runs only the callback, which records times in preallocated memory. */
#ifndef WF_LOADGEN_REPLAY_H
#define WF_LOADGEN_REPLAY_H

#include "loadgen/dataset.h"
#include "loadgen/stats.h"

typedef struct wf_replay_params {
    const wf_request_spec *specs; /* n, each fits the engine's context */
    size_t n;
    const double *at;   /* arrival times in seconds; NULL: all at the start */
    size_t window;      /* most requests submitted at once if at is NULL; 0: all */
    bool together;      /* the engine sees all of the first window before it begins one; at NULL */
    /* 0: requests stand alone; else each from that one on goes on where the one so many before it ended, think_s
     * seconds later: its prompt is all of that and n_in more tokens. */
    size_t conversations;
    double think_s;
    uint32_t n_vocab;   /* prompts are random ids below n_vocab */
    uint64_t seed;      /* different seeds give prompts that share no KV pages */
    bool (*stop)(void); /* true: cancel running requests and return */
    void (*on_progress)(void *user, size_t done);
    void *user;
} wf_replay_params;

/* results: n, zeroed; latencies count from the arrival. Returns when all requests have ended, or with the status of the
 * first one that fails. Unfinished requests keep ok false. */
weft_status wf_replay(struct weft_engine *e, const wf_replay_params *p, wf_request_result *results, double *seconds);

#endif
