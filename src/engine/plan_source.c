/* plan_source: where the plans of an engine come from, and so why its steps are sequential, in words. See engine.h and weft.h. */
#include "engine/attention_windows.h"
#include "engine/auto_calibrate.h"
#include "engine/engine.h"
#include "plan/milp.h"
#include "select/select.h"
#include <weft/tune.h>

#include <stdlib.h>

void wf_plan_asked(const struct weft_engine_params *p, char *from, size_t cap)
{
    *from = 0;
    if (p->plan) snprintf(from, cap, "those of %s", p->plan);
    else if (p->nano_batches > 1) snprintf(from, cap, "in %u nano-batches, as weft_engine_params.nano_batches says", p->nano_batches);
    else if (p->nano_batches) wf_copy(from, cap, "sequential, as weft_engine_params.nano_batches says");
}

static void say_unusable(const char *path, const char *what_helps, char *from, size_t cap)
{
    wf_log(WEFT_LOG_WARN, "%s: steps are sequential%s", wf_error(), what_helps);
    snprintf(from, cap, "sequential, for %s cannot be used", *path ? path : "the cache folder");
}

/* A build without CBC searches little, and so takes what others have measured on such a device. */
static void take_shipped(wf_dev *dev, const wf_graph *g, wf_plans *out, char *from, size_t cap)
{
    char path[1100];
    if (!wf_milp_available() && wf_shipped_plans(dev, g, out, path, sizeof path)) say_unusable(path, "", from, cap);
    else if (!out->n) wf_copy(from, cap, "sequential: never measured here (weft tune --overlap)");
    else wf_copy(from, cap, out->n == 1 ? "sequential: nothing faster was found on such a device (shipped)" : "the fastest that was found on such a device (shipped)");
}

/* A plan of another version of weft, or one that was damaged, costs what it would have gained and nothing else. A file of one plan has the sequential one,
 * which is the last of every file. */
bool wf_kept_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *from, size_t cap)
{
    char path[512];
    if (wf_stored_plans(dev, g, out, path, sizeof path)) say_unusable(path, " until weft tune --overlap has run again", from, cap);
    else if (!out->n) take_shipped(dev, g, out, from, cap);
    else wf_copy(from, cap, out->n == 1 ? "sequential: weft tune --overlap found nothing faster" : "the fastest that weft tune --overlap found");
    return out->n;
}

weft_status wf_engine_choose_plans(struct weft_engine *e, const struct weft_engine_params *p, uint32_t tile)
{
    bool copy_queue = wf_engine_copy_queue(e);
    if (p->plan && p->nano_batches > 1) return wf_fail(WEFT_ERR_ARG, "a plan from a file says itself how many nano-batches there are");
    wf_plan_asked(p, e->plan_from, sizeof e->plan_from);
    if (p->plan) return wf_fail_param(wf_plans_load(&e->graph, p->plan, &e->plans), "plan");
    if (p->nano_batches > 1) return wf_plans_overlap(&e->graph, p->nano_batches, e->limits.step_tokens, tile, copy_queue, &e->plans);
    if (!p->nano_batches && wf_kept_plans(e->dev, &e->graph, &e->plans, e->plan_from, sizeof e->plan_from)) return WEFT_OK;
    e->plans.n = 1;
    return wf_plan_sequential(&e->graph, copy_queue, &e->plans.list[0]);
}

const char *weft_engine_plan_source(const struct weft_engine *e)
{
    return e ? e->plan_from : "";
}

typedef struct source {
    wf_dev *dev;
    wf_graph g;
    wf_weights w;
    wf_plans plans;
    wf_auto_calibration ranges;
} source;

/* The graph that an engine would have, for which plans are kept. */
static weft_status find(const struct weft_model *m, const struct weft_engine_params *p, source *s, char *out, size_t cap)
{
    wf_open_params o = {.threads = p->threads, .tuned = p->tuned, .deterministic = p->deterministic, .f16_residual = p->f16_residual, .no_kernel_cache = p->no_kernel_cache};
    WF_TRY(wf_tier_parse(p->tier, &o.tier));
    WF_TRY(wf_select_open(p->device, &o, &s->dev));
    wf_build_params b = wf_build_params_of(s->dev, wf_engine_context(m, p), wf_engine_page(p));
    WF_TRY(wf_model_build(m->arch, m->file, &m->hp, &b, &s->g, &s->w));
    WF_TRY(wf_attention_windows_use(m, p->attention_windows, &s->g, &s->w));
    uint32_t step_tokens = p->max_batched_tokens ? p->max_batched_tokens : wf_engine_step_tokens(s->dev);
    WF_TRY(wf_ranges_find(m, p, s->dev, &s->g, step_tokens, &s->ranges));
    WF_TRY(wf_graph_end(&s->g));
    wf_kept_plans(s->dev, &s->g, &s->plans, out, cap);
    return WEFT_OK;
}

weft_status weft_plan_source(const struct weft_model *m, const struct weft_engine_params *p, char *out, size_t cap)
{
    WF_NOT_NULL(m);
    WF_NOT_NULL(p);
    WF_NOT_NULL(out);
    if (!cap) return wf_fail(WEFT_ERR_ARG, "weft_plan_source: want room for a text");
    WF_TRY(wf_engine_check_params(m, p));
    wf_plan_asked(p, out, cap);
    if (*out) return WEFT_OK;
    source *s = wf_calloc(1, sizeof *s);
    if (!s) return WEFT_ERR_NOMEM;
    weft_status status = find(m, p, s, out, cap);
    wf_auto_calibration_free(&s->ranges);
    wf_plans_free(&s->plans);
    wf_graph_free(&s->g);
    wf_weights_free(&s->w);
    if (s->dev) wf_dev_close(s->dev);
    free(s);
    return status;
}
