/* cli: shared by all commands: options as data, exit codes, opening models and engines, output.
 *
 * The program sees the engine only through <weft/weft.h> and lab/lab.h. One file per command holds its own option rows
 * and its function; rows that several commands take are in groups.c. */
#ifndef WF_CLI_H
#define WF_CLI_H

#include "base/base.h"
#include "base/progress.h"
#include "base/text.h"
#include "lab/lab.h"
#include "loadgen/client.h"
#include "serve/serve.h"

#include <weft/debug.h>

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- exit codes: `weft --help` and README list them ------------------------------------------ */

enum wf_exit {
    WF_EXIT_OK, WF_EXIT_RUNTIME, WF_EXIT_USAGE, WF_EXIT_MODEL, WF_EXIT_DEVICE, WF_EXIT_LOST,
    WF_EXIT_INTERRUPTED = 130, /* 128 + SIGINT, as shells report it */
};

/* ---- options --------------------------------------------------------------------------------- */

typedef struct wf_list { /* comma-separated numbers */
    uint32_t *v;
    size_t n;
} wf_list;

typedef struct wf_reals { /* the same, floating point */
    double *v;
    size_t n;
} wf_reals;

typedef struct wf_words { /* values of a repeatable option */
    const char **v;
    size_t n, cap;
} wf_words;

struct wf_opt;

/* Options of the load generators `bench serve` and `bench throughput`, but for what wf_opts.client has. */
typedef struct wf_load_opts {
    wf_words traces; /* files with request lengths */
    const char *lengths, *policies, *arrivals;
    wf_reals rates, percentiles;
    float peak_tflops;
    uint32_t rounds, round_tokens; /* of conversations in `bench throughput`; of later prompts, 0: as the first */
    float think_s;
    uint32_t n_requests, port;
    const char *cost_on; /* a device of the cost model; NULL: found by the name of the present one */
    const char *host, *api_key_file, *dataset, *prompts;
    wf_words goodput, headers;
} wf_load_opts;

/* Values of all options of all commands; zero: not set. */
typedef struct wf_place { /* a file, and how large it may become */
    char path[PATH_MAX];
    uint64_t bytes; /* 0: none */
} wf_place;

typedef struct wf_opts {
    bool help, quiet, verbose;
    const char *model, *prompt, *file;
    struct weft_engine_params engine; /* -c, -t and the device and testing groups write here */
    struct weft_debug debug;          /* the same; wf_open_engine adds it */
    wf_place kv_disk;
    struct weft_sampling sampling;
    int32_t n_predict;
    bool ignore_eos, chat, raw, hide_thoughts;
    const char *system, *chat_template, *context_shift;
    struct { /* what answers of `weft run` are kept to */
        const char *schema, *grammar, *regex;
        enum weft_grammar kind;
        char *text; /* of the file, or the pattern */
        size_t len;
    } format;
    struct { /* of `weft template` */
        const char *messages, *tools, *kwargs, *bos, *eos, *now;
        bool add_generation_prompt;
    } conversation;
    bool no_add_special, no_parse_special, hide_special;
    wf_list tokens;
    const char *logits;
    uint32_t chunks;
    wf_list n_prompt, n_gen, threads;
    uint32_t repeat, n_seqs;
    const char *output, *results, *peer, *write_to;
    const char *ops, *dtypes, *variant, *type, *shape;
    uint32_t layers;
    bool force;
    wf_words shapes;
    bool async;
    uint32_t max_size, work_groups;
    uint64_t rotate;
    uint64_t seed;
    bool random_seed; /* --seed -1 */
    wf_serve_params serve;
    wf_words trusted_proxies, api_keys, model_names, allow, adapters;
    wf_words own; /* texts of values that were put together */
    const char *scheduling_policy, *draft_model, *hosts;
    struct weft_explain_params explain; /* of `weft plan` */
    bool cost, json;                    /* and its other view, */
    struct weft_cost_params costs;
    struct weft_search_params search;
    struct { /* of `weft simulate`; 0: 1 */
        uint32_t pp, replicas;
    } cluster;
    const char *print_profile;
    bool overlap;                       /* of `weft tune` */
    struct weft_overlap_params overlaps;
    wf_load_opts load;
    wf_client_params client;
    struct { /* of `weft bench ablation` */
        uint32_t n_parts, context;
    } ablation;
    struct { /* of `weft pull` */
        bool dry_run;
        uint32_t retries, stall_s;
        float retry_s;
    } pull;

    const struct wf_opt *given[64]; /* options set, for messages about conflicts */
    size_t n_given, n_typed; /* n_typed: the first ones, by whoever runs the command; the others by settings */
    char **args; /* positional arguments that set no option */
    size_t n_args;
    bool words_set; /* positional arguments set options */
    const struct wf_command *command;
} wf_opts;

enum wf_opt_kind {
    WF_OPT_FLAG,   /* bool, no argument */
    WF_OPT_TEXT,   /* const char * */
    WF_OPT_CHOICE, /* const char *, one of the values in `arg`, separated by | */
    WF_OPT_I32,
    WF_OPT_U32,
    WF_OPT_U64,
    WF_OPT_SEED, /* uint64_t; -1 sets wf_opts.random_seed */
    WF_OPT_SIZE, /* uint64_t bytes: 512M, 4G, 100000 */
    WF_OPT_REAL, /* float */
    WF_OPT_LIST, /* wf_list */
    WF_OPT_REALS, /* wf_reals; "inf" where max is infinite */
    WF_OPT_WORDS, /* wf_words */
    WF_OPT_PLACE, /* wf_place: PATH:SIZE */
};

/* One option, used for both parsing and help. */
typedef struct wf_opt {
    char letter;      /* 0: none */
    const char *name; /* long name without -- */
    const char *arg;  /* name of the argument in help; NULL: a flag */
    const char *help; /* lines are wrapped when printed */
    enum wf_opt_kind kind;
    size_t at;       /* offsetof(wf_opts, field) */
    double min, max; /* of numbers, both inclusive */
    const char *words; /* what its value can be, for completions: between blanks; NULL: `arg` says it, or nobody can */
} wf_opt;

typedef struct wf_opt_group {
    const char *title;
    const wf_opt *rows;
    size_t n;
} wf_opt_group;

typedef struct wf_command {
    const char *name; /* one word, or two: "bench ops" */
    const char *usage, *summary;
    const char *more;                  /* text at the end of the help, or NULL */
    const wf_opt_group *const *groups; /* NULL-terminated */
    const char *words[2]; /* the options that positional arguments set, in order, but for those given */
    bool explicit_model;  /* it does something else without -m, so a model that is set for all runs is not taken */
    bool takes_args;      /* more of them are left in wf_opts.args */
    bool reads_stdin;     /* standard input is the text where no option names one */
    int (*run)(const wf_opts *); /* returns an exit code */
} wf_command;

extern const char wf_file_types[], wf_weight_types[], wf_shape_names[]; /* as words of wf_opt, in tables.c */

/* In rows of options: a field of wf_opts, and the most of a number that has no limit. */
#define AT(field) offsetof(wf_opts, field)
#define MANY      2147483647.0
#define WF_GROUP(var, title, rows) const wf_opt_group var = {title, rows, WF_LEN(rows)}

extern const wf_opt_group wf_group_model, wf_group_shape, wf_group_context, wf_group_threads, wf_group_sampling,
    wf_group_sampling_defaults, wf_group_text, wf_group_special, wf_group_batching, wf_group_draft, wf_group_adapters,
    wf_group_profile, wf_group_device, wf_group_parallel, wf_group_kernels, wf_group_testing, wf_group_results,
    wf_group_general;

extern const wf_opt_group wf_environment; /* environment.c: its rows are variables */

extern const wf_command wf_cmd_embed, wf_cmd_grammar_check, wf_cmd_kv, wf_cmd_simulate;
extern const wf_command wf_cmd_run, wf_cmd_info, wf_cmd_convert, wf_cmd_tokenize, wf_cmd_detokenize, wf_cmd_template,
    wf_cmd_perplexity, wf_cmd_bench, wf_cmd_bench_ops, wf_cmd_bench_throughput, wf_cmd_bench_serve,
    wf_cmd_bench_ablation, wf_cmd_tune, wf_cmd_calibrate, wf_cmd_plan, wf_cmd_selftest, wf_cmd_kernels, wf_cmd_serve,
    wf_cmd_config, wf_cmd_list, wf_cmd_ps, wf_cmd_pull, wf_cmd_report, wf_cmd_version;

/* Parses the arguments after the command name into *o, which the caller has zeroed. Returns 0, or an exit code after
 * printing a message. Call wf_opts_free also after a failure. */
int wf_opts_parse(const wf_command *c, int argc, char **argv, wf_opts *o);
int wf_opts_environment(const wf_command *c, wf_opts *o); /* the same of the variables of environment.c */
void wf_opts_free(wf_opts *o);
void wf_opts_help(const wf_command *c);
void wf_opts_help_variables(void); /* wf_environment */
void wf_print_wrapped(FILE *out, const char *text, int indent); /* to 80 columns; the cursor is at `indent` */
bool wf_opts_has(const wf_opts *o, const char *name);           /* was --name set? */
bool wf_opts_typed(const wf_opts *o, const char *name);         /* by whoever runs the command? */
bool wf_opts_has_same(const wf_opts *o, const wf_opt *opt);     /* or another option that sets the same? */
const wf_opt *wf_opts_find(const wf_command *c, const char *name); /* NULL: the command has no such option */
/* The same, also by a name of other programs; NULL after a message that says what was meant. */
const wf_opt *wf_opts_meant(const wf_command *c, const char *name);
/* Sets one option as --name value would; value NULL: of a flag; from: where it is set, for the message, or NULL as in a
 * chat, where the last word counts. Returns 0, or an exit code after printing a message. */
int wf_opts_set(const wf_command *c, const char *name, const char *value, const char *from, wf_opts *o);
void wf_opt_value(const wf_opt *opt, const wf_opts *o, char *buf, size_t cap); /* as text that can be typed */
void wf_opt_allowed(const wf_opt *opt, char *buf, size_t cap); /* of a number or a choice: "a number from 0 to 1" */
bool wf_choice_has(const char *choices, const char *word, size_t len); /* is the word one of those between | ? */
/* Prints a message that points to --help; returns WF_EXIT_USAGE. */
int wf_usage(const wf_command *c, const char *fmt, ...) WF_PRINTF(2, 3);

/* ---- foreign.c: what users of other programs type ---------------------------------------------- */

typedef struct wf_foreign {
    const char *ours;   /* the name of an option with the same meaning and values; NULL: */
    const char *part;   /* of its value, which goes before what is typed, if it ends in = or :, else is all of it */
    bool already;       /* a flag for what weft always does; false: */
    const char *harmless; /* the values with which it changes nothing, see foreign.def; NULL: none */
    const char *answer; /* what to do instead */
} wf_foreign;

/* The option, with its dashes, or the command that the word is in another program; NULL: none. */
const wf_foreign *wf_foreign_find(bool command, const char *word, size_t len);
/* Names in other programs of options that the command has, without dashes, written into text. Returns their number. */
size_t wf_foreign_names(const wf_command *c, char *text, size_t cap, const char **names, size_t most);
/* In options.c: the option that a word with its dashes means, as the first command has it that understands the word;
 * *foreign: NULL, or what it is in another program. */
const wf_opt *wf_opts_meaning(const char *word, const wf_foreign **foreign);
bool wf_takes_value(const wf_opt *opt, const wf_foreign *foreign); /* foreign: what was typed, or NULL */
bool wf_foreign_harmless(const wf_foreign *f, const char *value); /* value NULL: none is given */
void wf_opts_nearest(const char *word, char *out, size_t cap); /* as wf_nearest, among the options of all commands */

/* ---- sampling.c -------------------------------------------------------------------------------- */

/* As weft_model_sampling; chat: where the model states none, that of chats in other programs for weft's defaults. */
unsigned wf_model_sampling(const struct weft_model *m, bool chat, struct weft_sampling *s);
struct weft_sampling wf_sampling_of(const wf_opts *o, const struct weft_model *m, bool chat); /* the options over it */
/* Writes fields (bits of weft_sampling_field) as "temp 0.6, top-k 20"; returns the length. */
size_t wf_sampling_print(const struct weft_sampling *s, unsigned which, char *buf, size_t cap);
/* All that is not off, as one line: "greedy", "temp 0.6, top-k 20". */
void wf_sampling_summary(const struct weft_sampling *s, char *buf, size_t cap);

/* ---- settings.c, rules.c: options set for all runs --------------------------------------------- */

/* Each returns 0, or an exit code after printing a message. */
int wf_settings_read(void);
int wf_settings_apply(const wf_command *c, wf_opts *o); /* to what the command line has not set */
void wf_settings_free(void);                            /* values of wf_opts point into the settings */
/* Does something typed or piped go against a setting of that name? */
bool wf_rule_conflicts(const wf_command *c, const wf_opts *o, const char *name);
/* Options, separated by |, one of which an option of that name needs in that command; which: 0, 1, ... NULL: it needs
 * no more. */
const char *wf_rule_needs(const wf_command *c, const char *name, size_t which);
int wf_rules_check(const wf_command *c, const wf_opts *o); /* of what is given; 0, or an exit code after a message */

/* ---- pull.c ------------------------------------------------------------------------------------ */

/* Fetches what -hf names, unless it is there. */
int wf_pull_model(const wf_opts *o, const char *source, char path[PATH_MAX]);

/* ---- cost.c, timeline.c: views of `weft plan`, which return an exit code ------------------------ */

int wf_plan_cost(const wf_opts *o, const struct weft_model *m);
int wf_timeline_check(const wf_opts *o); /* of the file's name and that it can be written, before work begins */
int wf_plan_timeline(const wf_opts *o, const struct weft_model *m, struct weft_engine *e);

/* ---- hint.c, nearest.c, tables.c, main.c -------------------------------------------------------- */

/* Writes what helps where the model cannot be opened; "" where the error says all. */
void wf_model_hint(const wf_opts *o, weft_status s, char *out, size_t cap);
#define WF_NEAREST 3
/* Writes "; did you mean --a or --b?" with the names, up to WF_NEAREST, that the word is close to; "": none is. */
void wf_nearest(char *out, size_t cap, const char *dashes, const char *word, const char *const *names, size_t n);
int wf_print_tables(void);                   /* returns an exit code */
extern const wf_command *const wf_commands[]; /* NULL-terminated */

/* ---- interrupt.c: signals that ask for an end -------------------------------------------------- */

void wf_catch_interrupt(void); /* from now on Ctrl-C only sets wf_interrupted; a second one ends the program */
/* The same also of SIGTERM, and SIGHUP, which a closed terminal sends; for what must not leave files behind. handler:
 * instead of setting it. */
void wf_catch_end(void (*handler)(int sig));
bool wf_interrupted(void);
bool wf_ask_interrupted(void *user);        /* the same, as a weft_stop_fn */
int wf_interrupted_exit(void);              /* the exit code of that signal, as shells report it */
void wf_wait_for(sem_t *wake, uint64_t ns); /* for this long at most */

#define WF_LOADING_SIGNALS 2
typedef struct wf_loading { /* of a model or an engine */
    const wf_opts *o;
    struct sigaction before[WF_LOADING_SIGNALS];
    pthread_t watcher;
    bool watched; /* by the thread above; false: by somebody else */
    atomic_bool done;
} wf_loading;
/* Until wf_loading_end Ctrl-C and SIGTERM set wf_interrupted, are answered at once, and end the program within half a
 * second: *ask becomes what the library is to ask whether to stop, unless there is something already. */
void wf_loading_begin(const wf_opts *o, wf_loading *l, weft_stop_fn *ask);
bool wf_loading_end(wf_loading *l); /* true: such a signal came, even if all is loaded */

/* ---- common.c ---------------------------------------------------------------------------------- */

int wf_say_error(weft_status s); /* prints this thread's last error; returns its exit code */
/* The same where a model could not be opened: says what helps, and returns WF_EXIT_MODEL where the file is to blame. */
int wf_say_model_error(const wf_opts *o, weft_status s);
/* The same of what prints to standard output; what cannot be printed is for wf_end_output, and may be no failure. */
int wf_say_print_error(weft_status s);
/* Prints "weft: ..." to stderr, unless -q is set. */
void wf_note(const wf_opts *o, const char *fmt, ...) WF_PRINTF(2, 3);
/* Failures of the model file give WF_EXIT_MODEL. A stop in o->engine takes the place of Ctrl-C and SIGTERM. */
int wf_open_model(const wf_opts *o, bool vocab_only, struct weft_model **out);
/* What results say of a model without a file, behind what was measured of it: ",L=2,llama3-8b"; "": it is a file's. */
void wf_shape_suffix(const wf_opts *o, char *buf, size_t cap);
/* The context of -c, the model's own for -c 0; 0: not given. */
uint32_t wf_context_of(const wf_opts *o, const struct weft_model *m);
/* Without messages. WEFT_ERR_CANCELLED: a signal ended it, which was said (interrupt.c). */
weft_status wf_try_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p,
                          struct weft_engine **out);
/* As wf_try_engine, with messages; shows a progress bar if p has no on_progress. */
int wf_open_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p, struct weft_engine **out);
/* As `weft serve` would open it, but with times of the device, and steps whole: for what measures plans. */
int wf_open_profiled(const wf_opts *o, const struct weft_model *m, struct weft_engine **out);
/* For results that are compared digit by digit: without an option no ranges but those of the file beside the model. */
void wf_only_calibrated(const struct weft_model *m, struct weft_engine_params *p);
/* weft_progress_fn; user: wf_progress, or NULL for none. */
void wf_on_progress(void *user, const char *what, double fraction);
/* The same of what also gets rows: user begins with a wf_measuring. */
typedef struct wf_measuring {
    const wf_opts *o;
    wf_progress bar;
} wf_measuring;
void wf_on_measuring(void *user, const char *what, double fraction);
/* Checks of a self-test, of which those of an op come one after another: selftest.c. */
typedef struct wf_tally {
    char op[32];          /* the present op */
    size_t op_ok, op_all; /* its checks */
    size_t ok, all;
    void (*on_op)(const struct wf_tally *t); /* at the end of each op */
} wf_tally;
void wf_tally_add(wf_tally *t, const struct weft_selftest_row *r);
void wf_tally_end(wf_tally *t);
/* Tokens of a prompt that are done since `before`, by whole steps, in which nothing else may run. */
size_t wf_prompt_done(const struct weft_engine *e, const struct weft_stats *before, size_t n_prompt);
/* False: the device hangs, of which weft_wait() does not tell, or Ctrl-C was pressed. */
bool wf_goes_on(const struct weft_engine *e);
int wf_print_devices(void);
/* hosts.c: `weft serve` on the hosts of WEFT_HOSTS; argv: words behind the command. Returns an exit code. */
int wf_hosts_serve(const wf_opts *o, int argc, char **argv);
/* In a process that it may have started: at its beginning, and at its end. */
void wf_hosts_begin(void);
void wf_hosts_end(int rc);
/* Reads and checks a chat template; path NULL: none. The caller frees *text. Returns an exit code. */
int wf_read_template(const char *path, char **text);
/* --chat-template '?': says what can be there and what the model has. Returns an exit code. */
bool wf_asks_template(const char *path);
int wf_explain_template(const wf_opts *o);
/* Reads the text of -p, -f or, if the command reads it, standard input. *text is malloc'ed. 0 or an exit code. */
int wf_read_text(const wf_opts *o, char **text, size_t *len);
/* Sets the context that -c means, and as many sequences and as large a KV cache as the device has memory for. */
void wf_batching_defaults(const wf_opts *o, const struct weft_model *m, struct weft_engine_params *p);
struct weft_op_params wf_op_params(const wf_opts *o, const char *dtypes, const char *const *shapes, size_t n_shapes);
/* Flushes standard output; returns rc, or after printing a message a failure if not all of it could be written. */
int wf_end_output(int rc);
_Noreturn void wf_exit_now(int rc); /* after that */
/* The storage formats of a model's tensors, in the order in which they come. Returns their number. */
#define WF_FORMATS 32
typedef struct wf_storage {
    const char *dtype;
    size_t n; /* tensors */
    uint64_t bytes;
} wf_storage;
size_t wf_formats(const struct weft_model *m, wf_storage f[WF_FORMATS]);
const char *wf_main_dtype(const struct weft_model *m);  /* of most weight bytes */
const char *wf_weight_type(const struct weft_model *m); /* what the file calls its mix of them, else that */
void wf_model_label(const struct weft_model *m, char *buf, size_t cap); /* "llama 1.1B Q4_K_M" */
bool wf_ends_in(const char *path, const char *end);                     /* with something in front */
/* Writes to stdout; returns false if it is closed, after which the program ends quietly. */
bool wf_out(const char *text, size_t len);
/* Text of a model or its file: on a terminal what could command it comes as escapes (\x1b), but for line ends and tabs;
 * elsewhere it is as it is. */
bool wf_out_shown(const char *text, size_t len);
void wf_show_text(wf_text *out, const char *text, size_t len); /* that of a terminal */
/* The word as a shell takes it: in quotes, if it has to be. */
const char *wf_quoted(const char *word, size_t len, char *buf, size_t cap);
const char *wf_commit(void);

#endif
