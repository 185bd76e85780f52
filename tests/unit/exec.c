/* exec: programs on the null device, whose fake clock shows what runs beside what. A small graph by hand, with a sum
 * over processes. */
#include "support/null_device.h"
#include "exec/exec.h"
#include "select/select.h"
#include "support/suite.h"

enum { WIDTH = 64, VOCAB = 32, PAGE_BYTES = 2 * 2 * WIDTH /* K and V of F16 */, TOKENS = 32 };

typedef struct fixture {
    wf_dev *dev;
    wf_graph g;
    wf_plans plans;
    wf_buf *buf;
    wf_view weights[8];
    wf_limits limits;
    wf_exec *e;
    wf_batch b;
} fixture;

/* ---- the graph: embed, up, sum over processes, down, logits ------------------------------------------------------ */

static int32_t weight(fixture *f, uint32_t rows, uint32_t cols)
{
    uint32_t id = 0;
    for (size_t v = 0; v < f->g.n_values; v++) id += f->g.values[v].kind == WF_VALUE_WEIGHT;
    f->weights[id] = (wf_view){f->buf, 0, rows, cols, cols, WF_F32, 0};
    return wf_graph_value(&f->g, (wf_value){WF_VALUE_WEIGHT, WF_ROWS_WHOLE, WF_F32, cols, id, rows});
}

static int32_t act(fixture *f, enum wf_rows rows, uint32_t cols)
{
    return wf_graph_value(&f->g, (wf_value){WF_VALUE_ACT, rows, WF_F32, cols, 0});
}

static int32_t add(fixture *f, enum wf_node_kind kind, enum wf_op op, const char *name, int32_t layer,
                   enum wf_rows rows, int32_t a, int32_t b, uint32_t cols)
{
    wf_node n = wf_graph_blank(kind, op, name, layer, rows);
    n.in[0] = WF_ALL(a);
    n.in[1] = WF_ALL(b);
    n.out[0] = WF_ALL(act(f, rows, cols));
    assert_true(wf_graph_node(&f->g, &n) >= 0);
    return n.out[0].value;
}

static enum wf_node_kind network = WF_NODE_ALL_GATHER; /* what the node "sum" is */
static bool with_routers;                               /* behind "down", of few experts and of more */

enum { FEW_EXPERTS = 4, MORE_EXPERTS = 16 };

static void add_router(fixture *f, const char *name, int32_t x, uint32_t experts)
{
    wf_node n = wf_graph_blank(WF_NODE_KERNEL, WF_OP_ROUTER, name, 0, WF_ROWS_BATCH);
    n.in[WF_ROUTER_X] = WF_ALL(x);
    n.in[WF_ROUTER_W] = WF_ALL(weight(f, experts, WIDTH));
    n.in[WF_ROUTER_NORM] = WF_ALL(weight(f, 1, WIDTH));
    n.out[WF_ROUTER_IDS] = WF_ALL(wf_graph_value(&f->g, (wf_value){WF_VALUE_ACT, WF_ROWS_BATCH, WF_I32, 2, 0}));
    n.out[WF_ROUTER_WEIGHTS] = WF_ALL(act(f, WF_ROWS_BATCH, 2));
    n.out[WF_ROUTER_Y] = WF_ALL(act(f, WF_ROWS_BATCH, WIDTH));
    n.p.scale = 1, n.p.eps = 1e-5f;
    assert_true(wf_graph_node(&f->g, &n) >= 0);
}

static void make_graph(fixture *f)
{
    wf_graph *g = &f->g;
    assert_ok(wf_graph_init(g, 1));
    assert_ok(wf_graph_begin(g));
    for (uint32_t id = 0; id < 2; id++) wf_graph_value(g, (wf_value){WF_VALUE_KV, WF_ROWS_WHOLE, WF_F16, WIDTH, id, 0});
    int32_t x = add(f, WF_NODE_KERNEL, WF_OP_GET_ROWS, "embed", WF_ONCE, WF_ROWS_BATCH, weight(f, VOCAB, WIDTH),
                    g->inputs[WF_INPUT_TOKEN], WIDTH);
    x = add(f, WF_NODE_KERNEL, WF_OP_GEMM, "up", 0, WF_ROWS_BATCH, x, weight(f, WIDTH, WIDTH), WIDTH);
    x = add(f, network, WF_OP_NONE, "sum", 0, WF_ROWS_BATCH, x, -1, WIDTH);
    x = add(f, WF_NODE_KERNEL, WF_OP_GEMM, "down", 0, WF_ROWS_BATCH, x, weight(f, WIDTH, WIDTH), WIDTH);
    if (with_routers) add_router(f, "router_few", x, FEW_EXPERTS), add_router(f, "router_more", x, MORE_EXPERTS);
    x = add(f, WF_NODE_KERNEL, WF_OP_GET_ROWS, "gather_logits", WF_ONCE, WF_ROWS_LOGITS, x,
            g->inputs[WF_INPUT_LOGIT_ROWS], WIDTH);
    g->logits = add(f, WF_NODE_KERNEL, WF_OP_GEMM, "logits", WF_ONCE, WF_ROWS_LOGITS, x, weight(f, VOCAB, WIDTH),
                    VOCAB);
    assert_ok(wf_graph_end(g));
}

/* ---- an exec ----------------------------------------------------------------------------------------------------- */

static uint64_t slow_products(const wf_call *c)
{
    return c->op == WF_OP_GEMM && c->out[0].rows > 4 ? 10000 : 0;
}

static uint64_t slow_network(uint64_t bytes)
{
    return bytes > 0 ? 10000 : 0;
}

static double modest_rate; /* of devices opened from now on */

/* What binding the plan gives. fns: of the device; NULL: its own. */
static weft_status open_on(fixture *f, const char *plan, uint32_t tokens, const wf_null_config *config,
                           const wf_dev_fns *fns)
{
    *f = (fixture){.limits = {.step_tokens = tokens, .logit_rows = 4, .seqs = 4, .seq_pages = 4, .pages = 8}};
    wf_null_configure(config);
    assert_ok(wf_select_open("null", NULL, &f->dev));
    if (fns) f->dev->fns = fns;
    f->dev->modest_rate = modest_rate;
    assert_ok(wf_buf_create(f->dev, WIDTH * WIDTH * sizeof(float), &f->buf));
    make_graph(f);
    if (plan) {
        const char *path = file_of(plan);
        assert_ok(wf_plans_load(&f->g, path, &f->plans));
        unlink(path);
    } else {
        f->plans.n = 1;
        assert_ok(wf_plan_sequential(&f->g, &f->plans.list[0]));
    }
    assert_ok(wf_plans_finish(&f->g, &f->plans, f->dev->align));
    assert_ok(wf_exec_create(f->dev, &f->g, &f->plans, f->weights, &f->limits, &f->e));
    assert_ok(wf_batch_init(&f->b, &f->limits));
    f->b.n_tokens = TOKENS, f->b.n_seqs = f->b.n_pages = f->b.n_logits = 1, f->b.max_q = f->b.max_kv = TOKENS;
    return wf_exec_bind(f->e, NULL, NULL);
}

static void open_limited(fixture *f, const char *plan, uint32_t tokens)
{
    assert_ok(open_on(f, plan, tokens, &(wf_null_config){.cost_ns = slow_products, .transfer_ns = slow_network}, NULL));
}

static void open_with(fixture *f, const char *plan)
{
    open_limited(f, plan, TOKENS);
}

static void close_all(fixture *f)
{
    wf_batch_free(&f->b);
    wf_exec_destroy(f->e);
    wf_plans_free(&f->plans);
    wf_graph_free(&f->g);
    wf_buf_destroy(f->buf);
    wf_dev_close(f->dev);
    assert_int_equal(wf_null_alive(), 0);
    wf_null_configure(NULL);
}

/* What a step takes on the fake clock. */
static uint64_t step(fixture *f, const wf_step_io *io)
{
    uint64_t before = wf_null_now(f->dev);
    assert_ok(wf_exec_submit(f->e, &f->b, io));
    assert_ok(wf_exec_wait(f->e));
    return wf_null_now(f->dev) - before;
}

#define ONCE(op, q) "once " op " 0-end queue " q " kernel auto groups 0\n"
#define LINE(op, range, q) "layer " op " " range " queue " q " kernel auto groups 0\n"
#define PLAN(layers)                                                                                                   \
    "weft-plan 2\nqueues 2\n" ONCE("upload", "0") ONCE("token_subst", "0") ONCE("embed", "0")                         \
        layers ONCE("gather_logits", "0") ONCE("logits", "0") ONCE("argmax", "0") ONCE("sample", "0")                  \
            ONCE("download", "0") ONCE("download_logits", "0")
#define ONE_BATCH LINE("up", "0-end", "0") LINE("sum", "0-end", "1") LINE("down", "0-end", "0")
#define TWO_BATCHES                                                                                                    \
    LINE("up", "0-16", "0")                                                                                            \
    LINE("sum", "0-16", "1") LINE("up", "16-end", "0") LINE("sum", "16-end", "1") LINE("down", "0-16", "0")            \
        LINE("down", "16-end", "0")

/* What one nano-batch exchanges goes while the other's product runs; its results are waited for. */
static void test_network_overlaps(void **state)
{
    fixture f;
    for (network = WF_NODE_SEND; network <= WF_NODE_ALL_GATHER; network++) {
        open_with(&f, PLAN(ONE_BATCH));
        uint64_t one = step(&f, &(wf_step_io){0});
        assert_int_equal(wf_null_calls(WF_NULL_TRANSFER), 1);
        close_all(&f);
        open_with(&f, PLAN(TWO_BATCHES));
        uint64_t two = step(&f, &(wf_step_io){0});
        assert_int_equal(wf_null_calls(WF_NULL_TRANSFER), 2);
        close_all(&f);
        assert_in_range(one, 30000, 32000); /* up, sum, down one after another, and a microsecond for a copy */
        assert_in_range(two, 40000, 42000); /* up, up beside sum, down beside sum, down: each as long as the whole */
    }
    network = WF_NODE_ALL_GATHER;
}

/* ---- moves of pages (kv/move.h) ---------------------------------------------------------------------------------- */

enum { MOVED_PAGES = 20, POLLED_NS = 1000 }; /* a copy of a page takes a microsecond, as a look does */

static uint32_t begin_move(fixture *f, bool out, uint8_t (*host)[PAGE_BYTES])
{
    wf_page_copy list[MOVED_PAGES];
    uint32_t ticket;
    for (int32_t i = 0; i < MOVED_PAGES; i++) list[i] = (wf_page_copy){i % 8, host[i % 8]};
    assert_ok(wf_exec_move(f->e, out, list, MOVED_PAGES, &ticket));
    return ticket;
}

/* When its end was seen. */
static uint64_t await_move(fixture *f, uint32_t ticket)
{
    enum wf_moved moved;
    while ((moved = wf_exec_moved(f->e, ticket)) == WF_MOVING) continue;
    assert_int_equal(moved, WF_MOVED);
    return wf_null_now(f->dev);
}

/* Neither does a store read a page before the step that computes it has ended, nor does a load write to one that a step
 * may still read: whatever the host knows, copies run behind what was submitted before them. Both ways run at one time,
 * and what is submitted later waits for neither. */
static void test_moves_run_behind_steps(void **state)
{
    fixture f;
    uint8_t host[2][8][PAGE_BYTES] = {{{0}}};
    open_with(&f, PLAN(ONE_BATCH));
    assert_ok(wf_exec_open_moves(f.e));
    uint64_t alone = step(&f, &(wf_step_io){0});
    for (int ways = 1; ways <= 3; ways++) {
        uint64_t before = wf_null_now(f.dev), end = 0;
        uint32_t tickets[2] = {0};
        assert_ok(wf_exec_submit(f.e, &f.b, &(wf_step_io){0}));
        for (int out = 0; out < 2; out++)
            if (ways >> out & 1) tickets[out] = begin_move(&f, out, host[out]);
        for (int out = 0; out < 2; out++)
            if (ways >> out & 1) end = await_move(&f, tickets[out]);
        assert_in_range(end - before, alone + MOVED_PAGES * 1000, alone + MOVED_PAGES * 1000 + 2 * POLLED_NS);
        assert_ok(wf_exec_wait(f.e));
    }
    uint64_t before = wf_null_now(f.dev);
    assert_ok(wf_exec_submit(f.e, &f.b, &(wf_step_io){0}));
    uint32_t ticket = begin_move(&f, true, host[0]);
    assert_ok(wf_exec_submit(f.e, &f.b, &(wf_step_io){0}));
    assert_ok(wf_exec_wait(f.e));
    assert_ok(wf_exec_wait(f.e));
    assert_in_range(wf_null_now(f.dev) - before, 2 * alone - 2000, 2 * alone);
    await_move(&f, ticket);
    close_all(&f);
}

/* A page goes to the host, is overwritten, and comes back to another place; others stay as they are. Each move waits
 * for the one before, whichever way that goes, and none needs a step. */
static void test_moves_in_turn(void **state)
{
    fixture f;
    uint8_t host[3][2 * PAGE_BYTES] = {{0}};
    static const struct {
        bool out;
        int32_t pages[2];
        int at;
    } moves[] = {{false, {1, 5}, 0}, {true, {1, 5}, 1}, {false, {6, 2}, 1}, {true, {6, 2}, 2}};
    open_with(&f, NULL);
    assert_ok(wf_exec_open_moves(f.e));
    assert_int_equal(wf_exec_page_bytes(f.e), PAGE_BYTES);
    for (size_t i = 0; i < sizeof host[0]; i++) host[0][i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < WF_LEN(moves); i++) {
        const wf_page_copy list[] = {{moves[i].pages[0], host[moves[i].at]},
                                     {moves[i].pages[1], host[moves[i].at] + PAGE_BYTES}};
        assert_ok(wf_exec_move(f.e, moves[i].out, list, 2, NULL));
    }
    wf_exec_finish_moves(f.e);
    for (int i = 1; i < 3; i++) assert_memory_equal(host[i], host[0], sizeof host[0]);
    close_all(&f);
}

/* The next step waits for a move without a ticket, and no later one does. */
static void test_steps_wait_for_moves(void **state)
{
    fixture f;
    uint8_t host[PAGE_BYTES];
    wf_page_copy list[MOVED_PAGES];
    for (int32_t i = 0; i < MOVED_PAGES; i++) list[i] = (wf_page_copy){i % 8, host};
    open_with(&f, PLAN(TWO_BATCHES));
    assert_ok(wf_exec_open_moves(f.e));
    uint64_t alone = step(&f, &(wf_step_io){0}), before = wf_null_now(f.dev);
    assert_ok(wf_exec_submit(f.e, &f.b, &(wf_step_io){0}));
    assert_ok(wf_exec_move(f.e, true, list, MOVED_PAGES, NULL));
    assert_ok(wf_exec_submit(f.e, &f.b, &(wf_step_io){0}));
    for (int i = 0; i < 2; i++) assert_ok(wf_exec_wait(f.e));
    assert_in_range(wf_null_now(f.dev) - before, 2 * alone + MOVED_PAGES * 1000 - 2000, 2 * alone + MOVED_PAGES * 1000);
    assert_in_range(step(&f, &(wf_step_io){0}), alone - 1000, alone);
    close_all(&f);
}

/* A load may come to pages that a move without a ticket still reads: it waits for that, also where no step lies between
 * them. */
static void test_tickets_wait_for_moves(void **state)
{
    fixture f;
    uint8_t host[8][PAGE_BYTES] = {{0}};
    wf_page_copy list[MOVED_PAGES];
    for (int32_t i = 0; i < MOVED_PAGES; i++) list[i] = (wf_page_copy){i % 8, host[i % 8]};
    open_with(&f, PLAN(ONE_BATCH));
    assert_ok(wf_exec_open_moves(f.e));
    step(&f, &(wf_step_io){0});
    uint64_t before = wf_null_now(f.dev);
    assert_ok(wf_exec_move(f.e, true, list, MOVED_PAGES, NULL));
    uint64_t end = await_move(&f, begin_move(&f, false, host));
    assert_in_range(end - before, 2 * MOVED_PAGES * 1000, 2 * MOVED_PAGES * 1000 + 2 * POLLED_NS);
    close_all(&f);
}

/* Where a copy cannot begin, or its end is an error, nothing was copied. */
static void test_moves_that_fail(void **state)
{
    static const struct {
        enum wf_null_slot slot;
        bool out, begins;
    } cases[] = {{WF_NULL_READ, true, false}, {WF_NULL_WRITE, false, false}, {WF_NULL_MARK, true, false},
                 {WF_NULL_FLUSH, true, false}, {WF_NULL_POLL, true, true}, {WF_NULL_POLL, false, true}};
    for (size_t i = 0; i < WF_LEN(cases); i++) {
        fixture f;
        uint8_t host[PAGE_BYTES] = {0};
        uint32_t ticket = 0;
        open_with(&f, NULL);
        assert_ok(wf_exec_open_moves(f.e));
        wf_null_configure(&(wf_null_config){.slot = cases[i].slot, .nth = 1, .status = WEFT_ERR_DEVICE});
        weft_status s = wf_exec_move(f.e, cases[i].out, &(wf_page_copy){3, host}, 1, &ticket);
        assert_int_equal(s, cases[i].begins ? WEFT_OK : WEFT_ERR_DEVICE);
        if (cases[i].begins) assert_int_equal(wf_exec_moved(f.e, ticket), WF_MOVE_VOID);
        close_all(&f);
    }
}

/* After start-up nothing is chosen, checked or built: only a launch for each kernel. */
static void test_nothing_is_bound_later(void **state)
{
    fixture f;
    open_with(&f, NULL);
    uint64_t bound = wf_null_calls(WF_NULL_BIND);
    assert_true(bound > 0);
    for (uint32_t tokens = 1; tokens <= TOKENS; tokens++) {
        int32_t ids[4];
        f.b.n_tokens = tokens;
        step(&f, &(wf_step_io){.ids = ids});
    }
    assert_int_equal(wf_null_calls(WF_NULL_BIND), bound);
    close_all(&f);
}

/* Nor in a large step, for which not every number of tokens was tried. */
static void test_large_steps_are_bound(void **state)
{
    enum { ONE_BY_ONE = 4096, MOST = 40000 };
    static const uint32_t tokens[] = {1, ONE_BY_ONE, ONE_BY_ONE + 1, 12345, MOST};
    fixture f;
    open_limited(&f, NULL, ONE_BY_ONE);
    uint64_t small = wf_null_calls(WF_NULL_BIND);
    close_all(&f);
    open_limited(&f, NULL, MOST);
    uint64_t bound = wf_null_calls(WF_NULL_BIND);
    assert_in_range(bound - small, 1, 100);
    for (size_t i = 0; i < WF_LEN(tokens); i++) {
        int32_t ids[4];
        f.b.n_tokens = tokens[i];
        step(&f, &(wf_step_io){.ids = ids});
    }
    assert_int_equal(wf_null_calls(WF_NULL_BIND), bound);
    close_all(&f);
}

/* ---- what will be built ------------------------------------------------------------------------------------------ */

static struct {
    wf_call calls[1024];
    size_t n;
} foreseen;
static uint32_t n_unforeseen;

static void note_foreseen(wf_dev *dev, const wf_call *calls, size_t n)
{
    assert_in_range(n, 1, WF_LEN(foreseen.calls));
    memcpy(foreseen.calls, calls, n * sizeof *calls);
    foreseen.n = n;
}

/* By a call of the same op and columns, with as many rows, or at most an eighth fewer. */
static bool is_foreseen(const wf_call *c)
{
    const wf_view *y = &c->out[0];
    for (const wf_call *f = foreseen.calls; f < foreseen.calls + foreseen.n; f++) {
        const wf_view *z = &f->out[0];
        if (f->op == c->op && f->variant == 0 && z->cols == y->cols && z->rows <= y->rows &&
            z->rows + z->rows / 8 >= y->rows)
            return true;
    }
    return false;
}

/* As if each were built: no cache has any. */
static void note_bound(const wf_call *c)
{
    wf_kernel_work *work = &c->out[0].buf->dev->kernel_work;
    if (work->built++) n_unforeseen += !is_foreseen(c);
}

/* Those of the null device, for a test to change. */
static wf_dev_fns null_fns(void)
{
    wf_dev *plain;
    assert_ok(wf_select_open("null", NULL, &plain));
    wf_dev_fns fns = *plain->fns;
    wf_dev_close(plain);
    return fns;
}

/* With something to compile ahead. */
static wf_dev_fns fns_that_prebuild(void)
{
    wf_dev_fns fns = null_fns();
    fns.prebuild = note_foreseen;
    return fns;
}

/* Once it built a kernel, the device is told of all calls before the next is bound, at the limit of rows and below it.
 */
static void test_bound_calls_are_foreseen(void **state)
{
    enum { MOST = 300 };
    fixture f;
    const wf_dev_fns fns = fns_that_prebuild();
    foreseen.n = n_unforeseen = 0;
    assert_ok(open_on(&f, NULL, MOST, &(wf_null_config){.bound = note_bound}, &fns));
    assert_true(wf_null_calls(WF_NULL_BIND) > 64);
    assert_int_equal(n_unforeseen, 0);
    close_all(&f);
}

/* What cannot be bound, though it was built, ends there: nothing is compiled for the rest. */
static void test_failures_foresee_nothing(void **state)
{
    fixture f;
    const wf_dev_fns fns = fns_that_prebuild();
    foreseen.n = 0;
    const wf_null_config fails = {.bound = note_bound, .slot = WF_NULL_BIND, .nth = 1, .status = WEFT_ERR_DEVICE};
    assert_int_equal(open_on(&f, NULL, TOKENS, &fails, &fns), WEFT_ERR_DEVICE);
    assert_int_equal(foreseen.n, 0);
    assert_says("injected failure of bind");
    close_all(&f);
}

/* ---- submissions of less than a second --------------------------------------------------------------------------- */

enum { SECOND = 1000000000, SLOW_ROW = 90000000 };
static uint64_t longest, gathered, flushes; /* nanoseconds of a call; between flushes; flushes seen */
static uint32_t rows_of[WF_N_OPS];

static uint64_t slow_rows(const wf_call *c)
{
    return c->op == WF_OP_GEMM ? (uint64_t)SLOW_ROW * c->out[0].rows : 1000;
}

static weft_status note_call(const wf_call *c)
{
    uint64_t ns = slow_rows(c), now = wf_null_calls(WF_NULL_FLUSH);
    gathered = (now == flushes ? gathered : 0) + ns;
    flushes = now;
    longest = WF_MAX(longest, gathered);
    rows_of[c->op] += c->out[0].rows;
    return WEFT_OK;
}

/* A prompt whose products take 3 s each on a slow device: each is cut, and what gathers is flushed; every row is
 * computed once. */
static void test_submissions_are_short(void **state)
{
    fixture f;
    wf_null_config slow = {.cost_ns = slow_rows, .expected_ns = slow_rows};
    assert_ok(open_on(&f, NULL, TOKENS, &slow, NULL));
    slow.compute = note_call; /* from now on */
    wf_null_configure(&slow);
    longest = gathered = flushes = 0;
    memset(rows_of, 0, sizeof rows_of);
    uint64_t took = step(&f, &(wf_step_io){0});
    assert_in_range(took, (2 * TOKENS + 1ull) * SLOW_ROW, (2 * TOKENS + 1ull) * SLOW_ROW + 1000000);
    assert_in_range(longest, SECOND / 2, SECOND);
    assert_int_equal(rows_of[WF_OP_GEMM], 2 * TOKENS + 1); /* up, down, and one row of logits */
    close_all(&f);
}

static uint32_t most_product_rows;

static weft_status note_product(const wf_call *c)
{
    if (c->op == WF_OP_GEMM) most_product_rows = WF_MAX(most_product_rows, c->out[0].rows);
    return WEFT_OK;
}

/* Where nothing was measured, a rate that every device of its kind has takes the measurements' place. */
static void test_short_without_measurements(void **state)
{
    fixture f;
    modest_rate = 1.8; /* operations per microsecond: a product of 16 rows takes 0.87 s, one of 32 rows 1.17 s */
    assert_ok(open_on(&f, NULL, TOKENS, NULL, NULL));
    modest_rate = 0;
    wf_null_configure(&(wf_null_config){.compute = note_product});
    most_product_rows = 0;
    step(&f, &(wf_step_io){0});
    assert_int_equal(most_product_rows, TOKENS / 2);
    close_all(&f);
}

/* ---- kernels that the plan names --------------------------------------------------------------------------------- */

enum { NAMED = 1 /* null2 */, FEW = 8 };
static uint32_t rows_that_may; /* that the named kernel runs at most */
static uint32_t most_rows;     /* that it has run */

static bool supports_few(wf_dev *dev, const wf_call *c, int variant)
{
    return variant != NAMED || c->out[0].rows <= rows_that_may;
}

static uint64_t note_rows(const wf_call *c)
{
    if (c->variant == NAMED) most_rows = WF_MAX(most_rows, c->out[0].rows);
    return 0;
}

/* Binds a plan in which every product "up" is to run null2, on a device where that kernel runs few rows. */
static weft_status open_named(fixture *f, wf_dev_fns *fns, uint32_t rows)
{
    rows_that_may = rows, most_rows = 0;
    *fns = null_fns();
    fns->supports = supports_few;
    return open_on(
        f, PLAN("layer up 0-end queue 0 kernel null2 groups 0\n" LINE("sum", "0-end", "1") LINE("down", "0-end", "0")),
        TOKENS, &(wf_null_config){.variants = 2, .cost_ns = note_rows}, fns);
}

/* It runs the numbers of rows that it can, and the device chooses for the others; checking every call changes nothing.
 */
static void test_named_kernel_of_few_rows(void **state)
{
    fixture f;
    wf_dev_fns fns;
    assert_ok(open_named(&f, &fns, FEW));
    f.dev->params.check_calls = true;
    for (f.b.n_tokens = 1; f.b.n_tokens <= TOKENS; f.b.n_tokens++) step(&f, &(wf_step_io){0});
    assert_int_equal(most_rows, FEW);
    close_all(&f);
}

/* A kernel that runs no number of rows is a mistake in the plan. */
static void test_named_kernel_of_no_rows(void **state)
{
    fixture f;
    wf_dev_fns fns;
    assert_error(open_named(&f, &fns, 0), WEFT_ERR_ARG, ":6: kernel 'null2' cannot run 'up'");
    close_all(&f);
}

/* ---- kernels that calls share ------------------------------------------------------------------------------------ */

static uint32_t most_experts; /* that the kernel for few of them had */

/* null runs few experts, null2 any number. */
static size_t rank_by_experts(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    out[0] = (wf_candidate_kernel){c->op == WF_OP_ROUTER && c->in[WF_ROUTER_W].rows > FEW_EXPERTS ? NAMED : 0, 0};
    return 1;
}

static uint64_t note_experts(const wf_call *c)
{
    if (c->op == WF_OP_ROUTER && c->variant != NAMED) most_experts = WF_MAX(most_experts, c->in[WF_ROUTER_W].rows);
    return 0;
}

/* Routers that differ in nothing but the rows of W have kernels of their own. */
static void test_routers_share_no_kernel(void **state)
{
    fixture f;
    wf_dev_fns fns = null_fns();
    with_routers = true;
    fns.rank = rank_by_experts;
    assert_ok(
        open_on(&f, NULL, TOKENS, &(wf_null_config){.variants = 2, .fused = true, .cost_ns = note_experts}, &fns));
    step(&f, &(wf_step_io){0});
    assert_int_equal(most_experts, FEW_EXPERTS);
    close_all(&f);
    with_routers = false;
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */

/* At a byte a second: what the upload of a step takes. */
static double upload_bytes(fixture *f, const wf_explain *x)
{
    double expected[64];
    const wf_plan *plan = &f->plans.list[0];
    assert_in_range(plan->n_nanos, 1, WF_LEN(expected));
    assert_ok(wf_exec_expected(f->e, x, 0, expected));
    for (size_t i = 0; i < plan->n_nanos; i++)
        if (f->g.nodes[plan->nanos[i].node].kind == WF_NODE_UPLOAD) return expected[i];
    fail();
    return 0;
}

/* Each page table has slots and pages of its own; the rest is there once. */
static void test_upload_of_all_tables(void **state)
{
    enum { DECODES = 3, CONTEXT = 4 };
    const wf_explain x = {.tokens = DECODES, .decodes = DECODES, .context = CONTEXT, .byte_rate = 1};
    const double slots = DECODES, pages = DECODES * CONTEXT /* of one token, for there is no attention */,
                 words = 3 * DECODES + DECODES + 1 + DECODES;
    fixture f;
    open_with(&f, NULL);
    for (uint32_t tables = 1; tables <= 3; tables++) {
        f.g.kv.n_tables = tables;
        assert_true(upload_bytes(&f, &x) == 4 * (words + tables * (slots + pages)));
    }
    f.g.kv.n_tables = 0;
    close_all(&f);
}

SUITE(exec, NULL, NULL, CASE(test_network_overlaps), CASE(test_moves_run_behind_steps), CASE(test_moves_in_turn),
      CASE(test_steps_wait_for_moves), CASE(test_tickets_wait_for_moves),
      CASE(test_moves_that_fail), CASE(test_nothing_is_bound_later),
      CASE(test_large_steps_are_bound), CASE(test_bound_calls_are_foreseen), CASE(test_failures_foresee_nothing),
      CASE(test_submissions_are_short), CASE(test_short_without_measurements), CASE(test_named_kernel_of_few_rows),
      CASE(test_named_kernel_of_no_rows), CASE(test_routers_share_no_kernel), CASE(test_upload_of_all_tables))
