/* printer: an answer on standard output as it comes. Thoughts of reasoning models stand between lines that say so, as
 * llama.cpp has them, dimmed on a terminal with colours, or are left out. Only what is no thought is kept as the
 * answer. */
#ifndef WF_CLI_PRINTER_H
#define WF_CLI_PRINTER_H

#include "answers/answer.h"
#include "cli/cli.h"

typedef struct wf_printer {
    wf_answer *reader; /* NULL: all is the answer, as it comes */
    bool hide, dim;    /* thoughts */
    bool thinking;     /* they have begun on the output, and not ended */
    bool thought;      /* they have been shown */
    bool closed;       /* standard output is */
    char last;         /* of what was printed; 0: nothing was */
    wf_text answer;    /* all of it so far */
} wf_printer;
/* style NULL: the text as it comes. */
weft_status wf_printer_begin(wf_printer *s, const wf_answer_style *style, bool hide);
bool wf_printer_add(wf_printer *s, const char *text, size_t len); /* false: output is closed, or no memory */
bool wf_printer_end(wf_printer *s); /* what was held back; the same. Later calls do nothing */
void wf_printer_line(wf_printer *s); /* ends a line that has begun */
void wf_printer_free(wf_printer *s);

#endif
