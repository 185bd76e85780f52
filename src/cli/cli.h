/* cli: shared by all commands: options as data, exit codes, opening models and engines, output.
 *
 * The program sees the engine only through <weft/weft.h> and <weft/tune.h>. One file per command
 * holds its own option rows and its function; rows that several commands take are in groups.c.
 */
#ifndef WF_CLI_H
#define WF_CLI_H

#include "base/base.h"
#include "base/progress.h"
#include "serve/serve.h"

#include <weft/tune.h>

/* ---- exit codes: `weft --help` and README list them -------------------------------------------
 */

enum wf_exit {
    WF_EXIT_OK = 0,
    WF_EXIT_RUNTIME = 1,
    WF_EXIT_USAGE = 2,
    WF_EXIT_MODEL = 3,
    WF_EXIT_DEVICE = 4,
    WF_EXIT_LOST = 5,
    WF_EXIT_INTERRUPTED = 130, /* 128 + SIGINT, as shells report it */
};

/* ---- options ----------------------------------------------------------------------------------
 */

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

/* Options of the load generators `bench serve` and `bench throughput`. */
typedef struct wf_load_opts {
    wf_words traces; /* files with request lengths */
    const char *lengths, *policies, *arrivals, *csv, *plot;
    wf_reals rates, percentiles;
    float burstiness, peak_tflops, range_ratio, temperature;
    uint32_t n_requests, max_concurrency, n_warmups, n_large;
    uint64_t large_bytes;
    uint32_t input_len, output_len, prefix_len, text_output_len;
    uint32_t port, timeout_s;
    const char *base_url, *host, *endpoint, *backend, *model, *api_key_file, *extra_body;
    const char *dataset, *dataset_path, *prompts, *metrics, *result_dir, *result_file, *label;
    wf_words goodput, headers;
    bool save, save_detailed, no_bar, insecure;
} wf_load_opts;

/* Values of all options of all commands; zero: not set. */
typedef struct wf_opts {
    bool help, quiet, verbose, list_devices;
    const char *model, *prompt, *file;
    struct weft_engine_params engine; /* -c, -t and the device and testing groups write here */
    struct weft_sampling sampling;
    int32_t n_predict;
    bool ignore_eos, chat;
    const char *system, *chat_template;
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
    bool all_variants, async;
    uint32_t max_size;
    uint64_t rotate;
    uint64_t seed;
    wf_serve_params serve;
    wf_words trusted_proxies;
    const char *scheduling_policy;
    struct weft_explain_params explain; /* of `weft plan` */
    wf_load_opts load;

    const struct wf_opt *given[64]; /* options set, for messages about conflicts */
    size_t n_given;
    char **args; /* positional arguments, for commands that take them */
    size_t n_args;
    const struct wf_command *command;
} wf_opts;

enum wf_opt_kind {
    WF_OPT_FLAG,   /* bool, no argument */
    WF_OPT_TEXT,   /* const char * */
    WF_OPT_CHOICE, /* const char *, one of the values in `arg`, separated by | */
    WF_OPT_I32,
    WF_OPT_U32,
    WF_OPT_U64,
    WF_OPT_SIZE, /* uint64_t bytes: 512M, 4G, 100000 */
    WF_OPT_REAL, /* float */
    WF_OPT_LIST, /* wf_list */
    WF_OPT_REALS, /* wf_reals; "inf" where max is infinite */
    WF_OPT_WORDS, /* wf_words */
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
    bool takes_args;
    int (*run)(const wf_opts *); /* returns an exit code */
} wf_command;

#define WF_GROUP(var, title, rows) const wf_opt_group var = {title, rows, WF_LEN(rows)}

extern const wf_opt_group wf_group_model, wf_group_context, wf_group_threads, wf_group_sampling, wf_group_text, wf_group_special, wf_group_batching,
    wf_group_profile, wf_group_device, wf_group_kernels, wf_group_testing, wf_group_results, wf_group_general;

extern const wf_command wf_cmd_run, wf_cmd_info, wf_cmd_convert, wf_cmd_tokenize, wf_cmd_detokenize, wf_cmd_template,
    wf_cmd_perplexity, wf_cmd_bench, wf_cmd_bench_ops, wf_cmd_bench_throughput, wf_cmd_bench_serve, wf_cmd_tune, wf_cmd_calibrate, wf_cmd_plan, wf_cmd_selftest, wf_cmd_kernels,
    wf_cmd_serve;

/* Parses the arguments after the command name into *o, which the caller has zeroed. Returns 0, or an exit code after printing a
 * message. Call wf_opts_free also after a failure. */
int wf_opts_parse(const wf_command *c, int argc, char **argv, wf_opts *o);
void wf_opts_free(wf_opts *o);
void wf_opts_help(const wf_command *c);
bool wf_opts_has(const wf_opts *o, const char *name); /* was --name set? */
/* Prints a message that points to --help; returns WF_EXIT_USAGE. */
int wf_usage(const wf_command *c, const char *fmt, ...) WF_PRINTF(2, 3);

/* ---- common.c ---------------------------------------------------------------------------------
 */

/* Prints this thread's last error; returns its exit code. */
int wf_say_error(weft_status s);
/* Prints "weft: ..." to stderr, unless -q is set. */
void wf_note(const wf_opts *o, const char *fmt, ...) WF_PRINTF(2, 3);
/* Failures that concern the model file give WF_EXIT_MODEL. */
int wf_open_model(const wf_opts *o, bool vocab_only, struct weft_model **out);
/* Shows a progress bar if p has no on_progress. */
int wf_open_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p,
                   struct weft_engine **out);
/* weft_progress_fn; user: wf_progress, or NULL for none. */
void wf_on_progress(void *user, const char *what, double fraction);
int wf_print_devices(void);
/* Reads the text of -p, -f or, if use_stdin, standard input. *text is malloc'ed. Returns 0 or an exit code. */
/* Reads and checks a chat template; path NULL: none. The caller frees *text. Returns an exit code. */
int wf_read_template(const char *path, char **text);
int wf_read_text(const wf_opts *o, bool use_stdin, char **text, size_t *len);
/* Sets the defaults of --max-num-seqs and --kv-memory for serving. */
void wf_batching_defaults(struct weft_engine_params *p);
/* Makes parameters for weft_bench_ops from the options. */
struct weft_op_params wf_op_params(const wf_opts *o, const char *dtypes, const char *const *shapes, size_t n_shapes);
/* From now on Ctrl-C only sets wf_interrupted; a second one ends the program. */
void wf_catch_interrupt(void);
bool wf_interrupted(void);
/* The storage format of most weight bytes, and a label such as "llama 1.1B Q8_0". */
const char *wf_main_dtype(const struct weft_model *m);
void wf_model_label(const struct weft_model *m, char *buf, size_t cap);
void wf_human(uint64_t n, bool binary, char *buf, size_t cap); /* 1.1B, or 1.02 GiB */
/* Writes to stdout; returns false if it is closed, after which the program ends quietly. */
bool wf_out(const char *text, size_t len);
const char *wf_commit(void);

#endif
