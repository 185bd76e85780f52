/* weft: the program. Finds the command in the table, parses its options, runs it. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/options.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const wf_command *const wf_commands[] = { /* in the order of `weft --help` */
    &wf_cmd_run,        &wf_cmd_serve,       &wf_cmd_info,           &wf_cmd_convert,          &wf_cmd_tokenize,
    &wf_cmd_detokenize, &wf_cmd_embed,       &wf_cmd_template,       &wf_cmd_perplexity,       &wf_cmd_bench,
    &wf_cmd_bench_ops,  &wf_cmd_bench_throughput, &wf_cmd_bench_serve, &wf_cmd_bench_ablation, &wf_cmd_tune,
    &wf_cmd_calibrate,  &wf_cmd_plan,        &wf_cmd_simulate,       &wf_cmd_selftest,         &wf_cmd_report,
    &wf_cmd_kernels,    &wf_cmd_pull,        &wf_cmd_list,           &wf_cmd_ps,               &wf_cmd_kv,
    &wf_cmd_config,     &wf_cmd_grammar_check, &wf_cmd_version,      NULL};

static int print_version(const wf_opts *o)
{
    (void)o;
    printf("weft %s (%s)\n", weft_version(), wf_commit());
    return 0;
}

static const wf_opt_group *const version_groups[] = {&wf_group_general, NULL};
const wf_command wf_cmd_version = {
    .name = "version",
    .usage = "[options]",
    .summary = "Prints the version.",
    .groups = version_groups,
    .run = print_version,
};

/* A command and the first sentence of what it does. */
static void print_command(FILE *out, const wf_command *c)
{
    char sentence[512];
    const char *end = strstr(c->summary, ". ");
    wf_copy(sentence, WF_MIN(sizeof sentence, end ? (size_t)(end - c->summary) + 1 : strlen(c->summary)), c->summary);
    fprintf(out, "  %-16s ", c->name);
    wf_print_wrapped(out, sentence, 19);
}

static void print_help(FILE *out)
{
    fprintf(out, "Usage: weft COMMAND [options]\n\n"
                 "Runs large language models, in GGUF files and in folders of safetensors, on\n"
                 "OpenCL devices and on plain CPUs.\n\n"
                 "Commands (`weft help COMMAND` has the details):\n");
    for (size_t i = 0; wf_commands[i]; i++) print_command(out, wf_commands[i]);
    fprintf(out, "\nOptions:\n"
                 "  --list-devices  list the devices and exit\n"
                 "  --version       print the version and exit\n"
                 "  -h, --help      print this help and exit\n\n"
                 "Variables (`weft help config` and `weft help list` say more):\n"
                 "  WEFT_MODEL, WEFT_DEVICE   the model and the device where no option names them\n"
                 "  WEFT_API_KEY              a key that `weft serve` requires of its clients\n"
                 "  WEFT_CONFIG, WEFT_MODELS  the settings file and the folder of models\n"
                 "  WEFT_HISTORY              what was typed in chats; empty: not kept\n"
                 "`weft help variables` has those for testing and measuring.\n\n"
                 "Exit codes:\n"
                 "  0    success, also if the reader of standard output closed the pipe\n"
                 "  1    runtime failure, such as too little memory or a prompt longer than the\n"
                 "       context; for selftest, a kernel that fails its check\n"
                 "  2    invalid command line\n"
                 "  3    the model file cannot be read, is malformed or is not supported\n"
                 "  4    the selected device does not exist or cannot be used\n"
                 "  5    the device failed or timed out\n"
                 "  130  stopped by Ctrl-C\n");
}

/* Finds a command of one or two words, such as "bench ops"; *words: how many. */
static const wf_command *find_command(int argc, char **argv, int *words)
{
    char two[64] = "";
    const wf_command *found = NULL;
    if (argc > 2) snprintf(two, sizeof two, "%s %s", argv[1], argv[2]);
    for (size_t i = 0; wf_commands[i]; i++) {
        bool both = !strcmp(wf_commands[i]->name, two);
        if (argc < 2 || (!both && (found || strcmp(wf_commands[i]->name, argv[1])))) continue;
        found = wf_commands[i];
        *words = 1 + both;
    }
    return found;
}

/* Prints log lines. -v adds informational ones, each once: devices are searched for several times in a run. */
static bool told_before(const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *told[64];
    static size_t n;
    size_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < n && strcmp(told[i], line)) i++;
    bool before = i < n;
    if (!before && n < WF_LEN(told) && (told[n] = wf_strdup(line))) n++;
    pthread_mutex_unlock(&lock);
    return before;
}

static void log_line(void *user, enum weft_log_level level, const char *line)
{
    static const char *const titles[] = {"error: ", "warning: ", "", ""};
    char text[1024];
    (void)user;
    if (level > WEFT_LOG_WARN && told_before(line)) return;
    wf_name_options(text, sizeof text, line);
    fprintf(stderr, "weft: %s%s\n", titles[level], text);
}

/* ---- processes of mpirun --------------------------------------------------------------------------------------- */

static bool works_together; /* this process, with the others that mpirun started */

/* Several devices are one in each process; who wants one runs as if mpirun were not there. */
static bool wants_others(const wf_opts *o)
{
    uint32_t n;
    wf_process(&n);
    works_together = n > 1 && (o->engine.tensor_parallel > 1 || o->engine.pipeline_parallel > 1);
    if (n > 1 && !works_together) unsetenv("OMPI_COMM_WORLD_SIZE");
    return works_together;
}

static volatile sig_atomic_t told_to_end;

static void note_end(int sig) { told_to_end = sig; }

static bool is_told_to_end(void *unused)
{
    (void)unused;
    return told_to_end;
}

/* WEFT_HOSTS, which is for `weft serve`. */
static int run_on_hosts(const wf_command *c, const wf_opts *o, int argc, char **argv)
{
    if (c == &wf_cmd_serve) return wf_hosts_serve(o, argc, argv);
    return wf_usage(c, "WEFT_HOSTS is for `weft serve`: unset it, or run mpirun --bind-to none --host %s weft %s ...",
                    o->hosts, c->name);
}

/* ---- commands -------------------------------------------------------------------------------------------------- */

static int run_command(const wf_command *c, int argc, char **argv)
{
    wf_opts o = {0};
    int rc = wf_opts_parse(c, argc, argv, &o);
    bool needs_settings = !o.help &&
                          c != &wf_cmd_version; /* what is wrong in the settings must not keep people from these */
    if (!rc && needs_settings) rc = wf_settings_read();
    o.n_typed = o.n_given;
    if (!rc && needs_settings) rc = wf_settings_apply(c, &o);
    if (!rc && needs_settings) rc = wf_rules_check(c, &o);
    if (!rc && needs_settings) rc = wf_opts_environment(c, &o);
    bool follows = !rc && !o.help && wants_others(&o) && wf_process(NULL);
    if (follows) {
        /* One that is not the first: whatever the command, it computes its part of the engines. */
        struct sigaction sa = {.sa_handler = note_end, .sa_flags = SA_RESTART};
        sigaction(SIGINT, &sa, NULL); /* until it has met the first one, which ends it, */
        sigaction(SIGTERM, &sa, NULL); /* perhaps after its last requests */
        weft_log_to(log_line, NULL, WEFT_LOG_WARN);
        wf_stop_by(is_told_to_end, NULL);
        weft_status s = weft_follow();
        rc = s == WEFT_ERR_CANCELLED ? 128 + told_to_end : s ? wf_say_error(s) : 0;
    }
    char path[PATH_MAX];
    bool asked = !follows && o.model && !strncmp(o.model, "-hf:", 4) && !o.help; /* foreign.def */
    if (!rc && asked) rc = wf_pull_model(&o, o.model + 4, path);
    o.model = asked ? path : wf_models_find(o.model, path);
    if (!rc && o.help) {
        wf_opts_help(c);
    } else if (!rc && !follows) {
        bool verbose = o.verbose && !o.quiet;
        weft_log_to(log_line, NULL, verbose ? WEFT_LOG_DEBUG : o.quiet ? WEFT_LOG_ERROR : WEFT_LOG_WARN);
        bool by_hosts = o.hosts && !works_together && wf_opts_find(c, "tp");
        rc = by_hosts ? run_on_hosts(c, &o, argc, argv) : c->run(&o);
    }
    wf_opts_free(&o);
    wf_settings_free();
    return rc;
}

/* What an option or a command may be that is mistyped. */
static void find_nearest(const char *word, char *out, size_t cap)
{
    static const char *const options[] = {"help", "version", "list-devices"};
    const char *names[WF_LEN(wf_commands) + 1];
    size_t n = 0;
    if (*word == '-') {
        wf_nearest(out, cap, "--", word + strspn(word, "-"), options, WF_LEN(options));
        return;
    }
    while (wf_commands[n]) names[n] = wf_commands[n]->name, n++;
    names[n++] = "help";
    wf_nearest(out, cap, "", word, names, n);
}

/* `weft run help`, which is of a command whose first word is not a text, unless it is a file or a model of that name.
 */
static bool wants_help(const wf_command *c, int n, char **words)
{
    bool text = c->words[0] && !strcmp(c->words[0], "prompt");
    char path[PATH_MAX];
    return n == 1 && !text && !strcmp(*words, "help") && access(wf_models_find("help", path), F_OK);
}

static int dispatch_words(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    int words = 0, help = !strcmp(word, "help"); /* weft help [COMMAND] */
    const wf_command *c = find_command(argc - help, argv + help, &words);
    if (c && (help || wants_help(c, argc - 1 - words, argv + 1 + words))) return wf_opts_help(c), 0;
    if (c) return run_command(c, argc - 1 - words, argv + 1 + words);
    if (help && argc > 2 && !strcmp(argv[2], "variables")) return wf_opts_help_variables(), 0;
    if (help && argc > 2) word = argv[2], help = !strcmp(word, "help");
    if (help || !strcmp(word, "--help") || !strcmp(word, "-h")) return print_help(stdout), 0;
    if (!strcmp(word, "--list-devices")) return wf_print_devices();
    if (!strcmp(word, "--version")) return print_version(NULL);
    if (!strcmp(word, "--tables")) return wf_print_tables(); /* for the build, so --help does not name it */
    if (!*word) return print_help(stderr), WF_EXIT_USAGE;
    /* What stands first and is no command: an option, another program's command, a file, or a mistyped command. */
    char shown[256], nearest[160] = "";
    const char *answer = NULL;
    const wf_foreign *f = wf_foreign_find(*word != '-', word, strlen(word));
    wf_show(shown, sizeof shown, word);
    if (f && f->answer) answer = f->answer;
    else if (*word != '-' && !access(word, F_OK))
        answer = "it is a file: `weft run FILE` runs a model, and `weft info FILE` describes it";
    else find_nearest(word, nearest, sizeof nearest);
    if (*word == '-' && !answer && !*nearest)
        answer = "options come behind a command, as in `weft run -m model.gguf -p \"One day\"`";
    fprintf(stderr, "weft: unknown %s '%s'%s%s%s\nSee `weft --help`.\n", *word == '-' ? "option" : "command", shown,
            answer ? ": " : "", answer ? answer : "", nearest);
    return WF_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    /* If a standard descriptor is closed, the next file opened would get its number and our output. Writes to
     * standard output fail then. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_RDWR : O_RDONLY) < 0)
            _exit(WF_EXIT_RUNTIME);
    signal(SIGPIPE, SIG_IGN); /* writes to a closed pipe return an error instead, */
    signal(SIGXFSZ, SIG_IGN); /* and those beyond the largest size that a file may have */
    wf_hosts_begin();
    int rc = wf_end_output(dispatch_words(argc, argv));
    wf_hosts_end(rc);
    if (works_together) weft_follow();
    return rc;
}
