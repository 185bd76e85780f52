/* kept_plan: plans in the place where `weft tune --overlap` keeps its own, for tests of what engines do with them. */
#ifndef KEPT_PLAN_H
#define KEPT_PLAN_H

#include "engine/engine.h"

/* Writes the plans of this engine as if they had been measured with all steps that it has, for a kept plan says with
 * which. */
static inline weft_status keep_plans(struct weft_engine *e, const char *path)
{
    for (size_t i = 0; i + 1 < e->layout.plans.n; i++) {
        wf_bucket *b = &e->layout.plans.list[i].bucket;
        b->least_tokens = b->least_context = 1;
        b->context = e->layout.context;
        b->decodes = 1;
    }
    return wf_plans_save(&e->layout.plans, path);
}

#endif
