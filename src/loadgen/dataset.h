/* dataset: the requests of a load: lengths and prompts, from files or random, and arrival times. */
#ifndef WF_LOADGEN_DATASET_H
#define WF_LOADGEN_DATASET_H

#include "base/base.h"

/* One request to send. */
typedef struct wf_request_spec {
    uint32_t n_in, n_out; /* tokens; n_out 0: prefill only */
    double at;  /* arrival in seconds since the first request of the trace; < 0: not in the trace */
    char *text; /* the prompt; NULL: random tokens */
} wf_request_spec;

typedef struct wf_request_specs {
    wf_request_spec *list;
    size_t n, cap;
} wf_request_specs;
weft_status wf_request_specs_add(wf_request_specs *a, wf_request_spec spec); /* owns spec.text, also on failure */
void wf_request_specs_free(wf_request_specs *a);
/* Repeats the list from its start until it has n entries. */
weft_status wf_request_specs_repeat(wf_request_specs *a, size_t n);

/* Reads lengths from a CSV file with the columns ContextTokens and GeneratedTokens, and arrival times from TIMESTAMP if
 * it holds dates. WEFT_ERR_IO names the bad line. */
weft_status wf_trace_read(const char *path, wf_request_specs *out);

/* Adds n requests with lengths uniform in len * (1 ± ratio). */
weft_status wf_request_specs_random(size_t n, uint32_t n_in, uint32_t n_out, double ratio, uint64_t seed,
                           wf_request_specs *out);

/* Arrival times of a gamma process with `rate` requests per second, in seconds from the first. burstiness 1 is a
 * Poisson process; smaller values are burstier, larger ones more regular. rate infinite: all at 0. */
void wf_arrivals(double rate, double burstiness, uint64_t seed, size_t n, double *at);

/* ---- dataset_json.c --------------------------------------------------------------------- */

/* Returns the number of tokens in a text; 0: unknown. */
typedef uint32_t (*wf_count_fn)(void *user, const char *text);

/* Reads ShareGPT's JSON as vLLM does: the first turn of each conversation is the prompt, and the second one sets the
 * output length. Conversations are shuffled by seed; those too short or too long are skipped. n_out: output tokens; 0:
 * the length of the second turn. */
weft_status wf_sharegpt_read(const char *path, size_t n, uint32_t n_out, uint64_t seed,
                             wf_count_fn count, void *user, wf_request_specs *out);
/* Reads JSON lines with "prompt" and optionally "output_tokens"; n_out applies to lines without it. */
weft_status wf_custom_read(const char *path, size_t n, uint32_t n_out, wf_count_fn count,
                           void *user, wf_request_specs *out);

#endif
