/* plan_random: plans cut, ordered and spread over queues at random, and texts of plans with something changed at random. What is
 * accepted must run each row of each op exactly once, and order what touches the same rows, for batches of every size. That is
 * counted here row by row, without the rules that waits were derived from. */
#include "plan_graph.h"
#include "plan_writer.h"
#include "support/suite.h"

enum { MAX_NANOS = 1024, WORDS = MAX_NANOS / 64 };

/* ---- what a nano-operation does in a batch ---------------------------------------------------------------------- */

/* Rows of a value that it touches; a whole value is one row. */
static rows rows_touched(const wf_value *v, const wf_node *node, rows of, const batch *b, bool writes)
{
    if (v->kind == WF_VALUE_KV && !writes) return (rows){node->rows == WF_ROWS_DECODE ? of.first : node->rows == WF_ROWS_PREFILL ? b->decodes : 0, of.end};
    if (v->kind == WF_VALUE_KV || (wf_rows_are_tokens(v->rows) && wf_rows_are_tokens(node->rows))) return of;
    if (v->rows == WF_ROWS_LOGITS && node->rows == WF_ROWS_LOGITS) return of;
    return (rows){0, UINT32_MAX};
}

static uint32_t end_of(const wf_graph *g, const wf_plan *p, int32_t v)
{
    return p->offset_of[v] + (uint32_t)wf_dtype_bytes(g->values[v].dtype, g->values[v].cols);
}

static bool share_columns(const wf_graph *g, const wf_plan *p, int32_t a, int32_t b)
{
    return p->buffer_of[a] == p->buffer_of[b] && p->offset_of[a] < end_of(g, p, b) && p->offset_of[b] < end_of(g, p, a);
}

static bool same_place(const wf_graph *g, const wf_plan *p, int32_t a, int32_t b)
{
    const wf_value *x = &g->values[a], *y = &g->values[b];
    if (x->kind == WF_VALUE_WEIGHT || x->kind != y->kind) return false;
    return x->kind == WF_VALUE_ACT ? share_columns(g, p, a, b) : x->id == y->id;
}

static int32_t operand(const wf_node *n, int i)
{
    return i < WF_MAX_IN ? n->in[i].value : n->out[i - WF_MAX_IN].value;
}

static bool touches_kind(const wf_graph *g, const wf_node *n, enum wf_value_kind kind)
{
    for (int i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++)
        if (operand(n, i) >= 0 && g->values[operand(n, i)].kind == kind) return true;
    return false;
}

/* Copies of pages touch all pools, the upload all inputs. */
static bool copies(const wf_graph *g, const wf_node *a, const wf_node *b)
{
    bool swap_a = a->kind == WF_NODE_SWAP_IN || a->kind == WF_NODE_SWAP_OUT, swap_b = b->kind == WF_NODE_SWAP_IN || b->kind == WF_NODE_SWAP_OUT;
    return (swap_a && (swap_b || touches_kind(g, b, WF_VALUE_KV))) || (a->kind == WF_NODE_UPLOAD && touches_kind(g, b, WF_VALUE_INPUT));
}

static bool conflict(const wf_graph *g, const wf_plan *p, const wf_nano *x, const wf_nano *y, const batch *batch)
{
    const wf_node *a = &g->nodes[x->node], *b = &g->nodes[y->node];
    rows ra = rows_of_nano(g, x, batch), rb = rows_of_nano(g, y, batch);
    if (copies(g, a, b) || copies(g, b, a)) return true;
    for (int i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++)
        for (int k = 0; k < WF_MAX_IN + WF_MAX_OUT; k++) {
            bool writes_a = i >= WF_MAX_IN, writes_b = k >= WF_MAX_IN;
            int32_t va = operand(a, i), vb = operand(b, k);
            if (va < 0 || vb < 0 || !(writes_a || writes_b) || !same_place(g, p, va, vb)) continue;
            rows ta = rows_touched(&g->values[va], a, ra, batch, writes_a), tb = rows_touched(&g->values[vb], b, rb, batch, writes_b);
            if (ta.first < tb.end && tb.first < ta.end) return true;
        }
    return false;
}

/* ---- a step, as queues and events order it ----------------------------------------------------------------------- */

typedef struct step {
    bool works[MAX_NANOS], fired[MAX_NANOS];
    uint64_t behind[MAX_NANOS][WORDS]; /* which ones have surely ended before it begins */
} step;

static void order_behind(step *s, size_t i, size_t before)
{
    for (size_t w = 0; w < WORDS; w++) s->behind[i][w] |= s->behind[before][w];
    s->behind[i][before / 64] |= 1ull << before % 64;
}

/* As exec submits it: a command without work is a mark where others may wait for it. */
static void run_step(const wf_graph *g, const wf_plan *p, const batch *b, step *s)
{
    int64_t last[WF_MAX_QUEUES];
    memset(s, 0, sizeof *s);
    memset(last, -1, sizeof last);
    for (size_t i = 0; i < p->n_nanos; i++) {
        const wf_nano *n = &p->nanos[i];
        rows r = rows_of_nano(g, n, b);
        s->works[i] = r.first < r.end && !(b->absent >> g->nodes[n->node].when & 1);
        s->fired[i] = s->works[i] || n->n_waits || (n->signal && last[n->queue] >= 0);
        if (!s->fired[i]) continue;
        if (last[n->queue] >= 0) order_behind(s, i, (size_t)last[n->queue]);
        for (uint32_t w = 0; w < n->n_waits; w++)
            if (s->fired[p->waits[n->wait + w]]) order_behind(s, i, p->waits[n->wait + w]);
        last[n->queue] = (int64_t)i;
    }
}

static void check_order(const wf_graph *g, const wf_plan *p, const batch *b, const step *s)
{
    for (size_t i = 0; i < p->n_nanos; i++)
        for (size_t k = 0; k < i; k++) {
            if (!s->works[i] || !s->works[k] || !conflict(g, p, &p->nanos[k], &p->nanos[i], b)) continue;
            const char *first = g->nodes[p->nanos[k].node].name, *second = g->nodes[p->nanos[i].node].name;
            if (!(s->behind[i][k / 64] >> k % 64 & 1)) fail_msg("%zu %s does not wait for %zu %s (%u tokens, %u decodes)", i, second, k, first, b->tokens, b->decodes);
            if (p->nanos[k].node > p->nanos[i].node) fail_msg("%s runs before %s", first, second);
        }
}

/* A row of v is written: other values that share its columns are gone. */
static void overwrite(const wf_graph *g, const wf_plan *p, bool there[][128], int32_t v, uint32_t row)
{
    for (int32_t o = 0; o < (int32_t)g->n_values; o++)
        if (g->values[o].kind == WF_VALUE_ACT && share_columns(g, p, v, o)) there[o][row] = o == v;
}

/* What is read is what was written last into those columns of that row. */
static void check_values(const wf_graph *g, const wf_plan *p, const batch *b, const step *s)
{
    static bool there[128][128]; /* by value and row */
    assert_true(g->n_values <= 128);
    memset(there, 0, sizeof there);
    for (size_t i = 0; i < p->n_nanos; i++) {
        const wf_node *node = &g->nodes[p->nanos[i].node];
        rows own = rows_of_nano(g, &p->nanos[i], b);
        for (int k = 0; s->works[i] && k < WF_MAX_IN + WF_MAX_OUT; k++) {
            int32_t v = operand(node, k);
            if (v < 0 || g->values[v].kind != WF_VALUE_ACT) continue;
            rows r = rows_touched(&g->values[v], node, own, b, k >= WF_MAX_IN);
            if (r.end == UINT32_MAX) r.end = g->values[v].rows == WF_ROWS_LOGITS ? b->logits : b->tokens;
            for (uint32_t row = r.first; row < r.end; row++) {
                if (k >= WF_MAX_IN) overwrite(g, p, there, v, row);
                else if (!there[v][row]) fail_msg("row %u of value %d is not there when %s reads it (%u tokens, %u decodes)", row, v, node->name, b->tokens, b->decodes);
            }
        }
    }
}

/* Each row of each node once. */
static void check_rows(const wf_graph *g, const wf_plan *p, const batch *b)
{
    for (uint32_t node = 0; node < g->n_nodes; node++) {
        uint32_t times[128] = {0};
        rows all = rows_of_node(&g->nodes[node], b);
        for (size_t i = 0; i < p->n_nanos; i++) {
            rows r = rows_of_nano(g, &p->nanos[i], b);
            for (uint32_t row = r.first; p->nanos[i].node == node && row < r.end; row++) times[row]++;
        }
        for (uint32_t row = all.first; row < all.end; row++)
            if (times[row] != 1) fail_msg("row %u of %s runs %u times (%u tokens, %u decodes)", row, g->nodes[node].name, times[row], b->tokens, b->decodes);
    }
}

static void check_plan(const wf_graph *g, const wf_plan *p)
{
    static step s;
    if (p->n_nanos > MAX_NANOS) return;
    for (int i = 0; i < 6; i++) {
        batch b = {.tokens = 1 + draw(100), .logits = 1 + draw(100), .absent = draw(1 << WF_N_WHEN) & ~1u << WF_ALWAYS};
        b.decodes = draw(2) ? draw(b.tokens + 1) : draw(2) * b.tokens;
        run_step(g, p, &b, &s);
        check_rows(g, p, &b);
        check_order(g, p, &b, &s);
        check_values(g, p, &b, &s);
    }
}

/* ---- plans ---------------------------------------------------------------------------------------------------------- */

static const char *const once_behind[] = {"logits", "argmax", "sample", "download", "download_logits"};

static bool try_plan(const wf_graph *g, const char *text)
{
    wf_plans p;
    weft_status s = load_from(g, text, &p);
    for (size_t i = 0; s == WEFT_OK && i < p.n; i++) check_plan(g, &p.list[i]);
    if (s != WEFT_OK) assert_true(strlen(wf_error()) > 0);
    wf_plans_free(&p);
    return s == WEFT_OK;
}

static void test_random_plans(void **state)
{
    (void)state;
    static writer w;
    wf_graph g = make_graph();
    int accepted = 0;
    for (int i = 0; i < rounds(500); i++) write_plan(&w, once_behind, WF_LEN(once_behind)), accepted += try_plan(&g, w.text);
    printf("%d of %d accepted\n", accepted, rounds(500));
    assert_true(accepted > rounds(500) / 4);
    wf_graph_free(&g);
}

/* With each kind of exchange between processes. */
static void test_network_nodes(void **state)
{
    (void)state;
    static writer w = {.network = "exchange"};
    for (int kind = WF_NODE_SEND; kind <= WF_NODE_REDUCE_SCATTER; kind++) {
        wf_graph g = make_graph_with(LAYERS, (enum wf_node_kind)kind);
        int accepted = 0;
        for (int i = 0; i < rounds(100); i++) write_plan(&w, once_behind, WF_LEN(once_behind)), accepted += try_plan(&g, w.text);
        if (accepted <= rounds(100) / 5) fail_msg("kind %d: %d of %d accepted", kind, accepted, rounds(100));
        wf_graph_free(&g);
    }
}

/* ---- changed texts ------------------------------------------------------------------------------------------------- */

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
    static const char *const words[] = {"end", "decode", "prefill", "0", "7", "48", "2t", "999999999", "-", "next", "layer", "once", "queues 1", "queues 8",
                                        "bucket", "bucket tokens 9", "tile 65536", "queue 7", "\n", " ", "#", "auto", "groups 999999999", "0-end", "end-7", "7-end", "7-5"};
    char line[512] = "", *at = nth_line(text, 1 + draw(count_lines(text)));
    size_t len = strcspn(at, "\n") + (strchr(at, '\n') != NULL), what = draw(5);
    snprintf(line, sizeof line, "%.*s", (int)WF_MIN(len, sizeof line - 1), at);
    if (what < 3) memmove(at, at + len, strlen(at + len) + 1); /* moved, or left out */
    if (what == 0) return;
    if (what < 3) at = nth_line(text, 1 + draw(count_lines(text)));
    if (what == 3) snprintf(line, sizeof line, "%s%s", words[draw(WF_LEN(words))], draw(2) ? "\n" : ""), at += draw((uint32_t)len + 1);
    if (what == 4 && len > 1) { at[draw((uint32_t)len - 1)] = (char)(1 + draw(126)); return; }
    size_t more = strlen(line);
    if (strlen(text) + more + 1 > cap) return;
    memmove(at + more, at, strlen(at) + 1);
    memcpy(at, line, more);
}

static void test_changed_texts(void **state)
{
    (void)state;
    static writer w;
    wf_graph g = make_graph();
    for (int i = 0; i < 4 * rounds(500); i++) {
        write_plan(&w, once_behind, WF_LEN(once_behind));
        for (uint32_t n = 1 + draw(3); n; n--) change(w.text, sizeof w.text);
        try_plan(&g, w.text);
    }
    wf_graph_free(&g);
}

SUITE_MAIN(plan_random)
{
    const struct CMUnitTest tests[] = {CASE(test_random_plans), CASE(test_network_nodes), CASE(test_changed_texts)};
    seed_from_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
