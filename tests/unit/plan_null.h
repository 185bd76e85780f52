/* Plans on the clock of the null device, submitted as exec does, by what a test says that each nano-operation takes. */
#ifndef PLAN_NULL_H
#define PLAN_NULL_H

#include "support/null_device.h"
#include "plan/simulate.h"

#include "support/suite.h"

typedef struct null_clock {
    uint64_t (*ns)(const void *user, const wf_node *node, uint32_t rows, uint32_t groups); /* alone */
    double (*beside)(const wf_call *c, enum wf_op other); /* as in wf_null_config */
    const void *user;
} null_clock;

/* Where null_time() put it. */
static inline uint64_t null_cost(const wf_call *c)
{
    return c->in[0].offset;
}

static inline void null_submit(const null_clock *clock, const wf_graph *g, const wf_plan *p, const wf_sim_batch *b,
                               size_t i, wf_queue *const *queues, wf_event **events)
{
    const wf_nano *n = &p->nanos[i];
    const wf_node *node = &g->nodes[n->node];
    wf_event *waits[WF_MAX_QUEUES];
    wf_call c = {.op = node->op, .max_groups = n->groups, .waits = waits, .n_waits = n->n_waits, .signal = events[i]};
    for (uint32_t w = 0; w < n->n_waits; w++) waits[w] = events[p->waits[n->wait + w]];
    c.out[0].rows = wf_nano_range(node, n, b->decodes, b->tokens, b->logits).count;
    c.in[0].offset = clock->ns(clock->user, node, (uint32_t)c.out[0].rows, n->groups);
    assert_ok(queues[n->queue]->dev->fns->submit(queues[n->queue], &c));
}

/* Nanoseconds of a finished plan. */
static inline uint64_t null_time(const null_clock *clock, const wf_graph *g, const wf_plan *p, const wf_sim_batch *b)
{
    wf_dev *dev;
    wf_queue *queues[WF_MAX_QUEUES];
    wf_open_params open = {0};
    wf_event **events = calloc(p->n_nanos + 1, sizeof *events);
    assert_non_null(events);
    wf_null_configure(&(wf_null_config){.cost_ns = null_cost, .beside = clock->beside});
    assert_ok(wf_backend_null.open(0, &open, &dev));
    for (uint32_t q = 0; q < p->n_queues; q++) assert_ok(dev->fns->queue_create(dev, false, &queues[q]));
    for (size_t i = 0; i < p->n_nanos; i++) {
        assert_ok(dev->fns->event_create(dev, &events[i]));
        null_submit(clock, g, p, b, i, queues, events);
    }
    for (size_t i = 0; i < p->n_nanos; i++) dev->fns->wait(events[i], 1), dev->fns->event_destroy(dev, events[i]);
    uint64_t now = wf_null_now(dev);
    for (uint32_t q = 0; q < p->n_queues; q++) dev->fns->queue_destroy(dev, queues[q]);
    dev->fns->close(dev);
    wf_null_configure(NULL);
    free(events);
    return now;
}

#endif
