/* disk: blocks of KV in a file: they are there after a restart, after a process was killed at any moment, and nowhere
 * else; what is torn, stale, foreign or made by somebody else is not found, or its read fails. */
#include "kv/disk.h"
#include "lab/lab.h"
#include "support/part.h"
#include "support/said.h"
#include "support/wraps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 4, BYTES = 5000, SLOTS = 12, SLOT = 12288, HEAD = 4096 };
#define LONG 10000000000ull /* ns; nothing takes so long */

static char folder[] = "/tmp/weft-disk-XXXXXX", path[64], secret[80];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/kv", folder);
    snprintf(secret, sizeof secret, "%s.secret", path);
    return 0;
}

static int clear(void **state)
{
    unlink(path), unlink(secret);
    return 0;
}

static int remove_folder(void **state)
{
    return clear(state), rmdir(folder);
}

/* ---- blocks: all of one is made from a number ------------------------------------------------------------------ */

static wf_key key_of(int32_t i, int32_t *tokens)
{
    for (int32_t k = 0; k < TOKENS; k++) tokens[k] = 100 * i + k;
    return wf_key_next(&(wf_key){{1}}, tokens, TOKENS);
}

static void fill(int32_t i, uint8_t *data)
{
    for (uint64_t k = 0; k < BYTES; k++) data[k] = (uint8_t)wf_random((uint64_t)i, k);
}

static wf_disk_params params(void)
{
    return (wf_disk_params){.path = path, .bytes = HEAD + SLOTS * SLOT, .page_bytes = BYTES, .page_tokens = TOKENS,
                            .identity = {{7}}};
}

static wf_disk *open_disk(const wf_disk_params *p)
{
    wf_disk *d = NULL;
    assert_ok(wf_disk_open(p, &d));
    return d;
}

static bool await(wf_disk *d)
{
    wf_disk_end end;
    for (int i = 0; !wf_disk_done(d, &end); i++) wf_sleep_ns(100000), assert_true(i < 100000);
    return end.ok;
}

/* Block i, with the content of block `content`. */
static bool put_as(wf_disk *d, int32_t i, int32_t content)
{
    int32_t tokens[TOKENS];
    uint8_t data[BYTES];
    wf_key key = key_of(i, tokens);
    fill(content, data);
    return wf_disk_write(d, &key, tokens, 0, data, i) && await(d);
}

static bool put(wf_disk *d, int32_t i)
{
    return put_as(d, i, i);
}

static void forget(wf_disk *d, int32_t i)
{
    int32_t tokens[TOKENS];
    wf_key key = key_of(i, tokens);
    wf_disk_forget(d, &key, 0);
}

enum { MISS, BAD, GOOD };

static int get_as(wf_disk *d, int32_t i, int32_t content)
{
    int32_t tokens[TOKENS];
    uint8_t data[BYTES] = {0}, want[BYTES];
    wf_key key = key_of(i, tokens);
    int32_t slot = wf_store_find(wf_disk_store(d), &key, tokens, 0);
    if (slot < 0) return MISS;
    assert_true(wf_disk_read(d, slot, data, i));
    if (!await(d)) return assert_int_equal(wf_store_find(wf_disk_store(d), &key, tokens, 0), -1), BAD;
    fill(content, want);
    assert_memory_equal(data, want, BYTES);
    return GOOD;
}

static int get(wf_disk *d, int32_t i)
{
    return get_as(d, i, i);
}

static void put_some(int32_t n)
{
    wf_disk_params p = params();
    wf_disk *d = open_disk(&p);
    for (int32_t i = 0; i < n; i++) assert_true(put(d, i));
    wf_disk_close(d, LONG);
}

static int count_good(const wf_disk_params *p, int32_t n)
{
    wf_disk *d = open_disk(p);
    int good = 0;
    for (int32_t i = 0; i < n; i++) good += get(d, i) == GOOD;
    wf_disk_close(d, LONG);
    return good;
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void survives_a_restart(void **state)
{
    wf_disk_params p = params();
    put_some(8);
    assert_int_equal(count_good(&p, 9), 8);
    wf_disk *d = open_disk(&p);
    assert_int_equal(wf_disk_found(d), 8);
    for (int32_t i = 8; i < 20; i++) assert_true(put(d, i)); /* twelve places: the oldest go */
    for (int32_t i = 0; i < 8; i++) assert_int_equal(get(d, i), MISS);
    assert_int_equal(wf_disk_stats(d).evicted, 8);
    wf_disk_close(d, LONG);
    assert_int_equal(count_good(&p, 20), 12);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, HEAD + SLOTS * SLOT); /* no larger than asked for */
}

static void others_find_nothing(void **state)
{
    wf_disk_params p = params();
    put_some(8);
    p.identity = (wf_key){{8}};
    wf_disk *d = open_disk(&p);
    assert_int_equal(wf_disk_found(d), 0);
    wf_disk_close(d, LONG);
    assert_int_equal(count_good(&p, 8), 0);
    p = params();
    assert_int_equal(count_good(&p, 8), 8); /* their blocks have not gone */
    p.page_bytes += 4096;
    assert_int_equal(count_good(&p, 8), 0);
}

static void smaller_and_larger(void **state)
{
    wf_disk_params p = params();
    put_some(8);
    p.bytes = HEAD + 3 * SLOT;
    assert_int_equal(count_good(&p, 8), 3);
    p.bytes = HEAD + 100 * SLOT;
    assert_int_equal(count_good(&p, 8), 3);
    wf_disk *d = NULL;
    p.bytes = 4097;
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "hold no block");
}

/* Sums of them do not come out small. */
static void absurd_sizes(void **state)
{
    const uint64_t pages[] = {UINT64_MAX, UINT64_MAX - 4096, UINT64_MAX / 2, UINT64_MAX / 2 - HEAD};
    wf_disk_params p = params();
    wf_disk *d = NULL;
    for (size_t i = 0; i < WF_LEN(pages); i++) {
        p.page_bytes = pages[i];
        assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "hold no block");
        p.bytes = UINT64_MAX;
        if (i < 3) assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "hold no block");
    }
    p.page_tokens = UINT32_MAX;
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "at most");
}

static void one_process_at_a_time(void **state)
{
    wf_disk_params p = params();
    wf_disk *d = open_disk(&p), *other = NULL;
    assert_error(wf_disk_open(&p, &other), WEFT_ERR_ARG, "another process uses");
    wf_disk_close(d, LONG);
}

static void overwrite(const char *name, off_t at, const void *data, size_t n)
{
    FILE *f = fopen(name, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void flip(off_t at)
{
    FILE *f = fopen(path, "r+");
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x10, f);
    fclose(f);
}

/* Any byte of it that changes. */
static void damaged(void **state)
{
    wf_disk_params p = params();
    put_some(1);
    listen_to(WEFT_LOG_ERROR); /* the rest is said each time */
    enum { SAID = 168 + 4 * TOKENS }; /* bytes of the head that say something */
    for (off_t at = 0; at < SAID + BYTES; at += at < SAID ? 3 : 97) {
        off_t byte = HEAD + (at < SAID ? at : HEAD + at - SAID);
        flip(byte);
        assert_int_equal(count_good(&p, 1), 0);
        wf_disk *d = open_disk(&p);
        assert_int_equal(wf_disk_found(d), 0); /* once is enough */
        assert_true(put(d, 0));
        assert_int_equal(get(d, 0), GOOD);
        wf_disk_close(d, LONG);
    }
}

/* However many they are, the disk does its work. */
static void many_damaged(void **state)
{
    enum { MANY = 20 };
    wf_disk_params p = params();
    p.bytes = HEAD + MANY * SLOT;
    wf_disk *d = open_disk(&p);
    for (int32_t i = 0; i < MANY; i++) assert_true(put(d, i));
    listen_to(WEFT_LOG_ERROR);
    for (int32_t i = 0; i < MANY; i++) flip(HEAD + i * SLOT + HEAD + 9), assert_int_equal(get(d, i), BAD);
    assert_int_equal(wf_disk_stats(d).failed, MANY);
    assert_int_equal(wf_disk_stats(d).paused, 0);
    wf_disk_close(d, LONG);
    d = open_disk(&p);
    assert_int_equal(wf_disk_found(d), 0);
    wf_disk_close(d, LONG);
}

/* Parts of other blocks, all of them genuine. */
static void mixed(void **state)
{
    static char file[HEAD + SLOTS * SLOT];
    wf_disk_params p = params();
    put_some(2);
    FILE *f = fopen(path, "r");
    assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
    fclose(f);
    const char *a = file + HEAD, *b = a + SLOT;
    overwrite(path, HEAD + SLOT + HEAD, a + HEAD, BYTES); /* the head of one, the content of another */
    assert_int_equal(count_good(&p, 2), 1);
    overwrite(path, HEAD + SLOT, b, SLOT);
    assert_int_equal(count_good(&p, 2), 2);
    overwrite(path, HEAD + SLOT, a, SLOT); /* one in the place of another */
    assert_int_equal(count_good(&p, 2), 1);
    overwrite(path, HEAD + 5 * SLOT, a, SLOT);
    wf_disk *d = open_disk(&p);
    assert_int_equal(wf_disk_found(d), 1);
    wf_disk_close(d, LONG);
}

/* Without the secret nobody makes a block; who has it is its owner alone. */
static void secrets(void **state)
{
    wf_disk_params p = params();
    wf_disk *d = NULL;
    struct stat st;
    put_some(8);
    assert_int_equal(stat(secret, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    chmod(secret, 0640);
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "only its owner");
    chmod(secret, 0600);
    chmod(path, 0644);
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "chmod 600");
    chmod(path, 0600);
    assert_int_equal(count_good(&p, 8), 8);
    overwrite(secret, 0, "another", 7);
    assert_int_equal(count_good(&p, 8), 0);
    assert_int_equal(truncate(secret, 31), 0);
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "32 bytes");
}

/* Be they empty: who may read a file now may read what will be in it. */
static void files_of_others(void **state)
{
    wf_disk_params p = params();
    wf_disk *d = NULL;
    for (int of_secret = 0; of_secret < 2; of_secret++) {
        write_text(of_secret ? secret : path, "");
        chmod(of_secret ? secret : path, 0644);
        assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "600");
        clear(NULL);
        put_some(1);
        char other[80];
        const char *name = of_secret ? secret : path;
        snprintf(other, sizeof other, "%s/other", folder);
        assert_int_equal(rename(name, other), 0);
        assert_int_equal(symlink(other, name), 0);
        assert_error(wf_disk_open(&p, &d), WEFT_ERR_IO, "name the file itself");
        unlink(other);
        clear(NULL);
    }
}

/* A file of somebody else stays as it is. */
static void another_file(void **state)
{
    wf_disk_params p = params();
    wf_disk *d = NULL;
    FILE *f = fopen(path, "w");
    fputs("a diary of some length, which nobody wants to lose", f);
    fclose(f);
    chmod(path, 0600);
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_ARG, "did not make");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 50);
    p.path = "/absent/kv";
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_IO, "/absent/kv");
    p.path = folder;
    assert_error(wf_disk_open(&p, &d), WEFT_ERR_IO, folder);
}

/* How many pages of a slot's content the system's cache has. */
static int cached_pages(int32_t slot)
{
    unsigned char in[(SLOT - HEAD) / 4096];
    int fd = open(path, O_RDONLY), n = 0;
    assert_true(fd >= 0);
    void *p = mmap(NULL, sizeof in * 4096, PROT_READ, MAP_SHARED, fd, HEAD + slot * SLOT + HEAD);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mincore(p, sizeof in * 4096, in), 0);
    for (size_t i = 0; i < sizeof in; i++) n += in[i] & 1;
    munmap(p, sizeof in * 4096);
    return close(fd), n;
}

static int direct_fd, n_refused;

static ssize_t refused_write(int fd, const void *data, size_t n, off_t at)
{
    if (fd != direct_fd) return pwrite(fd, data, n, at);
    return n_refused++, errno = EINVAL, -1;
}

static ssize_t refused_read(int fd, void *data, size_t n, off_t at)
{
    if (fd != direct_fd) return pread(fd, data, n, at);
    return n_refused++, errno = EINVAL, -1;
}

/* Slots pass by the page cache, from memory that can; where the file system takes that back, and from other memory,
 * they go the usual way. All say the same. */
static void past_the_page_cache(void **state)
{
    static _Alignas(WF_DISK_ALIGN) uint8_t from[SLOT + 8], to[SLOT + 8];
    wf_disk_params p = params();
    wf_disk_file f;
    assert_ok(wf_disk_file_make(&p, &f));
    bool direct = (direct_fd = f.direct) >= 0;
    for (uint32_t way = 0; way < 4; way++) { /* of writing and reading: 1: another memory, 2: refused */
        size_t off = way % 2 ? 8 : 0;
        f.io = way / 2 ? (wf_disk_io){refused_read, refused_write} : (wf_disk_io){pread, pwrite};
        memset(from, 0, sizeof from);
        fill((int32_t)way, from + off + HEAD);
        assert_int_equal(wf_disk_file_write(&f, way, from + off), 0);
        if (way == 0 && direct) assert_int_equal(cached_pages((int32_t)way), 0);
        if (way) assert_true(cached_pages((int32_t)way) > 0);
        for (uint32_t k = 0; k <= way; k++) {
            assert_int_equal(wf_disk_file_read(&f, k, to + off), 0);
            fill((int32_t)k, from + off + HEAD);
            assert_memory_equal(to + off + HEAD, from + off + HEAD, BYTES);
        }
    }
    assert_int_equal(n_refused, direct ? 1 + 3 : 0); /* the write and the reads of way 2; 3 has other memory */
    assert_int_equal(wf_disk_file_erase(&f, 0), 0);
    f.io = (wf_disk_io){pread, pwrite};
    assert_int_equal(wf_disk_file_read(&f, 0, to), EBADMSG);
    wf_disk_file_close(&f);
    printf("slots %s the page cache here\n", direct ? "pass by" : "go through");
}

static ssize_t no_room(int fd, const void *data, size_t n, off_t at)
{
    return errno = ENOSPC, -1;
}

static ssize_t no_data(int fd, void *data, size_t n, off_t at)
{
    return n > HEAD ? 0 : pread(fd, data, n, at); /* heads alone are there */
}

/* What may be wrong is not there after a restart either, be it written or just being written. */
static void forgotten(void **state)
{
    wf_disk_params p = params();
    int32_t tokens[TOKENS];
    uint8_t data[BYTES];
    put_some(3);
    wf_disk *d = open_disk(&p);
    forget(d, 1);
    wf_key key = key_of(3, tokens);
    fill(3, data);
    assert_true(wf_disk_write(d, &key, tokens, 0, data, 3));
    forget(d, 3);
    assert_int_equal(wf_store_find(wf_disk_store(d), &key, tokens, 0), -1);
    for (wf_disk_end end; wf_disk_busy(d); wf_sleep_ns(100000)) wf_disk_done(d, &end);
    assert_int_equal(get(d, 1), MISS);
    wf_disk_close(d, LONG);
    assert_int_equal(count_good(&p, 4), 2);
}

static atomic_bool hangs, fails, is_hung;

static void hang(void)
{
    atomic_store(&is_hung, atomic_load(&hangs));
    while (atomic_load(&hangs)) wf_sleep_ns(100000);
}

static ssize_t hung_read(int fd, void *data, size_t n, off_t at)
{
    if (n > HEAD) hang();
    return pread(fd, data, n, at);
}

static ssize_t hung_write(int fd, const void *data, size_t n, off_t at)
{
    hang();
    return atomic_load(&fails) ? (errno = EROFS, -1) : pwrite(fd, data, n, at);
}

static const wf_disk_io hung = {hung_read, hung_write};

/* ... however many they are, and whether the disk hangs or refuses for a while: nobody waits for it. */
static void forgotten_while_it_hangs(void **state)
{
    enum { MANY = 150 };
    wf_disk_params p = params();
    p.bytes = HEAD + MANY * SLOT, p.io = &hung;
    wf_disk *d = open_disk(&p);
    for (int32_t i = 0; i < MANY; i++) assert_true(put(d, i));
    atomic_store(&hangs, true), atomic_store(&fails, true);
    for (int32_t i = 0; i < MANY; i++) forget(d, i), assert_int_equal(get(d, i), MISS);
    assert_false(put(d, MANY)); /* no place is free until it is erased */
    atomic_store(&hangs, false);
    for (wf_disk_end end; wf_disk_busy(d); wf_sleep_ns(100000)) wf_disk_done(d, &end);
    assert_true(wf_disk_stats(d).failed > 0);
    atomic_store(&fails, false);
    atomic_fetch_add(&test_clock_ahead, 60000000000ull);
    for (wf_disk_end end; wf_disk_done(d, &end) || wf_disk_busy(d); wf_sleep_ns(100000)) continue;
    assert_int_equal(wf_disk_stats(d).used_bytes, 0);
    wf_disk_close(d, LONG);
    assert_int_equal(count_good(&p, MANY), 0);
}

static atomic_int turns; /* writes that may end */

static ssize_t write_in_turn(int fd, const void *data, size_t n, off_t at)
{
    while (atomic_load(&turns) <= 0) wf_sleep_ns(100000);
    atomic_fetch_sub(&turns, 1);
    return atomic_load(&fails) ? (errno = EROFS, -1) : pwrite(fd, data, n, at);
}

/* A block that made way for one that was never written is still in the file, and forgotten all the same. */
static void forgotten_below_another(void **state)
{
    enum { BEGUN = 8 };
    wf_disk_params p = params();
    int32_t tokens[TOKENS];
    uint8_t data[BYTES];
    put_some(SLOTS);
    p.io = &(wf_disk_io){pread, write_in_turn};
    wf_disk *d = open_disk(&p);
    listen_to(WEFT_LOG_ERROR);
    atomic_store(&turns, 1000), atomic_store(&fails, true);
    for (int32_t i = 1; i < 16; i++) assert_false(put(d, 100 + i));
    atomic_store(&turns, 0);
    fill(0, data);
    for (int32_t i = 0; i < BEGUN; i++) { /* each in the place of block i */
        wf_key key = key_of(200 + i, tokens);
        assert_true(wf_disk_write(d, &key, tokens, 0, data, i));
    }
    atomic_store(&turns, 1);
    assert_false(await(d));
    assert_true(wf_disk_pauses(d)); /* and the last of them waited */
    atomic_store(&fails, false), atomic_store(&turns, 1000);
    forget(d, BEGUN - 1);
    wf_disk_close(d, LONG);
    p.io = NULL;
    d = open_disk(&p);
    assert_int_equal(get(d, BEGUN - 1), MISS);
    assert_int_equal(get(d, BEGUN), GOOD);
    wf_disk_close(d, LONG);
}

/* What a disk keeps waiting is left behind, with what it needs; what it was to read or to write may go. */
static void closing_while_it_hangs(void **state)
{
    wf_disk_params p = params();
    int32_t tokens[TOKENS];
    uint8_t data[BYTES], others[BYTES];
    put_some(2);
    p.io = &hung;
    wf_disk *d = open_disk(&p), *next = NULL;
    atomic_store(&is_hung, false), atomic_store(&hangs, true);
    for (int32_t i = 0; i < 2; i++) {
        wf_key key = key_of(i, tokens);
        assert_true(wf_disk_read(d, wf_store_find(wf_disk_store(d), &key, tokens, 0), data, i));
        key = key_of(2 + i, tokens);
        fill(2 + i, data);
        assert_true(wf_disk_write(d, &key, tokens, 0, data, 2 + i));
    }
    while (!atomic_load(&is_hung)) wf_sleep_ns(100000);
    wf_disk_close(d, 2000000);
    memset(data, 0x77, BYTES), memcpy(others, data, BYTES);
    assert_error(wf_disk_open(&p, &next), WEFT_ERR_ARG, "that hangs");
    atomic_store(&hangs, false);
    for (int i = 0; wf_disk_open(&p, &next); i++) wf_sleep_ns(1000000), assert_true(i < 10000);
    assert_memory_equal(data, others, BYTES);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(get(next, i), GOOD);
    wf_disk_close(next, LONG);
}

/* Of two slots with one block the later one is right: what could not be read once was written again, elsewhere. */
static void the_later_one(void **state)
{
    wf_disk_params p = params();
    put_some(2);
    p.io = &(wf_disk_io){no_data, pwrite};
    wf_disk *d = open_disk(&p);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(get(d, i), BAD);
    assert_true(put_as(d, 0, 50));
    wf_disk_close(d, LONG);
    p.io = NULL;
    d = open_disk(&p);
    assert_int_equal(wf_disk_found(d), 1);
    assert_int_equal(get_as(d, 0, 50), GOOD);
    wf_disk_close(d, LONG);
}

/* A failure is a miss that counts, and the next one is tried again. */
static void faults_are_misses(void **state)
{
    wf_disk_params p = params();
    put_some(3);
    p.io = &(wf_disk_io){no_data, no_room};
    wf_disk *d = open_disk(&p);
    assert_false(put(d, 5));
    assert_int_equal(get(d, 5), MISS);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(get(d, i), BAD);
    assert_int_equal(wf_disk_stats(d).failed, 4);
    assert_int_equal(wf_disk_stats(d).used_bytes, 0);
    wf_disk_close(d, LONG);
}

/* Which of them is told, with what the system says; after some in a row it is left alone for a while. */
static void failures_in_a_row(void **state)
{
    wf_disk_params p = params();
    put_some(1);
    p.io = &(wf_disk_io){pread, no_room};
    wf_disk *d = open_disk(&p);
    listen_to(WEFT_LOG_WARN);
    for (int32_t i = 1; i < 16; i++) assert_false(put(d, i));
    assert_said("cannot write a block");
    assert_said("No space left");
    assert_false(wf_disk_pauses(d));
    assert_false(put(d, 16));
    assert_said("left alone");
    assert_true(wf_disk_pauses(d));
    assert_int_equal(wf_disk_stats(d).paused, 1);
    uint64_t dropped = wf_disk_stats(d).dropped;
    int32_t tokens[TOKENS];
    wf_key key = key_of(0, tokens);
    assert_false(wf_disk_read(d, wf_store_find(wf_disk_store(d), &key, tokens, 0), NULL, 0));
    assert_false(put(d, 17));
    assert_int_equal(wf_disk_stats(d).failed, 16);
    assert_int_equal(wf_disk_stats(d).dropped, dropped + 1);
    atomic_fetch_add(&test_clock_ahead, 60000000000ull);
    assert_int_equal(get(d, 0), GOOD);
    assert_false(put(d, 18));
    assert_int_equal(wf_disk_stats(d).failed, 17);
    assert_false(wf_disk_pauses(d)); /* one read was as it should be */
    wf_disk_close(d, LONG);
}

/* Killed while it writes: each block is there as it was written, or it is not there. */
static void killed_at_any_moment(void **state)
{
    enum { BLOCKS = 30 };
    wf_disk_params p = params();
    int good = 0, bad = 0, kills = 60 * test_rounds("WEFT_KV_ROUNDS", 1);
    for (int k = 0; k < kills; k++) {
        int begun[2];
        char byte = 0;
        assert_int_equal(pipe(begun), 0);
        pid_t pid = fork();
        if (!pid) {
            wf_disk *d = NULL;
            if (wf_disk_open(&p, &d)) _exit(1);
            for (uint64_t i = 0;; i++) {
                put(d, (int32_t)(wf_random((uint64_t)k, i) % BLOCKS));
                if (!i && write(begun[1], &byte, 1) != 1) _exit(1);
            }
        }
        assert_true(pid > 0);
        assert_int_equal(read(begun[0], &byte, 1), 1); /* it has written a block */
        close(begun[0]), close(begun[1]);
        wf_sleep_ns(wf_random(9, (uint64_t)k) % 6000000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        wf_disk *d = open_disk(&p);
        for (int32_t i = 0; i < BLOCKS; i++) {
            int got = get(d, i);
            good += got == GOOD, bad += got == BAD;
        }
        wf_disk_close(d, LONG);
    }
    printf("%d blocks survived, %d were torn\n", good, bad);
    assert_true(good >= kills);
}

/* ---- what `weft kv` says of a file ------------------------------------------------------------------------------ */

static void assert_holds(enum weft_kv_action what, uint64_t first, uint64_t second, uint64_t damaged)
{
    struct weft_kv_file f;
    assert_ok(weft_kv_file(path, what, &f));
    assert_int_equal(f.n_models, (first > 0) + (second > 0));
    if (first) assert_int_equal(f.models[0].blocks, first);
    if (second) assert_int_equal(f.models[1].blocks, second);
    assert_int_equal(f.damaged, damaged);
    assert_int_equal(f.block_tokens, TOKENS);
    assert_int_equal(f.block_bytes, BYTES);
    weft_kv_file_free(&f);
}

static void looked_at(void **state)
{
    struct weft_kv_file f;
    wf_disk_params p = params();
    assert_error(weft_kv_file(path, WEFT_KV_LIST, &f), WEFT_ERR_IO, "No such file");
    assert_int_equal(access(path, F_OK), -1);
    put_some(8);
    p.identity = (wf_key){{8}};
    wf_disk *d = open_disk(&p);
    for (int32_t i = 0; i < 2; i++) assert_true(put(d, i)); /* in place of two of the others */
    assert_error(weft_kv_file(path, WEFT_KV_EMPTY, &f), WEFT_ERR_ARG, "another process uses");
    wf_disk_close(d, LONG);
    assert_holds(WEFT_KV_VERIFY, 2, 6, 0);
    flip(HEAD + SLOT + HEAD + 99), flip(HEAD + 2 * SLOT + 20);
    assert_holds(WEFT_KV_LIST, 2, 5, 1);
    assert_holds(WEFT_KV_VERIFY, 1, 5, 2);
    chmod(path, 0640);
    assert_error(weft_kv_file(path, WEFT_KV_EMPTY, &f), WEFT_ERR_ARG, "chmod 600");
    chmod(path, 0600);
    assert_holds(WEFT_KV_EMPTY, 0, 0, 0);
    p = params();
    assert_int_equal(count_good(&p, 8), 0);
    put_some(3);
    assert_holds(WEFT_KV_VERIFY, 3, 0, 0);
    char other[80];
    snprintf(other, sizeof other, "%s/other", folder);
    assert_int_equal(rename(secret, other), 0);
    assert_error(weft_kv_file(path, WEFT_KV_LIST, &f), WEFT_ERR_IO, "is missing");
    assert_int_equal(access(secret, F_OK), -1);
    assert_int_equal(rename(other, secret), 0);
    flip(16);
    assert_error(weft_kv_file(path, WEFT_KV_LIST, &f), WEFT_ERR_ARG, "says nothing of");
    assert_int_equal(truncate(path, 0), 0);
    assert_error(weft_kv_file(path, WEFT_KV_LIST, &f), WEFT_ERR_ARG, "says nothing of");
}

#define EACH(f) CASE_IN(f, clear, clear)
SUITE(disk, make_folder, remove_folder, EACH(survives_a_restart), EACH(past_the_page_cache),
      EACH(others_find_nothing), EACH(smaller_and_larger),
      EACH(absurd_sizes), EACH(one_process_at_a_time), EACH(damaged), EACH(many_damaged), EACH(mixed), EACH(secrets),
      EACH(files_of_others), EACH(another_file), EACH(forgotten), EACH(forgotten_while_it_hangs),
      EACH(forgotten_below_another),
      EACH(closing_while_it_hangs), EACH(the_later_one), EACH(faults_are_misses), EACH(failures_in_a_row),
      EACH(killed_at_any_moment), EACH(looked_at))
