/* Writes PTX, one instruction a line. Knows nothing of any kernel. */
#include "cl/nvidia/ptx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ptx_add(wf_ptx *t, const char *text, size_t n)
{
    while (!t->lost && t->len + n + 1 > t->cap) {
        char *s = realloc(t->s, t->cap = t->cap ? t->cap * 2 : 1 << 16);
        if (s) t->s = s;
        else t->lost = true;
    }
    if (t->lost) return;
    memcpy(t->s + t->len, text, n);
    t->len += n;
    t->s[t->len] = 0;
}

static void end_line(wf_ptx *t)
{
    if (t->inside) ptx_add(t, "\n", 1);
    t->inside = false;
}

/* Bytes of text that stay in one line: up to a newline, or to a ';' and a comment behind it. */
static size_t line_length(const char *text)
{
    size_t n = strcspn(text, ";\n");
    if (text[n] != ';') return n;
    const char *next = text + n + 1 + strspn(text + n + 1, " ");
    return strncmp(next, "//", 2) ? n + 1 : (size_t)(next - text) + strcspn(next, "\n");
}

/* Adds text, which may hold several statements, line by line. */
static void add_lines(wf_ptx *t, const char *text)
{
    while (*text) {
        if (!t->inside) text += strspn(text, " ");
        size_t n = line_length(text);
        bool ends = text[n] == '\n' || (n && text[n - 1] == ';');
        for (int i = 0; n && !t->inside && i < t->depth; i++) ptx_add(t, "    ", 4);
        ptx_add(t, text, n);
        t->inside |= n > 0;
        if (ends) end_line(t);
        text += n + (text[n] == '\n');
    }
}

static void add_formatted(wf_ptx *t, const char *fmt, va_list args)
{
    char text[2048];
    int n = vsnprintf(text, sizeof text, fmt, args);
    if (n < 0 || (size_t)n >= sizeof text) t->lost = true;
    else add_lines(t, text);
}

void wf_ptx_emit(wf_ptx *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_formatted(t, fmt, args);
    va_end(args);
}

void wf_ptx_list(wf_ptx *t, const char *stem, int first, int n)
{
    for (int i = first; i < first + n; i++) wf_ptx_emit(t, "%s%s%d", i > first ? "," : "", stem, i);
}

void wf_ptx_label(wf_ptx *t, const char *fmt, ...)
{
    int depth = t->depth;
    va_list args;
    t->depth = 0;
    va_start(args, fmt);
    add_formatted(t, fmt, args);
    va_end(args);
    wf_ptx_emit(t, ":\n");
    t->depth = depth;
}

/* ".b32 a, b; .pred p;": a line of .reg each. */
static void ptx_declare(wf_ptx *t, const char *locals)
{
    while (*(locals += strspn(locals, " "))) {
        int n = (int)strcspn(locals, ";");
        wf_ptx_emit(t, ".reg %.*s;", n, locals);
        locals += n + (locals[n] == ';');
    }
}

static void ptx_comment(wf_ptx *t, const char *text)
{
    for (int n; *text; text += n + (text[n] == '\n')) {
        n = (int)strcspn(text, "\n");
        for (int i = 0; i < t->depth; i++) ptx_add(t, "    ", 4);
        ptx_add(t, "// ", 3);
        ptx_add(t, text, (size_t)n);
        ptx_add(t, "\n", 1);
    }
}

void wf_ptx_open(wf_ptx *t, const char *does, const char *effects, const char *locals)
{
    end_line(t);
    ptx_comment(t, does);
    ptx_comment(t, effects);
    wf_ptx_emit(t, "{\n");
    t->depth++;
    ptx_declare(t, locals);
}

void wf_ptx_open_for(wf_ptx *t, const char *does, const char *locals, const char *effects, ...)
{
    char text[512];
    va_list args;
    va_start(args, effects);
    int n = vsnprintf(text, sizeof text, effects, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) t->lost = true;
    wf_ptx_open(t, does, text, locals);
}

void wf_ptx_close(wf_ptx *t)
{
    t->depth--;
    wf_ptx_emit(t, "}\n");
}

char *wf_ptx_finish(wf_ptx *t)
{
    if (!t->lost) return t->s;
    free(t->s);
    return NULL;
}
