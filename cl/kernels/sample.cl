/* sample, one work-group a row: the next token from a row of logits, by the rule in ops.def under SAMPLE.
 *
 * Nothing is sorted. A logit's bits, put in the order of numbers, are its key; what is kept is every column
 * above a key t and, of those at t, the first `ties`. Top-k and top-p find t by bisection: 32 sweeps over the
 * row. The draw goes along the columns: work-item i sums a run of them, the first item finds the run in which
 * the sum passes u, and that run's item finds the column.
 *
 * All of this is one loop of sweeps: each work-item gives a count, a sum and a largest (value, column) over its
 * columns, these are reduced as a tree, and the first item decides what to sweep for next. One loop, because
 * compilers for CPUs copy code for every barrier that stands under a condition.
 *
 * WG is a power of two.
 */
#include "common.clh"

enum sweep { FIRST, NEWEST, ADJUST, LARGEST, TOP_K, AT_K, ABOVE, TOP_P, AT_P, TIES, WEIGHTS, PICK, DONE };

/* What the first work-item knows of its row; the others read it between sweeps. */
typedef struct row_state {
    enum sweep sweep;
    float top;               /* largest z */
    float temperature, top_p, min_p, u;
    uint top_k, column;      /* column: what y becomes */
    uint t, ties;            /* what is kept; t 0: all */
    uint low, high;          /* of a bisection */
    float want, above;       /* the sum top_p asks for; that of the columns above t */
    uint run;                /* work-item whose columns the draw fell into */
    float rest;              /* what is left of u there */
} row_state;

/* What a sweep gives. */
typedef struct found {
    uint count;
    float sum, best;
    uint at;
} found;

/* ---- keys ---------------------------------------------------------------------------------------------------- */

uint key_of(float v)
{
    uint b = as_uint(v + 0.0f); /* -0 is 0 */
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

float value_of(uint key)
{
    return as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

bool before(float v, uint k, float w, uint j)
{
    return v > w || (v == w && k < j);
}

void keep(found *f, float v, uint k)
{
    if (before(v, k, f->best, f->at)) f->best = v, f->at = k;
}

/* Philox4x32-10, the first word of it. */
uint philox(uint c0, uint c1, uint k0, uint k1)
{
    uint c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint a = 0xD2511F53u * c0, a_high = mul_hi(0xD2511F53u, c0);
        uint b = 0xCD9E8D57u * c2, b_high = mul_hi(0xCD9E8D57u, c2);
        c0 = b_high ^ c1 ^ k0;
        c1 = b;
        c2 = a_high ^ c3 ^ k1;
        c3 = a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

/* The weight of a column, 0 if it is not kept; counts those at t. */
float weight_of(float v, const row_state *s, uint *tie)
{
    uint key = key_of(v);
    bool kept = key > s->t || (key == s->t && (*tie)++ < s->ties);
    return kept ? exp((v - s->top) / s->temperature) : 0.0f;
}

/* ---- sweeps over every WG-th column ------------------------------------------------------------------------------ */

/* The largest x, where INFINITY stands for what is not finite; and z = x. */
void sweep_first(const __global float *x, __global float *z, uint K, found *f)
{
    for (uint k = get_local_id(0); k < K; k += WG) {
        float v = x[k];
        z[k] = v;
        keep(f, isfinite(v) ? v : INFINITY, k);
    }
}

/* The last entry (newest), then the others, one of which may name the same column and goes over what it wrote. */
void sweep_adjust(const __global float *x, __global float *z, uint K, bool newest, int begin, int end,
                  const __global int *ids, const __global float *adjust, const __global int *tokens)
{
    int n = end - 1, last = ids[n] < 0 ? tokens[-1 - ids[n]] : ids[n];
    for (int e = newest ? n + (int)get_local_id(0) : begin + (int)get_local_id(0); e < (newest ? end : n); e += WG) {
        int c = newest ? last : ids[e] < 0 ? tokens[-1 - ids[e]] : ids[e];
        bool again = !newest && c == last;
        if ((uint)c >= K) continue;
        float v = x[c], repeat = adjust[3 * (again ? n : e)];
        z[c] = (v > 0 ? v / repeat : v * repeat) + adjust[3 * e + (again ? 2 : 1)];
    }
}

void sweep_largest(__global float *z, uint K, const __global uint *allowed, int first, found *f)
{
    for (uint k = get_local_id(0); k < K; k += WG) {
        if (first >= 0 && !(allowed[(uint)first + k / 32] >> k % 32 & 1)) z[k] = -2e30f;
        keep(f, z[k], k);
    }
}

void sweep_from(const __global float *z, uint K, uint key, float top, bool weights, found *f)
{
    for (uint k = get_local_id(0); k < K; k += WG) {
        bool in = key_of(z[k]) >= key;
        f->count += in;
        if (in && weights) f->sum += exp(z[k] - top);
    }
}

/* ---- sweeps over a run of columns -------------------------------------------------------------------------------- */

void sweep_run(const __global float *z, uint K, const row_state *s, uint tie, found *f)
{
    uint run = (K + WG - 1) / WG, begin = min((uint)get_local_id(0) * run, K), end = min(begin + run, K);
    if (s->sweep == TIES)
        for (uint k = begin; k < end; k++) f->count += key_of(z[k]) == s->t;
    if (s->sweep == WEIGHTS)
        for (uint k = begin; k < end; k++) f->sum += weight_of(z[k], s, &tie);
    if (s->sweep != PICK || s->run != get_local_id(0)) return;
    float rest = s->rest;
    f->best = 1; /* this item's column is the one */
    for (uint k = begin; k < end && rest >= 0; k++) {
        float w = weight_of(z[k], s, &tie);
        if (w > 0) f->at = k, rest -= w;
    }
}

/* ---- what comes next: the first work-item only ------------------------------------------------------------------- */

void start_ties(row_state *s)
{
    uint limit = s->min_p > 0 ? key_of(s->top + log(s->min_p)) : 0;
    if (limit > s->t) s->t = limit, s->ties = UINT_MAX;
    s->sweep = TIES;
}

void start_top_p(row_state *s)
{
    if (s->top_p > 0 && s->top_p < 1) s->sweep = ABOVE;
    else start_ties(s);
}

void start_cuts(row_state *s, const found *largest, uint K)
{
    s->top = largest->best;
    s->column = largest->at;
    s->t = s->ties = s->low = 0;
    s->high = key_of(s->top);
    if (s->temperature == 0) s->sweep = DONE;
    else if (s->top_k > 0 && s->top_k < K) s->sweep = s->low < s->high ? TOP_K : AT_K;
    else start_top_p(s);
}

/* The middle of a bisection was good or not; ends with the largest good key in low. */
void halve(row_state *s, bool good, enum sweep end)
{
    uint mid = s->high - (s->high - s->low) / 2;
    if (good) s->low = mid;
    else s->high = mid - 1;
    if (s->low == s->high) s->sweep = end;
}

void start_bisection_p(row_state *s, float above)
{
    s->above = above;
    s->want = s->top_p * (above + (s->t ? s->ties * exp(value_of(s->t) - s->top) : 0.0f));
    s->low = s->t + 1;
    s->high = key_of(s->top);
    s->sweep = above < s->want || s->low > s->high ? AT_P : s->low < s->high ? TOP_P : AT_P;
    if (above < s->want) s->low = s->t; /* the cut lies among those at t */
    else s->ties = UINT_MAX;
}

void end_top_p(row_state *s, float above)
{
    s->t = s->low;
    float more = ceil((s->want - above) / exp(value_of(s->t) - s->top));
    s->ties = min(s->ties, (uint)clamp(more, 1.0f, 1e9f));
    start_ties(s);
}

/* The run in which the sum passes u, or the last one with any weight. */
void find_run(row_state *s, const __local float *sums)
{
    float total = 0, passed = 0;
    for (uint i = 0; i < WG; i++) total += sums[i];
    for (uint i = 0; i < WG; i++) {
        if (sums[i] == 0) continue;
        s->run = i;
        s->rest = s->u * total - passed;
        passed += sums[i];
        if (passed > s->u * total) break;
    }
    s->sweep = PICK;
}

void advance(row_state *s, const found *f, uint K, bool adjusts, bool forbids, const __local float *sums)
{
    switch (s->sweep) {
    case FIRST:
        if (f->best == INFINITY) s->column = -1 - f->at, s->sweep = DONE;
        else if (adjusts) s->sweep = NEWEST;
        else if (forbids) s->sweep = LARGEST;
        else start_cuts(s, f, K); /* z is x */
        break;
    case NEWEST: s->sweep = ADJUST; break;
    case ADJUST: s->sweep = LARGEST; break;
    case LARGEST: start_cuts(s, f, K); break;
    case TOP_K: halve(s, f->count >= s->top_k, AT_K); break;
    case AT_K:
        s->t = s->low;
        s->ties = s->top_k - f->count;
        start_top_p(s);
        break;
    case ABOVE: start_bisection_p(s, f->sum); break;
    case TOP_P: halve(s, f->sum >= s->want, AT_P); break;
    case AT_P: end_top_p(s, f->sum); break;
    case TIES: s->sweep = WEIGHTS; break;
    case WEIGHTS: find_run(s, sums); break;
    default: /* PICK */
        s->column = f->at;
        s->sweep = DONE;
    }
}

/* The key from which a sweep counts. */
uint from_key(const row_state *s)
{
    switch (s->sweep) {
    case AT_K: case AT_P: return s->low + 1;
    case ABOVE: return s->t + 1;
    default: return s->high - (s->high - s->low) / 2;
    }
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

KERNEL void sample(IN(x), IN(params), IN(key), IN(tokens), IN(ids), IN(adjust), IN(allowed), OUT(y), OUT(z),
                   uint M, uint K, uint x_stride, uint z_stride)
{
    __local uint counts[WG], places[WG], ties[WG]; /* reduced; ties of each run */
    __local float totals[WG], bests[WG], sums[WG]; /* reduced; sums of each run */
    __local row_state shared;
    uint lid = get_local_id(0);
    for (uint m = get_group_id(0); m < M; m += get_num_groups(0)) {
        const __global float *x = IN_AT(float, x) + (ulong)m * x_stride, *params = IN_AT(float, params) + 3 * m;
        const __global uint *key = IN_AT(uint, key) + 8 * m;
        __global float *z = OUT_AT(float, z) + (ulong)m * z_stride;
        row_state s;
        s.sweep = FIRST, s.temperature = params[0], s.top_p = params[1], s.min_p = params[2], s.top_k = key[0];
        s.top = s.want = s.above = s.rest = 0;
        s.column = s.t = s.ties = s.low = s.high = s.run = 0;
        s.u = (float)(philox(key[3], key[4], key[1], key[2]) >> 8) * 0x1p-24f;
        while (s.sweep != DONE) {
            found f;
            f.count = 0, f.sum = 0, f.best = -INFINITY, f.at = UINT_MAX;
            uint tie = 0;
            if (s.sweep == WEIGHTS || s.sweep == PICK)
                for (uint i = 0; i < lid; i++) tie += ties[i];
            if (s.sweep == FIRST) sweep_first(x, z, K, &f);
            else if (s.sweep == NEWEST || s.sweep == ADJUST)
                sweep_adjust(x, z, K, s.sweep == NEWEST, (int)key[5], (int)key[6], IN_AT(int, ids),
                             IN_AT(float, adjust), IN_AT(int, tokens));
            else if (s.sweep == LARGEST) sweep_largest(z, K, IN_AT(uint, allowed), (int)key[7], &f);
            else if (s.sweep >= TIES) sweep_run(z, K, &s, tie, &f);
            else sweep_from(z, K, from_key(&s), s.top, s.sweep >= ABOVE, &f);
            if (s.sweep == TIES) ties[lid] = f.count;
            sums[lid] = f.sum;
            counts[lid] = f.count, totals[lid] = f.sum, bests[lid] = f.best, places[lid] = f.at;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint half_ = WG / 2; half_ > 0; half_ /= 2) {
                if (lid < half_) {
                    counts[lid] += counts[lid + half_];
                    totals[lid] += totals[lid + half_];
                    keep(&f, bests[lid + half_], places[lid + half_]);
                    bests[lid] = f.best, places[lid] = f.at;
                }
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (lid == 0) {
                f.count = counts[0], f.sum = totals[0];
                advance(&s, &f, K, key[5] < key[6], (int)key[7] >= 0, sums);
                if (s.sweep == DONE) OUT_AT(int, y)[m] = (int)s.column;
                shared = s;
            }
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            s = shared;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* shared is written again */
    }
}
