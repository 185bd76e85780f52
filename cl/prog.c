/* From a launch to a kernel: in memory, else from the binary cache, else from the build helper, else
 * built here. One program per variant and set of knobs. */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- programs -------------------------------------------------------------------------------------------- */

static void first_lines(char *text)
{
    int lines = 4;
    for (char *p = text; *p; p++)
        if (*p == '\n' && --lines == 0) *p = 0;
}

/* A program from a stored binary, under the protection of a canary; NULL if that is not to be. */
static cl_program from_cache(cl_dev *d, const wf_cache_key *key, const char *options)
{
    size_t size;
    cl_program prog = NULL;
    if (!*d->cache) return NULL;
    void *bin = wf_cache_get(d->cache, key, &size);
    if (!bin) return NULL;
    if (wf_cl_canary_arm(d->cache, key)) {
        cl_int err = wf_cl_load(d->ctx, d->ref.device, bin, size, options, &prog);
        wf_cl_canary_clear(d->cache, key);
        if (err != CL_SUCCESS) {
            wf_log(WEFT_LOG_DEBUG, "kept kernel %s is refused (%s); building it", key->name,
                   wf_cl_error_name(err));
            wf_cache_remove(d->cache, key);
            prog = NULL;
        }
    }
    free(bin);
    return prog;
}

/* Built in this process. */
static weft_status build_here(cl_dev *d, const char *source, const char *options, cl_program *out)
{
    char *log = NULL;
    cl_int err = wf_cl_compile(d->ctx, d->ref.device, source, options, out, &log);
    if (err == CL_SUCCESS) return WEFT_OK;
    if (log) first_lines(log);
    wf_fail(WEFT_ERR_UNSUPPORTED, "clBuildProgram: %s%s%s", wf_cl_error_name(err), log ? ": " : "",
            log ? log : "");
    free(log);
    return WEFT_ERR_UNSUPPORTED;
}

static void keep_binary(cl_dev *d, const wf_cache_key *key, cl_program prog)
{
    size_t size;
    void *bin = *d->cache ? wf_cl_binary(prog, &size) : NULL;
    if (bin) wf_cache_put(d->cache, key, bin, size);
    free(bin);
}

/* From source: first in the helper, which may die in our place. */
static weft_status build_program(cl_dev *d, const wf_cache_key *key, const char *source, const char *options,
                         cl_program *out)
{
    void *bin = NULL;
    size_t size = 0;
    switch (wf_cl_child_build(d, source, options, &bin, &size)) {
    case CL_CHILD_FAILED: return WEFT_ERR_UNSUPPORTED;
    case CL_CHILD_STOPPED: return WEFT_ERR_CANCELLED;
    case CL_CHILD_NONE: break;
    case CL_CHILD_OK:
        if (size && wf_cl_load(d->ctx, d->ref.device, bin, size, options, out) == CL_SUCCESS) {
            if (*d->cache) wf_cache_put(d->cache, key, bin, size);
            free(bin);
            return WEFT_OK;
        }
        free(bin); /* the driver cannot load its own binary; the source is now known to be harmless */
    }
    WF_TRY(build_here(d, source, options, out));
    keep_binary(d, key, *out);
    return WEFT_OK;
}

void wf_cl_progress(const cl_dev *d, double fraction)
{
    if (d->base.params.on_progress) d->base.params.on_progress(d->base.params.user, "compile", fraction);
}

static weft_status get_program(cl_dev *d, const char *source, const char *options, cl_kern *k)
{
    wf_cache_key key = wf_cl_key(&d->ref.info, source, options);
    if (!key.text) return WEFT_ERR_NOMEM;
    weft_status st = WEFT_OK;
    wf_kernel_work *work = &d->base.kernel_work;
    uint64_t began = wf_now_ns();
    k->program = from_cache(d, &key, options);
    if (k->program) {
        work->kept++;
        work->kept_ns += wf_now_ns() - began;
    } else {
        /* how many will follow is not known here: the fraction only says that there is progress */
        wf_cl_progress(d, d->n_built / (d->n_built + 8.0));
        st = build_program(d, &key, source, options, &k->program);
        d->n_built++;
        work->built++;
        work->built_ns += wf_now_ns() - began;
        wf_cl_progress(d, d->n_built / (d->n_built + 8.0));
    }
    wf_copy(k->id, sizeof k->id, key.name);
    free(key.text);
    return st;
}

/* ---- kernels --------------------------------------------------------------------------------------------- */

void wf_cl_kernel_free(cl_dev *d, cl_kern *k)
{
    if (!d->base.lost) { /* else it may block: leaked on purpose */
        if (k->kernel) clReleaseKernel(k->kernel);
        if (k->before) clReleaseKernel(k->before);
        if (k->after) clReleaseKernel(k->after);
        if (k->program) clReleaseProgram(k->program);
    }
    free(k);
}

void wf_cl_kernels_free(cl_dev *d)
{
    for (int op = 0; op < WF_N_OPS; op++)
        for (int v = 0; v < WF_MAX_VARIANTS; v++)
            for (cl_kern *k = d->var[op][v].kern, *next; k; k = next) {
                next = k->next;
                wf_cl_kernel_free(d, k);
            }
}

bool wf_cl_kernel_serves(const cl_kern *k, const cl_launch *l)
{
    if (k->wtype != l->wtype || k->n_knobs != l->n_knobs) return false;
    for (uint32_t i = 0; i < l->n_knobs; i++)
        if (k->knob[i].value != l->knob[i].value || strcmp(k->knob[i].name, l->knob[i].name)) return false;
    return true;
}

void wf_cl_kernel_describe(cl_kern *k, const cl_variant *v, const cl_launch *l)
{
    memcpy(k->knob, l->knob, sizeof k->knob);
    k->n_knobs = l->n_knobs;
    k->group = l->group;
    k->variant = v;
    k->wtype = l->wtype;
    k->library = l->library;
}

static weft_status create_kernel(const cl_kern *k, const char *family, const char *suffix, cl_kernel *out)
{
    char name[64];
    cl_int err = CL_SUCCESS;
    snprintf(name, sizeof name, "%s%s", family, suffix);
    *out = clCreateKernel(k->program, name, &err);
    return err == CL_SUCCESS ? WEFT_OK : wf_fail(WEFT_ERR_UNSUPPORTED, "clCreateKernel: %s", wf_cl_error_name(err));
}

static weft_status create_kernels(cl_kern *k, const char *family, const cl_launch *l)
{
    WF_TRY(create_kernel(k, family, "", &k->kernel));
    if (l->before) WF_TRY(create_kernel(k, family, "_before", &k->before));
    return l->after ? create_kernel(k, family, "_after", &k->after) : WEFT_OK;
}

/* Work-items a work-group that the built kernel can have; 0 if the driver does not say. */
static size_t kernel_limit(const cl_dev *d, cl_kernel k)
{
    size_t n = 0;
    if (d->ref.quirks.no_kernel_limit) return SIZE_MAX;
    if (clGetKernelWorkGroupInfo(k, d->ref.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof n, &n, NULL))
        return 0;
    return n;
}

weft_status wf_cl_kernel_alone(cl_dev *d, const cl_variant *v, const cl_launch *l, cl_kern **out)
{
    char options[1024];
    uint32_t before = d->n_built;
    uint64_t began = wf_now_ns();
    cl_kern *k = wf_calloc(1, sizeof *k);
    char *source = k ? wf_cl_compose(&d->ref.quirks, v, l) : NULL;
    weft_status st = source ? WEFT_OK : WEFT_ERR_NOMEM;
    wf_cl_options(&d->ref.quirks, l, options, sizeof options);
    if (st == WEFT_OK) st = get_program(d, source, options, k);
    free(source);
    if (st == WEFT_OK) st = create_kernels(k, v->family, l);
    if (st != WEFT_OK) {
        if (k) wf_cl_kernel_free(d, k);
        return wf_fail_context(st, "kernel %s/%s (%s) for %s", wf_ops[v->op].name, v->name, options,
                            d->ref.info.name);
    }
    if (d->n_built > before)
        wf_log(WEFT_LOG_DEBUG, "%s/%s (%s) built in %.0f ms", wf_ops[v->op].name, v->name, options,
               (double)(wf_now_ns() - began) / 1e6);
    wf_cl_kernel_describe(k, v, l);
    *out = k;
    return WEFT_OK;
}

weft_status wf_cl_kernel_of(cl_dev *d, enum wf_op op, int variant, const cl_launch *l, cl_kern **out)
{
    const cl_variant *v = wf_cl_variant_at(op, variant);
    cl_kern *k;
    for (k = d->var[op][variant].kern; k; k = k->next)
        if (wf_cl_kernel_serves(k, l)) return *out = k, WEFT_OK;
    WF_TRY(wf_cl_kernel_alone(d, v, l, &k));
    size_t limit = kernel_limit(d, k->kernel);
    *out = limit >= l->group ? k : NULL;
    if (*out) {
        k->next = d->var[op][variant].kern;
        d->var[op][variant].kern = k;
        return WEFT_OK;
    }
    wf_cl_kernel_free(d, k);
    d->var[op][variant].limit = (uint32_t)WF_MAX(limit, 1);
    if (limit) return WEFT_OK;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "%s/%s: no work-group size", wf_ops[op].name, v->name);
}

weft_status wf_cl_kernel(cl_dev *d, int variant, const wf_call *c, cl_launch *l, cl_kern **out)
{
    const cl_variant *v = wf_cl_variant_at(c->op, variant);
    for (;;) {
        if (!wf_cl_configure(d, variant, c, l))
            return wf_fail(WEFT_ERR_UNSUPPORTED, "%s/%s cannot run this call on %s", wf_ops[c->op].name,
                           v->name, d->ref.info.name);
        WF_TRY(wf_cl_kernel_of(d, c->op, variant, l, out));
        if (*out) return WEFT_OK;
        /* Registers or local memory allow less than the device as a whole: configure again, smaller. */
    }
}

weft_status wf_cl_bind(wf_dev *base, const wf_call *c, int variant, wf_bound *out)
{
    cl_dev *d = (cl_dev *)base;
    cl_launch l;
    cl_kern *k;
    WF_TRY(wf_cl_check_lost(d));
    if (!wf_cl_variant_at(c->op, variant))
        return wf_fail(WEFT_ERR_ARG, "%s has no variant %d", wf_ops[c->op].name, variant);
    WF_TRY(wf_cl_kernel(d, variant, c, &l, &k));
    d->scratch = WF_MAX(d->scratch, l.scratch);
    d->zeroed = WF_MAX(d->zeroed, l.zeroed);
    *out = (wf_bound){variant, k};
    return WEFT_OK;
}

/* With work-groups as large as the kernel was built for, whatever limits were learnt since. */
bool wf_cl_configure_bound(const cl_dev *d, const wf_bound *b, const wf_call *c, cl_launch *l)
{
    const cl_kern *k = b->kernel;
    memset(l, 0, sizeof *l);
    return k->variant->configure(&d->ref.caps, k->variant, c, k->group, l) && wf_cl_kernel_serves(k, l);
}

/* What a library runs besides is unknown. */
bool wf_cl_kernel_id(wf_dev *dev, const wf_bound *b, char *buf, size_t cap)
{
    const cl_kern *k = b->kernel;
    (void)dev;
    wf_copy(buf, cap, k->id);
    return !k->library;
}
