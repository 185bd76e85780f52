/* shard: models of which each of several devices has a part. The graphs of all parts run here side by side on the CPU,
 * node by node, and what devices would exchange this test puts together: they end in the logits of the model that is in
 * one piece, whatever of it is cut. In the same way graphs whose nodes are fused end in the numbers of those whose
 * nodes are not. */
#include "model/model.h"
#include "model/weights/adapters.h"
#include "model/weights/attention_windows.h"
#include "plan/plan.h"
#include "support/suite.h"

#include <math.h>

enum { TOKENS = 9, PAGE = 4, PAGES = 4, MOST = 4 };

/* ---- one device -------------------------------------------------------------------------------------------------- */

static wf_dev *dev;
static wf_queue *queue;

static int open_cpu(void **state)
{
    weft_log_to(NULL, NULL, WEFT_LOG_ERROR);
    return wf_dev_open("cpu", &(wf_open_params){.tier = WF_TIER_MATRIX, .watchdog_ms = 60000}, &dev) ||
           wf_queue_create(dev, &queue);
}

static int close_cpu(void **state)
{
    wf_queue_destroy(queue);
    wf_dev_close(dev);
    return 0;
}

typedef struct part {
    wf_graph g;
    wf_weights w;
    wf_buf **bufs; /* by value; NULL: it has none of its own */
} part;

static struct weft_model *open_model(const char *path)
{
    struct weft_model *m = NULL;
    struct weft_model_params p = {.path = path};
    if (!strncmp(path, "shape ", 6)) p = (struct weft_model_params){.shape = path + 6, .type = "Q4_K_M", .layers = 1};
    assert_ok(weft_model_open(&p, &m));
    return m;
}

/* How a model runs. */
typedef struct how {
    uint32_t ranks;
    bool stacked; /* and with neighbouring pairs, as GPUs want it */
    const char *windows;
    bool fused;
    enum wf_when when; /* WF_WHEN_ADAPTED or WF_WHEN_PLAIN: it has nodes for adapters, and runs with them or without */
    bool half; /* parts of sums are exchanged in F16 */
} how;

/* As for a device with fused kernels; this one runs its nodes in pieces. */
static weft_status fuse(wf_graph *g)
{
    wf_dev like = *dev;
    like.has_fused_gemm = like.has_fused_router = true;
    return wf_graph_fuse(g, &like);
}

static weft_status build(const struct weft_model *m, how h, uint32_t rank, part *p)
{
    wf_build_params b = wf_build_params_of(dev, 64, PAGE);
    b.shard = (wf_shard){rank, h.ranks, .sums = h.half ? WF_F16 : WF_F32};
    b.stack_weights = h.stacked ? WF_STACK_MIXED : WF_STACK_NONE, b.adjacent_pairs = h.stacked;
    *p = (part){0};
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, &p->g, &p->w));
    wf_adapters a = {.places = h.when ? 2 : 0, .rank = 16, .any = true};
    weft_status s = wf_adapters_add(&a, b.act, &p->g, &p->w);
    wf_adapters_free(&a);
    if (s == WEFT_OK && h.fused) s = fuse(&p->g);
    if (s != WEFT_OK) return s;
    return wf_attention_windows_use(m, h.windows, b.shard, &p->g, &p->w);
}

static void close_part(part *p)
{
    for (size_t v = 0; p->bufs && v < p->g.n_values; v++)
        if (p->bufs[v]) wf_buf_destroy(p->bufs[v]);
    free(p->bufs);
    wf_weights_free(&p->w);
    wf_graph_free(&p->g);
}

static uint32_t rows_of(const wf_value *v)
{
    if (v->kind == WF_VALUE_KV) return PAGES;
    if (v->kind != WF_VALUE_INPUT) return TOKENS;
    return v->id == WF_INPUT_INDPTR ? 2 : v->id == WF_INPUT_PAGES ? PAGES : TOKENS;
}

/* One prompt, whose pages lie in disorder; logits of all its tokens are wanted. */
static int32_t input(enum wf_input i, int32_t m)
{
    static const int32_t pages[PAGES] = {2, 0, 3, 1};
    switch (i) {
    case WF_INPUT_TOKEN: return 5 + m * m % 97;
    case WF_INPUT_POS:
    case WF_INPUT_LOGIT_ROWS: return m;
    case WF_INPUT_SLOT: return pages[m / PAGE] * PAGE + m % PAGE;
    case WF_INPUT_LAST: return TOKENS - 1;
    case WF_INPUT_INDPTR: return m * PAGES;
    case WF_INPUT_PAGES: return pages[m];
    case WF_INPUT_ADAPTER: return m % 2;
    default: return 0;
    }
}

static void load(part *p)
{
    p->bufs = calloc(p->g.n_values, sizeof *p->bufs);
    for (size_t i = 0; i < p->g.n_values; i++) {
        const wf_value *v = &p->g.values[i];
        if (v->kind == WF_VALUE_WEIGHT || v->kind == WF_VALUE_STATE) continue;
        assert_ok(wf_buf_create(dev, rows_of(v) * wf_dtype_bytes(v->dtype, v->cols), &p->bufs[i]));
        for (uint32_t m = 0; v->kind == WF_VALUE_INPUT && v->cols == 1 && m < rows_of(v); m++)
            ((int32_t *)p->bufs[i]->host)[m] = input((enum wf_input)v->id, (int32_t)m);
    }
}

static wf_view view_of(const part *p, wf_operand o)
{
    if (o.value < 0) return (wf_view){0};
    const wf_value *v = &p->g.values[o.value];
    if (v->kind == WF_VALUE_WEIGHT) return p->w.list[v->id].view;
    return (wf_view){.buf = p->bufs[o.value], .offset = wf_dtype_bytes(v->dtype, o.col), .rows = rows_of(v),
                     .cols = o.cols ? o.cols : v->cols, .stride = v->cols, .dtype = (uint8_t)v->dtype};
}

static bool takes_part(const wf_node *n, enum wf_when when)
{
    return (n->kind == WF_NODE_KERNEL || n->kind >= WF_NODE_SEND) && (n->when == WF_ALWAYS || n->when == when) &&
           n->rows != WF_ROWS_DECODE;
}

static void run_kernel(const part *p, const wf_node *n)
{
    wf_call c = {.op = n->op, .variant = -1, .p = n->p};
    c.p.max_kv = c.p.max_q = TOKENS;
    for (size_t i = 0; i < WF_MAX_IN; i++) c.in[i] = view_of(p, n->in[i]);
    for (size_t i = 0; i < WF_MAX_OUT; i++) c.out[i] = view_of(p, n->out[i]);
    assert_ok(wf_submit(queue, &c));
    assert_ok(wf_finish(queue));
}

/* ---- several ----------------------------------------------------------------------------------------------------- */

static float *decoded(const part *p, int32_t value, uint32_t *cols)
{
    const wf_value *v = &p->g.values[value];
    size_t n = (size_t)TOKENS * v->cols;
    float *x = malloc(n * sizeof *x);
    wf_dtypes[v->dtype].decode(p->bufs[value]->host, x, n);
    *cols = v->cols;
    return x;
}

/* What a node gives of all devices' columns. */
static void combine(part *p, uint32_t ranks, size_t node)
{
    const wf_node *n = &p->g.nodes[node];
    const wf_value *to = &p->g.values[n->out[0].value];
    float *all = calloc((size_t)TOKENS * to->cols, sizeof *all);
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t pitch;
        const wf_operand *o = &p[r].g.nodes[node].in[0];
        float *x = decoded(&p[r], o->value, &pitch);
        uint32_t cols = o->cols ? o->cols : pitch;
        assert_int_equal(cols * ranks, to->cols);
        assert_int_equal(o->col, n->kind == WF_NODE_ALL_GATHER ? r * cols : 0);
        for (uint32_t m = 0; m < TOKENS; m++)
            memcpy(&all[m * to->cols + r * cols], &x[m * pitch + o->col], cols * sizeof *x);
        free(x);
    }
    for (uint32_t r = 0; r < ranks; r++)
        wf_dtypes[to->dtype].encode(all, p[r].bufs[p[r].g.nodes[node].out[0].value]->host,
                                    (size_t)TOKENS * to->cols);
    free(all);
}

static void assert_same_nodes(const part *p, uint32_t ranks)
{
    for (uint32_t r = 1; r < ranks; r++) {
        assert_int_equal(p[r].g.n_nodes, p->g.n_nodes);
        for (size_t i = 0; i < p->g.n_nodes; i++) {
            const wf_node *a = &p->g.nodes[i], *b = &p[r].g.nodes[i];
            assert_true(a->kind == b->kind && a->op == b->op && a->layer == b->layer && a->rows == b->rows);
            assert_string_equal(a->name, b->name);
        }
    }
}

static void run_nodes(part *p, uint32_t ranks, enum wf_when when)
{
    for (size_t i = 0; i < p->g.n_nodes; i++) {
        const wf_node *n = &p->g.nodes[i];
        if (!takes_part(n, when)) continue;
        for (uint32_t r = 0; r < ranks && n->kind == WF_NODE_KERNEL; r++) run_kernel(&p[r], &p[r].g.nodes[i]);
        if (n->kind != WF_NODE_KERNEL) combine(p, ranks, i);
    }
}

/* Into the places of adapters: small numbers of F16. */
static void fill_places(part *p)
{
    for (wf_weight *w = p->w.list; w < p->w.list + p->w.n; w++) {
        uint16_t *x = w->zeros ? (uint16_t *)((uint8_t *)w->view.buf->host + w->view.offset) : NULL;
        for (size_t i = 0; x && i < (size_t)w->rows * w->cols; i++) x[i] = (uint16_t)(i % 3 << 15 | (0x2400 + i % 101));
    }
}

/* The logits, or the rows that an encoder ends in. */
static float *run_all(const struct weft_model *m, how h, uint32_t *cols)
{
    part p[MOST] = {{.bufs = NULL}};
    for (uint32_t r = 0; r < h.ranks; r++) {
        assert_ok(build(m, h, r, &p[r]));
        assert_ok(wf_weights_upload(&p[r].w, m->file, dev, queue, NULL, NULL));
        load(&p[r]);
        fill_places(&p[r]);
    }
    assert_same_nodes(p, h.ranks);
    run_nodes(p, h.ranks, h.when);
    float *x = decoded(p, p->g.logits, cols);
    for (uint32_t r = 0; r < h.ranks; r++) close_part(&p[r]);
    return x;
}

/* The largest difference, of the largest number. */
static double difference(const float *a, const float *b, size_t n)
{
    double most = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        most = fmax(most, fabs(a[i])), off = fmax(off, fabs(a[i] - b[i]));
    }
    assert_true(most > 0);
    return off / most;
}

#define DATA "tests/model/data/"
#define EMBEDDINGS "tests/model/embeddings/"
static const struct {
    const char *path;
    uint32_t most; /* devices */
} models[] = {
    {DATA "llama", 4},     {DATA "llama3", 4},    {DATA "mistral-window", 4}, {DATA "mixtral", 4},
    {DATA "qwen2", 4},     {DATA "qwen3", 4},     {DATA "qwen2moe", 4},       {DATA "qwen3moe", 4},
    {DATA "gpt-oss", 4},   {DATA "gemma2", 4},    {DATA "gemma3", 4},         {DATA "phi3", 4},
    {DATA "phi4", 4},      {DATA "falcon", 4},    {DATA "falcon40b", 4},      {DATA "command-r", 4},
    {DATA "gpt2", 4},      {DATA "opt", 4},       {DATA "granite", 4},        {DATA "smollm3", 4},
    {DATA "starcoder2", 4}, {EMBEDDINGS "bert", 2}, {EMBEDDINGS "modern-bert", 2}, {EMBEDDINGS "nomic-bert", 2},
    {"models/demo.gguf", 4}, {"shape llama-1.1b", 2},
};

/* Sums come in another order, and the KV cache is in F16. */
static const struct {
    double most, mean;
} tolerances[] = {
#define MODEL(what, most, mean) {most, mean},
#include "verify/tolerances.def"
};

static void check_parts(const struct weft_model *m, const char *name, how whole, how parts)
{
    uint32_t cols, others;
    float *one = run_all(m, whole, &cols), *several = run_all(m, parts, &others);
    assert_int_equal(cols, others);
    double off = difference(one, several, (size_t)TOKENS * cols);
    if (off > tolerances[0].most) fail_msg("%s on %u devices: %g", name, parts.ranks, off);
    free(one);
    free(several);
}

static void parts_make_the_whole(void **state)
{
    for (size_t i = 0; i < WF_LEN(models); i++) {
        struct weft_model *m = open_model(models[i].path);
        for (uint32_t ranks = 2; ranks <= models[i].most; ranks += 2) {
            bool stacked = ranks == models[i].most;
            check_parts(m, models[i].path, (how){1, stacked}, (how){ranks, stacked, .half = stacked});
        }
        weft_model_close(m);
    }
}

static void check_fused(const struct weft_model *m, const char *name, how h)
{
    uint32_t cols;
    float *plain = run_all(m, h, &cols), *fused = run_all(m, (h.fused = true, h), &cols);
    if (memcmp(plain, fused, TOKENS * cols * sizeof *plain)) fail_msg("%s, %d: fused nodes differ", name, h.when);
    free(plain);
    free(fused);
}

/* To the bit, since the kernels are the same. Only RMSNorm and certain products are fused, and not in the small models
 * of all architectures. */
static void fused_nodes_are_their_parts(void **state)
{
    uint32_t n = 0;
    for (size_t i = 0; i < WF_LEN(models); i++) {
        struct weft_model *m = open_model(models[i].path);
        part plain, fused;
        check_fused(m, models[i].path, (how){1, true});
        check_fused(m, models[i].path, (how){1, true, .when = WF_WHEN_PLAIN});
        check_fused(m, models[i].path, (how){1, true, .when = WF_WHEN_ADAPTED});
        assert_ok(build(m, (how){1, true}, 0, &plain));
        assert_ok(build(m, (how){1, true, .fused = true}, 0, &fused));
        n += fused.g.n_nodes < plain.g.n_nodes;
        close_part(&plain);
        close_part(&fused);
        weft_model_close(m);
    }
    assert_true(n > 20);
}

/* Not as many tokens as can be cut: each device has all logits. */
static void a_vocabulary_that_cannot_be_cut(void **state)
{
    static const char *const paths[] = {DATA "llama", DATA "llama3"};
    for (size_t i = 0; i < WF_LEN(paths); i++) {
        struct weft_model *m = open_model(paths[i]);
        part p;
        m->hp.n_vocab--;
        for (wf_gguf_tensor *t = m->file->tensors; t < m->file->tensors + m->file->n_tensors; t++)
            if (t->n_dims == 2 && t->dims[1] == m->hp.n_vocab + 1)
                t->bytes -= t->bytes / t->dims[1], t->dims[1]--;
        check_parts(m, paths[i], (how){1}, (how){2});
        assert_ok(build(m, (how){2}, 1, &p));
        assert_int_equal(p.g.values[p.g.logits].cols, m->hp.n_vocab);
        for (size_t n = 0; n < p.g.n_nodes; n++) assert_int_not_equal(p.g.nodes[n].kind, WF_NODE_GATHER);
        close_part(&p);
        weft_model_close(m);
    }
}

/* ---- attention windows of heads ---------------------------------------------------------------------------------- */

static const char *windows_file(const char *heads)
{
    char text[1024];
    int at = snprintf(text, sizeof text, "weft-attention-windows 1\nsink 1\n");
    for (int layer = 0; layer < 5; layer++)
        at += snprintf(text + at, sizeof text - (size_t)at, "layer %d %s\n", layer, heads);
    return file_of(text);
}

static void windows_follow_their_heads(void **state)
{
    struct weft_model *m = open_model("models/demo.gguf");
    part p;
    const char *path = windows_file("2 7 3 4 7 3 2 5");
    check_parts(m, "windows", (how){1, .windows = path}, (how){2, .windows = path});
    unlink(path);
    path = windows_file("2 7 3 4 6 3 2 5"); /* the second device would need fewer pages */
    assert_ok(build(m, (how){2, .windows = path}, 0, &p));
    close_part(&p);
    assert_error(build(m, (how){2, .windows = path}, 1, &p), WEFT_ERR_ARG,
                 "layer 0: a device has heads with windows of at most 6, but one of all heads has 7");
    close_part(&p);
    unlink(path);
    weft_model_close(m);
}

/* ---- what a part is ---------------------------------------------------------------------------------------------- */

static const wf_weight *matrix_of(const part *p, const char *name, int32_t layer)
{
    for (const wf_node *n = p->g.nodes; n < p->g.nodes + p->g.n_nodes; n++)
        if (n->op == WF_OP_GEMM && n->layer == layer && !strcmp(n->name, name))
            return &p->w.list[p->g.values[n->in[WF_GEMM_W].value].id];
    fail_msg("no product %s", name);
    return NULL;
}

static size_t count_nodes(const part *p, enum wf_node_kind kind, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < p->g.n_nodes; i++) n += p->g.nodes[i].kind == kind && !strcmp(p->g.nodes[i].name, name);
    return n;
}

/* Matrices, and what of them a device has; KV heads that several have are fewer than devices. */
static void check_shapes(const struct weft_model *m, uint32_t ranks, uint32_t kv_ranks)
{
    const struct {
        const char *name;
        int32_t layer;
        uint32_t rows, cols; /* devices that share these */
    } want[] = {{"q", 0, ranks, 1}, {"k", 0, kv_ranks, 1}, {"v", 0, kv_ranks, 1}, {"attn_out", 0, 1, ranks},
                {"gate", 0, ranks, 1}, {"up", 0, ranks, 1}, {"down", 0, 1, ranks}, {"logits", WF_ONCE, ranks, 1}};
    part whole, p;
    assert_ok(build(m, (how){1}, 0, &whole));
    assert_ok(build(m, (how){ranks}, ranks - 1, &p));
    for (size_t i = 0; i < WF_LEN(want); i++) {
        const wf_weight *a = matrix_of(&whole, want[i].name, want[i].layer),
                        *b = matrix_of(&p, want[i].name, want[i].layer);
        assert_int_equal(b->rows * want[i].rows, a->rows);
        assert_int_equal(b->cols * want[i].cols, a->cols);
    }
    assert_int_equal(count_nodes(&whole, WF_NODE_ALL_GATHER, "attn_out_parts"), 0);
    assert_int_equal(count_nodes(&p, WF_NODE_ALL_GATHER, "attn_out_parts"), m->hp.n_layer);
    assert_int_equal(count_nodes(&p, WF_NODE_ALL_GATHER, "ffn_down_parts"), m->hp.n_layer);
    assert_int_equal(count_nodes(&p, WF_NODE_KERNEL, "attn_out_sum"), m->hp.n_layer);
    assert_int_equal(count_nodes(&p, WF_NODE_KERNEL, "ffn_down_sum"), m->hp.n_layer);
    assert_int_equal(count_nodes(&p, WF_NODE_GATHER, "logits_gather"), 1);
    assert_int_equal(p.g.values[p.g.logits].cols, m->hp.n_vocab);
    close_part(&whole);
    close_part(&p);
}

static void parts_have_their_shapes(void **state)
{
    struct weft_model *m = open_model("models/demo.gguf");
    check_shapes(m, 2, 2);
    check_shapes(m, 4, 4);
    check_shapes(m, 8, 4);
    weft_model_close(m);
}

/* All that is cut, the devices together have once; a table of embeddings, whose rows are the output matrix besides,
 * norms and rotations each has. */
static void bytes_are_those_of_the_part(void **state)
{
    struct weft_model *m = open_model("shape llama-1.1b");
    part whole, p;
    uint64_t each = 0, table = 0;
    assert_ok(build(m, (how){1}, 0, &whole));
    for (const wf_weight *w = whole.w.list; w < whole.w.list + whole.w.n; w++)
        if (!w->n_parts || w->rows == m->hp.n_vocab) table += w->rows * wf_dtype_bytes(w->dtype, w->cols);
    const wf_weight *out = matrix_of(&whole, "logits", WF_ONCE);
    table -= out->rows * wf_dtype_bytes(out->dtype, out->cols);
    for (uint32_t r = 0; r < 2; r++) {
        assert_ok(build(m, (how){2}, r, &p));
        each += wf_weights_bytes(&p.w);
        close_part(&p);
    }
    assert_int_equal(each, wf_weights_bytes(&whole.w) + table);
    close_part(&whole);
    weft_model_close(m);
}

/* A plan of one queue has a place for all values; parts of sums come to where a device has its own. */
static void parts_have_plans(void **state)
{
    struct weft_model *m = open_model("models/demo.gguf");
    part p;
    assert_ok(build(m, (how){2, true}, 1, &p));
    assert_ok(wf_graph_end(&p.g));
    wf_plans plans = {.n = 1};
    assert_ok(wf_plan_sequential(&p.g, &plans.list[0]));
    assert_ok(wf_plans_finish(&p.g, &plans, 256));
    for (const wf_node *n = p.g.nodes; n < p.g.nodes + p.g.n_nodes; n++) {
        if (n->kind < WF_NODE_SEND) continue;
        const wf_plan *x = &plans.list[0];
        int32_t in = n->in[0].value, out = n->out[0].value;
        bool together = x->buffer_of[in] == x->buffer_of[out] && x->offset_of[in] == x->offset_of[out];
        assert_true(x->buffer_of[in] >= 0 && x->buffer_of[out] >= 0);
        assert_int_equal(together, n->kind == WF_NODE_ALL_GATHER);
    }
    wf_plans_free(&plans);
    close_part(&p);
    weft_model_close(m);
}

static void what_cannot_be_cut(void **state)
{
    static const struct {
        const char *path;
        uint32_t rank, ranks;
        weft_status status;
        const char *words;
    } rows[] = {
        {DATA "llama", 0, 3, WEFT_ERR_UNSUPPORTED,
         "3 devices cannot have equal parts of 4 heads, 2 KV heads and a feed-forward of 96; numbers that can: 1, 2, "
         "4"},
        {DATA "qwen2moe", 0, 3, WEFT_ERR_UNSUPPORTED, "a feed-forward of 32 and one of 48; numbers that can: 1, 2, 4"},
        {DATA "olmo2", 1, 2, WEFT_ERR_UNSUPPORTED, "norms of q and k are of all heads at once"},
        {DATA "llama", 2, 2, WEFT_ERR_ARG, "device 2 of a group of 2: want 0 to 1"},
        {"shape llama-1.1b", 0, 4, WEFT_ERR_UNSUPPORTED,
         "4 devices would cut blocks of 256 columns: tensor 'blk.0.ffn_down.weight' has 5632 columns in Q6_K; numbers "
         "that can: 1, 2"}};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        struct weft_model *m = open_model(rows[i].path);
        part p;
        assert_error(build(m, (how){rows[i].ranks}, rows[i].rank, &p), rows[i].status, rows[i].words);
        close_part(&p);
        weft_model_close(m);
    }
}

static void adapters_are_for_one_device(void **state)
{
    struct weft_model *m = open_model("models/demo.gguf");
    wf_adapters a = {.places = 2, .rank = 16};
    part p;
    assert_ok(build(m, (how){2}, 1, &p));
    assert_error(wf_adapters_add(&a, dev->act, &p.g, &p.w), WEFT_ERR_UNSUPPORTED, "runs on one device");
    close_part(&p);
    weft_model_close(m);
}

SUITE(shard, open_cpu, close_cpu, CASE(parts_make_the_whole), CASE(fused_nodes_are_their_parts),
      CASE(a_vocabulary_that_cannot_be_cut),
      CASE(windows_follow_their_heads), CASE(parts_have_their_shapes), CASE(bytes_are_those_of_the_part),
      CASE(parts_have_plans), CASE(what_cannot_be_cut), CASE(adapters_are_for_one_device))
