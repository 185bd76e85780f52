/* pull, inside: source (what is typed) --> files (what to fetch, of hub or web) --> fetch (one file, by http). */
#ifndef WF_PULL_INTERNAL_H
#define WF_PULL_INTERNAL_H

#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "pull/pull.h"

#include <curl/curl.h>

#define WF_PULL_NAME 200 /* longest file name, so that suffixes fit behind it */

/* ---- pull.c ------------------------------------------------------------------------------------ */

void wf_pull_say(const wf_pull_params *p, const char *fmt, ...) WF_PRINTF(2, 3);

/* ---- source.c ---------------------------------------------------------------------------------- */

typedef struct wf_source {
    char *url;               /* of a file somewhere; NULL: */
    char repo[2 * WF_PULL_NAME]; /* ORG/REPO of the hub */
    char revision[128], type[WF_PULL_NAME + 1];
    char path[1024];         /* of a file in the repository; "": the one of that type */
} wf_source;

weft_status wf_source_read(const char *typed, const char *endpoint, wf_source *out);
void wf_source_free(wf_source *s);
/* May a file of that name be made? One component that is neither hidden, nor something else on another system. */
bool wf_pull_name_ok(const char *name, size_t len);

/* ---- http.c ------------------------------------------------------------------------------------ */

typedef struct wf_http {
    const wf_pull_params *p;
    CURL *curl;
    const char *endpoint; /* of the hub */
    char *token;          /* for it alone; NULL: none */
    char page[1024];      /* of the repository, for people; "": none */
} wf_http;

typedef struct wf_request {
    const char *url, *if_range; /* NULL: none */
    uint64_t from;   /* first byte */
    bool head;
    /* Takes bytes of a reply with status 200 or 206; not WEFT_OK: no more. */
    weft_status (*sink)(void *user, const char *bytes, size_t n);
    /* Looks at a reply with such a status before its bytes; may be NULL. */
    weft_status (*begin)(void *user);
    void *user;
} wf_request;

typedef struct wf_reply {
    long status;
    bool again;     /* of a failure: trying again may help, */
    uint64_t wait_s; /* not before so many seconds */
    char etag[256], linked_etag[256]; /* the second is the hub's, of the file behind its redirect */
    char code[64];  /* the hub's word for what is wrong */
    char next[2048]; /* address of the next page */
    int64_t length; /* of the body; -1: not said */
    uint64_t range_from, range_total;
    bool has_range;
} wf_reply;

weft_status wf_http_open(wf_http *h, const wf_pull_params *p);
void wf_http_close(wf_http *h);
weft_status wf_http_get(wf_http *h, const wf_request *q, wf_reply *r); /* one request with its redirects, no retries */
/* A small text, with retries. The caller frees its data. */
weft_status wf_http_text(wf_http *h, const char *url, wf_text *text, wf_reply *r);
/* Waits before try n + 1 and says why; an error if there have been too many or nobody wants to wait. */
weft_status wf_http_retry(wf_http *h, const wf_reply *r, uint32_t n, const char *what);
bool wf_http_stopped(const wf_http *h);

/* ---- files.c ------------------------------------------------------------------------------------ */

typedef struct wf_remote {
    char *url;
    char name[WF_PULL_NAME + 1]; /* to be given here */
    uint64_t size;               /* if known */
    bool known;
    char sum[65]; /* hex; "": not known */
    bool git;     /* it is a SHA-1 as git makes it, else SHA-256 */
} wf_remote;

typedef struct wf_files {
    wf_remote *v;
    size_t n, cap;
    char name[WF_PULL_NAME + 1]; /* of the model: of its first file or of the folder */
    char origin[1024];
    bool folder;
} wf_files;

weft_status wf_files_find(wf_http *h, const wf_source *s, wf_files *out);
void wf_files_free(wf_files *f);
wf_remote *wf_files_add(wf_files *f); /* NULL: no memory */

/* ---- hub.c -------------------------------------------------------------------------------------- */

weft_status wf_hub_files(wf_http *h, const wf_source *s, wf_files *out);
/* The part number and count at the end of a name without .gguf, and the length of what is before; false: it is no part.
 */
bool wf_part_of(const char *stem, size_t len, unsigned *part, unsigned *count, size_t *base);

/* ---- fetch.c ------------------------------------------------------------------------------------ */

/* Makes FOLDER/NAME; replace: also where there is one. Its .part stays where fetching can go on. */
weft_status wf_fetch(wf_http *h, const wf_remote *f, const char *folder, bool replace);
enum wf_there { WF_ABSENT, WF_SAME, WF_OTHER };
/* Is the file at that path the one that would be fetched? */
weft_status wf_fetch_look(const wf_http *h, const wf_remote *f, const char *path, enum wf_there *out);
weft_status wf_need_space(const char *folder, uint64_t bytes);

/* ---- sum.c -------------------------------------------------------------------------------------- */

bool wf_is_sum(const char *text, size_t digits); /* so many hex digits? */
typedef struct wf_sum wf_sum;
wf_sum *wf_sum_new(bool git, uint64_t size); /* NULL: no memory */
void wf_sum_add(wf_sum *s, const void *bytes, size_t n);
void wf_sum_end(wf_sum *s, char hex[65]); /* frees it; hex may be NULL */

#endif
