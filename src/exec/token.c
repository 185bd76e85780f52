/* token: TOKEN_SUBST, ARGMAX and SAMPLE around a step. See token.h. */
#include "exec/token.h"
#include "verify/bind.h"

uint64_t wf_tokens_bytes(uint32_t rows, uint32_t seqs, uint32_t n_vocab)
{
    return 4 * (2ull * rows + (uint64_t)WF_MIN(rows, seqs) * n_vocab);
}

weft_status wf_tokens_reserve(wf_tokens *t, wf_dev *dev, wf_arena *arena, uint32_t rows, uint32_t seqs, uint32_t n_vocab)
{
    *t = (wf_tokens){.dev = dev, .arena = arena, .rows = rows, .sampled = WF_MIN(rows, seqs), .n_vocab = n_vocab};
    WF_TRY(wf_arena_reserve(arena, 4ull * rows, &t->ids));
    WF_TRY(wf_arena_reserve(arena, 4ull * rows, &t->p));
    return wf_arena_reserve(arena, 4ull * t->sampled * n_vocab, &t->z);
}

static wf_view at(const wf_tokens *t, wf_region r, enum wf_dtype dtype, uint32_t first, uint32_t rows, uint32_t cols)
{
    return (wf_view){wf_arena_buf(t->arena, r), r.offset + 4ull * first * cols, rows, cols, cols, (uint8_t)dtype, 0};
}

/* Rows [first, first + n) of v. */
static wf_view part(const wf_view *v, uint32_t first, uint32_t n)
{
    wf_view p = *v;
    p.offset += first * wf_dtype_bytes(v->dtype, v->stride);
    p.rows = n;
    return p;
}

static wf_call token_subst_call(const wf_tokens *t, const wf_view *tokens)
{
    return (wf_call){.op = WF_OP_TOKEN_SUBST, .variant = -1, .in = {*tokens, at(t, t->ids, WF_I32, 0, t->rows, 1)}, .out = {*tokens}};
}

static wf_call argmax_call(const wf_tokens *t, const wf_view *logits)
{
    return (wf_call){.op = WF_OP_ARGMAX, .variant = -1, .in = {*logits}, .out = {at(t, t->ids, WF_I32, 0, logits->rows, 1)}};
}

static wf_call sample_call(const wf_tokens *t, const wf_view *logits, const wf_view *params, const wf_view *key, uint32_t first)
{
    uint32_t n = WF_MIN(t->sampled, logits->rows - first);
    return (wf_call){.op = WF_OP_SAMPLE, .variant = -1, .in = {part(logits, first, n), part(params, first, n), part(key, first, n)},
                     .out = {at(t, t->ids, WF_I32, first, n, 1), at(t, t->p, WF_F32, first, n, 1), at(t, t->z, WF_F32, 0, n, t->n_vocab)}};
}

static weft_status submit(const wf_tokens *t, wf_queue *q, wf_call c)
{
    wf_binding b;
    WF_TRY(wf_bind(t->dev, &c, &b));
    return wf_launch(q, &c, &b);
}

weft_status wf_tokens_subst(const wf_tokens *t, wf_queue *q, const wf_view *tokens)
{
    return submit(t, q, token_subst_call(t, tokens));
}

weft_status wf_tokens_argmax(const wf_tokens *t, wf_queue *q, const wf_view *logits)
{
    return submit(t, q, argmax_call(t, logits));
}

/* As many at a time as there is room for changed logits. */
weft_status wf_tokens_sample(const wf_tokens *t, wf_queue *q, const wf_view *logits, const wf_view *params, const wf_view *key)
{
    for (uint32_t first = 0; first < logits->rows; first += t->sampled) WF_TRY(submit(t, q, sample_call(t, logits, params, key, first)));
    return WEFT_OK;
}

/* The logits stand in for what says how to sample: only shapes and types count. */
weft_status wf_tokens_prepare(wf_tokens *t, const wf_view *logits, const wf_view *tokens)
{
    wf_view params = *logits, key = *logits;
    params.cols = params.stride = WF_SAMPLING_FLOATS;
    key.cols = key.stride = WF_SAMPLING_INTS;
    key.dtype = WF_I32;
    const wf_call subst = token_subst_call(t, tokens), argmax = argmax_call(t, logits), sample = sample_call(t, logits, &params, &key, 0);
    wf_binding b;
    WF_TRY(wf_bind(t->dev, &subst, &b));
    WF_TRY(wf_bind(t->dev, &argmax, &b));
    weft_status s = wf_bind(t->dev, &sample, &b);
    t->cannot_sample = s != WEFT_OK;
    return t->dev->lost ? s : WEFT_OK;
}

weft_status wf_tokens_read(const wf_tokens *t, wf_queue *q, uint32_t n, int32_t *ids)
{
    return wf_read(q, wf_arena_buf(t->arena, t->ids), t->ids.offset, ids, n * sizeof *ids, NULL, 0, NULL);
}

void wf_sampling_pack(const wf_sampling_params *c, float params[WF_SAMPLING_FLOATS], int32_t key[WF_SAMPLING_INTS])
{
    params[0] = c->temperature, params[1] = c->top_p, params[2] = c->min_p;
    key[0] = c->top_k;
    key[1] = (int32_t)(uint32_t)c->seed, key[2] = (int32_t)(uint32_t)(c->seed >> 32);
    key[3] = (int32_t)(uint32_t)c->counter, key[4] = (int32_t)(uint32_t)(c->counter >> 32);
}
