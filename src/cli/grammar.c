/* grammar check: of each schema in a file, whether it compiles and which of its instances it accepts. */
#include "cli/cli.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct check_totals {
    size_t schemas, compiled, kept, wrongly_accepted, wrongly_refused;
} check_totals;

static void check_instances(wf_grammar *g, const wf_json *line, check_totals *t, wf_text *out)
{
    bool kept = true;
    WF_JSON_EACH(test, wf_json_get(line, "tests")) {
        wf_match *m = NULL;
        wf_text text = {0};
        wf_json_put(&text, wf_json_get(test, "data"));
        bool ok = !text.failed && wf_match_new(g, &m) == WEFT_OK && wf_match_read(m, text.data, text.len) == WEFT_OK &&
                  wf_match_may_end(m);
        wf_match_free(m);
        free(text.data);
        const wf_json *valid = wf_json_get(test, "valid");
        wf_json_comma(out);
        wf_json_print(out, "%hhd", ok);
        if (!valid || wf_json_is_true(valid) == ok) continue;
        kept = false;
        *(ok ? &t->wrongly_accepted : &t->wrongly_refused) += 1;
    }
    t->kept += kept;
}

static int check_line(const wf_opts *o, const char *text, size_t n, size_t number, check_totals *t)
{
    wf_json_error e;
    wf_json *line = wf_json_read(text, n, &(wf_json_rules){.flags = WF_JSON_LOOSE}, &e);
    if (!wf_json_get(line, "schema")) {
        int rc = wf_usage(o->command, "line %zu of the file %s", number, line ? "has no schema" : e.text);
        wf_json_free(line);
        return rc;
    }
    wf_grammar *g = NULL;
    wf_text schema = {0}, out = {0};
    wf_json_put(&schema, wf_json_get(line, "schema"));
    const wf_json *name = wf_json_get(line, "name");
    weft_status s = schema.failed ? WEFT_ERR_NOMEM : wf_grammar_schema(schema.data, schema.len, false, &g);
    wf_json_print(&out, "{'name':%s,'compiled':%hhd,'reason':%s,'accepted':[", wf_json_text(name), s == WEFT_OK,
                  s == WEFT_OK ? NULL : weft_last_error());
    t->schemas++, t->compiled += s == WEFT_OK;
    if (s == WEFT_OK) check_instances(g, line, t, &out);
    wf_json_print(&out, "]}\n");
    if (o->json && !out.failed) fwrite(out.data, 1, out.len, stdout);
    else if (s != WEFT_OK) printf("%s: %s\n", wf_json_text(name) ? wf_json_text(name) : "-", weft_last_error());
    wf_grammar_free(g);
    wf_json_free(line);
    free(schema.data);
    free(out.data);
    return out.failed ? wf_say_error(WEFT_ERR_NOMEM) : 0;
}

static int cmd_grammar_check(const wf_opts *o)
{
    check_totals t = {0};
    char *text = NULL;
    size_t len = 0, number = 0;
    int rc = wf_read_text(o, &text, &len);
    for (size_t at = 0; !rc && at < len;) {
        const char *line = text + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        number++;
        if (n) rc = check_line(o, line, n, number, &t);
        at += n + 1;
        if (isatty(STDERR_FILENO)) wf_report("schemas", (double)at / (double)len);
    }
    if (!rc && !o->json)
        printf("%zu schemas, %zu compiled, %zu with all their instances right; %zu instances wrongly accepted, %zu "
               "wrongly refused\n",
               t.schemas, t.compiled, t.kept, t.wrongly_accepted, t.wrongly_refused);
    free(text);
    return rc;
}

static const wf_opt grammar_rows[] = {
    {'f', "file", "FILE", "read the schemas from a file", WF_OPT_TEXT, AT(file)},
    {0, "json", NULL, "print a line of JSON for each schema: name, compiled, reason, accepted", WF_OPT_FLAG, AT(json)},
};
static const WF_GROUP(grammar_group, "Schemas", grammar_rows);
static const wf_opt_group *const grammar_groups[] = {&grammar_group, &wf_group_general, NULL};

const wf_command wf_cmd_grammar_check = {
    .name = "grammar check",
    .usage = "[FILE.jsonl] [options]",
    .summary = "Says of JSON schemas whether answers can be kept to them, and which instances they accept. A line of "
               "the file is {\"name\": ..., \"schema\": ..., \"tests\": [{\"data\": ..., \"valid\": true}, ...]}; "
               "valid may be missing. Instances are read as compact JSON, keys in their order.",
    .groups = grammar_groups,
    .words = {"file"},
    .reads_stdin = true,
    .run = cmd_grammar_check,
};
