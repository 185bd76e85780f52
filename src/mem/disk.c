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
#define THREADS   4     /* a code of 2 MiB takes one 2 ms, a fast disk half a millisecond */
#define WAITING   64    /* transfers each way that wait at most */
#define SCANNERS  8     /* threads that read the heads of slots at the start */
#define MOST_TOKENS 1024 /* of a page */

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
    bool write, erase, ok;
    int32_t slot, tag;
    uint32_t table;
    uint64_t order, sequence, began_ns, ended_ns;
    wf_key key;
    void *data;
} transfer;

struct wf_disk {
    wf_disk_params p;
    wf_disk_io io;
    int fd;
    uint8_t secret[32];
    uint32_t head_bytes;
    uint64_t slot_bytes, sequence;
    wf_store blocks;
    uint32_t n_found;
    wf_disk_stats stats;
    pthread_t threads[THREADS];
    uint32_t n_threads, n_out; /* n_out: transfers that were not taken back */
    pthread_mutex_t lock;      /* of the rest */
    pthread_cond_t wake;
    bool stop;
    uint64_t order;
    transfer list[2 * WAITING];
};

/* ---- the file -------------------------------------------------------------------------------------------------- */

static weft_status no_file(const wf_disk *d, const char *what)
{
    return wf_fail(WEFT_ERR_IO, "KV blocks on disk: cannot %s %s: %s", what, d->p.path, strerror(errno));
}

/* All of it, or false: a file that ends before, or a disk that has no more room, is a failure like others. */
static bool read_all(const wf_disk *d, void *data, size_t n, uint64_t at)
{
    for (uint8_t *p = data; n;) {
        ssize_t got = d->io.read(d->fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got, at += (uint64_t)got, n -= (size_t)got;
    }
    return true;
}

static bool write_all(const wf_disk *d, const void *data, size_t n, uint64_t at)
{
    for (const uint8_t *p = data; n;) {
        ssize_t put = d->io.write(d->fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        p += put, at += (uint64_t)put, n -= (size_t)put;
    }
    return true;
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
    d->fd = open(d->p.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->fd < 0) return no_file(d, "open");
    if (flock(d->fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK ? wf_fail(WEFT_ERR_ARG,
                                              "KV blocks on disk: another process uses %s: give each its own file",
                                              d->p.path)
                                    : no_file(d, "lock");
    if (fstat(d->fd, &st)) return no_file(d, "read");
    bool is_ours = S_ISREG(st.st_mode) && (!st.st_size || (pread(d->fd, &old, sizeof old, 0) == sizeof old &&
                                                           !memcmp(old.magic, magic, sizeof magic)));
    if (!is_ours)
        return wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s is something else: name a file that is not there yet",
                       d->p.path);
    if (st.st_size && !only_owners(&st))
        return wf_fail(WEFT_ERR_ARG,
                       "KV blocks on disk: others may read or write %s, which holds what clients wrote: chmod 600",
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

/* Reads the head of a slot, with its tokens; false: it holds no block of ours. */
static bool read_head(const wf_disk *d, int32_t slot, slot_head *h, int32_t *tokens)
{
    uint8_t code[32];
    if (!read_all(d, h, sizeof *h, slot_at(d, slot)) || memcmp(h->magic, magic, sizeof magic)) return false;
    if (h->slot != (uint64_t)slot || h->page_tokens != d->p.page_tokens || !wf_key_same(&h->identity, &d->p.identity))
        return false;
    if (!read_all(d, tokens, d->p.page_tokens * sizeof *tokens, slot_at(d, slot) + sizeof *h)) return false;
    head_code(d, h, tokens, code);
    return !memcmp(code, h->code, sizeof code);
}

static bool read_block(const wf_disk *d, const transfer *t)
{
    slot_head h;
    uint8_t code[32];
    int32_t tokens[MOST_TOKENS];
    if (!read_head(d, t->slot, &h, tokens) || !wf_key_same(&h.key, &t->key) || h.table != t->table ||
        memcmp(tokens, wf_store_tokens(&d->blocks, t->slot), d->p.page_tokens * sizeof *tokens) ||
        !read_all(d, t->data, d->p.page_bytes, slot_at(d, t->slot) + d->head_bytes)) return false;
    content_code(d, t->data, code);
    return !memcmp(code, h.content, sizeof code);
}

/* The head comes last, but nothing depends on it. */
static bool write_block(const wf_disk *d, const transfer *t)
{
    const int32_t *tokens = wf_store_tokens(&d->blocks, t->slot);
    size_t n = d->p.page_tokens * sizeof *tokens;
    slot_head h = {.slot = (uint64_t)t->slot, .table = t->table, .page_tokens = d->p.page_tokens,
                   .sequence = t->sequence, .key = t->key, .identity = d->p.identity};
    memcpy(h.magic, magic, sizeof magic);
    content_code(d, t->data, h.content);
    head_code(d, &h, tokens, h.code);
    return write_all(d, t->data, d->p.page_bytes, slot_at(d, t->slot) + d->head_bytes) &&
           write_all(d, tokens, n, slot_at(d, t->slot) + sizeof h) && write_all(d, &h, sizeof h, slot_at(d, t->slot));
}

/* It would be found after a restart. */
static bool erase_block(const wf_disk *d, const transfer *t)
{
    static const slot_head none;
    return write_all(d, &none, sizeof none, slot_at(d, t->slot));
}

/* ---- what an earlier process left ------------------------------------------------------------------------------ */

typedef struct scan {
    const wf_disk *d;
    uint32_t first;
    slot_head *heads; /* [slots] of all scanners; magic[0] 0: no block */
    int32_t *tokens;
} scan;

static void *scan_slots(void *arg)
{
    const scan *s = arg;
    for (uint32_t i = s->first; i < s->d->blocks.n; i += SCANNERS)
        if (!read_head(s->d, (int32_t)i, &s->heads[i], s->tokens + (size_t)i * s->d->p.page_tokens))
            s->heads[i].magic[0] = 0;
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
        d->n_found += wf_store_restore(&d->blocks, (int32_t)h->slot, &h->key,
                                        tokens + h->slot * d->p.page_tokens, (uint32_t)h->table);
    }
    wf_store_list_free(&d->blocks);
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

static void *run_transfers(void *arg)
{
    wf_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        transfer *t = next_transfer(d);
        if (!t) {
            pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        t->state = RUNS;
        pthread_mutex_unlock(&d->lock);
        t->began_ns = wf_now_ns();
        t->ok = t->erase ? erase_block(d, t) : t->write ? write_block(d, t) : read_block(d, t);
        t->ended_ns = wf_now_ns();
        pthread_mutex_lock(&d->lock);
        t->state = ENDED;
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

weft_status wf_disk_open(const wf_disk_params *p, wf_disk **out)
{
    wf_disk *d = wf_calloc(1, sizeof *d);
    if (!d) return WEFT_ERR_NOMEM;
    d->p = *p;
    d->p.path = wf_strdup(p->path);
    d->io = p->io ? *p->io : (wf_disk_io){pread, pwrite};
    d->fd = -1;
    d->head_bytes = (uint32_t)WF_UP(sizeof(slot_head) + p->page_tokens * sizeof(int32_t), ALIGN);
    d->slot_bytes = WF_UP(d->head_bytes + p->page_bytes, (uint64_t)ALIGN);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    uint64_t n = p->bytes > ALIGN ? (p->bytes - ALIGN) / d->slot_bytes : 0;
    weft_status s = !d->p.path                     ? WEFT_ERR_NOMEM
                    : p->page_tokens > MOST_TOKENS ? wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %u tokens: at most %d",
                                                             p->page_tokens, MOST_TOKENS)
                                                   : WEFT_OK;
    if (s == WEFT_OK && !n)
        s = wf_fail(WEFT_ERR_ARG, "KV blocks on disk: %s in %s hold no page of the KV cache, which takes %s there",
                    WF_HUMAN(p->bytes, true), p->path, WF_HUMAN(d->slot_bytes, true));
    if (s == WEFT_OK) s = wf_store_init(&d->blocks, (uint32_t)WF_MIN(n, (uint64_t)INT32_MAX / 2), p->page_tokens);
    if (s == WEFT_OK) s = take_file(d);
    if (s == WEFT_OK) s = take_secret(d);
    if (s == WEFT_OK) s = find_blocks(d);
    for (; s == WEFT_OK && d->n_threads < THREADS; d->n_threads++)
        if (pthread_create(&d->threads[d->n_threads], NULL, run_transfers, d))
            s = wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: cannot start a thread");
    if (s == WEFT_OK) *out = d;
    else wf_disk_close(d);
    return s;
}

void wf_disk_close(wf_disk *d)
{
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_threads; i++) pthread_join(d->threads[i], NULL);
    if (d->fd >= 0) close(d->fd);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    wf_store_free(&d->blocks);
    explicit_bzero(d->secret, sizeof d->secret);
    free((char *)d->p.path);
    free(d);
}

/* ---- what the engine calls ------------------------------------------------------------------------------------- */

uint64_t wf_disk_bytes(const wf_disk *d)
{
    return d->blocks.n * d->slot_bytes;
}

uint32_t wf_disk_used(const wf_disk *d)
{
    return d->blocks.n_used;
}

uint32_t wf_disk_found(const wf_disk *d)
{
    return d->n_found;
}

const wf_disk_stats *wf_disk_stats_of(const wf_disk *d)
{
    ((wf_disk *)d)->stats.evicted = d->blocks.evicted;
    return &d->stats;
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
    wf_store_pin(&d->blocks, slot);
    if (begin_transfer(d, false, slot, data, tag)) return true;
    wf_store_unpin(&d->blocks, slot);
    return false;
}

bool wf_disk_write(wf_disk *d, const wf_key *key, const int32_t *tokens, uint32_t table, const void *data, int32_t tag)
{
    if (wf_store_slot(&d->blocks, key, table) >= 0) return wf_store_touch(&d->blocks, key, table), false;
    int32_t slot = wf_store_take(&d->blocks, key, tokens, table, WF_STORED_COMING);
    if (slot >= 0 && begin_transfer(d, true, slot, (void *)(uintptr_t)data, tag)) return true;
    d->stats.dropped++;
    if (slot >= 0) wf_store_kill(&d->blocks, slot), wf_store_unpin(&d->blocks, slot);
    return false;
}

/* Nobody takes the slot before. Where too many transfers wait, who forgets does. */
static void erase_slot(wf_disk *d, int32_t slot)
{
    wf_store_pin(&d->blocks, slot);
    wf_store_kill(&d->blocks, slot);
    transfer *t = begin_transfer(d, true, slot, NULL, -1);
    if (t) return;
    erase_block(d, &(transfer){.slot = slot});
    wf_store_unpin(&d->blocks, slot);
}

/* One that is being written is erased when that is over. */
void wf_disk_forget(wf_disk *d, const wf_key *key, uint32_t table)
{
    int32_t slot = wf_store_slot(&d->blocks, key, table);
    if (slot < 0) return;
    if (d->blocks.slots[slot].state == WF_STORED_COMING) wf_store_kill(&d->blocks, slot);
    else erase_slot(d, slot);
}

static void count_end(wf_disk *d, const transfer *t)
{
    uint64_t ns = t->ended_ns - t->began_ns;
    d->stats.failed += !t->ok;
    if (t->erase) return;
    *(t->write ? &d->stats.write_ns : &d->stats.read_ns) += ns;
    *(t->write ? &d->stats.written : &d->stats.read) += t->ok;
}

bool wf_disk_done(wf_disk *d, wf_disk_end *out)
{
    transfer ended = {.state = IDLE};
    if (!d->n_out) return false;
    pthread_mutex_lock(&d->lock);
    for (transfer *t = d->list; t < d->list + WF_LEN(d->list) && ended.state != ENDED; t++)
        if (t->state == ENDED) ended = *t, t->state = IDLE;
    pthread_mutex_unlock(&d->lock);
    if (ended.state != ENDED) return false;
    d->n_out--;
    count_end(d, &ended);
    bool forgotten = ended.write && !ended.erase && d->blocks.slots[ended.slot].state == WF_STORED_DEAD;
    if (!ended.ok) wf_store_kill(&d->blocks, ended.slot); /* whatever is there, it is not that block */
    else if (forgotten) erase_slot(d, ended.slot);
    else if (ended.write) wf_store_ready(&d->blocks, ended.slot);
    wf_store_unpin(&d->blocks, ended.slot);
    *out = (wf_disk_end){ended.tag, ended.write, ended.ok};
    return !ended.erase || wf_disk_done(d, out);
}

bool wf_disk_busy(const wf_disk *d)
{
    return d->n_out;
}
