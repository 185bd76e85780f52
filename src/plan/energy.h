/* energy: what joules of single ops say of a device: joules of an operation and of a byte from memory, and the watts
 * that it draws under load whatever it does. Pure functions.
 */
#ifndef WF_ENERGY_H
#define WF_ENERGY_H

#include "base/base.h"

typedef struct wf_energy { /* 0: unknown */
    double idle;         /* watts without work */
    double static_power; /* watts under load, whatever it does */
    double power_limit;  /* watts that it may draw */
    double flop, byte;   /* joules, beyond static power */
    bool quick;          /* of a trial */
} wf_energy;

typedef struct wf_energy_point { /* of an op that runs again and again: each time */
    double joules, seconds; /* all that was drawn, and from one to the next */
    double flops, bytes;
} wf_energy_point;

/* Sets static power and joules of an operation and of a byte by least squares of relative errors; none is negative, and
 * static power is idle's at least. False, and nothing is set: the points do not tell operations from bytes. */
bool wf_energy_fit(const wf_energy_point *points, size_t n, wf_energy *e);
/* The least seconds of so much work on a device at its power limit; 0: unknown. */
double wf_energy_seconds(const wf_energy *e, double flops, double bytes);

#endif
