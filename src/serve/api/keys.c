/* keys: API keys of the command line, and from a file, one per line. Empty lines and those that begin with # are
 * skipped. Blanks around a key do not count: no header could carry them. */
#include "serve/api/internal.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX (1u << 20)

/* A copy without blanks at both ends; NULL: out of memory. */
static char *trimmed_key(const char *key)
{
    key += strspn(key, WF_KEY_BLANKS);
    size_t n = strlen(key);
    while (n && strchr(WF_KEY_BLANKS, key[n - 1])) n--;
    return strndup(key, n);
}

static bool add_key(wf_server *s, const char *key, size_t *cap)
{
    if (!wf_grow(&s->keys, s->n_keys, cap, sizeof *s->keys) || !(s->keys[s->n_keys] = trimmed_key(key)))
        return wf_fail(WEFT_ERR_NOMEM, "out of memory for API keys"), false;
    s->n_keys++;
    return true;
}

static bool add_file(wf_server *s, const char *path, size_t *cap)
{
    char *text = NULL, *rest;
    size_t len = 0, before = s->n_keys;
    bool ok = true;
    if (wf_read_file(path, FILE_MAX, &text, &len)) return false;
    for (char *line = strtok_r(text, "\r\n", &rest); ok && line; line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, WF_KEY_BLANKS);
        if (*line && *line != '#') ok = add_key(s, line, cap);
    }
    if (ok && s->n_keys == before)
        ok = false,
        wf_fail(WEFT_ERR_ARG, "%s holds no API key: write one a line, or leave out --api-key-file to serve without one",
                path);
    explicit_bzero(text, len);
    free(text);
    return ok;
}

bool wf_keys_load(wf_server *s)
{
    size_t cap = 0;
    for (size_t i = 0; i < s->p.n_api_keys; i++) {
        const char *key = s->p.api_keys[i];
        if (!key || !key[strspn(key, WF_KEY_BLANKS)])
            return wf_fail(WEFT_ERR_ARG, "--api-key is empty: give it a key, or leave it out to serve without one"),
                   false;
        if (!add_key(s, key, &cap)) return false;
    }
    return !s->p.api_key_file || add_file(s, s->p.api_key_file, &cap);
}

/* Constant time: the duration does not depend on where a wrong key differs. */
static bool same_key(const char *given, size_t n_given, const char *key)
{
    size_t n = strlen(key);
    unsigned char differ = n != n_given;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)key[i] ^ (unsigned char)(n_given ? given[i % n_given] : 0);
    return !differ;
}

size_t wf_key_find(const wf_server *s, const wf_httpd_request *r)
{
    size_t found = 0;
    const char *bearer = wf_httpd_field(r, "Authorization", NULL), *given = wf_httpd_field(r, "X-Api-Key", NULL);
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) given = bearer + 7;
    if (!given) return 0;
    given += strspn(given, " ");
    for (size_t i = 0; i < s->n_keys; i++)
        if (same_key(given, strlen(given), s->keys[i])) found = i + 1;
    return found;
}

void wf_keys_free(wf_server *s)
{
    for (size_t i = 0; i < s->n_keys; i++) {
        explicit_bzero(s->keys[i], strlen(s->keys[i]));
        free(s->keys[i]);
    }
    free(s->keys);
}
