/* attention_windows: the file with every kind of damage, and that an engine gives its layers what the file says. */
#include "engine/engine.h"
#include "model/weights/attention_windows.h"
#include "support/demo.h"
#include "support/folder.h"
#include "support/rows.h"

#define HEAD "weft-attention-windows 1\n"
#define TWO  "layer 1 0 2147483647 1 5\nlayer 0 16 8 # the first layer, by KV heads\n"

static char path[80];

static weft_status load(int32_t *windows, uint32_t *sink)
{
    return wf_attention_windows_load(path, 2, 4, 2, windows, sink);
}

static void test_good_files(void **state)
{
    static const struct {
        const char *text;
        uint32_t sink;
    } good[] = {
        {HEAD TWO, 0},
        {HEAD "sink 64\n" TWO, 64},
        {HEAD "# remark\n\n \t\n" TWO "\tsink   1073741824  ", 1u << 30},
        {"weft-attention-windows 1\r\nsink 0\r\n" TWO, 0},
    };
    for (size_t i = 0; i < WF_LEN(good); i++) {
        static const int32_t want[] = {16, 16, 8, 8, 0, INT32_MAX, 1, 5};
        int32_t s[8] = {0};
        uint32_t sink = 77;
        write_text(path, good[i].text);
        if (load(s, &sink)) fail_msg("case %zu: %s", i, wf_error());
        assert_int_equal(sink, good[i].sink);
        assert_memory_equal(s, want, sizeof want);
    }
}

static void refuse(char *const *column)
{
    int32_t s[8];
    uint32_t sink;
    write_text(path, column[0]);
    if (load(s, &sink) != WEFT_ERR_FORMAT) fail_msg("%s: was read, or failed otherwise", column[0]);
    if (!strstr(wf_error(), column[1]) || !strstr(wf_error(), path)) fail_msg("%s: %s", column[0], wf_error());
}

static void test_broken_files(void **state)
{
    int32_t s[8];
    uint32_t sink;
    each_row("tests/unit/attention_windows.txt", 2, refuse);
    char zero[] = HEAD "\0" TWO;
    write_file(path, zero, sizeof zero - 1);
    assert_int_equal(load(s, &sink), WEFT_ERR_FORMAT);
    unlink(path);
    assert_int_equal(load(s, &sink), WEFT_ERR_IO);
    assert_int_equal(wf_attention_windows_load(folder, 2, 4, 2, s, &sink), WEFT_ERR_IO);
}

/* A model whose query heads have KV heads of their own. */
static void test_no_groups(void **state)
{
    int32_t s[4];
    uint32_t sink;
    write_text(path, HEAD "layer 0 1 2\nlayer 1 3 4\n");
    assert_ok(wf_attention_windows_load(path, 2, 2, 2, s, &sink));
    for (int i = 0; i < 4; i++) assert_int_equal(s[i], 1 + i);
    assert_int_equal(wf_attention_windows_load(path, 2, 4, 4, s, &sink), WEFT_ERR_FORMAT);
    assert_says("line 2: layer 0 has 2 windows: want 4, one for each head");
}

/* Layer 0 of the built-in model is sparse, the others are not; with a window for each of so many heads. */
static void write_first_layer(uint32_t n_heads)
{
    char text[4096];
    int at = snprintf(text, sizeof text, HEAD "sink 3\n");
    for (uint32_t i = 0; i < model->hp.n_layer; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at, "layer %u", i);
        for (uint32_t h = 0; h < n_heads; h++)
            at += snprintf(text + at, sizeof text - (size_t)at, " %u", i ? 0 : 10 + h);
        at += snprintf(text + at, sizeof text - (size_t)at, "\n");
    }
    write_text(path, text);
}

static void check_node(const struct weft_engine *e, const wf_node *n, uint32_t n_heads)
{
    if (n->layer) {
        assert_int_equal(n->in[WF_ATTENTION_WINDOWS].value, -1);
        return;
    }
    const wf_view *v = &e->views[e->layout.graph.values[n->in[WF_ATTENTION_WINDOWS].value].id];
    int32_t windows[64];
    assert_int_equal(n->p.sink, 3);
    assert_true(v->dtype == WF_I32 && v->rows == 1 && v->cols == n->p.n_head && v->cols <= WF_LEN(windows));
    memcpy(windows, (const uint8_t *)v->buf->host + v->offset, v->cols * sizeof *windows);
    for (uint32_t h = 0; h < v->cols; h++) assert_int_equal(windows[h], 10 + h * n_heads / v->cols);
}

static void check_engine(const struct weft_engine_params *p, uint32_t n_heads)
{
    write_first_layer(n_heads);
    struct weft_engine *e = demo_engine(*p);
    for (size_t i = 0; i < e->layout.graph.n_nodes; i++)
        if (e->layout.graph.nodes[i].op == WF_OP_ATTENTION) check_node(e, &e->layout.graph.nodes[i], n_heads);
    weft_engine_close(e);
}

static void test_engine(void **state)
{
    struct weft_engine *e = NULL;
    struct weft_engine_params p = {.device = "null", .context = 64, .attention_windows = path};
    check_engine(&p, model->hp.n_kv_head);
    check_engine(&p, model->hp.n_head);
    write_text(path, HEAD TWO); /* of another model */
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_ERR_ARG);
    p.attention_windows = "/nonexistent";
    assert_int_equal(weft_engine_open(model, &p, &e), WEFT_ERR_ARG);
}

static int setup(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/file", folder);
    return open_demo(state);
}

static int teardown(void **state)
{
    close_demo(state);
    return remove_folder(state);
}

SUITE(attention_windows, setup, teardown, CASE(test_good_files), CASE(test_broken_files), CASE(test_no_groups),
      CASE(test_engine))
