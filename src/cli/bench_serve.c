/* bench serve: options of the HTTP load generator, named like those of `vllm bench serve`. */
#include "cli/cli.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES (1u << 16)

enum { DEFAULT_PORT = 8080, DEFAULT_N = 1000, DEFAULT_IN = 1024, DEFAULT_OUT = 128, DEFAULT_TEXT_OUT = 256,
       DEFAULT_TIMEOUT_S = 600 };

/* ---- values ------------------------------------------------------------------------------- */

/* Parses "ttft:300", or several separated by commas. */
static int read_limits(const wf_opts *o, const char *text, double limit_ms[WF_N_METRICS])
{
    for (const char *p = text;; p++) {
        size_t name = strcspn(p, ":"), len = strcspn(p, ",");
        int m = wf_metric_find(p, name);
        char *end = NULL;
        double ms = m >= 0 && p[name] ? strtod(p + name + 1, &end) : 0;
        bool named = m == WF_TTFT || m == WF_TPOT || m == WF_E2EL;
        if (!named || !end || end != p + len || !(ms > 0) || !isfinite(ms))
            return wf_usage(o->command, "--goodput: expected ttft:MS, tpot:MS or e2el:MS, got '%s'", text);
        limit_ms[m] = ms;
        p += len;
        if (!*p) return 0;
    }
}

/* vLLM takes several values after --goodput: those after the first arrive as positional arguments. */
static int read_goodput(const wf_opts *o, wf_client_params *p)
{
    int rc = 0;
    for (size_t i = 0; i < o->load.goodput.n && !rc; i++) rc = read_limits(o, o->load.goodput.v[i], p->limit_ms);
    for (size_t i = 0; i < o->n_args && !rc; i++)
        rc = o->load.goodput.n ? read_limits(o, o->args[i], p->limit_ms)
                               : wf_usage(o->command, "unexpected argument '%s'", o->args[i]);
    return rc;
}

static int read_dataset(const wf_opts *o, wf_client_params *p)
{
    const char *name = o->load.dataset ? o->load.dataset : "random", *form = o->load.prompts ? o->load.prompts : "auto";
    p->dataset = !strcmp(name, "random")     ? WF_DATASET_RANDOM
                 : !strcmp(name, "sharegpt") ? WF_DATASET_SHAREGPT
                                             : WF_DATASET_CUSTOM;
    p->prompts = !strcmp(form, "auto") ? WF_PROMPTS_AUTO : !strcmp(form, "ids") ? WF_PROMPTS_IDS : WF_PROMPTS_WORDS;
    p->text_out = wf_opts_has(o, "random-output-len") ? p->n_out : 0;
    if (p->prompts == WF_PROMPTS_IDS && p->chat)
        return wf_usage(o->command, "WEFT_RANDOM_PROMPTS=ids: chat completions do not accept token ids; use "
                                    "words, or --backend openai");
    if ((p->dataset == WF_DATASET_RANDOM) == (p->dataset_path != NULL))
        return wf_usage(o->command,
                        p->dataset_path ? "--dataset-path needs --dataset-name sharegpt or custom"
                                        : "--dataset-name %s needs --dataset-path",
                        name);
    return 0;
}

/* ---- the server --------------------------------------------------------------------------- */

/* Makes http://HOST:PORT; IPv6 addresses get brackets. */
static char *make_base(const wf_opts *o)
{
    const wf_load_opts *l = &o->load;
    const char *host = l->host ? l->host : "127.0.0.1";
    bool bare6 = strchr(host, ':') && host[0] != '[';
    size_t n = strlen(host) + 32;
    char *url = wf_calloc(n, 1);
    uint32_t port = wf_opts_has(o, "port") ? l->port : DEFAULT_PORT;
    if (url) snprintf(url, n, bare6 ? "http://[%s]:%u" : "http://%s:%u", host, port);
    return url;
}

/* Reads the first line of the file, or OPENAI_API_KEY from the environment. */
static int read_key(const wf_opts *o, char **key)
{
    const char *path = o->load.api_key_file, *env = getenv("OPENAI_API_KEY");
    size_t len;
    if (path) {
        weft_status s = wf_read_file(path, KEY_BYTES, key, &len);
        if (s) return wf_say_error(s);
        (*key)[strcspn(*key, "\r\n")] = 0;
        return **key ? 0 : wf_usage(o->command, "--api-key-file: the first line of %s is empty", path);
    }
    if (!env || !*env) return 0;
    *key = wf_strdup(env);
    return *key ? 0 : wf_say_error(WEFT_ERR_NOMEM);
}

static int cmd_bench_serve(const wf_opts *o)
{
    const wf_load_opts *l = &o->load;
    /* What was given, and defaults. */
    static const double usual[] = {99};
    wf_client_params p = o->client;
    p.chat = (p.backend && !strcmp(p.backend, "openai-chat")) || (p.endpoint && strstr(p.endpoint, "chat/completions"));
    if (!p.backend) p.backend = "openai";
    if (!p.endpoint) p.endpoint = p.chat ? "/v1/chat/completions" : "/v1/completions";
    if (!p.timeout_s) p.timeout_s = DEFAULT_TIMEOUT_S;
    if (!p.n_in) p.n_in = DEFAULT_IN;
    if (!p.n_out) p.n_out = DEFAULT_OUT;
    if (!(p.burstiness > 0)) p.burstiness = 1;
    p.n = o->load.n_requests ? o->load.n_requests : DEFAULT_N;
    p.headers = o->load.headers.v, p.n_headers = o->load.headers.n;
    p.percentiles = o->load.percentiles.n ? o->load.percentiles.v : usual;
    p.n_percentiles = o->load.percentiles.n ? o->load.percentiles.n : WF_LEN(usual);
    p.ignore_eos = o->ignore_eos, p.seed = o->seed, p.quiet = o->quiet;
    p.save |= p.save_detailed;
    p.stop = wf_interrupted;
    char *base = NULL, *key = NULL;
    p.rate = l->rates.n ? l->rates.v[0] : HUGE_VAL;
    if (l->rates.n > 1) return wf_usage(o->command, "--request-rate: expected one number");
    if (p.rate <= 0) return wf_usage(o->command, "--request-rate must be above 0, or inf");
    for (size_t i = 0; i < l->headers.n; i++)
        if (!strchr(l->headers.v[i], ':') || strpbrk(l->headers.v[i], "\r\n"))
            return wf_usage(o->command, "--header: expected 'Name: value', got '%s'", l->headers.v[i]);
    int rc = read_goodput(o, &p);
    if (!rc) rc = read_dataset(o, &p);
    if (!rc) rc = read_key(o, &key);
    if (!rc && !p.base_url && !(p.base_url = base = make_base(o))) rc = wf_say_error(WEFT_ERR_NOMEM);
    p.key = key;
    wf_catch_interrupt();
    if (!rc) rc = wf_client_run(&p);
    free(base);
    free(key);
    return rc;
}

/* ---- options ------------------------------------------------------------------------------ */

static const wf_opt server_rows[] = {
    {0, "base-url", "URL", "URL of the server, such as https://host/path", WF_OPT_TEXT, AT(client.base_url)},
    {0, "host", "HOST", "host of the server (default 127.0.0.1)", WF_OPT_TEXT, AT(load.host)},
    {0, "port", "PORT", "port of the server (default 8080)", WF_OPT_U32, AT(load.port), 1, 65535},
    {0, "backend", "openai|openai-chat|vllm",
     "openai and vllm use completions, openai-chat chat completions (default openai)",
     WF_OPT_CHOICE, AT(client.backend)},
    {0, "endpoint", "PATH", "request path (default /v1/completions or /v1/chat/completions)", WF_OPT_TEXT,
     AT(client.endpoint)},
    {'m', "model", "NAME", "model name (default: the first in /v1/models)", WF_OPT_TEXT, AT(client.model)},
    {0, "api-key-file", "FILE", "file whose first line is the API key (default: $OPENAI_API_KEY)", WF_OPT_TEXT,
     AT(load.api_key_file)},
    {0, "header", "'NAME: VALUE'", "additional request header; repeatable", WF_OPT_WORDS, AT(load.headers)},
    {0, "request-timeout", "S", "timeout of a request in seconds (default 600)",
     WF_OPT_U32, AT(client.timeout_s), 1, 1e6},
};
static const WF_GROUP(server_group, "Server", server_rows);

static const wf_opt data_rows[] = {
    {0, "dataset-name", "random|sharegpt|custom", "source of the prompts (default random)", WF_OPT_CHOICE,
     AT(load.dataset)},
    {0, "dataset-path", "FILE",
     "sharegpt: ShareGPT's JSON, or a CSV trace with the columns ContextTokens and GeneratedTokens "
     "(random prompts of these lengths); custom: JSON lines with \"prompt\"",
     WF_OPT_TEXT, AT(client.dataset_path)},
    {0, "num-prompts", "N", "number of requests (default 1000)", WF_OPT_U32, AT(load.n_requests), 1, 1e7},
    {0, "random-input-len", "N", "length of random prompts in tokens (default 1024)", WF_OPT_U32, AT(client.n_in), 1,
     16777216},
    {0, "random-output-len", "N",
     "output tokens (default: 128 for random prompts, else what the dataset says; custom without output_tokens: 256)",
     WF_OPT_U32, AT(client.n_out), 1, 16777216},
    {0, "ignore-eos", NULL, "generate exactly the output length", WF_OPT_FLAG, AT(ignore_eos)},
    {0, "temp", "T", "sampling temperature (default 0)", WF_OPT_REAL, AT(client.temperature), 0, 100},
    {0, "extra-body", "JSON", "JSON object merged into each request body", WF_OPT_TEXT, AT(client.extra_body)},
    {0, "seed", "SEED", "random seed of prompts and arrivals (default 0)", WF_OPT_U64, AT(seed), 0, 0x1p64},
};
static const WF_GROUP(data_group, "Requests", data_rows);

static const wf_opt pace_rows[] = {
    {0, "request-rate", "R", "average requests per second (default inf: all at once)", WF_OPT_REALS, AT(load.rates),
     1e-6, HUGE_VAL},
    {0, "max-concurrency", "N", "most concurrent requests (default: no limit)", WF_OPT_U32, AT(client.max_concurrency),
     1, MANY},
};
static const WF_GROUP(pace_group, "Arrivals", pace_rows);

static const wf_opt result_rows[] = {
    {0, "metric-percentiles", "P,...", "percentiles to print (default 99)", WF_OPT_REALS, AT(load.percentiles), 0, 100},
    {0, "goodput", "NAME:MS...",
     "also report the rate of requests that meet these limits in ms, of ttft, tpot and e2el, such as ttft:300 tpot:50",
     WF_OPT_WORDS, AT(load.goodput)},
    {0, "save-result", NULL, "also save the result as a JSON file", WF_OPT_FLAG, AT(client.save)},
    {0, "result-filename", "FILE",
     "name of the result, or a folder for it (default: a name from rate, model and date)", WF_OPT_TEXT,
     AT(client.result_file)},
};
static const WF_GROUP(result_group, "Result", result_rows);

static const wf_opt_group *const groups[] = {&server_group, &data_group,       &pace_group,
                                             &result_group, &wf_group_general, NULL};

const wf_command wf_cmd_bench_serve = {
    .name = "bench serve",
    .usage = "[--base-url URL | --host HOST --port PORT] [options]",
    .summary = "Measures an OpenAI-compatible server under load. Options and output follow `vllm bench serve`. "
               "Requests stream. Failed requests are counted, and the reasons are printed. "
               "Ctrl-C prints the results so far.",
    .more = "Random prompts are lists of token ids, so that their length is exact. The ids\n"
            "come from the server's /tokenize, which weft, vLLM and llama.cpp have. For other\n"
            "servers and for chat completions, prompts are common words of about one token\n"
            "each. Token counts come from the usage that the server reports, if any.\n\n"
            "TTFT is the time to the first token, TPOT (latency - TTFT) / (output tokens -\n"
            "1), ITL the time between two events of a stream, E2EL the time to the last one,\n"
            "norm E2EL / output tokens. The exit code is 1 if every request failed.\n\n"
            "Examples:\n"
            "  weft bench serve --port 8080 --num-prompts 200 --request-rate 4\n"
            "  weft bench serve --base-url http://10.0.0.5:8000 --max-concurrency 32 \\\n"
            "    --random-input-len 512 --goodput ttft:500 tpot:50 --save-result\n"
            "  weft bench serve --dataset-name sharegpt --dataset-path sharegpt.csv\n",
    .groups = groups,
    .takes_args = true,
    .run = cmd_bench_serve,
};
