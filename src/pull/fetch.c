/* fetch: one file. It grows as NAME.part, locked, beside the record NAME.pull, and is renamed when its length and
 * checksum are right. */
#include "pull/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RECORD_MAX 65536
#define CHUNK      ((size_t)1 << 20)
#define PROGRESS   CHUNK /* a try that brought so much is no failure in a row */
#define SPARE      (256 * CHUNK) /* of the disk, that a file of unknown length leaves */

typedef struct fetch {
    wf_http *h;
    const wf_remote *f;
    const char *folder;
    char path[PATH_MAX], part[PATH_MAX + 8], record[PATH_MAX + 8];
    bool replace; /* what has the name */
    int fd;
    uint64_t have, total; /* of the file; total 0 unless known */
    bool known;
    char etag[256], sum[65]; /* of what is fetched; "": not known */
    bool git;
    wf_sum *state; /* of the bytes that are there */
    wf_reply r;
    wf_progress bar;
    uint64_t began_ns, began_at; /* of this try, for the rate */
} fetch;

static weft_status io_failed(const char *what, const char *path)
{
    return wf_fail(WEFT_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

weft_status wf_need_space(const char *folder, uint64_t bytes)
{
    struct statvfs v;
    if (statvfs(folder, &v) || !v.f_blocks) return WEFT_OK; /* the write will tell */
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (bytes <= free_bytes) return WEFT_OK;
    return wf_fail(WEFT_ERR_IO,
                   "%s has %s free, and %s are needed: make room, or name another folder by WEFT_MODELS", folder,
                   WF_HUMAN(free_bytes, true), WF_HUMAN(bytes, true));
}

/* ---- checksums of files -------------------------------------------------------------------------- */

/* Adds the first n bytes of an open file. */
static weft_status add_file(const wf_http *h, int fd, const char *path, uint64_t n, wf_sum *sum)
{
    wf_progress bar = {0};
    char *buf = malloc(CHUNK);
    weft_status s = buf ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "out of host memory");
    for (uint64_t at = 0; !s && at < n;) {
        ssize_t got = pread(fd, buf, (size_t)WF_MIN(n - at, (uint64_t)CHUNK), (off_t)at);
        if (got <= 0) s = io_failed("read", path);
        if (wf_http_stopped(h)) s = wf_fail(WEFT_ERR_CANCELLED, "stopped");
        if (!s) wf_sum_add(sum, buf, (size_t)got), at += (uint64_t)got;
        if (!h->p->quiet) wf_progress_update(&bar, "checking", (double)at / (double)n);
    }
    wf_progress_end(&bar);
    free(buf);
    return s;
}

weft_status wf_fetch_look(const wf_http *h, const wf_remote *f, const char *path, enum wf_there *out)
{
    struct stat st;
    char hex[65] = "";
    *out = WF_ABSENT;
    if (lstat(path, &st)) return errno == ENOENT ? WEFT_OK : io_failed("open", path);
    *out = WF_OTHER;
    int fd = *f->sum && f->known ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0) return WEFT_OK;
    wf_sum *sum =
        !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->size ? wf_sum_new(f->git, f->size) : NULL;
    weft_status s = sum ? add_file(h, fd, path, f->size, sum) : WEFT_OK;
    wf_sum_end(sum, hex);
    close(fd);
    if (sum && !s && !strcasecmp(hex, f->sum)) *out = WF_SAME;
    return s;
}

/* ---- the unfinished file and its record ----------------------------------------------------------- */

/* Another process may complete and rename the file between opening and locking it: then the lock is on something else.
 */
static weft_status lock_part(fetch *t)
{
    struct stat mine, there;
    for (;;) {
        t->fd = open(t->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (t->fd < 0) return io_failed("write", t->part);
        if (flock(t->fd, LOCK_EX | LOCK_NB)) {
            bool busy = errno == EWOULDBLOCK;
            return busy ? wf_fail(WEFT_ERR_IO, "another weft is fetching %s", t->f->name) : io_failed("lock", t->part);
        }
        if (!fstat(t->fd, &mine) && !stat(t->part, &there) && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            break;
        close(t->fd);
    }
    if (!S_ISREG(mine.st_mode)) return wf_fail(WEFT_ERR_IO, "%s is no regular file", t->part);
    t->have = (uint64_t)mine.st_size;
    return WEFT_OK;
}

static weft_status write_record(fetch *t)
{
    wf_text o = {0};
    wf_json_print(&o, "{\n 'url': %s,\n 'etag': %s,\n 'sum': %s\n}\n", t->f->url, t->etag, t->sum);
    int fd = o.failed ? -1
                      : open(t->record, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                             0600); /* an address may hold a key */
    weft_status s = fd < 0 || write(fd, o.data, o.len) != (ssize_t)o.len ? io_failed("write", t->record) : WEFT_OK;
    if (fd >= 0) close(fd);
    free(o.data);
    return s;
}

static wf_json *read_record(const fetch *t)
{
    char *text;
    size_t len;
    if (access(t->record, F_OK) || wf_read_file(t->record, RECORD_MAX, &text, &len)) return NULL;
    wf_json *o = wf_json_read(text, len, &(wf_json_rules){.flags = WF_JSON_UNIQUE}, NULL);
    free(text);
    return o;
}

static const char *text_of(const wf_json *o, const char *key)
{
    const char *text = wf_json_text(wf_json_get(o, key));
    return text ? text : "";
}

/* From the first byte, since what is there is of something else. */
static weft_status restart_file(fetch *t, const char *why)
{
    if (t->have && why) wf_log(WEFT_LOG_WARN, "%s: %s: it is fetched from the start", t->f->name, why);
    t->have = 0;
    t->etag[0] = 0;
    wf_sum_end(t->state, NULL);
    t->state = NULL;
    return ftruncate(t->fd, 0) ? io_failed("write", t->part) : WEFT_OK;
}

/* Goes on with what an earlier call left, if it is of the same file as far as one can know. */
static weft_status take_up(fetch *t)
{
    wf_json *o = read_record(t);
    bool same = o && !strcmp(text_of(o, "url"), t->f->url) && (!*t->sum || !strcmp(text_of(o, "sum"), t->sum)) &&
                (!t->known || t->have <= t->total);
    wf_copy(t->etag, sizeof t->etag, text_of(o, "etag"));
    if (same && !*t->sum) wf_copy(t->sum, sizeof t->sum, text_of(o, "sum"));
    bool sure = *t->sum || *t->etag;
    wf_json_free(o);
    if (!same) return restart_file(t, "what was there before is of another file, or it has changed since");
    return sure ? WEFT_OK : restart_file(t, "the server says nothing by which to know that it is still the same file");
}

/* The state of the checksum for the bytes that are there. */
static weft_status count_sum(fetch *t)
{
    if (!*t->sum || t->state) return WEFT_OK;
    if (!(t->state = wf_sum_new(t->git, t->total))) return WEFT_ERR_NOMEM;
    return add_file(t->h, t->fd, t->part, t->have, t->state);
}

/* ---- a reply ------------------------------------------------------------------------------------- */

static weft_status take_total(fetch *t)
{
    bool part = t->r.status == 206;
    uint64_t total = part ? t->r.range_total : (uint64_t)t->r.length;
    if (part ? !t->r.has_range : t->r.length < 0) return WEFT_OK; /* it says none */
    if (t->known && total != t->total)
        return wf_fail(WEFT_ERR_IO, "%s: the server sends %llu bytes, where it should have %llu: refused", t->f->name,
                       (unsigned long long)total, (unsigned long long)t->total);
    t->total = total;
    t->known = true;
    return wf_need_space(t->folder, total > t->have ? total - t->have : 0);
}

/* Are these bytes the rest of what is there? */
static bool is_rest(const fetch *t)
{
    bool same = !*t->etag || !*t->r.etag || !strcmp(t->etag, t->r.etag);
    bool linked = !wf_is_sum(t->r.linked_etag, 64) || !*t->sum || !strcasecmp(t->sum, t->r.linked_etag);
    return t->r.status == 206 && t->r.has_range && t->r.range_from == t->have && same && linked;
}

static weft_status on_begin(void *user)
{
    fetch *t = user;
    bool odd = t->r.status == 206 && !is_rest(t);
    if (t->have && !is_rest(t)) {
        if (!*t->f->sum) t->known = t->f->known, t->total = t->f->size, t->sum[0] = 0;
        WF_TRY(restart_file(t, odd ? "the server answers with other bytes than asked for"
                                   : "the server does not go on, or the file has changed there"));
    }
    if (odd)
        return t->r.again = true,
               wf_fail(WEFT_ERR_IO, "%s: the server answers with other bytes than asked for", t->f->name);
    if (!*t->sum && wf_is_sum(t->r.linked_etag, 64)) wf_copy(t->sum, sizeof t->sum, t->r.linked_etag);
    wf_copy(t->etag, sizeof t->etag, t->r.etag);
    WF_TRY(take_total(t));
    WF_TRY(count_sum(t));
    t->began_ns = wf_now_ns();
    t->began_at = t->have;
    return write_record(t);
}

static void draw_bar(fetch *t)
{
    double s = (double)(wf_now_ns() - t->began_ns) / 1e9;
    if (t->h->p->quiet || !t->known || !t->total) return;
    wf_progress_note(&t->bar, "%s of %s, %s/s", WF_HUMAN(t->have, true), WF_HUMAN(t->total, true),
                     WF_HUMAN((uint64_t)((double)(t->have - t->began_at) / WF_MAX(s, 0.1)), true));
    wf_progress_update(&t->bar, "fetching", (double)t->have / (double)t->total);
}

static weft_status on_data(void *user, const char *bytes, size_t n)
{
    fetch *t = user;
    /* asked at each whole chunk */
    if (!t->known && (t->have + n) / CHUNK > t->have / CHUNK) WF_TRY(wf_need_space(t->folder, SPARE));
    if (t->known && n > t->total - t->have)
        return wf_fail(WEFT_ERR_IO, "%s: the server sends more bytes than it has said: refused", t->f->name);
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(t->fd, bytes + done, n - done, (off_t)t->have);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return wf_fail(WEFT_ERR_IO, "cannot write %s: %s; with more room the same command goes on from there",
                           t->part, strerror(errno));
        wf_sum_add(t->state, bytes + done, (size_t)put);
        done += (size_t)put;
        t->have += (uint64_t)put;
    }
    draw_bar(t);
    return WEFT_OK;
}

/* ---- tries --------------------------------------------------------------------------------------- */

static weft_status try_once(fetch *t)
{
    bool strong = *t->etag == '"';
    wf_request q = {.url = t->f->url,
                    .from = t->have,
                    .if_range = strong ? t->etag : NULL,
                    .sink = on_data,
                    .begin = on_begin,
                    .user = t};
    weft_status s = wf_http_get(t->h, &q, &t->r);
    wf_progress_hide(&t->bar);
    if (!s && t->r.status == 416) {
        /* 416: there is nothing behind what is there, which is right if that is all. */
        bool all = t->r.has_range && t->r.range_total == t->have;
        if (all) t->known = true, t->total = t->have;
        if (all) return count_sum(t);
        t->r.again = true;
        WF_TRY(restart_file(t, "the file has changed at the server"));
        return wf_fail(WEFT_ERR_IO, "%s: the file has changed at the server", t->f->name);
    }
    if (s || !t->known || t->have == t->total) return s;
    t->r.again = true;
    return wf_fail(WEFT_ERR_IO, "the server has broken off");
}

static weft_status fetch_all(fetch *t)
{
    weft_status s = WEFT_OK;
    for (uint32_t n = 0; !s; n++) {
        uint64_t before = t->have;
        if (t->have) WF_TRY(count_sum(t)); /* before a server waits for it */
        if (t->known && t->have == t->total && t->have) return WEFT_OK;
        weft_status once = try_once(t);
        if (!once) return WEFT_OK;
        if (t->have >= before + PROGRESS) n = 0;
        s = once == WEFT_ERR_IO ? wf_http_retry(t->h, &t->r, n, t->f->name) : once;
    }
    return s;
}

/* ---- the end ------------------------------------------------------------------------------------- */

static weft_status discard_part(fetch *t)
{
    unlink(t->part);
    unlink(t->record);
    return WEFT_ERR_IO;
}

/* A model begins as one; a page that asks to log in does not. */
static weft_status check_magic(fetch *t)
{
    size_t n = strlen(t->f->name);
    char head[4] = "";
    if (n < 5 || strcasecmp(t->f->name + n - 5, ".gguf")) return WEFT_OK;
    if (pread(t->fd, head, 4, 0) == 4 && !memcmp(head, "GGUF", 4)) return WEFT_OK;
    wf_fail(
        WEFT_ERR_IO,
        "what the server sent for %s is no GGUF file, perhaps a page for browsers: it is removed; check the address",
        t->f->name);
    return discard_part(t);
}

static weft_status check_sum(fetch *t)
{
    char hex[65] = "";
    if (!*t->sum) return WEFT_OK;
    if (!t->state) WF_TRY(count_sum(t));
    wf_sum_end(t->state, hex);
    t->state = NULL;
    if (!strcasecmp(hex, t->sum)) return WEFT_OK;
    wf_fail(WEFT_ERR_IO, "%s: the checksum is %s, but should be %s: the file is removed; fetch it again", t->f->name,
            hex, t->sum);
    return discard_part(t);
}

static weft_status give_name(fetch *t)
{
    if (fsync(t->fd)) return io_failed("write", t->part); /* the name must not outlive the bytes */
    int rc = t->replace ? rename(t->part, t->path) : renameat2(AT_FDCWD, t->part, AT_FDCWD, t->path, RENAME_NOREPLACE);
    if (rc && !t->replace && errno == EINVAL && access(t->path, F_OK))
        rc = rename(t->part, t->path); /* a file system without that */
    if (rc) return io_failed("write", t->path);
    unlink(t->record);
    return WEFT_OK;
}

static weft_status set_paths(fetch *t)
{
    int n = snprintf(t->path, sizeof t->path, "%s/%s", t->folder, t->f->name);
    if (n >= (int)sizeof t->path) return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", t->folder);
    snprintf(t->part, sizeof t->part, "%s.part", t->path);
    snprintf(t->record, sizeof t->record, "%s.pull", t->path);
    return WEFT_OK;
}

static weft_status run_fetch(fetch *t)
{
    weft_status s = take_up(t);
    if (!s)
        wf_pull_say(t->h->p, "fetching %s%s%s%s%s%s", t->f->name, t->known ? " (" : "",
                    t->known ? WF_HUMAN(t->total, true) : "", t->known ? ")" : "",
                    t->have ? ", goes on behind " : "", t->have ? WF_HUMAN(t->have, true) : "");
    if (!s) s = fetch_all(t);
    if (!s) s = check_sum(t);
    if (!s) s = check_magic(t);
    if (!s) s = give_name(t);
    if (s == WEFT_ERR_CANCELLED)
        s = wf_fail(s, "stopped: %s of %s are there, and the same command goes on from there", WF_HUMAN(t->have, true),
                    t->f->name);
    if (s && !t->have) discard_part(t); /* nothing to go on from */
    wf_sum_end(t->state, NULL);
    wf_progress_end(&t->bar);
    return s;
}

weft_status wf_fetch(wf_http *h, const wf_remote *f, const char *folder, bool replace)
{
    fetch t = {.h = h,
               .f = f,
               .folder = folder,
               .fd = -1,
               .replace = replace,
               .total = f->size,
               .known = f->known,
               .git = f->git};
    wf_copy(t.sum, sizeof t.sum, f->sum);
    WF_TRY(set_paths(&t));
    weft_status s = lock_part(&t);
    if (!s) s = run_fetch(&t);
    if (t.fd >= 0) close(t.fd);
    return s;
}
