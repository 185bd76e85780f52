/* step_cost: what a step of a load costs on a machine, by op and in total, and so what bounds the load and how many
 * tokens per second are possible (NanoFlow, section 3), and what the paper lacks: the energy that it takes, an estimate
 * that bounds nothing. Pure functions; no device.
 */
#ifndef WF_STEP_COST_H
#define WF_STEP_COST_H

#include "plan/graph.h"
#include "plan/machine.h"

enum wf_limit { WF_LIMIT_COMPUTE, WF_LIMIT_MEMORY, WF_LIMIT_NETWORK, WF_LIMIT_ENERGY, WF_N_LIMITS };
extern const char *const wf_limit_names[WF_N_LIMITS];

/* A step: tokens of decodes, one for each sequence, and tokens of prompts, with the keys that each attends to on
 * average. */
typedef struct wf_load {
    double decodes, decode_keys, prefill, prefill_keys;
    double logits; /* rows whose logits are wanted */
    double window; /* keys of attention with a sliding window; 0: there is none */
} wf_load;
static inline double wf_load_tokens(const wf_load *l)
{
    return l->decodes + l->prefill;
}

/* Requests of `in` prompt tokens and `out` generated ones on average. A sequence that decodes has in + out / 2 keys on
 * average. */
typedef struct wf_mix {
    double in, out;
} wf_mix;
/* The steady state: as many requests begin as end, so that each decode comes with in / out tokens of prompts. */
wf_load wf_load_steady(const wf_mix *, double decodes, double window);
/* Bytes of K and V that a sequence of this many keys holds. Keys outside windows are given back where all layers have
 * one. */
double wf_kv_bytes(const wf_graph *, double keys, double window);
/* Sequences whose KV cache the machine holds beside the weights (section 4.1.1); below 1: not one. */
double wf_most_decodes(const wf_graph *, const wf_machine *, const wf_mix *, double weight_bytes, double window);

typedef struct wf_op_cost {
    const char *name; /* as of its node, in the graph */
    double flops, bytes, network; /* bytes: of memory; network: bytes, of all devices */
    double seconds[WF_N_LIMITS];  /* that each limit takes by itself; 0: it does not bound this, or is unknown */
    double alone;                 /* by its limits, nothing beside it */
} wf_op_cost;
/* The limit that takes the longest. */
/* What takes the longest. Never energy: steps were measured that took 0.84 of what their joules would need. */
enum wf_limit wf_limit_of(const wf_op_cost *);

/* Of a node with so many rows that attend to so many keys each. */
wf_op_cost wf_node_cost(const wf_graph *, const wf_node *, double rows, double keys, const wf_machine *);

typedef struct wf_step_cost {
    wf_op_cost *ops; /* of all layers together, in the order of the graph; last what devices tell each other */
    size_t n, cap;
    wf_op_cost total; /* its longest time: of a step whose ops overlap perfectly; alone: one after another */
} wf_step_cost;
weft_status wf_step_cost_make(const wf_graph *, const wf_load *, const wf_machine *, wf_step_cost *out);
void wf_step_cost_free(wf_step_cost *);

/* A stage of a pipeline: a part of the layers, and what runs once before or behind them. Nodes that are alike count
 * once, so that its time is found many times over. */
typedef struct wf_stage {
    const wf_graph *g;
    struct wf_stage_op {
        uint32_t node, times;
    } *ops;
    size_t n, cap;
    uint32_t n_layers;
} wf_stage;
/* Stage i of n, which are at most as many as the graph's layers. g outlives it. */
weft_status wf_stage_make(const wf_graph *g, uint32_t i, uint32_t n, wf_stage *out);
void wf_stage_free(wf_stage *);
/* Of a step, one op after another: with one stage, what wf_step_cost says. */
double wf_stage_seconds(const wf_stage *, const wf_load *, const wf_machine *);

/* What equations 1 to 5 know of a model. */
typedef struct wf_model_size {
    double params;     /* that a token is multiplied with */
    double width, layers, activation_bytes; /* D_model, L and S_type */
    double rate;       /* Compute, for the format of its weights */
} wf_model_size;
typedef struct wf_equations {
    double memory, compute, network, ratio, optimum; /* 1: seconds, 2, 3, 4: T_mem / T_compute, 5: tokens per second */
} wf_equations;
wf_equations wf_equations_of(const wf_model_size *, const wf_machine *, double tokens);

#endif
