/* text: what the files that make lines of a plan share. */
#ifndef WF_PLAN_TEXT_H
#define WF_PLAN_TEXT_H

#include "plan/plan.h"

weft_status wf_plan_add_line(wf_plan *p, const wf_plan_line *l);
/* The first line of a node; NULL: none. */
const wf_plan_line *wf_plan_find_line(const wf_plan *p, const wf_node *n);
/* The first node that a line stands for; NULL: none. */
const wf_node *wf_plan_find_node(const wf_graph *g, const wf_plan_line *l);
/* Lines for the nodes of adapters, where the plan has none: with the ranges and queues of the op that they follow. */
weft_status wf_plan_add_adapted(const wf_graph *g, wf_plan *p);

#endif
