/* dataset: what to ask for, and when — lengths and texts from files or drawn, and times of arrival.
 */
#ifndef WF_LOADGEN_DATASET_H
#define WF_LOADGEN_DATASET_H

#include "base/base.h"

/* One request to be made. */
typedef struct wf_request_spec {
    uint32_t n_in, n_out; /* tokens; n_out 0: the prompt only */
    double at;  /* seconds since the first of its trace arrived; < 0: the trace does not tell */
    char *text; /* the prompt; NULL: random tokens */
} wf_request_spec;

typedef struct wf_request_specs {
    wf_request_spec *list;
    size_t n, cap;
} wf_request_specs;
weft_status wf_request_specs_add(wf_request_specs *a, wf_request_spec spec); /* owns ask.text, also on failure */
void wf_request_specs_free(wf_request_specs *a);
/* Until there are n, those from the start once more. */
weft_status wf_request_specs_repeat(wf_request_specs *a, size_t n);

/* Lengths from a CSV file whose heading names ContextTokens and GeneratedTokens; TIMESTAMP is used
 * where it holds dates. WEFT_ERR_IO says which line is wrong. */
weft_status wf_trace_read(const char *path, wf_request_specs *out);

/* n requests of random lengths: each uniformly within len * (1 ± ratio). */
weft_status wf_request_specs_random(size_t n, uint32_t n_in, uint32_t n_out, double ratio, uint64_t seed,
                           wf_request_specs *out);

/* Times of arrival of a gamma process at rate a second, in seconds from the first: burstiness 1 is
 * a Poisson process, below 1 comes in bursts, above 1 more evenly. rate infinite: all at 0. */
void wf_arrivals(double rate, double burstiness, uint64_t seed, size_t n, double *at);

/* ---- dataset_json.c: with jansson only ------------------------------------------------------ */

/* Counts the tokens of a text; 0: cannot. */
typedef uint32_t (*wf_count_fn)(void *user, const char *text);

/* ShareGPT's JSON, as vLLM reads it: the first turn of each conversation is the prompt, the second
 * as long as the answer should be. Shuffled by seed; too short and too long ones are left out.
 * n_out: tokens to generate, 0: as many as the second turn has. */
weft_status wf_sharegpt_read(const char *path, size_t n, uint32_t n_out, uint64_t seed,
                             wf_count_fn count, void *user, wf_request_specs *out);
/* Lines of JSON objects with "prompt", and perhaps "output_tokens"; n_out is for those without. */
weft_status wf_custom_read(const char *path, size_t n, uint32_t n_out, wf_count_fn count,
                           void *user, wf_request_specs *out);

#endif
