/* load_options: loads by the options of `weft bench throughput`, which `weft simulate` has, too. */
#ifndef WF_CLI_LOAD_OPTIONS_H
#define WF_CLI_LOAD_OPTIONS_H

#include "cli/cli.h"
#include "loadgen/dataset.h"

typedef struct wf_named_load {
    char name[64];
    wf_request_specs specs;
} wf_named_load;
typedef struct wf_named_loads {
    wf_named_load *list;
    size_t n, cap;
} wf_named_loads;

extern const wf_opt_group wf_group_load;

/* These two return 0, or an exit code after a message. context: of the model, which the usual load goes by. */
int wf_loads_check(const wf_opts *o);
int wf_loads_read(const wf_opts *o, uint32_t context, wf_named_loads *out);
void wf_loads_free(wf_named_loads *a);
/* The next of the policies to run; *rest: where the list goes on, NULL at first. false: there are no more. */
bool wf_load_policy(const wf_opts *o, const char **rest, char out[16]);
/* The first requests that fit the context with all rounds of their conversations, as many as are asked for; their texts
 * stay those of the load. */
weft_status wf_load_pick(const wf_opts *o, const wf_named_load *l, uint32_t context, uint32_t rounds,
                         wf_request_specs *out, size_t *skipped);
/* Prompt tokens that a later round adds. */
uint32_t wf_load_round_tokens(const wf_opts *o, const wf_request_spec *first);
/* Arrival times: random, or those of the trace, scaled to *rate if that is set. *rate: the resulting rate. NULL: no
 * memory. */
double *wf_load_arrivals(const wf_opts *o, const wf_request_specs *a, double *rate);

#endif
