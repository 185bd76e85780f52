/* adapters: the LoRA adapters of a server's one model: which one a request names, what /v1/models says of them, and
 * loading and unloading by request, as vLLM has it. */
#include "serve/api/internal.h"
#include "base/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls fn with each; false if one returns false. */
static bool each_adapter(const wf_served *m, bool (*fn)(void *user, const char *name), void *user)
{
    size_t n = weft_engine_adapters(m->engine, NULL, 0), there;
    struct weft_adapter_info *list = n ? wf_calloc(n, sizeof *list) : NULL;
    bool all = true;
    there = list ? weft_engine_adapters(m->engine, list, n) : 0; /* one may have gone, or come */
    for (size_t i = 0; i < WF_MIN(n, there) && all; i++) all = fn(user, list[i].name);
    free(list);
    return all;
}

static bool is_other(void *name, const char *one) { return strcmp(name, one) != 0; }

bool wf_adapter_here(const wf_served *m, const char *name, char found[128])
{
    for (size_t len = strlen(name), bare = wf_names_bare(name);; len = bare) {
        snprintf(found, 128, "%.*s", len < 128 ? (int)len : 0, name);
        if (*found && !each_adapter(m, is_other, found)) return true;
        if (len == bare) return *found = 0, false;
    }
}

static bool no_adapter(wf_http_error *r, const char *field, const char *name)
{
    wf_refuse(r, 404, field, "the adapter '%.80s' does not exist: /v1/models lists those that are loaded", name);
    r->code = "model_not_found";
    return false;
}

bool wf_adapter_read(wf_job *j, const wf_json *body, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "lora");
    const char *name = wf_json_text(v);
    if (!v || wf_is_neutral(v, "[false, \"\", [], {}]")) return true;
    if (!name) return wf_refuse(r, 400, "lora", "lora must be the name of an adapter, which /v1/models lists");
    return wf_adapter_here(j->served, name, j->params.adapter) || no_adapter(r, "lora", name);
}

bool wf_adapter_take(wf_job *j, const char *name, wf_http_error *r)
{
    char *own = j->params.adapter;
    if (*own && strcmp(own, name))
        return wf_refuse(r, 400, "lora", "model names the adapter '%.80s', and lora '%.80s': send one of them", name,
                         own);
    wf_copy(own, sizeof j->params.adapter, name);
    return true;
}

bool wf_adapter_stays(wf_job *j)
{
    char found[128];
    const char *name = j->params.adapter;
    return !*name || wf_adapter_here(j->served, name, found) || no_adapter(&j->refusal, "model", name);
}

static bool is_apart(void *m, const char *name)
{
    return !wf_names_have(m, name) || !wf_fail(WEFT_ERR_ARG, "adapter '%s' has the name of the model: give it "
                                               "another, --lora NAME=FILE", name);
}

bool wf_adapters_apart(wf_served *m) { return each_adapter(m, is_apart, m); }

/* ---- /v1/models ------------------------------------------------------------------------------------------ */

typedef struct cards {
    wf_served *m;
    const char *only; /* NULL: all */
    wf_text *out;
} cards;

static bool put_card(void *user, const char *name)
{
    const cards *c = user;
    if (c->only && strcmp(c->only, name)) return true;
    if (!c->only) wf_json_comma(c->out);
    wf_json_print(c->out, "{'id':%s,'object':'model','created':%lld,'owned_by':'weft','root':%s,'parent':%s}", name,
                  (long long)c->m->server->started, name, c->m->name);
    return true;
}

void wf_adapters_put(wf_served *m, const char *only, wf_text *out)
{
    if (!wf_served_hold(m)) return;
    each_adapter(m, put_card, &(cards){m, only, out});
    wf_served_drop(m, false);
}

/* ---- by request ------------------------------------------------------------------------------------------ */

/* A text of the body; NULL: the refusal is set. */
static const char *text_of(wf_job *j, const wf_json *body, const char *name)
{
    const wf_json *v = wf_field(body, name);
    const char *text = wf_json_text(v);
    if (text && *text && strlen(text) == wf_json_bytes(v)) return text;
    wf_refuse(&j->refusal, 400, name, "%s must be a text that is not empty", name);
    return NULL;
}

/* May the client, and is the name one that stands for an adapter alone? */
static bool may_change(wf_job *j, const char *name)
{
    if (!wf_allows(j->server, "lora", NULL))
        return wf_refuse(&j->refusal, 403, "", "clients may not load and unload adapters here: --allow lora lets them");
    if (j->server->models.several)
        return wf_refuse(&j->refusal, 400, "", "a server with --models has no adapters");
    return name && (!wf_names_have(j->served, name) ||
                    wf_refuse(&j->refusal, 400, "lora_name", "'%.80s' is the name of the model", name));
}

static bool changed(wf_job *j, weft_status s, int otherwise)
{
    int status = s == WEFT_ERR_NOMEM ? 500 : s == WEFT_ERR_ARG || s == WEFT_ERR_FULL ? otherwise : 503;
    return s == WEFT_OK || wf_refuse(&j->refusal, status, "", "%s", wf_last_error());
}

bool wf_adapter_load_read(wf_job *j, const wf_json *body)
{
    if (j->until_ns) return j->slow = true, false; /* it takes long: among the large bodies */
    const char *name = text_of(j, body, "lora_name"), *path = name ? text_of(j, body, "lora_path") : NULL;
    if (!path || !may_change(j, name)) return false;
    wf_copy(j->params.adapter, sizeof j->params.adapter, name);
    /* Of the file, whose path may be any, a client learns nothing. */
    weft_status s = weft_adapter_load(j->served->engine, name, path);
    if (s != WEFT_ERR_IO && s != WEFT_ERR_FORMAT && s != WEFT_ERR_UNSUPPORTED) return changed(j, s, 400);
    wf_say(j->server, "adapter %s is not loaded: %s", j->params.adapter, wf_last_error());
    return wf_refuse(&j->refusal, 400, "lora_path",
                     "'%.80s' is no adapter that this model can use; the server's log says why", path);
}

bool wf_adapter_unload_read(wf_job *j, const wf_json *body)
{
    const char *name = text_of(j, body, "lora_name");
    char *own = j->params.adapter;
    if (!name || !may_change(j, name)) return false;
    if (!wf_adapter_here(j->served, name, own)) return no_adapter(&j->refusal, "lora_name", name);
    return changed(j, weft_adapter_unload(j->served->engine, own), 409); /* it is in use */
}

bool wf_adapter_load_answer(wf_job *j, wf_text *out)
{
    wf_text_print(out, "Success: LoRA adapter '%s' added successfully.", j->params.adapter);
    return true;
}

bool wf_adapter_unload_answer(wf_job *j, wf_text *out)
{
    wf_text_print(out, "Success: LoRA adapter '%s' removed successfully.", j->params.adapter);
    return true;
}
