/* tune: measures single ops on a device and chooses kernels by the results.
 *
 *   shape (text) --> problem (operands on the device) --> clock (median time of a variant) --> row
 *
 * ops.c is `weft bench ops`; tune.c is `weft tune`, which chooses kernels; batch.c chooses the tokens per step, and
 * chunk.c those for a load; cost.c is `weft plan --cost`.
 */
#ifndef WF_MEASURE_H
#define WF_MEASURE_H

#include "dev/arena.h"
#include "plan/machine.h"
#include "select/tuned.h"
#include "lab/lab.h"

/* ---- shape.c: what to measure -------------------------------------------------------------------------------- */

#define WF_N_MEASURED 3 /* the first kinds in tuned.h; the others differ by async */
typedef struct wf_shape {
    enum wf_tuned_op op;
    bool async;                           /* attention: allow the asynchronous softmax */
    uint8_t dtype;                        /* of the weights; attention: of keys and values */
    uint32_t m, n, k;                     /* gemm; m 0: not set */
    uint32_t seqs, length;                /* attention; 0: not set */
    uint32_t n_head, n_kv_head, head_dim;
    uint32_t window;                      /* of each query head; 0: all keys */
} wf_shape;

/* "M=8,N=6144,K=4096" or "B=64,L=4096,S=1024,H=32,KV=8,D=128", parts in any order. The op of an attention shape is
 * set to WF_TUNED_DECODE. WEFT_ERR_ARG describes the error. */
weft_status wf_shape_parse(const char *text, wf_shape *out);
weft_status wf_shape_check(const wf_shape *s); /* rejects sizes that no device can hold */
void wf_shape_text(const wf_shape *s, char *buf, size_t cap);
/* Parses at most cap comma-separated format names; NULL: F16. */
weft_status wf_shape_dtypes(const char *text, uint8_t *out, size_t cap, size_t *n);

/* Operations and minimal memory traffic of one run. Attention counts only the keys that the causal mask and the
 * window allow. */
double wf_shape_flops(const wf_shape *s);
double wf_shape_bytes(const wf_shape *s); /* gemm: W, X and Y; decode: K and V; prefill: K, V, q and o */
bool wf_shape_counts_bytes(const wf_shape *s); /* is its rate in GB/s? decode attention, and gemm below 128 rows */

/* ---- problem.c: operands ------------------------------------------------------------------------------------- */

typedef struct wf_problem {
    wf_dev *dev;
    wf_queue *q;
    wf_shape shape;
    wf_call call;        /* variant -1 */
    wf_arena big, small; /* rotated operands; the rest */
    uint32_t copies;     /* of W, or of the sequences */
    wf_view *copy;       /* the operand that differs between copies: W, or the list of pages */
    int rotated;         /* in[rotated] is that operand */
    uint32_t turn;       /* the next copy */
} wf_problem;

/* rotate: total bytes of all copies, as far as memory allows. WEFT_ERR_NOMEM if one copy does not fit. */
weft_status wf_problem_create(wf_dev *dev, wf_queue *q, const wf_shape *s, uint64_t rotate, wf_problem *out);
/* Changes m and keeps the weights. */
weft_status wf_problem_rows(wf_problem *p, uint32_t m);
void wf_problem_destroy(wf_problem *p);

/* ---- clock.c ------------------------------------------------------------------------------------------------- */

typedef struct wf_clock {
    uint32_t repeat;  /* samples, whose median counts */
    double sample_ns; /* how long one takes; 0: 50 ms */
    double limit_ns;  /* where a run takes longer, an estimate will do; 0: no limit */
} wf_clock;
/* Median nanoseconds of a run, or an estimate. */
weft_status wf_clock_variant(wf_problem *p, int variant, const wf_clock *c, double *ns);
/* Can the variant run the problem, and does it pass its check? */
weft_status wf_clock_usable(wf_problem *p, int variant, bool *usable);

/* ---- copies.c: pages of KV to host memory and back ---------------------------------------------------------- */

/* Rows "kv_copy": up, down, both ways at once, in GB/s together. */
weft_status wf_bench_copies(wf_dev *dev, const struct weft_ceilings *top, uint32_t repeat, weft_op_fn on_row,
                            void *user);

/* ---- batch.c: tokens per step -------------------------------------------------------------------------------- */

#define WF_STEP_DOUBLINGS 24
/* of steps with 1, 2, 4, ... tokens: sums over the products measured so far, each with its fastest kernel */
typedef struct wf_step_times {
    double ns[WF_STEP_DOUBLINGS];
    size_t n_products[WF_STEP_DOUBLINGS];
} wf_step_times;
/* Adds a product of a layer; rows: a power of two. Excludes the output matrix, which only few tokens of a step use. */
void wf_step_times_add(wf_step_times *t, uint32_t rows, double ns);
/* The smallest number of tokens at which all products of a layer are close to their peak rate; 0: too few sizes
 * measured. */
uint32_t wf_dense_batch(const wf_step_times *t);

/* ---- keep.c: what a device's own file keeps ------------------------------------------------------------------ */

/* The path of the file that a user names, or of the device's own. */
weft_status wf_keep_path(const wf_dev *dev, const char *named, char *path, size_t cap);
/* The choices in the file at path, none if it is missing; also none, with a warning, if it is invalid, and if it is
 * of other kernels. */
void wf_kept_choices(wf_dev *dev, const char *path, wf_tuned_table *out);
/* Measures the peak rates of the device, where it can, and puts them into the table. top: gets them; may be NULL. */
weft_status wf_keep_ceilings(wf_dev *dev, wf_tuned_table *t, wf_ceilings *top);
typedef struct wf_rates_params {
    uint32_t threads; /* that the user asked for; 0: the device's own number. Others are measured, and not kept */
    bool anew;        /* measure also what is kept */
    weft_progress_fn on_progress; /* or NULL */
    void *user;
} wf_rates_params;
/* The constants of the present device; rates that are not kept are measured, for about a second, and kept. A device
 * that cannot has no rates. */
weft_status wf_device_machine(wf_dev *dev, const wf_rates_params *p, wf_machine *out);
bool wf_machine_has_rates(const wf_machine *m);

#endif
