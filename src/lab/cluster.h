/* cluster: requests on replicas of a pipeline, by the real scheduler on a simulated clock. Each stage of a pipeline
 * runs one micro-batch at a time, and as many of these are in flight as there are stages: each has a scheduler of its
 * own, with its part of the KV pages, which forms the next step when the one before has left the last stage.
 *
 * Requests wait in one queue, and go to the micro-batch that has the fewest. Preempted sequences compute again.
 *
 * A stage that waits for a micro-batch has a bubble: from when it has nothing else to do, but not from before that
 * micro-batch had anything to run. The bubbles of a request are those of all stages before all steps that it was part
 * of (Sarathi, section 5.3).
 *
 * A pure function: the same requests give the same numbers. */
#ifndef WF_CLUSTER_H
#define WF_CLUSTER_H

#include "lab/lab.h"
#include "plan/step_cost.h"
#include "sched/sched.h"

typedef struct wf_cluster {
    uint32_t replicas, stages; /* 1 or more */
    wf_limits limits;          /* of a micro-batch */
    wf_sched_params sched;
    double window;             /* wf_load.window of each step */
    double (*stage)(const void *user, uint32_t stage, const wf_load *);  /* seconds of a step */
    double (*send)(const void *user, uint32_t stage, const wf_load *);   /* from a stage to the next; of the last one:
                                                                            what it sampled, to the first */
    const void *user;              /* for both */
    weft_progress_fn on_progress; /* may be NULL */
    weft_stop_fn stop;            /* may be NULL */
    void *progress_user;          /* for these */
} wf_cluster;

/* Each request fits the limits. WEFT_ERR_CANCELLED: stopped. */
weft_status wf_cluster_run(const wf_cluster *, struct weft_sim_request *requests, size_t n, struct weft_sim_use *out);

#endif
