/* layout: see layout.h. From top to bottom: parameters; graph; limits; the size of the KV cache; plans; the whole;
 * bytes; the questions of weft.h about engines that are not opened. */
#include "engine/layout.h"
#include "exec/exec.h"
#include "exec/workspace.h"
#include "kept/plans.h"
#include "model/weights/attention_windows.h"
#include "select/select.h"
#include "tensor/kv.h"

#include <weft/debug.h>
#include <string.h>

#define PAGE 16
#define STEP_TOKENS 512
/* An H200 computes 512 tokens at 0.93 of its rate for 2048, and decodes wait a third of the time. */
#define STEP_TOKENS_GPU 1024
#define TILE_GPU 128          /* tokens per tile of its large GEMMs */
#define LOGIT_BYTES (64u << 20) /* of logits per step, if requests want more than one row per sequence */
#define USUAL_CONTEXTS 8      /* of a server's KV cache in memory that others use as well */
#define LEAST_SEQS 64u        /* of a server by default: few sequences fill their context */
#define MOST_SEQS  256u       /* likewise: each has a row of logits, and a token in each step */
/* Of memory that is shared with others, a cache that has to be smaller leaves an eighth. */
#define SPARE 8
#define ALIGN 256             /* bytes, as most devices want it */

/* ---- parameters ---------------------------------------------------------------------------------------------- */

weft_status wf_layout_check_context(const struct weft_model *m, uint32_t context)
{
    const char *path = m->info.path;
    if (context > 1u << 24)
        return wf_fail(WEFT_ERR_ARG, "context %u is too long: at most %u tokens (weft_engine_params.context)", context,
                       1u << 24);
    if (context > m->hp.context && m->hp.learned_positions)
        return wf_fail(
            WEFT_ERR_ARG,
            "context %u is too long: %s has learned %u positions, and there are no more (weft_engine_params.context)",
            context, path, m->hp.context);
    if (m->hp.longest_context && context > m->hp.longest_context)
        return wf_fail(
            WEFT_ERR_ARG,
            "context %u is too long: layers of %s attend to the last %u tokens, which weft computes in contexts up to "
            "that length only (weft_engine_params.context)",
            context, path, m->hp.longest_context);
    return WEFT_OK;
}

weft_status wf_layout_check_kv_dtype(const struct weft_model *m, const char *name)
{
    enum wf_dtype kv;
    if (!wf_kv_dtype_named(name, &kv))
        return wf_fail(WEFT_ERR_ARG, "kv_dtype \"%s\": want f16 or q8_0", name);
    if (m->hp.head_dim % wf_dtypes[kv].block)
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "heads of %s have %u elements, no multiple of %u: its KV cache must be F16 "
                       "(weft_engine_params.kv_dtype)",
                       m->info.path, m->hp.head_dim, wf_dtypes[kv].block);
    return WEFT_OK;
}

static weft_status check_drafts(const struct weft_model *m, const struct weft_engine_params *p)
{
    const struct weft_model *d = p->draft_model;
    if (!d) return WEFT_OK;
    if (!p->draft_tokens) return wf_fail(WEFT_ERR_ARG, "draft_model drafts nothing while draft_tokens is 0");
    if (wf_n_ranks(p) > 1) return wf_fail(WEFT_ERR_UNSUPPORTED, "draft_model needs an engine with one device");
    if (m->hp.pooling || p->pooling || d->info.unsupported || !d->arch || d->hp.pooling)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "draft_model: %s and %s must both generate text", m->info.path,
                       d->info.path);
    return WEFT_OK;
}

static weft_status check_ranks(const struct weft_model *m, const struct weft_engine_params *p)
{
    uint32_t n = wf_n_ranks(p), layers = m->hp.n_layer;
    if (n == 1) return WEFT_OK;
    uint32_t processes;
    wf_process(&processes);
    if (processes > 1 && !wf_is_spread(p))
        return wf_fail(WEFT_ERR_ARG, "mpirun started %u processes: tensor_parallel times pipeline_parallel must be as "
                       "many, and experts are elsewhere in one process only", processes);
    if (n > WF_COMM_RANKS)
        return wf_fail(WEFT_ERR_ARG, "tensor_parallel %u times pipeline_parallel %u: want at most %d devices",
                       p->tensor_parallel, p->pipeline_parallel, WF_COMM_RANKS);
    const char *count = p->experts ? strrchr(p->experts, '=') : NULL;
    bool named = p->experts && *p->experts && count != p->experts;
    if (p->experts && (!named || (count && count[1 + strspn(count + 1, "0123456789")]) ||
                       !wf_shard_of_rank(p, 1, layers).away))
        return wf_fail(WEFT_ERR_ARG, "experts \"%s\": want a device, or DEVICE=N for the first N layers", p->experts);
    if (p->experts && (p->tensor_parallel > 1 || p->pipeline_parallel > 1))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "experts goes with one device: leave it, or tensor_parallel and "
                       "pipeline_parallel");
    if (p->pipeline_parallel > layers)
        return wf_fail(WEFT_ERR_ARG, "pipeline_parallel is %u, but %s has %u layers", p->pipeline_parallel,
                       m->info.path, layers);
    bool ranges = p->calibration && strcmp(p->calibration, "auto") && strcmp(p->calibration, "none"); /* in a file */
    if (p->n_adapters || p->most_adapters || p->kv_host || p->kv_disk || p->plan || ranges)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "adapters, kv_host, kv_disk, plan and a calibration file need an engine "
                       "with one device: leave them, or tensor_parallel, pipeline_parallel and experts");
    if (p->pipeline_parallel > 1 && (m->hp.bidirectional || p->attention_windows))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "pipeline_parallel: not for models of embeddings, nor with "
                       "attention_windows; tensor_parallel works");
    return WEFT_OK;
}

weft_status wf_layout_check(const struct weft_model *m, const struct weft_engine_params *p)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } ranges[] = {{"page_tokens", p->page_tokens, 1024}, {"max_batched_tokens", p->max_batched_tokens, 65536},
                  {"n_seqs", p->n_seqs, 65536}, {"draft_tokens", p->draft_tokens, 64},
                  {"adapter_rank", p->adapter_rank, WF_ADAPTER_RANK},
                  {"tensor_parallel", p->tensor_parallel, WF_COMM_RANKS},
                  {"pipeline_parallel", p->pipeline_parallel, WF_COMM_RANKS},
                  {"tile", p->tile, 65536}, {"threads", p->threads, 4096}};
    WF_TRY(WF_UNUSED(p));
    if (p->debug) WF_TRY(WF_UNUSED(p->debug));
    if (m->info.unsupported) return wf_fail(WEFT_ERR_UNSUPPORTED, "%s", m->info.unsupported);
    if (!m->arch)
        return wf_fail(WEFT_ERR_ARG, "%s holds a vocabulary without a model: it can be tokenised with, but not run",
                       m->info.path);
    for (size_t i = 0; i < WF_LEN(ranges); i++)
        if (ranges[i].value > ranges[i].most)
            return wf_fail(WEFT_ERR_ARG, "%s %u: want 1 to %u", ranges[i].name, ranges[i].value, ranges[i].most);
    if (p->n_adapters && !p->adapters)
        return wf_fail(WEFT_ERR_ARG, "n_adapters is %zu, but adapters is NULL", p->n_adapters);
    if (!(p->memory_utilization >= 0 && p->memory_utilization <= 1))
        return wf_fail(WEFT_ERR_ARG, "memory_utilization %g: want a number up to 1", (double)p->memory_utilization);
    if ((p->kv_host || p->kv_disk) && p->no_prefix)
        return wf_fail(WEFT_ERR_ARG, "kv_host and kv_disk keep what the prefix cache finds, which no_prefix turns off");
    if (p->kv_disk && !p->kv_disk_bytes)
        return wf_fail(WEFT_ERR_ARG, "kv_disk names %s, but kv_disk_bytes is 0: say how large it may become",
                       p->kv_disk);
    WF_TRY(check_ranks(m, p));
    WF_TRY(wf_pooling_choose(m->hp.pooling, p->pooling, &(enum wf_pooling){0}));
    WF_TRY(wf_layout_check_kv_dtype(m, p->kv_dtype));
    WF_TRY(check_drafts(m, p));
    if (m->hp.bidirectional && (p->attention_windows || p->plan || p->nano_batches > 1))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "attention of %s is bidirectional: neither windows nor plans are possible",
                       m->info.path);
    return wf_layout_check_context(m, p->context);
}

/* Nobody has said how large the KV cache of this server is. */
static bool has_usual_cache(const struct weft_engine_params *p)
{
    return p->memory_utilization > 0 && !p->kv_memory && !p->kv_seqs;
}

/* Does the KV cache take what the device leaves? (weft_engine_params.memory_utilization) */
static bool fills_memory(const wf_layout *l)
{
    return has_usual_cache(&l->params) && l->device->own_memory;
}

/* The KV cache decides how many sequences run. */
static bool counts_seqs(const wf_layout *l)
{
    return l->params.memory_utilization > 0 && !l->params.n_seqs;
}

/* Everything that no graph is needed for. Of memory that others use as well a server takes what little depends on: a
 * few contexts. */
static weft_status read_params(wf_layout *l, const struct weft_engine_params *p)
{
    l->params = *p;
    if (has_usual_cache(p) && !fills_memory(l)) l->params.kv_seqs = USUAL_CONTEXTS;
    l->params.context = l->context = p->context ? p->context : WF_MIN(l->model->hp.context, WEFT_DEFAULT_CONTEXT);
    if (wf_n_ranks(p) > 1) { /* what is measured on one device is not for a part of the model */
        l->params.calibration = "none";
        if (!p->nano_batches) l->params.nano_batches = 1;
    }
    if (l->model->hp.bidirectional) { /* a prompt is computed whole */
        l->params.calibration = "none";
        l->params.kv_host = l->params.kv_disk_bytes = 0; /* nothing finds the beginning of a prompt */
        l->params.kv_disk = NULL;
        if (p->max_batched_tokens) l->params.context = l->context = WF_MIN(l->context, p->max_batched_tokens);
    }
    l->page_tokens = p->page_tokens ? p->page_tokens : PAGE;
    l->tile = p->tile ? p->tile : l->device->type == WEFT_DEVICE_GPU ? TILE_GPU : 0;
    return wf_policy_parse(p->policy, &l->policy);
}

/* ---- graph --------------------------------------------------------------------------------------------------- */

/* What ranks exchange; the first one decides. */
static weft_status choose_sums(const char *name, enum wf_dtype act, enum wf_dtype *out)
{
    *out = !name || !strcmp(name, "auto") ? act : !strcmp(name, "f16") ? WF_F16 : WF_F32;
    if (!name || !strcmp(name, "auto") || *out == WF_F16 || !strcmp(name, "f32")) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "reduce_dtype \"%s\": want f16 or f32", name);
}

/* w: l->weights, unless those are on the device already. */
static weft_status build_graph(wf_layout *l, wf_weights *w)
{
    const struct weft_model *m = l->model;
    wf_build_params b = wf_build_params_of(l->dev, l->context, l->page_tokens);
    if (!l->dev && l->params.f16_residual) b.residual = WF_F16;
    wf_kv_dtype_named(l->params.kv_dtype, &b.kv);
    b.shard = wf_shard_of_rank(&l->params, l->rank, m->hp.n_layer);
    if (!l->rank) WF_TRY(choose_sums(l->params.reduce_dtype, b.act, &l->sums));
    b.shard.sums = l->sums;
    WF_TRY(wf_pooling_choose(m->hp.pooling, l->params.pooling, &b.pooling));
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, &l->graph, w));
    WF_TRY(wf_adapters_add(&l->adapters, b.act, &l->graph, w));
    WF_TRY(wf_graph_fuse(&l->graph, l->dev));
    return wf_attention_windows_use(m, l->params.attention_windows, b.shard, &l->graph, w);
}

weft_status wf_layout_graph(wf_layout *l)
{
    return build_graph(l, &l->weights);
}

/* Bytes to divide by: a device that has experts alone has no pages. */
static uint64_t page_bytes_of(const wf_layout *l)
{
    return WF_MAX(wf_page_bytes(&l->graph), 1u);
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

/* Tokens of a step where parameters say nothing: as measured by `weft tune`, else by the type of device. Steps that go
 * through a pipeline are shorter, so that a prompt is in all of its stages. */
static uint32_t usual_step(const wf_layout *l)
{
    uint32_t tuned = l->dev ? wf_select_dense_batch(l->dev) : 0;
    uint32_t usual = tuned ? tuned : l->device->type == WEFT_DEVICE_GPU ? STEP_TOKENS_GPU : STEP_TOKENS;
    return WF_MAX(usual / WF_MAX(l->params.pipeline_parallel, 1u), 1u);
}

/* What the last stage of a pipeline ends in. */
uint32_t wf_layout_output(const wf_layout *l)
{
    return l->graph.logits < 0 ? l->model->hp.n_vocab : l->graph.values[l->graph.logits].cols;
}

static uint32_t logit_rows_of(const wf_layout *l, const wf_limits *x)
{
    uint32_t few = WF_MIN(x->step_tokens, LOGIT_BYTES / 4 / wf_layout_output(l));
    return WF_MAX(x->seqs, l->graph.bidirectional ? x->step_tokens : few); /* a prompt's all come at once */
}

/* Those with which the KV cache would be as large as parameters ask for. The cache has kv_memory, or a number of
 * contexts of which all layers hold as much as the one with the longest window: what windows save is for more
 * sequences, since short ones take a page of each table as well. */
static weft_status find_limits(wf_layout *l, const wf_weights *w)
{
    const struct weft_engine_params *p = &l->params;
    uint32_t usual = usual_step(l), seqs = WF_MAX(p->n_seqs, 1u);
    if (counts_seqs(l))
        seqs = WF_MIN(MOST_SEQS, p->max_batched_tokens ? p->max_batched_tokens : WF_MAX(usual, LEAST_SEQS));
    /* prompts are not cut: a step has room for the longest */
    bool whole = l->policy == WF_POLICY_ORCA || l->policy == WF_POLICY_REQUEST || l->model->hp.bidirectional;
    uint32_t tokens = p->max_batched_tokens ? p->max_batched_tokens
        : WF_MAX(WF_MAX(usual, seqs), whole ? l->context : 0);
    wf_limits x = {.step_tokens = (uint32_t)WF_MIN(tokens, (uint64_t)l->context * seqs),
                   .seq_pages = (l->context + l->page_tokens - 1) / l->page_tokens};
    x.seqs = WF_MIN(seqs, x.step_tokens); /* each running sequence has a token in each step */
    x.logit_rows = logit_rows_of(l, &x);
    bool masked = l->graph.logits >= 0 && !l->graph.pooled && wf_n_ranks(p) < 2 && !p->draft_tokens;
    if (masked) x.mask_words = (wf_layout_output(l) + 31) / 32;
    const wf_kv_growth growth = {l->page_tokens, x.step_tokens, x.seq_pages};
    if (p->pipeline_parallel < 2) /* the scheduler has one layout, and stages have layers of different windows */
        WF_TRY(wf_attention_windows_lay_out(&l->graph, w, &growth));
    x.tables = l->graph.kv.n_tables;
    x.held_pages = wf_kv_layout_pages(&l->graph.kv, &growth);

    uint64_t page = page_bytes_of(l), held = wf_limits_held_pages(&x);
    uint64_t alike = (uint64_t)wf_limits_tables(&x) * wf_kv_window_pages(l->graph.kv.tables[0], &growth);
    uint64_t contexts = p->kv_seqs ? WF_MIN(p->kv_seqs, x.seqs) : x.seqs;
    uint64_t pages = WF_MIN(p->kv_memory ? p->kv_memory / page : alike * contexts, held * x.seqs);
    x.pages = (uint32_t)WF_MIN(pages, (uint64_t)INT32_MAX);
    l->apart = l->limits = x;
    l->wanted_pages = x.pages;
    if (x.pages >= held) return WEFT_OK;
    return wf_fail(
        WEFT_ERR_ARG,
        "a KV cache of %llu bytes does not hold one context of %u tokens, which takes %llu bytes: enlarge it "
        "(weft_engine_params.kv_memory) or shorten the context (weft_engine_params.context)",
        (unsigned long long)p->kv_memory, l->context, (unsigned long long)(page * held));
}

/* ---- the size of the KV cache -------------------------------------------------------------------------------- */

static uint32_t align_of(const wf_layout *l)
{
    return l->dev ? l->dev->align : ALIGN;
}

typedef struct needs { /* bytes that are to be allocated; in_file: of weights, what takes no memory of its own */
    uint64_t weights, in_file, kv, activations, tables, all;
} needs;

/* tables: of positions and pages, which grow with the context; a GPU has a part of them, the host the others. */
static needs needs_of(const wf_layout *l)
{
    struct weft_budget b;
    wf_layout_budget(l, &b);
    bool in_place = l->dev && l->dev->fns->buf_wrap; /* weights are used where the file is mapped */
    uint64_t made = wf_weights_made_bytes(&l->weights), inputs = wf_inputs_bytes(&l->limits, align_of(l));
    needs n = {.weights = b.weights - made, .kv = b.kv, .activations = b.activations, .tables = made + inputs};
    if (in_place) n.tables = made + (2 + WF_EXEC_DEPTH) * inputs + wf_kv_host_bytes(&l->limits, l->page_tokens);
    if (in_place && !l->model->file->random) n.in_file = n.weights;
    n.all = n.weights + n.kv + n.activations + n.tables;
    return n;
}

/* What an engine that needs `all` bytes may take of the device. Others want memory, too: of what it has to share
 * with them it takes all but an eighth where it does not fit. */
static uint64_t allowance(const wf_layout *l, uint64_t all)
{
    const struct weft_device_info *d = l->device;
    uint64_t taken = l->dev ? WF_MIN(l->dev->taken, d->own_memory) : 0;
    uint64_t has = d->available ? d->available : d->own_memory - taken;
    if (fills_memory(l)) return (uint64_t)((double)has * (double)l->params.memory_utilization);
    return !d->available || all <= d->available ? UINT64_MAX : d->available - d->available / SPARE;
}

/* Devices of a group have as many pages in every step as each other. */
static void unify_pool(wf_layout *l)
{
    l->limits = l->apart;
    if (wf_n_ranks(&l->params) > 1) return;
    wf_limits_unify_pool(&l->limits, &l->graph, &l->plans.list[0], align_of(l), l->dev ? l->dev->max_alloc
                         : l->device->max_alloc);
}

/* Gives the KV cache so many pages, and as many sequences as have their contexts in them, B = (M_G - M_S) / (L m_kv)
 * of SARATHI, section 4.3.1, but at most `seqs`; returns what the engine needs with that. */
static uint64_t set_cache(wf_layout *l, uint32_t pages, uint32_t seqs)
{
    wf_limits *x = &l->apart;
    uint32_t held = wf_limits_held_pages(x);
    x->seqs = counts_seqs(l) ? WF_MIN(WF_MAX(pages / held, LEAST_SEQS), seqs) : seqs;
    x->logit_rows = logit_rows_of(l, x);
    x->pages = (uint32_t)WF_MIN(pages, (uint64_t)held * x->seqs);
    unify_pool(l);
    return needs_of(l).all;
}

/* Takes pages until the engine fits: the KV cache has at most what the device has beside the weights, M_G - M_S of
 * SARATHI. One context stays, and so does a kv_memory that was given. What else an engine needs grows with its
 * sequences, in steps, so the number of pages is searched for. */
static void fit_cache(wf_layout *l)
{
    uint32_t seqs = l->apart.seqs, most = l->apart.pages, fits = wf_limits_held_pages(&l->apart);
    uint64_t all = set_cache(l, most, seqs), may = allowance(l, all);
    if (l->params.kv_memory || all <= may) return;
    while (fits < most) {
        uint32_t pages = most - (most - fits) / 2;
        if (set_cache(l, pages, seqs) <= may) fits = pages;
        else most = pages - 1;
    }
    set_cache(l, fits, seqs);
}

void wf_layout_save_memory(wf_dev *dev, const wf_weights *w)
{
    const struct weft_device_info *d = &dev->info;
    uint64_t has = d->available ? d->available : d->memory, room = has - has / SPARE,
        laid = wf_weights_bytes_on(w, dev), rows = wf_weights_bytes(w);
    dev->saves_memory = has && laid > room && rows < laid;
    if (dev->saves_memory)
        wf_log(WEFT_LOG_WARN,
               "weights would take %.2f GiB as the fastest kernels read them, and %s has %.2f GiB: those that the file "
               "has in fewer bytes stay as they are, %.2f GiB in all, and are slower",
               laid / 0x1p30, d->name, has / 0x1p30, wf_weights_bytes_on(w, dev) / 0x1p30);
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

static weft_status choose_plans(wf_layout *l)
{
    const struct weft_engine_params *p = &l->params;
    if (l->graph.bidirectional) { /* the first token of a prompt waits for K and V of the last one */
        wf_copy(l->plan_from, sizeof l->plan_from, "sequential, since attention is bidirectional");
        l->plans.n = 1;
        return wf_plan_sequential(&l->graph, &l->plans.list[0]);
    }
    if (p->plan && p->nano_batches > 1)
        return wf_fail(WEFT_ERR_ARG, "a plan from a file says itself how many nano-batches there are");
    if (p->plan) {
        snprintf(l->plan_from, sizeof l->plan_from, "those of %s", p->plan);
        return wf_fail_param(wf_plans_load(&l->graph, p->plan, &l->plans), "plan");
    }
    if (p->nano_batches > 1) {
        snprintf(l->plan_from, sizeof l->plan_from, "in %u nano-batches, as weft_engine_params.nano_batches says",
                 p->nano_batches);
        return wf_plans_overlap(&l->graph, p->nano_batches, l->limits.step_tokens, l->tile, &l->plans);
    }
    if (p->nano_batches)
        wf_copy(l->plan_from, sizeof l->plan_from, "sequential, as weft_engine_params.nano_batches says");
    else if (l->dev && wf_kept_plans(l->dev, &l->graph, &l->plans, l->plan_from, sizeof l->plan_from)) return WEFT_OK;
    l->plans.n = 1;
    return wf_plan_sequential(&l->graph, &l->plans.list[0]);
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

/* From a graph with its ranges on. Plans that are kept are finished already, and stay as they are. */
static weft_status finish(wf_layout *l)
{
    WF_TRY(wf_graph_end(&l->graph));
    if (l->dev) wf_workspaces_omit(&l->graph, l->dev, &l->limits);
    WF_TRY(choose_plans(l));
    if (!l->plans.list[0].n_nanos) WF_TRY(wf_plans_finish(&l->graph, &l->plans, align_of(l)));
    fit_cache(l);
    return WEFT_OK;
}

weft_status wf_layout_make(const struct weft_model *m, const struct weft_engine_params *p,
                           const struct weft_device_info *d, wf_dev *dev, wf_layout *l)
{
    return wf_layout_make_rank(m, p, 0, WF_F32, d, dev, l);
}

weft_status wf_layout_make_rank(const struct weft_model *m, const struct weft_engine_params *p, uint32_t rank,
                                enum wf_dtype sums, const struct weft_device_info *d, wf_dev *dev, wf_layout *l)
{
    *l = (wf_layout){.model = m, .rank = rank, .sums = sums, .device = d, .dev = dev};
    WF_TRY(read_params(l, p));
    WF_TRY(wf_fail_param(wf_adapters_open(&l->adapters, m, p), "adapters"));
    WF_TRY(build_graph(l, &l->weights));
    WF_TRY(find_limits(l, &l->weights));
    if (dev) wf_layout_save_memory(dev, &l->weights);
    if (dev) WF_TRY(wf_ranges_find(m, &l->params, dev, &l->graph, l->limits.step_tokens, &l->ranges));
    return finish(l);
}

weft_status wf_layout_again(wf_layout *l, const wf_phi *ranges)
{
    wf_weights w = {0};
    wf_plans_free(&l->plans);
    wf_graph_free(&l->graph);
    weft_status s = build_graph(l, &w);
    if (s == WEFT_OK) s = find_limits(l, &w);
    wf_weights_free(&w);
    if (s == WEFT_OK) wf_ranges_set(ranges, &l->graph);
    return s == WEFT_OK ? finish(l) : s;
}

weft_status wf_layout_keep_workspaces(wf_layout *l)
{
    wf_workspaces_keep(&l->graph);
    WF_TRY(wf_plans_finish(&l->graph, &l->plans, align_of(l)));
    fit_cache(l);
    return wf_layout_check_available(l);
}

void wf_layout_limit(wf_layout *l, const wf_limits *to)
{
    l->apart = l->limits = *to;
}

bool wf_layout_shrink(wf_layout *l)
{
    uint32_t least = wf_limits_held_pages(&l->apart), pages = l->apart.pages;
    if (!fills_memory(l) || pages <= least) return false;
    l->apart.pages = WF_MAX(least, pages - (pages + SPARE - 1) / SPARE);
    fit_cache(l);
    return true;
}

weft_status wf_layout_replan(wf_layout *l, wf_plans *plans)
{
    wf_plans_free(&l->plans);
    l->plans = *plans;
    *plans = (wf_plans){0};
    WF_TRY(wf_plans_finish(&l->graph, &l->plans, align_of(l)));
    unify_pool(l);
    return WEFT_OK;
}

void wf_layout_free(wf_layout *l)
{
    wf_ranges_free(&l->ranges);
    wf_plans_free(&l->plans);
    wf_weights_free(&l->weights);
    wf_adapters_free(&l->adapters);
    wf_graph_free(&l->graph);
}

/* ---- bytes --------------------------------------------------------------------------------------------------- */

uint64_t wf_layout_token_bytes(const wf_layout *l)
{
    uint64_t sum = 0;
    for (const wf_value *v = l->graph.values; v < l->graph.values + l->graph.n_values; v++)
        if (v->kind == WF_VALUE_KV) sum += wf_dtype_bytes(v->dtype, v->cols / l->page_tokens);
    return WF_MAX(sum, 1u);
}

void wf_layout_budget(const wf_layout *l, struct weft_budget *out)
{
    const wf_hparams *hp = &l->model->hp;
    const wf_limits *x = &l->limits;
    uint64_t page = page_bytes_of(l), token = wf_layout_token_bytes(l);
    uint64_t kv = wf_limits_guaranteed_pages(x) * page;
    uint64_t step = x->pool.n ? wf_unified_pool_bytes(&x->pool) - kv
        : wf_activation_bytes(&l->plans.list[0], x->step_tokens, x->logit_rows);
    *out = (struct weft_budget){
        .weights = wf_weights_bytes_on(&l->weights, l->dev),
            .activations = step + wf_states_bytes(x, l->graph.pooled ? 0 : hp->n_vocab, hp->n_layer), .kv = kv,
        .context = l->context, .max_batched_tokens = x->step_tokens, .n_seqs = x->seqs, .kv_bytes_per_token = token,
            .kv_tokens = kv / token, .kv_host = wf_layout_kv_host(&l->params, page), .kv_disk = l->params.kv_disk_bytes,
        .contexts = wf_limits_guaranteed_pages(x) / wf_limits_held_pages(x),
            .steady_tokens = wf_limits_steady_tokens(x, x->seqs),
        .steady_kv_tokens = wf_limits_max_pages(x, x->seqs) * page / token};
    if (!counts_seqs(l)) out->n_seqs_from = l->params.n_seqs ? "as weft_engine_params.n_seqs says" : "the default";
    else if (x->seqs == x->step_tokens) out->n_seqs_from = "each has a token in a step";
    else if (x->seqs == MOST_SEQS) out->n_seqs_from = "the most by default";
    else if (x->seqs > out->contexts) out->n_seqs_from = "the least by default, for few fill their context";
    else out->n_seqs_from = "as many whole contexts as the KV cache holds";
}

uint64_t wf_layout_kv_host(const struct weft_engine_params *p, uint64_t page_bytes)
{
    /* pages: as many as may be read and written at one time, and as many that come down and that wait */
    enum { PASSING = 4 * WF_DISK_WAITING };
    uint64_t bytes = p->kv_host || !p->kv_disk ? p->kv_host : PASSING * page_bytes;
    return p->kv_host && p->kv_host < page_bytes ? p->kv_host : bytes / page_bytes * page_bytes;
}

static weft_status too_little(const wf_layout *l, const needs *n)
{
    uint64_t left = l->device->available, weights = n->weights - n->in_file;
    if (weights > left)
        return wf_fail(
            WEFT_ERR_NOMEM,
            "the weights need %.2f GiB, but only %.2f GiB of the memory of %s are available: use a smaller format "
            "(weft convert), another device (weft_engine_params.device), or end what takes the memory",
            weights / 0x1p30, left / 0x1p30, l->device->name);
    return wf_fail(
        WEFT_ERR_NOMEM,
        "the KV cache needs %.2f GiB, activations %.2f GiB and tables of positions and pages %.2f GiB, but only %.2f "
        "GiB of memory are available%s: use a smaller context (weft_engine_params.context), or end what takes the "
        "memory",
        n->kv / 0x1p30, n->activations / 0x1p30, n->tables / 0x1p30, (left - weights) / 0x1p30,
        n->in_file ? "" : " beside the weights");
}

/* Systems promise memory that they do not have, and end the process when it is used, which may be hours later.
 * Weights that are used in place can be read from the file again and again, if slowly. */
weft_status wf_layout_check_available(const wf_layout *l)
{
    needs n = needs_of(l);
    uint64_t left = l->device->available;
    if (!left || n.all <= left) return WEFT_OK;
    if (n.all - n.in_file > left) return too_little(l, &n);
    wf_log(WEFT_LOG_WARN,
           "the model needs %.2f GiB, but only %.2f GiB of memory are available: weights will be read from the file "
           "again and again, which is slow",
           n.all / 0x1p30, left / 0x1p30);
    return WEFT_OK;
}

/* What was asked for and cannot be used is said: a size that is silently smaller looks like a fault. */
static void say_less(const char *name, double asked, double taken, const char *unit, const char *why)
{
    wf_log(WEFT_LOG_WARN, "weft_engine_params.%s: %.10g%s asked for, %.10g%s taken: %s", name, asked, unit, taken, unit,
           why);
}

void wf_layout_say_less(const wf_layout *l)
{
    const struct weft_engine_params *p = &l->params;
    uint64_t page = page_bytes_of(l), kv = (uint64_t)l->limits.pages * page;
    if (l->apart.pages != l->wanted_pages && !fills_memory(l))
        wf_log(WEFT_LOG_WARN,
               "the KV cache has %u pages, not %u, and holds %.3g contexts of %u tokens: %s has no memory for more",
               l->apart.pages, l->wanted_pages, (double)l->apart.pages / wf_limits_held_pages(&l->apart), l->context,
               l->device->name);
    if (p->kv_memory > kv + page)
        say_less("kv_memory", (double)(p->kv_memory >> 20), (double)(kv >> 20), " MiB",
                 "the sequences that run at the same time have no use for more");
    if (p->max_batched_tokens > l->limits.step_tokens)
        say_less("max_batched_tokens", p->max_batched_tokens, l->limits.step_tokens, "",
                 "the sequences that run at the same time have no more tokens");
    if (p->n_seqs > l->limits.seqs)
        say_less("n_seqs", p->n_seqs, l->limits.seqs, "", "each has a token in a step, and a step has no more");
}

/* ---- engines that are not opened ----------------------------------------------------------------------------- */

weft_status wf_layout_device(const struct weft_engine_params *p, const char *device, wf_dev **out)
{
    wf_open_params o = {.threads = p->threads, .tuned = p->tuned, .deterministic = p->deterministic,
                        .f16_residual = p->f16_residual, .no_kernel_cache = p->no_kernel_cache};
    char first[WF_RANK_NAME];
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    if (wf_n_ranks(p) > 1 && device == p->device) { /* of several, the one that gives results */
        WF_TRY(wf_rank_device(p, 0, first));
        device = first;
    }
    return wf_select_open(device, &o, out);
}

static weft_status budget_on(const struct weft_model *m, const struct weft_engine_params *p,
                             const struct weft_device_info *d, wf_dev *dev, struct weft_budget *out)
{
    wf_layout l;
    weft_status s = wf_layout_make(m, p, d, dev, &l);
    if (s == WEFT_OK) wf_layout_budget(&l, out);
    wf_layout_free(&l);
    return s;
}

weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p, struct weft_budget *out)
{
    static const struct weft_device_info any = {.max_alloc = UINT64_MAX};
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(out);
    WF_TRY(wf_layout_check(m, p));
    return budget_on(m, p, &any, NULL, out);
}

/* A device with memory of its own is opened: how its kernels read weights decides how much those take. Where that
 * fails they count as in the file. */
weft_status weft_device_budget(const struct weft_model *m, const struct weft_engine_params *p,
                               const struct weft_device_info *device, struct weft_budget *out)
{
    wf_dev *dev = NULL;
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(device);
    WF_NOT_NULL(out);
    WF_TRY(wf_layout_check(m, p));
    if (device->own_memory && wf_layout_device(p, device->id, &dev) != WEFT_OK) dev = NULL;
    weft_status s = budget_on(m, p, device, dev, out);
    if (dev) wf_dev_close(dev);
    return s;
}

uint64_t weft_model_memory(const struct weft_model *m, uint32_t context, uint32_t n_seqs)
{
    struct weft_engine_params p = {.context = context, .n_seqs = n_seqs};
    struct weft_budget b;
    return weft_model_budget(m, &p, &b) ? 0 : b.weights + b.activations + b.kv;
}
