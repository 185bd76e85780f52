/* Memory of the CPU backend: buffers in huge pages, or host memory used in place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/file.h"
#include "cpu/cpu.h"

#define PAGE      4096u
#define HUGE_PAGE (2u << 20)

typedef struct cpu_buf {
    wf_buf base;
    void *mem; /* to free; NULL if wrapped */
} cpu_buf;

static weft_status new_buf(wf_dev *dev, void *host, uint64_t size, void *mem, wf_buf **out)
{
    cpu_buf *b = wf_calloc(1, sizeof(*b));
    if (!b) {
        free(mem);
        return WEFT_ERR_NOMEM;
    }
    b->base = (wf_buf){.dev = dev, .size = size, .host = host};
    b->mem = mem;
    *out = &b->base;
    return WEFT_OK;
}

weft_status wf_cpu_buf_create(wf_dev *dev, uint64_t size, wf_buf **out)
{
    void *mem = NULL;
    size_t align = size < HUGE_PAGE ? PAGE : HUGE_PAGE;
    if (size > SIZE_MAX - align || posix_memalign(&mem, align, (size_t)WF_MAX(size, 1u)))
        return wf_fail(WEFT_ERR_NOMEM, "cpu: no memory for a buffer of %" PRIu64 " bytes", size);
    if (align == HUGE_PAGE) madvise(mem, (size_t)size, MADV_HUGEPAGE);
    return new_buf(dev, mem, size, mem, out);
}

void wf_cpu_buf_destroy(wf_dev *dev, wf_buf *b)
{
    (void)dev;
    free(((cpu_buf *)b)->mem);
    free(b);
}

/* ---- use in place, or copy to huge pages? ---------------------------------------------------- */

/* Reads a small file of the kernel into malloc'ed memory; NULL: missing. */
static char *text_of(const char *path)
{
    char *text;
    size_t n;
    return wf_read_file(path, 1u << 16, &text, &n) == WEFT_OK ? text : NULL;
}

static bool has_huge_pages(void)
{
    char *text = text_of("/sys/kernel/mm/transparent_hugepage/enabled");
    bool has = text && !strstr(text, "[never]");
    free(text);
    return has;
}

/* The first number after `key` in a file; UINT64_MAX if there is none, for example "max". */
static uint64_t number_in(const char *path, const char *key)
{
    char *text = text_of(path), *at = text ? strstr(text, key) : NULL, *end = at;
    uint64_t n = at ? strtoull(at + strlen(key), &end, 10) : 0;
    bool found = at && end > at + strlen(key);
    free(text);
    return found ? n : UINT64_MAX;
}

/* The smallest memory left within the limits of our control group and its parents. In a container the path may be invisible; then its
 * group is the root. */
static uint64_t groups_left(const char *mount, const char *group, const char *limit_name, const char *used_name)
{
    char path[1024], file[1200];
    uint64_t left = UINT64_MAX;
    snprintf(path, sizeof(path), "%s%s", mount, group);
    for (char *end;; *end = '\0') {
        snprintf(file, sizeof(file), "%s/%s", path, limit_name);
        uint64_t limit = number_in(file, ""), used = 0;
        snprintf(file, sizeof(file), "%s/%s", path, used_name);
        if (limit != UINT64_MAX) used = number_in(file, "");
        left = WF_MIN(left, limit - WF_MIN(limit, used));
        if (!(end = strrchr(path + strlen(mount), '/'))) return left;
    }
}

/* Memory that the control groups (versions 1 and 2, possibly both) leave to a process, from the text of /proc/self/cgroup. The page
 * cache counts as used. */
uint64_t wf_cpu_group_left(const char *root, char *text)
{
    uint64_t left = UINT64_MAX;
    for (char *line; (line = strsep(&text, "\n"));) {
        char mount[512], *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        bool v2 = !names[1];
        if (!v2 && strcmp(names + 1, "memory")) continue;
        snprintf(mount, sizeof(mount), "%s%s", root, v2 ? "" : "/memory");
        left = WF_MIN(left, v2 ? groups_left(mount, group, "memory.max", "memory.current")
                               : groups_left(mount, group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
    return left;
}

static uint64_t memory_left(void)
{
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t left = kib == UINT64_MAX ? 0 : kib * 1024;
    char *text = text_of("/proc/self/cgroup");
    if (text) left = WF_MIN(left, wf_cpu_group_left("/sys/fs/cgroup", text));
    free(text);
    return left;
}

/* Fails under `ulimit -v` and on systems without overcommit. */
static bool can_map(uint64_t size)
{
    void *p = size <= SIZE_MAX ? mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (p != MAP_FAILED) munmap(p, (size_t)size);
    return p != MAP_FAILED;
}

/* Mapped files are not in huge pages, which stream 10 to 20 % faster. A copy costs a second per GB and is worth it if it takes less
 * than half of the free memory. */
weft_status wf_cpu_buf_wrap(wf_dev *dev, const void *host, uint64_t size, wf_buf **out)
{
    if (size >= HUGE_PAGE && size < memory_left() / 2 && has_huge_pages() && can_map(2 * size))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "cpu: there is room for a copy in huge pages");
    return new_buf(dev, (void *)(uintptr_t)host, size, NULL, out); /* read-only use */
}
