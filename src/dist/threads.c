/* threads: ranks of one process. Each tells the others where what it gives is. See comm.h. */
#include "dist/comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Messages from one rank to another. */
typedef struct mailbox {
    struct {
        void *data;
        uint64_t bytes, cap;
        uint32_t tag;
    } letters[WF_COMM_QUEUED];
    uint32_t first, n;
} mailbox;

/* What a rank has given so often, and where the last two are: who is behind may still look for the one before. */
typedef struct offers {
    atomic_ullong given;
    struct {
        const void *data;
        uint64_t bytes;
    } last[2];
} offers;

typedef struct thread_group {
    pthread_mutex_t lock;
    pthread_cond_t offered, mail; /* mail: a letter has come, or gone */
    mailbox *boxes;               /* [from * ranks + to] */
    uint32_t ranks, users, timeout_ms;
    atomic_uint sleepers;         /* who wait for `offered` */
    atomic_bool broken;
    char message[256];
    offers by[WF_COMM_RANKS];
} thread_group;

typedef struct thread_rank {
    wf_comm c;
    thread_group *g;
    uint64_t n; /* exchanges */
} thread_rank;

static thread_group *group_of(wf_comm *c)
{
    return ((thread_rank *)c)->g;
}

static void break_group(thread_group *g, const char *message)
{
    if (g->broken) return;
    g->broken = true;
    wf_copy(g->message, sizeof g->message, message);
    pthread_cond_broadcast(&g->offered);
    pthread_cond_broadcast(&g->mail);
}

static void break_late(thread_group *g)
{
    char message[128];
    snprintf(message, sizeof message, "a device of the group did not answer within %u ms", g->timeout_ms);
    break_group(g, message);
}

static struct timespec deadline_of(const thread_group *g)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += g->timeout_ms / 1000;
    until.tv_nsec += (long)(g->timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    return until;
}

static weft_status state_of(const thread_group *g)
{
    return g->broken ? wf_fail(WEFT_ERR_DEVICE, "%s", g->message) : WEFT_OK;
}

static bool has_given(const thread_group *g, uint32_t r, uint64_t n)
{
    return atomic_load(&g->by[r].given) > n;
}

static weft_status sleep_until_given(thread_group *g, uint32_t r, uint64_t n)
{
    const struct timespec until = deadline_of(g);
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->sleepers, 1);
    while (!g->broken && !has_given(g, r, n))
        if (pthread_cond_timedwait(&g->offered, &g->lock, &until) == ETIMEDOUT && !has_given(g, r, n)) break_late(g);
    atomic_fetch_sub(&g->sleepers, 1);
    weft_status s = state_of(g);
    pthread_mutex_unlock(&g->lock);
    return s;
}

/* For a moment without sleep, which takes longer than ranks that run side by side are apart. */
static weft_status await_offer(thread_group *g, uint32_t r, uint64_t n)
{
    enum { MOMENT_NS = 30000 };
    for (uint64_t began = wf_now_ns(); !has_given(g, r, n) && wf_now_ns() - began < MOMENT_NS;) {}
    return has_given(g, r, n) && !g->broken ? WEFT_OK : sleep_until_given(g, r, n);
}

static weft_status threads_exchange(wf_comm *c, const void *own, uint64_t bytes, uint32_t takers, void *room,
                                    const void **all)
{
    thread_group *g = group_of(c);
    uint64_t n = ((thread_rank *)c)->n++, got = bytes;
    (void)takers, (void)room;
    g->by[c->rank].last[n % 2].data = own;
    g->by[c->rank].last[n % 2].bytes = bytes;
    atomic_store(&g->by[c->rank].given, n + 1);
    if (atomic_load(&g->sleepers)) {
        pthread_mutex_lock(&g->lock);
        pthread_cond_broadcast(&g->offered);
        pthread_mutex_unlock(&g->lock);
    }
    for (uint32_t r = 0; r < c->ranks; r++) {
        WF_TRY(await_offer(g, r, n));
        all[r] = g->by[r].last[n % 2].data;
        if (g->by[r].last[n % 2].bytes != bytes) got = g->by[r].last[n % 2].bytes;
    }
    return got == bytes ? WEFT_OK
        : wf_fail(WEFT_ERR_INTERNAL, "devices of the group exchange %llu bytes with %llu", (unsigned long long)bytes,
                  (unsigned long long)got);
}

/* Under lock: waits until the box has room, or a letter. */
static weft_status await_box(thread_group *g, const mailbox *box, bool room, const struct timespec *until)
{
    bool late = false;
    while (!g->broken && (room ? box->n == WF_COMM_QUEUED : !box->n)) {
        if (late) break_late(g);
        else late = pthread_cond_timedwait(&g->mail, &g->lock, until) == ETIMEDOUT;
    }
    return state_of(g);
}

static weft_status put_letter(mailbox *box, uint32_t tag, const void *data, uint64_t bytes)
{
    uint32_t at = (box->first + box->n) % WF_COMM_QUEUED;
    void *grown = box->letters[at].cap < bytes ? realloc(box->letters[at].data, bytes) : box->letters[at].data;
    if (bytes && !grown)
        return wf_fail(WEFT_ERR_NOMEM, "no memory for a message of %llu bytes", (unsigned long long)bytes);
    box->letters[at].data = grown;
    box->letters[at].cap = WF_MAX(box->letters[at].cap, bytes);
    box->letters[at].bytes = bytes;
    box->letters[at].tag = tag;
    memcpy(grown, data, bytes);
    box->n++;
    return WEFT_OK;
}

static weft_status threads_send(wf_comm *c, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
    thread_group *g = group_of(c);
    const struct timespec until = deadline_of(g);
    mailbox *box = &g->boxes[c->rank * c->ranks + to];
    pthread_mutex_lock(&g->lock);
    weft_status s = await_box(g, box, true, &until);
    if (s == WEFT_OK) s = put_letter(box, tag, data, bytes);
    pthread_cond_broadcast(&g->mail);
    pthread_mutex_unlock(&g->lock);
    return s;
}

static weft_status threads_receive(wf_comm *c, uint32_t from, uint32_t tag, void *data, uint64_t bytes)
{
    thread_group *g = group_of(c);
    const struct timespec until = deadline_of(g);
    mailbox *box = &g->boxes[from * c->ranks + c->rank];
    pthread_mutex_lock(&g->lock);
    weft_status s = await_box(g, box, false, &until);
    uint64_t sent = box->letters[box->first].bytes;
    uint32_t sent_tag = box->letters[box->first].tag;
    if (s == WEFT_OK && (sent != bytes || sent_tag != tag))
        s = wf_fail(WEFT_ERR_INTERNAL, "a message of %llu bytes for %u where one of %llu for %u was expected",
                    (unsigned long long)sent, sent_tag, (unsigned long long)bytes, tag);
    if (s == WEFT_OK) {
        memcpy(data, box->letters[box->first].data, bytes);
        box->first = (box->first + 1) % WF_COMM_QUEUED, box->n--;
        pthread_cond_broadcast(&g->mail);
    }
    pthread_mutex_unlock(&g->lock);
    return s;
}

static void threads_fail(wf_comm *c, const char *message)
{
    thread_group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    break_group(g, message);
    pthread_mutex_unlock(&g->lock);
}

static void free_group(thread_group *g)
{
    for (mailbox *b = g->boxes; b < g->boxes + g->ranks * g->ranks; b++)
        for (size_t i = 0; i < WF_COMM_QUEUED; i++) free(b->letters[i].data);
    pthread_cond_destroy(&g->offered);
    pthread_cond_destroy(&g->mail);
    pthread_mutex_destroy(&g->lock);
    free(g->boxes);
    free(g);
}

static void threads_close(wf_comm *c)
{
    thread_group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    bool last = !--g->users;
    pthread_mutex_unlock(&g->lock);
    if (last) free_group(g);
    free(c);
}

static const wf_comm_fns thread_fns = {threads_exchange, threads_send, threads_receive, threads_fail, threads_close};

static thread_group *make_group(uint32_t ranks, uint32_t timeout_ms)
{
    thread_group *g = wf_calloc(1, sizeof *g);
    pthread_condattr_t attr;
    if (!g) return NULL;
    g->ranks = ranks, g->timeout_ms = timeout_ms;
    g->boxes = wf_calloc((size_t)ranks * ranks, sizeof *g->boxes);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->offered, &attr);
    pthread_cond_init(&g->mail, &attr);
    pthread_condattr_destroy(&attr);
    if (g->boxes) return g;
    g->ranks = 0;
    free_group(g);
    return NULL;
}

weft_status wf_comm_threads(uint32_t ranks, uint32_t timeout_ms, wf_comm **out)
{
    thread_group *g = make_group(ranks, timeout_ms);
    if (!g) return WEFT_ERR_NOMEM;
    for (uint32_t r = 0; r < ranks; r++) {
        thread_rank *t = wf_calloc(1, sizeof *t);
        if (!t) {
            if (!r) free_group(g); /* else the last rank does */
            while (r) wf_comm_close(out[--r]), out[r] = NULL;
            return WEFT_ERR_NOMEM;
        }
        *t = (thread_rank){{&thread_fns, r, ranks, false}, g, 0};
        g->users++;
        out[r] = &t->c;
    }
    return WEFT_OK;
}
