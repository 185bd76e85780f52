/* common: error messages and exit codes, models, engines, texts and output for all commands. */
#include "cli/cli.h"
#include "base/options.h"

#include "base/file.h"
#include "cli/commit.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)1 << 30)
#define TEMPLATE_MAX ((size_t)4 << 20)
#define DEFAULT_UTILIZATION 0.9f /* of the device's memory: the driver, kernels and a screen need some, too */

/* ---- messages -------------------------------------------------------------------------------- */

/* The option or variable that set a parameter of the library, where a message is about it; NULL: it is not about one.
 */
static const wf_opt *option_of(const char *text)
{
    static const wf_opt_group *const groups[] = {&wf_group_kernels, &wf_group_testing, &wf_environment};
    size_t n = strcspn(text, ": ");
    for (size_t g = 0; text[n] == ':' && g < WF_LEN(groups); g++)
        for (size_t i = 0; i < groups[g]->n; i++) {
            const char *name = groups[g]->rows[i].name + (groups[g] == &wf_environment ? strlen("WEFT_") : 0);
            size_t k = 0;
            while (k < n && name[k] &&
                   (name[k] == '-' || name[k] == '_' ? text[k] == '_' : tolower((unsigned char)name[k]) == text[k]))
                k++;
            if (k == n && !name[k]) return &groups[g]->rows[i];
        }
    return NULL;
}

int wf_say_error(weft_status s)
{
    const char *text = wf_last_error();
    const wf_opt *opt = s == WEFT_ERR_ARG ? option_of(text) : NULL;
    if (opt) fprintf(stderr, "weft: error: %s%s%s\n", *opt->name == 'W' ? "" : "--", opt->name, strchr(text, ':'));
    else fprintf(stderr, "weft: error: %s\n", *text ? text : weft_status_name(s));
    switch (s) {
    case WEFT_OK: return WF_EXIT_OK;
    case WEFT_ERR_ARG: return WF_EXIT_USAGE;
    case WEFT_ERR_FORMAT:
    case WEFT_ERR_NOT_FINITE: /* far more often the file's fault than the device's */
    case WEFT_ERR_UNSUPPORTED: return WF_EXIT_MODEL;
    case WEFT_ERR_NODEVICE: return WF_EXIT_DEVICE;
    case WEFT_ERR_DEVICE:
    case WEFT_ERR_TIMEOUT: return WF_EXIT_LOST;
    default: return WF_EXIT_RUNTIME;
    }
}

int wf_say_print_error(weft_status s) { return s == WEFT_ERR_IO && ferror(stdout) ? WF_EXIT_OK : wf_say_error(s); }

void wf_note(const wf_opts *o, const char *fmt, ...)
{
    if (o->quiet) return;
    char raw[1024], text[2048];
    va_list ap;
    va_start(ap, fmt);
    wf_format(raw, sizeof raw, fmt, ap);
    va_end(ap);
    wf_show(text, sizeof text, raw);
    fprintf(stderr, "weft: %s\n", text);
}

const char *wf_commit(void) { return WEFT_COMMIT; }

/* ---- models, engines, devices ---------------------------------------------------------------- */

static weft_status open_model(const wf_opts *o, bool vocab_only, struct weft_model **out)
{
    struct weft_model_params p = {.path = o->model || o->shape ? o->model : WEFT_DEMO,
                                  .shape = o->shape,
                                  .type = o->type,
                                  .layers = o->shape ? o->layers : 0,
                                  .vocab_only = vocab_only,
                                  .stop = o->engine.stop,
                                  .on_progress = o->engine.on_progress,
                                  .user = o->engine.user};
    wf_loading l;
    wf_progress bar = {0};
    if (!p.stop)
        p.on_progress = wf_on_progress, p.user = o->quiet ? NULL : &bar; /* else the user is whose the function is */
    wf_loading_begin(o, &l, &p.stop);
    weft_status s = weft_model_open(&p, out);
    wf_progress_end(&bar);
    if (!wf_loading_end(&l)) return s;
    if (!s) weft_model_close(*out), *out = NULL;
    return WEFT_ERR_CANCELLED;
}

int wf_say_model_error(const wf_opts *o, weft_status s)
{
    char hint[1024], shown[2048];
    wf_say_error(s);
    wf_model_hint(o, s, hint, sizeof hint);
    wf_show(shown, sizeof shown, hint);
    if (*hint) fprintf(stderr, "weft: %s\n", shown);
    return s == WEFT_ERR_NOMEM || s == WEFT_ERR_INTERNAL ? WF_EXIT_RUNTIME : WF_EXIT_MODEL;
}

int wf_open_model(const wf_opts *o, bool vocab_only, struct weft_model **out)
{
    weft_status s = open_model(o, vocab_only, out);
    if (!s) return 0;
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    int code = wf_say_model_error(o, s);
    return s == WEFT_ERR_ARG && o->shape ? WF_EXIT_USAGE : code;
}

void wf_on_progress(void *user, const char *what, double fraction)
{
    if (user && !wf_interrupted()) wf_progress_update(user, what, fraction);
}

void wf_on_measuring(void *user, const char *what, double fraction)
{
    wf_measuring *v = user;
    if (!v->o->quiet) wf_progress_update(&v->bar, what, fraction);
}

bool wf_goes_on(const struct weft_engine *e)
{
    struct weft_stats now;
    weft_engine_stats(e, &now);
    return !now.failed && !wf_interrupted();
}

size_t wf_prompt_done(const struct weft_engine *e, const struct weft_stats *before, size_t n_prompt)
{
    struct weft_stats now;
    weft_engine_stats(e, &now);
    uint64_t done = now.step_tokens - before->step_tokens + now.prefix_hits - before->prefix_hits;
    return (size_t)WF_MIN(done, n_prompt);
}

/* A text NAME=FILE of one that may have no name: it has that of its file. NULL: no memory. */
static char *name_adapter(const char *word, size_t len)
{
    char *text = NULL;
    size_t end = len;
    while (end && word[end - 1] == '/') end--;
    size_t from = end;
    while (from && word[from - 1] != '/') from--;
    size_t stem = end - from;
    if (stem > 5 && !strncmp(word + end - 5, ".gguf", 5)) stem -= 5;
    int n = memchr(word, '=', len) ? asprintf(&text, "%.*s", (int)len, word)
                                   : asprintf(&text, "%.*s=%.*s", (int)stem, word + from, (int)len, word);
    return n < 0 ? NULL : text;
}

/* Those of --lora, beside the number that may come later; the caller frees them. */
static weft_status take_adapters(const wf_opts *o, wf_words *list, struct weft_engine_params *p)
{
    for (size_t i = 0, n; i < o->adapters.n; i++)
        for (const char *at = o->adapters.v[i]; *at; at += n + (at[n] == ',')) {
            n = strcspn(at, ",");
            if (!wf_grow(&list->v, list->n, &list->cap, sizeof *list->v)) return WEFT_ERR_NOMEM;
            if (!(list->v[list->n] = name_adapter(at, n))) return wf_fail(WEFT_ERR_NOMEM, "out of memory");
            list->n++;
        }
    p->adapters = list->v, p->n_adapters = list->n;
    if (p->most_adapters) p->most_adapters += (uint32_t)list->n;
    return WEFT_OK;
}

static weft_status take_draft_model(const wf_opts *o, struct weft_model **out, struct weft_engine_params *p)
{
    enum { USUAL_DRAFTS = 8 };
    char path[PATH_MAX];
    if (!o->draft_model) return WEFT_OK;
    const struct weft_model_params of = {
        .path = wf_models_find(o->draft_model, path), .stop = p->stop, .on_progress = p->on_progress, .user = p->user};
    weft_status s = weft_model_open(&of, out);
    p->draft_model = *out;
    if (!p->draft_tokens) p->draft_tokens = USUAL_DRAFTS;
    return s;
}

weft_status wf_try_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p,
                          struct weft_engine **out)
{
    wf_loading l;
    wf_words adapters = {0};
    p.debug = &o->debug;
    weft_status s = take_adapters(o, &adapters, &p);
    wf_loading_begin(o, &l, &p.stop);
    struct weft_model *draft = NULL;
    if (!s) s = take_draft_model(o, &draft, &p);
    if (!s) s = weft_engine_open(m, &p, out);
    weft_model_close(draft); /* the engine uses it */
    for (size_t i = 0; i < adapters.n; i++) free((char *)(uintptr_t)adapters.v[i]);
    free(adapters.v);
    if (!wf_loading_end(&l)) return s;
    if (!s) weft_engine_close(*out), *out = NULL;
    return WEFT_ERR_CANCELLED;
}

uint32_t wf_context_of(const wf_opts *o, const struct weft_model *m)
{
    return !o->engine.context && wf_opts_has(o, "ctx-size") ? weft_model_info(m)->context : o->engine.context;
}

void wf_only_calibrated(const struct weft_model *m, struct weft_engine_params *p)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s" WEFT_CALIBRATION_SUFFIX, weft_model_info(m)->path);
    if (!p->calibration && ((size_t)n >= sizeof path || access(path, F_OK))) p->calibration = "none";
}

int wf_open_engine(const wf_opts *o, const struct weft_model *m, struct weft_engine_params p, struct weft_engine **out)
{
    wf_progress bar = {0};
    if (!p.context) p.context = wf_context_of(o, m);
    if (!p.on_progress) p.on_progress = wf_on_progress, p.user = o->quiet ? NULL : &bar;
    weft_status s = wf_try_engine(o, m, p, out);
    wf_progress_end(&bar);
    if (s == WEFT_ERR_CANCELLED) return wf_interrupted_exit();
    if (s) return wf_say_error(s);
    if (!p.context && weft_engine_context(*out) < weft_model_info(m)->context)
        wf_note(o, "the context is %u tokens; the model's own, %u, and others are set with -c",
                weft_engine_context(*out), weft_model_info(m)->context);
    return 0;
}

void wf_shape_suffix(const wf_opts *o, char *buf, size_t cap)
{
    char layers[16] = "";
    if (o->layers) snprintf(layers, sizeof layers, ",L=%u", o->layers);
    snprintf(buf, cap, "%s%s%s", layers, o->shape ? "," : "", o->shape ? o->shape : "");
}

enum { MEASURED_CONTEXTS = 8, MEASURED_SEQS = 64, MEASURED_KEYS = 1024 };

/* So many that all sequences have the keys that are measured, or decodes would be measured with a part of them. */
static uint32_t measured_contexts(const wf_opts *o, const struct weft_engine_params *p)
{
    uint32_t keys = o->overlaps.context   ? o->overlaps.context
                    : o->ablation.context ? o->ablation.context
                                          : MEASURED_KEYS;
    uint64_t all = (uint64_t)(p->n_seqs ? p->n_seqs : MEASURED_SEQS) * WF_MIN(keys, p->context);
    return (uint32_t)WF_MAX((all + p->context - 1) / p->context, (uint64_t)MEASURED_CONTEXTS);
}

int wf_open_profiled(const wf_opts *o, const struct weft_model *m, struct weft_engine **out)
{
    struct weft_engine_params p = o->engine;
    wf_batching_defaults(o, m, &p);
    if (!p.context) p.context = WF_MIN(weft_model_info(m)->context, WEFT_DEFAULT_CONTEXT);
    p.profile = true;
    p.nano_batches = 1;
    if (!p.kv_memory && !p.kv_seqs)
        p.kv_seqs = measured_contexts(o, &p); /* and no more: other plans need more memory for activations */
    return wf_open_engine(o, m, p, out);
}

bool wf_ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n > k && !strcmp(path + n - k, end);
}

int wf_print_devices(void)
{
    static const char *const types[] = {"CPU", "GPU", "other"};
    struct weft_device_info list[64];
    size_t n = weft_devices(list, WF_LEN(list));
    if (!n) {
        fprintf(stderr, "weft: error: no device found: this build has neither OpenCL nor the CPU backend\n");
        return WF_EXIT_DEVICE;
    }
    for (size_t i = 0; i < WF_MIN(n, WF_LEN(list)); i++) {
        const struct weft_device_info *d = &list[i];
        printf("%-12s %-5s %10s  %s (%s)\n", d->id, types[WF_MIN(d->type, WEFT_DEVICE_OTHER)],
               WF_HUMAN(d->memory, true), d->name, d->platform);
    }
    return 0;
}

void wf_batching_defaults(const wf_opts *o, const struct weft_model *m, struct weft_engine_params *p)
{
    if (!p->context) p->context = wf_context_of(o, m);
    if (!p->memory_utilization) p->memory_utilization = DEFAULT_UTILIZATION;
    if (o->kv_disk.bytes) p->kv_disk = o->kv_disk.path, p->kv_disk_bytes = o->kv_disk.bytes;
}

struct weft_op_params wf_op_params(const wf_opts *o, const char *dtypes, const char *const *shapes, size_t n_shapes)
{
    return (struct weft_op_params){.device = o->engine.device,
                                   .tier = o->engine.tier,
                                   .threads = o->engine.threads,
                                   .force = o->debug.force,
                                   .tuned = o->engine.tuned,
                                   .no_kernel_cache = o->engine.no_kernel_cache,
                                   .deterministic = o->engine.deterministic,
                                   .kv_dtype = o->engine.kv_dtype,
                                   .dtypes = dtypes,
                                   .shapes = shapes,
                                   .n_shapes = n_shapes};
}

/* ---- the end of output ----------------------------------------------------------------------- */

/* A pipe that its reader closed (head) is not a failure, a full disk is. */
int wf_end_output(int rc)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    bool failed = fflush(stdout) || ferror(stdout);
    if (!failed || (poll(&out, 1, 0) > 0 && out.revents & POLLERR)) return rc;
    fprintf(stderr, "weft: error: cannot write to standard output: it is closed, or its disk is full\n");
    return rc ? rc : WF_EXIT_RUNTIME;
}

void wf_exit_now(int rc) { _exit(wf_end_output(rc)); }

/* ---- names and sizes ------------------------------------------------------------------------- */

size_t wf_formats(const struct weft_model *m, wf_storage f[WF_FORMATS])
{
    size_t n = 0;
    for (size_t i = 0; i < weft_model_info(m)->n_tensors; i++) {
        struct weft_tensor_info t;
        size_t k = 0;
        weft_model_tensor(m, i, &t);
        while (k < n && strcmp(f[k].dtype, t.dtype)) k++;
        if (k == WF_FORMATS) continue;
        if (k == n) f[n++] = (wf_storage){.dtype = t.dtype};
        f[k].n++;
        f[k].bytes += t.bytes;
    }
    return n;
}

const char *wf_main_dtype(const struct weft_model *m)
{
    wf_storage f[WF_FORMATS];
    size_t n = wf_formats(m, f), best = 0;
    for (size_t k = 1; k < n; k++)
        if (f[k].bytes > f[best].bytes) best = k;
    return n ? f[best].dtype : "";
}

const char *wf_weight_type(const struct weft_model *m)
{
    const char *type = weft_model_info(m)->file_type;
    return type ? type : wf_main_dtype(m);
}

void wf_model_label(const struct weft_model *m, char *buf, size_t cap)
{
    const struct weft_model_info *i = weft_model_info(m);
    if (i->shape_type) snprintf(buf, cap, "%s %s", i->name, i->shape_type);
    else snprintf(buf, cap, "%s %s %s", i->arch, WF_HUMAN(i->n_params, false), wf_weight_type(m));
}

/* ---- text in and out ------------------------------------------------------------------------- */

int wf_read_text(const wf_opts *o, char **text, size_t *len)
{
    if (o->prompt) {
        *text = wf_strdup(o->prompt);
        *len = strlen(o->prompt);
        return *text ? 0 : wf_say_error(WEFT_ERR_NOMEM);
    }
    bool is_stdin = o->file ? !strcmp(o->file, "-") : o->command->reads_stdin;
    weft_status s = is_stdin ? wf_read_fd(STDIN_FILENO, "standard input", TEXT_MAX, text, len)
                             : wf_read_file(o->file, TEXT_MAX, text, len);
    return s ? wf_say_error(s) : 0;
}

/* One that cannot be parsed is refused before any model is opened. */
int wf_read_template(const char *path, char **text)
{
    size_t len = 0;
    if (!path) return 0;
    weft_status s = access(path, F_OK)
                        ? wf_fail(WEFT_ERR_IO,
                                  "cannot open %s: %s; it is no name but a file, and --chat-template '?' says more",
                                  path, strerror(errno))
                        : wf_need_regular(path);
    if (!s) s = wf_read_file(path, TEMPLATE_MAX, text, &len);
    if (!s && strlen(*text) != len) s = wf_fail(WEFT_ERR_ARG, "%s has a zero byte, so it is no text", path);
    if (!s) s = weft_chat_check(NULL, *text);
    return s ? wf_say_error(wf_fail_param(s, "--chat-template")) : 0;
}

bool wf_asks_template(const char *path) { return path && !strcmp(path, "?"); }

int wf_explain_template(const wf_opts *o)
{
    struct weft_model *m = NULL;
    int rc = wf_open_model(o, true, &m);
    if (rc) return rc;
    const char *text = weft_model_info(m)->chat_template;
    char name[1024];
    wf_show(name, sizeof name, o->model ? o->model : "the built-in model");
    printf("--chat-template FILE takes a Jinja template in a file, such as the chat_template.jinja of a\n"
           "folder from Hugging Face. Without it the model's own template is used.\n\n");
    if (!text) printf("%s has no template: it continues texts, and chats only with --chat-template FILE.\n", name);
    else if (weft_chat_check(m, NULL)) printf("%s has a template that weft cannot use: %s\n", name, wf_last_error());
    else
        printf("%s has a template of %zu bytes, which weft can use. `weft template` prints what it writes.\n", name,
               strlen(text));
    weft_model_close(m);
    return 0;
}

bool wf_out(const char *text, size_t len) { return fwrite(text, 1, len, stdout) == len && !fflush(stdout); }

void wf_show_text(wf_text *out, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = wf_utf8_len(text + i, len - i);
        bool plain = n && (!wf_utf8_control(text + i, n) || text[i] == '\n' || text[i] == '\t');
        n = WF_MAX(n, (size_t)1);
        if (plain) wf_text_add(out, text + i, n);
        for (size_t k = 0; k < n && !plain; k++) wf_text_print(out, "\\x%02x", (unsigned char)text[i + k]);
    }
}

bool wf_out_shown(const char *text, size_t len)
{
    wf_text shown = {0};
    if (!isatty(STDOUT_FILENO)) return wf_out(text, len);
    wf_show_text(&shown, text, len);
    bool good = !shown.failed && wf_out(shown.data ? shown.data : "", shown.len);
    free(shown.data);
    return good;
}

const char *wf_quoted(const char *word, size_t len, char *buf, size_t cap)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:@%+=,";
    size_t n = 0;
    if (len && strspn(word, plain) >= len) return snprintf(buf, cap, "%.*s", (int)len, word), buf;
    buf[n++] = '\'';
    for (size_t i = 0; i < len && n + 6 < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, word[i] == '\'' ? "'\\''" : "%c", word[i]);
    return snprintf(buf + n, cap - n, "'"), buf;
}
