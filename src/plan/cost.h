/* cost: the operations and the memory traffic of a node of a graph, and so what bounds it (NanoFlow, section 3.2). Pure
 * functions of shapes; no device.
 */
#ifndef WF_COST_H
#define WF_COST_H

#include "plan/graph.h"

typedef struct wf_work {
    double flops, bytes; /* floating-point operations; bytes of memory traffic, each operand read or written once */
} wf_work;

/* Of a node with this many rows; keys: how many a row attends to on average. */
wf_work wf_node_work(const wf_graph *g, const wf_node *n, double rows, double keys);
/* Does it run in a greedy step whose tokens the host knows, and none of which has an adapter? */
static inline bool wf_node_is_usual(const wf_node *n)
{
    return n->when == WF_ALWAYS || n->when == WF_WHEN_GREEDY || n->when == WF_WHEN_IDS || n->when == WF_WHEN_PLAIN;
}
/* The ridge point of the roofline, in flops per byte: above it kernels on common devices are bound by compute, below it
 * by memory. Matrix units against HBM on GPUs (an H200 has 165, older ones less), vector units against DRAM on CPUs. */
static inline double wf_ridge(enum weft_device_type type)
{
    return type == WEFT_DEVICE_GPU ? 100 : 16;
}
/* What bounds it. This depends on the shape: a GEMM of one row is bound by memory, prefill attention by compute. */
enum wf_class wf_node_class(const wf_graph *g, const wf_node *n, uint32_t rows, double keys, double ridge);

#endif
