/* roofline: the time that a variant is expected to take for a call: from what it reads and computes, the device's peak
 * rates, and the fraction of them that the variant reaches. These are data (tuned/), which the selector hands to the
 * backend.
 */
#ifndef WF_ROOFLINE_H
#define WF_ROOFLINE_H

#include "dev/dev.h"

#define WF_ROOFLINE_VARIANTS 64 /* of an op; those beyond have the efficiency of the op */

/* Fractions of the device's peak rates, 0 to 1; 0: unknown. */
typedef struct wf_efficiency {
    float memory, compute;
} wf_efficiency;

typedef struct wf_roofline {
    double read;            /* bytes per microsecond; 0: unknown, and so is every time */
    double ops[WF_N_ARITH]; /* operations per microsecond; 0: no such unit, or unknown */
    double launch;          /* microseconds of a kernel that does nothing */
    wf_efficiency of_op[WF_N_OPS], of[WF_N_OPS][WF_ROOFLINE_VARIANTS];
} wf_roofline;

/* What was measured, as coefficients of `device`; returns their number. */
#define WF_CEILING_COSTS (1 + WF_N_ARITH)
size_t wf_ceiling_costs(const wf_ceilings *, wf_cost out[WF_CEILING_COSTS]);
/* Takes a coefficient: `device` read (GB/s), f32, f16, q8 (TFLOP/s), launch (us); OP or OP/VARIANT memory, compute.
 * False: it is none of these. */
bool wf_roofline_set(wf_roofline *, wf_dev *, const wf_cost *);
/* Was this very variant measured? Else it has the efficiency of its op. */
bool wf_roofline_measured(const wf_roofline *, enum wf_op, int variant);
/* Microseconds; 0: unknown. idle: how much longer the work takes because its parts do not fill the device's units; 1:
 * not at all. */
double wf_roofline_us(const wf_roofline *, wf_dev *, const wf_call *, int variant, double idle);
/* Microseconds by dev->modest_rate, for a device of which nothing was measured: rather too long than too short. 0:
 * unknown. */
double wf_modest_us(const wf_dev *, const wf_call *);

#endif
