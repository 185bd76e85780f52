/* search: finds plans that overlap compute with memory, network and copies (NanoFlow, section 4.1), from a profile
 * alone, without a device.
 *
 * For 2 nano-batches, then 3 and so on while that helps: Stage I finds cut and order, Stage II the shares (stages.h),
 * and the orders of the built-in plans are tried with one share for each class; then the same with some blocks cut into
 * fewer parts, down to one. Every plan is simulated, and one that is not faster than the sequential plan is no result.
 * What a kernel does on compute units that it shares is in no profile: plans with such a one are results without a
 * time, for whoever measures them. A simulation is not the device: whoever uses the result runs all of it, and takes
 * what wf_fastest says.
 */
#ifndef WF_SEARCH_H
#define WF_SEARCH_H

#include "plan/simulate.h"

enum { WF_MAX_FOUND = 16 };

typedef struct wf_search_params {
    wf_sim_batch batch;
    uint32_t max_parts;   /* nano-batches; 0: 4 */
    uint32_t keep;        /* plans besides the sequential one, up to WF_MAX_FOUND - 1; 0: 4 */
    double seconds;       /* 0: 600. Only if they are not enough, two searches may differ */
    uint32_t nodes;       /* of the tree of one program; 0: 2000 */
    bool no_programs;     /* only the built-in orders, as in a build without CBC */
    bool (*stop)(void *user); /* asked between programs; true: end with what there is. NULL: never */
    weft_progress_fn progress; /* or NULL */
    void *user;
} wf_search_params;

typedef struct wf_found {
    wf_plan plan; /* its lines; wf_plans_finish does the rest */
    double us;    /* simulated; NaN: with a kernel that shares compute units */
    double rank;  /* us, and a little for joules above what the power limit gives in that time */
    char how[64];
} wf_found;

typedef struct wf_search_result {
    /* By rank, then those without a time, then the sequential plan, which is the last one. */
    wf_found list[WF_MAX_FOUND];
    size_t n;
    bool cut_short; /* by time or stop */
} wf_search_result;

/* The caller frees the result, also after a failure. */
weft_status wf_search(const wf_graph *g, const wf_op_profile *profile, const wf_search_params *p,
                      wf_search_result *out);
void wf_search_free(wf_search_result *r);
/* The last step of the search, by measurements: runs every plan, and returns the index of the fastest; the sequential
 * one unless another is faster than it by more than `margin`, a part of its time. A plan that cannot run (us: no
 * number) is not taken. */
typedef double (*wf_measure_fn)(void *user, const wf_plan *plan); /* microseconds; NAN: it failed */
size_t wf_fastest(const wf_search_result *r, double margin, wf_measure_fn measure, void *user);
/* The plan of a kind of load, and the steps that it is for. */
typedef struct wf_load_plan {
    const wf_plan *plan; /* NULL: sequential */
    wf_bucket bucket;
} wf_load_plan;
/* The plans of several loads; all other steps are sequential. The caller frees *out, also after a failure. */
weft_status wf_found_plans(const wf_graph *g, const wf_load_plan *list, size_t n, wf_plans *out);
/* A file of plans: the found one for batches of more than half and up to all of the tokens it was searched for, else
 * the sequential one. */
weft_status wf_found_save(const wf_graph *g, const wf_found *f, const wf_sim_batch *b, const char *path);

#endif
