/* Buffers of the CPU backend: huge pages for large ones, small memory in place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"

#define HUGE_PAGE ((size_t)2 << 20)

static wf_dev *open_cpu(void)
{
    wf_dev *dev;
    assert_int_equal(wf_dev_open("cpu", NULL, &dev), WEFT_OK);
    return dev;
}

static void large_ones_begin_at_a_huge_page(void **state)
{
    (void)state;
    wf_dev *dev = open_cpu();
    for (size_t size = 1; size <= 2 * HUGE_PAGE + 1; size = size * 8 + 1) {
        wf_buf *b;
        assert_int_equal(wf_buf_create(dev, size, &b), WEFT_OK);
        assert_int_equal((uintptr_t)b->host % (size < HUGE_PAGE ? 4096 : HUGE_PAGE), 0);
        memset(b->host, 1, size);
        wf_buf_destroy(b);
    }
    wf_dev_close(dev);
}

/* A large one is used in place, or the answer is to copy it: that depends on what memory is left. */
static void small_memory_stays_in_place(void **state)
{
    (void)state;
    wf_dev *dev = open_cpu();
    for (size_t size = 4096; size <= 4 * HUGE_PAGE; size *= 32) {
        char *mem = calloc(size, 1);
        wf_buf *b;
        assert_non_null(mem);
        weft_status s = wf_buf_wrap(dev, mem, size, &b);
        if (size < HUGE_PAGE || s != WEFT_ERR_UNSUPPORTED) {
            assert_int_equal(s, WEFT_OK);
            assert_ptr_equal(b->host, mem);
            wf_buf_destroy(b);
        }
        free(mem);
    }
    wf_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_ones_begin_at_a_huge_page),
        cmocka_unit_test(small_memory_stays_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
