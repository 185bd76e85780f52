/* rows: a table in a file, a row a line, with tabs between columns, and \n, \t, \\ and \s (a blank) in them; lines that
 * begin with # are comments. */
#ifndef WF_TEST_ROWS_H
#define WF_TEST_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "support/suite.h"

enum { MOST_COLUMNS = 8 };

static inline void unescape(char *text)
{
    static const char letters[] = "nts\\", bytes[] = "\n\t \\";
    char *to = text;
    for (; *text; text++) {
        const char *letter = *text == '\\' && text[1] ? strchr(letters, *++text) : NULL;
        *to++ = letter ? bytes[letter - letters] : *text;
    }
    *to = 0;
}

/* Each row that the file has, of so many columns. */
static inline void each_row(const char *path, int n, void (*each)(char *const *column))
{
    char *file, *column[MOST_COLUMNS], *line, *rest;
    size_t len;
    assert_ok(wf_read_file(path, 1 << 20, &file, &len));
    for (rest = file; (line = strsep(&rest, "\n"));) {
        if (!*line || *line == '#') continue;
        for (int i = 0; i < n; i++)
            if ((column[i] = strsep(&line, "\t"))) unescape(column[i]);
            else fail_msg("%s: %s...: too few columns", path, column[0]);
        assert_null(line);
        each(column);
    }
    free(file);
}

#endif
