/* offload: copies of KV pages to the host beside a step that does not write to them, as many as the step writes
 * itself: what keeping the KV cache of running sequences on the host as well costs (NanoFlow, section 4.2.2), if
 * pages go there during later steps than those that fill them. */
#ifndef WF_OFFLOAD_H
#define WF_OFFLOAD_H

#include "engine/engine.h"

typedef struct wf_offload {
    struct weft_engine *e;
    wf_queue *q;
    wf_host host; /* which copies go to again and again, but not one behind the other */
    wf_event *first, *last;
    int32_t *pages; /* that the step of the batch does not write to */
    uint32_t n_pages, n_copies;
} wf_offload;

weft_status wf_offload_open(struct weft_engine *e, wf_offload *out);
/* For steps of this batch. n_copies 0: they leave no page alone. */
void wf_offload_batch(wf_offload *o, const wf_batch *b);
/* As wf_load_step; *us: until both the step and the copies have ended. */
weft_status wf_offload_step(wf_offload *o, const wf_batch *b, double *us);
void wf_offload_close(wf_offload *o); /* also after a failure; before the engine's exec is destroyed */

#endif
