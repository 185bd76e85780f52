/* The thread team of a queue: starts helper threads, distributes each call to them, and owns their scratch memory, which only grows.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

#define SCRATCH_ALIGN 64
#define N_BITS        9 /* of the word that posts a call: its threads; the others count calls */
#define THREADS_MASK  ((1u << N_BITS) - 1)
_Static_assert(WF_CPU_MOST_THREADS <= THREADS_MASK, "the threads of a call fit in its word");

typedef struct scratch {
    void *mem;
    size_t cap;
} scratch;

typedef struct helper {
    wf_cpu_team *team;
    uint32_t id;
    pthread_t thread;
    scratch per_thread;
    char apart[64];    /* avoids false sharing */
    atomic_uint taken; /* chunks taken of its share, by any thread */
} helper;

struct wf_cpu_team {
    uint32_t size; /* including the leader */
    uint32_t started;
    wf_eventcount eventcount;
    const atomic_bool *skip; /* see wf_cpu_team_create */
    scratch shared;
    helper *members; /* [size]; 0 is the leader */
    char apart[64];  /* as in helper, and below: of what the leader writes, helpers, and all */
    atomic_uint job; /* number of calls, and threads of the last one: who takes part is said here alone, so that nobody waits for others */
    uint32_t n;
    wf_cpu_run_fn run; /* current call; NULL: exit */
    const wf_call *call;
    char apart_left[64];
    atomic_uint left; /* helpers still running this call */
    char apart_arrived[64];
    atomic_uint arrived; /* barrier */
    char apart_phase[64];
    atomic_uint phase;
};

static bool grow(scratch *s, size_t size)
{
    if (size <= s->cap) return true;
    void *mem = NULL;
    size = WF_UP(size, (size_t)4096);
    if (posix_memalign(&mem, SCRATCH_ALIGN, size)) return false;
    free(s->mem);
    s->mem = mem;
    s->cap = size;
    return true;
}

static void work_as(wf_cpu_team *t, uint32_t id)
{
    wf_cpu_work w = {t->call, t, id, t->n, t->shared.mem, t->members[id].per_thread.mem};
    t->run(&w);
}

static void *helper_main(void *arg)
{
    helper *h = arg;
    wf_cpu_team *t = h->team;
    for (uint32_t seen = 0;;) {
        wf_eventcount_wait(&t->eventcount, &t->job, seen);
        seen = atomic_load(&t->job);
        if (h->id >= (seen & THREADS_MASK)) continue;
        if (!t->run) return NULL;
        work_as(t, h->id);
        if (atomic_fetch_sub(&t->left, 1) == 1) wf_eventcount_notify(&t->eventcount);
    }
}

static void post(wf_cpu_team *t, wf_cpu_run_fn run, const wf_call *call, uint32_t n)
{
    t->run = run;
    t->call = call;
    t->n = n;
    for (uint32_t i = 0; i < n; i++) atomic_store_explicit(&t->members[i].taken, 0, memory_order_relaxed);
    if (n <= 1) return;
    atomic_store(&t->left, n - 1);
    atomic_store(&t->job, (((atomic_load(&t->job) >> N_BITS) + 1) << N_BITS) + n);
    wf_eventcount_notify(&t->eventcount);
}

weft_status wf_cpu_team_create(uint32_t size, const atomic_bool *skip, wf_cpu_team **out)
{
    wf_cpu_team *t = wf_calloc(1, sizeof(*t));
    if (!t) return WEFT_ERR_NOMEM;
    t->size = size;
    t->skip = skip;
    t->members = wf_calloc(size, sizeof(*t->members));
    if (!t->members || !wf_eventcount_init(&t->eventcount)) {
        free(t->members);
        free(t);
        return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for a team of %u threads", size);
    }
    for (uint32_t i = 1; i < size; i++) {
        helper *h = &t->members[i];
        h->team = t;
        h->id = i;
        if (pthread_create(&h->thread, NULL, helper_main, h)) {
            wf_cpu_team_destroy(t);
            return wf_fail(WEFT_ERR_NOMEM, "cpu: cannot start thread %u of %u; use fewer threads",
                           i + 1, size);
        }
        t->started++;
    }
    *out = t;
    return WEFT_OK;
}

void wf_cpu_team_destroy(wf_cpu_team *t)
{
    post(t, NULL, NULL, t->started + 1);
    for (uint32_t i = 1; i <= t->started; i++) pthread_join(t->members[i].thread, NULL);
    for (uint32_t i = 0; i < t->size; i++) free(t->members[i].per_thread.mem);
    free(t->shared.mem);
    wf_eventcount_free(&t->eventcount);
    free(t->members);
    free(t);
}

uint32_t wf_cpu_team_size(const wf_cpu_team *t)
{
    return t->size;
}

weft_status wf_cpu_team_run(wf_cpu_team *t, wf_cpu_run_fn run, const wf_call *call, uint32_t n,
                            wf_cpu_scratch_size size)
{
    n = WF_MAX(1u, WF_MIN(n, t->size));
    bool ok = grow(&t->shared, size.shared);
    for (uint32_t i = 0; i < n; i++) ok = ok && grow(&t->members[i].per_thread, size.per_thread);
    if (!ok)
        return wf_fail(WEFT_ERR_NOMEM,
                       "cpu: no memory for %zu + %u x %zu bytes of scratch; use a smaller batch",
                       size.shared, n, size.per_thread);
    post(t, run, call, n);
    work_as(t, 0);
    if (n == 1) return WEFT_OK;
    for (uint32_t left; (left = atomic_load(&t->left)) != 0;)
        wf_eventcount_wait(&t->eventcount, &t->left, left);
    return WEFT_OK;
}

void wf_cpu_run_alone(wf_cpu_run_fn run, const wf_call *call, void *shared, void *per_thread)
{
    helper one = {0};
    wf_cpu_team alone = {.size = 1, .n = 1, .members = &one};
    wf_cpu_work w = {call, &alone, 0, 1, shared, per_thread};
    run(&w);
}

void wf_cpu_barrier(const wf_cpu_work *w)
{
    wf_cpu_team *t = w->team;
    if (w->n == 1) return;
    uint32_t phase = atomic_load(&t->phase);
    if (atomic_fetch_add(&t->arrived, 1) + 1 < w->n) {
        wf_eventcount_wait(&t->eventcount, &t->phase, phase);
        return;
    }
    atomic_store(&t->arrived, 0);
    atomic_fetch_add(&t->phase, 1);
    wf_eventcount_notify(&t->eventcount);
}

/* The share is contiguous memory, which streams faster than scattered pieces. */
static bool take(const wf_cpu_work *w, uint32_t member, uint64_t chunks, uint64_t *chunk)
{
    uint64_t first = chunks * member / w->n, end = chunks * (member + 1) / w->n;
    atomic_uint *taken = &w->team->members[member].taken;
    *chunk = first + atomic_load_explicit(taken, memory_order_relaxed);
    if (*chunk >= end) return false; /* avoids a contended write */
    *chunk = first + atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
    return *chunk < end;
}

bool wf_cpu_next(const wf_cpu_work *w, uint32_t total, uint32_t chunk, uint32_t *begin,
                 uint32_t *end)
{
    uint64_t chunks = ((uint64_t)total + chunk - 1) / chunk, at;
    const atomic_bool *skip = w->team->skip;
    if (skip && atomic_load_explicit(skip, memory_order_relaxed)) return false;
    for (uint32_t i = 0; i < w->n; i++)
        if (take(w, (w->id + i) % w->n, chunks, &at)) {
            *begin = (uint32_t)(at * chunk);
            *end = (uint32_t)WF_MIN((uint64_t)total, (at + 1) * chunk);
            return true;
        }
    return false;
}

uint32_t wf_cpu_chunk(const wf_cpu_work *w, uint32_t total, uint32_t unit, uint32_t most)
{
    uint32_t units = WF_UP(total, unit) / unit, each = WF_MAX(1u, (units + w->n - 1) / w->n);
    uint32_t rounds = (each * unit + most - 1) / most;
    return (each + rounds - 1) / rounds * unit;
}

void wf_cpu_part(const wf_cpu_work *w, uint32_t total, uint32_t unit, uint32_t *begin,
                 uint32_t *end)
{
    uint64_t units = ((uint64_t)total + unit - 1) / unit;
    *begin = (uint32_t)WF_MIN((uint64_t)total, units * w->id / w->n * unit);
    *end = (uint32_t)WF_MIN((uint64_t)total, units * (w->id + 1) / w->n * unit);
}
