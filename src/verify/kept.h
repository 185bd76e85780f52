/* kept: self-tests that kernels passed at earlier starts, in the cache (base/cache.h). What could change a verdict is
 *
 *   - the device, its driver, and the limits within which it was opened;
 *   - the kernel, by what the backend tells it from others with (kernel_id, dev/dev.h);
 *   - the problem;
 *   - the build of weft: the code that launches kernels, the kernels themselves, the generator of problems, the
 *     reference and its tolerances. No part of it has a number of its own that somebody would have to remember to
 *     change.
 *
 * The first three are the key of an entry, and the build is what it holds, so a new build overwrites what an older one
 * left. Failures are not kept: they are tested at each start. With no_kernel_cache nothing is taken or added, but a
 * kernel that fails loses its entry.
 */
#ifndef WF_KEPT_H
#define WF_KEPT_H

#include "base/cache.h"
#include "verify/check.h"

typedef struct wf_kept {
    bool passed;
    char dir[512];
    wf_cache_key key; /* text NULL: not to be kept */
} wf_kept;

/* A test of the kernel on the problem and on smaller ones of its kind. */
wf_kept wf_kept_find(wf_dev *, const wf_case *, const wf_bound *);
/* How the test went. */
void wf_kept_update(const wf_kept *, const wf_dev *, bool passed);
void wf_kept_free(wf_kept *);

#endif
