/* kernels.c: weft_kernels and weft_kernel_source — which kernels there are, and their text. */
#include "lab/lab.h"

#include <string.h>

#include "engine/engine.h"
#include "verify/check.h"

/* Problem i, without an answer, if it is one of the op: the larger ones, then those of the self-test. */
static weft_status problem_of(enum wf_op op, size_t i, wf_check **out, bool *past)
{
    const wf_case *larger;
    wf_case c;
    *out = NULL;
    size_t n_larger = wf_cases_larger(&larger);
    if (i < n_larger) c = larger[i];
    *past = i >= n_larger && !wf_case_small(i - n_larger, 0, &c);
    return *past || c.op != op ? WEFT_OK : wf_check_new(NULL, &c, out);
}

/* ---- the list ------------------------------------------------------------------------------------------------ */

static wf_kernel_about about(wf_dev *d, enum wf_op op, int variant)
{
    wf_kernel_about a = {.layout = "rows", .needs = ""};
    if (d->fns->about) d->fns->about(d, op, variant, &a);
    return a;
}

/* e: NULL, or whose steps it is to run. */
static weft_status list_op(wf_dev *d, const struct weft_engine *e, enum wf_op op, weft_kernel_fn fn, void *user)
{
    const wf_variant *v;
    for (int variant = 0; (v = wf_variant_at(d, op, variant)); variant++) {
        wf_kernel_about a = about(d, op, variant);
        struct weft_kernel k = {.op = wf_ops[op].name, .name = v->name, .tier = wf_tier_name_on(d, v->tier),
                                .layout = a.layout, .invariance = v->class,
                                .batch_dependent = v->flags & WF_BATCH_DEPENDENT, .needs = a.needs, .file = a.file};
        if (e) k.runs = wf_exec_can_run(e->exec, op, variant);
        bool past = e;
        for (size_t i = 0; !past && !k.runs; i++) { /* can the device run it on some problem? */
            wf_check *c;
            WF_TRY(problem_of(op, i, &c, &past));
            if (c) k.runs = wf_check_supported(c, d, variant);
            wf_check_free(c);
        }
        fn(user, &k);
    }
    return WEFT_OK;
}

static weft_status open_device(const char *device, const char *tier, wf_dev **d)
{
    wf_open_params p = {0};
    WF_TRY(wf_tier_parse(tier, &p.tier));
    return wf_dev_open(device, &p, d);
}

enum weft_status weft_kernels(const char *device, const char *tier, weft_kernel_fn fn, void *user)
{
    wf_dev *d = NULL;
    weft_status s = open_device(device, tier, &d);
    for (int op = 0; !s && op < WF_N_OPS; op++) s = list_op(d, NULL, (enum wf_op)op, fn, user);
    wf_dev_close(d);
    return s;
}

enum weft_status weft_engine_kernels(const struct weft_engine *e, weft_kernel_fn fn, void *user)
{
    for (int op = 0; op < WF_N_OPS; op++) WF_TRY(list_op(e->dev, e, (enum wf_op)op, fn, user));
    return WEFT_OK;
}

/* ---- the text of one ----------------------------------------------------------------------------------------- */

/* "name" or "op/name". A name that several ops have is no name of one. */
static weft_status find_variant(wf_dev *d, const char *name, enum wf_op *op, int *variant)
{
    const char *slash = strchr(name, '/');
    int found = 0;
    for (int i = 0; i < WF_N_OPS; i++) {
        size_t n = slash ? (size_t)(slash - name) : 0;
        if (slash && (strlen(wf_ops[i].name) != n || strncmp(wf_ops[i].name, name, n))) continue;
        int v = wf_variant_find(d, (enum wf_op)i, slash ? slash + 1 : name);
        if (v < 0) continue;
        found++;
        *op = (enum wf_op)i;
        *variant = v;
    }
    if (found == 1) return WEFT_OK;
    for (int i = 0; i < WF_N_OPS && !found; i++)
        if (!strcmp(name, wf_ops[i].name))
            return wf_fail(WEFT_ERR_ARG, "%s is an op: name one of its variants, for example %s/%s", name, name,
                           wf_variant_at(d, (enum wf_op)i, 0)->name);
    if (found)
        return wf_fail(WEFT_ERR_ARG, "%d ops have a kernel variant '%s'; write the op in front, for example %s/%s",
                       found, name, wf_ops[*op].name, name);
    return wf_fail(WEFT_ERR_ARG, "%s has no kernel variant '%s'; `weft kernels --device %s` lists them", d->info.id,
                   name, d->info.id);
}

static weft_status source_of(wf_dev *d, const char *name, char **text)
{
    enum wf_op op = 0;
    int variant = -1;
    WF_TRY(find_variant(d, name, &op, &variant));
    wf_kernel_about a = about(d, op, variant);
    const char *op_name = wf_ops[op].name;
    name = wf_variant_at(d, op, variant)->name;
    if (!d->fns->source)
        return wf_fail(WEFT_ERR_ARG, "%s/%s is compiled with weft, not on the device: read %s", op_name, name, a.file);
    weft_status s = WEFT_ERR_UNSUPPORTED;
    for (int elsewhere = 0; s == WEFT_ERR_UNSUPPORTED && elsewhere < 2; elsewhere++) {
        bool past = false; /* from the first problem that this device can run it on, or else that another one could */
        for (size_t i = 0; s == WEFT_ERR_UNSUPPORTED && !past; i++) {
            wf_check *k;
            wf_call c;
            wf_buf stand_in = {d, UINT64_MAX, NULL};
            WF_TRY(problem_of(op, i, &k, &past));
            if (k && (elsewhere || wf_check_supported(k, d, variant))) {
                wf_check_stand_in(k, d, wf_variant_at(d, op, variant), &stand_in, &c);
                s = d->fns->source(d, &c, variant, text);
            }
            wf_check_free(k);
        }
    }
    if (s == WEFT_ERR_UNSUPPORTED)
        return wf_fail(WEFT_ERR_ARG, "no small problem suits %s/%s: read %s", op_name, name, a.file);
    return s;
}

enum weft_status weft_kernel_source(const char *device, const char *name, char **text)
{
    wf_dev *d = NULL;
    *text = NULL;
    weft_status s = open_device(device, NULL, &d);
    if (!s) s = source_of(d, name, text);
    wf_dev_close(d);
    return s;
}
