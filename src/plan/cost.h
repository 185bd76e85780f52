/* cost: what a node of a graph has to compute and to move, and so what bounds it (nanoflow §3, tables 1 and 2). Pure functions of
 * shapes; no device.
 */
#ifndef WF_COST_H
#define WF_COST_H

#include "plan/graph.h"

typedef struct wf_work {
    double flops, bytes; /* operations; bytes read and written in memory, each operand once */
} wf_work;

/* Rows of the node, and the keys that each of them sees on average. */
wf_work wf_node_work(const wf_graph *g, const wf_node *n, uint32_t rows, double keys);
/* Flops a byte above which kernels of common devices are bound by compute rather than memory: matrix units against HBM on GPUs (an H200 has
 * 165, older ones less), vector units against DRAM on CPUs. */
static inline double wf_ridge(enum weft_device_type type)
{
    return type == WEFT_DEVICE_GPU ? 100 : 16;
}
/* The class may depend on the shape: a product of one row is bound by memory, prefill attention by compute. */
enum wf_class wf_node_class(const wf_graph *g, const wf_node *n, uint32_t rows, double keys, double ridge);

#endif
