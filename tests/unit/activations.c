/* activations: how many bytes a token of a step takes in the buffers of a model of known shape, and that nothing is
 * read after it died. */
#include "support/null_device.h"
#include "engine/engine.h"
#include "exec/workspace.h"
#include "support/demo.h"

#include <weft/debug.h>
#include <math.h>

/* ---- bytes a token ----------------------------------------------------------------------------------------------- */

typedef struct shape {
    struct weft_model *m;
    wf_graph g;
    wf_weights w;
} shape;

/* On a device whose activations are of that type. */
static shape open_shape(const char *name, enum wf_dtype act, enum wf_dtype residual, wf_dev *d)
{
    shape s = {0};
    d->act = act;
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = name, .layers = 3}, &s.m));
    assert_ok(wf_model_build(s.m->arch, s.m->file, &s.m->hp,
                             &(wf_build_params){act, residual, WF_F16, WF_STACK_ALIKE, true, 4096, 16}, &s.g, &s.w));
    assert_ok(wf_graph_fuse(&s.g, d));
    assert_ok(wf_graph_end(&s.g));
    return s;
}

static void close_shape(shape *s)
{
    wf_graph_free(&s->g);
    wf_weights_free(&s->w);
    weft_model_close(s->m);
}

static const wf_dev_fns *null_fns;

/* As NVIDIA's kernels: for few rows one runs all; for more, one runs the product with its SiLU. */
static bool can_fuse(const wf_call *c)
{
    return c->op != WF_OP_GEMM || c->in[WF_GEMM_X].rows <= 8 || (!c->in[WF_GEMM_NORM].buf && !c->p.rope);
}

static bool few_supports(wf_dev *dev, const wf_call *c, int variant)
{
    return can_fuse(c) && null_fns->supports(dev, c, variant);
}

static size_t few_rank(wf_dev *dev, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    return can_fuse(c) ? null_fns->rank(dev, c, class, out, cap) : 0;
}

enum fusion { NONE, LIKE_NVIDIA, ALL };
static wf_dev *open_device(enum fusion fusion, wf_dev_fns *fns)
{
    wf_dev *d;
    wf_null_configure(&(wf_null_config){.fused = fusion != NONE});
    assert_ok(wf_dev_open("null", &(wf_open_params){0}, &d));
    null_fns = d->fns;
    *fns = *d->fns;
    if (fusion == LIKE_NVIDIA) fns->supports = few_supports, fns->rank = few_rank;
    d->fns = fns;
    return d;
}

/* n_parts 1: the sequential plan. */
static uint64_t bytes_a_token(const char *name, enum wf_dtype act, enum wf_dtype residual, enum fusion fusion,
                              uint32_t n_parts)
{
    wf_dev_fns fns;
    wf_dev *d = open_device(fusion, &fns);
    shape s = open_shape(name, act, residual, d);
    wf_plans p = {.n = 1};
    wf_workspaces_omit(&s.g, d, &(wf_limits){.step_tokens = 1024, .logit_rows = 64});
    if (n_parts == 1) assert_ok(wf_plan_sequential(&s.g, &p.list[0]));
    else assert_ok(wf_plans_overlap(&s.g, n_parts, 1024, 128, &p));
    assert_ok(wf_plans_finish(&s.g, &p, 256));
    uint64_t bytes = wf_activation_bytes(&p.list[0], 1, 0);
    wf_plans_free(&p);
    wf_dev_close(d);
    close_shape(&s);
    return bytes;
}

/* A residual stream of F32, a normalised input, and the feed-forward's widest value, in F16: 16,384 + 8,192 + 28,672. A
 * device that never keeps the normalised input needs only two of these; one without fused kernels has gate and up, and
 * what SiLU makes of them in gate's place: 16,384 + 8,192 + 57,344. In F16 the residual stream takes 8,192. Of experts
 * it lies beside them. */
static void test_bytes_a_token(void **state)
{
    for (uint32_t parts = 1; parts <= 3; parts++) {
        assert_int_equal(bytes_a_token("llama3-8b", WF_F16, WF_F32, LIKE_NVIDIA, parts), 53248);
        assert_int_equal(bytes_a_token("llama3-8b", WF_F16, WF_F16, LIKE_NVIDIA, parts), 45056);
        assert_int_equal(bytes_a_token("llama3-8b", WF_F16, WF_F32, ALL, parts), 45056);
        assert_int_equal(bytes_a_token("llama3-8b", WF_F16, WF_F32, NONE, parts), 81920);
        assert_int_equal(bytes_a_token("llama3-70b", WF_F16, WF_F32, LIKE_NVIDIA, parts), 106496);
    }
}

/* What the blocks of encoders add to is as precise as in other models where norms come before them; where they come
 * behind it is what the last one gave. Products read what a device wants, of the first layer, too. */
static void test_encoders(void **state)
{
    static const struct {
        const char *path;
        enum wf_dtype residual;
    } rows[] = {{"tests/model/embeddings/modern-bert", WF_F32}, {"tests/model/embeddings/bert", WF_F16}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        shape s = {0};
        size_t n = 0;
        assert_ok(weft_model_open(&(struct weft_model_params){.path = rows[i].path}, &s.m));
        assert_ok(wf_model_build(s.m->arch, s.m->file, &s.m->hp,
                                 &(wf_build_params){WF_F16, WF_F32, WF_F16, WF_STACK_ALIKE, true, 64, 16}, &s.g, &s.w));
        for (const wf_node *node = s.g.nodes; node < s.g.nodes + s.g.n_nodes; node++) {
            if (node->op != WF_OP_GEMM) continue;
            bool ends = !strcmp(node->name, "attn_out") || !strcmp(node->name, "down");
            if (ends) assert_int_equal(s.g.values[node->out[WF_GEMM_Y].value].dtype, rows[i].residual);
            assert_int_equal(s.g.values[node->in[WF_GEMM_X].value].dtype, WF_F16);
            n += ends;
        }
        assert_int_equal(n, 2 * s.m->hp.n_layer);
        close_shape(&s);
    }
}

/* ---- what is dead ------------------------------------------------------------------------------------------------ */

enum { N_TOKENS = 60 };
typedef struct poisoner {
    const struct weft_engine *e;
    uint64_t filled; /* rows */
} poisoner;

static bool read_later(const wf_graph *g, const wf_node *by, int32_t value)
{
    for (const wf_node *n = by + 1; n < g->nodes + g->n_nodes; n++)
        for (int i = 0; i < WF_MAX_IN; i++)
            if (n->in[i].value == value) return true;
    return false;
}

static bool same_columns(const wf_plan *p, int32_t a, int32_t b)
{
    return p->buffer_of[a] == p->buffer_of[b] && p->offset_of[a] == p->offset_of[b];
}

/* Did the node write its result in its place? */
static bool replaced(const poisoner *x, const wf_node *n, int32_t value)
{
    const wf_plan *p = &x->e->layout.plans.list[0];
    for (int i = 0; i < WF_MAX_OUT; i++) {
        int32_t out = wf_node_out(n, (size_t)i);
        if (out >= 0 && out != value && p->buffer_of[out] >= 0 && same_columns(p, out, value) &&
            read_later(&x->e->layout.graph, n, out))
            return true;
    }
    return false;
}

static weft_status fill_rows(poisoner *x, wf_queue *q, const wf_view *v)
{
    uint64_t bytes = wf_dtype_bytes(v->dtype, v->cols) & ~3ull, pitch = wf_dtype_bytes(v->dtype, v->stride);
    for (uint32_t r = 0; r < v->rows; r++, x->filled++)
        WF_TRY(wf_fill(q, v->buf, v->offset + r * pitch, bytes, 0x7fc07fc0u)); /* NaN in F32 and F16 */
    return wf_finish(q);
}

/* A wf_exec_observer: NaN in every operand that nobody reads later. */
static weft_status poison_dead(void *user, wf_queue *q, const wf_node *n, const wf_batch *b, uint32_t first,
                               const wf_call *c)
{
    poisoner *x = user;
    const wf_graph *g = &x->e->layout.graph;
    for (int i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++) {
        int32_t v = i < WF_MAX_IN ? n->in[i].value : wf_node_out(n, (size_t)i - WF_MAX_IN);
        if (v < 0 || g->values[v].kind != WF_VALUE_ACT || read_later(g, n, v) || replaced(x, n, v)) continue;
        WF_TRY(fill_rows(x, q, i < WF_MAX_IN ? &c->in[i] : &c->out[i - WF_MAX_IN]));
    }
    return WEFT_OK;
}

typedef struct story {
    int32_t ids[N_TOKENS];
    size_t n;
    uint64_t filled;     /* rows that were poisoned */
    uint64_t pool_bytes; /* of the unified pool */
} story;

static void on_event(void *user, const struct weft_event *ev)
{
    story *s = user;
    if (ev->kind == WEFT_EVENT_TOKEN && ev->id >= 0 && s->n < N_TOKENS) s->ids[s->n++] = ev->id;
}

/* parts: that its pool has to have, with buffers of at most max_alloc (0: of any size). */
static story write_story(bool poison, uint64_t max_alloc, uint32_t parts)
{
    story s = {.n = 0};
    struct weft_engine *e = demo_engine((struct weft_engine_params){
        .device = "cpu", .context = 256, .n_seqs = 16, .threads = 1, .max_batched_tokens = 16,
        .debug = &(struct weft_debug){.max_alloc = max_alloc, .poison = true, .shuffle_pages = 3}});
    assert_int_equal(e->layout.limits.pool.n, parts);
    s.pool_bytes = wf_unified_pool_bytes(&e->layout.limits.pool);
    poisoner x = {.e = e};
    if (poison)
        wf_exec_observe(e->exec, poison_dead,
                        &x); /* the engine is idle; its lock publishes this along with the request */
    struct weft_request_params p = {.prompt = "Once upon a time there was a little dog who had a red ball and",
                                    .max_tokens = N_TOKENS, .ignore_eos = true, .on_event = on_event, .user = &s};
    assert_ok(end_of(submit_to(e, p)));
    weft_engine_close(e);
    s.filled = x.filled;
    return s;
}

/* The same story, whether what is dead is poisoned or not. */
static void test_nothing_dead_is_read(void **state)
{
    story as_ever = write_story(false, 0, 1), poisoned = write_story(true, 0, 1);
    assert_int_equal(as_ever.n, N_TOKENS);
    assert_int_equal(poisoned.n, N_TOKENS);
    assert_memory_equal(as_ever.ids, poisoned.ids, sizeof as_ever.ids);
    assert_true(as_ever.filled == 0 && poisoned.filled > 1000);
}

/* ---- one space for pages and activations ------------------------------------------------------------------------- */

typedef struct span {
    const wf_buf *buf;
    uint64_t begin, end;
} span;

static span span_of(const wf_view *v, uint64_t pitch)
{
    return (span){v->buf, v->offset, v->offset + v->rows * pitch};
}

static void check_apart(span a, span b)
{
    assert_true(a.buf != b.buf || a.end <= b.begin || b.end <= a.begin);
}

/* In a step with so many tokens: each pool ends before each buffer of activations begins, and buffers do not meet. */
static void check_step(const wf_memory *m, uint32_t tokens, uint32_t logits)
{
    span buffers[32];
    assert_in_range(m->p->n_buffers, 2, 32);
    for (size_t i = 0; i < m->p->n_buffers; i++) {
        wf_view v = wf_memory_buffer(m, (int32_t)i, tokens, logits);
        v.rows = m->p->buffers[i].rows == WF_ROWS_LOGITS ? logits : tokens;
        buffers[i] = span_of(&v, m->p->buffers[i].pitch);
        for (size_t k = 0; k < i; k++) check_apart(buffers[i], buffers[k]);
    }
    for (size_t v = 0; v < m->g->n_values; v++) {
        if (m->g->values[v].kind != WF_VALUE_KV) continue;
        wf_view pool = wf_memory_pool(m, &m->g->values[v], tokens, logits);
        span s = {pool.buf, pool.offset, pool.offset + (pool.rows - 1ull) * pool.stride * 2 + pool.cols * 2ull};
        for (size_t i = 0; i < m->p->n_buffers; i++) check_apart(s, buffers[i]);
    }
}

/* largest: bytes of a buffer, as a share of all; parts: that the pool has then. */
static void check_pool(uint32_t pages, double largest, uint32_t parts)
{
    wf_dev_fns fns;
    wf_dev *d = open_device(LIKE_NVIDIA, &fns);
    shape s = open_shape("llama3-8b", WF_F16, WF_F32, d);
    wf_plans p = {.n = 1};
    wf_memory m;
    wf_limits l = {.step_tokens = 1024, .logit_rows = 64, .seqs = 64, .seq_pages = pages, .pages = pages};
    wf_workspaces_omit(&s.g, d, &l);
    assert_ok(wf_plan_sequential(&s.g, &p.list[0]));
    assert_ok(wf_plans_finish(&s.g, &p, 256));
    uint64_t acts = wf_activation_bytes(&p.list[0], 1024, 64), all = pages * wf_page_bytes(&s.g) + acts;
    d->max_alloc = (uint64_t)((double)all * largest);
    wf_limits_unify_pool(&l, &s.g, &p.list[0], 256, d->max_alloc);
    assert_int_equal(l.pool.n, parts);
    assert_true(wf_limits_guaranteed_pages(&l) == pages);
    if (parts)
        assert_true((l.pages - pages) * wf_page_bytes(&s.g) > acts * 6 / 10 &&
                    wf_unified_pool_bytes(&l.pool) <= all + acts);
    assert_ok(wf_memory_init(&m, d, &s.g, &p.list[0], &l));
    m.limits.pages = l.pages;
    for (size_t i = 0; i < m.kv.n_slabs; i++)
        m.kv.slabs[i].buf = (wf_buf *)(uintptr_t)(i + 1); /* as if they were there */
    for (size_t i = 0; i < m.steps.n_slabs; i++) m.steps.slabs[i].buf = (wf_buf *)(uintptr_t)(i + 100);
    for (uint32_t tokens = 1; tokens <= 1024; tokens = tokens * 3 + 1) check_step(&m, tokens, WF_MIN(tokens, 64u));
    check_step(&m, 1024, 64);
    m.kv.n_slabs = m.steps.n_slabs = 0;
    wf_memory_free(&m);
    wf_plans_free(&p);
    wf_dev_close(d);
    close_shape(&s);
}

/* A router with a bias has no matrix: its scores come of a product of their own. Layers before and behind may have
 * other routers. */
static void test_routers_without_a_matrix(void **state)
{
    wf_dev_fns fns;
    wf_dev *d = open_device(ALL, &fns);
    shape s = open_shape("mixtral-8x7b", WF_F16, WF_F32, d);
    wf_node *router[3];
    size_t n = 0;
    for (size_t i = 0; i < s.g.n_nodes; i++)
        if (s.g.nodes[i].op == WF_OP_ROUTER) router[n++] = &s.g.nodes[i];
    assert_int_equal(n, 3);
    router[0]->in[WF_ROUTER_W].value = -1;
    wf_workspaces_omit(&s.g, d, &(wf_limits){.step_tokens = 1024, .logit_rows = 64});
    assert_int_equal(router[1]->omitted, router[2]->omitted);
    assert_true(router[1]->omitted);
    wf_dev_close(d);
    close_shape(&s);
}

/* Three layers: whole, in two or three buffers, and where more would be needed apart. */
static void test_pool_of_several_buffers(void **state)
{
    check_pool(4000, 1.1, 1);
    check_pool(4000, 0.7, 2);
    check_pool(4000, 0.36, 3);
    check_pool(4000, 0.2, 0);
}

/* The same story with pages and activations in several buffers. */
static void test_story_in_several_buffers(void **state)
{
    story one = write_story(false, 0, 1), two = write_story(true, one.pool_bytes * 7 / 10, 2);
    assert_memory_equal(one.ids, two.ids, sizeof one.ids);
}

/* ---- workspaces -------------------------------------------------------------------------------------------------- */

static uint64_t activation_bytes(const wf_null_config *c)
{
    wf_null_configure(c);
    struct weft_engine *e = demo_engine(
        (struct weft_engine_params){.device = "null", .context = 128, .max_batched_tokens = 64});
    uint64_t bytes = stats_of(e).activation_bytes;
    weft_engine_close(e);
    return bytes;
}

/* A fused kernel that turns out not to work leaves pieces: then there is memory for their workspaces after all. */
static void test_workspaces(void **state)
{
    uint64_t all = activation_bytes(NULL), omitted = activation_bytes(&(wf_null_config){.fused = true});
    assert_true(omitted < all);
    assert_int_equal(activation_bytes(&(wf_null_config){
                         .fused = true, .slot = WF_NULL_BIND, .nth = 3, .status = WEFT_ERR_UNSUPPORTED}),
                     all);
    wf_null_configure(NULL);
}

SUITE(activations, open_demo, close_demo, CASE(test_bytes_a_token), CASE(test_encoders),
      CASE(test_nothing_dead_is_read), CASE(test_pool_of_several_buffers), CASE(test_routers_without_a_matrix),
      CASE(test_story_in_several_buffers), CASE(test_workspaces))
