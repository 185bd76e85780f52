/* null_device: a device made of malloc, which a program that links null_device.c opens as "null". It does no arithmetic
 * unless a test lends it some, keeps a fake clock on which its queues overlap, and fails on demand. */
#ifndef WF_NULL_H
#define WF_NULL_H

#include "dev/dev.h"

/* The slots that can fail, in the order of wf_dev_fns. ANY counts calls of all of them. */
enum wf_null_slot {
    WF_NULL_OPEN,
    WF_NULL_BUF_CREATE,
    WF_NULL_QUEUE_CREATE,
    WF_NULL_EVENT_CREATE,
    WF_NULL_WRITE,
    WF_NULL_READ,
    WF_NULL_FILL,
    WF_NULL_SUBMIT,
    WF_NULL_MARK,
    WF_NULL_TRANSFER,
    WF_NULL_FLUSH,
    WF_NULL_WAIT,
    WF_NULL_POLL,
    WF_NULL_BIND,
    WF_NULL_ANY,
    WF_NULL_N_SLOTS
};

typedef struct wf_null_config {
    enum wf_null_slot slot; /* the slot that fails */
    uint32_t nth;           /* at its nth call, counted from 1 over all null devices; 0: never */
    uint32_t
        queue; /* only calls on the queue that a device made as its first, second, ... (from 1) count; 0: all calls */
    weft_status status;     /* with this status; 0: the work never ends, and waits for it time out at once */
    uint32_t variants;      /* of each op; 0: 1 */
    uint8_t flags[3];       /* of each variant (enum wf_variant_flag) */
    bool fused;             /* has kernels for fused GEMMs */
    /* Arithmetic on buf->host; NULL: none, and timing_only is set. */
    weft_status (*compute)(const wf_call *);
    void (*bound)(const wf_call *);       /* is told of each call that is bound, or NULL */
    uint64_t (*transfer_ns)(uint64_t bytes); /* of a network node on the fake clock; NULL: 1000 */
    uint64_t (*read_ns)(uint64_t bytes,
                        bool beside);     /* of a copy to the host; beside: another queue works; NULL: 1000 */
    uint64_t (*cost_ns)(const wf_call *); /* of a call on the fake clock; NULL: 1000 */
    uint32_t compute_units; /* 0: 1 */
    uint64_t available;     /* bytes of memory that nobody uses; 0: unknown */
    uint64_t memory, max_alloc; /* bytes; 0: 1 TiB */
    bool own_memory;        /* `memory` is not the host's */
    uint64_t full; /* bytes of buffers that it really has: those that would exceed them are refused; 0: no limit */
    const char *pci;        /* address on a bus; NULL: it has none */
    double (*beside)(const wf_call *,
                     enum wf_op other); /* factor of the cost of a call that begins while another queue works, last on
                                           this op (WF_N_OPS: a copy or transfer); NULL: 1 */
    uint64_t (*expected_ns)(const wf_call *); /* what rank() expects of a call; NULL: it does not know */
} wf_null_config;

/* Process-wide, for devices opened later as well as open ones; resets all counts. Not thread-safe. */
void wf_null_configure(const wf_null_config *c); /* NULL: the default */
uint64_t wf_null_calls(enum wf_null_slot slot);  /* since then */
uint32_t wf_null_alive(void);  /* buffers, queues, events and devices not destroyed yet */
uint64_t wf_null_now(const wf_dev *dev); /* fake time at which all that was waited for had ended */

#endif
