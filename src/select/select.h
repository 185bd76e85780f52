/* select: chooses the kernel variant for each call: the one that params.force names, else the one that was measured as
 * the fastest for the shape (tuned.h), else the best that the backend offers. With params.deterministic it chooses
 * within one invariance class for each shape, whatever the number of rows. Variants that were dropped are never chosen
 * again.
 */
#ifndef WF_SELECT_H
#define WF_SELECT_H

#include "base/blake2b.h"
#include "dev/dev.h"
#include "select/tuned.h"

/* Opens a device, as wf_dev_open does, and becomes its selector. It is an error if p->force names no variant, or
 * p->tuned no valid file. */
weft_status wf_select_open(const char *spec, const wf_open_params *p, wf_dev **out);
/* Does determinism keep this kernel out, since the bits of a row depend on what else is in the call? */
bool wf_depends_on_batch(wf_dev *, enum wf_op, int variant);
/* What is said of a kernel that a plan, WEFT_FORCE or a file of choices names, that exists, and that cannot run: text
 * is cut to fit. */
void wf_cannot_run_text(wf_dev *, enum wf_op, int variant, const char *what, char *text, size_t cap);
/* Rows that a step should have on this device, as measured; 0: nobody has. */
uint32_t wf_select_dense_batch(wf_dev *);
/* The load that the user's file was measured for; 0 both: it does not say. */
wf_tuned_load wf_select_load(wf_dev *);
/* The peak rates that are kept for this device: those of the user's file, else of the shipped one; 0: there are none.
 */
void wf_select_ceilings(wf_dev *, wf_ceilings *out);
/* The same, and without them those of tuned/default: of another device, so that times are about as good as this one is
 * like it. */
void wf_select_expected_ceilings(wf_dev *, wf_ceilings *out);
/* Adds all that decides which kernels it takes, besides its parameters: what was measured, wherever that is kept, and
 * what was dropped. */
void wf_select_hash(wf_dev *, wf_blake2b *);

#endif
