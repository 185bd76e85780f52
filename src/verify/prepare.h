/* prepare: builds the kernel of a call and tests it once, before it runs on user data. */
#ifndef WF_PREPARE_H
#define WF_PREPARE_H

#include "dev/dev.h"

/* Picks the variant for a call (call->variant >= 0: that one), builds it and compares it once with the
 * reference on a small problem of the same op, dtypes and head shape; a variant that fails to build or is wrong is dropped
 * with a warning and the next one tried. On success *variant holds it. */
weft_status wf_prepare(wf_dev *, const wf_call *, int *variant);
/* The same, and this very call's kernel is built, also where another of its kind was tested: a kernel's build may depend on
 * the number of rows. Nothing is left to compile when the call is submitted. */
weft_status wf_prepare_built(wf_dev *, const wf_call *, int *variant);

#endif
