/* calibration: the unified maximum phi of each layer's attention (FlashDecoding++Next, section III): how it is chosen from
 * measured logits, its file, and its use.
 *
 * exp(x - phi) of a row's largest logit must neither overflow nor underflow; smaller ones may underflow as in any softmax.
 * Kernels on matrix units hold exponentials in F16, from 2^-24 to 2^16. So the largest may be up to 2^15, which leaves a
 * factor of 2 for rounding, and down to 2^-4: then terms of 2^-20 relative to it still count, which is below F16 rounding.
 * That is a window of 13 units of x, and phi is chosen so that the fewest rows lie outside. Kernels with exponentials in
 * F32 accept rows down to WF_PHI_A: 2^-80, where terms down to 2^-46 of the largest are normal numbers. Sums are F32:
 * 2^15 x 2^24 keys x the largest F16 value is 2^55.
 *
 * A row outside the window is recomputed, by fewer work-groups than the others; its result is correct. So a layer with more
 * than MOST_OUTSIDE of such rows keeps the synchronous softmax (as OPT-6.7B in the paper), and so do all layers of a model
 * without calibration: the largest logits of rows span 15 to 25 units in the models measured, at a place that differs by
 * layer, so that no single phi would be safe.
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

/* Chooses phi from the largest logits of the rows. *outside: the fraction of rows outside the window of F16 exponentials. */
wf_phi wf_phi_choose(const struct weft_logit_histogram *rows, double *outside);
/* false: the softmax stays synchronous; also if the range is wider than F32 exponentials allow. */
bool wf_phi_fits(const wf_phi *p);

/* Reads the calibration of a model file with this size and number of layers. Errors name the line. */
weft_status wf_calibration_load(const char *path, uint64_t model_bytes, uint32_t n_layers, wf_phi *out);
/* Sets the ranges of g's ATTENTION nodes, of layers [n_layer], and logs how many fit. Call it before wf_graph_end. */
void wf_calibration_set(const wf_phi *layers, wf_graph *g);
/* The same from what weft_engine_params.calibration names: a file, or NULL and "auto": the one next to the model, if it exists and is valid (a warning
 * otherwise). *found: there is one, or "none" is wanted. Without a file the softmax stays synchronous. An explicit path that cannot be used is an error. */
weft_status wf_calibration_use(const struct weft_model *m, const char *path, wf_graph *g, bool *found);

/* calibrate.c: as weft_calibrate, of n tokens, at least one. Of `every` queries in a row only the last is looked at. */
weft_status wf_calibrate(struct weft_engine *e, const int32_t *ids, size_t n, uint32_t every, const struct weft_calibrate_params *p, struct weft_calibration **out);

#endif
