/* shard: what one device has of a model that several compute together. Tensor parallelism goes by the products of the
 * graph: q, k, v, gate, up and the logits are cut along their rows, by heads, by the width of the feed-forward and by
 * tokens of the vocabulary; the products behind them along their columns, so that each device has a part of a sum. */
#include "model/arch/build.h"

#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 64 };

/* What numbers of rows or columns are of. */
enum extent { NOTHING, HEADS, KV_HEADS, WIDTH, EXPERT_WIDTH, SHARED_WIDTH, VOCABULARY };

/* Products by their names; a matrix of several parts has one stacked upon the other. */
static const struct {
    const char *product;
    enum extent rows[WF_MOST_STRIPES], cols;
} cuts[] = {
    {"q", {HEADS}, NOTHING},
    {"k", {KV_HEADS}, NOTHING},
    {"v", {KV_HEADS}, NOTHING},
    {"qkv", {HEADS, KV_HEADS, KV_HEADS}, NOTHING},
    {"attn_out", {NOTHING}, HEADS},
    {"gate", {WIDTH}, NOTHING},
    {"up", {WIDTH}, NOTHING},
    {"gate_up", {WIDTH, WIDTH}, NOTHING},
    {"down", {NOTHING}, WIDTH},
    {"experts_gate", {EXPERT_WIDTH}, NOTHING},
    {"experts_up", {EXPERT_WIDTH}, NOTHING},
    {"experts_down", {NOTHING}, EXPERT_WIDTH},
    {"shared_gate", {SHARED_WIDTH}, NOTHING},
    {"shared_up", {SHARED_WIDTH}, NOTHING},
    {"shared_down", {NOTHING}, SHARED_WIDTH},
    {"logits", {VOCABULARY}, NOTHING},
};

bool wf_is_shard(const wf_builder *b)
{
    return b->shard.ranks > 1;
}

/* ---- hyperparameters --------------------------------------------------------------------------------------------- */

/* KV heads of a device; 0: so many devices cannot have equal parts. */
static uint32_t kv_heads_of(const wf_hparams *hp, uint32_t ranks)
{
    if (hp->n_head % ranks) return 0;
    if (hp->n_kv_head % ranks == 0) return hp->n_kv_head / ranks;
    return ranks % hp->n_kv_head == 0;
}

/* What is cut besides heads; 0: nothing is. */
static uint32_t width_of(const wf_hparams *hp)
{
    return hp->n_expert ? hp->expert_size : hp->intermediate_size;
}

static bool can_divide(const wf_hparams *hp, uint32_t ranks)
{
    return kv_heads_of(hp, ranks) && width_of(hp) % ranks == 0 && hp->shared_size % ranks == 0;
}

/* Numbers of devices among which the model, and so many units besides, divide. */
static const char *possible_ranks(const wf_hparams *hp, uint32_t units, char out[128])
{
    size_t n = 0;
    for (uint32_t ranks = 1; ranks <= MOST_RANKS && n < 120; ranks++)
        if (units % ranks == 0 && can_divide(hp, ranks))
            n += (size_t)snprintf(out + n, 128 - n, "%s%u", n ? ", " : "", ranks);
    return out;
}

weft_status wf_shard_hparams(const wf_gguf *f, const wf_hparams *whole, const wf_shard *shard, wf_hparams *out)
{
    char list[128], shared[32] = "";
    uint32_t ranks = WF_MAX(shard->ranks, 1u);
    if (whole->shared_size) snprintf(shared, sizeof shared, " and one of %u", whole->shared_size);
    *out = *whole;
    if (shard->rank >= ranks)
        return wf_fail(WEFT_ERR_ARG, "device %u of a group of %u: want 0 to %u", shard->rank, ranks, ranks - 1);
    if (shard->away && !whole->n_expert)
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has no experts that another device could compute", f->path);
    if (ranks == 1) return WEFT_OK;
    if (!can_divide(whole, ranks))
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s: %u devices cannot have equal parts of %u heads, %u KV heads and a feed-forward of %u%s; "
                       "numbers that can: %s", f->path, ranks, whole->n_head, whole->n_kv_head, width_of(whole), shared,
                       possible_ranks(whole, 0, list));
    out->n_head /= ranks, out->n_kv_head = kv_heads_of(whole, ranks);
    out->intermediate_size /= ranks, out->expert_size /= ranks, out->shared_size /= ranks;
    return WEFT_OK;
}

/* ---- stripes ----------------------------------------------------------------------------------------------------- */

static wf_stripe equal_stripe(const wf_builder *b, uint32_t whole)
{
    uint32_t size = whole / b->shard.ranks;
    return (wf_stripe){whole, b->shard.rank * size, size};
}

wf_stripe wf_shard_heads(const wf_builder *b)
{
    return wf_is_shard(b) ? equal_stripe(b, b->whole->n_head) : (wf_stripe){b->hp->n_head, 0, b->hp->n_head};
}

/* Devices of which several have the same ones follow each other. */
static wf_stripe kv_heads(const wf_builder *b)
{
    uint32_t whole = b->whole->n_kv_head, ranks = b->shard.ranks;
    if (whole % ranks == 0) return equal_stripe(b, whole);
    return (wf_stripe){whole, b->shard.rank / (ranks / whole), 1};
}

static wf_stripe times(wf_stripe s, uint32_t n)
{
    return (wf_stripe){s.whole * n, s.first * n, s.size * n};
}

static wf_stripe stripe_of(const wf_builder *b, enum extent e)
{
    switch (e) {
    case HEADS: return times(wf_shard_heads(b), b->hp->head_dim);
    case KV_HEADS: return times(kv_heads(b), b->hp->head_dim);
    case WIDTH: return equal_stripe(b, b->whole->intermediate_size);
    case EXPERT_WIDTH: return equal_stripe(b, b->whole->expert_size);
    case SHARED_WIDTH: return equal_stripe(b, b->whole->shared_size);
    default: return equal_stripe(b, b->whole->n_vocab);
    }
}

bool wf_shard_cuts_vocabulary(const wf_builder *b)
{
    return wf_is_shard(b) && b->hp->n_vocab % b->shard.ranks == 0;
}

static bool is_cut(const wf_builder *b, const char *product, size_t i)
{
    return !strcmp(cuts[i].product, product) && (cuts[i].rows[0] != VOCABULARY || wf_shard_cuts_vocabulary(b));
}

wf_shard_cut wf_shard_cut_of(const wf_builder *b, const wf_linear *l, uint32_t cols)
{
    wf_shard_cut c = {.n = 1, .rows = {{l->rows, 0, l->rows}}, .cols = {cols, 0, cols}};
    size_t i = 0;
    while (wf_is_shard(b) && i < WF_LEN(cuts) && !is_cut(b, l->name, i)) i++;
    if (!wf_is_shard(b) || i == WF_LEN(cuts)) return c;
    for (uint32_t k = 0; k < WF_MOST_STRIPES && cuts[i].rows[k]; k++)
        c.rows[k] = stripe_of(b, cuts[i].rows[k]), c.n = k + 1;
    if (cuts[i].cols) c.cols = stripe_of(b, cuts[i].cols);
    return c;
}

uint32_t wf_shard_rows(const wf_shard_cut *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) n += c->rows[i].whole;
    return n;
}

void wf_shard_copy(const wf_shard_cut *c, const float *whole, float *out)
{
    for (uint32_t i = 0; i < c->n; i++) {
        memcpy(out, whole + c->rows[i].first, c->rows[i].size * sizeof *out);
        whole += c->rows[i].whole, out += c->rows[i].size;
    }
}

bool wf_shard_is_partial(const wf_shard_cut *c)
{
    return c->cols.size != c->cols.whole;
}

weft_status wf_shard_check_cols(const wf_builder *b, const wf_gguf_tensor *t, uint32_t block)
{
    char list[128];
    uint32_t cols = (uint32_t)t->dims[0];
    if (cols / b->shard.ranks % block == 0) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "%s: %u devices would cut blocks of %u columns: tensor '%.*s' has %u columns in %s; numbers that "
                   "can: %s", b->file->path, b->shard.ranks, block, (int)t->name.len, t->name.data, cols,
                   wf_dtypes[t->dtype].name, possible_ranks(b->whole, cols / block, list));
}

weft_status wf_shard_refuse(const wf_builder *b, const char *what)
{
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: %s, so that several devices cannot compute the model together; one can",
                   b->file->path, what);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

int32_t wf_shard_gather(wf_builder *b, int32_t x)
{
    if (!wf_shard_cuts_vocabulary(b) || b->status != WEFT_OK) return x;
    const wf_value *from = &b->graph->values[x];
    wf_node n = wf_build_blank(b, WF_NODE_GATHER, WF_OP_NONE, "logits_gather", from->rows);
    n.in[0] = WF_ALL(x);
    n.out[0] = WF_ALL(wf_build_activation(b, from->rows, from->dtype, b->hp->n_vocab));
    wf_build_node(b, &n);
    return n.out[0].value;
}

wf_operand wf_shard_part(wf_builder *b, enum wf_rows rows, enum wf_dtype dtype)
{
    uint32_t cols = b->hp->hidden_size;
    return (wf_operand){wf_build_activation(b, rows, dtype, b->shard.ranks * cols), b->shard.rank * cols, cols};
}

int32_t wf_shard_sum(wf_builder *b, const char *name, wf_operand part, int32_t residual, enum wf_dtype out)
{
    char full[24];
    if (b->status != WEFT_OK) return -1;
    enum wf_rows rows = b->graph->values[part.value].rows;
    snprintf(full, sizeof full, "%s_parts", name);
    wf_node parts = wf_build_blank(b, WF_NODE_ALL_GATHER, WF_OP_NONE, full, rows);
    parts.in[0] = part;
    parts.out[0] = WF_ALL(part.value);
    wf_build_node(b, &parts);
    snprintf(full, sizeof full, "%s_sum", name);
    wf_node sum = wf_build_blank(b, WF_NODE_KERNEL, WF_OP_WEIGHTED_SUM, full, rows);
    sum.in[WF_WEIGHTED_SUM_X] = WF_ALL(part.value);
    sum.in[WF_WEIGHTED_SUM_RESIDUAL] = WF_ALL(residual);
    sum.out[WF_WEIGHTED_SUM_Y] = WF_ALL(wf_build_activation(b, rows, out, part.cols));
    wf_build_node(b, &sum);
    return sum.out[WF_WEIGHTED_SUM_Y].value;
}

/* ---- stages, and blocks ------------------------------------------------------------------------------------------ */

int32_t wf_shard_receive(wf_builder *b, const char *name)
{
    if (b->status != WEFT_OK) return -1;
    wf_node n = wf_build_blank(b, WF_NODE_RECEIVE, WF_OP_NONE, name, WF_ROWS_BATCH);
    n.out[0] = WF_ALL(wf_build_activation(b, WF_ROWS_BATCH, b->residual, b->hp->hidden_size));
    wf_build_node(b, &n);
    return n.out[0].value;
}

void wf_shard_send(wf_builder *b, int32_t x)
{
    if (b->status != WEFT_OK) return;
    wf_node n = wf_build_blank(b, WF_NODE_SEND, WF_OP_NONE, "send", WF_ROWS_BATCH);
    n.in[0] = WF_ALL(x);
    wf_build_node(b, &n);
}
