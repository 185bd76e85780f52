/* ptx: a program in NVIDIA's PTX as it is written: one instruction a line, indented by scopes. A scope is a block "{
 * ... }" with registers of its own; its comment says what it does, and what it reads and writes of the registers
 * around it, so that an emitter destroys nothing that it does not name. tests/op/ptx.py holds comments to
 * statements. */
#ifndef WF_NVIDIA_PTX_H
#define WF_NVIDIA_PTX_H

#include "base/base.h"

typedef struct wf_ptx {
    char *s;
    size_t len, cap;
    int depth;   /* of scopes */
    bool inside; /* a line has begun */
    bool lost;   /* memory ran out */
} wf_ptx;

/* Adds statements. Each ';' and each newline ends a line; lines are indented by their scopes. */
void wf_ptx_emit(wf_ptx *t, const char *fmt, ...) WF_PRINTF(2, 3);
/* Adds names in the middle of a statement: stem<first>, ..., stem<first + n - 1>. */
void wf_ptx_list(wf_ptx *t, const char *stem, int first, int n);
/* Adds a label, at the line's start. */
void wf_ptx_label(wf_ptx *t, const char *fmt, ...) WF_PRINTF(2, 3);
/* Opens a scope. effects: "Reads a, b; writes c." of the registers around it, families as "acc*"; both become its
 * comment.
 * locals: its registers, for example ".b32 tmp; .pred p;", or "". */
void wf_ptx_open(wf_ptx *t, const char *does, const char *effects, const char *locals);
/* The same, of registers whose names are formatted. */
void wf_ptx_open_for(wf_ptx *t, const char *does, const char *locals, const char *effects, ...) WF_PRINTF(4, 5);
void wf_ptx_close(wf_ptx *t);
/* The text, malloc'ed; NULL: memory ran out. */
char *wf_ptx_finish(wf_ptx *t);

/* The names under which files that write programs know these. */
#define emit           wf_ptx_emit
#define label          wf_ptx_label
#define open_scope     wf_ptx_open
#define open_scope_for wf_ptx_open_for
#define close_scope    wf_ptx_close

#endif
