/* serve: options of the server; opens its model and engine. */
#include "cli/cli.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static const wf_opt listen_rows[] = {
    {0, "host", "ADDRESS", "address to listen on (default 127.0.0.1: this machine only)", WF_OPT_TEXT, AT(serve.host)},
    {0, "port", "PORT", "port to listen on; 0 picks a free one and prints it (default 8080)", WF_OPT_U32,
     AT(serve.port), 0, 65535},
    {0, "api-key", "KEY",
     "require this API key, or another one; repeatable. It does not stay in the list of processes; $WEFT_API_KEY sets "
     "one, too",
     WF_OPT_WORDS, AT(api_keys)},
    {0, "api-key-file", "FILE",
     "require one of the API keys in this file, one per line; empty lines and those that begin with # are skipped, and "
     "blanks around a key do not count",
     WF_OPT_TEXT, AT(serve.api_key_file)},
    {0, "trusted-proxy", "ADDRESS",
     "take the address of a client from the X-Forwarded-For of this proxy, or of a network such as 10.0.0.0/8; "
     "repeatable (default: from none)",
     WF_OPT_WORDS, AT(trusted_proxies)},
    {0, "allow", "WHAT",
     "allow what is refused otherwise; repeatable: origin=https://example.com (or --allow-origin) requests from pages "
     "of this origin (CORS), host=NAME (--allowed-host) a name that a proxy passes on as Host, * of both any; "
     "unknown-fields (--allow-unknown-fields) passes over fields of requests that weft does not know; any-model-name "
     "(--any-model-name) answers for models of other names; loading (with --models) loads and unloads models by "
     "request, lora adapters",
     WF_OPT_WORDS, AT(allow)},
};
static const WF_GROUP(listen_group, "Listening", listen_rows);

static const wf_opt models_rows[] = {
    {0, "models", NULL,
     "serve the models of the folder of models (`weft list`), each loaded when a request first names it, as many at "
     "once as memory holds; a MODEL among them is loaded at the start, and is that of requests that name none",
     WF_OPT_FLAG, AT(serve.models)},
    {0, "sleep-idle", "S", "unload a model that nobody has used for so many seconds (default: when memory is wanted)",
     WF_OPT_U32, AT(serve.sleep_idle_s), 1, 1e9},
};
static const WF_GROUP(models_group, "Models on demand", models_rows);

static const wf_opt served_rows[] = {
    {0, "served-model-name", "NAME",
     "model name in the API; repeatable, or with commas between: further ones are aliases (default: the file's name)",
     WF_OPT_WORDS, AT(model_names)},
    {0, "chat-template", "FILE", "Jinja chat template in a file (default: the model's); '?': say which there is",
     WF_OPT_TEXT, AT(serve.chat_template)},
    {0, "tool-call-parser", "NAME",
     "kind of tool calls in answers, such as hermes, mistral or llama3_json; none: leave them as text (default auto: "
     "by the chat template)",
     WF_OPT_TEXT, AT(serve.tool_call_parser)},
    {0, "reasoning-parser", "NAME",
     "kind of thoughts before answers, such as deepseek_r1 or openai_gptoss, which become reasoning_content; none: "
     "leave them as text (default auto: by the chat template)",
     WF_OPT_TEXT, AT(serve.reasoning_parser)},
};
static const WF_GROUP(served_group, "API", served_rows);

static const wf_opt limit_rows[] = {
    {0, "policy", "nanoflow|sarathi|orca|request",
     "scheduling policy. A step has decodes and chunks of several prompts (nanoflow), of one prompt (sarathi), or "
     "whole prompts (orca); request: static batching (default nanoflow)",
     WF_OPT_CHOICE, AT(engine.policy)},
    {0, "scheduling-policy", "fcfs|priority",
     "priority: requests may have a priority, lower is earlier. Either way clients (by API key, else address) take "
     "turns, and the requests of one are first come, first served (default fcfs)",
     WF_OPT_CHOICE, AT(scheduling_policy)},
    {0, "max-num-seqs-per-client", "N", "most sequences of one client in a batch (default: as --max-num-seqs)",
     WF_OPT_U32, AT(engine.seqs_per_client), 1, 65536},
    {0, "max-queue", "N",
     "most queued sequences of one client; more get status 503. Several have fewer each, and together less than twice "
     "as many (default 256, of models for embeddings 4096)",
     WF_OPT_U32, AT(serve.max_queue), 1, MANY},
    {0, "request-timeout", "S", "timeout of a request in seconds (default 600)", WF_OPT_U32,
     AT(serve.request_timeout_s), 1, 1e6},
    {0, "shutdown-timeout", "S", "seconds that running requests get after SIGTERM (default 30)", WF_OPT_U32,
     AT(serve.shutdown_timeout_s), 1, 1e6},
};
static const WF_GROUP(limit_group, "Scheduling and limits", limit_rows);

static const wf_opt log_rows[] = {
    {0, "metrics-prefix", "TEXT", "prefix of metric names; vllm: matches vLLM's dashboards (default weft:)",
     WF_OPT_TEXT, AT(serve.metrics_prefix)},
    {0, "log-json", NULL, "log JSON lines, one also for each request", WF_OPT_FLAG, AT(serve.log_json)},
};
static const WF_GROUP(log_group, "Monitoring", log_rows);

typedef struct context {
    const wf_opts *o;
    struct weft_engine_params engine;
    wf_opening *out;
    wf_progress bar;
    struct weft_device_info device; /* of several models: once one is open, what it is on, */
    uint64_t limit;                 /* and how much of its memory they may take */
} context;

static bool stop_opening(void *user)
{
    const context *c = user;
    return c->out->stop(c->out);
}

/* The engine reports "load" after checking all parameters and files. */
static void on_progress(void *user, const char *what, double fraction)
{
    context *c = user;
    c->out->on_progress(c->out, what, fraction);
    wf_on_progress(c->o->quiet || c->out->path ? NULL : &c->bar, what, fraction);
}

#define MORE_ADAPTERS 8 /* that requests may load */
#define CONTEXTS 8 /* of the KV cache of one of several models: nobody knows which others there will be */

/* Of the device's memory, which may be the host's. */
static uint64_t bytes_of(const struct weft_budget *b, const struct weft_device_info *d)
{
    return b->weights + b->activations + b->kv + (d->own_memory ? 0 : b->kv_host);
}

static weft_status open_engine(context *c, const wf_opts *o, wf_opening *out)
{
    struct weft_engine_params p = c->engine;
    struct weft_budget b;
    wf_batching_defaults(c->o, out->model, &p);
    if (!p.kv_memory) p.kv_seqs = CONTEXTS;
    if (c->limit) {
        WF_TRY(weft_device_budget(out->model, &p, &c->device, &b));
        if (!out->room(out, bytes_of(&b, &c->device), c->limit)) return out->status;
    }
    WF_TRY(wf_try_engine(o, out->model, p, &out->engine));
    WF_TRY(weft_engine_budget(out->engine, &b));
    out->bytes = bytes_of(&b, weft_engine_device(out->engine));
    if (c->limit) return WEFT_OK;
    c->device = *weft_engine_device(out->engine);
    c->limit = (uint64_t)((double)p.memory_utilization * (double)(c->device.available ? c->device.available
                                                                                      : c->device.memory));
    return WEFT_OK;
}

/* One of several: why it cannot be opened is for who wants it. */
static int open_named(context *c, const wf_opts *o, wf_opening *out)
{
    struct weft_model_params m = {.path = out->path, .stop = stop_opening, .on_progress = on_progress, .user = c};
    out->status = weft_model_open(&m, &out->model);
    if (!out->status) out->status = open_engine(c, o, out);
    if (!out->status) return 0;
    weft_model_close(out->model);
    out->model = NULL;
    return WF_EXIT_RUNTIME;
}

static int open_both(void *user, wf_opening *out)
{
    context *c = user;
    wf_opts o = *c->o;
    c->out = out;
    o.engine.on_progress = c->engine.on_progress = on_progress;
    o.engine.stop = c->engine.stop = stop_opening; /* the server has the signals */
    o.engine.user = c->engine.user = c;
    int rc = out->path ? open_named(c, &o, out) : wf_open_model(&o, false, &out->model);
    if (!rc && !out->path) wf_batching_defaults(c->o, out->model, &c->engine);
    if (!rc && !out->path) rc = wf_open_engine(&o, out->model, c->engine, &out->engine);
    wf_progress_end(&c->bar);
    if (rc) return rc;
    out->sampling = wf_sampling_of(c->o, out->model, false);
    wf_sampling_summary(&out->sampling, out->sampling_text, sizeof out->sampling_text);
    return 0;
}

/* Is it a valid start of a Prometheus metric name? */
static bool prefix_good(const char *p)
{
    static const char digits[] = "0123456789",
                      rest[] = "_:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    return !p || (p[strspn(p, rest)] == 0 && (!*p || !strchr(digits, *p)));
}

static bool allow_good(const char *word)
{
    return wf_choice_has("unknown-fields|any-model-name|loading|lora", word, strlen(word)) ||
           ((!strncmp(word, "origin=", 7) || !strncmp(word, "host=", 5)) && strchr(word, '=')[1]);
}

/* The words of a command line, which the list of processes shows to everybody, and of variables may be written over. */
static void hide_keys(const wf_opts *o, char **keys)
{
    for (size_t i = 0; i < o->api_keys.n; i++) {
        char *word = (char *)(uintptr_t)o->api_keys.v[i];
        keys[i] = wf_strdup(word);
        explicit_bzero(word, strlen(word));
    }
}

/* Its name there, whether it was found or typed as a path. */
static const char *name_in_folder(const char *path)
{
    char folder[PATH_MAX];
    wf_models_folder(folder, sizeof folder);
    size_t n = strlen(folder);
    return n && !strncmp(path, folder, n) && path[n] == '/' ? path + n + 1 : path;
}

static int serve_with(const wf_opts *o, char *const *keys)
{
    context c = {.o = o, .engine = o->engine};
    wf_serve_params p = o->serve;
    if (!prefix_good(p.metrics_prefix))
        return wf_usage(o->command,
                        "--metrics-prefix: expected letters, digits, _ and :, not starting with a digit, got '%s'",
                        p.metrics_prefix);
    for (size_t i = 0; i < o->allow.n; i++)
        if (!allow_good(o->allow.v[i]))
            return wf_usage(o->command,
                            "--allow: expected origin=ORIGIN, host=NAME, unknown-fields, any-model-name, loading or "
                            "lora, got '%s'",
                            o->allow.v[i]);
    for (size_t i = 0; i < o->allow.n; i++)
        if (!strcmp(o->allow.v[i], "lora") && !p.models) c.engine.most_adapters = MORE_ADAPTERS;
    if (wf_asks_template(p.chat_template)) return wf_explain_template(o);
    char *chat_template = NULL;
    int rc = wf_read_template(p.chat_template, &chat_template);
    if (rc) return free(chat_template), rc;
    p.chat_template = chat_template;
    if (!wf_opts_has(o, "port")) p.port = 8080;
    p.api_keys = (const char *const *)keys;
    p.n_api_keys = o->api_keys.n;
    p.model_names = o->model_names.v;
    p.n_model_names = o->model_names.n;
    p.allow = o->allow.v;
    p.n_allow = o->allow.n;
    p.trusted_proxies = o->trusted_proxies.v;
    p.n_trusted_proxies = o->trusted_proxies.n;
    p.allow_priority = o->scheduling_policy && !strcmp(o->scheduling_policy, "priority");
    p.quiet = o->quiet;
    p.verbose = o->verbose;
    p.profile = o->engine.profile;
    p.first_model = p.models && wf_opts_typed(o, "model") ? name_in_folder(o->model) : NULL;
    p.open = open_both;
    p.user = &c;
    rc = wf_serve(&p);
    free(chat_template);
    return rc;
}

/* Before hide_keys, which empties it. Whoever sets it means to have a key: without one everybody would be served. */
static bool is_empty(const char *variable)
{
    const char *value = getenv(variable);
    return value && !value[strspn(value, WF_KEY_BLANKS)];
}

static int cmd_serve(const wf_opts *o)
{
    if (is_empty("WEFT_API_KEY"))
        return wf_usage(o->command, "WEFT_API_KEY is set, but empty: give it a key, or unset it to serve without one");
    char **keys = wf_calloc(o->api_keys.n + 1, sizeof *keys);
    if (keys) hide_keys(o, keys);
    int rc = keys ? serve_with(o, keys) : wf_say_error(WEFT_ERR_NOMEM);
    for (size_t i = 0; keys && i < o->api_keys.n; i++) {
        if (keys[i]) explicit_bzero(keys[i], strlen(keys[i]));
        free(keys[i]);
    }
    free(keys);
    return rc;
}

static const wf_opt_group *const groups[] = {
    &wf_group_model,    &listen_group,
    &models_group,
    &served_group,      &wf_group_sampling_defaults,
    &wf_group_batching, &wf_group_draft,
    &wf_group_adapters,
    &limit_group,
    &log_group,         &wf_group_profile,
    &wf_group_context,  &wf_group_device, &wf_group_parallel,
    &wf_group_kernels,  &wf_group_testing,
    &wf_group_general,  NULL,
};

const wf_command wf_cmd_serve = {
    .name = "serve",
    .usage = "[MODEL] [--host ADDRESS] [--port PORT] [options]",
    .summary = "Serves a model over HTTP with an OpenAI-compatible API and continuous batching.",
    .more = "Paths: / (web UI), /v1/completions, /v1/chat/completions, /v1/models, /tokenize,\n"
            "/detokenize, /health, /metrics, /version. docs/serving.md describes them.\n"
            "SIGTERM or Ctrl-C stops accepting requests, gives running ones\n"
            "--shutdown-timeout to finish, and exits; a second one cancels them.\n\n"
            "Example:\n"
            "  weft serve model.gguf --port 8080\n"
            "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"One day\"}'\n",
    .words = {"model"},
    .groups = groups,
    .run = cmd_serve,
};
