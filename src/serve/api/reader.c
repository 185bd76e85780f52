/* reader: the memory in which a body is parsed. When an allocation fails, the reader of jansson 2.14 (load.c) may end the process by an
 * assertion or return a text without a part of it. So all that it can need is taken before, in one block of this thread, and given
 * back when the values are no longer used; what else calls jansson has malloc.
 *
 * Sizes are those of jansson 2.14 with 64 bits, rounded up, with every table and buffer that grew on the way. */
#include "serve/api/internal.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    ALIGN = 16,
    PER_VALUE = 256,     /* a value (24 to 32 bytes), a member (64), its place in tables that doubled (64 and 32), roundings */
    PER_CONTAINER = 384, /* an object and its first table (80 and 128), a list and its (40 and 64) */
    PER_BYTE = 8,        /* the buffer of a token that doubled (4), the text (1), a name, and its copy (2) */
    REST = 4096
};

static _Thread_local struct {
    char *base;
    size_t used, size;
    bool open; /* the reader is at work */
} block;

static void *take(size_t n)
{
    n = WF_UP(n, ALIGN);
    if (!block.open || n > block.size - block.used) return malloc(n);
    block.used += n;
    return block.base + block.used - n;
}

static void give(void *p)
{
    bool inside = block.base && (char *)p >= block.base && (char *)p < block.base + block.size;
    if (!inside) free(p);
}

void wf_reader_init(void)
{
    json_set_alloc_funcs(take, give);
}

bool wf_reader_begin(size_t len, size_t n_values, size_t n_containers)
{
    block.size = REST + len * PER_BYTE + n_values * PER_VALUE + n_containers * PER_CONTAINER;
    block.base = mmap(NULL, block.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* pages count once they are written */
    if (block.base == MAP_FAILED) block.base = NULL;
    return block.base;
}

json_t *wf_reader_load(const char *text, size_t len, json_error_t *e)
{
    block.used = 0;
    block.open = true;
    json_t *json = json_loadb(text, len, JSON_DECODE_ANY, e);
    block.open = false;
    return json;
}

void wf_reader_end(void)
{
    if (block.base) munmap(block.base, block.size);
    block.base = NULL;
}
