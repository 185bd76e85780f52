/* layout: how an engine lies on a device: from a model, parameters and a device follow graph, plans, limits and
 * bytes. Engines are opened by it, and everything that says something about an engine that is not there asks it too:
 * `weft info`, `weft plan`, and weft_model_budget. Nothing is loaded or allocated on the device.
 */
#ifndef WF_LAYOUT_H
#define WF_LAYOUT_H

#include "dist/comm.h"
#include "kept/ranges.h"
#include "model/weights/adapters.h"
#include "plan/plan.h"
#include "sched/sched.h"

typedef struct wf_layout {
    const struct weft_model *model;
    uint32_t rank; /* which of the devices this one is */
    struct weft_engine_params params; /* with what they mean on this device; what they point to is the caller's */
    const struct weft_device_info *device;
    /* the same, open; NULL: it is not, then weights count as in the file, and steps are sequential */
    wf_dev *dev;
    enum wf_policy policy;
    uint32_t context, page_tokens, tile; /* tokens of a sequence, of a KV page, and of a tile of prompts */
    enum wf_dtype sums; /* of the parts of sums that a group exchanges: rank 0's activations have it */
    wf_graph graph;
    wf_weights weights;
    wf_adapters adapters;
    wf_ranges ranges;
    wf_plans plans;
    char plan_from[600];     /* where the plans come from, or why steps are sequential, for people */
    /* apart: as limits were before KV pages and activations were unified, which plans decide about */
    wf_limits limits, apart;
    uint32_t wanted_pages;   /* of the KV cache, before it was made to fit the device */
} wf_layout;

/* ranks.c: of an engine that computes on several devices: how many; what each has of the model; and which of those that
 * params.device names it is. */
enum { WF_RANK_NAME = 128 };
uint32_t wf_n_ranks(const struct weft_engine_params *p);
bool wf_is_spread(const struct weft_engine_params *p); /* each is in a process of its own (wf_process) */
wf_shard wf_shard_of_rank(const struct weft_engine_params *p, uint32_t rank, uint32_t layers);
weft_status wf_rank_device(const struct weft_engine_params *p, uint32_t rank, char name[WF_RANK_NAME]);

/* WEFT_ERR_ARG for parameters out of their range: before the rest, and before a device is opened. */
weft_status wf_layout_check(const struct weft_model *m, const struct weft_engine_params *p);
weft_status wf_layout_check_context(const struct weft_model *m, uint32_t context); /* can it be so long? */
weft_status wf_layout_check_kv_dtype(const struct weft_model *m, const char *name); /* can its KV cache have it? */
/* Of the device that such an engine has; the rest of an engine's options changes nothing here. */
weft_status wf_layout_device(const struct weft_engine_params *p, const char *device, wf_dev **out);

/* The function. dev may be NULL. out is to be freed in any case. */
weft_status wf_layout_make(const struct weft_model *m, const struct weft_engine_params *p,
                           const struct weft_device_info *d, wf_dev *dev, wf_layout *out);
/* The same of a device that has that part of the model. sums: of rank 0's, which does not look at it. */
weft_status wf_layout_make_rank(const struct weft_model *m, const struct weft_engine_params *p, uint32_t rank,
                                enum wf_dtype sums, const struct weft_device_info *d, wf_dev *dev, wf_layout *out);
/* Its first part: graph and weights, without what follows the model in an engine's graph (wf_graph_end). */
weft_status wf_layout_graph(wf_layout *l);
void wf_layout_free(wf_layout *l);
uint32_t wf_layout_output(const wf_layout *l); /* columns of what the graph ends in */

/* What a device turns out to give changes it: */
/* with ranges that were measured meanwhile; the weights stay as they are. */
weft_status wf_layout_again(wf_layout *l, const wf_phi *ranges);
/* With all workspaces, for a fused kernel does not work there, and its pieces need them. */
weft_status wf_layout_keep_workspaces(wf_layout *l);
/* With an eighth of the KV pages less, for the device has less memory than it said; false: nothing is left to take,
 * or their number was given. */
bool wf_layout_shrink(wf_layout *l);
/* With the limits of another device of the group. */
void wf_layout_limit(wf_layout *l, const wf_limits *to);
/* With other plans, whose lines are given and which it takes, also after a failure. The pages stay. */
weft_status wf_layout_replan(wf_layout *l, wf_plans *plans);

/* What is to be allocated: everything but n_seqs_from is filled in. */
void wf_layout_budget(const wf_layout *l, struct weft_budget *out);
/* WEFT_ERR_NOMEM, with the sizes, if the engine does not fit the memory that is available. */
weft_status wf_layout_check_available(const wf_layout *l);
uint64_t wf_layout_token_bytes(const wf_layout *l); /* of keys and values, in all layers */
/* Bytes of host memory below a KV cache of such pages: a file below it (kv_disk) has its blocks pass there. */
uint64_t wf_layout_kv_host(const struct weft_engine_params *p, uint64_t page_bytes);
/* Tells the log which sizes are smaller than what was asked for. */
void wf_layout_say_less(const wf_layout *l);
/* Where weights fit the device as they lie in the file but not as its fastest kernels read them, they stay as in the
 * file, with a warning. Before layouts of weights are asked for. */
void wf_layout_save_memory(wf_dev *dev, const wf_weights *w);

#endif
