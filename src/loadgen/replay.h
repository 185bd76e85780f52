/* replay: a load against an engine in this process, through the library's API alone.
 *
 * The caller's thread submits and frees requests; the engine's thread runs only the callback, which
 * writes down a time into memory that is there before the request begins.
 */
#ifndef WF_LOADGEN_REPLAY_H
#define WF_LOADGEN_REPLAY_H

#include "loadgen/dataset.h"
#include "loadgen/stats.h"

typedef struct wf_replay_params {
    const wf_request_spec *specs; /* n of them, each within the engine's context */
    size_t n;
    const double *at;   /* seconds from the start at which each arrives; NULL: all at the start */
    size_t window;      /* requests that the engine has at most, where at is NULL; 0: all */
    uint32_t n_vocab;   /* prompts are random ids below it */
    uint64_t seed;      /* another one gives other prompts, which share no KV pages with these */
    bool (*stop)(void); /* true: cancel what runs and end */
    void (*on_progress)(void *user, size_t done);
    void *user;
} wf_replay_params;

/* answers: n, zeroed; times count from the arrival. Ends when all have ended, or at the first that
 * fails, with its status; those that did not end have ok false. */
weft_status wf_replay(struct weft_engine *e, const wf_replay_params *p, wf_request_result *results,
                      double *seconds);

#endif
