/* milp: mixed integer linear programs, built row by row and minimised by COIN-OR CBC. */
#ifndef WF_MILP_H
#define WF_MILP_H

#include "base/base.h"

typedef struct wf_milp_var {
    double low, high, cost;
    bool integer;
} wf_milp_var;

typedef struct wf_milp_row {
    size_t first, n; /* terms */
    char sense;      /* 'L': <=, 'G': >=, 'E': = */
    double rhs;
} wf_milp_row;

typedef struct wf_milp {
    wf_milp_var *vars;
    size_t n_vars, cap_vars;
    wf_milp_row *rows;
    size_t n_rows, cap_rows;
    int *var_of; /* of each term */
    double *coef;
    size_t n_terms, cap_var_of, cap_coef, open; /* open: the first term of the row that is being built */
    bool no_memory;
} wf_milp;

bool wf_milp_available(void); /* was weft built with CBC? */
int wf_milp_add(wf_milp *m, double low, double high, bool integer, double cost); /* the new variable */
/* One term of the row that is being built, which wf_milp_row_end ends. */
void wf_milp_term(wf_milp *m, int var, double coef);
void wf_milp_row_end(wf_milp *m, char sense, double rhs);
/* Writes the best solution to x [n_vars]; *found: there is one. Ends after so many seconds or nodes of the tree,
 * whichever comes first; with the nodes as the limit the result is the same every time. Ctrl-C waits for its end.
 * WEFT_ERR_UNSUPPORTED: built without CBC. */
weft_status wf_milp_solve(wf_milp *m, double seconds, uint32_t nodes, double *x, bool *found);
void wf_milp_free(wf_milp *m);

#endif
