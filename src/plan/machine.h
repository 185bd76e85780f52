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
    double latency;          /* seconds that a message between two of them takes, however short it is */
    double host;             /* devices of one host, which `network` and `latency` are about; 0: all are of one */
    double fabric, fabric_latency; /* between hosts: bytes per second of one device, seconds; 0: as inside */
    double ops[WF_N_ARITH];  /* operations per second, a multiply-add being two */
    double flop_energy, byte_energy;  /* joules of one operation, and of one byte from memory, beyond static power */
    double static_power, power_limit; /* watts */
} wf_machine;

/* One device of a table; path: NULL: the one that weft was built with. WEFT_ERR_ARG: it has no such device; the message
 * lists those it has. */
weft_status wf_machine_find(const char *path, const char *name, wf_machine *out);
/* n of these: more than a host has are as far from each other as hosts are. */
wf_machine wf_machine_times(const wf_machine *one, uint32_t n);
/* The fastest way to multiply with weights of this format. 0: unknown. */
double wf_machine_rate(const wf_machine *, enum wf_dtype);
/* Seconds in which the devices add up what each of them has, so many bytes, until all have the sum: a ring. */
double wf_machine_all_reduce(const wf_machine *, double bytes);
/* Seconds until such a message of one device is at another one, of the same host or not. */
double wf_machine_send(const wf_machine *, double bytes, bool same_host);
/* Watts that work can draw beyond static power; 0: unknown. */
double wf_machine_power(const wf_machine *);

#endif
