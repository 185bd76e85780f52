/* line: reads lines with libedit on a terminal, and plain lines of bounded length elsewhere. See line.h. */
#include "cli/line.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST ((size_t)8 << 20)

struct wf_line {
    EditLine *el; /* NULL: no terminal */
    History *history;
    char *text;
    size_t cap; /* of the buffer without libedit */
};

static char *prompt(EditLine *el)
{
    (void)el;
    static char text[] = "> ";
    return text;
}

/* Ctrl-C at the prompt leaves the line on the screen and starts a new one, as in a shell. */
static unsigned char drop_line(EditLine *el, int ch)
{
    (void)ch;
    const LineInfo *li = el_line(el);
    el_cursor(el, (int)(li->lastchar - li->cursor));
    el_deletestr(el, (int)(li->lastchar - li->buffer));
    fputs("^C\n", stderr);
    return CC_REDISPLAY;
}

static weft_status open_editor(wf_line *l)
{
    HistEvent ev;
    /* libedit decodes characters by the locale; terminals send UTF-8. */
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8")) setlocale(LC_CTYPE, "C.UTF-8");
    l->history = history_init();
    l->el = el_init("weft", stdin, stderr, stderr);
    if (!l->el || !l->history) return wf_fail(WEFT_ERR_NOMEM, "cannot set up line editing");
    history(l->history, &ev, H_SETSIZE, 200);
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_PROMPT, prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    /* Ctrl-C is a character while a line is edited, and a signal otherwise. */
    el_set(l->el, EL_SETTY, "-d", "-isig", NULL);
    el_set(l->el, EL_ADDFN, "weft-drop-line", "drop the line", drop_line);
    el_set(l->el, EL_BIND, "^C", "weft-drop-line", NULL);
    el_source(l->el, NULL); /* the user's ~/.editrc */
    return WEFT_OK;
}

weft_status wf_line_open(wf_line **out)
{
    wf_line *l = wf_calloc(1, sizeof *l);
    if (!l) return WEFT_ERR_NOMEM;
    weft_status s = isatty(STDIN_FILENO) ? open_editor(l) : WEFT_OK;
    if (s)
        wf_line_close(l);
    else
        *out = l;
    return s;
}

static const char *read_edited(wf_line *l)
{
    HistEvent ev;
    int n = 0;
    /* el_gets prints the prompt before it sets the terminal mode. Keys typed in between would be read in the wrong mode, and a
     * Ctrl-D or Ctrl-C lost. */
    el_set(l->el, EL_PREP_TERM, 1);
    const char *line = el_gets(l->el, &n);
    if (!line || n <= 0) return NULL;
    size_t len = strcspn(line, "\n");
    if (len) history(l->history, &ev, H_ENTER, line);
    char *text = realloc(l->text, len + 1);
    if (!text) return NULL;
    memcpy(text, line, len);
    text[len] = 0;
    return l->text = text;
}

/* Makes room for a character at n and a NUL after it. */
static bool has_room(wf_line *l, size_t n)
{
    return n < MOST && wf_grow(&l->text, n + 1, &l->cap, 1);
}

/* Reads and drops the rest of a line that is too long, so that it cannot fill the memory. */
static const char *read_plain(wf_line *l)
{
    for (int c = 0; c != EOF;) {
        size_t n = 0;
        bool fits = has_room(l, 0);
        while ((c = getc_unlocked(stdin)) != EOF && c != '\n')
            if (fits && (fits = has_room(l, n))) l->text[n++] = (char)c;
        if (!fits)
            wf_log(WEFT_LOG_ERROR, "ignored a line of more than %zu bytes", n);
        else if (n || c != EOF)
            return l->text[n] = 0, l->text;
    }
    return NULL;
}

const char *wf_line_read(wf_line *l)
{
    return l->el ? read_edited(l) : read_plain(l);
}

void wf_line_close(wf_line *l)
{
    if (!l) return;
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
    free(l->text);
    free(l);
}
