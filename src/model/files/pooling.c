/* pooling: how the model of a folder makes one embedding of a text, as sentence-transformers keeps it: modules.json
 * lists what follows each other, and the folder of the module that pools has a config.json. */
#include "model/files/folder.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (1u << 20) /* bytes of such a file */

/* The newer form names it; in the older one each has a key, of which one is true. */
static weft_status read_mode(const wf_json *o, enum wf_pooling *out)
{
    static const struct {
        const char *key, *name;
        enum wf_pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", "cls", WF_POOLING_CLS},
                 {"pooling_mode_mean_tokens", "mean", WF_POOLING_MEAN},
                 {"pooling_mode_lasttoken", "lasttoken", WF_POOLING_LAST},
                 {"pooling_mode_max_tokens", "max", WF_POOLING_NONE},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", WF_POOLING_NONE},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", WF_POOLING_NONE}};
    const char *named = NULL;
    int n = 0;
    WF_TRY(wf_json_str(o, "pooling_mode", &named));
    for (size_t i = 0; i < WF_LEN(modes); i++) {
        bool is = named && !strcmp(named, modes[i].name);
        if (!named) WF_TRY(wf_json_bool(o, modes[i].key, &is));
        if (!is) continue;
        *out = modes[i].pooling, n++;
        if (!*out)
            return wf_fail(WEFT_ERR_UNSUPPORTED, "embeddings are pooled by '%s'; weft knows mean, cls and last",
                           modes[i].name);
    }
    return n == 1 ? WEFT_OK : wf_fail(WEFT_ERR_UNSUPPORTED, "embeddings are pooled by %d modes%s", n,
                                      n ? "; weft knows one at a time" : " that weft knows");
}

static weft_status read_module(const wf_gguf *g, const char *folder, enum wf_pooling *out)
{
    wf_json *o;
    char name[NAME_MAX + sizeof "/config.json"];
    snprintf(name, sizeof name, "%s/config.json", folder);
    WF_TRY(wf_json_load_of(g->path, name, MOST, WF_JSON_AN_OBJECT, &o));
    weft_status s = o ? read_mode(o, out) : WEFT_OK;
    wf_json_free(o);
    return s ? wf_fail_context(s, "%s/%s/config.json", g->path, folder) : WEFT_OK;
}

/* What follows the model: pooling, and perhaps a norm, which weft computes anyway. */
static weft_status read_modules(const wf_gguf *g, const wf_json *list, enum wf_pooling *out)
{
    WF_JSON_EACH(one, list) {
        const char *type = wf_json_text(wf_json_get(one, "type")), *path = wf_json_text(wf_json_get(one, "path")),
                   *dot = type ? strrchr(type, '.') : NULL, *name = dot ? dot + 1 : type ? type : "";
        if (!strcmp(name, "Transformer") || !strcmp(name, "Normalize")) continue;
        if (strcmp(name, "Pooling"))
            return wf_fail(WEFT_ERR_UNSUPPORTED, "modules.json has a module '%.40s'; weft knows Transformer, Pooling "
                           "and Normalize", name);
        if (!path || !*path || strchr(path, '/') || *path == '.')
            return wf_fail(WEFT_ERR_FORMAT, "modules.json does not say in which folder the module '%s' is", name);
        WF_TRY(read_module(g, path, out));
    }
    return WEFT_OK;
}

weft_status wf_folder_pooling(wf_gguf *g, const char *arch, const char *class, bool bare, bool *pooled)
{
    enum wf_pooling pooling = WF_POOLING_NONE;
    wf_json *modules;
    char key[96];
    WF_TRY(wf_json_load_of(g->path, "modules.json", MOST, 0, &modules));
    if (modules && !wf_json_is(modules, WF_JSON_LIST))
        return wf_json_free(modules), wf_fail(WEFT_ERR_FORMAT, "modules.json is no list");
    weft_status s = modules ? read_modules(g, modules, &pooling) : read_module(g, "1_Pooling", &pooling);
    wf_json_free(modules);
    WF_TRY(s);
    if (strstr(class, "ForSequenceClassification")) pooling = WF_POOLING_RANK;
    if (!pooling && bare) pooling = WF_POOLING_LAST;
    *pooled = pooling != WF_POOLING_NONE;
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    return pooling ? wf_folder_u32(g, key, pooling) : WEFT_OK;
}
