/* Cores: starts their threads, and owns which of them are free. */
#include <stdlib.h>
#include <unistd.h>

#include "cpu/pool.h"

struct wf_cpu_pool {
    wf_cpu_pool *next; /* of those that devices share */
    unsigned users;
    pid_t owner; /* a child of fork has none of its threads */
    uint32_t size; /* including the one that leaders stand for */
    uint32_t started;
    wf_cpu_core *cores; /* [size]; 0 has no thread */
    wf_eventcount idle; /* where cores wait for work */
    char apart_leaders[64];
    wf_eventcount leaders; /* and leaders for cores */
    char apart[64];     /* as in wf_cpu_core: of what cores read, what leaders write */
    atomic_uint tickets, turn; /* of calls: the one whose turn it is claims */
    atomic_uint free;          /* cores */
    atomic_bool busy[WF_CPU_MOST_THREADS]; /* threads that are claimed */
};

static void *core_main(void *arg)
{
    wf_cpu_core *c = arg;
    for (uint32_t seen = 0;; seen++) {
        wf_eventcount_wait(&c->pool->idle, &c->posted, seen);
        if (!c->run) return NULL;
        c->run(c);
    }
}

weft_status wf_cpu_pool_create(uint32_t size, wf_cpu_pool **out)
{
    wf_cpu_pool *p = wf_calloc(1, sizeof(*p));
    if (!p) return WEFT_ERR_NOMEM;
    p->size = size;
    atomic_init(&p->free, size);
    p->cores = wf_calloc(size, sizeof(*p->cores));
    if (!p->cores) {
        free(p);
        return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for %u threads", size);
    }
    for (uint32_t i = 1; i < size; i++, p->started++) {
        p->cores[i].pool = p;
        if (!pthread_create(&p->cores[i].thread, NULL, core_main, &p->cores[i])) continue;
        wf_cpu_pool_destroy(p);
        return wf_fail(WEFT_ERR_NOMEM, "cpu: cannot start thread %u of %u; use fewer threads", i + 1, size);
    }
    *out = p;
    return WEFT_OK;
}

void wf_cpu_pool_destroy(wf_cpu_pool *p)
{
    if (!p) return;
    for (uint32_t i = 1; i <= p->started; i++) {
        p->cores[i].run = NULL;
        atomic_fetch_add(&p->cores[i].posted, 1);
    }
    wf_eventcount_notify(&p->idle);
    for (uint32_t i = 1; i <= p->started; i++) pthread_join(p->cores[i].thread, NULL);
    for (uint32_t i = 1; i < p->size; i++) free(p->cores[i].scratch);
    free(p->cores);
    free(p);
}

/* ---- of several devices ---------------------------------------------------------------------------------- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static wf_cpu_pool *all;
static pthread_once_t all_once = PTHREAD_ONCE_INIT;

static void lock_all(void) { pthread_mutex_lock(&all_lock); }
static void unlock_all(void) { pthread_mutex_unlock(&all_lock); }
static void watch_fork(void) { pthread_atfork(lock_all, unlock_all, unlock_all); }

/* One of that size which new threads would take cores from; NULL: there are cores for them. */
static wf_cpu_pool *find_shared(uint32_t size)
{
    wf_cpu_pool *best = NULL;
    uint64_t threads = size;
    for (wf_cpu_pool *p = all; p; p = p->next) {
        if (p->owner != getpid()) continue;
        threads += p->size;
        if (p->size == size && (!best || p->users < best->users)) best = p;
    }
    return threads > wf_core_count() ? best : NULL;
}

weft_status wf_cpu_pool_take(uint32_t size, wf_cpu_pool **out)
{
    weft_status s = WEFT_OK;
    pthread_once(&all_once, watch_fork);
    lock_all();
    wf_cpu_pool *p = find_shared(size);
    if (!p && !(s = wf_cpu_pool_create(size, &p))) {
        p->owner = getpid();
        p->next = all;
        all = p;
    }
    if (p) p->users++;
    *out = p;
    unlock_all();
    return s;
}

void wf_cpu_pool_leave(wf_cpu_pool *p)
{
    wf_cpu_pool **at = &all;
    if (!p) return;
    lock_all();
    bool last = !--p->users;
    while (last && *at != p) at = &(*at)->next;
    if (last) *at = p->next;
    unlock_all();
    if (last) wf_cpu_pool_destroy(p);
}

/* ---------------------------------------------------------------------------------------------------------- */

uint32_t wf_cpu_pool_size(const wf_cpu_pool *p)
{
    return p->size;
}

wf_eventcount *wf_cpu_pool_leaders(wf_cpu_pool *p)
{
    return &p->leaders;
}

uint32_t wf_cpu_pool_claim(wf_cpu_pool *p, uint32_t want, wf_cpu_core **cores)
{
    uint32_t ticket = atomic_fetch_add(&p->tickets, 1), turn;
    while ((turn = atomic_load(&p->turn)) != ticket) wf_eventcount_wait(&p->leaders, &p->turn, turn);
    wf_eventcount_wait(&p->leaders, &p->free, 0);
    uint32_t n = WF_MIN(want, atomic_load(&p->free));
    atomic_fetch_sub(&p->free, n);
    /* The first n - 1 threads that are free, so that a call alone always has the same ones. There are enough: each call
     * that runs has a leader that stands for a core. */
    for (uint32_t i = 1, at = 1; i < n; i++, at++) {
        while (atomic_load_explicit(&p->busy[at], memory_order_acquire)) at++;
        atomic_store_explicit(&p->busy[at], true, memory_order_relaxed);
        if (cores[i] != &p->cores[at]) cores[i] = &p->cores[at]; /* else what others have cached stays so */
    }
    atomic_fetch_add(&p->turn, 1);
    wf_eventcount_notify(&p->leaders);
    return n;
}

void wf_cpu_pool_release(wf_cpu_pool *p, uint32_t n, wf_cpu_core *const *cores)
{
    for (uint32_t i = 1; i < n; i++) atomic_store_explicit(&p->busy[cores[i] - p->cores], false, memory_order_release);
    atomic_fetch_add(&p->free, n);
    wf_eventcount_notify(&p->leaders);
}

void wf_cpu_pool_post(wf_cpu_pool *p, uint32_t n, wf_cpu_core *const *cores)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t calls = atomic_load_explicit(&cores[i]->posted, memory_order_relaxed);
        atomic_store_explicit(&cores[i]->posted, calls + 1, memory_order_release);
    }
    if (n > 1) wf_eventcount_notify(&p->idle);
}
