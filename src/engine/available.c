/* available: whether the memory of a device holds an engine, before anything is loaded. See engine.h. */
#include "engine/engine.h"

#define SPARE 8 /* of what is available a cache that has to be smaller leaves one in so many parts: others want memory, too */

/* What is to be allocated; on a CPU weights of files are used in place. */
typedef struct needs {
    uint64_t weights, in_file, kv, activations, tables; /* in_file: of weights, what takes no memory of its own */
} needs;

/* Tables that grow with the context; a GPU has a part of them, the host the others. */
static uint64_t table_bytes(const struct weft_engine *e, uint32_t page, bool on_host)
{
    uint64_t inputs = wf_inputs_bytes(&e->limits, e->dev->align), made = wf_weights_made_bytes(&e->weights);
    return on_host ? made + (2 + WF_EXEC_DEPTH) * inputs + wf_sched_bytes(&e->limits, page) : made + inputs;
}

static needs needs_of(const struct weft_engine *e, uint32_t page)
{
    struct weft_budget b;
    bool in_place = e->dev->fns->buf_wrap;
    wf_engine_fill_budget(e->model, &e->graph, &e->plans.list[0], &e->limits, &b);
    uint64_t weights = wf_weights_bytes(&e->weights) - wf_weights_made_bytes(&e->weights);
    return (needs){weights, in_place ? weights : 0, b.kv, b.activations, table_bytes(e, page, in_place)};
}

static uint64_t bytes_of(const needs *n)
{
    return n->weights + n->kv + n->activations + n->tables;
}

uint32_t wf_engine_excess_pages(const struct weft_engine *e, uint32_t page)
{
    needs n = needs_of(e, page);
    uint64_t left = e->dev->info.available - e->dev->info.available / SPARE, all = bytes_of(&n);
    if (!e->dev->info.available || all <= e->dev->info.available) return 0;
    uint64_t excess = (all - left + wf_page_bytes(&e->graph) - 1) / wf_page_bytes(&e->graph), most = e->apart.pages - wf_limits_held_pages(&e->apart);
    return (uint32_t)WF_MIN(excess, most);
}

static weft_status too_little(const struct weft_engine *e, const needs *n)
{
    uint64_t left = e->dev->info.available, weights = n->weights - n->in_file;
    if (weights > left)
        return wf_fail(WEFT_ERR_NOMEM, "the weights need %.2f GiB, but only %.2f GiB of the memory of %s are available: use a smaller format (weft convert), another device "
                       "(weft_engine_params.device), or end what takes the memory", weights / 0x1p30, left / 0x1p30, e->dev->info.name);
    return wf_fail(WEFT_ERR_NOMEM, "the KV cache needs %.2f GiB, activations %.2f GiB and tables of positions and pages %.2f GiB, but only %.2f GiB of memory are available%s: "
                   "use a smaller context (weft_engine_params.context), or end what takes the memory", n->kv / 0x1p30, n->activations / 0x1p30, n->tables / 0x1p30, (left - weights) / 0x1p30,
                   n->in_file ? "" : " beside the weights");
}

/* Systems promise memory that they do not have, and end the process when it is used, which may be hours later.
 * Weights that are used in place can be read from the file again and again, if slowly. */
weft_status wf_engine_check_available(const struct weft_engine *e, uint32_t page)
{
    needs n = needs_of(e, page);
    uint64_t left = e->dev->info.available, all = bytes_of(&n);
    if (!left || all <= left) return WEFT_OK;
    if (all - n.in_file > left) return too_little(e, &n);
    wf_log(WEFT_LOG_WARN, "the model needs %.2f GiB, but only %.2f GiB of memory are available: weights will be read from the file again and again, which is slow",
           all / 0x1p30, left / 0x1p30);
    return WEFT_OK;
}
