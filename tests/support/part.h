/* part: long tests share their cases out over runs. Where WEFT_TEST_PART has a word AREA=K/N, a test of that area runs
 * the cases of part K only; test.sh sets it, by the commit, where nothing that they test has changed. */
#ifndef WF_TEST_PART_H
#define WF_TEST_PART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_of_part(const char *area, uint32_t index)
{
    unsigned k = 0, n = 1;
    const char *at = getenv("WEFT_TEST_PART");
    char name[32];
    snprintf(name, sizeof name, "%s=", area);
    at = at ? strstr(at, name) : NULL;
    if (!at || sscanf(at + strlen(name), "%u/%u", &k, &n) != 2 || !n) return true;
    return index % n == k % n;
}

/* How often a test does what it does: as a variable says, which a long run sets, or as it does by itself. */
static inline int test_rounds(const char *variable, int otherwise)
{
    const char *n = getenv(variable);
    return n ? atoi(n) : otherwise;
}

#endif
