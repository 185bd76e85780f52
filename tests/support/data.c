/* data: see data.h. */
#include "support/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *test_data(const char *name)
{
    static char path[4096];
    const char *dir = getenv("WEFT_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", dir ? dir : TEST_SOURCE_ROOT "/../shared/data", name);
    if (!access(path, R_OK)) return path;
    fprintf(stderr, "no test data at %s: set WEFT_TEST_DATA to the folder that holds it\n", path);
    return NULL;
}

int test_without_data(void)
{
    return getenv("CI") ? 1 : TEST_SKIP;
}
