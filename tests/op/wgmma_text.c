/* wgmma_text: prints a line for each variant of wgmma that loads X as it is (its name and knobs), or the program of one with
 * so many work-groups for the K of a tile; for wgmma.py. */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_GEMM); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_GEMM, i);
        if (v->plan != wf_cl_plan_wgmma || v->tile[1]) continue;
        if (argc < 3) printf("%s %d %d\n", v->name, v->tile[0] * 64, v->tile[2]);
        if (argc < 3 || strcmp(argv[1], v->name)) continue;
        char *text = wf_cl_wgmma_text(v->tile, (uint32_t)atoi(argv[2]));
        if (!text) return 1;
        fputs(text, stdout);
        free(text);
    }
    return 0;
}
