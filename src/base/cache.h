/* cache: what is kept on disk between runs and can be made again: binaries of kernels, self-tests that were passed. An
 * entry that is truncated, damaged or foreign, or a folder that cannot be written to, costs the time to make the thing
 * again and nothing else.
 */
#ifndef WF_CACHE_H
#define WF_CACHE_H

#include "base/base.h"

/* Everything that decides what an entry is; text is compared whole, so a hash collision is harmless. */
typedef struct wf_cache_key {
    char *text;
    char name[33]; /* hash of text as a file name */
} wf_cache_key;
/* NULL text on shortage of memory; else the caller frees it. */
wf_cache_key wf_cache_key_of(const char *fmt, ...) WF_PRINTF(1, 2);

/* The stored data, malloc'ed, or NULL. Files that are truncated, damaged or of another key are removed. */
void *wf_cache_get(const char *dir, const wf_cache_key *, size_t *size);
/* Is there an entry of that name? It may be damaged. */
bool wf_cache_has(const char *dir, const wf_cache_key *);
/* Can entries be put there? Makes the folder if its parent is there, as wf_cache_put does. */
bool wf_cache_can_put(const char *dir);
void wf_cache_put(const char *dir, const wf_cache_key *, const void *data, size_t size);
void wf_cache_remove(const char *dir, const wf_cache_key *);

/* A file of this process that belongs to an entry, as long as it works on it. */
void wf_cache_own_path(char *buf, size_t cap, const char *dir, const wf_cache_key *, const char *what);
/* Removes such files of processes that are gone; true if there were any. */
bool wf_cache_remove_dead(const char *dir, const wf_cache_key *, const char *what);

#endif
