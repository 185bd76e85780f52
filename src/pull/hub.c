/* hub: the files of a repository, from the hub's list of them, and which of them are the model of a type. */
#include "pull/internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_PAGES  20
#define MAX_PARTS  1000
#define MAX_FOUND  200 /* repositories among which the nearest name is sought */
#define USUAL_TYPE "Q4_K_M"

/* A model in a folder as Hugging Face lays it out; config.json makes a folder a model, so it comes last. */
static const char *const folder_files[] = {
    "model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors", "model.safetensors.index.json", "tokenizer.json",
    "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "*.jinja", "generation_config.json", "config.json"};

typedef struct entry {
    const char *path, *name; /* in the repository; the last word of it */
    size_t stem;             /* length of the name without .gguf and without -00001-of-00002; 0: no model */
    unsigned part, count;    /* 0, 0: in one file */
    uint64_t size;
    const char *sum;
    bool git;
} entry;

typedef struct listing {
    wf_json *pages[MAX_PAGES]; /* texts of entries lie in them */
    size_t n_pages;
    entry *v;
    size_t n, cap;
} listing;

/* ---- names --------------------------------------------------------------------------------------- */

bool wf_part_of(const char *stem, size_t len, unsigned *part, unsigned *count, size_t *base)
{
    static const char form[] = "-00000-of-00000"; /* 0: a digit */
    size_t n = sizeof form - 1;
    *base = len - WF_MIN(n, len);
    if (len <= n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = stem[*base + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i]) return false;
    }
    *part = (unsigned)atoi(stem + *base + 1);
    *count = (unsigned)atoi(stem + *base + 10);
    return *part && *part <= *count && *count <= MAX_PARTS;
}

static void look_at_name(entry *e)
{
    const char *slash = strrchr(e->path, '/');
    e->name = slash ? slash + 1 : e->path;
    size_t n = strlen(e->name), base;
    /* Files of GGUF that are no model: towers for pictures, and statistics for quantising. */
    bool beside = strcasestr(e->name, "mmproj") || strcasestr(e->name, "imatrix");
    if (n < 6 || strcasecmp(e->name + n - 5, ".gguf") || beside) return;
    e->stem = n - 5;
    if (wf_part_of(e->name, e->stem, &e->part, &e->count, &base)) e->stem = base;
}

/* The word at the end of the stem, such as Q4_K_M. */
static const char *type_of(const entry *e, size_t *len)
{
    size_t at = e->stem;
    while (at && !strchr("-.", e->name[at - 1])) at--;
    *len = e->stem - at;
    return e->name + at;
}

/* The type is the end of the stem, behind a mark between words or all of it, or the name of the file. */
static bool is_type(const entry *e, const char *type)
{
    size_t n = strlen(type);
    bool ends = n <= e->stem && !strncasecmp(e->name + e->stem - n, type, n) &&
                (n == e->stem || strchr("-._", e->name[e->stem - n - 1]));
    return e->stem && (ends || !strcasecmp(e->name, type));
}

static bool is_same_model(const entry *a, const entry *b)
{
    return a->stem == b->stem && a->count == b->count && a->name - a->path == b->name - b->path &&
           !strncmp(a->path, b->path, (size_t)(a->name - a->path) + a->stem);
}

/* ---- the list ------------------------------------------------------------------------------------- */

static bool add_entry(listing *l, const wf_json *o)
{
    const wf_json *lfs = wf_json_get(o, "lfs"),
                  *about = wf_json_is(lfs, WF_JSON_OBJECT) ? lfs : o; /* else they are of the pointer to the file */
    const char *type = wf_json_text(wf_json_get(o, "type")), *oid = wf_json_text(wf_json_get(about, "oid"));
    int64_t size = wf_json_int(wf_json_get(about, "size"));
    entry e = {.path = wf_json_text(wf_json_get(o, "path")), .git = about == o};
    if (!e.path || size < 0 || !type || strcmp(type, "file")) return true; /* folders */
    size_t want = e.git ? 40 : 64;
    e.size = (uint64_t)size;
    e.sum = oid && wf_is_sum(oid, want) ? oid : "";
    look_at_name(&e);
    if (!wf_grow(&l->v, l->n, &l->cap, sizeof *l->v)) return false;
    l->v[l->n++] = e;
    return true;
}

static weft_status add_page(listing *l, const wf_text *t)
{
    wf_json_error e;
    wf_json *page = wf_json_read(t->data ? t->data : "", t->len, &(wf_json_rules){.flags = WF_JSON_UNIQUE}, &e);
    if (!page) return wf_fail(WEFT_ERR_IO, "the hub's list of files is bad JSON, line %zu: %s", e.line, e.text);
    l->pages[l->n_pages++] = page;
    if (!wf_json_is(page, WF_JSON_LIST)) return wf_fail(WEFT_ERR_IO, "the hub's list of files is no list");
    WF_JSON_EACH(o, page)
        if (!add_entry(l, o)) return WEFT_ERR_NOMEM;
    return WEFT_OK;
}

/* The next page is on the hub as well, whatever the reply says. */
static weft_status next_page(const wf_http *h, const wf_reply *r, char **url)
{
    size_t n = strlen(h->endpoint);
    free(*url);
    *url = NULL;
    if (!*r->next) return WEFT_OK;
    if (strncmp(r->next, h->endpoint, n) || r->next[n] != '/')
        return wf_fail(WEFT_ERR_IO, "the hub's list of files goes on elsewhere: refused");
    *url = wf_strdup(r->next);
    return *url ? WEFT_OK : WEFT_ERR_NOMEM;
}

static char *make_url(const char *format, const char *a, const char *b, const char *c, const char *d)
{
    size_t n = strlen(format) + strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
    char *url = wf_calloc(n, 1);
    if (url) snprintf(url, n, format, a, b, c, d);
    return url;
}

static void say_nearest(wf_http *h, const wf_source *s, char *out, size_t cap);

/* What to do where there is no list. */
static weft_status explain_failure(wf_http *h, const wf_source *s, const wf_reply *r)
{
    char nearest[512] = "";
    bool absent = r->status == 404 || (r->status == 401 && !strcmp(r->code, "RepoNotFound"));
    if (absent && !strcmp(r->code, "RevisionNotFound"))
        return wf_fail(WEFT_ERR_IO, "%s has no revision '%s'", s->repo, s->revision);
    if (absent) say_nearest(h, s, nearest, sizeof nearest);
    if (absent)
        return wf_fail(WEFT_ERR_IO, "the hub has no repository %s that can be seen%s%s", s->repo,
                       h->token ? "" : " without a token (HF_TOKEN)", nearest);
    return WEFT_ERR_IO;
}

static weft_status read_list(wf_http *h, const wf_source *s, listing *l)
{
    char *url = make_url("%s/api/models/%s/tree/%s?recursive=true%s", h->endpoint, s->repo, s->revision, "");
    weft_status st = url ? WEFT_OK : WEFT_ERR_NOMEM;
    for (wf_reply r; !st && url;) {
        wf_text text = {0};
        if (l->n_pages == MAX_PAGES)
            st = wf_fail(WEFT_ERR_IO, "%s has more files than %d pages of the hub's list: name one by its address",
                         s->repo, MAX_PAGES);
        if (!st && (st = wf_http_text(h, url, &text, &r)) == WEFT_ERR_IO) st = explain_failure(h, s, &r);
        if (!st) st = add_page(l, &text);
        free(text.data);
        if (!st) st = next_page(h, &r, &url);
    }
    free(url);
    return st;
}

/* ---- what is near --------------------------------------------------------------------------------- */

/* The ids of a search's answer, which they lie in. */
static size_t add_found(const wf_json *found, const char **names, size_t n)
{
    WF_JSON_EACH(o, found) {
        const char *id = wf_json_text(wf_json_get(o, "id"));
        if (id && n < MAX_FOUND) names[n++] = id;
    }
    return n;
}

/* The nearest among what the hub finds under the name of the repository and under that of its owner. */
static void say_nearest(wf_http *h, const wf_source *s, char *out, size_t cap)
{
    static const char *const by[] = {"search", "author"};
    const char *slash = strchr(s->repo, '/'), *names[MAX_FOUND];
    wf_json *found[2] = {0};
    size_t n = 0;
    char owner[WF_PULL_NAME + 1];
    wf_copy(owner, (size_t)(slash - s->repo) + 1, s->repo);
    for (size_t i = 0; i < 2; i++) {
        wf_text text = {0};
        char *url = make_url("%s/api/models?%s=%s&limit=100%s", h->endpoint, by[i], i ? owner : slash + 1, "");
        wf_reply r;
        if (url && !wf_http_text(h, url, &text, &r))
            n = add_found(found[i] = wf_json_read(text.data ? text.data : "", text.len, NULL, NULL), names, n);
        free(text.data);
        free(url);
    }
    h->p->nearest(out, cap, "", s->repo, names, n);
    for (size_t i = 0; i < 2; i++) wf_json_free(found[i]);
}

static weft_status no_such(wf_http *h, const wf_source *s, const listing *l)
{
    const char *names[256];
    char types[512], nearest[256];
    size_t n = 0;
    for (size_t i = 0; i < l->n && n < WF_LEN(names); i++)
        if (!*s->path || l->v[i].stem) names[n++] = *s->path ? l->v[i].path : type_of(&l->v[i], &(size_t){0});
    /* The types that there are, each once. */
    size_t at = 0;
    *types = 0;
    for (size_t i = 0; i < l->n && at < sizeof types; i++) {
        size_t len, other;
        const char *type = type_of(&l->v[i], &len);
        bool seen = !len;
        for (size_t k = 0; k < i && !seen; k++) {
            const char *before = type_of(&l->v[k], &other);
            seen = other == len && !strncasecmp(type, before, len);
        }
        if (!seen)
            at += (size_t)snprintf(types + at, sizeof types - at, "%s%.*s", at ? ", " : "", (int)WF_MIN(len, 64), type);
    }
    if (*s->path)
        return h->p->nearest(nearest, sizeof nearest, "", s->path, names, n),
               wf_fail(WEFT_ERR_IO, "%s has no file %s%s", s->repo, s->path, nearest);
    if (!*types) return wf_fail(WEFT_ERR_IO, "%s has neither a GGUF file nor safetensors with config.json", s->repo);
    if (!*s->type)
        return wf_fail(WEFT_ERR_IO, "%s has no %s; it has %s: name one, as in hf:%s:TYPE", s->repo, USUAL_TYPE, types,
                       s->repo);
    return wf_fail(WEFT_ERR_IO, "%s has no type '%s'; it has %s", s->repo, s->type, types);
}

/* ---- the choice ------------------------------------------------------------------------------------ */

static weft_status take_file(wf_http *h, const wf_source *s, const entry *e, wf_files *out)
{
    if (!wf_pull_name_ok(e->name, strlen(e->name)))
        return wf_fail(WEFT_ERR_IO, "the hub names a file '%s', which cannot be a name here: refused", e->path);
    for (const char *p = e->path, *end; (end = strchr(p, '/')); p = end + 1)
        if (!wf_pull_name_ok(p, (size_t)(end - p)))
            return wf_fail(WEFT_ERR_IO, "the hub names a file '%s', which cannot be a name here: refused", e->path);
    wf_remote *f = wf_files_add(out);
    char *escaped = curl_easy_escape(NULL, e->path, 0);
    if (!f || !escaped) return curl_free(escaped), WEFT_ERR_NOMEM;
    for (char *p; (p = strstr(escaped, "%2F"));) *p = '/', memmove(p + 1, p + 3, strlen(p + 3) + 1);
    f->url = make_url("%s/%s/resolve/%s/%s", h->endpoint, s->repo, s->revision, escaped);
    wf_copy(f->name, sizeof f->name, e->name);
    wf_copy(f->sum, sizeof f->sum, e->sum);
    f->size = e->size;
    f->known = true;
    f->git = e->git;
    curl_free(escaped);
    return f->url ? WEFT_OK : WEFT_ERR_NOMEM;
}

/* All parts; the first one, which makes them a model, comes last. */
static weft_status take_model(wf_http *h, const wf_source *s, const listing *l, const entry *one, wf_files *out)
{
    if (!one->count) return take_file(h, s, one, out);
    for (unsigned part = one->count; part; part--) {
        size_t i = 0;
        while (i < l->n && !(l->v[i].stem && l->v[i].part == part && is_same_model(&l->v[i], one))) i++;
        if (i == l->n)
            return wf_fail(WEFT_ERR_IO, "%s is incomplete: part %u of %u of %s is not there", s->repo, part, one->count,
                           one->name);
        WF_TRY(take_file(h, s, &l->v[i], out));
    }
    return WEFT_OK;
}

static bool is_wanted(const wf_source *s, const entry *e, const char *type)
{
    if (*s->path) return !strcmp(e->path, s->path);
    return e->stem && (!type || is_type(e, type) || !strcasecmp(e->path, type));
}

/* The model of that type, or the only one there; NULL in *one: none. */
static weft_status choose_model(const wf_source *s, const listing *l, const char *type, const entry **one)
{
    *one = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->v[i];
        if (!is_wanted(s, e, type) || (*one && is_same_model(e, *one))) continue;
        if (*one && type)
            return wf_fail(WEFT_ERR_IO, "%s has several files of type %s, such as %s and %s: name one, as in hf:%s:%s",
                           s->repo, type, (*one)->name, e->name, s->repo, e->name);
        if (*one) return *one = NULL, WEFT_OK;
        *one = e;
    }
    return WEFT_OK;
}

static bool has_file(const listing *l, const char *pattern)
{
    for (size_t i = 0; i < l->n; i++)
        if (!fnmatch(pattern, l->v[i].path, FNM_PATHNAME)) return true;
    return false;
}

static weft_status take_folder(wf_http *h, const wf_source *s, const listing *l, wf_files *out)
{
    out->folder = true;
    wf_copy(out->name, sizeof out->name, strchr(s->repo, '/') + 1);
    for (size_t k = 0; k < WF_LEN(folder_files); k++)
        for (size_t i = 0; i < l->n; i++)
            if (!strchr(l->v[i].path, '/') && !fnmatch(folder_files[k], l->v[i].path, FNM_PERIOD))
                WF_TRY(take_file(h, s, &l->v[i], out));
    return WEFT_OK;
}

static weft_status pick_files(wf_http *h, const wf_source *s, const listing *l, wf_files *out)
{
    const entry *one;
    const char *type = *s->type ? s->type : USUAL_TYPE;
    bool any = false;
    for (size_t i = 0; i < l->n; i++) any |= l->v[i].stem > 0;
    if (!any && !*s->type && !*s->path && has_file(l, "config.json") && has_file(l, "model*.safetensors"))
        return take_folder(h, s, l, out);
    WF_TRY(choose_model(s, l, type, &one));
    if (!one && !*s->type && !*s->path) WF_TRY(choose_model(s, l, NULL, &one));
    if (!one) return no_such(h, s, l);
    if (!one->stem)
        return wf_fail(WEFT_ERR_IO, "%s is no GGUF file with a model: name one, or the repository alone", one->path);
    return take_model(h, s, l, one, out);
}

weft_status wf_hub_files(wf_http *h, const wf_source *s, wf_files *out)
{
    listing l = {0};
    snprintf(h->page, sizeof h->page, "%s/%s", h->endpoint, s->repo);
    wf_copy(out->origin, sizeof out->origin, h->page);
    weft_status st = read_list(h, s, &l);
    if (!st) st = pick_files(h, s, &l, out);
    for (size_t i = 0; i < l.n_pages; i++) wf_json_free(l.pages[i]);
    free(l.v);
    return st;
}
