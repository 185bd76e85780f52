/* batch: what one step computes. The scheduler forms it, graphs name its arrays, exec uploads them. */
#ifndef WF_BATCH_H
#define WF_BATCH_H

#include "kv/limits.h"
#include "sample/sampler.h"
#include "tensor/tensor.h"

enum wf_input {
#define X(id, ...) WF_INPUT_##id,
#include "sched/inputs.def"
#undef X
    WF_N_INPUTS
};

/* inputs.def says what these mean. */
enum wf_input_rows { WF_INPUT_OF_TOKENS, WF_INPUT_OF_BOUNDS, WF_INPUT_OF_PAGES, WF_INPUT_OF_LOGITS,
    WF_INPUT_OF_ADJUSTED, WF_INPUT_OF_ALLOWED };
enum wf_input_needed { WF_NEEDED_BY_ALL, WF_NEEDED_BY_BIDIRECTIONAL, WF_NEEDED_BY_ADAPTED, WF_NEEDED_BY_SAMPLED,
    WF_NEEDED_BY_LATE };
typedef struct wf_input_info {
    enum wf_dtype dtype; /* of four bytes an element */
    uint32_t cols;
    enum wf_input_rows rows;
    bool per_table;
    enum wf_input_needed needed;
} wf_input_info;
extern const wf_input_info wf_inputs[WF_N_INPUTS];

typedef struct wf_batch {
    int32_t *in[WF_N_INPUTS];
    size_t pitch[WF_N_INPUTS]; /* from one table's to the next; 0: there is one for all */
    uint32_t n_tokens, n_seqs, n_pages, n_logits, n_adjusted, n_allowed;
    uint32_t n_adapted;     /* tokens with an adapter */
    uint32_t n_decodes;     /* the first n_decodes tokens are decodes, each the only token of its sequence */
    uint32_t n_pending;     /* pending tokens */
    uint32_t max_kv, max_q; /* keys of the longest sequence; most tokens of one sequence */
    bool sampled;           /* tokens are sampled as SAMPLING and SEEDS say; else all greedily */
} wf_batch;

static inline int32_t *wf_batch_table(const wf_batch *b, enum wf_input i, uint32_t table)
{
    return b->in[i] + table * b->pitch[i];
}

/* Rows and bytes of an array in a step of so many; pages: of one table. */
static inline uint64_t wf_input_rows(enum wf_input i, uint32_t tokens, uint32_t seqs, uint64_t pages, uint32_t logits,
                                     uint64_t adjusted, uint64_t allowed)
{
    switch (wf_inputs[i].rows) {
    case WF_INPUT_OF_BOUNDS: return seqs + 1ull;
    case WF_INPUT_OF_PAGES: return pages;
    case WF_INPUT_OF_LOGITS: return logits;
    case WF_INPUT_OF_ADJUSTED: return adjusted + 1;
    case WF_INPUT_OF_ALLOWED: return allowed + 1;
    default: return tokens;
    }
}
static inline uint64_t wf_input_bytes(enum wf_input i, uint32_t tokens, uint32_t seqs, uint64_t pages, uint32_t logits,
                                      uint64_t adjusted, uint64_t allowed)
{
    return wf_input_rows(i, tokens, seqs, pages, logits, adjusted, allowed) * wf_inputs[i].cols * sizeof(int32_t);
}
uint64_t wf_input_most_bytes(enum wf_input i, const wf_limits *l);
/* How many of that array there are. */
static inline uint32_t wf_input_tables(enum wf_input i, uint32_t tables)
{
    return wf_inputs[i].per_table ? tables : 1;
}

weft_status wf_batch_init(wf_batch *b, const wf_limits *l);
void wf_batch_free(wf_batch *b);
void wf_batch_copy(wf_batch *to, const wf_batch *from, const wf_limits *l); /* both of these limits */
/* The same through memory: so many bytes, for a process of the same build. WEFT_ERR_INTERNAL: it is not of these
 * limits. */
uint64_t wf_batch_packed(const wf_batch *b, const wf_limits *l);
void wf_batch_pack(const wf_batch *b, const wf_limits *l, void *to);
weft_status wf_batch_unpack(wf_batch *to, const void *from, uint64_t bytes, const wf_limits *l);
void wf_batch_clear(wf_batch *b);
/* Adds a sequence's tokens from position `first` on, n of them, and returns the row of the first. Fills all arrays but
 * TOKEN, TYPE, ADAPTER and LOGIT_ROWS. Before that its pages are written to each table's PAGES, behind the n_pages of
 * the batch. */
uint32_t wf_batch_add_seq(wf_batch *b, uint32_t page_tokens, uint32_t tables, uint32_t first, uint32_t n);
/* How a token is sampled from row k of the batch's logits, of which n are adjusted by what has been written behind the
 * n_adjusted of the batch; in a batch that is `sampled` of each. words: of its bits of what is allowed, which are set
 * behind the n_allowed of the batch until somebody knows better; 0: it has none. */
void wf_batch_sample(wf_batch *b, uint32_t k, const wf_sampling_params *p, uint32_t n, uint32_t words);

#endif
