/* fake_icd: an OpenCL driver that fails on demand. It is PoCL with its dispatch table patched, so
 * everything that is not to fail works as usual. OCL_ICD_VENDORS points the loader at it.
 *
 * A fault is "FUNCTION:ACTION" or "FUNCTION:ACTION@N": at each call, or at the N-th since it was armed;
 * "FUNCTION:ACTION@N/Q" counts only those on the queue that was the Q-th to get a command since then. FUNCTION is an
 * OpenCL function, or "any" but clGetEventInfo, whose calls depend on time. ACTION: fail=ERR   returns that error (a
 * Release* does its work first) crash      dies of SIGSEGV hang       never returns lose       an enqueue succeeds and
 * its work never ends The build helper, a process of its own, takes its fault from WEFT_FAKE_ICD; other processes arm
 * it.
 */
#ifndef FAKE_ICD_H
#define FAKE_ICD_H

#include <stdint.h>

/* Symbols of the library; NULL: no fault. arm resets the counts of calls. */
typedef void fake_icd_arm_fn(const char *fault);
typedef uint64_t fake_icd_calls_fn(void);   /* since armed */
typedef int fake_icd_hit_fn(void);          /* did the fault happen? */
typedef int fake_icd_alive_fn(void);        /* objects created and not released, over all time */
typedef uint64_t
fake_icd_created_fn(void); /* calls that create a queue, program, kernel or memory of the device, over all time */

#endif
