/* kv_layout: which layers share page tables, for models as they are and for random ones. */
#include "kv/layout.h"
#include "support/suite.h"

enum { LAYERS = 64 };

/* Every layer has a place of its own in a table whose window is as long as its own, and no sequence takes more memory
 * than with one table. */
static void check(const wf_kv_layout *l, const wf_kv_window *windows, uint32_t n, const wf_kv_growth *g)
{
    bool taken[WF_MAX_KV_TABLES * LAYERS] = {false};
    wf_kv_layout one = {.tables = {windows[0]}};
    assert_true(l->n_tables <= WF_MAX_KV_TABLES && l->n_tables * l->n_slots >= n && (l->n_tables == 1) == !l->rank);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t table = wf_kv_table(l, i), slot = wf_kv_slot(l, i);
        wf_kv_window t = l->tables[table], w = windows[i];
        assert_true(table < l->n_tables && slot < l->n_slots && !taken[table * l->n_slots + slot]);
        taken[table * l->n_slots + slot] = true;
        assert_true(!t.window || (w.window && w.window <= t.window));
        assert_true(w.sink <= t.sink);
        one.tables[0] = (wf_kv_window){w.window && one.tables[0].window ? WF_MAX(w.window, one.tables[0].window) : 0,
                                       WF_MAX(w.sink, one.tables[0].sink)};
    }
    uint64_t most = (uint64_t)n * wf_kv_layout_pages(&one, g), takes = (uint64_t)l->n_slots * wf_kv_layout_pages(l, g);
    assert_true(l->n_tables == 1 ? takes == most : takes <= most - most / 16);
    for (uint32_t i = 0; i < l->n_slots; i++) assert_true(taken[i]); /* the first table has a layer in each slot */
}

static wf_kv_layout choose(const wf_kv_window *windows, uint32_t n, const wf_kv_growth *g)
{
    wf_kv_layout l;
    assert_ok(wf_kv_layout_choose(windows, n, g, &l));
    check(&l, windows, n, g);
    return l;
}

/* Every so many layers one attends to all keys, as in Gemma 2 and 3, gpt-oss, OLMo 3. */
static wf_kv_layout of_period(uint32_t n, uint32_t period, uint32_t window, uint32_t context)
{
    wf_kv_window windows[LAYERS] = {{0}};
    const wf_kv_growth g = {16, 512, context / 16};
    for (uint32_t i = 0; i < n; i++) windows[i].window = (i + 1) % period ? window : 0;
    return choose(windows, n, &g);
}

static void expect(wf_kv_layout l, uint32_t tables, uint32_t slots)
{
    assert_int_equal(l.n_tables, tables);
    assert_int_equal(l.n_slots, slots);
    for (uint32_t t = 0; t < tables && tables > 1; t++) assert_int_equal(!l.tables[t].window, !t);
    wf_kv_layout_free(&l);
}

static void models(void **state)
{
    expect(of_period(26, 6, 512, 32768), 7, 4);    /* Gemma 3 1B */
    expect(of_period(34, 6, 1024, 131072), 7, 5);  /* 4B */
    expect(of_period(48, 6, 1024, 131072), 6, 8);  /* 12B */
    expect(of_period(62, 6, 1024, 131072), 7, 10); /* 27B */
    expect(of_period(26, 2, 4096, 8192), 2, 13);   /* Gemma 2 2B */
    expect(of_period(24, 2, 128, 131072), 2, 12);  /* gpt-oss 20B */
    expect(of_period(64, 4, 4096, 65536), 4, 16);  /* OLMo 3 32B */
    expect(of_period(32, 32, 0, 4096), 1, 32);     /* Llama: all keys */
    expect(of_period(26, 2, 4096, 4096), 1, 26);   /* no sequence is longer than the window */
}

/* Where all layers have one window, they share a table. */
static void one_window(void **state)
{
    const wf_kv_growth g = {16, 512, 4096};
    wf_kv_window windows[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) windows[i] = (wf_kv_window){4096, 3};
    wf_kv_layout l = choose(windows, 32, &g);
    assert_int_equal(l.n_tables, 1);
    assert_true(l.tables[0].window == 4096 && l.tables[0].sink == 3);
    wf_kv_layout_free(&l);
}

static void random_windows(void **state)
{
    uint32_t several = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        const wf_kv_growth g = {1u << wf_random(seed, 0) % 6, 1 + wf_random(seed, 1) % 600,
                                1 + wf_random(seed, 2) % 4000};
        uint32_t n = 1 + wf_random(seed, 3) % LAYERS, kinds = 1 + wf_random(seed, 4) % 10;
        wf_kv_window windows[LAYERS];
        for (uint32_t i = 0; i < n; i++) {
            uint64_t kind = wf_random(seed, 100 + i) % kinds;
            windows[i].window = kind || seed % 2 ? 1 + (uint32_t)(wf_random(seed, 10 + kind) % 5000) : 0;
            windows[i].sink = seed % 3 ? 0 : (uint32_t)(wf_random(seed, 30 + kind) % 100);
        }
        wf_kv_layout l = choose(windows, n, &g);
        several += l.n_tables > 1;
        wf_kv_layout_free(&l);
    }
    assert_in_range(several, 500, 1999);
}

SUITE(kv_layout, NULL, NULL, CASE(models), CASE(one_window), CASE(random_windows))
