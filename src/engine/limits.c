/* limits: what parameters of an engine may be; how many tokens per step, sequences and pages it has by them; and how much memory it will need. */
#include "engine/attention_windows.h"
#include "engine/engine.h"

#include <weft/debug.h>
#include <string.h>

#define DEFAULT_PAGE 16
#define LOGIT_BYTES (64u << 20) /* of logits per step, if requests want more than one row per sequence */
#define USUAL_CONTEXTS 8  /* of a server's KV cache in memory that others use as well */
#define LEAST_SEQS 64u    /* of a server by default: few sequences fill their context */
#define MOST_SEQS  256u   /* likewise: each has a row of logits, and a token in each step */

/* ---- parameters ------------------------------------------------------------------------------------------- */

static weft_status check_ranges(const struct weft_engine_params *p)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } ranges[] = {{"page_tokens", p->page_tokens, 1024}, {"max_batched_tokens", p->max_batched_tokens, 65536}, {"n_seqs", p->n_seqs, 65536},
                  {"tile", p->tile, 65536}, {"threads", p->threads, 4096}};
    for (size_t i = 0; i < WF_LEN(ranges); i++)
        if (ranges[i].value > ranges[i].most) return wf_fail(WEFT_ERR_ARG, "%s %u: want 1 to %u", ranges[i].name, ranges[i].value, ranges[i].most);
    if (p->memory_utilization >= 0 && p->memory_utilization <= 1) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "memory_utilization %g: want a number up to 1", (double)p->memory_utilization);
}

weft_status wf_engine_check_context(const struct weft_model *m, uint32_t context)
{
    const char *path = m->info.path;
    if (context > 1u << 24) return wf_fail(WEFT_ERR_ARG, "context %u is too long: at most %u tokens (weft_engine_params.context)", context, 1u << 24);
    if (context > m->hp.context && m->hp.learned_positions)
        return wf_fail(WEFT_ERR_ARG, "context %u is too long: %s has learned %u positions, and there are no more (weft_engine_params.context)",
                       context, path, m->hp.context);
    if (m->hp.longest_context && context > m->hp.longest_context)
        return wf_fail(WEFT_ERR_ARG, "context %u is too long: layers of %s attend to the last %u tokens, which weft computes in contexts up to that length only "
                       "(weft_engine_params.context)", context, path, m->hp.longest_context);
    return WEFT_OK;
}

weft_status wf_engine_check_params(const struct weft_model *m, const struct weft_engine_params *p)
{
    WF_TRY(WF_UNUSED(p));
    if (p->debug) WF_TRY(WF_UNUSED(p->debug));
    if (m->info.unsupported) return wf_fail(WEFT_ERR_UNSUPPORTED, "%s", m->info.unsupported);
    if (!m->arch) return wf_fail(WEFT_ERR_ARG, "%s holds a vocabulary without a model: it can be tokenised with, but not run", m->info.path);
    WF_TRY(check_ranges(p));
    return wf_engine_check_context(m, p->context);
}

/* ---- limits ----------------------------------------------------------------------------------------------- */

uint32_t wf_engine_page(const struct weft_engine_params *p)
{
    return p->page_tokens ? p->page_tokens : DEFAULT_PAGE;
}

uint32_t wf_engine_context(const struct weft_model *m, const struct weft_engine_params *p)
{
    return p->context ? p->context : WF_MIN(m->hp.context, WEFT_DEFAULT_CONTEXT);
}

/* Nobody has said how large the KV cache of this server is. */
static bool has_usual_cache(const struct weft_engine_params *p)
{
    return p->memory_utilization > 0 && !p->kv_memory && !p->kv_seqs;
}

bool wf_engine_fills_memory(const struct weft_engine_params *p, const struct weft_device_info *d)
{
    return has_usual_cache(p) && d && d->own_memory;
}

/* Of memory that others use as well a server takes what little depends on: a few contexts. */
struct weft_engine_params wf_engine_params_on(const struct weft_engine_params *p, const struct weft_device_info *d)
{
    struct weft_engine_params on = *p;
    if (has_usual_cache(p) && !wf_engine_fills_memory(p, d)) on.kv_seqs = USUAL_CONTEXTS;
    return on;
}

/* The KV cache decides how many sequences run. */
static bool counts_seqs(const struct weft_engine_params *p)
{
    return p->memory_utilization > 0 && !p->n_seqs;
}

static uint32_t most_seqs(const struct weft_engine_params *p, uint32_t step_tokens)
{
    if (!counts_seqs(p)) return p->n_seqs ? p->n_seqs : 1;
    return WF_MIN(MOST_SEQS, p->max_batched_tokens ? p->max_batched_tokens : WF_MAX(step_tokens, LEAST_SEQS));
}

/* With the policies that do not cut prompts, a step has room for the longest one. */
static uint32_t step_tokens_of(const struct weft_engine_params *p, enum wf_policy policy, uint32_t step_tokens, uint32_t context, uint32_t seqs)
{
    bool whole = policy == WF_POLICY_ORCA || policy == WF_POLICY_REQUEST;
    uint32_t wanted = p->max_batched_tokens ? p->max_batched_tokens : WF_MAX(WF_MAX(step_tokens, seqs), whole ? context : 0);
    return (uint32_t)WF_MIN(wanted, (uint64_t)context * seqs);
}

/* Pages of the KV cache: from kv_memory, or from a number of contexts of which all layers hold as much as the one with the longest window: what windows
 * save is for more sequences, since short ones take a page of each table as well. */
static weft_status count_pages(const struct weft_engine_params *p, const wf_graph *g, uint32_t context, wf_limits *l)
{
    const wf_kv_growth growth = {wf_engine_page(p), l->step_tokens, l->seq_pages};
    uint64_t page = wf_page_bytes(g), held = wf_limits_held_pages(l), most = held * l->seqs;
    uint64_t alike = (uint64_t)wf_limits_tables(l) * wf_kv_window_pages(g->kv.tables[0], &growth), contexts = p->kv_seqs ? WF_MIN(p->kv_seqs, l->seqs) : l->seqs;
    uint64_t pages = WF_MIN(p->kv_memory ? p->kv_memory / page : alike * contexts, most);
    l->pages = (uint32_t)WF_MIN(pages, (uint64_t)INT32_MAX);
    if (l->pages >= held) return WEFT_OK;
    return wf_fail(WEFT_ERR_ARG, "a KV cache of %llu bytes does not hold one context of %u tokens, which takes %llu bytes: enlarge it (weft_engine_params.kv_memory) or shorten the context (weft_engine_params.context)",
                   (unsigned long long)p->kv_memory, context, (unsigned long long)(page * held));
}

static weft_status lay_out_kv(wf_graph *g, const wf_weights *w, uint32_t page, wf_limits *l)
{
    const wf_kv_growth growth = {page, l->step_tokens, l->seq_pages};
    WF_TRY(wf_attention_windows_lay_out(g, w, &growth));
    l->tables = g->kv.n_tables;
    l->held_pages = wf_kv_layout_pages(&g->kv, &growth);
    return WEFT_OK;
}

static uint32_t logit_rows_of(const struct weft_model *m, const wf_limits *l)
{
    return WF_MAX(l->seqs, WF_MIN(l->step_tokens, LOGIT_BYTES / 4 / m->hp.n_vocab));
}

weft_status wf_engine_limits(const struct weft_model *m, const struct weft_engine_params *p, enum wf_policy policy, uint32_t step_tokens, wf_graph *g, const wf_weights *w, wf_limits *l)
{
    uint32_t page = wf_engine_page(p), context = wf_engine_context(m, p), seqs = most_seqs(p, step_tokens);
    *l = (wf_limits){.step_tokens = step_tokens_of(p, policy, step_tokens, context, seqs), .seq_pages = (context + page - 1) / page};
    l->seqs = WF_MIN(seqs, l->step_tokens); /* each running sequence has a token in each step */
    l->logit_rows = logit_rows_of(m, l);
    WF_TRY(lay_out_kv(g, w, page, l));
    return count_pages(p, g, context, l);
}

/* B = (M_G - M_S) / (L m_kv) of SARATHI, section 4.3.1. */
void wf_engine_count_seqs(const struct weft_model *m, const struct weft_engine_params *p, wf_limits *l)
{
    uint32_t held = wf_limits_held_pages(l);
    if (counts_seqs(p)) l->seqs = WF_MIN(WF_MAX(l->pages / held, LEAST_SEQS), l->seqs);
    l->logit_rows = logit_rows_of(m, l);
    l->pages = (uint32_t)WF_MIN(l->pages, (uint64_t)held * l->seqs);
}

const char *wf_engine_seqs_from(const struct weft_engine_params *p, const struct weft_budget *b)
{
    if (!counts_seqs(p)) return p->n_seqs ? "as weft_engine_params.n_seqs says" : "the default";
    if (b->n_seqs == b->max_batched_tokens) return "each has a token in a step";
    if (b->n_seqs == MOST_SEQS) return "the most by default";
    return b->n_seqs > b->contexts ? "the least by default, for few fill their context" : "as many whole contexts as the KV cache holds";
}

/* What was asked for and cannot be used is said: a size that is silently smaller looks like a fault. */
static void say_less(const char *name, double asked, double taken, const char *unit, const char *why)
{
    wf_log(WEFT_LOG_WARN, "weft_engine_params.%s: %.10g%s asked for, %.10g%s taken: %s", name, asked, unit, taken, unit, why);
}

void wf_engine_say_capped(const struct weft_engine_params *p, const wf_limits *l, uint64_t page_bytes)
{
    uint64_t kv = (uint64_t)l->pages * page_bytes;
    if (p->kv_memory > kv + page_bytes) say_less("kv_memory", (double)(p->kv_memory >> 20), (double)(kv >> 20), " MiB", "the sequences that run at the same time have no use for more");
    if (p->max_batched_tokens > l->step_tokens) say_less("max_batched_tokens", p->max_batched_tokens, l->step_tokens, "", "the sequences that run at the same time have no more tokens");
    if (p->n_seqs > l->seqs) say_less("n_seqs", p->n_seqs, l->seqs, "", "each has a token in a step, and a step has no more");
}

/* ---- the budget ------------------------------------------------------------------------------------------- */

void wf_engine_fill_budget(const struct weft_model *m, const wf_graph *g, const wf_plan *plan, const wf_limits *l, struct weft_budget *out)
{
    uint64_t bytes = (uint64_t)m->hp.n_layer * 2 * 2 * m->hp.n_kv_head * m->hp.head_dim;
    out->max_batched_tokens = l->step_tokens;
    out->n_seqs = l->seqs;
    out->kv_bytes_per_token = bytes;
    out->kv = wf_limits_guaranteed_pages(l) * wf_page_bytes(g);
    out->kv_tokens = out->kv / bytes;
    out->contexts = wf_limits_guaranteed_pages(l) / wf_limits_held_pages(l);
    uint64_t step = l->pool.n ? wf_unified_pool_bytes(&l->pool) - out->kv : wf_activation_bytes(plan, l->step_tokens, l->logit_rows);
    out->activations = step + wf_states_bytes(l, m->hp.n_vocab, m->hp.n_layer);
    out->steady_tokens = wf_limits_steady_tokens(l, l->seqs);
    out->steady_kv_tokens = wf_limits_max_pages(l, l->seqs) * wf_page_bytes(g) / bytes;
}

enum { ALIGN = 256 /* bytes, as most devices want it */ };
static const struct weft_device_info any_device = {.max_alloc = UINT64_MAX};

typedef struct draft {
    wf_graph g;
    wf_weights w;
    wf_plan plan;
    wf_limits apart, l;
} draft;

static weft_status make_draft(const struct weft_model *m, const struct weft_engine_params *p, const struct weft_device_info *d, wf_dev *dev, draft *out)
{
    enum wf_policy policy;
    WF_TRY(wf_policy_parse(p->policy, &policy));
    wf_build_params b = wf_build_params_of(NULL, wf_engine_context(m, p), wf_engine_page(p));
    b.residual = p->f16_residual ? WF_F16 : WF_F32;
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, &out->g, &out->w));
    WF_TRY(wf_attention_windows_use(m, p->attention_windows, &out->g, &out->w));
    if (dev) wf_engine_save_memory(dev, &out->w);
    WF_TRY(wf_engine_limits(m, p, policy, wf_engine_usual_step(d->type), &out->g, &out->w, &out->apart));
    WF_TRY(wf_graph_end(&out->g));
    WF_TRY(wf_plan_place(&out->g, &out->plan, ALIGN));
    wf_sizing s = {m, p, &out->g, &out->plan, &out->w, d, dev, ALIGN, d->max_alloc, false};
    wf_engine_fit_cache(&s, &out->apart, &out->l);
    return WEFT_OK;
}

static weft_status budget_on(const struct weft_model *m, const struct weft_engine_params *given, const struct weft_device_info *d, wf_dev *dev, struct weft_budget *out)
{
    struct weft_engine_params p = wf_engine_params_on(given, d);
    draft made = {.l = {0}};
    WF_TRY(wf_engine_check_params(m, &p));
    *out = (struct weft_budget){.context = wf_engine_context(m, &p)};
    weft_status s = make_draft(m, &p, d, dev, &made);
    if (s == WEFT_OK) {
        wf_engine_fill_budget(m, &made.g, &made.plan, &made.l, out);
        out->weights = wf_weights_bytes_on(&made.w, dev);
        out->n_seqs_from = wf_engine_seqs_from(&p, out);
    }
    wf_plan_free(&made.plan);
    wf_graph_free(&made.g);
    wf_weights_free(&made.w);
    return s;
}

weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p, struct weft_budget *out)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(out);
    return budget_on(m, p, &any_device, NULL, out);
}

/* One with memory of its own: how its kernels read weights decides how much those take. NULL, if that cannot be had: then they count as in the file. */
static wf_dev *open_of_its_own(const struct weft_engine_params *p, const struct weft_device_info *d)
{
    wf_open_params o = {.no_kernel_cache = p->no_kernel_cache};
    wf_dev *dev = NULL;
    if (!d->own_memory || wf_tier_parse(p->tier, &o.tier) || wf_dev_open(d->id, &o, &dev)) return NULL;
    return dev;
}

weft_status weft_device_budget(const struct weft_model *m, const struct weft_engine_params *p, const struct weft_device_info *device, struct weft_budget *out)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(device);
    WF_NOT_NULL(out);
    wf_dev *dev = open_of_its_own(p, device);
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
