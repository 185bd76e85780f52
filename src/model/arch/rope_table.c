/* rope_table: how far each pair turns from position to position, by the base, the factors of a file, linear scaling and
 * YaRN. */
#include "model/arch/build.h"

#include <math.h>
#include <stdlib.h>

/* Factors that divide the frequencies, from the tensor of that name, if there is one. */
static weft_status decode_rope_factors(wf_builder *b, const char *name, float *factors)
{
    uint32_t pairs = b->hp->n_rot / 2;
    const wf_gguf_tensor *t = wf_gguf_tensor_find(b->file, name);
    if (!t) return WEFT_OK;
    WF_TRY(wf_build_decode_vector(b, t, pairs, factors));
    for (uint32_t i = 0; i < pairs; i++)
        if (factors[i] == 0)
            return wf_fail(WEFT_ERR_FORMAT, "%s: tensor '%s' holds a zero at %u", b->file->path, name, i);
    return WEFT_OK;
}

/* Llama 3.1 has one list of factors. Phi has two: one for contexts as long as the model had first, one for longer ones;
 * the one that counts is read last. */
static weft_status read_rope_factors(wf_builder *b, float *factors)
{
    static const char *const lists[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
    bool is_long = b->hp->original_context && b->context > b->hp->original_context;
    for (uint32_t i = 0; i < b->hp->n_rot / 2; i++) factors[i] = 1;
    WF_TRY(decode_rope_factors(b, "rope_freqs.weight", factors));
    WF_TRY(decode_rope_factors(b, lists[is_long], factors));
    return decode_rope_factors(b, lists[!is_long], factors);
}

/* YaRN: the pair that turns so many times within the original context, as a number with a fraction. */
static double yarn_pair(const wf_hparams *hp, double turns)
{
    return hp->n_rot * log(hp->original_context / (turns * 2 * M_PI)) / (2 * log(hp->rope_base));
}

/* How far pair i is scaled: 0 not at all, 1 wholly. The bounds are rounded outwards unless the model says otherwise. */
static double scaled_part(const wf_hparams *hp, uint32_t i)
{
    if (!(hp->yarn_fast > 0)) return 1;
    double low = yarn_pair(hp, hp->yarn_fast), high = yarn_pair(hp, hp->yarn_slow);
    if (!hp->yarn_exact) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, hp->n_rot - 1.0);
    return fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
}

/* The angle from one position to the next, of pair i of n_rot / 2. */
static double rope_step(const wf_hparams *hp, enum wf_rope_table how, const float *factors, uint32_t i)
{
    if (how == WF_ROPE_NONE) return 0;
    if (how == WF_ROPE_LOCAL) return pow(hp->local_rope_base, -2.0 * i / hp->n_rot);
    double step = pow(hp->rope_base, -2.0 * i / hp->n_rot) / factors[i], part = scaled_part(hp, i);
    return step * (1 - part) + step / hp->rope_factor * part;
}

int32_t wf_build_rope_table(wf_builder *b, enum wf_rope_table how)
{
    const wf_hparams *hp = b->hp;
    uint32_t pairs = hp->n_rot / 2;
    float *factors = wf_calloc(pairs, sizeof *factors);
    wf_rope *rope = wf_calloc(1, sizeof *rope + pairs * sizeof *rope->step);
    weft_status s = factors && rope ? read_rope_factors(b, factors) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) *rope = (wf_rope){pairs, how == WF_ROPE_ALL && hp->rope_gain > 0 ? hp->rope_gain : 1};
    for (uint32_t i = 0; i < pairs && s == WEFT_OK; i++) rope->step[i] = rope_step(hp, how, factors, i);
    free(factors);
    int32_t v = s == WEFT_OK
                    ? wf_build_weight(
                          b, &(wf_weight){.rope = rope, .dtype = WF_F32, .rows = b->context, .cols = hp->n_rot})
                    : wf_build_fail(b, s);
    if (v < 0) free(rope);
    return v;
}

void wf_rope_rows(const wf_rope *r, uint64_t first, uint64_t n, float *out)
{
    for (uint64_t pos = first; pos < first + n; pos++)
        for (uint32_t i = 0; i < r->pairs; i++) {
            double angle = (double)pos * r->step[i];
            *out++ = (float)(r->gain * cos(angle));
            *out++ = (float)(r->gain * sin(angle));
        }
}
