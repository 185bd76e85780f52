/* tuned: the kernels that were measured as the fastest, by shape. Each device has one small text file:
 *
 *     weft-tuned 1
 *     device NVIDIA H200
 *     platform NVIDIA CUDA
 *     units 132
 *     driver 580.159.04
 *     kernels 5b0c91f2
 *     dense_batch 1024
 *     cost device read=4545,f16=644,launch=4
 *     gemm F16 N=6144,K=4096 1:auto 9:matrix8 33:matrix64 256:auto
 *     decode_attention F16 H=32,KV=8,D=128,B=64 1:decode
 *     prefill_attention F16 H=32,KV=8,D=128 1:flash
 *
 * A row gives the kernel from a size on: rows of X for gemm, keys of the longest sequence for
 * decode_attention (of at least B sequences), rows of the longest sequence for prefill_attention. Calls whose
 * params allow the asynchronous softmax have rows of their own, decode_attention_async and
 * prefill_attention_async. In place of a kernel, `auto` leaves sizes to the backend. A line that begins with '#' is a
 * comment.
 *
 * A row of the user's file, which `weft tune` writes, takes precedence over the same row of the shipped file; the
 * backend decides what neither has. A broken file, or one for another device, is ignored with a warning. A kernel that
 * no longer exists or cannot run the call is skipped. `dense_batch` is the number of rows beyond which the products of
 * a step gain little (measured for the model that was tuned last). `load 1155.4:245.3` has the tokens of a prompt and
 * of an answer, on average, of the load that `weft tune --dataset-path` was given last: the ratio P:D with which policy
 * sarathi begins. `kernels` identifies the list of kernels that was measured: with another list the choices are out of
 * date, and are used only if the file was named.
 *
 * A line `cost NAME KEY=VALUE,...` has coefficients of the cost model, by which the backend estimates the time of a
 * kernel. The estimate decides where no row does, and `WEFT_MEASURE=1 weft plan` shows it. Each file overrides
 * coefficients of those before it: the defaults that weft was built with (tuned/default/), the shipped file, the
 * user's file.
 *
 *     device       read: GB/s, f32, f16, q8: TFLOP/s of a kernel that only reads or computes; launch: us of one that
 *                  does nothing
 *     OP           memory, compute: the fraction of these that kernels of an op reach, above 0, at most 1
 *     OP/VARIANT   the same for one kernel. Those that have such a line come first where they can run, by expected
 *                  time: a file has both coefficients, for all kernels of an op that may be the fastest, or for none
 *     wgmma        the cost model of wgmma GEMMs that do not pack X (cl/ops/gemm.c); wgmma_packed: of those that do
 */
#ifndef WF_TUNED_H
#define WF_TUNED_H

#include "dev/dev.h"

enum wf_tuned_op {
    WF_TUNED_GEMM,
    WF_TUNED_DECODE,
    WF_TUNED_PREFILL,
    WF_TUNED_DECODE_ASYNC, /* for calls that may use the asynchronous softmax: other kernels run them */
    WF_TUNED_PREFILL_ASYNC,
    WF_N_TUNED_OPS
};
#define WF_TUNED_ASYNC (WF_TUNED_DECODE_ASYNC - WF_TUNED_DECODE)
typedef struct wf_tuned_kind {
    const char *name;
    enum wf_op op;
    const char *keys[4]; /* names of wf_tuned_row.key; NULL: unused */
} wf_tuned_kind;
extern const wf_tuned_kind wf_tuned_kinds[WF_N_TUNED_OPS];

#define WF_TUNED_STEPS 24
#define WF_TUNED_AUTO "auto" /* in place of a kernel: the backend's own choice */
#define WF_TUNED_MOST_ROWS 65536 /* of a dense batch */
#define WF_TUNED_MOST_LENGTH 9e6 /* of a prompt or an answer, on average */
#define WF_TUNED_LEAST_COST 0.0001 /* value of a coefficient */
typedef struct wf_tuned_step {
    uint32_t from; /* > the step's before */
    char variant[24];
} wf_tuned_step;

typedef struct wf_tuned_row {
    enum wf_tuned_op kind;
    uint8_t dtype;   /* of the weights, or of K and V */
    uint32_t key[4]; /* gemm: N, K; attention: heads, KV heads, head size, decode: sequences */
    uint32_t n_steps;
    wf_tuned_step step[WF_TUNED_STEPS];
} wf_tuned_row;

typedef struct wf_tuned_load { /* tokens of a request on average */
    double prompt, generated;
} wf_tuned_load;

typedef struct wf_tuned_table {
    wf_tuned_row *rows;
    size_t n, cap;
    uint32_t dense_batch; /* 0: the file does not say */
    wf_tuned_load load;   /* 0 both: the file does not say */
    uint32_t kernels; /* wf_tuned_kernels of the device that was measured; 0: the file does not say */
    wf_cost *costs;
    size_t n_costs, cap_costs;
} wf_tuned_table;

/* Reads a file's text. info: the device that it must belong to; NULL: none, for a text without such lines. On failure
 * *out is empty: WEFT_ERR_FORMAT names the first bad line, WEFT_ERR_UNSUPPORTED is another device's file. */
weft_status wf_tuned_parse(const char *text, const struct weft_device_info *info, wf_tuned_table *out);
weft_status wf_tuned_read(const char *path, const struct weft_device_info *info, wf_tuned_table *out);
bool wf_tuned_has(const wf_tuned_table *t, const wf_tuned_row *shape); /* a row of just that shape */
/* Replaces the row of the same shape or adds it. */
weft_status wf_tuned_put(wf_tuned_table *t, const wf_tuned_row *row);
/* The same for a coefficient. */
weft_status wf_tuned_put_cost(wf_tuned_table *t, const wf_cost *cost);
/* An error if that path cannot or should not be written: a file of another kind, a folder, a device. */
weft_status wf_tuned_may_write(const char *path);
/* Replaces the whole file at once: readers see the old one or the new one. */
weft_status wf_tuned_write(const char *path, const struct weft_device_info *info, const wf_tuned_table *t);
void wf_tuned_free(wf_tuned_table *t);
/* Of a file of other kernels: what is of none, the load, stays. */
void wf_tuned_forget_kernels(wf_tuned_table *t);
/* "N=6144,K=4096" */
void wf_tuned_shape(const wf_tuned_row *row, char *buf, size_t cap);

/* A hash of the kernels that a device offers; never 0. */
uint32_t wf_tuned_kernels(wf_dev *dev);
/* A device's name for names of files: "nvidia-h200". That of a CPU has its platform and number of cores. */
void wf_device_slug(const struct weft_device_info *info, char *buf, size_t cap);
/* $XDG_CONFIG_HOME/weft/tuned/SLUG.tune or the same below ~/.config; make: with its folders. */
weft_status wf_tuned_user_path(const struct weft_device_info *info, bool make, char *buf, size_t cap);
/* select.c: the path of a file that weft ships in tuned/. False: there is none of that name. */
bool wf_tuned_shipped_path(const char *name, char *buf, size_t cap);

/* The row and size of a call, for lookups and for tuning. False: such calls are not tuned. */
bool wf_tuned_key(const wf_call *c, wf_tuned_row *row, uint32_t *size);
/* The name that a table gives for that row and size, or NULL. */
const char *wf_tuned_find(const wf_tuned_table *t, const wf_tuned_row *row, uint32_t size);

#endif
