/* grid: the encoder, see grid.h. Scales are fitted as if each weight could have any level; then comes the nearest entry
 * of all. */
#include "tensor/quant/grid.h"

#include <math.h>

enum { MOST_ENTRIES = 1024, EIGHT = 8, MOST_SCALE = 15 };

/* The levels by weight, so that all entries are tried side by side. */
typedef struct search {
    float level[EIGHT][MOST_ENTRIES], half_norm[MOST_ENTRIES];
} search;

static void search_init(const wf_grid *g, search *s)
{
    for (int e = 0; e < g->n_entries; e++) {
        s->half_norm[e] = 0;
        for (int i = 0; i < g->width; i++) {
            float level = (float)wf_grid_level(g, g->entries[e], i);
            s->level[i][e] = level;
            s->half_norm[e] += level * level / 2;
        }
    }
}

/* The entry nearest to x: half its norm less the product with x is least. */
static int nearest_entry(const wf_grid *g, const search *s, const float *x)
{
    float cost[MOST_ENTRIES];
    int best = 0;
    memcpy(cost, s->half_norm, g->n_entries * sizeof *cost);
    for (int i = 0; i < g->width; i++)
        for (int e = 0; e < g->n_entries; e++) cost[e] -= x[i] * s->level[i][e];
    for (int e = 1; e < g->n_entries; e++)
        if (cost[e] < cost[best]) best = e;
    return best;
}

/* Where signs must be even and are not, the smallest weight gets the wrong one. */
static uint8_t signs_of(const wf_grid *g, float x[EIGHT])
{
    unsigned minus = 0;
    int least = 0;
    for (int i = 0; i < EIGHT; i++) {
        if (x[i] < 0) minus |= 1u << i;
        x[i] = fabsf(x[i]);
        if (x[i] < x[least]) least = i;
    }
    if (!g->even || !__builtin_parity(minus)) return (uint8_t)minus;
    x[least] = -x[least];
    return (uint8_t)(minus ^ 1u << least);
}

/* Returns d, with the unit. */
static float fit_scales(const wf_grid *g, const float *x, wf_grid_block *out)
{
    int8_t values[16];
    int n = WF_SUPER / g->group;
    float want[WF_SUPER / 16], top = 0;
    for (int i = 0; i < 8; i++) { /* the levels with both signs, in ascending order */
        values[8 + i] = g->levels[WF_MIN(i, g->n_levels - 1)];
        values[7 - i] = (int8_t)-values[8 + i];
    }
    for (int i = 0; i < n; i++) {
        want[i] = fabsf(wf_fit_scale_values(x + i * g->group, g->group, values));
        top = fmaxf(top, want[i]);
    }
    out->d = wf_float_to_half(top / ((2 * MOST_SCALE + 1) * g->unit));
    float d = wf_half_to_float(out->d) * g->unit, inv = d != 0 ? 1 / d : 0;
    for (int i = 0; i < n; i++) out->scale[i] = (uint8_t)wf_round_clamp((want[i] * inv - 1) / 2, 0, MOST_SCALE);
    return d;
}

static void encode_block(const wf_grid *g, const search *s, const float *x, wf_grid_block *out)
{
    float d = fit_scales(g, x, out);
    for (int i = 0; i < WF_SUPER; i += EIGHT) {
        float step = d * (float)(2 * out->scale[i / g->group] + 1), inv = step != 0 ? 1 / step : 0, eight[EIGHT];
        for (int j = 0; j < EIGHT; j++) eight[j] = x[i + j] * inv;
        out->signs[i / EIGHT] = signs_of(g, eight);
        for (int j = 0; j < EIGHT; j += g->width)
            out->entry[(i + j) / g->width] = (uint16_t)nearest_entry(g, s, eight + j);
    }
}

void wf_grid_encode(const wf_grid *g, size_t bytes, wf_grid_put *put, const float *src, void *dst, size_t n)
{
    search s;
    search_init(g, &s);
    for (size_t b = 0; b < n / WF_SUPER; b++) {
        wf_grid_block k = {0};
        encode_block(g, &s, src + b * WF_SUPER, &k);
        put(&k, (uint8_t *)dst + b * bytes);
    }
}
