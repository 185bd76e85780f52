/* Built instead of clblast.c when CLBlast was not found: the variant exists and never runs. */
#include "cl/cl.h"

bool wf_cl_has_clblast(void)
{
    return false;
}

bool wf_cl_configure_clblast(const cl_caps *caps, const cl_variant *v, const wf_call *c, uint32_t limit, cl_launch *l)
{
    (void)caps, (void)v, (void)c, (void)limit, (void)l;
    return false;
}

weft_status wf_cl_clblast_run(cl_q *q, const wf_call *c, int variant)
{
    (void)q, (void)c, (void)variant;
    return wf_fail(WEFT_ERR_UNSUPPORTED, "this build of weft has no CLBlast");
}

void wf_cl_clblast_close(cl_dev *d)
{
    (void)d;
}
