/* tokenize, detokenize: converts text to token ids and back; needs only a vocabulary. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tokenize -------------------------------------------------------------------------------- */

static int cmd_tokenize(const wf_opts *o)
{
    struct weft_model *m = NULL;
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    unsigned flags = (o->no_add_special ? WEFT_TEXT_NO_ADD_SPECIAL : 0u) |
                     (o->no_parse_special ? WEFT_TEXT_NO_PARSE_SPECIAL : 0u);
    int rc = wf_read_text(o, &text, &len);
    if (!rc) rc = wf_open_model(o, true, &m);
    weft_status s = rc ? WEFT_OK : weft_tokenize(m, text, len, flags, &ids, &n);
    if (s) rc = wf_say_error(s);
    if (!rc) {
        for (size_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
        printf("\n");
    }
    weft_free(ids);
    weft_model_close(m);
    free(text);
    return rc;
}

static const wf_opt_group *const tokenize_groups[] = {&wf_group_model, &wf_group_text, &wf_group_special,
                                                      &wf_group_general, NULL};

const wf_command wf_cmd_tokenize = {
    .name = "tokenize",
    .usage = "[TEXT] [-m MODEL] [options]",
    .summary = "Prints the token ids of a text on one line. The text comes from the argument, -p, -f or standard input "
               "and is used byte for byte. A model file with only a vocabulary is enough.",
    .groups = tokenize_groups,
    .words = {"prompt"},
    .reads_stdin = true,
    .run = cmd_tokenize,
};

/* ---- detokenize ------------------------------------------------------------------------------ */

struct ids {
    int32_t *v;
    size_t n, cap;
};

/* Parses ids separated by spaces, commas or newlines. */
static int add_ids(const wf_opts *o, const char *text, struct ids *ids)
{
    static const char gaps[] = " ,\t\r\n";
    for (const char *p = text + strspn(text, gaps); *p; p += strspn(p, gaps)) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && !strchr(gaps, *end)))
            return wf_usage(o->command, "'%.*s' is not a token id", (int)WF_MIN(strcspn(p, gaps), 40u), p);
        if (!wf_grow(&ids->v, ids->n, &ids->cap, sizeof *ids->v)) return wf_say_error(WEFT_ERR_NOMEM);
        ids->v[ids->n++] = (int32_t)v;
        p = end;
    }
    return 0;
}

static int read_ids(const wf_opts *o, struct ids *ids)
{
    int rc = 0;
    if (o->n_args && (o->prompt || o->file))
        return wf_usage(o->command, "ids as arguments conflict with -p and -f: use one of them");
    for (size_t i = 0; i < o->n_args && !rc; i++) rc = add_ids(o, o->args[i], ids);
    if (o->n_args || rc) return rc;
    char *text = NULL;
    size_t len;
    rc = wf_read_text(o, &text, &len);
    if (!rc && strlen(text) != len) rc = wf_usage(o->command, "the input is not a list of token ids");
    if (!rc) rc = add_ids(o, text, ids);
    free(text);
    return rc;
}

static int cmd_detokenize(const wf_opts *o)
{
    struct weft_model *m = NULL;
    struct ids ids = {0};
    char *text = NULL;
    size_t len = 0;
    int rc = read_ids(o, &ids);
    if (!rc) rc = wf_open_model(o, true, &m);
    unsigned flags = o->hide_special ? WEFT_TEXT_HIDE_SPECIAL : WEFT_TEXT_DEFAULT;
    weft_status s = rc ? WEFT_OK : weft_detokenize(m, ids.v, ids.n, flags, &text, &len);
    if (s) rc = wf_say_error(s);
    /* Prints no newline, so that a file round-trips exactly. */
    if (!rc && wf_out_shown(text, len) && isatty(STDOUT_FILENO)) wf_out("\n", 1);
    weft_free(text);
    weft_model_close(m);
    free(ids.v);
    return rc;
}

static const wf_opt detokenize_rows[] = {
    {'p', "prompt", "IDS", "the ids, separated by spaces or commas", WF_OPT_TEXT, AT(prompt)},
    {'f', "file", "FILE", "read the ids from a file", WF_OPT_TEXT, AT(file)},
};
static const WF_GROUP(detokenize_group, "Input", detokenize_rows);
static const wf_opt_group *const detokenize_groups[] = {&wf_group_model, &detokenize_group, &wf_group_general, NULL};

const wf_command wf_cmd_detokenize = {
    .name = "detokenize",
    .usage = "[-m FILE] [ID... | -p IDS | -f FILE] [options]",
    .summary = "Prints the text of token ids, byte for byte. A newline follows on a terminal alone. "
               "The ids come from the arguments, -p, -f or standard input.",
    .groups = detokenize_groups,
    .takes_args = true,
    .reads_stdin = true,
    .run = cmd_detokenize,
};
