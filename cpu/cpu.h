/* cpu: internals of the CPU backend.
 *
 * A queue is a leader, a thread that executes commands in order, and for each call a team of cores that join it: the
 * device has one pool of cores, and no core is in two teams at once. Kernels are SPMD: every thread of the team runs
 * the same function with its own id. An event counts how often it was armed and fired, so that it can be re-armed while
 * an older wait is pending.
 *
 * Results do not depend on the number of threads: one thread computes each output element, in an order that depends
 * only on shapes.
 */
#ifndef WF_CPU_H
#define WF_CPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "dev/dev.h"
#include "dev/roofline.h"
#include "tensor/kv.h"

/* ---- buf.c: see wf_dev_fns ------------------------------------------------------------------- */

weft_status wf_cpu_buf_create(wf_dev *, uint64_t size, wf_buf **);
weft_status wf_cpu_buf_wrap(wf_dev *, const void *host, uint64_t size, uint64_t together, wf_buf **);
void wf_cpu_buf_destroy(wf_dev *, wf_buf *);

/* ---- layout.c: see wf_dev_fns ---------------------------------------------------------------- */

#define WF_CPU_Q8_0X16  1     /* layout id: 16 rows interleaved */
#define WF_Q8_0X16_ROWS  16u
#define WF_Q8_0X16_K     64u   /* columns of a group */
#define WF_Q8_0X16_GROUP 1088u /* its bytes */

static inline size_t wf_q8_0x16_bytes(uint32_t k)
{
    return (size_t)(k / WF_Q8_0X16_K) * WF_Q8_0X16_GROUP;
}

uint8_t wf_cpu_weight_layout(wf_dev *, enum wf_dtype, uint32_t rows, uint32_t cols);
uint64_t wf_cpu_weight_bytes(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols);
void wf_cpu_weight_pack(wf_dev *, uint8_t layout, enum wf_dtype, uint32_t rows, uint32_t cols, const void *src,
                        void *dst);
/* Decodes one row of 16-row interleaved weights. */
void wf_cpu_q8_0x16_row(const wf_view *w, uint32_t row, float *out);

/* ---- sync.c: eventcount: waits for a word to change, first spinning, then sleeping -------------------------- */

typedef struct wf_eventcount { /* all 0 at first */
    atomic_uint sleepers;
    atomic_uint wakes; /* the futex */
} wf_eventcount;

/* Returns once *word != old. The writer must call notify after changing the word. */
void wf_eventcount_wait(wf_eventcount *, atomic_uint *word, uint32_t old);
/* The same, at the latest at the monotonic time `until`. */
void wf_eventcount_wait_until(wf_eventcount *, atomic_uint *word, uint32_t old, uint64_t until_ns);
void wf_eventcount_notify(wf_eventcount *);
/* One iteration of a spinning wait that started at *since (0: starts now); false when it is time to sleep. */
bool wf_cpu_spin(uint64_t *since);

typedef struct wf_cpu_event {
    wf_event base;
    /* Whoever sees the event fired may destroy it, so the one that fires it must not touch it then. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;   /* monotonic clock */
    uint32_t sleepers;     /* under the mutex */
    uint32_t armed;        /* times submitted; accessed only by the host */
    atomic_uint fired;     /* times signalled, changed under the mutex */
    uint64_t begin_ns, end_ns; /* of the last command that signalled it; written before it fires */
} wf_cpu_event;

weft_status wf_cpu_event_create(wf_dev *, wf_event **);
void wf_cpu_event_destroy(wf_dev *, wf_event *);
void wf_cpu_event_fire(wf_cpu_event *);
weft_status wf_cpu_event_times(wf_event *, uint64_t *begin, uint64_t *end);
bool wf_cpu_event_due(const wf_cpu_event *, uint32_t target);
/* Waits until fired `target` times or until the monotonic time `until`: true if fired. */
bool wf_cpu_event_wait(wf_cpu_event *, uint32_t target, uint64_t until_ns);

/* ---- pool.c: see pool.h ---------------------------------------------------------------------- */

typedef struct wf_cpu_pool wf_cpu_pool;
#define WF_CPU_MOST_THREADS 256u /* of a pool */

weft_status wf_cpu_pool_create(uint32_t size, wf_cpu_pool **);
void wf_cpu_pool_destroy(wf_cpu_pool *); /* after its teams; NULL: nothing */
/* The same, but devices whose threads would be more than the machine has cores share a pool of that size: their calls
 * take turns then, in place of threads that wait for each other's. Thread-safe. */
weft_status wf_cpu_pool_take(uint32_t size, wf_cpu_pool **);
void wf_cpu_pool_leave(wf_cpu_pool *);
uint32_t wf_cpu_pool_size(const wf_cpu_pool *);

/* ---- team.c ---------------------------------------------------------------------------------- */

typedef struct wf_cpu_team wf_cpu_team;

/* Arguments of a kernel. */
typedef struct wf_cpu_work {
    const wf_call *call;
    wf_cpu_team *team;
    uint32_t id, n; /* thread id of n */
    void *shared; /* scratch of the team, of the size that the variant's scratch() returned, 64-byte aligned */
    void *per_thread;  /* scratch of this thread */
} wf_cpu_work;

typedef void (*wf_cpu_run_fn)(const wf_cpu_work *);
typedef struct wf_cpu_scratch_size {
    size_t shared, per_thread; /* bytes */
} wf_cpu_scratch_size;

/* skip (NULL: nobody): once it is true, wf_cpu_next ends the loops of calls. */
weft_status wf_cpu_team_create(wf_cpu_pool *, const atomic_bool *skip, wf_cpu_team **);
void wf_cpu_team_destroy(wf_cpu_team *); /* NULL: nothing */
uint32_t wf_cpu_team_size(const wf_cpu_team *); /* the cores that it can have */
/* Runs on at most n cores of those that are free, of which the caller is thread 0, and returns when all are done. Waits
 * while none is free. */
weft_status wf_cpu_team_run(wf_cpu_team *, wf_cpu_run_fn, const wf_call *, uint32_t n, wf_cpu_scratch_size);
/* Runs a kernel on the calling thread alone, with scratch memory of the caller's, inside another one. */
void wf_cpu_run_alone(wf_cpu_run_fn, const wf_call *, void *shared, void *per_thread);
void wf_cpu_barrier(const wf_cpu_work *); /* waits for all threads of the call */
/* Takes the next `chunk` of this thread's share of 0..total, then steals from the shares of others; false when none is
 * left, or nobody wants the rest. Use for one loop per call, the one that computes the results. */
bool wf_cpu_next(const wf_cpu_work *, uint32_t total, uint32_t chunk, uint32_t *begin, uint32_t *end);
/* A chunk for wf_cpu_next: a multiple of unit, at most `most`, with which all threads have equally many chunks, as far
 * as that goes. */
uint32_t wf_cpu_chunk(const wf_cpu_work *, uint32_t total, uint32_t unit, uint32_t most);
/* This thread's fixed share of 0..total, in multiples of unit. */
void wf_cpu_part(const wf_cpu_work *, uint32_t total, uint32_t unit, uint32_t *begin, uint32_t *end);

/* ---- dev.c ----------------------------------------------------------------------------------- */

typedef struct wf_cpu_variant {
    wf_variant pub;
    wf_cpu_run_fn run;
    /* Suitability for the call: 0: cannot run it; the highest is selected. */
    uint32_t (*rank)(const wf_call *);
    wf_cpu_scratch_size (*scratch)(const wf_call *); /* NULL: none. Called when the operands are ready */
} wf_cpu_variant;

typedef struct wf_cpu_dev {
    wf_dev base;
    uint32_t threads;
    wf_cpu_pool *pool; /* of as many cores; NULL: no queue has needed it yet */
    wf_roofline roofline;
    pthread_mutex_t mutex; /* guards the next two */
    char message[256];
    weft_status failed_status;
    atomic_bool failed; /* a call failed at run time: its results are invalid */
    atomic_bool skip;   /* nobody wants what the queues hold, or one call of it did not end: it is not run */
    struct wf_cpu_queue *queues; /* a list */
} wf_cpu_dev;

void wf_cpu_fail(wf_cpu_dev *, weft_status, const char *message);  /* called by a leader; keeps the first failure */
weft_status wf_cpu_check(wf_cpu_dev *); /* returns that failure as this thread's error */
const wf_cpu_variant *wf_cpu_variant_of(enum wf_op, size_t *n);
/* Where nobody says how many: all, but one of 16 and more, for the engine submits the next step while this one runs. */
uint32_t wf_cpu_usual_threads(uint32_t cores);
weft_status wf_cpu_team_of(wf_cpu_dev *, wf_cpu_team **); /* a new team of the device's cores */

/* ---- probe.c --------------------------------------------------------------------------------- */

weft_status wf_cpu_measure(wf_dev *, wf_ceilings *out);
void wf_cpu_about(wf_dev *, enum wf_op, int variant, wf_kernel_about *out);

/* ---- queue.c --------------------------------------------------------------------------------- */

weft_status wf_cpu_queue_create(wf_dev *, bool only_copies, wf_queue **);
void wf_cpu_queue_destroy(wf_dev *, wf_queue *);
weft_status wf_cpu_write(wf_queue *, wf_buf *, uint64_t, const void *, uint64_t, wf_event *const *, uint32_t,
                         wf_event *);
weft_status wf_cpu_read(wf_queue *, wf_buf *, uint64_t, void *, uint64_t, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_copy_rows(wf_queue *, bool out, const wf_view *, void *, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_fill(wf_queue *, wf_buf *, uint64_t, uint64_t, uint32_t);
weft_status wf_cpu_submit(wf_queue *, const wf_call *);
weft_status wf_cpu_launch(wf_queue *, const wf_call *, const wf_bound *);
weft_status wf_cpu_mark(wf_queue *, wf_event *const *, uint32_t, wf_event *);
weft_status wf_cpu_flush(wf_queue *);
weft_status wf_cpu_wait(wf_event *, uint32_t);
weft_status wf_cpu_poll(wf_event *, bool *done);
void wf_cpu_resume(wf_dev *);
/* Is the device lost, with a call of it still under way? What that reads and writes must stay. */
bool wf_cpu_still_runs(const wf_cpu_dev *);

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
    const uint64_t blocks = t->block == 1
                                ? v->stride
                                : v->stride / t->block; /* without a division: kernels ask for each vector of outputs */
    return (char *)wf_cpu_at(v) + row * blocks * t->block_bytes;
}
/* A KV head of the token in a slot of a pool of pages. */
static inline void wf_cpu_load_kv(const wf_view *pool, const wf_op_params *p, uint32_t slot, uint32_t head, float *out)
{
    wf_kv_load(pool->dtype, wf_cpu_row(pool, slot / p->page_tokens), pool->cols,
               ((uint64_t)head * p->page_tokens + slot % p->page_tokens) * p->head_dim, out, p->head_dim);
}
static inline void wf_cpu_store_kv(const wf_view *pool, const wf_op_params *p, uint32_t slot, uint32_t head,
                                   const float *x)
{
    wf_kv_store(pool->dtype, wf_cpu_row(pool, slot / p->page_tokens), pool->cols,
                ((uint64_t)head * p->page_tokens + slot % p->page_tokens) * p->head_dim, x, p->head_dim);
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
/* Of what is added, if there is anything. */
static inline float wf_cpu_more(const wf_view *v, uint32_t m, uint64_t i)
{
    return wf_cpu_has(v) ? wf_cpu_get(v, wf_cpu_row(v, m), i) : 0;
}

#endif
