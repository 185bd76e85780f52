/* sampler: see sampler.h. Nothing is sorted: a heap gives tokens in descending order one by one, and top_k or top_p
 * rarely needs many. The last candidate in that order describes the whole set. */
#include "sample/sampler.h"

#include <math.h>
#include <string.h>

/* ---- random numbers -------------------------------------------------------------------------------------- */

void wf_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)a;
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

float wf_philox_unit(uint64_t seed, uint64_t counter)
{
    uint32_t out[4];
    wf_philox((uint32_t[4]){(uint32_t)counter, (uint32_t)(counter >> 32)},
              (uint32_t[2]){(uint32_t)seed, (uint32_t)(seed >> 32)}, out);
    return (float)(out[0] >> 8) * 0x1p-24f;
}

/* ---- adjustments ------------------------------------------------------------------------------------------------- */

static uint32_t adjusted_column(int32_t id, const int32_t *tokens, uint32_t n_tokens)
{
    if (id >= 0) return (uint32_t)id;
    return (uint32_t)(-1 - id) < n_tokens ? (uint32_t)tokens[-1 - id] : UINT32_MAX;
}

void wf_adjust_row(const int32_t *ids, const wf_adjust *list, uint32_t n, const int32_t *tokens, uint32_t n_tokens,
                   float *z, uint32_t n_vocab)
{
    uint32_t last = n ? adjusted_column(ids[n - 1], tokens, n_tokens) : UINT32_MAX;
    bool named = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = adjusted_column(ids[i], tokens, n_tokens);
        bool again = i + 1 < n && c == last;
        if (c < n_vocab && (again || i + 1 < n || !named))
            z[c] = wf_adjusted_logit(z[c], list[again ? n - 1 : i].repeat, again ? list[i].again : list[i].after);
        named |= again;
    }
}

/* Of 32 tokens most are all allowed. */
void wf_allow_row(const uint32_t *allowed, float *z, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i += 32) {
        uint32_t bits = allowed[i / 32], n = WF_MIN(n_vocab - i, 32u);
        for (uint32_t k = 0; k < n && bits != UINT32_MAX; k++) z[i + k] = bits >> k & 1 ? z[i + k] : -2e30f;
    }
}

/* ---- candidates in descending order; the lower id first among equals ------------------------------------- */

static bool comes_before(wf_token_logit a, wf_token_logit b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(wf_token_logit *c, uint32_t n, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_before(c[child + 1], c[child])) child++;
        if (!comes_before(c[child], c[at])) return;
        wf_token_logit t = c[at];
        c[at] = c[child];
        c[child] = t;
    }
}

/* Takes the largest from a heap of n, and leaves it at c[n - 1]. */
static wf_token_logit pop_largest(wf_token_logit *c, uint32_t n)
{
    wf_token_logit top = c[0];
    c[0] = c[n - 1];
    c[n - 1] = top;
    sift_down(c, n - 1, 0);
    return top;
}

/* ---- top_k, top_p, min_p: each returns the last candidate that it keeps ------------------------------------------ */

/* Most tokens are far below, where a grammar forbids them. */
static double exp_of(double x)
{
    return x < -746 ? 0 : exp(x); /* which is 0, and takes longer */
}

/* Not fmin: in a loop it ends gcc 12 for ARM with an internal error. */
static void narrow_margin(double *margin, double distance)
{
    if (fabs(distance) < *margin) *margin = fabs(distance);
}

/* The last of the fewest candidates whose weights reach `want`. `popped` of them lie in descending order at c[n - 1],
 * c[n - 2], ...; the rest is still a heap. */
static wf_token_logit cut_top_p(wf_token_logit *c, uint32_t n, uint32_t popped, uint32_t kept, float top, double want,
                                double sum, double *margin)
{
    double part = 0;
    for (uint32_t i = 0;; i++) {
        wf_token_logit next = i < popped ? c[n - 1 - i] : pop_largest(c, n - i);
        narrow_margin(margin, (part - want) / sum);
        part += exp((double)next.logit - top);
        if (part < want && i + 1 < kept) continue;
        narrow_margin(margin, (part - want) / sum);
        return next;
    }
}

static wf_token_logit cut_candidates(const wf_sampling_params *params, const float *z, uint32_t n, float top,
                                     wf_token_logit *c, double *margin)
{
    bool by_p = params->top_p > 0 && params->top_p < 1;
    uint32_t kept = params->top_k > 0 ? WF_MIN((uint32_t)params->top_k, n) : n, popped = kept < n ? kept : 0;
    wf_token_logit last = {-INFINITY, 0};
    double sum = 0;
    if (popped || by_p) {
        for (uint32_t i = 0; i < n; i++) c[i] = (wf_token_logit){z[i], (int32_t)i};
        for (uint32_t i = n / 2; i-- > 0;) sift_down(c, n, i);
    }
    for (uint32_t i = 0; i < popped; i++) {
        last = pop_largest(c, n - i);
        sum += exp((double)last.logit - top);
    }
    for (uint32_t i = 0; i < n && by_p && !popped; i++) sum += exp_of((double)z[i] - top);
    if (by_p) last = cut_top_p(c, n, popped, kept, top, params->top_p * sum, sum, margin);
    if (params->min_p <= 0) return last;
    float limit = top + logf(params->min_p);
    for (uint32_t i = 0; i < n; i++) narrow_margin(margin, (double)z[i] - limit);
    return last.logit < limit ? (wf_token_logit){limit, INT32_MAX} : last;
}

/* ---- sampling: in the order of ids, so that nothing has to be sorted --------------------------------------------- */

static double token_weight(const wf_sampling_params *params, const float *z, uint32_t i, float top, wf_token_logit last)
{
    bool kept = !comes_before(last, (wf_token_logit){z[i], (int32_t)i});
    return kept ? exp_of(((double)z[i] - top) / params->temperature) : 0;
}

static int32_t sample_token(const wf_sampling_params *params, const float *z, uint32_t n, float top,
                            wf_token_logit last, double *margin)
{
    double sum = 0, part = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < n; i++) sum += token_weight(params, z, i, top, last);
    double want = wf_philox_unit(params->seed, params->counter) * sum;
    for (uint32_t i = 0; i < n && part <= want; i++) {
        double w = token_weight(params, z, i, top, last);
        if (w > 0) chosen = i, narrow_margin(margin, part > 0 ? (part - want) / sum : 1), part += w;
    }
    narrow_margin(margin, (part - want) / sum);
    return (int32_t)chosen;
}

/* The first of the largest: first the part that has it, by integers in the order of floats, which a loop takes several
 * at a time. */
static uint32_t largest_of(const float *z, uint32_t n)
{
    enum { PART = 256 };
    float best = -INFINITY, value;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i += PART) {
        uint32_t end = WF_MIN(i + PART, n);
        int32_t most = INT32_MIN, bits;
        for (uint32_t k = i; k < end; k++) {
            memcpy(&bits, &z[k], sizeof bits);
            bits ^= bits >> 31 & INT32_MAX;
            most = bits > most ? bits : most;
        }
        most ^= most >> 31 & INT32_MAX;
        memcpy(&value, &most, sizeof value);
        if (value > best) best = value, at = i;
    }
    while (z[at] != best && at + 1 < n) at++;
    return at;
}

int32_t wf_sample_row(const wf_sampling_params *params, const float *z, uint32_t n, wf_token_logit *scratch,
                      double *margin)
{
    double unused;
    uint32_t best = largest_of(z, n);
    wf_token_logit top = (wf_token_logit){z[best], (int32_t)best};
    if (!margin) margin = &unused;
    *margin = 1;
    if (params->temperature == 0) return top.id;
    wf_token_logit last = cut_candidates(params, z, n, top.logit, scratch, margin);
    return sample_token(params, z, n, top.logit, last, margin);
}
