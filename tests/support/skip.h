/* skip: how a test says that it was not run, and why, in a line that tests/count.py reads. Where CI is set that counts
 * as a failure, unless the reason says that other hardware is needed. */
#ifndef WF_TEST_SKIP_H
#define WF_TEST_SKIP_H

#include <stdio.h>

#define NEEDS_HARDWARE "needs other hardware: "
#define SKIP_EXIT      77 /* meson's exit code for a skipped test */

/* The exit code of a program none of whose tests can run. */
static inline int skip_program(const char *why)
{
    printf("skipped: %s\n", why);
    return SKIP_EXIT;
}

/* Ends one of cmocka's tests. */
#define SKIP_TEST(why) (printf("skipped: %s: %s\n", __func__, why), skip())

#endif
