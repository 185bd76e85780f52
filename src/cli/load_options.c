/* load_options: see load_options.h. */
#include "cli/load_options.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_REQUESTS = 100 };

static size_t n_requests(const wf_opts *o) { return o->load.n_requests ? o->load.n_requests : DEFAULT_REQUESTS; }

/* ---- what to run ----------------------------------------------------------------------------------------------- */

static wf_named_load *add_load(wf_named_loads *a)
{
    if (!wf_grow(&a->list, a->n, &a->cap, sizeof *a->list)) return NULL;
    a->list[a->n] = (wf_named_load){0};
    return &a->list[a->n++];
}

/* Parses IN:OUT,... */
static int add_constants(const wf_opts *o, const char *text, wf_named_loads *a)
{
    for (const char *p = text;; p++) {
        unsigned in, out;
        int len = 0;
        bool ok = sscanf(p, "%8u:%8u%n", &in, &out, &len) == 2 && (!p[len] || p[len] == ',');
        if (!ok || !in || strpbrk(text, "+- "))
            return wf_usage(o->command, "--const: expected INPUT:OUTPUT tokens such as 512:512,1024:0, got '%s'",
                            text);
        wf_named_load *l = add_load(a);
        if (!l || wf_request_specs_random(n_requests(o), in, out, 0, 0, &l->specs)) return wf_say_error(WEFT_ERR_NOMEM);
        for (size_t i = 0; !out && i < l->specs.n; i++) l->specs.list[i].n_out = 0;
        snprintf(l->name, sizeof l->name, "%u:%u", in, out);
        p += len;
        if (!*p) return 0;
    }
}

static int add_trace(const wf_opts *o, const char *path, wf_named_loads *a)
{
    const char *arrivals = o->load.arrivals, *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    wf_named_load *l = add_load(a);
    if (!l) return wf_say_error(WEFT_ERR_NOMEM);
    snprintf(l->name, sizeof l->name, "%.*s", (int)WF_MIN(strcspn(name, "."), sizeof l->name - 1), name);
    weft_status s = wf_trace_read(path, &l->specs);
    if (s) return wf_say_error(s);
    if (arrivals && !strcmp(arrivals, "trace") && l->specs.list[l->specs.n - 1].at < 0)
        return wf_usage(o->command,
                        "--arrivals trace: %s has no times in its column TIMESTAMP; use --arrivals poisson", path);
    return 0;
}

int wf_loads_read(const wf_opts *o, uint32_t context, wf_named_loads *out)
{
    const wf_load_opts *l = &o->load;
    int rc = 0;
    char usual[24];
    uint32_t half = WF_MAX(WF_MIN(512u, context / 2), 1u);
    snprintf(usual, sizeof usual, "%u:%u", half, half);
    if (l->lengths || !l->traces.n) rc = add_constants(o, l->lengths ? l->lengths : usual, out);
    for (size_t i = 0; i < l->traces.n && !rc; i++) rc = add_trace(o, l->traces.v[i], out);
    return rc;
}

void wf_loads_free(wf_named_loads *a)
{
    for (size_t i = 0; i < a->n; i++) wf_request_specs_free(&a->list[i].specs);
    free(a->list);
}

int wf_loads_check(const wf_opts *o)
{
    const wf_load_opts *l = &o->load;
    bool poisson = l->arrivals && !strcmp(l->arrivals, "poisson");
    for (const char *p = l->policies; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (!wf_choice_has("request|orca|sarathi|nanoflow", p, strcspn(p, ",")) || !strcmp(p + strcspn(p, ","), ","))
            return wf_usage(o->command, "--policy: expected some of request,orca,sarathi,nanoflow, got '%s'",
                            l->policies);
    if (poisson && !l->rates.n) return wf_usage(o->command, "--arrivals poisson needs --request-rate");
    if (l->arrivals && !poisson && (l->lengths || !l->traces.n))
        return wf_usage(o->command, "--arrivals trace needs a --dataset-path");
    return 0;
}

bool wf_load_policy(const wf_opts *o, const char **rest, char out[16])
{
    const char *p = *rest ? *rest : o->load.policies ? o->load.policies : "request,orca,sarathi,nanoflow";
    size_t len = strcspn(p, ",");
    wf_copy(out, WF_MIN(len + 1, (size_t)16), p);
    *rest = p + len + (p[len] == ',');
    return len > 0;
}

/* ---- requests of one load ---------------------------------------------------------------------------------------- */

uint32_t wf_load_round_tokens(const wf_opts *o, const wf_request_spec *first)
{
    return o->load.round_tokens ? o->load.round_tokens : WF_MAX(first->n_in, 1u);
}

weft_status wf_load_pick(const wf_opts *o, const wf_named_load *l, uint32_t context, uint32_t rounds,
                         wf_request_specs *out, size_t *skipped)
{
    for (size_t i = 0; i < l->specs.n && out->n < n_requests(o); i++) {
        const wf_request_spec *a = &l->specs.list[i];
        uint64_t later = (uint64_t)(rounds - 1) * wf_load_round_tokens(o, a);
        if (WF_MAX(a->n_in, 1u) + later + (uint64_t)rounds * a->n_out > context) ++*skipped;
        else WF_TRY(wf_request_specs_add(out, *a));
    }
    if (out->n) return WEFT_OK;
    return wf_fail(WEFT_ERR_FULL, "%s: no request fits the context of %u tokens; use a larger one (-c)", l->name,
                   context);
}

double *wf_load_arrivals(const wf_opts *o, const wf_request_specs *a, double *rate)
{
    double *at = wf_calloc(a->n, sizeof *at);
    if (!at) return NULL;
    if (!strcmp(o->load.arrivals, "poisson")) return wf_arrivals(*rate, 1, o->seed, a->n, at), at;
    double first = a->list[0].at, last = a->list[a->n - 1].at;
    double told = last > first ? (double)(a->n - 1) / (last - first) : 0;
    double scale = *rate > 0 && told > 0 ? told / *rate : 1;
    for (size_t i = 0; i < a->n; i++) at[i] = WF_MAX(a->list[i].at - first, 0) * scale;
    *rate = *rate > 0 && told > 0 ? *rate : told;
    return at;
}

static const wf_opt rows[] = {
    {0, "const", "IN:OUT,...",
     "loads of constant input and output lengths; OUT 0: prefill only (default without --dataset-path: 512:512, or "
     "half the context each if that is less)",
     WF_OPT_TEXT, AT(load.lengths)},
    {0, "dataset-path", "FILE",
     "CSV file with input and output lengths in the columns ContextTokens and GeneratedTokens; repeatable",
     WF_OPT_WORDS, AT(load.traces)},
    {0, "num-prompts", "N", "requests per load (default 100)", WF_OPT_U32, AT(load.n_requests), 1, 1e7},
    {0, "policy", "NAME,...", "scheduling policies to run: request, orca, sarathi, nanoflow (default: all)",
     WF_OPT_TEXT, AT(load.policies), .words = "request orca sarathi nanoflow"},
    {0, "arrivals", "poisson|trace",
     "requests arrive over time: at random, or at the TIMESTAMP of the dataset (default: all at once)", WF_OPT_CHOICE,
     AT(load.arrivals)},
    {0, "request-rate", "R,...", "average arrivals per second; one run for each value", WF_OPT_REALS, AT(load.rates),
     1e-6, 1e6},
    {0, "seed", "SEED", "random seed of prompts and arrivals (default 0)", WF_OPT_U64, AT(seed), 0, 0x1p64},
};
WF_GROUP(wf_group_load, "Load", rows);
