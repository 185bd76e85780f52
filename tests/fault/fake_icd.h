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

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

/* What the library has. */
typedef struct fake_icd {
    void (*arm)(const char *fault); /* NULL: none; resets the counts of calls */
    uint64_t (*calls)(void);        /* since armed */
    int (*hit)(void);               /* did the fault happen? */
    int (*alive)(void);             /* objects created and not released, over all time */
    uint64_t (*created)(void);      /* queues, programs, kernels and memory of the device, over all time */
} fake_icd;

/* False: it is no such library. */
static inline bool fake_icd_open(const char *path, fake_icd *icd)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return false;
    *(void **)&icd->arm = dlsym(lib, "fake_icd_arm");
    *(void **)&icd->calls = dlsym(lib, "fake_icd_calls");
    *(void **)&icd->hit = dlsym(lib, "fake_icd_hit");
    *(void **)&icd->alive = dlsym(lib, "fake_icd_alive");
    *(void **)&icd->created = dlsym(lib, "fake_icd_created");
    return icd->arm && icd->calls && icd->hit && icd->alive && icd->created;
}

#endif
