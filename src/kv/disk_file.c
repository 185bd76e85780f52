/* disk_file: see disk_file.h. */
#include "kv/disk_file.h"
#include "base/blake2b.h"
#include "kv/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TOKENS 1024 /* of a page */

static const char magic[8] = "weftKV1";

typedef struct file_head {
    char magic[8];
    uint64_t page_tokens, slot_bytes, page_bytes;
} file_head;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static weft_status no_file(const char *path, const char *what)
{
    return wf_fail(WEFT_ERR_IO, "KV blocks on disk: cannot %s %s: %s", what, path,
                   errno == ELOOP ? "it is a symbolic link: name the file itself" : strerror(errno));
}

static bool only_owners(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077);
}

/* The secret lies beside the file: who cannot read it cannot make a block. */
static weft_status take_secret(wf_disk_file *f, int flags)
{
    char path[PATH_MAX];
    struct stat st;
    if ((size_t)snprintf(path, sizeof path, "%s.secret", f->path) >= sizeof path)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: the path %s is too long", f->path);
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ENOENT)
        return wf_fail(WEFT_ERR_IO, "KV blocks on disk: %s is missing, without which nobody reads a block: bring it "
                                    "back, or remove %s", path, f->path);
    if (fd < 0) return no_file(path, "open");
    bool ok = !fstat(fd, &st) && only_owners(&st) && (!st.st_size || st.st_size == sizeof f->secret);
    if (ok && !st.st_size && flags & O_CREAT)
        ok = getrandom(f->secret, sizeof f->secret, 0) == sizeof f->secret &&
             pwrite(fd, f->secret, sizeof f->secret, 0) == sizeof f->secret && !fsync(fd);
    else if (ok) ok = pread(fd, f->secret, sizeof f->secret, 0) == sizeof f->secret;
    close(fd);
    return ok ? WEFT_OK
              : wf_fail(WEFT_ERR_ARG,
                        "KV blocks on disk: %s is not the secret of 32 bytes that only its owner reads (mode 0600): "
                        "remove it and the blocks beside it, or name another file",
                        path);
}

/* The file is this process's, and its owner's. head: what it begins with; all zero: it is empty. */
static weft_status lock_file(wf_disk_file *f, int flags, file_head *head, uint64_t *bytes)
{
    struct stat st;
    *head = (file_head){0};
    f->fd = open(f->path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) return no_file(f->path, "open");
    if (flock(f->fd, (flags & O_RDWR ? LOCK_EX : LOCK_SH) | LOCK_NB))
        return errno != EWOULDBLOCK
            ? no_file(f->path, "lock")
            : wf_fail(WEFT_ERR_ARG, "KV blocks on disk: another process uses %s, or a transfer of this one that hangs: "
                                    "end it, or name another file", f->path);
    if (fstat(f->fd, &st)) return no_file(f->path, "read");
    if (!S_ISREG(st.st_mode) || (st.st_size && (pread(f->fd, head, sizeof *head, 0) != sizeof *head ||
                                                memcmp(head->magic, magic, sizeof magic))))
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: weft did not make %s: name %s", f->path,
                       flags & O_CREAT ? "a file that is not there yet" : "one that it made");
    if (!only_owners(&st))
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: others may read or write %s, which holds what clients wrote: "
                                     "chmod 600, or name a file that is not there yet", f->path);
    *bytes = (uint64_t)st.st_size;
    return WEFT_OK;
}

/* Slots in so many bytes; 0: not one. Sums of numbers that make no sense do not come out small. */
static uint64_t take_sizes(wf_disk_file *f, uint64_t bytes, uint32_t page_tokens, uint64_t page_bytes)
{
    uint64_t most = WF_MIN(bytes, (uint64_t)INT64_MAX);
    f->page_tokens = page_tokens, f->page_bytes = page_bytes;
    f->head_bytes = (uint32_t)WF_UP(sizeof(wf_disk_head) + page_tokens * sizeof(int32_t), WF_DISK_ALIGN);
    f->slot_bytes = page_bytes < most ? WF_UP(f->head_bytes + page_bytes, (uint64_t)WF_DISK_ALIGN) : 0;
    uint64_t n = f->slot_bytes && most > WF_DISK_ALIGN ? (most - WF_DISK_ALIGN) / f->slot_bytes : 0;
    f->n = (uint32_t)WF_MIN(n, (uint64_t)WF_STORE_MOST);
    return f->n;
}

/* Not every file system has a way past the page cache, and some say so at the first transfer only. */
static void open_direct(wf_disk_file *f, int flags)
{
    _Alignas(WF_DISK_ALIGN) uint8_t begin[WF_DISK_ALIGN];
    struct stat own, other;
    f->direct = open(f->path, (flags & O_RDWR) | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    if (f->direct < 0) return;
    bool same = !fstat(f->fd, &own) && !fstat(f->direct, &other) && own.st_ino == other.st_ino &&
        own.st_dev == other.st_dev;
    if (same && pread(f->direct, begin, sizeof begin, 0) == sizeof begin) return;
    close(f->direct);
    f->direct = -1;
}

static weft_status begin_file(wf_disk_file *f, const char *path, const wf_disk_io *io)
{
    *f = (wf_disk_file){.path = wf_strdup(path), .io = io ? *io : (wf_disk_io){pread, pwrite}, .fd = -1, .direct = -1};
    return f->path ? WEFT_OK : WEFT_ERR_NOMEM;
}

weft_status wf_disk_file_make(const wf_disk_params *p, wf_disk_file *f)
{
    file_head head, old;
    uint64_t bytes;
    WF_TRY(begin_file(f, p->path, p->io));
    if (p->page_tokens > MOST_TOKENS)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %u tokens: at most %d", p->page_tokens, MOST_TOKENS);
    if (!take_sizes(f, p->bytes, p->page_tokens, p->page_bytes))
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s in %s hold no block of the KV cache, which takes more than "
                                     "%s there: give it more room",
                       WF_HUMAN(p->bytes, true), p->path, WF_HUMAN(p->page_bytes, true));
    WF_TRY(lock_file(f, O_RDWR | O_CREAT, &old, &bytes));
    head = (file_head){.page_tokens = f->page_tokens, .slot_bytes = f->slot_bytes, .page_bytes = f->page_bytes};
    memcpy(head.magic, magic, sizeof magic);
    bool same = bytes && !memcmp(&old, &head, sizeof head);
    if (bytes && !same) wf_log(WEFT_LOG_WARN, "%s held KV blocks of another size, and begins anew", f->path);
    if (!same && (ftruncate(f->fd, 0) || pwrite(f->fd, &head, sizeof head, 0) != sizeof head))
        return no_file(f->path, "write");
    if (ftruncate(f->fd, (off_t)(WF_DISK_ALIGN + f->n * f->slot_bytes))) return no_file(f->path, "resize");
    open_direct(f, O_RDWR);
    return take_secret(f, O_RDWR | O_CREAT);
}

weft_status wf_disk_file_open(const char *path, bool writes, wf_disk_file *f)
{
    file_head head;
    uint64_t bytes;
    WF_TRY(begin_file(f, path, NULL));
    WF_TRY(lock_file(f, writes ? O_RDWR : O_RDONLY, &head, &bytes));
    bool ok = head.page_tokens && head.page_tokens <= MOST_TOKENS && head.page_bytes < INT64_MAX;
    if (ok) {
        take_sizes(f, INT64_MAX, (uint32_t)head.page_tokens, head.page_bytes);
        ok = f->slot_bytes == head.slot_bytes;
    }
    if (!ok)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s says nothing of the blocks in it: remove it", path);
    uint64_t n = bytes > WF_DISK_ALIGN ? (bytes - WF_DISK_ALIGN) / f->slot_bytes : 0;
    f->n = (uint32_t)WF_MIN(n, (uint64_t)WF_STORE_MOST);
    return take_secret(f, O_RDONLY);
}

weft_status wf_disk_file_clear(wf_disk_file *f)
{
    f->n = 0;
    return ftruncate(f->fd, WF_DISK_ALIGN) ? no_file(f->path, "empty") : WEFT_OK;
}

void wf_disk_file_close(wf_disk_file *f)
{
    if (f->path && f->direct >= 0) close(f->direct);
    if (f->path && f->fd >= 0) close(f->fd);
    explicit_bzero(f->secret, sizeof f->secret);
    free(f->path);
    f->path = NULL;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static uint64_t slot_at(const wf_disk_file *f, uint32_t slot)
{
    return WF_DISK_ALIGN + slot * f->slot_bytes;
}

static bool is_aligned(const wf_disk_file *f, const void *data, size_t n, uint64_t at)
{
    return f->direct >= 0 && !(((uintptr_t)data | n | at) % WF_DISK_ALIGN);
}

/* One transfer, past the page cache where it can go that way. */
static ssize_t transfer_some(const wf_disk_file *f, bool write, void *data, size_t n, uint64_t at)
{
    for (bool direct = is_aligned(f, data, n, at);; direct = false) {
        int fd = direct ? f->direct : f->fd;
        ssize_t got = write ? f->io.write(fd, data, n, (off_t)at) : f->io.read(fd, data, n, (off_t)at);
        if (!direct || got >= 0 || errno != EINVAL) return got;
    }
}

/* All of it, or what is wrong: a file that ends before, or a disk that has no more room, is a failure like others. */
static int transfer_all(const wf_disk_file *f, bool write, void *data, size_t n, uint64_t at)
{
    for (uint8_t *p = data; n;) {
        ssize_t got = transfer_some(f, write, p, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got ? errno : write ? ENOSPC : ENODATA;
        p += got, at += (uint64_t)got, n -= (size_t)got;
    }
    return 0;
}

static void begin_code(const wf_disk_file *f, wf_blake2b *b, const char *what)
{
    wf_blake2b_begin(b, 32, f->secret, sizeof f->secret);
    wf_blake2b_field(b, what, strlen(what));
}

static void content_code(const wf_disk_file *f, const uint8_t *slot, uint8_t *code)
{
    wf_blake2b b;
    begin_code(f, &b, "content");
    wf_blake2b_add(&b, slot + f->head_bytes, f->page_bytes);
    wf_blake2b_end(&b, code);
}

static void head_code(const wf_disk_file *f, wf_disk_head *h, uint8_t *code)
{
    wf_blake2b b;
    begin_code(f, &b, "head");
    wf_blake2b_add(&b, h, offsetof(wf_disk_head, code));
    wf_blake2b_add(&b, wf_disk_head_tokens(h), f->page_tokens * sizeof(int32_t));
    wf_blake2b_end(&b, code);
}

static bool is_head(const wf_disk_file *f, uint32_t slot, wf_disk_head *h)
{
    uint8_t code[32];
    if (memcmp(h->magic, magic, sizeof magic) || h->slot != slot || h->page_tokens != f->page_tokens) return false;
    head_code(f, h, code);
    return !memcmp(code, h->code, sizeof code);
}

int wf_disk_file_head(const wf_disk_file *f, uint32_t slot, wf_disk_head *h)
{
    int error = transfer_all(f, false, h, sizeof *h + f->page_tokens * sizeof(int32_t), slot_at(f, slot));
    return error ? error : is_head(f, slot, h) ? 0 : EBADMSG;
}

int wf_disk_file_read(const wf_disk_file *f, uint32_t slot, void *to)
{
    wf_disk_head *h = to;
    uint8_t code[32];
    int error = transfer_all(f, false, to, f->slot_bytes, slot_at(f, slot));
    if (error) return error;
    content_code(f, to, code);
    return is_head(f, slot, h) && !memcmp(code, h->content, sizeof code) ? 0 : EBADMSG;
}

int wf_disk_file_write(const wf_disk_file *f, uint32_t slot, void *from)
{
    wf_disk_head *h = from;
    memcpy(h->magic, magic, sizeof magic);
    h->slot = slot, h->page_tokens = f->page_tokens;
    content_code(f, from, h->content);
    head_code(f, h, h->code);
    return transfer_all(f, true, from, f->slot_bytes, slot_at(f, slot));
}

int wf_disk_file_erase(const wf_disk_file *f, uint32_t slot)
{
    wf_disk_head none = {0};
    return transfer_all(f, true, &none, sizeof none, slot_at(f, slot));
}
