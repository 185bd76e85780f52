/* In place of the OpenCL backend when it is left out of the build: there are no such devices. */
#include "dev/dev.h"

#define NONE "this build of weft has no OpenCL"

static size_t no_list(struct weft_device_info *out, size_t cap)
{
    (void)out, (void)cap;
    wf_log(WEFT_LOG_DEBUG, NONE);
    return 0;
}

static weft_status no_open(size_t i, const wf_open_params *p, wf_dev **out)
{
    (void)i, (void)p, (void)out;
    return wf_fail(WEFT_ERR_NODEVICE, NONE);
}

const wf_backend wf_backend_cl = {"opencl", no_list, no_open};
