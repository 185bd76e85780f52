/* stages: the two mixed integer programs. See stages.h.
 *
 * A schedule is one round of a cycle (pipeline.h). T is the time from round to round, which both minimise: it is what a
 * layer takes. A slot i begins at u_i in the round, takes d_i and belongs to the layer behind if n_i = 1. Which cells a
 * slot has is given (pipeline.h), and so who needs whom; how large the cells are Stage I chooses.
 *
 * Stage I (section 4.1.2), without interference. Variables: T, u_i >= 0, n_i in {0, 1}, z_c in {0, 1} (the cut c is
 * taken), o_ij in {0, 1} (i before j in their queue); d_i = sum of z_c D_i(c), with D_i(c) the time of the block alone
 * on that many tokens.
 *   one cut         sum of z_c = 1
 *   dependency      j needs i, of its own layer (k = 0) or of the one before (k = 1): i runs k + n_i - n_j rounds
 *                   before j, so that k + n_i - n_j >= 0 and u_i + d_i <= u_j + w, 0 <= w <= T,
 *                   w <= M (k + n_i - n_j)
 *   overlapping     of one queue, so of one class: u_i + d_i <= u_j + M (1 - o_ij), u_j + d_j <= u_i + M o_ij,
 *                   and with the next round: u_i + d_i <= u_j + T, u_j + d_j <= u_i + T; sum of the queue's d_i <= T
 *   symmetry        slots of the last block have n = 0
 *
 * Stage II (section 4.1.3): cut, n and the order of each queue are given. Variables: T, u_i, x_ir in {0, 1} (i has the
 * share r), and for i and j of different queues a_ij, b_ij, v_ij in {0, 1}; d_i = sum of x_ir D_i / P(r), R_i = sum of
 * x_ir r.
 *   one share       sum of x_ir = 1
 *   dependency      u_i + d_i <= u_j + (k + n_i - n_j) T
 *   queues          each behind the one before it; the first of the next round behind the last
 *   resources       a + b + v = 1: i runs before j (and behind the j of the round before), or behind j, or they may
 *                   overlap; then R_i + R_j <= 1, and of three that overlap pair by pair R_i + R_j + R_k <= 1
 */
#include "plan/stages.h"

#include "plan/milp.h"
#include <stdlib.h>

enum { MAX_STEPS = 16 };

/* Terms of a row are added with these; a slot's d is a sum. */
typedef struct stage {
    const wf_pipeline *p;
    wf_milp m;
    wf_schedule *s;
    int period, begin[WF_MAX_SLOTS];
    double far; /* M: longer than any round */
    /* Stage I */
    const wf_cut *cuts;
    size_t n_cuts;
    int cut[WF_MAX_CUTS], next[WF_MAX_SLOTS];
    /* Stage II */
    uint32_t steps;
    int share[WF_MAX_SLOTS][MAX_STEPS + 1]; /* by r * steps; -1: too slow to be of use */
    double us[WF_MAX_SLOTS][WF_MAX_CUTS];   /* what a slot takes, by cut or by r * steps */
} stage;

#define LATER 1e-4 /* weight of beginning early, against T */
#define SLOW  0.05 /* rates below are not tried: they would only make M large */

static const wf_block *block_of(const stage *st, size_t i)
{
    return &st->p->blocks[st->s->slots[i].block];
}

static void find_times(stage *st)
{
    for (size_t i = 0; i < st->s->n; i++) {
        const wf_slot *s = &st->s->slots[i];
        for (size_t c = 0; c < st->n_cuts; c++) st->us[i][c] = wf_slot_us(st->p, s, &st->cuts[c], 1, true);
        for (uint32_t r = 1; r <= st->steps; r++)
            st->us[i][r] = wf_slot_us(st->p, s, &st->s->cut, (double)r / st->steps, false);
    }
}

/* d_i */
static void add_us(stage *st, size_t i)
{
    if (st->cuts)
        for (size_t c = 0; c < st->n_cuts; c++) wf_milp_term(&st->m, st->cut[c], st->us[i][c]);
    else
        for (uint32_t r = 1; r <= st->steps; r++)
            if (st->share[i][r] >= 0) wf_milp_term(&st->m, st->share[i][r], st->us[i][r]);
}

/* Starts the row u_i + d_i - u_j ... */
static void row_behind(stage *st, size_t i, size_t j)
{
    wf_milp_term(&st->m, st->begin[i], 1);
    add_us(st, i);
    wf_milp_term(&st->m, st->begin[j], -1);
}

static void add_common(stage *st)
{
    st->period = wf_milp_add(&st->m, 0, st->far, false, 1);
    for (size_t i = 0; i < st->s->n; i++)
        st->begin[i] = wf_milp_add(&st->m, 0, 2 * st->far, false, LATER / (double)st->s->n);
}

/* The sum of a queue's d is at most T. */
static void add_loads(stage *st)
{
    for (uint32_t q = 0; q < st->p->n_queues; q++) {
        for (size_t i = 0; i < st->s->n; i++)
            if (block_of(st, i)->queue == q) add_us(st, i);
        wf_milp_term(&st->m, st->period, -1);
        wf_milp_row_end(&st->m, 'L', 0);
    }
}

/* ---- stage I ----------------------------------------------------------------------------------------------------- */

/* j needs i, k layers on. */
static void add_need(stage *st, size_t j, size_t i, bool k)
{
    wf_milp *m = &st->m;
    int wait = wf_milp_add(m, 0, st->far, false, 0);
    row_behind(st, i, j);
    wf_milp_term(m, wait, -1);
    wf_milp_row_end(m, 'L', 0);
    wf_milp_term(m, wait, 1);
    wf_milp_term(m, st->period, -1);
    wf_milp_row_end(m, 'L', 0);
    wf_milp_term(m, wait, 1);
    wf_milp_term(m, st->next[i], -st->far);
    wf_milp_term(m, st->next[j], st->far);
    wf_milp_row_end(m, 'L', k * st->far);
    wf_milp_term(m, st->next[i], 1);
    wf_milp_term(m, st->next[j], -1);
    wf_milp_row_end(m, 'G', -(double)k);
}

static void add_needs(stage *st)
{
    for (size_t j = 0; j < st->s->n; j++)
        for (size_t i = 0; i < st->s->n; i++)
            for (int k = 0; k < 2; k++)
                if (wf_slot_needs(st->p, &st->s->slots[j], &st->s->slots[i], k)) add_need(st, j, i, k);
}

/* i and j, in that order or the other. */
static void add_apart(stage *st, size_t i, size_t j)
{
    wf_milp *m = &st->m;
    int first = wf_milp_add(m, 0, 1, true, 0);
    for (int turn = 0; turn < 2; turn++) {
        size_t a = turn ? j : i, b = turn ? i : j;
        row_behind(st, a, b);
        wf_milp_term(m, first, turn ? -2 * st->far : 2 * st->far);
        wf_milp_row_end(m, 'L', turn ? 0 : 2 * st->far);
        row_behind(st, a, b);
        wf_milp_term(m, st->period, -1);
        wf_milp_row_end(m, 'L', 0);
    }
}

static void take_order(const stage *st, const double *x)
{
    for (size_t c = 0; c < st->n_cuts; c++)
        if (x[st->cut[c]] > 0.5) st->s->cut = st->cuts[c];
    for (size_t i = 0; i < st->s->n; i++)
        st->s->slots[i].begin = x[st->begin[i]], st->s->slots[i].next = x[st->next[i]] > 0.5;
    st->s->period = x[st->period];
}

static weft_status solve_stage(stage *st, const wf_stage_limits *l, void (*take)(const stage *, const double *),
                               bool *found)
{
    double *x = wf_calloc(st->m.n_vars, sizeof *x);
    weft_status s = x ? wf_milp_solve(&st->m, l->seconds, l->nodes, x, found) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK && *found) take(st, x);
    free(x);
    return s;
}

static stage *new_stage(const wf_pipeline *p, wf_schedule *s)
{
    stage *st = wf_calloc(1, sizeof *st);
    if (st) st->p = p, st->s = s;
    return st;
}

static weft_status end_stage(stage *st, weft_status s)
{
    wf_milp_free(&st->m);
    free(st);
    return s;
}

weft_status wf_stage_order(const wf_pipeline *p, const wf_cut *cuts, size_t n_cuts, const wf_stage_limits *l,
                           wf_schedule *s, bool *found)
{
    stage *st = new_stage(p, s);
    *found = false;
    if (!st) return WEFT_ERR_NOMEM;
    st->cuts = cuts;
    st->n_cuts = WF_MIN(n_cuts, (size_t)WF_MAX_CUTS);
    find_times(st);
    double sum = 0;
    for (size_t i = 0; i < st->s->n; i++) {
        double most = 0;
        for (size_t c = 0; c < st->n_cuts; c++) most = WF_MAX(most, st->us[i][c]);
        sum += most;
    }
    st->far = sum;
    add_common(st);
    for (size_t c = 0; c < st->n_cuts; c++) st->cut[c] = wf_milp_add(&st->m, 0, 1, true, 0);
    for (size_t c = 0; c < st->n_cuts; c++) wf_milp_term(&st->m, st->cut[c], 1);
    wf_milp_row_end(&st->m, 'E', 1);
    for (size_t i = 0; i < st->s->n; i++)
        st->next[i] = wf_milp_add(&st->m, 0, st->s->slots[i].block + 1 < st->p->n_blocks, true,
                                  LATER * LATER * st->far);
    add_needs(st);
    for (size_t j = 0; j < st->s->n; j++)
        for (size_t i = 0; i < j; i++)
            if (block_of(st, i)->queue == block_of(st, j)->queue) add_apart(st, i, j);
    add_loads(st);
    weft_status status = solve_stage(st, l, take_order, found);
    if (status == WEFT_OK && *found) status = wf_schedule_sort(p, s);
    return end_stage(st, status);
}

/* ---- stage II ---------------------------------------------------------------------------------------------------- */

uint32_t wf_share_steps(const wf_op_profile *p)
{
    return WF_MAX(2u, p->groups <= MAX_STEPS ? p->groups : 10);
}

static void add_fixed_needs(stage *st)
{
    const wf_slot *slots = st->s->slots;
    for (size_t j = 0; j < st->s->n; j++)
        for (size_t i = 0; i < st->s->n; i++)
            for (int k = 0; k < 2; k++) {
                if (!wf_slot_needs(st->p, &slots[j], &slots[i], k)) continue;
                row_behind(st, i, j);
                wf_milp_term(&st->m, st->period, -(k + slots[i].next - slots[j].next));
                wf_milp_row_end(&st->m, 'L', 0);
            }
}

/* Slots stand in the order of Stage I. */
static void add_fixed_queues(stage *st)
{
    for (size_t i = 0; i < st->s->n; i++)
        for (size_t j = 0; j < st->s->n; j++) {
            if (i == j || block_of(st, i)->queue != block_of(st, j)->queue) continue;
            row_behind(st, i, j);
            if (i > j) wf_milp_term(&st->m, st->period, -1);
            wf_milp_row_end(&st->m, 'L', 0);
        }
}

static void add_shares(stage *st, size_t i)
{
    for (uint32_t r = 1; r <= st->steps; r++)
        if (st->share[i][r] >= 0) wf_milp_term(&st->m, st->share[i][r], (double)r / st->steps);
}

/* `which` = 1: i ends before j begins, and j before the i of the next round. */
static void add_either(stage *st, int which, size_t i, size_t j)
{
    row_behind(st, i, j);
    wf_milp_term(&st->m, which, 2 * st->far);
    wf_milp_row_end(&st->m, 'L', 2 * st->far);
    row_behind(st, j, i);
    wf_milp_term(&st->m, st->period, -1);
    wf_milp_term(&st->m, which, 2 * st->far);
    wf_milp_row_end(&st->m, 'L', 2 * st->far);
}

/* Returns v. */
static int add_overlap(stage *st, size_t i, size_t j)
{
    int a = wf_milp_add(&st->m, 0, 1, true, 0), b = wf_milp_add(&st->m, 0, 1, true, 0),
        v = wf_milp_add(&st->m, 0, 1, true, 0);
    wf_milp_term(&st->m, a, 1);
    wf_milp_term(&st->m, b, 1);
    wf_milp_term(&st->m, v, 1);
    wf_milp_row_end(&st->m, 'E', 1);
    add_either(st, a, i, j);
    add_either(st, b, j, i);
    add_shares(st, i);
    add_shares(st, j);
    wf_milp_term(&st->m, v, 1);
    wf_milp_row_end(&st->m, 'L', 2);
    return v;
}

static void add_three(stage *st, size_t i, size_t j, size_t k, int (*v)[WF_MAX_SLOTS])
{
    add_shares(st, i);
    add_shares(st, j);
    add_shares(st, k);
    wf_milp_term(&st->m, v[i][j], 2);
    wf_milp_term(&st->m, v[i][k], 2);
    wf_milp_term(&st->m, v[j][k], 2);
    wf_milp_row_end(&st->m, 'L', 7);
}

static bool other_queue(const stage *st, size_t i, size_t j)
{
    return block_of(st, i)->queue != block_of(st, j)->queue;
}

/* Copies take no share, so they may overlap with all. */
static bool takes_share(const stage *st, size_t i)
{
    return block_of(st, i)->class != WF_CLASS_COPY && st->us[i][st->steps] > 0;
}

static weft_status add_resources(stage *st)
{
    size_t n = st->s->n;
    int(*v)[WF_MAX_SLOTS] = wf_calloc(n, sizeof *v);
    if (!v) return WEFT_ERR_NOMEM;
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < j; i++)
            if (other_queue(st, i, j) && takes_share(st, i) && takes_share(st, j)) v[i][j] = add_overlap(st, i, j);
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < k; j++)
            for (size_t i = 0; i < j; i++)
                if (v[i][j] && v[i][k] && v[j][k]) add_three(st, i, j, k, v);
    free(v);
    return WEFT_OK;
}

static void take_shares(const stage *st, const double *x)
{
    for (size_t i = 0; i < st->s->n; i++)
        for (uint32_t r = 1; r <= st->steps; r++)
            if (st->share[i][r] >= 0 && x[st->share[i][r]] > 0.5) st->s->slots[i].share = (double)r / st->steps;
    st->s->period = x[st->period];
}

weft_status wf_stage_shares(const wf_pipeline *p, wf_schedule *s, uint32_t steps, const wf_stage_limits *l, bool *found)
{
    stage *st = new_stage(p, s);
    *found = false;
    if (!st) return WEFT_ERR_NOMEM;
    st->steps = WF_MIN(steps, (uint32_t)MAX_STEPS);
    find_times(st);
    double sum = 0;
    for (size_t i = 0; i < st->s->n; i++) sum += st->us[i][st->steps] / SLOW;
    st->far = sum;
    add_common(st);
    /* A slot without work needs nothing of the device, but has a share: the least. */
    for (size_t i = 0; i < st->s->n; i++) {
        double whole = st->us[i][st->steps];
        for (uint32_t r = 1; r <= st->steps; r++) {
            bool useful = whole > 0 ? whole / st->us[i][r] >= SLOW : r == 1;
            st->share[i][r] = useful ? wf_milp_add(&st->m, 0, 1, true, 0) : -1;
            if (useful) wf_milp_term(&st->m, st->share[i][r], 1);
        }
        wf_milp_row_end(&st->m, 'E', 1);
    }
    add_fixed_needs(st);
    add_fixed_queues(st);
    add_loads(st);
    weft_status status = add_resources(st);
    return end_stage(st, status == WEFT_OK ? solve_stage(st, l, take_shares, found) : status);
}
