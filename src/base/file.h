/* file: read-only memory maps that survive a file being shortened underneath.
 *
 * Reading a page past the new end of a shortened file raises SIGBUS. A handler, installed with the
 * first map, puts zero pages there instead and marks the map as broken, so that the process lives on
 * and the owner can end with an error; a SIGBUS outside our maps goes to the handler before ours. A
 * program that sets a SIGBUS handler of its own after the first map must call ours, or loses this.
 */
#ifndef WF_FILE_H
#define WF_FILE_H

#include "base/base.h"

#include <limits.h>
#include <stdio.h>

typedef struct wf_map {
    const uint8_t *data;
    size_t size;
    int slot; /* in the handler's table; -1: not a file */
} wf_map;

/* Maps a regular file; anything else (directory, FIFO, device) is an error that says what it is. Thread-safe;
 * at most 64 maps at a time. */
weft_status wf_map_open(const char *path, wf_map *out);
/* The file was cut, or its size or time changed, while mapped: data cannot be trusted. One system call. A
 * file that was removed, or replaced by rename, is still whole. */
bool wf_map_broken(const wf_map *m);
/* Most of it will not be read again soon: its pages no longer count as this process's until they are. */
void wf_map_advise_cold(const wf_map *m);
void wf_map_close(wf_map *m);

/* An error that says what it is where the path leads to no regular file. */
weft_status wf_need_regular(const char *path);
/* Reads a whole stream or file into malloc'ed memory with a NUL behind; at most max bytes. */
weft_status wf_read_file(const char *path, size_t max, char **out, size_t *len);
/* The same from an open descriptor, which stays open; path is for messages. */
weft_status wf_read_fd(int fd, const char *path, size_t max, char **out, size_t *len);
/* Takes a small text file apart: the first line must be `head`; fn gets each other one up to a '#', if that is not blank,
 * and may change it. An error ends the reading and gets path and number of the line in front. */
typedef weft_status (*wf_line_fn)(void *user, char *line);
weft_status wf_read_lines(const char *path, const char *head, wf_line_fn fn, void *user);
/* A file that is written beside its place and put there when it is whole, so that nobody finds half of it. A link
 * to a file stays one. What is no regular file, such as a pipe, is written as it is. */
typedef struct wf_output {
    FILE *f;
    char path[PATH_MAX], tmp_path[PATH_MAX]; /* tmp_path "": f is path itself */
} wf_output;
weft_status wf_output_open(const char *path, wf_output *o);
/* Could it be written? For before long work whose result goes there; leaves nothing behind. Not over a model. */
weft_status wf_output_check(const char *path);
/* Closes it; whole false, or a failure: what was written beside is removed. */
weft_status wf_output_end(wf_output *o, bool whole);

/* $XDG_CACHE_HOME/weft or ~/.cache/weft or /tmp/weft-UID, made if missing (0700): the first that is owned
 * by this user, writable, and by no one else. WEFT_ERR_IO if there is none. */
weft_status wf_cache_dir(char *buf, size_t cap);
/* $XDG_CONFIG_HOME/NAME or ~/.config/NAME; make: with all folders. WEFT_ERR_IO if neither is set or it cannot
 * be made. */
weft_status wf_config_dir(const char *name, bool make, char *buf, size_t cap);

/* An error if the file is a model (it begins with "GGUF"): outputs must not take the place of one by a slip. */
weft_status wf_not_a_model(const char *path);

#endif
