/* tables: the commands and their options as JSON, for the build: pages/pages.py makes the manual pages and completions of it. See cli.h. */
#include "cli/cli.h"

#include <jansson.h>
#include <stdio.h>

#define X(name, ...) name " "
const char wf_file_types[] =
#include "model/file_types.def"
    ;
const char wf_shape_names[] =
#include "model/shapes.def"
    ;
#undef X
#define X(id, name, ...) name " "
#define WF_DTYPES_OF_FILES
#define WF_DTYPES_CONVERTIBLE
const char wf_weight_types[] =
#include "tensor/dtypes.def"
    ;
#undef X

static json_t *option_json(const wf_opt *opt)
{
    const char letter[] = {opt->letter, 0};
    return json_pack("{ss ss ss? ss ss?}", "letter", letter, "name", opt->name, "arg", opt->arg, "help", opt->help, "words", opt->words);
}

static json_t *group_json(const wf_opt_group *g)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < g->n; i++) json_array_append_new(rows, option_json(&g->rows[i]));
    return json_pack("{ss so}", "title", g->title, "options", rows);
}

static json_t *command_json(const wf_command *c)
{
    json_t *groups = json_array(), *words = json_array();
    for (size_t g = 0; c->groups[g]; g++) json_array_append_new(groups, group_json(c->groups[g]));
    for (size_t w = 0; w < WF_LEN(c->words) && c->words[w]; w++) json_array_append_new(words, json_string(c->words[w]));
    return json_pack("{ss ss ss ss? so so sb}", "name", c->name, "usage", c->usage, "summary", c->summary, "more", c->more, "groups", groups, "words", words,
                     "takes_args", c->takes_args);
}

int wf_print_tables(void)
{
    json_t *all = json_array();
    for (size_t i = 0; wf_commands[i]; i++) json_array_append_new(all, command_json(wf_commands[i]));
    int rc = json_dumpf(all, stdout, JSON_INDENT(1));
    json_decref(all);
    return rc ? WF_EXIT_RUNTIME : WF_EXIT_OK;
}
