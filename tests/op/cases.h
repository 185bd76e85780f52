/* cases: the problems that op_test runs. Sizes that break kernels (1, 7, 64, 65, 127, 4099), all dtypes,
 * head shapes and page sizes; which of them meet in one case is drawn from the seed in each run. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include "dev/check.h"

enum op_level { OP_QUICK, OP_NORMAL, OP_LONG };

typedef struct op_cases {
    wf_case *list;
    size_t n, cap;
    uint64_t seed, draws;
    enum op_level level;
} op_cases;

/* False: out of memory. The caller frees out->list. */
bool op_cases_make(enum op_level level, uint64_t seed, op_cases *out);

#endif
