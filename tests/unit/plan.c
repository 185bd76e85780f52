/* plan: a small graph by hand; buffers, token ranges and waits are what the rules say. */
#include "plan_graph.h"
#include "support/suite.h"

static wf_graph g;
static wf_plans all;

static int set_up(void **state)
{
    g = make_graph();
    return 0;
}

static int tear_down(void **state)
{
    wf_plans_free(&all);
    wf_graph_free(&g);
    return 0;
}

/* In place of the plans that there were. */
static const wf_plan *sequential(void)
{
    wf_plans_free(&all);
    all = (wf_plans){.n = 1};
    assert_ok(wf_plan_sequential(&g, &all.list[0]));
    return &all.list[0];
}

static void test_sequential(void **state)
{
    const wf_plan *p = sequential();
    assert_int_equal(p->n_lines, 2 + 1 + 5 + 1 + 4);
    assert_ok(wf_plans_finish(&g, &all, 128));
    assert_int_equal(p->n_nanos, g.n_nodes);
    assert_int_equal(p->n_waits, 0);
    /* The residual stream stays in its buffer, and the layers reuse the rest. */
    assert_int_equal(p->n_buffers, 3);
    assert_int_equal(p->buffers[0].pitch + p->buffers[1].pitch + p->buffers[2].pitch, (192 + 64 + 64) * sizeof(float));
}

/* One layer fuses what another does not: its op has a place among those of the other layers, and steps run in the order
 * of the graph. */
static void test_layers_differ(void **state)
{
    for (size_t i = 0; i < g.n_nodes; i++)
        if (g.nodes[i].layer && !strcmp(g.nodes[i].name, "rope")) strcpy(g.nodes[i].name, "turn");
    sequential();
    assert_int_equal(all.list[0].n_lines, 2 + 1 + 6 + 1 + 4);
    assert_ok(wf_plans_finish(&g, &all, 128));
    assert_int_equal(all.list[0].n_nanos, g.n_nodes);
    for (size_t i = 0; i < g.n_nodes; i++) assert_int_equal(all.list[0].nanos[i].node, i);
}

static uint32_t end_of(const wf_graph *g, const wf_plan *p, int32_t v)
{
    return p->offset_of[v] + (uint32_t)wf_dtype_bytes(g->values[v].dtype, g->values[v].cols);
}

static bool share_columns(const wf_graph *g, const wf_plan *p, int32_t a, int32_t b)
{
    return p->buffer_of[a] == p->buffer_of[b] && p->offset_of[a] < end_of(g, p, b) && p->offset_of[b] < end_of(g, p, a);
}

/* Runs a step on paper: every value is there when it is read, because nothing has been written over it. */
static void check_live(const wf_graph *g, const wf_plan *p)
{
    bool *there = calloc(g->n_values, sizeof *there);
    for (size_t n = 0; n < g->n_nodes; n++) {
        for (int i = 0; i < WF_MAX_IN; i++) {
            int32_t v = g->nodes[n].in[i].value;
            if (v >= 0 && p->buffer_of[v] >= 0) assert_true(there[v]);
        }
        for (int i = 0; i < WF_MAX_OUT; i++) {
            int32_t v = g->nodes[n].out[i].value;
            if (v < 0 || p->buffer_of[v] < 0) continue;
            for (int k = 0; k < WF_MAX_IN; k++) {
                int32_t in = g->nodes[n].in[k].value;
                if (in >= 0 && p->buffer_of[in] >= 0 && share_columns(g, p, v, in))
                    assert_true(k == 3 && p->offset_of[v] == p->offset_of[in]); /* the residual */
            }
            for (size_t o = 0; o < g->n_values; o++)
                there[o] = there[o] && (p->buffer_of[o] < 0 || !share_columns(g, p, v, (int32_t)o));
            there[v] = true;
            assert_true(p->buffers[p->buffer_of[v]].pitch >= end_of(g, p, v));
        }
    }
    free(there);
}

/* Values that live at the same time share no columns of a buffer, except a residual handed on in place. */
static void test_buffers_disjoint(void **state)
{
    wf_plan p = {0};
    assert_ok(wf_plan_place(&g, &p, 128));
    check_live(&g, &p);
    wf_plan_free(&p);
}

static const wf_plan *load_text(const wf_graph *of, const char *text)
{
    assert_ok(load_from(of, text, &all));
    return &all.list[0];
}

#define ONCE(op, q) "once " op " 0-end queue " q " kernel auto groups 0\n"
#define BEGIN ONCE("upload", "0") ONCE("token_subst", "0") ONCE("embed", "0")
#define HEAD "weft-plan 2\nqueues 2\ntile 16\n" BEGIN
#define TAIL                                                                                                           \
    ONCE("logits", "0") ONCE("argmax", "0") ONCE("sample", "0") ONCE("download", "0") ONCE("download_logits", "0")
#define AT(where, op, range, q) where " " op " " range " queue " q " kernel auto groups 0\n"
#define LINE(op, range, q) AT("layer", op, range, q)
#define CUT(op) LINE(op, "0-3t", "0") LINE(op, "48-end", "1")
#define DECODES LINE("decode_attention", "0-end", "0")
#define PREFILL LINE("prefill_attention", "prefill-48", "0") LINE("prefill_attention", "3t-end", "1")
#define WHOLE(op) LINE(op, "0-end", "0")

static bool waits_for(const wf_plan *p, size_t i, size_t on)
{
    for (uint32_t w = 0; w < p->nanos[i].n_waits; w++)
        if (p->waits[p->nanos[i].wait + w] == on) return true;
    return false;
}

/* The nano-operation of that op which begins at a number of tokens. */
static size_t find_nano(const wf_graph *g, const wf_plan *p, int32_t layer, const char *name, uint32_t begin)
{
    for (size_t i = 0; i < p->n_nanos; i++) {
        const wf_node *n = &g->nodes[p->nanos[i].node];
        if (n->layer == layer && !strcmp(n->name, name) && p->nanos[i].begin.tokens == begin) return i;
    }
    fail_msg("no nano-operation %s at %u", name, begin);
    return 0;
}

static void test_two_queues(void **state)
{
    const wf_plan *p = load_text(&g, HEAD CUT("qkv") CUT("rope") DECODES PREFILL CUT("out") TAIL);
    assert_int_equal(p->n_nanos, 8 + LAYERS * 9);
    /* Nano-batches are independent, except that prefill attention of the second reads keys of the first's tokens. */
    assert_true(waits_for(p, find_nano(&g, p, 1, "prefill_attention", 48), find_nano(&g, p, 1, "rope", 0)));
    assert_int_equal(p->nanos[find_nano(&g, p, 1, "prefill_attention", 0)].n_waits, 0);
    assert_int_equal(p->nanos[find_nano(&g, p, 1, "qkv", 48)].n_waits, 0);
    /* Decodes may be more than 48: then their attention needs what the second computed, too. */
    assert_true(waits_for(p, find_nano(&g, p, 1, "decode_attention", 0), find_nano(&g, p, 1, "rope", 48)));
    assert_true(waits_for(p, find_nano(&g, p, 0, "qkv", 48), find_nano(&g, p, WF_ONCE, "embed", 0)));
    assert_true(waits_for(p, find_nano(&g, p, WF_ONCE, "logits", 0), find_nano(&g, p, 2, "out", 48)));
}

/* Decodes and prefill apart: where ranges are named, neither waits for the other. */
static void test_named_ranges(void **state)
{
    const wf_plan *p = load_text(&g, HEAD LINE("qkv", "0-decode", "0") LINE("qkv", "prefill-end", "1")
                                     LINE("rope", "0-decode", "0") LINE("rope", "prefill-end", "1")
                                         DECODES LINE("prefill_attention", "0-end", "1") LINE("out", "0-decode", "0")
                                             LINE("out", "prefill-end", "1") TAIL);
    assert_int_equal(p->nanos[find_nano(&g, p, 1, "decode_attention", 0)].n_waits, 0);
    assert_int_equal(p->nanos[find_nano(&g, p, 1, "prefill_attention", 0)].n_waits, 0);
}

/* Where every op is cut there, attention of decodes has nothing behind it, and that of prefill nothing before it. */
static void test_all_cut_at_decode(void **state)
{
#define APART(op) LINE(op, "0-decode", "0") LINE(op, "prefill-end", "1")
    const wf_plan *p = load_text(&g, HEAD APART("qkv") APART("rope") APART("decode_attention")
                                     APART("prefill_attention") APART("out") TAIL);
    assert_int_equal(p->n_nanos, 8 + LAYERS * 8);
}

/* A boundary lies where it says, or at the end of a shorter batch, or behind the decodes of one that has more. */
static void test_boundaries(void **state)
{
    assert_int_equal(wf_boundary_at((wf_boundary){.tokens = 768}, 0, 2048), 768);
    assert_int_equal(wf_boundary_at((wf_boundary){.tokens = 768}, 0, 512), 512);
    assert_int_equal(wf_boundary_at((wf_boundary){.tokens = 768, .decode = true}, 1000, 2048), 1000);
    assert_int_equal(wf_boundary_at((wf_boundary){.decode = true}, 7, 2048), 7);
    assert_int_equal(wf_boundary_at((wf_boundary){.end = true}, 7, 2048), 2048);
}

/* The next layer's QKV of one nano-batch before this layer's output product of the other, all on one queue. */
static void test_interleaved(void **state)
{
    const wf_plan *p = load_text(&g, HEAD LINE("qkv", "48-end", "0") WHOLE("rope") DECODES WHOLE("prefill_attention")
                                     LINE("out", "0-48", "0") AT("next", "qkv", "0-48", "0") LINE("out", "48-end", "0")
                                         TAIL);
    size_t next = find_nano(&g, p, 1, "qkv", 0), out = find_nano(&g, p, 0, "out", 48);
    assert_true(next < out);
    assert_true(find_nano(&g, p, 0, "qkv", 0) < find_nano(&g, p, 0, "qkv", 48));
    assert_int_equal(p->n_waits, 0);
}

static void test_buckets(void **state)
{
#define SIMPLE BEGIN WHOLE("qkv") WHOLE("rope") DECODES WHOLE("prefill_attention") WHOLE("out") TAIL
    load_text(&g, "weft-plan 2\nqueues 1\nbucket tokens 16\n" SIMPLE "bucket tokens 64 decodes 0.5 context 100\n" SIMPLE
                  "bucket\n" SIMPLE);
    assert_int_equal(all.n, 3);
    assert_int_equal(wf_plans_choose(&all, 16, 16, 5000), 0);
    assert_int_equal(wf_plans_choose(&all, 17, 8, 100), 1);
    assert_int_equal(wf_plans_choose(&all, 17, 9, 100), 2);
    assert_int_equal(wf_plans_choose(&all, 17, 8, 101), 2);
    assert_int_equal(wf_plans_choose(&all, 65, 1, 1), 2);
    wf_plans_free(&all);
    load_text(&g, "weft-plan 2\nqueues 1\nbucket tokens 8-16 decodes 0.25-0.5 context 100-200\n" SIMPLE
                  "bucket\n" SIMPLE);
    static const struct {
        uint32_t tokens, decodes, context;
        size_t plan;
    } least[] = {{8, 2, 100, 0},  {7, 2, 100, 1},  {8, 1, 100, 1},  {8, 2, 99, 1},   {16, 8, 200, 0}, {17, 8, 200, 1},
                 {16, 9, 200, 1}, {16, 8, 201, 1}, {11, 2, 100, 0}, {11, 1, 100, 1}, {11, 6, 100, 1}};
    for (size_t i = 0; i < WF_LEN(least); i++)
        if (wf_plans_choose(&all, least[i].tokens, least[i].decodes, least[i].context) != least[i].plan)
            fail_msg("step %zu", i);
}

/* A sum over processes is made in place, and orders what comes before and behind it. */
static void test_collective(void **state)
{
    wf_graph g;
    assert_ok(wf_graph_init(&g, 1));
    int32_t x = act(&g, 64), y = act(&g, 64), z = act(&g, 64), end = act(&g, 64);
    node(&g, WF_OP_GET_ROWS, "embed", 0, g.inputs[WF_INPUT_TOKEN], -1, x);
    node(&g, WF_OP_GEMM, "out", 0, x, -1, y);
    wf_node sum = wf_graph_blank(WF_NODE_ALL_GATHER, WF_OP_NONE, "sum", 0, WF_ROWS_BATCH);
    sum.in[0] = WF_ALL(y);
    sum.out[0] = WF_ALL(z);
    wf_graph_node(&g, &sum);
    node(&g, WF_OP_GEMM, "up", 0, z, -1, end);
    g.logits = end;
    const wf_plan *p = load_text(&g, "weft-plan 2\nqueues 2\n" WHOLE("embed") WHOLE("out") LINE("sum", "0-end", "1")
                                     WHOLE("up"));
    assert_int_equal(p->buffer_of[z], p->buffer_of[y]);
    assert_true(waits_for(p, 2, 1));
    assert_true(waits_for(p, 3, 2));
    wf_graph_free(&g);
}

static void test_bad_plans(void **state)
{
#define BODY(x) CUT("qkv") CUT("rope") DECODES PREFILL x TAIL
#define FEW  "weft-plan 2\nbucket tokens 16\nqueues 2\ntile 16\n" BEGIN
#define FOR(limits) "weft-plan 2\nbucket " limits "\nqueues 2\ntile 16\n" BEGIN BODY(CUT("out")) WHOLE_PLAN
#define WHOLE_PLAN "bucket\n" BEGIN BODY(CUT("out"))
    static const char *const bad[] = {
        "", "weft-plan 1\n",
        HEAD TAIL,
        HEAD BODY(LINE("out", "0-48", "0")),
        HEAD BODY(CUT("out") LINE("out", "0-48", "0")),
        HEAD CUT("rope") CUT("qkv") DECODES PREFILL CUT("out") TAIL, /* wrong order */
        HEAD BODY(LINE("out", "0-end", "2")),
        HEAD BODY(LINE("out", "0-end", "-1")),
        HEAD BODY(LINE("out", "1-end", "0")),
        HEAD BODY(LINE("out", "0-48", "0") LINE("out", "48-16", "0") LINE("out", "16-end", "0")),
        HEAD BODY(LINE("out", "0-48", "0") LINE("out", "64-end", "0")),
        HEAD BODY(LINE("out", "0-48", "0") LINE("out", "32-end", "0")),
        HEAD BODY(LINE("out", "end-0", "0")),
        HEAD BODY(LINE("out", "0", "0")),
        HEAD BODY(LINE("out", "0-x", "0")),
        HEAD BODY(LINE("out", "0-9999999999", "0") LINE("out", "9999999999-end", "0")),
        HEAD BODY(LINE("out", "0-999999999t", "0")),
        HEAD BODY(LINE("oat", "0-end", "0")),
        HEAD BODY(LINE("out", "0-end", "4294967296")),
        HEAD BODY("layer out 0-end queue 0 kernel auto groups -1\n"),
        HEAD BODY(AT("next", "decode_attention", "0-end", "0") CUT("out")), /* twice */
        "weft-plan 2\nqueues 99\n",
        "weft-plan 2\ntile 0\n",
        "weft-plan 2\nonce embed\n",
        FEW BODY(CUT("out")), /* none for longer batches */
        HEAD BODY(CUT("out")) "queues 1\n",
        HEAD BODY(CUT("out")) "tile 1\n", /* behind lines that they are for */
        HEAD BODY(LINE("out", "0-end", "0") LINE("out", "end-7", "0")
                      LINE("out", "7-end", "0")), /* the last tokens twice */
        "weft-plan 2\nbucket tokens 16\nbucket\nqueues 2\n" BEGIN BODY(CUT("out")),
        "weft-plan 2\nbucket tokens\nqueues 2\n" BEGIN BODY(CUT("out")),
        "weft-plan 2\nbucket tokens 0.5\nqueues 2\n" BEGIN BODY(CUT("out")),
        "weft-plan 2\nbucket wide\nqueues 2\n" BEGIN BODY(CUT("out")),
        FOR("tokens 9-8"),
        FOR("tokens 8-"),
        FOR("context 1-2-3"),
        FOR("context -7"),
        FOR("decodes 0.5-2"),
        FOR("decodes 0-0"),
        "weft-plan 2\nbucket decodes 1e-60\nqueues 2\n" BEGIN BODY(CUT("out")),
        FEW BODY(CUT("out")) "bucket decodes 2\n" WHOLE_PLAN,
        FEW BODY(CUT("out")) "bucket tokens -1\n" WHOLE_PLAN,
        FEW BODY(CUT("out")) "bucket\n" TAIL,
        HEAD BODY(CUT("out")) "bucket tokens 16\n" BEGIN BODY(CUT("out")) WHOLE_PLAN, /* the first takes every batch */
    };
    load_text(&g, FOR("tokens 8-9 context 7-7 decodes 0-1"));
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        wf_plans p;
        if (load_from(&g, bad[i], &p) == WEFT_OK) fail_msg("plan %zu was accepted", i);
        assert_true(strlen(wf_error()) > 0);
        wf_plans_free(&p);
    }
}

/* What is wrong with a plan as a whole is said of a line of its file, too. */
static void test_errors_name_the_line(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {HEAD CUT("rope") CUT("qkv") DECODES PREFILL CUT("out") TAIL, "stands before"},
        {HEAD BODY(LINE("out", "0-48", "0")), "do not cover"},
        {HEAD BODY(CUT("out")) LINE("out", "0-end", "0"), "must stand together"},
    };
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        wf_plans p;
        char path[64] = "";
        unsigned line = 0;
        if (load_from(&g, bad[i].text, &p) == WEFT_OK) fail_msg("plan %zu was accepted", i);
        if (sscanf(wf_error(), "plan: %63[^:]:%u: ", path, &line) != 2 || line < 2 || !strstr(wf_error(), bad[i].error))
            fail_msg("%zu: %s", i, wf_error());
        wf_plans_free(&p);
    }
}

static void test_round_trip(void **state)
{
    char path[] = "/tmp/weft-plan-XXXXXX";
    close(mkstemp(path));
    wf_plans p, q;
    assert_ok(wf_plans_overlap(&g, 3, 512, 16, &p));
    p.list[0].lines[2].groups = 5;
    p.list[0].bucket = (wf_bucket){1, 2097152, 7, 1000001, 0.125f, 0.5f};
    assert_ok(wf_plans_save(&p, path));
    assert_ok(wf_plans_load(&g, path, &q));
    assert_int_equal(p.n, q.n);
    for (size_t i = 0; i < p.n; i++) {
        assert_int_equal(p.list[i].n_lines, q.list[i].n_lines);
        assert_memory_equal(&p.list[i].bucket, &q.list[i].bucket, sizeof q.list[i].bucket);
        for (size_t l = 0; l < q.list[i].n_lines; l++)
            q.list[i].lines[l].number = 0; /* those of the file; the built-in plan has none */
        assert_memory_equal(p.list[i].lines, q.list[i].lines, p.list[i].n_lines * sizeof *p.list[i].lines);
    }
    unlink(path);
    wf_plans_free(&p);
    wf_plans_free(&q);
}

/* The built-in nano-batches cover batches of every size, with waits that fit. */
static void test_overlap(void **state)
{
    wf_plans p;
    assert_ok(wf_plans_overlap(&g, 2, 1024, 128, &p));
    assert_ok(wf_plans_finish(&g, &p, 128));
    assert_true(p.n > 4);
    assert_int_equal(p.list[p.n - 1].lines[4].begin.tokens, 0);
    for (uint32_t tokens = 1; tokens <= 1024; tokens++) {
        const wf_plan *plan = &p.list[wf_plans_choose(&p, tokens, 0, 1)];
        assert_true(!plan->bucket.tokens || plan->bucket.tokens >= tokens);
    }
    wf_plans_free(&p);
    assert_ok(wf_plans_overlap(&g, 8, 3, 128, &p)); /* more nano-batches than tokens */
    assert_ok(wf_plans_finish(&g, &p, 128));
    wf_plans_free(&p);
}

/* Pairs compared for the waits of a plan with as many ranges as are allowed, each op of a layer on one of two queues.
 */
static uint64_t compared(int32_t layers, size_t *n_nanos)
{
    wf_graph deep = make_graph_of(layers);
    wf_plans p;
    assert_ok(wf_plans_overlap(&deep, WF_MAX_RANGES, 1024, 1, &p));
    assert_ok(wf_plans_finish(&deep, &p, 128));
    uint64_t n = p.list[p.n - 1].n_compared;
    *n_nanos = p.list[p.n - 1].n_nanos;
    wf_plans_free(&p);
    wf_graph_free(&deep);
    return n;
}

/* Twice the layers are twice the work: nothing is compared with what lies layers before it. */
static void test_work(void **state)
{
    size_t few, many;
    uint64_t short_work = compared(10, &few), long_work = compared(20, &many);
    assert_true(many > few + 9 * 4 * WF_MAX_RANGES);
    assert_true(short_work > 0);
    assert_in_range(long_work, short_work, short_work * 21 / 10);
}

static void test_too_many_ranges(void **state)
{
    wf_plans p;
    char text[16384] = HEAD CUT("qkv") CUT("rope") DECODES PREFILL;
    size_t at = strlen(text);
    for (int i = 0; i <= WF_MAX_RANGES; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "layer out %d-%d queue 0 kernel auto groups 0\n", i, i + 1);
    assert_error(load_from(&g, text, &p), WEFT_ERR_ARG, "more than 64 lines for the op 'out'");
    wf_plans_free(&p);
}

SUITE_EACH(plan, NULL, NULL, set_up, tear_down, CASE(test_sequential), CASE(test_layers_differ),
           CASE(test_buffers_disjoint), CASE(test_two_queues), CASE(test_named_ranges), CASE(test_all_cut_at_decode),
           CASE(test_boundaries), CASE(test_interleaved), CASE(test_buckets),
           CASE(test_collective), CASE(test_bad_plans), CASE(test_errors_name_the_line), CASE(test_round_trip),
           CASE(test_overlap), CASE(test_work), CASE(test_too_many_ranges))
