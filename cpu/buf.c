/* Memory of the CPU backend: buffers of its own in huge pages, and the host's used in place. */
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
    void *mem; /* to free; NULL when wrapped */
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

/* ---- in place, or is there room for a copy? -------------------------------------------------- */

/* The text of a small file of the kernel's, malloc'ed; NULL: there is none. */
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

/* The first number of a file behind `key`; UINT64_MAX if it says something else, such as "max". */
static uint64_t number_in(const char *path, const char *key)
{
    char *text = text_of(path), *at = text ? strstr(text, key) : NULL, *end = at;
    uint64_t n = at ? strtoull(at + strlen(key), &end, 10) : 0;
    bool found = at && end > at + strlen(key);
    free(text);
    return found ? n : UINT64_MAX;
}

/* What this process's control group leaves of its limit; what the page cache holds counts as used. */
static uint64_t group_left(void)
{
    char *text = text_of("/proc/self/cgroup"), *at = text ? strstr(text, "0::/") : NULL, path[512];
    uint64_t limit = UINT64_MAX, used = 0;
    if (at) {
        at[strcspn(at, "\n")] = '\0';
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/memory.max", at + 4);
        limit = number_in(path, "");
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/memory.current", at + 4);
        used = limit == UINT64_MAX ? 0 : number_in(path, "");
    }
    free(text);
    return limit - WF_MIN(limit, used);
}

static uint64_t memory_left(void)
{
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t host = kib == UINT64_MAX ? 0 : kib * 1024;
    return WF_MIN(host, group_left());
}

/* Files are not in huge pages, from which streams come 10 to 20 % faster: where a copy takes less than half of what is
 * left, it is worth its second a GB. */
weft_status wf_cpu_buf_wrap(wf_dev *dev, const void *host, uint64_t size, wf_buf **out)
{
    if (size >= HUGE_PAGE && size < memory_left() / 2 && has_huge_pages())
        return wf_fail(WEFT_ERR_UNSUPPORTED, "cpu: there is room for a copy in huge pages");
    return new_buf(dev, (void *)(uintptr_t)host, size, NULL, out); /* only ever read */
}
