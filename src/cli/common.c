/* common: error messages and exit codes, models, engines, texts and output for all commands. */
#include "cli/cli.h"

#include "base/file.h"
#include "cli/commit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)1 << 30)
#define TEMPLATE_MAX ((size_t)4 << 20)
#define SECOND_NS 500000000u /* a second Ctrl-C comes at least this much later */
#define DEFAULT_SEQS     64
#define DEFAULT_CONTEXTS 8 /* size of the KV cache; few sequences fill their context */

/* ---- messages ---------------------------------------------------------------------------------
 */

static int exit_code(weft_status s)
{
    switch (s) {
    case WEFT_OK:
        return WF_EXIT_OK;
    case WEFT_ERR_ARG:
        return WF_EXIT_USAGE;
    case WEFT_ERR_FORMAT:
    case WEFT_ERR_NOT_FINITE: /* far more often the file's fault than the device's */
    case WEFT_ERR_UNSUPPORTED:
        return WF_EXIT_MODEL;
    case WEFT_ERR_NODEVICE:
        return WF_EXIT_DEVICE;
    case WEFT_ERR_DEVICE:
    case WEFT_ERR_TIMEOUT:
        return WF_EXIT_LOST;
    default:
        return WF_EXIT_RUNTIME;
    }
}

/* Is the word of n characters, a parameter of the library, the option of that name? */
static bool is_option(const wf_opt *opt, const char *word, size_t n)
{
    size_t i = 0;
    while (i < n && opt->name[i] && opt->name[i] == (word[i] == '_' ? '-' : word[i])) i++;
    return i == n && !opt->name[i];
}

/* The option that the user typed, where a message is about the parameter that it set; NULL: it is not about one. */
static const wf_opt *option_of(const char *text)
{
    static const wf_opt_group *const groups[] = {&wf_group_kernels, &wf_group_testing};
    size_t n = strcspn(text, ": ");
    if (text[n] != ':') return NULL;
    for (size_t g = 0; g < WF_LEN(groups); g++)
        for (size_t i = 0; i < groups[g]->n; i++)
            if (is_option(&groups[g]->rows[i], text, n)) return &groups[g]->rows[i];
    return NULL;
}

int wf_say_error(weft_status s)
{
    const char *text = weft_last_error();
    const wf_opt *opt = s == WEFT_ERR_ARG ? option_of(text) : NULL;
    if (opt) fprintf(stderr, "weft: error: --%s%s\n", opt->name, strchr(text, ':'));
    else fprintf(stderr, "weft: error: %s\n", *text ? text : weft_status_name(s));
    return exit_code(s);
}

void wf_note(const wf_opts *o, const char *fmt, ...)
{
    if (o->quiet) return;
    char raw[1024], text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    fprintf(stderr, "weft: %s\n", text);
}

const char *wf_commit(void)
{
    return WEFT_COMMIT;
}

/* ---- models, engines, devices -----------------------------------------------------------------
 */

int wf_open_model(const wf_opts *o, bool vocab_only, struct weft_model **out)
{
    struct weft_model_params p = {.path = o->model, .shape = o->shape, .type = o->type, .layers = o->layers, .vocab_only = vocab_only};
    weft_status s = weft_model_open(&p, out);
    if (!s) return 0;
    wf_say_error(s);
    if (s == WEFT_ERR_ARG && o->shape) return WF_EXIT_USAGE;
    return s == WEFT_ERR_NOMEM || s == WEFT_ERR_INTERNAL ? WF_EXIT_RUNTIME : WF_EXIT_MODEL;
}

void wf_on_progress(void *user, const char *what, double fraction)
{
    if (user) wf_progress_update(user, what, fraction);
}

int wf_open_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p,
                   struct weft_engine **out)
{
    wf_progress bar = {0};
    if (!p.on_progress) p.on_progress = wf_on_progress, p.user = o->quiet ? NULL : &bar;
    weft_status s = weft_engine_open(m, &p, out);
    wf_progress_end(&bar);
    return s ? wf_say_error(s) : 0;
}

int wf_print_devices(void)
{
    static const char *const types[] = {"CPU", "GPU", "other"};
    struct weft_device_info list[64];
    size_t n = weft_devices(list, WF_LEN(list));
    if (!n) {
        fprintf(stderr,
                "weft: error: no device found: this build has neither OpenCL nor the CPU backend\n");
        return WF_EXIT_DEVICE;
    }
    for (size_t i = 0; i < WF_MIN(n, WF_LEN(list)); i++) {
        const struct weft_device_info *d = &list[i];
        char memory[32];
        wf_human(d->memory, true, memory, sizeof memory);
        printf("%-12s %-5s %10s  %s (%s)\n", d->id, types[WF_MIN(d->type, WEFT_DEVICE_OTHER)],
               memory, d->name, d->platform);
    }
    return 0;
}

void wf_batching_defaults(struct weft_engine_params *p)
{
    if (!p->n_seqs) p->n_seqs = DEFAULT_SEQS;
    p->kv_seqs = DEFAULT_CONTEXTS;
}

struct weft_op_params wf_op_params(const wf_opts *o, const char *dtypes, const char *const *shapes,
                                   size_t n_shapes)
{
    return (struct weft_op_params){.device = o->engine.device,
                                   .tier = o->engine.tier,
                                   .threads = o->engine.threads,
                                   .force = o->engine.force,
                                   .tuned = o->engine.tuned,
                                   .no_kernel_cache = o->engine.no_kernel_cache,
                                   .deterministic = o->engine.deterministic,
                                   .dtypes = dtypes,
                                   .shapes = shapes,
                                   .n_shapes = n_shapes};
}

/* ---- Ctrl-C -----------------------------------------------------------------------------------
 */

static volatile sig_atomic_t interrupted;

/* Some process managers deliver the signal twice at once: only a later one counts as the second. */
static void on_interrupt(int sig)
{
    static volatile uint64_t first_ns;
    (void)sig;
    uint64_t now = wf_now_ns();
    if (interrupted && now - first_ns > SECOND_NS) _exit(WF_EXIT_INTERRUPTED);
    if (!interrupted) first_ns = now;
    interrupted = 1;
}

void wf_catch_interrupt(void)
{
    struct sigaction sa = {.sa_handler = on_interrupt};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

bool wf_interrupted(void)
{
    return interrupted;
}

/* ---- names and sizes --------------------------------------------------------------------------
 */

void wf_human(uint64_t n, bool binary, char *buf, size_t cap)
{
    static const char *const binary_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const units[] = {"", "K", "M", "B", "T"};
    double v = (double)n, base = binary ? 1024 : 1000;
    size_t u = 0;
    for (; v >= base && u + 1 < WF_LEN(units); u++) v /= base;
    if (binary)
        snprintf(buf, cap, u ? "%.2f %s" : "%.0f %s", v, binary_units[u]);
    else
        snprintf(buf, cap, v < 10 && u ? "%.1f%s" : "%.0f%s", v, units[u]);
}

const char *wf_main_dtype(const struct weft_model *m)
{
    const char *names[32];
    uint64_t bytes[32] = {0}, most = 0;
    size_t n = 0, n_tensors = weft_model_info(m)->n_tensors;
    const char *best = "";
    for (size_t i = 0; i < n_tensors; i++) {
        struct weft_tensor_info t;
        weft_model_tensor(m, i, &t);
        size_t k = 0;
        while (k < n && strcmp(names[k], t.dtype)) k++;
        if (k == WF_LEN(names)) continue;
        if (k == n) names[n++] = t.dtype;
        bytes[k] += t.bytes;
        if (bytes[k] > most) most = bytes[k], best = names[k];
    }
    return best;
}

void wf_model_label(const struct weft_model *m, char *buf, size_t cap)
{
    const struct weft_model_info *i = weft_model_info(m);
    char params[32];
    wf_human(i->n_params, false, params, sizeof params);
    snprintf(buf, cap, "%s %s %s", i->arch, params, wf_main_dtype(m));
}

/* ---- text in and out --------------------------------------------------------------------------
 */

int wf_read_text(const wf_opts *o, bool use_stdin, char **text, size_t *len)
{
    if (o->prompt && o->file)
        return wf_usage(o->command, "-p and -f conflict: use one of them");
    if (o->prompt) {
        *text = wf_strdup(o->prompt);
        *len = strlen(o->prompt);
        return *text ? 0 : wf_say_error(WEFT_ERR_NOMEM);
    }
    bool is_stdin = o->file ? !strcmp(o->file, "-") : use_stdin;
    weft_status s = is_stdin ? wf_read_fd(STDIN_FILENO, "standard input", TEXT_MAX, text, len)
                             : wf_read_file(o->file, TEXT_MAX, text, len);
    return s ? wf_say_error(s) : 0;
}

/* One that cannot be parsed is refused before any model is opened. */
int wf_read_template(const char *path, char **text)
{
    size_t len = 0;
    if (!path) return 0;
    weft_status s = wf_need_regular(path);
    if (!s) s = wf_read_file(path, TEMPLATE_MAX, text, &len);
    if (!s && strlen(*text) != len) s = wf_fail(WEFT_ERR_ARG, "%s has a zero byte, so it is no text", path);
    if (!s) s = weft_chat_check(NULL, *text);
    return s ? wf_say_error(wf_fail_param(s, "--chat-template")) : 0;
}

bool wf_out(const char *text, size_t len)
{
    return fwrite(text, 1, len, stdout) == len && !fflush(stdout);
}
