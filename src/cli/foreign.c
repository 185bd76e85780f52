/* foreign: what options and commands of other programs are here, from the table in foreign.def. See cli.h. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct row {
    const char *typed;
    wf_foreign is;
    bool command;
} rows[] = {
#define SAME(typed, name) {typed, {.ours = name}, false},
#define PART(typed, name, text) {typed, {.ours = name, .part = text}, false},
#define HARMLESS(typed, values, text) {typed, {.harmless = values, .answer = text}, false},
#define ALREADY(typed) {typed, {.already = true}, false},
#define ANSWER(typed, text) {typed, {.answer = text}, false},
#define COMMAND(typed, text) {typed, {.answer = text}, true},
#include "cli/foreign.def"
};

const wf_foreign *wf_foreign_find(bool command, const char *word, size_t len)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (rows[i].command == command && wf_choice_has(rows[i].typed, word, len)) return &rows[i].is;
    return NULL;
}

size_t wf_foreign_names(const wf_command *c, char *text, size_t cap, const char **names, size_t most)
{
    size_t n = 0, used = 0;
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        if (!rows[i].is.ours || !wf_opts_find(c, rows[i].is.ours)) continue;
        for (const char *w = rows[i].typed; *w && n < most; w += strspn(w, "|")) {
            size_t len = strcspn(w, "|");
            if (!strncmp(w, "--", 2) && used + len <= cap) {
                snprintf(text + used, cap - used, "%.*s", (int)len - 2, w + 2);
                names[n++] = text + used;
                used += len - 1;
            }
            w += len;
        }
    }
    return n;
}
