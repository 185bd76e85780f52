/* A small graph by hand, which the tests of plans share. */
#ifndef PLAN_GRAPH_H
#define PLAN_GRAPH_H

#include "plan_text.h"

#define LAYERS 3

static int32_t act(wf_graph *g, uint32_t cols)
{
    return wf_graph_value(g, (wf_value){WF_VALUE_ACT, WF_ROWS_BATCH, WF_F32, cols, 0});
}

static int32_t node(wf_graph *g, enum wf_op op, const char *name, int32_t layer, int32_t in, int32_t residual,
                    int32_t out)
{
    wf_node n = wf_graph_blank(WF_NODE_KERNEL, op, name, layer, WF_ROWS_BATCH);
    n.in[0] = WF_ALL(in);
    n.in[3] = WF_ALL(residual);
    n.out[0] = WF_ALL(out);
    return wf_graph_node(g, &n);
}

/* x -> (a: norm, b: attention of decodes and prefill over keys that rope wrote, c: GEMM + residual x) per layer, and
 * the nodes around. */
static int32_t attention(wf_graph *g, const char *name, int32_t layer, enum wf_rows rows, int32_t q, int32_t k,
                         int32_t o)
{
    int32_t at = node(g, WF_OP_ATTENTION, name, layer, q, -1, o);
    g->nodes[at].in[1] = WF_ALL(k);
    g->nodes[at].rows = rows;
    return at;
}

static inline wf_graph make_graph_of(int32_t layers)
{
    wf_graph g;
    assert_ok(wf_graph_init(&g, layers));
    assert_ok(wf_graph_begin(&g));
    int32_t x = act(&g, 64);
    node(&g, WF_OP_GET_ROWS, "embed", WF_ONCE, g.inputs[WF_INPUT_TOKEN], -1, x);
    for (int32_t l = 0; l < layers; l++) {
        int32_t h = act(&g, 192), q = act(&g, 64), o = act(&g, 64), y = act(&g, 64);
        int32_t k = wf_graph_value(&g, (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, WF_F16, 64, 2 * (uint32_t)l});
        node(&g, WF_OP_GEMM, "qkv", l, x, -1, h);
        int32_t rope = node(&g, WF_OP_ROPE_KV, "rope", l, h, -1, q);
        g.nodes[rope].out[1] = WF_ALL(k);
        attention(&g, "decode_attention", l, WF_ROWS_DECODE, q, k, o);
        attention(&g, "prefill_attention", l, WF_ROWS_PREFILL, q, k, o);
        node(&g, WF_OP_GEMM, "out", l, o, x, y);
        x = y;
    }
    int32_t z = act(&g, 10);
    node(&g, WF_OP_GEMM, "logits", WF_ONCE, x, -1, z);
    g.logits = z;
    assert_ok(wf_graph_end(&g));
    return g;
}

static inline wf_graph make_graph(void)
{
    return make_graph_of(LAYERS);
}

#endif
