/* build_once: asked for a kernel's binary, PoCL compiles it once more, for work-groups of any size, which costs as much
 * as the kernel in use. The cache of kernels and the helper that builds them ask; they have tests of their own, and
 * tests of kernels do without them. */
#ifndef WF_TEST_BUILD_ONCE_H
#define WF_TEST_BUILD_ONCE_H

#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* Returns whether the device is to be opened with no_kernel_cache; call it before. */
static inline bool build_once(const struct weft_device_info *d)
{
    bool once = d->type == WEFT_DEVICE_CPU && !strncmp(d->id, "opencl", 6);
    if (once) setenv("WEFT_CLBUILD", "none", 1);
    return once;
}

/* The id of a device: of the first of OpenCL where that is wanted. *once: as above. False: it is not listed. */
static inline bool device_named(const char *want, char id[24], bool *once)
{
    struct weft_device_info list[16];
    size_t n = weft_devices(list, 16);
    for (size_t i = 0; i < n && i < 16; i++) {
        bool fits = !strcmp(list[i].id, want) || (!strcmp(want, "gpu") && list[i].type == WEFT_DEVICE_GPU) ||
                    (!strcmp(want, "opencl") && !strncmp(list[i].id, "opencl:", 7));
        if (!fits) continue;
        memcpy(id, list[i].id, 24);
        *once = build_once(&list[i]);
        return true;
    }
    return false;
}

#endif
