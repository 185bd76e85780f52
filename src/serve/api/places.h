/* serve, places: how many sequences may run or wait, of each client and of all.
 *
 * A client may take more places while as many stay free as it then has (dynamic thresholds, Choudhury and Hahne,
 * "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 1998). One
 * that is alone has half of them. In the order of their last taking each client has at most what it left free, so k
 * clients leave at least one of 2^k places to others. */
#ifndef WF_SERVE_PLACES_H
#define WF_SERVE_PLACES_H

#include "base/base.h"

/* May a client that has `own` of the `used` places take n more? */
static inline bool wf_places_allow(size_t places, size_t used, size_t own, size_t n)
{
    return used + own + 2 * n <= places;
}

#endif
