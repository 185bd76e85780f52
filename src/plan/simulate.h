/* simulate: how long a plan takes by a profile, without a device. Queues run their nano-operations in order, each
 * behind those that it waits for (wait.c). What runs at one time shares the device: each runs at the rate that the
 * profile has for its share, alone or beside others. Where shares add up to more than 1 they are scaled to 1, and
 * nobody runs faster than in proportion: without limits whoever starts first holds the device, and nothing is gained.
 * Copies take no share: copy engines make them. Energy bounds no plan: steps were measured that took 0.84 of what the
 * joules of their ops, each measured by itself, would need at the power limit.
 */
#ifndef WF_SIMULATE_H
#define WF_SIMULATE_H

#include "plan/op_profile.h"
#include "plan/plan.h"

typedef struct wf_sim_batch {
    uint32_t tokens, decodes, logits;
} wf_sim_batch;

/* When a nano-operation of a plan runs, in microseconds. */
typedef struct wf_sim_span {
    double begin, end;
} wf_sim_span;

/* What a nano-operation did between two events of a simulation: a part of its work, at one rate. */
typedef struct wf_sim_piece {
    uint32_t nano;
    double begin, end, done; /* done: of all its work */
} wf_sim_piece;
typedef struct wf_sim_pieces {
    wf_sim_piece *list; /* the caller frees it, also after a failure */
    size_t n, cap;
} wf_sim_pieces;

/* The plan has its waits. spans: [p->n_nanos], or NULL. */
weft_status wf_simulate(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b,
                        wf_sim_span *spans, double *us);
/* The same, with what ran when. */
weft_status wf_simulate_pieces(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b,
                               wf_sim_span *spans, wf_sim_pieces *pieces, double *us);
/* Microseconds in which a device at its power limit draws the joules of all ops of the plan, by what they drew one by
 * one; 0: unknown. It tells plans apart that take about as long. */
double wf_simulate_energy(const wf_graph *g, const wf_plan *p, const wf_op_profile *profile, const wf_sim_batch *b);
/* Work-groups of a share, as plans have them (0: all), and back. */
uint32_t wf_groups_of_share(const wf_op_profile *p, double share);
double wf_share_of_groups(const wf_op_profile *p, uint32_t groups);

#endif
