/* arrays: host memory of a batch, and what fills it the same way for every caller. See batch.h. */
#include "sched/batch.h"

#include <stdlib.h>
#include <string.h>

enum { ONE, EACH }; /* as inputs.def calls them */

const wf_input_info wf_inputs[WF_N_INPUTS] = {
#define X(id, dtype, cols, rows, tables, needed)                                                                       \
    [WF_INPUT_##id] = {WF_##dtype, cols, WF_INPUT_OF_##rows, tables, WF_NEEDED_BY_##needed},
#include "sched/inputs.def"
#undef X
};

uint64_t wf_input_most_bytes(enum wf_input i, const wf_limits *l)
{
    return wf_input_bytes(i, l->step_tokens, l->seqs, (uint64_t)l->seqs * l->seq_pages, l->logit_rows,
                          (uint64_t)l->seqs * WF_MOST_ADJUSTED, (uint64_t)l->seqs * l->mask_words);
}

weft_status wf_batch_init(wf_batch *b, const wf_limits *l)
{
    memset(b, 0, sizeof *b);
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        size_t bytes = wf_input_most_bytes(i, l);
        if (wf_inputs[i].per_table) b->pitch[i] = bytes / sizeof *b->in[i];
        b->in[i] = wf_calloc(wf_input_tables(i, wf_limits_tables(l)), bytes);
        if (!b->in[i]) return wf_batch_free(b), WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

void wf_batch_free(wf_batch *b)
{
    for (size_t i = 0; i < WF_N_INPUTS; i++) free(b->in[i]);
    memset(b, 0, sizeof *b);
}

/* Of all its tables. */
static uint64_t array_bytes(const wf_batch *b, enum wf_input i, const wf_limits *l)
{
    return wf_input_tables(i, wf_limits_tables(l)) *
        wf_input_bytes(i, b->n_tokens, b->n_seqs, b->n_pages, b->n_logits, b->n_adjusted, b->n_allowed);
}

void wf_batch_copy(wf_batch *to, const wf_batch *from, const wf_limits *l)
{
    wf_batch own = *to;
    *to = *from;
    memcpy(to->in, own.in, sizeof to->in);
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        uint32_t tables = wf_input_tables(i, wf_limits_tables(l));
        uint64_t bytes = array_bytes(from, i, l) / tables;
        for (uint32_t t = 0; t < tables; t++)
            memcpy(wf_batch_table(to, i, t), wf_batch_table(from, i, t), bytes);
    }
}

uint64_t wf_batch_packed(const wf_batch *b, const wf_limits *l)
{
    uint64_t bytes = sizeof *b;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) bytes += array_bytes(b, i, l);
    return bytes;
}

void wf_batch_pack(const wf_batch *b, const wf_limits *l, void *to)
{
    uint8_t *at = to;
    memcpy(at, b, sizeof *b);
    at += sizeof *b;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        uint32_t tables = wf_input_tables(i, wf_limits_tables(l));
        uint64_t bytes = array_bytes(b, i, l) / tables;
        for (uint32_t t = 0; t < tables; t++, at += bytes) memcpy(at, wf_batch_table(b, i, t), bytes);
    }
}

weft_status wf_batch_unpack(wf_batch *to, const void *from, uint64_t bytes, const wf_limits *l)
{
    wf_batch b = {0};
    const uint8_t *at = from;
    if (bytes >= sizeof b) memcpy(&b, from, sizeof b);
    if (bytes < sizeof b || b.n_tokens > l->step_tokens || b.n_seqs > l->seqs || b.n_logits > l->logit_rows ||
        b.n_pages > (uint64_t)l->seqs * l->seq_pages || b.n_adjusted > (uint64_t)l->seqs * WF_MOST_ADJUSTED ||
        b.n_allowed > (uint64_t)l->seqs * l->mask_words || bytes != wf_batch_packed(&b, l))
        return wf_fail(WEFT_ERR_INTERNAL, "a step of %llu bytes is not of this engine", (unsigned long long)bytes);
    memcpy(b.in, to->in, sizeof b.in);
    memcpy(b.pitch, to->pitch, sizeof b.pitch);
    *to = b;
    at += sizeof b;
    for (enum wf_input i = 0; i < WF_N_INPUTS; i++) {
        uint32_t tables = wf_input_tables(i, wf_limits_tables(l));
        uint64_t part = array_bytes(to, i, l) / tables;
        for (uint32_t t = 0; t < tables; t++, at += part) memcpy(wf_batch_table(to, i, t), at, part);
    }
    return WEFT_OK;
}

void wf_batch_clear(wf_batch *b)
{
    b->n_tokens = b->n_seqs = b->n_pages = b->n_logits = b->n_adapted = b->n_decodes = b->n_pending = 0;
    b->n_adjusted = b->n_allowed = b->max_kv = b->max_q = 0;
    b->sampled = false;
    b->in[WF_INPUT_INDPTR][0] = 0;
}

uint32_t wf_batch_add_seq(wf_batch *b, uint32_t page_tokens, uint32_t tables, uint32_t first, uint32_t n)
{
    uint32_t row = b->n_tokens, p = page_tokens, end = first + n;
    for (uint32_t t = 0; t < tables; t++) {
        const int32_t *pages = wf_batch_table(b, WF_INPUT_PAGES, t) + b->n_pages;
        int32_t *slots = wf_batch_table(b, WF_INPUT_SLOT, t) + row;
        for (uint32_t pos = first; pos < end; pos++) *slots++ = pages[pos / p] * (int32_t)p + (int32_t)(pos % p);
    }
    for (uint32_t i = 0; i < n; i++) {
        b->in[WF_INPUT_POS][row + i] = (int32_t)(first + i);
        b->in[WF_INPUT_SEQ][row + i] = (int32_t)b->n_seqs;
        b->in[WF_INPUT_LAST][row + i] = (int32_t)end - 1;
    }
    b->n_tokens += n;
    b->n_pages += (end + p - 1) / p;
    b->in[WF_INPUT_INDPTR][++b->n_seqs] = (int32_t)b->n_pages;
    b->max_kv = WF_MAX(b->max_kv, end);
    b->max_q = WF_MAX(b->max_q, n);
    return row;
}

void wf_batch_sample(wf_batch *b, uint32_t k, const wf_sampling_params *p, uint32_t n, uint32_t words)
{
    const float params[] = {p->temperature, p->top_p, p->min_p};
    const uint32_t key[] = {(uint32_t)p->top_k, (uint32_t)p->seed, (uint32_t)(p->seed >> 32), (uint32_t)p->counter,
                            (uint32_t)(p->counter >> 32), b->n_adjusted, b->n_adjusted + n,
                            words ? b->n_allowed : UINT32_MAX};
    memcpy(b->in[WF_INPUT_SAMPLING] + (size_t)k * WF_LEN(params), params, sizeof params);
    memcpy(b->in[WF_INPUT_SEEDS] + (size_t)k * WF_LEN(key), key, sizeof key);
    memset(b->in[WF_INPUT_ALLOWED] + b->n_allowed, 0xff, words * sizeof(uint32_t));
    b->n_adjusted += n;
    b->n_allowed += words;
    b->sampled |= n || words || p->temperature != 0;
}
