/* dev: the device contract. A backend is one struct wf_backend and one table of functions; everything above sees only
 * this header.
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
 * ops.def is the table of ops: what each takes, gives and means. M is the number of rows of a call. All matrices are
 * row-major, [rows, cols].
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
    /* enum wf_activation: of ACTIVATE; of the gate of SILU_MUL and of products with silu (of GEMM: SiLU or
     * GELU_TANH). */
    uint32_t activation;
    uint32_t n_head, n_kv_head, head_dim, n_rot, neox, page_tokens;
    uint32_t max_kv; /* ATTENTION hint: no row attends to more keys than this; 0: unknown */
    uint32_t max_q;  /* ATTENTION hint: most rows of one sequence in this call; 1: pure decode; 0: unknown */
    uint32_t sink;   /* ATTENTION with windows: the first keys, to which every row attends; at most WF_MAX_SINK */
    uint32_t groups; /* SILU_MUL: of columns, each with gate and up; 0: one */
    uint32_t sigmoid, normalise; /* ROUTER: what weights are made of */
    uint32_t silu;   /* GEMM, GROUPED_GEMM: the product is gate and up of a SILU_MUL */
    uint32_t rope;   /* GEMM: the product is qkv of a ROPE_KV */
    /* ATTENTION, asynchronous softmax: the unified maximum, and the range of a row's largest q.k * scale - phi in which
     * it may be used; phi_lo = phi_hi = 0: never. Of a range wider than 13 the upper 13 are used. */
    float phi, phi_lo, phi_hi;
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
    int variant;      /* of the backend's list for op; -1: the front chooses, backends never see it */
    /* Work-groups (cores on the CPU, of those that are free) to use at most: the resource share; 0: all. */
    uint32_t max_groups;
    wf_op_params p;
    wf_view in[WF_MAX_IN], out[WF_MAX_OUT];
    /* [n_waits], at most 64; what signals them must have been submitted before. A new event is complete. */
    wf_event *const *waits;
    uint32_t n_waits;
    wf_event *signal; /* or NULL; re-armed at submission: complete when this call is */
    /* Or NULL; else signalled by the first of several kernels that a call runs as, where the front decomposes a fused
     * call or a variant has several. Where it is one kernel, the event is left as it was. */
    wf_event *started;
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
    /* A model of its kind expects its times: they tell the kernels of that kind apart, for any number of rows. */
    WF_MODELLED = 16,
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
    /* Use no variant above this. Zero is WF_TIER_BASE, not the best: wf_tier_parse(NULL, ...) gives that. */
    enum wf_tier tier;
    uint32_t threads;        /* CPU: cores, which the queues share; 0: all, or one less of 16 and more */
    uint64_t max_alloc;      /* 0: the device's own limit */
    uint32_t watchdog_ms;    /* limit of one build of a kernel and of one wait; 0: 60000 */
    const char *force;       /* "op=variant,op=variant": the selector takes these wherever they can run */
    const char *tuned;       /* file of measured choices (tuned.h); "none": none; NULL: the device's, if any */
    bool no_kernel_cache;
    bool check_calls;        /* wf_launch checks each call, as wf_submit does */
    /* Batch-invariant: only kernels of one class for each shape, in which a row does not depend on the rest of the
     * batch. */
    bool deterministic;
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
    /* Optional: use host memory in place, read-only; it outlives the buffer. WEFT_ERR_UNSUPPORTED where a copy serves
     * better. */
    weft_status (*buf_wrap)(wf_dev *, const void *host, uint64_t size, uint64_t together, wf_buf **);

    /* Optional: pinned host memory, at ->host, so that copies overlap with other work; freed by buf_destroy. */
    weft_status (*host_create)(wf_dev *, uint64_t size, wf_buf **);

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
    /* Optional: rows of a matrix, between which others lie, to or from host memory without gaps. Absent: row by row. */
    weft_status (*copy_rows)(wf_queue *, bool out, const wf_view *, void *host, wf_event *const *waits,
                             uint32_t n_waits, wf_event *signal);
    weft_status (*fill)(wf_queue *, wf_buf *, uint64_t off, uint64_t size, uint32_t pattern); /* multiple of 4 */
    weft_status (*submit)(wf_queue *, const wf_call *);
    /* Optional: puts the bound kernel in the queue; no search, no compiler. Absent: submit with the variant. */
    weft_status (*launch)(wf_queue *, const wf_call *, const wf_bound *);
    /* Optional: takes the device memory that the largest of all calls bound so far needs besides its operands, so that
     * launch allocates none; *bytes: what the queue has. */
    weft_status (*reserve)(wf_queue *, uint64_t *bytes);
    weft_status (*mark)(wf_queue *, wf_event *const *waits, uint32_t n_waits, wf_event *signal); /* no work */
    /* Optional: what sending, receiving or reducing `bytes` bytes costs; there is no other process yet, so nothing
     * moves. */
    weft_status (*transfer)(wf_queue *, uint64_t bytes, wf_event *const *waits, uint32_t n_waits, wf_event *signal);
    weft_status (*flush)(wf_queue *);
    weft_status (*wait)(wf_event *, uint32_t timeout_ms); /* WEFT_ERR_TIMEOUT: the device is lost */
    weft_status (*poll)(wf_event *, bool *done);
    void (*resume)(wf_dev *); /* optional, see wf_resume */
    weft_status (*times)(wf_event *, uint64_t *begin, uint64_t *end); /* optional, see wf_event_times */

    /* Kernels. */
    size_t (*variants)(wf_dev *, enum wf_op, const wf_variant **list);
    /* Can this variant run these shapes, dtypes, layouts here? */
    bool (*supports)(wf_dev *, const wf_call *, int variant);
    /* The variants that can run the call and are worth it (not those on request), of this class where it is not NULL,
     * best first, at most cap of them; their number. */
    size_t (*rank)(wf_dev *, const wf_call *, const char *class, wf_candidate_kernel *out, size_t cap);
    /* Optional: replaces these coefficients, and leaves the others as they were. WEFT_ERR_FORMAT, with the line of the
     * first that the backend does not have. */
    weft_status (*set_costs)(wf_dev *, const wf_cost *, size_t n);
    /* Optional: builds it, and decides what is left to decide for the call. WEFT_ERR_UNSUPPORTED, and supports() says
     * so from now on: it showed that it cannot run. */
    weft_status (*bind)(wf_dev *, const wf_call *, int variant, wf_bound *out);
    /* Optional: compiles side by side what bind() and submit() will want for these calls, each with its variant, and
     * leaves it where they look. What it cannot build, or is not to, is left to them, with its errors. */
    void (*prebuild)(wf_dev *, const wf_call *calls, size_t n);
    /* Optional: what tells this kernel from others of the same build of weft and the same device, as text of one line.
     * False: unknown. Self-tests of kernels with an id are kept between starts. */
    bool (*kernel_id)(wf_dev *, const wf_bound *, char *buf, size_t cap);
    void (*about)(wf_dev *, enum wf_op, int variant, wf_kernel_about *out); /* optional: where it comes from */
    /* Optional: the text, malloc'ed, that the device's compiler gets for calls like this one. WEFT_ERR_UNSUPPORTED: the
     * variant is not for such calls on any device. */
    weft_status (*source)(wf_dev *, const wf_call *, int variant, char **out);

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
    /* Programs compiled side by side, into the kernel cache: once taken from there they count as kept. */
    uint32_t prebuilt;
    /* tested_ns: with what was built, taken or looked up for them. */
    uint64_t prebuilt_ns, built_ns, kept_ns, tested_ns;
} wf_kernel_work;

#define WF_LAYOUT_BAND 16

/* Whether matrices that share their input run faster as one (QKV, gate and up). */
enum wf_stacking {
    WF_STACK_NONE,
    WF_STACK_ALIKE, /* those of one format */
    WF_STACK_MIXED, /* those of different formats, too, as one format that holds all of them (tensor/joint.h) */
};

/* The first member of every backend's device struct. */
struct wf_dev {
    const wf_dev_fns *fns;
    struct weft_device_info info;
    wf_open_params params;
    uint64_t max_alloc;   /* the smaller of the device's and params' */
    /* Bytes (a power of two) at which matrices should begin; a column slice of one begins at any element. */
    uint32_t align;
    enum wf_dtype act;    /* activation dtype that its kernels prefer: F32 or F16 */
    enum wf_dtype residual; /* dtype of the residual stream of models; set by the front */
    uint8_t stack_weights; /* enum wf_stacking */
    /* Pairs that it rotates are neighbours (ROPE_KV, p.neox 0): rows of q and k are to be loaded in that order. */
    bool adjacent_pairs;
    bool has_fused_gemm;  /* has kernels for fused GEMMs and GROUPED_GEMMs; else graphs have none */
    bool has_fused_router; /* likewise for the fused ROUTER */
    bool timing_only;     /* computes nothing (null): its results must not be compared */
    uint64_t taken; /* bytes that its engine has there beside this device; set by the engine before it is laid out */
    /* Set by the engine before it asks for layouts: weights lie as in the file where another layout takes more
     * bytes. */
    bool saves_memory;
    bool lost;            /* set by the front; a backend that finds out first may set it, too */
    /* Operations per microsecond that every kernel should reach where nothing was measured; 0: unknown. */
    double modest_rate;
    char pci[16];         /* its address on the bus, "0000:19:00.0", as far as its driver tells; "": unknown */
    uint64_t cache;       /* bytes of the last-level cache, as far as the device tells; 0: unknown */
    wf_selector *selector; /* NULL: the first that the backend ranks is taken, and nothing is dropped */
    wf_verifier *verifier; /* NULL: nothing has been tested yet */
    wf_kernel_work kernel_work;
    wf_stop_fn unwanted;  /* see wf_dev_stop_by; NULL: all work is wanted */
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
/* For wf_write and wf_read alone: takes no memory or threads for kernels. */
weft_status wf_copy_queue_create(wf_dev *, wf_queue **);
void wf_queue_destroy(wf_queue *);
weft_status wf_event_create(wf_dev *, wf_event **);
void wf_event_destroy(wf_event *);
weft_status wf_write(wf_queue *, wf_buf *, uint64_t off, const void *src, uint64_t size, wf_event *const *waits,
                     uint32_t n_waits, wf_event *signal);
weft_status wf_read(wf_queue *, wf_buf *, uint64_t off, void *dst, uint64_t size, wf_event *const *waits,
                    uint32_t n_waits, wf_event *signal);
/* A matrix to host memory (out), where its rows lie without gaps, or from there: wf_read or wf_write of its rows. */
weft_status wf_copy_rows(wf_queue *, bool out, const wf_view *, void *host, wf_event *const *waits, uint32_t n_waits,
                         wf_event *signal);
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
