/* wraps: what suites of `unit` change below the code that they test, by the linker's hand. Nothing changes until a
 * suite says so. */
#ifndef WF_TEST_WRAPS_H
#define WF_TEST_WRAPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_int
    test_alloc_countdown; /* allocations until one fails; less than 0: none. An engine's thread allocates, too */
extern bool (*test_alloc_denied)(void);   /* NULL, or says whether this allocation fails */
extern _Atomic uint64_t test_clock_ahead; /* nanoseconds by which wf_now_ns is ahead */

#endif
