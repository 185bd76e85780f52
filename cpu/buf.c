/* Memory of the CPU backend: buffers in huge pages, or host memory used in place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory_left.h"
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
    void *mem = ((cpu_buf *)b)->mem;
    if (wf_cpu_still_runs((wf_cpu_dev *)dev))
        wf_leak_on_purpose(mem), wf_leak_on_purpose(b); /* calls have the wf_buf in their views */
    else free(mem), free(b);
}

/* ---- use in place, or copy to huge pages? ---------------------------------------------------- */

static bool has_huge_pages(void)
{
    char *text = wf_kernel_text("/sys/kernel/mm/transparent_hugepage/enabled");
    bool has = text && !strstr(text, "[never]");
    free(text);
    return has;
}

/* Fails under `ulimit -v` and on systems without overcommit. */
static bool can_map(uint64_t size)
{
    void *p = size <= SIZE_MAX ? mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                               : MAP_FAILED;
    if (p != MAP_FAILED) munmap(p, (size_t)size);
    return p != MAP_FAILED;
}

/* Mapped files are not in huge pages, which stream 10 to 20 % faster. A copy costs a second per GB and is worth it if
 * it takes less than half of the free memory, together with the other files of a model. */
weft_status wf_cpu_buf_wrap(wf_dev *dev, const void *host, uint64_t size, uint64_t together, wf_buf **out)
{
    if (together >= HUGE_PAGE && together < wf_memory_left() / 2 && has_huge_pages() && can_map(2 * together))
        return wf_fail(WEFT_ERR_UNSUPPORTED, "cpu: there is room for a copy in huge pages");
    return new_buf(dev, (void *)(uintptr_t)host, size, NULL, out); /* read-only use */
}
