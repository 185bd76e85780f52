/* line: reads what a person types, with editing and history on a terminal, plainly elsewhere.
 *
 * On a terminal a message may have several lines: pasted ones, and those that end with a backslash. The history is kept
 * between sessions, in $WEFT_HISTORY or else weft/history in the user's folder for such things, readable by the user
 * alone; WEFT_HISTORY= keeps none. Ctrl-Z and SIGTSTP stop the program with the terminal as it was found; then the line
 * is drawn anew. SIGTERM, and SIGHUP of a closed terminal, end the program with the terminal as it was found and the
 * history whole. The prompt and the echo go to stderr, or to the terminal where that is redirected: stdout is for
 * generated text alone. */
#ifndef WF_CLI_LINE_H
#define WF_CLI_LINE_H

#include "base/base.h"

typedef struct wf_line wf_line;

weft_status wf_line_open(wf_line **out);
/* The next line without its newline, valid until the next call; NULL at the end of input. Ctrl-C drops the line. Pasted
 * text that begins with a slash gets another one: it is no command. Lines of more than 8 MiB and those that have a zero
 * byte are left out, with a message. */
const char *wf_line_read(wf_line *l);
bool wf_line_lost(const wf_line *l); /* was one left out? */
void wf_line_close(wf_line *l);

#endif
