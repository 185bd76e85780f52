/* machine: the constants of a device, or of several that work on one model together, that the cost model goes by. They
 * are data: measured, or read from a table (devices.txt).
 */
#ifndef WF_MACHINE_H
#define WF_MACHINE_H

#include "dev/dev.h"

/* 0: unknown. */
typedef struct wf_machine {
    char name[128];
    uint32_t n_devices;      /* the other numbers are of all of them together */
    double memory;           /* bytes */
    double read;             /* bytes of memory per second */
    double network;          /* bytes per second that leave the devices */
    double ops[WF_N_ARITH];  /* operations per second, a multiply-add being two */
    double flop_energy, byte_energy;  /* joules of one operation, and of one byte from memory, beyond static power */
    double static_power, power_limit; /* watts */
} wf_machine;

/* One device of a table; path: NULL: the one that weft was built with. WEFT_ERR_ARG: it has no such device; the message
 * lists those it has. */
weft_status wf_machine_find(const char *path, const char *name, wf_machine *out);
/* n of these. */
wf_machine wf_machine_times(const wf_machine *one, uint32_t n);
/* The fastest way to multiply with weights of this format. 0: unknown. */
double wf_machine_rate(const wf_machine *, enum wf_dtype);
/* Watts that work can draw beyond static power; 0: unknown. */
double wf_machine_power(const wf_machine *);

#endif
