/* judge: is a result right? By the tolerances in tolerances.def. */
#ifndef WF_JUDGE_H
#define WF_JUDGE_H

#include "verify/check.h"

#define WF_JUDGE_HASH 0xcbf29ce484222325u /* where wf_check_result.hash begins */

/* The byte that outputs hold before the run: NaN, so that a read of them shows. Those of GET_ROWS hold another: it must
 * write rows of NaN itself. */
int wf_judge_poison(const wf_check *);
/* Judges output o of a run: the memory of its buffer, guard zones included, in which it lies as v says. Worse faults
 * replace those in *out. */
void wf_judge_output(const wf_check *, const wf_variant *, int o, const uint8_t *image, const wf_view *v,
                     wf_check_result *out);
/* For kernels that run without a device: rows of output o, laid out as the check's own, computed in this arithmetic.
 * Sets out->ok. */
void wf_judge_rows(const wf_check *, enum wf_arith, int o, const uint8_t *rows, wf_check_result *out);

#endif
