/* Plans from text, for tests. */
#ifndef PLAN_TEXT_H
#define PLAN_TEXT_H

#include "plan/plan.h"

#include "support/suite.h"

static inline weft_status load_from(const wf_graph *g, const char *text, wf_plans *p)
{
    const char *path = file_of(text);
    weft_status s = wf_plans_load(g, path, p);
    unlink(path);
    return s == WEFT_OK ? wf_plans_finish(g, p, 128) : s;
}

#endif
