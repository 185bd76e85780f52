/* power: what a device draws, in joules since a reader was opened, from whatever tells it: NVIDIA's management library,
 * or files of the kernel (GPUs' sensors, counters of processors). Most machines tell nothing, or not to everybody: that
 * is normal, and no error.
 *
 * A source with a counter of energy is read as it is. Of one that tells watts only, each reading adds what was drawn
 * since the one before, so that somebody who measures has to read now and then.
 */
#ifndef WF_POWER_H
#define WF_POWER_H

#include "dev/dev.h"

typedef struct wf_power wf_power;

typedef struct wf_power_reading {
    double joules, seconds; /* since it was opened */
} wf_power_reading;

/* NULL: nothing tells it. */
wf_power *wf_power_open(const wf_dev *dev);
void wf_power_close(wf_power *p);             /* NULL is allowed */
const char *wf_power_source(const wf_power *p); /* NULL is allowed: "not readable" */
double wf_power_limit(const wf_power *p);     /* watts that the device may draw; 0: unknown */
/* False: the source has gone. p NULL is allowed, and false. */
bool wf_power_read(wf_power *p, wf_power_reading *out);

/* For tests: other places and another clock; NULL: the real ones. Not thread-safe. */
typedef struct wf_power_config {
    const char *root;       /* of the files; "" */
    const char *nvml;       /* the library */
    uint64_t (*now_ns)(void);
} wf_power_config;
void wf_power_configure(const wf_power_config *c);

#endif
