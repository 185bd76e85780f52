/* rows: a table in a file, a row a line, with tabs between columns. Lines that begin with # are comments; =NAME and its
 * text, between which a tab stands, is what {NAME} means in the rows below; \n, \t, \\, \s (a blank) and \xHH are bytes.
 */
#ifndef WF_TEST_ROWS_H
#define WF_TEST_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "support/suite.h"

enum { MOST_COLUMNS = 8, MOST_NAMES = 64 };

typedef struct named_texts {
    const char *name[MOST_NAMES], *text[MOST_NAMES];
    int n;
} named_texts;

static inline const char *text_named(const named_texts *d, const char *name, size_t len)
{
    for (int i = 0; i < d->n; i++)
        if (strlen(d->name[i]) == len && !strncmp(d->name[i], name, len)) return d->text[i];
    return NULL;
}

static inline void add_bytes(wf_text *out, const named_texts *d, const char *text)
{
    static const char letters[] = "nts\\", bytes[] = "\n\t \\";
    for (; *text; text++) {
        const char *end = *text == '{' ? strchr(text, '}') : NULL, *other = NULL, *letter = NULL;
        unsigned byte;
        if (end) other = text_named(d, text + 1, (size_t)(end - text) - 1);
        if (*text == '\\' && text[1]) letter = strchr(letters, text[1]);
        if (other) add_bytes(out, d, other), text = end;
        else if (letter) wf_text_add(out, &bytes[letter - letters], 1), text++;
        else if (!strncmp(text, "\\x", 2) && sscanf(text + 2, "%2x", &byte) == 1)
            wf_text_add(out, &(char){(char)byte}, 1), text += 3;
        else wf_text_add(out, text, 1);
    }
}

/* Each row that the file has, of so many columns; those that are missing at its end are empty. */
static inline void each_row(const char *path, int n, void (*each)(char *const *column))
{
    named_texts names = {.n = 0};
    char *file, *line, *rest;
    size_t len;
    assert_ok(wf_read_file(path, 1 << 20, &file, &len));
    for (rest = file; (line = strsep(&rest, "\n"));) {
        char *column[MOST_COLUMNS];
        if (!*line || *line == '#') continue;
        if (*line == '=') {
            assert_in_range(names.n, 0, MOST_NAMES - 1);
            names.name[names.n] = strsep(&line, "\t") + 1, names.text[names.n++] = line;
            continue;
        }
        for (int i = 0; i < n; i++) {
            wf_text text = {0};
            wf_text_add(&text, "", 0);
            if (line) add_bytes(&text, &names, strsep(&line, "\t"));
            column[i] = text.data;
        }
        if (line) fail_msg("%s: too many columns: %s", path, line);
        each(column);
        for (int i = 0; i < n; i++) free(column[i]);
    }
    free(file);
}

#endif
