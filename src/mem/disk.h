/* disk: the lowest floor of the KV cache: a file of fixed slots, one block each, read and written by threads of its own
 * so that nobody waits for a disk (tiers.h).
 *
 *   head | slot 0: head, K and V | slot 1 | ...
 *
 * A slot says which block it holds: key, tokens, table, and the identity of model and format. Head and content carry
 * message authentication codes under a secret, which lies beside the file where only its owner reads it. So a block
 * that is torn, stale, of another model or made by somebody else is not found, or its read fails, and it is computed.
 * A slot is found once its write has ended. Nothing else is needed for a crash at any moment, and no write waits for
 * another.
 *
 * One process has the file at a time. What the disk does wrong (errors, no space, short or slow transfers) is a miss
 * that is counted. The engine's thread is the only user of these functions.
 */
#ifndef WF_DISK_H
#define WF_DISK_H

#include "mem/store.h"

#include <sys/types.h>

typedef struct wf_disk wf_disk;

/* How files are read and written; tests replace it. As pread and pwrite. */
typedef struct wf_disk_io {
    ssize_t (*read)(int fd, void *data, size_t n, off_t at);
    ssize_t (*write)(int fd, const void *data, size_t n, off_t at);
} wf_disk_io;

typedef struct wf_disk_params {
    const char *path;
    uint64_t bytes, page_bytes; /* of the file, at most; of a block */
    uint32_t page_tokens;
    wf_key identity;      /* of all blocks that this process wants */
    const wf_disk_io *io; /* NULL: the system's */
} wf_disk_params;

typedef struct wf_disk_stats {
    uint64_t written, read;       /* blocks */
    uint64_t write_ns, read_ns;
    uint64_t dropped, failed, evicted; /* as those of wf_tier_stats */
} wf_disk_stats;

/* Opens or makes the file, and finds what an earlier process has left. WEFT_ERR_ARG: another process has it, it is
 * something else, or it has no room for a block; WEFT_ERR_IO. */
weft_status wf_disk_open(const wf_disk_params *p, wf_disk **out);
/* Waits for the transfers that run; those that wait are dropped. NULL is allowed. */
void wf_disk_close(wf_disk *d);
uint64_t wf_disk_bytes(const wf_disk *d);
uint32_t wf_disk_used(const wf_disk *d); /* slots that hold a block of this identity */
uint32_t wf_disk_found(const wf_disk *d); /* of these, when it was opened */
const wf_disk_stats *wf_disk_stats_of(const wf_disk *d);

/* Which slots hold which blocks: to find and touch them, and to pin those that are to be read. */
wf_store *wf_disk_store(wf_disk *d);
void wf_disk_forget(wf_disk *d, const wf_key *key, uint32_t table); /* the block may be wrong */

/* Transfers. false: too many wait, or, of a write, the block is there or no slot can be had. The memory belongs to it
 * until it is taken back with wf_disk_done; `tag` comes back with it. */
bool wf_disk_read(wf_disk *d, int32_t slot, void *data, int32_t tag);
bool wf_disk_write(wf_disk *d, const wf_key *key, const int32_t *tokens, uint32_t table, const void *data, int32_t tag);
typedef struct wf_disk_end {
    int32_t tag;
    bool write, ok;
} wf_disk_end;
bool wf_disk_done(wf_disk *d, wf_disk_end *out); /* false: none has ended since */
bool wf_disk_busy(const wf_disk *d);             /* some have not been taken back */

#endif
