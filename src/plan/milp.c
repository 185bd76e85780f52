/* milp: mixed integer linear programs. See milp.h. */
#include "plan/milp.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#ifdef WEFT_CBC
#include <coin/Cbc_C_Interface.h>
#endif

int wf_milp_add(wf_milp *m, double low, double high, bool integer, double cost)
{
    if (!wf_grow(&m->vars, m->n_vars, &m->cap_vars, sizeof *m->vars)) {
        m->no_memory = true;
        return 0;
    }
    m->vars[m->n_vars] = (wf_milp_var){low, high, cost, integer};
    return (int)m->n_vars++;
}

/* A variable stands in a row once. */
void wf_milp_term(wf_milp *m, int var, double coef)
{
    for (size_t i = m->open; i < m->n_terms; i++)
        if (m->var_of[i] == var) {
            m->coef[i] += coef;
            return;
        }
    if (!wf_grow(&m->var_of, m->n_terms, &m->cap_var_of, sizeof *m->var_of) ||
        !wf_grow(&m->coef, m->n_terms, &m->cap_coef, sizeof *m->coef)) {
        m->no_memory = true;
        return;
    }
    m->var_of[m->n_terms] = var;
    m->coef[m->n_terms++] = coef;
}

void wf_milp_row_end(wf_milp *m, char sense, double rhs)
{
    if (!wf_grow(&m->rows, m->n_rows, &m->cap_rows, sizeof *m->rows)) {
        m->no_memory = true;
        return;
    }
    m->rows[m->n_rows++] = (wf_milp_row){m->open, m->n_terms - m->open, sense, rhs};
    m->open = m->n_terms;
}

void wf_milp_free(wf_milp *m)
{
    free(m->vars);
    free(m->rows);
    free(m->var_of);
    free(m->coef);
    *m = (wf_milp){0};
}

#ifdef WEFT_CBC
bool wf_milp_available(void)
{
    return true;
}

weft_status wf_milp_solve(wf_milp *m, double seconds, uint32_t nodes, double *x, bool *found)
{
    *found = false;
    if (m->no_memory) return wf_fail(WEFT_ERR_NOMEM, "no memory for a program of %zu rows", m->n_rows);
    Cbc_Model *c = Cbc_newModel();
    for (const wf_milp_var *v = m->vars; v < m->vars + m->n_vars; v++)
        Cbc_addCol(c, "", v->low, v->high, v->cost, (char)v->integer, 0, NULL, NULL);
    for (const wf_milp_row *r = m->rows; r < m->rows + m->n_rows; r++)
        Cbc_addRow(c, "", (int)r->n, m->var_of + r->first, m->coef + r->first, r->sense, r->rhs);
    Cbc_setLogLevel(c, 0);
    Cbc_setMaximumSeconds(c, seconds);
    Cbc_setMaximumNodes(c, (int)nodes);
    Cbc_setAllowableFractionGap(c, 1e-4);
    /* CBC sets a handler of its own for Ctrl-C, which must not take the signal from ours. */
    sigset_t interrupt, before;
    struct sigaction ours;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    sigaction(SIGINT, NULL, &ours);
    Cbc_solve(c);
    sigaction(SIGINT, &ours, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    const double *best = Cbc_bestSolution(c);
    *found = best != NULL && !Cbc_isProvenInfeasible(c);
    if (*found) memcpy(x, best, m->n_vars * sizeof *x);
    Cbc_deleteModel(c);
    return WEFT_OK;
}
#else
bool wf_milp_available(void)
{
    return false;
}

weft_status wf_milp_solve(wf_milp *m, double seconds, uint32_t nodes, double *x, bool *found)
{
    (void)m, (void)seconds, (void)nodes, (void)x;
    *found = false;
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "this weft was built without CBC: install coinor-libcbc-dev and build with -Dcbc=enabled");
}
#endif
