/* weights: places a model's matrices on a device. A device that prefers host memory uses the mapped file in place; any
 * other one gets slabs, which upload.c fills in the layout that it requests. */
#include "model/weights/upload.h"

#include <stdlib.h>
#include <string.h>

static uint64_t row_bytes(const wf_weight *w)
{
    return wf_dtype_bytes(w->dtype, w->cols);
}

int32_t wf_weights_add(wf_weights *w, wf_graph *g, const wf_weight *one)
{
    if (!wf_grow(&w->list, w->n, &w->cap, sizeof *one)) return -1;
    int32_t v = wf_graph_value(
        g, (wf_value){WF_VALUE_WEIGHT, WF_ROWS_WHOLE, one->dtype, one->cols, (uint32_t)w->n, one->rows});
    if (v >= 0) w->list[w->n++] = *one;
    return v;
}

static uint64_t bytes_of(const wf_weight *w)
{
    return w->rows * row_bytes(w);
}

uint64_t wf_weights_bytes(const wf_weights *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n; i++) sum += bytes_of(&w->list[i]);
    return sum;
}

uint64_t wf_weights_made_bytes(const wf_weights *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n; i++)
        if (!w->list[i].n_parts) sum += bytes_of(&w->list[i]);
    return sum;
}

/* ---- where rows come from -------------------------------------------------------------------------- */

/* As if w->pairs left all rows where they are. */
static wf_source stacked_source_of(const wf_weight *w, uint64_t row)
{
    const wf_part *p = w->parts;
    if (w->turn) {
        uint64_t round = (uint64_t)w->turn * w->n_parts, at = row % w->turn;
        p += row % round / w->turn;
        return (wf_source){p->t, p->first + row / round * w->step + at, w->turn - at};
    }
    while (row >= p->rows) row -= (p++)->rows;
    return (wf_source){p->t, p->first + row, p->rows - row};
}

wf_source wf_source_of(const wf_weight *w, uint64_t row)
{
    wf_source s = stacked_source_of(w, wf_pairs_from(&w->pairs, row));
    if (row < w->pairs.rows) s.left = 1; /* the next one is elsewhere */
    return s;
}

/* ---- placement ------------------------------------------------------------------------------------- */

/* Where data lies in the files. */
static bool find_in_files(const wf_gguf *f, const uint8_t *data, size_t *i, uint64_t *offset)
{
    for (*i = 0; *i < f->n_maps; ++*i) {
        const wf_map *m = &f->maps[*i];
        *offset = (uint64_t)((uintptr_t)data - (uintptr_t)m->data);
        if ((uintptr_t)data >= (uintptr_t)m->data && *offset < m->size) return true;
    }
    return false;
}

static bool view_in_file(wf_weights *all, const wf_dev *dev, const wf_gguf *f, wf_weight *w)
{
    size_t i;
    uint64_t offset;
    if (w->n_parts != 1 || w->pairs.rows || w->turn || w->part_cols) return false;
    const uint8_t *data = w->parts->t->data;
    if (!data || !find_in_files(f, data + w->parts->first * row_bytes(w), &i, &offset) || !all->files[i] ||
        offset % dev->align)
        return false;
    w->view = (wf_view){all->files[i], offset, w->rows, w->cols, w->cols, w->dtype, 0};
    all->in_file = true;
    return true;
}

/* Of experts a layout will do in which the matrix of each is a part of its own. */
static uint8_t layout_of(wf_dev *dev, const wf_weight *w)
{
    if (!w->matrix) return 0;
    if (!w->experts) return wf_weight_layout(dev, WF_OP_GEMM, w->dtype, w->rows, w->cols);
    uint32_t rows = w->rows / w->experts;
    uint8_t layout = wf_weight_layout(dev, WF_OP_GROUPED_GEMM, w->dtype, rows, w->cols);
    uint64_t (*bytes)(wf_dev *, uint8_t, enum wf_dtype, uint32_t, uint32_t) = dev->fns->weight_bytes;
    if (!layout ||
        bytes(dev, layout, w->dtype, w->rows, w->cols) != w->experts * bytes(dev, layout, w->dtype, rows, w->cols))
        return 0;
    return layout;
}

uint64_t wf_weights_bytes_on(const wf_weights *w, wf_dev *dev)
{
    uint64_t sum = wf_weights_bytes(w);
    for (size_t i = 0; dev && !dev->fns->buf_wrap && i < w->n; i++) {
        const wf_weight *one = &w->list[i];
        uint8_t layout = layout_of(dev, one);
        if (layout) sum += dev->fns->weight_bytes(dev, layout, one->dtype, one->rows, one->cols) - bytes_of(one);
    }
    return sum;
}

uint64_t wf_laid_out_bytes(wf_dev *dev, const wf_weight *w, uint32_t rows)
{
    if (!w->view.layout || !rows) return rows * row_bytes(w);
    return dev->fns->weight_bytes(dev, w->view.layout, w->dtype, rows, w->cols);
}

static weft_status reserve_weight(wf_weights *all, wf_dev *dev, wf_weight *w, wf_region *r)
{
    w->view = (wf_view){NULL, 0, w->rows, w->cols, w->cols, w->dtype, layout_of(dev, w)};
    weft_status s = wf_arena_reserve(&all->arena, wf_laid_out_bytes(dev, w, w->rows), r);
    if (s != WEFT_OK && w->n_parts)
        return wf_fail_context(s, "tensor '%.*s'", (int)w->parts->t->name.len, w->parts->t->name.data);
    return s;
}

static weft_status place_weights(wf_weights *w, wf_dev *dev, const wf_gguf *f)
{
    wf_region *regions = wf_calloc(w->n, sizeof *regions);
    weft_status s = regions ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; i < w->n && s == WEFT_OK; i++)
        if (!view_in_file(w, dev, f, &w->list[i])) s = reserve_weight(w, dev, &w->list[i], &regions[i]);
    if (s == WEFT_OK) s = wf_arena_commit(&w->arena);
    for (size_t i = 0; i < w->n && s == WEFT_OK; i++) {
        wf_view *v = &w->list[i].view;
        if (!v->buf) v->buf = wf_arena_buf(&w->arena, regions[i]), v->offset = regions[i].offset;
    }
    free(regions);
    return s;
}

/* Those that the device can use in place; what lies in others is copied. Their sizes decide together, as they take
 * memory together. */
static weft_status wrap_files(wf_weights *w, const wf_gguf *f, wf_dev *dev)
{
    uint64_t together = 0;
    if (!(w->files = wf_calloc(WF_MAX(f->n_maps, 1), sizeof *w->files))) return WEFT_ERR_NOMEM;
    w->n_files = f->n_maps;
    for (size_t i = 0; i < f->n_maps; i++) together += f->maps[i].size;
    for (size_t i = 0; i < f->n_maps; i++) {
        weft_status s = wf_buf_wrap(dev, f->maps[i].data, f->maps[i].size, together, &w->files[i]);
        if (s != WEFT_OK && s != WEFT_ERR_UNSUPPORTED) return s;
    }
    return WEFT_OK;
}

/* Those computed on the host are not needed any more. */
static void free_made(wf_weights *w)
{
    for (wf_weight *one = w->list; one < w->list + w->n; one++) {
        free((void *)one->made);
        free(one->rope);
        one->made = NULL, one->rope = NULL;
    }
}

static weft_status fill_zeros(const wf_weights *w, wf_dev *dev, wf_queue *q)
{
    for (const wf_weight *one = w->list; one < w->list + w->n; one++)
        if (one->zeros)
            WF_TRY(wf_fill(q, one->view.buf, one->view.offset, wf_laid_out_bytes(dev, one, one->rows), 0));
    return wf_finish(q);
}

weft_status wf_weights_upload(wf_weights *w, const wf_gguf *f, wf_dev *dev, wf_queue *q, weft_progress_fn progress,
                              void *user)
{
    wf_filler *fill = NULL;
    wf_arena_init(&w->arena, dev, "weights", "use a file with smaller weights");
    WF_TRY(wrap_files(w, f, dev));
    WF_TRY(place_weights(w, dev, f));
    if (f->random) WF_TRY(wf_filler_open(f, &fill));
    weft_status s = wf_upload(w, fill, dev, q, progress, user);
    wf_filler_close(fill);
    WF_TRY(s);
    WF_TRY(fill_zeros(w, dev, q));
    free_made(w);
    if (wf_gguf_broken(f)) return wf_fail(WEFT_ERR_IO, "%s changed while it was loaded", f->path);
    for (size_t i = 0; !w->in_file && i < f->n_maps; i++) wf_map_advise_cold(&f->maps[i]);
    return WEFT_OK;
}

weft_status wf_weights_load(wf_weights *w, const wf_gguf *f, wf_dev *dev, weft_progress_fn progress, void *user,
                            wf_view **views)
{
    wf_queue *q = NULL;
    if (progress) progress(user, "load", 0); /* for small models this is the only report */
    WF_TRY(wf_queue_create(dev, &q));
    weft_status s = wf_weights_upload(w, f, dev, q, progress, user);
    wf_queue_destroy(q);
    WF_TRY(s);
    if (!(*views = wf_calloc(w->n, sizeof **views))) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < w->n; i++) (*views)[i] = w->list[i].view;
    return WEFT_OK;
}

void wf_weights_free(wf_weights *w)
{
    free_made(w);
    for (size_t i = 0; i < w->n; i++) free(w->list[i].parts);
    free(w->list);
    for (size_t i = 0; i < w->n_files; i++) wf_buf_destroy(w->files[i]);
    free(w->files);
    wf_arena_free(&w->arena);
    memset(w, 0, sizeof *w);
}
