/* timeline: the picture that `weft plan --timeline` draws of a step. */
#ifndef WF_CLI_TIMELINE_H
#define WF_CLI_TIMELINE_H

#include "cli/cli.h"

/* An SVG, or with html a page of it; title: of the whole. */
void wf_timeline_draw(FILE *f, const struct weft_timeline *t, const char *title, bool html);

/* The same step several times, at most two: a layer of each, or all of it where there are few, on one scale. names: one each. */
void wf_timeline_compare(FILE *f, struct weft_timeline *const *t, const char *const *names, size_t n, const char *title);
/* How much of the device a step uses on average, 0 to 1. */
double wf_timeline_mean(const struct weft_timeline_step *s, enum weft_class c);

/* Checks the file's name and that it can be written, before work begins. Both return an exit code. */
int wf_timeline_check(const wf_opts *o);
int wf_plan_timeline(const wf_opts *o, const struct weft_model *m, struct weft_engine *e);

#endif
