/* kv_tiers: the tiers below an engine's KV cache (kv/tiers.h): what identifies its blocks, and their copies on the
 * engine's thread. */
#include "base/blake2b.h"
#include "base/file.h"
#include "base/memory_left.h"
#include "engine/engine.h"
#include "select/select.h"
#include "tensor/kv.h"

#include <weft/debug.h>
#include <stdlib.h>
#include <string.h>

/* ---- identity ------------------------------------------------------------------------------------------------ */

static void add_text(wf_blake2b *b, const char *text)
{
    wf_blake2b_field(b, text ? text : "", text ? strlen(text) + 1 : 0);
}

static void add_number(wf_blake2b *b, uint64_t n)
{
    wf_blake2b_field(b, &n, sizeof n);
}

/* Everything that K and V of equal tokens depend on, to the bit where kernels are batch-invariant, and how they lie in
 * a page: of files what they say, not their names. Too much costs a cache that is not found; too little would find
 * another's. */
static void add_setting(wf_blake2b *b, const struct weft_engine *e, const struct weft_engine_params *p)
{
    const wf_layout *l = &e->layout;
    const struct weft_device_info *d = &e->dev->info;
    const char *texts[] = {wf_build_id(), d->name, d->platform, d->driver, d->version, d->tiers, p->tier,
                           p->debug ? p->debug->force : NULL, e->model->arch->name};
    enum wf_dtype kv;
    wf_kv_dtype_named(p->kv_dtype, &kv);
    const uint64_t numbers[] = {kv, l->page_tokens, wf_page_bytes(&l->graph), l->context, p->threads, p->deterministic,
                                p->f16_residual, p->nano_batches, l->graph.kv.n_tables, l->graph.kv.n_slots,
                                l->graph.adapted && p->deterministic, /* kernels are not fused */
                                e->model->file->random};
    for (size_t i = 0; i < WF_LEN(texts); i++) add_text(b, texts[i]);
    for (size_t i = 0; i < WF_LEN(numbers); i++) add_number(b, numbers[i]);
    for (uint32_t i = 0; i < e->model->hp.n_layer; i++)
        add_number(b, wf_kv_table(&l->graph.kv, i)), add_number(b, wf_kv_slot(&l->graph.kv, i));
    wf_blake2b_field(b, &e->model->hp, sizeof e->model->hp);
    for (const wf_node *n = l->graph.nodes; n < l->graph.nodes + l->graph.n_nodes; n++) {
        const float ranges[] = {n->p.phi, n->p.phi_lo, n->p.phi_hi};
        if (n->op == WF_OP_ATTENTION) wf_blake2b_field(b, ranges, sizeof ranges);
    }
    for (size_t i = 0; i < l->weights.n; i++) add_number(b, e->views[i].layout); /* by the memory that was free */
    wf_select_hash(e->dev, b);
}

static weft_status add_plans(wf_blake2b *b, const wf_plans *p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < p->n; i++) wf_plan_print(&p->list[i], f);
    bool whole = !fclose(f);
    if (whole) wf_blake2b_field(b, text, len);
    free(text);
    return whole ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status add_windows(wf_blake2b *b, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    if (path) WF_TRY(wf_read_file(path, 64u << 20, &text, &len));
    wf_blake2b_field(b, text, len);
    free(text);
    return WEFT_OK;
}

/* ---- weights: all their bytes, by all cores -------------------------------------------------------------------- */

enum { PIECE = 8 << 20, MOST_THREADS = 32 };
typedef struct piece {
    const uint8_t *data;
    size_t bytes;
    uint8_t hash[32];
} piece;
typedef struct pieces {
    piece *list;
    size_t n, cap;
    atomic_size_t next;
} pieces;

static void *hash_pieces(void *arg)
{
    pieces *all = arg;
    for (size_t i; (i = atomic_fetch_add(&all->next, 1)) < all->n;) {
        wf_blake2b b;
        wf_blake2b_begin(&b, sizeof all->list[i].hash, NULL, 0);
        wf_blake2b_add(&b, all->list[i].data, all->list[i].bytes);
        wf_blake2b_end(&b, all->list[i].hash);
    }
    return NULL;
}

static bool cut_tensors(const wf_gguf *f, pieces *all)
{
    for (const wf_gguf_tensor *x = f->tensors; x < f->tensors + f->n_tensors; x++)
        for (uint64_t at = 0; x->data && at < x->bytes; at += PIECE) {
            if (!wf_grow(&all->list, all->n, &all->cap, sizeof *all->list)) return false;
            size_t bytes = (size_t)WF_MIN(x->bytes - at, (uint64_t)PIECE);
            all->list[all->n++] = (piece){.data = x->data + at, .bytes = bytes};
        }
    return true;
}

/* A model that has been trained on has the same shapes, and other weights. */
static weft_status add_weights(wf_blake2b *b, const wf_gguf *f)
{
    pieces all = {0};
    pthread_t threads[MOST_THREADS];
    uint32_t n = WF_MIN(wf_core_count(), (uint32_t)MOST_THREADS), started = 0;
    bool ok = cut_tensors(f, &all);
    while (ok && started + 1 < n && !pthread_create(&threads[started], NULL, hash_pieces, &all)) started++;
    if (ok) hash_pieces(&all);
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (const wf_gguf_tensor *x = f->tensors; x < f->tensors + f->n_tensors; x++) {
        wf_blake2b_field(b, x->name.data, x->name.len);
        add_number(b, x->ggml_type);
        for (uint32_t i = 0; i < 4; i++) add_number(b, x->dims[i]);
    }
    for (size_t i = 0; i < all.n; i++) wf_blake2b_field(b, all.list[i].hash, sizeof all.list[i].hash);
    free(all.list);
    return ok ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_model_identify(const struct weft_model *m, wf_key *out)
{
    static const char name[] = "weft model identity";
    wf_blake2b b;
    wf_blake2b_begin(&b, sizeof *out, name, sizeof name);
    wf_blake2b_field(&b, &m->hp, sizeof m->hp);
    WF_TRY(add_weights(&b, m->file));
    wf_blake2b_end(&b, out);
    return WEFT_OK;
}

weft_status wf_engine_identify_kv(struct weft_engine *e, const struct weft_engine_params *p)
{
    static const char name[] = "weft KV identity";
    wf_blake2b b;
    wf_blake2b_begin(&b, sizeof e->kv_base, name, sizeof name);
    add_setting(&b, e, p);
    WF_TRY(add_plans(&b, &e->layout.plans));
    WF_TRY(add_windows(&b, p->attention_windows));
    wf_key model = {0};
    if (p->kv_disk) /* each engine has a pool of its own, but files outlive it */
        WF_TRY(wf_model_identify(e->model, &model));
    wf_blake2b_field(&b, &model, sizeof model);
    wf_blake2b_end(&b, &e->kv_base);
    return WEFT_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

static weft_status begin_copy(void *engine, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket)
{
    return wf_exec_move(((struct weft_engine *)engine)->exec, out, list, n, ticket);
}

static enum wf_moved poll_copy(void *engine, uint32_t ticket)
{
    return wf_exec_moved(((struct weft_engine *)engine)->exec, ticket);
}

wf_mover wf_engine_mover(struct weft_engine *e)
{
    return (wf_mover){e, begin_copy, poll_copy};
}

weft_status wf_engine_open_tiers(struct weft_engine *e, const struct weft_engine_params *p)
{
    const wf_layout *l = &e->layout;
    uint64_t left = wf_memory_left(), page = wf_page_bytes(&l->graph);
    uint64_t host = wf_layout_kv_host(&l->params, page);
    if (!host) return WEFT_OK;
    if (left && host > left)
        return wf_fail(WEFT_ERR_NOMEM,
                       "the host tier of the KV cache needs %s, but only %s of memory are available: make it smaller "
                       "(weft_engine_params.kv_host)",
                       WF_HUMAN(host, true), WF_HUMAN(left, true));
    wf_tiers_params tp = {.host_bytes = host, .page_bytes = page, .page_tokens = l->page_tokens,
                          .passing = !p->kv_host, .always = p->debug && p->debug->kv_store_always,
                          .load_always = p->debug && p->debug->kv_load_always,
                          .disk = {.path = p->kv_disk, .bytes = p->kv_disk_bytes, .page_bytes = page,
                                   .page_tokens = l->page_tokens, .identity = e->kv_base}};
    wf_mover mover = wf_engine_mover(e);
    WF_TRY(wf_tiers_open(e->dev, &tp, &mover, l->limits.pages, &e->tiers));
    wf_log(WEFT_LOG_INFO, "KV cache: %s of host memory below the device, %u blocks of %u tokens",
           WF_HUMAN(wf_tiers_stats(&e->tiers, WEFT_KV_TIER_HOST).bytes, true), e->tiers.pool.n, l->page_tokens);
    if (e->tiers.disk)
        wf_log(WEFT_LOG_INFO, "KV cache: %s in %s below that, with %u blocks of earlier",
               WF_HUMAN(wf_disk_stats(e->tiers.disk).bytes, true), p->kv_disk, wf_disk_found(e->tiers.disk));
    wf_engine_use_tiers(e);
    wf_engine_count_tiers(e);
    return WEFT_OK;
}

void wf_engine_use_tiers(struct weft_engine *e)
{
    if (e->tiers.pool.n) wf_kv_use_tiers(&e->sched.kv, &e->tiers);
}

/* ---- on the engine's thread ---------------------------------------------------------------------------------- */

void wf_engine_pause(struct weft_engine *e)
{
    enum { LOOK_NS = 100000 };
    struct timespec t;
    uint64_t until = wf_now_ns() + LOOK_NS;
    t = (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    pthread_mutex_lock(&e->lock);
    if (!e->inbox && !e->stop) pthread_cond_timedwait(&e->wake, &e->lock, &t);
    pthread_mutex_unlock(&e->lock);
}

/* How long prompts take: of steps that computed some. */
void wf_engine_learn_compute(struct weft_engine *e, uint32_t tokens, uint64_t ns)
{
    enum { LEAST = 32 }; /* fewer take as long as reading the weights */
    double one = (double)ns / tokens, *now = &e->tiers.compute_ns;
    if (tokens >= LEAST) *now += (one - *now) / (*now > 0 ? 8 : 1);
}

void wf_engine_count_tiers(struct weft_engine *e)
{
    if (!e->tiers.pool.n) return;
    for (int i = 0; i < WEFT_N_KV_TIERS; i++) e->tier_stats[i] = wf_tiers_stats(&e->tiers, (enum weft_kv_tier)i);
    e->tier_stats[WEFT_KV_TIER_HOST].queries = e->sched.tier_queries;
    e->tier_stats[WEFT_KV_TIER_HOST].hits = e->sched.tier_hits;
}

weft_status weft_engine_kv_tier_stats(const struct weft_engine *e, enum weft_kv_tier tier,
                                      struct weft_kv_tier_stats *out)
{
    WF_NOT_NULL(e);
    WF_NOT_NULL(out);
    if ((unsigned)tier >= WEFT_N_KV_TIERS) return wf_fail(WEFT_ERR_ARG, "there is no tier %d", (int)tier);
    pthread_mutex_t *lock = (pthread_mutex_t *)&e->lock;
    pthread_mutex_lock(lock);
    *out = e->tier_stats[tier];
    pthread_mutex_unlock(lock);
    return WEFT_OK;
}
