/* filler: random weights for matrices without bytes. See upload.h. */
#include "model/weights/upload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POOL    (1u << 18) /* elements, a multiple of every block */
#define ALIGNED 64u        /* and of what is converted to a joint format at once */

enum { GROUP_ROWS = 128, PATTERN_ROWS = 4 * GROUP_ROWS };

enum stream { VALUES, ROW_OFFSETS, GROUPS }; /* what a number is drawn for */

/* What the rows of a pattern are cut from, each from a place of its own; behind the end it goes on at the beginning. */
typedef struct pool {
    int dtype;
    uint64_t k, bytes, row_bytes;
    uint8_t *data;
} pool;

struct wf_filler {
    uint64_t seed;
    pool *list;
    size_t n, cap;
};

static const pool *find_pool(const wf_filler *f, const wf_gguf_tensor *t)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].dtype == t->dtype && f->list[i].k == t->dims[0]) return &f->list[i];
    return NULL;
}

static uint64_t stream_of(const wf_filler *f, enum stream s)
{
    return wf_random(f->seed, s);
}

/* Standard normal numbers by Box and Muller. */
static void draw_normal(float *x, uint64_t k, uint64_t seed)
{
    const double scale = 1 / sqrt((double)k);
    for (uint64_t i = 0; i < POOL; i += 2) {
        double r = sqrt(-2 * log(1 - wf_random_unit(seed, i))), angle = 2 * M_PI * wf_random_unit(seed, i + 1);
        x[i] = (float)(scale * r * cos(angle)), x[i + 1] = (float)(scale * r * sin(angle));
    }
}

static weft_status add_pool(wf_filler *f, const wf_gguf_tensor *t)
{
    WF_TRY(wf_stop_now()); /* the encoders of some formats take their time */
    enum wf_dtype dtype = (enum wf_dtype)t->dtype;
    pool p = {.dtype = t->dtype,
              .k = t->dims[0],
              .bytes = wf_dtype_bytes(dtype, POOL),
              .row_bytes = wf_dtype_bytes(dtype, t->dims[0])};
    if (!wf_grow(&f->list, f->n, &f->cap, sizeof p)) return WEFT_ERR_NOMEM;
    float *x = wf_calloc(POOL, sizeof *x);
    p.data = wf_calloc(p.bytes, 1);
    if (x && p.data) draw_normal(x, p.k, stream_of(f, VALUES)), wf_dtypes[p.dtype].encode(x, p.data, POOL);
    free(x);
    f->list[f->n++] = p;
    return x && p.data ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_filler_open(const wf_gguf *g, wf_filler **out)
{
    weft_status s = WEFT_OK;
    wf_filler *f = *out = wf_calloc(1, sizeof *f);
    if (!f) return WEFT_ERR_NOMEM;
    f->seed = g->random;
    for (size_t i = 0; i < g->n_tensors && s == WEFT_OK; i++)
        if (!g->tensors[i].data && !find_pool(f, &g->tensors[i])) s = add_pool(f, &g->tensors[i]);
    if (s == WEFT_OK) return s;
    wf_filler_close(f);
    *out = NULL;
    return s;
}

void wf_filler_close(wf_filler *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->n; i++) free(f->list[i].data);
    free(f->list);
    free(f);
}

/* Where a row of t begins in the pool. */
static uint64_t start_of_row(const wf_filler *f, const pool *p, const wf_gguf_tensor *t, uint64_t row)
{
    const wf_dtype_info *as = &wf_dtypes[p->dtype];
    uint64_t unit = WF_MAX(ALIGNED, as->block) / as->block * as->block_bytes;
    uint64_t group = wf_random(wf_random(stream_of(f, GROUPS), t->offset), row / GROUP_ROWS) %
                     (PATTERN_ROWS / GROUP_ROWS);
    return wf_random(stream_of(f, ROW_OFFSETS), group * GROUP_ROWS + row % GROUP_ROWS) % (p->bytes / unit) * unit;
}

const uint8_t *wf_filler_bytes(const wf_filler *f, const wf_gguf_tensor *t, uint64_t at, uint64_t *n)
{
    const pool *p = find_pool(f, t);
    uint64_t in_row = at % p->row_bytes, from = (start_of_row(f, p, t, at / p->row_bytes) + in_row) % p->bytes;
    *n = WF_MIN(*n, WF_MIN(p->row_bytes - in_row, p->bytes - from));
    return p->data + from;
}
