/* clblast: what the choice of the variant (clblast.c) and its calls (clblast_run.c) share. */
#ifndef WF_CLBLAST_H
#define WF_CLBLAST_H

#include "cl/cl.h"

/* Which operands need a panel, and where in scratch memory that lies. */
typedef struct cl_panels {
    bool x, w, y;
    uint32_t cols; /* of Y at a time: rows of W */
    uint64_t x_at, w_at, y_at, bytes;
} cl_panels;
cl_panels wf_cl_panels(const cl_caps *caps, const wf_call *c);
/* The kernel that makes panel `to` of `from`. */
bool wf_cl_configure_panel(const cl_caps *caps, const wf_view *from, const wf_view *bias, const wf_view *res,
                           const wf_view *to, uint32_t limit, cl_launch *l);

#endif
