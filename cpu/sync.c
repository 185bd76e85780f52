/* Eventcounts and events. A waiting thread spins for some microseconds, longer than the gap between two calls of a step, and then
 * sleeps, because the cores may be shared with other queues.
 *
 * No wake-up is lost: the waiter registers before it reads the word, the writer changes the word before it checks for sleepers, and
 * both change the number of sleepers: the one that comes second sees what the other did before.
 */
#include <stdlib.h>
#include <time.h>

#include "cpu/cpu.h"

#define SPIN_NS    30000u
#define NEVER_NS   ((uint64_t)INT64_MAX)
#define SPIN_TURNS 32 /* pauses between two reads of the clock */

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool wf_cpu_spin(uint64_t *since)
{
    for (int i = 0; i < SPIN_TURNS; i++) pause_cpu();
    uint64_t now = wf_now_ns();
    if (*since == 0) *since = now;
    return now - *since < SPIN_NS;
}

bool wf_eventcount_init(wf_eventcount *b)
{
    pthread_condattr_t attr;
    atomic_init(&b->sleepers, 0);
    if (pthread_condattr_init(&attr)) return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bool ok = pthread_cond_init(&b->cond, &attr) == 0;
    pthread_condattr_destroy(&attr);
    if (!ok) return false;
    if (pthread_mutex_init(&b->mutex, NULL) == 0) return true;
    pthread_cond_destroy(&b->cond);
    return false;
}

void wf_eventcount_free(wf_eventcount *b)
{
    pthread_cond_destroy(&b->cond);
    pthread_mutex_destroy(&b->mutex);
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

void wf_eventcount_wait_until(wf_eventcount *b, atomic_uint *word, uint32_t old, uint64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    uint64_t since = 0;
    do {
        for (int i = 0; i < SPIN_TURNS; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old) return;
            pause_cpu();
        }
    } while (wf_cpu_spin(&since));
    pthread_mutex_lock(&b->mutex);
    atomic_fetch_add(&b->sleepers, 1);
    while (atomic_load(word) == old && pthread_cond_timedwait(&b->cond, &b->mutex, &until) == 0) {}
    atomic_fetch_sub(&b->sleepers, 1);
    pthread_mutex_unlock(&b->mutex);
}

void wf_eventcount_wait(wf_eventcount *b, atomic_uint *word, uint32_t old)
{
    while (atomic_load(word) == old) wf_eventcount_wait_until(b, word, old, NEVER_NS);
}

void wf_eventcount_notify(wf_eventcount *b)
{
    if (atomic_fetch_add(&b->sleepers, 0) == 0) return; /* a write, for which a release store of the word is enough */
    pthread_mutex_lock(&b->mutex);
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->mutex);
}

weft_status wf_cpu_event_create(wf_dev *dev, wf_event **out)
{
    wf_cpu_event *e = wf_calloc(1, sizeof(*e));
    if (!e) return WEFT_ERR_NOMEM;
    if (!wf_eventcount_init(&e->eventcount)) {
        free(e);
        return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for an event");
    }
    e->base.dev = dev;
    atomic_init(&e->fired, 0);
    *out = &e->base;
    return WEFT_OK;
}

void wf_cpu_event_destroy(wf_dev *dev, wf_event *ev)
{
    wf_cpu_event *e = (wf_cpu_event *)ev;
    if (wf_cpu_still_runs((wf_cpu_dev *)dev)) { /* what signals it */
        wf_leak_on_purpose(e);
        return;
    }
    /* The firing thread may still hold the mutex when the waiter gets here. */
    pthread_mutex_lock(&e->eventcount.mutex);
    pthread_mutex_unlock(&e->eventcount.mutex);
    wf_eventcount_free(&e->eventcount);
    free(e);
}

void wf_cpu_event_fire(wf_cpu_event *e)
{
    pthread_mutex_lock(&e->eventcount.mutex);
    atomic_fetch_add(&e->fired, 1);
    if (atomic_load(&e->eventcount.sleepers)) pthread_cond_broadcast(&e->eventcount.cond);
    pthread_mutex_unlock(&e->eventcount.mutex);
}

bool wf_cpu_event_due(const wf_cpu_event *e, uint32_t target)
{
    return (int32_t)(atomic_load_explicit(&e->fired, memory_order_acquire) - target) >= 0;
}

bool wf_cpu_event_wait(wf_cpu_event *e, uint32_t target, uint64_t until_ns)
{
    uint64_t since = 0;
    if (wf_cpu_event_due(e, target)) return true;
    while (wf_cpu_spin(&since))
        if (wf_cpu_event_due(e, target)) return true;

    struct timespec ts = timespec_of(until_ns);
    pthread_mutex_lock(&e->eventcount.mutex);
    atomic_fetch_add(&e->eventcount.sleepers, 1);
    while (!wf_cpu_event_due(e, target) &&
           pthread_cond_timedwait(&e->eventcount.cond, &e->eventcount.mutex, &ts) == 0) {
    }
    atomic_fetch_sub(&e->eventcount.sleepers, 1);
    bool due = wf_cpu_event_due(e, target);
    pthread_mutex_unlock(&e->eventcount.mutex);
    return due;
}
