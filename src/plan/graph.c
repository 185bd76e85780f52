/* graph: growing arrays of values and nodes. See graph.h. */
#include "plan/graph.h"

#include <stdlib.h>
#include <string.h>

int32_t wf_graph_value(wf_graph *g, wf_value v)
{
    if (!wf_grow(&g->values, g->n_values, &g->cap_values, sizeof v)) return -1;
    g->values[g->n_values] = v;
    return (int32_t)g->n_values++;
}

int32_t wf_graph_node(wf_graph *g, const wf_node *n)
{
    if (!wf_grow(&g->nodes, g->n_nodes, &g->cap_nodes, sizeof *n)) return -1;
    g->nodes[g->n_nodes] = *n;
    return (int32_t)g->n_nodes++;
}

weft_status wf_graph_init(wf_graph *g, int32_t n_layers)
{
    static const enum wf_rows rows[WF_N_INPUTS] = {
        [WF_INPUT_INDPTR] = WF_ROWS_WHOLE,
        [WF_INPUT_PAGES] = WF_ROWS_WHOLE,
        [WF_INPUT_LOGIT_ROWS] = WF_ROWS_LOGITS,
    };
    memset(g, 0, sizeof *g);
    g->n_layers = n_layers;
    g->logits = -1;
    for (uint32_t i = 0; i < WF_N_INPUTS; i++) {
        g->inputs[i] = wf_graph_value(g, (wf_value){WF_VALUE_INPUT, rows[i], WF_I32, 1, i});
        if (g->inputs[i] < 0) return WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

void wf_graph_free(wf_graph *g)
{
    free(g->values);
    free(g->nodes);
    memset(g, 0, sizeof *g);
}
