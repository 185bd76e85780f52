/* Every driver workaround: which device, what, and why. Rows match by part of the platform's and the
 * device's name; all that match add up. */
#include "cl/cl.h"

#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *platform, *name; /* "" matches all */
    cl_quirks q;
    const char *why;
} row;

static const row rows[] = {
    /* A layer between program and loader: the helper process would run uninstrumented. */
    {"Oclgrind", "", {.options = "", .no_child = true, .no_binaries = true},
     "simulator: what it checks must be built from source inside the checked process"},
};

cl_quirks wf_cl_quirks(const struct weft_device_info *info)
{
    cl_quirks q = {.options = ""};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        const row *r = &rows[i];
        if (!strstr(info->platform, r->platform) || !strstr(info->name, r->name)) continue;
        wf_log(WEFT_LOG_DEBUG, "%s: %s", info->id, r->why);
        if (*r->q.options) q.options = r->q.options;
        q.no_binaries |= r->q.no_binaries;
        q.no_child |= r->q.no_child;
        q.skip |= r->q.skip;
    }
    return q;
}
