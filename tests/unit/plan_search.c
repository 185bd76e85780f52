/* plan_search: both programs against brute force, searches on sample profiles, and the measured selection. That
 * what it takes is never slower than the sequential plan, whatever the search believed, is of plan_worlds. */
#include "plan_graph.h"
#include "profile_text.h"

#include "plan/milp.h"
#include "plan/search.h"
#include "plan/stages.h"
#include "support/suite.h"

#include <math.h>

/* ---- random profiles --------------------------------------------------------------------------------------------- */

typedef struct text {
    char s[32768];
    size_t len;
} text;

static void add(text *t, const char *fmt, ...) WF_PRINTF(2, 3);
static void add(text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->len += (size_t)vsnprintf(t->s + t->len, sizeof t->s - t->len, fmt, args);
    va_end(args);
    assert_true(t->len < sizeof t->s);
}

/* Ops of random classes and times, and random tables: in some profiles sharing gains, in others it loses. */
static wf_op_profile random_profile(const char *const *names, size_t n, uint64_t seed)
{
    static const char *const classes[] = {"compute", "memory", "compute", "memory", "network"};
    text t = {0};
    double bend = 0.2 + 1.2 * wf_random_unit(seed, 9999);
    add(&t, "weft-profile 1\ngroups 10\ntile 16\n");
    for (size_t i = 0; i < n; i++) {
        double fixed = 20 * wf_random_unit(seed, 500 + (uint32_t)i), each = 4 * wf_random_unit(seed, 600 + (uint32_t)i);
        add(&t, "op %s %s\n", names[i], classes[wf_random(seed, 700 + i) % WF_LEN(classes)]);
        for (uint32_t tokens = 8; tokens <= 64; tokens *= 2)
            add(&t, "time %s tokens %u share 1 us %.6f spread 0\n", names[i], tokens, fixed + each * tokens + 1);
    }
    for (size_t c = 0; c < 3; c++)
        for (int r = 0; r <= 10; r++)
            add(&t, "together %s share %g rate %.6f spread 0\n", classes[c == 2 ? 4 : c], r / 10.0,
                fmin(1, pow(r / 10.0, bend) *
                            (0.7 + 0.6 * wf_random_unit(seed, 800 + (uint32_t)(c * 16) + (uint32_t)r))));
    return profile_of(t.s);
}

/* ---- brute force ------------------------------------------------------------------------------------------------- */

/* u_b >= u_a + us - rounds * T */
typedef struct edge {
    size_t a, b;
    double us, rounds;
} edge;

enum { MAX_EDGES = 256 };
typedef struct edges {
    edge list[MAX_EDGES];
    size_t n;
} edges;

static void put(edges *e, size_t a, size_t b, double us, double rounds)
{
    assert_true(e->n < MAX_EDGES);
    e->list[e->n++] = (edge){a, b, us, rounds};
}

/* Can all begin so that each round takes T? */
static bool fits(const edges *e, size_t n, double period)
{
    double u[WF_MAX_SLOTS] = {0};
    for (size_t pass = 0; pass <= n; pass++) {
        bool moved = false;
        for (const edge *x = e->list; x < e->list + e->n; x++) {
            double least = u[x->a] + x->us - x->rounds * period;
            if (least > u[x->b] + 1e-9) u[x->b] = least, moved = true;
        }
        if (!moved) return true;
    }
    return false;
}

/* The least T below `limit`, or limit. */
static double least_period(const edges *e, size_t n, double limit)
{
    double low = 0, high = limit;
    if (!fits(e, n, limit)) return limit;
    for (int i = 0; i < 40; i++) *(fits(e, n, (low + high) / 2) ? &high : &low) = (low + high) / 2;
    return high;
}

static void swap(size_t *a, size_t *b)
{
    size_t x = *a;
    *a = *b, *b = x;
}

typedef struct brute {
    const wf_pipeline *p;
    const wf_cut *cut;
    wf_schedule s;
    size_t order[WF_MAX_SLOTS];
    double best;
} brute;

static double us_alone(const brute *b, size_t i)
{
    return wf_slot_us(b->p, &b->s.slots[i], b->cut, 1, true);
}

static uint32_t queue_of(const brute *b, size_t i)
{
    return b->p->blocks[b->s.slots[i].block].queue;
}

/* Is T of this order and these rounds less? */
static void try_order(brute *b)
{
    static edges e;
    e.n = 0;
    for (size_t j = 0; j < b->s.n; j++)
        for (size_t i = 0; i < b->s.n; i++) {
            for (int k = 0; k < 2; k++) {
                int rounds = k + b->s.slots[i].next - b->s.slots[j].next;
                if (!wf_slot_needs(b->p, &b->s.slots[j], &b->s.slots[i], k)) continue;
                if (rounds < 0) return;
                put(&e, i, j, us_alone(b, i), WF_MIN(rounds, 1));
            }
        }
    for (size_t x = 0; x < b->s.n; x++)
        for (size_t y = 0; y < b->s.n; y++)
            if (queue_of(b, b->order[x]) == queue_of(b, b->order[y]))
                put(&e, b->order[x], b->order[y], us_alone(b, b->order[x]), x >= y);
    b->best = least_period(&e, b->s.n, b->best);
}

/* All orders in which queues stand one behind the other. */
static void permute(brute *b, size_t at)
{
    if (at == b->s.n) {
        try_order(b);
        return;
    }
    for (size_t i = at; i < b->s.n; i++) {
        if (queue_of(b, b->order[i]) != queue_of(b, b->order[at])) continue;
        swap(&b->order[at], &b->order[i]);
        permute(b, at + 1);
        swap(&b->order[at], &b->order[i]);
    }
}

static double brute_order(const wf_pipeline *p, const wf_cut *cuts, size_t n_cuts, const wf_split *split)
{
    double best = INFINITY;
    for (size_t c = 0; c < n_cuts; c++) {
        brute b = {.p = p, .cut = &cuts[c], .best = best};
        size_t n = 0;
        wf_schedule_init(p, &cuts[c], split, &b.s);
        for (size_t i = 0; i < b.s.n && isinf(b.best); i++) best = i ? best + us_alone(&b, i) : us_alone(&b, 0);
        b.best = best;
        for (uint32_t q = 0; q < p->n_queues; q++)
            for (size_t i = 0; i < b.s.n; i++)
                if (queue_of(&b, i) == q) b.order[n++] = i;
        for (uint32_t rounds = 0; rounds < 1u << b.s.n; rounds++) {
            bool last = false;
            for (size_t i = 0; i < b.s.n; i++)
                b.s.slots[i].next = rounds >> i & 1, last |= b.s.slots[i].next && b.s.slots[i].block + 1 == p->n_blocks;
            if (!last) permute(&b, 0);
        }
        best = b.best;
    }
    return best;
}

/* qkv, attention of decodes and out: three blocks. */
static wf_op_profile small_profile(uint64_t seed)
{
    static const char *const names[] = {"qkv", "decode_attention", "out"};
    return random_profile(names, WF_LEN(names), seed);
}

static const wf_cut two_cuts[] = {{2, {{0}, {.tokens = 16}, {.end = true}}}, {2, {{0}, {.tokens = 40}, {.end = true}}}};
static const wf_sim_batch decodes = {64, 64, 64};
static const wf_stage_limits enough = {60, 100000};

static void skip_without_cbc(void)
{
    printf("skipped: weft was built without CBC\n");
    skip();
}

/* Of three blocks: each in two parts, and some in one. */
static const wf_split splits[] = {{{2, 2, 2}}, {{1, 2, 2}}, {{2, 1, 2}}, {{2, 2, 1}}, {{1, 2, 1}}, {{2, 1, 1}}};

static void check_order(const wf_pipeline *p, uint64_t seed, const wf_split *split)
{
    wf_schedule s;
    bool found;
    wf_schedule_init(p, &two_cuts[0], split, &s);
    assert_ok(wf_stage_order(p, two_cuts, WF_LEN(two_cuts), &enough, &s, &found));
    double want = brute_order(p, two_cuts, WF_LEN(two_cuts), split);
    if (!found || fabs(s.period - want) > 2e-3 * want)
        fail_msg("seed %d, split %td: %g instead of %g", (int)seed, split - splits, found ? s.period : NAN, want);
}

static void test_order_is_optimal(void **state)
{
    wf_graph g = make_graph();
    if (!wf_milp_available()) skip_without_cbc();
    for (uint64_t seed = 1; seed <= 12; seed++) {
        wf_op_profile profile = small_profile(seed);
        wf_pipeline p;
        assert_ok(wf_pipeline_init(&g, &profile, &decodes, 0, &p));
        assert_int_equal(p.n_blocks, 3);
        check_order(&p, seed, &splits[0]);
        check_order(&p, seed, &splits[1 + seed % (WF_LEN(splits) - 1)]);
        wf_pipeline_free(&p);
        wf_op_profile_free(&profile);
    }
    wf_graph_free(&g);
}

/* Nobody slows another down, whatever its share, but to run the last op twice may cost nearly twice as much. */
static wf_op_profile free_profile(uint64_t seed)
{
    static const char *const names[] = {"qkv", "decode_attention", "out"};
    wf_op_profile p = {.groups = 10, .tile = 16};
    for (uint32_t i = 0; i < 3; i++) {
        double fixed = (i == 2 ? 150 : 30) * wf_random_unit(seed, i), each = 2 * wf_random_unit(seed, 10 + i);
        for (uint32_t tokens = 16; tokens <= 64; tokens += 16)
            assert_ok(wf_op_profile_add_time(&p, names[i], i == 1 ? WF_CLASS_MEMORY : WF_CLASS_COMPUTE,
                                             &(wf_op_time){tokens, 1, fixed + each * tokens, 0, false}));
    }
    for (size_t c = 0; c < WF_N_CLASSES; c++) p.together[c] = (wf_share_table){{{0, 1, 0, false}, {1, 1, 0, false}}, 2};
    return p;
}

/* The least round over all splits of three blocks in at most two parts. */
static double brute_split(const wf_pipeline *p, const wf_cut *cuts, size_t n_cuts, double *uniform)
{
    double best = *uniform = brute_order(p, cuts, n_cuts, NULL);
    for (uint32_t i = 0; i < 8; i++)
        best = fmin(best, brute_order(p, cuts, n_cuts, &(wf_split){{1 + (i & 1), 1 + (i >> 1 & 1), 1 + (i >> 2)}}));
    return best;
}

enum { MANY = 32 };

/* Many layers take as many rounds, and what begins and ends, which is less than two more. Returns whether ops cut
 * differently are the best. */
static bool check_split(const wf_graph *g, uint64_t seed)
{
    static const wf_cut cuts[] = {{2, {{0}, {.tokens = 16}, {.end = true}}},
                                  {2, {{0}, {.tokens = 32}, {.end = true}}},
                                  {2, {{0}, {.tokens = 48}, {.end = true}}}};
    wf_op_profile profile = free_profile(seed);
    wf_search_params params = {.batch = decodes, .max_parts = 2, .seconds = 1000};
    wf_pipeline p;
    wf_search_result r;
    double uniform;
    assert_ok(wf_pipeline_init(g, &profile, &decodes, 0, &p));
    double best = brute_split(&p, cuts, WF_LEN(cuts), &uniform);
    assert_ok(wf_search(g, &profile, &params, &r));
    double us = r.list[0].us / MANY, sequential = r.list[r.n - 1].us / MANY;
    if (us > best * (1 + 2.0 / MANY)) fail_msg("seed %d: %g, %s; the best is %g", (int)seed, us, r.list[0].how, best);
    bool differently = us < 0.99 * fmin(uniform, sequential);
    if (differently) assert_non_null(strstr(r.list[0].how, "1 to 2 nano-batches by op"));
    wf_search_free(&r);
    wf_pipeline_free(&p);
    wf_op_profile_free(&profile);
    return differently;
}

static void test_splits_are_good(void **state)
{
    int differently = 0;
    wf_graph g = make_graph_of(MANY);
    if (!wf_milp_available()) skip_without_cbc();
    for (uint64_t seed = 1; seed <= 24; seed++) differently += check_split(&g, seed);
    printf("%d of 24 are the fastest with ops cut differently\n", differently);
    assert_true(differently > 1);
    wf_graph_free(&g);
}

enum { STEPS = 3 };
typedef struct pair {
    size_t i, j;
} pair;

/* Of a schedule whose order is given: the least T over all shares and, of each pair, i before j, behind it or beside
 * it. */
static double brute_shares(const wf_pipeline *p, const wf_schedule *s)
{
    static edges e;
    pair pairs[16];
    size_t n_pairs = 0, combinations = 1, relations = 1;
    double best = 1e6;
    for (size_t j = 0; j < s->n; j++)
        for (size_t i = 0; i < j; i++)
            if (p->blocks[s->slots[i].block].queue != p->blocks[s->slots[j].block].queue)
                pairs[n_pairs++] = (pair){i, j}, relations *= 3;
    for (size_t i = 0; i < s->n; i++) combinations *= STEPS;
    for (size_t c = 0; c < combinations; c++) {
        double share[WF_MAX_SLOTS], us[WF_MAX_SLOTS];
        for (size_t i = 0, left = c; i < s->n; i++, left /= STEPS) {
            share[i] = (double)(1 + left % STEPS) / STEPS;
            us[i] = wf_slot_us(p, &s->slots[i], &s->cut, share[i], false);
        }
        for (size_t r = 0; r < relations; r++) {
            bool allowed = true;
            e.n = 0;
            for (size_t k = 0, left = r; k < n_pairs && allowed; k++, left /= 3) {
                size_t i = left % 3 ? pairs[k].i : pairs[k].j, j = left % 3 ? pairs[k].j : pairs[k].i;
                if (left % 3 == 2) allowed = share[i] + share[j] <= 1 + 1e-9;
                else put(&e, i, j, us[i], 0), put(&e, j, i, us[j], 1);
            }
            for (size_t j = 0; j < s->n && allowed; j++)
                for (size_t i = 0; i < s->n; i++) {
                    for (int k = 0; k < 2; k++)
                        if (wf_slot_needs(p, &s->slots[j], &s->slots[i], k))
                            put(&e, i, j, us[i], k + s->slots[i].next - s->slots[j].next);
                    if (p->blocks[s->slots[i].block].queue == p->blocks[s->slots[j].block].queue)
                        put(&e, i, j, us[i], i >= j);
                }
            if (allowed) best = least_period(&e, s->n, best);
        }
    }
    return best;
}

static void test_shares_are_optimal(void **state)
{
    static const char *const names[] = {"qkv", "decode_attention"};
    wf_graph g = make_graph();
    int overlapped = 0;
    if (!wf_milp_available()) skip_without_cbc();
    for (uint64_t seed = 1; seed <= 12; seed++) {
        wf_op_profile profile = random_profile(names, WF_LEN(names), seed);
        wf_pipeline p;
        wf_schedule s;
        bool found;
        assert_ok(wf_pipeline_init(&g, &profile, &decodes, 0, &p));
        wf_schedule_init(&p, &two_cuts[0], NULL, &s);
        assert_ok(wf_stage_order(&p, two_cuts, WF_LEN(two_cuts), &enough, &s, &found));
        double want = brute_shares(&p, &s);
        assert_ok(wf_stage_shares(&p, &s, STEPS, &enough, &found));
        if (!found || fabs(s.period - want) > 2e-3 * want)
            fail_msg("seed %d: %g instead of %g", (int)seed, found ? s.period : NAN, want);
        for (size_t i = 0; i < s.n; i++) overlapped += s.slots[i].share < 1;
        wf_pipeline_free(&p);
        wf_op_profile_free(&profile);
    }
    assert_true(overlapped > 0);
    wf_graph_free(&g);
}

/* ---- sample profiles --------------------------------------------------------------------------------------------- */

static int32_t layer_of(wf_graph *g, int32_t l, int32_t x)
{
    int32_t n = act(g, 64), h = act(g, 192), q = act(g, 64), o = act(g, 64), y = act(g, 64), m = act(g, 64),
            w = act(g, 256), v = act(g, 128), z = act(g, 64);
    int32_t k = wf_graph_value(g, (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, WF_F16, 64, 2 * (uint32_t)l});
    node(g, WF_OP_RMSNORM, "attn_norm", l, x, -1, n);
    node(g, WF_OP_GEMM, "qkv", l, n, -1, h);
    int32_t rope = node(g, WF_OP_ROPE_KV, "rope", l, h, -1, q);
    g->nodes[rope].out[1] = WF_ALL(k);
    attention(g, "decode_attention", l, WF_ROWS_DECODE, q, k, o);
    attention(g, "prefill_attention", l, WF_ROWS_PREFILL, q, k, o);
    node(g, WF_OP_GEMM, "attn_out", l, o, x, y);
    node(g, WF_OP_RMSNORM, "ffn_norm", l, y, -1, m);
    node(g, WF_OP_GEMM, "gate_up", l, m, -1, w);
    node(g, WF_OP_SILU_MUL, "silu", l, w, -1, v);
    node(g, WF_OP_GEMM, "down", l, v, y, z);
    return z;
}

/* A model's layers, and nothing around them. */
static wf_graph llama(int32_t layers)
{
    wf_graph g;
    assert_ok(wf_graph_init(&g, layers));
    int32_t x = act(&g, 64);
    node(&g, WF_OP_GET_ROWS, "embed", WF_ONCE, g.inputs[WF_INPUT_TOKEN], -1, x);
    for (int32_t l = 0; l < layers; l++) x = layer_of(&g, l, x);
    node(&g, WF_OP_GEMM, "logits", WF_ONCE, x, -1, act(&g, 10));
    return g;
}

static double simulated(const wf_graph *g, const wf_plan *plan, const wf_op_profile *profile, const wf_sim_batch *b)
{
    wf_plan p = *plan;
    double us = NAN;
    p.nanos = NULL, p.waits = NULL, p.buffers = NULL, p.buffer_of = NULL, p.offset_of = NULL;
    p.n_nanos = p.cap_nanos = p.n_waits = p.cap_waits = p.n_buffers = p.cap_buffers = 0;
    assert_ok(wf_plan_split(g, &p));
    assert_ok(wf_plan_place(g, &p, 64));
    assert_ok(wf_plan_wait(g, &p));
    assert_ok(wf_simulate(g, &p, profile, b, NULL, &us));
    p.lines = NULL;
    wf_plan_free(&p);
    return us;
}

/* Numbers made up near what was measured on an H200: an op's time alone for n tokens, and for each share of the device
 * the part of its rate that it keeps, as a product or decode attention does; ops without shares run alone. */
enum sample { TODAY, STREAMING }; /* kernels that were cut for the whole device, so that side by side they take longer
                                     than one after the other; products that keep their speed in proportion to their
                                     share, and attention that streams with a deep ring of copies */
enum { SHARES = 7, SIZES = 7 };
typedef struct shares {
    double share[SHARES], pace[2][SHARES], together[2][SHARES];
} shares;

static const shares product = {.share = {.9, .8, .7, .6, .5, .25},
                               .pace = {{.81, .76, .69, .6, .51, .25}, {.92, .86, .79, .7, .6, .3}},
                               .together = {{.786, .737, .669, .582, .495, .242},
                                            {.892, .834, .766, .679, .582, .291}}};
static const shares decode = {.share = {.9, .7, .5, .36, .27, .18, .09},
                              .pace = {{.85, .6, .43, .33, .25, .17, .08}, {.98, .92, .88, .84, .75, .62, .34}},
                              .together = {{.807, .57, .408, .314, .237, .162, .076},
                                           {.931, .874, .836, .798, .712, .589, .323}}};

static const uint32_t sample_tokens[SIZES] = {128, 256, 384, 512, 768, 1024, 2048};
static const struct {
    const char *name, *class;
    const shares *shares;
    double us[SIZES];
} sample_ops[] = {{"qkv", "compute", &product, {12.7, 26.5, 38, 48.6, 67.9, 84.8, 165.6}},
                  {"rope", "memory", NULL, {3.8, 4.5, 5.3, 6.1, 7.6, 9.1, 15.3}},
                  {"decode_attention", "memory", &decode, {125.6, 247.2, 368.8, 490.4, 733.6, 976.8, 1949.6}},
                  {"prefill_attention", "compute", &product, {9.8, 13.7, 17.5, 21.4, 29, 36.7, 67.4}},
                  {"attn_out", "compute", &product, {8.5, 17.7, 25.4, 32.6, 45.4, 56.7, 110.9}},
                  {"gate_up", "compute", &product, {59.3, 124, 177.9, 228, 318, 397.2, 776.2}},
                  {"down", "compute", &product, {29.6, 61.9, 88.8, 113.8, 158.7, 198.3, 387.4}},
                  {"attn_norm", "memory", NULL, {2.5, 3, 3.5, 4, 5.1, 6.1, 10.2}},
                  {"ffn_norm", "memory", NULL, {2.5, 3, 3.5, 4, 5.1, 6.1, 10.2}},
                  {"silu", "memory", NULL, {4.5, 6.1, 7.6, 9.1, 12.2, 15.3, 27.6}}};

static void add_together(text *t, const char *class, const shares *s, enum sample name, double whole)
{
    for (int i = SHARES - 1; i >= 0; i--)
        if (s->share[i] > 0)
            add(t, "together %s share %g rate %g spread 0.02\n", class, s->share[i], s->together[name][i]);
    add(t, "together %s share 1 rate %g spread 0.02\n", class, whole);
}

static wf_op_profile load_sample(enum sample name)
{
    text t = {0};
    add(&t, "weft-profile 1\nmodel llama 8B F16\ngroups 132\ntile 128\ncontext 1024\n");
    for (size_t i = 0; i < WF_LEN(sample_ops); i++) {
        const shares *s = sample_ops[i].shares;
        add(&t, "op %s %s\n", sample_ops[i].name, sample_ops[i].class);
        for (int j = -1; j < (s ? SHARES : 0); j++)
            for (int k = 0; k < SIZES && (j < 0 || s->share[j] > 0); k++)
                add(&t, "time %s tokens %u share %g us %.1f spread 0.3\n", sample_ops[i].name, sample_tokens[k],
                    j < 0 ? 1 : s->share[j], sample_ops[i].us[k] / (j < 0 ? 1 : s->pace[name][j]));
    }
    add_together(&t, "compute", &product, name, 1);
    add_together(&t, "memory", &decode, name, 0.95);
    return profile_of(t.s);
}

static const wf_sim_batch load_of_1024 = {1024, 512, 512};

static void search_sample(enum sample name, wf_search_params params, wf_search_result *r)
{
    wf_graph g = llama(8);
    wf_op_profile profile = load_sample(name);
    params.batch = load_of_1024;
    assert_ok(wf_search(&g, &profile, &params, r));
    assert_string_equal(r->list[r->n - 1].how, "sequential");
    for (size_t i = 0; i < r->n; i++) {
        double us = simulated(&g, &r->list[i].plan, &profile, &params.batch);
        printf("sample %d: %.1f us, %s\n", name, us, r->list[i].how);
        assert_true(fabs(us - r->list[i].us) < 1e-6 * us);
        assert_true(i + 1 == r->n || us < r->list[r->n - 1].us);
    }
    wf_op_profile_free(&profile);
    wf_graph_free(&g);
}

static void test_finds_overlap(void **state)
{
    for (int programs = 0; programs < 2; programs++) {
        wf_search_result r;
        search_sample(STREAMING,
                      (wf_search_params){.no_programs = !programs, .max_parts = 2, .nodes = 200, .seconds = 1000}, &r);
        assert_true(r.n > 1 && r.list[0].us < 0.93 * r.list[r.n - 1].us);
        wf_search_free(&r);
    }
}

/* Joules for which the power limit gives no time at all take no plan away, nor do they make one slower. */
static void test_energy_bounds_nothing(void **state)
{
    (void)state;
    wf_search_result r[2];
    wf_graph g = llama(8);
    const wf_search_params params = {.batch = load_of_1024, .no_programs = true, .max_parts = 2, .seconds = 1000};
    for (int limited = 0; limited < 2; limited++) {
        wf_op_profile profile = load_sample(STREAMING);
        if (limited) profile.energy = (wf_energy){.static_power = 100, .power_limit = 101, .flop = 1e-12, .byte = 1e-3};
        assert_ok(wf_search(&g, &profile, &params, &r[limited]));
        wf_op_profile_free(&profile);
    }
    assert_int_equal(r[0].n, r[1].n);
    assert_true(r[1].n > 1 && r[1].list[0].us == r[0].list[0].us);
    for (size_t i = 0; i + 1 < r[1].n; i++)
        assert_true(r[1].list[i].rank > r[1].list[i].us && r[1].list[i].us < r[1].list[r[1].n - 1].us);
    wf_search_free(&r[0]);
    wf_search_free(&r[1]);
    wf_graph_free(&g);
}

static void test_chooses_sequential(void **state)
{
    wf_search_result r;
    search_sample(TODAY, (wf_search_params){.max_parts = 2, .nodes = 100, .seconds = 1000}, &r);
    assert_int_equal(r.n, 1);
    wf_search_free(&r);
}

static void test_is_deterministic(void **state)
{
    wf_search_result a, b;
    wf_search_params params = {.max_parts = 2, .nodes = 50, .seconds = 1000};
    search_sample(STREAMING, params, &a);
    search_sample(STREAMING, params, &b);
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < a.n; i++) {
        char *one, *two;
        size_t len;
        FILE *f = open_memstream(&one, &len), *h = open_memstream(&two, &len);
        wf_plan_print(&a.list[i].plan, f), wf_plan_print(&b.list[i].plan, h);
        fclose(f), fclose(h);
        assert_string_equal(one, two);
        free(one), free(two);
    }
    wf_search_free(&a);
    wf_search_free(&b);
}

static void test_writes_plans(void **state)
{
    wf_search_result r;
    wf_plans p;
    char path[] = "/tmp/weft-found-XXXXXX";
    wf_graph g = llama(8);
    close(mkstemp(path));
    search_sample(STREAMING, (wf_search_params){.no_programs = true}, &r);
    assert_ok(wf_found_save(&g, &r.list[0], &load_of_1024, path));
    if (wf_plans_load(&g, path, &p) != WEFT_OK || wf_plans_finish(&g, &p, 64) != WEFT_OK) fail_msg("%s", wf_error());
    assert_int_equal(p.n, 2);
    assert_int_equal(wf_plans_choose(&p, 512, 256, 1024), 1);
    assert_int_equal(wf_plans_choose(&p, 513, 256, 1024), 0);
    assert_int_equal(wf_plans_choose(&p, 1024, 256, 1024), 0);
    assert_int_equal(wf_plans_choose(&p, 1025, 256, 1024), 1);
    assert_true(p.list[0].n_lines > p.list[1].n_lines);
    unlink(path);
    wf_plans_free(&p);
    wf_search_free(&r);
    wf_graph_free(&g);
}

static bool stop_at_once(void *user)
{
    ++*(int *)user;
    return true;
}

static void test_stops(void **state)
{
    int asked = 0;
    wf_search_result r;
    search_sample(STREAMING, (wf_search_params){.stop = stop_at_once, .user = &asked}, &r);
    assert_int_equal(asked, 1);
    assert_true(r.cut_short);
    assert_int_equal(r.n, 1);
    wf_search_free(&r);
}

static void test_refuses(void **state)
{
    wf_search_result r;
    wf_graph g = llama(2);
    wf_op_profile other = profile_of(
        "weft-profile 1\nop nothing compute\ntime nothing tokens 1 share 1 us 1 spread 0\n");
    assert_int_equal(wf_search(&g, &other, &(wf_search_params){.batch = load_of_1024}, &r), WEFT_ERR_ARG);
    assert_says("no time of any op");
    wf_search_free(&r);
    assert_int_equal(wf_search(&g, &other, &(wf_search_params){.batch = {4, 5, 4}}, &r), WEFT_ERR_ARG);
    wf_search_free(&r);
    wf_op_profile_free(&other);
    wf_graph_free(&g);
}

/* ---- never slower ------------------------------------------------------------------------------------------------ */

/* Plans that fail, and a sequential plan that does. */
static double listed(void *user, const wf_plan *plan)
{
    return ((const double *)user)[plan->tile];
}

static void test_selection(void **state)
{
    static const struct {
        double us[3];
        size_t want;
    } cases[] = {{{90, 80, 100}, 1},   {{100, 120, 100}, 2}, {{99.5, 100, 100}, 2}, {{NAN, 95, 100}, 1},
                 {{NAN, NAN, 100}, 2}, {{90, 80, NAN}, 1},   {{NAN, NAN, NAN}, 2}};
    wf_search_result r = {.n = 3};
    for (uint32_t i = 0; i < 3; i++) r.list[i].plan.tile = i;
    for (size_t i = 0; i < WF_LEN(cases); i++)
        assert_int_equal(wf_fastest(&r, 0.01, listed, (void *)cases[i].us), cases[i].want);
}

SUITE(plan_search, NULL, NULL, CASE(test_order_is_optimal), CASE(test_splits_are_good), CASE(test_shares_are_optimal),
      CASE(test_finds_overlap), CASE(test_energy_bounds_nothing), CASE(test_chooses_sequential),
      CASE(test_is_deterministic), CASE(test_writes_plans), CASE(test_stops), CASE(test_refuses), CASE(test_selection))
