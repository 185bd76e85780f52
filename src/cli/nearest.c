/* nearest: what somebody meant who mistyped a name. See cli.h. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define LONGEST 48 /* names of more characters are compared up to here */

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static size_t word_distance(const char *a, const char *b)
{
    size_t n = WF_MIN(strlen(a), LONGEST), m = WF_MIN(strlen(b), LONGEST), d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            size_t least = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            least = WF_MIN(least, WF_MIN(d[i - 1][j], d[i][j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            d[i][j] = swapped ? WF_MIN(least, d[i - 2][j - 2] + 1) : least;
        }
    return d[n][m];
}

/* How far the name is from the word; large: it is another one. The beginning of a name counts as close to it. */
static size_t word_miss(const char *word, const char *name)
{
    size_t len = strlen(word), far = word_distance(word, name);
    if (far <= WF_MAX((len + 1) / 3, 1)) return far;
    return len > 2 && !strncmp(word, name, len) ? len : 2 * LONGEST;
}

/* Keeps the closest in *best, nearest first. */
static void insert_nearest(const char *best[WF_NEAREST], size_t far[WF_NEAREST], const char *name, size_t miss_by)
{
    for (size_t i = 0; i < WF_NEAREST; i++) {
        if (best[i] && !strcmp(best[i], name)) return;
        if (best[i] && far[i] <= miss_by) continue;
        for (size_t k = WF_NEAREST - 1; k > i; k--) best[k] = best[k - 1], far[k] = far[k - 1];
        best[i] = name, far[i] = miss_by;
        return;
    }
}

void wf_nearest(char *out, size_t cap, const char *dashes, const char *word, const char *const *names, size_t n)
{
    const char *best[WF_NEAREST] = {0};
    size_t far[WF_NEAREST], len = 0;
    for (size_t i = 0; i < n; i++) {
        size_t miss_by = word_miss(word, names[i]);
        if (miss_by < 2 * LONGEST) insert_nearest(best, far, names[i], miss_by);
    }
    *out = 0;
    for (size_t i = 0; i < WF_NEAREST && best[i] && len < cap; i++) {
        bool last = i + 1 == WF_NEAREST || !best[i + 1];
        len += (size_t)snprintf(out + len, cap - len, "%s%s%s%s",
                                !i     ? "; did you mean "
                                : last ? " or "
                                       : ", ",
                                dashes, best[i], last ? "?" : "");
    }
}
