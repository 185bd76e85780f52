/* calibrate: the histogram of attention logits over all layers that `weft calibrate` prints and draws. */
#ifndef WF_CLI_CALIBRATE_H
#define WF_CLI_CALIBRATE_H

#include "cli/cli.h"

enum { WF_LOGIT_LINES = 24 };

/* all, rows: logits, and largest ones of a row, from low + i * step on. */
typedef struct wf_logit_lines {
    double low, step;
    double all[WF_LOGIT_LINES + 1], rows[WF_LOGIT_LINES + 1], n_all, n_rows;
} wf_logit_lines;

/* calibrate_plot.c: an SVG, of the lines and of what was chosen for each layer. */
weft_status wf_calibrate_plot(const struct weft_calibration *c, const wf_logit_lines *h, const char *label, const char *path);

#endif
