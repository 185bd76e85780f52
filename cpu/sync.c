/* Eventcounts and events. A waiting thread spins for some microseconds, longer than the gap between two calls of a
 * step, and then sleeps, because the cores may be shared with other queues. Threads of an eventcount sleep on a futex:
 * with a mutex they would wake one after the other, each at the next one's cost (16 cores, 1.1B, without: one sequence
 * and 16 of them 1.02 to 1.08 times as fast).
 *
 * No wake-up is lost: the waiter registers, and reads `wakes`, before it reads the word; the writer changes the word
 * before it checks for sleepers, and then `wakes`. So either the writer sees the sleeper, or the sleeper the word, and
 * one that is about to sleep sees that `wakes` is another.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu.h"

#define SPIN_NS    30000u
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

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* Where C has seconds of 64 bits and the kernel's old call has 32. */
#if defined(SYS_futex_time64) && __SIZEOF_LONG__ == 4
#define FUTEX_CALL (sizeof(time_t) > 4 ? SYS_futex_time64 : SYS_futex)
#else
#define FUTEX_CALL SYS_futex
#endif

static long futex(atomic_uint *word, int op, uint32_t value, const struct timespec *until)
{
    return syscall(FUTEX_CALL, word, op | FUTEX_PRIVATE_FLAG, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static bool spin_until_changed(const atomic_uint *word, uint32_t old)
{
    uint64_t since = wf_now_ns();
    do {
        for (int i = 0; i < SPIN_TURNS; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
            pause_cpu();
        }
    } while (wf_now_ns() - since < SPIN_NS);
    return false;
}

/* False when the time has come; until NULL: never. */
static bool sleep_once(wf_eventcount *b, const atomic_uint *word, uint32_t old, const struct timespec *until)
{
    uint32_t wakes = atomic_load(&b->wakes);
    return atomic_load(word) != old || futex(&b->wakes, FUTEX_WAIT_BITSET, wakes, until) == 0 || errno != ETIMEDOUT;
}

static void sleep_until(wf_eventcount *b, atomic_uint *word, uint32_t old, const struct timespec *until)
{
    if (spin_until_changed(word, old)) return;
    atomic_fetch_add(&b->sleepers, 1);
    while (atomic_load(word) == old && sleep_once(b, word, old, until)) {}
    atomic_fetch_sub(&b->sleepers, 1);
}

void wf_eventcount_wait_until(wf_eventcount *b, atomic_uint *word, uint32_t old, uint64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    sleep_until(b, word, old, &until);
}

void wf_eventcount_wait(wf_eventcount *b, atomic_uint *word, uint32_t old)
{
    sleep_until(b, word, old, NULL);
}

void wf_eventcount_notify(wf_eventcount *b)
{
    if (atomic_fetch_add(&b->sleepers, 0) == 0) return; /* a write, for which a release store of the word is enough */
    atomic_fetch_add(&b->wakes, 1);
    futex(&b->wakes, FUTEX_WAKE, INT32_MAX, NULL);
}

static bool init_event(wf_cpu_event *e)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bool ok = pthread_cond_init(&e->cond, &attr) == 0;
    pthread_condattr_destroy(&attr);
    if (!ok) return false;
    if (pthread_mutex_init(&e->mutex, NULL) == 0) return true;
    pthread_cond_destroy(&e->cond);
    return false;
}

weft_status wf_cpu_event_create(wf_dev *dev, wf_event **out)
{
    wf_cpu_event *e = wf_calloc(1, sizeof(*e));
    if (!e) return WEFT_ERR_NOMEM;
    if (!init_event(e)) {
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
    pthread_mutex_lock(&e->mutex);
    pthread_mutex_unlock(&e->mutex);
    pthread_cond_destroy(&e->cond);
    pthread_mutex_destroy(&e->mutex);
    free(e);
}

void wf_cpu_event_fire(wf_cpu_event *e)
{
    pthread_mutex_lock(&e->mutex);
    atomic_fetch_add(&e->fired, 1);
    if (e->sleepers) pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mutex);
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
    pthread_mutex_lock(&e->mutex);
    e->sleepers++;
    while (!wf_cpu_event_due(e, target) && pthread_cond_timedwait(&e->cond, &e->mutex, &ts) == 0) {
    }
    e->sleepers--;
    bool due = wf_cpu_event_due(e, target);
    pthread_mutex_unlock(&e->mutex);
    return due;
}
