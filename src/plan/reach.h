/* reach: the steps that a plan is kept for: how far from the step with which it won it is faster than the sequential
 * plan, too.
 *
 * Steps differ in tokens, in the longest context, and in how many tokens are decodes. The plan is tried along each of
 * these, at the ends of what it has reached along the others, and where something begins: a nano-batch of one token
 * behind a cut, one decode among prompts, one token of a prompt among decodes. The first step that it does not win ends
 * a direction. Then it is tried with some steps from all over what it has reached; where it loses one of them, it keeps
 * half of that, and so on. Steps between those that were tried are not known: so a win there has to be larger by
 * WF_REACH_MARGIN.
 */
#ifndef WF_REACH_H
#define WF_REACH_H

#include "plan/plan.h"

#define WF_REACH_MARGIN 2 /* times what counts as a win at the step that was won */

typedef struct wf_step_kind {
    uint32_t tokens, decodes, context; /* context: keys of the longest sequence */
} wf_step_kind;

enum wf_verdict { WF_NO_SUCH_STEP, WF_LOSES, WF_WINS };

typedef struct wf_reach_params {
    const wf_plan *plan;
    wf_step_kind won;
    /* Parts of the tokens of the last steps to be tried; that of `won` lies between. */
    float least_decodes, most_decodes;
    uint32_t most_context;             /* that a sequence may have */
    weft_status (*try_step)(void *user, const wf_step_kind *s, enum wf_verdict *out);
    void *user;
} wf_reach_params;

weft_status wf_reach_find(const wf_reach_params *p, wf_bucket *out);

#endif
