/* memory_report: what fits a device's memory, with the reuse of activation buffers and the unified pool, and without both
 * (FlashDecoding++Next, section V and figure 19). See tune.h. */
#include "engine/attention_windows.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "select/select.h"
#include <weft/tune.h>

typedef struct report {
    wf_dev *dev;
    wf_graph g;
    wf_weights w;
    wf_plan plan;
    wf_limits l;
    enum wf_policy policy;
    uint32_t page; /* tokens */
} report;

static void free_report(report *r)
{
    wf_plan_free(&r->plan);
    wf_graph_free(&r->g);
    wf_weights_free(&r->w);
    if (r->dev) wf_dev_close(r->dev);
}

/* The sequences that an engine has once its cache fits the device, as the one that opens decides it. */
static void fit(const struct weft_model *m, const struct weft_engine_params *on, report *r)
{
    wf_sizing s = {m, on, &r->g, &r->plan, &r->w, &r->dev->info, r->dev, r->dev->align, r->dev->max_alloc, r->dev->fns->buf_wrap};
    wf_limits unified;
    wf_engine_fit_cache(&s, &r->l, &unified);
}

static weft_status open_report(const struct weft_model *m, const struct weft_engine_params *p, report *r)
{
    wf_open_params o = {.threads = p->threads, .tuned = p->tuned, .deterministic = p->deterministic, .f16_residual = p->f16_residual, .no_kernel_cache = p->no_kernel_cache};
    r->page = wf_engine_page(p);
    WF_TRY(wf_policy_parse(p->policy, &r->policy));
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &r->dev));
    wf_build_params b = wf_build_params_of(r->dev, wf_engine_context(m, p), r->page);
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, &r->g, &r->w));
    WF_TRY(wf_attention_windows_use(m, p->attention_windows, &r->g, &r->w));
    struct weft_engine_params on = wf_engine_params_on(p, &r->dev->info);
    WF_TRY(wf_engine_limits(m, &on, r->policy, wf_engine_step_tokens(r->dev), &r->g, &r->w, &r->l));
    wf_engine_save_memory(r->dev, &r->w);
    WF_TRY(wf_graph_end(&r->g));
    wf_workspaces_omit(&r->g, r->dev, &r->l);
    WF_TRY(wf_plan_place(&r->g, &r->plan, r->dev->align));
    fit(m, &on, r);
    return WEFT_OK;
}

/* ---- activations --------------------------------------------------------------------------------------------------- */

/* Every result of one layer and of what runs once has memory of its own, which the other layers use again. */
static void without_reuse(const report *r, struct weft_memory_use *out)
{
    const wf_graph *g = &r->g;
    for (size_t v = 0; v < g->n_values; v++) {
        bool found = false;
        for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes && g->values[v].kind == WF_VALUE_ACT; n++)
            for (size_t i = 0; i < WF_MAX_OUT; i++) found = found || (n->layer <= 0 && n->out[i].value == (int32_t)v);
        if (found) *(g->values[v].rows == WF_ROWS_LOGITS ? &out->logit_row_bytes : &out->token_bytes) += WF_UP(wf_dtype_bytes(g->values[v].dtype, g->values[v].cols), (uint64_t)r->dev->align);
    }
}

/* ---- what fits ------------------------------------------------------------------------------------------------------- */

/* What a sequence of so many pages a table takes of the KV cache. */
static uint64_t kv_bytes(const report *r, uint64_t pages)
{
    const wf_kv_growth growth = {r->page, r->l.step_tokens, (uint32_t)WF_MIN(pages, (uint64_t)INT32_MAX)};
    return wf_kv_layout_pages(&r->g.kv, &growth) * wf_page_bytes(&r->g);
}

/* Policies that do not cut prompts compute all tokens of a context in one step. Else its last tokens are decoded one by one, in steps whose
 * activations leave memory to pages if they share it. */
static uint64_t longest_context(const report *r, const struct weft_memory_use *u, bool shared, uint64_t left)
{
    bool whole = r->policy == WF_POLICY_ORCA || r->policy == WF_POLICY_REQUEST;
    uint64_t tokens = shared ? wf_limits_steady_tokens(&r->l, 1) : r->l.step_tokens, step = (whole ? 0 : tokens * u->token_bytes) + u->logit_row_bytes;
    uint64_t yes = 0, no = (uint64_t)INT32_MAX / r->page;
    while (no - yes > 1) { /* in pages of a table */
        uint64_t pages = yes + (no - yes) / 2;
        *(step + kv_bytes(r, pages) + (whole ? pages * r->page * u->token_bytes : 0) <= left ? &yes : &no) = pages;
    }
    return yes * r->page;
}

/* How many have room, each taking so many bytes, beside the activations of some tokens? */
static uint64_t room(uint64_t left, uint64_t each, uint64_t tokens, const struct weft_memory_use *u)
{
    uint64_t fixed = tokens * u->token_bytes;
    return left > fixed ? (left - fixed) / each : 0;
}

/* Sequences with whole contexts, or what windows hold of one, as in B = (M - weights) / (L m_kv) of Sarathi, section 4.3.1, less the
 * activations: of the largest step, which has a token of each; or where they share memory with pages, of steps that decode. */
static uint64_t largest_batch(const report *r, const struct weft_memory_use *u, bool shared, uint64_t left)
{
    enum { MOST = 65536 };
    uint64_t seq = kv_bytes(r, r->l.seq_pages) + u->logit_row_bytes, tokens = r->l.step_tokens;
    uint64_t steady = room(left, seq + u->token_bytes, tokens / 4, u), all = room(left, seq, tokens, u);
    if (shared && steady + tokens / 4 <= tokens) return steady;
    if (all > tokens) all = WF_MAX(tokens, room(left, seq + u->token_bytes, 0, u));
    return WF_MIN(all, (uint64_t)MOST);
}

static void fill(const struct weft_model *m, const report *r, struct weft_memory *out)
{
    out->weights = wf_weights_bytes_on(&r->w, r->dev);
    out->kv_bytes_per_token = (uint64_t)m->hp.n_layer * 2 * 2 * m->hp.n_kv_head * m->hp.head_dim;
    out->kv_bytes_per_context = kv_bytes(r, r->l.seq_pages);
    out->workspace = wf_states_bytes(&r->l, m->hp.n_vocab, m->hp.n_layer);
    out->max_batched_tokens = r->l.step_tokens;
    out->reused.token_bytes = wf_activation_bytes(&r->plan, 1, 0);
    out->reused.logit_row_bytes = wf_activation_bytes(&r->plan, 0, 1);
    without_reuse(r, &out->apart);
    uint64_t taken = out->weights + out->workspace, left = out->memory > taken ? out->memory - taken : 0;
    struct weft_memory_use *const uses[] = {&out->apart, &out->reused};
    for (size_t i = 0; i < WF_LEN(uses); i++) {
        uses[i]->longest_context = longest_context(r, uses[i], i, left);
        uses[i]->largest_batch = largest_batch(r, uses[i], i, left);
    }
}

weft_status weft_memory(const struct weft_model *m, const struct weft_engine_params *p, struct weft_memory *out)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(out);
    report r = {0};
    WF_TRY(wf_engine_check_params(m, p));
    *out = (struct weft_memory){.context = wf_engine_context(m, p)};
    weft_status s = open_report(m, p, &r);
    if (s == WEFT_OK) {
        out->device = r.dev->info;
        out->memory = r.dev->info.available ? r.dev->info.available : r.dev->info.memory;
        fill(m, &r, out);
    }
    free_report(&r);
    return s;
}
