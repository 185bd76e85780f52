/* options: parses a command line into wf_opts and prints help, both from the option rows of the command. */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wf_usage(const wf_command *c, const char *fmt, ...)
{
    char raw[512], text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    fprintf(stderr, "weft %s: %s\nSee `weft %s --help`.\n", c->name, text, c->name);
    return WF_EXIT_USAGE;
}

/* ---- values -----------------------------------------------------------------------------------
 */

/* Parses all of text as an integer; false if it is malformed or out of range. */
static bool read_whole(const char *text, bool negative, long long *out, unsigned long long *uout)
{
    char *end;
    bool minus = *text == '-';
    if (!strchr("0123456789", text[minus]) || !text[minus] || (minus && !negative)) return false;
    errno = 0;
    *out = negative ? strtoll(text, &end, 10) : 0;
    *uout = negative ? 0 : strtoull(text, &end, 10);
    return !errno && !*end;
}

/* Parses a size in bytes with an optional suffix K, M, G or T (powers of 1024), also KB or KiB. */
static bool read_size(const char *text, uint64_t *out)
{
    char number[32];
    size_t digits = strspn(text, "0123456789");
    unsigned long long v;
    long long unused;
    if (!digits || digits >= sizeof number) return false;
    wf_copy(number, digits + 1, text);
    if (!read_whole(number, false, &unused, &v)) return false;
    const char *unit = text + digits;
    static const char units[] = "KMGT";
    const char *at = *unit ? strchr(units, *unit & ~32) : NULL;
    int shift = at ? 10 * (int)(at - units + 1) : 0;
    if (at) unit++;
    if (at && *unit == 'i' && unit[1] == 'B') unit++;
    if (*unit == 'B') unit++;
    *out = (uint64_t)v << shift;
    return !*unit && *out >> shift == v;
}

/* Copies the word at *p up to a comma and advances *p; false if it is too long for a number. */
static bool cut_word(const char **p, char *word, size_t cap)
{
    size_t len = strcspn(*p, ", ");
    wf_copy(word, len < cap ? len + 1 : 1, *p);
    *p += len;
    return len < cap;
}

static int bad_list(const wf_command *c, const wf_opt *opt, const char *text)
{
    return wf_usage(c, "--%s: expected a number from %.10g to %.10g, or several with commas between, got '%s'",
                    opt->name, opt->min, opt->max, text);
}

static int set_list(const wf_command *c, const wf_opt *opt, const char *text, wf_list *list)
{
    size_t cap = 0;
    free(list->v);
    *list = (wf_list){0};
    for (const char *p = text;; p++) {
        char word[32];
        long long unused;
        unsigned long long v;
        if (!cut_word(&p, word, sizeof word) || !read_whole(word, false, &unused, &v) ||
            v < opt->min || v > opt->max)
            return bad_list(c, opt, text);
        if (!wf_grow(&list->v, list->n, &cap, sizeof *list->v)) return wf_say_error(WEFT_ERR_NOMEM);
        list->v[list->n++] = (uint32_t)v;
        if (!*p) return 0;
    }
}

static bool read_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && !isnan(*out);
}

static int set_reals(const wf_command *c, const wf_opt *opt, const char *text, wf_reals *list)
{
    size_t cap = 0;
    free(list->v);
    *list = (wf_reals){0};
    for (const char *p = text;; p++) {
        char word[32];
        double v;
        if (!cut_word(&p, word, sizeof word) || !read_real(word, &v) || v < opt->min ||
            v > opt->max)
            return bad_list(c, opt, text);
        if (!wf_grow(&list->v, list->n, &cap, sizeof *list->v)) return wf_say_error(WEFT_ERR_NOMEM);
        list->v[list->n++] = v;
        if (!*p) return 0;
    }
}

static int add_word(const char *text, wf_words *words)
{
    if (!wf_grow(&words->v, words->n, &words->cap, sizeof *words->v)) return wf_say_error(WEFT_ERR_NOMEM);
    words->v[words->n++] = text;
    return 0;
}

static bool choice_has(const char *choices, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = choices; p; p = strchr(p, '|')) {
        if (*p == '|') p++;
        if (strcspn(p, "|") == len && !strncmp(p, word, len)) return true;
    }
    return false;
}

static int set_number(const wf_command *c, const wf_opt *opt, const char *text, void *at)
{
    long long v = 0;
    unsigned long long u = 0;
    if (!read_whole(text, opt->kind == WF_OPT_I32, &v, &u))
        return wf_usage(c, "--%s: expected an integer, got '%s'", opt->name, text);
    double size = opt->kind == WF_OPT_I32 ? (double)v : (double)u;
    if (size < opt->min || size > opt->max)
        return wf_usage(c, "--%s %s is out of range: %.0f to %.0f", opt->name, text,
                        opt->min, opt->max);
    if (opt->kind == WF_OPT_I32)
        *(int32_t *)at = (int32_t)v;
    else if (opt->kind == WF_OPT_U32)
        *(uint32_t *)at = (uint32_t)u;
    else
        *(uint64_t *)at = u;
    return 0;
}

static int set_real(const wf_command *c, const wf_opt *opt, const char *text, float *at)
{
    double v;
    if (!read_real(text, &v) || !isfinite(v))
        return wf_usage(c, "--%s: expected a number, got '%s'", opt->name, text);
    if (v < opt->min || v > opt->max)
        return wf_usage(c, "--%s %s is out of range: %g to %g", opt->name, text,
                        opt->min, opt->max);
    *at = (float)v;
    return 0;
}

static int set_value(const wf_command *c, const wf_opt *opt, const char *text, wf_opts *o)
{
    void *at = (char *)o + opt->at;
    switch (opt->kind) {
    case WF_OPT_FLAG:
        *(bool *)at = true;
        return 0;
    case WF_OPT_CHOICE:
        if (!choice_has(opt->arg, text))
            return wf_usage(c, "--%s: expected one of %s, got '%s'", opt->name, opt->arg, text);
        *(const char **)at = text;
        return 0;
    case WF_OPT_TEXT:
        *(const char **)at = text;
        return 0;
    case WF_OPT_SIZE:
        if (!read_size(text, at) || !*(uint64_t *)at)
            return wf_usage(c, "--%s: expected a size such as 512M or 4G, got '%s'", opt->name, text);
        return 0;
    case WF_OPT_REAL:
        return set_real(c, opt, text, at);
    case WF_OPT_REALS:
        return set_reals(c, opt, text, at);
    case WF_OPT_WORDS:
        return add_word(text, at);
    case WF_OPT_LIST:
        return set_list(c, opt, text, at);
    default:
        return set_number(c, opt, text, at);
    }
}

/* ---- words ------------------------------------------------------------------------------------
 */

static const wf_opt *find(const wf_command *c, char letter, const char *name, size_t len)
{
    for (size_t g = 0; c->groups[g]; g++)
        for (size_t i = 0; i < c->groups[g]->n; i++) {
            const wf_opt *opt = &c->groups[g]->rows[i];
            if (letter ? opt->letter == letter
                       : strlen(opt->name) == len && !strncmp(opt->name, name, len))
                return opt;
        }
    return NULL;
}

static void remember(wf_opts *o, const wf_opt *opt)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (o->given[i] == opt) return;
    if (o->n_given < WF_LEN(o->given)) o->given[o->n_given++] = opt;
}

bool wf_opts_has(const wf_opts *o, const char *name)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (!strcmp(o->given[i]->name, name)) return true;
    return false;
}

/* One option and its value: --name VALUE, --name=VALUE, -n VALUE or -nVALUE. Moves *i past both. */
static int parse_option(const wf_command *c, int argc, char **argv, int *i, wf_opts *o)
{
    const char *word = argv[(*i)++];
    bool is_long = word[1] == '-';
    const char *value = is_long ? strchr(word, '=') : word[2] ? word + 2 : NULL;
    size_t len = !value ? strlen(word) : (size_t)(value - word);
    const wf_opt *opt = is_long ? find(c, 0, word + 2, len - 2) : find(c, word[1], NULL, 0);
    if (!opt) return wf_usage(c, "unknown option %.*s", (int)len, word);
    remember(o, opt);
    if (value && is_long) value++;
    if (!opt->arg)
        return value ? wf_usage(c, "%.*s takes no value, got '%s'", (int)len, word, value)
                     : set_value(c, opt, NULL, o);
    if (!value && *i >= argc) return wf_usage(c, "%s needs a value: %s", word, opt->arg);
    return set_value(c, opt, value ? value : argv[(*i)++], o);
}

int wf_opts_parse(const wf_command *c, int argc, char **argv, wf_opts *o)
{
    bool only_args = false;
    o->command = c;
    o->args = argv; /* positional arguments move to the front, in order */
    for (int i = 0; i < argc;) {
        if (only_args || argv[i][0] != '-' || !argv[i][1]) {
            if (!c->takes_args) return wf_usage(c, "unexpected argument '%s'", argv[i]);
            o->args[o->n_args++] = argv[i++];
        } else if (!strcmp(argv[i], "--")) {
            only_args = true;
            i++;
        } else {
            int rc = parse_option(c, argc, argv, &i, o);
            if (rc || o->help) return rc; /* options after --help are ignored */
        }
    }
    return 0;
}

void wf_opts_free(wf_opts *o)
{
    free(o->tokens.v);
    free(o->n_prompt.v);
    free(o->n_gen.v);
    free(o->threads.v);
    free(o->shapes.v);
    free(o->load.traces.v);
    free(o->load.rates.v);
    free(o->load.percentiles.v);
    free(o->load.goodput.v);
    free(o->load.headers.v);
    free(o->trusted_proxies.v);
}

/* ---- help -------------------------------------------------------------------------------------
 */

/* Prints text wrapped to 80 columns; the cursor stands at column `indent`. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;
    for (const char *p = text; *p;) {
        int len = (int)strcspn(p, " \n");
        if (column > indent && column + 1 + len > 80) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        bool gap = column > indent;
        printf("%s%.*s", gap ? " " : "", len, p);
        column += len + gap;
        p += len;
        p += strspn(p, " \n");
    }
    printf("\n");
}

static void print_row(const wf_opt *opt)
{
    enum { INDENT = 30 };
    char left[96], letter[8] = "";
    if (opt->letter) snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, opt->name, opt->arg ? " " : "",
                     opt->arg ? opt->arg : "");
    if (n < INDENT - 1)
        printf("%-*s", INDENT, left);
    else
        printf("%s\n%*s", left, INDENT, "");
    print_wrapped(opt->help, INDENT);
}

void wf_opts_help(const wf_command *c)
{
    printf("Usage: weft %s %s\n\n", c->name, c->usage);
    print_wrapped(c->summary, 0);
    for (size_t g = 0; c->groups[g]; g++) {
        printf("\n%s:\n", c->groups[g]->title);
        for (size_t i = 0; i < c->groups[g]->n; i++) print_row(&c->groups[g]->rows[i]);
    }
    if (c->more) printf("\n%s", c->more);
}
