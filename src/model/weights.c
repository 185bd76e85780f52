/* weights: uploads a model's matrices to a device. A device that prefers host memory uses the mapped file in place; any other
 * one gets slabs, filled in the layout that it requests. */
#include "model/model.h"
#include "model/shape.h"

#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (64u << 20) /* written between two updates of the progress bar */

typedef struct upload {
    wf_weights *w;
    wf_dev *dev;
    wf_queue *q;
    weft_progress_fn progress;
    void *user;
    uint64_t total, done, since_wait;
    wf_filler *fill; /* bytes of tensors without; NULL: all have theirs */
} upload;

static uint64_t row_bytes(const wf_weight *w)
{
    return wf_dtype_bytes(w->dtype, w->cols);
}

int32_t wf_weights_add(wf_weights *w, wf_graph *g, const wf_weight *one)
{
    if (!wf_grow(&w->list, w->n, &w->cap, sizeof *one)) return -1;
    int32_t v = wf_graph_value(g, (wf_value){WF_VALUE_WEIGHT, WF_ROWS_WHOLE, one->dtype, one->cols, (uint32_t)w->n, one->rows});
    if (v >= 0) w->list[w->n++] = *one;
    return v;
}

uint64_t wf_weights_bytes(const wf_weights *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < w->n; i++) sum += w->list[i].rows * row_bytes(&w->list[i]);
    return sum;
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

static bool view_in_file(const upload *u, const wf_gguf *f, wf_weight *w)
{
    size_t i;
    uint64_t offset;
    if (!u->w->n_files || w->n_parts != 1 || !w->parts[0]->data || !find_in_files(f, w->parts[0]->data, &i, &offset) || offset % u->dev->align) return false;
    w->view = (wf_view){u->w->files[i], offset, w->rows, w->cols, w->cols, w->dtype, 0};
    u->w->in_file = true;
    return true;
}

static bool in_place(const wf_weights *w, const wf_weight *one)
{
    for (size_t i = 0; i < w->n_files; i++)
        if (one->view.buf == w->files[i]) return true;
    return false;
}

static weft_status reserve(upload *u, wf_weight *w, wf_region *r)
{
    const wf_dev_fns *fns = u->dev->fns;
    uint8_t layout = w->matrix ? wf_weight_layout(u->dev, w->dtype, w->rows, w->cols) : 0;
    uint64_t bytes = layout ? fns->weight_bytes(u->dev, layout, w->dtype, w->rows, w->cols) : w->rows * row_bytes(w);
    w->view = (wf_view){NULL, 0, w->rows, w->cols, w->cols, w->dtype, layout};
    u->total += w->rows * row_bytes(w);
    weft_status s = wf_arena_reserve(&u->w->arena, bytes, r);
    if (s != WEFT_OK && w->n_parts) return wf_fail_context(s, "tensor '%.*s'", (int)w->parts[0]->name.len, w->parts[0]->name.data);
    return s;
}

static weft_status place(upload *u, const wf_gguf *f)
{
    wf_weights *w = u->w;
    wf_region *regions = wf_calloc(w->n, sizeof *regions);
    weft_status s = regions ? WEFT_OK : WEFT_ERR_NOMEM;
    for (size_t i = 0; i < w->n && s == WEFT_OK; i++)
        if (!view_in_file(u, f, &w->list[i])) s = reserve(u, &w->list[i], &regions[i]);
    if (s == WEFT_OK) s = wf_arena_commit(&w->arena);
    for (size_t i = 0; i < w->n && s == WEFT_OK; i++) {
        wf_view *v = &w->list[i].view;
        if (!v->buf) v->buf = wf_arena_buf(&w->arena, regions[i]), v->offset = regions[i].offset;
    }
    free(regions);
    return s;
}

/* ---- copying ------------------------------------------------------------------------------------------ */

static weft_status advance(upload *u, uint64_t bytes)
{
    u->done += bytes;
    u->since_wait += bytes;
    if (u->since_wait < STEP_BYTES) return WEFT_OK;
    u->since_wait = 0;
    WF_TRY(wf_finish(u->q));
    if (u->progress) u->progress(u->user, "load", (double)u->done / (double)u->total);
    return WEFT_OK;
}

static weft_status copy(upload *u, wf_view *v, uint64_t at, const uint8_t *src, uint64_t bytes)
{
    uint64_t began = wf_now_ns();
    for (uint64_t done = 0; done < bytes;) {
        uint64_t step = WF_MIN(bytes - done, STEP_BYTES);
        WF_TRY(wf_write(u->q, v->buf, v->offset + at + done, src + done, step, NULL, 0, NULL));
        WF_TRY(advance(u, step));
        done += step;
    }
    u->w->copied_ns += wf_now_ns() - began;
    return WEFT_OK;
}

/* Bytes of a tensor from `at` on; *n, how many are wanted, is cut to how many there are together. */
static const uint8_t *bytes_of(const upload *u, const wf_gguf_tensor *t, uint64_t at, uint64_t *n)
{
    return t->data ? t->data + at : wf_filler_bytes(u->fill, t, at, n);
}

static weft_status copy_rows(upload *u, wf_weight *w)
{
    if (!w->n_parts) return copy(u, &w->view, 0, w->made, w->rows * row_bytes(w));
    uint64_t to = 0;
    for (uint32_t i = 0; i < w->n_parts; i++)
        for (uint64_t at = 0, n; at < w->parts[i]->bytes; at += n, to += n) {
            n = w->parts[i]->bytes - at;
            const uint8_t *src = bytes_of(u, w->parts[i], at, &n);
            WF_TRY(copy(u, &w->view, to, src, n));
        }
    return WEFT_OK;
}

/* All parts, one behind the other. */
static void gather(const upload *u, const wf_weight *w, uint8_t *rows)
{
    for (uint32_t i = 0; i < w->n_parts; i++)
        for (uint64_t at = 0, n; at < w->parts[i]->bytes; at += n, rows += n) {
            n = w->parts[i]->bytes - at;
            const uint8_t *src = bytes_of(u, w->parts[i], at, &n);
            memcpy(rows, src, n);
        }
}

static weft_status copy_packed(upload *u, wf_weight *w)
{
    uint64_t bytes = w->rows * row_bytes(w);
    uint64_t packed_bytes = u->dev->fns->weight_bytes(u->dev, w->view.layout, w->dtype, w->rows, w->cols);
    uint64_t began = wf_now_ns();
    bool aside = w->n_parts > 1 || !w->parts[0]->data || (uintptr_t)w->parts[0]->data % 16; /* a safetensors file aligns nothing */
    uint8_t *rows = aside ? malloc(bytes) : NULL, *packed = malloc(packed_bytes);
    weft_status s = packed && (rows || !aside) ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "out of host memory for packing weights");
    if (rows && s == WEFT_OK) gather(u, w, rows);
    if (s == WEFT_OK) {
        u->dev->fns->weight_pack(u->dev, w->view.layout, w->dtype, w->rows, w->cols, rows ? rows : w->parts[0]->data, packed);
        u->w->packed_ns += wf_now_ns() - began;
        began = wf_now_ns();
        s = wf_write(u->q, w->view.buf, w->view.offset, packed, packed_bytes, NULL, 0, NULL);
        if (s == WEFT_OK) s = wf_finish(u->q); /* before `packed` is freed */
        u->w->copied_ns += wf_now_ns() - began;
        if (s == WEFT_OK) s = advance(u, bytes);
    }
    free(rows);
    free(packed);
    return s;
}

static weft_status copy_all(upload *u)
{
    for (size_t i = 0; i < u->w->n; i++) {
        wf_weight *w = &u->w->list[i];
        if (!in_place(u->w, w)) WF_TRY(w->view.layout ? copy_packed(u, w) : copy_rows(u, w));
    }
    WF_TRY(wf_finish(u->q));
    for (size_t i = 0; i < u->w->n; i++) free((void *)u->w->list[i].made), u->w->list[i].made = NULL;
    return WEFT_OK;
}

/* All of the files, or none if the device cannot use them in place. */
static weft_status wrap_files(wf_weights *w, const wf_gguf *f, wf_dev *dev)
{
    weft_status s = WEFT_OK;
    if (!(w->files = wf_calloc(f->n_maps, sizeof *w->files))) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < f->n_maps && s == WEFT_OK; i++) {
        s = wf_buf_wrap(dev, f->maps[i].data, f->maps[i].size, &w->files[i]);
        w->n_files += s == WEFT_OK;
    }
    return s == WEFT_ERR_UNSUPPORTED ? WEFT_OK : s;
}

weft_status wf_weights_upload(wf_weights *w, const wf_gguf *f, wf_dev *dev, wf_queue *q, weft_progress_fn progress, void *user)
{
    upload u = {.w = w, .dev = dev, .q = q, .progress = progress, .user = user};
    wf_arena_init(&w->arena, dev, "weights", "use a file with smaller weights");
    WF_TRY(wrap_files(w, f, dev));
    WF_TRY(place(&u, f));
    if (f->random) WF_TRY(wf_filler_open(f, &u.fill));
    weft_status s = copy_all(&u);
    if (s != WEFT_OK) wf_finish(q); /* before what it reads is freed */
    wf_filler_close(u.fill);
    WF_TRY(s);
    if (wf_gguf_broken(f)) return wf_fail(WEFT_ERR_IO, "%s changed while it was loaded", f->path);
    for (size_t i = 0; !w->in_file && i < f->n_maps; i++) wf_map_advise_cold(&f->maps[i]);
    return WEFT_OK;
}

void wf_weights_free(wf_weights *w)
{
    for (size_t i = 0; i < w->n; i++) free((void *)w->list[i].made), free(w->list[i].parts);
    free(w->list);
    for (size_t i = 0; i < w->n_files; i++) wf_buf_destroy(w->files[i]);
    free(w->files);
    wf_arena_free(&w->arena);
    memset(w, 0, sizeof *w);
}
