/* wraps: see support/wraps.h. */
#include "support/wraps.h"

#include <stddef.h>

atomic_int test_alloc_countdown = -1;
bool (*test_alloc_denied)(void);
_Atomic uint64_t test_clock_ahead;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
uint64_t __real_wf_now_ns(void);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
uint64_t __wrap_wf_now_ns(void);

static bool allocation_fails(void)
{
    return (test_alloc_denied && test_alloc_denied()) ||
           (atomic_load(&test_alloc_countdown) >= 0 && atomic_fetch_sub(&test_alloc_countdown, 1) == 0);
}

void *__wrap_malloc(size_t n)
{
    return allocation_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return allocation_fails() ? NULL : __real_realloc(p, n);
}

uint64_t __wrap_wf_now_ns(void)
{
    return __real_wf_now_ns() + atomic_load(&test_clock_ahead);
}
