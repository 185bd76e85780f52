/* interrupt: signals that ask for an end: what long commands do with them, and what ends the loading of a model.
 * Generation has Ctrl-C of its own (generate.c), and so has the server. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS  500000000u /* a second Ctrl-C comes at least this much later */
#define LOOK_NS    100000000u /* how often to look whether the handlers of loading are still there */
#define GIVE_UP_NS 400000000u /* loading that takes longer to stop is left where it is */

static atomic_int interrupted; /* by this signal; 0: not yet */

/* Some process managers deliver the signal twice at once: only a later one counts as the second. */
static void on_interrupt(int sig)
{
    static atomic_uint_least64_t first_ns;
    uint64_t now = wf_now_ns();
    if (interrupted && now - first_ns > SECOND_NS) _exit(128 + sig);
    if (!interrupted) first_ns = now;
    interrupted = sig;
}

void wf_catch_interrupt(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

void wf_catch_end(void (*handler)(int sig))
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction was, sa = {.sa_handler = handler ? handler : on_interrupt};
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < WF_LEN(signals); i++)
        if (signals[i] != SIGHUP || (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN))
            sigaction(signals[i], &sa, NULL); /* nohup ignores it */
}

bool wf_interrupted(void)
{
    return interrupted;
}

bool wf_ask_interrupted(void *user)
{
    (void)user;
    return interrupted;
}

int wf_interrupted_exit(void) { return 128 + interrupted; }

void wf_wait_for(sem_t *wake, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    sem_timedwait(wake, &until);
}

/* ---- while a model loads --------------------------------------------------------------------------
 *
 * What opens it asks stop() often, and then frees what it has. Within a long call, of a driver or to read a slow file,
 * it cannot: so a thread watches, says that the signal has been heard, and ends the program if stopping takes too long.
 * Files are written under other names until they are whole, so none is left in halves.
 */

static const int signals[WF_LOADING_SIGNALS] = {SIGINT, SIGTERM};
/* Posted by the handler and by the end of loading; never destroyed, so that a late post is harmless. */
static sem_t wake;
static pthread_once_t wake_once = PTHREAD_ONCE_INIT;

static void make_wake(void) { sem_init(&wake, 0, 0); }

static void on_signal(int sig)
{
    int saved = errno, none = 0;
    atomic_compare_exchange_strong(&interrupted, &none, sig);
    sem_post(&wake);
    errno = saved;
}

/* Who is started in the background with a signal ignored goes on ignoring it. */
static void catch_signals(const wf_loading *l)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < WF_LEN(signals); i++)
        if (l->before[i].sa_handler != SIG_IGN) sigaction(signals[i], &sa, NULL);
}

static void say_stopping(const wf_opts *o)
{
    if (!o->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr); /* the bar */
    wf_note(o, "stopping…");
}

/* LLVM, inside an OpenCL driver, replaces the handlers when it first compiles a kernel. */
static void *watch_loading(void *loading)
{
    wf_loading *l = loading;
    uint64_t since_ns = 0;
    while (!atomic_load(&l->done)) {
        wf_wait_for(&wake, LOOK_NS);
        catch_signals(l);
        if (!interrupted) continue;
        if (!since_ns) say_stopping(l->o), since_ns = wf_now_ns();
        if (wf_now_ns() - since_ns > GIVE_UP_NS) _exit(wf_interrupted_exit());
    }
    if (interrupted && !since_ns) say_stopping(l->o);
    return NULL;
}

void wf_loading_begin(const wf_opts *o, wf_loading *l, weft_stop_fn *ask)
{
    *l = (wf_loading){.o = o};
    if (*ask) return;
    pthread_once(&wake_once, make_wake);
    for (size_t i = 0; i < WF_LEN(signals); i++) sigaction(signals[i], NULL, &l->before[i]);
    l->watched = !pthread_create(&l->watcher, NULL, watch_loading, l);
    if (l->watched) *ask = wf_ask_interrupted, catch_signals(l);
}

bool wf_loading_end(wf_loading *l)
{
    const struct weft_engine_params *p = &l->o->engine;
    if (!l->watched) return p->stop && p->stop(p->user);
    atomic_store(&l->done, true);
    sem_post(&wake);
    pthread_join(l->watcher, NULL);
    for (size_t i = 0; i < WF_LEN(signals); i++) sigaction(signals[i], &l->before[i], NULL);
    return interrupted;
}
