/* file: read-only memory maps that survive truncation of the file.
 *
 * Reading a page past the end of a truncated file raises SIGBUS. A handler, installed with the first map, replaces such
 * pages by zeros and marks the map as broken, so that the process survives and the owner can report an error. A SIGBUS
 * outside our maps goes to the previous handler. A program that installs its own SIGBUS handler later must chain to
 * ours.
 */
#ifndef WF_FILE_H
#define WF_FILE_H

#include "base/base.h"

#include <limits.h>
#include <stdio.h>

typedef struct wf_map {
    const uint8_t *data;
    size_t size;
    int slot; /* index in the handler's table; -1: not a file */
} wf_map;

/* Maps a regular file; the error names any other type (directory, FIFO, device). Thread-safe; at most 512 maps at a
 * time. */
weft_status wf_map_open(const char *path, wf_map *out);
/* Was the file written to or cut while it was mapped? Then its data cannot be trusted. Takes two system calls. A file
 * that was removed, replaced by rename or only touched is still intact. Where the system cannot watch files, a new time
 * counts as a change. */
bool wf_map_broken(const wf_map *m);
/* Is that the file which is mapped? */
struct stat;
bool wf_map_is_of(const wf_map *m, const struct stat *st);
/* Tells the kernel that the map is cold: its pages leave this process until they are read again. */
void wf_map_advise_cold(const wf_map *m);
void wf_map_close(wf_map *m);

/* Fails, naming the type, if the path is not a regular file. */
weft_status wf_need_regular(const char *path);
/* Reads a whole file or stream of at most max bytes into malloc'ed memory and appends a NUL. */
weft_status wf_read_file(const char *path, size_t max, char **out, size_t *len);
/* The same from an open descriptor, which stays open; path is for messages. */
weft_status wf_read_fd(int fd, const char *path, size_t max, char **out, size_t *len);
/* Reads a small text file by lines. The first line must be `head`. fn gets each other line without its '#' comment, if
 * it is not blank, and may modify it. Errors end the reading and are prefixed with path and line number. */
typedef weft_status (*wf_line_fn)(void *user, char *line);
/* Of a text, which it cuts up; without the path. */
weft_status wf_parse_lines(char *text, const char *head, wf_line_fn fn, void *user);
weft_status wf_read_lines(const char *path, const char *head, wf_line_fn fn, void *user);
/* A file that is written as PATH.new.part and renamed when it is complete; what was left there by a program that was
 * killed goes. Symbolic links are kept. Other
 * targets, such as pipes, are written directly. */
typedef struct wf_output {
    FILE *f; /* of a temporary one that it locks as long as it is open */
    char path[PATH_MAX], tmp_path[PATH_MAX]; /* tmp_path "": f is path itself */
} wf_output;
weft_status wf_output_open(const char *path, wf_output *o);
/* Checks before long work that its result can be written. Leaves no file behind; refuses to overwrite a model. */
weft_status wf_output_check(const char *path);
/* Closes the file. If `whole` is false or on failure, removes the temporary file. */
weft_status wf_output_end(wf_output *o, bool whole);

/* Makes the folder if it is not there, and checks that it can be written to. */
weft_status wf_folder_check(const char *path);
/* Returns the first of $XDG_CACHE_HOME/weft, ~/.cache/weft and /tmp/weft-UID that is owned and writable by this user
 * only; creates it if missing (0700). WEFT_ERR_IO if there is none. */
weft_status wf_cache_dir(char *buf, size_t cap);
enum wf_user_dir {
    WF_DIR_CONFIG, /* $XDG_CONFIG_HOME or ~/.config */
    WF_DIR_DATA,   /* $XDG_DATA_HOME or ~/.local/share */
    WF_DIR_STATE,  /* $XDG_STATE_HOME or ~/.local/state */
};
/* The path of NAME in one of the user's folders; make: creates it with its parents (0700). WEFT_ERR_IO on failure. */
weft_status wf_user_dir(enum wf_user_dir kind, const char *name, bool make, char *buf, size_t cap);

/* In models.c. The folder of models; "": none. */
void wf_models_folder(char *path, size_t cap);
/* The path of a model there, if the name is one and no file here has it; else the name, which may be NULL. */
const char *wf_models_find(const char *name, char path[PATH_MAX]);
#define WF_MODELS_PART ".part" /* ends the names of what `weft pull` has not finished */
/* Is that file or folder, which `stat` finds, a model? */
bool wf_models_have(const char *folder, const char *name, struct stat *st);
/* Bytes of the files that make it up: all of a folder, or all parts of the same name. */
uint64_t wf_models_bytes(const char *folder, const char *name, const struct stat *st);
size_t wf_models_stem(const char *name); /* how much of the file's name is the model's */

/* Fails if the file is a model (starts with "GGUF"), so that outputs do not overwrite one by accident. */
weft_status wf_not_a_model(const char *path);
/* Are these one file, also by another spelling, through a link, or if it is not there yet? */
bool wf_same_file(const char *a, const char *b);

#endif
