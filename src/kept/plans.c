/* plans: the files of `weft tune --overlap` and those that weft ships. See plans.h. */
#include "base/cache.h"
#include "base/file.h"
#include "dev/front.h"
#include "kept/plans.h"
#include "plan/milp.h"
#include "select/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* states: also what stays on the device, such as the counts of a layer that has a range for the asynchronous
 * softmax. */
static void describe_operand(const wf_graph *g, const wf_operand *o, bool matrix, bool states, FILE *f)
{
    if (o->value < 0 || (!states && g->values[o->value].kind == WF_VALUE_STATE)) return;
    const wf_value *v = &g->values[o->value];
    fprintf(f, " %d.%d.%d.%u.%u", v->kind, v->rows, v->dtype, v->cols, matrix ? v->weight_rows : 0);
}

/* What its ops take: names, formats and sizes. Those of adapters run as the ones before them. */
static void describe_graph(const wf_graph *g, bool states, FILE *f)
{
    for (const wf_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
        if (n->when == WF_WHEN_ADAPTED) continue;
        fprintf(f, "%d %s %d %d %u/%u/%u", n->layer, n->name, n->kind, n->op, n->p.n_head, n->p.n_kv_head,
                n->p.head_dim);
        for (size_t i = 0; i < WF_MAX_IN; i++) {
            /* A matrix: its rows count; those of a table of rotations grow with the context, which is another
             * matter. */
            bool matrix = (n->op == WF_OP_GEMM && i == WF_GEMM_W) ||
                (n->op == WF_OP_GROUPED_GEMM && i == WF_GROUPED_GEMM_W);
            describe_operand(g, &n->in[i], matrix, states, f);
        }
        for (size_t i = 0; i < WF_MAX_OUT; i++) describe_operand(g, &n->out[i], false, states, f);
        fputc('\n', f);
    }
}

/* Of a device, a graph, or both; NULL: without it. */
static char *describe(wf_dev *dev, const wf_graph *g, bool states)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f) return NULL;
    const struct weft_device_info *d = dev ? &dev->info : NULL;
    if (dev)
        fprintf(f, "overlap 3\n%s|%s|%s|%s|%u\ntier %d threads %u deterministic %d kernels %x\n", d->platform, d->name,
                d->driver, d->version, d->compute_units, dev->params.tier, dev->params.threads,
                dev->params.deterministic, wf_tuned_kernels(dev));
    if (g) describe_graph(g, states, f);
    if (!fclose(f)) return text;
    free(text);
    return NULL;
}

static weft_status key_of(wf_dev *dev, const wf_graph *g, bool states, char name[33])
{
    char *text = describe(dev, g, states);
    wf_cache_key key = text ? wf_cache_key_of("%s", text) : (wf_cache_key){0};
    bool made = key.text != NULL;
    if (made) wf_copy(name, 33, key.name);
    free(key.text);
    free(text);
    return made ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_stored_path(wf_dev *dev, const wf_graph *g, const char *what, char *buf, size_t cap)
{
    char folder[400], slug[128], key[33];
    WF_TRY(key_of(dev, g, true, key));
    WF_TRY(wf_cache_dir(folder, sizeof folder));
    wf_device_slug(&dev->info, slug, sizeof slug);
    if ((size_t)snprintf(buf, cap, "%s/overlap/%s-%s.%s", folder, slug, key, what) < cap) return WEFT_OK;
    return wf_fail(WEFT_ERR_IO, "the path of the cache folder is too long: %s", folder);
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

/* A plan that does not say for which steps it was measured, as of an older weft, would run with others as well. What
 * is kept leaves kernels to the device: a name comes from damage or an edit, and may be one of no kernel or of one that
 * cannot run here. */
static weft_status check_plans(wf_dev *dev, const wf_graph *g, const char *path, wf_plans *out)
{
    WF_TRY(wf_need_regular(path));
    WF_TRY(wf_plans_load(g, path, out));
    for (const wf_plan *plan = out->list; plan < out->list + out->n; plan++) {
        const wf_bucket *b = &plan->bucket;
        if (plan + 1 < out->list + out->n && (!b->least_tokens || !b->least_context || !b->context || b->decodes == 0))
            return wf_fail(WEFT_ERR_ARG,
                           "%s: a plan does not say for which contexts, decodes and tokens it was measured",
                           plan->path);
    }
    for (const wf_plan *plan = out->list; plan < out->list + out->n; plan++)
        for (const wf_plan_line *l = plan->lines; l < plan->lines + plan->n_lines; l++) {
            if (!strcmp(l->kernel, "auto")) continue;
            return wf_fail(WEFT_ERR_ARG, "%s: a kept plan does not name the kernel '%s' here",
                           wf_line_place_of(plan, l).text, l->kernel);
        }
    return wf_plans_finish(g, out, dev->align);
}

static weft_status load_plans(wf_dev *dev, const wf_graph *g, const char *path, wf_plans *out)
{
    weft_status s = check_plans(dev, g, path, out);
    if (s != WEFT_OK) wf_plans_free(out);
    return s;
}

weft_status wf_stored_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap)
{
    *out = (wf_plans){0};
    *path = 0;
    WF_TRY(wf_stored_path(dev, g, "plan", path, cap));
    return access(path, F_OK) ? WEFT_OK : load_plans(dev, g, path, out);
}

/* ---- shipped plans ------------------------------------------------------------------------------------------- */

weft_status wf_shipped_plans_name(wf_dev *dev, const wf_graph *g, char *buf, size_t cap)
{
    char slug[128], key[33];
    WF_TRY(key_of(NULL, g, false, key));
    wf_device_slug(&dev->info, slug, sizeof slug);
    snprintf(buf, cap, "plans/%s-%s.plan", slug, key);
    return WEFT_OK;
}

weft_status wf_shipped_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *path, size_t cap)
{
    char name[200];
    *out = (wf_plans){0};
    *path = 0;
    WF_TRY(wf_shipped_plans_name(dev, g, name, sizeof name));
    /* They were measured with a device as it is opened when nothing is said. */
    bool plain = dev->params.tier == WF_TIER_MATRIX && !dev->params.threads && !dev->params.deterministic;
    return plain && wf_tuned_shipped_path(name, path, cap) ? load_plans(dev, g, path, out) : WEFT_OK;
}

static void say_unusable(const char *path, const char *what_helps, char *from, size_t cap)
{
    wf_log(WEFT_LOG_WARN, "%s: steps are sequential%s", wf_error(), what_helps);
    snprintf(from, cap, "sequential, for %s cannot be used", *path ? path : "the cache folder");
}

/* A plan of another version of weft, or one that was damaged, costs what it would have gained and nothing else. A
 * file of one plan has the sequential one, which is the last of every file. */
bool wf_kept_plans(wf_dev *dev, const wf_graph *g, wf_plans *out, char *from, size_t cap)
{
    char path[512];
    if (wf_stored_plans(dev, g, out, path, sizeof path))
        say_unusable(path, " until weft tune --overlap has run again", from, cap);
    /* a build without CBC searches little, and so takes what others have measured on such a device */
    else if (!out->n) {
        char shipped[1100];
        if (!wf_milp_available() && wf_shipped_plans(dev, g, out, shipped, sizeof shipped))
            say_unusable(shipped, "", from, cap);
        else if (!out->n) wf_copy(from, cap, "sequential: never measured here (weft tune --overlap)");
        else if (out->n == 1) wf_copy(from, cap, "sequential: nothing faster was found on such a device (shipped)");
        else wf_copy(from, cap, "the fastest that was found on such a device (shipped)");
    }
    else wf_copy(from, cap, out->n == 1 ? "sequential: weft tune --overlap found nothing faster"
                 : "the fastest that weft tune --overlap found");
    return out->n;
}

/* ---- profiles ------------------------------------------------------------------------------------------------ */

weft_status wf_stored_sign(wf_dev *dev, const wf_graph *g, wf_op_profile *p)
{
    WF_TRY(key_of(dev, NULL, true, p->device_key));
    return key_of(NULL, g, true, p->model_key);
}

/* By what it was made for; one without that, by names. */
static bool same(const char *key, const char *own_key, const char *name, const char *own_name)
{
    return *key ? !strcmp(key, own_key) : !*name || !strcmp(name, own_name);
}

weft_status wf_stored_check(const wf_op_profile *p, const wf_op_profile *own, const char *path)
{
    if (!same(p->model_key, own->model_key, p->model, own->model))
        return wf_fail(WEFT_ERR_ARG, "%s has times of a model of another shape, %s; this is %s", path, p->model,
                       own->model);
    if (!same(p->device_key, own->device_key, p->device, own->device))
        return wf_fail(
            WEFT_ERR_ARG,
            "%s has times of another device, %s, or of one with other kernels "
            "(weft_engine_params.tier, weft_engine_params.threads, weft_engine_params.deterministic); this is %s",
            path, p->device, own->device);
    return WEFT_OK;
}
