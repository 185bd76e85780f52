/* cpu: the inside of the CPU backend.
 *
 * A queue is a team: a leader thread that takes commands in order, and helpers that join it in each
 * call. A kernel is SPMD: every member of the team runs the same function with its own id. An event
 * counts how often it was armed and fired, so that it may be re-armed while an older wait is
 * pending.
 *
 * Results do not depend on the number of threads: each output element is computed by one thread in
 * an order fixed by the shapes alone.
 */
#ifndef WF_CPU_H
#define WF_CPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "dev/dev.h"

/* ---- buf.c: see wf_dev_fns ------------------------------------------------------------------- */

weft_status wf_cpu_buf_create(wf_dev *, uint64_t size, wf_buf **);
weft_status wf_cpu_buf_wrap(wf_dev *, const void *host, uint64_t size, wf_buf **);
void wf_cpu_buf_destroy(wf_dev *, wf_buf *);
/* root: where the control groups are mounted; text: as /proc/self/cgroup gives it, taken apart. UINT64_MAX: no limit. */
uint64_t wf_cpu_group_left(const char *root, char *text);

/* ---- layout.c: see wf_dev_fns ---------------------------------------------------------------- */

#define WF_CPU_Q8_0X16  1     /* the layout */
#define WF_Q8_0X16_ROWS  16u
#define WF_Q8_0X16_K     64u   /* columns of a group */
#define WF_Q8_0X16_GROUP 1088u /* its bytes */

static inline size_t wf_q8_0x16_bytes(uint32_t k)
{
    return (size_t)(k / WF_Q8_0X16_K) * WF_Q8_0X16_GROUP;
}

uint8_t wf_cpu_weight_layout(wf_dev *, enum wf_dtype, uint32_t rows, uint32_t cols);
uint64_t wf_cpu_weight_bytes(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols);
void wf_cpu_weight_pack(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols, const void *src, void *dst);
/* A row of weights in strips, decoded. */
void wf_cpu_q8_0x16_row(const wf_view *w, uint32_t row, float *out);

/* ---- sync.c: wait for a word to change, first spinning, then asleep -------------------------- */

typedef struct wf_eventcount {
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* on the monotonic clock */
    atomic_uint sleepers;
} wf_eventcount;

bool wf_eventcount_init(wf_eventcount *);
void wf_eventcount_free(wf_eventcount *);
/* Returns once *word is no longer `old`. Whoever changes the word notifies afterwards. */
void wf_eventcount_wait(wf_eventcount *, atomic_uint *word, uint32_t old);
void wf_eventcount_notify(wf_eventcount *);
/* One turn of a spinning wait that began at *since (0: now begins); false when it is time to sleep.
 */
bool wf_cpu_spin(uint64_t *since);

typedef struct wf_cpu_event {
    wf_event base;
    wf_eventcount eventcount;
    uint32_t armed;    /* times submitted; the host's own */
    atomic_uint fired; /* times signalled, changed under eventcount.mutex */
    uint64_t begin_ns, end_ns; /* of the command that signalled it last; written before it fires */
} wf_cpu_event;

weft_status wf_cpu_event_create(wf_dev *, wf_event **);
void wf_cpu_event_destroy(wf_dev *, wf_event *);
void wf_cpu_event_fire(wf_cpu_event *);
weft_status wf_cpu_event_times(wf_event *, uint64_t *begin, uint64_t *end);
bool wf_cpu_event_due(const wf_cpu_event *, uint32_t target);
/* Waits until fired `target` times or until the monotonic time `until`: true if fired. */
bool wf_cpu_event_wait(wf_cpu_event *, uint32_t target, uint64_t until_ns);

/* ---- team.c ---------------------------------------------------------------------------------- */

typedef struct wf_cpu_team wf_cpu_team;

/* What a kernel sees. */
typedef struct wf_cpu_work {
    const wf_call *call;
    wf_cpu_team *team;
    uint32_t id, n; /* this member of n */
    void *shared; /* scratch of the team, as large as the variant's scratch() asked for, 64-byte aligned */
    void *per_thread;  /* scratch of this member */
} wf_cpu_work;

typedef void (*wf_cpu_run_fn)(const wf_cpu_work *);
typedef struct wf_cpu_scratch_size {
    size_t shared, per_thread; /* bytes */
} wf_cpu_scratch_size;

weft_status wf_cpu_team_create(uint32_t size, wf_cpu_team **);
void wf_cpu_team_destroy(wf_cpu_team *);
uint32_t wf_cpu_team_size(const wf_cpu_team *);
/* Runs on n members (the caller is member 0) and returns when all are through. */
weft_status wf_cpu_team_run(wf_cpu_team *, wf_cpu_run_fn, const wf_call *, uint32_t n, wf_cpu_scratch_size);
void wf_cpu_barrier(const wf_cpu_work *); /* all members of the call */
/* Takes the next `chunk` of this member's share of 0..total, then of what others have left of theirs;
 * false when none is left. Once a call. */
bool wf_cpu_next(const wf_cpu_work *, uint32_t total, uint32_t chunk, uint32_t *begin,
                 uint32_t *end);
/* This member's fixed share of 0..total, in multiples of unit. */
void wf_cpu_part(const wf_cpu_work *, uint32_t total, uint32_t unit, uint32_t *begin,
                 uint32_t *end);

/* ---- dev.c ----------------------------------------------------------------------------------- */

typedef struct wf_cpu_variant {
    wf_variant pub;
    wf_cpu_run_fn run;
    /* How well it suits the call: 0 cannot run it, else the highest is picked. */
    uint32_t (*rank)(const wf_call *);
    wf_cpu_scratch_size (*scratch)(
        const wf_call *); /* scratch; NULL: none. Called when the operands are ready */
} wf_cpu_variant;

typedef struct wf_cpu_dev {
    wf_dev base;
    uint32_t threads;
    pthread_mutex_t mutex; /* of the next two */
    char message[256];
    weft_status failed_status;
    atomic_bool failed; /* a call failed while it ran: its results are lost */
} wf_cpu_dev;

void wf_cpu_fail(wf_cpu_dev *, weft_status,
                 const char *message);  /* from a leader; the first one stays */
weft_status wf_cpu_check(wf_cpu_dev *); /* that failure, as this thread's error */
const wf_cpu_variant *wf_cpu_variant_of(enum wf_op, size_t *n);

/* ---- probe.c --------------------------------------------------------------------------------- */

weft_status wf_cpu_measure(wf_dev *, wf_ceilings *out);
void wf_cpu_about(wf_dev *, enum wf_op, int variant, wf_kernel_about *out);

/* ---- queue.c --------------------------------------------------------------------------------- */

weft_status wf_cpu_queue_create(wf_dev *, bool only_copies, wf_queue **);
void wf_cpu_queue_destroy(wf_dev *, wf_queue *);
weft_status wf_cpu_write(wf_queue *, wf_buf *, uint64_t, const void *, uint64_t, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_read(wf_queue *, wf_buf *, uint64_t, void *, uint64_t, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_fill(wf_queue *, wf_buf *, uint64_t, uint64_t, uint32_t);
weft_status wf_cpu_submit(wf_queue *, const wf_call *);
weft_status wf_cpu_launch(wf_queue *, const wf_call *, const wf_bound *);
weft_status wf_cpu_mark(wf_queue *, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_flush(wf_queue *);
weft_status wf_cpu_wait(wf_event *, uint32_t);

/* ---- operands -------------------------------------------------------------------------------- */

static inline bool wf_cpu_has(const wf_view *v)
{
    return v->buf != NULL;
}
static inline void *wf_cpu_at(const wf_view *v)
{
    return (char *)v->buf->host + v->offset;
}
/* Start of a row, for any dtype. */
static inline void *wf_cpu_row(const wf_view *v, uint64_t row)
{
    const wf_dtype_info *t = &wf_dtypes[v->dtype];
    return (char *)wf_cpu_at(v) + row * (v->stride / t->block) * t->block_bytes;
}
/* One element of an activation row (F32 or F16). */
static inline float wf_cpu_get(const wf_view *v, const void *row, uint64_t i)
{
    return v->dtype == WF_F32 ? ((const float *)row)[i]
                              : wf_half_to_float(((const uint16_t *)row)[i]);
}
static inline void wf_cpu_set(const wf_view *v, void *row, uint64_t i, float x)
{
    if (v->dtype == WF_F32)
        ((float *)row)[i] = x;
    else
        ((uint16_t *)row)[i] = wf_float_to_half(x);
}

#endif
