/* limits: what parameters of an engine may be; how many tokens per step, sequences and pages it has by them; and how much memory it will need. */
#include "engine/attention_windows.h"
#include "engine/engine.h"

#include <weft/debug.h>
#include <string.h>

#define DEFAULT_CONTEXT 4096
#define DEFAULT_PAGE 16
#define DEFAULT_STEP_TOKENS 512 /* for a budget; a device may have another default */
#define LOGIT_BYTES (64u << 20) /* of logits per step, if requests want more than one row per sequence */

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
    return WEFT_OK;
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
    return p->context ? p->context : WF_MIN(m->hp.context, DEFAULT_CONTEXT);
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

weft_status wf_engine_limits(const struct weft_model *m, const struct weft_engine_params *p, enum wf_policy policy, uint32_t step_tokens, wf_graph *g, const wf_weights *w, wf_limits *l)
{
    uint32_t page = wf_engine_page(p), context = wf_engine_context(m, p), seqs = p->n_seqs ? p->n_seqs : 1;
    *l = (wf_limits){.step_tokens = step_tokens_of(p, policy, step_tokens, context, seqs), .seq_pages = (context + page - 1) / page};
    l->seqs = WF_MIN(seqs, l->step_tokens); /* each running sequence has a token in each step */
    l->logit_rows = WF_MAX(l->seqs, WF_MIN(l->step_tokens, LOGIT_BYTES / 4 / m->hp.n_vocab));
    WF_TRY(lay_out_kv(g, w, page, l));
    return count_pages(p, g, context, l);
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

weft_status weft_model_budget(const struct weft_model *m, const struct weft_engine_params *p, struct weft_budget *out)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(out);
    enum { ALIGN = 256 /* bytes, as most devices want it */ };
    wf_graph g = {0};
    wf_weights w = {0};
    wf_plan plan = {0};
    wf_limits l;
    enum wf_policy policy;
    WF_TRY(wf_engine_check_params(m, p));
    *out = (struct weft_budget){.context = wf_engine_context(m, p)};
    WF_TRY(wf_policy_parse(p->policy, &policy));
    wf_build_params b = wf_build_params_of(NULL, out->context, wf_engine_page(p));
    weft_status s = wf_model_build(m->arch, m->file, &m->hp, &b, &g, &w);
    if (s == WEFT_OK) s = wf_attention_windows_use(m, p->attention_windows, &g, &w);
    if (s == WEFT_OK) s = wf_engine_limits(m, p, policy, DEFAULT_STEP_TOKENS, &g, &w, &l);
    if (s == WEFT_OK) s = wf_graph_end(&g);
    if (s == WEFT_OK) s = wf_plan_place(&g, &plan, ALIGN);
    if (s == WEFT_OK) {
        wf_limits_unify_pool(&l, &g, &plan, ALIGN, UINT64_MAX);
        wf_engine_fill_budget(m, &g, &plan, &l, out);
        out->weights = wf_weights_bytes(&w);
    }
    wf_plan_free(&plan);
    wf_graph_free(&g);
    wf_weights_free(&w);
    return s;
}

uint64_t weft_model_memory(const struct weft_model *m, uint32_t context, uint32_t n_seqs)
{
    struct weft_engine_params p = {.context = context, .n_seqs = n_seqs};
    struct weft_budget b;
    return weft_model_budget(m, &p, &b) ? 0 : b.weights + b.activations + b.kv;
}
