/* rules: which settings go with what is typed or piped, from tables of options that conflict and of those that need
 * others. See cli.h.
 *
 * The commands check the same of what is typed, where a conflict is a mistake to be told; a setting for all runs is
 * left out. */
#include "cli/cli.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One of each side is taken. commands: of these only; NULL: of all. */
static const struct {
    const char *one, *other, *commands;
} rivals[] = {
    {"quiet", "verbose", NULL},
    {"prompt", "file", NULL},
    {"prompt|file", "tokens", NULL},
    {"model", "shape", NULL},
    {"base-url", "host|port", NULL},
    {"cost", "search|profile", "plan"},
    {"search", "profile", "plan"},
    {"timeline", "cost|search", "plan"},
    {"cost|search|profile", "plan", "plan"},
    {"on", "device", "plan"},
    {"overlap", "file|repetitions|dataset-path", NULL},
};

/* In these commands the options have no meaning without one of the needed ones. */
static const struct {
    const char *commands, *names, *needed;
} needs[] = {
    {"info|bench|bench throughput|bench ablation|plan", "type", "shape"},
    {"bench|bench ops", "peer", "results"},
    {"bench throughput", "request-rate", "arrivals"},
    {"bench throughput", "arrivals", "request-rate|dataset-path"},
    {"info",
     "ctx-size|max-num-seqs|kv-memory|gpu-memory-utilization|max-num-batched-tokens|policy|attention-windows|f16-"
     "residual",
     "model|shape|json"},
    {"kernels|tune", "type", "shape"},
    {"perplexity", "tokens", "logits"},
    {"perplexity", "logits", "tokens"},
    {"plan", "json", "cost|profile"},
    {"plan", "on|const", "cost"},
    {"plan", "output|seconds", "search"},
    {"plan", "timeline", ""}, /* a setting for all runs is of engines that run; that of one step has to be typed */
    {"tune", "profile|output|context", "overlap"},
    {"tune", "max-num-seqs|max-num-batched-tokens|kv-memory|deterministic|f16-residual|ctx-size",
     "overlap|dataset-path"},
    {"tune", "dataset-path", ""}, /* a setting for all runs is of those that run loads */
};

static bool has_name(const char *names, const char *name) { return wf_choice_has(names, name, strlen(name)); }

static bool any_typed(const wf_opts *o, const char *names)
{
    for (size_t i = 0; i < o->n_given; i++)
        if (has_name(names, o->given[i]->name)) return true;
    return false;
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
        if (here && has_name(rivals[i].one, name) && any_typed(o, rivals[i].other)) return true;
        if (here && has_name(rivals[i].other, name) && any_typed(o, rivals[i].one)) return true;
    }
    return false;
}

const char *wf_rule_needs(const wf_command *c, const char *name, size_t which)
{
    for (size_t i = 0; i < WF_LEN(needs); i++)
        if (has_name(needs[i].commands, c->name) && has_name(needs[i].names, name) && !which--) return needs[i].needed;
    return NULL;
}
