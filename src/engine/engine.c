/* engine: opens and closes an engine: device, graph, weights, plan, memory, thread. See engine.h. */
#include "base/file.h"
#include "dist/mpi.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "select/select.h"

#include <weft/debug.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of a step with a chunk: an H200 computes 256 at 0.74 of its rate for 1024, 512 at 0.87. */
#define LEAST_STEP_GPU 512

size_t weft_devices(struct weft_device_info *out, size_t cap)
{
    return wf_dev_list(out, out ? cap : 0);
}

/* ---- parameters ---------------------------------------------------------------------------------------------- */

static struct weft_debug debug_of(const struct weft_engine_params *p)
{
    return p->debug ? *p->debug : (struct weft_debug){0};
}

weft_status wf_engine_device_params(const struct weft_engine_params *p, wf_open_params *out)
{
    struct weft_debug debug = debug_of(p);
    *out = (wf_open_params){.threads = p->threads, .max_alloc = debug.max_alloc, .deterministic = p->deterministic,
                            .f16_residual = p->f16_residual, .profile = p->profile || p->timeline,
                            .watchdog_ms = p->watchdog_ms ? p->watchdog_ms : 60000, .force = debug.force,
                            .tuned = p->tuned, .no_kernel_cache = p->no_kernel_cache,
                            .check_calls = debug.check_calls, .on_progress = p->on_progress, .user = p->user};
    if (wf_is_spread(p)) out->threads = p->threads ? p->threads : wf_core_share();
    else if (wf_n_ranks(p) > 1 && !p->experts)
        out->threads = WF_MAX((p->threads ? p->threads : wf_core_count()) / wf_n_ranks(p), 1u);
    return wf_tier_parse(p->tier, &out->tier);
}

static weft_status open_device(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_open_params o;
    WF_TRY(wf_stop_now());
    WF_TRY(wf_engine_device_params(p, &o));
    char first[WF_RANK_NAME];
    bool many = wf_n_ranks(p) > 1;
    if (many) WF_TRY(wf_rank_device(p, 0, first));
    weft_status s = wf_select_open(many ? first : p->device, &o, &e->dev);
    bool listed = !many && p->device && strchr(p->device, ',');
    if (s == WEFT_ERR_NODEVICE && listed) WF_TRY(wf_rank_device(p, 0, first)); /* which says what is missing */
    WF_TRY(s);
    WF_TRY(wf_ranks_open(e, p, &o));
    e->depth = e->ranks.n ? e->ranks.depth : WF_EXEC_DEPTH;
    const struct weft_stats *taken = &e->drafter_stats;
    e->dev->taken = taken->weight_bytes + taken->kv_bytes + taken->activation_bytes + taken->scratch_bytes;
    wf_startup_part(&e->startup, WF_STARTUP_DEVICE, e->startup.begin_ns);
    return WEFT_OK;
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

static weft_status load_weights(struct weft_engine *e, const struct weft_engine_params *p)
{
    uint64_t began = wf_now_ns();
    WF_TRY(wf_weights_load(&e->layout.weights, e->model->file, e->dev, p->on_progress, p->user, &e->views));
    wf_startup_part(&e->startup, WF_STARTUP_WEIGHTS, began);
    return WEFT_OK;
}

weft_status wf_engine_open_exec(const wf_layout *l, const wf_view *views, const wf_exec_group *g,
                                const struct weft_engine_params *p, wf_startup *startup, wf_exec **out)
{
    uint64_t began = wf_now_ns();
    WF_TRY(wf_exec_create(l->dev, &l->graph, &l->plans, views, &l->limits, out));
    if (debug_of(p).poison) WF_TRY(wf_exec_poison(*out));
    if (g) WF_TRY(wf_exec_join(*out, g));
    wf_startup_part(startup, WF_STARTUP_MEMORY, began);
    began = wf_now_ns();
    WF_TRY(wf_exec_bind(*out, p->on_progress, p->user));
    wf_startup_part(startup, WF_STARTUP_KERNELS, began);
    return WEFT_OK;
}

static void free_batches(struct weft_engine *e)
{
    wf_host_destroy(e->dev, &e->logits);
    for (wf_step *f = e->steps; f < e->steps + WF_MOST_STEPS; f++) {
        wf_host_destroy(e->dev, &f->ids);
        free(f->seqs);
        f->seqs = NULL;
    }
    free(e->softmax);
    free(e->scratch);
    free(e->wanted);
    e->softmax = NULL, e->scratch = NULL, e->wanted = NULL;
}

static weft_status make_batches(struct weft_engine *e)
{
    uint32_t n_vocab = e->model->hp.n_vocab, n_out = wf_layout_output(&e->layout);
    WF_TRY(wf_host_create(e->dev, (uint64_t)e->layout.limits.logit_rows * n_out * sizeof(float), &e->logits));
    e->scratch = wf_calloc(2 * (size_t)n_vocab, sizeof *e->scratch);
    e->wanted = wf_calloc(e->layout.limits.logit_rows, sizeof *e->wanted);
    e->softmax = wf_calloc((size_t)e->layout.graph.n_layers, sizeof *e->softmax);
    bool ok = e->scratch && e->wanted && e->softmax;
    for (wf_step *f = e->steps; f < e->steps + e->depth; f++) {
        WF_TRY(wf_host_create(e->dev, e->layout.limits.logit_rows * sizeof(int32_t), &f->ids));
        f->seqs = wf_calloc(e->layout.limits.seqs, sizeof *f->seqs);
        ok = ok && f->seqs;
    }
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status make_exec(struct weft_engine *e)
{
    wf_layout *l = &e->layout;
    uint32_t before = 0; /* pages, when the device first had no memory for them */
    for (;;) {
        weft_status s = wf_engine_open_exec(l, e->views, e->ranks.n ? &e->ranks.list[0].group : NULL, &l->params,
                                            &e->startup, &e->exec);
        uint32_t pages = l->apart.pages;
        bool omitted = s == WEFT_ERR_UNSUPPORTED && wf_workspaces_omitted(&l->graph);
        if (omitted || (s == WEFT_ERR_NOMEM && wf_layout_shrink(l))) {
            wf_exec_destroy(e->exec);
            e->exec = NULL;
            if (omitted) WF_TRY(wf_layout_keep_workspaces(l));
            else before = before ? before : pages;
            continue;
        }
        double page = (double)wf_page_bytes(&l->graph) / 0x1p30;
        if (before && !s) /* others use the device as well, and few drivers tell how much of it */
            wf_log(WEFT_LOG_WARN,
                   "%s does not give the KV cache %.2f GiB; it becomes smaller: %.2f GiB for %u sequences",
                   e->dev->info.name, before * page, pages * page, l->limits.seqs);
        return s;
    }
}

static weft_status init_sched(struct weft_engine *e, const wf_sched_params *sp)
{
    WF_TRY(wf_sched_init(&e->sched, &e->layout.limits, sp));
    e->swaps.dev = e->dev, e->swaps.mover = wf_engine_mover(e), e->swaps.page_bytes = wf_page_bytes(&e->layout.graph);
    if (e->ranks.n) return WEFT_OK; /* each device has a part of a page: preempted sequences are computed again */
    e->sched.kv.swaps = &e->swaps;
    return wf_exec_open_moves(e->exec);
}

/* Batches and scheduler. */
static weft_status make_sched(struct weft_engine *e)
{
    const wf_layout *l = &e->layout;
    const struct weft_engine_params *p = &l->params;
    bool on_gpu = e->dev->info.type == WEFT_DEVICE_GPU;
    wf_tuned_load expected = wf_select_load(e->dev);
    wf_sched_params sp = {.kv.page_tokens = l->page_tokens, .policy = l->policy, .tile = l->tile,
                          .kv.shuffle_pages = debug_of(p).shuffle_pages,
                          .kv.no_prefix = p->no_prefix || l->graph.bidirectional,
                          .whole_prompts = l->graph.bidirectional, .stages = e->ranks.depth,
                          .seqs_per_client = p->seqs_per_client, .prefill = expected.prompt,
                          .decode = expected.generated};
    if (!p->max_batched_tokens) sp.least_step = on_gpu ? LEAST_STEP_GPU : WF_ALONE_LEAST;
    memcpy(sp.kv.tables, l->graph.kv.tables, sizeof sp.kv.tables);
    WF_TRY(make_batches(e));
    WF_TRY(wf_batch_init(&e->batch, &l->limits));
    WF_TRY(init_sched(e, &sp));
    if (e->step_ms && !on_gpu) e->sched.alone = WF_ALONE_LEAST; /* until a step has been measured */
    return WEFT_OK;
}

static weft_status load(struct weft_engine *e, const struct weft_engine_params *p)
{
    const wf_limits *l = &e->layout.limits;
    uint64_t began = wf_now_ns();
    e->step_ms = p->step_ms;
    e->draft_tokens = p->draft_tokens;
    WF_TRY(wf_pooling_choose(e->model->hp.pooling, p->pooling, &e->pooling));
    e->draft_always = debug_of(p).draft_always;
    e->beside.always = debug_of(p).beside_always;
    WF_TRY(wf_layout_make(e->model, p, &e->dev->info, e->dev, &e->layout));
    wf_log(WEFT_LOG_INFO, "plans: %s", e->layout.plan_from);
    if (p->timeline) WF_TRY(wf_output_check(p->timeline));
    wf_log(WEFT_LOG_INFO, "context %u, %u sequences, steps of %u tokens, KV cache of %u pages of %u tokens",
           e->layout.context, l->seqs, l->step_tokens, l->pages, e->layout.page_tokens);
    wf_layout_say_less(&e->layout);
    wf_startup_part(&e->startup, WF_STARTUP_GRAPH, began);
    WF_TRY(wf_layout_check_available(&e->layout));
    WF_TRY(wf_ranks_lay_out(e, p));
    WF_TRY(load_weights(e, p));
    WF_TRY(make_exec(e));
    WF_TRY(wf_ranks_load(e, p));
    return make_sched(e);
}

/* Nothing is left of what has run, and ranges take effect: as at a start that finds them. The weights stay on the
 * device. */
static weft_status load_again(struct weft_engine *e, const wf_phi *ranges)
{
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    wf_sched_free(&e->sched);
    wf_batch_free(&e->batch);
    free_batches(e);
    e->stats = (struct weft_stats){0};
    e->failed = WEFT_OK; /* for want of memory */
    WF_TRY(wf_layout_again(&e->layout, ranges));
    wf_log(WEFT_LOG_INFO, "plans: %s", e->layout.plan_from);
    WF_TRY(make_exec(e));
    return make_sched(e);
}

static weft_status replan(struct weft_engine *e, wf_plans *plans)
{
    wf_sched_params sp = e->sched.p;
    const wf_limits *l = &e->layout.limits;
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    WF_TRY(wf_layout_replan(&e->layout, plans));
    WF_TRY(wf_exec_create(e->dev, &e->layout.graph, &e->layout.plans, e->views, l, &e->exec));
    WF_TRY(wf_exec_bind(e->exec, NULL, NULL));
    wf_sched_free(&e->sched);
    WF_TRY(init_sched(e, &sp));
    wf_batch_free(&e->batch);
    WF_TRY(wf_batch_init(&e->batch, l)); /* there may be more pages than before */
    e->stats.kv_pages = l->pages;
    wf_engine_use_tiers(e);
    return WEFT_OK;
}

weft_status wf_engine_replan(struct weft_engine *e, wf_plans *plans)
{
    if (e->ranks.n) {
        wf_plans_free(plans);
        return wf_fail(WEFT_ERR_UNSUPPORTED, "plans are measured on one device");
    }
    pthread_mutex_lock(&e->lock);
    weft_status s = replan(e, plans);
    e->failed = s;
    if (s != WEFT_OK) wf_copy(e->failure, sizeof e->failure, wf_error());
    pthread_mutex_unlock(&e->lock);
    return s;
}

static void unload(struct weft_engine *e)
{
    wf_ranks_end(e);
    wf_drafter_close(e);
    wf_sched_free(&e->sched);
    wf_batch_free(&e->batch);
    wf_exec_destroy(e->exec);
    wf_ranks_close(e);
    if (e->tiers.pool.n) wf_tiers_close(&e->tiers);
    wf_swaps_free(&e->swaps);
    wf_engine_close_adapters(e);
    wf_layout_free(&e->layout);
    if (e->dev) free_batches(e), wf_dev_close(e->dev);
    free(e->views);
    wf_timeline_close(e->timeline);
}

static void init_stats(struct weft_engine *e)
{
    e->stats.kv_pages = e->layout.limits.pages;
    e->stats.weight_bytes = wf_weights_bytes_on(&e->layout.weights, e->dev);
    e->stats.kv_bytes = wf_exec_kv_bytes(e->exec);
    e->stats.activation_bytes = wf_exec_activation_bytes(e->exec);
    e->stats.scratch_bytes = wf_exec_scratch_bytes(e->exec);
    wf_ranks_count(e, &e->stats);
    wf_drafter_count(e, &e->stats);
    e->stats.prefill_decode_ratio = wf_sched_ratio(&e->sched);
    e->stats.load_ns = wf_now_ns() - e->startup.begin_ns;
    memcpy(e->softmax, wf_exec_stats_of(e->exec)->softmax, (size_t)e->layout.graph.n_layers * sizeof *e->softmax);
}

/* As it was opened, with what has really been allocated. */
static void init_budget(struct weft_engine *e)
{
    struct weft_budget *b = &e->budget;
    const struct weft_stats *s = &e->stats;
    wf_layout_budget(&e->layout, b);
    b->weights = s->weight_bytes, b->activations = s->activation_bytes, b->kv = s->kv_bytes;
    wf_log(WEFT_LOG_INFO,
           "KV cache: %.2f GiB of the %.2f GiB of %s, %llu tokens, %u contexts of %u; %u sequences run at the same "
           "time: %s",
           b->kv / 0x1p30, e->dev->info.memory / 0x1p30, e->dev->info.name, (unsigned long long)b->kv_tokens,
           b->contexts, b->context, b->n_seqs, b->n_seqs_from);
    wf_log(WEFT_LOG_INFO,
           "memory: weights %.1f MiB, KV cache %.1f MiB, activations %.1f MiB, scratch memory of kernels %.1f MiB",
           s->weight_bytes / 0x1p20, s->kv_bytes / 0x1p20, s->activation_bytes / 0x1p20, s->scratch_bytes / 0x1p20);
}

/* ---- thread -------------------------------------------------------------------------------------------------- */

/* Nobody has work for it, or its device is lent. */
static bool rests(const struct weft_engine *e)
{
    return !wf_engine_busy(e) && ((!e->inbox && !e->adapter_job) || e->lent);
}

/* Of devices in several processes one may be lost while nothing runs. Waits a second at most. */
static void watch_group(struct weft_engine *e)
{
    struct timespec until;
    wf_deadline(&until, 1000);
    pthread_cond_timedwait(&e->wake, &e->lock, &until);
    weft_status s = e->failed ? WEFT_OK : wf_mpi_state();
    if (s == WEFT_OK) return;
    e->failed = s;
    wf_copy(e->failure, sizeof e->failure, wf_error());
    wf_log(WEFT_LOG_ERROR, "%s", e->failure);
}

/* Waits for work, or for the end: false. */
static bool await_work(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool idle = rests(e) && !e->lent && e->exec, trims = idle && e->swaps.n_free;
    if (idle) wf_exec_mark_idle(e->exec);
    pthread_mutex_unlock(&e->lock);
    if (trims) wf_exec_finish_moves(e->exec), wf_swaps_trim(&e->swaps);
    pthread_mutex_lock(&e->lock);
    while (rests(e) && !e->stop) {
        e->resting = true;
        pthread_cond_broadcast(&e->ended);
        if (e->ranks.number) watch_group(e);
        else pthread_cond_wait(&e->wake, &e->lock);
    }
    e->resting = false;
    bool end = e->stop && rests(e);
    pthread_mutex_unlock(&e->lock);
    return !end;
}

static void *engine_thread(void *arg)
{
    struct weft_engine *e = arg;
    while (await_work(e)) wf_engine_step(e);
    return NULL;
}

void wf_engine_lend(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->lent = true;
    while (!e->resting) pthread_cond_wait(&e->ended, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void wf_engine_return(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->lent = false;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* The rest after unload is what requests need of an engine that is closed: its lock and its conditions. */
void wf_engine_release(struct weft_engine *e)
{
    if (atomic_fetch_sub(&e->users, 1) > 1) return;
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->ended);
    pthread_mutex_destroy(&e->lock);
    free(e->adapters);
    free(e);
}

static void destroy(struct weft_engine *e)
{
    unload(e);
    weft_model_close((struct weft_model *)e->model); /* one user less */
    wf_engine_release(e);
}

static struct weft_engine *create(const struct weft_model *m)
{
    struct weft_engine *e = wf_calloc(1, sizeof *e);
    pthread_condattr_t attr;
    if (!e) return NULL;
    e->startup.begin_ns = wf_now_ns();
    wf_model_use(m);
    e->model = m;
    atomic_init(&e->users, 1);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, &attr);
    pthread_cond_init(&e->ended, &attr);
    pthread_condattr_destroy(&attr);
    return e;
}

static weft_status start_thread(struct weft_engine *e)
{
    e->stop = false;
    return pthread_create(&e->thread, NULL, engine_thread, e)
        ? wf_fail(WEFT_ERR_NOMEM, "cannot start the engine's thread") : WEFT_OK;
}

static void end_thread(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

static weft_status compute_prompt(void *engine, const int32_t *ids, size_t n, const struct weft_calibrate_params *p,
                                  double done, double part)
{
    struct weft_request *r = NULL;
    const wf_watch w = {.what = "calibrate", .on_progress = p->on_progress, .stop = p->stop, .user = p->user,
                        .done = done, .part = part, .before = wf_step_tokens(engine), .tokens = n};
    WF_TRY(weft_submit(engine, &(struct weft_request_params){.tokens = ids, .n_tokens = n, .prefill_only = true}, &r));
    weft_status s = wf_wait_watched(r, &w);
    weft_request_free(r);
    return s;
}

wf_ranges_runner wf_engine_ranges_runner(struct weft_engine *e)
{
    const wf_layout *l = &e->layout;
    return (wf_ranges_runner){.model = e->model, .dev = e->dev, .exec = e->exec, .graph = &l->graph,
                              .context = l->context, .step_tokens = l->limits.step_tokens, .engine = e,
                              .unwanted = wf_engine_unwanted, .compute = compute_prompt};
}

/* The model runs for a moment, before anybody has it. Ranges make it faster: where they cannot be measured, the
 * softmax is synchronous, unless the device is lost. A step that lacked memory leaves it as good as before. */
static weft_status measure_ranges(struct weft_engine *e)
{
    const wf_ranges *r = &e->layout.ranges;
    bool ran = false;
    wf_phi *ranges = wf_calloc(e->model->hp.n_layer, sizeof *ranges);
    if (!ranges && r->stand_ins) return WEFT_ERR_NOMEM; /* they must not stay */
    if (!ranges) return wf_log(WEFT_LOG_WARN, "calibration: none, the softmax is synchronous: %s", wf_error()), WEFT_OK;
    e->startup.stepped = true; /* its steps are not the first one */
    weft_status s = start_thread(e);
    if (s == WEFT_OK) {
        wf_ranges_runner run = wf_engine_ranges_runner(e);
        s = wf_ranges_measure_missing(&run, &e->layout.params, r, ranges, &ran);
        end_thread(e);
        bool lost = e->failed != WEFT_OK && e->failed != WEFT_ERR_NOMEM;
        if (s != WEFT_OK && s != WEFT_ERR_CANCELLED && !lost) {
            wf_log(WEFT_LOG_WARN, "calibration: none, the softmax is synchronous: %s", wf_error());
            s = WEFT_OK;
        }
    }
    e->startup.stepped = false;
    if (s == WEFT_OK && (ran || r->stand_ins)) s = load_again(e, ranges);
    free(ranges);
    return s;
}

/* What can be given up. */
static weft_status prepare(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_stopper before = wf_stop_by(p->stop, p->user);
    weft_status s = wf_drafter_open(e, p);
    if (s == WEFT_OK) s = open_device(e, p);
    if (s == WEFT_OK) s = load(e, p);
    if (s == WEFT_OK && e->layout.ranges.missing) s = measure_ranges(e);
    if (s == WEFT_OK) s = wf_engine_identify_kv(e, p);
    if (s == WEFT_OK) s = wf_engine_open_adapters(e, p);
    if (s == WEFT_OK) s = wf_engine_open_tiers(e, p);
    if (s == WEFT_OK && p->timeline) s = wf_timeline_open(p->timeline, wf_exec_queues(e->exec), &e->timeline);
    /* last: only a plan that works replaces a file */
    if (s == WEFT_OK && p->dump_plan) s = wf_plans_save(&e->layout.plans, p->dump_plan);
    if (s == WEFT_OK) init_stats(e), init_budget(e);
    e->layout.params = (struct weft_engine_params){0};
    wf_stop_by(before.fn, before.user);
    return s == WEFT_ERR_CANCELLED ? wf_fail(s, "opening the engine was cancelled") : s;
}

weft_status weft_engine_open(const struct weft_model *m, const struct weft_engine_params *p, struct weft_engine **out)
{
    WF_NOT_NULL(out);
    *out = NULL;
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_TRY(wf_layout_check(m, p));
    if (p->context > m->hp.context)
        wf_log(WEFT_LOG_WARN, "context %u is longer than the %u tokens that %s was trained for", p->context,
               m->hp.context, m->info.path);
    struct weft_engine *e = create(m);
    if (!e) return WEFT_ERR_NOMEM;
    weft_status s = prepare(e, p);
    if (s == WEFT_OK) wf_startup_ready(e);
    if (s == WEFT_OK) e->dev->params.on_progress = NULL; /* a kernel may be built later, when p->user is gone */
    /* devices of a group break off nothing: the others would wait for what does not come */
    if (s == WEFT_OK && !e->ranks.n) wf_dev_stop_by(e->dev, wf_engine_unwanted, e);
    if (s == WEFT_OK) s = start_thread(e);
    if (s == WEFT_OK) *out = e;
    else destroy(e);
    return s;
}

void weft_engine_close(struct weft_engine *e)
{
    if (!e) return;
    if (pthread_equal(pthread_self(), e->thread)) {
        wf_log(WEFT_LOG_ERROR, "weft_engine_close was called from a callback of the engine, which would wait for "
                               "itself: the engine stays open");
        return;
    }
    end_thread(e);
    destroy(e);
}

const struct weft_device_info *weft_engine_device(const struct weft_engine *e)
{
    return e ? &e->dev->info : NULL;
}

uint32_t weft_engine_context(const struct weft_engine *e)
{
    return e ? e->layout.context : 0;
}

const char *weft_engine_pooling(const struct weft_engine *e)
{
    return e ? wf_pooling_name(e->pooling) : NULL;
}

uint32_t weft_engine_max_batched_tokens(const struct weft_engine *e)
{
    return e ? e->layout.limits.step_tokens : 0;
}

weft_status weft_engine_budget(const struct weft_engine *e, struct weft_budget *out)
{
    WF_NOT_NULL(e);
    WF_NOT_NULL(out);
    *out = e->budget;
    return WEFT_OK;
}

void weft_engine_stats(const struct weft_engine *e, struct weft_stats *out)
{
    if (!e || !out) return;
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock; /* const means the statistics, not the lock */
    pthread_mutex_lock(lock);
    *out = e->stats;
    out->failed = e->failed;
    out->longest_wait_ns = e->oldest_ns ? wf_now_ns() - e->oldest_ns : 0;
    pthread_mutex_unlock(lock);
}

uint32_t weft_engine_softmax(const struct weft_engine *e, uint32_t *layers, uint64_t *rows, uint64_t *recomputed,
                             uint32_t cap)
{
    if (!e) return 0;
    if (!layers || !rows || !recomputed) cap = 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock;
    uint32_t n = 0;
    pthread_mutex_lock(lock);
    for (uint32_t i = 0; i < (uint32_t)e->layout.graph.n_layers; i++) {
        if (!e->softmax[i].async) continue;
        if (n < cap) layers[n] = i, rows[n] = e->softmax[i].rows, recomputed[n] = e->softmax[i].recomputed;
        n++;
    }
    pthread_mutex_unlock(lock);
    return n;
}
