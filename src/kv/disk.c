/* disk: see disk.h. From top to bottom: what an earlier process left; threads; what the engine calls. */
#include "kv/disk.h"
#include "kv/disk_file.h"
#include "kv/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SCANNERS  8     /* threads that read the heads of slots at the start */
#define IN_A_ROW  16    /* failures after which the disk is left alone for a while */
#define PAUSE_NS  30000000000ull

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
    wf_disk_file file;
    wf_key identity;
    uint64_t sequence;
    wf_store blocks;
    int32_t to_erase; /* a list of dead slots, each with a pin; -1: none */
    size_t scanned_bytes;
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
    transfer list[2 * WF_DISK_WAITING];
};

/* ---- what an earlier process left ------------------------------------------------------------------------------ */

typedef struct scan {
    const wf_disk *d;
    uint32_t first;
    uint8_t *heads; /* [slots] of all scanners, each with its tokens; magic[0] 0: no block of ours */
} scan;

static wf_disk_head *head_of(const wf_disk *d, const uint8_t *heads, size_t slot)
{
    return (wf_disk_head *)(uintptr_t)(heads + slot * d->scanned_bytes);
}

static void *scan_slots(void *arg)
{
    const scan *s = arg;
    const wf_disk *d = s->d;
    for (uint32_t i = s->first; i < d->file.n; i += SCANNERS) {
        wf_disk_head *h = head_of(d, s->heads, i);
        if (wf_disk_file_head(&d->file, i, h) || !wf_key_same(&h->identity, &d->identity)) h->magic[0] = 0;
    }
    return NULL;
}

static int by_sequence(const void *a, const void *b)
{
    const wf_disk_head *x = *(wf_disk_head *const *)a, *y = *(wf_disk_head *const *)b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void restore_blocks(wf_disk *d, const uint8_t *heads, wf_disk_head **order)
{
    size_t n = 0;
    for (uint32_t i = 0; i < d->file.n; i++)
        if (head_of(d, heads, i)->magic[0]) order[n++] = head_of(d, heads, i);
    qsort(order, n, sizeof *order, by_sequence);
    for (size_t i = 0; i < n; i++) {
        wf_disk_head *h = order[i];
        wf_store_restore(&d->blocks, (int32_t)h->slot, &h->key, wf_disk_head_tokens(h), (uint32_t)h->table);
        d->sequence = h->sequence;
    }
    wf_store_list_free(&d->blocks);
    d->n_found = d->blocks.n_used;
}

static weft_status find_blocks(wf_disk *d)
{
    uint32_t n = d->file.n, started = 0;
    d->scanned_bytes = WF_UP(sizeof(wf_disk_head) + d->file.page_tokens * sizeof(int32_t), sizeof(uint64_t));
    uint8_t *heads = wf_calloc(n, d->scanned_bytes);
    wf_disk_head **order = wf_calloc(n, sizeof *order);
    scan s[SCANNERS];
    pthread_t threads[SCANNERS];
    for (; heads && order && started < SCANNERS; started++) {
        s[started] = (scan){d, started, heads};
        if (pthread_create(&threads[started], NULL, scan_slots, &s[started])) break;
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (started == SCANNERS) restore_blocks(d, heads, order);
    free(heads);
    free(order);
    return started == SCANNERS ? WEFT_OK : wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: no memory to read what %s holds",
                                                   d->file.path);
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

static int read_block(const wf_disk *d, const transfer *t, uint8_t *slot)
{
    wf_disk_head *h = (wf_disk_head *)slot;
    int error = wf_disk_file_read(&d->file, (uint32_t)t->slot, slot);
    bool same = !error && wf_key_same(&h->identity, &d->identity) && wf_key_same(&h->key, &t->key) &&
        h->table == t->table && !memcmp(wf_disk_head_tokens(h), wf_store_tokens(&d->blocks, t->slot),
                                        d->file.page_tokens * sizeof(int32_t));
    return error ? error : same ? 0 : EBADMSG;
}

/* K and V are in place. */
static int write_block(const wf_disk *d, const transfer *t, uint8_t *slot)
{
    wf_disk_head *h = (wf_disk_head *)slot;
    memset(slot, 0, d->file.head_bytes);
    *h = (wf_disk_head){.table = t->table, .sequence = t->sequence, .key = t->key, .identity = d->identity};
    memcpy(wf_disk_head_tokens(h), wf_store_tokens(&d->blocks, t->slot), d->file.page_tokens * sizeof(int32_t));
    return wf_disk_file_write(&d->file, (uint32_t)t->slot, slot);
}

/* The lock is let go while it runs. What was to be read comes too late once nobody takes it back. */
static int run_transfer(worker *w, const transfer *t)
{
    wf_disk *d = w->d;
    bool is_copied = t->write && !t->erase;
    d->touching += is_copied;
    pthread_mutex_unlock(&d->lock);
    if (is_copied) {
        memcpy(w->slot + d->file.head_bytes, t->data, d->file.page_bytes);
        pthread_mutex_lock(&d->lock);
        d->touching--;
        pthread_cond_signal(&d->changed);
        pthread_mutex_unlock(&d->lock);
    }
    int error = t->erase   ? wf_disk_file_erase(&d->file, (uint32_t)t->slot)
                : t->write ? write_block(d, t, w->slot)
                           : read_block(d, t, w->slot);
    pthread_mutex_lock(&d->lock);
    if (t->write || error || d->stop) return error;
    d->touching++;
    pthread_mutex_unlock(&d->lock);
    memcpy(t->data, w->slot + d->file.head_bytes, d->file.page_bytes);
    pthread_mutex_lock(&d->lock);
    d->touching--;
    return 0;
}

static void free_disk(wf_disk *d)
{
    wf_disk_file_close(&d->file);
    pthread_cond_destroy(&d->wake);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    wf_store_free(&d->blocks);
    free(d->memory);
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
    void *memory;
    if (posix_memalign(&memory, WF_DISK_ALIGN, WF_DISK_THREADS * d->file.slot_bytes))
        return wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: no memory for transfers");
    d->memory = memset(memory, 0, WF_DISK_THREADS * d->file.slot_bytes);
    for (worker *w = d->workers; w < d->workers + WF_DISK_THREADS; w++) {
        *w = (worker){.d = d, .slot = d->memory + (size_t)(w - d->workers) * d->file.slot_bytes};
        pthread_mutex_lock(&d->lock);
        bool failed = pthread_create(&w->thread, NULL, run_transfers, w);
        d->n_threads += !failed;
        pthread_mutex_unlock(&d->lock);
        if (failed) return wf_fail(WEFT_ERR_NOMEM, "KV blocks on disk: cannot start a thread");
        d->n_started++;
    }
    return WEFT_OK;
}

weft_status wf_disk_open(const wf_disk_params *p, wf_disk **out)
{
    wf_disk *d = wf_calloc(1, sizeof *d);
    if (!d) return WEFT_ERR_NOMEM;
    d->identity = p->identity;
    d->to_erase = -1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    pthread_cond_init(&d->changed, NULL);
    weft_status s = wf_disk_file_make(p, &d->file);
    if (s == WEFT_OK) s = wf_store_init(&d->blocks, d->file.n, p->page_tokens);
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
        wf_log(WEFT_LOG_WARN, "KV blocks on disk: %u transfers hang, and %s stays taken until they end: look at the "
               "disk", d->n_threads, d->file.path);
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
    s.bytes = d->blocks.n * d->file.slot_bytes;
    s.used_bytes = d->blocks.n_used * d->file.page_bytes;
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
    transfer *first = d->list + (write ? WF_DISK_WAITING : 0);
    for (transfer *t = first; t < first + WF_DISK_WAITING; t++)
        if (t->state == IDLE) return t;
    return NULL;
}

static bool has_place(wf_disk *d, bool write)
{
    pthread_mutex_lock(&d->lock);
    bool has = free_place(d, write);
    pthread_mutex_unlock(&d->lock);
    return has;
}

bool wf_disk_has_place(wf_disk *d)
{
    return !wf_disk_pauses(d) && has_place(d, true);
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
    bool may = wf_disk_has_place(d); /* first: who makes way is still in the file */
    int32_t slot = may ? wf_store_take(&d->blocks, key, tokens, table, WF_STORED_COMING) : -1;
    if (slot >= 0) return begin_transfer(d, true, slot, (void *)(uintptr_t)data, tag) != NULL;
    d->stats.dropped++;
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
           "for %d s; look at the disk's health and room", IN_A_ROW, why, d->file.path, (int)(PAUSE_NS / 1000000000u));
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
        wf_log(WEFT_LOG_WARN, "KV blocks on disk: cannot %s a block in %s: %s. It is computed again; look at the "
               "disk's health and room if that goes on",
               t->erase ? "erase" : t->write ? "write" : "read", d->file.path, why);
    if (t->error != EBADMSG && ++d->in_a_row >= IN_A_ROW && !wf_disk_pauses(d)) pause_disk(d, why);
}

static void count_end(wf_disk *d, const transfer *t)
{
    struct weft_kv_tier_stats *s = &d->stats;
    if (t->error) count_failure(d, t);
    else d->in_a_row = 0;
    if (t->erase) return;
    *(t->write ? &s->store_ns : &s->load_ns) += t->ns;
    if (!t->error) *(t->write ? &s->stored_bytes : &s->loaded_bytes) += d->file.page_bytes;
}

/* Must the slot be erased, or a later start would find there what was forgotten, what is damaged, or the block before
 * one that was never written? By the first one who sees it. */
static bool leaves_rest(const wf_disk *d, const transfer *t)
{
    bool dead = d->blocks.slots[t->slot].state == WF_STORED_DEAD;
    if (t->erase) return t->error;
    return t->write ? dead || t->error == ECANCELED : !dead && t->error == EBADMSG;
}

/* Whatever is in a slot after a failure, it is not that block. */
static void end_transfer(wf_disk *d, const transfer *t)
{
    wf_store *b = &d->blocks;
    bool rest = leaves_rest(d, t);
    d->n_out--;
    count_end(d, t);
    if (t->erase && t->error) d->erase_ns = wf_now_ns() + PAUSE_NS;
    if (t->error && (t->write || t->error != ECANCELED)) wf_store_kill(b, t->slot);
    if (rest) {
        erase_later(d, t->slot);
        return;
    }
    if (t->write && !t->erase && !t->error) wf_store_ready(b, t->slot);
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
    transfer ended = {0};
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
