/* adapters: those that an engine has loaded, by name; loading and unloading while it runs. A copy to the device is work
 * for the engine's thread, between steps: steps in flight end first. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy that the engine's thread makes for another, which waits. */
struct wf_adapter_job {
    const wf_adapter_image *image;
    uint32_t place;
    bool done;
    weft_status status;
    char message[256];
};

/* ---- names (under lock) ------------------------------------------------------------------------------------------ */

static wf_loaded *find_loaded(const struct weft_engine *e, const char *name)
{
    for (wf_loaded *l = e->adapters; l < e->adapters + e->n_adapters; l++)
        if (!strcmp(l->name, name)) return l;
    return NULL;
}

/* One that requests may use. */
static weft_status find_ready(const struct weft_engine *e, const char *name, wf_loaded **out)
{
    *out = find_loaded(e, name);
    if (*out && (*out)->ready) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "there is no adapter '%.127s': name one of weft_engine_adapters, or load it with "
                   "weft_adapter_load", name);
}

/* The lowest place that nobody has; 0: none. */
static uint32_t free_place(const struct weft_engine *e)
{
    for (uint32_t place = 1; place < e->layout.adapters.places; place++) {
        size_t i = 0;
        while (i < e->n_adapters && e->adapters[i].place != place) i++;
        if (i == e->n_adapters) return place;
    }
    return 0;
}

static void remove_loaded(struct weft_engine *e, const char *name)
{
    wf_loaded *l = find_loaded(e, name);
    e->n_adapters--;
    memmove(l, l + 1, (size_t)(e->adapters + e->n_adapters - l) * sizeof *l);
}

/* It stands in lists of models, URLs and logs. */
static bool is_name(const char *name)
{
    size_t n = strlen(name), len = 1;
    for (size_t i = 0; i < n && len; i += len) {
        len = wf_utf8_len(name + i, n - i);
        if (len && (wf_utf8_control(name + i, len) || strchr(" \"\\=,", name[i]))) len = 0;
    }
    return n && n < sizeof ((wf_loaded *)0)->name && len;
}

/* Takes the name and a place; requests cannot use it yet. */
static weft_status add_name(struct weft_engine *e, const char *name, uint32_t *place)
{
    if (!e->layout.adapters.places)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "the engine was opened without room for adapters "
                       "(weft_engine_params.most_adapters)");
    if (!is_name(name))
        return wf_fail(WEFT_ERR_ARG, "adapter '%.127s': want a name of 1 to %zu bytes of UTF-8, without blanks, "
                       "quotes, commas, = and \\", name, sizeof e->adapters->name - 1);
    if (find_loaded(e, name)) return wf_fail(WEFT_ERR_ARG, "there is an adapter '%s' already: unload it first", name);
    if (!(*place = free_place(e)))
        return wf_fail(WEFT_ERR_FULL, "%zu adapters are loaded, and there is room for no more: unload one, or start "
                       "with more (weft_engine_params.most_adapters)", e->n_adapters);
    wf_loaded *l = &e->adapters[e->n_adapters++];
    *l = (wf_loaded){.place = *place};
    wf_copy(l->name, sizeof l->name, name);
    return WEFT_OK;
}

weft_status wf_engine_take_adapter(struct weft_engine *e, struct weft_request *r, const char *name, wf_key *base)
{
    wf_loaded *l;
    *base = e->kv_base;
    if (!name) return WEFT_OK;
    pthread_mutex_lock(&e->lock);
    weft_status s = find_ready(e, name, &l);
    if (s == WEFT_OK) l->requests++, r->seq.adapter = l->place, *base = l->base;
    pthread_mutex_unlock(&e->lock);
    return s;
}

void wf_engine_leave_adapter(struct weft_engine *e, struct weft_request *r)
{
    for (size_t i = 0; r->seq.adapter && i < e->n_adapters; i++)
        e->adapters[i].requests -= e->adapters[i].place == r->seq.adapter;
    r->seq.adapter = 0;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static weft_status make_image(const struct weft_engine *e, const wf_adapter *x, wf_adapter_image *out)
{
    return wf_adapter_image_make(&e->layout.adapters, x, e->model, e->dev, &e->layout.weights, out);
}

static weft_status write_image(const struct weft_engine *e, const wf_adapter_image *image, uint32_t place)
{
    return wf_adapter_image_write(image, e->adapter_queue, &e->layout.weights, place);
}

/* The copy is made, or failed: requests may use it, or the name is free again. Under lock. */
static void end_loading(struct weft_engine *e, const char *name, weft_status s, const wf_adapter_image *image,
                        uint32_t rank)
{
    wf_loaded *l = find_loaded(e, name);
    if (s != WEFT_OK) {
        remove_loaded(e, name);
        return;
    }
    l->base = wf_key_root(&e->kv_base, image->hash, sizeof image->hash);
    l->rank = rank;
    l->ready = true;
    wf_log(WEFT_LOG_INFO, "adapter %s: rank %u", name, rank);
}

weft_status wf_engine_open_adapters(struct weft_engine *e, const struct weft_engine_params *p)
{
    wf_adapters *a = &e->layout.adapters;
    char name[128];
    const char *path;
    uint32_t place;
    if (!a->places) return WEFT_OK;
    if (!(e->adapters = wf_calloc(a->places, sizeof *e->adapters))) return WEFT_ERR_NOMEM;
    WF_TRY(wf_copy_queue_create(e->dev, &e->adapter_queue));
    for (size_t i = 0; i < a->n_given; i++) {
        wf_adapter_image image = {0};
        WF_TRY(wf_adapter_split(p->adapters[i], name, &path));
        WF_TRY(add_name(e, name, &place));
        weft_status s = make_image(e, a->given[i], &image);
        if (s == WEFT_OK) s = write_image(e, &image, place);
        end_loading(e, name, s, &image, a->given[i]->rank);
        wf_adapter_image_free(&image);
        WF_TRY(s);
    }
    while (a->n_given) wf_adapter_close(a->given[--a->n_given]); /* all is on the device */
    return WEFT_OK;
}

void wf_engine_close_adapters(struct weft_engine *e)
{
    if (e->adapter_queue) wf_queue_destroy(e->adapter_queue);
    e->adapter_queue = NULL;
}

bool wf_engine_adapter_job(struct weft_engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct wf_adapter_job *job = e->adapter_job;
    weft_status failed = e->failed;
    pthread_mutex_unlock(&e->lock);
    if (!job || e->n_in_flight) return job != NULL;
    weft_status s = failed ? wf_fail(failed, "the engine has failed") : write_image(e, job->image, job->place);
    pthread_mutex_lock(&e->lock);
    job->status = s;
    if (s != WEFT_OK) snprintf(job->message, sizeof job->message, "%s", wf_error());
    job->done = true;
    e->adapter_job = NULL;
    pthread_cond_broadcast(&e->ended);
    pthread_mutex_unlock(&e->lock);
    return false;
}

/* Under lock, which it leaves while it waits. */
static weft_status run_job(struct weft_engine *e, struct wf_adapter_job *job)
{
    while (e->adapter_job) pthread_cond_wait(&e->ended, &e->lock);
    e->adapter_job = job;
    pthread_cond_signal(&e->wake);
    while (!job->done) pthread_cond_wait(&e->ended, &e->lock);
    return job->status == WEFT_OK ? WEFT_OK : wf_fail(job->status, "%s", job->message);
}

weft_status weft_adapter_load(struct weft_engine *e, const char *name, const char *path)
{
    WF_NOT_NULL(e);
    WF_NOT_NULL(name);
    WF_NOT_NULL(path);
    if (pthread_equal(pthread_self(), e->thread))
        return wf_fail(WEFT_ERR_ARG, "weft_adapter_load was called from a callback of the engine, for which it waits");
    wf_adapter *x = NULL;
    wf_adapter_image image = {0};
    struct wf_adapter_job job = {.image = &image};
    pthread_mutex_lock(&e->lock);
    weft_status s = add_name(e, name, &job.place);
    pthread_mutex_unlock(&e->lock);
    WF_TRY(s);
    s = wf_adapter_open(path, e->model->arch, &x);
    if (s == WEFT_OK) s = make_image(e, x, &image);
    uint32_t rank = s == WEFT_OK ? x->rank : 0;
    wf_adapter_close(x);
    pthread_mutex_lock(&e->lock);
    if (s == WEFT_OK) s = run_job(e, &job);
    end_loading(e, name, s, &image, rank);
    pthread_mutex_unlock(&e->lock);
    wf_adapter_image_free(&image);
    return s;
}

weft_status weft_adapter_unload(struct weft_engine *e, const char *name)
{
    WF_NOT_NULL(e);
    WF_NOT_NULL(name);
    wf_loaded *l;
    pthread_mutex_lock(&e->lock);
    weft_status s = find_ready(e, name, &l);
    if (s == WEFT_OK && l->requests)
        s = wf_fail(WEFT_ERR_ARG, "adapter '%s' is used by %u requests: unload it when they have ended", name,
                    l->requests);
    if (s == WEFT_OK) remove_loaded(e, name);
    pthread_mutex_unlock(&e->lock);
    return s;
}

size_t weft_engine_adapters(const struct weft_engine *e, struct weft_adapter_info *out, size_t cap)
{
    if (!e) return 0;
    size_t n = 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock;
    pthread_mutex_lock(lock);
    for (const wf_loaded *l = e->adapters; l < e->adapters + e->n_adapters; l++) {
        if (!l->ready) continue;
        if (out && n < cap) {
            out[n] = (struct weft_adapter_info){.rank = l->rank, .requests = l->requests};
            memcpy(out[n].name, l->name, sizeof l->name);
        }
        n++;
    }
    pthread_mutex_unlock(lock);
    return n;
}
