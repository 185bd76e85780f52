/* energy: see energy.h. */
#include "plan/energy.h"

#include <math.h>
#include <string.h>

enum { STATIC, FLOP, BYTE, N };

/* Normal equations, in units in which all columns are as long. */
typedef struct normal {
    double a[N][N], y[N], unit[N];
} normal;

/* Gauss with the columns from `first` on; those before stay 0. False: they say too nearly the same. */
static bool solve_normal(normal m, int first, double x[N])
{
    const double least = 1e-3; /* of a pivot: below it the rest is noise */
    for (int i = first; i < N; i++) {
        if (!(m.a[i][i] > least)) return false;
        for (int r = i + 1; r < N; r++) {
            double f = m.a[r][i] / m.a[i][i];
            for (int k = i; k < N; k++) m.a[r][k] -= f * m.a[i][k];
            m.y[r] -= f * m.y[i];
        }
    }
    memset(x, 0, N * sizeof *x);
    for (int i = N - 1; i >= first; i--) {
        double sum = m.y[i];
        for (int k = i + 1; k < N; k++) sum -= m.a[i][k] * x[k];
        x[i] = sum / m.a[i][i];
    }
    for (int i = first; i < N; i++) x[i] *= m.unit[i];
    return x[FLOP] > 0 && x[BYTE] > 0 && x[STATIC] >= 0;
}

bool wf_energy_fit(const wf_energy_point *points, size_t n, wf_energy *e)
{
    double x[N];
    normal m = {.a = {{0}}};
    for (const wf_energy_point *p = points; p < points + n; p++) {
        double row[N] = {p->seconds / p->joules, p->flops / p->joules, p->bytes / p->joules};
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < N; k++) m.a[i][k] += row[i] * row[k];
            m.y[i] += row[i] * (1 - e->idle * row[STATIC]);
        }
    }
    for (int i = 0; i < N; i++) m.unit[i] = m.a[i][i] > 0 ? 1 / sqrt(m.a[i][i]) : 0;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < N; k++) m.a[i][k] *= m.unit[i] * m.unit[k];
        m.y[i] *= m.unit[i];
    }
    if (!solve_normal(m, STATIC, x) && !solve_normal(m, FLOP, x)) return false;
    e->static_power = e->idle + x[STATIC];
    e->flop = x[FLOP], e->byte = x[BYTE];
    return true;
}

double wf_energy_seconds(const wf_energy *e, double flops, double bytes)
{
    double watts = e->power_limit - e->static_power;
    return watts > 0 ? (flops * e->flop + bytes * e->byte) / watts : 0;
}
