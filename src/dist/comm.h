/* dist: what the ranks of a group say to each other. A rank is one device with its part of a model, and a thread of
 * its own that submits its steps. Exchanges (NanoFlow, section 4.1.2): all ranks make the same calls in the same
 * order, of the same lengths, and each returns once the rank has what the others gave. Messages: a rank sends to
 * another, which receives them in that order.
 *
 * Threads: a rank is used by one thread at a time. Errors: a rank that fails, or that does not come within the timeout,
 * breaks the group: all its calls, those that wait included, return WEFT_ERR_DEVICE with the message of that rank from
 * then on.
 */
#ifndef WF_COMM_H
#define WF_COMM_H

#include "base/base.h"

#define WF_COMM_RANKS 64 /* most of a group */

typedef struct wf_comm wf_comm;
typedef struct wf_comm_fns {
    weft_status (*exchange)(wf_comm *, const void *own, uint64_t bytes, uint32_t takers, void *room, const void **all);
    weft_status (*send)(wf_comm *, uint32_t to, uint32_t tag, const void *data, uint64_t bytes);
    weft_status (*receive)(wf_comm *, uint32_t from, uint32_t tag, void *data, uint64_t bytes);
    void (*fail)(wf_comm *, const char *message);
    void (*close)(wf_comm *);
} wf_comm_fns;
struct wf_comm { /* the first member of an implementation's own */
    const wf_comm_fns *fns;
    uint32_t rank, ranks;
    bool apart; /* ranks do not see each other's memory: exchanges take room */
};

/* Gives that many bytes, and gets those of all: all[r] is where rank r's lie, for the first `takers` ranks, while
 * others only wait until all are there. Ranks of one process read each other's memory: what is given must stay as it is
 * until each other rank has read it, which a rank says by giving again. room: where others' bytes go else, rank r's at
 * r * bytes. */
weft_status wf_comm_exchange(wf_comm *c, const void *own, uint64_t bytes, uint32_t takers, void *room,
                             const void **all);
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

#endif
