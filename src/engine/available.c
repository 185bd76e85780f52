/* available: whether the memory of a device holds an engine, and how large a KV cache beside it, before anything is loaded. See engine.h. */
#include "engine/engine.h"

#define SPARE 8 /* of what is available a cache that has to be smaller leaves one in so many parts: others want memory, too */

/* What is to be allocated; on a CPU weights of files are used in place. */
typedef struct needs {
    uint64_t weights, in_file, kv, activations, tables; /* in_file: of weights, what takes no memory of its own */
} needs;

/* Tables that grow with the context; a GPU has a part of them, the host the others. */
static uint64_t table_bytes(const wf_sizing *s, const wf_limits *l)
{
    uint64_t inputs = wf_inputs_bytes(l, s->align), made = wf_weights_made_bytes(s->weights);
    return s->in_place ? made + (2 + WF_EXEC_DEPTH) * inputs + wf_sched_bytes(l, wf_engine_page(s->params)) : made + inputs;
}

static needs needs_of(const wf_sizing *s, const wf_limits *l)
{
    struct weft_budget b;
    wf_engine_fill_budget(s->model, s->graph, s->plan, l, &b);
    uint64_t weights = wf_weights_bytes_on(s->weights, s->dev) - wf_weights_made_bytes(s->weights);
    return (needs){weights, s->in_place && !s->model->file->random ? weights : 0, b.kv, b.activations, table_bytes(s, l)};
}

static uint64_t bytes_of(const needs *n)
{
    return n->weights + n->kv + n->activations + n->tables;
}

/* ---- the size of the KV cache ----------------------------------------------------------------------------- */

/* What an engine that needs `all` bytes may take of the device. Others want memory, too: of what it has to share with them it takes all but an
 * eighth where it does not fit. */
static uint64_t allowance(const wf_sizing *s, uint64_t all)
{
    const struct weft_device_info *d = s->device;
    if (wf_engine_fills_memory(s->params, d)) return (uint64_t)((double)(d->available ? d->available : d->own_memory) * (double)s->params->memory_utilization);
    return !d->available || all <= d->available ? UINT64_MAX : d->available - d->available / SPARE;
}

static void unify(const wf_sizing *s, const wf_limits *apart, wf_limits *out)
{
    *out = *apart;
    wf_limits_unify_pool(out, s->graph, s->plan, s->align, s->max_alloc);
}

/* How many pages fewer would fit; one context stays. */
static uint32_t excess_pages(const wf_sizing *s, const wf_limits *apart, const wf_limits *l)
{
    needs n = needs_of(s, l);
    uint64_t all = bytes_of(&n), may = allowance(s, all), page = wf_page_bytes(s->graph);
    if (s->params->kv_memory || all <= may) return 0;
    return (uint32_t)WF_MIN((all - may + page - 1) / page, apart->pages - wf_limits_held_pages(apart));
}

/* Fewer pages are for fewer sequences, and are shared out among the device's buffers in another way. */
static void shrink(const wf_sizing *s, wf_limits *apart, wf_limits *out)
{
    for (uint32_t fewer = 1; fewer; apart->pages -= fewer) {
        wf_engine_count_seqs(s->model, s->params, apart);
        unify(s, apart, out);
        fewer = excess_pages(s, apart, out);
    }
}

/* Twice: once it is known how many sequences run, they need less memory beside the cache than the most would have. */
void wf_engine_fit_cache(const wf_sizing *s, wf_limits *apart, wf_limits *out)
{
    uint32_t most = apart->pages, seqs = apart->seqs;
    shrink(s, apart, out);
    if (apart->seqs == seqs || !wf_engine_fills_memory(s->params, s->device)) return;
    apart->pages = most;
    shrink(s, apart, out);
}

bool wf_engine_shrink_cache(const wf_sizing *s, wf_limits *apart, wf_limits *out)
{
    const struct weft_engine_params *p = s->params;
    uint32_t least = wf_limits_held_pages(apart);
    if (!wf_engine_fills_memory(p, s->device) || apart->pages <= least) return false;
    apart->pages = WF_MAX(least, apart->pages - (apart->pages + SPARE - 1) / SPARE);
    wf_engine_fit_cache(s, apart, out);
    return true;
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

void wf_engine_save_memory(wf_dev *dev, const wf_weights *w)
{
    const struct weft_device_info *d = &dev->info;
    uint64_t has = d->available ? d->available : d->memory, room = has - has / SPARE, laid = wf_weights_bytes_on(w, dev), rows = wf_weights_bytes(w);
    dev->saves_memory = has && laid > room && rows < laid;
    if (dev->saves_memory)
        wf_log(WEFT_LOG_WARN, "weights would take %.2f GiB as the fastest kernels read them, and %s has %.2f GiB: those that the file has in fewer bytes stay as they are, %.2f GiB in all, and are slower", laid / 0x1p30,
               d->name, has / 0x1p30, wf_weights_bytes_on(w, dev) / 0x1p30);
}

/* ---- does it fit? ----------------------------------------------------------------------------------------- */

static weft_status too_little(const wf_sizing *s, const needs *n)
{
    uint64_t left = s->device->available, weights = n->weights - n->in_file;
    if (weights > left)
        return wf_fail(WEFT_ERR_NOMEM, "the weights need %.2f GiB, but only %.2f GiB of the memory of %s are available: use a smaller format (weft convert), another device "
                       "(weft_engine_params.device), or end what takes the memory", weights / 0x1p30, left / 0x1p30, s->device->name);
    return wf_fail(WEFT_ERR_NOMEM, "the KV cache needs %.2f GiB, activations %.2f GiB and tables of positions and pages %.2f GiB, but only %.2f GiB of memory are available%s: "
                   "use a smaller context (weft_engine_params.context), or end what takes the memory", n->kv / 0x1p30, n->activations / 0x1p30, n->tables / 0x1p30, (left - weights) / 0x1p30,
                   n->in_file ? "" : " beside the weights");
}

/* Systems promise memory that they do not have, and end the process when it is used, which may be hours later.
 * Weights that are used in place can be read from the file again and again, if slowly. */
weft_status wf_engine_check_available(const wf_sizing *s, const wf_limits *l)
{
    needs n = needs_of(s, l);
    uint64_t left = s->device->available, all = bytes_of(&n);
    if (!left || all <= left) return WEFT_OK;
    if (all - n.in_file > left) return too_little(s, &n);
    wf_log(WEFT_LOG_WARN, "the model needs %.2f GiB, but only %.2f GiB of memory are available: weights will be read from the file again and again, which is slow",
           all / 0x1p30, left / 0x1p30);
    return WEFT_OK;
}
