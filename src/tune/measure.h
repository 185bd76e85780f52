/* tune: measures single ops on a device and chooses kernels by what it finds.
 *
 *   shape (text) --> problem (operands on the device) --> clock (median time of a variant) --> row
 *
 * ops.c is `weft bench ops`, tune.c is `weft tune`, which chooses kernels, and batch.c rows of a step.
 */
#ifndef WF_MEASURE_H
#define WF_MEASURE_H

#include "mem/arena.h"
#include "select/tuned.h"
#include <weft/tune.h>

/* ---- shape.c: what to measure -------------------------------------------------------------------- */

#define WF_N_MEASURED 3 /* the first kinds of tuned.h; async tells the others apart */
typedef struct wf_shape {
    enum wf_tuned_op op;
    bool async;                           /* attention: the asynchronous softmax may be used */
    uint8_t dtype;                        /* of the weights; attention: F16 */
    uint32_t m, n, k;                     /* gemm; m 0: not said */
    uint32_t seqs, length;                /* attention; 0: not said */
    uint32_t n_head, n_kv_head, head_dim;
    uint32_t window;                      /* of each KV head; 0: all keys */
} wf_shape;

/* "M=8,N=6144,K=4096" or "B=64,L=4096,S=1024,H=32,KV=8,D=128", parts in any order; op of an attention shape is left
 * as WF_TUNED_DECODE. WEFT_ERR_ARG says what is wrong. */
weft_status wf_shape_parse(const char *text, wf_shape *out);
weft_status wf_shape_check(const wf_shape *s); /* sizes that no device could hold */
void wf_shape_text(const wf_shape *s, char *buf, size_t cap);
/* Names of formats separated by commas, at most cap; NULL: F16. */
weft_status wf_shape_dtypes(const char *text, uint8_t *out, size_t cap, size_t *n);

/* What one run must compute, read and write. Causal: a row counts the keys that it sees, within its window. */
double wf_shape_flops(const wf_shape *s);
double wf_shape_bytes(const wf_shape *s); /* gemm: W, X and Y; decode: K and V; prefill: K, V, q and o */
bool wf_shape_counts_bytes(const wf_shape *s); /* its rate is in GB/s: decoding, and gemm below 128 rows */

/* ---- problem.c: operands ------------------------------------------------------------------------- */

typedef struct wf_problem {
    wf_dev *dev;
    wf_queue *q;
    wf_shape shape;
    wf_call call;        /* variant -1 */
    wf_arena big, small; /* what is rotated over; the rest */
    uint32_t copies;     /* of W, or of the sequences */
    wf_view *copy;       /* the operand that differs between copies: W, or the list of pages */
    int slot;            /* in[slot] is that operand */
    uint32_t turn;       /* the copy that is next */
} wf_problem;

/* rotate: bytes that the copies cover together at least, as far as memory allows. WEFT_ERR_NOMEM if one does
 * not fit. */
weft_status wf_problem_create(wf_dev *dev, wf_queue *q, const wf_shape *s, uint64_t rotate, wf_problem *out);
/* Another m for the weights that are there. */
weft_status wf_problem_rows(wf_problem *p, uint32_t m);
void wf_problem_destroy(wf_problem *p);

/* ---- clock.c ---------------------------------------------------------------------------------------- */

/* Median nanoseconds of a run. limit_ns: when it is soon clear that it takes longer, a first estimate is
 * given; 0: none. */
weft_status wf_clock_variant(wf_problem *p, int variant, uint32_t repeat, double limit_ns, double *ns);
/* Can it run the problem, and is it right? Builds and checks it. */
weft_status wf_clock_usable(wf_problem *p, int variant, bool *usable);

/* ---- batch.c: rows of a step ------------------------------------------------------------------------ */

#define WF_STEP_DOUBLINGS 24
typedef struct wf_step_times { /* of steps with 1, 2, 4, ... rows: the products measured so far, each with its fastest kernel */
    double ns[WF_STEP_DOUBLINGS];
    size_t n_products[WF_STEP_DOUBLINGS];
} wf_step_times;
/* One product of a layer; rows: a power of two. Not the output matrix, which few rows of a step see. */
void wf_step_times_add(wf_step_times *t, uint32_t rows, double ns);
/* The fewest rows with which all products of a layer run nearly as fast as they can; 0: too few sizes were measured to
 * tell. */
uint32_t wf_dense_batch(const wf_step_times *t);

#endif
