/* plan: in which pieces, in which order, on which queue and with which kernel a graph runs, and where its
 * values lie. A plan is data: it prints, saves and loads.
 *
 * The text form says how one layer runs, since all layers run alike, and what runs once around them:
 *
 *     weft-plan 1
 *     queues 2
 *     once  embed     0/1  queue 0  kernel auto  groups 0
 *     layer qkv       0/2  queue 0  kernel auto  groups 0
 *     layer qkv       1/2  queue 1  kernel auto  groups 0
 *     ...
 *
 * i/n is the i-th of n equal parts of the batch's rows; the lines' order is the order of submission; groups
 * is the resource share (work-groups, 0: all). Waits are never written down: two nano-ops depend on each
 * other if and only if their parent ops do and their row ranges intersect (nanoflow §4.1.2), so loading derives them.
 * One more rule than the paper's: attention reads the keys of earlier rows of its sequence, so it depends
 * on every KV write to rows before its end.
 */
#ifndef WF_PLAN_H
#define WF_PLAN_H

#include "plan/graph.h"

#define WF_MAX_QUEUES 8

/* One line of the text form. */
typedef struct wf_plan_line {
    bool layer;
    char name[16];
    uint32_t part, parts, queue, groups;
    char kernel[24]; /* variant name or "auto" */
} wf_plan_line;

typedef struct wf_nano {
    uint32_t node;
    uint32_t part, parts; /* rows [M * part / parts, M * (part + 1) / parts) */
    uint32_t queue, groups;
    uint32_t line;        /* which line it came from */
    uint32_t wait, n_waits; /* of plan->waits: nano-ops of other queues to wait for */
    bool signal;          /* another queue waits for it */
} wf_nano;

/* Where activations lie. All values of a slot share its row pitch, so that different values in one slot
 * overlap exactly where their rows do, whatever their widths; the dependency rule above then covers reuse. */
typedef struct wf_slot {
    enum wf_rows rows;
    uint32_t pitch; /* bytes from row to row */
} wf_slot;

typedef struct wf_plan {
    uint32_t n_queues;
    wf_plan_line *lines;
    size_t n_lines, cap_lines;
    wf_nano *nanos;
    size_t n_nanos, cap_nanos;
    uint32_t *waits;
    size_t n_waits, cap_waits;
    wf_slot *slots;
    size_t n_slots, cap_slots;
    int32_t *slot_of; /* by value; -1: not an activation */
} wf_plan;

/* One queue, every op whole, kernels chosen by the backend. */
weft_status wf_plan_sequential(const wf_graph *g, wf_plan *out);
/* Two queues (nanoflow §4.1): the rows of a layer in `parts` nano-batches, and the attention of one runs on queue 1
 * beside what queue 0 computes for the others. */
weft_status wf_plan_overlap(const wf_graph *g, uint32_t parts, wf_plan *out);
/* Reads the text form, which must name every op. Errors name the line. */
weft_status wf_plan_load(const wf_graph *g, const char *path, wf_plan *out);
weft_status wf_plan_save(const wf_plan *p, const char *path);
void wf_plan_free(wf_plan *p);

/* place.c: slots by liveness; `pad` is the alignment of rows in bytes. */
weft_status wf_plan_place(const wf_graph *g, wf_plan *p, uint32_t pad);
/* split.c: nano-ops and waits from lines and slots. Fails if the lines' order breaks a dependency. */
weft_status wf_plan_split(const wf_graph *g, wf_plan *p);

#endif
