/* Describes the CPU's variants for `weft kernels`: source file and requirements. They are compiled with weft, so there
 * is no device source. */
#include "cpu/cpu.h"

#include <stdio.h>
#include <string.h>

/* A text for variants whose name contains `part`; the first matching row counts. */
typedef struct row {
    const char *part, *text;
} row;

static const row files[] = {
    /* of GEMM and ATTENTION; others have one file per op */
    {"rows-", "ops/gemm_rows"},        {"int8-avx512", "x86/gemm_vnni"},     {"int8x16", "x86/gemm_panels"},
    {"int16x16", "x86/gemm_panels"},   {"int16x8", "x86/gemm_panels"},       {"int8-avx2", "x86/gemm_int16"},
    {"amx-int8", "x86/gemm_amx_int8"}, {"amx-q8_0x16", "x86/gemm_amx_int8"}, {"amx", "x86/gemm_amx"},
    {"int8-", "ops/gemm_int8"},        {"q8_0x16", "x86/gemm_q8_0x16"},      {"pages-", "ops/attention"},
};
static const row needs[] = {
    {"ref-q8_0x16", "AMX, whose layout it reads"},
    {"ref", ""},
    {"int8-avx512", "AVX-512 VNNI"},
    {"int8x16", "AVX-512 VNNI"},
    {"int16x16", "AVX-512 VNNI"},
    {"int16x8", "AVX2"},
    {"avx512", "AVX-512"},
    {"avx2", "AVX2"},
    {"neon", "NEON"},
    {"dotprod", "ARM dot product"},
    {"amx", "AMX"},
    {"q8_0x16", "AMX"},
    {"blas", "a build with OpenBLAS, and no limit of the address space"},
};

static const char *look_up(const row *rows, size_t n, const char *name, const char *otherwise)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(name, rows[i].part)) return rows[i].text;
    return otherwise;
}

void wf_cpu_about(wf_dev *d, enum wf_op op, int variant, wf_kernel_about *out)
{
    const wf_variant *v = wf_variant_at(d, op, variant);
    const char *file = op == WF_OP_GROUPED_GEMM ? NULL : look_up(files, WF_LEN(files), v->name, NULL);
    out->layout = wf_reads_layout(v, WF_CPU_Q8_0X16) ? "q8_0x16" : "rows";
    out->needs = look_up(needs, WF_LEN(needs), v->name, "");
    if (!strcmp(v->name, "blas")) wf_copy(out->file, sizeof out->file, "cpu/blas.c");
    else if (!strncmp(v->name, "ref", 3)) snprintf(out->file, sizeof out->file, "cpu/ref/%s.c", wf_ops[op].name);
    else if (file) snprintf(out->file, sizeof out->file, "cpu/%s.c", file);
    else snprintf(out->file, sizeof out->file, "cpu/ops/%s.c", wf_ops[op].name);
}
