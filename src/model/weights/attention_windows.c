/* attention_windows: see attention_windows.h. */
#include "model/weights/attention_windows.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    uint32_t n_layers, n_heads, n_kv_heads;
    int32_t *out;
    uint32_t *sink;
    bool *seen; /* by layer; the last one: the sink */
} reader;

/* Parses a decimal number up to `most`. */
static bool number(const char *word, uint32_t most, uint32_t *out)
{
    uint64_t n = 0;
    size_t digits = strspn(word, "0123456789");
    for (size_t i = 0; i < digits && n <= most; i++) n = 10 * n + (uint64_t)(word[i] - '0');
    *out = (uint32_t)n;
    return digits && !word[digits] && n <= most;
}

static weft_status read_sink(reader *r, char *rest)
{
    const char *word = strtok_r(NULL, " \t", &rest);
    bool *seen = &r->seen[r->n_layers];
    if (*seen) return wf_fail(WEFT_ERR_FORMAT, "'sink' appears twice");
    if (!word || !number(word, WF_MAX_SINK, r->sink) || strtok_r(NULL, " \t", &rest))
        return wf_fail(WEFT_ERR_FORMAT, "want 'sink N', N from 0 to %u", WF_MAX_SINK);
    *seen = true;
    return WEFT_OK;
}

/* Windows of KV heads become those of their query heads, in place. */
static void share_windows(int32_t *windows, uint32_t n_heads, uint32_t n_kv_heads)
{
    for (uint32_t h = n_heads; h-- > 0;) windows[h] = windows[h / (n_heads / n_kv_heads)];
}

static weft_status bad_count(const reader *r, uint32_t layer, uint32_t n)
{
    if (r->n_heads == r->n_kv_heads)
        return wf_fail(WEFT_ERR_FORMAT, "layer %u has %u windows: want %u, one for each head", layer, n, r->n_heads);
    return wf_fail(WEFT_ERR_FORMAT,
                   "layer %u has %u windows: want %u, one for each query head, or %u, one for each KV head", layer, n,
                   r->n_heads, r->n_kv_heads);
}

static weft_status read_windows(const reader *r, uint32_t layer, char *rest)
{
    int32_t *own = r->out + (size_t)layer * r->n_heads;
    uint32_t n = 0, window;
    for (const char *word; (word = strtok_r(NULL, " \t", &rest)); n++) {
        if (!number(word, INT32_MAX, &window))
            return wf_fail(WEFT_ERR_FORMAT, "layer %u: '%.32s' is not an attention window: want 0 (all keys) to %d",
                           layer, word, INT32_MAX);
        if (n < r->n_heads) own[n] = (int32_t)window;
    }
    if (n != r->n_heads && n != r->n_kv_heads) return bad_count(r, layer, n);
    if (n != r->n_heads) share_windows(own, r->n_heads, r->n_kv_heads);
    return WEFT_OK;
}

static weft_status read_layer(reader *r, char *rest)
{
    const char *word = strtok_r(NULL, " \t", &rest);
    uint32_t layer;
    if (!word || !number(word, UINT32_MAX, &layer)) return wf_fail(WEFT_ERR_FORMAT, "want 'layer N' and its windows");
    if (layer >= r->n_layers)
        return wf_fail(WEFT_ERR_FORMAT, "layer %u: the model has 0 to %u", layer, r->n_layers - 1);
    if (r->seen[layer]) return wf_fail(WEFT_ERR_FORMAT, "layer %u appears twice", layer);
    r->seen[layer] = true;
    return read_windows(r, layer, rest);
}

static weft_status read_line(void *user, char *line)
{
    char *rest, *word = strtok_r(line, " \t", &rest);
    if (!strcmp(word, "sink")) return read_sink(user, rest);
    if (!strcmp(word, "layer")) return read_layer(user, rest);
    return wf_fail(WEFT_ERR_FORMAT, "'%.32s': want 'sink N' or 'layer N' and a window for each head", word);
}

weft_status wf_attention_windows_load(const char *path, uint32_t n_layers, uint32_t n_head, uint32_t n_kv_head,
                                      int32_t *out, uint32_t *sink)
{
    reader r = {n_layers, n_head, n_kv_head, out, sink, wf_calloc((size_t)n_layers + 1, sizeof *r.seen)};
    if (!r.seen) return WEFT_ERR_NOMEM;
    *sink = 0;
    weft_status s = wf_read_lines(path, "weft-attention-windows 1", read_line, &r);
    for (uint32_t i = 0; i < n_layers && s == WEFT_OK; i++)
        if (!r.seen[i]) s = wf_fail(WEFT_ERR_FORMAT, "%s: layer %u is missing", path, i);
    free(r.seen);
    return s;
}

/* ---- use -------------------------------------------------------------------------------------------------- */

/* Adds the windows of a layer to the weights, as a constant. */
static weft_status add_constant(const int32_t *windows, uint32_t n, wf_graph *g, wf_weights *w, int32_t *value)
{
    int32_t *copy = wf_calloc(n, sizeof *copy);
    if (!copy) return WEFT_ERR_NOMEM;
    memcpy(copy, windows, n * sizeof *copy);
    *value = wf_weights_add(w, g, &(wf_weight){.made = copy, .dtype = WF_I32, .rows = 1, .cols = n});
    if (*value < 0) free(copy);
    return *value < 0 ? WEFT_ERR_NOMEM : WEFT_OK;
}

static bool hides(const int32_t *windows, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (windows[i]) return true;
    return false;
}

/* 0: some head attends to all keys. */
static uint32_t longest_window(const int32_t *windows, uint32_t n)
{
    int32_t longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (windows[i] <= 0) return 0;
        longest = WF_MAX(longest, windows[i]);
    }
    return (uint32_t)longest;
}

/* A layer's page tables are as long as its longest window, and the same on all devices that compute it together. */
static weft_status check_shard(const int32_t *own, uint32_t n_own, const int32_t *windows, uint32_t n, int32_t layer)
{
    uint32_t here = longest_window(own, n_own), all = longest_window(windows, n);
    return here == all ? WEFT_OK
                       : wf_fail(WEFT_ERR_UNSUPPORTED, "layer %d: a device has heads with windows of at most %u, but "
                                 "one of all heads has %u (0: all keys); of several devices each needs a head with the "
                                 "longest window", layer, here, all);
}

/* Of a shard those of its heads. */
static weft_status set_nodes(const int32_t *windows, uint32_t n_heads, uint32_t sink, uint32_t rank, wf_graph *g,
                             wf_weights *w)
{
    unsigned sparse = 0, all = 0;
    if (g->bidirectional) return wf_fail(WEFT_ERR_UNSUPPORTED, "tokens of the model attend in both directions");
    int32_t last = -1; /* a layer has a node for decodes and one for prompts */
    for (size_t i = 0; i < g->n_nodes; i++) {
        wf_node *n = &g->nodes[i];
        if (n->op != WF_OP_ATTENTION) continue;
        const int32_t *of_layer = windows + (size_t)n->layer * n_heads, *own = of_layer + (size_t)rank * n->p.n_head;
        int32_t value;
        bool first = n->layer != last;
        last = n->layer;
        all += first;
        WF_TRY(check_shard(own, n->p.n_head, of_layer, n_heads, n->layer));
        if (!hides(own, n->p.n_head)) continue;
        if (n->in[WF_ATTENTION_WINDOWS].value >= 0)
            return wf_fail(WEFT_ERR_ARG,
                           "layer %d: the model has a sliding window there; give it the window 0 for each head",
                           n->layer);
        WF_TRY(add_constant(own, n->p.n_head, g, w, &value));
        n->in[WF_ATTENTION_WINDOWS] = WF_ALL(value);
        n->p.sink = sink;
        sparse += first;
    }
    wf_log(WEFT_LOG_INFO, "attention windows: sparse attention in %u of %u layers, sink %u", sparse, all, sink);
    return WEFT_OK;
}

/* Of a node; 0: none, for some of its heads. */
static uint32_t longest_of(const wf_node *n, const wf_graph *g, const wf_weights *w)
{
    int32_t value = n->in[WF_ATTENTION_WINDOWS].value;
    if (value < 0) return 0;
    const wf_weight *own = &w->list[g->values[value].id];
    return longest_window(own->made, own->cols);
}

weft_status wf_attention_windows_lay_out(wf_graph *g, const wf_weights *w, const wf_kv_growth *growth)
{
    wf_kv_layout layout;
    uint32_t n = (uint32_t)g->n_layers;
    wf_kv_window *windows = wf_calloc((size_t)n + 1, sizeof *windows);
    if (!windows) return WEFT_ERR_NOMEM;
    for (const wf_node *i = g->nodes; i < g->nodes + g->n_nodes; i++)
        if (i->op == WF_OP_ATTENTION && i->in[WF_ATTENTION_AROUND].value < 0)
            windows[i->layer] = (wf_kv_window){longest_of(i, g, w), i->p.sink};
    weft_status s = wf_kv_layout_choose(windows, n, growth, &layout);
    free(windows);
    return s == WEFT_OK ? wf_graph_lay_out_kv(g, &layout) : s;
}

weft_status wf_attention_windows_use(const struct weft_model *m, const char *path, wf_shard shard, wf_graph *g,
                                     wf_weights *w)
{
    uint32_t sink;
    if (!path) return WEFT_OK;
    int32_t *windows = wf_calloc((size_t)m->hp.n_layer * m->hp.n_head, sizeof *windows);
    weft_status s = windows
                        ? wf_attention_windows_load(path, m->hp.n_layer, m->hp.n_head, m->hp.n_kv_head, windows, &sink)
                        : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) s = set_nodes(windows, m->hp.n_head, sink, shard.rank, g, w);
    free(windows);
    return wf_fail_param(s, "attention_windows");
}
