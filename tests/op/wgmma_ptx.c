/* wgmma_ptx: prints what wgmma.py and wgmma_attention.py simulate.
 *
 *   wgmma_ptx                          a line for each variant of wgmma that does not cut K: its name, rows of W, of X, and 1 if it packs X
 *   wgmma_ptx VARIANT SPLIT_K [silu]   the program of that variant, but with K in so many parts
 *   wgmma_ptx attention HEAD_SIZE      the program of attention
 */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_text(char *text)
{
    if (!text) return 1;
    fputs(text, stdout);
    free(text);
    return 0;
}

static int print_gemm(const cl_variant *v, int split_k, bool silu)
{
    int32_t knob[WF_LEN(v->tile)];
    memcpy(knob, v->tile, sizeof knob);
    knob[WF_LEN(knob) - 1] = split_k;
    return print_text(wf_cl_wgmma_ptx(knob, silu));
}

static int print_attention(int head_dim)
{
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_ATTENTION); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_ATTENTION, i);
        if (v->configure == wf_cl_configure_attention_wgmma) return print_text(wf_cl_attention_ptx(v->tile, head_dim));
    }
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "attention")) return print_attention(atoi(argv[2]));
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_GEMM); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_GEMM, i);
        if (v->configure != wf_cl_configure_wgmma || v->tile[4] > 1) continue;
        if (argc < 3) printf("%s %d %d %d\n", v->name, v->tile[0] * 64, v->tile[2], v->tile[1]);
        if (argc < 3 || strcmp(argv[1], v->name)) continue;
        return print_gemm(v, atoi(argv[2]), argc > 3);
    }
    return 0;
}
