/* The text of a program: what the compiler gets for a launch. */
#include "cl/cl.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *wf_cl_source(const char *name)
{
    for (const cl_source *s = wf_cl_sources; s->name; s++)
        if (!strcmp(s->name, name)) return s->text;
    return NULL;
}

static const char *format_source(const char *wtype)
{
    char name[64] = "";
    snprintf(name, sizeof name, "quant/%s.clh", wtype);
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    return wf_cl_source(name);
}

bool wf_cl_has_format(const char *wtype)
{
    return format_source(wtype) != NULL;
}

static const char *shared_source(const char *name)
{
    return name ? wf_cl_source(name) : "";
}

static int32_t knob_of(const cl_launch *l, const char *name)
{
    uint32_t i = 0;
    while (strcmp(l->knob[i].name, name)) i++;
    return l->knob[i].value;
}

char *wf_cl_compose(const cl_variant *v, const cl_launch *l)
{
    char name[64];
    if (!strcmp(v->family, "gemm_wgmma")) return wf_cl_wgmma_ptx(v->tile, (uint32_t)knob_of(l, "SPLIT"), knob_of(l, "SILU"));
    if (!strcmp(v->family, "attention_wgmma")) return wf_cl_attention_ptx(v->tile, knob_of(l, "D"));
    snprintf(name, sizeof name, "%s.cl", v->family);
    const char *common = wf_cl_source("common.clh"), *kernel = wf_cl_source(name);
    const char *shared = shared_source(l->prelude[0]), *more = shared_source(l->prelude[1]);
    const char *format = l->wtype ? format_source(l->wtype) : "";
    if (!common || !shared || !more || !kernel || !format)
        return wf_fail(WEFT_ERR_INTERNAL, "no source of %s or %s", name, l->wtype), NULL;
    size_t n = strlen(common) + strlen(shared) + strlen(more) + strlen(format) + strlen(kernel) + 1;
    char *all = wf_calloc(n, 1);
    if (all) snprintf(all, n, "%s%s%s%s%s", common, shared, more, format, kernel);
    return all;
}

void wf_cl_options(const cl_quirks *quirks, const cl_launch *l, char *buf, size_t cap)
{
    size_t n = (size_t)snprintf(buf, cap, "-cl-std=CL1.2 %s", quirks->options);
    for (uint32_t i = 0; i < l->n_knobs && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, " -D%s=%d", l->knob[i].name, (int)l->knob[i].value);
}
