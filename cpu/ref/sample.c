/* SAMPLE, the reference: the rule itself is sample/sampler.c. */
#include <math.h>
#include <string.h>

#include "cpu/ref/ref.h"
#include "sample/sampler.h"

wf_cpu_scratch_size wf_cpu_ref_sample_scratch(const wf_call *c)
{
    return (wf_cpu_scratch_size){.per_thread = sizeof(wf_token_logit) * c->in[WF_SAMPLE_X].cols};
}

static void one_row(const wf_call *c, uint32_t m, wf_token_logit *scratch)
{
    const float *x = wf_cpu_row(&c->in[WF_SAMPLE_X], m);
    uint32_t n = c->in[WF_SAMPLE_X].cols;
    const float *p = (const float *)wf_cpu_at(&c->in[WF_SAMPLE_PARAMS]) + 3 * m;
    const uint32_t *key = (const uint32_t *)wf_cpu_at(&c->in[WF_SAMPLE_KEY]) + 8 * m;
    const wf_sampling_params params = {
        p[0], p[1], p[2], (int32_t)key[0], key[1] | (uint64_t)key[2] << 32, key[3] | (uint64_t)key[4] << 32};
    int32_t *y = wf_cpu_row(&c->out[WF_SAMPLE_Y], m);
    float *z = wf_cpu_row(&c->out[WF_SAMPLE_Z], m);
    memcpy(z, x, n * sizeof *z);
    for (uint32_t k = 0; k < n; k++)
        if (!isfinite(x[k])) {
            *y = -1 - (int32_t)k;
            return;
        }
    const wf_view *tokens = &c->in[WF_SAMPLE_TOKENS];
    wf_adjust_row((const int32_t *)wf_cpu_at(&c->in[WF_SAMPLE_IDS]) + key[5],
                  (const wf_adjust *)wf_cpu_at(&c->in[WF_SAMPLE_ADJUST]) + key[5], key[6] - key[5], wf_cpu_at(tokens),
                  tokens->rows * tokens->cols, z, n);
    if (key[7] != UINT32_MAX) wf_allow_row((const uint32_t *)wf_cpu_at(&c->in[WF_SAMPLE_ALLOWED]) + key[7], z, n);
    *y = wf_sample_row(&params, z, n, scratch, NULL);
}

void wf_cpu_ref_sample(const wf_cpu_work *w)
{
    uint32_t begin, end;
    wf_cpu_part(w, w->call->in[WF_SAMPLE_X].rows, 1, &begin, &end);
    for (uint32_t m = begin; m < end; m++) one_row(w->call, m, w->per_thread);
}
