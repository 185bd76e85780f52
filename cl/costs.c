/* How long a variant is expected to take: the model of products by wgmma (ops/gemm.c) where its coefficients were
 * measured, else a roofline. All numbers are data (tuned/), which the selector hands over. */
#include "cl/cl.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *of, *name;
    size_t at;
} coefficients[] = {
#define X(of, name) {#of, #name, offsetof(cl_wgmma_costs, of.name)},
    X(wgmma, round) X(wgmma, latency) X(wgmma, latency_w) X(wgmma, latency_x) X(wgmma, memory) X(wgmma, cache)
        X(wgmma, unit) X(wgmma, part) X(wgmma, exchange) X(wgmma, expand) X(wgmma_packed, round) X(wgmma_packed, unit)
            X(wgmma_packed, unit_x) X(wgmma_packed, part) X(wgmma_packed, pack) X(wgmma_packed, copy)
#undef X
};

static bool set_wgmma(cl_wgmma_costs *costs, const wf_cost *c)
{
    for (size_t i = 0; i < WF_LEN(coefficients); i++) {
        if (strcmp(c->of, coefficients[i].of) || strcmp(c->name, coefficients[i].name)) continue;
        *(double *)((char *)costs + coefficients[i].at) = c->value;
        return true;
    }
    return false;
}

/* All of them or none: a model without some of its coefficients would choose by nonsense. */
static weft_status check_whole(const cl_wgmma_costs *costs)
{
    size_t n = 0;
    for (size_t i = 0; i < WF_LEN(coefficients); i++)
        n += *(const double *)((const char *)costs + coefficients[i].at) > 0;
    if (!n || n == WF_LEN(coefficients)) return WEFT_OK;
    return wf_fail(WEFT_ERR_FORMAT, "cost wgmma and cost wgmma_packed have %zu coefficients of %zu", n,
                   WF_LEN(coefficients));
}

weft_status wf_cl_set_costs(wf_dev *base, const wf_cost *list, size_t n)
{
    cl_dev *d = (cl_dev *)base;
    cl_costs costs = d->costs;
    for (const wf_cost *c = list; c < list + n; c++)
        if (!set_wgmma(&costs.model, c) && !wf_roofline_set(&costs.roofline, base, c))
            return wf_fail(WEFT_ERR_FORMAT,
                           "line %u: cost %s %s=%g is none that OpenCL devices have (src/select/tuned.h)", c->line,
                           c->of, c->name, c->value);
    WF_TRY(check_whole(&costs.model));
    d->costs = costs;
    return WEFT_OK;
}

/* The model is of more rows than a tile of mma.sync has (H200, 16 rows: 16 us in place of 17 for N=6144, K=4096, 30 in
 * place of 41 for N=4096, K=14336). Where only tiles of the last round share their K, it is of shares of the device:
 * on all of it others are so close that only measuring could tell. */
static bool is_modelled(const cl_dev *d, const cl_variant *v, const wf_call *c)
{
    if (v->configure != wf_cl_configure_wgmma) return false;
    if (!c->max_groups && wf_cl_wgmma_shape(v->tile, false, wf_cl_fragments(WF_F16)).tail) return false;
    return d->costs.model.wgmma.unit > 0 && c->out[WF_GEMM_Y].rows > 8;
}

bool wf_cl_is_measured(const cl_dev *d, const wf_call *c, int variant)
{
    return is_modelled(d, wf_cl_variant_at(c->op, variant), c) ||
           wf_roofline_measured(&d->costs.roofline, c->op, variant);
}

/* Work-groups run in rounds, the last of which may leave units idle; so does a share of the device. */
static double idle_factor(const cl_dev *d, const wf_call *c, const cl_launch *l)
{
    uint32_t units = d->ref.caps.units, at_once = c->max_groups ? WF_MIN(c->max_groups, units) : units;
    uint64_t groups = WF_MAX(l->groups, 1);
    return (double)((groups + at_once - 1) / at_once) * units / (double)groups;
}

/* Rows of X past the last take as long as others. */
static double padding_factor(const wf_call *c, const cl_launch *l)
{
    uint32_t rows = c->out[0].rows;
    for (uint32_t i = 0; i < l->n_knobs && rows; i++)
        if (!strcmp(l->knob[i].name, "BM")) return (double)WF_UP(rows, (uint32_t)l->knob[i].value) / rows;
    return 1;
}

double wf_cl_expected_us(cl_dev *d, const wf_call *c, int variant)
{
    const cl_variant *v = wf_cl_variant_at(c->op, variant);
    cl_launch l;
    if (is_modelled(d, v, c)) return wf_cl_wgmma_time(&d->ref.caps, &d->costs.model, v, c);
    if (!wf_cl_configure(d, variant, c, &l)) return 0;
    return wf_roofline_us(&d->costs.roofline, &d->base, c, variant, idle_factor(d, c, &l) * padding_factor(c, &l));
}
