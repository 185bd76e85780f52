/* follow: ranks of an engine that are in other processes (dist/mpi.h). Process 0 gives orders to each; the one that
 * follows them does what a thread of a rank does in one process, with a device of its own. What devices exchange goes
 * between them directly, and results come to rank 0 by that. See engine.h.
 *
 * All processes have the same build of weft, so that structs travel as they are. A follower that fails while an engine
 * is opened says so in its answer; in a step it breaks the group. */
#include "dist/mpi.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "select/select.h"

#include <weft/debug.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum order { OPEN, LAY_OUT, LOAD, STEP, CLOSE, END };
enum { SILENT_MS = 10000, LINGER_MS = 20000 };

/* OPEN; behind it come the texts that it names, in the order of `texts`. */
typedef struct opening {
    enum order order;
    uint32_t number;
    char build[2 * 32 + 1];
    struct weft_model_params model;
    struct weft_engine_params engine;
    struct weft_debug debug;
} opening;

static const size_t texts[] = {
    offsetof(opening, model.path), offsetof(opening, model.shape), offsetof(opening, model.type),
    offsetof(opening, engine.device), offsetof(opening, engine.tier), offsetof(opening, engine.policy),
    offsetof(opening, engine.attention_windows), offsetof(opening, engine.tuned), offsetof(opening, engine.pooling),
    offsetof(opening, engine.kv_dtype), offsetof(opening, engine.reduce_dtype), offsetof(opening, debug.force)};

typedef struct cut { /* LAY_OUT */
    enum order order;
    uint32_t step_tokens, tile, sums;
    wf_key model; /* which the other has identified meanwhile */
} cut;

typedef struct loading { /* LOAD */
    enum order order;
    wf_limits limits;
} loading;

typedef struct answer {
    weft_status status;
    char message[256];
    wf_limits limits;    /* to LAY_OUT */
    wf_rank_bytes bytes; /* to LOAD */
} answer;

static const char **text_at(opening *o, size_t i)
{
    return (const char **)((char *)o + texts[i]);
}

static uint32_t silence_of(const struct weft_engine_params *p)
{
    uint32_t ms = p->watchdog_ms / 4 * 3; /* who waits for it gives up later, and knows less */
    return ms ? WF_MIN(ms, (uint32_t)SILENT_MS) : SILENT_MS;
}

/* ---- orders ---------------------------------------------------------------------------------------------------- */

static weft_status order_all(const wf_ranks *all, const void *order, uint64_t bytes)
{
    for (uint32_t i = 1; i < all->n; i++) WF_TRY(wf_mpi_order(i, order, bytes));
    return WEFT_OK;
}

/* Which engines are open has no part in it: the process ends. */
static void end_followers(void)
{
    if (wf_mpi_start(SILENT_MS) != WEFT_OK) return;

    const enum order end = END;
    uint32_t n;
    wf_process(&n);
    for (uint32_t i = 1; i < n; i++) wf_mpi_order(i, &end, sizeof end);
    wf_mpi_end();
}

static void describe_opening(const struct weft_engine *e, const struct weft_engine_params *p, opening *o)
{
    *o = (opening){.order = OPEN, .number = e->ranks.number, .model = e->model->opened, .engine = *p};
    wf_copy(o->build, sizeof o->build, wf_build_id());
    if (p->debug) o->debug = *p->debug;
    o->engine.plan = o->engine.dump_plan = o->engine.calibration = o->engine.timeline = o->engine.kv_disk = NULL;
    o->engine.debug = NULL, o->engine.user = NULL, o->engine.on_progress = NULL, o->engine.stop = NULL;
}

static weft_status order_opening(const wf_ranks *all, opening *o)
{
    uint64_t bytes = sizeof *o;
    for (size_t i = 0; i < WF_LEN(texts); i++) bytes += *text_at(o, i) ? strlen(*text_at(o, i)) + 1 : 0;
    char *message = wf_calloc(bytes, 1), *at = message + sizeof *o;
    if (!message) return WEFT_ERR_NOMEM;
    memcpy(message, o, sizeof *o);
    for (size_t i = 0; i < WF_LEN(texts); i++)
        if (*text_at(o, i)) at = stpcpy(at, *text_at(o, i)) + 1;
    weft_status s = order_all(all, message, bytes);
    free(message);
    return s;
}

static atomic_bool is_open; /* an engine with such ranks */

weft_status wf_away_open(struct weft_engine *e, const struct weft_engine_params *p)
{
    static uint32_t number;
    static bool ends;
    opening o;
    if (wf_process(NULL))
        return wf_fail(WEFT_ERR_ARG, "of the processes that mpirun started only the first one opens engines of several "
                                     "devices: the others call weft_follow");
    if (atomic_exchange(&is_open, true))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "another engine has devices in several processes: close it first");
    weft_status s = wf_mpi_start(silence_of(p));
    if (s != WEFT_OK) return atomic_store(&is_open, false), s;
    if (!ends) ends = !atexit(end_followers);
    e->ranks.n = wf_n_ranks(p); /* who are told that it is closed */
    e->ranks.number = ++number;
    describe_opening(e, p, &o);
    return order_opening(&e->ranks, &o);
}

static weft_status await_answer(const wf_ranks *all, uint32_t rank, answer *a)
{
    void *data;
    uint64_t bytes;
    WF_TRY(wf_mpi_await_answer(rank, all->number * 4 % WF_MPI_IDS + 2, &data, &bytes));
    bool good = bytes == sizeof *a;
    if (good) memcpy(a, data, sizeof *a);
    free(data);
    if (!good) return wf_fail(WEFT_ERR_INTERNAL, "process %u gives an answer of %llu bytes", rank,
                              (unsigned long long)bytes);
    return a->status ? wf_fail(a->status, "%s", a->message) : WEFT_OK;
}

weft_status wf_away_lay_out(struct weft_engine *e, wf_limits *least)
{
    answer a;
    cut c = {LAY_OUT, e->layout.limits.step_tokens, WF_MAX(e->layout.tile, 1u), e->layout.sums};
    WF_TRY(wf_model_identify(e->model, &c.model));
    WF_TRY(order_all(&e->ranks, &c, sizeof c));
    for (uint32_t i = 1; i < e->ranks.n; i++) {
        WF_TRY(await_answer(&e->ranks, i, &a));
        if (a.limits.pages < least->pages) *least = a.limits;
    }
    return WEFT_OK;
}

weft_status wf_away_load(struct weft_engine *e)
{
    answer a;
    const loading l = {LOAD, e->layout.limits};
    WF_TRY(order_all(&e->ranks, &l, sizeof l));
    for (uint32_t i = 1; i < e->ranks.n; i++) {
        WF_TRY(await_answer(&e->ranks, i, &a));
        e->ranks.list[i].bytes = a.bytes;
    }
    return WEFT_OK;
}

weft_status wf_away_step(struct weft_engine *e, const wf_batch *b)
{
    const enum order order = STEP;
    uint64_t bytes = sizeof order + wf_batch_packed(b, &e->layout.limits);
    uint8_t *message = wf_calloc(bytes, 1);
    if (!message) return WEFT_ERR_NOMEM;
    memcpy(message, &order, sizeof order);
    wf_batch_pack(b, &e->layout.limits, message + sizeof order);
    weft_status s = order_all(&e->ranks, message, bytes);
    free(message);
    return s;
}

void wf_away_close(struct weft_engine *e)
{
    const enum order order = CLOSE;
    order_all(&e->ranks, &order, sizeof order); /* of a group that is broken each ends by itself */
    atomic_store(&is_open, false);
}

/* ---- those who follow ------------------------------------------------------------------------------------------ */

typedef struct follower {
    uint32_t me;
    opening *o; /* and its texts */
    struct weft_model *model;
    wf_key model_is;
    struct weft_engine *e;
    wf_rank_step step;
    weft_status status; /* of opening */
    char message[256];
} follower;

/* Texts of o become those behind it. */
static bool find_texts(opening *o, uint64_t bytes)
{
    const char *at = (const char *)(o + 1), *end = (const char *)o + bytes;
    for (size_t i = 0; i < WF_LEN(texts); i++) {
        if (!*text_at(o, i)) continue;
        const char *stop = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        if (!stop) return false;
        *text_at(o, i) = at;
        at = stop + 1;
    }
    o->engine.debug = &o->debug;
    return at == end;
}

static weft_status open_rank(follower *f)
{
    const opening *o = f->o;
    const struct weft_engine_params *p = &o->engine;
    wf_open_params how;
    WF_TRY(wf_mpi_start(silence_of(p)));
    WF_TRY(weft_model_open(&o->model, &f->model));
    WF_TRY(wf_model_identify(f->model, &f->model_is));
    WF_TRY(wf_layout_check(f->model, p));
    WF_TRY(wf_engine_device_params(p, &how));
    f->e->model = f->model;
    WF_TRY(wf_ranks_list(f->e, p, &how));
    return wf_rank_open(f->e, p, &how, f->me);
}

static void note_status(follower *f, weft_status s)
{
    char host[64] = "";
    if (s == WEFT_OK || f->status) return;
    gethostname(host, sizeof host - 1);
    f->status = s;
    snprintf(f->message, sizeof f->message, "process %u on %s: %.160s", f->me, host, wf_error());
}

static weft_status give_answer(follower *f, answer *a)
{
    a->status = f->status;
    wf_copy(a->message, sizeof a->message, f->message);
    return wf_mpi_answer(f->e->ranks.number * 4 % WF_MPI_IDS + 2, a, sizeof *a);
}

static weft_status follow_open(follower *f, void *data, uint64_t bytes)
{
    opening *o = data;
    if (!(f->e = wf_calloc(1, sizeof *f->e))) return WEFT_ERR_NOMEM;
    pthread_mutex_init(&f->e->ranks.lock, NULL);
    pthread_cond_init(&f->e->ranks.changed, NULL);
    f->e->ranks.threads = true; /* lock and condition are there */
    f->o = o;
    f->status = WEFT_OK;
    if (bytes < sizeof *o || strncmp(o->build, wf_build_id(), sizeof o->build) || !find_texts(o, bytes))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "process 0 runs another build of weft: all must have the same");
    f->e->ranks.number = o->number;
    note_status(f, open_rank(f));
    return WEFT_OK;
}

static weft_status lay_out_rank(follower *f, wf_rank *r, const cut *c)
{
    if (memcmp(&c->model, &f->model_is, sizeof c->model))
        return wf_fail(WEFT_ERR_FORMAT, "%s is another model than in process 0: all must have the same file",
                       f->model->info.path);
    return wf_rank_lay_out(r, &f->o->engine, c->step_tokens, c->tile, (enum wf_dtype)c->sums);
}

/* Weights are read while the others do the same. */
static weft_status follow_lay_out(follower *f, const cut *c)
{
    answer a = {0};
    wf_rank *r = f->status ? NULL : &f->e->ranks.list[f->me];
    if (r) note_status(f, lay_out_rank(f, r, c));
    if (r) a.limits = r->layout.limits;
    return give_answer(f, &a);
}

static weft_status follow_load(follower *f, const loading *l)
{
    answer a = {0};
    wf_rank *r = f->status ? NULL : &f->e->ranks.list[f->me];
    if (r) {
        f->e->layout.limits = l->limits;
        weft_status s = wf_rank_load(r, &f->o->engine);
        if (s == WEFT_OK) s = wf_rank_make_step(&f->step, &l->limits);
        if (s == WEFT_OK) a.bytes = wf_rank_count(r);
        note_status(f, s);
    }
    return give_answer(f, &a);
}

static weft_status follow_step(follower *f, const uint8_t *batch, uint64_t bytes)
{
    struct weft_engine *e = f->e;
    WF_TRY(wf_batch_unpack(&f->step.batch, batch, bytes, &e->layout.limits));
    WF_TRY(wf_rank_run(&e->ranks.list[f->me], &f->step));
    return e->layout.weights.in_file && wf_gguf_broken(f->model->file)
        ? wf_fail(WEFT_ERR_IO, "%s changed on disk while it was in use", f->model->info.path) : WEFT_OK;
}

static void follow_close(follower *f)
{
    if (f->e) wf_ranks_close(f->e);
    wf_batch_free(&f->step.batch);
    free(f->step.wanted);
    free(f->e);
    weft_model_close(f->model);
    free(f->o);
    *f = (follower){.me = f->me};
}

static weft_status follow_order(follower *f, void *data, uint64_t bytes)
{
    const enum order order = *(enum order *)data;
    if (order == OPEN && !f->e) return follow_open(f, data, bytes);
    if (order == LAY_OUT && f->e && bytes == sizeof(cut)) return follow_lay_out(f, data);
    if (order == LOAD && f->e && bytes == sizeof(loading)) return follow_load(f, data);
    if (order == STEP && f->e && f->step.wanted)
        return follow_step(f, (uint8_t *)data + sizeof order, bytes - sizeof order);
    if (order == CLOSE) return follow_close(f), WEFT_OK;
    return order == END ? WEFT_OK : wf_fail(WEFT_ERR_INTERNAL, "process 0 gives order %d too early", (int)order);
}

/* mpirun may end all others with the first one that fails: process 0 has a moment to tell its clients of this one. */
static weft_status end_broken(weft_status s)
{
    char why[256];
    wf_copy(why, sizeof why, wf_error());
    wf_mpi_fail(why);
    bool own = wf_mpi_failed_here();
    wf_mpi_end();
    if (own) wf_sleep_ns(LINGER_MS * 1000000ull);
    return wf_fail(s, "%s", why);
}

weft_status weft_follow(void)
{
    uint32_t n;
    follower f = {.me = wf_process(&n)};
    if (n == 1) return WEFT_OK;
    if (!f.me) return end_followers(), WEFT_OK;
    weft_status s = wf_mpi_start(SILENT_MS);
    wf_stopper before = wf_stop_by(NULL, NULL); /* from now on process 0 says when it ends */
    for (bool end = false; s == WEFT_OK && !end;) {
        void *data;
        uint64_t bytes;
        if ((s = wf_mpi_await_order(&data, &bytes))) break;
        if (bytes < sizeof(enum order)) s = wf_fail(WEFT_ERR_INTERNAL, "process 0 gives an order of no length");
        else s = follow_order(&f, data, bytes);
        end = s == WEFT_OK && *(enum order *)data == END;
        if (data != f.o) free(data);
    }
    if (s == WEFT_OK) wf_mpi_end();
    else s = end_broken(s);
    follow_close(&f);
    wf_stop_by(before.fn, before.user);
    return s;
}
