/* cost: what `weft plan --cost` prints and draws. */
#ifndef WF_CLI_COST_H
#define WF_CLI_COST_H

#include "cli/cli.h"

int wf_plan_cost(const wf_opts *o, const struct weft_model *m);
void wf_cost_print(const struct weft_cost *c, const struct weft_model *m, FILE *f);
weft_status wf_cost_plot(const struct weft_cost *c, const struct weft_model *m, const char *path); /* an SVG: table 2 as bars */

#endif
