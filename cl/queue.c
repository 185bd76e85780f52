/* Queues, events, and the one place that waits. Nothing here blocks in the driver: completion is
 * polled under a time limit, because a kernel that hangs or a driver that resets would otherwise take
 * the process with it. */
#include "cl/cl.h"

#include <stdlib.h>

/* ---- queues ------------------------------------------------------------------------------------------- */

/* A larger buffer of the queue's, which begins with so many zeros; the driver frees the old one after the commands
 * that use it. */
static weft_status grow(cl_q *q, cl_growable *g, uint64_t bytes, uint64_t zeroed)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    const cl_uint zero = 0;
    cl_int err = CL_SUCCESS;
    if (bytes <= g->bytes) return WEFT_OK;
    if (bytes > d->base.max_alloc)
        return wf_fail(WEFT_ERR_NOMEM, "a kernel wants %llu bytes of scratch memory, above the limit of %s, %llu bytes",
                       (unsigned long long)bytes, d->base.info.id, (unsigned long long)d->base.max_alloc);
    cl_mem mem = clCreateBuffer(d->ctx, CL_MEM_READ_WRITE, bytes, NULL, &err);
    if (err == CL_SUCCESS) {
        err = clEnqueueFillBuffer(q->q, mem, &zero, sizeof zero, 0, zeroed, 0, NULL, NULL);
        if (err != CL_SUCCESS) clReleaseMemObject(mem); /* kernels rely on the zeros */
    }
    /* Some drivers find the memory at first use. */
    if (err == CL_INVALID_BUFFER_SIZE || err == CL_OUT_OF_RESOURCES) err = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (err == CL_SUCCESS) {
        if (g->mem) clReleaseMemObject(g->mem);
        *g = (cl_growable){mem, bytes};
        return WEFT_OK;
    }
    return wf_cl_fail(d, err, "%llu bytes of scratch memory", (unsigned long long)bytes);
}

static weft_status grow_both(cl_q *q, uint64_t scratch, uint64_t zeroed)
{
    WF_TRY(grow(q, &q->scratch, scratch, WF_CL_ZEROED));
    return grow(q, &q->zeroed, zeroed, zeroed);
}

weft_status wf_cl_scratch(cl_q *q, uint64_t bytes)
{
    return grow_both(q, bytes, 0);
}

/* Drivers may find memory at first use only, which is the fill of the zeros. */
weft_status wf_cl_reserve(wf_queue *queue, uint64_t *bytes)
{
    cl_q *q = (cl_q *)queue;
    const cl_dev *d = (const cl_dev *)queue->dev;
    WF_TRY(wf_cl_check_lost(d));
    WF_TRY(grow_both(q, d->scratch, d->zeroed));
    *bytes = q->scratch.bytes + q->zeroed.bytes;
    return wf_finish(queue);
}

static void release(cl_q *q)
{
    if (q->scratch.mem) clReleaseMemObject(q->scratch.mem);
    if (q->zeroed.mem) clReleaseMemObject(q->zeroed.mem);
    clReleaseCommandQueue(q->q);
}

/* What fast kernels want of memory from the start; where it is refused, all queues do without these kernels. */
static weft_status first_buffers(cl_q *q)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    cl_caps *c = &d->ref.caps;
    weft_status s = grow_both(q, c->scratch, c->zeroed);
    if (s != WEFT_ERR_NOMEM || !(c->scratch | c->zeroed)) return s;
    wf_log(WEFT_LOG_WARN, "%s (%s): slower kernels for large products, for want of memory: %s", d->base.info.id,
           d->base.info.name, wf_error());
    c->scratch = c->zeroed = 0;
    return WEFT_OK;
}

weft_status wf_cl_queue_create(wf_dev *base, bool only_copies, wf_queue **out)
{
    cl_dev *d = (cl_dev *)base;
    uint32_t slot = 0;
    WF_TRY(wf_cl_check_lost(d));
    while (slot < WF_CL_MAX_QUEUES && d->queue[slot]) slot++;
    if (slot == WF_CL_MAX_QUEUES)
        return wf_fail(WEFT_ERR_ARG, "more than %d queues on one device", WF_CL_MAX_QUEUES);
    cl_q *q = wf_calloc(1, sizeof *q);
    if (!q) return WEFT_ERR_NOMEM;
    cl_int err = CL_SUCCESS;
    q->q = clCreateCommandQueue(d->ctx, d->ref.device, base->params.profile ? CL_QUEUE_PROFILING_ENABLE : 0, &err);
    if (err != CL_SUCCESS) {
        free(q);
        return wf_cl_fail(d, err, "clCreateCommandQueue");
    }
    q->base.dev = base;
    weft_status s = only_copies ? WEFT_OK : first_buffers(q);
    if (s) {
        release(q);
        free(q);
        return s;
    }
    q->slot = slot;
    q->id = d->n_queues++;
    d->queue[slot] = q;
    *out = &q->base;
    return WEFT_OK;
}

void wf_cl_queue_destroy(wf_dev *base, wf_queue *queue)
{
    cl_q *q = (cl_q *)queue;
    ((cl_dev *)base)->queue[q->slot] = NULL;
    if (!base->lost) release(q); /* else it may block: leaked on purpose */
    free(q);
}

static weft_status flush(cl_q *q)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    if (!q->dirty) return WEFT_OK;
    q->dirty = false;
    cl_int err = clFlush(q->q);
    return err == CL_SUCCESS ? WEFT_OK : wf_cl_fail(d, err, "clFlush");
}

weft_status wf_cl_flush(wf_queue *q)
{
    WF_TRY(wf_cl_check_lost((cl_dev *)q->dev));
    return flush((cl_q *)q);
}

/* ---- events ------------------------------------------------------------------------------------------- */

weft_status wf_cl_event_create(wf_dev *base, wf_event **out)
{
    cl_ev *e = wf_calloc(1, sizeof *e);
    if (!e) return WEFT_ERR_NOMEM;
    e->base.dev = base;
    *out = &e->base;
    return WEFT_OK;
}

void wf_cl_event_destroy(wf_dev *base, wf_event *ev)
{
    cl_ev *e = (cl_ev *)ev;
    if (e->ev && !base->lost) clReleaseEvent(e->ev);
    free(e);
}

void wf_cl_arm(wf_event *signal, cl_q *q, cl_event ev)
{
    cl_ev *e = (cl_ev *)signal;
    q->dirty = true;
    if (!e) return;
    if (e->ev) clReleaseEvent(e->ev);
    e->ev = ev;
    e->slot = q->slot;
    e->id = q->id;
    e->timed = e->mark = false;
}

/* The queue of the command that the event stands for, flushed if it is still there. */
static weft_status flush_queue_of(cl_dev *d, const cl_ev *e)
{
    cl_q *q = d->queue[e->slot];
    return q && q->id == e->id ? flush(q) : WEFT_OK;
}

/* Collects the OpenCL events to wait for; those of q itself are implied by its order. A queue waited
 * for must have been flushed, or the waiting one never starts. */
static weft_status collect(cl_q *q, wf_event *const *waits, uint32_t n, cl_event *list, cl_uint *out)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        cl_ev *e = (cl_ev *)waits[i];
        if (!e->ev || e->id == q->id) continue;
        if (*out == WF_CL_MAX_WAITS)
            return wf_fail(WEFT_ERR_ARG, "a call waits for more than %d events", WF_CL_MAX_WAITS);
        WF_TRY(flush_queue_of(d, e));
        list[(*out)++] = e->ev;
    }
    return WEFT_OK;
}

/* Polls until the command is over, and sleeps between: not for the first 50 us, then longer and longer up to 200 us,
 * never more than a small part of what the work took so far: a decode step of some milliseconds should not wait for
 * us. */
static weft_status poll_event(cl_dev *d, cl_event ev, uint64_t limit_ms)
{
    uint64_t start = wf_now_ns();
    for (;;) {
        cl_int status = CL_QUEUED;
        cl_int err = clGetEventInfo(ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clGetEventInfo");
        if (status < 0) return wf_cl_fail(d, status, "a command failed on the device");
        if (status == CL_COMPLETE) break;
        uint64_t waited = wf_now_ns() - start;
        if (waited > limit_ms * 1000000u) {
            d->base.lost = true;
            return wf_fail(WEFT_ERR_TIMEOUT, "%s (%s): a command did not end within %llu ms",
                           d->ref.info.name, d->ref.info.id, (unsigned long long)limit_ms);
        }
        if (waited >= 50000) wf_sleep_ns(WF_MIN(waited / 64, 200000));
    }
    /* Seeing the status is no synchronisation point in OpenCL; this call is, and it cannot block. */
    cl_int err = clWaitForEvents(1, &ev);
    return err == CL_SUCCESS ? WEFT_OK : wf_cl_fail(d, err, "clWaitForEvents");
}

/* Reads the times of the command, which has ended. */
static weft_status note_times(cl_ev *e)
{
    cl_ulong begin = 0, end = 0;
    if (e->mark) return wf_fail(WEFT_ERR_UNSUPPORTED, "the times of a mark are unknown");
    cl_int err = clGetEventProfilingInfo(e->ev, CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL);
    if (err == CL_SUCCESS) err = clGetEventProfilingInfo(e->ev, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
    if (err != CL_SUCCESS) return wf_fail(WEFT_ERR_UNSUPPORTED, "clGetEventProfilingInfo: %s", wf_cl_error_name(err));
    e->begin = begin;
    e->end = end;
    e->timed = true;
    return WEFT_OK;
}

weft_status wf_cl_event_times(wf_event *ev, uint64_t *begin, uint64_t *end)
{
    cl_ev *e = (cl_ev *)ev;
    if (e->ev) WF_TRY(note_times(e));
    if (!e->timed) return wf_fail(WEFT_ERR_UNSUPPORTED, "the times of this command are unknown");
    *begin = e->begin;
    *end = e->end;
    return WEFT_OK;
}

weft_status wf_cl_wait(wf_event *ev, uint32_t timeout_ms)
{
    cl_ev *e = (cl_ev *)ev;
    cl_dev *d = (cl_dev *)ev->dev;
    WF_TRY(wf_cl_check_lost(d));
    if (!e->ev) return WEFT_OK;
    WF_TRY(flush_queue_of(d, e));
    WF_TRY(poll_event(d, e->ev, timeout_ms ? timeout_ms : d->base.params.watchdog_ms));
    if (d->base.params.profile) note_times(e); /* else they are unknown */
    clReleaseEvent(e->ev);
    e->ev = NULL;
    return WEFT_OK;
}

weft_status wf_cl_poll(wf_event *ev, bool *done)
{
    cl_ev *e = (cl_ev *)ev;
    cl_dev *d = (cl_dev *)ev->dev;
    cl_int status = CL_COMPLETE;
    WF_TRY(wf_cl_check_lost(d));
    if (e->ev) {
        WF_TRY(flush_queue_of(d, e));
        cl_int err = clGetEventInfo(e->ev, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clGetEventInfo");
        if (status < 0) return wf_cl_fail(d, status, "a command failed on the device");
    }
    /* for the synchronisation, and the times */
    if (status == CL_COMPLETE) WF_TRY(wf_cl_wait(ev, 0));
    return *done = status == CL_COMPLETE, WEFT_OK;
}

/* ---- commands ------------------------------------------------------------------------------------------ */

weft_status wf_cl_write(wf_queue *queue, wf_buf *buf, uint64_t off, const void *src, uint64_t size,
                        wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    cl_q *q = (cl_q *)queue;
    cl_dev *d = (cl_dev *)queue->dev;
    cl_event list[WF_CL_MAX_WAITS], ev = NULL;
    cl_uint n = 0;
    WF_TRY(wf_cl_check_lost(d));
    if (!size) return wf_cl_mark(queue, waits, n_waits, signal);
    WF_TRY(collect(q, waits, n_waits, list, &n));
    cl_int err = clEnqueueWriteBuffer(q->q, ((cl_buf *)buf)->mem, CL_FALSE, off, size, src, n,
                                      n ? list : NULL, signal ? &ev : NULL);
    if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clEnqueueWriteBuffer");
    wf_cl_arm(signal, q, ev);
    return WEFT_OK;
}

weft_status wf_cl_read(wf_queue *queue, wf_buf *buf, uint64_t off, void *dst, uint64_t size,
                       wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    cl_q *q = (cl_q *)queue;
    cl_dev *d = (cl_dev *)queue->dev;
    cl_event list[WF_CL_MAX_WAITS], ev = NULL;
    cl_uint n = 0;
    WF_TRY(wf_cl_check_lost(d));
    if (!size) return wf_cl_mark(queue, waits, n_waits, signal);
    WF_TRY(collect(q, waits, n_waits, list, &n));
    cl_int err = clEnqueueReadBuffer(q->q, ((cl_buf *)buf)->mem, CL_FALSE, off, size, dst, n,
                                     n ? list : NULL, signal ? &ev : NULL);
    if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clEnqueueReadBuffer");
    wf_cl_arm(signal, q, ev);
    return WEFT_OK;
}

/* Drivers may copy no rectangle that goes beyond its pitch: columns there are the first ones of the line below. */
weft_status wf_cl_copy_rows(wf_queue *queue, bool out, const wf_view *v, void *host, wf_event *const *waits,
                            uint32_t n_waits, wf_event *signal)
{
    cl_q *q = (cl_q *)queue;
    cl_dev *d = (cl_dev *)queue->dev;
    cl_event list[WF_CL_MAX_WAITS], ev = NULL;
    cl_uint n = 0;
    cl_mem mem = ((cl_buf *)v->buf)->mem;
    const size_t pitch = wf_dtype_bytes(v->dtype, v->stride), row = wf_dtype_bytes(v->dtype, v->cols);
    WF_TRY(wf_cl_check_lost(d));
    WF_TRY(collect(q, waits, n_waits, list, &n));
    for (size_t at = 0, many; at < row; at += many, n = 0) {
        const size_t x = (v->offset + at) % pitch, from[3] = {x, (v->offset + at) / pitch, 0}, start[3] = {at, 0, 0};
        many = WF_MIN(row - at, pitch - x);
        const size_t region[3] = {many, v->rows, 1};
        const cl_event *all = n ? list : NULL;
        cl_event *end = signal && at + many == row ? &ev : NULL;
        cl_int err = out
            ? clEnqueueReadBufferRect(q->q, mem, CL_FALSE, from, start, region, pitch, 0, row, 0, host, n, all, end)
            : clEnqueueWriteBufferRect(q->q, mem, CL_FALSE, from, start, region, pitch, 0, row, 0, host, n, all, end);
        if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clEnqueue%sBufferRect", out ? "Read" : "Write");
    }
    wf_cl_arm(signal, q, ev);
    return WEFT_OK;
}

#define FILL_PIECE (256ull << 20)

/* Within a piece of the buffer. */
static cl_int fill_piece(cl_q *q, cl_mem mem, uint64_t off, uint64_t size, uint32_t pattern)
{
    return clEnqueueFillBuffer(q->q, mem, &pattern, sizeof pattern, off, size, 0, NULL, NULL);
}

/* The same behind the first piece, by a sub-buffer that begins with a piece. */
static cl_int fill_far(cl_q *q, cl_buf *buf, uint64_t off, uint64_t size, uint32_t pattern)
{
    uint64_t begin = off / FILL_PIECE * FILL_PIECE;
    cl_buffer_region region = {begin, WF_MIN(buf->base.size - begin, FILL_PIECE)};
    cl_int err;
    cl_mem sub = clCreateSubBuffer(buf->mem, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    if (err != CL_SUCCESS) return err;
    err = fill_piece(q, sub, off - begin, size, pattern);
    clReleaseMemObject(sub); /* lives until the fill is done */
    return err;
}

/* Piece by piece: NVIDIA's driver 580 counts the words of a fill in 32 bits, and with 8 GiB, or so far from the
 * buffer's start, writes elsewhere or does not return. */
weft_status wf_cl_fill(wf_queue *queue, wf_buf *buf, uint64_t off, uint64_t size, uint32_t pattern)
{
    cl_q *q = (cl_q *)queue;
    cl_dev *d = (cl_dev *)queue->dev;
    WF_TRY(wf_cl_check_lost(d));
    for (uint64_t end = off + size, piece; off < end; off += piece) {
        piece = WF_MIN(end - off, FILL_PIECE - off % FILL_PIECE);
        cl_int err = off < FILL_PIECE ? fill_piece(q, ((cl_buf *)buf)->mem, off, piece, pattern)
                                      : fill_far(q, (cl_buf *)buf, off, piece, pattern);
        if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clEnqueueFillBuffer");
        q->dirty = true;
    }
    return WEFT_OK;
}

weft_status wf_cl_mark(wf_queue *queue, wf_event *const *waits, uint32_t n_waits, wf_event *signal)
{
    cl_q *q = (cl_q *)queue;
    cl_dev *d = (cl_dev *)queue->dev;
    cl_event list[WF_CL_MAX_WAITS], ev = NULL;
    cl_uint n = 0;
    WF_TRY(wf_cl_check_lost(d));
    WF_TRY(collect(q, waits, n_waits, list, &n));
    /* a barrier, not a marker: later commands of this queue wait for the events, too */
    cl_int err = clEnqueueBarrierWithWaitList(q->q, n, n ? list : NULL, signal ? &ev : NULL);
    if (err != CL_SUCCESS) return wf_cl_fail(d, err, "clEnqueueBarrierWithWaitList");
    wf_cl_arm(signal, q, ev);
    if (signal) ((cl_ev *)signal)->mark = true;
    return WEFT_OK;
}

static cl_int set_args(const cl_q *q, cl_kernel k, const cl_launch *l, uint32_t *at)
{
    cl_int err = CL_SUCCESS;
    for (*at = 0; *at < l->n_args && err == CL_SUCCESS; ++*at) {
        const cl_arg *a = &l->arg[*at];
        const cl_mem *mem = a->size ? NULL : a->buf ? &a->buf->mem : a->zeroed ? &q->zeroed.mem : &q->scratch.mem;
        err = mem ? clSetKernelArg(k, *at, sizeof *mem, mem) : clSetKernelArg(k, *at, a->size, &a->u64);
    }
    return err;
}

/* One launch of the kernel, whose arguments are set. Kernels loop, so that fewer work-groups do the same; on many
 * cores they must not be so few that one waits for the last of them. */
static weft_status enqueue_kernel(cl_q *q, const wf_call *c, cl_kernel k, const cl_launch *l, uint64_t most,
                          const char *name, const cl_event *waits, cl_uint n_waits, cl_event *signal)
{
    cl_dev *d = (cl_dev *)q->base.dev;
    enum { EACH_UNIT = 16 };
    size_t local = l->group;
    uint32_t items = d->ref.quirks.most_items;
    if (items) most = WF_MIN(most, WF_MAX(items / local, (uint64_t)EACH_UNIT * d->ref.caps.units));
    size_t global = local * (size_t)(c->max_groups ? WF_MIN(most, c->max_groups) : most);
    cl_int err = clEnqueueNDRangeKernel(q->q, k, 1, NULL, &global, &local, n_waits, n_waits ? waits : NULL, signal);
    /* The kernel is no good here; the device is. Want of resources may also be the echo of a fault before, which the
     * queue then repeats. */
    if (err == CL_INVALID_WORK_GROUP_SIZE || (err == CL_OUT_OF_RESOURCES && wf_finish(&q->base) == WEFT_OK))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s: clEnqueueNDRangeKernel(%s/%s): %s of %u",
                       d->ref.info.name, wf_ops[c->op].name, name, wf_cl_error_name(err), l->group);
    if (err != CL_SUCCESS)
        return wf_cl_fail(d, err, "clEnqueueNDRangeKernel(%s/%s)", wf_ops[c->op].name, name);
    return WEFT_OK;
}

static weft_status set_kernel_args(const cl_q *q, const wf_call *c, cl_kernel k, const cl_launch *l, const char *name)
{
    uint32_t at;
    cl_int err = set_args(q, k, l, &at);
    if (err == CL_SUCCESS) return WEFT_OK;
    return wf_cl_fail((cl_dev *)q->base.dev, err, "clSetKernelArg(%s/%s, %u)", wf_ops[c->op].name, name, at - 1);
}

/* The same kernel with its last argument 1. */
static weft_status enqueue_again(cl_q *q, const wf_call *c, cl_kernel k, const cl_launch *l, const char *name,
                                 cl_event *signal)
{
    const cl_uint second = 1;
    cl_int err = clSetKernelArg(k, l->n_args - 1, sizeof second, &second);
    if (err != CL_SUCCESS)
        return wf_cl_fail((cl_dev *)q->base.dev, err, "clSetKernelArg(%s/%s)", wf_ops[c->op].name, name);
    return enqueue_kernel(q, c, k, l, l->then_groups, name, NULL, 0, signal);
}

weft_status wf_cl_enqueue(cl_q *q, const wf_call *c, const cl_kern *k, const cl_launch *l, const char *name)
{
    cl_event list[WF_CL_MAX_WAITS], ev = NULL, begun = NULL, *signal = c->signal ? &ev : NULL;
    cl_event *started = c->started ? &begun : NULL;
    const bool more = l->then_groups || l->after_groups;
    cl_uint n = 0;
    WF_TRY(collect(q, c->waits, c->n_waits, list, &n));
    WF_TRY(grow_both(q, l->scratch, l->zeroed));
    if (l->before_groups) {
        WF_TRY(set_kernel_args(q, c, k->before, l, name));
        WF_TRY(enqueue_kernel(q, c, k->before, l, l->before_groups, name, list, n, started));
        if (started) wf_cl_arm(c->started, q, begun);
        started = NULL, n = 0;
    }
    WF_TRY(set_kernel_args(q, c, k->kernel, l, name));
    WF_TRY(enqueue_kernel(q, c, k->kernel, l, l->groups, name, list, n, more ? started : signal));
    if (more && started) wf_cl_arm(c->started, q, begun);
    if (l->then_groups) WF_TRY(enqueue_again(q, c, k->kernel, l, name, signal));
    if (l->after_groups) {
        WF_TRY(set_kernel_args(q, c, k->after, l, name));
        WF_TRY(enqueue_kernel(q, c, k->after, l, l->after_groups, name, NULL, 0, signal));
    }
    wf_cl_arm(c->signal, q, ev);
    return WEFT_OK;
}
