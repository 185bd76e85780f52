/* A call: its variant, its kernel, its commands. */
#include "cl/cl.h"

weft_status wf_cl_launch(wf_queue *queue, const wf_call *c, const wf_bound *b)
{
    cl_dev *d = (cl_dev *)queue->dev;
    const cl_kern *k = b->kernel;
    cl_launch l;
    WF_TRY(wf_cl_check_lost(d));
    if (!wf_cl_configure_bound(d, b, c, &l))
        return wf_fail(WEFT_ERR_INTERNAL, "%s/%s was bound for calls of another shape or alignment", wf_ops[c->op].name,
                       k->variant->name);
    /* The build helper is a process with the driver in it: not kept once building has ended. */
    if (d->child.pid && wf_now_ns() - d->child.used_ns > 2000000000u) wf_cl_child_stop(&d->child);
    if (l.groups == 0) return wf_cl_mark(queue, c->waits, c->n_waits, c->signal); /* no rows */
    cl_q *q = (cl_q *)queue;
    return l.library ? wf_cl_clblast_run(q, c, b->variant) : wf_cl_enqueue(q, c, k, &l, k->variant->name);
}

weft_status wf_cl_submit(wf_queue *queue, const wf_call *c)
{
    wf_bound b;
    WF_TRY(wf_cl_bind(queue->dev, c, c->variant, &b));
    return wf_cl_launch(queue, c, &b);
}
