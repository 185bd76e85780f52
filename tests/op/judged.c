#include "op/judged.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

wf_check_result judged(const wf_check *k, int o, const uint8_t *rows)
{
    wf_check_result r = {0};
    const wf_view *v = &k->out[o].view;
    wf_judge_rows(k, WF_ARITH_F16, o, rows, &r);
    for (uint64_t i = 0; i < (uint64_t)v->rows * v->stride; i++) {
        double got = v->dtype == WF_F16 ? wf_half_to_float(((const uint16_t *)rows)[i]) : ((const float *)rows)[i];
        if (i % v->stride >= v->cols && !isnan(got)) r.error = INFINITY, r.ok = false;
    }
    return r;
}

const cl_variant *variant_named(enum wf_op op, const char *name)
{
    const cl_variant *v = NULL;
    for (int i = 0; (v = wf_cl_variant_at(op, i)) && strcmp(v->name, name);) i++;
    return v;
}

void print_options(const cl_launch *l)
{
    for (uint32_t i = 0; i < l->n_knobs; i++) printf(" -D%s=%d", l->knob[i].name, l->knob[i].value);
    printf("\n");
}

uint32_t knob_of(const cl_launch *l, const char *name)
{
    for (uint32_t i = 0; i < l->n_knobs; i++)
        if (!strcmp(l->knob[i].name, name)) return (uint32_t)l->knob[i].value;
    return 0;
}

void *kernel_in(const char *library, const char *kernel)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *found = lib ? dlsym(lib, kernel) : NULL;
    if (!found) fprintf(stderr, "%s\n", dlerror());
    return found;
}
