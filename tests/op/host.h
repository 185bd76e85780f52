/* host: plays a GPU's work-groups on the processor at hand, for kernels that clang compiles to a shared library: a
 * coroutine a work-item, which stops where others have to come, too: the whole work-group at a barrier, the lanes of a
 * wave at its matrix unit, where they exchange words and where they load matrices. What the units do is written from
 * the vendors' documents alone. */
#ifndef WF_TEST_HOST_H
#define WF_TEST_HOST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct place {
    int line, k; /* row of A or column of B, and K; of C: row and column */
} place;

typedef struct unit {
    const char *name, *macros;
    int lanes, rows, cols, n_a, n_b, n_c; /* n: elements that a lane holds */
    place (*a)(int lane, int i), (*b)(int lane, int i), (*c)(int lane, int v);
    bool takes_nan; /* its kernels mask what comes of it */
    bool copies;    /* its kernels are gemm_matrix.cl and attention_matrix.cl with COPIES */
} unit;

extern const unit host_units[];
extern const unsigned n_host_units;
const unit *host_unit_named(const char *name); /* NULL: there is none */

/* Runs the groups one after the other; body calls the kernel with the arguments of a work-item. */
typedef struct host_run {
    /* Of all so far: lanes that do not meet or disagree; matrix products; meetings of a work-group; matrices of 8 x 8
     * whose rows share banks of local memory. */
    unsigned mistakes, products, barriers, conflicts;
} host_run;
void host_start(const unit *u);
void host_groups(unsigned items, unsigned groups, void (*body)(void));
host_run host_result(void);
void host_end(void);

#endif
