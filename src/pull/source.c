/* source: what somebody types for a model of the hub or for a file elsewhere. */
#include "pull/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Hosts of the hub's own pages; what is fetched comes from the endpoint, which may be another one. */
static const char *const hosts[] = {"huggingface.co", "hf.co", "www.huggingface.co"};
#define FORMS "expected hf:ORG/REPO[:TYPE], or the address of a GGUF file or of a repository"

bool wf_pull_name_ok(const char *name, size_t len)
{
    if (!len || len > WF_PULL_NAME || *name == '.' || memchr(name, 0, len)) return false;
    for (size_t i = 0, n; i < len; i += n) {
        n = wf_utf8_len(name + i, len - i);
        if (!n || wf_utf8_control(name + i, n) || strchr("/\\:", name[i])) return false;
    }
    return true;
}

static weft_status bad_source(const char *typed)
{
    return wf_fail(WEFT_ERR_ARG, "'%s' is no model to fetch: " FORMS, typed);
}

/* Copies a word that goes into an address and maybe into a name. */
static bool take_word(char *out, size_t cap, const char *word, size_t len)
{
    if (len >= cap || !wf_pull_name_ok(word, len) || memchr(word, '?', len) || memchr(word, '#', len) ||
        memchr(word, '%', len))
        return false;
    wf_copy(out, len + 1, word);
    return true;
}

/* ORG/REPO and what follows; *rest: there. */
static bool take_repo(const char *text, wf_source *s, const char **rest)
{
    size_t org = strcspn(text, "/"), repo = text[org] ? strcspn(text + org + 1, "/:@?#") : 0;
    char one[WF_PULL_NAME + 1];
    if (!take_word(one, sizeof one, text, org) || !take_word(one, sizeof one, text + org + 1, repo)) return false;
    wf_copy(s->repo, org + repo + 2, text);
    *rest = text + org + 1 + repo;
    return true;
}

/* Behind ORG/REPO: nothing, :TYPE, or /blob/REVISION/FILE as the pages have it. */
static bool take_rest(const char *rest, wf_source *s)
{
    static const char *const views[] = {"/blob/", "/resolve/", "/raw/", "/tree/"};
    size_t end = strcspn(rest, "?#");
    wf_copy(s->revision, sizeof s->revision, "main");
    if (*rest == ':') return take_word(s->type, sizeof s->type, rest + 1, strlen(rest + 1));
    if (end == (*rest == '/')) return true;
    for (size_t i = 0; i < WF_LEN(views); i++) {
        size_t n = strlen(views[i]), word = n < end && !strncmp(rest, views[i], n) ? strcspn(rest + n, "/?#") : 0;
        if (!word) continue;
        if (!take_word(s->revision, sizeof s->revision, rest + n, word)) return false;
        if (n + word >= end || i == 3) return i == 3;
        int len = 0;
        char *file = curl_easy_unescape(NULL, rest + n + word + 1, (int)(end - n - word - 1), &len);
        bool ok = file && (size_t)len < sizeof s->path && strlen(file) == (size_t)len;
        if (ok) wf_copy(s->path, sizeof s->path, file);
        curl_free(file);
        return ok;
    }
    return false;
}

static bool hub_path(const char *text, wf_source *s)
{
    const char *rest;
    return take_repo(text, s, &rest) && take_rest(rest, s);
}

/* What is behind the host in an address of the hub; NULL: it is of another host. */
static const char *behind_host(const char *text, const char *endpoint)
{
    size_t own = strlen(endpoint);
    if (!strncasecmp(text, endpoint, own) && text[own] == '/') return text + own + 1;
    if (!strncasecmp(text, "https://", 8)) text += 8;
    for (size_t i = 0; i < WF_LEN(hosts); i++) {
        size_t n = strlen(hosts[i]);
        if (!strncasecmp(text, hosts[i], n) && text[n] == '/') return text + n + 1;
    }
    return NULL;
}

weft_status wf_source_read(const char *typed, const char *endpoint, wf_source *s)
{
    *s = (wf_source){0};
    const char *path = !strncasecmp(typed, "hf:", 3) ? typed + 3 + strspn(typed + 3, "/")
                                                     : behind_host(typed, endpoint);
    bool web = !strncasecmp(typed, "https://", 8) || !strncasecmp(typed, "http://", 7);
    if (path && hub_path(path, s)) return WEFT_OK;
    if (path && !web) return bad_source(typed);
    if (!web && strstr(typed, "://"))
        return wf_fail(WEFT_ERR_ARG, "'%s': only http and https addresses are fetched", typed);
    if (!web) return hub_path(typed, s) && !*s->path ? WEFT_OK : bad_source(typed);
    s->url = wf_strdup(typed);
    return s->url ? WEFT_OK : WEFT_ERR_NOMEM;
}

void wf_source_free(wf_source *s)
{
    free(s->url);
    s->url = NULL;
}
