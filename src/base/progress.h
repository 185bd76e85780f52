/* progress: a progress bar on stderr for work that takes over a second, redrawn at most 10 times per second. Prints
 * nothing if stderr is not a terminal. */
#ifndef WF_PROGRESS_H
#define WF_PROGRESS_H

#include "base/base.h"

typedef struct wf_progress {
    char what[32], note[64];
    uint64_t start_ns, drawn_ns;
    double first; /* fraction that was done at the start */
    bool shown;
} wf_progress;

void wf_progress_update(wf_progress *p, const char *what, double fraction);
/* Sets the text after the bar, such as "12 of 100 requests". */
void wf_progress_note(wf_progress *p, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_progress_hide(wf_progress *p); /* clears the line until the next update */
void wf_progress_end(wf_progress *p); /* clears the line and resets */

#endif
