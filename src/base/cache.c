/* Entries on disk. An entry is one file named by the hash of its key:
 *
 *   magic, key length, data length, checksum of key and data | key | data
 *
 * The key is everything that decides what the data is. It is stored whole and compared, so neither a hash collision nor
 * a foreign file can be taken for an entry. Entries are written under another name and renamed, so a reader sees all of
 * one or nothing.
 *
 * Unfinished entries have their process in their names, so what a killed one leaves is known and removed.
 */
#include "base/cache.h"

#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

typedef struct header {
    char magic[8];
    uint64_t key_size, data_size, check;
} header;

static const char magic[8] = "wfcache1";
#define MAX_ENTRY ((size_t)256 << 20)

/* FNV-1a, 64 bits, from a start value that lets two of them make 128. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

wf_cache_key wf_cache_key_of(const char *fmt, ...)
{
    va_list args, again;
    wf_cache_key k = {0};
    uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    k.text = n < 0 ? NULL : wf_calloc((size_t)n + 1, 1);
    if (k.text) vsnprintf(k.text, (size_t)n + 1, fmt, again);
    if (k.text)
        snprintf(k.name, sizeof k.name, "%016llx%016llx", (unsigned long long)hash(a, k.text, (size_t)n),
                 (unsigned long long)hash(b, k.text, (size_t)n));
    va_end(again);
    va_end(args);
    return k;
}

static void entry_path(char *buf, size_t cap, const char *dir, const wf_cache_key *key)
{
    snprintf(buf, cap, "%s/%s.bin", dir, key->name);
}

static const char *entry_fault(const char *data, size_t size, const wf_cache_key *key)
{
    header h;
    size_t key_size = strlen(key->text);
    if (size < sizeof h) return "truncated";
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic)) return "not an entry";
    if (h.key_size != key_size || h.data_size != size - sizeof h - WF_MIN(key_size, size - sizeof h))
        return "truncated or foreign";
    if (memcmp(data + sizeof h, key->text, key_size)) return "foreign";
    if (hash(0, data + sizeof h, size - sizeof h) != h.check) return "damaged";
    return h.data_size ? NULL : "empty";
}

void *wf_cache_get(const char *dir, const wf_cache_key *key, size_t *size)
{
    char path[600], *data;
    size_t n;
    entry_path(path, sizeof path, dir, key);
    if (access(path, R_OK) != 0 || wf_read_file(path, MAX_ENTRY, &data, &n) != WEFT_OK) return NULL;
    const char *fault = entry_fault(data, n, key);
    if (fault) {
        wf_log(WEFT_LOG_DEBUG, "cache entry %s is %s; it is made again", path, fault);
        unlink(path);
        free(data);
        return NULL;
    }
    size_t start = sizeof(header) + strlen(key->text);
    *size = n - start;
    memmove(data, data + start, *size);
    return data;
}

bool wf_cache_has(const char *dir, const wf_cache_key *key)
{
    char path[600];
    entry_path(path, sizeof path, dir, key);
    return access(path, R_OK) == 0;
}

/* ---- files of one process --------------------------------------------------------------------------------- */

/* When a process started, in clock ticks since boot: tells it from a later one of the same number.
 * 0 if there is no such process. */
static unsigned long long start_time(long pid)
{
    char path[64], *text, *p;
    size_t n;
    unsigned long long t = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (access(path, R_OK) != 0 || wf_read_file(path, 4096, &text, &n) != WEFT_OK) return 0;
    p = strrchr(text, ')'); /* the name may hold blanks; field 3 comes behind it, the time is field 22 */
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (p) t = strtoull(p, NULL, 10);
    free(text);
    return t;
}

static bool is_alive(long pid, unsigned long long started) { return start_time(pid) == started; }

void wf_cache_own_path(char *buf, size_t cap, const char *dir, const wf_cache_key *key, const char *what)
{
    snprintf(buf, cap, "%s/%s.%ld-%llu.%s", dir, key->name, (long)getpid(), start_time(getpid()), what);
}

bool wf_cache_remove_dead(const char *dir, const wf_cache_key *key, const char *what)
{
    char pattern[600];
    glob_t g = {0};
    bool dead = false;
    snprintf(pattern, sizeof pattern, "%s/%s.*.%s", dir, key->name, what);
    if (glob(pattern, GLOB_NOSORT, NULL, &g) != 0) return false;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        long pid = 0;
        unsigned long long started = 0;
        const char *owner = strstr(g.gl_pathv[i], key->name) + strlen(key->name);
        if (sscanf(owner, ".%ld-%llu", &pid, &started) == 2 && is_alive(pid, started)) continue;
        dead = true;
        unlink(g.gl_pathv[i]);
    }
    globfree(&g);
    return dead;
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

static bool write_all(FILE *f, const void *data, size_t n) { return fwrite(data, 1, n, f) == n; }

bool wf_cache_can_put(const char *dir)
{
    mkdir(dir, 0700);
    return access(dir, W_OK | X_OK) == 0;
}

void wf_cache_put(const char *dir, const wf_cache_key *key, const void *data, size_t size)
{
    char path[600], tmp[700];
    header h = {.key_size = strlen(key->text), .data_size = size};
    memcpy(h.magic, magic, sizeof magic);
    h.check = hash(hash(0, key->text, h.key_size), data, size);
    if (!wf_cache_can_put(dir)) return;
    entry_path(path, sizeof path, dir, key);
    wf_cache_remove_dead(dir, key, "tmp");
    wf_cache_own_path(tmp, sizeof tmp, dir, key, "tmp");
    FILE *f = fopen(tmp, "wbx");
    if (!f) return; /* a cache that cannot be written is a slow start, not an error */
    bool ok = write_all(f, &h, sizeof h) && write_all(f, key->text, h.key_size) && write_all(f, data, size);
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(tmp, path) != 0) {
        wf_log(WEFT_LOG_DEBUG, "cannot keep cache entry %s: %s", path, strerror(errno));
        unlink(tmp);
    }
}

void wf_cache_remove(const char *dir, const wf_cache_key *key)
{
    char path[600];
    entry_path(path, sizeof path, dir, key);
    unlink(path);
}
