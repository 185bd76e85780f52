/* What a variant needs, where it comes from, and the text that is compiled for it. */
#include "cl/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    cl_configure_fn configure;
    const char *needs;
} rows[] = {
    {wf_cl_configure_flat, "NVIDIA, compute capability 8.0"},
    {wf_cl_configure_grouped_mma, "NVIDIA, compute capability 8.0"},
    {wf_cl_configure_grouped_flat, "NVIDIA, compute capability 8.0"},
    {wf_cl_configure_grouped_frag, "NVIDIA, compute capability 8.0"},
    {wf_cl_configure_frag, "NVIDIA, compute capability 8.0"},
    {wf_cl_configure_split, "NVIDIA, compute capability 8.0, and keys and values in F16"},
    {wf_cl_configure_split_ring, "NVIDIA, compute capability 9.0, and keys and values in F16"},
    {wf_cl_configure_rows, "NVIDIA, compute capability 8.0, and keys and values in F16"},
    {wf_cl_configure_prefill, "NVIDIA, compute capability 8.0, and keys and values in F16"},
    {wf_cl_configure_flat_cut, "NVIDIA, compute capability 9.0"},
    {wf_cl_configure_wgmma, "NVIDIA, compute capability 9.0"},
    {wf_cl_configure_attention_wgmma, "NVIDIA, compute capability 9.0, and keys and values in F16"},
    {wf_cl_configure_attention_matrix,
     "AMD MFMA or WMMA, Intel DPAS, or NVIDIA mma.sync, and keys and values in F16"},
    {wf_cl_configure_matrix, "AMD MFMA or WMMA, Intel DPAS, or NVIDIA mma.sync"},
    {wf_cl_configure_matrix_expand, "AMD MFMA or WMMA, Intel DPAS, or NVIDIA mma.sync"},
    {wf_cl_configure_clblast, "a build with CLBlast"},
};

static const char *needs_of(const cl_variant *v)
{
    for (size_t i = 0; i < WF_LEN(rows); i++)
        if (rows[i].configure == v->configure) return rows[i].needs;
    return v->configure == wf_cl_configure_tile && wf_cl_tile_registers(v) ? "256 registers a work-item" : "";
}

void wf_cl_about(wf_dev *d, enum wf_op op, int variant, wf_kernel_about *out)
{
    const cl_variant *v = wf_cl_variant_at(op, variant);
    (void)d;
    static const char *const layouts[] = {"rows", "MMA-fragment-major", "planes"};
    out->layout = layouts[v->layout];
    out->needs = needs_of(v);
    if (v->configure == wf_cl_configure_wgmma) wf_copy(out->file, sizeof out->file, "cl/nvidia/gemm.c");
    else if (v->configure == wf_cl_configure_attention_wgmma)
        wf_copy(out->file, sizeof out->file, "cl/nvidia/attention.c");
    else snprintf(out->file, sizeof out->file, "cl/kernels/%s.cl", v->family);
}

/* A device that has all that kernels ask for, so that those can be shown which this one cannot run. */
static cl_caps able_caps(const cl_caps *real)
{
    cl_caps c = *real;
    c.gpu = c.matrix = c.nv_mma = c.nv_wgmma = c.registers = c.copies = true;
    c.max_group = 1024;
    c.units = WF_MAX(c.units, 64u);
    c.local_bytes = 48 << 10;
    c.nv_local_bytes = 227 << 10;
    c.scratch = c.zeroed = c.panels = c.expanded = 256 << 20;
    if (!c.lanes) c.lanes = 32;
    c.tier = WF_TIER_MATRIX;
    return c;
}

static bool configure_variant(const cl_caps *caps, const cl_variant *v, const wf_call *c, cl_launch *l)
{
    memset(l, 0, sizeof *l);
    bool layout_fits = v->layout != WF_CL_FRAGMENT_MAJOR || wf_cl_fragments(c->in[1].dtype);
    return layout_fits && v->configure(caps, v, c, 0, l);
}

/* The options stand in a comment in front, where the text has any: PTX has none. */
static weft_status with_options(const char *text, const char *options, char **out)
{
    size_t n = strlen(text) + strlen(options) + 32;
    *out = wf_calloc(n, 1);
    if (!*out) return WEFT_ERR_NOMEM;
    if (!strncmp(text, ".version", 8)) snprintf(*out, n, "%s", text);
    else snprintf(*out, n, "/* options: %s */\n%s", options, text);
    return WEFT_OK;
}

weft_status wf_cl_variant_source(wf_dev *base, const wf_call *c, int variant, char **out)
{
    const cl_dev *d = (const cl_dev *)base;
    const cl_variant *v = wf_cl_variant_at(c->op, variant);
    cl_caps all = able_caps(&d->ref.caps);
    cl_launch l;
    char options[1024];
    if (!configure_variant(&d->ref.caps, v, c, &l) && !configure_variant(&all, v, c, &l)) return WEFT_ERR_UNSUPPORTED;
    char *text = wf_cl_compose(&(cl_quirks){0}, v, &l);
    if (!text) return WEFT_ERR_NOMEM;
    wf_cl_options(&d->ref.quirks, &l, options, sizeof options);
    weft_status s = with_options(text, options, out);
    free(text);
    return s;
}
