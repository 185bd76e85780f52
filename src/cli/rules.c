/* rules: options that conflict, and those that need others. What is typed against a rule is a mistake to be told; a
 * setting for all runs that does not go with what is typed or piped is left out. */
#include "cli/cli.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One of each side is taken. commands: of these only; NULL: of all. */
static const struct {
    const char *one, *other, *commands;
    bool may_be_typed; /* together */
} rivals[] = {
    {"quiet", "verbose", NULL, true}, {"prompt", "file", NULL},
    {"prompt|file", "tokens", NULL},  {"shape", "model", NULL},
    {"base-url", "host|port", NULL},  {"cost", "search|profile", "plan"},
    {"search", "profile", "plan"},    {"timeline", "cost|search|json", "plan"},
    {"cost|search", "plan", "plan"},  {"profile", "plan", "plan", true}, /* with --timeline, which goes by both */
    {"on", "device", "plan"},         {"overlap", "file|repetitions|dataset-path", NULL},
    {"raw", "chat|system|chat-template", "run"}, {"json-schema", "grammar|regex", "run"},
    {"grammar", "regex", "run"},         {"models", "served-model-name|kv-disk|lora|draft-model|tp|pp|experts", "serve"},
};

/* In these commands the options mean nothing without one of the needed ones; "": as a setting for all runs, never. */
static const struct {
    const char *commands, *names, *needed;
} needs[] = {
    {"info|bench|bench throughput|bench ablation|plan|kernels|tune|simulate", "type", "shape"},
    {"bench throughput|simulate", "request-rate", "arrivals"},
    {"bench throughput|simulate", "arrivals", "request-rate|dataset-path"},
    {"info",
     "ctx-size|max-num-seqs|kv-memory|kv-host|kv-disk|gpu-memory-utilization|max-num-batched-tokens|policy|"
     "attention-windows|kv-dtype",
     "model|shape|json"},
    {"perplexity", "tokens", "logits"},
    {"perplexity", "logits", "tokens"},
    {"plan", "json", "cost|profile"},
    {"plan", "on|tp|const", "cost"},
    {"plan", "output|seconds", "search"},
    {"plan", "timeline", ""}, /* a setting for all runs is the file for Perfetto; what is drawn here has to be typed */
    {"tune", "profile|output|context", "overlap"},
    {"tune", "max-num-seqs|max-num-batched-tokens|kv-memory|deterministic|kv-dtype|ctx-size",
     "overlap|dataset-path"},
    {"serve", "sleep-idle", "models"},
    {"tune", "dataset-path", ""}, /* that of those that run loads */
};

static bool has_name(const char *names, const char *name) { return wf_choice_has(names, name, strlen(name)); }

static const wf_opt *find_given(const wf_opts *o, const char *names)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (has_name(names, o->given[i]->name)) return o->given[i];
    return NULL;
}

/* The names, which have bars between, as they are typed: "-m FILE or --json"; values false: "-m or --json". */
static const char *spell(const wf_command *c, const char *names, bool values, char out[128])
{
    size_t n = 0, len;
    for (const char *p = names; *p; p += len + (p[len] == '|')) {
        char name[64];
        len = strcspn(p, "|");
        wf_copy(name, WF_MIN(len + 1, sizeof name), p);
        const wf_opt *opt = wf_opts_find(c, name);
        if (opt && opt->letter) snprintf(name, sizeof name, "%c", opt->letter);
        bool value = values && opt && opt->arg;
        n += (size_t)snprintf(out + n, 128 - n, "%s%s%s%s%s", n ? " or " : "", name[1] ? "--" : "-", name,
                              value ? " " : "", value ? opt->arg : "");
    }
    return out;
}

/* A text that the command takes without an option: its arguments, or what comes in by a pipe or from a file; /dev/null
 * is none. */
static bool has_text(const wf_command *c, const wf_opts *o)
{
    struct stat st;
    if (c->takes_args && o->n_args) return true;
    return c->reads_stdin && !fstat(STDIN_FILENO, &st) &&
           (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

bool wf_rule_conflicts(const wf_command *c, const wf_opts *o, const char *name)
{
    if (has_name("prompt|file", name) && wf_opts_find(c, "prompt") && has_text(c, o)) return true;
    for (size_t i = 0; i < WF_LEN(rivals); i++) {
        bool here = !rivals[i].commands || has_name(rivals[i].commands, c->name);
        if (here && has_name(rivals[i].one, name) && find_given(o, rivals[i].other)) return true;
        if (here && has_name(rivals[i].other, name) && find_given(o, rivals[i].one)) return true;
    }
    return false;
}

const char *wf_rule_needs(const wf_command *c, const char *name, size_t which)
{
    for (size_t i = 0; i < WF_LEN(needs); i++)
        if (has_name(needs[i].commands, c->name) && has_name(needs[i].names, name) && !which--) return needs[i].needed;
    return NULL;
}

int wf_rules_check(const wf_command *c, const wf_opts *o)
{
    char one[128], other[128];
    for (size_t i = 0; i < WF_LEN(rivals); i++) {
        const wf_opt *a = find_given(o, rivals[i].one), *b = find_given(o, rivals[i].other);
        if (a && b && !rivals[i].may_be_typed && (!rivals[i].commands || has_name(rivals[i].commands, c->name)))
            return wf_usage(c, "%s and %s conflict: use one of them", spell(c, a->name, false, one),
                            spell(c, b->name, false, other));
    }
    for (size_t i = 0; i < WF_LEN(needs); i++) {
        const wf_opt *a = has_name(needs[i].commands, c->name) ? find_given(o, needs[i].names) : NULL;
        if (a && *needs[i].needed && !find_given(o, needs[i].needed))
            return wf_usage(c, "%s needs %s", spell(c, a->name, false, one), spell(c, needs[i].needed, true, other));
    }
    return 0;
}
