/* json_read: JSON as values of a run, whose strings stay where the reader put them. */
#include "jinja/internal.h"

#include "base/json.h"

static wf_jvalue value_of(wf_jrun *r, const wf_json *v)
{
    wf_jvalue out = wf_jnone();
    wf_jstep(r, 0);
    wf_jenter(r);
    switch ((enum wf_json_kind)v->kind) {
    case WF_JSON_NULL: break;
    case WF_JSON_BOOL: out = wf_jbool(v->b); break;
    case WF_JSON_INT: out = wf_jint(v->i); break;
    case WF_JSON_UINT:
    case WF_JSON_REAL: out = wf_jfloat(wf_json_number(v)); break;
    case WF_JSON_STRING: out = wf_jstring(r, (wf_jstr){.p = v->text, .len = v->n, .data = true}); break;
    case WF_JSON_LIST:
        out = wf_jlist_new(r, WF_JLIST);
        WF_JSON_EACH (one, v) wf_jpush(r, out.l, value_of(r, one));
        break;
    case WF_JSON_OBJECT:
        out = wf_jdict_new(r);
        WF_JSON_EACH_MEMBER (m, v) wf_jdict_set(r, out.d, value_of(r, &m->name), value_of(r, &m->value));
        break;
    }
    out.data = true;
    wf_jleave(r);
    return out;
}

wf_jvalue wf_jjson_read(wf_jrun *r, const char *text, const char *what)
{
    wf_json_error e;
    wf_json *root = wf_json_read(text, strlen(text), &(wf_json_rules){.flags = WF_JSON_LOOSE}, &e);
    r->json[r->n_json++] = root;
    if (root) return value_of(r, root);
    if (e.fault == WF_JSON_NO_MEMORY) wf_jfail_plain(r, WEFT_ERR_NOMEM, "%s: out of host memory for its JSON", what);
    weft_status s = e.fault == WF_JSON_TOO_DEEP ? WEFT_ERR_FULL : WEFT_ERR_ARG;
    wf_jfail_plain(r, s, "%s: bad JSON in line %zu, column %zu: %s", what, e.line, e.column, e.text);
}
