/* The variants of each op, and what each can run. */
#include "cl/cl.h"

#include <pthread.h>
#include <string.h>

static const cl_variant table[] = {
#define X(op_, name_, tier_, layout_, class_, arith_, flags_, family_, configure_, ...)                           \
    {WF_OP_##op_, #name_, WF_TIER_##tier_, layout_, #family_, {__VA_ARGS__}, wf_cl_configure_##configure_},
#include "cl/variants.def"
#undef X
};

/* The same rows as the front sees them. Products of rows read planes as one more format. */
#define READS(op, layout) \
    (1u << (layout) | ((layout) == WF_CL_ROWS && (op == WF_OP_GEMM || op == WF_OP_GROUPED_GEMM)) << WF_CL_PLANES)
static const wf_variant shown[] = {
#define X(op, name, tier, layout, class, arith, flags, ...)                                        \
    {#name, WF_TIER_##tier, READS(WF_OP_##op, layout), class, WF_ARITH_##arith, flags},
#include "cl/variants.def"
#undef X
};

/* Where the rows of each op begin, and how many it has. Choosing kernels asks for them a million times as a model is
 * opened. */
static struct { size_t first, n; } rows_of[WF_N_OPS];
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

static void find_rows(void)
{
    for (size_t i = WF_LEN(table); i-- > 0;) rows_of[table[i].op].first = i, rows_of[table[i].op].n++;
}

static size_t first_of(enum wf_op op)
{
    pthread_once(&rows_once, find_rows);
    return rows_of[op].first;
}

size_t wf_cl_n_variants(enum wf_op op)
{
    pthread_once(&rows_once, find_rows);
    return WF_MIN(rows_of[op].n, (size_t)WF_MAX_VARIANTS);
}

const cl_variant *wf_cl_variant_at(enum wf_op op, int i)
{
    return i >= 0 && (size_t)i < wf_cl_n_variants(op) ? &table[first_of(op) + (size_t)i] : NULL;
}

size_t wf_cl_variants(wf_dev *d, enum wf_op op, const wf_variant **list)
{
    (void)d;
    *list = shown + first_of(op);
    return wf_cl_n_variants(op);
}

bool wf_cl_configure(const cl_dev *d, int variant, const wf_call *c, cl_launch *l)
{
    const cl_variant *v = wf_cl_variant_at(c->op, variant);
    uint32_t limit = d->var[c->op][variant].limit;
    memset(l, 0, sizeof *l);
    if (!v->configure(&d->ref.caps, v, c, limit, l)) return false;
    if (l->group == 0 || l->group > d->ref.caps.max_group) return false;
    return !limit || l->group <= limit;
}

bool wf_cl_supports(wf_dev *base, const wf_call *c, int variant)
{
    cl_dev *d = (cl_dev *)base;
    cl_launch l;
    const cl_variant *v = wf_cl_variant_at(c->op, variant);
    if (!v || v->tier > d->ref.caps.tier || v->tier > d->base.params.tier) return false;
    const wf_view *pool = c->op == WF_OP_ROPE_KV     ? &c->out[WF_ROPE_KV_K_POOL]
                          : c->op == WF_OP_ATTENTION ? &c->in[WF_ATTENTION_K_POOL]
                                                     : &c->out[WF_GEMM_K_POOL];
    if (c->op == WF_OP_GEMM && c->p.rope && pool->dtype != WF_F16) return false;
    if (pool->dtype == WF_Q8_0 && pool->cols >= 1u << 24) return false; /* kernels/kv/q8_0.clh */
    bool around = c->op == WF_OP_ATTENTION && c->in[WF_ATTENTION_AROUND].buf;
    if (around && !(shown[v - table].flags & WF_REFERENCE)) return false;
    return wf_cl_configure(d, variant, c, &l);
}
