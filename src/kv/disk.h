/* disk: the lowest tier of the KV cache: a file of fixed slots, one block each (disk_file.h), read and written by
 * threads of its own so that nobody waits for a disk (tiers.h).
 *
 * A slot is found once its write has ended. Nothing else is needed for a crash at any moment, and no write waits for
 * another. What the disk does wrong (errors, no space, short or slow transfers) is a miss that is counted. After some
 * failures in a row the disk is left alone for a while. A disk that hangs keeps nobody: not even wf_disk_close.
 *
 * The engine's thread is the only user of these functions.
 */
#ifndef WF_DISK_H
#define WF_DISK_H

#include "kv/disk_file.h"
#include "kv/store.h"

enum { WF_DISK_THREADS = 4 }; /* a code of 2 MiB takes one 2 ms, a fast disk half a millisecond */

typedef struct wf_disk wf_disk;

/* Opens or makes the file (wf_disk_file_make), and finds what an earlier process has left. */
weft_status wf_disk_open(const wf_disk_params *p, wf_disk **out);
/* Waits so long at most for transfers to end. Those that hang keep what they need, and the file, until they end. d may
 * be NULL. */
void wf_disk_close(wf_disk *d, uint64_t within_ns);
uint32_t wf_disk_found(const wf_disk *d); /* blocks of this identity when it was opened */
struct weft_kv_tier_stats wf_disk_stats(const wf_disk *d);
bool wf_disk_pauses(const wf_disk *d); /* it is left alone: nothing is read or written */

/* Which slots hold which blocks: to find and touch them, and to pin those that are to be read. */
wf_store *wf_disk_store(wf_disk *d);
void wf_disk_forget(wf_disk *d, const wf_key *key, uint32_t table); /* the block may be wrong */

#define WF_DISK_WAITING 64 /* transfers each way that wait at most */
/* Transfers. false: too many wait, or it pauses, or, of a write, the block is there or no slot can be had. The memory
 * belongs to it until it is taken back with wf_disk_done; `tag` comes back with it. */
bool wf_disk_has_place(wf_disk *d); /* for a write */
bool wf_disk_read(wf_disk *d, int32_t slot, void *data, int32_t tag);
bool wf_disk_write(wf_disk *d, const wf_key *key, const int32_t *tokens, uint32_t table, const void *data, int32_t tag);
typedef struct wf_disk_end {
    int32_t tag;
    bool write, ok;
    uint64_t ns; /* that it took; 0: it was not tried */
} wf_disk_end;
bool wf_disk_done(wf_disk *d, wf_disk_end *out); /* false: none has ended since */
bool wf_disk_busy(const wf_disk *d);             /* some have not been taken back */

#endif
