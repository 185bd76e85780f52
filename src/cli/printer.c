/* printer: see the header. */
#include "cli/printer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NO_COLOR: https://no-color.org */
static bool has_colours(void)
{
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(off && *off) && term && *term && strcmp(term, "dumb");
}

weft_status wf_printer_begin(wf_printer *s, const wf_answer_style *style, bool hide)
{
    *s = (wf_printer){.hide = hide, .dim = has_colours()};
    if (style) s->reader = wf_answer_new(style);
    return style && !s->reader ? WEFT_ERR_NOMEM : WEFT_OK;
}

static void print_bytes(wf_printer *s, const char *text, size_t len)
{
    if (!len || s->closed) return;
    s->last = text[len - 1];
    s->closed = !wf_out(text, len);
}

/* Of the model, whose text commands no terminal. */
static void print_shown(wf_printer *s, const char *text, size_t len)
{
    if (!len || s->closed) return;
    s->last = text[len - 1];
    s->closed = !wf_out_shown(text, len);
}

/* Each piece is one write, which leaves the terminal as it was, whatever ends the program. */
static void print_thought(wf_printer *s, const char *text, size_t len)
{
    wf_text dimmed = {0};
    if (!s->dim) {
        print_shown(s, text, len);
        return;
    }
    wf_text_print(&dimmed, "\033[2m");
    wf_show_text(&dimmed, text, len);
    wf_text_print(&dimmed, "\033[0m");
    print_bytes(s, dimmed.data, dimmed.len);
    s->last = text[len - 1];
    s->answer.failed |= dimmed.failed;
    free(dimmed.data);
}

static void print_mark(wf_printer *s, const char *line) { print_thought(s, line, strlen(line)); }

void wf_printer_line(wf_printer *s)
{
    if (s->last && s->last != '\n') print_bytes(s, "\n", 1);
}

static void end_thoughts(wf_printer *s, const char *behind)
{
    if (!s->thinking) return;
    s->thinking = false;
    wf_printer_line(s);
    print_mark(s, "[End thinking]");
    print_bytes(s, behind, strlen(behind));
}

static void on_thought(void *user, const char *text, size_t len)
{
    wf_printer *s = user;
    if (s->hide) return;
    if (!s->thinking) wf_printer_line(s), print_mark(s, "[Start thinking]\n");
    s->thinking = s->thought = true;
    print_thought(s, text, len);
}

static void on_text(void *user, const char *text, size_t len)
{
    wf_printer *s = user;
    end_thoughts(s, "\n\n");
    wf_text_add(&s->answer, text, len);
    print_shown(s, text, len);
}

bool wf_printer_add(wf_printer *s, const char *text, size_t len)
{
    const wf_call_out out = {.text = on_text, .thought = on_thought, .user = s};
    if (!s->reader) on_text(s, text, len);
    else if (!wf_answer_feed(s->reader, text, len, &out)) s->answer.failed = true;
    return !s->closed && !s->answer.failed;
}

bool wf_printer_end(wf_printer *s)
{
    const wf_call_out out = {.text = on_text, .thought = on_thought, .user = s};
    if (s->reader && !wf_answer_end(s->reader, true, &out)) s->answer.failed = true;
    end_thoughts(s, "\n");
    wf_answer_free(s->reader);
    s->reader = NULL;
    return !s->closed && !s->answer.failed;
}

void wf_printer_free(wf_printer *s)
{
    wf_answer_free(s->reader);
    free(s->answer.data);
    *s = (wf_printer){0};
}
