/* cl: inside of the OpenCL backend (contract: dev/dev.h).
 *
 *   call --> configure (ops/<op>.c) --> launch --> kernel (prog.c) --> enqueue (queue.c) --> event
 *
 * A configure function is pure, from a call to a launch: which compile-time knobs, how many work-groups,
 * which arguments. That it succeeds is what "supports" means, so there is no second set of rules.
 * OpenCL 1.2 entry points only; what later versions add is reached by query.
 *
 * Files in their order, which tests/layers holds: fragments, those of nvidia/, source, launch, ops/<op>, variants,
 * costs, pick; errors, queue, cache, child, prog, prebuild; ops/clblast_run, submit; about, buf, layout, quirks, caps,
 * probe; dev. */
#ifndef WF_CL_H
#define WF_CL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "base/cache.h"
#include "dev/dev.h"
#include "dev/roofline.h"
#include "tensor/numbers.h"

typedef struct cl_dev cl_dev;

#define WF_CL_MAX_QUEUES 64
#define WF_CL_MAX_ARGS   40
#define WF_CL_MAX_KNOBS  24
#define WF_CL_MAX_WAITS  64 /* events of other queues that one call waits for */

/* ---- caps.c, quirks.c: what a device can do --------------------------------------------------------- */

/* Knob DOT of kernels/device/dot4.clh. Macros of extensions do not tell: compilers define those of other devices,
 * too. */
enum { WF_CL_DOT_PLAIN, WF_CL_DOT_KHRONOS, WF_CL_DOT_ARM, WF_CL_DOT_AMD, WF_CL_DOT_NVIDIA };

typedef struct cl_caps {
    uint32_t max_group, mem_align, local_bytes; /* work-items; bytes */
    uint32_t units; /* compute units (multiprocessors) */
    uint32_t mhz;
    bool gpu;      /* kernels choose their shapes for a GPU */
    bool fma;      /* fma() is one instruction */
    uint32_t dot;  /* whose instruction gives four products of bytes (kernels/device/dot4.clh); 0: it has none */
    bool matrix;
    bool nv_mma;   /* mma.sync m16n8k16 by inline PTX */
    uint32_t nv_local_bytes; /* of local memory (shared memory) that a work-group may declare by inline PTX */
    bool nv_wgmma; /* wgmma by PTX text: compute capability 9.0 only */
    /* bytes of a queue's scratch buffer and of its zeroed workspace from the start, so that no step has to enlarge
     * them */
    uint64_t scratch, zeroed;
    /* bytes of scratch at most that a call may take; that weights decoded there may take, of a device's memory */
    uint64_t panels, expanded;
    uint64_t cache; /* bytes of the cache in front of global memory; drivers may mean another level */
    bool registers; /* a work-item can have 256 */
    uint32_t lanes; /* work-items that share a matrix unit of kernels/matrix.clh; 0: none */
    bool copies;    /* to local memory, by kernels/device/copies.clh */
    enum wf_tier tier; /* the highest */
} cl_caps;

/* What a driver needs that others do not; rows of the table in quirks.c. */
typedef struct cl_quirks {
    const char *options;   /* more build options, or "" */
    bool no_binaries;      /* program binaries are useless or harmful: build from source each time */
    bool no_child;         /* the build helper cannot see this device */
    bool no_kernel_limit;  /* CL_KERNEL_WORK_GROUP_SIZE is wrong; reqd_work_group_size is kept */
    bool fma;              /* rounds a * b + c now once, now twice: say fma() */
    bool skip;             /* do not list the device */
    bool rolled;           /* kernels for GPUs: its compiler decides which loops are unrolled */
    uint32_t most_items;   /* of a launch that needs no other program than smaller ones do; 0: any number */
} cl_quirks;

/* One device that the loader shows. Indices are those of "opencl:P.D". */
typedef struct cl_device_ref {
    uint32_t p, d;
    cl_platform_id platform;
    cl_device_id device;
    struct weft_device_info info;
    cl_caps caps;
    cl_quirks quirks;
    char pci[16]; /* as of wf_dev */
} cl_device_ref;

/* Fills info, caps and quirks of ref->device; false (with a debug log) if weft cannot use it. */
bool wf_cl_caps(cl_device_ref *ref);
cl_quirks wf_cl_quirks(const struct weft_device_info *info);
/* Says why a platform may show no device, where that is known. */
void wf_cl_explain_no_device(const char *platform);

/* ---- compile.c: one program, in whatever process ------------------------------------------------------ */

/* Builds source for the device; on failure returns a CL error and, when log is not NULL, a malloc'ed
 * build log (or NULL). */
cl_int wf_cl_compile(cl_context ctx, cl_device_id dev, const char *source, const char *options,
                     cl_program *out, char **log);
/* The same from a device binary. */
cl_int wf_cl_load(cl_context ctx, cl_device_id dev, const void *bin, size_t size,
                  const char *options, cl_program *out);
/* The program's binary, malloc'ed; NULL if the driver gives none. */
void *wf_cl_binary(cl_program prog, size_t *size);
const char *wf_cl_error_name(cl_int err);
/* Device i of the loader's platform p with that name, or NULL. */
cl_device_id wf_cl_device_at(uint32_t p, uint32_t d, const char *name, cl_int *err);

/* A request to the build helper, followed by options, device name and source (lengths with NUL),
 * and its reply, followed by the binary or the log. */
typedef struct cl_build_request {
    uint32_t magic, p, d, seconds, options, name, source; /* seconds: then the helper ends itself */
} cl_build_request;
typedef struct cl_build_reply {
    uint32_t magic;
    int32_t err; /* CL_SUCCESS: a binary follows; else a log */
    uint64_t size;
} cl_build_reply;
#define WF_CL_MAGIC 0x77664331u /* "wfC1" */

/* ---- launches ----------------------------------------------------------------------------------------- */

typedef struct cl_knob {
    const char *name; /* a literal: -Dname=value */
    int32_t value;
} cl_knob;

struct cl_buf;
struct cl_q;
typedef struct cl_arg {
    uint8_t size; /* 0: buffer, or where buf is NULL one of the queue's: */
    bool zeroed;  /* its zeroed workspace, or its scratch buffer */
    union {
        const struct cl_buf *buf; /* looked into at enqueue only: supports() gets stand-ins */
        uint32_t u32;
        float f32;
        uint64_t u64;
    };
} cl_arg;

typedef struct cl_launch {
    cl_knob knob[WF_CL_MAX_KNOBS];
    uint32_t n_knobs;
    /* storage format of weights, whose kernels/quant file the kernel includes, or of keys and values (kernels/kv); or
     * NULL */
    const char *wtype;
    uint32_t group;      /* work-items a work-group, also knob WG */
    uint64_t groups;     /* work-groups that have work; kernels loop, so fewer are right, too */
    cl_arg arg[WF_CL_MAX_ARGS];
    uint32_t n_args;
    /* not 0: a second launch with this many work-groups follows, its last argument 1 instead of 0 */
    uint64_t then_groups;
    /* Its program has a kernel <family>_before or <family>_after with the same arguments, and a launch of it goes
     * before or follows where there are work-groups for it. */
    bool before, after;
    uint64_t before_groups, after_groups;
    uint64_t scratch, zeroed; /* bytes of the queue's buffers that it needs */
    bool c3;      /* its text is OpenCL C 3.0 */
    bool library; /* CLBlast puts the call in the queue (ops/clblast_run.c), not this kernel alone */
} cl_launch;

void wf_cl_knob(cl_launch *l, const char *name, int32_t value);
void wf_cl_act(cl_launch *l, const wf_view *in); /* knob ACT */
void wf_cl_kv(cl_launch *l, const wf_view *pool); /* the format of keys and values, and its knob */
void wf_cl_group_knobs(cl_launch *l, const cl_caps *caps, uint32_t group); /* group, knobs WG, FMA */
void wf_cl_items(cl_launch *l, uint64_t items); /* groups for that many independent work-items */
void wf_cl_columns(cl_launch *l, uint32_t rows, uint32_t n); /* groups for FOR_EACH of common.clh */
uint64_t wf_cl_row_bytes(const wf_view *v);
void wf_cl_number_knobs(cl_launch *l, const wf_numbers *); /* what numbers weights are made of */
/* The storage format of weights, a file of kernels/quant with its knobs: the launch's wtype. False: there is none. */
bool wf_cl_weight_format(cl_launch *l, const wf_view *w);
bool wf_cl_vec8_ok(const wf_view *v); /* can its rows be read and written in vectors of eight elements, 16 bytes? */
/* can its rows be read and written in vectors of four elements? an absent one can */
bool wf_cl_vec4_ok(const wf_view *v);
void wf_cl_arg_view(cl_launch *l, const wf_view *v);       /* base, offset; an absent one: offset -1 */
void wf_cl_arg_out(cl_launch *l, const wf_view *v);        /* OUT_ACT: view, is it F16? */
void wf_cl_arg_u32(cl_launch *l, uint32_t x);
void wf_cl_arg_u64(cl_launch *l, uint64_t x);
void wf_cl_arg_f32(cl_launch *l, float x);
/* ROPE_ARGS of kernels/rope.clh: table, pos and slot from `in` on, both pools from `pools` on. */
void wf_cl_arg_rope(cl_launch *l, const wf_view *in, const wf_view *pools, const wf_op_params *);
/* The scratch buffer of the queue, at least that large. Calls of one queue run one after another, so each
 * has it to itself. Its first WF_CL_ZEROED bytes are zero, and a kernel leaves them zero; the rest is anything. */
void wf_cl_arg_scratch(cl_launch *l, uint64_t bytes);
#define WF_CL_ZEROED 16384u /* SCRATCH_AT of kernels/local_bytes.clh */
/* The zeroed workspace of the queue: all of its bytes are zero, and a kernel leaves them zero. */
void wf_cl_arg_zeroed(cl_launch *l, uint64_t bytes);
/* Work-group of at most want work-items (a power of two) that the device and limit allow. */
uint32_t wf_cl_group(const cl_caps *caps, uint32_t want, uint32_t limit);

typedef struct cl_variant cl_variant;
/* Fills l for the call, or returns false: this variant cannot do it here. limit: work-items a
 * work-group at most. Must not touch the device. */
typedef bool (*cl_configure_fn)(const cl_caps *caps, const cl_variant *v, const wf_call *c,
                           uint32_t limit, cl_launch *l);
struct cl_variant {
    enum wf_op op;
    const char *name;
    enum wf_tier tier;
    uint8_t layout;      /* of the weights that it reads; products of rows read planes, too */
    const char *family;  /* kernels/<family>.cl, or made by a function; it holds a kernel of that name */
    int32_t tile[5];     /* knobs of the family, see variants.def */
    cl_configure_fn configure;
};

bool wf_cl_tile_registers(const cl_variant *); /* of wf_cl_configure_tile: does it take cl_caps.registers? */
bool wf_cl_suits_matrix(const cl_caps *, const wf_call *); /* a product by kernels/matrix.clh */
/* work-items that share a row of K elements in a norm, vec at once: products that normalise add in their order */
uint32_t wf_cl_norm_items(uint32_t k, uint32_t vec);
bool wf_cl_is_one_row(const cl_variant *);     /* of wf_cl_configure_flat: does it take one row of X, in fixed point? */
#define X(op, name, tier, layout, class, arith, flags, family, configure, ...)                                     \
    bool wf_cl_configure_##configure(const cl_caps *, const cl_variant *, const wf_call *, uint32_t, cl_launch *);
#include "cl/variants.def"
#undef X

/* ---- variants.c, pick.c: the variants of each op ------------------------------------------------------- */

/* Configures a call with a variant of its op, within the limits learnt so far. */
bool wf_cl_configure(const cl_dev *d, int variant, const wf_call *c, cl_launch *l);
size_t wf_cl_variants(wf_dev *, enum wf_op, const wf_variant **list);
const cl_variant *wf_cl_variant_at(enum wf_op op, int i); /* NULL: none */
size_t wf_cl_n_variants(enum wf_op op);
bool wf_cl_supports(wf_dev *, const wf_call *, int variant);
size_t wf_cl_rank(wf_dev *, const wf_call *, const char *class, wf_candidate_kernel *out, size_t cap);

/* ---- costs.c: expected times ---------------------------------------------------------------------------------- */

/* Coefficients of the model of products by wgmma in ops/gemm.c, which says what each is for. 0: no data, no times. */
typedef struct cl_wgmma_costs {
    struct {
        double round, latency, latency_w, latency_x; /* us */
        double memory, cache;                        /* TB/s */
        double unit;                                 /* TFLOP/s of a multiprocessor */
        double part, exchange;                       /* us for each part of K; us per MB of sums */
        double expand;                               /* us for each row of a step of quantised W */
    } wgmma;
    struct {
        /* as above; unit_x: more for each row of X; pack: us; copy: us per MB of X */
        double round, unit, unit_x, part, pack, copy;
    } wgmma_packed;
} cl_wgmma_costs;
typedef struct cl_costs {
    cl_wgmma_costs model;
    wf_roofline roofline;
} cl_costs;
/* Microseconds that a variant of wgmma is expected to take for a call; ops/gemm.c. */
double wf_cl_wgmma_time(const cl_caps *, const cl_wgmma_costs *, const cl_variant *, const wf_call *);
weft_status wf_cl_set_costs(wf_dev *, const wf_cost *, size_t n);
/* Was the variant itself measured, so that its time may be compared with others'? */
bool wf_cl_is_measured(const cl_dev *, const wf_call *, int variant);
double wf_cl_expected_us(cl_dev *, const wf_call *, int variant); /* 0: unknown */

/* ---- layout.c: weights ------------------------------------------------------------------------------------ */

enum { WF_CL_ROWS, WF_CL_FRAGMENT_MAJOR, WF_CL_PLANES };
uint64_t wf_cl_plane_bytes(enum wf_dtype, uint32_t cols); /* of a row in planes */
uint8_t wf_cl_weight_layout(wf_dev *, enum wf_dtype, uint32_t rows, uint32_t cols);
uint64_t wf_cl_weight_bytes(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols);
void wf_cl_weight_pack(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols, const void *src,
                       void *dst);

/* How weights of a format lie MMA-fragment-major (fragments.c; kernels/fragment_bytes.clh says what each number is);
 * F16 has 16 bits. */
typedef wf_numbers cl_fragments;
const cl_fragments *wf_cl_fragments(enum wf_dtype); /* NULL: they cannot */
uint32_t wf_cl_fragment_k(const cl_fragments *);     /* of K a tile */
uint32_t wf_cl_fragment_bytes(const cl_fragments *); /* of a tile of 16 rows */
/* Quantised weights, of which cols is a multiple of a tile's K. */
void wf_cl_fragments_pack(enum wf_dtype, uint32_t rows, uint32_t cols, const uint8_t *src, uint8_t *dst);

/* ---- nvidia/gemm.c: a kernel as PTX ------------------------------------------------------------------------------ */

/* The rotation of q and k by position in an epilogue: elements of a head, and how many of them turn, in pairs of
 * neighbours; {0}: there is none. */
typedef struct cl_rotation {
    int32_t head, n_rot;
} cl_rotation;
/* The program for the knobs warpgroups, pack, tile_m, batch, cuts of K (variants.def), with or without SiLU or the
 * rotation in the epilogue, and for weights that lie so; malloc'ed, NULL on shortage of memory. */
char *wf_cl_wgmma_ptx(const int32_t knob[5], bool silu, cl_rotation rope, const cl_fragments *w);
/* What a launch of it takes. */
typedef struct cl_wgmma {
    uint32_t threads, w_rows, tile_m; /* of a work-group: work-items, rows of W, rows of X */
    uint32_t tile_n;                /* columns of Y a work-group: w_rows, or with SiLU half as many */
    uint32_t resident;              /* work-groups that a multiprocessor holds at once */
    uint32_t tile_k;                /* K is a multiple of it */
    /* work-groups that share the K of a tile; parts that each adds one after the other */
    uint32_t split_k, parts;
    bool tail;                      /* only tiles of the last round share it */
    bool pack;                      /* scratch memory also holds X, of whole tiles, behind the zeroed bytes */
    uint64_t exchange_bytes;        /* of the zeroed workspace that a tile takes */
} cl_wgmma;
cl_wgmma wf_cl_wgmma_shape(const int32_t knob[5], bool silu, const cl_fragments *w);
/* The program of attention for the knobs keys, stages, async, chunk, grows (variants.def) and a head size; as above.
 * Its work-groups have so many work-items for so many packed rows; with the asynchronous softmax they take so many
 * items at most. */
enum { WF_CL_ATTENTION_THREADS = 384, WF_CL_ATTENTION_ROWS = 128, WF_CL_ATTENTION_ROUNDS = 512 };
char *wf_cl_attention_ptx(const int32_t knob[5], int32_t head_dim);

/* ---- source.c: the text of a program ------------------------------------------------------------------- */

/* What the compiler of a device with these quirks gets for a launch: the kernel with the parts that it includes in
 * their places, or generated PTX. malloc'ed; NULL with the error set. */
char *wf_cl_compose(const cl_quirks *quirks, const cl_variant *v, const cl_launch *l);
/* Its options: the launch's knobs, and what the driver wants. */
void wf_cl_options(const cl_quirks *quirks, const cl_launch *l, char *buf, size_t cap);
bool wf_cl_has_format(const char *wtype); /* is there a kernels/quant file for it? */
typedef struct cl_source {
    const char *name, *text;
} cl_source;
extern const cl_source wf_cl_sources[]; /* generated from kernels/; ends with a NULL name */
extern const char wf_cl_libexec[];          /* where the build helper is installed; generated, too */
const char *wf_cl_source(const char *name); /* NULL: none of that name */

/* ---- prog.c, prebuild.c, cache.c, child.c: kernels from sources -------------------------------------------------- */

/* One built kernel: a variant with its knobs. */
typedef struct cl_kern {
    struct cl_kern *next;
    cl_knob knob[WF_CL_MAX_KNOBS];
    uint32_t n_knobs, group; /* work-items of a work-group */
    const char *wtype;
    const cl_variant *variant;
    char id[33];   /* of its program: what its binary is kept by */
    bool library;  /* as in cl_launch: kernels of others run, too */
    cl_program program;
    cl_kernel kernel, before, after; /* as in cl_launch; or NULL */
} cl_kern;

/* The kernel for a launch, built on first use; configures again with smaller work-groups if this device
 * cannot run it with those of *l. */
weft_status wf_cl_kernel(cl_dev *d, int variant, const wf_call *c, cl_launch *l, cl_kern **out);
/* The kernel for a launch as it is; *out NULL: the device wants smaller work-groups, and wf_cl_configure knows by
 * now. */
weft_status wf_cl_kernel_of(cl_dev *d, enum wf_op op, int variant, const cl_launch *l, cl_kern **out);
/* A kernel for the backend's own use, such as a probe; the caller frees it. */
weft_status wf_cl_kernel_alone(cl_dev *d, const cl_variant *v, const cl_launch *l, cl_kern **out);
void wf_cl_kernel_free(cl_dev *d, cl_kern *k);
/* What a kernel is built for: sets it, compares it. */
void wf_cl_kernel_describe(cl_kern *k, const cl_variant *v, const cl_launch *l);
bool wf_cl_kernel_serves(const cl_kern *k, const cl_launch *l); /* of the same variant */
void wf_cl_progress(const cl_dev *d, double fraction); /* of compiling */
weft_status wf_cl_bind(wf_dev *, const wf_call *, int variant, wf_bound *out);
/* Fills l for a call of the kind that b was bound for, without a search; false: it is of another kind. */
bool wf_cl_configure_bound(const cl_dev *d, const wf_bound *b, const wf_call *c, cl_launch *l);
bool wf_cl_kernel_id(wf_dev *, const wf_bound *, char *buf, size_t cap);
void wf_cl_kernels_free(cl_dev *d);

/* Of a kernel's binary. */
wf_cache_key wf_cl_key(const struct weft_device_info *info, const char *source, const char *options);
/* The canary says "this process is loading that entry". arm: false if it cannot be written, or if a
 * process died with one in its hands (the entry is then removed). */
bool wf_cl_canary_arm(const char *dir, const wf_cache_key *key);
void wf_cl_canary_clear(const char *dir, const wf_cache_key *key);

/* The build helper, a process that may crash or hang in our place. */
typedef struct cl_child {
    int pid, fd; /* pid 0: not running */
    uint64_t used_ns;
    bool missing; /* no helper found: build here */
} cl_child;
enum cl_child_result { CL_CHILD_OK, CL_CHILD_FAILED, CL_CHILD_NONE, CL_CHILD_STOPPED };
/* Has the helper build a program. OK: *bin is malloc'ed. FAILED: the error message says why (compiler
 * error, crash or time limit). NONE: no helper could be asked. */
enum cl_child_result wf_cl_child_build(cl_dev *d, const char *source, const char *options,
                                       void **bin, size_t *size);
void wf_cl_child_stop(cl_child *c);
/* The steps of that, for who has several (prebuild.c). ask and hear are false and NULL where it died, hung until the
 * deadline or spoke nonsense, and when all is to stop; then only stop() is left to do. */
#define WF_CL_LOOK_MS 100 /* how often to ask whether to stop */
bool wf_cl_child_start(cl_child *c); /* if it does not run; false: there is none */
uint64_t wf_cl_child_deadline(const cl_dev *d); /* of a build that begins now */
bool wf_cl_child_ask(const cl_dev *d, const cl_child *c, const char *source, const char *options, uint64_t deadline);
/* binary or log, NUL-terminated and malloc'ed */
void *wf_cl_child_hear(const cl_child *c, cl_build_reply *a, uint64_t deadline);
void wf_cl_child_kill(cl_child *c); /* it ends while others work; stop() then waits for that */
/* prebuild.c; see prebuild() of dev.h. */
void wf_cl_prebuild(wf_dev *, const wf_call *calls, size_t n);

/* ---- errors.c, queue.c, buf.c, submit.c -------------------------------------------------------------------------- */

typedef struct cl_buf {
    wf_buf base;
    cl_mem mem;
} cl_buf;

/* A buffer that grows to what the launches so far needed; wf_cl_reserve makes it large enough for all that are
 * bound. */
typedef struct cl_growable {
    cl_mem mem;
    uint64_t bytes;
} cl_growable;

typedef struct cl_q {
    wf_queue base;
    cl_command_queue q;
    uint32_t slot; /* in cl_dev.queue */
    uint64_t id;   /* of all queues that the device ever had, since slots are used again */
    bool dirty;    /* has commands that were not flushed */
    cl_growable scratch, zeroed;
} cl_q;

typedef struct cl_ev {
    wf_event base;
    cl_event ev;   /* of the last command that signals it; NULL: done */
    uint32_t slot; /* of the queue of that command, which may be gone by now; */
    uint64_t id;   /* then its slot is free, or of a queue with another id */
    uint64_t begin, end; /* of the command waited for last, on a device that profiles; */
    bool timed;          /* if they are known */
    bool mark;           /* NVIDIA's driver tells times of barriers that have nothing to do with them */
} cl_ev;

struct cl_dev {
    wf_dev base;
    cl_device_ref ref;
    cl_costs costs;
    cl_context ctx;
    cl_q *queue[WF_CL_MAX_QUEUES];
    uint64_t n_queues; /* ever created */
    uint64_t scratch, zeroed; /* bytes of a queue's buffers that a call bound so far needs at most */
    cl_q *own;     /* the backend's own queue, to touch new buffers */
    char cache[512]; /* folder of kernel binaries; "": none */
    cl_child child;
    uint32_t n_built;
    bool clblast;  /* CLBlast has been called for it */
    struct {
        cl_kern *kern;
        uint32_t limit; /* work-items a work-group at most, learnt from builds; 0: none */
    } var[WF_N_OPS][WF_MAX_VARIANTS];
};

/* Turns a CL error into a status with the message "call: ERROR_NAME", and marks the device as lost
 * unless it is a shortage of memory. */
weft_status wf_cl_fail(cl_dev *d, cl_int err, const char *fmt, ...) WF_PRINTF(3, 4);
weft_status wf_cl_check_lost(const cl_dev *d);

weft_status wf_cl_buf_create(wf_dev *, uint64_t, wf_buf **);
weft_status wf_cl_host_create(wf_dev *, uint64_t size, wf_buf **);
void wf_cl_buf_destroy(wf_dev *, wf_buf *);
weft_status wf_cl_queue_create(wf_dev *, bool only_copies, wf_queue **);
void wf_cl_queue_destroy(wf_dev *, wf_queue *);
weft_status wf_cl_event_create(wf_dev *, wf_event **);
void wf_cl_event_destroy(wf_dev *, wf_event *);
weft_status wf_cl_write(wf_queue *, wf_buf *, uint64_t, const void *, uint64_t, wf_event *const *, uint32_t,
                        wf_event *);
weft_status wf_cl_read(wf_queue *, wf_buf *, uint64_t, void *, uint64_t, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cl_copy_rows(wf_queue *, bool out, const wf_view *, void *, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cl_fill(wf_queue *, wf_buf *, uint64_t, uint64_t, uint32_t);
weft_status wf_cl_submit(wf_queue *, const wf_call *);
weft_status wf_cl_launch(wf_queue *, const wf_call *, const wf_bound *);
weft_status wf_cl_reserve(wf_queue *, uint64_t *bytes);
weft_status wf_cl_mark(wf_queue *, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cl_flush(wf_queue *);
weft_status wf_cl_wait(wf_event *, uint32_t timeout_ms);
weft_status wf_cl_poll(wf_event *, bool *done);
weft_status wf_cl_event_times(wf_event *, uint64_t *begin, uint64_t *end);
/* Puts the launches of a call in a queue; of c only waits, signal, started and groups count. */
weft_status wf_cl_enqueue(cl_q *, const wf_call *c, const cl_kern *, const cl_launch *, const char *name);

/* For commands that others than wf_cl_enqueue put in a queue: enlarges the scratch buffer to at least this many bytes;
 * makes `signal` (or NULL) stand for the command just enqueued. */
weft_status wf_cl_scratch(cl_q *, uint64_t bytes);
void wf_cl_arm(wf_event *signal, cl_q *, cl_event);

/* ---- ops/clblast.c and clblast_run.c, or clblast_none.c: a variant without a kernel of ours ---------------------- */

bool wf_cl_has_clblast(void);
/* Puts a call in the queue. WEFT_ERR_UNSUPPORTED: CLBlast refuses it, and the device is well. */
weft_status wf_cl_clblast_run(cl_q *, const wf_call *, int variant);
/* What CLBlast holds of contexts ends here. Other devices of the process that use it build again. */
void wf_cl_clblast_close(cl_dev *);

/* ---- about.c -------------------------------------------------------------------------------------------------- */

void wf_cl_about(wf_dev *, enum wf_op, int variant, wf_kernel_about *out);
weft_status wf_cl_variant_source(wf_dev *, const wf_call *, int variant, char **out);

/* ---- probe.c ------------------------------------------------------------------------------------------------ */

weft_status wf_cl_measure(wf_dev *, wf_ceilings *out);

#endif
