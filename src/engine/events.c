/* events: what a request that is pulled from keeps for its reader: copies of its events, in order. The engine's
 * thread adds, another one takes. DONE has its memory from the beginning, so that the reader learns of the end also
 * where there is no more. See engine.h. */
#include "engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

typedef struct node {
    struct node *next;
    struct weft_event ev; /* its arrays lie behind the node */
} node;

struct wf_events {
    pthread_mutex_t lock;
    pthread_cond_t came;
    node *first, **last; /* that wait */
    node *taken;         /* the reader looks at it */
    node *done;          /* NULL: it was added */
    char message[256];   /* of DONE */
    int fd;              /* -1: nobody polls */
};

weft_status wf_events_create(wf_events **out)
{
    wf_events *q = wf_calloc(1, sizeof *q);
    node *done = wf_calloc(1, sizeof *done);
    if (!q || !done) {
        free(q);
        free(done);
        return WEFT_ERR_NOMEM;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->came, &attr);
    pthread_condattr_destroy(&attr);
    q->last = &q->first, q->done = done, q->fd = -1;
    *out = q;
    return WEFT_OK;
}

void wf_events_free(wf_events *q)
{
    if (!q) return;
    for (node *n = q->first, *next; n; n = next) next = n->next, free(n);
    free(q->taken);
    free(q->done);
    if (q->fd >= 0) close(q->fd);
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* ---- adding -------------------------------------------------------------------------------------------------- */

/* Copies an array behind those before it. The longest elements come first, which keeps all aligned. */
static const void *copy_array(char **at, const void *from, size_t bytes)
{
    char *to = *at;
    if (bytes) memcpy(to, from, bytes);
    *at += bytes;
    return from ? to : NULL;
}

static node *copy_event(const struct weft_event *ev, uint32_t n_vocab)
{
    size_t logits = ev->logits ? n_vocab * sizeof *ev->logits : 0, top = ev->n_top * sizeof *ev->top,
           embedding = ev->n_embedding * sizeof *ev->embedding;
    node *n = wf_calloc(1, sizeof *n + logits + embedding + top + ev->text_len + 1);
    if (!n) return NULL;
    char *at = (char *)(n + 1);
    n->ev = *ev;
    n->ev.top = copy_array(&at, ev->top, top);
    n->ev.logits = copy_array(&at, ev->logits, logits);
    n->ev.embedding = copy_array(&at, ev->embedding, embedding);
    n->ev.text = copy_array(&at, ev->text, ev->text_len);
    n->ev.message = "";
    return n;
}

/* The descriptor counts nothing: it is readable while events wait. */
static void set_readable(const wf_events *q, bool readable)
{
    uint64_t count = 1;
    if (q->fd < 0) return;
    ssize_t done = readable ? write(q->fd, &count, sizeof count) : read(q->fd, &count, sizeof count);
    (void)done; /* it was so already */
}

weft_status wf_events_add(wf_events *q, const struct weft_event *ev, uint32_t n_vocab)
{
    node *n = ev->kind == WEFT_EVENT_DONE ? q->done : copy_event(ev, n_vocab);
    if (!n) return WEFT_ERR_NOMEM;
    if (n == q->done) {
        q->done = NULL;
        wf_copy(q->message, sizeof q->message, ev->message);
        n->ev = *ev;
        n->ev.text = "", n->ev.message = q->message;
    }
    pthread_mutex_lock(&q->lock);
    if (!q->first) set_readable(q, true);
    *q->last = n;
    q->last = &n->next;
    pthread_cond_signal(&q->came);
    pthread_mutex_unlock(&q->lock);
    return WEFT_OK;
}

/* ---- taking -------------------------------------------------------------------------------------------------- */

void wf_deadline(struct timespec *t, uint32_t ms)
{
    clock_gettime(CLOCK_MONOTONIC, t);
    t->tv_sec += ms / 1000;
    t->tv_nsec += (long)(ms % 1000) * 1000000;
    if (t->tv_nsec >= 1000000000) t->tv_sec++, t->tv_nsec -= 1000000000;
}

static weft_status none(const wf_events *q, int32_t ms)
{
    if (q->taken && q->taken->ev.kind == WEFT_EVENT_DONE)
        return wf_fail(WEFT_ERR_ARG, "weft_next: the request has ended, and its last event was taken before");
    return wf_fail(WEFT_ERR_TIMEOUT, "no event came within %d ms", ms);
}

weft_status wf_events_next(wf_events *q, int32_t ms, const struct weft_event **out)
{
    weft_status s = WEFT_OK;
    *out = NULL;
    pthread_mutex_lock(&q->lock);
    struct timespec until;
    int late = ms == 0;
    wf_deadline(&until, ms > 0 ? (uint32_t)ms : 0);
    while (!q->first && !late && !(q->taken && q->taken->ev.kind == WEFT_EVENT_DONE)) /* then none will come */
        late = ms < 0 ? pthread_cond_wait(&q->came, &q->lock)
            : pthread_cond_timedwait(&q->came, &q->lock, &until) == ETIMEDOUT;
    node *n = q->first;
    if (n) {
        free(q->taken);
        q->taken = n;
        if (!(q->first = n->next)) q->last = &q->first, set_readable(q, false);
        *out = &n->ev;
    } else s = none(q, ms);
    pthread_mutex_unlock(&q->lock);
    return s;
}

int wf_events_fd(wf_events *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->fd < 0) {
        q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (q->fd < 0) wf_fail(WEFT_ERR_IO, "cannot make a descriptor to poll: %s", strerror(errno));
        if (q->first) set_readable(q, true);
    }
    int fd = q->fd;
    pthread_mutex_unlock(&q->lock);
    return fd;
}
