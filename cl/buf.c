/* Device memory. Drivers allocate on first use, long after clCreateBuffer said yes; a buffer is
 * therefore touched here, so that a shortage shows at start-up and not while serving. */
#include "cl/cl.h"

#include <stdlib.h>

/* Until what the backend's own queue was given is done. */
static weft_status finish(cl_dev *d)
{
    wf_event *ev = NULL;
    WF_TRY(wf_cl_event_create(&d->base, &ev));
    weft_status st = wf_cl_mark(&d->own->base, NULL, 0, ev);
    if (st == WEFT_OK) st = wf_cl_wait(ev, 0);
    wf_cl_event_destroy(&d->base, ev);
    return st;
}

/* Drivers that find the memory only now call a shortage what ends the use of a device elsewhere. */
static weft_status touch(cl_dev *d, cl_buf *b)
{
    const cl_uint zero = 0;
    if (b->base.size < 4) return WEFT_OK;
    cl_int err = clEnqueueFillBuffer(d->own->q, b->mem, &zero, sizeof zero, 0, sizeof zero, 0, NULL, NULL);
    if (err == CL_OUT_OF_RESOURCES) err = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return err == CL_SUCCESS
               ? finish(d)
               : wf_cl_fail(d, err, "clEnqueueFillBuffer(4 of %llu bytes)", (unsigned long long)b->base.size);
}

/* The whole buffer, for good. A driver that will not is no lost device: plain memory does, too. */
static weft_status map(cl_dev *d, cl_buf *b)
{
    cl_int err = CL_SUCCESS;
    b->base.host = clEnqueueMapBuffer(d->own->q, b->mem, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, b->base.size, 0, NULL,
                                      NULL, &err);
    if (err != CL_SUCCESS) return wf_fail(WEFT_ERR_NOMEM, "clEnqueueMapBuffer: %s", wf_cl_error_name(err));
    return finish(d);
}

static weft_status create(cl_dev *d, uint64_t size, cl_mem_flags flags, weft_status (*use)(cl_dev *, cl_buf *),
                          wf_buf **out)
{
    WF_TRY(wf_cl_check_lost(d));
    cl_buf *b = wf_calloc(1, sizeof *b);
    if (!b) return WEFT_ERR_NOMEM;
    cl_int err = CL_SUCCESS;
    b->base = (wf_buf){.dev = &d->base, .size = size};
    b->mem = clCreateBuffer(d->ctx, CL_MEM_READ_WRITE | flags, WF_MAX(size, 4), NULL, &err);
    /* a size the driver will not have is a shortage, not a lost device */
    if (err == CL_INVALID_BUFFER_SIZE || err == CL_OUT_OF_RESOURCES) err = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    weft_status st =
        err == CL_SUCCESS ? use(d, b) : wf_cl_fail(d, err, "clCreateBuffer(%llu bytes)", (unsigned long long)size);
    if (st == WEFT_OK) *out = &b->base;
    else wf_cl_buf_destroy(&d->base, &b->base);
    return st;
}

weft_status wf_cl_buf_create(wf_dev *base, uint64_t size, wf_buf **out)
{
    weft_status st = create((cl_dev *)base, size, 0, touch, out);
    return st == WEFT_OK ? st : wf_fail_context(st, "%llu bytes of device memory", (unsigned long long)size);
}

/* Memory that the driver allocates for the host is pinned where that matters. */
weft_status wf_cl_host_create(wf_dev *base, uint64_t size, wf_buf **out)
{
    return create((cl_dev *)base, size, CL_MEM_ALLOC_HOST_PTR, map, out);
}

void wf_cl_buf_destroy(wf_dev *base, wf_buf *buf)
{
    cl_buf *b = (cl_buf *)buf;
    if (base->lost) b->mem = NULL; /* the driver is not called again, and may still write to what is mapped */
    if (b->mem && b->base.host) clEnqueueUnmapMemObject(((cl_dev *)base)->own->q, b->mem, b->base.host, 0, NULL, NULL);
    if (b->mem) clReleaseMemObject(b->mem);
    free(b);
}
