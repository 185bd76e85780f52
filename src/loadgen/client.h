/* client: an HTTP load generator for any OpenAI-compatible server, modelled on `vllm bench serve`. One thread drives
 * all connections by libcurl. Every failure of the server is a failed request with a reason. Without libcurl: absent.c
 */
#ifndef WF_LOADGEN_CLIENT_H
#define WF_LOADGEN_CLIENT_H

#include "loadgen/stats.h"

enum wf_dataset { WF_DATASET_RANDOM, WF_DATASET_SHAREGPT, WF_DATASET_CUSTOM };
enum wf_prompt_form { WF_PROMPTS_AUTO, WF_PROMPTS_IDS, WF_PROMPTS_WORDS };

typedef struct wf_client_params {
    /* the server */
    const char *base_url, *endpoint; /* concatenated: the URL of requests */
    bool chat;                       /* chat completions instead of completions */
    const char *backend;             /* reported in results */
    const char *model;               /* NULL: the first one in /v1/models */
    const char *key;                 /* sent as a bearer token; NULL: none */
    const char *const *headers;      /* "Name: value", n_headers of them */
    size_t n_headers;
    bool insecure;      /* do not verify certificates */
    uint32_t timeout_s; /* per request */
    /* requests */
    enum wf_dataset dataset;
    const char *dataset_path;
    enum wf_prompt_form prompts; /* how random prompts are sent */
    uint32_t n;
    uint32_t n_in, n_out, n_prefix; /* tokens of random prompts; n_prefix: shared prefix */
    float range_ratio;
    uint32_t text_out; /* output tokens for dataset prompts; 0: what the dataset says */
    bool ignore_eos;
    float temperature;
    const char *extra_body; /* JSON object merged into each request body; NULL: none */
    uint64_t seed;
    /* arrival process */
    double rate; /* infinite: all at once */
    float burstiness;
    uint32_t max_concurrency, n_warmups; /* 0: no limit; unmeasured requests sent first */
    /* output */
    const double *percentiles;
    size_t n_percentiles;
    double limit_ms[WF_N_METRICS]; /* goodput; 0: no limit */
    bool save, save_detailed;
    const char *result_file, *label; /* NULL: the default; a file, or a folder for one of the usual name */
    bool quiet;
    bool (*stop)(void);
} wf_client_params;

/* Runs the load and prints the result to stdout. Returns 0; 1 after an error message or when every request failed; 130
 * when stop() returned true, after printing what was measured so far. */
int wf_client_run(const wf_client_params *p);

#endif
