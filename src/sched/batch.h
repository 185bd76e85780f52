/* batch: what one step computes. The scheduler forms it, graphs name its arrays, exec uploads them.
 */
#ifndef WF_BATCH_H
#define WF_BATCH_H

#include "mem/limits.h"

enum wf_input {
    WF_INPUT_TOKEN, WF_INPUT_POS, WF_INPUT_SEQ, WF_INPUT_SLOT, WF_INPUT_LAST,
    WF_INPUT_TYPE, WF_INPUT_ADAPTER,                           /* one entry per token of the batch */
    WF_INPUT_INDPTR, WF_INPUT_PAGES,                           /* page lists of the sequences */
    WF_INPUT_LOGIT_ROWS,                                       /* tokens of the batch that need logits */
    WF_INPUT_SAMPLING, WF_INPUT_SEEDS,                         /* how each of these is sampled, see SAMPLE in dev.h */
    WF_N_INPUTS
};

/* SLOT and PAGES are there once for each page table of the sequences (mem/kv_layout.h). Token m of a batch is
 * in[TOKEN][m] at position in[POS][m] of sequence in[SEQ][m]; its K and V go to slot in[SLOT][m], and it attends to
 * the pages from in[PAGES][in[INDPTR][s]] on, all below wf_limits_pages of the step. in[LAST][m] is the last position
 * of its sequence in the step, in[TYPE][m] 1 in the second text of a pair, else 0, and in[ADAPTER][m] the place of its
 * sequence's adapter (model/weights/adapters.h), 0 without one. in[LOGIT_ROWS] lists the tokens
 * that need logits. Sequences are numbered within the batch. How tokens are sampled comes with the step
 * (exec/exec.h). */
typedef struct wf_batch {
    int32_t *in[WF_N_INPUTS];
    size_t pitch[WF_N_INPUTS]; /* of SLOT and PAGES, from one table to the next; else 0 */
    uint32_t n_tokens, n_seqs, n_pages, n_logits;
    uint32_t n_adapted;     /* tokens with an adapter */
    uint32_t n_decodes;     /* the first n_decodes tokens are decodes, each the only token of its sequence */
    uint32_t n_pending;     /* pending tokens, -1 - k: the one sampled from row k of the previous step's logits */
    uint32_t max_kv, max_q; /* keys of the longest sequence; most tokens of one sequence */
} wf_batch;

static inline int32_t *wf_batch_table(const wf_batch *b, enum wf_input i, uint32_t table)
{
    return b->in[i] + table * b->pitch[i];
}

weft_status wf_batch_init(wf_batch *b, const wf_limits *l);
void wf_batch_free(wf_batch *b);
void wf_batch_copy(wf_batch *to, const wf_batch *from, const wf_limits *l); /* both of these limits */

#endif
