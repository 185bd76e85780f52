/* file: read-only memory maps that survive a file being shortened underneath.
 *
 * Reading a page past the new end of a shortened file raises SIGBUS. A handler, installed with the
 * first map, puts zero pages there instead and marks the map as broken, so that the process lives on
 * and the owner can end with an error; a SIGBUS outside our maps goes to the handler before ours.
 */
#ifndef WF_FILE_H
#define WF_FILE_H

#include "base/base.h"

typedef struct wf_map {
    const uint8_t *data;
    size_t size;
    int slot; /* in the handler's table; -1: not a file */
} wf_map;

/* Maps a regular file; anything else (directory, FIFO, device) is an error that says what it is. */
weft_status wf_map_open(const char *path, wf_map *out);
bool wf_map_broken(const wf_map *m); /* the file changed size while mapped: data cannot be trusted */
void wf_map_close(wf_map *m);

/* Reads a whole stream or file into malloc'ed memory with a NUL behind; at most max bytes. */
weft_status wf_read_file(const char *path, size_t max, char **out, size_t *len);
/* The same from an open descriptor, which stays open; path is for messages. */
weft_status wf_read_fd(int fd, const char *path, size_t max, char **out, size_t *len);
/* $XDG_CACHE_HOME/weft or ~/.cache/weft or a private folder under /tmp, made if missing. */
weft_status wf_cache_dir(char *buf, size_t cap);

#endif
