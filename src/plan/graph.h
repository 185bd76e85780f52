/* graph: everything that one step of a model does, as nodes on values; no device and no batch size in it.
 *
 * A value is a matrix with as many rows as the batch has tokens, or as it has tokens whose logits are wanted. Values
 * are written once (a GEMM that adds a residual gives a new value; placing may put both in one buffer), so that
 * dependencies are plain. The order of the nodes is the order that a single queue would run them in.
 */
#ifndef WF_GRAPH_H
#define WF_GRAPH_H

#include "dev/dev.h"
#include "kv/layout.h"
#include "sched/batch.h"

enum wf_value_kind {
    WF_VALUE_ACT,    /* activation: written by a node, lives in a buffer that plans share out */
    WF_VALUE_INPUT,  /* array of the batch; id: enum wf_input */
    WF_VALUE_WEIGHT, /* constant; id: index in the model's weights */
    WF_VALUE_KV,     /* page pool of one layer; id: 2 * layer, + 1 for V */
    WF_VALUE_STATE,  /* stays on the device from one step to the next; id: enum wf_state */
};
/* What the rows of a value or node are. Tokens of a batch lie in one order: those of decodes, then those of prefill. */
enum wf_rows {
    WF_ROWS_BATCH,   /* all tokens of the batch */
    WF_ROWS_DECODE,  /* nodes only: the tokens of decodes */
    WF_ROWS_PREFILL, /* nodes only: the tokens of prefill */
    WF_ROWS_LOGITS,  /* tokens whose logits are wanted */
    WF_ROWS_WHOLE,   /* none of these: a size of its own, always used whole */
};
enum wf_state {
    WF_STATE_IDS,        /* [logits] I32: the tokens that a step sampled */
    WF_STATE_LOGITS,     /* [most sampled at once, vocabulary] F32: SAMPLE's z */
    /* [1, layers] I32: of each layer the rows that asynchronous softmax computed again, of all steps. */
    WF_STATE_RECOMPUTED,
    WF_N_STATES
};

typedef struct wf_value {
    enum wf_value_kind kind;
    enum wf_rows rows;
    enum wf_dtype dtype;
    uint32_t cols;
    uint32_t id;
    uint32_t weight_rows; /* of a weight: its rows; else 0 */
    uint32_t table;       /* of an input that each has: which page table's; else 0 */
} wf_value;

typedef struct wf_operand {
    int32_t value;      /* -1: absent */
    uint32_t col, cols; /* the columns used; cols 0: all */
} wf_operand;
#define WF_NONE ((wf_operand){-1, 0, 0})
#define WF_ALL(v) ((wf_operand){(v), 0, 0})

/* What a node is. Only kernels have an op; copies and network nodes name in in[0] and out[0] what they read and write.
 * Network nodes between those that compute a layer together: GATHER gives the first of them the columns of all, side by
 * side; ALL_GATHER gives all of them the parts of a sum so, in place, and a kernel behind it adds them. */
enum wf_node_kind {
    WF_NODE_KERNEL,
    WF_NODE_UPLOAD,         /* the batch's arrays, from the host */
    WF_NODE_DOWNLOAD,       /* in[0], to the host */
    WF_NODE_SEND, WF_NODE_RECEIVE, WF_NODE_GATHER, WF_NODE_ALL_GATHER,
    WF_N_NODE_KINDS
};
/* Steps in which a node runs. */
enum wf_when {
    WF_ALWAYS,
    WF_WHEN_PENDING, /* tokens that the step before samples and the host has not seen */
    WF_WHEN_GREEDY,  /* all tokens are sampled greedily */
    WF_WHEN_SAMPLED, /* some are sampled */
    WF_WHEN_IDS,     /* the host wants sampled tokens */
    WF_WHEN_LOGITS,  /* the host wants logits */
    WF_WHEN_ADAPTED, /* some tokens have an adapter */
    WF_WHEN_PLAIN,   /* none has: nodes that stand for others with which an adapter's products can be mixed */
    WF_N_WHEN
};

#define WF_OP_NONE WF_N_OPS /* op of a node that is no kernel */
#define WF_ONCE (-1) /* layer of nodes outside the layers */
typedef struct wf_node {
    enum wf_node_kind kind;
    enum wf_op op; /* of a kernel */
    char name[24]; /* unique inside its layer: "qkv", "decode_attention" */
    int32_t layer; /* or WF_ONCE */
    enum wf_rows rows;
    enum wf_when when;
    wf_operand in[WF_MAX_IN], out[WF_MAX_OUT];
    uint8_t omitted; /* bits of outputs that nothing touches, so that they have no place (exec/workspace.h) */
    wf_op_params p;
} wf_node;

typedef struct wf_graph {
    wf_value *values;
    wf_node *nodes;
    size_t n_values, cap_values, n_nodes, cap_nodes;
    int32_t n_layers;
    int32_t inputs[WF_N_INPUTS], states[WF_N_STATES]; /* their values; of a state -1: this graph has none */
    int32_t logits; /* what the graph ends in, a row for each token that wants one; -1: other devices go on from it */
    bool pooled;    /* that is not sampled from: the host makes embeddings or scores of it */
    bool adapted;       /* it has nodes for adapters */
    bool bidirectional; /* attention is to all keys of a sequence, whose last one WF_INPUT_LAST says */
    wf_kv_layout kv;                                  /* zero: layers share pages */
} wf_graph;

/* Both return the new index, or -1 with a message when memory runs out. */
int32_t wf_graph_value(wf_graph *g, wf_value v);
int32_t wf_graph_node(wf_graph *g, const wf_node *n);
weft_status wf_graph_init(wf_graph *g, int32_t n_layers); /* with the input values */
/* Has layers with page tables of their own read and write by these. Takes l. Call it before plans are made. K and V of
 * all layers are of one size. */
weft_status wf_graph_lay_out_kv(wf_graph *g, wf_kv_layout *l);
/* fuse.c: what dev (NULL: a GPU, in F16) has kernels for, at least for some numbers of rows, becomes one node of a
 * product, or of a router, and of its neighbours; for other numbers the front runs it in pieces. */
weft_status wf_graph_fuse(wf_graph *g, const wf_dev *dev);
/* A node without operands. */
wf_node wf_graph_blank(enum wf_node_kind kind, enum wf_op op, const char *name, int32_t layer, enum wf_rows rows);
/* The nodes around a model. Before it: KV pages to the host and back, upload, tokens that only the device knows. Behind
 * it, when g->logits is set and attention knows its range for an asynchronous softmax: sampling, unless it is pooled,
 * and download. */
weft_status wf_graph_begin(wf_graph *g);
weft_status wf_graph_end(wf_graph *g);
void wf_graph_free(wf_graph *g);

uint32_t wf_graph_width(const wf_graph *g); /* columns of the residual stream; 0: the graph embeds no tokens */
const char *wf_node_kind_name(enum wf_node_kind kind);
const char *wf_class_name(enum wf_class c);
/* Output i, if it has a place. */
static inline int32_t wf_node_out(const wf_node *n, size_t i)
{
    return n->omitted >> i & 1 ? -1 : n->out[i].value;
}
/* The first of n layers that a stage of a pipeline has: as many as the others, or one more. */
static inline int32_t wf_stage_first(uint32_t n, uint32_t stage, uint32_t stages)
{
    return (int32_t)((uint64_t)n * stage / stages);
}
/* Rows that follow the order of the batch's tokens. */
static inline bool wf_rows_are_tokens(enum wf_rows r)
{
    return r == WF_ROWS_BATCH || r == WF_ROWS_DECODE || r == WF_ROWS_PREFILL;
}

#endif
