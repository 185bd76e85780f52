/* attention: what the files of the generator share. attention.c is its owner: arguments, items, runs; attention_run.c
 * has a run: its rows, the products of its tiles, its results; attention_chunks.c the order of additions of
 * attention_split's chunks; attention_softmax.c what lies between the two products, and the rows that leave the range
 * of the asynchronous softmax; attention_copy.c the keys of a tile, and its way to shared memory. Each uses those
 * behind it. */
#ifndef WF_NVIDIA_ATTENTION_H
#define WF_NVIDIA_ATTENTION_H

#include "cl/cl.h"
#include "cl/nvidia/ptx.h"

enum {
    WF_ATTENTION_ROWS = WF_CL_ATTENTION_ROWS,
    WF_ATTENTION_WARPS = 8, /* that multiply */
    WF_ATTENTION_COPIERS = WF_CL_ATTENTION_THREADS / 32 - WF_ATTENTION_WARPS, /* warps that copy */
    WF_ATTENTION_PANEL = 128, /* bytes of a row */
    WF_ATTENTION_CHAINS = 4 /* of a chunk: warps of attention_split; also tiles of 16 keys of a step */
};
#define WF_ATTENTION_NO_MAX "0fF149F2CA" /* -1e30 */
#define WF_ATTENTION_RESCALE "0f41000000" /* 8: a maximum is raised when a score exceeds it by 2^8 */

typedef struct wf_attention_shape {
    int d, keys, stages; /* head size; keys of a tile; stages in flight */
    int panels, q_bytes, tile_bytes, stage_bytes; /* a stage: a tile of keys, then one of values */
    int chunks, at_once; /* of 16 bytes in a row; rows that one instruction of a warp copies */
    int s, p, o;         /* registers of scores, of a tile's weights, of accumulators */
    bool async;          /* asynchronous softmax */
    int chunk, grows;    /* 16-key tiles of a chunk, and from which on it is longer; 0: no chunks */
    int labels;          /* numbers given to labels */
} wf_attention_shape;

/* A number for labels. */
static inline int wf_attention_label(wf_attention_shape *s)
{
    return s->labels++;
}

/* attention_copy.c. Waits until the barrier at [bar + offset] is over with the phase in a register. */
void wf_attention_await(wf_ptx *t, wf_attention_shape *s, const char *bar, int offset, const char *phase);
/* x: "k" or "v". To the next stage; its barriers and its descriptor. */
void wf_attention_advance(wf_ptx *t, const wf_attention_shape *s, const char *x);
void wf_attention_place_stage(wf_ptx *t, const wf_attention_shape *s, const char *x);
void wf_attention_release(wf_ptx *t, const char *bar, int offset);
void wf_attention_copy_run(wf_ptx *t, wf_attention_shape *s);

/* attention_softmax.c. Brings NAMEh of a row, of which the lanes of a quad have the columns, together by op, in all of
 * them. Destroys tmp, other. */
void wf_attention_quad(wf_ptx *t, const char *op, const char *name, int h, const char *other);
/* attention_run.c. Token and head (among those of the KV head) of packed row `row` of the block; padding has token -1.
 * Writes the registers token and head; destroys the predicate y. */
void wf_attention_unpack_row(wf_ptx *t, const char *token, const char *head);
/* The products of a run, from cleared accumulators to rows of the result. */
void wf_attention_multiply_run(wf_ptx *t, wf_attention_shape *s);
enum { WF_ATTENTION_BANKS = 2 }; /* of weights, with the asynchronous softmax */

/* attention_softmax.c: scores to weights; where `raised`, the accumulators must be rescaled; weights to F16, into a
 * bank of p. */
void wf_attention_softmax(wf_ptx *t, wf_attention_shape *s);
void wf_attention_softmax_given(wf_ptx *t, wf_attention_shape *s);
void wf_attention_rescale(wf_ptx *t, wf_attention_shape *s);
void wf_attention_round_weights(wf_ptx *t, const wf_attention_shape *s, int bank);

/* attention_softmax.c. The arguments and registers of the asynchronous softmax. */
void wf_attention_declare_async(wf_ptx *t);
void wf_attention_load_range(wf_ptx *t);
/* A warpgroup stops when all of its rows have left or are done: it checks that in one tile of WF_ATTENTION_STOP_CHECK.
 * Even, as banks of weights take turns, and not less than a work-group has stages. */
#define WF_ATTENTION_STOP_CHECK 4
/* Before the first tile, by one work-item of the work-group; before the first tile of a run; in a tile that checks,
 * between its products and the wait for them. */
void wf_attention_clear_stops(wf_ptx *t);
void wf_attention_leave_padding(wf_ptx *t);
void wf_attention_check_stop(wf_ptx *t, wf_attention_shape *s);
/* The lane's row h, whose sum is known, is not to be written: sets the predicate y. Before: its largest weight, in all
 * lanes of a quad. */
void wf_attention_largest_weight(wf_ptx *t, int h);
void wf_attention_judge_row(wf_ptx *t, int h);
/* Of an item: keeps which rows left, and counts them; looks which did, and goes to a label where none has. */
void wf_attention_keep_redo(wf_ptx *t);
void wf_attention_find_redo(wf_ptx *t, bool copies, const char *none);

/* attention_copy.c. Registers of both roles, with chunks. */
void wf_attention_declare_walk(wf_ptx *t);
/* key0: the first key of a run's first tile; of the next tile. */
void wf_attention_begin_keys(wf_ptx *t, const wf_attention_shape *s);
void wf_attention_next_keys(wf_ptx *t, wf_attention_shape *s);
/* Writes the register `tiles`: how many tiles have the keys up to `last`, -1: none. */
void wf_attention_count_tiles(wf_ptx *t, const wf_attention_shape *s, const char *tiles, const char *last);
/* Where a row's 16-byte chunk goes in halves (registers; destroys tmp). */
void wf_attention_sort_half(wf_ptx *t, const char *chunk, const char *half);
/* attention_chunks.c. Bytes of shared memory for totals; registers of those that multiply. */
int wf_attention_total_bytes(const wf_attention_shape *s);
void wf_attention_declare_sums(wf_ptx *t, const wf_attention_shape *s);
/* Of a run: no sums; behind a tile's softmax; when its values are added; when they were; the total, for the result. */
void wf_attention_clear_total(wf_ptx *t, const wf_attention_shape *s);
void wf_attention_note_step(wf_ptx *t, wf_attention_shape *s);
void wf_attention_continues(wf_ptx *t);
void wf_attention_fold(wf_ptx *t, wf_attention_shape *s);
void wf_attention_load_total(wf_ptx *t, const wf_attention_shape *s);

#endif
