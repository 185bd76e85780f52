/* The team of a queue: claims cores for each call, distributes it to them, and owns the call's shared scratch memory,
 * which only grows.
 */
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "cpu/pool.h"

#define SCRATCH_ALIGN 64

struct wf_cpu_team {
    wf_cpu_pool *pool;
    wf_eventcount eventcount; /* of barriers */
    const atomic_bool *skip;  /* see wf_cpu_team_create */
    void *shared;
    size_t shared_cap;
    wf_cpu_core leader;
    wf_cpu_core **members; /* [size of the pool] of the current call; 0 is the leader */
    char apart[64]; /* as in wf_cpu_core, and below: of what the leader writes, and all */
    uint32_t n;
    wf_cpu_run_fn run; /* current call */
    const wf_call *call;
    char apart_left[64];
    atomic_uint left; /* members but the leader still running this call */
    char apart_arrived[64];
    atomic_uint arrived; /* barrier */
    char apart_phase[64];
    atomic_uint phase;
};

static bool grow_memory(void **mem, size_t *cap, size_t size)
{
    void *more = NULL;
    if (size <= *cap) return true;
    size = WF_UP(size, (size_t)4096);
    if (posix_memalign(&more, SCRATCH_ALIGN, size)) return false;
    free(*mem);
    *mem = more;
    *cap = size;
    return true;
}

/* What floats do on this thread. */
static uint64_t float_mode(void)
{
#if defined(__x86_64__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static void set_float_mode(uint64_t mode)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
#else
    (void)mode;
#endif
}

#if defined(__x86_64__)
#define FLUSH _MM_FLUSH_ZERO_ON
#else
#define FLUSH (1u << 24) /* FZ of FPCR */
#endif

/* What would be subnormal becomes 0: it says nothing in a sum, and processors take 10 to 300 times as long to read it.
 * Scales in F16 that are subnormal keep their value: on x86 inputs do not count as 0, or emulators would take these for
 * 0, too. The thread may be a program's own, which finds its floats as they were. */
static void work_as(wf_cpu_team *t, uint32_t id)
{
    const wf_cpu_work w = {t->call, t, id, t->n, t->shared, t->members[id]->scratch};
    const uint64_t before = float_mode();
    set_float_mode(before | FLUSH);
    t->run(&w);
    set_float_mode(before);
}

static void member_run(wf_cpu_core *c)
{
    wf_cpu_team *t = c->team;
    wf_eventcount *leaders = wf_cpu_pool_leaders(t->pool);
    work_as(t, c->id);
    if (atomic_fetch_sub(&t->left, 1) == 1) wf_eventcount_notify(leaders); /* t may be gone */
}

weft_status wf_cpu_team_create(wf_cpu_pool *pool, const atomic_bool *skip, wf_cpu_team **out)
{
    wf_cpu_team *t = wf_calloc(1, sizeof(*t));
    if (!t) return WEFT_ERR_NOMEM;
    t->pool = pool;
    t->skip = skip;
    t->members = wf_calloc(wf_cpu_pool_size(pool), sizeof(*t->members));
    if (!t->members) {
        free(t);
        return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for a team of %u threads", wf_cpu_pool_size(pool));
    }
    t->members[0] = &t->leader;
    *out = t;
    return WEFT_OK;
}

void wf_cpu_team_destroy(wf_cpu_team *t)
{
    if (!t) return;
    free(t->leader.scratch);
    free(t->shared);
    free(t->members);
    free(t);
}

uint32_t wf_cpu_team_size(const wf_cpu_team *t)
{
    return wf_cpu_pool_size(t->pool);
}

static weft_status grow_scratch(wf_cpu_team *t, wf_cpu_scratch_size size)
{
    bool ok = grow_memory(&t->shared, &t->shared_cap, size.shared);
    for (uint32_t i = 0; i < t->n; i++)
        ok = ok && grow_memory(&t->members[i]->scratch, &t->members[i]->scratch_cap, size.per_thread);
    if (ok) return WEFT_OK;
    return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for %zu + %u x %zu bytes of scratch; use a smaller batch",
                   size.shared, t->n, size.per_thread);
}

weft_status wf_cpu_team_run(wf_cpu_team *t, wf_cpu_run_fn run, const wf_call *call, uint32_t n,
                            wf_cpu_scratch_size size)
{
    t->run = run;
    t->call = call;
    t->n = wf_cpu_pool_claim(t->pool, WF_MAX(1u, n), t->members);
    weft_status s = grow_scratch(t, size);
    for (uint32_t i = 0; s == WEFT_OK && i < t->n; i++) {
        wf_cpu_core *c = t->members[i];
        atomic_store_explicit(&c->taken, 0, memory_order_relaxed);
        c->id = i;
        c->team = t;
        c->run = member_run;
    }
    if (s == WEFT_OK) {
        atomic_store(&t->left, t->n - 1);
        wf_cpu_pool_post(t->pool, t->n, t->members);
        work_as(t, 0);
        wf_eventcount *leaders = wf_cpu_pool_leaders(t->pool);
        for (uint32_t left; (left = atomic_load(&t->left)) != 0;) wf_eventcount_wait(leaders, &t->left, left);
    }
    wf_cpu_pool_release(t->pool, t->n, t->members);
    return s;
}

void wf_cpu_run_alone(wf_cpu_run_fn run, const wf_call *call, void *shared, void *per_thread)
{
    wf_cpu_core one = {0}, *members[] = {&one};
    wf_cpu_team alone = {.n = 1, .members = members};
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
static bool take_chunk(const wf_cpu_work *w, uint32_t member, uint64_t chunks, uint64_t *chunk)
{
    uint64_t first = chunks * member / w->n, end = chunks * (member + 1) / w->n;
    atomic_uint *taken = &w->team->members[member]->taken;
    *chunk = first + atomic_load_explicit(taken, memory_order_relaxed);
    if (*chunk >= end) return false; /* avoids a contended write */
    *chunk = first + atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
    return *chunk < end;
}

bool wf_cpu_next(const wf_cpu_work *w, uint32_t total, uint32_t chunk, uint32_t *begin, uint32_t *end)
{
    uint64_t chunks = ((uint64_t)total + chunk - 1) / chunk, at;
    const atomic_bool *skip = w->team->skip;
    if (skip && atomic_load_explicit(skip, memory_order_relaxed)) return false;
    for (uint32_t i = 0; i < w->n; i++)
        if (take_chunk(w, (w->id + i) % w->n, chunks, &at)) {
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

void wf_cpu_part(const wf_cpu_work *w, uint32_t total, uint32_t unit, uint32_t *begin, uint32_t *end)
{
    uint64_t units = ((uint64_t)total + unit - 1) / unit;
    *begin = (uint32_t)WF_MIN((uint64_t)total, units * w->id / w->n * unit);
    *end = (uint32_t)WF_MIN((uint64_t)total, units * (w->id + 1) / w->n * unit);
}
