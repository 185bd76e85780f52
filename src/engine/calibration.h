/* calibration: the unified maximum phi of each layer's attention (flashdecoding-next, section III): how it is
 * chosen from measured logits, its file, its use.
 *
 * exp(x - phi) of a row's largest logit must neither overflow nor fade; smaller ones fade as they do in any
 * softmax. Kernels on matrix units hold exponentials in F16, from 2^-24 to 2^16. So the largest may be 2^15,
 * which leaves a factor of 2 for rounding, down to 2^-4, where terms of 2^-20 of it still count, less than F16
 * rounds. That is 13 units of x, and phi is put where the fewest rows lie outside. Kernels with exponentials
 * in F32 may take rows down to WF_PHI_A: 2^-80, where terms down to 2^-46 of the largest are normal numbers.
 * Sums are F32: 2^15 x 2^24 keys x the largest F16 value is 2^55.
 *
 * A row outside is right, but computed twice, by fewer work-groups than the others. So a layer with more than
 * MOST_OUTSIDE of them keeps the synchronous softmax (OPT-6.7B in the paper), and so do all layers of a model
 * without calibration: the largest logits of rows span 15 to 25 units in models seen, at a place that differs
 * by layer, so that no phi for all of them would be safe.
 */
#ifndef WF_CALIBRATION_H
#define WF_CALIBRATION_H

#include "engine/engine.h"

#include <weft/tune.h>

#define WF_PHI_A     (-55.0f)  /* ln 2^-80 */
#define WF_PHI_B     10.39f    /* ln 2^15 */
#define WF_PHI_F16_A (-2.77f)  /* ln 2^-4 */

typedef struct wf_phi {
    float phi, a, b; /* a row's largest x - phi must lie between a and b; a = b: synchronous */
} wf_phi;

/* From the rows' largest logits. *outside: the share of rows that F16 exponentials do not suit. */
wf_phi wf_phi_choose(const struct weft_logits *rows, double *outside);
/* False: synchronous, also where a range is wider than exponentials in F32 can hold. */
bool wf_phi_fits(const wf_phi *p);

/* Reads a calibration of a model file of that many bytes and layers. Errors name the line. */
weft_status wf_calibration_load(const char *path, uint64_t model_bytes, uint32_t n_layers, wf_phi *out);
/* Sets the ranges of g's ATTENTION nodes from path, or, where that is NULL, from beside the model. Without a file there,
 * and after a warning for one that it cannot use, they stay synchronous; a path that cannot be used is an error. */
weft_status wf_calibration_use(const struct weft_model *m, const char *path, wf_graph *g);

#endif
