/* ranks: the devices of an engine that computes on several (weft_engine_params.tensor_parallel, pipeline_parallel,
 * experts). Each has its part of the weights and of the KV cache, a program of its own, and a thread that submits its
 * part of each step and waits for it; they meet in the nodes of the network (exec/collective.c). Steps are handed to
 * all threads at once, and run one behind the other on each. Where mpirun has started a process for each, a process has
 * one rank, and follow.c hands over. See engine.h.
 *
 * Rank 0 gives results: it has the last layers and is the engine's own device, layout and exec. Ranks of a pipeline go
 * from its end to its beginning, while parameters name devices from the beginning to the end.
 */
#include "dist/mpi.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "select/select.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- which is which ------------------------------------------------------------------------------------------ */

uint32_t wf_n_ranks(const struct weft_engine_params *p)
{
    return p->experts ? 2 : WF_MAX(p->tensor_parallel, 1u) * WF_MAX(p->pipeline_parallel, 1u);
}

bool wf_is_spread(const struct weft_engine_params *p)
{
    uint32_t processes;
    wf_process(&processes);
    return processes > 1 && !p->experts && processes == wf_n_ranks(p);
}

wf_shard wf_shard_of_rank(const struct weft_engine_params *p, uint32_t rank, uint32_t layers)
{
    const char *count = p->experts ? strrchr(p->experts, '=') : NULL; /* "cpu=20" */
    uint32_t away = count ? (uint32_t)strtoul(count + 1, NULL, 10) : layers;
    if (p->experts) return (wf_shard){.away = WF_MIN(away, layers), .is_away = rank > 0};
    uint32_t ranks = WF_MAX(p->tensor_parallel, 1u), stages = WF_MAX(p->pipeline_parallel, 1u);
    return (wf_shard){.rank = rank % ranks, .ranks = ranks, .stage = stages - 1 - rank / ranks, .stages = stages};
}

static uint32_t count_names(const char *list)
{
    uint32_t n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

weft_status wf_rank_device(const struct weft_engine_params *p, uint32_t rank, char name[WF_RANK_NAME])
{
    uint32_t want = wf_n_ranks(p), n = p->device ? count_names(p->device) : 0;
    wf_shard shard = wf_shard_of_rank(p, rank, 0);
    const char *at = p->device;
    if (p->experts) {
        wf_copy(name, WF_RANK_NAME, rank ? p->experts : at ? at : "auto");
        if (rank && strrchr(name, '=')) *strrchr(name, '=') = 0;
        return WEFT_OK;
    }
    if (n <= 1 && wf_is_spread(p)) { /* each process has one of that name */
        wf_copy(name, WF_RANK_NAME, n ? at : "auto");
        return WEFT_OK;
    }
    if (n != want)
        return wf_fail(WEFT_ERR_ARG,
                       "%u devices compute the model (tensor_parallel %u, pipeline_parallel %u), and device names "
                       "%.*u%s: name each, with commas between, as \"opencl:0.0,opencl:0.1\", or start as many "
                       "processes by mpirun",
                       want, shard.ranks, shard.stages, n > 0, n, n ? "" : "none");
    for (uint32_t i = shard.stage * shard.ranks + shard.rank; i; i--) at = strchr(at, ',') + 1;
    wf_copy(name, WF_MIN((size_t)WF_RANK_NAME, strcspn(at, ",") + 1), at);
    return *name ? WEFT_OK : wf_fail(WEFT_ERR_ARG, "device \"%s\": a name is missing beside a comma", p->device);
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* The last stage waits for all that come before it. */
static uint32_t patience_of_all(const wf_ranks *all, uint32_t timeout_ms)
{
    return (uint32_t)WF_MIN((uint64_t)timeout_ms * all->n, (uint64_t)UINT32_MAX);
}

/* Comms of those that compute each layer together. */
static weft_status open_comms(wf_ranks *all, uint32_t ranks, uint32_t timeout_ms)
{
    wf_comm *comms[WF_COMM_RANKS];
    WF_TRY(wf_comm_threads(all->n, patience_of_all(all, timeout_ms), comms));
    for (uint32_t i = 0; i < all->n; i++) all->list[i].group.all = comms[i];
    for (uint32_t first = 0; first < all->n && ranks > 1; first += ranks) {
        WF_TRY(wf_comm_threads(ranks, timeout_ms, comms));
        for (uint32_t i = 0; i < ranks; i++) all->list[first + i].group.layer = comms[i];
    }
    return WEFT_OK;
}

/* The same of the rank that this process has. */
static weft_status open_own_comms(wf_ranks *all, uint32_t ranks, uint32_t timeout_ms)
{
    uint32_t me = wf_process(NULL), id = all->number * 4 % WF_MPI_IDS;
    wf_exec_group *g = &all->list[me].group;
    WF_TRY(wf_comm_mpi(id, 0, all->n, patience_of_all(all, timeout_ms), &g->all));
    return ranks > 1 ? wf_comm_mpi(id + 1, me / ranks * ranks, ranks, timeout_ms, &g->layer) : WEFT_OK;
}

/* Two that give each other what they have. */
static void face_each_other(wf_ranks *all)
{
    for (uint32_t i = 0; i < 2; i++) all->list[i].group.from = all->list[i].group.to = 1 - i;
}

weft_status wf_rank_open(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o,
                         uint32_t i)
{
    char name[WF_RANK_NAME];
    WF_TRY(wf_rank_device(p, i, name));
    return wf_select_open(name, o, &e->ranks.list[i].dev);
}

weft_status wf_ranks_list(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o)
{
    wf_ranks *all = &e->ranks;
    uint32_t n = wf_n_ranks(p), ranks = WF_MAX(p->tensor_parallel, 1u), me = wf_process(NULL);
    if (!(all->list = wf_calloc(n, sizeof *all->list))) return WEFT_ERR_NOMEM;
    all->n = n;
    all->depth = WF_MIN(WF_MAX(p->pipeline_parallel, 1u), WF_MOST_STEPS);
    for (uint32_t i = 0; i < n; i++) {
        wf_rank *r = &all->list[i];
        r->engine = e;
        r->away = all->number && i != me;
        r->group.from = i + ranks; /* the layers before are of a later rank */
        r->group.to = i - WF_MIN(i, ranks);
    }
    if (p->experts) face_each_other(all);
    return all->number ? open_own_comms(all, ranks, o->watchdog_ms) : open_comms(all, ranks, o->watchdog_ms);
}

weft_status wf_ranks_open(struct weft_engine *e, const struct weft_engine_params *p, const wf_open_params *o)
{
    uint32_t n = wf_n_ranks(p);
    if (n < 2) return WEFT_OK;
    if (wf_is_spread(p)) WF_TRY(wf_away_open(e, p));
    WF_TRY(wf_ranks_list(e, p, o));
    for (uint32_t i = 1; i < n; i++)
        if (!e->ranks.list[i].away) WF_TRY(wf_rank_open(e, p, o, i));
    return WEFT_OK;
}

/* Devices of other types cut a step into the same parts, and exchange those. */
weft_status wf_rank_lay_out(wf_rank *r, const struct weft_engine_params *p, uint32_t step_tokens, uint32_t tile,
                            enum wf_dtype sums)
{
    struct weft_engine_params same = *p;
    uint32_t i = (uint32_t)(r - r->engine->ranks.list);
    same.max_batched_tokens = step_tokens, same.tile = tile;
    WF_TRY(wf_layout_make_rank(r->engine->model, &same, i, sums, &r->dev->info, r->dev, &r->layout));
    return wf_layout_check_available(&r->layout);
}

weft_status wf_ranks_lay_out(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_limits limits = e->layout.limits; /* the scheduler knows of one KV cache */
    if (e->ranks.number) WF_TRY(wf_away_lay_out(e, &limits));
    for (uint32_t i = 1; i < e->ranks.n; i++) {
        wf_rank *r = &e->ranks.list[i];
        if (r->away) continue;
        WF_TRY(wf_rank_lay_out(r, p, e->layout.limits.step_tokens, WF_MAX(e->layout.tile, 1u), e->layout.sums));
        if (r->layout.limits.pages < limits.pages) limits = r->layout.limits;
    }
    for (uint32_t i = 0; i < e->ranks.n; i++)
        if (!e->ranks.list[i].away) wf_layout_limit(i ? &e->ranks.list[i].layout : &e->layout, &limits);
    return WEFT_OK;
}

/* The engine's own device has its exec, and perhaps fewer pages for it than it said. */
weft_status wf_rank_load(wf_rank *r, const struct weft_engine_params *p)
{
    wf_layout *l = &r->layout;
    wf_layout_limit(l, &r->engine->layout.limits);
    WF_TRY(wf_weights_load(&l->weights, r->engine->model->file, r->dev, p->on_progress, p->user, &r->views));
    r->engine->layout.weights.in_file |= l->weights.in_file; /* each step looks whether the file has changed */
    weft_status s = wf_engine_open_exec(l, r->views, &r->group, p, &r->engine->startup, &r->exec);
    if (s == WEFT_ERR_UNSUPPORTED && wf_workspaces_omitted(&l->graph)) { /* a fused kernel does not work there */
        wf_exec_destroy(r->exec);
        r->exec = NULL;
        WF_TRY(wf_layout_keep_workspaces(l));
        wf_layout_limit(l, &r->engine->layout.limits);
        s = wf_engine_open_exec(l, r->views, &r->group, p, &r->engine->startup, &r->exec);
    }
    r->dev->params.on_progress = NULL; /* a kernel may be built later, when p->user is gone */
    return s;
}

/* What a step is when its threads come to it: its caller's arrays are those of another by then. */
weft_status wf_rank_make_step(wf_rank_step *s, const wf_limits *l)
{
    s->wanted = wf_calloc(l->logit_rows, sizeof *s->wanted);
    if (!s->wanted) return WEFT_ERR_NOMEM;
    return wf_batch_init(&s->batch, l);
}

static void *rank_thread(void *arg);

weft_status wf_ranks_load(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_ranks *all = &e->ranks;
    if (!all->n) return WEFT_OK;
    if (all->number) WF_TRY(wf_away_load(e));
    for (uint32_t i = 1; i < all->n; i++)
        if (!all->list[i].away) WF_TRY(wf_rank_load(&all->list[i], p));
    all->list[0].exec = e->exec;
    for (uint32_t i = 0; i < all->depth; i++) WF_TRY(wf_rank_make_step(&all->steps[i], &e->layout.limits));
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    all->threads = true;
    for (wf_rank *r = all->list; r < all->list + all->n; r++) {
        if (r->away) continue;
        if (pthread_create(&r->thread, NULL, rank_thread, r))
            return wf_fail(WEFT_ERR_NOMEM, "cannot start a thread for each device");
        r->started = true;
    }
    return WEFT_OK;
}

/* ---- steps --------------------------------------------------------------------------------------------------- */

static void note_failure(wf_rank *r, weft_status s)
{
    wf_ranks *all = &r->engine->ranks;
    pthread_mutex_lock(&all->lock);
    wf_copy(r->message, sizeof r->message, wf_error());
    r->status = s;
    if (!all->failed) all->failed = r;
    pthread_mutex_unlock(&all->lock);
}

weft_status wf_rank_run(wf_rank *r, const wf_rank_step *s)
{
    bool gives_results = r == r->engine->ranks.list;
    weft_status st = wf_exec_submit(r->exec, &s->batch, gives_results ? &s->io : &(wf_step_io){0});
    if (st == WEFT_OK) st = wf_exec_wait(r->exec);
    if (st == WEFT_OK) return WEFT_OK;
    note_failure(r, st); /* first: the others fail for want of this one */
    /* nobody waits for what does not come */
    if (r->group.layer) wf_comm_fail(r->group.layer, wf_error());
    wf_comm_fail(r->group.all, wf_error());
    return st;
}

static void *rank_thread(void *arg)
{
    wf_rank *r = arg;
    wf_ranks *all = &r->engine->ranks;
    prctl(PR_SET_TIMERSLACK, 1ul); /* ns: a layer has two short waits for the device, and the others wait for each */
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (all->n_steps == r->n_done && !all->stop) pthread_cond_wait(&all->changed, &all->lock);
        if (all->n_steps == r->n_done) break;
        pthread_mutex_unlock(&all->lock);
        if (r->status == WEFT_OK) wf_rank_run(r, &all->steps[r->n_done % all->depth]);
        pthread_mutex_lock(&all->lock);
        r->n_done++;
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static void copy_step(wf_rank_step *to, const wf_batch *b, const wf_step_io *io, const wf_limits *l)
{
    wf_batch_copy(&to->batch, b, l);
    to->io = *io;
    if (io->wanted) memcpy(to->wanted, io->wanted, b->n_logits * sizeof *to->wanted);
    to->io.wanted = io->wanted ? to->wanted : NULL;
}

weft_status wf_ranks_submit(struct weft_engine *e, const wf_batch *b, const wf_step_io *io)
{
    wf_ranks *all = &e->ranks;
    if (!all->n) return wf_exec_submit(e->exec, b, io);
    if (all->number) WF_TRY(wf_away_step(e, b));
    pthread_mutex_lock(&all->lock);
    copy_step(&all->steps[all->n_steps % all->depth], b, io, &e->layout.limits);
    all->n_steps++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return WEFT_OK;
}

/* Of those here: rank 0 has its results when the others have done what these need. */
static bool all_done(const wf_ranks *all, uint64_t steps)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (!all->list[i].away && all->list[i].n_done < steps) return false;
    return true;
}

weft_status wf_ranks_wait(struct weft_engine *e)
{
    wf_ranks *all = &e->ranks;
    if (!all->n) return wf_exec_wait(e->exec);
    if (all->n_waited == all->n_steps) return WEFT_OK;
    pthread_mutex_lock(&all->lock);
    all->n_waited++;
    while (!all_done(all, all->n_waited)) pthread_cond_wait(&all->changed, &all->lock);
    const wf_rank *bad = all->failed;
    weft_status s = bad ? bad->status : WEFT_OK;
    const char *name = (bad && bad->dev ? bad->dev : e->dev)->info.name;
    if (bad && all->number) wf_fail(s, "%s", bad->message); /* which says which process it was */
    else if (bad) wf_fail(s, "%s: %s", name, bad->message);
    pthread_mutex_unlock(&all->lock);
    return s;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

void wf_ranks_end(struct weft_engine *e)
{
    wf_ranks *all = &e->ranks;
    if (!all->threads) return;
    pthread_mutex_lock(&all->lock);
    all->stop = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    for (uint32_t i = 0; i < all->n; i++)
        if (all->list[i].started) pthread_join(all->list[i].thread, NULL);
    all->threads = false;
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
}

void wf_ranks_close(struct weft_engine *e)
{
    wf_ranks *all = &e->ranks;
    wf_ranks_end(e);
    if (all->number && !wf_process(NULL)) wf_away_close(e);
    for (uint32_t i = 0; i < all->n && all->list; i++) {
        wf_rank *r = &all->list[i];
        if (i) wf_exec_destroy(r->exec);
        wf_layout_free(&r->layout);
        if (r->dev) wf_dev_close(r->dev);
        free(r->views);
        wf_comm_close(r->group.layer);
        wf_comm_close(r->group.all);
    }
    for (wf_rank_step *s = all->steps; s < all->steps + WF_MOST_STEPS; s++) {
        wf_batch_free(&s->batch);
        free(s->wanted);
    }
    free(all->list);
    *all = (wf_ranks){0};
}

wf_rank_bytes wf_rank_count(const wf_rank *r)
{
    if (r->away) return r->bytes;
    return (wf_rank_bytes){wf_weights_bytes_on(&r->layout.weights, r->dev), wf_exec_kv_bytes(r->exec),
                           wf_exec_activation_bytes(r->exec), wf_exec_scratch_bytes(r->exec)};
}

void wf_ranks_count(const struct weft_engine *e, struct weft_stats *s)
{
    for (uint32_t i = 1; i < e->ranks.n; i++) {
        const wf_rank_bytes b = wf_rank_count(&e->ranks.list[i]);
        s->weight_bytes += b.weights;
        s->kv_bytes += b.kv;
        s->activation_bytes += b.activations;
        s->scratch_bytes += b.scratch;
    }
}
