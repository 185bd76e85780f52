/* exec_order: random plans, and texts of plans with something changed, on the null device, with every command noted.
 * Each word of a value says which row of which value of which step it is, so that a kernel's rows are known from what
 * it reads; whatever exec believes, each row of each node has to be computed once, in a range of the plan and on its
 * queue, from rows that are there, behind all that it depends on, and a step has ended when all of it has. Nothing here
 * knows how exec finds waits and addresses. */
#include "plan_writer.h"
#include "shadow.h"

#include "support/null_device.h"
#include "exec/exec.h"
#include "select/select.h"
#include "support/suite.h"

enum {
    LAYERS = 2,
    WIDTH = 16,
    QKV = 3 * WIDTH,
    VOCAB = 8,
    POSITIONS = 64,
    PAGE = 4 /* tokens */,
    HEAD = WIDTH * 2 /* bytes of K or V of a token */
};
enum { TOKENS = 48, SEQS = 12, CONTEXT = 8, PAGES = 160, STEPS = 4, MAX_NODES = 64, SWAPS = 3 };
static const wf_limits limits = {
    .step_tokens = TOKENS, .logit_rows = TOKENS, .seqs = SEQS, .seq_pages = POSITIONS / PAGE, .pages = PAGES,
    .mask_words = 2};

/* A step, as the test made it, and what came of it. */
typedef struct step {
    wf_batch b;
    wf_step_io io;
    batch rows;                           /* the same, as plan_writer.h counts */
    uint32_t number;
    int32_t tokens[TOKENS];               /* of each row, when none is pending any more */
    int32_t pending_row[TOKENS];          /* by row of logits of the step before */
    int32_t ids[TOKENS];
    float logits[TOKENS][VOCAB];
    uint8_t host[2][SWAPS * 4 * LAYERS * PAGE * HEAD]; /* for pages that come, and that go */
    uint32_t moved;                       /* copies of these */
    uint32_t times[MAX_NODES][TOKENS];    /* each row of each node was computed */
    uint32_t submitted[SHADOW_QUEUES];
    uint64_t recomputed[LAYERS];          /* rows of attention, of all steps up to this one */
} step;

static struct {
    wf_dev *dev;
    wf_dev_fns fns;
    const wf_dev_fns *plain;
    wf_graph g;
    wf_plans plans;
    wf_buf *buf;
    wf_view weights[16];
    uint32_t n_weights;
    wf_exec *e;
    step steps[WF_EXEC_DEPTH], *now; /* now: the one that is being submitted, or NULL */
    uint64_t recomputed[LAYERS];
    bool late;                       /* what is written came late, and no node stands for it */
} m;

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static int32_t weight(uint32_t rows, uint32_t cols)
{
    m.weights[m.n_weights] = (wf_view){m.buf, 0, rows, cols, cols, WF_F32, 0};
    return wf_graph_value(&m.g, (wf_value){WF_VALUE_WEIGHT, WF_ROWS_WHOLE, WF_F32, cols, m.n_weights++, rows});
}

static int32_t act(enum wf_rows rows, uint32_t cols)
{
    return wf_graph_value(&m.g, (wf_value){WF_VALUE_ACT, rows, WF_F32, cols, 0, 0});
}

static int32_t add(enum wf_op op, const char *name, int32_t layer, enum wf_rows rows, const int32_t *in, size_t n,
                   int32_t out)
{
    wf_node node = wf_graph_blank(WF_NODE_KERNEL, op, name, layer, rows);
    for (size_t i = 0; i < n; i++) node.in[i] = WF_ALL(in[i]);
    node.out[0] = WF_ALL(out);
    node.p = (wf_op_params){
        .n_head = 1, .n_kv_head = 1, .head_dim = WIDTH, .n_rot = WIDTH, .page_tokens = PAGE, .scale = 1};
    if (op == WF_OP_ATTENTION)
        node.p.phi_hi = 1; /* it may count rows that it computes again, which is all of them here */
    int32_t at = wf_graph_node(&m.g, &node);
    assert_true(at >= 0);
    return at;
}

#define ADD(op, name, layer, rows, out, ...)                                                                           \
    add(op, name, layer, rows, (int32_t[]){__VA_ARGS__}, WF_LEN(((int32_t[]){__VA_ARGS__})), out)

static int32_t add_layer(int32_t l, int32_t x, int32_t table)
{
    const int32_t *in = m.g.inputs;
    int32_t qkv = act(WF_ROWS_BATCH, QKV), q = act(WF_ROWS_BATCH, WIDTH), o = act(WF_ROWS_BATCH, WIDTH),
            y = act(WF_ROWS_BATCH, WIDTH), kv[2];
    for (uint32_t i = 0; i < 2; i++)
        kv[i] = wf_graph_value(&m.g,
                               (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, WF_F16, PAGE * WIDTH, 2 * (uint32_t)l + i, 0});
    ADD(WF_OP_GEMM, "qkv", l, WF_ROWS_BATCH, qkv, x, weight(QKV, WIDTH));
    int32_t rope = ADD(WF_OP_ROPE_KV, "rope", l, WF_ROWS_BATCH, q, qkv, table, in[WF_INPUT_POS], in[WF_INPUT_SLOT]);
    for (int i = 0; i < 2; i++) m.g.nodes[rope].out[WF_ROPE_KV_K_POOL + i] = WF_ALL(kv[i]);
    for (int i = 0; i < 2; i++)
        ADD(WF_OP_ATTENTION, i ? "prefill_attention" : "decode_attention", l, i ? WF_ROWS_PREFILL : WF_ROWS_DECODE, o,
            q, kv[0], kv[1], in[WF_INPUT_SEQ], in[WF_INPUT_POS], in[WF_INPUT_INDPTR], in[WF_INPUT_PAGES]);
    ADD(WF_OP_GEMM, "out", l, WF_ROWS_BATCH, y, o, weight(WIDTH, WIDTH), -1, x);
    return y;
}

/* A kernel tells its node by a parameter that nothing here computes with. */
static void make_graph(void)
{
    assert_ok(wf_graph_init(&m.g, LAYERS));
    assert_ok(wf_graph_begin(&m.g));
    int32_t table = weight(POSITIONS, WIDTH), x = act(WF_ROWS_BATCH, WIDTH), wanted = act(WF_ROWS_LOGITS, WIDTH);
    ADD(WF_OP_GET_ROWS, "embed", WF_ONCE, WF_ROWS_BATCH, x, weight(VOCAB, WIDTH), m.g.inputs[WF_INPUT_TOKEN]);
    for (int32_t l = 0; l < LAYERS; l++) x = add_layer(l, x, table);
    ADD(WF_OP_GET_ROWS, "gather_logits", WF_ONCE, WF_ROWS_LOGITS, wanted, x, m.g.inputs[WF_INPUT_LOGIT_ROWS]);
    m.g.logits = act(WF_ROWS_LOGITS, VOCAB);
    ADD(WF_OP_GEMM, "logits", WF_ONCE, WF_ROWS_LOGITS, m.g.logits, wanted, weight(VOCAB, WIDTH));
    assert_ok(wf_graph_end(&m.g));
    assert_true(m.g.n_nodes <= MAX_NODES && m.n_weights <= WF_LEN(m.weights));
    for (size_t n = 0; n < m.g.n_nodes; n++) m.g.nodes[n].p.eps = (float)n;
}

static uint32_t node_at(enum wf_node_kind kind, enum wf_when when)
{
    uint32_t n = 0;
    while (n < m.g.n_nodes && (m.g.nodes[n].kind != kind || m.g.nodes[n].when != when)) n++;
    assert_true(n < m.g.n_nodes);
    return n;
}

/* ---- what lies in memory ----------------------------------------------------------------------------------------- */

/* Of a row of a value in the step that is being submitted. */
static uint32_t tag(int32_t value, uint32_t row)
{
    return (m.now->number + 1) << 20 | (uint32_t)value << 8 | row;
}

static uint32_t *word_at(const wf_view *v, uint32_t row)
{
    return (uint32_t *)(void *)((uint8_t *)v->buf->host + v->offset + row * wf_dtype_bytes(v->dtype, v->stride));
}

static void write_row(const wf_view *v, uint32_t at, int32_t value, uint32_t row)
{
    for (uint32_t c = 0; c < v->cols; c++) word_at(v, at)[c] = tag(value, row);
}

/* The row of a value that lies there. */
static uint32_t row_at(const wf_view *v, uint32_t at, int32_t value)
{
    uint32_t row = word_at(v, at)[0] & 255;
    for (uint32_t c = 0; c < v->cols; c++)
        if (word_at(v, at)[c] != tag(value, row))
            fail_msg("%s reads %08x, which is no row of its operand (%08x)", shadow.name, word_at(v, at)[c],
                     tag(value, 0));
    return row;
}

static void expect_row(const wf_view *v, uint32_t at, int32_t value, uint32_t row)
{
    if (row_at(v, at, value) != row) fail_msg("%s reads row %u in place of %u", shadow.name, row_at(v, at, value), row);
}

static void expect_input(const wf_view *v, uint32_t at, enum wf_input i, uint32_t row)
{
    if ((int32_t)*word_at(v, at) != m.now->b.in[i][row])
        fail_msg("%s: input %d of row %u is %d, not %d", shadow.name, i, row, (int32_t)*word_at(v, at),
                 m.now->b.in[i][row]);
}

static uint32_t find(const int32_t *list, uint32_t n, int32_t x)
{
    uint32_t i = 0;
    while (i < n && list[i] != x) i++;
    if (i == n) fail_msg("%s reads %d, which is nowhere in the batch", shadow.name, x);
    return i;
}

/* The token that row k of the logits of a step gives; those of prompts are below 1000. */
static int32_t sampled(uint32_t number, uint32_t k)
{
    return (int32_t)(1000 * (number + 1) + k);
}

/* ---- kernels: each gives the row of the batch that row i of a call is -------------------------------------------- */

static uint32_t get_row(const wf_node *n, const wf_call *c, uint32_t i)
{
    int32_t id = (int32_t)*word_at(&c->in[WF_GET_ROWS_IDS], i);
    if (n->rows == WF_ROWS_BATCH) return find(m.now->tokens, m.now->b.n_tokens, id);
    uint32_t row = find(m.now->b.in[WF_INPUT_LOGIT_ROWS], m.now->b.n_logits, id);
    assert_true((uint32_t)id < c->in[WF_GET_ROWS_TABLE].rows);
    expect_row(&c->in[WF_GET_ROWS_TABLE], (uint32_t)id, n->in[WF_GET_ROWS_TABLE].value, (uint32_t)id);
    return row;
}

static uint32_t product(const wf_node *n, const wf_call *c, uint32_t i)
{
    uint32_t row = row_at(&c->in[WF_GEMM_X], i, n->in[WF_GEMM_X].value);
    if (c->in[WF_GEMM_RESIDUAL].buf) expect_row(&c->in[WF_GEMM_RESIDUAL], i, n->in[WF_GEMM_RESIDUAL].value, row);
    return row;
}

/* K or V of a slot, as one row. */
static wf_view slot_of(const wf_view *pool, int32_t slot)
{
    uint64_t at = pool->offset + (uint64_t)(slot / PAGE) * wf_dtype_bytes(WF_F16, pool->stride) +
                  (uint64_t)(slot % PAGE) * HEAD;
    return (wf_view){.buf = pool->buf, .offset = at, .rows = 1, .cols = HEAD / 4, .stride = HEAD / 4, .dtype = WF_F32};
}

static uint32_t rotate(const wf_node *n, const wf_call *c, uint32_t i)
{
    uint32_t row = row_at(&c->in[WF_ROPE_KV_QKV], i, n->in[WF_ROPE_KV_QKV].value);
    expect_input(&c->in[WF_ROPE_KV_POS], i, WF_INPUT_POS, row);
    expect_input(&c->in[WF_ROPE_KV_SLOT], i, WF_INPUT_SLOT, row);
    for (int kv = WF_ROPE_KV_K_POOL; kv <= WF_ROPE_KV_V_POOL; kv++) {
        wf_view slot = slot_of(&c->out[kv], m.now->b.in[WF_INPUT_SLOT][row]);
        shadow_touch_view(&slot, true);
        write_row(&slot, 0, n->out[kv].value, row);
    }
    return row;
}

/* Keys of this step have to be there; those of earlier ones only to be left in peace. */
static void read_key(const wf_node *n, const wf_call *c, uint32_t row, int32_t pos)
{
    const wf_batch *b = &m.now->b;
    int32_t seq = b->in[WF_INPUT_SEQ][row],
            slot = b->in[WF_INPUT_PAGES][b->in[WF_INPUT_INDPTR][seq] + pos / PAGE] * PAGE + pos % PAGE;
    int32_t back = b->in[WF_INPUT_POS][row] - pos;
    bool here = back <= (int32_t)row && b->in[WF_INPUT_SEQ][row - (uint32_t)back] == seq;
    for (int kv = WF_ATTENTION_K_POOL; kv <= WF_ATTENTION_V_POOL; kv++) {
        wf_view key = slot_of(&c->in[kv], slot);
        shadow_touch_view(&key, false);
        if (here) expect_row(&key, 0, n->in[kv].value, row - (uint32_t)back);
    }
}

static uint32_t attend(const wf_node *n, const wf_call *c, uint32_t i)
{
    uint32_t row = row_at(&c->in[WF_ATTENTION_Q], i, n->in[WF_ATTENTION_Q].value);
    expect_input(&c->in[WF_ATTENTION_SEQ], i, WF_INPUT_SEQ, row);
    expect_input(&c->in[WF_ATTENTION_POS], i, WF_INPUT_POS, row);
    for (uint32_t s = 0; s <= m.now->b.n_seqs; s++) expect_input(&c->in[WF_ATTENTION_INDPTR], s, WF_INPUT_INDPTR, s);
    for (uint32_t p = 0; p < m.now->b.n_pages; p++) expect_input(&c->in[WF_ATTENTION_PAGES], p, WF_INPUT_PAGES, p);
    for (int32_t pos = 0; pos <= m.now->b.in[WF_INPUT_POS][row]; pos++) read_key(n, c, row, pos);
    ++*word_at(&c->out[WF_ATTENTION_RECOMPUTED], 0);
    m.recomputed[n->layer]++;
    return row;
}

static uint32_t choose(const wf_node *n, const wf_call *c, uint32_t i)
{
    uint32_t row = row_at(&c->in[WF_SAMPLE_X], i, n->in[WF_SAMPLE_X].value);
    if (c->op != WF_OP_SAMPLE) return row;
    float temperature = 1 + (float)row;
    assert_int_equal(*word_at(&c->in[WF_SAMPLE_KEY], i), row + 1);
    assert_memory_equal(word_at(&c->in[WF_SAMPLE_PARAMS], i), &temperature, sizeof temperature);
    int32_t first = (int32_t)word_at(&c->in[WF_SAMPLE_KEY], i)[7];
    for (uint32_t k = 0; k < limits.mask_words && first >= 0; k++)
        expect_input(&c->in[WF_SAMPLE_ALLOWED], (uint32_t)first + k, WF_INPUT_ALLOWED, (uint32_t)first + k);
    return row;
}

static uint32_t substitute(const wf_node *n, const wf_call *c, uint32_t i)
{
    int32_t id = (int32_t)*word_at(&c->in[WF_TOKEN_SUBST_IDS], i);
    if (id >= 0) return find(m.now->tokens, m.now->b.n_tokens, id);
    assert_true((uint32_t)(-1 - id) < c->in[WF_TOKEN_SUBST_FROM].rows);
    assert_int_equal(*word_at(&c->in[WF_TOKEN_SUBST_FROM], (uint32_t)(-1 - id)),
                     sampled(m.now->number - 1, (uint32_t)(-1 - id)));
    return (uint32_t)m.now->pending_row[-1 - id];
}

static uint32_t compute_row(const wf_node *n, const wf_call *c, uint32_t i)
{
    switch (c->op) {
    case WF_OP_GET_ROWS: return get_row(n, c, i);
    case WF_OP_GEMM: return product(n, c, i);
    case WF_OP_ROPE_KV: return rotate(n, c, i);
    case WF_OP_ATTENTION: return attend(n, c, i);
    case WF_OP_TOKEN_SUBST: return substitute(n, c, i);
    default: return choose(n, c, i);
    }
}

static void write_result(const wf_node *n, const wf_call *c, uint32_t i, uint32_t row)
{
    bool ids = c->op == WF_OP_ARGMAX || c->op == WF_OP_SAMPLE;
    if (ids) *word_at(&c->out[0], i) = (uint32_t)sampled(m.now->number, row);
    else if (c->op == WF_OP_TOKEN_SUBST) *word_at(&c->out[0], i) = (uint32_t)m.now->tokens[row];
    else write_row(&c->out[0], i, n->out[0].value, row);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* These rows of a node are one range of the plan, or a part of one, and run on its queue. */
static void note_rows(uint32_t node, uint32_t first, uint32_t n)
{
    const wf_plan *p = &m.plans.list[wf_plans_choose(&m.plans, m.now->b.n_tokens, m.now->b.n_decodes, m.now->b.max_kv)];
    bool planned = false;
    for (size_t i = 0; i < p->n_nanos; i++) {
        rows r = rows_of_nano(&m.g, &p->nanos[i], &m.now->rows);
        planned |= p->nanos[i].node == node && r.first <= first && first + n <= r.end &&
                   p->nanos[i].queue == shadow.queue;
    }
    if (!planned)
        fail_msg("no range of %s has its rows %u to %u on queue %u", m.g.nodes[node].name, first, first + n,
                 shadow.queue);
    for (uint32_t i = first; i < first + n; i++) m.now->times[node][i]++;
}

static bool is_pool(const wf_view *v)
{
    return v->dtype == WF_F16;
}

/* Attention adds to its counter atomically, so that two calls may do so at the same time. */
static bool is_counter(const wf_call *c, int out)
{
    return c->op == WF_OP_ATTENTION && out == WF_ATTENTION_RECOMPUTED;
}

static weft_status on_submit(wf_queue *q, const wf_call *c)
{
    uint32_t at = (uint32_t)c->p.eps, rows = c->op == WF_OP_TOKEN_SUBST ? c->in[0].rows : c->out[0].rows, first = 0;
    const wf_node *n = &m.g.nodes[at];
    assert_int_equal(n->op, c->op);
    shadow_begin(q, c->waits, c->n_waits, n->name);
    for (int i = 0; i < WF_MAX_IN; i++)
        if (c->in[i].buf && c->in[i].buf != m.buf && !is_pool(&c->in[i])) shadow_touch_view(&c->in[i], false);
    for (int i = 0; i < WF_MAX_OUT; i++)
        if (c->out[i].buf && !is_pool(&c->out[i]) && !is_counter(c, i)) shadow_touch_view(&c->out[i], true);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t row = compute_row(n, c, i);
        if (i == 0) first = row;
        else if (row != first + i) fail_msg("%s: row %u stands behind row %u", n->name, row, first + i - 1);
        write_result(n, c, i, row);
    }
    note_rows(at, first, rows);
    shadow_end(c->signal);
    return WEFT_OK;
}

static bool between(const void *p, const void *low, size_t bytes)
{
    return (uintptr_t)p >= (uintptr_t)low && (uintptr_t)p < (uintptr_t)low + bytes;
}

/* A copy between device and host: of pages, else of what the host's side says. */
static void note_copy(const void *host, uint64_t bytes, bool out)
{
    step *s = m.now;
    bool swap = between(host, s->host, sizeof s->host), ids = between(host, s->ids, sizeof s->ids),
         logits = between(host, s->logits, sizeof s->logits);
    if (swap) s->moved++;
    else if (!out) note_rows(node_at(WF_NODE_UPLOAD, WF_ALWAYS), 0, 1);
    else if (ids)
        note_rows(node_at(WF_NODE_DOWNLOAD, WF_WHEN_IDS), (uint32_t)((const int32_t *)host - s->ids),
                  (uint32_t)bytes / 4);
    else if (logits)
        note_rows(node_at(WF_NODE_DOWNLOAD, WF_WHEN_LOGITS), (uint32_t)((const float *)host - s->logits[0]) / VOCAB,
                  (uint32_t)bytes / 4 / VOCAB);
    else note_rows(node_at(WF_NODE_DOWNLOAD, WF_ALWAYS), 0, (uint32_t)bytes / 4 / LAYERS); /* the counters */
}

static weft_status on_write(wf_queue *q, wf_buf *b, uint64_t off, const void *from, uint64_t bytes,
                            wf_event *const *waits, uint32_t n, wf_event *signal)
{
    shadow_begin(q, waits, n, "a copy to the device");
    shadow_touch(b, off, bytes, true);
    if (!m.late) note_copy(from, bytes, false);
    shadow_end(signal);
    return m.plain->write(q, b, off, from, bytes, waits, n, signal);
}

static weft_status on_read(wf_queue *q, wf_buf *b, uint64_t off, void *to, uint64_t bytes, wf_event *const *waits,
                           uint32_t n, wf_event *signal)
{
    shadow_begin(q, waits, n, "a copy to the host");
    shadow_touch(b, off, bytes, false);
    note_copy(to, bytes, true);
    shadow_end(signal);
    return m.plain->read(q, b, off, to, bytes, waits, n, signal);
}

static weft_status on_fill(wf_queue *q, wf_buf *b, uint64_t off, uint64_t bytes, uint32_t pattern)
{
    shadow_begin(q, NULL, 0, "a fill");
    shadow_touch(b, off, bytes, true);
    shadow_end(NULL);
    return m.plain->fill(q, b, off, bytes, pattern);
}

/* Queues are numbered as exec makes them. */
static weft_status on_queue_create(wf_dev *dev, bool only_copies, wf_queue **out)
{
    weft_status s = m.plain->queue_create(dev, only_copies, out);
    if (s == WEFT_OK) queue_number(*out);
    return s;
}

static weft_status on_mark(wf_queue *q, wf_event *const *waits, uint32_t n, wf_event *signal)
{
    shadow_begin(q, waits, n, "a mark");
    shadow_end(signal);
    return m.plain->mark(q, waits, n, signal);
}

static weft_status on_wait(wf_event *e, uint32_t ms)
{
    shadow_waited(e);
    return m.plain->wait(e, ms);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void add_seq(step *s, uint32_t tokens, uint32_t *at)
{
    wf_batch *b = &s->b;
    uint32_t cached = draw(CONTEXT), pages = WF_UP(cached + tokens, PAGE) / PAGE;
    for (uint32_t i = 0; i < tokens; i++, ++*at) {
        b->in[WF_INPUT_TOKEN][*at] = s->tokens[*at] = (int32_t)*at + 1;
        b->in[WF_INPUT_POS][*at] = (int32_t)(cached + i);
        b->in[WF_INPUT_SEQ][*at] = (int32_t)b->n_seqs;
        b->in[WF_INPUT_SLOT][*at] = (int32_t)((b->n_pages + (cached + i) / PAGE) * PAGE + (cached + i) % PAGE);
    }
    for (uint32_t i = 0; i < pages; i++, b->n_pages++) b->in[WF_INPUT_PAGES][b->n_pages] = (int32_t)b->n_pages;
    b->in[WF_INPUT_INDPTR][++b->n_seqs] = (int32_t)b->n_pages;
    b->max_kv = WF_MAX(b->max_kv, cached + tokens), b->max_q = WF_MAX(b->max_q, tokens);
}

/* Decodes, then at most two prompts. */
static void add_seqs(step *s)
{
    uint32_t at = 0, prefill = draw(3) ? draw(TOKENS - SEQS) : 0, first = draw(prefill + 1);
    wf_batch_clear(&s->b);
    s->b.n_decodes = prefill ? draw(SEQS - 2) : 1 + draw(SEQS - 2);
    for (uint32_t i = 0; i < s->b.n_decodes; i++) add_seq(s, 1, &at);
    if (first) add_seq(s, first, &at);
    if (prefill > first) add_seq(s, prefill - first, &at);
    s->b.n_tokens = at;
}

static void want_logits(step *s)
{
    s->b.n_logits = 0;
    for (uint32_t row = 0, all = draw(2); row < s->b.n_tokens; row++)
        if (all || draw(3) == 0 || row + 1 == s->b.n_tokens)
            s->b.in[WF_INPUT_LOGIT_ROWS][s->b.n_logits++] = (int32_t)row;
    s->io = (wf_step_io){.ids = draw(4) ? s->ids : NULL, .logits = draw(3) ? NULL : s->logits[0]};
    for (uint32_t k = 0, all = draw(2), masked = draw(2) * SEQS; k < s->b.n_logits && all; k++) {
        uint32_t words = masked && draw(2) ? limits.mask_words : 0;
        masked -= words > 0;
        wf_batch_sample(&s->b, k, &(wf_sampling_params){.temperature = 1 + (float)k, .top_k = (int32_t)k + 1}, 0,
                        words);
    }
}

/* Decodes whose token the step before has sampled. */
static void make_pending(step *s, const step *before)
{
    for (uint32_t k = 0; before->io.ids && k < before->b.n_logits && k < s->b.n_decodes; k++) {
        if (draw(2)) continue;
        s->b.in[WF_INPUT_TOKEN][k] = -1 - (int32_t)k;
        s->tokens[k] = sampled(before->number, k);
        s->pending_row[k] = (int32_t)k;
        s->b.n_pending++;
    }
}

/* Pages of the pool's end, and of its beginning, where this step and others write: the step waits for them. */
static void move_pages(step *s)
{
    wf_page_copy list[SWAPS];
    uint32_t wanted = 0;
    s->moved = 0;
    for (int out = 1; out >= 0; out--) {
        uint32_t n = draw(2) ? 0 : 1 + draw(SWAPS);
        for (uint32_t p = 0; p < n; p++)
            list[p] = (wf_page_copy){(int32_t)(out ? draw(PAGES - SWAPS) : PAGES - SWAPS + p),
                                     s->host[out] + p * wf_exec_page_bytes(m.e)};
        if (n) assert_ok(wf_exec_move(m.e, out, list, n, NULL));
        wanted += n;
    }
    assert_int_equal(s->moved, wanted);
}

static batch counted(const step *s)
{
    bool holds[WF_N_WHEN] = {true,      s->b.n_pending, s->io.ids && !s->b.sampled, s->io.ids && s->b.sampled,
                             s->io.ids, s->io.logits};
    batch b = {.tokens = s->b.n_tokens, .decodes = s->b.n_decodes, .logits = s->b.n_logits};
    for (uint32_t w = 0; w < WF_N_WHEN; w++) b.absent |= (uint32_t)!holds[w] << w;
    return b;
}

static void submit(uint32_t number)
{
    step *s = m.now = &m.steps[number % WF_EXEC_DEPTH];
    s->number = number;
    add_seqs(s);
    want_logits(s);
    if (number) make_pending(s, &m.steps[(number - 1) % WF_EXEC_DEPTH]);
    move_pages(s);
    s->rows = counted(s);
    memset(s->times, 0, sizeof s->times);
    assert_ok(wf_exec_submit(m.e, &s->b, &s->io));
    for (uint32_t i = 0; i < s->b.n_allowed; i++) s->b.in[WF_INPUT_ALLOWED][i] = (int32_t)(number << 8 | i);
    m.late = true;
    assert_ok(wf_exec_submit_rest(m.e));
    m.late = false;
    memcpy(s->submitted, shadow.submitted, sizeof s->submitted);
    memcpy(s->recomputed, m.recomputed, sizeof s->recomputed);
}

/* ---- what came of a step ----------------------------------------------------------------------------------------- */

static uint32_t times_of(const step *s, const wf_node *n)
{
    return !(s->rows.absent >> n->when & 1);
}

static void check_rows(const step *s)
{
    for (size_t n = 0; n < m.g.n_nodes; n++) {
        rows all = rows_of_node(&m.g.nodes[n], &s->rows);
        for (uint32_t row = all.first; row < all.end; row++)
            if (s->times[n][row] != times_of(s, &m.g.nodes[n]))
                fail_msg("row %u of %s was computed %u times, not %u", row, m.g.nodes[n].name, s->times[n][row],
                         times_of(s, &m.g.nodes[n]));
    }
}

static void check_results(step *s)
{
    m.now = s;
    shadow.name = "the host";
    for (uint32_t k = 0; s->io.ids && k < s->b.n_logits; k++) assert_int_equal(s->ids[k], sampled(s->number, k));
    wf_buf host = {.host = s->logits};
    const wf_view all = {.buf = &host, .rows = s->b.n_logits, .cols = VOCAB, .stride = VOCAB, .dtype = WF_F32};
    for (uint32_t k = 0; s->io.logits && k < s->b.n_logits; k++) expect_row(&all, k, m.g.logits, k);
}

static void finish(uint32_t number)
{
    step *s = &m.steps[number % WF_EXEC_DEPTH];
    assert_ok(wf_exec_wait(m.e));
    for (uint32_t q = 0; q < SHADOW_QUEUES; q++)
        if (shadow.host.of[q] < s->submitted[q]) fail_msg("the step's end does not wait for queue %u", q);
    check_rows(s);
    check_results(s);
    for (int l = 0; l < LAYERS; l++) assert_int_equal(wf_exec_stats_of(m.e)->softmax[l].recomputed, s->recomputed[l]);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static const char *const once_behind[] = {"gather_logits", "logits",          "argmax",         "sample",
                                          "download",      "download_logits", "download_counts"};

static void open_device(void)
{
    memset(&m, 0, sizeof m);
    shadow_reset();
    assert_ok(wf_select_open("null", NULL, &m.dev));
    m.plain = m.dev->fns;
    m.fns = *m.plain;
    m.fns.queue_create = on_queue_create, m.fns.submit = on_submit, m.fns.write = on_write, m.fns.read = on_read,
    m.fns.fill = on_fill, m.fns.mark = on_mark, m.fns.wait = on_wait;
    m.dev->fns = &m.fns;
    assert_ok(wf_buf_create(m.dev, POSITIONS * WIDTH * sizeof(float), &m.buf));
    make_graph();
}

static void close_device(void)
{
    wf_plans_free(&m.plans);
    wf_graph_free(&m.g);
    wf_buf_destroy(m.buf);
    wf_dev_close(m.dev);
    assert_int_equal(wf_null_alive(), 0);
}

/* Steps as an engine has them: the next one is submitted before the one under way has ended. false: the plan names a
 * kernel that the device does not have. */
static bool run_steps(void)
{
    weft_status s = wf_exec_create(m.dev, &m.g, &m.plans, m.weights, &limits, &m.e);
    if (s == WEFT_OK) s = wf_exec_open_moves(m.e);
    if (s == WEFT_ERR_ARG) assert_non_null(strstr(wf_error(), "has no kernel"));
    else assert_ok(s);
    if (s != WEFT_OK) return false;
    for (uint32_t i = 0; i < WF_EXEC_DEPTH; i++) assert_ok(wf_batch_init(&m.steps[i].b, &limits));
    for (uint32_t i = 0; i < STEPS; i++) {
        if (i >= WF_EXEC_DEPTH) finish(i - WF_EXEC_DEPTH);
        submit(i);
    }
    for (uint32_t i = STEPS - WF_EXEC_DEPTH; i < STEPS; i++) finish(i);
    for (uint32_t i = 0; i < WF_EXEC_DEPTH; i++) wf_batch_free(&m.steps[i].b);
    wf_exec_destroy(m.e);
    return true;
}

static bool try_plan(const char *text)
{
    open_device();
    bool accepted = load_from(&m.g, text, &m.plans) == WEFT_OK && run_steps();
    close_device();
    return accepted;
}

static void test_random_plans(void **state)
{
    static writer w;
    int accepted = 0, n = rounds(400);
    for (int i = 0; i < n; i++) write_plan(&w, once_behind, WF_LEN(once_behind)), accepted += try_plan(w.text);
    printf("%d of %d accepted\n", accepted, n);
    assert_true(accepted > n / 4);
}

static char *nth_line(char *text, uint32_t n)
{
    for (; n && strchr(text, '\n'); n--) text = strchr(text, '\n') + 1;
    return text;
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* One line taken away, put elsewhere, or a word or a byte of it replaced. */
static void change(char *text, size_t cap)
{
    static const char *const words[] = {"end", "decode", "prefill", "0", "7", "48", "2t", "999999999", "-", "next",
                                        "layer", "once", "queues 1", "queues 8", "bucket", "bucket tokens 9",
                                        "tile 65536", "queue 7", "\n", " ", "#", "auto", "groups 999999999", "0-end",
                                        "end-7", "7-end", "7-5"};
    char line[512] = "", *at = nth_line(text, 1 + draw(count_lines(text)));
    size_t len = strcspn(at, "\n") + (strchr(at, '\n') != NULL), what = draw(5);
    snprintf(line, sizeof line, "%.*s", (int)WF_MIN(len, sizeof line - 1), at);
    if (what < 3) memmove(at, at + len, strlen(at + len) + 1); /* moved, or left out */
    if (what == 0) return;
    if (what < 3) at = nth_line(text, 1 + draw(count_lines(text)));
    if (what == 3)
        snprintf(line, sizeof line, "%s%s", words[draw(WF_LEN(words))], draw(2) ? "\n" : ""),
            at += draw((uint32_t)len + 1);
    if (what == 4 && len > 1) { at[draw((uint32_t)len - 1)] = (char)(1 + draw(126)); return; }
    size_t more = strlen(line);
    if (strlen(text) + more + 1 > cap) return;
    memmove(at + more, at, strlen(at) + 1);
    memcpy(at, line, more);
}

/* What of these is accepted runs as any other plan. */
static void test_changed_texts(void **state)
{
    static writer w;
    for (int i = 0; i < 4 * rounds(400); i++) {
        write_plan(&w, once_behind, WF_LEN(once_behind));
        for (uint32_t n = 1 + draw(3); n; n--) change(w.text, sizeof w.text);
        if (!try_plan(w.text)) assert_true(strlen(wf_error()) > 0);
    }
}

/* Those that the engine makes by itself. */
static void test_own_plans(void **state)
{
    for (uint32_t parts = 1; parts <= 4; parts++)
        for (int i = 0; i < 10; i++) {
            open_device();
            m.plans.n = 1;
            if (parts > 1) assert_ok(wf_plans_overlap(&m.g, parts, TOKENS, 1 + draw(8), &m.plans));
            else assert_ok(wf_plan_sequential(&m.g, &m.plans.list[0]));
            assert_ok(wf_plans_finish(&m.g, &m.plans, m.dev->align));
            assert_true(run_steps());
            close_device();
        }
}

SUITE(exec_order, seed_from_environment, NULL, CASE(test_random_plans), CASE(test_changed_texts), CASE(test_own_plans))
