/* The OpenCL backend: which devices there are, opening and closing one. */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- enumeration -------------------------------------------------------------------------------------- */

/* Usable devices of platform p, appended to out; returns the new total. Devices past cap are counted. */
static size_t platform_devices(cl_platform_id platform, uint32_t p, cl_device_ref *out, size_t cap,
                               size_t n)
{
    cl_device_id ids[64];
    cl_uint nd = 0;
    cl_int err = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, WF_LEN(ids), ids, &nd);
    if (err != CL_SUCCESS) {
        char name[96] = "";
        clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
        wf_log(WEFT_LOG_DEBUG, "OpenCL platform %u has no device: %s", p, wf_cl_error_name(err));
        wf_cl_explain_no_device(name);
        return n;
    }
    for (uint32_t d = 0; d < WF_MIN(nd, WF_LEN(ids)); d++) {
        cl_device_ref ref = {.p = p, .d = d, .platform = platform, .device = ids[d]};
        if (!wf_cl_caps(&ref)) continue;
        if (n < cap) out[n] = ref;
        n++;
    }
    return n;
}

static size_t enumerate(cl_device_ref *out, size_t cap)
{
    cl_platform_id ids[32];
    cl_uint np = 0;
    size_t n = 0;
    cl_int err = clGetPlatformIDs(WF_LEN(ids), ids, &np);
    if (err != CL_SUCCESS) {
        wf_log(WEFT_LOG_DEBUG, "no OpenCL platform: %s", wf_cl_error_name(err));
        return 0;
    }
    for (uint32_t p = 0; p < WF_MIN(np, WF_LEN(ids)); p++) n = platform_devices(ids[p], p, out, cap, n);
    return n;
}

#define MAX_DEVICES 64

static size_t cl_list(struct weft_device_info *out, size_t cap)
{
    cl_device_ref *refs = wf_calloc(MAX_DEVICES, sizeof *refs);
    if (!refs) return 0;
    size_t n = WF_MIN(enumerate(refs, MAX_DEVICES), MAX_DEVICES);
    for (size_t i = 0; i < WF_MIN(n, cap); i++) out[i] = refs[i].info;
    free(refs);
    return n;
}

static bool device_at(size_t i, cl_device_ref *out)
{
    cl_device_ref *refs = wf_calloc(MAX_DEVICES, sizeof *refs);
    if (!refs) return false;
    size_t n = WF_MIN(enumerate(refs, MAX_DEVICES), MAX_DEVICES);
    if (i < n) *out = refs[i];
    free(refs);
    return i < n;
}

/* ---- open, close ---------------------------------------------------------------------------------------- */

/* Where kernels are kept between runs; without such a folder they are built each time. */
static void find_cache(cl_dev *d)
{
    char dir[480];
    if (d->base.params.no_kernel_cache || d->ref.quirks.no_binaries) return;
    if (wf_cache_dir(dir, sizeof dir) != WEFT_OK) {
        wf_log(WEFT_LOG_DEBUG, "kernels are not kept: %s", wf_error());
        return;
    }
    snprintf(d->cache, sizeof d->cache, "%s/cl", dir);
}

static void cl_close(wf_dev *base)
{
    cl_dev *d = (cl_dev *)base;
    wf_cl_child_stop(&d->child);
    /* A lost device may block in any release, so what it held is left to the end of the process. */
    if (!d->base.lost) {
        if (d->own) wf_cl_queue_destroy(base, &d->own->base);
        wf_cl_kernels_free(d);
        wf_cl_clblast_close(d);
        if (d->ctx) clReleaseContext(d->ctx);
    } else {
        wf_cl_kernels_free(d);
        free(d->own);
    }
    free(d);
}

static const wf_dev_fns fns = {
    .close = cl_close,
    .buf_create = wf_cl_buf_create,
    .buf_destroy = wf_cl_buf_destroy,
    .host_create = wf_cl_host_create,
    .queue_create = wf_cl_queue_create,
    .queue_destroy = wf_cl_queue_destroy,
    .event_create = wf_cl_event_create,
    .event_destroy = wf_cl_event_destroy,
    .write = wf_cl_write,
    .read = wf_cl_read,
    .copy_rows = wf_cl_copy_rows,
    .fill = wf_cl_fill,
    .submit = wf_cl_submit,
    .launch = wf_cl_launch,
    .reserve = wf_cl_reserve,
    .mark = wf_cl_mark,
    .flush = wf_cl_flush,
    .wait = wf_cl_wait,
    .poll = wf_cl_poll,
    .times = wf_cl_event_times,
    .variants = wf_cl_variants,
    .supports = wf_cl_supports,
    .rank = wf_cl_rank,
    .set_costs = wf_cl_set_costs,
    .bind = wf_cl_bind,
    .prebuild = wf_cl_prebuild,
    .kernel_id = wf_cl_kernel_id,
    .about = wf_cl_about,
    .source = wf_cl_variant_source,
    .weight_layout = wf_cl_weight_layout,
    .weight_bytes = wf_cl_weight_bytes,
    .weight_pack = wf_cl_weight_pack,
    .measure = wf_cl_measure,
};

#define WGMMA_SCRATCH (128u << 20) /* 2,048 packed rows of X for a K of 14,336 take 59 MB */
#define MODEST_OPS    8.0 /* a cycle of a unit: half of the least that GPUs have */
#define PANELS        (512u << 20) /* a quarter holds 8,192 rows of W for a K of 4,096 */
#define EXPANDED_PART 64            /* no budget counts scratch memory */
#define WGMMA_ZEROED   (20u << 20)  /* sums that work-groups share: at most as many as run at once, of 66 KB each */

static void set_up(cl_dev *d, const wf_open_params *p)
{
    wf_dev *b = &d->base;
    b->fns = &fns;
    b->info = d->ref.info;
    b->params = *p;
    if (!b->params.watchdog_ms) b->params.watchdog_ms = 60000;
    b->max_alloc = b->info.max_alloc;
    if (p->max_alloc) b->max_alloc = WF_MIN(b->max_alloc, p->max_alloc);
    b->info.max_alloc = b->max_alloc;
    d->ref.caps.panels = WF_MIN((uint64_t)PANELS, b->max_alloc);
    d->ref.caps.expanded = WF_MIN(d->ref.caps.panels, b->info.memory / EXPANDED_PART);
    b->align = 128;
    while (b->align < d->ref.caps.mem_align) b->align *= 2;
    b->cache = d->ref.caps.cache;
    wf_copy(b->pci, sizeof b->pci, d->ref.pci);
    if (d->ref.info.type != WEFT_DEVICE_CPU) b->modest_rate = MODEST_OPS * d->ref.caps.units * d->ref.caps.mhz;
    b->act = d->ref.caps.gpu ? WF_F16 : WF_F32;
    /* as weights lie in layout.c */
    b->stack_weights = d->ref.caps.nv_mma && b->params.tier >= WF_TIER_MATRIX ? WF_STACK_MIXED : WF_STACK_ALIKE;
    b->adjacent_pairs = true;
    b->has_fused_gemm = d->ref.caps.gpu;
    b->has_fused_router = true;
    if (d->ref.caps.nv_wgmma) {
        uint64_t most = b->max_alloc / 4 * 4; /* buffers are filled in words, the first with WF_CL_ZEROED at least */
        d->ref.caps.scratch = most < WF_CL_ZEROED ? 0 : WF_MIN((uint64_t)WGMMA_SCRATCH, most);
        d->ref.caps.zeroed = WF_MIN((uint64_t)WGMMA_ZEROED, most);
    }
    find_cache(d);
}

static weft_status cl_open(size_t i, const wf_open_params *p, wf_dev **out)
{
    cl_dev *d = wf_calloc(1, sizeof *d);
    if (!d) return WEFT_ERR_NOMEM;
    if (!device_at(i, &d->ref)) {
        free(d);
        return wf_fail(WEFT_ERR_NODEVICE, "OpenCL device %zu is gone; list devices again", i);
    }
    set_up(d, p);
    cl_context_properties props[] = {CL_CONTEXT_PLATFORM, (intptr_t)d->ref.platform, 0};
    cl_int err = CL_SUCCESS;
    d->ctx = clCreateContext(props, 1, &d->ref.device, NULL, NULL, &err);
    wf_queue *own = NULL;
    weft_status st =
        err == CL_SUCCESS ? wf_cl_queue_create(&d->base, false, &own) : wf_cl_fail(d, err, "clCreateContext");
    if (st != WEFT_OK) {
        if (err == CL_SUCCESS) clReleaseContext(d->ctx);
        free(d);
        return st == WEFT_ERR_NOMEM ? st : wf_fail_context(WEFT_ERR_NODEVICE, "cannot open device");
    }
    d->own = (cl_q *)own;
    *out = &d->base;
    return WEFT_OK;
}

const wf_backend wf_backend_cl = {"opencl", cl_list, cl_open};
