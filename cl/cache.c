/* Kernel binaries on disk. An entry is one file named by the hash of its key:
 *
 *   magic, key length, binary length, checksum of key and binary | key | binary
 *
 * The key is everything that decides what the binary is: source, options, device, driver, platform.
 * It is stored whole and compared, so neither a hash collision nor a foreign file can be taken for an
 * entry. Entries are written under another name and renamed, so a reader sees all of one or nothing.
 *
 * A driver can crash on a binary of its own. Before one is loaded a canary file says which process is
 * at it; if that process is gone and its canary is not, the entry killed it and is removed.
 *
 * Canaries and unfinished entries have their process in their names, so what a killed one leaves is known and removed.
 */
#include "cl/cl.h"

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

typedef struct header {
    char magic[8];
    uint64_t key_size, bin_size, check;
} header;

static const char magic[8] = "wfclbin1";
#define MAX_ENTRY ((size_t)256 << 20)

/* FNV-1a, 64 bits, from a start value that lets two of them make 128. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

cl_key wf_cl_key(const struct weft_device_info *i, const char *source, const char *options)
{
    cl_key k = {0};
    uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;
    size_t cap = strlen(source) + strlen(options) + 1024;
    k.text = wf_calloc(cap, 1);
    if (!k.text) return k;
    int n = snprintf(k.text, cap, "weft %s\n%s\n%s\n%s\n%s\n%s\n%s", WEFT_VERSION, i->platform,
                     i->name, i->driver, i->version, options, source);
    snprintf(k.name, sizeof k.name, "%016llx%016llx", (unsigned long long)hash(a, k.text, (size_t)n),
             (unsigned long long)hash(b, k.text, (size_t)n));
    return k;
}

static void entry_path(char *buf, size_t cap, const char *dir, const cl_key *key)
{
    snprintf(buf, cap, "%s/%s.bin", dir, key->name);
}

static const char *entry_fault(const char *data, size_t size, const cl_key *key)
{
    header h;
    size_t key_size = strlen(key->text);
    if (size < sizeof h) return "truncated";
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic)) return "not an entry";
    if (h.key_size != key_size || h.bin_size != size - sizeof h - WF_MIN(key_size, size - sizeof h))
        return "truncated or foreign";
    if (memcmp(data + sizeof h, key->text, key_size)) return "foreign";
    if (hash(0, data + sizeof h, size - sizeof h) != h.check) return "damaged";
    return h.bin_size ? NULL : "empty";
}

void *wf_cl_cache_get(const char *dir, const cl_key *key, size_t *size)
{
    char path[600], *data;
    size_t n;
    entry_path(path, sizeof path, dir, key);
    if (access(path, R_OK) != 0 || wf_read_file(path, MAX_ENTRY, &data, &n) != WEFT_OK) return NULL;
    const char *fault = entry_fault(data, n, key);
    if (fault) {
        wf_log(WEFT_LOG_DEBUG, "kept kernel %s is %s; building it", path, fault);
        unlink(path);
        free(data);
        return NULL;
    }
    size_t start = sizeof(header) + strlen(key->text);
    *size = n - start;
    memmove(data, data + start, *size);
    return data;
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

static bool is_alive(long pid, unsigned long long started)
{
    return start_time(pid) == started;
}

/* A file of this process that belongs to an entry. */
static void own_path(char *buf, size_t cap, const char *dir, const cl_key *key, const char *what)
{
    snprintf(buf, cap, "%s/%s.%ld-%llu.%s", dir, key->name, (long)getpid(), start_time(getpid()), what);
}

/* Removes such files of processes that are gone; true if there were any. */
static bool remove_dead(const char *dir, const cl_key *key, const char *what)
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

static bool write_all(FILE *f, const void *data, size_t n)
{
    return fwrite(data, 1, n, f) == n;
}

void wf_cl_cache_put(const char *dir, const cl_key *key, const void *bin, size_t size)
{
    char path[600], tmp[700];
    header h = {.key_size = strlen(key->text), .bin_size = size};
    memcpy(h.magic, magic, sizeof magic);
    h.check = hash(hash(0, key->text, h.key_size), bin, size);
    mkdir(dir, 0700);
    entry_path(path, sizeof path, dir, key);
    remove_dead(dir, key, "tmp");
    own_path(tmp, sizeof tmp, dir, key, "tmp");
    FILE *f = fopen(tmp, "wbx");
    if (!f) return; /* a cache that cannot be written is a slow start, not an error */
    bool ok = write_all(f, &h, sizeof h) && write_all(f, key->text, h.key_size) && write_all(f, bin, size);
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(tmp, path) != 0) {
        wf_log(WEFT_LOG_DEBUG, "cannot keep kernel %s: %s", path, strerror(errno));
        unlink(tmp);
    }
}

void wf_cl_cache_remove(const char *dir, const cl_key *key)
{
    char path[600];
    entry_path(path, sizeof path, dir, key);
    unlink(path);
}

/* ---- canary ---------------------------------------------------------------------------------------------- */

bool wf_cl_canary_arm(const char *dir, const cl_key *key)
{
    char path[700];
    if (remove_dead(dir, key, "loading")) {
        wf_log(WEFT_LOG_WARN, "a process died while loading kernel %s/%s.bin; building it again", dir,
               key->name);
        wf_cl_cache_remove(dir, key);
        return false;
    }
    own_path(path, sizeof path, dir, key, "loading");
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    return fclose(f) == 0;
}

void wf_cl_canary_clear(const char *dir, const cl_key *key)
{
    char path[700];
    own_path(path, sizeof path, dir, key, "loading");
    unlink(path);
}
