/* arrays: host memory of a batch. See batch.h. */
#include "sched/batch.h"

#include <stdlib.h>
#include <string.h>

weft_status wf_batch_init(wf_batch *b, const wf_limits *l)
{
    const size_t count[WF_N_INPUTS] = {
        [WF_INPUT_TOKEN] = l->step_tokens,           [WF_INPUT_POS] = l->step_tokens,
        [WF_INPUT_SEQ] = l->step_tokens,             [WF_INPUT_SLOT] = l->step_tokens,
        [WF_INPUT_LAST] = l->step_tokens,            [WF_INPUT_TYPE] = l->step_tokens,
        [WF_INPUT_ADAPTER] = l->step_tokens,
        [WF_INPUT_INDPTR] = l->seqs + 1,      [WF_INPUT_PAGES] = (size_t)l->seqs * l->seq_pages,
        [WF_INPUT_LOGIT_ROWS] = l->logit_rows,
    };
    memset(b, 0, sizeof *b);
    b->pitch[WF_INPUT_SLOT] = count[WF_INPUT_SLOT], b->pitch[WF_INPUT_PAGES] = count[WF_INPUT_PAGES];
    for (size_t i = 0; i < WF_N_INPUTS; i++) {
        b->in[i] = wf_calloc(count[i] * (b->pitch[i] ? wf_limits_tables(l) : 1), sizeof(int32_t));
        if (!b->in[i]) return wf_batch_free(b), WEFT_ERR_NOMEM;
    }
    return WEFT_OK;
}

void wf_batch_free(wf_batch *b)
{
    for (size_t i = 0; i < WF_N_INPUTS; i++) free(b->in[i]);
    memset(b, 0, sizeof *b);
}

static uint32_t rows_in(const wf_batch *b, size_t input)
{
    switch (input) {
    case WF_INPUT_INDPTR: return b->n_seqs + 1;
    case WF_INPUT_PAGES: return b->n_pages;
    case WF_INPUT_LOGIT_ROWS: return b->n_logits;
    case WF_INPUT_SAMPLING:
    case WF_INPUT_SEEDS: return 0;
    default: return b->n_tokens;
    }
}

void wf_batch_copy(wf_batch *to, const wf_batch *from, const wf_limits *l)
{
    wf_batch own = *to;
    *to = *from;
    memcpy(to->in, own.in, sizeof to->in);
    for (size_t i = 0; i < WF_N_INPUTS; i++)
        for (uint32_t t = 0; t < (from->pitch[i] ? wf_limits_tables(l) : 1); t++)
            memcpy(wf_batch_table(to, (enum wf_input)i, t), wf_batch_table(from, (enum wf_input)i, t),
                   rows_in(from, i) * sizeof(int32_t));
}
