/* wgmma: what the files of the generator share. wgmma.c is its owner; wgmma_pack.c writes the part of the program that
 * packs X, wgmma_weights.c how W comes to registers, wgmma_parts.c adds parts of K, wgmma_epilogue.c has what follows the main loop. */
#ifndef WF_WGMMA_H
#define WF_WGMMA_H

#include "cl/cl.h"
#include "cl/ptx.h"

#define WF_WGMMA_STAGES    4 /* of X in shared memory; the loop is unrolled as many times, so that addresses are constants */
#define WF_WGMMA_PRODUCTS  4 /* of 16 of K, a step */
#define WF_WGMMA_LOG2_STEP 6
#define WF_WGMMA_ROW_BYTES (WF_WGMMA_PRODUCTS * 32) /* of a step's row of X */
#define WF_WGMMA_CHUNKS    (WF_WGMMA_ROW_BYTES / 16)

/* What is derived from the knobs. */
typedef struct wf_wgmma {
    int warpgroups, pack, tile_m;
    cl_fragments w;          /* how W lies */
    int batch, unroll;       /* steps whose W is loaded together; steps of the unrolled loop, which two batches divide */
    int split_k;             /* work-groups that share the K of a tile */
    bool tail;               /* only tiles of the last round share it: those behind the first `whole_tiles`, an argument */
    int parts;               /* parts of K that a work-group adds one after the other, as split_k work-groups would */
    int silu;                /* 1: rows of W are gate, then up */
    cl_rotation rope;        /* rows of W are heads of q, k and v, and the epilogue turns q and k and puts k and v into their slots */
    int threads, w_rows;     /* of a work-group: work-items, rows of W */
    int tile_n;              /* columns of Y a tile: w_rows, or with SiLU half of that */
    int stage_bytes, copies; /* 16-byte chunks of X a work-item and step, rounded up */
    int n_acc, w_registers;  /* registers of accumulators, and of W */
    int resident;            /* work-groups that a multiprocessor holds at once */
} wf_wgmma;

/* wgmma_pack.c, in the order of the program. Registers a<n> hold what is copied; the scratch buffer begins with
 * WF_CL_ZEROED bytes, then X follows, stage by stage. */
void wf_wgmma_declare_pack(wf_ptx *t);
int wf_wgmma_pack_registers(const wf_wgmma *s);
/* Until the whole of X is packed. */
void wf_wgmma_pack(wf_ptx *t, const wf_wgmma *s);
/* For each unit: where its stages begin; issues the copy of the next one; waits for it, in unrolled step u. */
void wf_wgmma_place_packed(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_fetch_packed(wf_ptx *t, const wf_wgmma *s, int stage);
void wf_wgmma_await_packed(wf_ptx *t, int stage, int u);
/* At the end of the program. */
void wf_wgmma_exit_packed(wf_ptx *t);

/* wgmma_weights.c. Registers q<n> hold quantised weights as they lie, a<n> operands: so many of each. */
int wf_wgmma_held_registers(const wf_wgmma *s);
int wf_wgmma_operand_registers(const wf_wgmma *s);
/* Number of the first of the four registers of W that a product of unrolled step u reads. */
int wf_wgmma_fragment(const wf_wgmma *s, int u, int product);
void wf_wgmma_declare_weights(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_place_w(wf_ptx *t, const wf_wgmma *s);
/* Begins to load the batch of unrolled step u, `ahead` steps from the one that is multiplied. */
void wf_wgmma_load_w(wf_ptx *t, const wf_wgmma *s, int u, int ahead);
/* Operands of unrolled step u from what was loaded of it; nothing where that is what was loaded. */
void wf_wgmma_expand(wf_ptx *t, const wf_wgmma *s, int u);

/* wgmma_parts.c, for programs whose K has several parts: bytes of shared memory, behind the stages, for the sums of those before. For each
 * unit: no sums yet. In the main loop, behind unrolled step u: at the end of a part its sums join them. At the end: the last part's. */
int wf_wgmma_parts_bytes(const wf_wgmma *s);
void wf_wgmma_declare_parts(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_begin_parts(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_end_part(wf_ptx *t, const wf_wgmma *s, int u);
void wf_wgmma_add_last_part(wf_ptx *t, const wf_wgmma *s);

/* wgmma_epilogue.c. Bytes of shared memory that it takes; bytes of a tile's split-K exchange buffer, 0 where it has one work-group. */
int wf_wgmma_epilogue_bytes(const wf_wgmma *s);
uint64_t wf_wgmma_exchange_bytes(const wf_wgmma *s);
void wf_wgmma_declare_epilogue(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_epilogue(wf_ptx *t, const wf_wgmma *s);

/* wgmma_rope.c, for the epilogue of programs with a rotation, whose four columns are of one head. The parameters, as ROPE_ARGS of kernels/rope.clh;
 * then the tile's: does this work-item's part of a head turn, is it of q, its angles in a row of the table, its place in slot 0 of a page. */
#define WF_WGMMA_ANGLES      8 /* rows whose angles are loaded together: r<4 * j> to r<4 * j + 3> and slot<j> are those of row j of them */
#define WF_WGMMA_ROPE_LOCALS " .b32 slot<%d>; .b64 table_at, pool_at; .pred turns, of_q;" /* of WF_WGMMA_ANGLES slots */
#define WF_WGMMA_ROPE_READS  "slot*, turns, of_q, pool_at, "
void wf_wgmma_rope_parameters(wf_ptx *t);
void wf_wgmma_place_head(wf_ptx *t, const wf_wgmma *s);
/* Of row y_row, if p. */
void wf_wgmma_load_angles(wf_ptx *t, int j);
/* Turns f0 to f3. */
void wf_wgmma_turn(wf_ptx *t, int j);
/* What is not of q goes to its slot, if that is one, and then to END<i>. */
void wf_wgmma_store_kv(wf_ptx *t, const wf_wgmma *s, int i, int j);

#endif
