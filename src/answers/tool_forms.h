/* tool_forms: calls that are neither JSON nor flat tags, made into JSON. A form gets what stands between the markers of
 * a call, and appends {"name": ..., "arguments": {...}}, or a list of those. PARTLY: it is none yet, but may be the
 * beginning of one. What is appended may still be bad JSON: too deep, a NUL. */
#ifndef WF_TOOL_FORMS_H
#define WF_TOOL_FORMS_H

#include "answers/markers.h"
#include "base/json.h"

/* types: of tool_types.h. */
typedef enum wf_found (*wf_call_form)(wf_slice call, const wf_text *types, wf_text *json);
enum wf_found wf_form_python(wf_slice call, const wf_text *types, wf_text *json);  /* [f(a=1, b='x'), g()] */
enum wf_found wf_form_gemma(wf_slice call, const wf_text *types, wf_text *json);   /* f{a:1,b:<|"|>x<|"|>} */
/* f">, then elements, nested, each tag behind a marker */
enum wf_found wf_form_minimax(wf_slice call, const wf_text *types, wf_text *json);
/* f" index="1"<|sep|>, then elements with a type each */
enum wf_found wf_form_kimi(wf_slice call, const wf_text *types, wf_text *json);

/* What a form that was read up to `at` is: what came to the end of the text too early may go on. */
static inline enum wf_found wf_form_found(wf_slice call, size_t at, bool good)
{
    return wf_skip_blanks(call, at) < call.n ? WF_NO : good ? WF_YES : WF_PARTLY;
}

/* Python's lists, dictionaries, strings, numbers and words, one of them. false: it is none, and out is as it was. */
bool wf_python_json(wf_slice literal, wf_text *out);

#endif
