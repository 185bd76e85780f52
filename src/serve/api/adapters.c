/* adapters: the LoRA adapters of a server's one model: which one a request names, what /v1/models says of them, and
 * loading and unloading by request, as vLLM has it. */
#include "serve/api/internal.h"
#include "base/options.h"

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

bool wf_adapter_here(const wf_served *m, const char *name)
{
    return !each_adapter(m, is_other, (void *)(uintptr_t)name);
}

bool wf_adapter_read(wf_job *j, const wf_json *body, wf_http_error *r)
{
    const wf_json *v = wf_field(body, "lora");
    const char *name = wf_json_text(v);
    if (!v) return true;
    if (!name) return wf_refuse(r, 400, "lora", "lora must be the name of an adapter, which /v1/models lists");
    if (wf_json_bytes(v) < sizeof j->params.adapter && wf_adapter_here(j->served, name)) {
        wf_copy(j->params.adapter, sizeof j->params.adapter, name);
        return true;
    }
    wf_refuse(r, 404, "lora", "the adapter '%.80s' does not exist: /v1/models lists those that are loaded", name);
    r->code = "model_not_found";
    return false;
}

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
    return s == WEFT_OK || wf_refuse(&j->refusal, s == WEFT_ERR_NOMEM ? 500 : otherwise, "", "%s", wf_last_error());
}

bool wf_adapter_load_read(wf_job *j, const wf_json *body)
{
    const char *name = text_of(j, body, "lora_name"), *path = name ? text_of(j, body, "lora_path") : NULL;
    if (!path || !may_change(j, name)) return false;
    wf_copy(j->params.adapter, sizeof j->params.adapter, name);
    return changed(j, weft_adapter_load(j->served->engine, name, path), 400);
}

bool wf_adapter_unload_read(wf_job *j, const wf_json *body)
{
    const char *name = text_of(j, body, "lora_name");
    if (!name || !may_change(j, name)) return false;
    wf_copy(j->params.adapter, sizeof j->params.adapter, name);
    int otherwise = wf_adapter_here(j->served, name) ? 409 : 404; /* it is in use */
    return changed(j, weft_adapter_unload(j->served->engine, name), otherwise);
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
