/* filler: random weights for matrices without bytes. See shape.h. */
#include "model/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POOL    (1u << 20) /* elements, a multiple of every block */
#define ALIGNED 64u        /* and of what is converted to a joint format at once */

typedef struct pool {
    int dtype;
    uint64_t k, bytes;
    uint8_t *data;
} pool;

struct wf_filler {
    pool *list;
    size_t n, cap;
};

static const pool *find(const wf_filler *f, const wf_gguf_tensor *t)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].dtype == t->dtype && f->list[i].k == t->dims[0]) return &f->list[i];
    return NULL;
}

/* Standard normal numbers by Box and Muller. */
static void normal(float *x, uint64_t k)
{
    const double scale = 1 / sqrt((double)k);
    for (uint64_t i = 0; i < POOL; i += 2) {
        double r = sqrt(-2 * log(1 - wf_random_unit(1, i))), angle = 2 * M_PI * wf_random_unit(1, i + 1);
        x[i] = (float)(scale * r * cos(angle)), x[i + 1] = (float)(scale * r * sin(angle));
    }
}

static weft_status add(wf_filler *f, const wf_gguf_tensor *t)
{
    WF_TRY(wf_stop_now()); /* the encoders of some formats take their time */
    pool p = {.dtype = t->dtype, .k = t->dims[0], .bytes = wf_dtype_bytes((enum wf_dtype)t->dtype, POOL)};
    if (!wf_grow(&f->list, f->n, &f->cap, sizeof p)) return WEFT_ERR_NOMEM;
    float *x = wf_calloc(POOL, sizeof *x);
    p.data = wf_calloc(p.bytes, 1);
    if (x && p.data) normal(x, p.k), wf_dtypes[p.dtype].encode(x, p.data, POOL);
    free(x);
    f->list[f->n++] = p;
    return x && p.data ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_filler_open(const wf_gguf *g, wf_filler **out)
{
    weft_status s = WEFT_OK;
    wf_filler *f = *out = wf_calloc(1, sizeof *f);
    if (!f) return WEFT_ERR_NOMEM;
    for (size_t i = 0; i < g->n_tensors && s == WEFT_OK; i++)
        if (!g->tensors[i].data && !find(f, &g->tensors[i])) s = add(f, &g->tensors[i]);
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

const uint8_t *wf_filler_bytes(const wf_filler *f, const wf_gguf_tensor *t, uint64_t at, uint64_t *n)
{
    const pool *p = find(f, t);
    const wf_dtype_info *as = &wf_dtypes[t->dtype];
    uint64_t unit = WF_MAX(ALIGNED, as->block) / as->block * as->block_bytes, first = wf_random(2, t->offset) % (p->bytes / unit) * unit;
    uint64_t from = (first + at) % p->bytes;
    *n = WF_MIN(*n, p->bytes - from);
    return p->data + from;
}
