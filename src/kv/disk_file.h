/* disk_file: the file of disk.h, byte for byte.
 *
 *   head | slot 0: head, tokens, K and V | slot 1 | ...
 *
 * A slot says which block it holds: key, tokens, table, and the identity of model and format. Head and content carry
 * message authentication codes under a secret, which lies beside the file where only its owner reads it. So a block
 * that is torn, stale, of another slot or made by somebody else is none.
 *
 * Whole slots pass by the system's page cache where the file system has that (O_DIRECT): blocks that are read again are
 * in the pool above, and the cache would keep each twice. One process has the file at a time. Reading and writing of
 * slots is thread-safe.
 */
#ifndef WF_DISK_FILE_H
#define WF_DISK_FILE_H

#include "kv/key.h"

#include <sys/types.h>

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

typedef struct wf_disk_file {
    char *path;
    wf_disk_io io;
    int fd, direct; /* direct: the same file past the page cache; -1: there is no such way */
    uint8_t secret[32];
    uint32_t page_tokens, head_bytes, n; /* n: slots */
    uint64_t page_bytes, slot_bytes;
} wf_disk_file;

/* Followed by the tokens, and in a whole slot head_bytes behind its begin by K and V. */
typedef struct wf_disk_head {
    char magic[8];
    uint64_t slot, table, page_tokens, sequence; /* sequence: of writes */
    wf_key key, identity;
    uint8_t content[32]; /* code of K and V */
    uint8_t code[32];    /* of all that is before it, and of the tokens */
} wf_disk_head;

#define WF_DISK_ALIGN 4096u /* of slots and their content, in bytes; of memory that is to pass by the page cache */

/* Opens or makes it; what is not of these sizes begins anew. WEFT_ERR_ARG: another process has it, others may read it,
 * it is something else, or it has no room for a block; WEFT_ERR_IO. */
weft_status wf_disk_file_make(const wf_disk_params *p, wf_disk_file *out);
/* One that is there, of whatever sizes, with its secret. writes: it is to be cleared. WEFT_ERR_ARG also: its head is
 * damaged. */
weft_status wf_disk_file_open(const char *path, bool writes, wf_disk_file *out);
weft_status wf_disk_file_clear(wf_disk_file *f); /* no slot is left */
void wf_disk_file_close(wf_disk_file *f);        /* also after a failure */

static inline int32_t *wf_disk_head_tokens(wf_disk_head *h)
{
    return (int32_t *)(h + 1);
}

/* Both return 0, or what is wrong as an error of the system. Of a slot: h, with memory for its tokens behind it, or all
 * of its slot_bytes, the last of which mean nothing. EBADMSG: it holds no block, or a damaged one. */
int wf_disk_file_head(const wf_disk_file *f, uint32_t slot, wf_disk_head *h);
int wf_disk_file_read(const wf_disk_file *f, uint32_t slot, void *to);
/* All of a slot but magic and codes, which it sets. */
int wf_disk_file_write(const wf_disk_file *f, uint32_t slot, void *from);
int wf_disk_file_erase(const wf_disk_file *f, uint32_t slot);

#endif
