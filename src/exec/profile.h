/* profile: when each command of a step ran, on the device's clock; sums by class, and how long commands of more than
 * one queue ran together. Only on a device opened with `profile`.
 */
#ifndef WF_PROFILE_H
#define WF_PROFILE_H

#include "exec/program.h"

typedef struct wf_op_span {
    const char *name; /* the node's */
    uint32_t queue;
    uint32_t command; /* index in its program, and of its nano-operation in the plan */
    uint64_t begin, end;
} wf_op_span;

typedef struct wf_profile {
    double ridge;      /* see plan/cost.h */
    wf_op_span *spans; /* of the last step, in the order in which they began */
    size_t n_spans;
    uint64_t class_ns[WF_N_CLASSES]; /* of all steps: sums over commands by their class */
    uint64_t covered_ns;             /* in which at least one command ran; the sums above count twice what overlaps */
} wf_profile;

weft_status wf_profile_init(wf_profile *p, size_t n_commands, double ridge);
/* fired, starts, ends: by command, of a step that has ended and began at `since`; a start of an earlier step is
 * ignored. */
void wf_profile_take(wf_profile *p, const wf_graph *g, const wf_program *program, const wf_step_shape *st,
                     const bool *fired, wf_event *const *starts, wf_event *const *ends, uint64_t since);
void wf_profile_free(wf_profile *p);

#endif
