/* memory_report: what fits a device's memory, with the reuse of activation buffers and the unified pool, and without
 * both (FlashDecoding++Next, section V and figure 19). See lab.h. */
#include "engine/engine.h"
#include "lab/lab.h"

/* ---- activations --------------------------------------------------------------------------------------------- */

/* Every result of one layer and of what runs once has memory of its own, which the other layers use again. */
static void without_reuse(const wf_layout *l, struct weft_memory_use *out)
{
    const wf_graph *g = &l->graph;
    for (size_t v = 0; v < g->n_values; v++) {
        bool found = false;
        for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes && g->values[v].kind == WF_VALUE_ACT; n++)
            for (size_t i = 0; i < WF_MAX_OUT; i++) found = found || (n->layer <= 0 && n->out[i].value == (int32_t)v);
        if (found)
            *(g->values[v].rows == WF_ROWS_LOGITS ? &out->logit_row_bytes
              : &out->token_bytes) += WF_UP(wf_dtype_bytes(g->values[v].dtype, g->values[v].cols),
                                            (uint64_t)l->dev->align);
    }
}

/* ---- what fits ----------------------------------------------------------------------------------------------- */

/* What a sequence of so many pages a table takes of the KV cache. */
static uint64_t kv_bytes(const wf_layout *l, uint64_t pages)
{
    const wf_kv_growth growth = {l->page_tokens, l->limits.step_tokens, (uint32_t)WF_MIN(pages, (uint64_t)INT32_MAX)};
    return wf_kv_layout_pages(&l->graph.kv, &growth) * wf_page_bytes(&l->graph);
}

/* Policies that do not cut prompts compute all tokens of a context in one step. Else its last tokens are decoded one
 * by one, in steps whose activations leave memory to pages if they share it. */
static uint64_t longest_context(const wf_layout *l, const struct weft_memory_use *u, bool shared, uint64_t left)
{
    bool whole = l->policy == WF_POLICY_ORCA || l->policy == WF_POLICY_REQUEST;
    uint64_t tokens = shared ? wf_limits_steady_tokens(&l->limits, 1) : l->limits.step_tokens,
        step = (whole ? 0 : tokens * u->token_bytes) + u->logit_row_bytes;
    uint64_t yes = 0, no = (uint64_t)INT32_MAX / l->page_tokens;
    while (no - yes > 1) { /* in pages of a table */
        uint64_t pages = yes + (no - yes) / 2;
        *(step + kv_bytes(l, pages) + (whole ? pages * l->page_tokens * u->token_bytes : 0) <= left ? &yes : &no) =
            pages;
    }
    return yes * l->page_tokens;
}

/* How many have room, each taking so many bytes, beside the activations of some tokens? */
static uint64_t room(uint64_t left, uint64_t each, uint64_t tokens, const struct weft_memory_use *u)
{
    uint64_t fixed = tokens * u->token_bytes;
    return left > fixed ? (left - fixed) / each : 0;
}

/* Sequences with whole contexts, or what windows hold of one, as in B = (M - weights) / (L m_kv) of Sarathi, section
 * 4.3.1, less the activations: of the largest step, which has a token of each; or where they share memory with
 * pages, of steps that decode. */
static uint64_t largest_batch(const wf_layout *l, const struct weft_memory_use *u, bool shared, uint64_t left)
{
    enum { MOST = 65536 };
    uint64_t seq = kv_bytes(l, l->limits.seq_pages) + u->logit_row_bytes, tokens = l->limits.step_tokens;
    uint64_t steady = room(left, seq + u->token_bytes, tokens / 4, u), all = room(left, seq, tokens, u);
    if (shared && steady + tokens / 4 <= tokens) return steady;
    if (all > tokens) all = WF_MAX(tokens, room(left, seq + u->token_bytes, 0, u));
    return WF_MIN(all, (uint64_t)MOST);
}

weft_status weft_memory(const struct weft_model *m, const struct weft_engine_params *p, struct weft_memory *out)
{
    wf_layout l;
    wf_dev *dev = NULL;
    WF_TRY(wf_layout_check(m, p));
    WF_TRY(wf_layout_device(p, p->device, &dev));
    weft_status s = wf_layout_make(m, p, &dev->info, dev, &l);
    if (s == WEFT_OK) {
        const struct weft_device_info *d = l.device;
        const wf_hparams *hp = &l.model->hp;
        *out = (struct weft_memory){
            .device = *d, .memory = d->available ? d->available : d->memory,
            .weights = wf_weights_bytes_on(&l.weights, l.dev),
            .workspace = wf_states_bytes(&l.limits, l.graph.pooled ? 0 : hp->n_vocab, hp->n_layer),
            .kv_bytes_per_token = wf_layout_token_bytes(&l), .context = l.context,
            .max_batched_tokens = l.limits.step_tokens, .kv_bytes_per_context = kv_bytes(&l, l.limits.seq_pages),
            .reused = {.token_bytes = wf_activation_bytes(&l.plans.list[0], 1, 0),
                       .logit_row_bytes = wf_activation_bytes(&l.plans.list[0], 0, 1)}};
        without_reuse(&l, &out->apart);
        uint64_t taken = out->weights + out->workspace, left = out->memory > taken ? out->memory - taken : 0;
        struct weft_memory_use *const uses[] = {&out->apart, &out->reused};
        for (size_t i = 0; i < WF_LEN(uses); i++) {
            uses[i]->longest_context = longest_context(&l, uses[i], i, left);
            uses[i]->largest_batch = largest_batch(&l, uses[i], i, left);
        }
    }
    wf_layout_free(&l);
    wf_dev_close(dev);
    return s;
}
