/* plan: in which token ranges, in which order, on which queue, with which kernel and share a graph runs, and in which
 * buffers its values lie. A plan is data: it prints, saves, loads and compares as text.
 *
 * The text form says how one layer runs, since all layers run alike, and what runs once around them:
 *
 *     weft-plan 2
 *     queues 2
 *     tile 128
 *     bucket tokens 513-1024 decodes 0.5 context 4096  # for batches between these limits, or up to one; no word: any
 *     once  upload            0-end        queue 0  kernel auto  groups 0
 *     layer qkv               0-768        queue 0  kernel auto  groups 0
 *     layer qkv               768-end      queue 0  kernel auto  groups 0
 *     layer decode_attention  0-decode     queue 1  kernel auto  groups 0
 *     next  qkv               0-2t         queue 0  kernel auto  groups 0
 *     ...
 *
 * A range names tokens of the batch: numbers, multiples of the tile (2t), `decode` or `prefill` (both: where decodes
 * end and prefill begins) and `end`. A boundary beyond the batch lies at its end. Nano-batches may be unequal and
 * different ops be cut differently (NanoFlow, section 4.1). Ranges of ops on tokens whose logits are wanted count
 * those. `next` is an op of the following layer, so that two layers are interleaved. The order of the lines is the
 * order of submission; groups is the resource share (work-groups, 0: all). A file may hold several plans, each under
 * its own `bucket`: a step takes the first that fits.
 *
 * Waits are never written down: two nano-operations depend on each other if and only if the ops that they are parts of
 * do and their token ranges intersect (NanoFlow, section 4.1.2), so loading derives them. One more rule than the
 * paper's: prefill attention reads keys of earlier tokens of its sequence, so it depends on every KV write to prefill
 * tokens before its end.
 */
#ifndef WF_PLAN_H
#define WF_PLAN_H

#include "plan/graph.h"
#include <stdio.h>

#define WF_MAX_QUEUES 8
#define WF_MAX_PLANS  16 /* of a file */
#define WF_MAX_RANGES 64 /* of an op */

/* A place between two tokens of the batch: the larger of `tokens` and, with `decode`, the number of decodes; with
 * `end`, the end. */
typedef struct wf_boundary {
    uint32_t tokens;
    bool decode, end;
} wf_boundary;

/* Where it lies in a batch. */
static inline uint32_t wf_boundary_at(wf_boundary b, uint32_t n_decodes, uint32_t n)
{
    uint32_t at = WF_MAX(b.tokens, b.decode ? n_decodes : 0);
    return b.end ? n : WF_MIN(at, n);
}

enum wf_line_where { WF_LINE_ONCE, WF_LINE_LAYER, WF_LINE_NEXT };
/* One line of the text form. */
typedef struct wf_plan_line {
    enum wf_line_where where;
    char name[24];
    wf_boundary begin, end;
    uint32_t queue, groups;
    char kernel[24]; /* variant name or "auto" */
    uint32_t number; /* in its file, from 1; 0: of no file */
} wf_plan_line;

/* A nano-operation: one op on one range of tokens. */
typedef struct wf_nano {
    uint32_t node;
    wf_boundary begin, end;
    uint32_t queue, groups;
    uint32_t line;          /* which line it came from */
    uint32_t wait, n_waits; /* of plan->waits: nano-operations of other queues to wait for, at most one a queue */
    bool signal;            /* another queue waits for it */
} wf_nano;

/* Tokens, or rows of logits. */
typedef struct wf_range {
    uint32_t first, count;
} wf_range;
/* Those that a nano-operation computes in a batch; node: what it is a part of. */
wf_range wf_nano_range(const wf_node *node, const wf_nano *n, uint32_t n_decodes, uint32_t n_tokens, uint32_t n_logits);

/* Where activations lie: each in columns of a buffer. All values of a buffer share its row pitch, so that different
 * values in one buffer overlap exactly where their rows and columns do; the dependency rule above then covers reuse. */
typedef struct wf_act_buffer {
    enum wf_rows rows;
    uint32_t pitch; /* bytes from row to row */
} wf_act_buffer;

/* The batches that a plan is for, from the least to the most: tokens, keys of the longest sequence, share of decodes,
 * which is rounded down to whole ones; 0: any. What has a least has a most. */
typedef struct wf_bucket {
    uint32_t least_tokens, tokens, least_context, context;
    float least_decodes, decodes;
} wf_bucket;
#define WF_NO_DECODES 1e-6f /* as the most: none at all */

typedef struct wf_plan {
    char path[256]; /* of its file, cut to fit; "": built in */
    wf_bucket bucket;
    uint32_t n_queues, tile;
    wf_plan_line *lines;
    size_t n_lines, cap_lines;
    wf_nano *nanos;
    size_t n_nanos, cap_nanos;
    uint32_t *waits;
    size_t n_waits, cap_waits;
    uint64_t n_compared; /* pairs of nano-operations that wf_plan_wait compared: a measure of its work */
    wf_act_buffer *buffers;
    size_t n_buffers, cap_buffers;
    int32_t *buffer_of; /* by value; -1: not an activation */
    uint32_t *offset_of; /* by value: bytes from the start of a row of its buffer */
} wf_plan;

/* The plans of a model; a batch has the first whose bucket it fits, and the last takes every batch. */
typedef struct wf_plans {
    wf_plan list[WF_MAX_PLANS];
    size_t n;
} wf_plans;

/* One queue, every op whole, kernels chosen by the device. */
weft_status wf_plan_sequential(const wf_graph *g, wf_plan *out);
/* Nano-batches on two queues (NanoFlow, section 4.1): n_parts nano-batches of batches up to max_tokens, about equal, in
 * multiples of the tile (1: any number); attention of one runs on queue 1 beside what queue 0 computes for the others.
 * A bucket for each doubling of tokens. */
weft_status wf_plans_overlap(const wf_graph *g, uint32_t n_parts, uint32_t max_tokens, uint32_t tile, wf_plans *out);
/* A plan with the same lines, not split yet. */
weft_status wf_plan_copy_lines(const wf_plan *p, wf_plan *out);
/* Reads the text form; every plan must name every op and the last one take every batch. Errors name the line. */
weft_status wf_plans_load(const wf_graph *g, const char *path, wf_plans *out);
weft_status wf_plans_save(const wf_plans *p, const char *path);
/* Where a line stands, for errors: "plan: FILE:LINE", or "plan" if it comes from no file. */
typedef struct wf_line_place {
    char text[288];
} wf_line_place;
wf_line_place wf_line_place_of(const wf_plan *p, const wf_plan_line *l);
void wf_plan_print(const wf_plan *p, FILE *f);
/* The index of the plan for a batch. */
size_t wf_plans_choose(const wf_plans *p, uint32_t n_tokens, uint32_t n_decodes, uint32_t max_context);
void wf_plan_free(wf_plan *p);
void wf_plans_free(wf_plans *p);

/* split.c: nano-operations from lines; place.c: buffers by liveness in their order, `pad` is the alignment of rows in
 * bytes; wait.c: what each must wait for. WEFT_ERR_ARG if the lines' order breaks a dependency. wf_plans_finish is all
 * three for each plan, with one set of buffers for all; it may be called again when the graph omits other outputs. */
weft_status wf_plan_split(const wf_graph *g, wf_plan *p);
weft_status wf_plan_place(const wf_graph *g, wf_plan *p, uint32_t pad);
weft_status wf_plan_wait(const wf_graph *g, wf_plan *p);
weft_status wf_plans_finish(const wf_graph *g, wf_plans *p, uint32_t pad);

#endif
