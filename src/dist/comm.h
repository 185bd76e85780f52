/* dist: what the ranks of a group say to each other. A rank is one device with its part of a model, and a thread of
 * its own that submits its steps. Collectives (NanoFlow, section 4.1.2): all ranks make the same calls in the same
 * order, with arrays of the same shape, and each returns once the rank has its result. Messages: a rank sends to
 * another, which receives them in that order.
 *
 * Sums are made in the order of the ranks, in F32: the bits are the same on all ranks and in every run.
 *
 * Threads: a rank is used by one thread at a time. Errors: a rank that fails, or that does not come within the timeout,
 * breaks the group: all its calls, those that wait included, return WEFT_ERR_DEVICE with the message of that rank from
 * then on.
 */
#ifndef WF_COMM_H
#define WF_COMM_H

#include "tensor/tensor.h"

#define WF_COMM_RANKS 64 /* most of a group */

typedef struct wf_comm wf_comm;
typedef struct wf_comm_fns {
    weft_status (*all_reduce)(wf_comm *, void *data, uint64_t n, enum wf_dtype dtype);
    weft_status (*gather)(wf_comm *, const void *part, uint64_t rows, uint64_t row_bytes, void *whole);
    weft_status (*send)(wf_comm *, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
    weft_status (*receive)(wf_comm *, uint32_t from, uint32_t tag, void *data, uint64_t bytes);
    void (*fail)(wf_comm *, const char *message);
    void (*close)(wf_comm *);
} wf_comm_fns;
struct wf_comm { /* the first member of an implementation's own */
    const wf_comm_fns *fns;
    uint32_t rank, ranks;
};

/* data [n] F32 or F16, in host memory, becomes the sum over all ranks. */
weft_status wf_comm_all_reduce(wf_comm *c, void *data, uint64_t n, enum wf_dtype dtype);
/* part [rows, row_bytes]: rank 0 gets whole [rows, ranks * row_bytes], the parts side by side; others pass NULL. */
weft_status wf_comm_gather(wf_comm *c, const void *part, uint64_t rows, uint64_t row_bytes, void *whole);
/* A message; the receiver wants the tag and as many bytes as were sent, or both were planned wrongly
 * (WEFT_ERR_INTERNAL). Sending returns once data may change, which is before it is received if no more than
 * WF_COMM_QUEUED messages wait for that rank from this one. */
enum { WF_COMM_QUEUED = 64 }; /* nano-batches of a step, before the other device gives something back */
weft_status wf_comm_send(wf_comm *c, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
weft_status wf_comm_receive(wf_comm *c, uint32_t from, uint32_t tag, void *data, uint64_t bytes);
/* Breaks the group, unless it is broken. Any thread. */
void wf_comm_fail(wf_comm *c, const char *message);
void wf_comm_close(wf_comm *c); /* NULL is allowed. The last rank frees what they share */

/* threads.c: ranks of one process, which exchange addresses. out: [ranks]. */
weft_status wf_comm_threads(uint32_t ranks, uint32_t timeout_ms, wf_comm **out);

/* For implementations: sum [n] = the arrays [ranks][n] added in their order, F32 or F16. sum may be one of them. */
void wf_comm_sum(void *sum, const void *const *arrays, uint32_t ranks, uint64_t n, enum wf_dtype dtype);

#endif
