/* In which order the variants of an op are offered for a call: those with coefficients of their own by expected time,
 * then by picks.def. */
#include "cl/cl.h"

#include <string.h>

static int variant_named(enum wf_op op, const char *name)
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

static bool offer_suits(const offer *o, int i)
{
    if (i < 0 || (o->class && strcmp(o->class, shown_at(o->c->op, i)->class))) return false;
    for (size_t k = 0; k < o->n; k++)
        if (o->out[k].variant == i) return false;
    return wf_cl_supports(&o->d->base, o->c, i);
}

static void offer_variant(offer *o, int i)
{
    if (o->n < o->cap && offer_suits(o, i))
        o->out[o->n++] = (wf_candidate_kernel){i, (float)wf_cl_expected_us(o->d, o->c, i)};
}

/* Those that were measured themselves, the one that is expected to be the fastest first. */
static void offer_measured(offer *o)
{
    for (int i = 0; i < (int)wf_cl_n_variants(o->c->op); i++) {
        if (!wf_cl_is_measured(o->d, o->c, i) || (shown_at(o->c->op, i)->flags & WF_ON_REQUEST) || !offer_suits(o, i))
            continue;
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

/* Do so many tiles, one on each unit at once, leave few units idle? */
static bool is_even(uint64_t tiles, uint32_t units)
{
    enum { MANY = 6 };
    uint64_t rest = tiles % units;
    return !rest || rest * 8 >= units * 7ull || tiles >= MANY * (uint64_t)units;
}

/* The row of picks.def for a call. m, n, k: rows of X and of W, of an expert where there are some (all have equally
 * many), and columns; busy: experts that have rows; neutral: matrix units, by the kernels that all vendors share;
 * quantised: weights of blocks; dots: in planes, an instruction for products of bytes, and nobody wants the same bits
 * of few rows and of many; FILLED_BY: tiles of that size are enough for more than half of the device, and half full;
 * TWICE: for two on each unit; EVEN: in the last round as well, or that is one of many; SHARED: so that as many
 * work-groups for each row of tiles fill the device. copied: neutral, and parts of K are copied to local memory.
 * lonely: more than one chunk of attention_decode, and too few rows for the device; shared: on a part of it; full:
 * enough blocks of 128 rows and heads for twice all of it. */
static const char *const *names_for(const cl_dev *d, const wf_call *c)
{
    static const char *const any[] = {"group", "naive", NULL};
    const cl_caps *caps = &d->ref.caps;
    const struct wf_open_params *open = &d->base.params;
    bool grouped = c->op == WF_OP_GROUPED_GEMM,
         fragments = (grouped || c->op == WF_OP_GEMM) && c->in[WF_GEMM_W].layout == WF_CL_FRAGMENT_MAJOR;
    bool neutral = !fragments && open->tier >= WF_TIER_NEUTRAL && wf_cl_suits_matrix(caps, c),
         copied = neutral && caps->copies,
         quantised = c->op == WF_OP_GEMM && wf_dtypes[c->in[WF_GEMM_W].dtype].block > 1;
    bool dots = c->op == WF_OP_GEMM && c->in[WF_GEMM_W].layout == WF_CL_PLANES && caps->dot != WF_CL_DOT_PLAIN &&
                open->tier >= WF_TIER_DOT && !open->deterministic;
    uint32_t m = c->out[0].rows, n = c->in[1].rows, k = c->in[0].cols, units = caps->units, experts = 1, busy = 1;
    bool decodes = c->p.max_q == 1, shared = c->max_groups && c->max_groups <= units * 3 / 4;
    bool lonely = c->p.max_kv > 64 && m * c->p.n_kv_head < (caps->gpu ? 2 : 1) * units,
         full = (uint64_t)m * c->p.n_head >= 128 * 2ull * units;
    if (grouped) {
        const wf_view *ids = &c->in[WF_GROUPED_GEMM_IDS];
        uint32_t pairs = ids->rows * ids->cols;
        n = wf_expert_rows(&c->p, c->out[0].cols, ids->cols), experts = c->in[WF_GROUPED_GEMM_W].rows / n;
        m = (pairs + experts - 1) / experts, busy = WF_MIN(pairs, experts);
    }
#define IS_ANY  true
#define IS_GPU  caps->gpu
#define IS_HOST !caps->gpu
#define FILLED_BY(rows, cols)                                                                                          \
    (m > (rows) / 2 && (uint64_t)((m + (rows)-1) / (rows)) * ((n * experts + (cols)-1) / (cols)) * 2 > units)
#define TWICE(rows, cols)                                                                                              \
    ((uint64_t)((m + (rows)-1) / (rows)) * ((n + (cols)-1) / (cols)) >= 2ull * units)
#define EVEN(rows, cols) is_even((uint64_t)((m + (rows)-1) / (rows)) * ((n + (cols)-1) / (cols)), units)
#define SHARED(rows) (units / ((m + (rows)-1) / (rows)) * ((m + (rows)-1) / (rows)) * 8 >= units * 7)
#define X(device, op_, where, ...)                                                                  \
    if (c->op == WF_OP_##op_ && IS_##device && (where)) {                                           \
        static const char *const names[] = {__VA_ARGS__, NULL};                                     \
        return names;                                                                               \
    }
#include "cl/picks.def"
#undef X
    return any;
}

size_t wf_cl_rank(wf_dev *base, const wf_call *c, const char *class, wf_candidate_kernel *out, size_t cap)
{
    offer o = {(cl_dev *)base, c, class, out, 0, cap};
    offer_measured(&o);
    for (const char *const *name = names_for(o.d, c); *name && o.n < cap; name++)
        offer_variant(&o, variant_named(c->op, *name));
    for (int i = 0; i < (int)wf_cl_n_variants(c->op) && o.n < cap; i++)
        if (!(shown_at(c->op, i)->flags & WF_ON_REQUEST)) offer_variant(&o, i);
    return o.n;
}
