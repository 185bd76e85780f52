/* thinking: whether and how much a model shall think, which clients say in the ways of several servers, becomes the
 * variables that its chat template reads. Which these are is seen by trying them. */
#include "serve/api/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- what the template reads ------------------------------------------------------------------------------ */

static const struct variable {
    const char *name, *on, *off; /* JSON */
} switches[] = {{"enable_thinking", "true", "false"},
                {"thinking", "true", "false"},
                {"thinking_mode", "\"enabled\"", "\"disabled\""},
                {"reasoning", "true", "false"}};
static const char *const efforts[] = {"reasoning_effort", "thinking_effort"};

void wf_thinking_find(wf_served *s)
{
    for (size_t i = WF_LEN(switches); i--;)
        if (wf_chat_reads(s, switches[i].name, switches[i].on, switches[i].off)) s->chat.thinks_by = i + 1;
    for (size_t i = WF_LEN(efforts); i--;)
        if (wf_chat_reads(s, efforts[i], "\"low\"", "\"high\"")) s->chat.effort = efforts[i];
    bool other = s->chat.effort && !wf_chat_reads(s, s->chat.effort, "\"none\"", "\"low\"") &&
                 wf_chat_reads(s, s->chat.effort, "\"no_think\"", "\"low\"");
    s->chat.no_effort = other ? "no_think" : "none";
}

/* ---- what a request says ----------------------------------------------------------------------------------- */

typedef struct wish {
    const char *effort, *by; /* NULL: none; by: the field that said something */
    enum { AS_IT_IS, OFF, ON } on;
} wish;

static bool refuse(wf_http_error *r, const char *name, const char *want)
{
    return wf_refuse(r, 400, name, "%s must be %s", name, want);
}

static bool wish_effort(const wf_json *v, const char *name, wish *w, wf_http_error *r)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; wf_json_text(v) && i < WF_LEN(known); i++)
        if (!strcmp(wf_json_text(v), known[i]))
            return w->effort = i ? known[i] : NULL, w->on = i ? ON : OFF, w->by = name, true;
    return refuse(r, name, "none, minimal, low, medium, high, xhigh or max");
}

static bool wish_switch(const wf_json *v, const char *name, wish *w, wf_http_error *r)
{
    if (!strcmp(name, "think") && wf_json_is(v, WF_JSON_STRING)) return wish_effort(v, name, w, r); /* of Ollama */
    if (!wf_json_is(v, WF_JSON_BOOL)) return refuse(r, name, "true or false");
    w->on = v->b ? ON : OFF;
    w->by = name;
    return true;
}

/* thinking as Anthropic's and others' clients send it, reasoning as those of routers do. */
static bool wish_object(const wf_json *v, const char *name, wish *w, wf_http_error *r)
{
    if (wf_json_is(v, WF_JSON_BOOL)) return wish_switch(v, name, w, r);
    if (!wf_json_is(v, WF_JSON_OBJECT)) return refuse(r, name, "an object or true or false");
    WF_JSON_EACH_MEMBER(m, v) {
        const char *key = m->name.text, *type = strcmp(key, "type") ? NULL : wf_json_text(&m->value);
        bool plain = wf_json_absent(&m->value) || (!strcmp(key, "exclude") && !wf_json_is_true(&m->value));
        if (type && (!strcmp(type, "enabled") || !strcmp(type, "disabled")))
            w->on = *type == 'e' ? ON : OFF, w->by = name;
        else if (!strcmp(key, "effort") && !plain) {
            if (!wish_effort(&m->value, name, w, r)) return false;
        } else if (!strcmp(key, "enabled") && !plain) {
            if (!wish_switch(&m->value, name, w, r)) return false;
        } else if (!plain && !(type && (!strcmp(type, "auto") || !strcmp(type, "adaptive"))))
            return wf_fields_refuse(r, name, "only type (enabled, disabled or auto), enabled and effort are known; "
                                             "max_tokens bounds thoughts and answer together");
    }
    return true;
}

static bool read_wish(const wf_json *body, wish *w, wf_http_error *r)
{
    static const struct {
        const char *name;
        bool (*read)(const wf_json *v, const char *name, wish *w, wf_http_error *r);
    } fields[] = {{"think", wish_switch},
                  {"enable_thinking", wish_switch},
                  {"thinking", wish_object},
                  {"reasoning", wish_object},
                  {"reasoning_effort", wish_effort}};
    for (size_t i = 0; i < WF_LEN(fields); i++) {
        const wf_json *v = wf_field(body, fields[i].name);
        if (v && !fields[i].read(v, fields[i].name, w, r)) return false;
    }
    return true;
}

/* ---- variables --------------------------------------------------------------------------------------------- */

/* Unless the request gives it itself. */
static void put_variable(wf_text *kwargs, const wf_json *own, const char *name, const char *json)
{
    if (wf_json_get(own, name)) return;
    wf_json_comma(kwargs);
    wf_text_print(kwargs, "\"%s\":%s", name, json);
}

bool wf_thinking_read(const wf_served *s, const wf_json *body, const wf_json *own, wf_text *kwargs, wf_http_error *r)
{
    const wf_chat_style *c = &s->chat;
    wish w = {0};
    const struct variable *by = &switches[c->thinks_by ? c->thinks_by - 1 : 0];
    char effort[16];
    if (!read_wish(body, &w, r)) return false;
    bool medium = w.effort && !strcmp(w.effort, "medium"),
         little = !c->thoughts && w.effort && (!strcmp(w.effort, "minimal") || !strcmp(w.effort, "low"));
    if (w.on && !c->thinks_by && !c->effort && !medium && !little && (w.on == ON) != (c->thoughts != NULL))
        return wf_fields_refuse(r, w.by, "the chat template of this model has no variable for it: leave it out");
    if (w.on && c->thinks_by)
        put_variable(kwargs, own, by->name, w.on == ON ? by->on : by->off);
    snprintf(effort, sizeof effort, "\"%s\"", w.effort ? w.effort : c->no_effort);
    if (c->effort && (w.effort || (w.on == OFF && !c->thinks_by))) put_variable(kwargs, own, c->effort, effort);
    return true;
}
