/* pull: the files of a model, one after the other, and the folder that some make up. See pull.h. */
#include "pull/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

void wf_pull_say(const wf_pull_params *p, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    wf_format(line, sizeof line, fmt, ap);
    va_end(ap);
    if (p->say) p->say(p->user, line);
}

static bool join_path(char path[PATH_MAX], const char *folder, const char *name, const char *end)
{
    return snprintf(path, PATH_MAX, "%s/%s%s", folder, name, end) < PATH_MAX;
}

/* Where the file system keeps none, nothing says where it is from. */
static void mark_origin(const char *folder, const char *name, const char *origin)
{
    char path[PATH_MAX];
    if (join_path(path, folder, name, "") && *origin) (void)!setxattr(path, WF_PULL_ORIGIN, origin, strlen(origin), 0);
}

/* ---- sizes ------------------------------------------------------------------------------------- */

static weft_status no_bytes(void *user, const char *bytes, size_t n)
{
    (void)user, (void)bytes, (void)n;
    return WEFT_OK;
}

/* Asks for the size of a file that no list has. */
static weft_status ask_size(wf_http *h, wf_remote *f)
{
    wf_reply r;
    wf_request q = {.url = f->url, .head = true, .sink = no_bytes};
    weft_status s = f->known ? WEFT_OK : WEFT_ERR_IO;
    for (uint32_t n = 0; s == WEFT_ERR_IO; n++) {
        s = wf_http_get(h, &q, &r);
        if (!s && r.length >= 0) f->size = (uint64_t)r.length, f->known = true;
        if (s == WEFT_ERR_IO) WF_TRY(wf_http_retry(h, &r, n, f->name));
        else break;
        s = WEFT_ERR_IO;
    }
    return s;
}

static weft_status list_files(wf_http *h, wf_files *f)
{
    uint64_t sum = 0;
    char name[4 * WF_PULL_NAME];
    bool known = true;
    for (size_t i = f->n; i--;) {
        WF_TRY(ask_size(h, &f->v[i]));
        wf_show(name, sizeof name, f->v[i].name);
        printf("%-56s %12s\n", name, f->v[i].known ? WF_HUMAN(f->v[i].size, true) : "?");
        sum += f->v[i].size;
        known = known && f->v[i].known;
    }
    wf_pull_say(h->p, "%s%s from %s, for %s/%s", known ? "" : "at least ", WF_HUMAN(sum, true), f->origin,
                h->p->folder, f->name);
    return WEFT_OK;
}

/* ---- what is there already ----------------------------------------------------------------------- */

/* Bytes of an unfinished file, which are not fetched again. */
static uint64_t part_of(const char *folder, const wf_remote *f)
{
    char path[PATH_MAX];
    struct stat st;
    bool there = join_path(path, folder, f->name, ".part") && !lstat(path, &st) && S_ISREG(st.st_mode);
    return there ? WF_MIN((uint64_t)st.st_size, f->size) : 0;
}

/* Finds what is to be fetched, and whether there is room. */
static weft_status survey_files(wf_http *h, const wf_files *f, const char *folder, enum wf_there *there)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->n; i++) {
        char path[PATH_MAX];
        if (!join_path(path, folder, f->v[i].name, ""))
            return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", folder);
        WF_TRY(wf_fetch_look(h, &f->v[i], path, &there[i]));
        if (there[i] != WF_SAME) bytes += f->v[i].size - part_of(folder, &f->v[i]);
    }
    return wf_need_space(h->p->folder, bytes);
}

static weft_status fetch_missing(wf_http *h, const wf_files *f, const char *folder, const enum wf_there *there,
                                 bool replace)
{
    for (size_t i = 0; i < f->n; i++)
        if (there[i] != WF_SAME) WF_TRY(wf_fetch(h, &f->v[i], folder, replace));
    return WEFT_OK;
}

static bool is_all(const wf_files *f, const enum wf_there *there, enum wf_there what)
{
    size_t i = 0;
    while (i < f->n && there[i] == what) i++;
    return i == f->n;
}

/* ---- files ---------------------------------------------------------------------------------------- */

static weft_status pull_files(wf_http *h, const wf_files *f, enum wf_there *there)
{
    WF_TRY(survey_files(h, f, h->p->folder, there));
    for (size_t i = 0; i < f->n && !h->p->force; i++)
        if (there[i] == WF_OTHER)
            return wf_fail(WEFT_ERR_IO,
                           "%s/%s is there, and may be another file: -o NAME gives this one another name, --force "
                           "replaces that one",
                           h->p->folder, f->v[i].name);
    WF_TRY(fetch_missing(h, f, h->p->folder, there, h->p->force));
    for (size_t i = 0; i < f->n; i++) mark_origin(h->p->folder, f->v[i].name, f->origin);
    return WEFT_OK;
}

/* ---- a folder ------------------------------------------------------------------------------------- */

/* Makes the folder that grows, and locks it as a whole. */
static weft_status lock_folder(const char *path, const char *name, int *fd)
{
    struct stat mine, there;
    *fd = mkdir(path, 0755) && errno != EEXIST ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    bool mine_alone = !flock(*fd, LOCK_EX | LOCK_NB) && !fstat(*fd, &mine) && !stat(path, &there) &&
                      mine.st_ino == there.st_ino;
    return mine_alone ? WEFT_OK : wf_fail(WEFT_ERR_IO, "another weft is fetching %s", name);
}

static weft_status fill_folder(wf_http *h, const wf_files *f, const char *part, const char *path, enum wf_there *there)
{
    WF_TRY(survey_files(h, f, part, there));
    WF_TRY(fetch_missing(h, f, part, there, true));
    if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) && (errno != EINVAL || rename(part, path)))
        return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    mark_origin(h->p->folder, f->name, f->origin);
    return WEFT_OK;
}

static weft_status pull_folder(wf_http *h, const wf_files *f, enum wf_there *there)
{
    char path[PATH_MAX], part[PATH_MAX];
    int fd = -1;
    if (!join_path(path, h->p->folder, f->name, "") || !join_path(part, h->p->folder, f->name, ".part"))
        return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", h->p->folder);
    if (!access(path, F_OK)) {
        WF_TRY(survey_files(h, f, path, there));
        return is_all(f, there, WF_SAME) ? WEFT_OK
                                         : wf_fail(WEFT_ERR_IO,
                                                   "%s is there, and is another one: -o NAME gives this one another "
                                                   "name, or remove that one with rm -r",
                                                   path);
    }
    weft_status s = lock_folder(part, f->name, &fd);
    if (!s) s = fill_folder(h, f, part, path, there);
    if (s && fd >= 0) rmdir(part); /* if nothing is in it */
    if (fd >= 0) close(fd);
    return s;
}

static void say_done(const wf_pull_params *p, const wf_files *f, bool news)
{
    size_t checked = 0, n = strlen(f->name);
    for (size_t i = 0; i < f->n; i++) checked += *f->v[i].sum != 0;
    const char *sum = checked == f->n ? ", and its checksum is right" : "";
    wf_pull_say(p, "%s is %s%s: `weft run %.*s`", f->name, news ? "fetched" : "there already", sum,
                (int)(f->folder ? n : n - 5), f->name);
}

static weft_status fetch_all(wf_http *h, const wf_files *f)
{
    enum wf_there *there = wf_calloc(f->n, sizeof *there);
    weft_status s = there ? wf_folder_check(h->p->folder) : WEFT_ERR_NOMEM;
    if (!s) s = f->folder ? pull_folder(h, f, there) : pull_files(h, f, there);
    if (!s && h->p->path && !join_path(h->p->path, h->p->folder, f->name, "")) s = WEFT_ERR_ARG;
    if (!s) say_done(h->p, f, !is_all(f, there, WF_SAME));
    free(there);
    return s;
}

weft_status wf_pull(const wf_pull_params *p)
{
    wf_http h;
    wf_source source = {0};
    wf_files files = {0};
    weft_status s = wf_http_open(&h, p);
    if (!s) s = wf_source_read(p->source, h.endpoint, &source);
    if (!s) s = wf_files_find(&h, &source, &files);
    if (!s) s = p->dry_run ? list_files(&h, &files) : fetch_all(&h, &files);
    wf_files_free(&files);
    wf_source_free(&source);
    wf_http_close(&h);
    return s;
}
