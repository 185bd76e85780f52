/* wgmma_ptx: prints what wgmma.py and wgmma_attention.py simulate.
 *
 *   wgmma_ptx                          a line for each variant of wgmma that does not cut K: its name, rows of W, of X,
 * and 1 if it packs X wgmma_ptx VARIANT SPLIT_K FORMAT [silu | HEAD N_ROT]   the program of that variant for weights of
 * a format, but with K in so many parts, below 0: of one work-group, with a t behind it only of tiles of the last
 * round; with SiLU, or with heads that turn wgmma_ptx formats                  a line for each format that has
 * programs: its name, and the numbers of cl_fragments wgmma_ptx weights FORMAT ROWS K    weights from a seed: ROWS x K
 * in F32, then as the programs read them wgmma_ptx attention HEAD_SIZE [async | chunks]   the program of attention,
 * with the asynchronous softmax or by chunks, few of which do not grow
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

static int print_gemm(const cl_variant *v, const char *split_k, bool silu, cl_rotation rope, const cl_fragments *w)
{
    int32_t knob[WF_LEN(v->tile)];
    memcpy(knob, v->tile, sizeof knob);
    knob[1] |= strchr(split_k, 't') ? 2 : 0;
    knob[WF_LEN(knob) - 1] = atoi(split_k);
    return print_text(wf_cl_wgmma_ptx(knob, silu, rope, w));
}

static int print_attention(int head_dim, bool async, bool chunks)
{
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_ATTENTION); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_ATTENTION, i);
        int32_t knob[WF_LEN(v->tile)];
        memcpy(knob, v->tile, sizeof knob);
        if (chunks) knob[4] = 32; /* rows that are short enough to be simulated have grown chunks */
        if (v->configure == wf_cl_configure_attention_wgmma && knob[2] == async && !knob[3] == !chunks)
            return print_text(wf_cl_attention_ptx(knob, head_dim));
    }
    return 1;
}

static enum wf_dtype dtype_of(const char *name)
{
    enum wf_dtype d = WF_F32;
    while (d < WF_N_WEIGHT_DTYPES && strcmp(wf_dtypes[d].name, name)) d++;
    return d;
}

static int print_formats(void)
{
    for (int d = 0; d < WF_N_WEIGHT_DTYPES; d++) {
        const cl_fragments *f = wf_cl_fragments((enum wf_dtype)d);
        if (f) printf("%s %d %d %d %d %d\n", wf_dtypes[d].name, f->bits, f->group, f->min, f->zero, f->codes);
    }
    return 0;
}

static int print_weights(enum wf_dtype d, uint32_t rows, uint32_t k)
{
    size_t n = (size_t)rows * k, bytes = rows * wf_dtype_bytes(d, k),
           packed_bytes = wf_cl_weight_bytes(NULL, WF_CL_FRAGMENT_MAJOR, d, rows, k);
    float *x = malloc(n * sizeof *x);
    uint8_t *blocks = malloc(bytes), *packed = malloc(packed_bytes);
    bool ok = x && blocks && packed;
    for (size_t i = 0; ok && i < n; i++) x[i] = (float)(wf_random(1, i) % 1999) / 1000 - 1;
    if (ok) {
        wf_dtypes[d].encode(x, blocks, n);
        wf_dtypes[d].decode(blocks, x, n);
        wf_cl_weight_pack(NULL, WF_CL_FRAGMENT_MAJOR, d, rows, k, blocks, packed);
        ok = fwrite(x, sizeof *x, n, stdout) == n && fwrite(packed, 1, packed_bytes, stdout) == packed_bytes;
    }
    free(x), free(blocks), free(packed);
    return !ok;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "formats")) return print_formats();
    if (argc == 5 && !strcmp(argv[1], "weights"))
        return print_weights(dtype_of(argv[2]), (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
    if (argc >= 3 && !strcmp(argv[1], "attention"))
        return print_attention(atoi(argv[2]), argc > 3 && !strcmp(argv[3], "async"),
                               argc > 3 && !strcmp(argv[3], "chunks"));
    for (int i = 0; i < (int)wf_cl_n_variants(WF_OP_GEMM); i++) {
        const cl_variant *v = wf_cl_variant_at(WF_OP_GEMM, i);
        if (v->configure != wf_cl_configure_wgmma || v->tile[4] != 1) continue;
        if (argc < 3) printf("%s %d %d %d\n", v->name, v->tile[0] * 64, v->tile[2], v->tile[1]);
        if (argc < 4 || strcmp(argv[1], v->name)) continue;
        cl_rotation rope = argc == 6 ? (cl_rotation){atoi(argv[4]), atoi(argv[5])} : (cl_rotation){0};
        return print_gemm(v, argv[2], argc == 5, rope, wf_cl_fragments(dtype_of(argv[3])));
    }
    return 0;
}
