/* Every driver workaround: which device, what, and why. Rows match by part of the platform's, the
 * device's and the driver version's text; all that match add up. */
#include "cl/cl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

typedef struct row {
    const char *platform, *name, *driver; /* "" matches all */
    cl_quirks q;
    const char *why;
} row;

static const row rows[] = {
    /* A layer between program and loader: the helper process would run uninstrumented. */
    {"Oclgrind", "", "", {.options = "", .no_child = true, .no_binaries = true},
     "simulator: what it checks must be built from source inside the checked process"},
    {"rusticl", "", "22.3.", {.options = "", .no_kernel_limit = true},
     "Mesa 22.3 gives 32 work-items as the limit of every kernel, but runs what the kernel requires"},
    {"Intel(R) OpenCL", "", "", {.options = "", .fma = true},
     "contracts a * b + c where it masks the last work-items, and not elsewhere, whatever FP_CONTRACT says"},
    {"NVIDIA CUDA", "", "", {.options = "", .no_kernel_limit = true},
     "gives 256 work-items as the limit of kernels that require more, and runs them"},
    {"Portable Computing Language", "", "", {.options = "", .rolled = true, .most_items = 65535},
     "compiles a kernel once more for launches of more work-items, and for seconds what is unrolled for a GPU's "
     "registers"},
};

cl_quirks wf_cl_quirks(const struct weft_device_info *info)
{
    cl_quirks q = {.options = ""};
    for (size_t i = 0; i < WF_LEN(rows); i++) {
        const row *r = &rows[i];
        if (!strstr(info->platform, r->platform) || !strstr(info->name, r->name) ||
            !strstr(info->driver, r->driver))
            continue;
        wf_log(WEFT_LOG_DEBUG, "%s: %s", info->id, r->why);
        if (*r->q.options) q.options = r->q.options;
        q.no_binaries |= r->q.no_binaries;
        q.no_child |= r->q.no_child;
        q.no_kernel_limit |= r->q.no_kernel_limit;
        q.fma |= r->q.fma;
        q.skip |= r->q.skip;
        q.rolled |= r->q.rolled;
        if (r->q.most_items) q.most_items = r->q.most_items;
    }
    return q;
}

/* Where PoCL keeps what it compiles; it shows no device if it cannot. */
static void pocl_cache(char *path, size_t cap)
{
    const char *own = getenv("POCL_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) snprintf(path, cap, "%s", own);
    else if (xdg && *xdg) snprintf(path, cap, "%s/pocl/kcache", xdg);
    else if (home && *home) snprintf(path, cap, "%s/.cache/pocl/kcache", home);
    else snprintf(path, cap, "/tmp/pocl/kcache");
}

/* Once, though devices are listed often. */
void wf_cl_explain_no_device(const char *platform)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char path[1024];
    if (!strstr(platform, "Portable Computing Language")) return;
    pocl_cache(path, sizeof path);
    if (wf_folder_check(path) == WEFT_OK || atomic_flag_test_and_set(&said)) return;
    wf_log(WEFT_LOG_WARN,
           "OpenCL: PoCL shows no device because it has no cache folder: %s; make it writable, or set POCL_CACHE_DIR "
           "to one that is",
           wf_error());
}
