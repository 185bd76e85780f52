/* arena: memory for jansson in a fuzzer. It wants a thousand blocks a run, which cost most of the time when the sanitizer's malloc gives
 * them. Here they lie one behind the other until the run ends. Nothing is used again before that, and what is not in use is poisoned:
 * the sanitizer sees what is used behind its end, or after its end. */
#include "arena.h"

#include <sanitizer/asan_interface.h>
#include <stdbool.h>
#include <stdlib.h>

#define CHECK(x) ((x) ? (void)0 : abort())
#define BLOCK    16 /* alignment, and bytes in front of each block that hold its size and nobody may touch */

static _Alignas(BLOCK) unsigned char arena[32 << 20];
static size_t used, live; /* bytes; blocks */

/* The size of a block; 0: it has been given back. */
__attribute__((no_sanitize("address"))) static size_t swap_size(unsigned char *block, size_t n)
{
    size_t *at = (size_t *)(void *)(block - BLOCK), before = *at;
    *at = n;
    return before;
}

static void *take(size_t n)
{
    unsigned char *block = arena + used + BLOCK;
    CHECK(n && n < sizeof arena - used - 2 * BLOCK);
    used += BLOCK + (n + BLOCK - 1) / BLOCK * BLOCK;
    swap_size(block, n);
    ASAN_UNPOISON_MEMORY_REGION(block, n);
    live++;
    return block;
}

static void give_back(void *block)
{
    size_t n = block ? swap_size(block, 0) : 0;
    CHECK(n || !block);
    if (block) live--;
    ASAN_POISON_MEMORY_REGION(block, n);
}

void arena_begin(void)
{
    static bool ready;
    if (!ready) {
        ASAN_POISON_MEMORY_REGION(arena, sizeof arena);
        json_set_alloc_funcs(take, give_back);
    }
    ready = true;
}

void arena_end(void)
{
    CHECK(!live);
    used = 0;
}
