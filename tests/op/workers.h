/* workers: the processes that share the cases of one op_test. OpenCL compilers take seconds for a program and use one
 * core, so on a GPU there are as many processes as cores, each with the device open: they compile, compute references
 * and run cases side by side. A program is compiled by the first that wants it, and the others find it in the cache of
 * kernels. All counts lie in memory that they share; with one process that is this one. */
#ifndef OP_WORKERS_H
#define OP_WORKERS_H

#include <stdatomic.h>

#include "op/coverage.h"

enum { OP_MOST_WORKERS = 64, OP_CLAIMS = 1 << 16 };

typedef struct op_shared {
    _Atomic uint32_t next, cases, runs, failed, lost; /* next: the case that nobody has taken */
    _Atomic uint64_t reference_ns, compile_ns, all_ns; /* of all workers; all_ns: of their cases */
    _Atomic uint32_t per_variant[WF_N_OPS][WF_MAX_VARIANTS]; /* runs */
    /* program_bits of the first case that ran */
    _Atomic uint8_t program_of[WF_N_OPS][WF_MAX_VARIANTS][WF_N_WEIGHT_DTYPES];
    op_coverage coverage;
    struct { _Atomic uint64_t key; _Atomic int32_t owner; } claim[OP_CLAIMS];
    _Atomic int32_t at[OP_MOST_WORKERS]; /* index of the case that a worker has; -1: none */
    uint32_t n_cases;
    uint64_t began_ns;
} op_shared;

/* Zeroed; NULL on shortage of memory. */
op_shared *op_shared_new(void);

/* A program by the hash of its text. OP_MINE: the caller builds it and says when it is there. */
enum op_claim { OP_READY, OP_MINE, OP_BUSY };
enum op_claim op_claim(op_shared *, uint64_t key, int worker);
void op_claimed(op_shared *, uint64_t key);

/* Runs work(user, worker) in so many processes, shows progress, and waits for all of them. What one holds that dies is
 * free again, and its case has failed: on_death says so. False: some of them died or returned false. */
bool op_workers_run(op_shared *, int jobs, bool (*work)(void *, int),
                    void (*on_death)(void *, int32_t index, int signal), void *user);
/* On a terminal, in the line at its end; elsewhere a line every ten seconds. */
void op_progress(const op_shared *, bool last);

#endif
