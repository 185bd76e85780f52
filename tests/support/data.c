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
    fprintf(stderr, "no test data at %s\n", path);
    return NULL;
}
