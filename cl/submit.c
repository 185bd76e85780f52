/* A call: its variant, its kernel, its commands. */
#include "cl/cl.h"

/* The build helper is a process with the driver in it: not kept once building has ended. */
static void let_child_go(cl_dev *d)
{
    if (d->child.pid && wf_now_ns() - d->child.used_ns > 2000000000u) wf_cl_child_stop(&d->child);
}

weft_status wf_cl_launch(wf_queue *queue, const wf_call *c, const wf_bound *b)
{
    cl_dev *d = (cl_dev *)queue->dev;
    const cl_kern *k = b->kernel;
    cl_launch l;
    WF_TRY(wf_cl_check_lost(d));
    if (!wf_cl_configure_bound(d, b, c, &l))
        return wf_fail(WEFT_ERR_INTERNAL, "%s/%s was bound for calls of another shape or alignment", wf_ops[c->op].name, k->variant->name);
    let_child_go(d);
    if (l.groups == 0) return wf_cl_mark(queue, c->waits, c->n_waits, c->signal); /* no rows */
    cl_q *q = (cl_q *)queue;
    weft_status s = l.library ? wf_cl_clblast_run(q, c, b->variant) : wf_cl_enqueue(q, c, k->kernel, &l, k->variant->name);
    if (s == WEFT_ERR_UNSUPPORTED) wf_cl_drop(queue->dev, c->op, b->variant); /* who binds again gets another */
    return s;
}

weft_status wf_cl_submit(wf_queue *queue, const wf_call *c)
{
    wf_bound b;
    int variant = c->variant >= 0 ? c->variant : wf_cl_pick(queue->dev, c, NULL);
    if (variant < 0) return wf_fail(WEFT_ERR_UNSUPPORTED, "no kernel of %s for this call", wf_ops[c->op].name);
    WF_TRY(wf_cl_bind(queue->dev, c, variant, &b));
    return wf_cl_launch(queue, c, &b);
}
