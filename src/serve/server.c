/* server: from start to SIGTERM. The calling thread waits for signals, checks the engine, and logs a line of statistics
 * from time to time. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS   100
#define REPORT_NS 10000000000ull
#define GIVE_UP_NS 350000000ull /* loading that takes longer to stop is left where it is */
#define EXIT_FAIL 1
#define EXIT_LOST 5 /* the program's exit code for a lost device */

/* ---- log ------------------------------------------------------------------------------------------------- */

/* line: an object that misses its end. */
static void log_json(wf_text *line)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    wf_json_print(line, ",'time':%g}", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) * 1e-3);
    if (!line->failed) fprintf(stderr, "%s\n", line->data);
    free(line->data);
}

static void on_log(void *user, enum weft_log_level level, const char *said)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char text[1024];
    wf_text line = {0};
    (void)user;
    wf_name_options(text, sizeof text, said);
    wf_json_print(&line, "{'level':%s,'message':%s", names[level], text);
    log_json(&line);
}

void wf_say(const wf_server *s, const char *fmt, ...)
{
    char raw[1024], text[4 * sizeof raw]; /* a request with the longest path, and all of it as escapes */
    va_list ap;
    if (s->p.quiet) return;
    va_start(ap, fmt);
    wf_format(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    if (s->p.log_json) on_log(NULL, WEFT_LOG_INFO, text);
    else fprintf(stderr, "weft: %s\n", text);
}

static int say_error(void)
{
    fprintf(stderr, "weft: error: %s\n", wf_last_error());
    return EXIT_FAIL;
}

void wf_log_request(wf_job *j)
{
    const wf_server *s = j->server;
    double ms = (double)(wf_now_ns() - j->start_ns) * 1e-6;
    size_t generated = 0;
    if (s->p.quiet || !(s->p.log_json || s->p.verbose)) return;
    pthread_mutex_lock(&j->lock);
    bool known = !j->working; /* else its client left, and a work thread still writes the reply */
    pthread_mutex_unlock(&j->lock);
    for (size_t i = 0; known && i < j->n_choices; i++) generated += j->choices[i].generated;
    wf_text line = {0};
    if (s->p.log_json) {
        wf_json_print(
            &line, "{'level':'info','request_id':%s,'method':%s,'path':%s,'status':%d,'generated_tokens':%zu,'ms':%.9g",
            j->id, j->method, j->path, j->status, generated, ms);
        log_json(&line);
    } else wf_say(s, "%s %s %s %d, %zu tokens, %.1f ms", j->id, j->method, j->path, j->status, generated, ms);
}

typedef struct report {
    uint64_t ns, prompt, generated;
} report;

/* One line, if something happened since the last one. */
static void report_rates(wf_server *s, report *last)
{
    uint64_t now = wf_now_ns(), pages = 0, used = 0;
    uint32_t running = 0, waiting = 0;
    report next = {.ns = now};
    wf_served *m = NULL;
    if (now - last->ns < REPORT_NS) return;
    while ((m = wf_served_next(s, m))) {
        struct weft_stats e = {0};
        if (wf_served_hold(m)) weft_engine_stats(m->engine, &e), wf_served_drop(m, false);
        running += e.running, waiting += e.waiting, pages += e.kv_pages, used += e.kv_pages_used;
        pthread_mutex_lock(&m->metrics.lock);
        next.prompt += m->metrics.prompt_tokens, next.generated += m->metrics.generation_tokens;
        pthread_mutex_unlock(&m->metrics.lock);
    }
    double seconds = (double)(now - last->ns) * 1e-9;
    if (next.prompt != last->prompt || next.generated != last->generated || running || waiting)
        wf_say(s, "prompt %.1f tokens/s, generation %.1f tokens/s, running %u, waiting %u, KV cache %.1f %%",
               (double)(next.prompt - last->prompt) / seconds, (double)(next.generated - last->generated) / seconds,
               running, waiting, pages ? 100.0 * (double)used / (double)pages : 0.0);
    *last = next;
}

/* ---- signals --------------------------------------------------------------------------------------------- */

/* Not with sigwait: threads of libraries do not block signals. */
static sem_t wake;
static atomic_int n_signals; /* received so far, by any thread */

static void on_signal(int sig)
{
    int saved = errno;
    (void)sig;
    atomic_fetch_add(&n_signals, 1);
    sem_post(&wake);
    errno = saved;
}

/* Again and again: LLVM, inside an OpenCL driver, replaces the handlers when it first compiles a kernel, by ones that
 * work once and leave the default action behind, so that a second signal would end the process at once. */
static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGINT, &sa, NULL);
}

/* Waits for a tick or a signal. Returns the number of signals so far. */
static int wait_tick(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_MS * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    sem_timedwait(&wake, &until);
    catch_signals();
    return atomic_load(&n_signals);
}

/* ---- start ----------------------------------------------------------------------------------------------- */

typedef struct loader {
    wf_opening opening; /* the first member: on_progress gets its address */
    wf_server *server;
    int rc;
    atomic_bool checked, done;
} loader;

static void on_progress(wf_opening *o, const char *what, double fraction)
{
    loader *l = (loader *)o;
    (void)fraction;
    if (!strcmp(what, "load") && !atomic_exchange(&l->checked, true)) sem_post(&wake);
}

static bool on_asked(const wf_opening *o)
{
    (void)o;
    return atomic_load(&n_signals) > 0;
}

static void *load_model(void *arg)
{
    loader *l = arg;
    l->rc = l->server->p.open(l->server->p.user, &l->opening);
    atomic_store(&l->done, true);
    sem_post(&wake);
    return NULL;
}

static bool let_clients_in(wf_server *s)
{
    const char *bracket = strchr(s->p.host, ':') ? "[" : "";
    s->listening = wf_work_start(s) && wf_httpd_start(s->http);
    if (s->listening)
        wf_say(s, "listening on http://%s%s%s:%u", bracket, s->p.host, *bracket ? "]" : "", wf_httpd_port(s->http));
    return s->listening;
}

/* A signal ends loading, which has a moment to clean up. No request has been accepted. */
_Noreturn static void give_up(const wf_server *s, const loader *l)
{
    uint64_t end = wf_now_ns() + GIVE_UP_NS;
    wf_say(s, "stopping…");
    while (!atomic_load(&l->done) && wf_now_ns() < end) wf_sleep_ns(1000000);
    _exit(0);
}

/* Waits until the engine is open. Clients may connect when its parameters are known to be valid and only the slow part
 * is left. */
static int wait_for_engine(wf_server *s, loader *l)
{
    for (bool done = false; !done;) {
        if (wait_tick() > 0) give_up(s, l);
        done = atomic_load(&l->done);
        if (done && l->rc) return l->rc;
        if (s->listening || !(done || atomic_load(&l->checked)) || let_clients_in(s)) continue;
        say_error();
        _exit(EXIT_FAIL);
    }
    catch_signals(); /* who reads "is ready" may rely on them */
    return wf_served_publish(s->models.usual, &l->opening) ? 0 : say_error();
}

/* ---- end ------------------------------------------------------------------------------------------------- */

static size_t count_jobs(wf_server *s, bool abort)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (wf_job *j = s->jobs; j; j = j->next, n++)
        if (abort) wf_job_abort(j, WF_ABORT_SHUTDOWN);
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Accepts no more requests, waits for running ones up to the timeout, then cancels them. */
static void drain_requests(wf_server *s)
{
    uint64_t end = wf_now_ns() + s->p.shutdown_timeout_s * 1000000000ull;
    int signals = atomic_load(&n_signals);
    atomic_store(&s->stopping, true);
    wf_httpd_refuse(s->http);
    size_t n = count_jobs(s, false);
    if (n) wf_say(s, "ending: %zu requests may still run for %u s", n, s->p.shutdown_timeout_s);
    while (count_jobs(s, false) && wf_now_ns() < end)
        if (wait_tick() > signals) break;
    if (count_jobs(s, true)) wf_say(s, "cancelling what still runs");
    while (atomic_load(&s->in_flight)) wf_sleep_ns(1000000); /* the engine guarantees that each sequence ends */
    wf_work_stop(s);
    for (int i = 0; i < 100 && count_jobs(s, false); i++) wf_sleep_ns(10000000); /* for the last bytes to clients */
}

/* Until a signal comes; the device of the only model may fail, too. Of several each is unloaded then. */
static int wait_for_end(wf_server *s)
{
    struct weft_stats e = {0};
    report last = {.ns = wf_now_ns()};
    for (bool stop = false; !stop;) {
        stop = wait_tick() > 0;
        report_rates(s, &last);
        if (!s->models.several) weft_engine_stats(s->models.usual->engine, &e);
        if (e.failed) stop = true; /* its requests have failed already */
    }
    drain_requests(s);
    if (e.failed) fprintf(stderr, "weft: error: the device failed; the server ends\n");
    return e.failed ? EXIT_LOST : 0;
}

#define DEFAULT(field, value)                                                                      \
    if (!s->p.field) s->p.field = (value)

static void set_defaults(wf_server *s)
{
    DEFAULT(host, "127.0.0.1");
    DEFAULT(metrics_prefix, "weft:");
    DEFAULT(request_timeout_s, 600);
    DEFAULT(shutdown_timeout_s, 30);
}

/* The one of the command line. */
static int serve_one(wf_server *s)
{
    loader l = {.opening.on_progress = on_progress, .opening.stop = on_asked, .server = s};
    pthread_t thread;
    if (pthread_create(&thread, NULL, load_model, &l)) return EXIT_FAIL;
    int rc = wait_for_engine(s, &l);
    if (!rc) rc = wait_for_end(s);
    pthread_join(thread, NULL);
    wf_httpd_close(s->http);
    s->http = NULL;
    weft_engine_close(l.opening.engine);
    weft_model_close(l.opening.model);
    return rc;
}

/* Those of the folder of models. */
static int serve_several(wf_server *s)
{
    size_t n = 0;
    for (wf_served *m = NULL; (m = wf_served_next(s, m));) n++;
    atomic_store(&s->loaded, true);
    if (!wf_keeper_start(s) || !let_clients_in(s)) {
        say_error();
        _exit(EXIT_FAIL);
    }
    wf_say(s, "serving the %zu models of %s, each as soon as a request names it", n, s->models.folder);
    int rc = wait_for_end(s);
    wf_httpd_close(s->http);
    s->http = NULL;
    if (wf_keeper_end(s)) return rc;
    wf_say(s, "ended");
    _exit(rc);
}

static int serve(wf_server *s)
{
    bool ok = wf_keys_load(s) && wf_proxies_load(s) && wf_chat_style_check(s) && wf_models_open(s);
    sem_init(&wake, 0, 0);
    catch_signals(); /* only now: the key file may be a pipe, which can block */
    const wf_limits *t = &s->limits;
    const wf_httpd_params http = {s->p.host, s->p.port, (uint32_t)t->connections, t->header_timeout_s,
                                  t->read_timeout_s, t->send_timeout_s, wf_request_calls};
    if (ok) s->http = wf_httpd_open(&http, s);
    if (!s->http) return say_error();
    int rc = s->models.several ? serve_several(s) : serve_one(s);
    if (!rc) wf_say(s, "ended");
    return rc;
}

int wf_serve(const wf_serve_params *p)
{
    wf_server *s = wf_calloc(1, sizeof *s);
    if (!s) return EXIT_FAIL;
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD,
            256 << 10); /* a constant one: what a large body took goes back to the system when it is freed */
#endif
    s->p = *p;
    s->started = (int64_t)time(NULL);
    set_defaults(s);
    /* A client that has shown nothing yet gets as long as a slow line needs for a head; what takes a minute more to
     * arrive, or to be taken, never will be. 8 MiB hold a context of a million tokens, and 32 such bodies are little
     * beside a model. Tests set others, as in WEFT_SERVE_LIMITS="read_timeout=2 max_body=1000000". */
    wf_limits *l = &s->limits;
    const char *others = getenv("WEFT_SERVE_LIMITS");
    const struct {
        const char *name;
        uint64_t *limit, value;
    } all[] = {{"header_timeout=", &l->header_timeout_s, 10}, {"read_timeout=", &l->read_timeout_s, 60},
               {"send_timeout=", &l->send_timeout_s, 60},     {"beat=", &l->beat_s, 5},
               {"max_body=", &l->max_body, 8u << 20},         {"models=", &l->models, 0},
               {"connections=", &l->connections, 4096},
               {"bodies=", &l->bodies, 256u << 20},           {"replies=", &l->replies, 256u << 20}};
    for (size_t i = 0; i < WF_LEN(all); i++) {
        const char *other = others ? strstr(others, all[i].name) : NULL;
        *all[i].limit = other ? strtoull(other + strlen(all[i].name), NULL, 10) : all[i].value;
    }
    s->bodies.limit = WF_MAX(l->bodies, l->max_body); /* any body that is possible fits alone */
    s->replies.limit = l->replies;
    pthread_mutex_init(&s->lock, NULL);
    if (p->log_json) weft_log_to(on_log, NULL, p->verbose ? WEFT_LOG_DEBUG : WEFT_LOG_WARN);
    int rc = serve(s);
    wf_httpd_close(s->http);
    wf_keys_free(s);
    free(s->proxies);
    wf_models_free(s);
    free(s);
    return rc;
}
