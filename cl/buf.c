/* Device memory. Drivers allocate on first use, long after clCreateBuffer said yes; a buffer is
 * therefore touched here, so that a shortage shows at start-up and not while serving. */
#include "cl/cl.h"

#include <stdlib.h>

static weft_status touch(cl_dev *d, wf_buf *b)
{
    if (b->size < 4) return WEFT_OK;
    wf_event *ev = NULL;
    WF_TRY(wf_cl_event_create(&d->base, &ev));
    weft_status st = wf_cl_fill(&d->own->base, b, 0, 4, 0);
    if (st == WEFT_OK) st = wf_cl_mark(&d->own->base, NULL, 0, ev);
    if (st == WEFT_OK) st = wf_cl_wait(ev, 0);
    wf_cl_event_destroy(&d->base, ev);
    return st;
}

weft_status wf_cl_buf_create(wf_dev *base, uint64_t size, wf_buf **out)
{
    cl_dev *d = (cl_dev *)base;
    WF_TRY(wf_cl_check_lost(d));
    cl_buf *b = wf_calloc(1, sizeof *b);
    if (!b) return WEFT_ERR_NOMEM;
    cl_int err = CL_SUCCESS;
    b->base = (wf_buf){.dev = base, .size = size};
    b->mem = clCreateBuffer(d->ctx, CL_MEM_READ_WRITE, WF_MAX(size, 4), NULL, &err);
    /* a size the driver will not have is a shortage, not a lost device */
    if (err == CL_INVALID_BUFFER_SIZE || err == CL_OUT_OF_RESOURCES) err = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    weft_status st = err == CL_SUCCESS
                         ? touch(d, &b->base)
                         : wf_cl_fail(d, err, "clCreateBuffer(%llu bytes)", (unsigned long long)size);
    if (st != WEFT_OK) {
        wf_cl_buf_destroy(base, &b->base);
        return wf_fail_more(st, "%llu bytes of device memory", (unsigned long long)size);
    }
    *out = &b->base;
    return WEFT_OK;
}

/* Maps the whole buffer for good. */
static weft_status map(cl_dev *d, cl_buf *b)
{
    wf_event *ev = NULL;
    cl_int err = CL_SUCCESS;
    WF_TRY(wf_cl_event_create(&d->base, &ev));
    b->base.host = clEnqueueMapBuffer(d->own->q, b->mem, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, b->base.size, 0, NULL, NULL, &err);
    weft_status st = err == CL_SUCCESS ? wf_cl_mark(&d->own->base, NULL, 0, ev) : wf_cl_fail(d, err, "clEnqueueMapBuffer");
    if (st == WEFT_OK) st = wf_cl_wait(ev, 0);
    wf_cl_event_destroy(&d->base, ev);
    return st;
}

/* Memory that the driver allocates for the host is pinned where that matters. */
weft_status wf_cl_host_create(wf_dev *base, uint64_t size, wf_buf **out)
{
    cl_dev *d = (cl_dev *)base;
    WF_TRY(wf_cl_check_lost(d));
    cl_buf *b = wf_calloc(1, sizeof *b);
    if (!b) return WEFT_ERR_NOMEM;
    cl_int err = CL_SUCCESS;
    b->base = (wf_buf){.dev = base, .size = size};
    b->mem = clCreateBuffer(d->ctx, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, NULL, &err);
    weft_status st = err == CL_SUCCESS ? map(d, b) : wf_fail(WEFT_ERR_NOMEM, "clCreateBuffer for the host: %s", wf_cl_error_name(err));
    if (st == WEFT_OK) *out = &b->base;
    else wf_cl_buf_destroy(base, &b->base);
    return st;
}

void wf_cl_buf_destroy(wf_dev *base, wf_buf *buf)
{
    cl_buf *b = (cl_buf *)buf;
    if (base->lost) b->mem = NULL; /* the driver is not called again, and may still write to what is mapped */
    if (b->mem && b->base.host) clEnqueueUnmapMemObject(((cl_dev *)base)->own->q, b->mem, b->base.host, 0, NULL, NULL);
    if (b->mem) clReleaseMemObject(b->mem);
    free(b);
}
