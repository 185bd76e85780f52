/* folder: one of a suite's own, with all that is in it. */
#ifndef WF_TEST_FOLDER_H
#define WF_TEST_FOLDER_H

#include "support/suite.h"

static char folder[64];

/* Before and after a suite, or a case. */
static inline int make_folder(void **state)
{
    strcpy(folder, "/tmp/weft-test-XXXXXX");
    return !mkdtemp(folder);
}

static inline int remove_folder(void **state)
{
    return remove_folder_at(folder);
}

/* The path of a file in it, which lives for four more calls. */
static inline const char *in_folder(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

#endif
