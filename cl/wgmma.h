/* wgmma: what the files of the generator share. wgmma.c is its owner; wgmma_pack.c writes the part of the program that
 * packs X. */
#ifndef WF_WGMMA_H
#define WF_WGMMA_H

#include "cl/cl.h"

#define WF_WGMMA_SLOTS 4 /* of packed X */

/* A growing text. */
typedef struct wf_ptx {
    char *s;
    size_t len, cap;
    bool lost; /* memory ran out */
} wf_ptx;
void wf_ptx_put(wf_ptx *t, const char *fmt, ...) WF_PRINTF(2, 3);

/* What is derived from the knobs. */
typedef struct wf_wgmma {
    int warpgroups, pack, tokens, batch;
    int products;           /* of 16 of K, a step */
    int row_bytes, chunks;  /* of a step's row of X; the latter of 16 bytes */
    int unroll, slots;      /* steps in the loop's text; slots divide them, so that places are constants */
    int threads, rows;      /* of a work-group */
    int slot_bytes, copies; /* 16-byte chunks of X a work-item and step, rounded up */
    int sums;               /* registers of sums */
    int pass, pitch;        /* the end: tokens a pass through local memory, floats from token to token */
    int resident;           /* work-groups that a multiprocessor holds at once */
    int at_once;            /* tokens that the work-group finishes at once, four features a work-item */
} wf_wgmma;

static inline int wf_wgmma_log2_step(const wf_wgmma *s)
{
    return s->pack ? 6 : 5;
}

/* wgmma_pack.c, in the order of the program. Registers a<n> hold what is copied; the scratch buffer begins with
 * WF_CL_ZEROS bytes, then X in slots follows. */
void wf_wgmma_declare_pack(wf_ptx *t, const wf_wgmma *s);
int wf_wgmma_pack_registers(const wf_wgmma *s);
/* Until the whole of X is packed. */
void wf_wgmma_pack(wf_ptx *t, const wf_wgmma *s);
/* For each unit: where its slots begin; asks for the next one; waits for it, in step u of the text. */
void wf_wgmma_place_packed(wf_ptx *t, const wf_wgmma *s);
void wf_wgmma_fetch_packed(wf_ptx *t, const wf_wgmma *s, int slot);
void wf_wgmma_await_packed(wf_ptx *t, int slot, int u);
/* Moves `sums` behind it, after the first zeros. */
void wf_wgmma_skip_packed(wf_ptx *t, const wf_wgmma *s);
/* At the end of the program. */
void wf_wgmma_leave_packed(wf_ptx *t);

#endif
