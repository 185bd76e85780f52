/* plan_simulate: simulated plans against times computed by hand, and, where nothing interferes, against the clock of
 * the null device, which knows queues and events only. */
#include "plan_graph.h"
#include "plan_null.h"
#include "plan_writer.h"
#include "profile_text.h"
#include "support/suite.h"

#include <math.h>

#define ONCE                                                                                                           \
    "once upload 0-end queue 0 kernel auto groups 0\n"                                                                 \
    "once token_subst 0-end queue 0 kernel auto groups 0\nonce embed 0-end queue 0 kernel auto groups 0\n"
#define BEHIND                                                                                                         \
    "once logits 0-end queue 0 kernel auto groups 0\nonce argmax 0-end queue 0 kernel auto groups 0\nonce sample "     \
    "0-end queue 0 kernel auto groups 0\n"                                                                             \
    "once download 0-end queue 0 kernel auto groups 0\nonce download_logits 0-end queue 0 kernel auto groups 0\n"
#define L(op, range, queue, groups) "layer " op " " range " queue " #queue " kernel auto groups " #groups "\n"

/* Ops by tokens, P = R but for memory. */
#define PROFILE                                                                                                        \
    "weft-profile 1\ngroups 100\ntile 128\n"                                                                           \
    "op qkv compute\ntime qkv tokens 128 share 1 us 100 spread 0\ntime qkv tokens 256 share 1 us 150 spread 0\n"       \
    "op decode_attention memory\ntime decode_attention tokens 128 share 1 us 80 spread 0\n"                            \
    "op prefill_attention compute\ntime prefill_attention tokens 128 share 1 us 40 spread 0\n"                         \
    "op out compute\ntime out tokens 128 share 1 us 60 spread 0\ntime out tokens 256 share 1 us 100 spread 0\n"        \
    "together memory share 0.3 rate 0.5 spread 0\ntogether memory share 1 rate 1 spread 0\n"

static const wf_sim_batch half = {256, 128, 256};

static double simulated(const wf_graph *g, const char *text, const char *profile, wf_sim_span *spans)
{
    wf_plans p;
    wf_op_profile times = profile_of(profile);
    double us;
    assert_ok(load_from(g, text, &p));
    assert_ok(wf_simulate(g, &p.list[0], &times, &half, spans, &us));
    wf_plans_free(&p);
    wf_op_profile_free(&times);
    return us;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-6) fail_msg("%.9g instead of %.9g", got, want);
}

static void test_sequential(void **state)
{
    for (int32_t layers = 1; layers <= 3; layers += 2) {
        wf_graph g = make_graph_of(layers);
        near(simulated(&g,
                       "weft-plan 2\n" ONCE L("qkv", "0-end", 0, 0) L("rope", "0-end", 0, 0)
                           L("decode_attention", "0-end", 0, 0) L("prefill_attention", "0-end", 0, 0)
                               L("out", "0-end", 0, 0) BEHIND,
                       PROFILE, NULL),
             layers * (150 + 80 + 40 + 100.0));
        wf_graph_free(&g);
    }
}

#define OVERLAP                                                                                                        \
    "weft-plan 2\nqueues 2\n" ONCE L("qkv", "0-decode", 0, 0) L("rope", "0-decode", 0, 0)                              \
        L("decode_attention", "0-end", 1, 30) L("qkv", "prefill-end", 0, 70) L("rope", "prefill-end", 0, 0)            \
            L("prefill_attention", "0-end", 0, 70) L("out", "0-end", 0, 0) BEHIND

/* QKV of the decodes alone until 100. Then attention at half its rate until 260, beside QKV of the rest at 0.7 until
 * 242.86 and prefill attention at 0.7 until 300, the last 40 of them alone but still limited; then the product with the
 * whole device. */
static void test_shares(void **state)
{
    wf_sim_span spans[64] = {0};
    wf_graph g = make_graph_of(1);
    near(simulated(&g, OVERLAP, PROFILE, spans), 400);
    near(spans[3].end, 100);
    near(spans[5].begin, 100);
    near(spans[5].end, 260);
    near(spans[6].end, 100 + 100 / 0.7);
    near(spans[8].end, 300);
    near(spans[9].begin, 300);
    wf_graph_free(&g);
}

/* What a device may draw bounds no plan. The joules of all ops need twice as long with half the watts for them. */
static void test_power_limit(void **state)
{
    static const char *const powers[] = {"power idle 0 static 50 limit 52 flop 1e6 byte 1e6\n",
                                         "power idle 0 static 50 limit 51 flop 1e6 byte 1e6\n",
                                         "power idle 0 static 50 limit 0 flop 1e6 byte 1e6\n" /* unknown */};
    wf_graph g = make_graph_of(1);
    double free_us = simulated(&g, OVERLAP, PROFILE, NULL), us[WF_LEN(powers)];
    for (size_t i = 0; i < WF_LEN(powers); i++) {
        char text[2048];
        wf_plans p;
        snprintf(text, sizeof text, "%s%s", PROFILE, powers[i]);
        near(simulated(&g, OVERLAP, text, NULL), free_us);
        wf_op_profile times = profile_of(text);
        assert_ok(load_from(&g, OVERLAP, &p));
        us[i] = wf_simulate_energy(&g, &p.list[0], &times, &half);
        wf_plans_free(&p);
        wf_op_profile_free(&times);
    }
    assert_true(us[0] > free_us && fabs(us[1] / us[0] - 2) < 1e-9 && us[2] == 0);
    wf_graph_free(&g);
}

/* Without limits the shares are 1 and 1: each gets half, and runs at half its rate, although memory alone would have
 * more for it. Attention would take 160 beside a product; the products end at 100 + 200 and 100 + 200 - 40 + ..., so:
 * QKV 100 to 260 beside attention, and 20 more alone. */
static void test_no_limits(void **state)
{
    wf_graph g = make_graph_of(1);
    near(simulated(&g,
                   "weft-plan 2\nqueues 2\n" ONCE L("qkv", "0-decode", 0, 0) L("rope", "0-decode", 0, 0)
                       L("decode_attention", "0-end", 1, 0) L("qkv", "prefill-end", 0, 0) L("rope", "prefill-end", 0, 0)
                           L("prefill_attention", "0-end", 0, 0) L("out", "0-end", 0, 0) BEHIND,
                   PROFILE, NULL),
         100 + 160 + 20 + 40 + 100);
    wf_graph_free(&g);
}

/* ---- the null device's clock ------------------------------------------------------------------------------------- */

static uint64_t full_rate_ns(const void *profile, const wf_node *node, uint32_t rows, uint32_t groups)
{
    return (uint64_t)(wf_op_us(wf_op_profile_find(profile, node->name), rows) * 1000 + 0.5);
}

/* A hundredth of the device each, at the full rate. */
#define FREE                                                                                                           \
    "weft-profile 1\ngroups 100\ntile 8\ntogether compute share 0 rate 1 spread 0\ntogether memory share 0 rate 1 "    \
    "spread 0\n"                                                                                                       \
    "op qkv compute\ntime qkv tokens 8 share 1 us 16 spread 0\nop rope memory\ntime rope tokens 16 share 1 us 8 "      \
    "spread 0\n"                                                                                                       \
    "op decode_attention memory\ntime decode_attention tokens 1 share 1 us 3 spread 0\nop prefill_attention compute\n" \
    "time prefill_attention tokens 8 share 1 us 24 spread 0\nop out compute\ntime out tokens 32 share 1 us 40 spread " \
    "0\n"                                                                                                              \
    "op embed memory\ntime embed tokens 4 share 1 us 4 spread 0\nop logits compute\ntime logits tokens 8 share 1 us "  \
    "64 spread 0\n"

static const char *const once_behind[] = {"logits", "argmax", "sample", "download", "download_logits"};

static void test_null_device(void **state)
{
    static writer w;
    wf_graph g = make_graph();
    wf_op_profile profile = profile_of(FREE);
    int compared = 0;
    for (int i = 0; i < rounds(400); i++) {
        wf_plans p;
        write_plan(&w, once_behind, WF_LEN(once_behind));
        if (load_from(&g, w.text, &p) == WEFT_OK && p.list[0].n_nanos <= 90u * WF_MAX_QUEUES) {
            wf_plan *plan = &p.list[0];
            wf_sim_batch b = {.tokens = 1 + draw(100), .logits = 1 + draw(100)};
            double us;
            b.decodes = draw(b.tokens + 1);
            for (size_t n = 0; n < plan->n_nanos; n++) plan->nanos[n].groups = 1;
            assert_ok(wf_simulate(&g, plan, &profile, &b, NULL, &us));
            double want = (double)null_time(&(null_clock){full_rate_ns, NULL, &profile}, &g, plan, &b) / 1000;
            if (fabs(us - want) > 0.5 + 1e-6 * want) fail_msg("%.3f us, the null device %.3f\n%s", us, want, w.text);
            compared++;
        }
        wf_plans_free(&p);
    }
    assert_true(compared > rounds(400) / 4);
    wf_op_profile_free(&profile);
    wf_graph_free(&g);
}

SUITE(plan_simulate, seed_from_environment, NULL, CASE(test_sequential), CASE(test_shares), CASE(test_power_limit),
      CASE(test_no_limits), CASE(test_null_device))
