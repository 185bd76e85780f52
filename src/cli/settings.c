/* settings: options that are set once for all runs, in WEFT_MODEL, WEFT_DEVICE, WEFT_API_KEY and the settings file;
 * `weft config` prints them.
 *
 * The command line goes before variables, variables before the file; of options that may be repeated all count. A
 * setting applies to every command that has the option, unless rules.c says that it does not go with what is typed. */
#include "cli/cli.h"

#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX ((size_t)1 << 20)
#define LINE_MOST ((size_t)8192) /* longer ones belong to another kind of file */
#define MOST     256

static struct {
    char path[PATH_MAX];
    char *text; /* of the file; values lie in it */
    struct setting {
        const wf_opt *opt; /* of the first command that has it */
        const char *value;
        char *own;     /* the value, if it lies neither in the file nor in a variable */
        unsigned line; /* of the file; 0: a variable */
    } list[MOST];
    size_t n;
} settings;

static const struct {
    const char *variable, *name;
} variables[] = {{"WEFT_MODEL", "model"}, {"WEFT_DEVICE", "device"}, {"WEFT_API_KEY", "api-key"}};

/* ---- messages -------------------------------------------------------------------------------- */

/* "FILE:LINE" or "$VARIABLE", fit for a terminal. */
static void setting_origin(const char *name, unsigned line, char *shown, size_t cap)
{
    const char *variable = "";
    char raw[PATH_MAX + 32];
    for (size_t i = 0; i < WF_LEN(variables); i++)
        if (!strcmp(variables[i].name, name)) variable = variables[i].variable;
    if (line) snprintf(raw, sizeof raw, "%s:%u", settings.path, line);
    else snprintf(raw, sizeof raw, "$%s", variable);
    wf_show(shown, cap, raw);
}

static WF_PRINTF(3, 4) int bad_setting(const char *name, unsigned line, const char *fmt, ...)
{
    char raw[1024], text[4096], from[2 * PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    setting_origin(name, line, from, sizeof from);
    fprintf(stderr, "weft: error: %s: %s\n", from, text);
    return WF_EXIT_USAGE;
}

static const wf_opt *option_of(const char *name, const wf_foreign **foreign);

static int unknown_setting(const char *name, unsigned line, const wf_foreign *foreign)
{
    char nearest[160];
    const wf_foreign *unused;
    if (foreign && foreign->answer) return bad_setting(name, line, "%s: %s", name, foreign->answer);
    if (option_of(name, &unused))
        return bad_setting(
            name, line, "there is no option '%s' for all runs: it only holds where it is typed, so leave the line out",
            name);
    wf_opts_nearest(name, nearest, sizeof nearest);
    return bad_setting(name, line, "there is no option '%s'%s", name,
                       *nearest ? nearest : "; `weft help COMMAND` lists those of a command");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* As the command line would understand the name, with one dash if not with two. *foreign: as in wf_opts_meaning. */
static const wf_opt *option_of(const char *name, const wf_foreign **foreign)
{
    char word[80];
    const wf_opt *opt = NULL;
    *foreign = NULL;
    for (int dashes = 2; dashes && !opt && !*foreign; dashes--) {
        snprintf(word, sizeof word, "%.*s%.64s", dashes, "--", name);
        opt = wf_opts_meaning(word, foreign);
    }
    return opt;
}

/* The same, if it can be set for all runs. */
static const wf_opt *setting_meaning(const char *name, const wf_foreign **foreign)
{
    const wf_opt *opt = option_of(name, foreign);
    return opt && strcmp(opt->name, "help") ? opt : NULL;
}

/* ~/ is the user's folder, as in shells. *own: the path; NULL: the value is none, or begins otherwise. */
static int expand_home(const wf_opt *opt, const char *value, unsigned line, char **own)
{
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    *own = NULL;
    bool path_wanted = opt->arg && (strstr(opt->arg, "FILE") || strstr(opt->arg, "FOLDER"));
    if (!path_wanted || strncmp(value, "~/", 2)) return 0;
    if (!home || *home != '/')
        return bad_setting(opt->name, line, "%s: there is no HOME to take for ~: write the whole path", opt->name);
    if (snprintf(path, sizeof path, "%s%s", home, value + 1) >= (int)sizeof path)
        return bad_setting(opt->name, line, "%s: the path is too long", opt->name);
    *own = wf_strdup(path);
    return *own ? 0 : wf_say_error(WEFT_ERR_NOMEM);
}

/* Values of flags. */
static bool is_off(const char *value) { return wf_choice_has("off|no|false|0", value, strlen(value)); }

static bool is_on(const char *value) { return !*value || wf_choice_has("on|yes|true|1", value, strlen(value)); }

/* The last one of a name counts. */
static int add_setting(const char *name, const char *value, unsigned line)
{
    const wf_foreign *foreign;
    const wf_opt *opt = setting_meaning(name, &foreign);
    char *own;
    if (!opt && wf_foreign_harmless(foreign, *value ? value : NULL)) return 0;
    if (!opt && foreign && foreign->already)
        return is_on(value)
                   ? 0
                   : bad_setting(name, line, "%s: expected on, got '%s': weft always does it, so leave the line out",
                                 name, value);
    if (!opt) return unknown_setting(name, line, foreign);
    if (!opt->arg && !is_on(value) && !is_off(value)) {
        /* Another command may have an option of the name that takes a value; only its command line sets that. */
        const wf_opt *other = NULL;
        const char *of = "";
        for (size_t j = 0; wf_commands[j] && !(other && other->arg); j++)
            other = wf_opts_find(wf_commands[j], opt->name), of = wf_commands[j]->name;
        if (!other || !other->arg)
            return bad_setting(opt->name, line, "%s: expected on or off, got '%s'", opt->name, value);
        return bad_setting(
            opt->name, line,
            "%s: expected on or off, got '%s'; --%s %s is an option of `weft %s` that is only set where it is typed",
            opt->name, value, opt->name, other->arg, of);
    }
    const char *part = foreign && opt ? foreign->part : NULL;
    if (part && !wf_takes_value(opt, foreign) && !is_on(value)) return 0;
    /* The place of the option in the list: of one that may be repeated, a new one. */
    size_t i = 0;
    while (i < settings.n && (opt->kind == WF_OPT_WORDS || strcmp(settings.list[i].opt->name, opt->name))) i++;
    if (i == MOST) return bad_setting(name, line, "there are too many options before '%s': leave some out", name);
    int rc = expand_home(opt, value, line, &own);
    if (!rc && part && asprintf(&own, "%s%s", part, wf_takes_value(opt, foreign) ? value : "") < 0)
        rc = wf_say_error(WEFT_ERR_NOMEM);
    if (rc) return rc;
    free(settings.list[i].own);
    settings.list[i] = (struct setting){opt, own ? own : value, own, line};
    settings.n = WF_MAX(settings.n, i + 1);
    return 0;
}

static char *trim_blanks(char *text)
{
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]);) text[--n] = 0;
    return text;
}

/* What is behind a value: nothing, or a comment. */
static bool is_end(const char *text)
{
    const char *word = text + strspn(text, " \t");
    return !*word || (*word == '#' && word > text);
}

/* Takes off quotes, and a comment behind them. NULL: they are not closed, or more text follows. */
static char *cut_quotes(char *text)
{
    char *end = strchr(text + 1, *text);
    if (!end || !is_end(end + 1)) return NULL;
    *end = 0;
    return text + 1;
}

/* Cuts off a comment, which begins with a # behind a blank. */
static char *cut_comment(char *text)
{
    char *p = text;
    while (*p && (*p != '#' || (p > text && !strchr(" \t", p[-1])))) p++;
    *p = 0;
    return trim_blanks(text);
}

/* "name value", "name = value" or, of a flag, "name". */
static int add_line(char *line, unsigned number)
{
    char *name = trim_blanks(line), *value = name + strcspn(name, "= \t");
    if (!*name || *name == '#') return 0;
    if (*value) *value++ = 0;
    value += strspn(value, " \t");
    if (*value == '=') value++;
    value = trim_blanks(value);
    bool quoted = *value == '"' || *value == '\'';
    value = quoted ? cut_quotes(value) : cut_comment(value);
    name += strspn(name, "-");
    const wf_foreign *foreign;
    const wf_opt *opt = setting_meaning(name, &foreign);
    if (!value)
        return bad_setting(
            name, number,
            "%s: a value that begins with a quote has to end with the same one, and nothing but a comment may follow",
            name);
    if (opt && wf_takes_value(opt, foreign) && !*value && !quoted)
        return bad_setting(name, number, "%s needs a value: %s", name, opt->arg);
    return add_setting(name, value, number);
}

/* $WEFT_CONFIG, which may be empty for none, else weft.conf in the user's folder. */
static bool find_file(void)
{
    const char *own = getenv("WEFT_CONFIG");
    if (own) wf_copy(settings.path, sizeof settings.path, own);
    else if (wf_user_dir(WF_DIR_CONFIG, "weft/weft.conf", false, settings.path, sizeof settings.path))
        settings.path[0] = 0;
    return *settings.path;
}

static int read_lines(char *text, size_t len)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* some editors put it in front */
    char *line = text + (strncmp(text, mark, 3) ? 0 : 3), *next;
    int rc = 0;
    for (unsigned number = 1; line && !rc; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        size_t n = strlen(line);
        if (!next && n < (size_t)(text + len - line))
            return bad_setting("", number, "there is a zero byte: the file has to be text in UTF-8");
        if (n > LINE_MOST) return bad_setting("", number, "the line is longer than %zu bytes", LINE_MOST);
        rc = add_line(line, number);
    }
    return rc;
}

int wf_settings_read(void)
{
    int rc = 0;
    size_t len;
    if (find_file() && (!access(settings.path, F_OK) || getenv("WEFT_CONFIG"))) {
        weft_status s = wf_read_file(settings.path, FILE_MAX, &settings.text, &len);
        rc = s ? wf_say_error(s) : read_lines(settings.text, len);
    }
    for (size_t i = 0; i < WF_LEN(variables) && !rc; i++) {
        const char *value = getenv(variables[i].variable);
        if (value && *value) rc = add_setting(variables[i].name, value, 0);
    }
    return rc;
}

void wf_settings_free(void)
{
    for (size_t i = 0; i < settings.n; i++) free(settings.list[i].own);
    free(settings.text);
    settings.text = NULL;
    settings.n = 0;
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Commands that do something else without -m do not get the model, and what the command line says goes before. */
static bool setting_applies(const wf_command *c, const wf_opts *o, const struct setting *s)
{
    const wf_opt *opt = wf_opts_find(c, s->opt->name);
    if (!opt || opt->at != s->opt->at || (c->explicit_model && !strcmp(opt->name, "model"))) return false;
    return (opt->kind == WF_OPT_WORDS || !wf_opts_has_same(o, opt)) && !wf_rule_conflicts(c, o, opt->name);
}

/* Is one of the options typed, or set by what still applies? */
static bool is_there(const wf_opts *o, const bool on[MOST], const char *names)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (wf_choice_has(names, o->given[i]->name, strlen(o->given[i]->name))) return true;
    for (size_t i = 0; i < settings.n; i++) {
        const struct setting *s = &settings.list[i];
        if (on[i] && (s->opt->arg || !is_off(s->value)) && wf_choice_has(names, s->opt->name, strlen(s->opt->name)))
            return true;
    }
    return false;
}

/* Leaves out one setting that needs an option which is not there; false: there is none. Others may need the one that
 * goes. */
static bool leave_out(const wf_command *c, const wf_opts *o, bool on[MOST])
{
    const char *needed;
    for (size_t i = 0; i < settings.n; i++)
        for (size_t k = 0; on[i] && (needed = wf_rule_needs(c, settings.list[i].opt->name, k)); k++)
            if (!is_there(o, on, needed)) return on[i] = false, true;
    return false;
}

static int apply_setting(const wf_command *c, const struct setting *s, const wf_opt *opt, wf_opts *o)
{
    char from[2 * PATH_MAX];
    if (!opt->arg && is_off(s->value)) return 0;
    setting_origin(opt->name, s->line, from, sizeof from);
    return wf_opts_set(c, opt->name, opt->arg ? s->value : NULL, from, o);
}

int wf_settings_apply(const wf_command *c, wf_opts *o)
{
    bool on[MOST]; /* decided before the first one is set: settings do not go before each other */
    for (size_t i = 0; i < settings.n; i++) on[i] = setting_applies(c, o, &settings.list[i]);
    while (leave_out(c, o, on)) continue;
    for (size_t i = 0; i < settings.n; i++) {
        int rc = on[i] ? apply_setting(c, &settings.list[i], wf_opts_find(c, settings.list[i].opt->name), o) : 0;
        if (rc) return rc;
    }
    return 0;
}

/* ---- config ---------------------------------------------------------------------------------- */

static void print_path(const char *title, const char *path)
{
    char shown[2 * PATH_MAX];
    wf_show(shown, sizeof shown, path);
    printf("# %-14s %s%s\n", title, *path ? shown : "none", *path && access(path, F_OK) ? " (not there)" : "");
}

/* The first command that has the option as the setting means it. */
static const wf_command *owner_of(const struct setting *s)
{
    size_t i = 0;
    while (wf_opts_find(wf_commands[i], s->opt->name) != s->opt) i++;
    return wf_commands[i];
}

static int cmd_config(const wf_opts *o)
{
    char path[PATH_MAX], from[2 * PATH_MAX], value[1024];
    (void)o;
    print_path("settings file", settings.path);
    wf_models_folder(path, sizeof path);
    print_path("models", path);
    for (size_t i = 0; i < settings.n; i++) {
        const struct setting *s = &settings.list[i];
        setting_origin(s->opt->name, s->line, from, sizeof from);
        wf_show(value, sizeof value, strcmp(s->opt->name, "api-key") ? s->value : "(not shown)");
        printf("%s = %s  # %s\n", s->opt->name, value, from);
    }
    /* Says which values no command would take; the exit code is that of the first one. */
    wf_opts all = {0};
    int first = 0;
    for (size_t i = 0; i < settings.n; i++) {
        const wf_command as = {.name = wf_cmd_config.name, .groups = owner_of(&settings.list[i])->groups};
        int rc = apply_setting(&as, &settings.list[i], settings.list[i].opt, &all);
        if (!first) first = rc;
    }
    wf_opts_free(&all);
    return first;
}

static const wf_opt_group *const groups[] = {&wf_group_general, NULL};

const wf_command wf_cmd_config = {
    .name = "config",
    .usage = "[options]",
    .summary = "Prints the options that are set for all runs, and where, and says which have a value that cannot be. "
               "They come from the settings file and from variables; the command line goes before "
               "both, and options that may be repeated add up.",
    .more = "The settings file is ~/.config/weft/weft.conf (XDG_CONFIG_HOME moves it,\n"
            "WEFT_CONFIG names another one). A line has the name of an option and its value,\n"
            "and applies to every command that has the option:\n\n"
            "  model = ~/models/story.gguf\n"
            "  device = gpu\n"
            "  ctx-size = 8192  # a comment\n"
            "  served-model-name = \"story #1\"\n\n"
            "Names of other programs are understood as on the command line. A value with a\n"
            "# behind a blank needs quotes.\n\n"
            "WEFT_MODEL, WEFT_DEVICE and WEFT_API_KEY go before the file.\n",
    .groups = groups,
    .run = cmd_config,
};
