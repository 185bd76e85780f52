/* cases: the problems that op_test runs. Sizes that break kernels (1, 7, 64, 65, 127, 4099), all dtypes, head shapes
 * and page sizes; the seed of each run says which of them meet in one case. A kernel is compiled anew for each
 * dtype and head shape, so OP_NORMAL meets each of them but not all their combinations; OP_LONG does. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include "verify/check.h"

/* OP_TINY: every op and storage format once, for simulators; OP_QUICK: the cases of weft_selftest, on the CPU path some
 * of them with one pair of types of X and Y. */
enum op_level { OP_TINY, OP_QUICK, OP_NORMAL, OP_LONG };

typedef struct op_cases {
    wf_case *list;
    size_t n, cap;
    uint64_t seed, draws;
    bool failed; /* for want of memory */
    enum op_level level;
    bool adjacent_pairs; /* of the device: it rotates no others */
    bool all_types;      /* of X and Y with each small case */
    uint8_t kv;          /* of the attention being added, as a case has it */
    bool few_programs;   /* an OpenCL driver of a CPU compiles one for seconds */
} op_cases;

/* False: out of memory. The caller frees out->list. */
bool op_cases_make(enum op_level level, uint64_t seed, const wf_dev *dev, op_cases *out);

#endif
