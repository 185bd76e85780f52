/* line: reads what a person types, with editing and history on a terminal, plainly elsewhere.
 *
 * The prompt and the echo go to stderr: stdout is for generated text alone. */
#ifndef WF_CLI_LINE_H
#define WF_CLI_LINE_H

#include "base/base.h"

typedef struct wf_line wf_line;

weft_status wf_line_open(wf_line **out);
/* The next line without its newline, valid until the next call; NULL at the end of input. Ctrl-C
 * drops the line and starts a new one. Lines of more than 8 MiB are left out, with a message. */
const char *wf_line_read(wf_line *l);
void wf_line_close(wf_line *l);

#endif
