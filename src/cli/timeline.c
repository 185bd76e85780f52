/* timeline: `weft plan --timeline`: when each op of a step runs, and what it uses of the device (NanoFlow, figure 10),
 * for Perfetto and for bench/plot.py. */
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"

#include <stdlib.h>

static const enum weft_class classes[] = {WEFT_CLASS_COMPUTE, WEFT_CLASS_MEMORY, WEFT_CLASS_COPY, WEFT_CLASS_NETWORK};

static double mean_use(const struct weft_timeline_step *s, enum weft_class c)
{
    double sum = 0;
    for (const struct weft_timeline_use *u = s->uses; u < s->uses + s->n_uses; u++)
        sum += (u->end_us - u->begin_us) * u->use[c];
    return s->us > 0 ? sum / s->us : 0;
}

/* Times are in microseconds from the step's begin; a process is what was predicted or measured, a thread a queue. */
static void put_step(wf_text *o, const struct weft_timeline_step *s, int pid, const char *kind)
{
    if (!s->n_ops) return;
    wf_json_print(o, ",\n{'ph':'M','pid':%d,'name':'process_name','args':{'name':%s}}", pid, kind);
    for (const struct weft_timeline_op *op = s->ops; op < s->ops + s->n_ops; op++)
        wf_json_print(
            o,
            ",\n{'ph':'X','pid':%d,'tid':%u,'name':%s,'ts':%.9g,'dur':%.9g,'args':{'layer':%d,'class':%s,'begin':%u,"
            "'end':%u}}",
            pid, op->queue, op->name, op->begin_us, op->end_us - op->begin_us, op->layer, weft_class_name(op->op_class),
            op->begin, op->end);
    for (const struct weft_timeline_use *u = s->uses; u < s->uses + s->n_uses; u++)
        for (size_t i = 0; i < WF_LEN(classes); i++)
            wf_json_print(o, ",\n{'ph':'C','pid':%d,'name':%s,'ts':%.9g,'args':{'percent':%.9g}}", pid,
                          weft_class_name(classes[i]), u->begin_us, 100 * u->use[classes[i]]);
}

/* What 100 % are, and how much of that was used. */
static void put_summary(wf_text *o, const struct weft_timeline_step *s, const char *kind)
{
    if (!s->n_ops) return;
    wf_json_print(o, ",%s:{'us':%.9g,'flop_s':%.9g,'bytes_s':%.9g,'peak_of_ops':%hhd", kind, s->us, s->compute, s->read,
                  s->peak_of_ops);
    for (size_t i = 0; i < WF_LEN(classes); i++)
        wf_text_print(o, ",\"%s_pct\":%.3f", weft_class_name(classes[i]), 100 * mean_use(s, classes[i]));
    wf_text_add(o, "}", 1);
}

/* Perfetto passes over `step`, which says what the step was. */
static weft_status write_trace(const char *path, const struct weft_timeline *t, const char *label)
{
    wf_text o = {0};
    wf_output out;
    wf_json_print(&o, "{'step':{'build_commit':%s,'device_name':%s,'model_type':%s,'profile':%s,'estimated':%hhd",
                  wf_commit(), t->device, label, t->profile, t->estimated);
    wf_json_print(&o, ",'tokens':%u,'decodes':%u,'context':%u,'layers':%u,'queues':%u", t->tokens, t->decodes,
                  t->context, t->n_layers, t->n_queues);
    put_summary(&o, &t->predicted, "predicted");
    put_summary(&o, &t->measured, "measured");
    wf_json_print(&o, "},\n'traceEvents':[{'ph':'M','pid':0,'name':'process_name','args':{'name':'weft'}}");
    put_step(&o, &t->predicted, 1, "predicted");
    put_step(&o, &t->measured, 2, "measured");
    wf_text_print(&o, "]}\n");
    weft_status s = o.failed ? wf_fail(WEFT_ERR_NOMEM, "out of memory") : wf_output_open(path, &out);
    if (!s) fwrite(o.data, 1, o.len, out.f), s = wf_output_end(&out, true);
    free(o.data);
    return s;
}

/* The same in a line. */
static void print_step(const struct weft_timeline_step *s, const char *kind)
{
    if (!s->n_ops) return;
    printf("%s %.3f ms, mean use", kind, s->us / 1e3);
    for (size_t i = 0; i < WF_LEN(classes); i++)
        printf("%s %s %.0f %%", i ? "," : "", weft_class_name(classes[i]), 100 * mean_use(s, classes[i]));
    putchar('\n');
}

int wf_timeline_check(const wf_opts *o)
{
    const char *path = o->engine.timeline;
    if (!wf_ends_in(path, ".json"))
        return wf_usage(o->command,
                        "--timeline %s: a step is written for Perfetto to a file that ends in .json, of which "
                        "bench/plot.py makes a picture",
                        path);
    weft_status s = wf_output_check(path);
    return s ? wf_say_error(s) : 0;
}

int wf_plan_timeline(const wf_opts *o, const struct weft_model *m, struct weft_engine *e)
{
    wf_progress bar = {0};
    char label[96];
    struct weft_timeline *t = NULL;
    struct weft_timeline_params p = {.tokens = o->explain.tokens,
                                     .decodes = o->explain.decodes,
                                     .context = o->explain.context,
                                     .profile = o->print_profile,
                                     .estimate = true,
                                     .measure = o->costs.measure,
                                     .on_progress = wf_on_progress,
                                     .user = o->quiet ? NULL : &bar};
    weft_status s = weft_timeline(e, &p, &t);
    wf_progress_end(&bar);
    wf_model_label(m, label, sizeof label);
    if (!s) s = write_trace(o->engine.timeline, t, label);
    if (!s) print_step(&t->predicted, "predicted"), print_step(&t->measured, "measured");
    if (!s && !t->predicted.n_ops)
        wf_note(o,
                "nothing is predicted, for how long these ops take was never measured here: run `weft tune --overlap`");
    weft_timeline_free(t);
    if (s) return wf_say_error(s);
    wf_note(o, "wrote %s", o->engine.timeline);
    return 0;
}
