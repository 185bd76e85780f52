/* threads: ranks of one process. Each tells the others where its array is; then each sums a slice of all of them, and
 * takes the slices of the others (reduce-scatter and all-gather). See comm.h. */
#include "dist/comm.h"

#include <errno.h>
#include <pthread.h>
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

typedef struct thread_group {
    pthread_mutex_t lock;
    pthread_cond_t all_here, mail; /* mail: a letter has come, or gone */
    mailbox *boxes;                /* [from * ranks + to] */
    uint32_t ranks, users, arrived, timeout_ms;
    uint64_t round; /* of barriers */
    bool broken;
    char message[256];
    const void **arrays; /* [ranks], of this exchange */
    uint64_t *bytes;     /* [ranks], of these arrays */
} thread_group;

typedef struct thread_rank {
    wf_comm c;
    thread_group *g;
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
    pthread_cond_broadcast(&g->all_here);
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

/* Waits for all ranks. */
static weft_status meet_ranks(thread_group *g)
{
    const struct timespec until = deadline_of(g);
    pthread_mutex_lock(&g->lock);
    uint64_t round = g->round;
    if (++g->arrived == g->ranks) {
        g->arrived = 0, g->round++;
        pthread_cond_broadcast(&g->all_here);
    }
    while (!g->broken && g->round == round)
        if (pthread_cond_timedwait(&g->all_here, &g->lock, &until) == ETIMEDOUT && g->round == round)
            break_late(g);
    weft_status s = state_of(g);
    pthread_mutex_unlock(&g->lock);
    return s;
}

/* Others read it behind the barrier. All ranks come to the same end: none reads beyond an array that is shorter. */
static weft_status show_array(wf_comm *c, const void *array, uint64_t bytes)
{
    thread_group *g = group_of(c);
    g->arrays[c->rank] = array, g->bytes[c->rank] = bytes;
    WF_TRY(meet_ranks(g));
    for (uint32_t r = 0; r < c->ranks; r++)
        if (g->bytes[r] != bytes)
            return wf_fail(WEFT_ERR_INTERNAL, "devices of the group exchange %llu bytes with %llu",
                           (unsigned long long)bytes, (unsigned long long)g->bytes[r]);
    return WEFT_OK;
}

static uint64_t slice_begin(const wf_comm *c, uint64_t n, uint32_t rank)
{
    return n * rank / c->ranks;
}

/* Each rank sums a slice into its own array, whose slice no other rank reads before it has the sum. */
static void sum_slice(wf_comm *c, void *data, uint64_t n, enum wf_dtype dtype)
{
    thread_group *g = group_of(c);
    uint64_t first = slice_begin(c, n, c->rank), at = wf_dtype_bytes(dtype, first);
    const void *slices[WF_COMM_RANKS];
    for (uint32_t r = 0; r < c->ranks; r++) slices[r] = (const uint8_t *)g->arrays[r] + at;
    wf_comm_sum((uint8_t *)data + at, slices, c->ranks, slice_begin(c, n, c->rank + 1) - first, dtype);
}

static void take_slices(wf_comm *c, void *data, uint64_t n, enum wf_dtype dtype)
{
    for (uint32_t r = 0; r < c->ranks; r++) {
        uint64_t first = slice_begin(c, n, r), at = wf_dtype_bytes(dtype, first);
        uint64_t bytes = wf_dtype_bytes(dtype, slice_begin(c, n, r + 1) - first);
        if (r != c->rank) memcpy((uint8_t *)data + at, (const uint8_t *)group_of(c)->arrays[r] + at, bytes);
    }
}

static weft_status threads_all_reduce(wf_comm *c, void *data, uint64_t n, enum wf_dtype dtype)
{
    WF_TRY(show_array(c, data, wf_dtype_bytes(dtype, n)));
    sum_slice(c, data, n, dtype);
    WF_TRY(meet_ranks(group_of(c)));
    take_slices(c, data, n, dtype);
    return meet_ranks(group_of(c)); /* until then others read it */
}

static weft_status threads_gather(wf_comm *c, const void *part, uint64_t rows, uint64_t row_bytes, void *whole)
{
    thread_group *g = group_of(c);
    WF_TRY(show_array(c, part, rows * row_bytes));
    for (uint32_t r = 0; r < c->ranks && !c->rank; r++)
        for (uint64_t i = 0; i < rows; i++)
            memcpy((uint8_t *)whole + (i * c->ranks + r) * row_bytes, (const uint8_t *)g->arrays[r] + i * row_bytes,
                   row_bytes);
    return meet_ranks(g);
}

/* Under lock: waits until the box has room, or a letter. */
static weft_status await_box(thread_group *g, const mailbox *box, bool room, const struct timespec *until)
{
    while (!g->broken && (room ? box->n == WF_COMM_QUEUED : !box->n))
        if (pthread_cond_timedwait(&g->mail, &g->lock, until) == ETIMEDOUT) break_late(g);
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
    pthread_cond_destroy(&g->all_here);
    pthread_cond_destroy(&g->mail);
    pthread_mutex_destroy(&g->lock);
    free(g->boxes);
    free(g->arrays);
    free(g->bytes);
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

static const wf_comm_fns thread_fns = {threads_all_reduce, threads_gather, threads_send, threads_receive, threads_fail,
                                       threads_close};

static thread_group *make_group(uint32_t ranks, uint32_t timeout_ms)
{
    thread_group *g = wf_calloc(1, sizeof *g);
    pthread_condattr_t attr;
    if (!g) return NULL;
    g->ranks = ranks, g->timeout_ms = timeout_ms;
    g->arrays = wf_calloc(ranks, sizeof *g->arrays);
    g->bytes = wf_calloc(ranks, sizeof *g->bytes);
    g->boxes = wf_calloc((size_t)ranks * ranks, sizeof *g->boxes);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->all_here, &attr);
    pthread_cond_init(&g->mail, &attr);
    pthread_condattr_destroy(&attr);
    if (g->arrays && g->bytes && g->boxes) return g;
    g->ranks = g->boxes ? ranks : 0;
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
        *t = (thread_rank){{&thread_fns, r, ranks}, g};
        g->users++;
        out[r] = &t->c;
    }
    return WEFT_OK;
}
