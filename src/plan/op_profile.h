/* op_profile: how fast the ops of a model run on a device, as measured: what the search for plans goes by (NanoFlow,
 * section 4.1.1). Data that is read and written as text:
 *
 *     weft-profile 1
 *     device NVIDIA H200
 *     model llama 8B F16
 *     made-for 3f9c... 07d1...        # the device as it was opened, and the shape of the model (kept/plans.c)
 *     groups 132                      # work-groups that are the whole device, a share of 1
 *     tile 128                        # sizes of nano-batches are multiples of this
 *     context 1024                    # keys of a sequence that attention was measured with
 *     op qkv compute
 *     time qkv tokens 128 share 1 us 31.5 spread 0.4
 *     time qkv tokens 128 share 0.5 us 55.1 spread 0.9
 *     together memory share 0.2 rate 0.3 spread 0.02
 *     together memory share 0.4 rate 0.5 spread 0.09 quick
 *     energy qkv tokens 128 share 1 joules 0.0196 us 31.9 gflop 12.9 mb 52.4
 *     power idle 118 static 150 limit 700 flop 0.82 byte 77
 *
 * `time` is an op alone, on so many of its rows and with so large a share R of the device. `together` is the table R ->
 * P: the rate of ops of a class, as a part of their full rate, when they have the share R and an op of another class
 * has the rest; without it P = R, which for compute is so by definition (copies, made by engines of their own, have the
 * share 0 and leave compute 1; without it P = 1). Ops that the profile does not name take no time. `energy` is an op
 * that ran again and again alone: all joules of one run, from one to the next, and the work in it; `power` is what
 * these say of the device, in watts and picojoules (energy.h), 0 what is unknown; both only where power can be read.
 * `quick` is a number of a trial (WEFT_QUICK=1), which a run in earnest measures again.
 */
#ifndef WF_OP_PROFILE_H
#define WF_OP_PROFILE_H

#include "plan/energy.h"
#include "plan/graph.h"
#include <stdio.h>

#define WF_MAX_SHARES 33
#define WF_OP_PROFILE_HEAD "weft-profile 1" /* the first line */

typedef struct wf_op_time {
    uint32_t tokens;
    double share, us, spread;
    bool quick;
} wf_op_time;

typedef struct wf_op_times {
    char name[24];
    enum wf_class class;
    wf_op_time *times; /* by share, the largest first, then by tokens */
    size_t n, cap;
} wf_op_times;

typedef struct wf_share_rate {
    double share, rate, spread;
    bool quick;
} wf_share_rate;

typedef struct wf_share_table {
    wf_share_rate points[WF_MAX_SHARES]; /* by share */
    size_t n;
} wf_share_table;

typedef struct wf_op_energy {
    char name[24];
    uint32_t tokens;
    double share;
    wf_energy_point each;
    bool quick;
} wf_op_energy;

typedef struct wf_op_profile {
    char device[80], model[80];
    char device_key[33], model_key[33]; /* "": unknown, as of a profile that was written by hand */
    uint32_t groups, tile, context;
    wf_op_times *ops;
    size_t n_ops, cap_ops;
    wf_share_table together[WF_N_CLASSES];
    wf_op_energy *energies;
    size_t n_energies, cap_energies;
    wf_energy energy;
} wf_op_profile;

/* Errors name the line. The caller frees it, also after a failure. */
weft_status wf_op_profile_load(const char *path, wf_op_profile *out);
/* The same text for the same profile. */
void wf_op_profile_write(const wf_op_profile *p, FILE *f);
/* As a table for people: a line for each time of an op; then R -> P. */
void wf_op_profile_print(const wf_op_profile *p, FILE *f);
void wf_op_profile_free(wf_op_profile *p);
weft_status wf_op_profile_save(const wf_op_profile *p, const char *path);
/* A time of an op, which is new if there is none of that name; a rate of a class. WEFT_ERR_FORMAT: there is one for
 * that point, or it makes no sense. */
weft_status wf_op_profile_add_time(wf_op_profile *p, const char *name, enum wf_class class, const wf_op_time *t);
weft_status wf_op_profile_add_rate(wf_op_profile *p, enum wf_class class, const wf_share_rate *r);
weft_status wf_op_profile_add_energy(wf_op_profile *p, const wf_op_energy *e);
bool wf_op_profile_has_energy(const wf_op_profile *p, const char *name, uint32_t tokens, double share);
/* Sets the constants of the device by the energies of ops. False: these do not tell them, and the constants are
 * unknown. */
bool wf_op_profile_fit_energy(wf_op_profile *p);
bool wf_op_profile_has_time(const wf_op_profile *p, const char *name, uint32_t tokens, double share);
bool wf_op_profile_has_rate(const wf_op_profile *p, enum wf_class class, double share);

/* Removes what is marked as quick, and ops of which no time with the whole device is left. */
void wf_op_profile_drop_quick(wf_op_profile *p);

const wf_op_times *wf_op_profile_find(const wf_op_profile *p, const char *name); /* NULL: takes no time */
/* Microseconds alone with the whole device: never less for more rows; 0 for none. */
double wf_op_us(const wf_op_times *op, uint32_t rows);
/* P of a class at R, less its spread: never less for a larger share. */
double wf_class_rate(const wf_op_profile *p, enum wf_class class, double share);
/* The part of its full rate at which an op runs with a share, alone or beside others; never less for a larger share,
 * and above 0. */
double wf_op_rate(const wf_op_profile *p, const wf_op_times *op, uint32_t rows, double share, bool alone);

#endif
