/* In which order the variants of an op are offered for a call: those with coefficients of their own by expected time, then by the orders here.
 *
 * The orders are code, for they ask for rows, columns, keys, and whether tiles or heads are enough for the device. Estimates cannot take their
 * place before kernels are measured one by one: a roofline of the op does not tell its kernels apart, and of 3.8 million calls (8 devices, four
 * tiers, products and attention of 1 to 4,096 rows) it would choose otherwise in 59 %.
 */
#include "cl/cl.h"

#include <string.h>

static int find(enum wf_op op, const char *name)
{
    for (int i = 0; i < (int)wf_cl_n_variants(op); i++)
        if (!strcmp(wf_cl_variant_at(op, i)->name, name)) return i;
    return -1;
}

/* As the front sees it. */
static const wf_variant *shown_at(enum wf_op op, int i)
{
    const wf_variant *list;
    wf_cl_variants(NULL, op, &list);
    return &list[i];
}

/* What is offered for a call so far. */
typedef struct offer {
    cl_dev *d;
    const wf_call *c;
    const char *class; /* NULL: of any */
    wf_candidate_kernel *out;
    size_t n, cap;
} offer;

static bool suits(const offer *o, int i)
{
    if (i < 0 || (o->class && strcmp(o->class, shown_at(o->c->op, i)->class))) return false;
    for (size_t k = 0; k < o->n; k++)
        if (o->out[k].variant == i) return false;
    return wf_cl_supports(&o->d->base, o->c, i);
}

static void add(offer *o, int i)
{
    if (o->n < o->cap && suits(o, i)) o->out[o->n++] = (wf_candidate_kernel){i, (float)wf_cl_expected_us(o->d, o->c, i)};
}

/* The order in which variants are tried; the first that can run wins. Rows of X against the reading
 * of W: few rows are bound by memory, so W must be read once and in whole lines. Flat tiles come behind gemv for as many rows as that takes
 * (H200 without its matrix units, 4096 x 4096, 14336 x 4096, 4096 x 14336 in F16, us: 8 rows 87, 144, 296, gemv_few 29, 83, 82; in Q4_K 84, 257, 287 and 28, 85, 85;
 * PoCL, two cores, 4096 x 4096: 8 rows 31 ms, gemv 20), but before tile16 on GPUs (16 rows: 87, 168, 298, tile16 167, 206, 594; in Q4_K 95, 436, 320 and 267, 407, 938;
 * PoCL 45 ms, tile16 33). */
static const char *const *gemm_preference(const cl_caps *caps, uint32_t m, uint32_t n)
{
    static const char *const gemv[] = {"gemv", "mma16", "matrix8", "matrix16", "tile8", "tile16", NULL};
    static const char *const narrow[] = {"gemv_few", "gemv", "mma16", "matrix8", "matrix16", "tile8", "tile16", NULL};
    static const char *const small[] = {"mma16", "matrix16", "tile16", "tile64", NULL}, *const flat[] = {"mma16", "matrix16", "tile8", "tile16", "tile64", NULL};
    static const char *const tile[] = {"mma64", "matrix64", "tile64", "tile16", NULL};
    static const char *const large[] = {"mma128", "matrix128", "wide128", "tile128", "tile64", "tile16", NULL};
    if (m <= 8) return caps->gpu && n < 4 * caps->units ? narrow : gemv;
    if (m <= 32) return caps->gpu && m <= 16 ? flat : small;
    return caps->gpu && m >= 256 && n >= 1024 ? large : tile;
}

/* Large tiles read least, if there are enough of them for more than half of the device: two of half the size that share a
 * multiprocessor take longer (H200, K = 4096: tiles of 128 x 256 71 us, 128 x 128 43, 64 x 128 31 while each has one for itself). */
static const char *const *frag_preference(const cl_caps *caps, uint32_t m, uint32_t n)
{
    static const char *const tiles[] = {"frag256", "frag128", "frag64", "frag_small", NULL};
    const char *const *best = tiles;
    for (; best < tiles + 2; best++) {
        const int32_t *t = wf_cl_variant_at(WF_OP_GEMM, find(WF_OP_GEMM, *best))->tile;
        uint32_t bm = (uint32_t)t[0], bn = (uint32_t)t[1];
        if (m > bm / 2 && (uint64_t)((m + bm - 1) / bm) * ((n + bn - 1) / bn) * 2 > caps->units) break;
    }
    return best;
}

/* MMA-fragment-major weights. Few columns make few work-groups, which then need more warps each. */
static const char *const *fragment_preference(const cl_caps *caps, uint32_t m, uint32_t n)
{
    static const char *const narrow[] = {"flat8_split", "flat8", "flat16", "flat_whole", "flat_k2", "flat_k4", "flat_k8", "frag64", NULL};
    static const char *const few[] = {"row_int16", "flat8", "flat8_split", "flat16", "flat_whole", "flat_k2", "flat_k4", "flat_k8", "frag64", NULL};
    static const char *const some[] = {"flat16", "frag64", NULL};
    if (m <= 8) return n / 32 <= caps->units ? narrow : few;
    return m <= 16 ? some : frag_preference(caps, m, n);
}

/* By the rows of X that an expert has if all have equally many. With fewer than a tile takes, or a little more, much of it is empty. */
static const char *const *grouped_preference(const cl_caps *caps, const wf_call *c)
{
    static const char *const gemv[] = {"gemv", "tile16", NULL}, *const small[] = {"mma16", "tile16", NULL}, *const tile[] = {"mma64", "tile64", NULL};
    static const char *const few[] = {"row_int16", "flat8", "flat8_split", NULL}, *const narrow[] = {"flat8_split", "flat8", NULL};
    static const char *const some[] = {"flat16", "frag64", NULL};
    const wf_view *w = &c->in[WF_GROUPED_GEMM_W], *ids = &c->in[WF_GROUPED_GEMM_IDS];
    uint32_t n = wf_expert_rows(&c->p, c->out[0].cols, ids->cols), experts = w->rows / n, pairs = ids->rows * ids->cols, each = (pairs + experts - 1) / experts;
    if (w->layout != WF_CL_FRAGMENT_MAJOR) return each <= 4 ? gemv : each <= 32 ? small : tile;
    if (each <= 6) return WF_MIN(pairs, experts) * (n / 32) <= caps->units ? narrow : few;
    return each <= 12 ? some : frag_preference(caps, each, n * experts);
}

/* Those that were measured themselves, the one that is expected to be the fastest first. */
static void add_measured(offer *o)
{
    for (int i = 0; i < (int)wf_cl_n_variants(o->c->op); i++) {
        if (!wf_cl_is_measured(o->d, o->c, i) || (shown_at(o->c->op, i)->flags & WF_ON_REQUEST) || !suits(o, i)) continue;
        float us = (float)wf_cl_expected_us(o->d, o->c, i);
        size_t at = o->n;
        if (us <= 0) continue; /* rates of the device are missing: it has its place among the others */
        while (at && us < o->out[at - 1].us) at--;
        if (at == o->cap) continue;
        o->n = WF_MIN(o->n + 1, o->cap);
        for (size_t k = o->n - 1; k > at; k--) o->out[k] = o->out[k - 1];
        o->out[at] = (wf_candidate_kernel){i, us};
    }
}

/* More than one chunk of attention_flash, and too few rows for the device. */
static bool is_lonely(const cl_caps *caps, const wf_call *c)
{
    return c->p.max_kv > 256 && c->out[WF_ATTENTION_O].rows * c->p.n_kv_head < (caps->gpu ? 2 : 1) * caps->units;
}

/* Where work-items are a loop on a core, the scan for maxima is expensive: without it prompts took 0.67 to 0.79 of the time (PoCL, two cores). */
static const char *const *attention_preference_cpu(const cl_caps *caps, const wf_call *c)
{
    static const char *const decode[] = {"decode_async", "decode", "flash", NULL};
    static const char *const lonely[] = {"decode_split", "decode", "flash", NULL};
    static const char *const flash[] = {"flash_async", "flash", "decode", NULL};
    if (c->p.max_q > 1) return flash;
    return is_lonely(caps, c) ? lonely : decode;
}

/* Decodes on a part of the device, the rest being another queue's: a ring of bulk copies has more bytes on their way than multiprocessors need
 * that are all at work (H100, TB/s on all, 96, 48, 24 multiprocessors: 256 x 1,024 keys 2.81, 2.66, 2.68, 1.92, by mma_decode 2.87, 2.41, 1.42, 0.76;
 * 1 x 8,192 keys 1.42, 1.69, 1.62, 1.35, by mma_decode 1.72, 1.66, 1.18, 0.71). */
static bool has_share(const cl_caps *caps, const wf_call *c)
{
    return c->max_groups && c->max_groups <= caps->units * 3 / 4;
}

/* Asynchronous softmax pays where matrix units are the limit (mma.sync 1.06 to 1.09, wgmma 1.03 to 1.05), not where memory is (0.97 to 1.00), nor
 * for chunks of a row's keys (0.66 to 0.93; docs/tuning.md). Blocks of 64 rows are for calls that have not enough of 128 for the device. On AMD's and Intel's
 * matrix units nothing was measured: there, too, long prompts are asynchronous, which halves the barriers, and decodes are not. */
static const char *const *attention_preference(const cl_caps *caps, const wf_call *c)
{
    static const char *const decode[] = {"mma_decode", "matrix_decode", "decode", "flash", NULL};
    static const char *const lonely[] = {"mma_decode", "matrix_decode_split", "decode_split", "matrix_decode", "decode", "flash", NULL};
    static const char *const few[] = {"mma_ring", "mma_decode", "matrix_decode", "decode", "flash", NULL};
    static const char *const flash[] = {"wgmma_prefill", "mma_prefill64", "matrix_prefill", "flash", "decode", "wgmma_chunks", "mma_rows_chunks", NULL};
    static const char *const long_flash[] = {"wgmma_prefill_async", "wgmma_prefill", "mma_prefill_async", "mma_prefill", "mma_prefill64_async",
                                             "mma_prefill64", "matrix_prefill_async", "matrix_prefill", "flash", "decode", "wgmma_chunks", "mma_rows_chunks", NULL};
    if (!caps->gpu) return attention_preference_cpu(caps, c);
    if (c->p.max_q == 1 && has_share(caps, c)) return few;
    if (c->p.max_q == 1) return is_lonely(caps, c) ? lonely : decode;
    return (uint64_t)c->out[WF_ATTENTION_O].rows * c->p.n_head >= 128 * 2ull * caps->units ? long_flash : flash;
}

/* Where the work-items of a group are a loop on one core, the barriers of a group's sum cost more than the sum (PoCL, two cores,
 * with others on them, 515 rows of 2048 in F32: row 0.5 to 1.4 ms, naive 1.0 to 3.0, group 4 to 16). */
static const char *const *rmsnorm_preference(const cl_caps *caps)
{
    static const char *const row[] = {"row", NULL}, *const group[] = {"group", NULL};
    return caps->gpu ? group : row;
}

static const char *const *preference(const cl_caps *caps, const wf_call *c)
{
    static const char *const any[] = {"group", "naive", NULL};
    uint32_t m = c->out[0].rows, n = c->in[1].rows; /* of GEMM: those of W */
    switch (c->op) {
    case WF_OP_GROUPED_GEMM: return grouped_preference(caps, c);
    case WF_OP_RMSNORM: return rmsnorm_preference(caps);
    case WF_OP_ATTENTION: return attention_preference(caps, c);
    case WF_OP_GEMM:
        return c->in[WF_GEMM_W].layout == WF_CL_FRAGMENT_MAJOR ? fragment_preference(caps, m, n) : gemm_preference(caps, m, n);
    default: return any;
    }
}

size_t wf_cl_rank(wf_dev *base, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    offer o = {(cl_dev *)base, c, class, out, 0, cap};
    add_measured(&o);
    for (const char *const *name = preference(&o.d->ref.caps, c); *name && o.n < cap; name++) add(&o, find(c->op, *name));
    for (int i = 0; i < (int)wf_cl_n_variants(c->op) && o.n < cap; i++)
        if (!(shown_at(c->op, i)->flags & WF_ON_REQUEST)) add(&o, i);
    return o.n;
}
