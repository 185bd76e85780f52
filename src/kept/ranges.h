/* ranges: the unified maximum phi of each layer's attention, by which the asynchronous softmax runs
 * (FlashDecoding++Next, section III), and the range that a row's largest logit must lie in: how they are chosen, their
 * file, and where an engine that is opened finds them.
 *
 * exp(x - phi) of a row's largest logit must neither overflow nor underflow; smaller ones may underflow as in any
 * softmax. Kernels on matrix units hold exponentials in F16, from 2^-24 to 2^16. So the largest may be up to 2^15,
 * which leaves a factor of 2 for rounding, and down to 2^-4: then terms of 2^-20 relative to it still count, which is
 * below F16 rounding. That is a window of 13 units of x, and phi is chosen so that the fewest rows lie outside. Kernels
 * with exponentials in F32 accept rows down to WF_PHI_A: 2^-80, where terms down to 2^-46 of the largest are normal
 * numbers. Sums are F32: 2^15 x 2^24 keys x the largest F16 value is 2^55.
 *
 * A row outside the window is computed again, by fewer work-groups than the others; its result is correct. So a layer
 * with more than 1 % of such rows keeps the synchronous softmax (as OPT-6.7B in the paper), and so do all layers of a
 * model without ranges: the largest logits of rows span 15 to 25 units in the models measured, at a place that differs
 * by layer, so that no single phi would be safe.
 *
 * Ranges come from a file of `weft calibrate` (weft_engine_params.calibration). Without one, a model that comes from a
 * file and whose attention would run by kernels that need ranges computes a built-in text once when it is opened. What
 * that gives is kept in the cache (base/cache.h): later starts take it without measuring, and one seed gives one text
 * from start to start. The key of an entry is what could change the ranges: the device, its driver and tier; the model,
 * by its graph and a sample of each tensor; its attention windows; the tokens of the text and the context. An entry
 * also holds the build of weft, whose kernels compute the ranges: a new build replaces what an older one left. With
 * deterministic nothing is measured or taken, and with no_kernel_cache nothing is taken or kept.
 *
 * Whether to measure, and how many tokens, depends on an estimate of the time, never on a clock: what else the
 * machine does decides nothing. An entry stays as it is when a later estimate, by other rates, would have taken
 * more.
 */
#ifndef WF_RANGES_H
#define WF_RANGES_H

#include "base/cache.h"
#include "exec/exec.h"
#include "kept/calibration.h"
#include "model/model.h"

#define WF_PHI_A     (-55.0f)  /* ln 2^-80 */
#define WF_PHI_B     10.39f    /* ln 2^15 */
#define WF_PHI_F16_A (-2.77f)  /* ln 2^-4 */

typedef struct wf_phi {
    float phi, a, b; /* a row's largest x - phi must lie between a and b; a = b: synchronous */
} wf_phi;
/* Chooses phi from the largest logits of the rows. *outside: the fraction of rows outside the window of F16
 * exponentials. */
wf_phi wf_phi_choose(const struct weft_logit_histogram *rows, double *outside);
/* false: the softmax stays synchronous; also if the range is wider than F32 exponentials allow. */
bool wf_phi_fits(const wf_phi *p);

/* Reads the file of a model with this size and number of layers. Errors name the line. */
weft_status wf_calibration_load(const char *path, uint64_t model_bytes, uint32_t n_layers, wf_phi *out);
/* Sets the ranges of g's ATTENTION nodes, of layers [n_layer], and logs how many fit. Call it before wf_graph_end. */
void wf_ranges_set(const wf_phi *layers, wf_graph *g);
/* The same from what weft_engine_params.calibration names: a file, or NULL and "auto": the one next to the model, if
 * it exists and is valid (a warning otherwise). *found: there is one, or "none" is wanted. Without a file the
 * softmax stays synchronous. An explicit path that cannot be used is an error. */
weft_status wf_calibration_use(const struct weft_model *m, const char *path, wf_graph *g, bool *found);

/* ---- ranges_find.c ------------------------------------------------------------------------------------------- */

typedef struct wf_ranges {
    bool missing;     /* kernels need ranges, and there are none */
    bool stand_ins;   /* there are ranges that say nothing, until then: a plan or a kernel that is named needs some */
    int32_t *ids;     /* of the built-in text */
    size_t n_ids;
    char dir[512];
    wf_cache_key key; /* text NULL: not to be kept */
} wf_ranges;
/* Sets the ranges of g's ATTENTION nodes, before wf_graph_end: those of a file, else those that are kept, if p wants
 * any. p: with its context. step_tokens: most of a step. Free out in any case. */
weft_status wf_ranges_find(const struct weft_model *m, const struct weft_engine_params *p, wf_dev *dev, wf_graph *g,
                           uint32_t step_tokens, wf_ranges *out);
void wf_ranges_free(wf_ranges *r);

/* ---- ranges_measure.c ---------------------------------------------------------------------------------------- */

/* What computes a text: an engine whose thread runs, and that no other request uses. */
typedef struct wf_ranges_runner {
    const struct weft_model *model;
    wf_dev *dev;
    wf_exec *exec;
    const wf_graph *graph;
    uint32_t context, step_tokens;
    void *engine;
    bool (*unwanted)(void *engine); /* wf_engine_unwanted */
    /* Computes a prompt and nothing else. done, part: of the whole text, before this prompt, and this prompt. */
    weft_status (*compute)(void *engine, const int32_t *ids, size_t n, const struct weft_calibrate_params *p,
                           double done, double part);
} wf_ranges_runner;
/* Computes n tokens, at least one, in pieces of the context, and collects each layer's attention logits on the host.
 * Of `every` queries in a row only the last is looked at. WEFT_ERR_ARG: fewer than 8 tokens; ten thousand are
 * enough. */
weft_status wf_ranges_measure(const wf_ranges_runner *run, const int32_t *ids, size_t n, uint32_t every,
                              const struct weft_calibrate_params *p, struct weft_calibration **out);
/* Measures what is missing, if that does not take long, and keeps it; out: [n_layer], zero. *ran: the model has
 * computed. */
weft_status wf_ranges_measure_missing(const wf_ranges_runner *run, const struct weft_engine_params *p,
                                      const wf_ranges *r, wf_phi *out, bool *ran);

#endif
