/* fit: see fit.h. Least squares give the best scale (and minimum) for given q, so what is tried is how to round: with a
 * few scales around the one that just reaches the largest weight. */
#include "tensor/quant/fit.h"

#include <math.h>
#include <string.h>

#define TRIES     10   /* to each side */
#define TRY_STEP  0.1f /* of a step of q */
#define MOST      32   /* weights of a group */

/* wf_round_clamp of small numbers without a call: adding 1.5 * 2^23 leaves the whole part, rounded to even, in the
 * lowest bits. */
static inline int nearest(float x, int lo, int hi)
{
    const float magic = 0x1.8p23f;
    x = x > (float)lo ? x : (float)lo;
    x = x < (float)hi ? x : (float)hi;
    return (int)(x + magic - magic);
}

float wf_fit_largest(const float *x, int n)
{
    float top = 0; /* with its sign */
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    return top;
}

/* ---- x = d q ----------------------------------------------------------------------------------- */

/* Sums of the weights' products with q, and how much of the error the best scale takes away. */
typedef struct product {
    double xq, qq;
} product;

static double gain(const product *s)
{
    return s->qq > 0 ? s->xq * s->xq / s->qq : 0;
}

static inline void add_product(product *s, float x, int q)
{
    double w = (double)x * x, wq = w * q;
    s->xq += wq * x;
    s->qq += wq * q;
}

static void keep_better(product *best, const product *s)
{
    if (gain(s) > gain(best)) *best = *s;
}

static float scale_of(const product *best)
{
    return best->qq > 0 ? (float)(best->xq / best->qq) : 0;
}

float wf_fit_scale(const float *x, int n, int lo, int hi)
{
    float top = wf_fit_largest(x, n);
    product best = {0};
    for (int t = -TRIES; t <= TRIES && top != 0; t++) {
        float inv = ((float)lo + TRY_STEP * (float)t) / top;
        product s = {0};
        for (int i = 0; i < n; i++) add_product(&s, x[i], nearest(x[i] * inv, lo, hi));
        keep_better(&best, &s);
    }
    return scale_of(&best);
}

int wf_nearest_value(float x, const int8_t values[16])
{
    int i = 0;
    while (i < 15 && x > 0.5f * (float)(values[i] + values[i + 1])) i++;
    return i;
}

float wf_fit_scale_values(const float *x, int n, const int8_t values[16])
{
    float top = wf_fit_largest(x, n);
    product best = {0};
    for (int t = -TRIES; t <= TRIES && top != 0; t++) {
        float inv = (float)(values[0] + t) / top;
        product s = {0};
        for (int i = 0; i < n; i++) add_product(&s, x[i], values[wf_nearest_value(x[i] * inv, values)]);
        keep_better(&best, &s);
    }
    return scale_of(&best);
}

float wf_fit_common(const float *scale, int n, int levels, uint16_t *half, int *rounded)
{
    *half = wf_float_to_half(wf_fit_largest(scale, n) / (float)-levels);
    float d = wf_half_to_float(*half), inv = d != 0 ? 1 / d : 0;
    for (int g = 0; g < n; g++) rounded[g] = wf_round_clamp(scale[g] * inv, -levels, levels - 1);
    return d;
}

/* ---- x = d q - m ------------------------------------------------------------------------------- */

typedef struct line {
    float d, m;
} line;

/* A weight counts by its size, and by that of its group. */
static void importance(const float *x, int n, float *w)
{
    float square = 0;
    for (int i = 0; i < n; i++) square += x[i] * x[i];
    for (int i = 0; i < n; i++) w[i] = sqrtf(square / (float)n) + fabsf(x[i]);
}

/* The best line for given q, its minimum not above 0. */
static line least_squares(const float *x, const float *w, int n, const int *q)
{
    double sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    for (int i = 0; i < n; i++) {
        double wi = w[i], wq = wi * q[i];
        sw += wi, sq += wq, sqq += wq * q[i];
        sx += wi * x[i], sxq += wq * x[i];
    }
    double det = sw * sqq - sq * sq, d = det > 0 ? (sw * sxq - sq * sx) / det : 0,
           least = det > 0 ? (sqq * sx - sq * sxq) / det : 0;
    if (least > 0) d = sqq > 0 ? sxq / sqq : 0, least = 0;
    return (line){(float)d, (float)-least};
}

static void quantise(const float *x, int n, line l, int most, int *q)
{
    float inv = l.d != 0 ? 1 / l.d : 0;
    for (int i = 0; i < n; i++) q[i] = nearest((x[i] + l.m) * inv, 0, most);
}

static double squared_error(const float *x, const float *w, int n, line l, const int *q)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double e = l.d * (float)q[i] - l.m - x[i];
        sum += w[i] * e * e;
    }
    return sum;
}

static line fit_line(const float *x, int n, int most)
{
    float w[MOST], least = 0, top = x[0];
    int q[MOST];
    for (int i = 0; i < n; i++) least = fminf(least, x[i]), top = fmaxf(top, x[i]);
    line best = {0};
    double best_error = INFINITY;
    importance(x, n, w);
    for (int t = -TRIES; t <= TRIES && top > least; t++) {
        line l = {(top - least) / ((float)most + TRY_STEP * (float)t), -least};
        quantise(x, n, l, most, q);
        l = least_squares(x, w, n, q);
        double e = squared_error(x, w, n, l, q);
        if (l.d > 0 && e < best_error) best_error = e, best = l;
    }
    return best_error < INFINITY ? best : (line){0, -least}; /* all alike */
}

static float round_to(const line *l, int n, int levels, bool mins, uint16_t *half, uint8_t *out)
{
    float top = 0;
    for (int g = 0; g < n; g++) top = fmaxf(top, mins ? l[g].m : l[g].d);
    *half = wf_float_to_half(top / (float)levels);
    float d = wf_half_to_float(*half), inv = d != 0 ? 1 / d : 0;
    for (int g = 0; g < n; g++) out[g] = (uint8_t)wf_round_clamp((mins ? l[g].m : l[g].d) * inv, 0, levels);
    return d;
}

/* Of the rounded scale and minimum and their neighbours, those that fit a group best; q gets its weights. */
static void settle_group(const float *x, int n, int most, int levels, const line *unit, uint8_t *scale, uint8_t *min,
                         uint8_t *out)
{
    float w[MOST];
    double best = INFINITY;
    int s0 = *scale, m0 = *min, q[MOST];
    importance(x, n, w);
    for (int s = WF_MAX(s0 - 1, 0); s <= WF_MIN(s0 + 1, levels); s++)
        for (int m = WF_MAX(m0 - 1, 0); m <= WF_MIN(m0 + 1, levels); m++) {
            line l = {unit->d * (float)s, unit->m * (float)m};
            quantise(x, n, l, most, q);
            double e = squared_error(x, w, n, l, q);
            if (!(e < best)) continue;
            best = e, *scale = (uint8_t)s, *min = (uint8_t)m;
            for (int i = 0; i < n; i++) out[i] = (uint8_t)q[i];
        }
}

void wf_fit_groups_mins(const float x[WF_SUPER], int group, int most, int levels, wf_fit_mins *out)
{
    line l[16] = {{0}};
    int n = WF_SUPER / group;
    memset(out, 0, sizeof *out);
    for (int g = 0; g < n; g++) l[g] = fit_line(x + g * group, group, most);
    line unit = {round_to(l, n, levels, false, &out->d, out->scale),
                 round_to(l, n, levels, true, &out->dmin, out->min)};
    for (int g = 0; g < n; g++)
        settle_group(x + g * group, group, most, levels, &unit, &out->scale[g], &out->min[g], out->q + g * group);
}
