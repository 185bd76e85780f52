/* cpu: the cores of a device, which its queues share.
 *
 * A core is a thread that waits for work. A queue claims cores for each call and releases them when it is over, so that
 * no core works on two calls at once. The queue's own thread, the leader, stands for one of the cores that it claimed:
 * of n cores n - 1 are threads of the pool, and a pool of n cores needs n - 1 threads.
 */
#ifndef WF_CPU_POOL_H
#define WF_CPU_POOL_H

#include "cpu/cpu.h"

typedef struct wf_cpu_core {
    char apart[64]; /* avoids false sharing */
    atomic_uint posted; /* calls that it got so far; what it does in the last one is: */
    uint32_t id;        /* its thread id there */
    void (*run)(struct wf_cpu_core *); /* NULL: exit */
    wf_cpu_team *team;
    atomic_uint taken; /* chunks taken of its share, by any thread */
    void *scratch;     /* only grows */
    size_t scratch_cap;
    wf_cpu_pool *pool;
    pthread_t thread;
} wf_cpu_core;

/* Claims up to `want` cores: as many as are free, at least one, for which it waits. Calls are served in the order in
 * which they came, so that one that runs call after call keeps nobody waiting. Returns how many; cores[1..] of them are
 * threads. */
uint32_t wf_cpu_pool_claim(wf_cpu_pool *, uint32_t want, wf_cpu_core **cores);
/* After all have done their work. */
void wf_cpu_pool_release(wf_cpu_pool *, uint32_t n, wf_cpu_core *const *cores);
/* Runs what is set in cores[1..n). */
void wf_cpu_pool_post(wf_cpu_pool *, uint32_t n, wf_cpu_core *const *cores);
/* Where leaders wait: for free cores here, and for the end of their calls. It outlives teams, whose last core may still
 * notify it. */
wf_eventcount *wf_cpu_pool_leaders(wf_cpu_pool *);

#endif
