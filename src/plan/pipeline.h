/* pipeline: one layer as the search for plans sees it (NanoFlow, section 4.1.2), and the plan that a schedule of it
 * stands for.
 *
 * Ops that take little stand with the op in front of them as one block; blocks of one class run on one queue, since ops
 * that the same resource bounds gain nothing side by side. A cut divides the tokens of a batch into cells; a slot is a
 * block on one or more cells that lie together. A block may have a slot for each cell, or fewer (a split says how
 * many), so that ops are cut into different numbers of nano-operations.
 *
 * All layers run alike, so a schedule is one round of a cycle: in round l run the slots of layer l, and those marked
 * `next` of layer l + 1. A slot needs another if and only if the ops do and their tokens intersect.
 */
#ifndef WF_PIPELINE_H
#define WF_PIPELINE_H

#include "plan/simulate.h"

enum { WF_MAX_BLOCKS = 24, WF_MAX_PARTS = 4, WF_MAX_SLOTS = WF_MAX_BLOCKS * WF_MAX_PARTS };

typedef struct wf_block {
    size_t first, n; /* lines of pipeline.whole */
    enum wf_class class;
    uint32_t queue;
} wf_block;

typedef struct wf_pipeline {
    const wf_graph *g;
    const wf_op_profile *profile;
    wf_sim_batch batch;
    wf_plan whole;     /* the sequential plan */
    size_t begin, end; /* its lines of layers */
    wf_block blocks[WF_MAX_BLOCKS];
    size_t n_blocks;
    uint32_t n_queues;
    uint8_t needs[2][WF_MAX_BLOCKS][WF_MAX_BLOCKS]; /* [in the same layer, in the one before][of][what]: enum wf_need */
} wf_pipeline;

enum wf_need { WF_NEEDS_ROWS = 1, WF_NEEDS_KEYS = 2 /* also of earlier tokens */ };

/* Where the cells begin and end. */
typedef struct wf_cut {
    uint32_t parts;
    wf_boundary at[WF_MAX_PARTS + 1];
} wf_cut;

/* Into how many slots each block is cut: at most as many as there are cells, which are shared out as equally as they
 * can be. */
typedef struct wf_split {
    uint32_t parts[WF_MAX_BLOCKS];
} wf_split;

typedef struct wf_slot {
    uint32_t block, first, end; /* cells */
    bool next;
    double begin, share; /* in the round, microseconds; of the device */
} wf_slot;

typedef struct wf_schedule {
    wf_cut cut;
    wf_slot slots[WF_MAX_SLOTS];
    size_t n;
    double period; /* of a round, as its stage expects it */
} wf_schedule;

/* small: the part of a layer's time below which an op stands with another one. The caller frees it, also after a
 * failure. */
weft_status wf_pipeline_init(const wf_graph *g, const wf_op_profile *profile, const wf_sim_batch *b, double small,
                             wf_pipeline *out);
void wf_pipeline_free(wf_pipeline *p);
/* Microseconds of a slot with a share of the device; alone or beside others. */
double wf_slot_us(const wf_pipeline *p, const wf_slot *s, const wf_cut *c, double share, bool alone);
/* Does `of` need `what`: of its own layer, or (before) of the layer before? */
bool wf_slot_needs(const wf_pipeline *p, const wf_slot *of, const wf_slot *what, bool before);
/* All slots, block after block. split NULL: one for each cell. */
void wf_schedule_init(const wf_pipeline *p, const wf_cut *c, const wf_split *split, wf_schedule *out);
/* In the order in which they begin, but behind what they need of the same round. WEFT_ERR_ARG: needs go round in a
 * circle. */
weft_status wf_schedule_sort(const wf_pipeline *p, wf_schedule *s);
/* The lines of a plan, in the order of the slots. */
weft_status wf_schedule_plan(const wf_pipeline *p, const wf_schedule *s, wf_plan *out);

#endif
