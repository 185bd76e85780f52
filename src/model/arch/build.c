/* build: the parts that graphs of architectures consist of. The first error is kept in the builder and turns later
 * calls into no-ops, so that an architecture reads as a list of its parts. */
#include "model/arch/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes ----------------------------------------------------------------------------------------- */

int32_t wf_build_activation(wf_builder *b, enum wf_rows rows, enum wf_dtype dtype, uint32_t cols)
{
    int32_t v = wf_graph_value(b->graph, (wf_value){WF_VALUE_ACT, rows, dtype, cols, 0});
    return v < 0 ? wf_build_fail(b, WEFT_ERR_NOMEM) : v;
}

wf_node wf_build_blank(const wf_builder *b, enum wf_node_kind kind, enum wf_op op, const char *name, enum wf_rows rows)
{
    return wf_graph_blank(kind, op, name, b->layer == WF_ONCE ? WF_ONCE : b->layer - b->first_layer, rows);
}

wf_node wf_build_node_of(const wf_builder *b, enum wf_op op, const char *name, enum wf_rows rows)
{
    wf_node n = wf_build_blank(b, WF_NODE_KERNEL, op, name, rows);
    const wf_hparams *hp = b->hp;
    n.p = (wf_op_params){.eps = hp->eps,
                         .scale = hp->attention_scale > 0 ? hp->attention_scale : 1.0f / sqrtf((float)hp->head_dim),
                         .n_head = hp->n_head,
                         .n_kv_head = hp->n_kv_head,
                         .head_dim = hp->head_dim,
                         .n_rot = hp->n_rot,
                         .neox = hp->neox && !b->interleave,
                         .page_tokens = b->page_tokens,
                         .activation = hp->gate};
    return n;
}

void wf_build_node(wf_builder *b, const wf_node *n)
{
    if (b->status == WEFT_OK && wf_graph_node(b->graph, n) < 0) wf_build_fail(b, WEFT_ERR_NOMEM);
}

static enum wf_rows rows_of(const wf_builder *b, int32_t value)
{
    return value < 0 ? WF_ROWS_BATCH : b->graph->values[value].rows;
}

bool wf_build_has(const wf_builder *b, const char *tensor)
{
    return wf_build_find(b, tensor, "weight") != NULL;
}

/* Rows of a table, with a factor (0: 1), and added to rows of `add` (-1: none). */
int32_t wf_build_gather(wf_builder *b, const char *name, int32_t table, enum wf_input ids, float gain, int32_t add,
                        enum wf_dtype out)
{
    if (b->status != WEFT_OK) return -1;
    wf_node n = wf_build_node_of(b, WF_OP_GET_ROWS, name, b->graph->values[b->graph->inputs[ids]].rows);
    n.in[WF_GET_ROWS_TABLE] = WF_ALL(table);
    n.in[WF_GET_ROWS_IDS] = WF_ALL(b->graph->inputs[ids]);
    n.in[WF_GET_ROWS_ADD] = WF_ALL(add);
    n.p.gain = gain;
    n.out[WF_GET_ROWS_Y] = WF_ALL(wf_build_activation(b, n.rows, out, b->hp->hidden_size));
    wf_build_node(b, &n);
    return n.out[WF_GET_ROWS_Y].value;
}

/* RMSNorm of each group of columns of x, as many as w has, + residual, into those of y. */
static void norm(wf_builder *b, const char *name, int32_t w, wf_operand x, int32_t residual, wf_operand y)
{
    if (b->status != WEFT_OK) return;
    wf_node n = wf_build_node_of(b, WF_OP_RMSNORM, name, rows_of(b, x.value));
    n.in[WF_RMSNORM_X] = x;
    n.in[WF_RMSNORM_W] = WF_ALL(w);
    n.in[WF_RMSNORM_RESIDUAL] = WF_ALL(residual);
    n.out[WF_RMSNORM_Y] = y;
    wf_build_node(b, &n);
}

static void layer_norm(wf_builder *b, const char *name, const char *tensor, int32_t x, int32_t y)
{
    wf_node n = wf_build_node_of(b, WF_OP_LAYERNORM, name, rows_of(b, x));
    n.in[WF_LAYERNORM_X] = WF_ALL(x);
    n.in[WF_LAYERNORM_W] = WF_ALL(wf_build_norm_vector(b, tensor, "weight", b->hp->hidden_size));
    n.in[WF_LAYERNORM_B] = WF_ALL(wf_build_norm_vector(b, tensor, "bias", b->hp->hidden_size));
    n.out[WF_LAYERNORM_Y] = WF_ALL(y);
    wf_build_node(b, &n);
}

int32_t wf_build_columns(wf_builder *b, uint32_t cols)
{
    return b->status == WEFT_OK ? wf_build_activation(b, WF_ROWS_BATCH, b->act, cols) : -1;
}

int32_t wf_build_norm_as(wf_builder *b, const char *name, const char *tensor, int32_t x, enum wf_dtype out)
{
    if (b->status != WEFT_OK) return -1;
    int32_t y = wf_build_activation(b, rows_of(b, x), out, b->hp->hidden_size);
    if (b->hp->layer_norm) layer_norm(b, name, tensor, x, y);
    else norm(b, name, wf_build_vector(b, tensor, b->hp->hidden_size), WF_ALL(x), -1, WF_ALL(y));
    return y;
}

int32_t wf_build_norm(wf_builder *b, const char *name, const char *tensor, int32_t x)
{
    return wf_build_norm_as(b, name, tensor, x, b->act);
}

int32_t wf_build_post_norm(wf_builder *b, const char *name, const char *tensor, int32_t x, int32_t residual)
{
    if (b->status != WEFT_OK) return -1;
    int32_t y = wf_build_activation(b, rows_of(b, x), b->residual, b->hp->hidden_size);
    norm(b, name, wf_build_vector(b, tensor, b->hp->hidden_size), WF_ALL(x), residual, WF_ALL(y));
    return y;
}

void wf_build_head_norm(wf_builder *b, const char *name, const char *tensor, wf_operand x, wf_operand y)
{
    if (b->status == WEFT_OK) norm(b, name, wf_build_rotated_vector(b, tensor, b->hp->head_dim), x, -1, y);
}

void wf_build_columns_norm(wf_builder *b, const char *name, const char *tensor, wf_operand x, wf_operand y)
{
    if (wf_is_shard(b)) wf_build_fail(b, wf_shard_refuse(b, "its norms of q and k are of all heads at once"));
    if (b->status == WEFT_OK) norm(b, name, wf_build_rotated_vector(b, tensor, x.cols), x, -1, y);
}

/* Does the layer attend to the last keys only? */
static bool is_local(const wf_builder *b)
{
    uint32_t period = b->hp->window_period;
    return b->hp->window && (!period || ((uint32_t)b->layer + !b->hp->global_first) % period != 0);
}

/* One GEMM into columns [col, col + rows of the matrices) of y. */
static void linear(wf_builder *b, const char *name, const wf_linear *l, uint32_t n, int32_t x, int32_t residual,
                   wf_operand y)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++) rows += l[i].rows;
    wf_node node = wf_build_node_of(b, WF_OP_GEMM, name, rows_of(b, x));
    node.in[WF_GEMM_X] = WF_ALL(x);
    node.in[WF_GEMM_W] = WF_ALL(wf_build_stacked_matrix(b, l, n, b->graph->values[x].cols));
    node.in[WF_GEMM_BIAS] = WF_ALL(wf_build_stacked_bias(b, l, n, rows));
    node.in[WF_GEMM_RESIDUAL] = WF_ALL(residual);
    node.out[WF_GEMM_Y] = y;
    wf_build_node(b, &node);
}

void wf_build_linear(wf_builder *b, const wf_linear *l, int32_t x, wf_operand y)
{
    if (b->status == WEFT_OK) linear(b, l->name, l, 1, x, -1, y);
}

int32_t wf_build_silu_mul(wf_builder *b, const char *name, int32_t gate_up, uint32_t groups)
{
    if (b->status != WEFT_OK) return -1;
    wf_node silu = wf_build_node_of(b, WF_OP_SILU_MUL, name, rows_of(b, gate_up));
    silu.in[WF_SILU_MUL_GU] = WF_ALL(gate_up);
    silu.p.groups = groups;
    silu.out[WF_SILU_MUL_Y] = WF_ALL(wf_build_activation(b, silu.rows, b->act, b->graph->values[gate_up].cols / 2));
    wf_build_node(b, &silu);
    return silu.out[WF_SILU_MUL_Y].value;
}

static int32_t rope_kv(wf_builder *b, int32_t qkv, const int32_t *pools)
{
    if (b->status != WEFT_OK) return -1;
    uint32_t step = b->hp->unrotated_step;
    int32_t own = is_local(b) && b->hp->local_rope_base > 0 ? b->local_rope : b->rope;
    wf_node rope = wf_build_node_of(b, WF_OP_ROPE_KV, "rope", WF_ROWS_BATCH);
    rope.in[WF_ROPE_KV_QKV] = WF_ALL(qkv);
    rope.in[WF_ROPE_KV_TABLE] = WF_ALL(step && ((uint32_t)b->layer + 1) % step == 0 ? b->unrotated : own);
    rope.in[WF_ROPE_KV_POS] = WF_ALL(b->graph->inputs[WF_INPUT_POS]);
    rope.in[WF_ROPE_KV_SLOT] = WF_ALL(b->graph->inputs[WF_INPUT_SLOT]);
    rope.out[WF_ROPE_KV_Q] = WF_ALL(wf_build_activation(b, WF_ROWS_BATCH, b->act, b->hp->n_head * b->hp->head_dim));
    rope.out[WF_ROPE_KV_K_POOL] = WF_ALL(pools[0]);
    rope.out[WF_ROPE_KV_V_POOL] = WF_ALL(pools[1]);
    wf_build_node(b, &rope);
    return rope.out[WF_ROPE_KV_Q].value;
}

int32_t wf_build_linears(wf_builder *b, const char *name, const wf_linear *l, uint32_t n, int32_t x, int32_t residual,
                         enum wf_dtype out)
{
    if (b->status != WEFT_OK) return -1;
    uint32_t cols = 0;
    for (uint32_t i = 0; i < n; i++) cols += l[i].rows;
    int32_t y = wf_build_activation(b, rows_of(b, x), out, cols);
    if (wf_build_can_stack(b, l, n) == n) {
        linear(b, name, l, n, x, residual, WF_ALL(y));
        return y;
    }
    /* Neighbouring columns, named like all that they hold: "qk", "v". */
    for (uint32_t i = 0, col = 0, many; i < n && b->status == WEFT_OK; i += many, col += cols) {
        char part[24] = "";
        many = wf_build_can_stack(b, l + i, n - i);
        cols = 0;
        for (uint32_t j = i; j < i + many; j++) {
            cols += l[j].rows;
            strncat(part, l[j].name, sizeof part - 1 - strlen(part));
        }
        linear(b, part, l + i, many, x, residual, (wf_operand){y, col, cols});
    }
    return y;
}

int32_t wf_build_block_end(wf_builder *b, const wf_linear *l, const char *post_norm, int32_t h, int32_t x)
{
    bool norm = b->hp->post_norms;
    enum wf_dtype out = norm ? WF_F32 : b->residual;
    int32_t y, to = norm ? -1 : x;
    if (wf_is_shard(b) && b->status == WEFT_OK) {
        /* what a norm follows may leave the range of F16 */
        const wf_operand part = wf_shard_part(b, rows_of(b, h), norm ? WF_F32 : b->shard.sums);
        wf_build_linear(b, l, h, part);
        y = wf_shard_sum(b, strcmp(l->tensor, "ffn_down") ? "attn_out" : "ffn_down", part, to, out);
    } else y = wf_build_linears(b, l->name, l, 1, h, to, out);
    return norm ? wf_build_post_norm(b, post_norm, post_norm, y, x) : y;
}

/* x (-1: none) + rows of a table of the file. */
static int32_t add_rows(wf_builder *b, const char *name, const char *tensor, uint32_t rows, enum wf_input ids,
                        int32_t x, enum wf_dtype out)
{
    const wf_linear table = {name, tensor, rows};
    int32_t w = wf_build_stacked_matrix(b, &table, 1, b->hp->hidden_size);
    if (w < 0) return -1;
    b->weights->list[b->graph->values[w].id].matrix = false; /* read by row, also if it is tied to the output matrix */
    if (ids == WF_INPUT_TOKEN) b->embedding = w;
    return wf_build_gather(b, name, w, ids, x < 0 ? b->hp->embedding_gain : 0, x, out);
}

int32_t wf_build_embed(wf_builder *b)
{
    const wf_hparams *hp = b->hp;
    enum wf_dtype sum = hp->bidirectional ? WF_F32 : b->residual; /* encoders normalise it */
    b->layer = WF_ONCE;
    int32_t x = add_rows(b, "embed", "token_embd", hp->n_vocab, WF_INPUT_TOKEN, -1,
                         hp->learned_positions ? WF_F32 : sum);
    if (hp->n_types) x = add_rows(b, "types", "token_types", hp->n_types, WF_INPUT_TYPE, x, sum);
    if (hp->learned_positions) x = add_rows(b, "positions", "position_embd", hp->context, WF_INPUT_POS, x, sum);
    return x;
}

static int32_t kv_value(wf_builder *b, uint32_t v)
{
    uint32_t cols = b->hp->n_kv_head * b->hp->head_dim * b->page_tokens;
    uint32_t id = 2 * (uint32_t)(b->layer - b->first_layer) + v;
    int32_t value = wf_graph_value(b->graph, (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, b->kv, cols, id});
    return value < 0 ? wf_build_fail(b, WEFT_ERR_NOMEM) : value;
}

/* Attention of decodes or of prefill, which want other kernels, into the rows of o that are theirs. */
static void attend_rows(wf_builder *b, const char *name, enum wf_rows rows, int32_t q, const int32_t *pools,
                        int32_t sinks, int32_t o)
{
    const int32_t *in = b->graph->inputs;
    wf_node attend = wf_build_node_of(b, WF_OP_ATTENTION, name, rows);
    /* a row attends to the keys up to that position: its own, or the last one */
    int32_t last = in[b->hp->bidirectional ? WF_INPUT_LAST : WF_INPUT_POS];
    int32_t attend_in[] = {q, pools[0], pools[1], in[WF_INPUT_SEQ], last, in[WF_INPUT_INDPTR], in[WF_INPUT_PAGES]};
    for (size_t i = 0; i < WF_LEN(attend_in); i++) attend.in[i] = WF_ALL(attend_in[i]);
    bool near = b->windows >= 0 && is_local(b);
    if (near) attend.in[WF_ATTENTION_WINDOWS] = WF_ALL(b->windows);
    if (near && b->hp->bidirectional) attend.in[WF_ATTENTION_AROUND] = WF_ALL(in[WF_INPUT_POS]);
    attend.in[WF_ATTENTION_SINKS] = WF_ALL(sinks);
    attend.p.softcap = b->hp->attention_softcap;
    attend.out[WF_ATTENTION_O] = WF_ALL(o);
    wf_build_node(b, &attend);
}

/* x + output projection of attention. */
static int32_t attend(wf_builder *b, int32_t q, const int32_t *pools, int32_t x)
{
    if (b->status != WEFT_OK) return -1;
    const wf_linear out = {"attn_out", "attn_output", b->hp->hidden_size};
    int32_t o = wf_build_activation(b, WF_ROWS_BATCH, b->act, b->hp->n_head * b->hp->head_dim);
    int32_t sinks = b->hp->sinks ? wf_build_heads_vector(b, "attn_sinks") : -1;
    if (!b->hp->bidirectional) attend_rows(b, "decode_attention", WF_ROWS_DECODE, q, pools, sinks, o);
    attend_rows(b, "prefill_attention", WF_ROWS_PREFILL, q, pools, sinks, o);
    return wf_build_block_end(b, &out, "post_attention_norm", o, x);
}

int32_t wf_build_attention_of(wf_builder *b, int32_t h, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const uint32_t q_rows = hp->n_head * hp->head_dim, kv_rows = hp->n_kv_head * hp->head_dim;
    const wf_linear qkv[] = {
        {"q", "attn_q", q_rows, q_rows}, {"k", "attn_k", kv_rows, kv_rows}, {"v", "attn_v", kv_rows}};
    const wf_linear one = {"qkv", "attn_qkv", q_rows + 2 * kv_rows, q_rows + kv_rows};
    if (b->status != WEFT_OK) return -1;
    bool in_one = wf_build_has(b, one.tensor);
    h = wf_build_linears(b, "qkv", in_one ? &one : qkv, in_one ? 1 : 3, h, -1, b->act);
    return wf_build_rope_attention(b, h, x);
}

int32_t wf_build_attention(wf_builder *b, int32_t x)
{
    return wf_build_attention_of(b, wf_build_norm(b, "attn_norm", "attn_norm", x), x);
}

/* q and k stay F32 until their norm, which writes them beside v. */
int32_t wf_build_attention_qk_norm(wf_builder *b, int32_t x)
{
    const uint32_t q = b->hp->n_head * b->hp->head_dim, kv = b->hp->n_kv_head * b->hp->head_dim;
    const wf_linear qk[] = {{"q", "attn_q", q, q}, {"k", "attn_k", kv, kv}}, v = {"v", "attn_v", kv};
    int32_t h = wf_build_norm(b, "attn_norm", "attn_norm", x);
    int32_t raw = wf_build_linears(b, "qk", qk, 2, h, -1, WF_F32), qkv = wf_build_columns(b, q + 2 * kv);
    wf_build_head_norm(b, "q_norm", "attn_q_norm", (wf_operand){raw, 0, q}, (wf_operand){qkv, 0, q});
    wf_build_head_norm(b, "k_norm", "attn_k_norm", (wf_operand){raw, q, kv}, (wf_operand){qkv, q, kv});
    wf_build_linear(b, &v, h, (wf_operand){qkv, q + kv, kv});
    return wf_build_rope_attention(b, qkv, x);
}

int32_t wf_build_rope_attention(wf_builder *b, int32_t qkv, int32_t x)
{
    if (b->status != WEFT_OK) return -1;
    const int32_t pools[] = {kv_value(b, 0), kv_value(b, 1)};
    return attend(b, rope_kv(b, qkv, pools), pools, x);
}

int32_t wf_build_swiglu_of(wf_builder *b, int32_t h, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const wf_linear gate_up[] = {{"gate", "ffn_gate", hp->intermediate_size}, {"up", "ffn_up", hp->intermediate_size}};
    const wf_linear down = {"down", "ffn_down", hp->hidden_size},
                    one = {"gate_up", "ffn_up", 2 * hp->intermediate_size};
    if (b->status != WEFT_OK) return -1;
    bool in_one = !wf_build_has(b, "ffn_gate") && hp->gate_in_up;
    h = wf_build_linears(b, "gate_up", in_one ? &one : gate_up, in_one ? 1 : 2, h, -1, b->act);
    h = wf_build_silu_mul(b, "silu", h, 0);
    if (b->status != WEFT_OK) return -1;
    return wf_build_block_end(b, &down, "post_ffw_norm", h, x);
}

int32_t wf_build_swiglu(wf_builder *b, int32_t x)
{
    return wf_build_swiglu_of(b, wf_build_norm(b, "ffn_norm", "ffn_norm", x), x);
}

int32_t wf_build_activate(wf_builder *b, const char *name, enum wf_activation f, float softcap, int32_t x,
                          enum wf_dtype out)
{
    if (b->status != WEFT_OK) return -1;
    wf_node n = wf_build_node_of(b, WF_OP_ACTIVATE, name, rows_of(b, x));
    n.in[WF_ACTIVATE_X] = WF_ALL(x);
    n.out[WF_ACTIVATE_Y] = WF_ALL(wf_build_activation(b, n.rows, out, b->graph->values[x].cols));
    n.p.activation = f;
    n.p.softcap = softcap; /* of the one that has it */
    wf_build_node(b, &n);
    return n.out[WF_ACTIVATE_Y].value;
}

int32_t wf_build_mlp_of(wf_builder *b, int32_t h, int32_t x)
{
    const wf_hparams *hp = b->hp;
    const wf_linear up = {"up", "ffn_up", hp->intermediate_size}, down = {"down", "ffn_down", hp->hidden_size};
    h = wf_build_linears(b, "up", &up, 1, h, -1, b->act);
    h = wf_build_activate(b, "activate", hp->activation, 0, h, b->act);
    if (b->status != WEFT_OK) return -1;
    return wf_build_block_end(b, &down, "post_ffw_norm", h, x);
}

int32_t wf_build_mlp(wf_builder *b, int32_t x)
{
    return wf_build_mlp_of(b, wf_build_norm(b, "ffn_norm", "ffn_norm", x), x);
}

/* Feed-forwards between what another device computes. */
static void feed_forwards(wf_builder *b, wf_build_part *feed_forward)
{
    for (b->layer = 0; b->layer < (int32_t)b->shard.away && b->status == WEFT_OK; b->layer++)
        wf_shard_send(b, feed_forward(b, wf_shard_receive(b, "receive")));
    b->layer = WF_ONCE;
}

void wf_build_decoder(wf_builder *b, wf_build_part *attention, wf_build_part *feed_forward)
{
    if (b->shard.is_away) {
        feed_forwards(b, feed_forward);
        return;
    }
    int32_t x = b->first_layer ? wf_shard_receive(b, "receive") : wf_build_embed(b);
    bool is_away = false; /* what the last layer gives comes from another device, to the next one */
    for (b->layer = b->first_layer; b->layer < b->end_layer && b->status == WEFT_OK; b->layer++) {
        if (is_away) x = wf_shard_receive(b, "receive");
        x = attention(b, x);
        is_away = b->layer < (int32_t)b->shard.away;
        if (is_away) wf_shard_send(b, x);
        else if (feed_forward) x = feed_forward(b, x);
        if (is_away && b->layer + 1 == b->end_layer) x = wf_shard_receive(b, "receive_last");
    }
    b->layer = WF_ONCE;
    if (b->end_layer < (int32_t)b->hp->n_layer) wf_shard_send(b, x);
    else wf_build_logits(b, x);
}

/* ---- the whole model ------------------------------------------------------------------------------- */

/* The attention window, for each query head. */
static int32_t windows(wf_builder *b)
{
    uint32_t n = b->hp->n_head;
    int32_t *list = wf_calloc(n, sizeof *list);
    if (!list) return wf_build_fail(b, WEFT_ERR_NOMEM);
    for (uint32_t i = 0; i < n; i++) list[i] = (int32_t)b->hp->window;
    int32_t v = wf_build_weight(b, &(wf_weight){.made = list, .dtype = WF_I32, .rows = 1, .cols = n});
    if (v < 0) free(list);
    return v;
}

wf_build_params wf_build_params_of(const wf_dev *dev, uint32_t context, uint32_t page_tokens)
{
    if (!dev) return (wf_build_params){WF_F16, WF_F32, WF_F16, WF_STACK_ALIKE, true, context, page_tokens};
    return (wf_build_params){dev->act, dev->residual, WF_F16, (enum wf_stacking)dev->stack_weights, dev->adjacent_pairs,
                             context,  page_tokens};
}

/* A tensor that no op reads means that the model is not the one that was built. Other devices read others. */
static void check_all_used(wf_builder *b)
{
    for (size_t i = 0; i < b->file->n_tensors && b->shard.stages < 2 && !b->shard.away && b->status == WEFT_OK; i++) {
        const wf_gguf_tensor *t = &b->file->tensors[i];
        if (!b->used[i])
            wf_build_fail(b, wf_fail(WEFT_ERR_UNSUPPORTED,
                                     "%s: tensor '%.*s' has no place in this architecture as weft knows it",
                                     b->file->path, (int)t->name.len, t->name.data));
    }
}

weft_status wf_model_build(const wf_arch *arch, const wf_gguf *f, const wf_hparams *hp, const wf_build_params *p,
                           wf_graph *graph, wf_weights *weights)
{
    wf_hparams own;
    uint32_t stages = WF_MAX(p->shard.stages, 1u);
    WF_TRY(wf_shard_hparams(f, hp, &p->shard, &own));
    wf_builder b = {.file = f,
                    .hp = &own,
                    .whole = hp,
                    .shard = p->shard,
                    .graph = graph,
                    .weights = weights,
                    .act = p->act,
                    .residual = p->residual,
                    .stack_weights = p->stack_weights,
                    .context = p->context,
                    .interleave = hp->neox && p->adjacent_pairs,
                    .page_tokens = p->page_tokens,
                    .kv = p->kv,
                    .pooling = p->pooling ? p->pooling : hp->pooling,
                    .layer = WF_ONCE,
                    .first_layer = wf_stage_first(hp->n_layer, p->shard.stage, stages),
                    .end_layer = wf_stage_first(hp->n_layer, p->shard.stage + 1, stages),
                    .embedding = -1,
                    .used = wf_calloc(f->n_tensors, 1)};
    if (!b.used) return WEFT_ERR_NOMEM;
    b.status = wf_graph_init(graph, b.end_layer - b.first_layer);
    graph->bidirectional = hp->bidirectional;
    if (b.status == WEFT_OK) b.status = wf_graph_begin(graph);
    if (b.status == WEFT_OK && hp->unrotated_step != 1) b.rope = wf_build_rope_table(&b, WF_ROPE_ALL);
    if (b.status == WEFT_OK && hp->unrotated_step) b.unrotated = wf_build_rope_table(&b, WF_ROPE_NONE);
    if (b.status == WEFT_OK && hp->local_rope_base > 0) b.local_rope = wf_build_rope_table(&b, WF_ROPE_LOCAL);
    b.windows = -1;
    if (b.status == WEFT_OK && hp->window && hp->window < p->context) b.windows = windows(&b);
    if (b.status == WEFT_OK) arch->graph(&b);
    if (b.status == WEFT_OK) check_all_used(&b);
    free(b.used);
    return b.status;
}
