/* options: parses a command line into wf_opts and prints help, both from the option rows of the command. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *set_in; /* the place outside the command line whose option is being set, for messages; NULL: none */

int wf_usage(const wf_command *c, const char *fmt, ...)
{
    char raw[512], text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    if (c->name[0] == '/')
        fprintf(stderr, "weft: %s %s\n", c->name,
                text + (strncmp(text, "--", 2) ? 0 : 2)); /* of a chat, which has no --help */
    else
        fprintf(stderr, "weft %s: %s%s%s\nSee `weft %s --help`.\n", c->name, set_in ? set_in : "", set_in ? ": " : "",
                text, c->name);
    return WF_EXIT_USAGE;
}

/* What stands before its name: a variable is a row of environment.c. */
static const char *mark_of(const wf_opt *opt) { return *opt->name == 'W' ? "$" : "--"; }

/* ---- values ---------------------------------------------------------------------------------- */

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

static bool read_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && !isnan(*out);
}

/* Numbers with commas between: whole ones, or all. */
static int set_list(const wf_command *c, const wf_opt *opt, const char *text, void *at)
{
    wf_list *whole = at;
    wf_reals *reals = at;
    bool is_whole = opt->kind == WF_OPT_LIST;
    size_t cap = 0, n = 0;
    free(is_whole ? (void *)whole->v : reals->v);
    if (is_whole) *whole = (wf_list){0};
    else *reals = (wf_reals){0};
    for (const char *p = text;; p++, n++) {
        char word[32];
        long long unused;
        unsigned long long u = 0;
        double v = 0;
        size_t len = strcspn(p, ", ");
        wf_copy(word, len < sizeof word ? len + 1 : 1, p); /* a longer one is no number */
        p += len;
        bool read = is_whole ? read_whole(word, false, &unused, &u) : read_real(word, &v);
        if (is_whole) v = (double)u;
        if (!read || v < opt->min || v > opt->max)
            return wf_usage(c, "%s%s: expected a number from %.10g to %.10g, or several with commas between, got '%s'",
                            mark_of(opt), opt->name, opt->min, opt->max, text);
        bool room = is_whole ? wf_grow(&whole->v, n, &cap, sizeof *whole->v)
                             : wf_grow(&reals->v, n, &cap, sizeof *reals->v);
        if (!room) return wf_say_error(WEFT_ERR_NOMEM);
        if (is_whole) whole->v[whole->n++] = (uint32_t)u;
        else reals->v[reals->n++] = v;
        if (!*p) return 0;
    }
}

bool wf_choice_has(const char *choices, const char *word, size_t len)
{
    for (const char *p = choices; p; p = strchr(p, '|')) {
        if (*p == '|') p++;
        if (strcspn(p, "|") == len && !strncmp(p, word, len)) return true;
    }
    return false;
}

void wf_opt_allowed(const wf_opt *opt, char *buf, size_t cap)
{
    if (opt->kind == WF_OPT_CHOICE) snprintf(buf, cap, "one of %s", opt->arg);
    else if (opt->kind == WF_OPT_SEED) snprintf(buf, cap, "an integer from -1 to %llu", (unsigned long long)UINT64_MAX);
    else if (opt->kind == WF_OPT_U64 && opt->max == 0x1p64)
        snprintf(buf, cap, "an integer from %.0f to %llu", opt->min, (unsigned long long)UINT64_MAX);
    else if (opt->kind == WF_OPT_REAL) snprintf(buf, cap, "a number from %g to %g", opt->min, opt->max);
    else snprintf(buf, cap, "an integer from %.0f to %.0f", opt->min, opt->max);
}

static int bad_value(const wf_command *c, const wf_opt *opt, const char *text)
{
    char allowed[256];
    wf_opt_allowed(opt, allowed, sizeof allowed);
    return wf_usage(c, "%s%s: expected %s, got '%s'", mark_of(opt), opt->name, allowed, text);
}

static int set_number(const wf_command *c, const wf_opt *opt, const char *text, void *at)
{
    long long v = 0;
    unsigned long long u = 0;
    if (!read_whole(text, opt->kind == WF_OPT_I32, &v, &u)) return bad_value(c, opt, text);
    double size = opt->kind == WF_OPT_I32 ? (double)v : (double)u;
    if (size < opt->min || size > opt->max) return bad_value(c, opt, text);
    if (opt->kind == WF_OPT_I32) *(int32_t *)at = (int32_t)v;
    else if (opt->kind == WF_OPT_U32) *(uint32_t *)at = (uint32_t)u;
    else *(uint64_t *)at = u;
    return 0;
}

/* The path may have colons, too. */
static int set_place(const wf_command *c, const wf_opt *opt, const char *text, wf_place *out)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!n || n >= sizeof out->path || !read_size(colon + 1, &out->bytes) || !out->bytes)
        return wf_usage(c, "%s%s: expected a file and its size, such as /var/cache/kv:100G, got '%s'", mark_of(opt),
                        opt->name, text);
    wf_copy(out->path, n + 1, text);
    return 0;
}

static int set_value(const wf_command *c, const wf_opt *opt, const char *text, wf_opts *o)
{
    void *at = (char *)o + opt->at;
    wf_words *words = at;
    double v;
    switch (opt->kind) {
    case WF_OPT_FLAG: *(bool *)at = true; return 0;
    case WF_OPT_CHOICE:
        if (!wf_choice_has(opt->arg, text, strlen(text))) return bad_value(c, opt, text);
        *(const char **)at = text;
        return 0;
    case WF_OPT_TEXT: *(const char **)at = text; return 0;
    case WF_OPT_SEED: o->random_seed = !strcmp(text, "-1"); return o->random_seed ? 0 : set_number(c, opt, text, at);
    case WF_OPT_SIZE:
        if (!read_size(text, at) || !*(uint64_t *)at)
            return wf_usage(c, "%s%s: expected a size such as 512M or 4G, got '%s'", mark_of(opt), opt->name, text);
        return 0;
    case WF_OPT_PLACE: return set_place(c, opt, text, at);
    case WF_OPT_REAL:
        if (!read_real(text, &v) || !isfinite(v) || v < opt->min || v > opt->max) return bad_value(c, opt, text);
        *(float *)at = (float)v;
        return 0;
    case WF_OPT_WORDS:
        if (!wf_grow(&words->v, words->n, &words->cap, sizeof *words->v)) return wf_say_error(WEFT_ERR_NOMEM);
        words->v[words->n++] = text;
        return 0;
    case WF_OPT_LIST:
    case WF_OPT_REALS: return set_list(c, opt, text, at);
    default:
        /* Numbers that weft may choose itself have 0 for that. */
        if (opt->kind == WF_OPT_U32 && wf_choice_has(opt->arg, "auto", 4) && !strcmp(text, "auto"))
            return *(uint32_t *)at = 0;
        return set_number(c, opt, text, at);
    }
}

void wf_opt_value(const wf_opt *opt, const wf_opts *o, char *buf, size_t cap)
{
    const void *at = (const char *)o + opt->at;
    const wf_place *place = at;
    switch (opt->kind) {
    case WF_OPT_FLAG: snprintf(buf, cap, "%s", *(const bool *)at ? "on" : "off"); break;
    case WF_OPT_TEXT:
    case WF_OPT_CHOICE: snprintf(buf, cap, "%s", *(const char *const *)at ? *(const char *const *)at : ""); break;
    case WF_OPT_I32: snprintf(buf, cap, "%d", *(const int32_t *)at); break;
    case WF_OPT_U32: snprintf(buf, cap, "%u", *(const uint32_t *)at); break;
    case WF_OPT_SEED:
        if (o->random_seed) {
            wf_copy(buf, cap, "-1");
            break;
        } /* fall through */
    case WF_OPT_U64:
    case WF_OPT_SIZE: snprintf(buf, cap, "%llu", (unsigned long long)*(const uint64_t *)at); break;
    case WF_OPT_PLACE: snprintf(buf, cap, "%s:%llu", place->path, (unsigned long long)place->bytes); break;
    case WF_OPT_REAL: snprintf(buf, cap, "%g", (double)*(const float *)at); break;
    default: wf_copy(buf, cap, "..."); /* lists */
    }
}

/* ---- words ----------------------------------------------------------------------------------- */

static const wf_opt *find_option(const wf_command *c, char letter, const char *name, size_t len)
{
    for (size_t g = 0; c->groups[g]; g++)
        for (size_t i = 0; i < c->groups[g]->n; i++) {
            const wf_opt *opt = &c->groups[g]->rows[i];
            if (letter ? opt->letter == letter : strlen(opt->name) == len && !strncmp(opt->name, name, len)) return opt;
        }
    return NULL;
}

static bool is_among(const wf_opts *o, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(o->given[i]->name, name)) return true;
    return false;
}

bool wf_opts_has(const wf_opts *o, const char *name) { return is_among(o, o->n_given, name); }

bool wf_opts_typed(const wf_opts *o, const char *name) { return is_among(o, o->n_typed, name); }

bool wf_opts_has_same(const wf_opts *o, const wf_opt *opt)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (o->given[i]->at == opt->at) return true;
    return false;
}

/* An option as somebody typed it. */
struct typed {
    char name[64];     /* with its dashes; _ between words has become - */
    const char *value; /* behind = or the letter; NULL: none */
    const wf_opt *opt; /* NULL: not one of this command, */
    const wf_foreign *foreign; /* but of another program, if it is not NULL */
};

const wf_opt *wf_opts_find(const wf_command *c, const char *name) { return find_option(c, 0, name, strlen(name)); }

static struct typed look_up(const wf_command *c, const char *word)
{
    struct typed t = {.value = strchr(word, '=')};
    size_t dashes = word[1] == '-' ? 2 : 1, len = t.value ? (size_t)(t.value - word) : strlen(word);
    if (t.value) t.value++;
    wf_copy(t.name, WF_MIN(len + 1, sizeof t.name), word);
    for (char *p = t.name; *p; p++)
        if (*p == '_') *p = '-';
    bool letter = dashes == 1 && len == 2;
    t.opt = letter ? find_option(c, word[1], NULL, 0) : wf_opts_find(c, t.name + dashes); /* -model is --model */
    if (!t.opt) t.foreign = wf_foreign_find(false, t.name, strlen(t.name));
    if (t.foreign && t.foreign->ours) t.opt = wf_opts_find(c, t.foreign->ours);
    if (!t.opt && !t.foreign && dashes == 1) {
        /* -n60: only numbers may stand behind a letter, so that -ngl is not -n with the value gl. */
        const wf_opt *opt = find_option(c, word[1], NULL, 0);
        bool number = opt && opt->arg && opt->kind >= WF_OPT_I32 && opt->kind <= WF_OPT_REALS;
        if (number && strchr("0123456789-.", word[2])) t.opt = opt, t.value = word + 2;
    }
    return t;
}

/* The commands that have an option, for a message; false: none. */
static bool who_has(const char *name, char *out, size_t cap)
{
    size_t len = 0, n = 0;
    *out = 0;
    for (size_t i = 0; wf_commands[i] && n < 3; i++)
        if (wf_opts_find(wf_commands[i], name))
            len += (size_t)snprintf(out + len, cap - len, "%s`weft %s`", n++ ? ", " : "", wf_commands[i]->name);
    return n > 0;
}

static size_t option_names(const wf_command *c, const char **names, size_t cap)
{
    size_t n = 0;
    for (size_t g = 0; c->groups[g]; g++)
        for (size_t i = 0; i < c->groups[g]->n && n < cap; i++) names[n++] = c->groups[g]->rows[i].name;
    return n;
}

/* The variable of a name that an option had or could have; NULL: none. */
static const wf_opt *variable_of(const char *name)
{
    char upper[64] = "WEFT_";
    wf_copy(upper + 5, sizeof upper - 5, name);
    for (char *p = upper; *p; p++) *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    for (size_t i = 0; i < wf_environment.n; i++)
        if (!strcmp(wf_environment.rows[i].name, upper)) return &wf_environment.rows[i];
    return NULL;
}

static int unknown_option(const wf_command *c, const struct typed *t)
{
    char owners[128], nearest[160], foreign[2048];
    const char *names[256], *name = t->name + strspn(t->name, "-");
    if (t->foreign && t->foreign->answer) return wf_usage(c, "%s: %s", t->name, t->foreign->answer);
    if (t->foreign && who_has(t->foreign->ours, owners, sizeof owners))
        return wf_usage(c, "%s: weft calls it --%s, an option of %s", t->name, t->foreign->ours, owners);
    if (strlen(name) > 1 && who_has(name, owners, sizeof owners))
        return wf_usage(c, "unknown option %s; it belongs to %s", t->name, owners);
    const wf_opt *variable = variable_of(name);
    if (variable)
        return wf_usage(c, "%s: it is the variable %s%s now, which `weft help variables` describes", t->name,
                        variable->name, variable->arg ? "" : "=1");
    wf_nearest(nearest, sizeof nearest, "--", name, names, option_names(c, names, WF_LEN(names)));
    if (!*nearest)
        wf_nearest(nearest, sizeof nearest, "--", name, names,
                   wf_foreign_names(c, foreign, sizeof foreign, names, WF_LEN(names)));
    const wf_opt *letter = *nearest || t->name[1] == '-' ? NULL : find_option(c, *name, NULL, 0);
    if (letter && letter->arg && name[1])
        return wf_usage(c, "unknown option %s: if -%c %s is meant, it needs the space", t->name, *name, name + 1);
    return wf_usage(c, "unknown option %s%s", t->name, nearest);
}

/* The same in a chat. */
static int unknown_setting(const wf_command *c, const struct typed *t)
{
    char owners[128], nearest[160];
    const char *names[64], *name = t->name + strspn(t->name, "-"), *ours = t->foreign ? t->foreign->ours : name;
    if (t->foreign && t->foreign->answer) return wf_usage(c, "%s: %s", name, t->foreign->answer);
    if (t->foreign && t->foreign->already) return wf_usage(c, "%s: weft always does it", name);
    if (wf_opts_find(&wf_cmd_run, ours))
        return wf_usage(c, "%s: it holds for a whole chat; start one with `weft run --%s`", name, ours);
    if (who_has(ours, owners, sizeof owners))
        return wf_usage(c, "%s: it is an option of %s, not of chats", name, owners);
    wf_nearest(nearest, sizeof nearest, "", name, names, option_names(c, names, WF_LEN(names)));
    return wf_usage(c, "has no '%s'%s", name, *nearest ? nearest : "; alone it shows all that it has");
}

bool wf_takes_value(const wf_opt *opt, const wf_foreign *foreign)
{
    return foreign && foreign->part ? strchr("=:", foreign->part[strlen(foreign->part) - 1]) != NULL
                                    : opt->arg != NULL;
}

bool wf_foreign_harmless(const wf_foreign *f, const char *value)
{
    const char *values = f ? f->harmless : NULL;
    if (!values) return false;
    if (!value) return wf_choice_has(values, "", 0);
    return *values == '!' ? !wf_choice_has(values + 1, value, strlen(value)) || !*value
                          : wf_choice_has(values, value, strlen(value));
}

/* An option in the place of a value is a forgotten value. */
static bool is_option_word(const wf_command *c, const char *word)
{
    if (word[0] != '-' || !word[1] || strchr(word, ' ')) return false;
    struct typed t = look_up(c, word);
    return (t.opt && t.value != word + 2) || t.foreign;
}

static int give_value(const wf_command *c, const wf_opt *opt, const char *text, wf_opts *o)
{
    int rc = set_value(c, opt, text, o);
    size_t i = 0;
    while (i < o->n_given && o->given[i] != opt) i++;
    if (!rc && i == o->n_given && i < WF_LEN(o->given)) o->given[o->n_given++] = opt;
    return rc;
}

/* Of llama.cpp's options for the types of keys and of values neither is passed over. */
static bool is_other_type(const struct typed *t, const char *text, const wf_opts *o)
{
    return t->foreign && !strcmp(t->opt->name, "kv-dtype") && wf_opts_has(o, "kv-dtype") &&
           strcmp(o->engine.kv_dtype, text);
}

/* The value of another program's option may be a part of ours. */
static int give_part(const wf_command *c, const struct typed *t, const char *text, wf_opts *o)
{
    if (is_other_type(t, text, o))
        return wf_usage(c, "%s %s: keys and values have one type, --kv-dtype, which is %s already", t->name, text,
                        o->engine.kv_dtype);
    if (!t->foreign || !t->foreign->part) return give_value(c, t->opt, text, o);
    char *whole;
    if (!wf_grow(&o->own.v, o->own.n, &o->own.cap, sizeof *o->own.v) ||
        asprintf(&whole, "%s%s", t->foreign->part, text) < 0)
        return wf_say_error(WEFT_ERR_NOMEM);
    o->own.v[o->own.n++] = whole;
    return give_value(c, t->opt, whole, o);
}

/* Behind all words that a command takes, an option that may be repeated takes several values at once. */
static bool has_words(const wf_command *c, const wf_opts *o)
{
    size_t n = 0;
    for (size_t w = 0; w < WF_LEN(c->words) && c->words[w]; w++) n += !wf_opts_has(o, c->words[w]);
    return c->words[0] && o->n_args >= n;
}

/* Options of other programs that are typed: those without an effect, for a warning, and those that are refused. */
struct odd {
    char idle[256];
    struct typed refused[16];
    size_t n;
};

/* With its value, if it has one. */
static void pass_foreign(const wf_command *c, const struct typed *t, int argc, char **argv, int *i, struct odd *odd)
{
    const char *value = t->value, *next = *i < argc ? argv[*i] : NULL;
    bool flag = t->foreign->harmless && !*t->foreign->harmless,
         number = next && *next == '-' && strchr("0123456789", next[1]) && next[1];
    bool takes = !value && next && !flag && (*next != '-' || number) &&
                 (wf_foreign_harmless(t->foreign, next) || !wf_foreign_harmless(t->foreign, NULL));
    if (takes && !is_option_word(c, next)) value = next, ++*i;
    size_t n = strlen(odd->idle);
    if (wf_foreign_harmless(t->foreign, value))
        snprintf(odd->idle + n, sizeof odd->idle - n, "%s%s%s%s", n ? ", " : "", t->name, value ? " " : "",
                 value ? value : "");
    else if (odd->n < WF_LEN(odd->refused)) odd->refused[odd->n++] = *t;
}

/* All of them at once; 0: none is refused. */
static int tell_odd(const wf_command *c, const wf_opts *o, const struct odd *odd)
{
    for (size_t i = 0; i + 1 < odd->n; i++)
        fprintf(stderr, "weft %s: %s: %s\n", c->name, odd->refused[i].name, odd->refused[i].foreign->answer);
    if (odd->n) return unknown_option(c, &odd->refused[odd->n - 1]);
    if (*odd->idle) wf_note(o, "options of other programs that change nothing here: %s", odd->idle);
    return 0;
}

/* One option and its value: --name VALUE, --name=VALUE, -n VALUE or, of a number, -n60. Moves *i past both. */
static int parse_option(const wf_command *c, int argc, char **argv, int *i, wf_opts *o, struct odd *odd)
{
    struct typed t = look_up(c, argv[(*i)++]);
    if (t.foreign && t.foreign->already) return 0;
    if (!t.opt && t.foreign && t.foreign->answer) {
        pass_foreign(c, &t, argc, argv, i, odd);
        return 0;
    }
    if (!t.opt) return unknown_option(c, &t);
    bool flag = !wf_takes_value(t.opt, t.foreign);
    if (t.opt->arg && flag && !t.value) return give_value(c, t.opt, t.foreign->part, o);
    if (flag)
        return t.value ? wf_usage(c, "%s takes no value, got '%s'", t.name, t.value)
                       : give_value(c, t.opt, NULL, o);
    if (t.value) return give_part(c, &t, t.value, o);
    if (*i >= argc) return wf_usage(c, "%s needs a value: %s", t.name, t.opt->arg);
    if (is_option_word(c, argv[*i]))
        return wf_usage(c, "%s needs a value: %s. If %s is meant, write --%s=%s", t.name, t.opt->arg, argv[*i],
                        t.opt->name, argv[*i]);
    int rc = give_part(c, &t, argv[(*i)++], o);
    while (!rc && t.opt->kind == WF_OPT_WORDS && has_words(c, o) && *i < argc && *argv[*i] != '-')
        rc = give_part(c, &t, argv[(*i)++], o);
    return rc;
}

int wf_opts_environment(const wf_command *c, wf_opts *o)
{
    int rc = 0;
    for (size_t i = 0; i < wf_environment.n && !rc; i++) {
        const wf_opt *opt = &wf_environment.rows[i];
        const char *value = getenv(opt->name);
        bool off = value && !opt->arg && wf_choice_has("0|off|no|false", value, strlen(value));
        if (!value || !*value || off) continue;
        if (!opt->arg && !wf_choice_has("1|on|yes|true", value, strlen(value)))
            return wf_usage(c, "$%s: expected 1 or 0, got '%s'", opt->name, value);
        rc = give_value(c, opt, value, o);
    }
    return rc;
}

const wf_opt *wf_opts_meant(const wf_command *c, const char *name)
{
    char word[80];
    snprintf(word, sizeof word, "--%.64s", name + strspn(name, "-"));
    struct typed t = look_up(c, word);
    if (!t.opt) (c->name[0] == '/' ? unknown_setting : unknown_option)(c, &t);
    return t.opt;
}

int wf_opts_set(const wf_command *c, const char *name, const char *value, const char *from, wf_opts *o)
{
    set_in = from;
    const wf_opt *opt = wf_opts_meant(c, name);
    int rc = opt ? give_value(c, opt, value, o) : WF_EXIT_USAGE;
    set_in = NULL;
    return rc;
}

const wf_opt *wf_opts_meaning(const char *word, const wf_foreign **foreign)
{
    *foreign = NULL;
    for (size_t i = 0; wf_commands[i]; i++) {
        struct typed t = look_up(wf_commands[i], word);
        if (t.opt && !t.value) return *foreign = t.foreign, t.opt;
        if (t.foreign) *foreign = t.foreign;
    }
    return NULL;
}

void wf_opts_nearest(const char *word, char *out, size_t cap)
{
    const char *names[1024];
    size_t n = 0;
    for (size_t i = 0; wf_commands[i]; i++) n += option_names(wf_commands[i], names + n, WF_LEN(names) - n);
    wf_nearest(out, cap, "", word, names, n);
}

/* Positional arguments set the options that they stand for. */
static int place_words(const wf_command *c, wf_opts *o)
{
    size_t n = 0;
    for (size_t w = 0; w < WF_LEN(c->words) && c->words[w] && n < o->n_args; w++) {
        const wf_opt *opt = wf_opts_find(c, c->words[w]);
        if (wf_opts_has(o, opt->name)) continue;
        int rc = give_value(c, opt, o->args[n++], o);
        if (rc) return rc;
    }
    o->words_set = n > 0;
    o->args += n;
    o->n_args -= n;
    if (!o->n_args || c->takes_args) return 0;
    /* Perhaps the second word of a command whose first one is this one's name. */
    const char *names[16];
    char nearest[160];
    size_t n_names = 0, len = strlen(c->name);
    for (size_t i = 0; wf_commands[i] && n_names < WF_LEN(names); i++)
        if (!strncmp(wf_commands[i]->name, c->name, len) && wf_commands[i]->name[len] == ' ')
            names[n_names++] = wf_commands[i]->name + len + 1;
    wf_nearest(nearest, sizeof nearest, "", o->args[0], names, n_names);
    return wf_usage(c, "unexpected argument '%s'%s", o->args[0],
                    o->prompt ? ": a text of several words needs quotes" : nearest);
}

int wf_opts_parse(const wf_command *c, int argc, char **argv, wf_opts *o)
{
    bool only_args = false;
    struct odd odd = {0};
    o->command = c;
    o->args = argv; /* positional arguments move to the front, in order */
    for (int i = 0; i < argc;) {
        if (only_args || argv[i][0] != '-' || !argv[i][1]) {
            o->args[o->n_args++] = argv[i++];
        } else if (!strcmp(argv[i], "--")) {
            only_args = true;
            i++;
        } else {
            int rc = parse_option(c, argc, argv, &i, o, &odd);
            if (rc || o->help) return rc; /* options after --help are ignored */
        }
    }
    int rc = tell_odd(c, o, &odd);
    return rc ? rc : place_words(c, o);
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
    free(o->api_keys.v);
    free(o->model_names.v);
    free(o->allow.v);
    free(o->adapters.v);
    for (size_t i = 0; i < o->own.n; i++) free((char *)(uintptr_t)o->own.v[i]);
    free(o->own.v);
}

/* ---- help ------------------------------------------------------------------------------------ */

void wf_print_wrapped(FILE *out, const char *text, int indent)
{
    int column = indent;
    for (const char *p = text; *p;) {
        int len = (int)strcspn(p, " \n");
        if (column > indent && column + 1 + len > 80) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        bool gap = column > indent;
        fprintf(out, "%s%.*s", gap ? " " : "", len, p);
        column += len + gap;
        p += len;
        p += strspn(p, " \n");
    }
    fputc('\n', out);
}

static void print_described(const char *left, const char *help)
{
    enum { INDENT = 30 };
    if (strlen(left) < INDENT - 1) printf("%-*s", INDENT, left);
    else printf("%s\n%*s", left, INDENT, "");
    wf_print_wrapped(stdout, help, INDENT);
}

static void print_row(const wf_opt *opt)
{
    char left[96], letter[8] = "";
    if (opt->letter) snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, opt->name, opt->arg ? " " : "", opt->arg ? opt->arg : "");
    print_described(left, opt->help);
}

void wf_opts_help_variables(void)
{
    wf_print_wrapped(stdout, "Variables for what only tests and measurements need. They are read as options are, and a "
                             "value that cannot be is an error; 1 is also off with 0. What holds without one stands in "
                             "brackets.", 0);
    putchar('\n');
    for (size_t i = 0; i < wf_environment.n; i++) {
        const wf_opt *opt = &wf_environment.rows[i];
        char left[96];
        snprintf(left, sizeof left, "  %s=%s", opt->name, opt->arg ? opt->arg : "1");
        print_described(left, opt->help);
    }
}

void wf_opts_help(const wf_command *c)
{
    printf("Usage: weft %s %s\n\n", c->name, c->usage);
    wf_print_wrapped(stdout, c->summary, 0);
    for (size_t g = 0; c->groups[g]; g++) {
        printf("\n%s:\n", c->groups[g]->title);
        for (size_t i = 0; i < c->groups[g]->n; i++) print_row(&c->groups[g]->rows[i]);
    }
    if (c->more) printf("\n%s", c->more);
}
