/* judged: what programs share that run kernels without a device (host.h): the kernel, how it is built, and whether what
 * it wrote is right, in F16 arithmetic. */
#ifndef WF_TEST_JUDGED_H
#define WF_TEST_JUDGED_H

#include "cl/cl.h"
#include "verify/judge.h"

/* rows: output o of the check, which was filled with bytes of 0xFF, NaN, before. An infinite error is a write outside
 * of its columns. */
wf_check_result judged(const wf_check *k, int o, const uint8_t *rows);

const cl_variant *variant_named(enum wf_op op, const char *name);

/* The build options of a launch, behind what the line has already. */
void print_options(const cl_launch *l);
/* A knob of a launch; 0: it has none of that name. */
uint32_t knob_of(const cl_launch *l, const char *name);

/* The kernel of a library; NULL, and why is said: there is none. */
void *kernel_in(const char *library, const char *kernel);

#endif
