/* profile: the times of a step's ops. See profile.h. */
#include "exec/profile.h"
#include "plan/cost.h"

#include <stdlib.h>

weft_status wf_profile_init(wf_profile *p, size_t n_commands, double ridge)
{
    *p = (wf_profile){.ridge = ridge, .spans = wf_calloc(n_commands, sizeof *p->spans)};
    return p->spans ? WEFT_OK : WEFT_ERR_NOMEM;
}

void wf_profile_free(wf_profile *p)
{
    free(p->spans);
    *p = (wf_profile){0};
}

static int by_begin(const void *a, const void *b)
{
    uint64_t x = ((const wf_op_span *)a)->begin, y = ((const wf_op_span *)b)->begin;
    return (x > y) - (x < y);
}

void wf_profile_take(wf_profile *p, const wf_graph *g, const wf_program *program, const wf_step_shape *st,
                     const bool *fired, wf_event *const *starts, wf_event *const *ends, uint64_t since)
{
    p->n_spans = 0;
    for (size_t i = 0; i < program->n; i++) {
        const wf_command *c = &program->commands[i];
        wf_op_span s = {.name = c->node->name, .queue = c->nano->queue, .command = (uint32_t)i};
        uint64_t start, t;
        if (!fired[i] || wf_event_times(ends[i], &s.begin, &s.end) || s.end <= s.begin) continue;
        if (!wf_event_times(starts[i], &start, &t) && start >= since) s.begin = WF_MIN(s.begin, start);
        /* The class depends on the shape: the step's own rows and its longest context. */
        p->class_ns[wf_node_class(g, c->node, wf_command_range(c, st).count, st->max_kv, p->ridge)] += s.end - s.begin;
        p->spans[p->n_spans++] = s;
    }
    qsort(p->spans, p->n_spans, sizeof *p->spans, by_begin);
    uint64_t until = 0;
    for (const wf_op_span *s = p->spans; s < p->spans + p->n_spans; s++) {
        uint64_t from = WF_MAX(s->begin, until);
        if (s->end > from) p->covered_ns += s->end - from;
        until = WF_MAX(until, s->end);
    }
}
