/* engine: opens and closes an engine: device, graph, weights, plan, memory, thread. See engine.h. */
#include "base/file.h"
#include "engine/attention_windows.h"
#include "engine/auto_calibrate.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "select/select.h"

#include <weft/debug.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BATCH 512
#define DEFAULT_BATCH_GPU 1024 /* an H200 computes 512 tokens at 0.93 of its rate for 2048, and decodes wait a third of the time */
#define DEFAULT_TILE_GPU 128   /* tokens per tile of its large GEMMs */
#define LEAST_STEP_GPU   512   /* tokens of a step with a chunk: an H200 computes 256 at 0.74 of its rate for 1024, 512 at 0.87 */

size_t weft_devices(struct weft_device_info *out, size_t cap)
{
    return wf_dev_list(out, out ? cap : 0);
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

static struct weft_debug debug_of(const struct weft_engine_params *p)
{
    return p->debug ? *p->debug : (struct weft_debug){0};
}

static bool on_gpu(const struct weft_engine *e)
{
    return e->dev->info.type == WEFT_DEVICE_GPU;
}

uint32_t wf_engine_usual_step(enum weft_device_type type)
{
    return type == WEFT_DEVICE_GPU ? DEFAULT_BATCH_GPU : DEFAULT_BATCH;
}

uint32_t wf_engine_step_tokens(wf_dev *dev)
{
    uint32_t tuned = wf_select_dense_batch(dev);
    return tuned ? tuned : wf_engine_usual_step(dev->info.type);
}

static weft_status open_device(struct weft_engine *e, const struct weft_engine_params *p)
{
    struct weft_debug debug = debug_of(p);
    wf_open_params o = {.threads = p->threads, .max_alloc = debug.max_alloc, .deterministic = p->deterministic, .f16_residual = p->f16_residual, .profile = p->profile || p->timeline, .watchdog_ms = p->watchdog_ms ? p->watchdog_ms : 60000, .force = debug.force,
                        .tuned = p->tuned, .no_kernel_cache = p->no_kernel_cache, .check_calls = debug.check_calls, .on_progress = p->on_progress, .user = p->user};
    WF_TRY(wf_stop_now());
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &e->dev));
    wf_startup_part(&e->startup, WF_STARTUP_DEVICE, e->startup.begin_ns);
    e->swaps.dev = e->dev;
    return WEFT_OK;
}

/* ---- loading -------------------------------------------------------------------------------------------- */

static weft_status load_weights(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_queue *q = NULL;
    uint64_t began = wf_now_ns();
    if (p->on_progress) p->on_progress(p->user, "load", 0); /* for small models this is the only report */
    WF_TRY(wf_queue_create(e->dev, &q));
    weft_status s = wf_weights_upload(&e->weights, e->model->file, e->dev, q, p->on_progress, p->user);
    wf_queue_destroy(q);
    WF_TRY(s);
    wf_startup_part(&e->startup, WF_STARTUP_WEIGHTS, began);
    e->views = wf_calloc(e->weights.n, sizeof *e->views);
    for (size_t i = 0; e->views && i < e->weights.n; i++) e->views[i] = e->weights.list[i].view;
    return e->views ? WEFT_OK : WEFT_ERR_NOMEM;
}

static wf_sizing sizing_of(const struct weft_engine *e, const struct weft_engine_params *p)
{
    return (wf_sizing){e->model, p, &e->graph, &e->plans.list[0], &e->weights, &e->dev->info, e->dev, e->dev->align, e->dev->max_alloc, e->dev->fns->buf_wrap};
}

/* Not where it was to be as large as the device allows. */
static void say_fewer(const struct weft_engine *e, const struct weft_engine_params *p, uint32_t wanted)
{
    if (e->apart.pages == wanted || wf_engine_fills_memory(p, &e->dev->info)) return;
    wf_log(WEFT_LOG_WARN, "the KV cache has %u pages, not %u, and holds %.3g contexts of %u tokens: %s has no memory for more", e->apart.pages, wanted,
           (double)e->apart.pages / wf_limits_held_pages(&e->apart), e->context, e->dev->info.name);
}

/* A default cache takes what the device has beside the weights at most: M_G - M_S of SARATHI, section 4.3.1. A size that was asked for stays. */
static void fit_cache(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_sizing s = sizing_of(e, p);
    uint32_t wanted = e->apart.pages;
    wf_engine_fit_cache(&s, &e->apart, &e->limits);
    say_fewer(e, p, wanted);
}

/* Plans that are finished already stay as they are. */
static weft_status make_plans(struct weft_engine *e, const struct weft_engine_params *p, uint32_t tile)
{
    WF_TRY(wf_graph_end(&e->graph));
    wf_workspaces_omit(&e->graph, e->dev, &e->limits);
    WF_TRY(wf_engine_choose_plans(e, p, tile));
    wf_log(WEFT_LOG_INFO, "plans: %s", e->plan_from);
    if (!e->plans.list[0].n_nanos) WF_TRY(wf_plans_finish(&e->graph, &e->plans, e->dev->align));
    e->apart = e->limits;
    fit_cache(e, p);
    return WEFT_OK;
}

static weft_status open_exec(struct weft_engine *e, const struct weft_engine_params *p)
{
    uint64_t began = wf_now_ns();
    WF_TRY(wf_exec_create(e->dev, &e->graph, &e->plans, e->views, &e->limits, &e->exec));
    if (debug_of(p).poison) WF_TRY(wf_exec_poison(e->exec));
    wf_startup_part(&e->startup, WF_STARTUP_MEMORY, began);
    began = wf_now_ns();
    WF_TRY(wf_exec_bind(e->exec, p->on_progress, p->user));
    wf_startup_part(&e->startup, WF_STARTUP_KERNELS, began);
    return WEFT_OK;
}

static void free_batches(struct weft_engine *e)
{
    wf_host_destroy(e->dev, &e->logits);
    for (wf_step *f = e->steps; f < e->steps + WF_EXEC_DEPTH; f++) {
        wf_host_destroy(e->dev, &f->ids);
        free(f->seqs);
        f->seqs = NULL;
    }
    free(e->softmax);
    free(e->scratch);
    free(e->sampling);
    e->softmax = NULL, e->scratch = NULL, e->sampling = NULL;
}

static weft_status make_batches(struct weft_engine *e)
{
    uint32_t n_vocab = e->model->hp.n_vocab;
    WF_TRY(wf_host_create(e->dev, (uint64_t)e->limits.logit_rows * n_vocab * sizeof(float), &e->logits));
    e->scratch = wf_calloc(2 * (size_t)n_vocab, sizeof *e->scratch);
    e->sampling = wf_calloc(e->limits.logit_rows, sizeof *e->sampling);
    e->softmax = wf_calloc(e->model->hp.n_layer, sizeof *e->softmax);
    bool ok = e->scratch && e->sampling && e->softmax;
    for (wf_step *f = e->steps; f < e->steps + WF_EXEC_DEPTH; f++) {
        WF_TRY(wf_host_create(e->dev, e->limits.logit_rows * sizeof(int32_t), &f->ids));
        f->seqs = wf_calloc(e->limits.seqs, sizeof *f->seqs);
        ok = ok && f->seqs;
    }
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

static void log_limits(const struct weft_engine *e, const struct weft_engine_params *p)
{
    const wf_limits *l = &e->limits;
    wf_log(WEFT_LOG_INFO, "context %u, %u sequences, steps of %u tokens, KV cache of %u pages of %u tokens", e->context, l->seqs, l->step_tokens,
           l->pages, wf_engine_page(p));
}

static weft_status check_available(const struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_sizing s = sizing_of(e, p);
    return wf_engine_check_available(&s, &e->limits);
}

/* Memory is planned again with all workspaces: a fused kernel does not work here, and its pieces need them. */
static weft_status keep_workspaces(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    wf_workspaces_keep(&e->graph);
    WF_TRY(wf_plans_finish(&e->graph, &e->plans, e->dev->align));
    fit_cache(e, p);
    return check_available(e, p);
}

/* Others use the device as well, and few drivers tell how much of it. */
static bool shrink_cache(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_sizing s = sizing_of(e, p);
    if (!wf_engine_shrink_cache(&s, &e->apart, &e->limits)) return false;
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    return true;
}

static void say_shrunk(const struct weft_engine *e, uint32_t before)
{
    double page = (double)wf_page_bytes(&e->graph) / 0x1p30;
    wf_log(WEFT_LOG_WARN, "%s does not give the KV cache %.2f GiB; it becomes smaller: %.2f GiB for %u sequences", e->dev->info.name, before * page, e->apart.pages * page, e->limits.seqs);
}

static weft_status make_exec(struct weft_engine *e, const struct weft_engine_params *p)
{
    uint32_t before = 0; /* pages, when the device first had no memory for them */
    for (;;) {
        weft_status s = open_exec(e, p);
        uint32_t pages = e->apart.pages;
        if (s == WEFT_ERR_UNSUPPORTED && wf_workspaces_omitted(&e->graph)) WF_TRY(keep_workspaces(e, p));
        else if (s == WEFT_ERR_NOMEM && shrink_cache(e, p)) before = before ? before : pages;
        else return before && !s ? say_shrunk(e, before), s : s;
    }
}

/* And what its limits and page tables are. */
static weft_status build_graph(struct weft_engine *e, const struct weft_engine_params *p, wf_sched_params *sp, wf_weights *w)
{
    const struct weft_model *m = e->model;
    wf_graph *g = &e->graph;
    wf_build_params b = wf_build_params_of(e->dev, e->context, sp->page_tokens);
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, g, w));
    WF_TRY(wf_attention_windows_use(m, p->attention_windows, g, w));
    WF_TRY(wf_engine_limits(m, p, sp->policy, wf_engine_step_tokens(e->dev), g, w, &e->limits));
    memcpy(sp->tables, g->kv.tables, sizeof sp->tables);
    return WEFT_OK;
}

static weft_status make_sched(struct weft_engine *e, const wf_sched_params *sp)
{
    WF_TRY(wf_batch_init(&e->batch, &e->limits));
    WF_TRY(wf_sched_init(&e->sched, &e->limits, sp));
    if (e->step_ms && !on_gpu(e)) e->sched.alone = WF_ALONE_LEAST; /* until a step has been measured */
    return WEFT_OK;
}

static weft_status load(struct weft_engine *e, const struct weft_engine_params *p, wf_auto_calibration *a)
{
    const struct weft_model *m = e->model;
    wf_sched_params sp = {.page_tokens = wf_engine_page(p), .tile = p->tile, .shuffle_pages = debug_of(p).shuffle_pages, .no_prefix = p->no_prefix,
                          .seqs_per_client = p->seqs_per_client};
    uint64_t began = wf_now_ns();
    if (!sp.tile && on_gpu(e)) sp.tile = DEFAULT_TILE_GPU;
    e->context = wf_engine_context(m, p);
    e->step_ms = p->step_ms;
    WF_TRY(wf_policy_parse(p->policy, &sp.policy));
    wf_tuned_load expected = wf_select_load(e->dev);
    sp.prefill = expected.prompt, sp.decode = expected.generated;
    if (!p->max_batched_tokens) sp.least_step = on_gpu(e) ? LEAST_STEP_GPU : WF_ALONE_LEAST;
    WF_TRY(build_graph(e, p, &sp, &e->weights));
    wf_engine_save_memory(e->dev, &e->weights);
    WF_TRY(wf_ranges_find(m, p, e->dev, &e->graph, e->limits.step_tokens, a));
    WF_TRY(make_plans(e, p, sp.tile));
    if (p->timeline) WF_TRY(wf_output_check(p->timeline));
    log_limits(e, p);
    wf_engine_say_capped(p, &e->limits, wf_page_bytes(&e->graph));
    wf_startup_part(&e->startup, WF_STARTUP_GRAPH, began);
    WF_TRY(check_available(e, p));
    WF_TRY(load_weights(e, p));
    WF_TRY(make_exec(e, p));
    WF_TRY(make_batches(e));
    return make_sched(e, &sp);
}

/* Nothing is left of what has run, and ranges take effect: as at a start that finds them. The weights stay on the device. */
static weft_status load_again(struct weft_engine *e, const struct weft_engine_params *p, const wf_phi *ranges)
{
    wf_sched_params sp = e->sched.p;
    wf_weights w = {0};
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    wf_sched_free(&e->sched);
    wf_batch_free(&e->batch);
    free_batches(e);
    wf_plans_free(&e->plans);
    wf_graph_free(&e->graph);
    e->stats = (struct weft_stats){0};
    e->failed = WEFT_OK; /* for want of memory */
    weft_status s = build_graph(e, p, &sp, &w);
    wf_weights_free(&w);
    WF_TRY(s);
    wf_calibration_set(ranges, &e->graph);
    WF_TRY(make_plans(e, p, sp.tile));
    WF_TRY(make_exec(e, p));
    WF_TRY(make_batches(e)); /* there may be a sequence more or less */
    return make_sched(e, &sp);
}

static weft_status replan(struct weft_engine *e, wf_plans *plans)
{
    wf_sched_params sp = e->sched.p;
    wf_exec_destroy(e->exec);
    e->exec = NULL;
    wf_plans_free(&e->plans);
    e->plans = *plans;
    *plans = (wf_plans){0};
    WF_TRY(wf_plans_finish(&e->graph, &e->plans, e->dev->align));
    e->limits = e->apart;
    wf_limits_unify_pool(&e->limits, &e->graph, &e->plans.list[0], e->dev->align, e->dev->max_alloc);
    WF_TRY(wf_exec_create(e->dev, &e->graph, &e->plans, e->views, &e->limits, &e->exec));
    WF_TRY(wf_exec_bind(e->exec, NULL, NULL));
    wf_sched_free(&e->sched);
    WF_TRY(wf_sched_init(&e->sched, &e->limits, &sp));
    wf_batch_free(&e->batch);
    WF_TRY(wf_batch_init(&e->batch, &e->limits)); /* there may be more pages than before */
    e->stats.kv_pages = e->limits.pages;
    return WEFT_OK;
}

weft_status wf_engine_replan(struct weft_engine *e, wf_plans *plans)
{
    pthread_mutex_lock(&e->lock);
    weft_status s = replan(e, plans);
    e->failed = s;
    if (s != WEFT_OK) wf_copy(e->failure, sizeof e->failure, wf_error());
    pthread_mutex_unlock(&e->lock);
    return s;
}

static void unload(struct weft_engine *e)
{
    wf_sched_free(&e->sched);
    wf_batch_free(&e->batch);
    wf_exec_destroy(e->exec);
    wf_swaps_free(&e->swaps);
    wf_plans_free(&e->plans);
    wf_weights_free(&e->weights);
    wf_graph_free(&e->graph);
    if (e->dev) free_batches(e), wf_dev_close(e->dev);
    free(e->views);
    wf_timeline_close(e->timeline);
}

static void init_stats(struct weft_engine *e)
{
    e->stats.kv_pages = e->limits.pages;
    e->stats.weight_bytes = wf_weights_bytes_on(&e->weights, e->dev);
    e->stats.kv_bytes = wf_exec_kv_bytes(e->exec);
    e->stats.activation_bytes = wf_exec_activation_bytes(e->exec);
    e->stats.scratch_bytes = wf_exec_scratch_bytes(e->exec);
    e->stats.prefill_decode_ratio = wf_sched_ratio(&e->sched);
    e->stats.load_ns = wf_now_ns() - e->startup.begin_ns;
    memcpy(e->softmax, wf_exec_stats_of(e->exec)->softmax, e->model->hp.n_layer * sizeof *e->softmax);
}

static void init_budget(struct weft_engine *e, const struct weft_engine_params *p)
{
    struct weft_budget *b = &e->budget;
    wf_engine_fill_budget(e->model, &e->graph, &e->plans.list[0], &e->limits, b);
    b->weights = e->stats.weight_bytes, b->activations = e->stats.activation_bytes, b->kv = e->stats.kv_bytes;
    b->context = e->context;
    b->n_seqs_from = wf_engine_seqs_from(p, b);
}

static void log_memory(const struct weft_engine *e)
{
    const struct weft_stats *s = &e->stats;
    const struct weft_budget *b = &e->budget;
    wf_log(WEFT_LOG_INFO, "KV cache: %.2f GiB of the %.2f GiB of %s, %llu tokens, %u contexts of %u; %u sequences run at the same time: %s", b->kv / 0x1p30, e->dev->info.memory / 0x1p30,
           e->dev->info.name, (unsigned long long)b->kv_tokens, b->contexts, b->context, b->n_seqs, b->n_seqs_from);
    wf_log(WEFT_LOG_INFO, "memory: weights %.1f MiB, KV cache %.1f MiB, activations %.1f MiB, scratch memory of kernels %.1f MiB", s->weight_bytes / 0x1p20,
           s->kv_bytes / 0x1p20, s->activation_bytes / 0x1p20, s->scratch_bytes / 0x1p20);
}

/* ---- thread ---------------------------------------------------------------------------------------------- */

/* Nobody has work for it, or its device is lent. */
static bool rests(const struct weft_engine *e)
{
    return !wf_engine_busy(e) && (!e->inbox || e->lent);
}

/* Waits for work, or for the end: false. */
static bool await_work(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (rests(e) && !e->lent && e->exec) wf_exec_mark_idle(e->exec), wf_swaps_trim(&e->swaps);
    while (rests(e) && !e->stop) {
        e->resting = true;
        pthread_cond_broadcast(&e->ended);
        pthread_cond_wait(&e->wake, &e->lock);
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
    wf_startup_begin(&e->startup);
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
    return pthread_create(&e->thread, NULL, engine_thread, e) ? wf_fail(WEFT_ERR_NOMEM, "cannot start the engine's thread") : WEFT_OK;
}

static void end_thread(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
}

/* The model runs for a moment, before anybody has it. */
static weft_status calibrate(struct weft_engine *e, const struct weft_engine_params *p, const wf_auto_calibration *a)
{
    bool ran = false;
    wf_phi *ranges = wf_calloc(e->model->hp.n_layer, sizeof *ranges);
    if (!ranges && a->stand_ins) return WEFT_ERR_NOMEM; /* they must not stay */
    if (!ranges) return wf_log(WEFT_LOG_WARN, "calibration: none, the softmax is synchronous: %s", wf_error()), WEFT_OK;
    e->startup.stepped = true; /* its steps are not the first one */
    weft_status s = start_thread(e);
    if (s == WEFT_OK) s = wf_auto_calibrate(e, p, a, ranges, &ran), end_thread(e);
    e->startup.stepped = false;
    if (s == WEFT_OK && (ran || a->stand_ins)) s = load_again(e, p, ranges);
    free(ranges);
    return s;
}

static weft_status open_outputs(struct weft_engine *e, const struct weft_engine_params *p)
{
    if (p->timeline) WF_TRY(wf_timeline_open(p->timeline, wf_exec_queues(e->exec), &e->timeline));
    return p->dump_plan ? wf_plans_save(&e->plans, p->dump_plan) : WEFT_OK; /* last: only a plan that works replaces a file */
}

/* What can be given up. */
static weft_status prepare(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_auto_calibration a = {0};
    wf_stopper before = wf_stop_by(p->stop, p->user);
    weft_status s = open_device(e, p);
    struct weft_engine_params on = wf_engine_params_on(p, s == WEFT_OK ? &e->dev->info : NULL);
    if (s == WEFT_OK) s = load(e, &on, &a);
    if (s == WEFT_OK && a.missing) s = calibrate(e, &on, &a);
    if (s == WEFT_OK) s = open_outputs(e, &on);
    if (s == WEFT_OK) init_stats(e), init_budget(e, &on), log_memory(e);
    wf_auto_calibration_free(&a);
    wf_stop_by(before.fn, before.user);
    return s == WEFT_ERR_CANCELLED ? wf_fail(s, "opening the engine was cancelled") : s;
}

weft_status weft_engine_open(const struct weft_model *m, const struct weft_engine_params *p, struct weft_engine **out)
{
    WF_NOT_NULL(out);
    *out = NULL;
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_TRY(wf_engine_check_params(m, p));
    if (p->context > m->hp.context)
        wf_log(WEFT_LOG_WARN, "context %u is longer than the %u tokens that %s was trained for", p->context, m->hp.context, m->info.path);
    struct weft_engine *e = create(m);
    if (!e) return WEFT_ERR_NOMEM;
    weft_status s = prepare(e, p);
    if (s == WEFT_OK) wf_startup_ready(e);
    if (s == WEFT_OK) e->dev->params.on_progress = NULL; /* a kernel may be built later, when p->user is gone */
    if (s == WEFT_OK) wf_dev_stop_by(e->dev, wf_engine_unwanted, e);
    if (s == WEFT_OK) s = start_thread(e);
    if (s == WEFT_OK) *out = e;
    else destroy(e);
    return s;
}

void weft_engine_close(struct weft_engine *e)
{
    if (!e) return;
    if (pthread_equal(pthread_self(), e->thread)) {
        wf_log(WEFT_LOG_ERROR, "weft_engine_close was called from a callback of the engine, which would wait for itself: the engine stays open");
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
    return e ? e->context : 0;
}

uint32_t weft_engine_max_batched_tokens(const struct weft_engine *e)
{
    return e ? e->limits.step_tokens : 0;
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

uint32_t weft_engine_softmax(const struct weft_engine *e, uint32_t *layers, uint64_t *rows, uint64_t *recomputed, uint32_t cap)
{
    if (!e) return 0;
    if (!layers || !rows || !recomputed) cap = 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock;
    uint32_t n = 0;
    pthread_mutex_lock(lock);
    for (uint32_t i = 0; i < e->model->hp.n_layer; i++) {
        if (!e->softmax[i].async) continue;
        if (n < cap) layers[n] = i, rows[n] = e->softmax[i].rows, recomputed[n] = e->softmax[i].recomputed;
        n++;
    }
    pthread_mutex_unlock(lock);
    return n;
}
