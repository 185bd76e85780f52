/* plan: a small graph by hand; slots, splitting and waits are what the rules say. */
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define LAYERS 3

static int32_t act(wf_graph *g, uint32_t cols)
{
    return wf_graph_value(g, (wf_value){WF_VALUE_ACT, WF_ROWS_BATCH, WF_F32, cols, 0});
}

static int32_t node(wf_graph *g, enum wf_op op, const char *name, int32_t layer, int32_t in, int32_t residual, int32_t out)
{
    wf_node n = {.op = op, .layer = layer, .rows = WF_ROWS_BATCH};
    snprintf(n.name, sizeof n.name, "%s", name);
    for (int i = 0; i < WF_MAX_IN; i++) n.in[i] = WF_NONE;
    for (int i = 0; i < WF_MAX_OUT; i++) n.out[i] = WF_NONE;
    n.in[0] = WF_ALL(in);
    n.in[3] = WF_ALL(residual);
    n.out[0] = WF_ALL(out);
    return wf_graph_node(g, &n);
}

/* x -> (a: norm, b: attention over keys that rope wrote, c: GEMM + residual x) per layer */
static wf_graph make_graph(void)
{
    wf_graph g;
    assert_int_equal(wf_graph_init(&g, LAYERS), WEFT_OK);
    int32_t x = act(&g, 64);
    node(&g, WF_OP_GET_ROWS, "embed", WF_ONCE, g.inputs[WF_INPUT_TOKEN], -1, x);
    for (int32_t l = 0; l < LAYERS; l++) {
        int32_t h = act(&g, 192), q = act(&g, 64), o = act(&g, 64), y = act(&g, 64);
        int32_t k = wf_graph_value(&g, (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, WF_F16, 64, 2 * (uint32_t)l});
        node(&g, WF_OP_GEMM, "qkv", l, x, -1, h);
        int32_t rope = node(&g, WF_OP_ROPE_KV, "rope", l, h, -1, q);
        g.nodes[rope].out[1] = WF_ALL(k);
        int32_t at = node(&g, WF_OP_ATTENTION, "attention", l, q, -1, o);
        g.nodes[at].in[1] = WF_ALL(k);
        node(&g, WF_OP_GEMM, "out", l, o, x, y);
        x = y;
    }
    int32_t z = act(&g, 10);
    node(&g, WF_OP_GEMM, "logits", WF_ONCE, x, -1, z);
    g.logits = z;
    return g;
}

static void finish_plan(const wf_graph *g, wf_plan *p)
{
    assert_int_equal(wf_plan_place(g, p, 128), WEFT_OK);
    assert_int_equal(wf_plan_split(g, p), WEFT_OK);
}

static void test_sequential(void **state)
{
    (void)state;
    wf_graph g = make_graph();
    wf_plan p;
    assert_int_equal(wf_plan_sequential(&g, &p), WEFT_OK);
    assert_int_equal(p.n_lines, 6);
    finish_plan(&g, &p);
    assert_int_equal(p.n_nanos, g.n_nodes);
    assert_int_equal(p.n_waits, 0);
    /* The residual stream stays in its slot, and the layers reuse the rest. */
    assert_int_equal(p.n_slots, 3);
    wf_plan_free(&p);
    wf_graph_free(&g);
}

/* Values that live at the same time never share a slot, except a residual handed on in place. */
static void test_slots_disjoint(void **state)
{
    (void)state;
    wf_graph g = make_graph();
    wf_plan p = {0};
    assert_int_equal(wf_plan_place(&g, &p, 128), WEFT_OK);
    int32_t *owner = calloc(p.n_slots, sizeof *owner);
    for (size_t i = 0; i < p.n_slots; i++) owner[i] = -1;
    for (size_t n = 0; n < g.n_nodes; n++) {
        for (int i = 0; i < WF_MAX_IN; i++) {
            int32_t v = g.nodes[n].in[i].value;
            if (v >= 0 && p.slot_of[v] >= 0) assert_int_equal(owner[p.slot_of[v]], v);
        }
        for (int i = 0; i < WF_MAX_OUT; i++) {
            int32_t v = g.nodes[n].out[i].value;
            if (v < 0 || p.slot_of[v] < 0) continue;
            owner[p.slot_of[v]] = v;
            assert_true(p.slots[p.slot_of[v]].pitch >= g.values[v].cols * 4);
        }
    }
    free(owner);
    wf_plan_free(&p);
    wf_graph_free(&g);
}

static wf_plan load_text(const wf_graph *g, const char *text, weft_status want)
{
    char path[] = "/tmp/weft-plan-XXXXXX";
    wf_plan p;
    FILE *f = fdopen(mkstemp(path), "w");
    fputs(text, f);
    fclose(f);
    weft_status s = wf_plan_load(g, path, &p);
    unlink(path);
    if (s == WEFT_OK) s = wf_plan_place(g, &p, 128);
    if (s == WEFT_OK) s = wf_plan_split(g, &p);
    if (s != want) print_message("%s\n", wf_error());
    assert_int_equal(s, want);
    return p;
}

#define HEAD "weft-plan 1\nqueues 2\nonce embed 0/1 queue 0 kernel auto groups 0\n"
#define TAIL "once logits 0/1 queue 0 kernel auto groups 0\n"
#define LINE(op, part, q) "layer " op " " part " queue " q " kernel auto groups 0\n"
#define HALVES(op) LINE(op, "0/2", "0") LINE(op, "1/2", "1")

static bool waits_for(const wf_plan *p, size_t i, size_t on)
{
    for (uint32_t w = 0; w < p->nanos[i].n_waits; w++)
        if (p->waits[p->nanos[i].wait + w] == on) return true;
    return false;
}

static size_t find_nano(const wf_graph *g, const wf_plan *p, int32_t layer, const char *name, uint32_t part)
{
    for (size_t i = 0; i < p->n_nanos; i++) {
        const wf_node *n = &g->nodes[p->nanos[i].node];
        if (n->layer == layer && !strcmp(n->name, name) && p->nanos[i].part == part) return i;
    }
    fail_msg("no nano-op %s", name);
    return 0;
}

static void test_two_queues(void **state)
{
    (void)state;
    wf_graph g = make_graph();
    wf_plan p = load_text(&g, HEAD HALVES("qkv") HALVES("rope") HALVES("attention") HALVES("out") TAIL, WEFT_OK);
    assert_int_equal(p.n_nanos, 2 + LAYERS * 8);
    /* Halves are independent, except that the second half's attention reads keys of the first half's rows. */
    assert_true(waits_for(&p, find_nano(&g, &p, 1, "attention", 1), find_nano(&g, &p, 1, "rope", 0)));
    assert_int_equal(p.nanos[find_nano(&g, &p, 1, "attention", 0)].n_waits, 0);
    assert_int_equal(p.nanos[find_nano(&g, &p, 1, "qkv", 1)].n_waits, 0);
    assert_true(waits_for(&p, find_nano(&g, &p, 0, "qkv", 1), find_nano(&g, &p, WF_ONCE, "embed", 0)));
    assert_true(waits_for(&p, find_nano(&g, &p, WF_ONCE, "logits", 0), find_nano(&g, &p, 2, "out", 1)));
    wf_plan_free(&p);
    wf_graph_free(&g);
}

static void test_bad_plans(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "weft-plan 2\n", HEAD TAIL, HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/2", "0") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") HALVES("out") LINE("out", "0/2", "0") TAIL,
        HEAD HALVES("rope") HALVES("qkv") HALVES("attention") HALVES("out") TAIL, /* wrong order */
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/1", "2") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/1", "-1") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "1/1", "0") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/99", "0") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("oat", "0/1", "0") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/1", "4294967296") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") LINE("out", "0/4294967297", "0") TAIL,
        HEAD HALVES("qkv") HALVES("rope") HALVES("attention") "layer out 0/1 queue 0 kernel auto groups -1\n" TAIL,
        "weft-plan 1\nqueues 99\n", "weft-plan 1\nonce embed\n",
    };
    wf_graph g = make_graph();
    for (size_t i = 0; i < WF_LEN(bad); i++) {
        char path[] = "/tmp/weft-plan-XXXXXX";
        FILE *f = fdopen(mkstemp(path), "w");
        fputs(bad[i], f);
        fclose(f);
        wf_plan p;
        weft_status s = wf_plan_load(&g, path, &p);
        if (s == WEFT_OK) s = wf_plan_place(&g, &p, 128);
        if (s == WEFT_OK) s = wf_plan_split(&g, &p);
        if (s == WEFT_OK) fail_msg("plan %zu was accepted", i);
        assert_true(strlen(wf_error()) > 0);
        wf_plan_free(&p);
        unlink(path);
    }
    wf_graph_free(&g);
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-plan-XXXXXX";
    close(mkstemp(path));
    wf_graph g = make_graph();
    wf_plan p, q;
    assert_int_equal(wf_plan_sequential(&g, &p), WEFT_OK);
    p.lines[2].groups = 5;
    assert_int_equal(wf_plan_save(&p, path), WEFT_OK);
    assert_int_equal(wf_plan_load(&g, path, &q), WEFT_OK);
    assert_int_equal(p.n_lines, q.n_lines);
    assert_memory_equal(p.lines, q.lines, p.n_lines * sizeof *p.lines);
    unlink(path);
    wf_plan_free(&p);
    wf_plan_free(&q);
    wf_graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequential), cmocka_unit_test(test_slots_disjoint), cmocka_unit_test(test_two_queues),
        cmocka_unit_test(test_bad_plans),  cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
