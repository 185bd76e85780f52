/* move: copies of pages between the device and host memory, for all who need them: blocks that are stored and loaded
 * (tiers.h), and preempted sequences (swap.h). Here it is decided which pages go where; exec copies, also while no step
 * runs.
 *
 * A move waits for the steps that were submitted before it: they compute what it reads, and may still read what it
 * overwrites. It is of one of two kinds:
 * - with a ticket no step waits for it, and who began it learns when it has ended;
 * - without one the next step waits for it, and all moves behind it. So pages and host memory may be given to others as
 *   soon as it has begun.
 */
#ifndef WF_MOVE_H
#define WF_MOVE_H

#include "base/base.h"

enum { WF_MOVES = 32 /* with tickets, in flight, half of them each way: what a link moves while a step runs */,
       WF_MOVE_PAGES = 64 /* of a move, at most */ };

typedef struct wf_page_copy {
    int32_t page;
    void *host;
} wf_page_copy;

enum wf_moved { WF_MOVING, WF_MOVED, WF_MOVE_VOID };
typedef struct wf_mover {
    void *user;
    /* To host memory (out) or from there. The list is read during the call only. After an error nothing is copied
     * later. */
    weft_status (*begin)(void *user, bool out, const wf_page_copy *list, uint32_t n, uint32_t *ticket);
    /* VOID: nothing may be made of what was copied. Each ticket is polled until it is not MOVING. */
    enum wf_moved (*poll)(void *user, uint32_t ticket);
} wf_mover;

#endif
