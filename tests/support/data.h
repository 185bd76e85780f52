/* data: where test data lies. What misses it is skipped (skip.h). */
#ifndef WF_TEST_DATA_H
#define WF_TEST_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* Path of a file of $WEFT_TEST_DATA (default ../shared/data beside the sources), or NULL with a message.
 * The text lives until the next call. */
const char *test_data(const char *name);
#define NO_TEST_DATA "no test data: set WEFT_TEST_DATA to the folder that holds it"

#endif
