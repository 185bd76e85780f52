/* tables: the commands and their options as JSON, for the build: pages/pages.py makes the manual pages and completions
 * of it. See cli.h. */
#include "cli/cli.h"

#include "base/json.h"
#include "cli/rows.h"

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

static void print_command(wf_text *t, const wf_command *c)
{
    wf_json_comma(t);
    wf_json_print(t, "\n{'name': %s, 'usage': %s, 'summary': %s, 'more': %s, 'takes_args': %hhd, 'words': [", c->name,
                  c->usage, c->summary, c->more, c->takes_args);
    for (size_t w = 0; w < WF_LEN(c->words) && c->words[w]; w++) wf_json_comma(t), wf_json_print(t, "%s", c->words[w]);
    wf_json_print(t, "], 'groups': [");
    for (const wf_opt_group *const *g = c->groups; *g; g++) {
        wf_json_comma(t);
        wf_json_print(t, "\n {'title': %s, 'options': [", (*g)->title);
        for (const wf_opt *opt = (*g)->rows; opt < (*g)->rows + (*g)->n; opt++) {
            const char letter[] = {opt->letter, 0};
            wf_json_comma(t);
            wf_json_print(t, "\n  {'letter': %s, 'name': %s, 'arg': %s, 'help': %s, 'words': %s}", letter, opt->name,
                          opt->arg, opt->help, opt->words);
        }
        wf_json_print(t, "]}");
    }
    wf_json_print(t, "]}");
}

int wf_print_tables(void)
{
    wf_text t = {0};
    wf_text_print(&t, "[");
    for (size_t i = 0; wf_commands[i]; i++) print_command(&t, wf_commands[i]);
    wf_text_print(&t, "]");
    return wf_print_json(&t);
}
