/* overlap_energy: joules of single ops, where something tells what the device draws: each runs again and again for a
 * while, so that counters that are renewed only a few times a second know it. See overlap.h. */
#include "plan/cost.h"
#include "lab/overlap.h"

#include <string.h>
#include <time.h>

#define WINDOW      1.0   /* seconds for each op, without those in which the device gets to its clock */
#define WINDOW_TRIAL 0.1
#define CHUNK_US    50000.0 /* between two readings */

static double window_of(const wf_overlap *o) { return o->p->quick ? WINDOW_TRIAL : WINDOW; }

/* Runs the lane for the window; *n 0: power cannot be read any more. */
static weft_status run_window(wf_overlap *o, wf_probe *probe, const wf_probe_lane *lane, double us,
                              wf_power_reading *spent, double *n)
{
    wf_power_reading begin, end;
    uint32_t chunk = (uint32_t)WF_MIN(WF_MAX(CHUNK_US / us, 1.0), 1e6);
    *n = 0;
    WF_TRY(wf_probe_repeat(probe, lane, chunk));
    if (!wf_power_read(o->power, &begin)) return WEFT_OK;
    do {
        WF_TRY(wf_probe_repeat(probe, lane, chunk));
        if (!wf_power_read(o->power, &end)) return *n = 0, WEFT_OK;
        *n += chunk;
    } while (end.seconds - begin.seconds < window_of(o) && !wf_overlap_ends(o));
    *spent = (wf_power_reading){end.joules - begin.joules, end.seconds - begin.seconds};
    return WEFT_OK;
}

weft_status wf_overlap_measure_energy(wf_overlap *o, wf_probe *probe, const wf_node *n, wf_range rows, double share,
                                      const wf_batch *b)
{
    wf_probe_lane lane = {n->name, rows, wf_groups_of_share(&o->profile, share)};
    /* Keys that a row attends to on average: those of prompts see half of them. */
    wf_work w = wf_node_work(&o->e->layout.graph, n, rows.count, n->rows == WF_ROWS_PREFILL ? b->max_kv / 2.0
                             : b->max_kv);
    wf_power_reading spent = {0};
    double us = wf_op_us(wf_op_profile_find(&o->profile, n->name), rows.count) / share, times;
    WF_TRY(run_window(o, probe, &lane, us, &spent, &times));
    if (!(times > 0 && spent.joules > 0 && spent.seconds > 0)) return WEFT_OK;
    wf_op_energy e = {.tokens = rows.count, .share = share, .each = {spent.joules / times, spent.seconds / times,
                                                                     w.flops, w.bytes}, .quick = o->p->quick};
    wf_copy(e.name, sizeof e.name, n->name);
    return wf_op_profile_add_energy(&o->profile, &e);
}

void wf_overlap_begin_energy(wf_overlap *o)
{
    wf_energy *e = &o->profile.energy;
    e->power_limit = wf_power_limit(o->power);
    if (e->idle > 0) return;
    wf_power_reading begin = {0}, end = {0};
    bool read = wf_power_read(o->power, &begin);
    for (uint64_t until = wf_now_ns() + (uint64_t)(window_of(o) * 1e9); read && wf_now_ns() < until;) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(CHUNK_US * 1e3)}, NULL);
        read = wf_power_read(o->power, &end);
    }
    e->idle = read && end.seconds > begin.seconds ? (end.joules - begin.joules) / (end.seconds - begin.seconds) : 0;
    e->quick = o->p->quick;
}

void wf_overlap_print_energy(const wf_overlap *o)
{
    const wf_energy *e = &o->profile.energy;
    fprintf(o->f, "power: %s", wf_power_source(o->power));
    if (e->flop > 0)
        fprintf(o->f, "; %.3g pJ a flop, %.3g pJ a byte, %.0f W static", e->flop * 1e12, e->byte * 1e12,
                e->static_power);
    else if (o->power) fputs("; the joules of these ops do not tell those of a flop from those of a byte", o->f);
    if (e->flop > 0 && e->power_limit > 0) fprintf(o->f, " of a limit of %.0f W", e->power_limit);
    fputc('\n', o->f);
}
