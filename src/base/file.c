/* file: memory maps that survive truncation of the file, whole-file reads, the cache folder. See file.h.
 *
 * The SIGBUS handler may run on any thread at any point, so it uses only atomics in a fixed table and one system call.
 * It replaces everything from the faulting page to the end of the map: all pages past the new end would fault, and a
 * map that lost one page is not trusted anyway.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- maps ------------------------------------------------------------------------------------ */

#define MAX_MAPS 512
#define WRITE_NS 50000000 /* what a write may take */

static struct slot {
    atomic_bool used;
    atomic_uintptr_t start; /* 0: unused; written last, cleared first */
    atomic_size_t size;     /* a multiple of the page size */
    atomic_bool broken;
    int fd;         /* kept open to detect changes */
    int watch;      /* of inotify, the same for all maps of a file; negative: none */
    struct stat st; /* at the time of mapping */
} slots[MAX_MAPS];

static int watcher = -1; /* of inotify; negative: there is none */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sigaction previous;
static size_t page_size;
static int install_errno;

/* Replaces pages of one of our maps by zeros. */
static bool repair(uintptr_t at)
{
    for (size_t i = 0; i < MAX_MAPS; i++) {
        uintptr_t start = atomic_load(&slots[i].start);
        size_t size = atomic_load(&slots[i].size);
        if (!start || at < start || at - start >= size) continue;
        atomic_store(&slots[i].broken, true);
        uintptr_t page = at / page_size * page_size;
        return mmap((void *)page, start + size - page, PROT_READ,
                    MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    }
    return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    int saved = errno;
    bool fault = info->si_code > 0; /* raised by an access, not sent by a process */
    if (fault && repair((uintptr_t)info->si_addr)) {
        errno = saved;
        return;
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(sig);
    } else if (fault || previous.sa_handler == SIG_DFL) {
        signal(sig, SIG_DFL);
        if (!fault) raise(sig); /* a fault repeats by itself, with its address */
    }
    errno = saved;
}

static void install(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&sa.sa_mask);
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    /* Query first, then set: `previous` must be complete before our handler can run. */
    if (sigaction(SIGBUS, NULL, &previous) || sigaction(SIGBUS, &sa, NULL)) install_errno = errno;
}

static int slot_take(void)
{
    for (int i = 0; i < MAX_MAPS; i++) {
        bool expected = false;
        if (atomic_compare_exchange_strong(&slots[i].used, &expected, true)) return i;
    }
    return -1;
}

static weft_status check_regular(const char *path, mode_t mode)
{
    if (S_ISREG(mode)) return WEFT_OK;
    const char *kind = S_ISDIR(mode)    ? "a directory"
                       : S_ISFIFO(mode) ? "a FIFO"
                       : S_ISSOCK(mode) ? "a socket"
                       : S_ISCHR(mode)  ? "a character device"
                       : S_ISBLK(mode)  ? "a block device"
                                        : "a special file";
    return wf_fail(WEFT_ERR_IO, "%s is %s, not a regular file", path, kind);
}

weft_status wf_need_regular(const char *path)
{
    struct stat st;
    if (stat(path, &st)) return wf_fail(WEFT_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    return check_regular(path, st.st_mode);
}

/* Checks the type before and after opening, so that it neither blocks on a FIFO nor opens a device. */
static weft_status open_regular(const char *path, int *fd, struct stat *st)
{
    WF_TRY(wf_need_regular(path));
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) return wf_fail(WEFT_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    weft_status s = fstat(*fd, st)
                        ? wf_fail(WEFT_ERR_IO, "cannot stat %s: %s", path, strerror(errno))
                        : check_regular(path, st->st_mode);
    if (s) close(*fd);
    return s;
}

/* Watches the file of an open descriptor for writes, under whatever name it has by now. */
static int watch_fd(int fd)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return watcher < 0 ? -1 : inotify_add_watch(watcher, path, IN_MODIFY);
}

/* An event says that one file was written to, or that events were lost: then it may be any. */
static void take_event(const struct inotify_event *e)
{
    for (size_t i = 0; i < MAX_MAPS; i++)
        if (atomic_load(&slots[i].start) &&
            ((e->mask & IN_MODIFY && slots[i].watch == e->wd) || e->mask & IN_Q_OVERFLOW))
            atomic_store(&slots[i].broken, true);
}

static weft_status map_fd(const char *path, int fd, const struct stat *st, wf_map *out)
{
    if ((uint64_t)st->st_size > SIZE_MAX / 2)
        return wf_fail(WEFT_ERR_IO, "%s is too large to map (%lld bytes)", path,
                       (long long)st->st_size);
    int i = slot_take();
    if (i < 0)
        return wf_fail(WEFT_ERR_IO, "cannot map %s: %d files are already mapped", path, MAX_MAPS);
    size_t size = (size_t)st->st_size;
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        int e = errno;
        atomic_store(&slots[i].used, false);
        return wf_fail(WEFT_ERR_IO, "cannot map %s (%zu bytes): %s", path, size, strerror(e));
    }
    madvise(p, size, MADV_HUGEPAGE); /* faster streaming, if the kernel supports it for files */
    atomic_store(&slots[i].broken, false);
    atomic_store(&slots[i].size, WF_UP(size, page_size));
    pthread_mutex_lock(&watch_lock);
    slots[i].fd = fd;
    slots[i].watch = watch_fd(fd);
    slots[i].st = *st;
    atomic_store(&slots[i].start, (uintptr_t)p);
    pthread_mutex_unlock(&watch_lock);
    *out = (wf_map){p, size, i};
    return WEFT_OK;
}

weft_status wf_map_open(const char *path, wf_map *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    *out = (wf_map){(const uint8_t *)"", 0, -1};
    if (install_errno)
        return wf_fail(WEFT_ERR_IO, "cannot install the SIGBUS handler: %s",
                       strerror(install_errno));
    int fd = -1;
    struct stat st;
    WF_TRY(open_regular(path, &fd, &st));
    weft_status s = st.st_size ? map_fd(path, fd, &st, out) : WEFT_OK; /* mmap refuses 0 bytes */
    if (s || out->slot < 0) close(fd);
    return s;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* A write sets the time before it changes anything, and tells of itself when it is done. So a new time alone is looked
 * at again later: if nothing is told by then, somebody only touched the file. */
static void look(struct slot *s)
{
    struct stat now = {0};
    if (fstat(s->fd, &now) || now.st_size != s->st.st_size) atomic_store(&s->broken, true);
    bool touched = !same_time(&now.st_mtim, &s->st.st_mtim);
    if (touched && s->watch < 0) atomic_store(&s->broken, true);
    if (touched && !atomic_load(&s->broken)) wf_sleep_ns(WRITE_NS);
    s->st.st_mtim = now.st_mtim;
    _Alignas(struct inotify_event) char buf[4096];
    ssize_t n;
    while (watcher >= 0 && (n = read(watcher, buf, sizeof buf)) > 0)
        for (char *at = buf; at < buf + n; at += sizeof(struct inotify_event) + ((const struct inotify_event *)at)->len)
            take_event((const struct inotify_event *)at);
}

bool wf_map_broken(const wf_map *m)
{
    if (m->slot < 0) return false;
    struct slot *s = &slots[m->slot];
    pthread_mutex_lock(&watch_lock);
    if (!atomic_load(&s->broken)) look(s);
    pthread_mutex_unlock(&watch_lock);
    return atomic_load(&s->broken);
}

bool wf_map_is_of(const wf_map *m, const struct stat *st)
{
    return m->slot >= 0 && slots[m->slot].st.st_dev == st->st_dev && slots[m->slot].st.st_ino == st->st_ino;
}

void wf_map_advise_cold(const wf_map *m)
{
    if (m->slot >= 0) madvise((void *)m->data, m->size, MADV_DONTNEED);
}

void wf_map_close(wf_map *m)
{
    if (m->slot >= 0) {
        struct slot *s = &slots[m->slot];
        pthread_mutex_lock(&watch_lock);
        bool last = s->watch >= 0;
        for (size_t i = 0; i < MAX_MAPS; i++)
            if (&slots[i] != s && atomic_load(&slots[i].start) && slots[i].watch == s->watch) last = false;
        if (last) inotify_rm_watch(watcher, s->watch);
        atomic_store(&s->start, 0);
        pthread_mutex_unlock(&watch_lock);
        munmap((void *)m->data, m->size);
        close(s->fd);
        atomic_store(&s->used, false);
    }
    *m = (wf_map){(const uint8_t *)"", 0, -1};
}

/* ---- whole files ----------------------------------------------------------------------------- */

weft_status wf_read_fd(int fd, const char *path, size_t max, char **out, size_t *len)
{
    char *buf = NULL;
    size_t n = 0, cap = 0;
    for (;;) {
        if (cap - n < 2) {
            size_t want =
                WF_MIN(WF_MAX(cap * 2, (size_t)4096), max + 2); /* one byte over max, and the NUL */
            char *p = realloc(buf, want);
            if (!p) {
                free(buf);
                return wf_fail(WEFT_ERR_NOMEM, "out of host memory reading %s (%zu bytes)", path,
                               want);
            }
            buf = p;
            cap = want;
        }
        ssize_t got = read(fd, buf + n, cap - n - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || n + (size_t)got > max) {
            weft_status s = got < 0
                                ? wf_fail(WEFT_ERR_IO, "cannot read %s: %s", path, strerror(errno))
                                : wf_fail(WEFT_ERR_IO, "%s has more than %zu bytes", path, max);
            free(buf);
            return s;
        }
        if (got == 0) break;
        n += (size_t)got;
    }
    buf[n] = 0;
    *out = buf;
    *len = n;
    return WEFT_OK;
}

weft_status wf_read_file(const char *path, size_t max, char **out, size_t *len)
{
    if (max > SIZE_MAX / 4) max = SIZE_MAX / 4;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return wf_fail(WEFT_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    weft_status s = wf_read_fd(fd, path, max, out, len);
    close(fd);
    return s;
}

#define MAX_LINES_BYTES (4u << 20)

weft_status wf_parse_lines(char *text, const char *head, wf_line_fn fn, void *user)
{
    char *rest = text;
    for (unsigned number = 1; rest; number++) {
        char *line = strsep(&rest, "\n");
        line[strcspn(line, "#\r")] = 0;
        if (number == 1 && strcmp(line, head))
            return wf_fail(WEFT_ERR_FORMAT, "not a file of this kind: the first line is not '%s'", head);
        if (number == 1 || !line[strspn(line, " \t")]) continue;
        weft_status s = fn(user, line);
        if (s) return wf_fail_context(s, "line %u", number);
    }
    return WEFT_OK;
}

weft_status wf_read_lines(const char *path, const char *head, wf_line_fn fn, void *user)
{
    char *text = NULL;
    size_t len;
    WF_TRY(wf_need_regular(path));
    WF_TRY(wf_read_file(path, MAX_LINES_BYTES, &text, &len));
    weft_status s = strlen(text) == len ? wf_parse_lines(text, head, fn, user)
                                        : wf_fail(WEFT_ERR_FORMAT, "holds a zero byte");
    free(text);
    return s ? wf_fail_context(s, "%s", path) : WEFT_OK;
}

/* ---- atomic writes --------------------------------------------------------------------------- */

static weft_status cannot_write(const char *path)
{
    return wf_fail(WEFT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

/* Does the name still belong to the open file? */
static bool is_named(int fd, const char *path)
{
    struct stat mine, there;
    return !fstat(fd, &mine) && !lstat(path, &there) && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* A new file, locked. What has the name, also a link that somebody planted, is removed, unless it is locked: another
 * program writes it. Negative: errno. */
static int open_new(const char *path)
{
    for (;;) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
        bool fresh = fd >= 0;
        if (!fresh) fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        bool locked = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB), busy = fd >= 0 && !locked && errno == EWOULDBLOCK;
        if (fresh && !busy && is_named(fd, path)) return fd; /* a file system without locks has none to respect */
        bool stuck = !fresh && !busy && (fd < 0 || is_named(fd, path)) && unlink(path) && errno != ENOENT;
        int e = busy ? EBUSY : errno;
        if (fd >= 0) close(fd);
        if ((busy && !fresh) || stuck) return errno = e, -1;
    }
}

weft_status wf_output_open(const char *path, wf_output *o)
{
    struct stat st;
    bool regular = stat(path, &st) || S_ISREG(st.st_mode);
    if (!realpath(path, o->path)) wf_copy(o->path, sizeof o->path, path);
    int n = snprintf(o->tmp_path, sizeof o->tmp_path, "%s.new.part", o->path);
    if (n < 0 || (size_t)n >= sizeof o->tmp_path || strlen(path) >= sizeof o->path)
        return wf_fail(WEFT_ERR_ARG, "the path is too long: %s", path);
    if (!regular) *o->tmp_path = 0;
    int fd = regular ? open_new(o->tmp_path) : open(o->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    o->f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (fd >= 0 && !o->f) close(fd);
    return o->f ? WEFT_OK : cannot_write(path);
}

weft_status wf_output_end(wf_output *o, bool whole)
{
    bool failed = ferror(o->f) || fflush(o->f);
    if (whole && !failed && *o->tmp_path) failed = fsync(fileno(o->f)) != 0; /* the name must not outlive the bytes */
    if (whole && !failed && *o->tmp_path) failed = rename(o->tmp_path, o->path) != 0;
    if (*o->tmp_path && (!whole || failed)) unlink(o->tmp_path); /* while it is locked: another may be there soon */
    failed |= fclose(o->f) != 0;
    return whole && failed ? cannot_write(o->path) : WEFT_OK;
}

weft_status wf_output_check(const char *path)
{
    struct stat st;
    wf_output o;
    WF_TRY(wf_not_a_model(path));
    bool there = !stat(path, &st), special = there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    if (!*path) return wf_fail(WEFT_ERR_ARG, "the name of the output file is empty");
    if (there && access(path, W_OK)) return cannot_write(path);
    if (special) return WEFT_OK; /* closing a pipe would look like its end to the reader */
    WF_TRY(wf_output_open(path, &o));
    return wf_output_end(&o, false);
}

/* ---- the user's folders ----------------------------------------------------------------------------- */

/* Creates the folder and its parents as private; existing ones are not changed. */
static bool make_path(const char *path)
{
    char part[4096];
    if (strlen(path) >= sizeof part) return false;
    wf_copy(part, sizeof part, path);
    for (char *p = part + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(part, 0700) && errno != EEXIST) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool try_folder(char *buf, size_t cap, bool shared_parent, const char *base,
                       const char *tail)
{
    if (!base || base[0] != '/') return false; /* XDG: relative paths are ignored */
    int n = snprintf(buf, cap, "%s%s", base, tail);
    /* Is it owned and writable only by this user? Otherwise others could plant binaries in it. In a shared parent
     * (/tmp) links are not followed: they might point to another folder of this user. */
    if (n <= 0 || (size_t)n >= cap || !make_path(buf)) return false;
    struct stat st;
    int fd = open(buf, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (shared_parent ? O_NOFOLLOW : 0));
    if (fd < 0) return false;
    bool ok = fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022) &&
              faccessat(AT_FDCWD, buf, W_OK | X_OK, AT_EACCESS) == 0;
    close(fd);
    return ok;
}

weft_status wf_folder_check(const char *path)
{
    struct stat st;
    bool there = make_path(path);
    if (there && !stat(path, &st) && !S_ISDIR(st.st_mode))
        return wf_fail(WEFT_ERR_IO, "cannot write to %s: it is not a folder", path);
    if (there && !faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS)) return WEFT_OK;
    return wf_fail(WEFT_ERR_IO, "cannot write to %s: %s", path, strerror(errno));
}

weft_status wf_cache_dir(char *buf, size_t cap)
{
    char tail[32];
    snprintf(tail, sizeof tail, "/weft-%lu", (unsigned long)geteuid());
    if (try_folder(buf, cap, false, getenv("XDG_CACHE_HOME"), "/weft") ||
        try_folder(buf, cap, false, getenv("HOME"), "/.cache/weft") ||
        try_folder(buf, cap, true, "/tmp", tail))
        return WEFT_OK;
    if (cap) buf[0] = 0;
    return wf_fail(WEFT_ERR_IO,
                   "no cache folder: none of $XDG_CACHE_HOME/weft, ~/.cache/weft and /tmp%s "
                   "can be created, owned and writable by this user only",
                   tail);
}

weft_status wf_user_dir(enum wf_user_dir kind, const char *name, bool make, char *buf, size_t cap)
{
    static const struct {
        const char *variable, *folder;
    } kinds[] = {
        [WF_DIR_CONFIG] = {"XDG_CONFIG_HOME", ".config"},
        [WF_DIR_DATA] = {"XDG_DATA_HOME", ".local/share"},
        [WF_DIR_STATE] = {"XDG_STATE_HOME", ".local/state"},
    };
    const char *xdg = getenv(kinds[kind].variable), *home = getenv("HOME");
    bool own = xdg && xdg[0] == '/';
    if (!own && (!home || home[0] != '/'))
        return wf_fail(WEFT_ERR_IO, "no folder for %s: set HOME or %s", name, kinds[kind].variable);
    int n = snprintf(buf, cap, "%s/%s%s%s", own ? xdg : home, own ? "" : kinds[kind].folder, own ? "" : "/", name);
    if (n < 0 || (size_t)n >= cap) return wf_fail(WEFT_ERR_IO, "the path of the folder for %s is too long", name);
    if (make && !make_path(buf)) return wf_fail(WEFT_ERR_IO, "cannot create %s: %s", buf, strerror(errno));
    return WEFT_OK;
}

weft_status wf_not_a_model(const char *path)
{
    char magic[4] = "";
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return WEFT_OK;
    FILE *f = fopen(path, "rb");
    bool model = f && fread(magic, 1, 4, f) == 4 && !memcmp(magic, "GGUF", 4);
    if (f) fclose(f);
    return model ? wf_fail(WEFT_ERR_ARG, "%s is a model: choose another output file", path) : WEFT_OK;
}

/* ---- one file by two names ------------------------------------------------------------------------- */

/* The folder of a file, which may not be there yet. */
static bool stat_folder(const char *path, struct stat *st)
{
    char folder[PATH_MAX];
    wf_copy(folder, sizeof folder, path);
    char *name = strrchr(folder, '/');
    if (name) name[name == folder] = 0;
    return !stat(name ? folder : ".", st);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool wf_same_file(const char *a, const char *b)
{
    struct stat x, y;
    bool there = !stat(a, &x) && !stat(b, &y);
    if (!there && (strcmp(name_of(a), name_of(b)) || !stat_folder(a, &x) || !stat_folder(b, &y))) return false;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
