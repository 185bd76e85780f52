/* data: where test data lies, and what its absence means: a failure in CI, a counted skip elsewhere. */
#ifndef WF_TEST_DATA_H
#define WF_TEST_DATA_H

#include <stdbool.h>
#include <stddef.h>

#define TEST_SKIP 77 /* meson's exit code for a skipped test */

/* Path of a file of $WEFT_TEST_DATA (default ../shared/data beside the sources), or NULL with a message.
 * The text lives until the next call. */
const char *test_data(const char *name);
/* Exit code for a program that lacks its data: 1 where the environment says CI, else TEST_SKIP. */
int test_without_data(void);

#endif
