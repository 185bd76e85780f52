/* Failed driver calls as errors, and devices that are lost. */
#include "cl/cl.h"

#include <stdarg.h>
#include <stdio.h>

weft_status wf_cl_fail(cl_dev *d, cl_int err, const char *fmt, ...)
{
    char call[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(call, sizeof call, fmt, ap);
    va_end(ap);
    bool memory = err == CL_MEM_OBJECT_ALLOCATION_FAILURE || err == CL_OUT_OF_HOST_MEMORY;
    if (!memory) d->base.lost = true;
    return wf_fail(memory ? WEFT_ERR_NOMEM : WEFT_ERR_DEVICE, "%s (%s): %s: %s (%d)",
                   d->ref.info.name, d->ref.info.id, call, wf_cl_error_name(err), err);
}

weft_status wf_cl_check_lost(const cl_dev *d)
{
    if (!d->base.lost) return WEFT_OK;
    return wf_fail(WEFT_ERR_DEVICE, "%s (%s) failed before and is lost; open it again",
                   d->ref.info.name, d->ref.info.id);
}
