/* wgmma: what the files of the generator share. wgmma.c is its owner; wgmma_pack.c writes the part of the program that
 * packs X, wgmma_end.c what follows the sums. */
#ifndef WF_WGMMA_H
#define WF_WGMMA_H

#include "cl/cl.h"

#define WF_WGMMA_SLOTS     4 /* of X in local memory; so many steps are in the loop's text, so that places are constants */
#define WF_WGMMA_PRODUCTS  4 /* of 16 of K, a step */
#define WF_WGMMA_LOG2_STEP 6
#define WF_WGMMA_ROW_BYTES (WF_WGMMA_PRODUCTS * 32) /* of a step's row of X */
#define WF_WGMMA_CHUNKS    (WF_WGMMA_ROW_BYTES / 16)

/* A growing text. */
typedef struct wf_ptx {
    char *s;
    size_t len, cap;
    bool lost; /* memory ran out */
} wf_ptx;
void wf_ptx_put(wf_ptx *t, const char *fmt, ...) WF_PRINTF(2, 3);
char *wf_ptx_text(wf_ptx *t); /* malloc'ed; NULL: memory ran out */

/* What is derived from the knobs. */
typedef struct wf_wgmma {
    int warpgroups, pack, tokens, batch; /* batch: 1 or 2, so that two of them divide the steps in the loop's text */
    int split;              /* work-groups that share the K of a tile */
    int silu;               /* 1: rows of W are gate, then up */
    int threads, rows;      /* of a work-group */
    int features;           /* of Y a tile: rows, or half of them gate and half up */
    int slot_bytes, copies; /* 16-byte chunks of X a work-item and step, rounded up */
    int sums, w_registers;  /* registers that hold sums, and W of two batches */
    int resident;           /* work-groups that a multiprocessor holds at once */
} wf_wgmma;

/* wgmma_pack.c, in the order of the program. Registers a<n> hold what is copied; the scratch buffer begins with
 * WF_CL_ZEROS bytes, then X in slots follows. */
void wf_wgmma_declare_pack(wf_ptx *t);
int wf_wgmma_pack_registers(const wf_wgmma *s);
/* Until the whole of X is packed. */
void wf_wgmma_pack(wf_ptx *t, const wf_wgmma *s);
/* For each unit: where its slots begin; asks for the next one; waits for it, in step u of the text. */
void wf_wgmma_place_packed(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_fetch_packed(wf_ptx *t, const wf_wgmma *s, int slot);
void wf_wgmma_await_packed(wf_ptx *t, int slot, int u);
/* At the end of the program. */
void wf_wgmma_leave_packed(wf_ptx *t);

/* wgmma_end.c. Bytes of local memory that it takes; bytes of a tile's sums on their way, 0 where it has one work-group. */
int wf_wgmma_end_bytes(const wf_wgmma *s);
uint64_t wf_wgmma_box_bytes(const wf_wgmma *s);
void wf_wgmma_declare_end(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_end(wf_ptx *t, const wf_wgmma *s);

#endif
