/* scope: variables. A frame belongs to the template, an iteration of a loop, a macro's call or a block; what it lacks
 * its parent has. */
#include "jinja/internal.h"

wf_jframe *wf_jframe_new(wf_jrun *r, wf_jframe *parent)
{
    wf_jframe *f = wf_jalloc(r, 1, sizeof *f);
    f->parent = parent;
    return f;
}

void wf_jset(wf_jrun *r, wf_jframe *f, const wf_jname *name, wf_jvalue v)
{
    wf_jstep(r, f->n / 16);
    for (size_t i = 0; i < f->n; i++)
        if (f->vars[i].name == name) {
            f->vars[i].value = v;
            return;
        }
    f->vars = wf_jgrow(r, f->vars, f->n, &f->cap, sizeof *f->vars);
    f->vars[f->n++] = (wf_jvar){name, v};
}

void wf_jset_text(wf_jrun *r, wf_jframe *f, const char *name, wf_jvalue v)
{
    wf_jset(r, f, wf_jintern(r, name, strlen(name)), v);
}

wf_jvalue wf_jget(wf_jrun *r, const wf_jframe *f, const wf_jname *name)
{
    for (; f; f = f->parent) {
        wf_jstep(r, f->n / 16);
        for (size_t i = 0; i < f->n; i++)
            if (f->vars[i].name == name) return f->vars[i].value;
    }
    return wf_jundefined(name->p);
}
