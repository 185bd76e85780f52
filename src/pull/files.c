/* files: what a source stands for: a list of files with their names here. */
#include "pull/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char suffix[] = ".gguf";

wf_remote *wf_files_add(wf_files *f)
{
    if (!wf_grow(&f->v, f->n, &f->cap, sizeof *f->v)) return NULL;
    f->v[f->n] = (wf_remote){0};
    return &f->v[f->n++];
}

void wf_files_free(wf_files *f)
{
    for (size_t i = 0; i < f->n; i++) free(f->v[i].url);
    free(f->v);
    *f = (wf_files){0};
}

/* ---- files elsewhere ------------------------------------------------------------------------------ */

static bool get_part(CURLU *u, CURLUPart part, unsigned flags, char *out, size_t cap)
{
    char *text = NULL;
    bool ok = !curl_url_get(u, part, &text, flags) && strlen(text) < cap;
    if (ok) wf_copy(out, cap, text);
    curl_free(text);
    return ok;
}

/* For people: without what may be a key. */
static void set_origin(CURLU *u, wf_files *out)
{
    static const CURLUPart secrets[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_QUERY,
                                        CURLUPART_FRAGMENT};
    for (size_t i = 0; i < WF_LEN(secrets); i++) curl_url_set(u, secrets[i], NULL, 0);
    get_part(u, CURLUPART_URL, 0, out->origin, sizeof out->origin);
}

static weft_status add_url(CURLU *u, const char *path, const char *name, wf_files *out)
{
    char *url = NULL;
    wf_remote *f = wf_files_add(out);
    if (!f || curl_url_set(u, CURLUPART_PATH, path, 0) || curl_url_get(u, CURLUPART_URL, &url, 0))
        return wf_fail(WEFT_ERR_NOMEM, "cannot make the address of %s", name);
    f->url = wf_strdup(url);
    curl_free(url);
    wf_copy(f->name, sizeof f->name, name);
    return f->url ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* Of a split file all parts, the first one last: their addresses differ in the number. */
static weft_status add_parts(CURLU *u, const char *name, wf_files *out)
{
    char path[2048], one[WF_PULL_NAME + 1], number[8];
    unsigned part, count;
    size_t base, n = strlen(name) - (sizeof suffix - 1);
    if (!get_part(u, CURLUPART_PATH, 0, path, sizeof path)) return wf_fail(WEFT_ERR_ARG, "the address is too long");
    char *last = strrchr(path, '/');
    char *at = wf_part_of(name, n, &part, &count, &base) ? strstr(last, name + base) : NULL;
    if (!at) return add_url(u, path, name, out);
    wf_copy(one, sizeof one, name);
    for (part = count; part; part--) {
        snprintf(number, sizeof number, "%05u", part % 100000);
        memcpy(at + 1, number, 5);
        memcpy(one + base + 1, number, 5);
        WF_TRY(add_url(u, path, one, out));
    }
    return WEFT_OK;
}

static bool is_gguf(const char *name)
{
    size_t n = strlen(name);
    return n >= sizeof suffix && !strcasecmp(name + n - (sizeof suffix - 1), suffix);
}

/* The name is the last word of the path, if it is that of a model. */
static weft_status name_of(CURLU *u, const wf_pull_params *p, char *name, size_t cap)
{
    char path[2048] = "";
    bool whole = get_part(u, CURLUPART_PATH, CURLU_URLDECODE, path, sizeof path);
    const char *last = strrchr(path, '/');
    wf_copy(name, cap, last ? last + 1 : "");
    if (whole && is_gguf(name) && wf_pull_name_ok(name, strlen(name))) return WEFT_OK;
    if (!p->name) return wf_fail(WEFT_ERR_ARG, "the address ends with no name of a GGUF file: give one with -o NAME");
    wf_copy(name, cap, "model.gguf");
    return WEFT_OK;
}

static weft_status find_url(wf_http *h, const wf_source *s, wf_files *out)
{
    CURLU *u = curl_url();
    char name[WF_PULL_NAME + 1];
    weft_status st = u && !curl_url_set(u, CURLUPART_URL, s->url, CURLU_URLENCODE)
                         ? WEFT_OK
                         : wf_fail(WEFT_ERR_ARG, "'%s' is no valid address", s->url);
    if (!st) st = name_of(u, h->p, name, sizeof name);
    if (!st) st = add_parts(u, name, out);
    if (!st) set_origin(u, out);
    curl_url_cleanup(u);
    return st;
}

/* ---- names here ----------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcasecmp(text + n - m, end);
}

/* -o: the name instead of the model's own; parts keep their numbers. */
static weft_status rename_to(wf_files *f, const char *name)
{
    size_t n = strlen(name) - (f->folder || !is_gguf(name) ? 0 : sizeof suffix - 1);
    if (!wf_pull_name_ok(name, n) || n + sizeof "-00001-of-00001.gguf" > WF_PULL_NAME || ends_with(name, ".part"))
        return wf_fail(WEFT_ERR_ARG, "-o: '%s' is no name in the folder of models", name);
    if (f->folder) wf_copy(f->name, n + 1, name);
    for (size_t i = 0; i < f->n && !f->folder; i++) {
        unsigned part, count;
        size_t base, stem = strlen(f->v[i].name) - (sizeof suffix - 1);
        char old[WF_PULL_NAME + 1];
        wf_copy(old, sizeof old, f->v[i].name);
        bool is_part = wf_part_of(old, stem, &part, &count, &base);
        snprintf(f->v[i].name, sizeof f->v[i].name, "%.*s%s", (int)n, name, is_part ? old + base : suffix);
    }
    return WEFT_OK;
}

weft_status wf_files_find(wf_http *h, const wf_source *s, wf_files *out)
{
    WF_TRY(s->url ? find_url(h, s, out) : wf_hub_files(h, s, out));
    if (h->p->name) WF_TRY(rename_to(out, h->p->name));
    if (!out->folder) wf_copy(out->name, sizeof out->name, out->v[out->n - 1].name);
    return WEFT_OK;
}
