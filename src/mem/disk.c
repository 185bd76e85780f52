/* disk: see disk.h. From top to bottom: the file; what a slot says; threads; what the engine calls. */
#include "mem/disk.h"
#include "base/blake2b.h"
#include "mem/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGN     4096u /* of slots and their content, in bytes */
#define WAITING   64    /* transfers each way that wait at most */
#define SCANNERS  8     /* threads that read the heads of slots at the start */
#define MOST_TOKENS 1024 /* of a page */
#define IN_A_ROW  16    /* failures after which the disk is left alone for a while */
#define PAUSE_NS  30000000000ull

static const char magic[8] = "weftKV1";

typedef struct file_head {
    char magic[8];
    uint64_t page_tokens, slot_bytes;
} file_head;

/* Followed by the tokens. */
typedef struct slot_head {
    char magic[8];
    uint64_t slot, table, page_tokens, sequence; /* sequence: of writes */
    wf_key key, identity;
    uint8_t content[32]; /* code of K and V */
    uint8_t code[32];    /* of all that is before it, and of the tokens */
} slot_head;

typedef struct transfer {
    enum { IDLE, WAITS, RUNS, ENDED } state;
    bool write, erase;
    int error; /* of errno; EBADMSG: it is not the block that was to be read; ECANCELED: it was not tried */
    int32_t slot, tag;
    uint32_t table;
    uint64_t order, sequence, ns;
    wf_key key;
    void *data;
} transfer;

/* A thread that a disk keeps waiting may outlive the memory that it was to read or to write: it has a slot of its own,
 * and touches the rest while `touching` says so. */
typedef struct worker {
    wf_disk *d;
    uint8_t *slot;
    pthread_t thread;
} worker;

struct wf_disk {
    wf_disk_params p;
    wf_disk_io io;
    int fd;
    uint8_t secret[32];
    uint32_t head_bytes;
    uint64_t slot_bytes, sequence;
    wf_store blocks;
    int32_t to_erase; /* a list of dead slots, each with a pin; -1: none */
    uint32_t n_found, n_out, in_a_row; /* n_out: transfers that were not taken back */
    uint64_t paused_until_ns, erase_ns; /* 0: it is not; no erase begins before */
    struct weft_kv_tier_stats stats;
    uint8_t *memory; /* of the workers */
    worker workers[WF_DISK_THREADS];
    uint32_t n_started;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t wake, changed;
    bool stop, left_behind; /* left_behind: the last thread frees it */
    uint32_t n_threads, running, touching; /* threads that have not left; transfers that run; threads */
    uint64_t order;
    transfer list[2 * WAITING];
};

/* ---- the file -------------------------------------------------------------------------------------------------- */

static weft_status no_file(const wf_disk *d, const char *what)
{
    return wf_fail(WEFT_ERR_IO, "KV blocks on disk: cannot %s %s: %s", what, d->p.path, strerror(errno));
}

/* All of it, or what is wrong: a file that ends before, or a disk that has no more room, is a failure like others. */
static int read_all(const wf_disk *d, void *data, size_t n, uint64_t at)
{
    for (uint8_t *p = data; n;) {
        ssize_t got = d->io.read(d->fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got ? errno : ENODATA;
        p += got, at += (uint64_t)got, n -= (size_t)got;
    }
    return 0;
}

static int write_all(const wf_disk *d, const void *data, size_t n, uint64_t at)
{
    for (const uint8_t *p = data; n;) {
        ssize_t put = d->io.write(d->fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put ? errno : ENOSPC;
        p += put, at += (uint64_t)put, n -= (size_t)put;
    }
    return 0;
}

static bool only_owners(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077);
}

/* The secret lies beside the file: who cannot read it cannot make a block. */
static weft_status take_secret(wf_disk *d)
{
    char path[PATH_MAX];
    struct stat st;
    if ((size_t)snprintf(path, sizeof path, "%s.secret", d->p.path) >= sizeof path)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: the path %s is too long", d->p.path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return wf_fail(WEFT_ERR_IO, "KV blocks on disk: cannot open %s: %s", path, strerror(errno));
    bool ok = !fstat(fd, &st) && only_owners(&st) && (!st.st_size || st.st_size == sizeof d->secret);
    if (ok && !st.st_size)
        ok = getrandom(d->secret, sizeof d->secret, 0) == sizeof d->secret &&
             pwrite(fd, d->secret, sizeof d->secret, 0) == sizeof d->secret && !fsync(fd);
    else if (ok) ok = pread(fd, d->secret, sizeof d->secret, 0) == sizeof d->secret;
    close(fd);
    return ok ? WEFT_OK
              : wf_fail(WEFT_ERR_ARG,
                        "KV blocks on disk: %s is not the secret of 32 bytes that only its owner reads (mode 0600): "
                        "remove it and the blocks beside it, or name another file",
                        path);
}

/* An empty one, or one of blocks of another size, begins anew. */
static weft_status take_file(wf_disk *d)
{
    struct stat st;
    file_head head = {.page_tokens = d->p.page_tokens, .slot_bytes = d->slot_bytes}, old;
    memcpy(head.magic, magic, sizeof magic);
    d->fd = open(d->p.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->fd < 0) return no_file(d, "open");
    if (flock(d->fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK ? wf_fail(WEFT_ERR_ARG,
                                              "KV blocks on disk: another process uses %s, or a transfer of "
                                              "this one that hangs: give each its own file",
                                              d->p.path)
                                    : no_file(d, "lock");
    if (fstat(d->fd, &st)) return no_file(d, "read");
    bool is_ours = S_ISREG(st.st_mode) && (!st.st_size || (pread(d->fd, &old, sizeof old, 0) == sizeof old &&
                                                           !memcmp(old.magic, magic, sizeof magic)));
    if (!is_ours)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s is something else: name a file that is not there yet",
                       d->p.path);
    if (!only_owners(&st))
        return wf_fail(WEFT_ERR_ARG,
                       "KV blocks on disk: others may read or write %s, which holds what clients wrote: chmod 600, or "
                       "name a file that is not there yet",
                       d->p.path);
    bool same = st.st_size && !memcmp(&old, &head, sizeof head);
    if (st.st_size && !same) wf_log(WEFT_LOG_WARN, "%s held KV blocks of another size, and begins anew", d->p.path);
    if (!same && (ftruncate(d->fd, 0) || pwrite(d->fd, &head, sizeof head, 0) != sizeof head))
        return no_file(d, "write");
    return ftruncate(d->fd, (off_t)(ALIGN + d->blocks.n * d->slot_bytes)) ? no_file(d, "resize") : WEFT_OK;
}

/* ---- what a slot says ------------------------------------------------------------------------------------------ */

static uint64_t slot_at(const wf_disk *d, int32_t slot)
{
    return ALIGN + (uint64_t)slot * d->slot_bytes;
}

static void content_code(const wf_disk *d, const void *data, uint8_t *code)
{
    wf_blake2b b;
    wf_blake2b_begin(&b, 32, d->secret, sizeof d->secret);
    wf_blake2b_field(&b, "content", 7);
    wf_blake2b_add(&b, data, d->p.page_bytes);
    wf_blake2b_end(&b, code);
}

static void head_code(const wf_disk *d, const slot_head *h, const int32_t *tokens, uint8_t *code)
{
    wf_blake2b b;
    wf_blake2b_begin(&b, 32, d->secret, sizeof d->secret);
    wf_blake2b_field(&b, "head", 4);
    wf_blake2b_add(&b, h, offsetof(slot_head, code));
    wf_blake2b_add(&b, tokens, d->p.page_tokens * sizeof *tokens);
    wf_blake2b_end(&b, code);
}

/* Is that what this slot says, and does it hold a block of ours? */
static bool is_head(const wf_disk *d, int32_t slot, const slot_head *h, const int32_t *tokens)
{
    uint8_t code[32];
    if (memcmp(h->magic, magic, sizeof magic) || h->slot != (uint64_t)slot || h->page_tokens != d->p.page_tokens ||
        !wf_key_same(&h->identity, &d->p.identity)) return false;
    head_code(d, h, tokens, code);
    return !memcmp(code, h->code, sizeof code);
}

/* ... of a transfer, in memory of a slot's size. */
static int read_block(const wf_disk *d, const transfer *t, uint8_t *to)
{
    const slot_head *h = (const slot_head *)to;
    const int32_t *tokens = (const int32_t *)(h + 1);
    uint8_t code[32];
    int error = read_all(d, to, d->head_bytes + d->p.page_bytes, slot_at(d, t->slot));
    if (error) return error;
    content_code(d, to + d->head_bytes, code);
    bool same = is_head(d, t->slot, h, tokens) && wf_key_same(&h->key, &t->key) && h->table == t->table &&
        !memcmp(tokens, wf_store_tokens(&d->blocks, t->slot), d->p.page_tokens * sizeof *tokens) &&
        !memcmp(code, h->content, sizeof code);
    return same ? 0 : EBADMSG;
}

/* The content is in place. */
static int write_block(const wf_disk *d, const transfer *t, uint8_t *from)
{
    slot_head *h = (slot_head *)from;
    int32_t *tokens = (int32_t *)(h + 1);
    memset(from, 0, d->head_bytes);
    *h = (slot_head){.slot = (uint64_t)t->slot, .table = t->table, .page_tokens = d->p.page_tokens,
                     .sequence = t->sequence, .key = t->key, .identity = d->p.identity};
    memcpy(h->magic, magic, sizeof magic);
    memcpy(tokens, wf_store_tokens(&d->blocks, t->slot), d->p.page_tokens * sizeof *tokens);
    content_code(d, from + d->head_bytes, h->content);
    head_code(d, h, tokens, h->code);
    return write_all(d, from, d->head_bytes + d->p.page_bytes, slot_at(d, t->slot));
}

/* It would be found after a restart. */
static int erase_block(const wf_disk *d, const transfer *t)
{
    static const slot_head none;
    return write_all(d, &none, sizeof none, slot_at(d, t->slot));
}

/* ---- what an earlier process left ------------------------------------------------------------------------------ */

typedef struct scan {
    const wf_disk *d;
    uint32_t first;
    slot_head *heads; /* [slots] of all scanners; magic[0] 0: no block of ours */
    int32_t *tokens;
} scan;

static void *scan_slots(void *arg)
{
    const scan *s = arg;
    const wf_disk *d = s->d;
    for (uint32_t i = s->first; i < d->blocks.n; i += SCANNERS) {
        int32_t *tokens = s->tokens + (size_t)i * d->p.page_tokens;
        uint64_t at = slot_at(d, (int32_t)i);
        bool is_ours = !read_all(d, &s->heads[i], sizeof *s->heads, at) &&
            !read_all(d, tokens, d->p.page_tokens * sizeof *tokens, at + sizeof *s->heads) &&
            is_head(d, (int32_t)i, &s->heads[i], tokens);
        if (!is_ours) s->heads[i].magic[0] = 0;
    }
    return NULL;
}

static int by_sequence(const void *a, const void *b)
{
    const slot_head *x = *(slot_head *const *)a, *y = *(slot_head *const *)b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void restore_blocks(wf_disk *d, slot_head *heads, const int32_t *tokens, slot_head **order)
{
    for (uint32_t i = 0; i < d->blocks.n; i++) order[i] = &heads[i];
    qsort(order, d->blocks.n, sizeof *order, by_sequence);
    for (uint32_t i = 0; i < d->blocks.n; i++) {
        const slot_head *h = order[i];
        if (!h->magic[0]) continue;
        d->sequence = WF_MAX(d->sequence, h->sequence);
        wf_store_restore(&d->blocks, (int32_t)h->slot, &h->key, tokens + h->slot * d->p.page_tokens,
                         (uint32_t)h->table);
    }
    wf_store_list_free(&d->blocks);
    d->n_found = d->blocks.n_used;
}

static weft_status find_blocks(wf_disk *d)
{
    uint32_t n = d->blocks.n, started = 0;
    slot_head *heads = wf_calloc(n, sizeof *heads), **order = wf_calloc(n, sizeof *order);
    int32_t *tokens = wf_calloc(n, d->p.page_tokens * sizeof *tokens);
    bool ok = heads && order && tokens;
    scan s[SCANNERS];
    pthread_t threads[SCANNERS];
    for (; ok && started < SCANNERS; started++) {
        s[started] = (scan){d, started, heads, tokens};
        if (pthread_create(&threads[started], NULL, scan_slots, &s[started])) break;
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    ok = ok && started == SCANNERS;
    if (ok) restore_blocks(d, heads, tokens, order);
    free(heads);
    free(order);
    free(tokens);
    return ok ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: no memory to read what %s holds", d->p.path);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

/* Reads first, for somebody waits for them; then in order. NULL: none waits. */
static transfer *next_transfer(wf_disk *d)
{
    transfer *best = NULL;
    for (transfer *t = d->list; t < d->list + WF_LEN(d->list); t++)
        if (t->state == WAITS && (!best || t->write < best->write ||
                                  (t->write == best->write && t->order < best->order))) best = t;
    return best;
}

/* The lock is let go while it runs. What was to be read comes too late once nobody takes it back. */
static int run_transfer(worker *w, const transfer *t)
{
    wf_disk *d = w->d;
    bool is_copied = t->write && !t->erase;
    d->touching += is_copied;
    pthread_mutex_unlock(&d->lock);
    if (is_copied) {
        memcpy(w->slot + d->head_bytes, t->data, d->p.page_bytes);
        pthread_mutex_lock(&d->lock);
        d->touching--;
        pthread_cond_signal(&d->changed);
        pthread_mutex_unlock(&d->lock);
    }
    int error = t->erase ? erase_block(d, t) : t->write ? write_block(d, t, w->slot) : read_block(d, t, w->slot);
    pthread_mutex_lock(&d->lock);
    if (t->write || error || d->stop) return error;
    d->touching++;
    pthread_mutex_unlock(&d->lock);
    memcpy(t->data, w->slot + d->head_bytes, d->p.page_bytes);
    pthread_mutex_lock(&d->lock);
    d->touching--;
    return 0;
}

static void free_disk(wf_disk *d)
{
    if (d->fd >= 0) close(d->fd);
    pthread_cond_destroy(&d->wake);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    wf_store_free(&d->blocks);
    explicit_bzero(d->secret, sizeof d->secret);
    free(d->memory);
    free((char *)d->p.path);
    free(d);
}

static void *run_transfers(void *arg)
{
    worker *w = arg;
    wf_disk *d = w->d;
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        transfer *t = next_transfer(d);
        if (!t) {
            pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        uint64_t began_ns = wf_now_ns();
        t->state = RUNS;
        d->running++;
        t->error = run_transfer(w, t);
        t->ns = wf_now_ns() - began_ns;
        t->state = ENDED;
        d->running--;
        pthread_cond_signal(&d->changed);
    }
    bool last = !--d->n_threads && d->left_behind;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (last) free_disk(d);
    return NULL;
}

static weft_status start_threads(wf_disk *d)
{
    d->memory = wf_calloc(WF_DISK_THREADS, d->slot_bytes);
    if (!d->memory) return WEFT_ERR_NOMEM;
    for (worker *w = d->workers; w < d->workers + WF_DISK_THREADS; w++) {
        *w = (worker){.d = d, .slot = d->memory + (size_t)(w - d->workers) * d->slot_bytes};
        pthread_mutex_lock(&d->lock);
        bool failed = pthread_create(&w->thread, NULL, run_transfers, w);
        d->n_threads += !failed;
        pthread_mutex_unlock(&d->lock);
        if (failed) return wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: cannot start a thread");
        d->n_started++;
    }
    return WEFT_OK;
}

/* How many slots the file may have, and how large they are. */
static weft_status take_sizes(wf_disk *d, uint32_t *slots)
{
    const wf_disk_params *p = &d->p;
    uint64_t most = WF_MIN(p->bytes, (uint64_t)INT64_MAX), n = 0;
    if (p->page_tokens > MOST_TOKENS)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %u tokens: at most %d", p->page_tokens, MOST_TOKENS);
    d->head_bytes = (uint32_t)WF_UP(sizeof(slot_head) + p->page_tokens * sizeof(int32_t), ALIGN);
    if (p->page_bytes < most) {
        d->slot_bytes = WF_UP(d->head_bytes + p->page_bytes, (uint64_t)ALIGN);
        n = most > ALIGN ? (most - ALIGN) / d->slot_bytes : 0;
    }
    *slots = (uint32_t)WF_MIN(n, (uint64_t)WF_STORE_MOST);
    return n ? WEFT_OK
             : wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s in %s hold no block of the KV cache, which takes more than "
                                     "%s there: give it more room", WF_HUMAN(p->bytes, true), p->path,
                       WF_HUMAN(p->page_bytes, true));
}

weft_status wf_disk_open(const wf_disk_params *p, wf_disk **out)
{
    wf_disk *d = wf_calloc(1, sizeof *d);
    uint32_t slots = 0;
    if (!d) return WEFT_ERR_NOMEM;
    d->p = *p;
    d->p.path = wf_strdup(p->path);
    d->io = p->io ? *p->io : (wf_disk_io){pread, pwrite};
    d->fd = d->to_erase = -1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    pthread_cond_init(&d->changed, NULL);
    weft_status s = d->p.path ? take_sizes(d, &slots) : WEFT_ERR_NOMEM;
    if (s == WEFT_OK) s = wf_store_init(&d->blocks, slots, p->page_tokens);
    if (s == WEFT_OK) s = take_file(d);
    if (s == WEFT_OK) s = take_secret(d);
    if (s == WEFT_OK) s = find_blocks(d);
    if (s == WEFT_OK) s = start_threads(d);
    if (s == WEFT_OK) *out = d;
    else wf_disk_close(d, 0);
    return s;
}

void wf_disk_close(wf_disk *d, uint64_t within_ns)
{
    if (!d) return;
    uint64_t until = wf_now_ns() + within_ns;
    d->paused_until_ns = d->erase_ns = 0; /* what is to be erased is, if it can be */
    for (wf_disk_end end; (wf_disk_done(d, &end) || wf_disk_busy(d)) && wf_now_ns() < until;) wf_sleep_ns(100000);
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->wake);
    while (d->n_threads > d->running || d->touching) pthread_cond_wait(&d->changed, &d->lock);
    bool hangs = d->n_threads;
    if (hangs)
        wf_log(WEFT_LOG_WARN, "KV blocks on disk: %u transfers hang, and %s stays taken until they end: look at the disk",
               d->n_threads, d->p.path);
    d->left_behind = hangs;
    pthread_t threads[WF_DISK_THREADS];
    uint32_t n = d->n_started;
    for (uint32_t i = 0; i < n; i++) threads[i] = d->workers[i].thread;
    pthread_mutex_unlock(&d->lock); /* the last thread may free it from now on */
    for (uint32_t i = 0; i < n; i++) hangs ? pthread_detach(threads[i]) : pthread_join(threads[i], NULL);
    if (!hangs) free_disk(d);
}

/* ---- what the engine calls ------------------------------------------------------------------------------------- */

uint32_t wf_disk_found(const wf_disk *d)
{
    return d->n_found;
}

struct weft_kv_tier_stats wf_disk_stats(const wf_disk *d)
{
    struct weft_kv_tier_stats s = d->stats;
    s.bytes = d->blocks.n * d->slot_bytes;
    s.used_bytes = d->blocks.n_used * d->p.page_bytes;
    s.evicted = d->blocks.evicted;
    return s;
}

bool wf_disk_pauses(const wf_disk *d)
{
    return d->paused_until_ns && wf_now_ns() < d->paused_until_ns;
}

wf_store *wf_disk_store(wf_disk *d)
{
    return &d->blocks;
}

/* Half of the places are for reads. Under lock. */
static transfer *free_place(wf_disk *d, bool write)
{
    transfer *first = d->list + (write ? WAITING : 0);
    for (transfer *t = first; t < first + WAITING; t++)
        if (t->state == IDLE) return t;
    return NULL;
}

static transfer *begin_transfer(wf_disk *d, bool write, int32_t slot, void *data, int32_t tag)
{
    const wf_stored_block *x = &d->blocks.slots[slot];
    pthread_mutex_lock(&d->lock);
    transfer *t = free_place(d, write);
    if (t) {
        *t = (transfer){.state = WAITS, .write = write, .slot = slot, .tag = tag, .table = x->table, .key = x->key,
                        .erase = write && !data, .order = d->order++, .data = data,
                        .sequence = write ? ++d->sequence : 0};
        pthread_cond_signal(&d->wake);
    }
    pthread_mutex_unlock(&d->lock);
    d->n_out += t != NULL;
    return t;
}

bool wf_disk_read(wf_disk *d, int32_t slot, void *data, int32_t tag)
{
    if (wf_disk_pauses(d)) return false;
    wf_store_pin(&d->blocks, slot);
    if (begin_transfer(d, false, slot, data, tag)) return true;
    wf_store_unpin(&d->blocks, slot);
    return false;
}

bool wf_disk_write(wf_disk *d, const wf_key *key, const int32_t *tokens, uint32_t table, const void *data, int32_t tag)
{
    if (wf_store_slot(&d->blocks, key, table) >= 0) return wf_store_touch(&d->blocks, key, table), false;
    int32_t slot = wf_disk_pauses(d) ? -1 : wf_store_take(&d->blocks, key, tokens, table, WF_STORED_COMING);
    if (slot >= 0 && begin_transfer(d, true, slot, (void *)(uintptr_t)data, tag)) return true;
    d->stats.dropped++;
    if (slot >= 0) wf_store_kill(&d->blocks, slot), wf_store_unpin(&d->blocks, slot);
    return false;
}

/* Of dead slots, which nobody takes before: as many as may wait. */
static void begin_erases(wf_disk *d)
{
    if (d->to_erase < 0 || wf_disk_pauses(d) || wf_now_ns() < d->erase_ns) return;
    while (d->to_erase >= 0) {
        int32_t slot = d->to_erase, next = d->blocks.slots[slot].next;
        if (!begin_transfer(d, true, slot, NULL, -1)) return;
        d->to_erase = next;
    }
}

static void erase_later(wf_disk *d, int32_t slot)
{
    d->blocks.slots[slot].next = d->to_erase;
    d->to_erase = slot;
}

/* One that is being written is erased when that is over. */
void wf_disk_forget(wf_disk *d, const wf_key *key, uint32_t table)
{
    int32_t slot = wf_store_slot(&d->blocks, key, table);
    if (slot < 0) return;
    bool comes = d->blocks.slots[slot].state == WF_STORED_COMING;
    if (!comes) wf_store_pin(&d->blocks, slot);
    wf_store_kill(&d->blocks, slot);
    if (!comes) erase_later(d, slot), begin_erases(d);
}

/* What waits is not tried. */
static void pause_disk(wf_disk *d, const char *why)
{
    d->in_a_row = IN_A_ROW - 1; /* then one more failure is enough */
    d->paused_until_ns = wf_now_ns() + PAUSE_NS;
    d->stats.paused++;
    wf_log(WEFT_LOG_WARN, "KV blocks on disk: %d transfers in a row failed, the last one with \"%s\": %s is left alone "
           "for %d s; look at the disk's health and room", IN_A_ROW, why, d->p.path, (int)(PAUSE_NS / 1000000000u));
    pthread_mutex_lock(&d->lock);
    for (transfer *t = d->list; t < d->list + WF_LEN(d->list); t++)
        if (t->state == WAITS) t->state = ENDED, t->error = ECANCELED;
    pthread_mutex_unlock(&d->lock);
}

static void count_failure(wf_disk *d, const transfer *t)
{
    const char *why = t->error == EBADMSG ? "it is damaged" : strerror(t->error);
    if (t->error == ECANCELED) {
        d->stats.dropped += t->write && !t->erase;
        return;
    }
    if (!d->stats.failed++)
        wf_log(WEFT_LOG_WARN, "KV blocks on disk: cannot %s a block in %s: %s. It is computed again; look at the disk's "
               "health and room if that goes on", t->erase ? "erase" : t->write ? "write" : "read", d->p.path, why);
    if (++d->in_a_row >= IN_A_ROW && !wf_disk_pauses(d)) pause_disk(d, why);
}

static void count_end(wf_disk *d, const transfer *t)
{
    struct weft_kv_tier_stats *s = &d->stats;
    if (t->error) count_failure(d, t);
    else d->in_a_row = 0;
    if (t->erase) return;
    *(t->write ? &s->store_ns : &s->load_ns) += t->ns;
    if (!t->error) *(t->write ? &s->stored_bytes : &s->loaded_bytes) += d->p.page_bytes;
}

/* Whatever is in a slot after a failure, it is not that block. */
static void end_transfer(wf_disk *d, const transfer *t)
{
    wf_store *b = &d->blocks;
    bool forgotten = t->write && !t->erase && b->slots[t->slot].state == WF_STORED_DEAD;
    d->n_out--;
    count_end(d, t);
    if (t->erase && t->error) d->erase_ns = wf_now_ns() + PAUSE_NS;
    if (forgotten || (t->erase && t->error)) {
        erase_later(d, t->slot);
        return;
    }
    if (t->error && (t->write || t->error != ECANCELED)) wf_store_kill(b, t->slot);
    else if (t->write && !t->erase) wf_store_ready(b, t->slot);
    wf_store_unpin(b, t->slot);
}

static bool take_ended(wf_disk *d, transfer *out)
{
    out->state = IDLE;
    pthread_mutex_lock(&d->lock);
    for (transfer *t = d->list; t < d->list + WF_LEN(d->list) && out->state != ENDED; t++)
        if (t->state == ENDED) *out = *t, t->state = IDLE;
    pthread_mutex_unlock(&d->lock);
    return out->state == ENDED;
}

bool wf_disk_done(wf_disk *d, wf_disk_end *out)
{
    transfer ended;
    bool found = false;
    while (!found && d->n_out && take_ended(d, &ended)) {
        end_transfer(d, &ended);
        found = !ended.erase;
    }
    begin_erases(d);
    if (found) *out = (wf_disk_end){ended.tag, ended.write, !ended.error, ended.ns};
    return found;
}

bool wf_disk_busy(const wf_disk *d)
{
    return d->n_out;
}
