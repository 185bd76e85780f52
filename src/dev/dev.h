/* dev: the device contract. A backend is one struct wf_backend and one table of functions; everything
 * above sees only this header.
 *
 * The unit of work is one call (a nano-operation, NanoFlow section 4.1) on one queue, with events it waits for and an
 * event it signals; ordering belongs to exec. The functions named wf_* here are the front: they validate and then call
 * the backend, which trusts its arguments.
 *
 * Threads: one thread at a time uses a device and whatever was created from it. Listing devices is thread-safe.
 * Errors are values. After WEFT_ERR_DEVICE or WEFT_ERR_TIMEOUT the device is lost: close it. Otherwise WEFT_ERR_ARG is
 * a call that breaks the contract, WEFT_ERR_UNSUPPORTED one for which there is no kernel, WEFT_ERR_NOMEM a shortage of
 * memory. Ownership: who creates a buffer, queue or event destroys it, with nothing of it in flight or after the device
 * is lost, before the device is closed. A lost device may still run the call that did not end, and nothing that was
 * submitted behind it.
 *
 * Ops (M rows; all matrices are row-major, [rows, cols]; "act" is F32 or F16, each operand its own; a residual has the
 * dtype of the output)
 *
 *   GET_ROWS   in  table [V, K] any dtype; ids [M] I32; add [M, K] F32 or absent   out y [M, K] act
 *              y[m] = table[ids[m]] * p.gain (0: 1) + add[m]: embedding lookup, of positions too, and gathering the
 * rows that want logits. An id outside the table gives a row of NaN, never a wild read. RMSNORM    in  x [M, G K] act;
 * w [K] F32; residual [M, G K] act or absent   out y [M, G K] act y = x / sqrt(mean(x^2) + p.eps) * w + residual for
 * each group of K columns by itself: one group a row, or one a head. residual may be y itself (same storage). LAYERNORM
 * in  x [M, K] act; w [K] F32; b [K] F32             out y [M, K] act y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) +
 * p.eps) * w + b GEMM       in  X [M, K] act; W [N, K] any weight dtype; bias [N] F32 or absent; residual [M, N] act or
 * absent; norm [K] F32 or absent; table, pos and slot of ROPE_KV or absent out Y [M, N] act; norm_ws [M, K] act or
 * absent; gemm_ws [M, N] act or absent; K, V pools of ROPE_KV or absent Y = X W^T + bias + residual. residual may be Y
 * itself (same storage). Fused: with norm, X is replaced by RMSNORM(X, norm, p.eps). With p.silu, W holds gate and up,
 *              Y is [M, N / 2] = SILU_MUL of the product, and there is no residual. With p.rope, W holds q, k and v, Y
 * is the q of the product's ROPE_KV, which writes to the pools, and there is neither residual nor SiLU. norm_ws comes
 * with norm, gemm_ws with p.silu or p.rope. They are workspaces, whose contents mean nothing to the caller: where the
 * device has no fused kernel, the front decomposes the call, and its parts hand their results over there. A call
 * without them runs only where it has. A fused kernel does not round these intermediate results. With p.silu, Y may be
 * the first columns of gemm_ws (same storage). ROPE_KV    in  qkv [M, (Hq + 2 Hkv) D] act; table [positions, n_rot]
 * F32, pairs (cos, sin); pos [M] I32; slot [M] I32 out q [M, Hq D] act; K, V pools [pages, Hkv * P * D] Rotates the
 * first p.n_rot elements of each head of q and k by table[pos]. Pair i is the elements (2i, 2i+1) (p.neox 0) or (i, i +
 * n_rot/2) (p.neox 1), which no variant of a device with adjacent_pairs need support, here or behind a GEMM. Writes k
 * and v of row m to slot slot[m] = page * P + index in page; slot < 0: no write. q is not scaled. ATTENTION  in  q [M,
 * Hq D] act; K, V pools; seq [M] I32; pos [M] I32; indptr [S + 1] I32; pages [*] I32; windows [Hq] I32 or absent; sinks
 * [Hq] F32 or absent; around [M] I32 or absent out o [M, Hq D] act; recomputed [1] I32 or absent Row m attends to keys
 * 0..pos[m] of its sequence s = seq[m]; key j lies in page pages[indptr[s] + j / P] at index j % P. o = softmax(q.k *
 * p.scale) v; query head h uses KV head h / (Hq / Hkv). With p.softcap c, a score s is c tanh(s / c)
 * (wf_attention_score). With windows (sparse attention as in MoA), a query head attends to the first p.sink keys and to
 * the last windows[h] (0 or less: to all), as wf_attends says; keys in between are its masked range. With around, which
 * comes with windows and which a device's plainest variant alone need support, it attends to keys less than windows[h]
 * from around[m], before it or behind. Keys are read once for all query heads of a KV head, so a
 * call takes time for the longest window of each group. With sinks, exp(sinks[h]) is added to the sum that the weights
 * of query head h are divided by, as if there were one more key, with that score and a v of zeros. A soft cap does not
 * change it. Slots of keys that a row does not attend to may hold NaN, which must not affect the result. Asynchronous
 * variants sum exp(q.k * p.scale - p.phi) and do not look for the maximum of each row. Where the largest q.k * p.scale
 * - p.phi of a row and head is not inside (p.phi_lo, p.phi_hi), or not inside the part of it that the variant can
 * represent, the same call computes it again with its own maximum, and adds 1 to recomputed. Other variants leave it
 * unchanged. SILU_MUL   in  gu [M, 2F] act: gate in columns 0..F, up in F..2F   out y [M, F] act y = f(gate) * up, with
 * f the p.activation, SiLU or GELU's approximation (see ACTIVATE); or of WF_CLAMPED_SWIGLU gate / (1 +
 * exp(-WF_SWIGLU_ALPHA gate)) * (up + 1), with gate at most WF_SWIGLU_LIMIT and up within +- of it With p.groups (0: 1)
 * of columns, each group of gu is its gate, then its up, and gives one of y: a token's experts. With one group, y may
 * be gate (same storage). ACTIVATE   in  x [M, K] act                                   out y [M, K] act y = f(x), with
 * f the p.activation: x / (1 + exp(-x)) (SiLU), max(x, 0) (ReLU), x (1 + erf(x / sqrt(2))) / 2 (GELU), or GELU's
 * approximation x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, or p.softcap tanh(x / p.softcap). y may be x (same
 * storage). ROUTER     in  x [M, E] F32; or x [M, K] act, W [E, K] any weight dtype, norm [K] F32 out ids [M, T] I32;
 * weights [M, T] F32; y [M, K] act or absent; scores_ws [M, E] F32 or absent Of a token's scores for E experts, the T
 * largest in descending order, the lower number first among equals, NaN behind all others. weights are softmax(x) of
 * these experts, or with p.sigmoid 1 / (1 + exp(-x)); with p.normalise divided by their sum; times p.scale. A row of x
 * with a NaN gives weights of NaN. Fused: with W, norm and y, which come together, y is RMSNORM(x, norm, p.eps), which
 * the experts read, and the scores are y W^T. scores_ws is the workspace as of GEMM. GROUPED_GEMM  in  X [M, K] or [M,
 * T K] act; W [E N, K] any weight dtype, expert e in rows e N..(e + 1) N; ids [M, T] I32; bias [E, N] F32 or absent out
 * Y [M, T N] act; gemm_ws [M, T N] act or absent Columns t N..(t + 1) N of row m are x W_e^T + bias_e of expert e =
 * ids[m, t]; x is row m of X, or of it columns t K..(t + 1) K. An id that no expert has gives NaN. One call reads the
 * weights of the experts that its ids name. Fused: with p.silu, the N rows of an expert are its gate, then its up, Y is
 * [M, T N / 2], of each expert SILU_MUL of the product, and gemm_ws, which comes with it, is the workspace as of GEMM.
 *   WEIGHTED_SUM  in  x [M, T N] act; weights [M, T] F32; residual [M, N] act or absent   out y [M, N] act
 *              y = residual + sum over t of weights[m, t] x[m, t N..(t + 1) N]. residual may be y (same storage).
 *   ARGMAX     in  x [M, K] F32                                   out y [M] I32
 *              y[m] = the first column that holds the largest x[m]; -1 - k where x[m, k] is the first non-finite value.
 *   SAMPLE     in  x [M, K] F32; params [M, 3] F32: temperature, top_p, min_p; key [M, 5] I32: top_k, seed and
 *                  counter, each low word first; indptr [M + 1] I32; ids [E] I32; adjust [E, 3] F32: before,
 *                  repeat, after (the last three together or absent)
 *              out y [M] I32; z [M, K] F32
 *              z is x with adjusted logits: for e in indptr[m]..indptr[m + 1], z[m, ids[e]] = r + after, where r is
 *              (x + before) / repeat if x + before is positive, else (x + before) * repeat. A row names no column
 * twice; ids outside the row are ignored. The candidates are, in descending order of z (the lower column first among
 * equals), the first top_k (0: all); of these the fewest whose probabilities add up to top_p (0 or 1: all); of these
 * those with z >= max + ln(min_p) (0: all). y[m] is sampled from softmax(z / temperature) of the candidates: the first
 * column at which the cumulative sum exceeds u = wf_philox_unit(seed, counter). Temperature 0: ARGMAX of z. A row of x
 * with a non-finite value gives y -1 - k, as ARGMAX does, and z = x. PAGE_COPY  in  from [pages, n] F16; src [M] I32;
 * dst [M] I32   out to [pages, n] F16 Page dst[m] of to = page src[m] of from, bit by bit: copies, gathers (dst 0, 1,
 * ...) or scatters pages of KV pools. `to` may be `from` (same storage). No page may be written twice, or both read and
 * written. A page outside either pool is not copied. TOKEN_SUBST  in  ids [M] I32; from [K] I32                    out
 * y [M] I32 y[m] = ids[m], or from[-1 - ids[m]] where ids[m] is negative: a token that the step before sampled and the
 *              host has not seen yet. An index outside `from` gives -1. y may be ids (same storage).
 *
 * KV pools are head-major inside a page: element (page, head, index, d) is at
 * page * stride + (head * P + index) * D + d, with P = p.page_tokens and D = p.head_dim (HND; K is already rotated).
 * stride may exceed the page: the memory in between belongs to others, such as other layers. The K and V of a call have
 * the same stride and the same dtype, F16 or Q8_0. In Q8_0 D is a multiple of 32, a page takes as many bytes as that
 * many weights, but its values come first, each a byte in the order above, and then the scales of 32 values each, for
 * vector loads to be aligned (tensor/kv.h).
 */
#ifndef WF_DEV_H
#define WF_DEV_H

#include "base/base.h"
#include "tensor/tensor.h"

#include <math.h>

enum wf_op {
#define X(id, ...) WF_OP_##id,
#include "dev/ops.def"
#undef X
    WF_N_OPS
};
/* Of each op: the index of each input and output, by name, and how many there are. */
#define OPERAND(id, name, what) WF_##id,
#define X(id, name, class, in, out) enum { in WF_N_##id##_IN }; enum { out WF_N_##id##_OUT };
#include "dev/ops.def"
#undef X
#undef OPERAND

#define WF_MAX_IN  10
#define WF_MAX_OUT 5

enum wf_operand_kind { /* ops.def says what they mean */
    WF_OPERAND_ACT = 1, WF_OPERAND_F32 = 2, WF_OPERAND_F16 = 4, WF_OPERAND_I32 = 8, WF_OPERAND_WEIGHT = 16,
    WF_OPERAND_OPTIONAL = 32, WF_OPERAND_SHARED = 64, WF_OPERAND_BY_ROW = 128, WF_OPERAND_KV = 256
};
typedef struct wf_operand_info {
    const char *name; /* NULL: no such operand */
    uint16_t what;    /* of enum wf_operand_kind */
} wf_operand_info;

/* What bounds a node of a graph (NanoFlow, table 2); copies run between device and host. */
enum wf_class { WF_CLASS_COMPUTE, WF_CLASS_MEMORY, WF_CLASS_NETWORK, WF_CLASS_COPY, WF_CLASS_HOST, WF_N_CLASSES };
typedef struct wf_op_info {
    const char *name;
    enum wf_class class;
    uint8_t n_in, n_out;
    wf_operand_info in[WF_MAX_IN], out[WF_MAX_OUT];
} wf_op_info;
extern const wf_op_info wf_ops[WF_N_OPS];
int wf_op_input(enum wf_op, enum wf_operand_kind); /* the first input of that kind; -1: none */

/* Capability tiers, each including the ones before; 0 is the lowest, base. cl/kernels/README.md says what they mean for
 * OpenCL. A CPU has base, simd and matrix. */
enum wf_tier { WF_TIER_BASE, WF_TIER_DOT, WF_TIER_SIMD = WF_TIER_DOT, WF_TIER_NEUTRAL, WF_TIER_MATRIX };

typedef struct wf_dev wf_dev;
typedef struct wf_buf wf_buf;     /* device memory */
typedef struct wf_queue wf_queue; /* runs calls in the order of submission, concurrently with other queues */
typedef struct wf_event wf_event; /* re-armed by each call that signals it; complete at first */

/* A matrix in device memory. Absent optional operand: buf NULL. A vector [n] is contiguous: rows * cols
 * = n, stride = cols. */
typedef struct wf_view {
    wf_buf *buf;
    uint64_t offset;     /* bytes */
    uint32_t rows, cols;
    uint32_t stride;     /* elements from row to row, >= cols; cols for block formats, but for KV pools */
    uint8_t dtype;       /* enum wf_dtype */
    uint8_t layout;      /* 0: rows as in the file; else as weight_layout() of the backend returned */
} wf_view;

enum wf_activation {
    WF_SILU, WF_RELU, WF_GELU, WF_GELU_TANH, WF_SOFTCAP, WF_N_ACTIVATIONS,
    WF_CLAMPED_SWIGLU = WF_N_ACTIVATIONS /* of SILU_MUL and GROUPED_GEMM alone: gpt-oss's */
};
#define WF_SWIGLU_ALPHA 1.702f
#define WF_SWIGLU_LIMIT 7.0f

typedef struct wf_op_params {
    float eps, scale;
    float softcap;   /* ATTENTION: of scores, 0: none; ACTIVATE: of WF_SOFTCAP */
    float gain;      /* GET_ROWS: factor of the table's rows; 0: 1 */
    uint32_t activation; /* enum wf_activation: of ACTIVATE; of the gate of SILU_MUL and of products with silu (of GEMM:
                            SiLU or GELU_TANH) */
    uint32_t n_head, n_kv_head, head_dim, n_rot, neox, page_tokens;
    uint32_t max_kv; /* ATTENTION hint: no row attends to more keys than this; 0: unknown */
    uint32_t max_q;  /* ATTENTION hint: most rows of one sequence in this call; 1: pure decode; 0: unknown */
    uint32_t sink;   /* ATTENTION with windows: the first keys, to which every row attends; at most WF_MAX_SINK */
    uint32_t groups; /* SILU_MUL: of columns, each with gate and up; 0: one */
    uint32_t sigmoid, normalise; /* ROUTER: what weights are made of */
    uint32_t silu;   /* GEMM, GROUPED_GEMM: the product is gate and up of a SILU_MUL */
    uint32_t rope;   /* GEMM: the product is qkv of a ROPE_KV */
    float phi, phi_lo, phi_hi; /* ATTENTION, asynchronous softmax: the unified maximum, and the range of a
                                  row's largest q.k * scale - phi in which it may be used; phi_lo = phi_hi
                                  = 0: never. Of a range wider than 13 the upper 13 are used */
} wf_op_params;

/* May the first output be the first columns of an operand that is SHARED (ops.def)? Not q of a rotation, and of several
 * groups only the first has its results where its gate was. */
static inline bool wf_may_share(const wf_op_params *p)
{
    return !p->rope && p->groups <= 1;
}

#define WF_MAX_SINK (1u << 30)
/* ATTENTION: does a row at position pos attend to key j by a query head with that window? */
static inline bool wf_attends(int32_t window, uint32_t sink, int32_t pos, int32_t j)
{
    return j <= pos && (window <= 0 || (uint32_t)j < sink || j > pos - window);
}

/* The same of a row whose windows lie around a position. */
static inline bool wf_attends_around(int32_t window, uint32_t sink, int32_t pos, int32_t around, int32_t j)
{
    return j <= pos && (window <= 0 || (uint32_t)j < sink || (j - around < window && around - j < window));
}

/* ATTENTION: the longest window of the query heads of a KV head; 0: one of them attends to all keys. */
static inline int32_t wf_longest_window(const wf_op_params *p, const int32_t *windows, uint32_t kv_head)
{
    uint32_t n = p->n_head / p->n_kv_head;
    int32_t longest = 0;
    for (uint32_t h = kv_head * n; h < (kv_head + 1) * n; h++) {
        if (windows[h] <= 0) return 0;
        longest = WF_MAX(longest, windows[h]);
    }
    return longest;
}

/* ATTENTION: the score of a query and a key, from their product. */
static inline double wf_attention_score(const wf_op_params *p, double product)
{
    double s = product * p->scale;
    return p->softcap > 0 ? p->softcap * tanh(s / p->softcap) : s;
}

/* ATTENTION: what an asynchronous softmax is told, with scores in powers of two: its weights are 2^(score - base), so
 * that the largest score that p.phi_hi allows gives 2^most, and of a row the largest must be above base + low, which is
 * `least` or what p.phi_lo allows. False: p has no range. */
static inline bool wf_attention_base(const wf_op_params *p, float most, float least, float *base, float *low)
{
    const float log2e = 1.44269504f;
    if (!(p->phi_lo < p->phi_hi)) return false;
    *base = (p->phi + p->phi_hi) * log2e - most;
    *low = WF_MAX((p->phi_lo - p->phi_hi) * log2e + most, least);
    return true;
}

/* wf_submit and wf_launch copy the call, its views and its list of waits, so it may be on the stack. The buffers and
 * events that it names must live until it has completed. */
typedef struct wf_call {
    enum wf_op op;
    int variant;     /* of the backend's list for op; -1: the front chooses, backends never see it */
    uint32_t max_groups; /* work-groups (cores on the CPU, of those that are free) to use at most: the resource share;
                            0: all */
    wf_op_params p;
    wf_view in[WF_MAX_IN], out[WF_MAX_OUT];
    wf_event *const
        *waits; /* [n_waits], at most 64; what signals them must have been submitted before. A new event is complete */
    uint32_t n_waits;
    wf_event *signal;       /* or NULL; re-armed at submission: complete when this call is */
    wf_event *started; /* or NULL; else signalled by the first of several kernels that a call runs as: where the front
                          decomposes a fused call. Where it is one kernel, the event is left as it was */
} wf_call;

/* One kernel and all that bind() of the backend decided about it for a call. */
typedef struct wf_bound {
    int64_t variant; /* as wide as the pointer: bindings are compared by their bytes */
    void *kernel; /* the backend's; valid as long as the device */
} wf_bound;

/* The piece of a call that one kernel computes: the whole call; or, of a fused one, in this order its norm, the rest
 * after the norm as one kernel or the plain product, and what follows the product. */
enum wf_piece { WF_PIECE_WHOLE, WF_PIECE_NORM, WF_PIECE_REST, WF_PIECE_PRODUCT, WF_PIECE_AFTER };
#define WF_MAX_PIECES 3

/* The kernels that a call runs as, in order. A binding serves calls with the same op, operands present, dtypes,
 * layouts, columns, strides and work-groups, whose operands are aligned as those of the call for which it was made, and
 * with as many rows, or any number between two for which the backend bound the same. Their max_kv and max_q may be
 * lower. */
typedef struct wf_binding {
    uint8_t n;
    struct {
        uint8_t piece, op; /* enum wf_piece; enum wf_op */
        wf_bound b;
    } part[WF_MAX_PIECES];
} wf_binding;

#define WF_MAX_VARIANTS 96 /* of an op on a device */

/* What a variant's products are computed in; sets its tolerance (check.c). Sums are always F32. */
enum wf_arith {
    WF_ARITH_F32,
    WF_ARITH_F16,
    WF_ARITH_Q8, /* integers, of activations in 15 bits or more */
    WF_ARITH_I8, /* bytes: activations in 8 bits, a scale for 32 */
    WF_N_ARITH
};

enum wf_variant_flag {
    WF_REFERENCE = 1,       /* plain loops that others are compared with: too slow to be worth measuring */
    WF_BATCH_DEPENDENT = 2, /* the bits of a row depend on what else is in the call */
    WF_ASYNC_SOFTMAX = 4,   /* ATTENTION: uses the unified maximum phi, and counts the rows that leave its range */
    WF_ON_REQUEST = 8,      /* runs only where it is forced, or was measured as the fastest */
    WF_MODELLED = 16, /* a model of its kind expects its times: they tell the kernels of that kind apart, for any number
                         of rows */
    /* Its class has kernels for few rows and for many: with params.deterministic it takes precedence. */
    WF_FOR_ANY_ROWS = 32,
};

/* One implementation of one op. The backend's list is its variants.def. */
typedef struct wf_variant {
    const char *name;
    enum wf_tier tier;
    uint8_t layouts;    /* weight layouts that it reads, a bit each; bit 0: rows */
    const char *class;  /* invariance class: two variants of one class give bit-identical rows */
    uint8_t arith;      /* enum wf_arith */
    uint8_t flags;      /* of enum wf_variant_flag */
} wf_variant;

static inline bool wf_reads_layout(const wf_variant *v, uint8_t layout)
{
    return v->layouts >> layout & 1;
}

/* A variant that a backend offers for a call. */
typedef struct wf_candidate_kernel {
    int variant;
    float us; /* microseconds that it is expected to take; 0: unknown */
} wf_candidate_kernel;

/* One coefficient of the cost model by which rank() estimates times: measured data of a device (tuned/), which the
 * selector hands to the backend. */
typedef struct wf_cost {
    char of[40], name[24]; /* "wgmma", "latency" */
    double value;          /* above 0 */
    uint32_t line;         /* of its file */
} wf_cost;

typedef struct wf_open_params {
    enum wf_tier
        tier; /* use no variant above this. Zero is WF_TIER_BASE, not the best: wf_tier_parse(NULL, ...) gives that */
    uint32_t threads;        /* CPU: cores, which the queues share; 0: all, or one less of 16 and more */
    uint64_t max_alloc;      /* 0: the device's own limit */
    uint32_t watchdog_ms;    /* limit of one build of a kernel and of one wait; 0: 60000 */
    const char *force;       /* "op=variant,op=variant": the selector takes these wherever they can run */
    const char *tuned;       /* file of measured choices (tuned.h); "none": none; NULL: the device's, if any */
    bool no_kernel_cache;
    bool check_calls;        /* wf_launch checks each call, as wf_submit does */
    bool deterministic; /* batch-invariant: only kernels of one class for each shape, in which a row does not depend on
                           the rest of the batch */
    bool f16_residual;       /* models keep the residual stream in F16 (wf_dev.residual) */
    bool profile;            /* queues note when commands begin and end, which may cost time */
    weft_progress_fn on_progress; /* of building kernels; may be NULL */
    void *user;
} wf_open_params;

/* Where a variant comes from, for those who read kernels. */
typedef struct wf_kernel_about {
    const char *layout; /* of the weights that it reads, in words */
    const char *needs;  /* of a device, in words; "": nothing */
    char file[64];      /* of its source, from the root of the sources */
} wf_kernel_about;

/* The most that a device can do, measured on request. */
typedef struct wf_ceilings {
    double read;            /* bytes per second of a kernel that only reads memory */
    double ops[WF_N_ARITH]; /* operations per second in each arithmetic, a multiply-add being two; 0: no such unit */
} wf_ceilings;

/* ---- what a backend provides ---------------------------------------------------------------------- */

typedef struct wf_dev_fns {
    void (*close)(wf_dev *);

    /* Memory. size <= max_alloc. */
    weft_status (*buf_create)(wf_dev *, uint64_t size, wf_buf **);
    void (*buf_destroy)(wf_dev *, wf_buf *); /* of a lost device also while a call uses it; event_destroy alike */
    weft_status (*buf_wrap)(wf_dev *, const void *host, uint64_t size, uint64_t together, wf_buf **); /* optional: use
        host memory in place, read-only; it outlives the buffer. WEFT_ERR_UNSUPPORTED where a copy serves better */

    weft_status (*host_create)(wf_dev *, uint64_t size, wf_buf **); /* optional: pinned host memory, at ->host, so that
        copies overlap with other work; freed by buf_destroy */

    /* Queues and events. waits/signal as in wf_call. write/read: the caller must not touch the host memory until
     * the signal fires (signal NULL: until a later event of the queue). If it is not wf_host memory, a driver may
     * block until the waits and the copy are over. */
    weft_status (*queue_create)(wf_dev *, bool only_copies, wf_queue **); /* only_copies: no kernel will run there */
    void (*queue_destroy)(wf_dev *, wf_queue *); /* after its work has ended or the device is lost */
    weft_status (*event_create)(wf_dev *, wf_event **);
    void (*event_destroy)(wf_dev *, wf_event *);
    weft_status (*write)(wf_queue *, wf_buf *, uint64_t off, const void *src, uint64_t size, wf_event *const *waits,
                         uint32_t n_waits, wf_event *signal);
    weft_status (*read)(wf_queue *, wf_buf *, uint64_t off, void *dst, uint64_t size, wf_event *const *waits,
                        uint32_t n_waits, wf_event *signal);
    weft_status (*fill)(wf_queue *, wf_buf *, uint64_t off, uint64_t size, uint32_t pattern); /* multiple of 4 */
    weft_status (*submit)(wf_queue *, const wf_call *);
    weft_status (*launch)(wf_queue *, const wf_call *, const wf_bound *); /* optional: puts the bound kernel in the
        queue; no search, no compiler. Absent: submit with the variant */
    weft_status (*reserve)(wf_queue *, uint64_t *bytes); /* optional: takes the device memory that the largest of all
        calls bound so far needs besides its operands, so that launch allocates none; *bytes: what the queue has */
    weft_status (*mark)(wf_queue *, wf_event *const *waits, uint32_t n_waits, wf_event *signal); /* no work */
    weft_status (*transfer)(wf_queue *, uint64_t bytes, wf_event *const *waits, uint32_t n_waits,
                            wf_event *signal); /* optional: what
sending, receiving or reducing `bytes` bytes costs; there is no other process yet, so nothing moves */
    weft_status (*flush)(wf_queue *);
    weft_status (*wait)(wf_event *, uint32_t timeout_ms); /* WEFT_ERR_TIMEOUT: the device is lost */
    weft_status (*poll)(wf_event *, bool *done);
    void (*resume)(wf_dev *); /* optional, see wf_resume */
    weft_status (*times)(wf_event *, uint64_t *begin, uint64_t *end); /* optional, see wf_event_times */

    /* Kernels. */
    size_t (*variants)(wf_dev *, enum wf_op, const wf_variant **list);
    bool (*supports)(wf_dev *, const wf_call *,
                     int variant); /* can this variant run these shapes, dtypes, layouts here? */
    /* The variants that can run the call and are worth it (not those on request), of this class where it is not NULL,
     * best first, at most cap of them; their number. */
    size_t (*rank)(wf_dev *, const wf_call *, const char *class, wf_candidate_kernel *out, size_t cap);
    weft_status (*set_costs)(wf_dev *, const wf_cost *, size_t n); /* optional: replaces these coefficients, and leaves
        the others as they were. WEFT_ERR_FORMAT, with the line of the first that the backend does not have */
    weft_status (*bind)(wf_dev *, const wf_call *, int variant,
                        wf_bound *out);                         /* optional: builds it, and decides what is left
to decide for the call. WEFT_ERR_UNSUPPORTED, and supports() says so from now on: it showed that it cannot run */
    void (*prebuild)(wf_dev *, const wf_call *calls, size_t n); /* optional: compiles side by side what bind() and
        submit() will want for these calls, each with its variant, and leaves it where they look. What it cannot build,
        or is not to, is left to them, with its errors */
    bool (*kernel_id)(wf_dev *, const wf_bound *, char *buf, size_t cap);   /* optional: what tells this kernel from
          others of the same   build of weft and the same device, as text of one line. False: unknown. Self-tests of
          kernels   with an id are kept between starts */
    void (*about)(wf_dev *, enum wf_op, int variant, wf_kernel_about *out); /* optional: where it comes from */
    weft_status (*source)(wf_dev *, const wf_call *, int variant,
                          char **out); /* optional: the text, malloc'ed, that the device's
compiler gets for calls like this one. WEFT_ERR_UNSUPPORTED: the variant is not for such calls on any device */

    /* Weight layout, optional (absent: rows as in the file). pack is a pure host function, which any thread may call.
     * Bands of WF_LAYOUT_BAND rows lie one behind the other: whole bands packed by themselves are that part of the
     * whole. */
    uint8_t (*weight_layout)(wf_dev *, enum wf_dtype, uint32_t rows, uint32_t cols);
    uint64_t (*weight_bytes)(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols);
    void (*weight_pack)(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols,
                        const void *src, void *dst);

    /* Optional: measures the device's ceilings, for about a second. Nothing else may run meanwhile. */
    weft_status (*measure)(wf_dev *, wf_ceilings *out);
} wf_dev_fns;

/* What folders to the left attach to a device. The front calls these functions and knows no more of them; each struct
 * is the first member of that folder's own. close comes before the backend's close(). */
typedef struct wf_selector { /* src/select: which variant runs a call */
    int (*pick)(wf_dev *, const wf_call *);
    void (*drop)(wf_dev *, const wf_call *, int variant);
    bool (*dropped)(wf_dev *, const wf_call *, int variant);
    void (*forget)(wf_dev *); /* what picks have decided for later ones, which drop() makes it forget, too */
    int (*forced)(wf_dev *, enum wf_op); /* the variant that params.force names for that op; -1: none */
    int (*required)(wf_dev *, enum wf_op); /* likewise, but not by "*", which takes the ops that it can */
    void (*close)(wf_dev *);
} wf_selector;
typedef struct wf_verifier { /* src/verify: which kernels have passed their self-test */
    void (*close)(wf_dev *);
} wf_verifier;

/* What it took to make kernels ready since the device was opened; whoever does a part counts it. */
typedef struct wf_kernel_work {
    uint32_t built, kept, tested;         /* programs compiled; taken from the kernel cache; self-tests */
    uint32_t tested_before;               /* self-tests that were passed at an earlier start */
    uint32_t
        prebuilt; /* programs compiled side by side, into the kernel cache: once taken from there they count as kept */
    uint64_t prebuilt_ns, built_ns, kept_ns,
        tested_ns; /* tested_ns: with what was built, taken or looked up for them */
} wf_kernel_work;

#define WF_LAYOUT_BAND 16

/* The first member of every backend's device struct. */
enum wf_stacking {
    WF_STACK_NONE,
    WF_STACK_ALIKE, /* those of one format */
    WF_STACK_MIXED, /* those of different formats, too, as one format that holds all of them (tensor/joint.h) */
};

struct wf_dev {
    const wf_dev_fns *fns;
    struct weft_device_info info;
    wf_open_params params;
    uint64_t max_alloc;   /* the smaller of the device's and params' */
    uint32_t align;       /* bytes (a power of two) at which matrices should begin; a column slice of one
                           begins at any element */
    enum wf_dtype act;    /* activation dtype that its kernels prefer: F32 or F16 */
    enum wf_dtype residual; /* dtype of the residual stream of models; set by the front */
    uint8_t stack_weights; /* enum wf_stacking: matrices that share their input run faster as one (QKV, gate+up) */
    bool adjacent_pairs;   /* pairs that it rotates are neighbours (ROPE_KV, p.neox 0): rows of q and k are to be loaded
                              in that order */
    bool has_fused_gemm;  /* has kernels for fused GEMMs; else the front decomposes all of them */
    bool has_fused_router; /* likewise for the fused ROUTER */
    bool timing_only;     /* computes nothing (null): its results must not be compared */
    bool saves_memory; /* set by the engine before it asks for layouts: weights lie as in the file where another layout
                          takes more bytes */
    bool lost;            /* set by the front; a backend that finds out first may set it, too */
    double modest_rate;   /* operations per microsecond that every kernel should reach where nothing was measured; 0:
                             unknown */
    char pci[16];         /* its address on the bus, "0000:19:00.0", as far as its driver tells; "": unknown */
    uint64_t cache;       /* bytes of the last-level cache, as far as the device tells; 0: unknown */
    wf_selector *selector; /* NULL: the first that the backend ranks is taken, and nothing is dropped */
    wf_verifier *verifier; /* NULL: nothing has been tested yet */
    wf_kernel_work kernel_work;
    wf_stop_fn unwanted;   /* see wf_dev_stop_by; NULL: all work is wanted */
    void *unwanted_user;
};
struct wf_queue {
    wf_dev *dev;
}; /* likewise first in the backend's */
struct wf_event {
    wf_dev *dev;
};
struct wf_buf {
    wf_dev *dev;
    uint64_t size;
    void *host; /* memory the host may touch while nothing that runs uses it (CPU, null), or NULL */
};

typedef struct wf_backend {
    const char *name;
    size_t (*list)(struct weft_device_info *out, size_t cap); /* as weft_devices; must not fail */
    /* Opens device i of that list. p is complete: never NULL, no zero watchdog. The device is zeroed
     * memory but for what the backend fills in; params must be a copy of *p, strings included. */
    weft_status (*open)(size_t i, const wf_open_params *p, wf_dev **out);
} wf_backend;
#define X(name) extern const wf_backend wf_backend_##name;
#include "dev/backends.def"
#undef X

/* ---- the front (dev.c): validates, then calls the backend ------------------------------------------ */

/* spec: NULL or "auto" (best GPU, else the CPU), "cpu", "gpu", "opencl", "opencl:P.D", "null", or part of a name,
 * case-insensitive. WEFT_ERR_NODEVICE lists what exists; auto falls back to the CPU with a warning. Copies *p. */
weft_status wf_dev_open(const char *spec, const wf_open_params *p, wf_dev **out);
void wf_dev_close(wf_dev *);
size_t wf_dev_list(struct weft_device_info *out, size_t cap); /* all backends but null */
weft_status wf_tier_parse(const char *name, enum wf_tier *out); /* NULL: MATRIX */
const char *wf_tier_name(enum wf_tier);
const char *wf_tier_name_on(const wf_dev *, enum wf_tier); /* as info.tiers has it: a CPU's dot is simd */

weft_status wf_buf_create(wf_dev *, uint64_t size, wf_buf **);
/* together: bytes of all that is to be wrapped, this among it, which would be copied together. WEFT_ERR_UNSUPPORTED:
 * copy it. */
weft_status wf_buf_wrap(wf_dev *, const void *host, uint64_t size, uint64_t together, wf_buf **);
void wf_buf_destroy(wf_buf *);
/* Host memory that copies can use while other work runs: a GPU's driver blocks where memory is not pinned. Zeroed;
 * plain memory where the backend has nothing better. */
typedef struct wf_host {
    void *data;
    wf_buf *pinned; /* or NULL */
} wf_host;
weft_status wf_host_create(wf_dev *, uint64_t size, wf_host *out);
void wf_host_destroy(wf_dev *, wf_host *); /* leaks it if the device is lost, which may still write to it */
weft_status wf_queue_create(wf_dev *, wf_queue **);
weft_status
wf_copy_queue_create(wf_dev *,
                     wf_queue **); /* for wf_write and wf_read alone: takes no memory or threads for kernels */
void wf_queue_destroy(wf_queue *);
weft_status wf_event_create(wf_dev *, wf_event **);
void wf_event_destroy(wf_event *);
weft_status wf_write(wf_queue *, wf_buf *, uint64_t off, const void *src, uint64_t size, wf_event *const *waits,
                     uint32_t n_waits, wf_event *signal);
weft_status wf_read(wf_queue *, wf_buf *, uint64_t off, void *dst, uint64_t size, wf_event *const *waits,
                    uint32_t n_waits, wf_event *signal);
weft_status wf_fill(wf_queue *, wf_buf *, uint64_t off, uint64_t size, uint32_t pattern);
/* Checks op, operand count, dtypes, shapes, alignment and bounds of every view; then submits. Returns at once; may
 * block while a queue is full. */
weft_status wf_submit(wf_queue *, const wf_call *);
/* Takes what wf_launch of any call bound so far needs besides its operands, so that it allocates nothing. Adds to
 * *bytes what the queue has of device memory. */
weft_status wf_queue_reserve(wf_queue *, uint64_t *bytes);
weft_status wf_mark(wf_queue *, wf_event *const *waits, uint32_t n_waits, wf_event *signal);
/* Sends, receives or combines this many bytes with other processes. There are none yet, so nothing moves; only the null
 * device says what it would cost. */
weft_status wf_transfer(wf_queue *, uint64_t bytes, wf_event *const *waits, uint32_t n_waits, wf_event *signal);
weft_status wf_flush(wf_queue *);
weft_status wf_wait(wf_event *, uint32_t timeout_ms);
/* Is it complete? Does not wait. As of wf_wait, WEFT_ERR_CANCELLED: results are void. */
weft_status wf_poll(wf_event *, bool *done);
/* fn (NULL: nobody) says whether nobody wants any more what is in flight. A backend with resume asks it now and then
 * while the host waits, in wf_wait or for room in a queue. From then on what the queues hold is not run to its end: its
 * events fire, its results are void, and wf_wait returns WEFT_ERR_CANCELLED, until wf_resume, which is called with
 * nothing in flight; a lost device does not resume. Other backends do not ask. */
void wf_dev_stop_by(wf_dev *, wf_stop_fn fn, void *user);
bool wf_dev_unwanted(const wf_dev *); /* asks it: for backends */
void wf_resume(wf_dev *);
/* When the command that signalled ev last began and ended, in nanoseconds of the device's own clock. Only once ev, or
 * a later event of its queue, has been waited for. WEFT_ERR_UNSUPPORTED: the backend cannot tell, which is common for
 * wf_mark and commands without bytes or rows, or the device was opened without `profile`. */
weft_status wf_event_times(wf_event *, uint64_t *begin, uint64_t *end);
weft_status wf_finish(wf_queue *); /* all work so far, under the watchdog */

/* What a call is besides its op's plain product: GEMM with norm, p.silu or p.rope, GROUPED_GEMM with p.silu, and
 * ROUTER with a matrix: the norm and the product of its scores in front of the choice. */
enum wf_fusion { WF_FUSES_NORM = 1, WF_FUSES_SILU = 2, WF_FUSES_ROPE = 4, WF_N_FUSIONS = 8 };
uint32_t wf_fusion_of(const wf_call *);
bool wf_is_fused(const wf_call *);
bool wf_is_workspace(enum wf_op, int out); /* Is that output a workspace of fused calls? */
/* GROUPED_GEMM: rows of W that an expert has, of a Y with so many columns. */
static inline uint32_t wf_expert_rows(const wf_op_params *p, uint32_t y_cols, uint32_t used)
{
    return y_cols / used * (p->silu ? 2 : 1);
}
/* Expected number of different experts that this many tokens choose, if each chooses `used` of them, all equally
 * likely. */
double wf_experts_read(double experts, double used, double tokens);
/* Checks a call without running it: what wf_submit checks. */
weft_status wf_call_check(const wf_dev *, const wf_call *);
/* Submits the kernels that wf_bind (verify/bind.h) chose, in every step. Waits go to the first kernel; started and
 * signal are as in wf_call. It checks nothing without params.check_calls, so the call must be one that the binding
 * serves. */
weft_status wf_launch(wf_queue *, const wf_call *, const wf_binding *);
/* Bytes that a measurement cycles through, so that no operand is still in a cache: more than twice the last-level
 * cache. On a GPU 4 GiB, since its driver may not tell the size, and its cache keeps a part of cyclic accesses. At most
 * a quarter of the memory. */
uint64_t wf_cache_flush_bytes(const wf_dev *);
/* The variant that runs a call: the selector's choice, else the backend's; -1: none. */
int wf_pick(wf_dev *, const wf_call *);
/* Microseconds that a variant is expected to take for a call, as rank() says; 0: unknown. */
double wf_expected_us(wf_dev *, const wf_call *, int variant);
/* Never picks this variant again for calls fused as this one is; one that is not fused: for none. It is wrong or does
 * not build. */
void wf_drop(wf_dev *, const wf_call *, int variant);
/* The layout in which a weight matrix of that op serves the device best; one that the op's forced kernel can read. 0:
 * rows */
uint8_t wf_weight_layout(wf_dev *, enum wf_op, enum wf_dtype, uint32_t rows, uint32_t cols);
int wf_variant_find(wf_dev *, enum wf_op, const char *name); /* -1: none */
const wf_variant *wf_variant_at(wf_dev *, enum wf_op, int variant);

#endif
