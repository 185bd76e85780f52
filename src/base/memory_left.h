/* memory_left: how much memory of the host a process can still take, by what the kernel and control groups say.
 * Thread-safe. */
#ifndef WF_MEMORY_LEFT_H
#define WF_MEMORY_LEFT_H

#include "base/base.h"

/* Bytes that this process can still take; 0: unknown. */
uint64_t wf_memory_left(void);
/* What the control groups leave to it. root: their mount point; text: contents of /proc/self/cgroup, which is modified.
 * UINT64_MAX: no limit. */
uint64_t wf_group_left(const char *root, char *text);
/* Reads a small file of the kernel into malloc'ed memory; NULL: missing. */
char *wf_kernel_text(const char *path);

#endif
