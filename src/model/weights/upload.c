/* upload: weights on their way from the files to the device.
 *
 *   files --> packers, threads: a piece of a weight, in the layout that the device wants --> a slot of pinned memory
 *   --> copy, in order
 *
 * Slots form a ring: piece i has slot i % n_slots, which is free again once the copy of piece i - n_slots has ended. A
 * device whose memory is the host's needs neither slots nor copies: packers write where the weights are to be. See
 * upload.h.
 */
#include "model/weights/upload.h"

#include "tensor/joint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (4u << 20)
#define ALIGNMENT   16 /* of what packing reads; a safetensors file aligns nothing */
enum { MOST_PACKERS = 16, COPIES = 4 /* in flight */, MOST_SLOTS = 2 * MOST_PACKERS + COPIES };

/* Rows of a weight, whole bands of its layout. */
typedef struct piece {
    const wf_weight *w;
    uint32_t row, rows;
    uint64_t at, bytes; /* in the weight's memory */
} piece;

typedef struct upload {
    wf_dev *dev;
    wf_queue *q;
    const wf_filler *fill;
    piece *pieces;
    size_t n, cap;
    uint64_t total, done;    /* bytes of rows */
    uint64_t slot_bytes, row_bytes; /* the most that a piece takes, packed and as it is in the files */
    bool direct;             /* no slots: the device's memory is the host's */
    wf_host slots;
    size_t n_slots;
    wf_event *copied[MOST_SLOTS];
    pthread_t packers[MOST_PACKERS];
    uint8_t *rows[MOST_PACKERS]; /* where a packer puts rows together that are not so in the files */
    uint32_t n_packers, n_started;

    pthread_mutex_t lock;
    pthread_cond_t packed_one, freed;
    size_t taken, n_free;    /* pieces that packers have begun; that have had their slots so far, or have them free */
    bool *packed;            /* [n] */
    bool stop;
} upload;

static uint64_t row_bytes(const wf_weight *w)
{
    return wf_dtype_bytes(w->dtype, w->cols);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static weft_status add_pieces(upload *u, const wf_weight *w)
{
    uint64_t bands = PIECE_BYTES / (WF_LAYOUT_BAND * row_bytes(w));
    uint32_t most = (uint32_t)WF_MIN(WF_MAX(bands, 1) * WF_LAYOUT_BAND, w->rows);
    for (uint32_t row = 0; row < w->rows; row += most) {
        uint32_t rows = WF_MIN(most, w->rows - row);
        piece p = {w, row, rows, wf_laid_out_bytes(u->dev, w, row), wf_laid_out_bytes(u->dev, w, rows)};
        if (!wf_grow(&u->pieces, u->n, &u->cap, sizeof p)) return WEFT_ERR_NOMEM;
        u->pieces[u->n++] = p;
        u->slot_bytes = WF_MAX(u->slot_bytes, WF_UP(p.bytes, (uint64_t)4096));
        u->row_bytes = WF_MAX(u->row_bytes, rows * row_bytes(w));
        u->total += rows * row_bytes(w);
    }
    return WEFT_OK;
}

static bool in_place(const wf_weights *w, const wf_weight *one)
{
    for (size_t i = 0; i < w->n_files; i++)
        if (one->view.buf == w->files[i]) return true;
    return false;
}

static weft_status cut_weights(upload *u, const wf_weights *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (!w->list[i].zeros && !in_place(w, &w->list[i])) WF_TRY(add_pieces(u, &w->list[i]));
    return WEFT_OK;
}

/* ---- packing, on a thread ---------------------------------------------------------------------------------------- */

/* Bytes of a tensor from `at` on; *n, how many are wanted, is cut to how many there are together. */
static const uint8_t *bytes_of(const upload *u, const wf_gguf_tensor *t, uint64_t at, uint64_t *n)
{
    return t->data ? t->data + at : wf_filler_bytes(u->fill, t, at, n);
}

/* Bytes of a tensor in the weight's format. */
static uint8_t *convert_bytes(const upload *u, const wf_weight *w, const wf_gguf_tensor *t, uint64_t at, uint64_t end,
                              uint8_t *out)
{
    const wf_dtype_info *from = &wf_dtypes[t->dtype], *to = &wf_dtypes[w->dtype];
    for (uint64_t n; at < end; at += n) {
        n = end - at;
        const uint8_t *bytes = bytes_of(u, t, at, &n);
        uint64_t weights = wf_dtype_elements((enum wf_dtype)t->dtype, n);
        if (from == to) memcpy(out, bytes, n);
        else wf_joint_from((enum wf_dtype)t->dtype, bytes, w->dtype, out, weights);
        out += weights / to->block * to->block_bytes;
    }
    return out;
}

/* Rows of a tensor, or the weight's columns of them. */
static uint8_t *convert_rows(const upload *u, const wf_weight *w, const wf_gguf_tensor *t, uint64_t row, uint64_t rows,
                             uint8_t *out)
{
    enum wf_dtype from = (enum wf_dtype)t->dtype;
    uint64_t each = wf_dtype_bytes(from, w->cols), pitch = w->part_cols ? wf_dtype_bytes(from, w->part_cols) : each,
             at = row * pitch + wf_dtype_bytes(from, w->first_col);
    if (pitch == each) return convert_bytes(u, w, t, at, at + rows * each, out);
    for (; rows--; at += pitch) out = convert_bytes(u, w, t, at, at + each, out);
    return out;
}

/* Rows of the weight's tensors, or of what is computed. */
static void gather_rows(const upload *u, const wf_weight *w, uint64_t row, uint64_t rows, uint8_t *out)
{
    if (w->rope) wf_rope_rows(w->rope, row, rows, (float *)out);
    for (uint64_t n; w->n_parts && rows; row += n, rows -= n) {
        wf_source s = wf_source_of(w, row);
        n = WF_MIN(rows, s.left);
        out = convert_rows(u, w, s.t, s.row, n, out);
    }
}

/* The same where they already lie together, in the weight's format and aligned; NULL: they do not. */
static const uint8_t *rows_together(const wf_weight *w, uint64_t row, uint64_t rows)
{
    if (w->rope || w->part_cols) return NULL;
    if (!w->n_parts) return (const uint8_t *)w->made + row * row_bytes(w);
    wf_source s = wf_source_of(w, row);
    const uint8_t *at = s.t->data ? s.t->data + s.row * row_bytes(w) : NULL;
    return at && s.t->dtype == (int)w->dtype && rows <= s.left && (uintptr_t)at % ALIGNMENT == 0 ? at : NULL;
}

static uint8_t *slot_of(const upload *u, size_t i)
{
    const piece *p = &u->pieces[i];
    if (u->direct) return (uint8_t *)p->w->view.buf->host + p->w->view.offset + p->at;
    return (uint8_t *)u->slots.data + i % u->n_slots * u->slot_bytes;
}

/* The next piece whose slot is free; false: there is none, or the upload ends. */
static bool take_piece(upload *u, size_t *i)
{
    pthread_mutex_lock(&u->lock);
    while (!u->stop && u->taken < u->n && u->taken >= u->n_free) pthread_cond_wait(&u->freed, &u->lock);
    bool any = !u->stop && u->taken < u->n;
    if (any) *i = u->taken++;
    pthread_mutex_unlock(&u->lock);
    return any;
}

static void *run_packer(void *arg)
{
    upload *u = arg;
    pthread_mutex_lock(&u->lock);
    uint8_t *aside = u->rows[u->n_started++];
    pthread_mutex_unlock(&u->lock);
    for (size_t i; take_piece(u, &i);) {
        const piece *p = &u->pieces[i];
        uint8_t *out = slot_of(u, i);
        const wf_weight *w = p->w;
        const uint8_t *rows = rows_together(w, p->row, p->rows);
        bool packs = w->view.layout;
        if (!rows) gather_rows(u, w, p->row, p->rows, packs ? aside : out);
        else if (!packs) memcpy(out, rows, p->rows * row_bytes(w));
        if (packs)
            u->dev->fns->weight_pack(u->dev, w->view.layout, w->dtype, p->rows, w->cols, rows ? rows : aside, out);
        pthread_mutex_lock(&u->lock);
        u->packed[i] = true;
        pthread_cond_signal(&u->packed_one);
        pthread_mutex_unlock(&u->lock);
    }
    return NULL;
}

/* ---- copying, on the thread of the caller ------------------------------------------------------------------------ */

/* Puts piece i in the queue, and waits for the copy that is COPIES before it. */
static weft_status copy_piece(upload *u, size_t i)
{
    const piece *p = &u->pieces[i];
    const wf_view *v = &p->w->view;
    WF_TRY(wf_write(u->q, v->buf, v->offset + p->at, slot_of(u, i), p->bytes, NULL, 0, u->copied[i % u->n_slots]));
    WF_TRY(wf_flush(u->q));
    if (i < COPIES) return WEFT_OK;
    WF_TRY(wf_wait(u->copied[(i - COPIES) % u->n_slots], u->dev->params.watchdog_ms));
    pthread_mutex_lock(&u->lock);
    u->n_free++;
    pthread_cond_broadcast(&u->freed);
    pthread_mutex_unlock(&u->lock);
    return WEFT_OK;
}

static weft_status copy_all(upload *u, wf_weights *w, weft_progress_fn progress, void *user)
{
    for (size_t i = 0; i < u->n; i++) {
        uint64_t began = wf_now_ns();
        WF_TRY(wf_stop_now());
        pthread_mutex_lock(&u->lock);
        while (!u->packed[i]) pthread_cond_wait(&u->packed_one, &u->lock);
        pthread_mutex_unlock(&u->lock);
        w->packed_ns += wf_now_ns() - began;
        began = wf_now_ns();
        if (!u->direct) WF_TRY(copy_piece(u, i));
        w->copied_ns += wf_now_ns() - began;
        u->done += u->pieces[i].rows * row_bytes(u->pieces[i].w);
        if (progress) progress(user, "load", (double)u->done / (double)u->total);
    }
    return WEFT_OK;
}

/* ---- from beginning to end --------------------------------------------------------------------------------------- */

static weft_status make_slots(upload *u)
{
    u->n_slots = 2 * u->n_packers + COPIES;
    u->n_free = u->direct ? u->n : u->n_slots;
    if (u->direct) return WEFT_OK;
    for (size_t i = 0; i < u->n_slots; i++) WF_TRY(wf_event_create(u->dev, &u->copied[i]));
    return wf_host_create(u->dev, u->n_slots * u->slot_bytes, &u->slots);
}

/* With fewer threads than wanted it is slower; without any it fails. */
static weft_status start_packers(upload *u)
{
    uint32_t n = 0;
    u->packed = wf_calloc(u->n, sizeof *u->packed);
    if (!u->packed) return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < u->n_packers; i++)
        if (!(u->rows[i] = wf_calloc(u->row_bytes, 1))) return WEFT_ERR_NOMEM;
    while (n < u->n_packers && !pthread_create(&u->packers[n], NULL, run_packer, u)) n++;
    u->n_packers = n;
    return n ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "cannot start a thread for loading weights");
}

static void end_upload(upload *u)
{
    for (size_t i = 0; i < MOST_SLOTS; i++)
        if (u->copied[i]) wf_event_destroy(u->copied[i]);
    wf_host_destroy(u->dev, &u->slots);
    for (size_t i = 0; i < MOST_PACKERS; i++) free(u->rows[i]);
    free(u->packed);
    free(u->pieces);
    pthread_cond_destroy(&u->packed_one);
    pthread_cond_destroy(&u->freed);
    pthread_mutex_destroy(&u->lock);
}

static weft_status fill_all(upload *u, wf_weights *w, weft_progress_fn progress, void *user)
{
    WF_TRY(make_slots(u));
    weft_status s = start_packers(u);
    if (s == WEFT_OK) {
        w->n_packers = u->n_packers;
        s = copy_all(u, w, progress, user);
        pthread_mutex_lock(&u->lock);
        u->stop = true;
        pthread_cond_broadcast(&u->freed);
        pthread_mutex_unlock(&u->lock);
        for (uint32_t i = 0; i < u->n_packers; i++) pthread_join(u->packers[i], NULL);
    }
    if (u->dev->lost) return s; /* with the first message */
    weft_status finished = wf_finish(u->q); /* before the slots are freed, also after an error */
    return s == WEFT_OK ? finished : s;
}

weft_status wf_upload(wf_weights *w, const wf_filler *fill, wf_dev *dev, wf_queue *q, weft_progress_fn progress,
                      void *user)
{
    upload u = {.dev = dev, .q = q, .fill = fill};
    pthread_mutex_init(&u.lock, NULL);
    pthread_cond_init(&u.packed_one, NULL);
    pthread_cond_init(&u.freed, NULL);
    weft_status s = cut_weights(&u, w);
    if (s == WEFT_OK && u.n) {
        u.direct = !dev->fns->host_create && u.pieces[0].w->view.buf->host;
        u.n_packers = (uint32_t)WF_MIN(WF_MIN(wf_core_count(), (uint32_t)MOST_PACKERS), u.n);
        s = fill_all(&u, w, progress, user);
    }
    end_upload(&u);
    return s;
}
