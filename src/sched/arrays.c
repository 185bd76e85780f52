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
