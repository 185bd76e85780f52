/* ROUTER, the reference. */
#include <math.h>

#include "cpu/ref/ref.h"

/* NaN comes last. */
static double order_of(float x)
{
    return isnan(x) ? -INFINITY : x;
}

/* The largest of x that comes behind `last` (-1: none) in descending order, the lower number first among equals. */
static int32_t next_expert(const float *x, uint32_t n, int32_t last)
{
    int32_t best = -1;
    for (int32_t e = 0; e < (int32_t)n; e++) {
        bool behind = last < 0 || order_of(x[e]) < order_of(x[last]) ||
                      (order_of(x[e]) == order_of(x[last]) && e > last);
        if (behind && (best < 0 || order_of(x[e]) > order_of(x[best]))) best = e;
    }
    return best;
}

static void weigh_experts(const wf_op_params *p, const float *x, uint32_t n, const int32_t *ids, float *weights,
                          uint32_t used)
{
    double top = order_of(x[ids[0]]), all = 0, sum = 0, w; /* all: what a softmax divides by */
    for (uint32_t e = 0; e < n; e++) all += exp(x[e] - top);
    for (uint32_t t = 0; t < used; t++)
        sum += p->sigmoid ? 1 / (1 + exp(-(double)x[ids[t]])) : exp(x[ids[t]] - top) / all;
    for (uint32_t t = 0; t < used; t++) {
        w = p->sigmoid ? 1 / (1 + exp(-(double)x[ids[t]])) : exp(x[ids[t]] - top) / all;
        weights[t] = isnan(all) ? NAN : (float)((p->normalise ? w / sum : w) * p->scale);
    }
}

void wf_cpu_ref_router(const wf_cpu_work *w)
{
    const wf_view *x = &w->call->in[WF_ROUTER_X], *ids = &w->call->out[WF_ROUTER_IDS],
                  *weights = &w->call->out[WF_ROUTER_WEIGHTS];
    uint32_t begin, end;
    wf_cpu_part(w, x->rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) {
        const float *scores = wf_cpu_row(x, m);
        int32_t *out = wf_cpu_row(ids, m);
        for (uint32_t t = 0; t < ids->cols; t++) out[t] = next_expert(scores, x->cols, t ? out[t - 1] : -1);
        weigh_experts(&w->call->p, scores, x->cols, out, wf_cpu_row(weights, m), ids->cols);
    }
}
