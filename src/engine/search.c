/* search: plans for an engine's model and device, found from a profile. See tune.h. */
#include "engine/engine.h"
#include "plan/milp.h"
#include "plan/search.h"
#include <weft/tune.h>

#include <stdlib.h>
#include <string.h>

weft_status weft_profile_print(const char *path, FILE *f)
{
    WF_NOT_NULL(path);
    WF_NOT_NULL(f);
    wf_op_profile profile;
    weft_status s = wf_fail_param(wf_op_profile_load(path, &profile), "profile");
    if (s == WEFT_OK) wf_op_profile_print(&profile, f);
    wf_op_profile_free(&profile);
    if (s == WEFT_OK && fflush(f)) s = wf_fail(WEFT_ERR_IO, "the profile could not be written whole");
    return s;
}

static void add_rates(const wf_op_profile *p, enum wf_class class, struct weft_profile *out)
{
    for (const wf_share_rate *r = p->together[class].points; r < p->together[class].points + p->together[class].n; r++)
        out->rates[out->n_rates++] = (struct weft_profile_rate){.op_class = (enum weft_class)class, .share = r->share,
                                                                .lost = 1 - wf_class_rate(p, WF_CLASS_COMPUTE, 1 - r->share), .rate = r->rate, .spread = r->spread};
}

static struct weft_profile *read_rates(const wf_op_profile *p)
{
    struct weft_profile *out = wf_calloc(1, sizeof *out);
    if (out) out->rates = wf_calloc((size_t)WF_N_CLASSES * WF_MAX_SHARES, sizeof *out->rates);
    if (!out || !out->rates) return weft_profile_free(out), NULL;
    wf_copy(out->device, sizeof out->device, p->device);
    wf_copy(out->model, sizeof out->model, p->model);
    out->groups = p->groups, out->context = p->context;
    for (size_t c = 0; c < WF_N_CLASSES; c++)
        if (c != WF_CLASS_COMPUTE) add_rates(p, (enum wf_class)c, out);
    return out;
}

weft_status weft_profile_read(const char *path, struct weft_profile **out)
{
    WF_NOT_NULL(out);
    *out = NULL;
    WF_NOT_NULL(path);
    wf_op_profile profile;
    weft_status s = wf_fail_param(wf_op_profile_load(path, &profile), "profile");
    struct weft_profile *p = s == WEFT_OK ? read_rates(&profile) : NULL;
    wf_op_profile_free(&profile);
    if (s == WEFT_OK && !p) s = WEFT_ERR_NOMEM;
    if (s == WEFT_OK) *out = p;
    return s;
}

void weft_profile_free(struct weft_profile *p)
{
    if (p) free(p->rates);
    free(p);
}

static void print_result(const wf_search_result *r, const wf_op_profile *profile, FILE *f)
{
    double sequential = r->list[r->n - 1].us;
    if (!wf_milp_available()) fputs("this weft was built without CBC: only the built-in orders were tried\n", f);
    fprintf(f, "simulated from %s, %s\n   # plan                                                   us   gain\n", *profile->device ? profile->device : "a device", *profile->model ? profile->model : "a model");
    for (size_t i = 0; i < r->n; i++) fprintf(f, "%4zu %-48s %10.1f  %.3fx\n", i + 1, r->list[i].how, r->list[i].us, sequential / r->list[i].us);
    if (r->n == 1) fputs("no plan is faster than the sequential one\n", f);
    if (r->cut_short) fputs("not all was tried\n", f);
}

static weft_status save(const struct weft_engine *e, const struct weft_search_params *p, const wf_search_result *r, const wf_sim_batch *b, bool copy_queue)
{
    for (size_t i = 0; p->plan && i < r->n && i < (p->keep ? p->keep : 1); i++) {
        char path[4096];
        int n = i ? snprintf(path, sizeof path, "%s.%zu", p->plan, i + 1) : snprintf(path, sizeof path, "%s", p->plan);
        if ((size_t)n >= sizeof path) return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", p->plan);
        WF_TRY(wf_found_save(&e->graph, &r->list[i], b, copy_queue, path));
    }
    return WEFT_OK;
}

/* Rows of the output matrix: the decodes, and the last token of a prompt if there is one. */
static uint32_t logits_of(const struct weft_engine *e, uint32_t tokens, uint32_t decodes)
{
    return WF_MIN(decodes + (tokens > decodes), e->limits.logit_rows);
}

static weft_status search(struct weft_engine *e, const struct weft_search_params *p, const wf_op_profile *profile, FILE *f, bool *stopped)
{
    wf_search_result r;
    uint32_t tokens = p->tokens ? p->tokens : e->limits.step_tokens;
    wf_search_params params = {.batch = {tokens, p->decodes, logits_of(e, tokens, p->decodes)}, .copy_queue = wf_engine_copy_queue(e),
                               .keep = WF_MAX(p->keep, 4u), .seconds = p->seconds, .stop = p->stop, .progress = p->on_progress, .user = p->user};
    weft_status s = wf_search(&e->graph, profile, &params, &r);
    if (s == WEFT_OK) print_result(&r, profile, f);
    if (s == WEFT_OK) s = save(e, p, &r, &params.batch, params.copy_queue);
    if (stopped) *stopped = s == WEFT_OK && r.cut_short && p->stop && p->stop(p->user);
    wf_search_free(&r);
    if (s == WEFT_OK && fflush(f)) s = wf_fail(WEFT_ERR_IO, "the result could not be written whole");
    return s;
}

weft_status weft_search(struct weft_engine *e, const struct weft_search_params *p, FILE *f, bool *stopped)
{
    WF_NOT_NULL(e);
    WF_NOT_NULL(p);
    WF_NOT_NULL(p->profile);
    WF_NOT_NULL(f);
    WF_TRY(WF_UNUSED(p));
    wf_op_profile profile;
    weft_status s = wf_fail_param(wf_op_profile_load(p->profile, &profile), "profile");
    if (s == WEFT_OK) s = wf_stored_fits(e, &profile, p->profile, "the plans");
    if (s == WEFT_OK) s = search(e, p, &profile, f, stopped);
    wf_op_profile_free(&profile);
    return s;
}
