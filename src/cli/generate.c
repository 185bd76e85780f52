/* generate: prints text while the engine generates it. See generate.h. */
#include "cli/generate.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Ctrl-C -----------------------------------------------------------------------------------
 */

/* Posted for each event and by the signal handler, which may run on any thread: sem_post is async-signal-safe. The semaphore
 * is never destroyed, so that a late post is harmless; leftover posts cause only a spurious wake-up. */
static sem_t wake;
static pthread_once_t wake_once = PTHREAD_ONCE_INIT;
static volatile sig_atomic_t interrupts;
static struct sigaction before; /* SIGINT handler to restore */

static void on_interrupt(int sig)
{
    (void)sig;
    int saved = errno;
    if (interrupts++) _exit(WF_EXIT_INTERRUPTED);
    sem_post(&wake);
    errno = saved;
}

static void make_wake(void)
{
    sem_init(&wake, 0, 0);
}

void wf_generate_catch_interrupts(void)
{
    struct sigaction was, sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    interrupts = 0;
    pthread_once(&wake_once, make_wake);
    sigaction(SIGINT, &sa, &was);
    if (was.sa_handler != on_interrupt) before = was; /* still set if no wf_generate followed */
}

/* ---- from the engine's thread to ours ---------------------------------------------------------
 */

struct pipe {
    pthread_mutex_t lock;
    char *text; /* all generated text */
    size_t len, cap;
    bool done, lost; /* lost: out of memory */
    struct weft_event end;
    char message[512];
};

static void append(struct pipe *q, const char *text, size_t len)
{
    if (q->len + len + 1 > q->cap) {
        size_t cap = WF_MAX(q->cap * 2, q->len + len + 4096);
        char *p = realloc(q->text, cap);
        if (!p) {
            q->lost = true;
            return;
        }
        q->text = p;
        q->cap = cap;
    }
    memcpy(q->text + q->len, text, len);
    q->text[q->len += len] = 0;
}

static void on_event(void *user, const struct weft_event *ev)
{
    struct pipe *q = user;
    pthread_mutex_lock(&q->lock);
    if (ev->kind == WEFT_EVENT_TOKEN && !q->lost) append(q, ev->text, ev->text_len);
    if (ev->kind == WEFT_EVENT_DONE) {
        q->done = true;
        q->end = *ev;
        wf_copy(q->message, sizeof q->message, ev->message ? ev->message : "");
    }
    pthread_mutex_unlock(&q->lock);
    sem_post(&wake);
}

/* Prints the text after *printed; false if stdout is closed. Copies under the lock, so that printing happens outside it. */
static bool print_new(struct pipe *q, size_t *printed)
{
    char part[4096];
    for (;;) {
        pthread_mutex_lock(&q->lock);
        size_t n = WF_MIN(q->len - *printed, sizeof part);
        if (n) memcpy(part, q->text + *printed, n);
        pthread_mutex_unlock(&q->lock);
        if (!n) return true;
        *printed += n;
        if (!wf_out(part, n)) return false;
    }
}

static void pump(struct pipe *q, struct weft_request *r, wf_generation *out)
{
    size_t printed = 0;
    for (bool done = false, cancelled = false; !done;) {
        while (sem_wait(&wake) && errno == EINTR) {
        }
        pthread_mutex_lock(&q->lock);
        done = q->done;
        bool lost = q->lost;
        pthread_mutex_unlock(&q->lock);
        if (!out->closed && !print_new(q, &printed)) out->closed = true;
        if (!cancelled && (interrupts || out->closed || lost)) {
            cancelled = true;
            weft_cancel(r);
        }
    }
    out->interrupted = interrupts && q->end.finish == WEFT_FINISH_CANCEL;
}

int wf_generate(struct weft_engine *e, struct weft_request_params p, wf_generation *out)
{
    struct pipe q = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct weft_request *r = NULL;
    *out = (wf_generation){0};
    p.on_event = on_event;
    p.user = &q;
    weft_status s = weft_submit(e, &p, &r);
    if (!s) {
        pump(&q, r, out);
        weft_wait(r, 0); /* the callback has returned: q is no longer shared */
    }
    weft_request_free(r);
    sigaction(SIGINT, &before, NULL);
    out->end = q.end;
    if (s) out->end.status = s;
    out->text = q.text;
    out->len = q.len;
    wf_copy(out->message, sizeof out->message, q.message);
    if (!s && q.lost)
        s = wf_fail(WEFT_ERR_NOMEM, "out of host memory for the generated text");
    else if (!s && q.end.status && q.end.status != WEFT_ERR_CANCELLED)
        s = wf_fail(q.end.status, "%s", *q.message ? q.message : weft_status_name(q.end.status));
    return s ? wf_say_error(s) : 0;
}

/* ---- report -----------------------------------------------------------------------------------
 */

static double rate(uint32_t n, uint64_t ns)
{
    return ns ? n * 1e9 / (double)ns : 0;
}

void wf_generate_report(const wf_opts *o, const struct weft_engine *e, const wf_generation *a)
{
    const struct weft_event *ev = &a->end;
    if (ev->finish == WEFT_FINISH_CONTEXT)
        wf_note(o,
                "the context is full after %u tokens; use a larger one (-c)",
                ev->n_prompt + ev->n_generated);
    if (a->interrupted) wf_note(o, "stopped");
    /* The last prefill step gives the first token, so decoding gave one less. */
    uint32_t n_decode = ev->n_generated ? ev->n_generated - 1 : 0;
    wf_note(o, "prompt %u tokens, %.1f tokens/s; generated %u tokens, %.1f tokens/s; on %s",
            ev->n_prompt, rate(ev->n_prompt, ev->prompt_ns), ev->n_generated,
            rate(n_decode, ev->decode_ns), weft_engine_device(e)->name);
}
