/* cache_size: how large a server's KV cache is by default, and how many sequences it is for. On devices that are only
 * described, expected values come from the models' shapes; on the null device engines take what it has, and less where
 * it has less than it says. */
#include "support/null_device.h"
#include "lab/lab.h"
#include "support/demo.h"
#include "support/said.h"

#define GIB (1ull << 30)
enum { CONTEXT = 512, LEAST = 64, MOST = 256, SHARED_CONTEXTS = 8 };

/* ---- devices by their numbers ------------------------------------------------------------------------------------ */

static struct weft_model *model_of(const char *shape, const char *type)
{
    struct weft_model *m = NULL;
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = shape, .type = type}, &m));
    return m;
}

static struct weft_budget budget_of(const struct weft_model *m, const struct weft_device_info *d,
                                    const struct weft_engine_params *p)
{
    struct weft_budget b;
    assert_ok(weft_device_budget(m, p, d, &b));
    return b;
}

static struct weft_device_info card(uint64_t memory, uint64_t free, uint64_t max_alloc)
{
    return (struct weft_device_info){.id = "opencl:0.0", .name = "a card", .type = WEFT_DEVICE_GPU,
                                     .own_memory = memory, .memory = memory, .available = free, .max_alloc = max_alloc};
}

/* bytes: of a token in the KV cache; full: the sequences cannot use more. */
static const struct {
    const char *shape, *type;
    uint64_t memory, free, max_alloc, bytes;
    float part;
    bool full;
} cards[] = {
    {"llama3-8b", "Q4_K_M", 8 * GIB, 0, 2 * GIB, 32 * 2 * 2 * 1024, 0.9f, false},
    {"llama3-8b", "F16", 24 * GIB, 0, 6 * GIB, 32 * 2 * 2 * 1024, 0.9f, false},
    {"llama3-8b", "F16", 24 * GIB, 20 * GIB, 24 * GIB, 32 * 2 * 2 * 1024, 0.9f, false},
    {"llama3-8b", "F16", 141 * GIB, 0, 141 * GIB / 4, 32 * 2 * 2 * 1024, 0.9f, false},
    {"llama3-8b", "F16", 141 * GIB, 0, 4 * GIB, 32 * 2 * 2 * 1024, 0.5f, false},
    {"llama2-13b", "F16", 80 * GIB, 0, 80 * GIB, 40 * 2 * 2 * 5120, 0.9f, false},
    {"llama-1.1b", "F16", 141 * GIB, 0, 35 * GIB, 22 * 2 * 2 * 256, 0.9f, true},
};

/* B = (M_G - M_S) / (L m_kv), less the activations; tables of positions and pages take less than a context. */
static void caches_are_what_cards_leave(void **state)
{
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct weft_model *m = model_of(cards[i].shape, cards[i].type);
        struct weft_device_info d = card(cards[i].memory, cards[i].free, cards[i].max_alloc);
        struct weft_budget b = budget_of(m, &d, &(struct weft_engine_params){.memory_utilization = cards[i].part});
        uint64_t may = (uint64_t)((double)(d.available ? d.available : d.memory) * (double)cards[i].part),
                 each = cards[i].bytes * b.context;
        uint64_t contexts = (may - b.weights - b.activations) / each, taken = b.weights + b.activations + b.kv;
        assert_int_equal(b.kv_bytes_per_token, cards[i].bytes);
        assert_true(taken <= may);
        assert_int_equal(b.n_seqs, cards[i].full ? MOST : b.contexts > LEAST ? b.contexts : LEAST);
        if (cards[i].full) assert_int_equal(b.contexts, MOST);
        else assert_in_range(b.contexts, contexts - 1, contexts);
        if (b.contexts < LEAST) assert_true(taken + each / 4 > may); /* also the part of a context that is left */
        weft_model_close(m);
    }
}

/* What the memory does not hold beside one context is left to the message of who allocates it. */
static void one_context_stays(void **state)
{
    struct weft_model *m = model_of("llama3-8b", "F16");
    struct weft_device_info d = card(8 * GIB, 0, 2 * GIB);
    struct weft_budget b = budget_of(m, &d, &(struct weft_engine_params){.memory_utilization = 0.9f});
    assert_int_equal(b.contexts, 1);
    assert_int_equal(b.n_seqs, LEAST);
    assert_true(b.weights > d.memory);
    weft_model_close(m);
}

static void shared_memory_is_left_to_others(void **state)
{
    struct weft_model *m = model_of("llama3-8b", "Q4_K_M");
    struct weft_device_info d = card(141 * GIB, 0, 35 * GIB);
    struct weft_engine_params p = {.memory_utilization = 0.9f};
    d.own_memory = 0;
    struct weft_budget b = budget_of(m, &d, &p), any;
    assert_int_equal(b.contexts, SHARED_CONTEXTS);
    assert_int_equal(b.n_seqs, LEAST);
    assert_ok(weft_model_budget(m, &p, &any));
    assert_int_equal(any.contexts, SHARED_CONTEXTS);
    weft_model_close(m);
}

/* Numbers that were given stay, and sequences get no more than their contexts. */
static void what_was_given_stays(void **state)
{
    struct weft_model *m = model_of("llama3-8b", "F16");
    struct weft_device_info d = card(141 * GIB, 0, 35 * GIB);
    struct weft_budget b = budget_of(m, &d,
                                     &(struct weft_engine_params){.memory_utilization = 0.9f, .kv_memory = 45 * GIB});
    assert_int_equal(b.kv, 45 * GIB);
    assert_int_equal(b.n_seqs, 90);
    b = budget_of(m, &d, &(struct weft_engine_params){.memory_utilization = 0.9f, .n_seqs = 5});
    assert_int_equal(b.n_seqs, 5);
    assert_int_equal(b.contexts, 5);
    b = budget_of(m, &d, &(struct weft_engine_params){.memory_utilization = 0.9f, .kv_seqs = 3});
    assert_int_equal(b.contexts, 3);
    b = budget_of(m, &d, &(struct weft_engine_params){.n_seqs = 2});
    assert_int_equal(b.contexts, 2);
    b = budget_of(m, &d, &(struct weft_engine_params){0});
    assert_int_equal(b.n_seqs, 1);
    b = budget_of(m, &d, &(struct weft_engine_params){.memory_utilization = 0.9f, .max_batched_tokens = 100});
    assert_int_equal(b.n_seqs, 100); /* each has a token in a step */
    assert_int_equal(weft_device_budget(m, &(struct weft_engine_params){.memory_utilization = 1.5f}, &d, &b),
                     WEFT_ERR_ARG);
    weft_model_close(m);
}

/* ---- engines ----------------------------------------------------------------------------------------------------- */

static struct weft_engine_params server(void)
{
    return (struct weft_engine_params){
        .device = "null", .context = CONTEXT, .memory_utilization = 0.5f, .calibration = "none"};
}

/* WEFT_OK: the engine ran a request. */
static enum weft_status open_once(const struct weft_engine_params *p, const wf_null_config *c, struct weft_budget *b)
{
    struct weft_engine *e = NULL;
    *said = 0;
    wf_null_configure(c);
    enum weft_status s = weft_engine_open(model, p, &e);
    if (s) return s;
    assert_ok(weft_engine_budget(e, b));
    assert_ok(end_of(
        submit_to(e, (struct weft_request_params){.prompt = "One day", .max_tokens = 3, .ignore_eos = true})));
    weft_engine_close(e);
    return WEFT_OK;
}

/* Memory for so many contexts. */
static wf_null_config memory_for(uint64_t contexts)
{
    struct weft_budget b;
    struct weft_engine_params p = {.context = CONTEXT, .n_seqs = 100};
    assert_ok(weft_model_budget(model, &p, &b));
    return (wf_null_config){.own_memory = true, .memory = 2 * (b.weights + b.activations + b.kv / 100 * contexts)};
}

static void engines_take_what_devices_leave(void **state)
{
    wf_null_config c = memory_for(100);
    struct weft_engine_params p = server();
    struct weft_budget b;
    assert_ok(open_once(&p, &c, &b));
    assert_in_range(b.n_seqs, 95, 105); /* its activations are not exactly those of the estimate */
    assert_int_equal(b.contexts, b.n_seqs);
    assert_true(b.weights + b.activations + b.kv <= c.memory / 2);
    assert_string_equal(said, "");
    c.own_memory = false;
    assert_ok(open_once(&p, &c, &b));
    assert_int_equal(b.contexts, SHARED_CONTEXTS);
}

/* `weft info --memory` counts what as many sequences take as an engine would run there. */
static void the_report_has_the_engines_sequences(void **state)
{
    wf_null_config c = memory_for(100);
    struct weft_engine_params p = server();
    struct weft_budget b;
    struct weft_memory all, same;
    assert_ok(open_once(&p, &c, &b));
    assert_ok(weft_memory(model, &p, &all));
    p.n_seqs = b.n_seqs;
    assert_ok(weft_memory(model, &p, &same));
    assert_int_equal(all.workspace, same.workspace);
}

/* Every buffer in turn cannot be allocated, once: the cache becomes smaller if it is one of those that it lies in, or
 * of those behind them. */
static void a_shortage_makes_the_cache_smaller(void **state)
{
    wf_null_config c = memory_for(100);
    struct weft_engine_params p = server();
    struct weft_budget whole, b;
    uint32_t smaller = 0, failed = 0;
    c.max_alloc = c.memory / 8; /* several slabs */
    assert_ok(open_once(&p, &c, &whole));
    c.slot = WF_NULL_BUF_CREATE, c.status = WEFT_ERR_NOMEM;
    for (c.nth = 1;; c.nth++) {
        enum weft_status s = open_once(&p, &c, &b);
        assert_int_equal(wf_null_alive(), 0);
        if (s == WEFT_OK && wf_null_calls(WF_NULL_BUF_CREATE) < c.nth) break;
        if (s) assert_int_equal(s, WEFT_ERR_NOMEM), failed++;
        else if (!strstr(said, "becomes smaller"))
            assert_int_equal(b.kv, whole.kv); /* memory of the host that cannot be pinned */
        else assert_true(b.kv < whole.kv && b.kv > whole.kv * 3 / 4), smaller++;
    }
    assert_true(smaller > 1 && failed > 0);
}

/* Others have most of the memory. One context has to fit, and a number that was given is no wish. */
static void little_is_enough(void **state)
{
    wf_null_config c = memory_for(100);
    struct weft_engine_params p = server();
    struct weft_budget whole, b;
    assert_ok(open_once(&p, &c, &whole));
    c.full = whole.weights + whole.activations + whole.kv / 10 * 7;
    assert_ok(open_once(&p, &c, &b));
    assert_true(b.kv < whole.kv * 7 / 10 && b.kv > whole.kv / 2);
    assert_true(b.n_seqs < whole.n_seqs && b.n_seqs >= LEAST);
    char *warning = strstr(said, "becomes smaller"); /* by several eighths, which is said once */
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "becomes smaller"));
    c.full = whole.weights;
    assert_int_equal(open_once(&p, &c, &b), WEFT_ERR_NOMEM);
    c.full = whole.weights + whole.activations + whole.kv / 10 * 7;
    p.kv_memory = whole.kv;
    assert_int_equal(open_once(&p, &c, &b), WEFT_ERR_NOMEM);
    assert_string_equal(said, "");
}

static int set_up(void **state)
{
    int s = open_demo(state);
    listen_to(WEFT_LOG_WARN);
    return s;
}

SUITE(cache_size, set_up, close_demo, CASE(caches_are_what_cards_leave), CASE(one_context_stays),
      CASE(shared_memory_is_left_to_others), CASE(what_was_given_stays), CASE(engines_take_what_devices_leave),
      CASE(the_report_has_the_engines_sequences), CASE(a_shortage_makes_the_cache_smaller), CASE(little_is_enough))
