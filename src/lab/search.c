/* search: plans for an engine's model and device, found from a profile. See lab.h. */
#include "lab/overlap.h"
#include "plan/milp.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_profile_print(const char *path, FILE *f)
{
    wf_op_profile profile;
    weft_status s = wf_fail_param(wf_op_profile_load(path, &profile), "profile");
    if (s == WEFT_OK) wf_op_profile_print(&profile, f);
    wf_op_profile_free(&profile);
    if (s == WEFT_OK && fflush(f)) s = wf_fail(WEFT_ERR_IO, "the profile could not be written whole");
    return s;
}

weft_status weft_profile_read(const char *path, struct weft_profile **out)
{
    *out = NULL;
    wf_op_profile profile;
    weft_status s = wf_fail_param(wf_op_profile_load(path, &profile), "profile");
    struct weft_profile *p = s == WEFT_OK ? wf_calloc(1, sizeof *p) : NULL;
    if (p) p->rates = wf_calloc((size_t)WF_N_CLASSES * WF_MAX_SHARES, sizeof *p->rates);
    if (s == WEFT_OK && (!p || !p->rates)) s = WEFT_ERR_NOMEM;
    for (int c = 0; s == WEFT_OK && c < WF_N_CLASSES; c++) {
        const wf_share_rate *points = profile.together[c].points, *end = points + profile.together[c].n;
        for (const wf_share_rate *r = points; c != WF_CLASS_COMPUTE && r < end; r++)
            p->rates[p->n_rates++] = (struct weft_profile_rate){.op_class = (enum weft_class)c, .share = r->share,
                                                                .rate = r->rate,
                                                                .lost = 1 - wf_class_rate(&profile, WF_CLASS_COMPUTE,
                    1 - r->share), .spread = r->spread};
    }
    if (s == WEFT_OK) {
        wf_copy(p->device, sizeof p->device, profile.device);
        wf_copy(p->model, sizeof p->model, profile.model);
        p->groups = profile.groups, p->context = profile.context;
        *out = p;
    } else weft_profile_free(p);
    wf_op_profile_free(&profile);
    return s;
}

void weft_profile_free(struct weft_profile *p)
{
    if (p) free(p->rates);
    free(p);
}

weft_status wf_stored_fits(const struct weft_engine *e, const wf_op_profile *p, const char *path, const char *what)
{
    wf_op_profile own = {0};
    if (!*p->model_key) return WEFT_OK;
    WF_TRY(wf_stored_sign(e->dev, &e->layout.graph, &own));
    wf_show(own.device, sizeof own.device, e->dev->info.name);
    wf_show(own.model, sizeof own.model, e->model->info.name ? e->model->info.name : "");
    if (strcmp(p->model_key, own.model_key)) return wf_stored_check(p, &own, path);
    if (wf_stored_check(p, &own, path)) wf_log(WEFT_LOG_WARN, "%s: %s are for that one", wf_error(), what);
    return WEFT_OK;
}

weft_status weft_search(struct weft_engine *e, const struct weft_search_params *p, FILE *f, bool *stopped)
{
    wf_op_profile profile;
    wf_search_result r = {.n = 0};
    const wf_graph *g = &e->layout.graph;
    uint32_t tokens = p->tokens ? p->tokens : e->layout.limits.step_tokens;
    /* Rows of the output matrix: the decodes, and the last token of a prompt if there is one. */
    wf_sim_batch b = {tokens, p->decodes, WF_MIN(p->decodes + (tokens > p->decodes), e->layout.limits.logit_rows)};
    wf_search_params params = {.batch = b, .keep = WF_MAX(p->keep, 4u),
                               .seconds = p->seconds, .stop = p->stop, .progress = p->on_progress, .user = p->user};
    weft_status s = wf_fail_param(wf_op_profile_load(p->profile, &profile), "profile");
    if (s == WEFT_OK) s = wf_stored_fits(e, &profile, p->profile, "the plans");
    if (s == WEFT_OK) s = wf_search(g, &profile, &params, &r);
    if (s == WEFT_OK) {
        double sequential = r.list[r.n - 1].us;
        if (!wf_milp_available()) fputs("this weft was built without CBC: only the built-in orders were tried\n", f);
        fprintf(f, "simulated from %s, %s\n   # plan                                                   us   gain\n",
                *profile.device ? profile.device : "a device", *profile.model ? profile.model : "a model");
        for (size_t i = 0; i < r.n; i++)
            fprintf(f, "%4zu %-48s %10.1f  %.3fx\n", i + 1, r.list[i].how, r.list[i].us, sequential / r.list[i].us);
        if (r.n == 1) fputs("no plan is faster than the sequential one\n", f);
        if (r.cut_short) fputs("not all was tried\n", f);
    }
    for (size_t i = 0; s == WEFT_OK && p->plan && i < r.n && i < (p->keep ? p->keep : 1); i++) {
        char path[4096];
        int n = i ? snprintf(path, sizeof path, "%s.%zu", p->plan, i + 1) : snprintf(path, sizeof path, "%s", p->plan);
        if ((size_t)n >= sizeof path) s = wf_fail(WEFT_ERR_ARG, "the path is too long: %s", p->plan);
        else s = wf_found_save(g, &r.list[i], &b, path);
    }
    if (stopped) *stopped = s == WEFT_OK && r.cut_short && p->stop && p->stop(p->user);
    if (s == WEFT_OK && fflush(f)) s = wf_fail(WEFT_ERR_IO, "the result could not be written whole");
    wf_search_free(&r);
    wf_op_profile_free(&profile);
    return s;
}
