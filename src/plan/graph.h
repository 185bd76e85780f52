/* graph: one step of a model as ops on values; no device and no batch size in it.
 *
 * A value is a matrix with as many rows as the batch has rows, or as it has rows that want logits. Values
 * are written once (a GEMM that adds a residual gives a new value; placing may put both in one slot), so
 * that dependencies are plain.
 */
#ifndef WF_GRAPH_H
#define WF_GRAPH_H

#include "dev/dev.h"

enum wf_value_kind {
    WF_VALUE_ACT,    /* activation: written by a node, lives in an arena slot */
    WF_VALUE_INPUT,  /* array of the batch; id: enum wf_input */
    WF_VALUE_WEIGHT, /* constant; id: index in the model's weights */
    WF_VALUE_KV,     /* page pool of one layer; id: 2 * layer, + 1 for V */
};
enum wf_rows { WF_ROWS_BATCH, WF_ROWS_LOGITS, WF_ROWS_WHOLE };
enum wf_input {
    WF_INPUT_TOKEN, WF_INPUT_POS, WF_INPUT_SEQ, WF_INPUT_SLOT, /* one entry a row of the batch */
    WF_INPUT_INDPTR, WF_INPUT_PAGES,                           /* page lists, whole */
    WF_INPUT_LOGIT_ROWS,                                       /* rows of the batch that want logits */
    WF_N_INPUTS
};

typedef struct wf_value {
    enum wf_value_kind kind;
    enum wf_rows rows;
    enum wf_dtype dtype;
    uint32_t cols;
    uint32_t id;
} wf_value;

typedef struct wf_operand {
    int32_t value;      /* -1: absent */
    uint32_t col, cols; /* the columns used; cols 0: all */
} wf_operand;
#define WF_NONE ((wf_operand){-1, 0, 0})
#define WF_ALL(v) ((wf_operand){(v), 0, 0})

#define WF_ONCE (-1) /* layer of nodes outside the layers */
typedef struct wf_node {
    enum wf_op op;
    char name[16]; /* unique inside its layer: "qkv", "attention" */
    int32_t layer; /* or WF_ONCE */
    enum wf_rows rows;
    wf_operand in[WF_MAX_IN], out[WF_MAX_OUT];
    wf_op_params p;
} wf_node;

typedef struct wf_graph {
    wf_value *values;
    wf_node *nodes;
    size_t n_values, cap_values, n_nodes, cap_nodes;
    int32_t n_layers;
    int32_t inputs[WF_N_INPUTS]; /* their values */
    int32_t logits;              /* value that the step gives back */
} wf_graph;

/* Both return the new index, or -1 with a message when memory runs out. */
int32_t wf_graph_value(wf_graph *g, wf_value v);
int32_t wf_graph_node(wf_graph *g, const wf_node *n);
weft_status wf_graph_init(wf_graph *g, int32_t n_layers); /* with the input values */
void wf_graph_free(wf_graph *g);

#endif
