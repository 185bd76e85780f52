/* workspace: a fused product hands intermediate results over in workspaces (dev/ops.def, GEMM), but only where the
 * device runs it in pieces. Where one kernel does, for every number of rows, its workspaces are omitted: no memory is
 * reserved for them. */
#ifndef WF_WORKSPACE_H
#define WF_WORKSPACE_H

#include "kv/limits.h"
#include "plan/graph.h"

/* Before a plan is placed: sets wf_node.omitted. A kernel that turns out not to work leaves pieces that need their
 * workspace; then binding fails with WEFT_ERR_UNSUPPORTED. */
void wf_workspaces_omit(wf_graph *g, wf_dev *dev, const wf_limits *l);
void wf_workspaces_keep(wf_graph *g); /* all of them */
bool wf_workspaces_omitted(const wf_graph *g); /* any? */

/* What a device would run, before there is any memory: a node's call of `rows` rows, whose operands lie nowhere. */
wf_call wf_node_call(const wf_dev *dev, const wf_graph *g, const wf_node *n, uint32_t rows);
/* Numbers of rows at which devices change kernels, and those between; asking for each would take as long as binding.
 * Above max_rows: there is no other. */
uint32_t wf_next_probe(uint32_t rows, uint32_t max_rows);

#endif
