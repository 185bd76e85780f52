/* mpi: ranks that are processes, perhaps on several hosts, which Open MPI's mpirun has started: rank i is process i
 * (wf_process). No function blocks in MPI: all wait with an end. A process that fails, falls silent or comes too late
 * breaks the group of all processes for good: each call returns WEFT_ERR_DEVICE with its message from then on, and
 * MPI is left alone.
 *
 * Threads: any. A comm is used by one thread at a time, and so are orders and answers. */
#ifndef WF_MPI_H
#define WF_MPI_H

#include "dist/comm.h"

/* Meets the other processes, once; later calls do nothing. They end what silent_ms without a sign of life is.
 * WEFT_ERR_UNSUPPORTED says what is missing. The wait ends as wf_stop_now says, and in process 0 after 6 * silent_ms,
 * but 60 s at most (WEFT_ERR_DEVICE); no later call meets them then. silent_ms is 1 s at least. */
weft_status wf_mpi_start(uint32_t silent_ms);
/* Processes from `first` on. id: both sides of a message know each other by it; below WF_MPI_IDS. */
enum { WF_MPI_IDS = 1 << 20 };
weft_status wf_comm_mpi(uint32_t id, uint32_t first, uint32_t ranks, uint32_t timeout_ms, wf_comm **out);
/* Messages of any length between process 0 and another: orders to that, answers under an id from that. They are waited
 * for without a timeout while the other lives, and as wf_stop_now says. *data is the caller's to free. */
weft_status wf_mpi_order(uint32_t to, const void *data, uint64_t bytes);
weft_status wf_mpi_answer(uint32_t id, const void *data, uint64_t bytes);
weft_status wf_mpi_await_order(void **data, uint64_t *bytes);
weft_status wf_mpi_await_answer(uint32_t from, uint32_t id, void **data, uint64_t *bytes);
weft_status wf_mpi_state(void); /* WEFT_ERR_DEVICE: the group is broken */
bool wf_mpi_failed_here(void);  /* by this process; not by its missing process 0 */
/* Breaks the group. */
void wf_mpi_fail(const char *message);
/* The last call of a process: after it nothing is told or heard. The others do the same, or are given up. */
void wf_mpi_end(void);

#endif
