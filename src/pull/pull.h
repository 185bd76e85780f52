/* pull: fetches models over HTTP into the folder of models. Part of the program, not of the library; builds without
 * libcurl use absent.c.
 *
 * A source, as it is typed, becomes a list of files, of a repository of the hub or of an address. Each is written
 * beside its name (NAME.part, and NAME.pull, which says where it is from), goes on where it was broken off, and gets
 * its name when its size and its checksum are right. What servers say is not trusted: names stay in the folder,
 * redirects keep to TLS, the token goes to the hub alone. */
#ifndef WF_PULL_H
#define WF_PULL_H

#include "base/base.h"

#define WF_PULL_ORIGIN "user.xdg.origin.url" /* the attribute of a file or folder that says where it is from */

typedef struct wf_pull_params {
    const char *source; /* hf:ORG/REPO[:TYPE], the same by other spellings, or an address */
    const char *folder; /* of the models */
    const char *name;   /* of the model there; NULL: as in the source */
    bool force, dry_run, quiet;
    uint32_t retries;    /* in a row without progress */
    double retry_s;      /* before the first one; it doubles */
    uint32_t stall_s;    /* after which a silent connection counts as lost */
    char *path; /* PATH_MAX bytes for where the model lies then; NULL: not wanted */
    bool (*stop)(void);
    void (*say)(void *user, const char *line); /* what happens */
    void *user;
    /* Writes "; did you mean NAME?", or "". */
    void (*nearest)(char *out, size_t cap, const char *dashes, const char *word, const char *const *names, size_t n);
} wf_pull_params;

/* Fetches, or with dry_run lists. WEFT_ERR_CANCELLED: stop said so. */
weft_status wf_pull(const wf_pull_params *p);

#endif
