/* gemm: what the files of the generator share. gemm.c is its owner, and adds parts of K; gemm_pack.c writes the part
 * of the program that packs X, gemm_weights.c how W comes to registers; gemm_epilogue.c has what follows the main
 * loop. */
#ifndef WF_NVIDIA_GEMM_H
#define WF_NVIDIA_GEMM_H

#include "cl/cl.h"
#include "cl/nvidia/ptx.h"

/* Of X in shared memory; the loop is unrolled as many times, so that addresses are constants. */
#define WF_WGMMA_STAGES 4
#define WF_WGMMA_PRODUCTS  4 /* of 16 of K, a step */
#define WF_WGMMA_LOG2_STEP 6
#define WF_WGMMA_ROW_BYTES (WF_WGMMA_PRODUCTS * 32) /* of a step's row of X */
#define WF_WGMMA_CHUNKS    (WF_WGMMA_ROW_BYTES / 16)

/* What is derived from the knobs. */
typedef struct wf_wgmma {
    int warpgroups, pack, tile_m;
    cl_fragments w;          /* how W lies */
    /* steps whose W is loaded together; steps of the unrolled loop, which two batches divide */
    int batch, unroll;
    int split_k;             /* work-groups that share the K of a tile */
    /* only tiles of the last round share it: those behind the first `whole_tiles`, an argument */
    bool tail;
    int parts;               /* parts of K that a work-group adds one after the other, as split_k work-groups would */
    int silu;                /* 1: rows of W are gate, then up */
    /* rows of W are heads of q, k and v, and the epilogue turns q and k and puts k and v into their slots */
    cl_rotation rope;
    int threads, w_rows;     /* of a work-group: work-items, rows of W */
    int tile_n;              /* columns of Y a tile: w_rows, or with SiLU half of that */
    int stage_bytes, copies; /* 16-byte chunks of X a work-item and step, rounded up */
    int n_acc, w_registers;  /* registers of accumulators, and of W */
    int resident;            /* work-groups that a multiprocessor holds at once */
} wf_wgmma;

/* gemm_pack.c, in the order of the program. Registers a<n> hold what is copied; the scratch buffer begins with
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

/* gemm_weights.c. Registers q<n> hold quantised weights as they lie, a<n> operands: so many of each. */
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

/* gemm_epilogue.c. Bytes of shared memory that it takes; bytes of a tile's split-K exchange buffer, 0 where it has one
 * work-group. */
int wf_wgmma_epilogue_bytes(const wf_wgmma *s);
uint64_t wf_wgmma_exchange_bytes(const wf_wgmma *s);
void wf_wgmma_epilogue(wf_ptx *t, const wf_wgmma *s);

/* Of programs with a rotation: the parameters, as ROPE_ARGS of kernels/rope.clh. */
void wf_wgmma_rope_parameters(wf_ptx *t);

#endif
