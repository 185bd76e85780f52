/* batch_invariance: one invariance class for each shape, whatever the number of rows, so that the result for a row does
 * not depend on the composition of the batch (params.deterministic).
 */
#ifndef WF_BATCH_INVARIANCE_H
#define WF_BATCH_INVARIANCE_H

#include "dev/dev.h"

#define WF_NORM_CLASS "tree" /* of RMSNORM: what products of a class that normalise follow */

/* The classes chosen so far. Zero: none. */
typedef struct wf_batch_invariance {
    struct wf_shape_class *list;
    size_t n, cap;
} wf_batch_invariance;

/* The best variant for a call, of this class where it is not NULL; -1: none. */
typedef int (*wf_pick_in)(wf_dev *, const wf_call *, const char *class);

/* pick() within the class of the call's shape; -1: no class serves that shape for any number of rows. */
int wf_pick_batch_invariant(wf_batch_invariance *b, wf_pick_in pick, wf_dev *dev, const wf_call *c);
void wf_batch_invariance_reset(wf_batch_invariance *b); /* forgets the classes: they are chosen again */

#endif
