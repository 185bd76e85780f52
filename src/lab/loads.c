/* loads: the kinds of load that plans are compared with; batches of a wanted composition, without requests, and
 * steps of them. See overlap.h. */
#include "lab/overlap.h"

const wf_load_kind wf_load_kinds[WF_N_LOAD_KINDS] = {
    [WF_LOAD_DECODE] = {"decode", false, 0},
    [WF_LOAD_PREFILL] = {"prefill", true, 0.125f},
    [WF_LOAD_MIXED] = {"mixed", true, 0},
};

bool wf_load_holds(const struct weft_engine *e, uint32_t table, uint32_t first, uint32_t page)
{
    return page < wf_kv_kept(&e->sched.kv, table) || page >= wf_kv_passed(&e->sched.kv, table, first);
}

/* The pages that a sequence of `keys` tokens holds, the last n of which are in the batch. */
static uint64_t pages_of(const struct weft_engine *e, uint32_t n, uint32_t keys)
{
    uint64_t p = e->sched.p.kv.page_tokens, all = (keys + p - 1) / p, pages = 0;
    for (uint32_t t = 0; t < wf_limits_tables(&e->layout.limits); t++) {
        uint32_t passed = wf_kv_passed(&e->sched.kv, t, keys - n), kept = wf_kv_kept(&e->sched.kv, t);
        pages += all - (passed > kept ? passed - kept : 0);
    }
    return pages;
}

/* The most keys, in whole pages or all, of a sequence that so many pages hold. */
static uint32_t most_keys(const struct weft_engine *e, uint32_t n, uint32_t keys, uint64_t pages)
{
    uint32_t p = e->sched.p.kv.page_tokens;
    while (keys && pages_of(e, WF_MIN(n, keys), keys) > pages) keys = (keys - 1) / p * p;
    return keys;
}

/* Adds a sequence of `keys` tokens, the last n of which are in the batch. */
static void add_seq(const struct weft_engine *e, wf_batch *b, uint32_t n, uint32_t keys, int32_t *fresh)
{
    uint32_t p = e->sched.p.kv.page_tokens, tables = wf_limits_tables(&e->layout.limits);
    /* fresh pages from *fresh on, where the table holds any */
    for (uint32_t t = 0; t < tables; t++) {
        int32_t *pages = wf_batch_table(b, WF_INPUT_PAGES, t) + b->n_pages;
        for (uint32_t i = 0; i * p < keys; i++) pages[i] = wf_load_holds(e, t, keys - n, i) ? (*fresh)++ : 0;
    }
    for (uint32_t row = wf_batch_add_seq(b, p, tables, keys - n, n); row < b->n_tokens; row++)
        b->in[WF_INPUT_TOKEN][row] = (int32_t)(wf_random(1, row) % e->model->hp.n_vocab);
    b->in[WF_INPUT_LOGIT_ROWS][b->n_logits++] = (int32_t)b->n_tokens - 1;
}

/* Sequences by composition: prompts come first to the pages, for a chunk of one needs room; decodes share what is
 * left. */
typedef struct composition {
    uint32_t prompts, prompt_keys, decode_keys;
} composition;

static composition compose_load(const struct weft_engine *e, wf_step_load x, uint32_t context)
{
    const wf_limits *l = &e->layout.limits;
    uint32_t n = WF_MIN(WF_MAX(x.prefill, 1u), l->step_tokens);
    composition c = {.prompt_keys = most_keys(e, n, WF_MIN(context, e->layout.context), wf_limits_guaranteed_pages(l))};
    c.prompts = (x.prefill + c.prompt_keys - 1) / c.prompt_keys;
    uint32_t pages = wf_limits_pages(l, x.decodes + x.prefill, WF_MIN(x.decodes + c.prompts, l->logit_rows));
    uint64_t used = c.prompts * pages_of(e, WF_MIN(n, c.prompt_keys), c.prompt_keys);
    if (x.decodes && pages > used) c.decode_keys = most_keys(e, 1, c.prompt_keys, (pages - used) / x.decodes);
    if (pages < used) c.prompts = UINT32_MAX;
    return c;
}

static uint32_t most_seqs(const struct weft_engine *e)
{
    return WF_MIN(e->layout.limits.seqs, e->layout.limits.logit_rows);
}

static uint32_t tokens_of(wf_step_load x) { return x.decodes + x.prefill; }

bool wf_load_fits(const struct weft_engine *e, wf_step_load x, uint32_t context)
{
    composition c = compose_load(e, x, context);
    return tokens_of(x) && tokens_of(x) <= e->layout.limits.step_tokens &&
        (uint64_t)x.decodes + c.prompts <= most_seqs(e) && (!x.decodes || c.decode_keys);
}

weft_status wf_load_batch(const struct weft_engine *e, wf_step_load x, uint32_t context, wf_batch *b)
{
    composition c = compose_load(e, x, context);
    if (!wf_load_fits(e, x, context))
        return wf_fail(WEFT_ERR_ARG,
                       "%u decodes and a prompt of %u tokens do not fit the KV cache or the sequences of this engine "
                       "(weft_engine_params.n_seqs, weft_engine_params.kv_memory)",
                       x.decodes, x.prefill);
    wf_batch_clear(b);
    b->n_decodes = x.decodes;
    int32_t fresh = 0;
    for (uint32_t i = 0; i < x.decodes; i++) add_seq(e, b, 1, c.decode_keys, &fresh);
    for (uint32_t n, left = x.prefill; left; left -= n)
        add_seq(e, b, n = WF_MIN(left, c.prompt_keys), c.prompt_keys, &fresh);
    return WEFT_OK;
}

/* ---- loads that fit ------------------------------------------------------------------------------------------ */

wf_step_load wf_load_fit(const struct weft_engine *e, wf_step_load wanted, uint32_t context)
{
    wf_step_load best = {0};
    for (uint32_t d = wanted.decodes;; d--) {
        wf_step_load x = {d, wanted.prefill ? tokens_of(wanted) - d : 0};
        /* less, by whole prompts, each of which takes a sequence and pages */
        while (x.prefill && !wf_load_fits(e, x, context)) {
            uint32_t keys = compose_load(e, x, context).prompt_keys, last = x.prefill % keys;
            x.prefill -= last ? last : keys;
        }
        bool same_kind = !x.prefill == !wanted.prefill;
        if (same_kind && tokens_of(x) > tokens_of(best) && wf_load_fits(e, x, context)) best = x;
        bool most = tokens_of(best) == tokens_of(wanted) || (best.decodes && !wanted.prefill);
        if (most || d <= 1) return best; /* fewer decodes leave no more tokens, or none would be left */
    }
}

weft_status wf_load_of_kind(const struct weft_engine *e, const wf_load_kind *k, uint32_t context,
                            wf_decode_share *share, wf_batch *b)
{
    uint32_t tokens = e->layout.limits.step_tokens, most = WF_MIN(tokens / 2, most_seqs(e) - 1);
    wf_step_load x = {0}; /* of both; one sequence, or one token, is no such step */
    if (most) x = wf_load_fit(e, (wf_step_load){most, tokens - most}, context);
    /* A step of both counts as such with half of its decodes, and with twice as many, if these leave half of the
     * tokens of prompts. */
    float of_mixed = x.decodes ? (float)x.decodes / (float)tokens_of(x) : 1,
        few = WF_MIN(wf_load_kinds[WF_LOAD_PREFILL].decodes, of_mixed / 2);
    if (!k->full) {
        *share = (wf_decode_share){1, 1};
        x = wf_load_fit(e, (wf_step_load){most_seqs(e), 0}, context);
    } else if (k->decodes > 0) {
        *share = (wf_decode_share){0, few};
        uint32_t decodes = (uint32_t)(few * (float)tokens / 2); /* as long as these are few of what fits */
        x = wf_load_fit(e, (wf_step_load){decodes, tokens - decodes}, context);
        if (!x.prefill || (float)x.decodes > few * (float)tokens_of(x))
            x = wf_load_fit(e, (wf_step_load){0, tokens}, context);
    } else *share = (wf_decode_share){few, WF_MIN(2 * of_mixed, (1 + of_mixed) / 2)};
    b->n_tokens = 0;
    return tokens_of(x) ? wf_load_batch(e, x, context, b) : WEFT_OK;
}

uint32_t wf_load_pages(const struct weft_engine *e, const wf_batch *b)
{
    int32_t last = -1;
    for (uint32_t t = 0; t < wf_limits_tables(&e->layout.limits); t++)
        for (uint32_t i = 0; i < b->n_pages; i++) last = WF_MAX(last, wf_batch_table(b, WF_INPUT_PAGES, t)[i]);
    return (uint32_t)(last + 1);
}

weft_status wf_load_submit(struct weft_engine *e, const wf_batch *b)
{
    /* activations lie in the others */
    uint32_t pages = wf_limits_pages(&e->layout.limits, b->n_tokens, b->n_logits), used = wf_load_pages(e, b);
    if (used > pages) return wf_fail(WEFT_ERR_INTERNAL, "a load has %u KV pages, a step of its size %u", used, pages);
    return wf_exec_submit(e->exec, b, &(wf_step_io){.ids = (int32_t *)e->steps[0].ids.data});
}

weft_status wf_load_wait(struct weft_engine *e, double *us)
{
    if (us) *us = 0;
    WF_TRY(wf_exec_wait(e->exec));
    if (us) *us = (double)wf_exec_stats_of(e->exec)->last_ns / 1e3;
    return WEFT_OK;
}

weft_status wf_load_step(struct weft_engine *e, const wf_batch *b, double *us)
{
    WF_TRY(wf_load_submit(e, b));
    return wf_load_wait(e, us);
}
