/* stages: the two mixed integer programs of the search for plans (NanoFlow, sections 4.1.2 and 4.1.3). stages.c states
 * variables and constraints. */
#ifndef WF_STAGES_H
#define WF_STAGES_H

#include "plan/pipeline.h"

enum { WF_MAX_CUTS = 64 };

typedef struct wf_stage_limits {
    double seconds;
    uint32_t nodes;
} wf_stage_limits;

/* Stage I: which of these cuts, all into as many cells, which slots run a round early, and the order of each queue. s:
 * with the slots that wf_schedule_init made of any of the cuts; they are sorted. */
weft_status wf_stage_order(const wf_pipeline *p, const wf_cut *cuts, size_t n_cuts, const wf_stage_limits *l,
                           wf_schedule *s, bool *found);
/* Stage II: the share of each slot, of those that are a multiple of 1 / steps; cut, order and rounds stay. The slots
 * are sorted. */
weft_status wf_stage_shares(const wf_pipeline *p, wf_schedule *s, uint32_t steps, const wf_stage_limits *l,
                            bool *found);
/* The shares that Stage II may give. */
uint32_t wf_share_steps(const wf_op_profile *p);

#endif
