/* sort: a merge sort, because sorting is stable in Python, and because a comparison may leave the run, which libc's
 * sorts do not expect. */
#include "jinja/internal.h"

static void merge(wf_jrun *r, wf_jentry *e, size_t half, size_t n, bool reverse, wf_jentry *out)
{
    for (size_t i = 0, a = 0, b = half; i < n; i++) {
        bool left = b == n;
        if (!left && a < half)
            left = reverse ? wf_jcompare(r, e[a].key, e[b].key) >= 0 : wf_jcompare(r, e[b].key, e[a].key) >= 0;
        out[i] = left ? e[a++] : e[b++];
    }
    memcpy(e, out, n * sizeof *e);
}

static void sort(wf_jrun *r, wf_jentry *e, size_t n, bool reverse, wf_jentry *spare)
{
    if (n < 2) return;
    sort(r, e, n / 2, reverse, spare);
    sort(r, e + n / 2, n - n / 2, reverse, spare);
    merge(r, e, n / 2, n, reverse, spare);
}

void wf_jsort(wf_jrun *r, wf_jentry *e, size_t n, bool reverse)
{
    sort(r, e, n, reverse, wf_jalloc(r, n, sizeof *e));
}
