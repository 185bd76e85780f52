/* said: what the library logs while a test listens. */
#ifndef WF_TEST_SAID_H
#define WF_TEST_SAID_H

#include "support/suite.h"

static char said[1 << 16];

static inline void keep_line(void *user, enum weft_log_level level, const char *line)
{
    size_t len = strlen(said);
    snprintf(said + len, sizeof said - len, "%s\n", line);
}

/* Keeps the lines up to that level in `said` from now on. */
static inline void listen_to(enum weft_log_level most)
{
    *said = 0;
    weft_log_to(keep_line, NULL, most);
}

static inline void assert_said(const char *words)
{
    if (!strstr(said, words)) fail_msg("nobody said '%s': %s", words, said);
}

/* How often these words were said. */
static inline int said_times(const char *words)
{
    int n = 0;
    for (const char *at = said; (at = strstr(at, words)); at++) n++;
    return n;
}

#endif
