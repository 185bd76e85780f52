/* format: what an answer has to be, in the ways in which clients of several servers say it, and calls that have to
 * come, as a grammar of the engine. */
#include "answers/thoughts.h"
#include "serve/api/internal.h"

#include <string.h>

#define ONE_OF_THESE                                                                                                   \
    "response_format, structured_outputs, guided_json, guided_regex, guided_choice, guided_json_object, "              \
    "guided_grammar, json_schema, regex, grammar and ebnf exclude each other: send one of them"

static bool format_set(wf_params *p, enum weft_grammar kind, const wf_json *v, const char *name, wf_http_error *r)
{
    if (p->grammar) return wf_refuse(r, 400, name, ONE_OF_THESE);
    p->grammar = kind, p->grammar_field = name;
    /* a schema may come as the text of one; a pattern is a text */
    if (wf_json_is(v, WF_JSON_STRING)) wf_text_add(&p->grammar_text, v->text, v->n);
    else if (v) wf_json_put(&p->grammar_text, v);
    if (p->grammar_text.failed) return wf_refuse(r, 500, "", "out of memory");
    return true;
}

static bool format_schema(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    if (!wf_json_is(v, WF_JSON_OBJECT) && !wf_json_is(v, WF_JSON_BOOL) && !wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(r, 400, name, "%s must have a JSON schema, which is an object", name);
    return format_set(p, WEFT_GRAMMAR_SCHEMA, v, name, r);
}

static bool format_regex(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    if (!wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(r, 400, name, "%s must have a pattern, which is a string", name);
    return format_set(p, WEFT_GRAMMAR_REGEX, v, name, r);
}

static bool format_grammar(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    if (!wf_json_is(v, WF_JSON_STRING))
        return wf_refuse(r, 400, name, "%s must have a grammar in GBNF, which is a string", name);
    return !v->n || format_set(p, WEFT_GRAMMAR_GBNF, v, name, r);
}

static bool format_choice(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    if (!wf_json_count(v)) return wf_refuse(r, 400, name, "%s must have a list of strings", name);
    WF_JSON_EACH(one, v)
        if (one->kind != WF_JSON_STRING) return wf_refuse(r, 400, name, "%s must have a list of strings", name);
    return format_set(p, WEFT_GRAMMAR_CHOICE, v, name, r);
}

static bool format_object(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    if (!wf_json_is(v, WF_JSON_BOOL)) return wf_refuse(r, 400, name, "%s must be true or false", name);
    return !v->b || format_set(p, WEFT_GRAMMAR_OBJECT, NULL, name, r);
}

static bool format_response(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    const char *type = wf_json_text(wf_json_get(v, "type"));
    const wf_json *schema = wf_json_get(wf_json_get(v, "json_schema"), "schema");
    if (!schema) schema = wf_json_get(v, "schema"); /* as llama.cpp has it */
    if (!type) return wf_refuse(r, 400, name, "response_format must be an object with a type");
    if (!strcmp(type, "text")) return true;
    if (!strcmp(type, "json_object") && !schema) return format_set(p, WEFT_GRAMMAR_OBJECT, NULL, name, r);
    if (!strcmp(type, "json_object")) return format_schema(p, schema, name, r);
    if (strcmp(type, "json_schema"))
        return wf_refuse(r, WF_UNSUPPORTED, name,
                         "response_format %.40s is not supported: send text, json_object or json_schema", type);
    if (!schema)
        return wf_refuse(r, 400, name, "response_format json_schema needs {\"json_schema\": {\"schema\": ...}}");
    return format_schema(p, schema, name, r);
}

typedef bool (*format_fn)(wf_params *, const wf_json *, const char *name, wf_http_error *);

static bool format_outputs(wf_params *p, const wf_json *v, const char *name, wf_http_error *r)
{
    static const struct {
        const char *name;
        format_fn read;
    } kinds[] = {{"json", format_schema}, {"regex", format_regex}, {"choice", format_choice},
                 {"grammar", format_grammar}, {"json_object", format_object}};
    if (!wf_json_is(v, WF_JSON_OBJECT)) return wf_refuse(r, 400, name, "%s must be an object", name);
    WF_JSON_EACH_MEMBER(m, v) {
        if (wf_json_absent(&m->value)) continue;
        size_t i = 0;
        while (i < WF_LEN(kinds) && strcmp(kinds[i].name, m->name.text)) i++;
        if (i == WF_LEN(kinds))
            return wf_refuse(r, WF_UNSUPPORTED, name,
                             "%s with %.40s is not supported: send json, regex, choice or grammar", name, m->name.text);
        if (!kinds[i].read(p, &m->value, name, r)) return false;
    }
    return true;
}

bool wf_format_read(const wf_json *body, wf_params *p, wf_http_error *r)
{
    static const struct {
        const char *name;
        format_fn read;
    } fields[] = {{"response_format", format_response}, {"structured_outputs", format_outputs},
                  {"guided_json", format_schema},       {"guided_regex", format_regex},
                  {"guided_choice", format_choice},     {"guided_json_object", format_object},
                  {"guided_grammar", format_grammar},   {"json_schema", format_schema},
                  {"regex", format_regex},              {"grammar", format_grammar},
                  {"ebnf", format_grammar}};
    for (size_t i = 0; i < WF_LEN(fields); i++) {
        const wf_json *v = wf_field(body, fields[i].name);
        if (v && !fields[i].read(p, v, fields[i].name, r)) return false;
    }
    return true;
}

bool wf_format_begin(wf_params *p, wf_http_error *r)
{
    if (!p->grammar) return true;
    const wf_call_kind *calls = p->tools && !p->required && p->calls ? p->calls->calls : NULL;
    p->grammar_unless = calls ? wf_call_begin(calls) : NULL;
    if (calls && !p->grammar_unless)
        return wf_refuse(r, WF_UNSUPPORTED, p->grammar_field,
                         "a format of the answer is not supported beside tools that may be called: this model does not "
                         "mark calls. Leave one of them out, or send tool_choice \"none\"");
    if (p->continues)
        return wf_refuse(r, WF_UNSUPPORTED, p->grammar_field,
                         "a format of the answer is not supported where it goes on with the last message");
    if (p->thoughts && p->thoughts->channels)
        return wf_refuse(r, WF_UNSUPPORTED, p->grammar_field,
                         "a format of the answer is not supported for models that answer in channels");
    p->grammar_after = p->thinking ? p->thoughts->close : NULL;
    return true;
}

/* Each tool's parameters are a document of their own, so that references within them lead where they did. */
static void put_parameters(const wf_json *schema, size_t number, wf_text *out)
{
    if (!wf_json_is(schema, WF_JSON_OBJECT)) {
        wf_json_print(out, "{'type':'object'}");
        return;
    }
    bool own = wf_json_get(schema, "$id");
    if (own) wf_text_add(out, "{", 1);
    else wf_text_print(out, "{\"$id\":\"tool:%zu\"", number);
    WF_JSON_EACH_MEMBER(m, schema) {
        wf_json_comma(out);
        wf_json_put(out, &m->name);
        wf_text_add(out, ":", 1);
        wf_json_put(out, &m->value);
    }
    wf_text_add(out, "}", 1);
}

bool wf_format_calls(const wf_json *tools, const char *name, wf_params *p, wf_http_error *r)
{
    enum { MOST = 16 }; /* in one answer, so that it ends */
    wf_text *out = &p->grammar_text;
    size_t number = 0;
    out->len = 0; /* a format is for answers that are no calls */
    p->grammar = WEFT_GRAMMAR_SCHEMA, p->grammar_field = "tools";
    p->required = true;
    wf_json_print(out, "{'type':'array','minItems':1,'maxItems':%d,'items':{'anyOf':[", p->one_call || name ? 1 : MOST);
    WF_JSON_EACH(tool, tools) {
        const wf_json *function = wf_json_get(tool, "function"), *one = wf_json_get(function, "name");
        if (name && (!wf_json_text(one) || strcmp(name, one->text))) continue;
        wf_json_comma(out);
        wf_json_print(out, "{'type':'object','additionalProperties':false,'required':['name','arguments'],'properties':"
                           "{'name':{'const':%s},'arguments':", wf_json_text(one));
        put_parameters(wf_json_get(function, "parameters"), number++, out);
        wf_text_add(out, "}}", 2);
    }
    wf_text_add(out, "]}}", 3);
    return !out->failed || wf_refuse(r, 500, "", "out of memory");
}
