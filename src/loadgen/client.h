/* client: a load generator over HTTP for any server with OpenAI's API, in the manner of `vllm bench
 * serve`.
 *
 * One thread drives all connections with libcurl's multi interface. Whatever a server does —
 * refuse, answer with an error, die in the middle, send nonsense, send nothing — counts as a failed
 * request with a reason. Where the build found no libcurl or jansson, absent.c says so.
 */
#ifndef WF_LOADGEN_CLIENT_H
#define WF_LOADGEN_CLIENT_H

#include "loadgen/stats.h"

enum wf_dataset { WF_DATASET_RANDOM, WF_DATASET_SHAREGPT, WF_DATASET_CUSTOM };
enum wf_prompt_form { WF_PROMPTS_AUTO, WF_PROMPTS_IDS, WF_PROMPTS_WORDS };

typedef struct wf_client_params {
    /* the server */
    const char *base_url, *endpoint; /* joined: where requests go */
    bool chat;                       /* conversations instead of texts */
    const char *backend;             /* its name in results */
    const char *model;               /* NULL: the first that the server lists */
    const char *key;                 /* sent as Bearer; NULL: none */
    const char *const *headers;      /* "Name: value", n_headers of them */
    size_t n_headers;
    bool insecure;      /* any certificate will do */
    uint32_t timeout_s; /* for a whole request */
    /* what is asked for */
    enum wf_dataset dataset;
    const char *dataset_path;
    enum wf_prompt_form prompts; /* of random tokens */
    size_t n;
    uint32_t n_in, n_out, n_prefix; /* random: tokens; prefix: in front of each, the same for all */
    double range_ratio;
    uint32_t text_out; /* tokens to generate for texts; 0: as long as the dataset says */
    bool ignore_eos;
    double temperature;     /* < 0: the server's default */
    const char *extra_body; /* JSON object whose members go into each request; NULL: none */
    uint64_t seed;
    /* when */
    double rate, burstiness; /* infinite: all at once */
    size_t max_concurrency;  /* 0: no limit */
    size_t n_warmups;        /* requests before, which do not count */
    /* what is told */
    bool shown[WF_N_METRICS];
    const double *percentiles;
    size_t n_percentiles;
    double limit_ms[WF_N_METRICS]; /* goodput; 0: no limit */
    bool save, save_detailed;
    const char *result_dir, *result_file, *label; /* NULL: the usual */
    bool quiet, no_bar;
    bool (*stop)(void);
} wf_client_params;

/* Runs the load and prints the result to stdout. 0; 1 after a message, or when every request
 * failed; 130 when stop said so, after what was measured until then. */
int wf_client_run(const wf_client_params *p);

#endif
