/* fresh_cache: a test's own folder for what weft keeps between runs. */
#ifndef WF_TEST_FRESH_CACHE_H
#define WF_TEST_FRESH_CACHE_H

#include "support/suite.h"

/* Below the test's working directory. */
static inline const char *fresh_cache(void)
{
    static char dir[256];
    char cwd[200];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(dir, sizeof dir, "%s/cache-XXXXXX", cwd);
    assert_non_null(mkdtemp(dir));
    setenv("XDG_CACHE_HOME", dir, 1);
    return dir;
}

static inline void forget_cache(const char *dir)
{
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    assert_int_equal(system(cmd), 0);
}

#endif
