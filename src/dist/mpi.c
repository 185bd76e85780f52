/* mpi: see mpi.h. Open MPI's library is opened where mpirun has started the process: no build needs it, and no other
 * run loads it. Its calls are made one at a time, under job.lock, and return at once; who waits asks again and again,
 * in growing intervals. A thread, the pulse, sends and hears signs of life between process 0 and each other one. */
#include "dist/mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_BEAT = 1, TAG_FAILURE, TAG_ORDER, TAG_GOODBYE, TAG_IDS = 16 /* and from there on two an id */ };
enum { TAG_EXCHANGE, TAG_MESSAGE };
enum { BEAT_MS = 200, LEAST_BEATS = 5, LAST_WORDS_MS = 500, END_MS = 5000, MEET_MS = 60000, TEXT = 256 };

/* ---- the library ----------------------------------------------------------------------------------------------- */

/* As the binary interface of libmpi.so.40 has them, which Open MPI 2 to 5 share. */
enum { ANY_SOURCE = -1, THREAD_SERIALIZED = 2, ERR_COUNT = 2, ERROR_TEXT = 256 };
typedef void *mpi_request;
typedef struct mpi_status {
    int source, tag, error, cancelled;
    size_t count;
} mpi_status;

static struct {
    void *world, *byte, *errors_return; /* MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN */
    int (*init)(int *argc, char ***argv, int wanted, int *provided);
    int (*set_errhandler)(void *comm, void *handler);
    int (*size)(void *comm, int *n);
    int (*rank)(void *comm, int *rank);
    int (*error_string)(int code, char *text, int *n);
    int (*isend)(const void *data, int n, void *type, int to, int tag, void *comm, mpi_request *out);
    int (*irecv)(void *data, int n, void *type, int from, int tag, void *comm, mpi_request *out);
    int (*test)(mpi_request *r, int *done, mpi_status *out); /* out may be NULL */
    int (*get_count)(const mpi_status *s, void *type, int *n);
    int (*finalize)(void);
} mpi;

static weft_status no_library(const char *why)
{
    return wf_fail(WEFT_ERR_UNSUPPORTED, "MPI cannot be used: %s: install Open MPI (Debian: openmpi-bin)",
                   why ? why : "it is not Open MPI");
}

static weft_status open_library(void)
{
    const struct {
        void *to;
        const char *name;
    } symbols[] = {{&mpi.world, "ompi_mpi_comm_world"}, {&mpi.byte, "ompi_mpi_byte"},
                   {&mpi.errors_return, "ompi_mpi_errors_return"}, {&mpi.init, "MPI_Init_thread"},
                   {&mpi.set_errhandler, "MPI_Comm_set_errhandler"}, {&mpi.size, "MPI_Comm_size"},
                   {&mpi.rank, "MPI_Comm_rank"}, {&mpi.error_string, "MPI_Error_string"}, {&mpi.isend, "MPI_Isend"},
                   {&mpi.irecv, "MPI_Irecv"}, {&mpi.test, "MPI_Test"}, {&mpi.get_count, "MPI_Get_count"},
                   {&mpi.finalize, "MPI_Finalize"}};
    void *lib = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL); /* its parts look for its symbols */
    if (!lib) return no_library(dlerror());
    for (size_t i = 0; i < WF_LEN(symbols); i++)
        if (!(*(void **)symbols[i].to = dlsym(lib, symbols[i].name))) return no_library(dlerror());
    return WEFT_OK;
}

/* ---- the processes --------------------------------------------------------------------------------------------- */

/* What is sent in a copy, until MPI has taken it. */
typedef struct parcel {
    struct parcel *next;
    mpi_request request;
    uint8_t data[];
} parcel;

static struct {
    pthread_mutex_t lock; /* of all here, and of calls of MPI */
    bool started, broken, ending, failed_here;
    uint32_t me, ranks, silent_ms;
    char host[64], message[TEXT];
    parcel *parcels;
    parcel *given_up; /* what was not waited for any longer: MPI may still write to it */
    mpi_request beat, failure; /* the next one that comes, from whomever */
    char heard[TEXT];          /* what it will say */
    uint64_t heard_ns[WF_COMM_RANKS];
    pthread_t pulse;
    pthread_cond_t wake;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A call that is under way. */
typedef struct pending {
    mpi_request request;
    bool done;
    int bytes; /* of what was received */
} pending;

/* ---- the end of the group -------------------------------------------------------------------------------------- */

static weft_status job_state(void)
{
    return job.broken ? wf_fail(WEFT_ERR_DEVICE, "%s", job.message) : WEFT_OK;
}

/* Until all have taken what was sent to them, or the time is over. */
static void flush_parcels(uint32_t ms)
{
    const uint64_t until = wf_now_ns() + ms * 1000000ull;
    for (;;) {
        for (parcel **at = &job.parcels, *p; (p = *at);) {
            int done = 0;
            if (mpi.test(&p->request, &done, NULL) || done) *at = p->next, free(p);
            else at = &p->next;
        }
        if (!job.parcels || wf_now_ns() >= until) return;
        wf_sleep_ns(100000);
    }
}

static weft_status send_copy(uint32_t to, int tag, const void *data, uint64_t bytes)
{
    parcel *p = bytes > INT_MAX ? NULL : wf_calloc(1, sizeof *p + bytes);
    if (!p) return wf_fail(WEFT_ERR_NOMEM, "no memory for a message of %llu bytes", (unsigned long long)bytes);
    memcpy(p->data, data, bytes);
    if (mpi.isend(p->data, (int)bytes, mpi.byte, (int)to, tag, mpi.world, &p->request)) {
        free(p);
        return wf_fail(WEFT_ERR_DEVICE, "MPI sends nothing to process %u", to);
    }
    p->next = job.parcels, job.parcels = p;
    return WEFT_OK;
}

/* The last words of this process are its own failure. After them nothing calls MPI: what it may still write to, nobody
 * frees in time. */
static void break_job(const char *message, bool tell)
{
    if (job.broken) return;
    if (tell) snprintf(job.message, sizeof job.message, "process %u on %s: %.160s", job.me, job.host, message);
    else wf_copy(job.message, sizeof job.message, message);
    for (uint32_t r = 0; r < job.ranks && tell; r++)
        if (r != job.me) send_copy(r, TAG_FAILURE, job.message, sizeof job.message);
    if (tell) flush_parcels(LAST_WORDS_MS);
    job.broken = true, job.failed_here = tell;
}

static void break_by_code(int code)
{
    char text[ERROR_TEXT] = "";
    int n = 0;
    mpi.error_string(code, text, &n);
    break_job(text, true);
}

weft_status wf_mpi_state(void)
{
    pthread_mutex_lock(&job.lock);
    weft_status s = job_state();
    pthread_mutex_unlock(&job.lock);
    return s;
}

bool wf_mpi_failed_here(void)
{
    pthread_mutex_lock(&job.lock);
    bool here = job.failed_here;
    pthread_mutex_unlock(&job.lock);
    return here;
}

void wf_mpi_fail(const char *message)
{
    pthread_mutex_lock(&job.lock);
    if (job.started) break_job(message, true);
    pthread_mutex_unlock(&job.lock);
}

/* ---- the pulse ------------------------------------------------------------------------------------------------- */

static void listen_for(mpi_request *request, void *data, int bytes, int tag)
{
    int code = mpi.irecv(data, bytes, mpi.byte, ANY_SOURCE, tag, mpi.world, request);
    if (code) break_by_code(code);
}

/* Has one come? From whom. */
static bool has_come(mpi_request *request, uint32_t *from)
{
    mpi_status st = {0};
    int done = 0, code = job.broken ? 0 : mpi.test(request, &done, &st);
    if (code) break_by_code(code);
    if (code || !done) return false;
    *from = (uint32_t)st.source;
    return true;
}

static void hear_others(void)
{
    uint32_t from;
    while (has_come(&job.beat, &from)) {
        job.heard_ns[from] = wf_now_ns();
        listen_for(&job.beat, NULL, 0, TAG_BEAT);
    }
    if (has_come(&job.failure, &from)) break_job(job.heard, false);
}

static bool is_watched(uint32_t r)
{
    return r != job.me && (!job.me || !r);
}

static void feel_pulse(void)
{
    char message[TEXT];
    uint64_t now = wf_now_ns();
    hear_others();
    for (uint32_t r = 0; r < job.ranks && !job.broken; r++) {
        if (!is_watched(r)) continue;
        if (now > job.heard_ns[r] + job.silent_ms * 1000000ull) {
            snprintf(message, sizeof message,
                     "process %u of the group gave no sign of life for %u ms: it has ended, or its host cannot be "
                     "reached", r, job.silent_ms);
            break_job(message, true);
            job.failed_here = !job.me;
        } else if (send_copy(r, TAG_BEAT, "", 0) != WEFT_OK) break_job(wf_error(), true);
    }
    if (!job.broken) flush_parcels(0);
}

static void *pulse_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&job.lock);
    while (!job.ending && !job.broken) {
        struct timespec until;
        feel_pulse();
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BEAT_MS * 1000000l;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        if (!job.ending && !job.broken) pthread_cond_timedwait(&job.wake, &job.lock, &until);
    }
    pthread_mutex_unlock(&job.lock);
    return NULL;
}

/* ---- beginning ------------------------------------------------------------------------------------------------- */

/* MPI_Init_thread waits until all processes have come, without an end: a thread of its own does. */
static atomic_int init_result; /* UNDER_WAY: it waits */
enum { UNDER_WAY, HAS_MET, HAS_FAILED };

static void *init_thread(void *unused)
{
    int level = 0;
    bool met = !mpi.init(NULL, NULL, THREAD_SERIALIZED, &level) && level >= THREAD_SERIALIZED;
    atomic_store(&init_result, met ? HAS_MET : HAS_FAILED);
    return unused;
}

/* Of what a rank of a job runs one after the other, one program can begin MPI: it ends a second one. The mark of the
 * first lies in the job's own folder, which mpirun removes. */
static weft_status check_first(void)
{
    const char *folder = getenv("PMIX_SERVER_TMPDIR");
    char path[PATH_MAX];
    if (!folder) return WEFT_OK;
    snprintf(path, sizeof path, "%s/weft-%u", folder, wf_process(NULL));
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) return close(fd), WEFT_OK;
    return errno != EEXIST ? WEFT_OK
        : wf_fail(WEFT_ERR_UNSUPPORTED, "this mpirun has already run one weft of several processes: start each by an "
                  "mpirun of its own; for independent runs: env -u OMPI_COMM_WORLD_SIZE");
}

/* Process 0 may have to load a model before it comes, and the others wait for it as long as they are let. */
static weft_status await_init(uint32_t n, uint32_t limit_ms)
{
    const uint64_t began = wf_now_ns();
    pthread_t thread;
    if (pthread_create(&thread, NULL, init_thread, NULL))
        return wf_fail(WEFT_ERR_NOMEM, "cannot start a thread that meets the other processes");
    pthread_detach(thread);
    while (atomic_load(&init_result) == UNDER_WAY) {
        WF_TRY(wf_stop_now());
        if (!wf_process(NULL) && wf_now_ns() - began > limit_ms * 1000000ull)
            return wf_fail(WEFT_ERR_DEVICE, "only some of %u processes came within %u s: is weft installed on each "
                           "host, and Open MPI?", n, limit_ms / 1000);
        wf_sleep_ns(1000000);
    }
    return WEFT_OK;
}

static weft_status meet_processes(uint32_t limit_ms)
{
    int ranks = 0, me = 0;
    uint32_t n, which = wf_process(&n);
    if (n < 2) return wf_fail(WEFT_ERR_ARG, "several processes compute a model only where mpirun starts them");
    if (n > WF_COMM_RANKS) return wf_fail(WEFT_ERR_ARG, "mpirun started %u processes: at most %d", n, WF_COMM_RANKS);
    WF_TRY(open_library());
    weft_status s = check_first();
    if (s == WEFT_OK) s = await_init(n, limit_ms);
    WF_TRY(s);
    bool met = atomic_load(&init_result) == HAS_MET && !mpi.set_errhandler(mpi.world, mpi.errors_return) &&
        !mpi.size(mpi.world, &ranks) && !mpi.rank(mpi.world, &me);
    if (!met || (uint32_t)ranks != n || (uint32_t)me != which)
        return wf_fail(WEFT_ERR_DEVICE, "MPI does not bring the %u processes together", n);
    job.me = which, job.ranks = n;
    gethostname(job.host, sizeof job.host - 1);
    for (uint32_t r = 0; r < n; r++) job.heard_ns[r] = wf_now_ns();
    return WEFT_OK;
}

static weft_status start_pulse(void)
{
    pthread_condattr_t attr;
    listen_for(&job.beat, NULL, 0, TAG_BEAT);
    listen_for(&job.failure, job.heard, sizeof job.heard, TAG_FAILURE);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&job.wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&job.pulse, NULL, pulse_thread, NULL))
        return wf_fail(WEFT_ERR_NOMEM, "cannot start a thread that watches the other processes");
    job.started = true;
    return WEFT_OK;
}

weft_status wf_mpi_start(uint32_t silent_ms)
{
    static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER; /* until it has met them nobody calls MPI */
    silent_ms = WF_MAX(silent_ms, (uint32_t)LEAST_BEATS * BEAT_MS);
    pthread_mutex_lock(&beginning);
    pthread_mutex_lock(&job.lock);
    bool begins = !job.started && !job.ending && !job.broken;
    pthread_mutex_unlock(&job.lock);
    weft_status s = begins ? meet_processes(WF_MIN(6 * silent_ms, (uint32_t)MEET_MS)) : WEFT_OK;
    pthread_mutex_lock(&job.lock);
    job.silent_ms = silent_ms;
    if (s != WEFT_OK) break_job(wf_error(), false); /* nobody begins again */
    if (s == WEFT_OK) s = begins ? start_pulse() : job_state();
    pthread_mutex_unlock(&job.lock);
    pthread_mutex_unlock(&beginning);
    return s;
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void post_receive(pending *p, void *data, uint64_t bytes, uint32_t from, int tag)
{
    *p = (pending){.bytes = 0};
    int code = bytes > INT_MAX ? ERR_COUNT
        : mpi.irecv(data, (int)bytes, mpi.byte, (int)from, tag, mpi.world, &p->request);
    if (code) break_by_code(code);
}

static void post_send(pending *p, const void *data, uint64_t bytes, uint32_t to, int tag)
{
    *p = (pending){.bytes = 0};
    int code = bytes > INT_MAX ? ERR_COUNT
        : mpi.isend(data, (int)bytes, mpi.byte, (int)to, tag, mpi.world, &p->request);
    if (code) break_by_code(code);
}

static bool test_all(pending *list, uint32_t n)
{
    bool all = true;
    for (pending *p = list; p < list + n && !job.broken; p++) {
        mpi_status st = {0};
        int done = 0, code = p->done ? 0 : mpi.test(&p->request, &done, &st);
        if (code) break_by_code(code);
        if (!code && done) p->done = true, mpi.get_count(&st, mpi.byte, &p->bytes);
        all = all && p->done;
    }
    return all;
}

/* First at once, as in the middle of a step, then in intervals of a sixteenth of the time waited so far. */
static void pause_after(uint64_t waited_ns)
{
    if (waited_ns < 100000) sched_yield();
    else wf_sleep_ns(WF_MIN(waited_ns / 16, (uint64_t)5000000));
}

/* timeout_ms 0: as long as it takes, or until the work of this thread is given up. */
static weft_status await_all(pending *list, uint32_t n, uint32_t timeout_ms)
{
    const uint64_t began = wf_now_ns();
    for (;;) {
        uint64_t waited = wf_now_ns() - began;
        char message[TEXT];
        pthread_mutex_lock(&job.lock);
        bool all = test_all(list, n);
        if (!job.broken) hear_others();
        if (!all && timeout_ms && waited > timeout_ms * 1000000ull) {
            snprintf(message, sizeof message, "a device of the group did not answer within %u ms", timeout_ms);
            break_job(message, true);
        }
        weft_status s = job_state();
        pthread_mutex_unlock(&job.lock);
        if (s != WEFT_OK || all) return s;
        if (!timeout_ms) WF_TRY(wf_stop_now());
        pause_after(waited);
    }
}

/* ---- comms ----------------------------------------------------------------------------------------------------- */

typedef struct mpi_comm {
    wf_comm c;
    uint32_t first, timeout_ms;
    int tag;
} mpi_comm;

static mpi_comm *mpi_of(wf_comm *c)
{
    return (mpi_comm *)c;
}

/* Nobody waits for the rest of an exchange that was planned wrongly. */
static weft_status wrong_length(uint64_t want, uint64_t came)
{
    wf_fail(WEFT_ERR_INTERNAL, "devices of the group exchange %llu bytes with %llu", (unsigned long long)want,
            (unsigned long long)came);
    wf_mpi_fail(wf_error());
    return WEFT_ERR_INTERNAL;
}

/* Who takes nothing hears that a rank is there. */
static weft_status mpi_exchange(wf_comm *c, const void *own, uint64_t bytes, uint32_t takers, void *room,
                                const void **all)
{
    mpi_comm *m = mpi_of(c);
    pending list[2 * WF_COMM_RANKS];
    uint32_t k = 0;
    const uint64_t want = c->rank < takers ? bytes : 0;
    pthread_mutex_lock(&job.lock);
    for (uint32_t r = 0; r < c->ranks && !job.broken; r++) {
        all[r] = r == c->rank ? own : (uint8_t *)room + r * bytes;
        if (r == c->rank) continue;
        post_receive(&list[k++], (void *)all[r], want, m->first + r, m->tag + TAG_EXCHANGE);
        if (!job.broken) post_send(&list[k++], own, r < takers ? bytes : 0, m->first + r, m->tag + TAG_EXCHANGE);
    }
    pthread_mutex_unlock(&job.lock);
    WF_TRY(await_all(list, k, m->timeout_ms));
    for (uint32_t i = 0; i < k; i += 2)
        if ((uint64_t)list[i].bytes != want) return wrong_length(want, (uint64_t)list[i].bytes);
    return WEFT_OK;
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Goes before what it is about. */
typedef struct envelope {
    uint64_t bytes, tag;
} envelope;

static weft_status send_message(uint32_t to, int channel, uint64_t tag, const void *data, uint64_t bytes)
{
    const envelope head = {bytes, tag};
    pthread_mutex_lock(&job.lock);
    weft_status s = job_state();
    if (s == WEFT_OK) s = send_copy(to, channel, &head, sizeof head);
    if (s == WEFT_OK && bytes) s = send_copy(to, channel, data, bytes);
    if (s == WEFT_OK) flush_parcels(0);
    pthread_mutex_unlock(&job.lock);
    return s;
}

static weft_status receive_part(uint32_t from, int channel, void *data, uint64_t bytes, uint32_t timeout_ms)
{
    pending one;
    pthread_mutex_lock(&job.lock);
    weft_status s = job_state();
    if (s == WEFT_OK) post_receive(&one, data, bytes, from, channel);
    pthread_mutex_unlock(&job.lock);
    WF_TRY(s);
    WF_TRY(await_all(&one, 1, timeout_ms));
    return (uint64_t)one.bytes == bytes ? WEFT_OK : wrong_length(bytes, (uint64_t)one.bytes);
}

static weft_status mpi_send(wf_comm *c, uint32_t to, uint32_t tag, const void *data, uint64_t bytes)
{
    return send_message(mpi_of(c)->first + to, mpi_of(c)->tag + TAG_MESSAGE, tag, data, bytes);
}

static weft_status mpi_receive(wf_comm *c, uint32_t from, uint32_t tag, void *data, uint64_t bytes)
{
    mpi_comm *m = mpi_of(c);
    envelope head;
    WF_TRY(receive_part(m->first + from, m->tag + TAG_MESSAGE, &head, sizeof head, m->timeout_ms));
    if (head.bytes != bytes || head.tag != tag)
        return wf_fail(WEFT_ERR_INTERNAL, "a message of %llu bytes for %u where one of %llu for %u was expected",
                       (unsigned long long)head.bytes, (unsigned)head.tag, (unsigned long long)bytes, tag);
    return bytes ? receive_part(m->first + from, m->tag + TAG_MESSAGE, data, bytes, m->timeout_ms) : WEFT_OK;
}

/* As long as it takes. Memory that MPI may still write to when the wait is given up is not freed. */
static weft_status receive_parcel(uint32_t from, int channel, uint64_t bytes, parcel **out)
{
    parcel *p = wf_calloc(1, sizeof *p + bytes);
    *out = NULL;
    if (!p) return WEFT_ERR_NOMEM;
    weft_status s = receive_part(from, channel, p->data, bytes, 0);
    if (s == WEFT_OK) return *out = p, s;
    pthread_mutex_lock(&job.lock);
    p->next = job.given_up, job.given_up = p;
    pthread_mutex_unlock(&job.lock);
    return s;
}

static weft_status await_message(uint32_t from, int channel, void **data, uint64_t *bytes)
{
    parcel *head, *body = NULL;
    *data = NULL;
    WF_TRY(receive_parcel(from, channel, sizeof(envelope), &head));
    *bytes = ((envelope *)head->data)->bytes;
    free(head);
    WF_TRY(*bytes ? receive_parcel(from, channel, *bytes, &body) : WEFT_OK);
    if ((*data = wf_calloc(WF_MAX(*bytes, 1u), 1)) && body) memcpy(*data, body->data, *bytes);
    free(body);
    return *data ? WEFT_OK : WEFT_ERR_NOMEM;
}

static int tag_of(uint32_t id)
{
    return TAG_IDS + 2 * (int)id;
}

weft_status wf_mpi_order(uint32_t to, const void *data, uint64_t bytes)
{
    return send_message(to, TAG_ORDER, 0, data, bytes);
}

weft_status wf_mpi_answer(uint32_t id, const void *data, uint64_t bytes)
{
    return send_message(0, tag_of(id) + TAG_MESSAGE, 0, data, bytes);
}

weft_status wf_mpi_await_order(void **data, uint64_t *bytes)
{
    return await_message(0, TAG_ORDER, data, bytes);
}

weft_status wf_mpi_await_answer(uint32_t from, uint32_t id, void **data, uint64_t *bytes)
{
    return await_message(from, tag_of(id) + TAG_MESSAGE, data, bytes);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static void mpi_fail(wf_comm *c, const char *message)
{
    (void)c;
    wf_mpi_fail(message);
}

static void mpi_close(wf_comm *c)
{
    free(c);
}

static const wf_comm_fns mpi_fns = {mpi_exchange, mpi_send, mpi_receive, mpi_fail, mpi_close};

weft_status wf_comm_mpi(uint32_t id, uint32_t first, uint32_t ranks, uint32_t timeout_ms, wf_comm **out)
{
    mpi_comm *m = wf_calloc(1, sizeof *m);
    if (!m) return WEFT_ERR_NOMEM;
    *m = (mpi_comm){.c = {&mpi_fns, wf_process(NULL) - first, ranks, true}, .first = first, .timeout_ms = timeout_ms,
                    .tag = tag_of(id)};
    *out = &m->c;
    return WEFT_OK;
}

/* MPI_Finalize waits for the others: only where all have come to it. */
static bool say_goodbye(void)
{
    pending list[WF_COMM_RANKS];
    uint32_t k = 0;
    pthread_mutex_lock(&job.lock);
    for (uint32_t r = 0; r < job.ranks && !job.broken; r++) {
        if (r == job.me || send_copy(r, TAG_GOODBYE, "", 0) != WEFT_OK) continue;
        post_receive(&list[k++], NULL, 0, r, TAG_GOODBYE);
    }
    pthread_mutex_unlock(&job.lock);
    return await_all(list, k, END_MS) == WEFT_OK;
}

void wf_mpi_end(void)
{
    pthread_mutex_lock(&job.lock);
    bool started = job.started;
    job.started = false;
    pthread_mutex_unlock(&job.lock);
    if (!started) return;
    bool all = say_goodbye();
    pthread_mutex_lock(&job.lock);
    job.ending = true;
    pthread_cond_signal(&job.wake);
    pthread_mutex_unlock(&job.lock);
    pthread_join(job.pulse, NULL);
    pthread_mutex_lock(&job.lock);
    if (all) flush_parcels(END_MS), mpi.finalize();
    break_job("the group of processes has ended", false);
    pthread_mutex_unlock(&job.lock);
}
