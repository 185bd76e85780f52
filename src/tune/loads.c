/* loads: the kinds of load that plans are compared with; batches of a wanted composition, without requests, and steps of them. See overlap.h. */
#include "tune/overlap.h"

const wf_load_kind wf_load_kinds[WF_N_LOAD_KINDS] = {
    {"decode", false, 0},
    {"prefill", true, 0.125f},
    {"mixed", true, 0},
};

/* Adds a sequence of `keys` tokens, the last n of which are in the batch. */
static void add_seq(const struct weft_engine *e, wf_batch *b, uint32_t n, uint32_t keys)
{
    uint32_t p = e->sched.p.page_tokens, first = b->n_pages, pages = (keys + p - 1) / p;
    for (uint32_t pos = keys - n; pos < keys; pos++) {
        uint32_t row = b->n_tokens++;
        b->in[WF_INPUT_TOKEN][row] = (int32_t)(wf_random(1, row) % e->model->hp.n_vocab);
        b->in[WF_INPUT_POS][row] = (int32_t)pos;
        b->in[WF_INPUT_SEQ][row] = (int32_t)b->n_seqs;
        b->in[WF_INPUT_SLOT][row] = (int32_t)((first + pos / p) * p + pos % p);
    }
    for (uint32_t i = 0; i < pages; i++, b->n_pages++) b->in[WF_INPUT_PAGES][b->n_pages] = (int32_t)b->n_pages;
    b->in[WF_INPUT_INDPTR][++b->n_seqs] = (int32_t)b->n_pages;
    b->in[WF_INPUT_LOGIT_ROWS][b->n_logits++] = (int32_t)b->n_tokens - 1;
    b->max_kv = WF_MAX(b->max_kv, keys);
    b->max_q = WF_MAX(b->max_q, n);
}

/* Sequences by composition: prompts come first to the pages, for a chunk of one needs room; decodes share what is left. */
typedef struct composition {
    uint32_t prompts, prompt_keys, decode_keys;
} composition;

static composition compose(const struct weft_engine *e, uint32_t decodes, uint32_t prefill, uint32_t context)
{
    const wf_limits *l = &e->limits;
    uint32_t page = e->sched.p.page_tokens;
    composition c = {.prompt_keys = (uint32_t)WF_MIN(WF_MIN(context, e->context), (uint64_t)l->seq_pages * page)};
    c.prompts = (prefill + c.prompt_keys - 1) / c.prompt_keys;
    uint32_t pages = wf_limits_pages(l, decodes + prefill, WF_MIN(decodes + c.prompts, l->logit_rows)), used = c.prompts * ((c.prompt_keys + page - 1) / page);
    if (decodes && pages > used) c.decode_keys = (uint32_t)WF_MIN((uint64_t)(pages - used) / decodes * page, c.prompt_keys);
    if (pages < used) c.prompts = UINT32_MAX;
    return c;
}

weft_status wf_load_batch(const struct weft_engine *e, uint32_t decodes, uint32_t prefill, uint32_t context, wf_batch *b)
{
    composition c = compose(e, decodes, prefill, context);
    uint32_t tokens = decodes + prefill, most = WF_MIN(e->limits.seqs, e->limits.logit_rows);
    bool fits = tokens && tokens <= e->limits.step_tokens && (uint64_t)decodes + c.prompts <= most && (!decodes || c.decode_keys);
    if (!fits) return wf_fail(WEFT_ERR_ARG, "%u decodes and a prompt of %u tokens do not fit the KV cache or the sequences of this engine (--max-num-seqs, --kv-memory)", decodes, prefill);
    b->n_tokens = b->n_seqs = b->n_pages = b->n_logits = b->n_pending = b->max_kv = b->max_q = 0;
    b->n_decodes = decodes;
    b->in[WF_INPUT_INDPTR][0] = 0;
    for (uint32_t i = 0; i < decodes; i++) add_seq(e, b, 1, c.decode_keys);
    for (uint32_t n; prefill; prefill -= n) add_seq(e, b, n = WF_MIN(prefill, c.prompt_keys), c.prompt_keys);
    return WEFT_OK;
}

weft_status wf_load_of_kind(const struct weft_engine *e, const wf_load_kind *k, uint32_t context, float *most, wf_batch *b)
{
    const wf_limits *m = &e->limits;
    uint32_t seqs = WF_MIN(m->seqs, m->logit_rows), tokens = k->full ? m->step_tokens : seqs;
    *most = WF_MIN(k->decodes, (float)(seqs - 1) / (float)tokens / 2);
    uint32_t decodes = !k->full ? seqs : k->decodes > 0 ? (uint32_t)(*most * (float)tokens / 2) : WF_MIN(tokens / 2, seqs - 1);
    WF_TRY(wf_batch_init(b, m));
    return wf_load_batch(e, decodes, tokens - decodes, context, b);
}

weft_status wf_load_step(struct weft_engine *e, const wf_batch *b, double *us)
{
    WF_TRY(wf_exec_submit(e->exec, b, &(wf_step_io){.ids = (int32_t *)e->steps[0].ids.data}));
    WF_TRY(wf_exec_wait(e->exec));
    if (us) *us = (double)wf_exec_stats_of(e->exec)->last_ns / 1e3;
    return WEFT_OK;
}
