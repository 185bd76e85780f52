/* pattern: see pattern.h. Weights are cut into spans, neighbouring bands of one part; each is one call. */
#include "model/weights/pattern.h"

#include "verify/bind.h"

#include <stdlib.h>

#define SPAN_BYTES (32u << 20)
enum { BANDS = WF_PATTERN_ROWS / WF_LAYOUT_BAND /* of a pattern */, COPIES = 4 /* in flight */ };

typedef struct pattern {
    wf_gguf_tensor tensor;      /* without a name */
    const wf_gguf_tensor *part; /* that one */
    wf_weight weight;
    wf_region region;
} pattern;

typedef struct span {
    const wf_weight *w;
    size_t pattern, at; /* at: of its first band in the list of sources */
    uint64_t offset;    /* in the weight's buffer */
    uint32_t bands;
} span;

struct wf_patterns {
    wf_dev *dev;
    const wf_filler *fill;
    pattern *list;
    span *spans;
    int32_t *bands; /* of the pattern that each band is a copy of; then 0, 1, 2, ... for as many as a span has at most */
    size_t n, cap, n_spans, cap_spans, n_bands, cap_bands;
    uint64_t bytes;
    uint32_t longest;
    wf_arena arena;
    wf_region index; /* what `bands` holds */
    wf_event *copied[COPIES];
};

/* ---- what is made of patterns --------------------------------------------------------------------------------------- */

/* Rows that change places do so within whole heads of a part, and so within a group. */
static bool heads_stay_together(const wf_pairs *p, uint64_t begin, uint64_t end)
{
    return begin >= p->rows || (end <= p->rows && begin % p->head == 0 && WF_PATTERN_GROUP % p->head == 0);
}

bool wf_pattern_makes(const wf_weight *w)
{
    uint64_t at = 0, rows;
    for (uint32_t i = 0; i < w->n_parts; i++, at += rows) {
        rows = wf_part_rows(w, w->parts[i]);
        if (w->parts[i]->data || rows % WF_LAYOUT_BAND || !heads_stay_together(&w->pairs, at, at + rows)) return false;
    }
    return w->n_parts && w->turn % WF_LAYOUT_BAND == 0 && !(w->turn && w->pairs.rows);
}

/* ---- patterns ------------------------------------------------------------------------------------------------------- */

static bool serves(const pattern *p, const wf_gguf_tensor *t, const wf_weight *w, bool pairs)
{
    const wf_weight *own = &p->weight;
    if (p->tensor.dtype != t->dtype || own->dtype != w->dtype || own->cols != w->cols || own->view.layout != w->view.layout) return false;
    return pairs ? own->pairs.rows && own->pairs.head == w->pairs.head && own->pairs.n_rot == w->pairs.n_rot : !own->pairs.rows;
}

static weft_status find_pattern(wf_patterns *p, const wf_gguf_tensor *t, const wf_weight *w, bool pairs, size_t *i)
{
    for (*i = 0; *i < p->n; ++*i)
        if (serves(&p->list[*i], t, w, pairs)) return WEFT_OK;
    if (!wf_grow(&p->list, p->n, &p->cap, sizeof *p->list)) return WEFT_ERR_NOMEM;
    pattern *new = &p->list[p->n++];
    *new = (pattern){.tensor = {.n_dims = 2, .dims = {w->cols, WF_PATTERN_ROWS, 1, 1}, .dtype = t->dtype, .bytes = WF_PATTERN_ROWS * wf_dtype_bytes((enum wf_dtype)t->dtype, w->cols)},
                     .weight = {.n_parts = 1, .dtype = w->dtype, .rows = WF_PATTERN_ROWS, .cols = w->cols,
                                .view = {.rows = WF_PATTERN_ROWS, .cols = w->cols, .stride = w->cols, .dtype = (uint8_t)w->dtype, .layout = w->view.layout}}};
    if (pairs) new->weight.pairs = (wf_pairs){w->pairs.head, w->pairs.n_rot, WF_PATTERN_ROWS};
    return wf_arena_reserve(&p->arena, wf_laid_out_bytes(p->dev, &new->weight, WF_PATTERN_ROWS), &new->region);
}

/* ---- spans ---------------------------------------------------------------------------------------------------------- */

static weft_status add_band(wf_patterns *p, uint64_t band)
{
    if (!wf_grow(&p->bands, p->n_bands, &p->cap_bands, sizeof *p->bands)) return WEFT_ERR_NOMEM;
    p->bands[p->n_bands++] = (int32_t)band;
    return WEFT_OK;
}

static weft_status add_span(wf_patterns *p, const wf_weight *w, uint32_t row, const wf_source *from, uint32_t bands)
{
    span s = {.w = w, .at = p->n_bands, .offset = w->view.offset + wf_laid_out_bytes(p->dev, w, row), .bands = bands};
    WF_TRY(find_pattern(p, from->t, w, row < w->pairs.rows, &s.pattern));
    for (uint32_t i = 0; i < bands; i++) WF_TRY(add_band(p, wf_filler_row(p->fill, from->t, from->row + i * WF_LAYOUT_BAND) / WF_LAYOUT_BAND));
    if (!wf_grow(&p->spans, p->n_spans, &p->cap_spans, sizeof s)) return WEFT_ERR_NOMEM;
    p->spans[p->n_spans++] = s;
    p->longest = WF_MAX(p->longest, bands);
    return WEFT_OK;
}

static weft_status cut(wf_patterns *p, const wf_weight *w)
{
    uint64_t most = WF_MAX(SPAN_BYTES / wf_laid_out_bytes(p->dev, w, WF_LAYOUT_BAND), 1) * WF_LAYOUT_BAND;
    for (uint32_t row = 0, n; row < w->rows; row += n) {
        wf_source s = wf_stacked_source_of(w, row);
        n = (uint32_t)WF_MIN(most, WF_MIN(s.left, w->rows - row));
        WF_TRY(add_span(p, w, row, &s, n / WF_LAYOUT_BAND));
    }
    p->bytes += w->rows * wf_dtype_bytes(w->dtype, w->cols);
    return WEFT_OK;
}

/* ---- from beginning to end ------------------------------------------------------------------------------------------- */

static uint64_t index_bytes(const wf_patterns *p)
{
    return p->n_bands * sizeof *p->bands;
}

static weft_status place(wf_patterns *p)
{
    for (uint32_t i = 0; i < p->longest; i++) WF_TRY(add_band(p, i));
    WF_TRY(wf_arena_reserve(&p->arena, index_bytes(p), &p->index));
    WF_TRY(wf_arena_commit(&p->arena));
    for (pattern *one = p->list; one < p->list + p->n; one++) {
        one->part = &one->tensor, one->weight.parts = &one->part;
        one->weight.view.buf = wf_arena_buf(&p->arena, one->region), one->weight.view.offset = one->region.offset;
    }
    for (size_t i = 0; i < COPIES; i++) WF_TRY(wf_event_create(p->dev, &p->copied[i]));
    return WEFT_OK;
}

static weft_status make(wf_patterns *p, const wf_weights *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (wf_pattern_makes(&w->list[i])) WF_TRY(cut(p, &w->list[i]));
    return p->n ? place(p) : WEFT_OK;
}

weft_status wf_patterns_open(const wf_weights *w, const wf_filler *fill, wf_dev *dev, wf_patterns **out)
{
    wf_patterns *p = *out = wf_calloc(1, sizeof *p);
    if (!p) return WEFT_ERR_NOMEM;
    p->dev = dev, p->fill = fill;
    wf_arena_init(&p->arena, dev, "patterns of random weights", "use a model of a smaller shape");
    weft_status s = make(p, w);
    if (s) wf_patterns_close(p), *out = NULL;
    return s;
}

void wf_patterns_close(wf_patterns *p)
{
    if (!p) return;
    for (size_t i = 0; i < COPIES; i++)
        if (p->copied[i]) wf_event_destroy(p->copied[i]);
    wf_arena_free(&p->arena);
    free(p->list);
    free(p->spans);
    if (p->dev->lost) wf_leak_on_purpose(p->bands); /* the driver may still read them */
    else free(p->bands);
    free(p);
}

const wf_weight *wf_patterns_weight(const wf_patterns *p, size_t i)
{
    return i < p->n ? &p->list[i].weight : NULL;
}

uint64_t wf_patterns_bytes(const wf_patterns *p)
{
    return p->bytes;
}

/* ---- copies --------------------------------------------------------------------------------------------------------- */

static wf_view bands_at(wf_buf *buf, uint64_t offset, uint32_t bands, uint64_t each)
{
    uint32_t halves = (uint32_t)(each / 2); /* pages are of F16, whatever that means here */
    return (wf_view){.buf = buf, .offset = offset, .rows = bands, .cols = halves, .stride = halves, .dtype = WF_F16};
}

static wf_view index_at(const wf_patterns *p, size_t i, uint32_t n)
{
    return (wf_view){.buf = wf_arena_buf(&p->arena, p->index), .offset = p->index.offset + i * sizeof *p->bands, .rows = n, .cols = 1, .stride = 1, .dtype = WF_I32};
}

/* Waits for the copy that is COPIES before it. */
static weft_status copy(const wf_patterns *p, wf_queue *q, const span *s)
{
    const wf_view *from = &p->list[s->pattern].weight.view;
    uint64_t each = wf_laid_out_bytes(p->dev, s->w, WF_LAYOUT_BAND);
    wf_event *copied = p->copied[(size_t)(s - p->spans) % COPIES];
    wf_call c = {.op = WF_OP_PAGE_COPY, .variant = -1, .signal = copied};
    wf_binding b;
    WF_TRY(wf_wait(copied, p->dev->params.watchdog_ms));
    c.in[WF_PAGE_COPY_FROM] = bands_at(from->buf, from->offset, BANDS, each);
    c.in[WF_PAGE_COPY_SRC] = index_at(p, s->at, s->bands);
    c.in[WF_PAGE_COPY_DST] = index_at(p, p->n_bands - p->longest, s->bands);
    c.out[WF_PAGE_COPY_TO] = bands_at(s->w->view.buf, s->offset, s->bands, each);
    WF_TRY(wf_bind(p->dev, &c, &b));
    WF_TRY(wf_launch(q, &c, &b));
    return wf_flush(q);
}

weft_status wf_patterns_copy(wf_patterns *p, wf_queue *q, uint64_t *done, uint64_t total, weft_progress_fn progress, void *user)
{
    if (!p->n) return WEFT_OK;
    WF_TRY(wf_write(q, wf_arena_buf(&p->arena, p->index), p->index.offset, p->bands, index_bytes(p), NULL, 0, NULL));
    for (const span *s = p->spans; s < p->spans + p->n_spans; s++) {
        WF_TRY(wf_stop_now());
        WF_TRY(copy(p, q, s));
        *done += (uint64_t)s->bands * WF_LAYOUT_BAND * wf_dtype_bytes(s->w->dtype, s->w->cols);
        if (progress) progress(user, "load", (double)*done / (double)total);
    }
    return WEFT_OK;
}
