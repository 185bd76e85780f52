/* gemm: what the gemm kernels are told alike (gemm.c), those for few rows of MMA-fragment-major weights (gemm_flat.c)
 * among them. */
#ifndef WF_CL_GEMM_H
#define WF_CL_GEMM_H

#include "cl/cl.h"

/* false where the variant does not do what the call wants */
bool wf_cl_gemm_arguments(const cl_variant *, const wf_call *, cl_launch *);
/* how W lies; false where it is of no format that lies so */
bool wf_cl_fragment_knobs(const wf_call *, cl_launch *);
/* rows of X in F16, aligned to that many bytes */
bool wf_cl_rows_of_halves(const wf_view *x, uint32_t align);
/* the same as wf_cl_gemm_arguments, and what norm and rotation want, of kernels that fuse them */
bool wf_cl_fused_arguments(const cl_variant *, const wf_call *, cl_launch *);
/* with the rotation behind, a work-item has a pair of neighbours; false where they lie otherwise */
bool wf_cl_pair_knobs(const wf_call *, cl_launch *);
/* the tile of gemm_mma.cl for an expert's product; false where it cannot */
bool wf_cl_mma_tiles(const cl_caps *, const cl_variant *, const wf_call *, uint32_t limit, cl_launch *);

#endif
