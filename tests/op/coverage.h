/* coverage: which formats of weights and head sizes each variant met in the cases of op_test, and that none was left
 * out: a kernel that no case ran is one that nobody tests. */
#ifndef OP_COVERAGE_H
#define OP_COVERAGE_H

#include "verify/check.h"

/* Sets of formats or head sizes, a bit each; the rest of an op's cases are one kind. */
typedef struct op_coverage {
    /* several processes add to them */
    _Atomic uint64_t asked[WF_N_OPS][WF_MAX_VARIANTS], met[WF_N_OPS][WF_MAX_VARIANTS];
} op_coverage;

void op_coverage_ask(op_coverage *, const wf_case *, int variant);
void op_coverage_met(op_coverage *, const wf_case *, int variant);
/* has the variant met the case's format or head size? */
bool op_coverage_has(const op_coverage *, const wf_case *, int variant);
/* Does the device have the units that the variant wants, and the layout of weights that it reads? */
bool op_coverage_can(wf_dev *, enum wf_op, int variant);
/* Prints each variant of the op that the device has and that missed something that was asked (every false: all of it);
 * how many these are. Those that it lacks the hardware for are named in one line that counts as a skipped test. */
unsigned op_coverage_missed(const op_coverage *, wf_dev *, enum wf_op, bool every);

#endif
