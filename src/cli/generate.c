/* generate: prints text while the engine generates it. See generate.h. */
#include "cli/generate.h"

#include "answers/limit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STOP_NS 400000000ull  /* an interrupted request that takes longer to end is abandoned */
#define LOOK_NS 200000000ull  /* how often to look how far a prompt is */

/* ---- parameters ------------------------------------------------------------------------------ */

uint64_t wf_new_seed(const wf_opts *o)
{
    uint64_t seed = wf_random((uint64_t)time(NULL), wf_now_ns()) >> 32;
    wf_note(o, "seed %llu", (unsigned long long)seed);
    return seed;
}

struct weft_request_params wf_request_params(const wf_opts *o, const struct weft_model *m, bool chat)
{
    struct weft_request_params p = {
        .sampling = wf_sampling_of(o, m, chat),
        .ignore_eos = o->ignore_eos,
        .max_tokens = o->n_predict > 0 ? (uint32_t)o->n_predict : 0,
        .prefill_only = wf_opts_has(o, "n-predict") && o->n_predict == 0,
        .grammar = o->format.kind,
        .grammar_text = o->format.text,
        .grammar_len = o->format.len,
    };
    if (p.sampling.temperature > 0 && (o->random_seed || !wf_opts_has(o, "seed"))) p.sampling.seed = wf_new_seed(o);
    return p;
}

/* ---- Ctrl-C ---------------------------------------------------------------------------------- */

/* Posted for each event and by the signal handler, which may run on any thread: sem_post is async-signal-safe. The
 * semaphore is never destroyed, so that a late post is harmless; leftover posts cause only a spurious wake-up. */
static sem_t wake;
static pthread_once_t wake_once = PTHREAD_ONCE_INIT;
static atomic_int interrupts;   /* the handler and its readers may be on different threads */
static struct sigaction before; /* SIGINT handler to restore */

static void on_interrupt(int sig)
{
    (void)sig;
    int saved = errno;
    interrupts = 1;
    sem_post(&wake);
    errno = saved;
}

static void make_wake(void) { sem_init(&wake, 0, 0); }

void wf_generate_catch_interrupts(void)
{
    struct sigaction was, sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    interrupts = 0;
    pthread_once(&wake_once, make_wake);
    sigaction(SIGINT, &sa, &was);
    if (was.sa_handler != on_interrupt) before = was; /* still set if no wf_generate followed */
}

static void restore_interrupts(void) { sigaction(SIGINT, &before, NULL); }

bool wf_generate_interrupted(void) { return interrupts; }

/* ---- before a request ------------------------------------------------------------------------ */

static struct {
    const wf_opts *o;
    pthread_t watcher;
    bool watched, exits;
    atomic_bool done;
} work;

/* Answers Ctrl-C while the thread that began this works, and ends the program if it goes on for too long. */
static void *watch_prompt(void *unused)
{
    uint64_t since_ns = 0;
    (void)unused;
    while (!atomic_load(&work.done)) {
        wf_wait_for(&wake, LOOK_NS);
        if (!interrupts) continue;
        if (!since_ns) wf_note(work.o, "stopping…"), since_ns = wf_now_ns();
        if (work.exits && wf_now_ns() - since_ns > STOP_NS) _exit(WF_EXIT_INTERRUPTED);
    }
    if (interrupts && !since_ns) wf_note(work.o, "stopping…");
    return NULL;
}

void wf_generate_prepare(const wf_opts *o, bool exits)
{
    work.o = o;
    work.exits = exits;
    atomic_store(&work.done, false);
    work.watched = !pthread_create(&work.watcher, NULL, watch_prompt, NULL);
}

bool wf_generate_prepared(void)
{
    atomic_store(&work.done, true);
    sem_post(&wake);
    if (work.watched) pthread_join(work.watcher, NULL);
    if (interrupts) restore_interrupts();
    return interrupts;
}

weft_status wf_prompt_tokens(const struct weft_model *m, const struct weft_engine *e, const char *text, size_t len,
                             int32_t **ids, size_t *n)
{
    uint64_t most;
    uint32_t context = weft_engine_context(e);
    if (!wf_exceeds_context(m, context, len, &most)) return weft_tokenize(m, text, len, WEFT_TEXT_DEFAULT, ids, n);
    return wf_fail(WEFT_ERR_FULL,
                   "the prompt has %zu bytes, but at most %llu fit the context of %u tokens: shorten it or enlarge the "
                   "context (-c)",
                   len, (unsigned long long)most, context);
}

/* ---- from the engine's thread to ours -------------------------------------------------------- */

struct pipe {
    pthread_mutex_t lock;
    wf_text text; /* all that was generated */
    bool done;
    bool muted;      /* interrupted: what still comes is not part of the text */
    struct weft_request *abandoned; /* the pipe then belongs to the callback */
    struct weft_event end;
    char message[512];
};

static atomic_int n_abandoned; /* requests that still run */

static void free_pipe(struct pipe *q)
{
    pthread_mutex_destroy(&q->lock);
    free(q->text.data);
    free(q);
}

static void on_event(void *user, const struct weft_event *ev)
{
    struct pipe *q = user;
    pthread_mutex_lock(&q->lock);
    if (ev->kind == WEFT_EVENT_TOKEN && !q->muted) wf_text_add(&q->text, ev->text, ev->text_len);
    if (ev->kind == WEFT_EVENT_DONE) {
        q->done = true;
        q->end = *ev;
        wf_copy(q->message, sizeof q->message, ev->message ? ev->message : "");
    }
    struct weft_request *abandoned = q->done ? q->abandoned : NULL;
    pthread_mutex_unlock(&q->lock);
    sem_post(&wake);
    if (!abandoned) return;
    weft_request_free(abandoned); /* from a callback it does not wait */
    free_pipe(q);
    atomic_fetch_sub(&n_abandoned, 1);
}

/* Prints the text after *printed, by whole characters. Copies under the lock, so that printing happens outside it. */
static void print_new(struct pipe *q, size_t *printed, wf_printer *printer)
{
    char part[4096];
    for (;;) {
        pthread_mutex_lock(&q->lock);
        size_t n = WF_MIN(q->text.len - *printed, sizeof part);
        while (n > 1 && (q->text.data[*printed + n] & 0xc0) == 0x80) n--;
        if (n) memcpy(part, q->text.data + *printed, n);
        pthread_mutex_unlock(&q->lock);
        *printed += n;
        if (!n || !wf_printer_add(printer, part, n)) return;
    }
}

/* Stops the text where it is, and says so at once: a step may still run. */
static void stop_text(const wf_opts *o, struct pipe *q, size_t *printed, wf_generation *out)
{
    pthread_mutex_lock(&q->lock);
    q->muted = true;
    pthread_mutex_unlock(&q->lock);
    print_new(q, printed, &out->printer);
    wf_printer_end(&out->printer);
    wf_printer_line(&out->printer);
    wf_note(o, "stopping…");
}

/* Hands the pipe to the callback, which frees it; false: the request has ended meanwhile. */
static bool abandon_request(struct pipe *q, struct weft_request *r)
{
    pthread_mutex_lock(&q->lock);
    bool running = !q->done;
    if (running) {
        q->abandoned = r;
        atomic_fetch_add(&n_abandoned, 1);
    }
    pthread_mutex_unlock(&q->lock);
    return running;
}

/* Until the request has ended; false: it was abandoned. */
static bool pump_events(const wf_opts *o, const struct weft_engine *e, struct pipe *q, struct weft_request *r,
                        size_t n_prompt, wf_generation *out)
{
    struct weft_stats before;
    size_t printed = 0;
    uint64_t stop_ns = 0;
    wf_progress bar = {0};
    weft_engine_stats(e, &before);
    for (bool done = false; !done;) {
        wf_wait_for(&wake, LOOK_NS); /* an event or a signal */
        pthread_mutex_lock(&q->lock);
        done = q->done;
        bool lost = q->text.failed || out->printer.answer.failed, silent = !q->text.len && !done && !interrupts;
        pthread_mutex_unlock(&q->lock);
        if (silent && !o->quiet)
            wf_progress_update(&bar, "prompt",
                               (double)wf_prompt_done(e, &before, n_prompt) / (double)WF_MAX(n_prompt, 1u));
        else wf_progress_hide(&bar);
        print_new(q, &printed, &out->printer);
        if (!done && (interrupts || out->printer.closed || lost)) weft_cancel(r);
        if (!done && interrupts && !stop_ns) stop_text(o, q, &printed, out), stop_ns = wf_now_ns();
        if (!done && stop_ns && wf_now_ns() - stop_ns > STOP_NS && abandon_request(q, r)) return false;
    }
    out->n_prefilled = (uint32_t)wf_prompt_done(e, &before, n_prompt);
    return true;
}

/* The end of a request that has ended, and its text. */
static weft_status finish_request(struct pipe *q, wf_generation *out)
{
    out->end = q->end;
    wf_printer_end(&out->printer);
    out->interrupted = interrupts && q->end.finish == WEFT_FINISH_CANCEL;
    wf_copy(out->message, sizeof out->message, q->message);
    if (q->text.failed || out->printer.answer.failed)
        return wf_fail(WEFT_ERR_NOMEM, "out of host memory for the generated text");
    if (!q->end.status || q->end.status == WEFT_ERR_CANCELLED) return WEFT_OK;
    return wf_fail(q->end.status, "%s", *q->message ? q->message : weft_status_name(q->end.status));
}

static weft_status run_request(const wf_opts *o, struct weft_engine *e, struct weft_request_params *p,
                               wf_generation *out)
{
    struct pipe *q = wf_calloc(1, sizeof *q);
    struct weft_request *r = NULL;
    if (!q) return WEFT_ERR_NOMEM;
    pthread_mutex_init(&q->lock, NULL);
    p->on_event = on_event;
    p->user = q;
    weft_status s = weft_submit(e, p, &r);
    if (!s && !pump_events(o, e, q, r, p->n_tokens, out)) {
        out->interrupted = out->abandoned = true;
        return WEFT_OK;
    }
    weft_request_free(r); /* the callback has returned: q is no longer shared */
    if (s) out->end.status = s;
    else s = finish_request(q, out);
    free_pipe(q);
    return s;
}

int wf_generate(const wf_opts *o, struct weft_engine *e, struct weft_request_params p, const wf_answer_style *style,
                wf_generation *out)
{
    struct weft_adapter_info adapter;
    *out = (wf_generation){0};
    if (weft_engine_adapters(e, &adapter, 1)) p.adapter = adapter.name;
    weft_status s = wf_printer_begin(&out->printer, style, o->hide_thoughts);
    if (!s) s = run_request(o, e, &p, out);
    restore_interrupts();
    wf_printer_line(&out->printer);
    return s ? wf_say_error(s) : 0;
}

bool wf_generate_pending(void) { return atomic_load(&n_abandoned) > 0; }

/* ---- report ---------------------------------------------------------------------------------- */

static double token_rate(uint32_t n, uint64_t ns) { return ns ? n * 1e9 / (double)ns : 0; }

static void explain_empty(const wf_opts *o, const wf_generation *a, const char *hint)
{
    const struct weft_event *ev = &a->end;
    const char *what = o->hide_thoughts ? "thoughts, which --hide-thoughts leaves out"
                                        : "control tokens without a text";
    if (ev->n_generated)
        wf_note(o, "the answer is empty: %u tokens, all %s", ev->n_generated, what);
    else if (ev->finish == WEFT_FINISH_STOP)
        wf_note(o, "the answer is empty: the model ended it at once%s%s", *hint ? "; " : "", hint);
}

void wf_generate_report(const wf_opts *o, const struct weft_engine *e, const wf_generation *a, const char *hint)
{
    const struct weft_event *ev = &a->end;
    if (a->abandoned) {
        wf_note(o, "stopped");
        return;
    }
    if (ev->finish == WEFT_FINISH_CONTEXT)
        wf_note(o, "the context is full after %u tokens; use a larger one (-c)", ev->n_prompt + ev->n_generated);
    if (a->interrupted) wf_note(o, "stopped");
    if (a->interrupted && !ev->n_generated) { /* a part of a prompt says little of the rate */
        wf_note(o, "prompt %u of %u tokens; on %s", a->n_prefilled, ev->n_prompt, weft_engine_device(e)->name);
        return;
    }
    if (!a->interrupted && !a->printer.answer.len && !a->printer.thought) explain_empty(o, a, hint);
    /* The last prefill step gives the first token, so decoding gave one less. */
    uint32_t n_decode = ev->n_generated ? ev->n_generated - 1 : 0;
    char cached[64] = "";
    if (ev->n_cached) snprintf(cached, sizeof cached, " (%u of them from the prefix cache)", ev->n_cached);
    char drafts[64] = "";
    struct weft_stats stats;
    weft_engine_stats(e, &stats);
    if (stats.draft_tokens)
        snprintf(drafts, sizeof drafts, " (%llu of %llu drafts accepted)", (unsigned long long)stats.draft_accepted,
                 (unsigned long long)stats.draft_tokens);
    wf_note(o, "prompt %u tokens%s, %.1f tokens/s; generated %u tokens%s, %.1f tokens/s; on %s",
            ev->n_prompt, cached, token_rate(ev->n_prompt - ev->n_cached, ev->prompt_ns), ev->n_generated, drafts,
            token_rate(n_decode, ev->decode_ns), weft_engine_device(e)->name);
}
