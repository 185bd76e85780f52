/* gguf_nomem: every allocation of opening a file fails once. Each gives WEFT_ERR_NOMEM and leaves
 * nothing behind (for LeakSanitizer to judge). */
#include "support/wraps.h"
#include "support/gguf_check.h"
#include "support/suite.h"

#include <fcntl.h>

/* Fails the first, the second ... allocation until nothing is left to fail; returns how many there were. */
static int fail_each(weft_status (*work)(void *), void *arg)
{
    for (int i = 0; i < 1000; i++) {
        test_alloc_countdown = i;
        weft_status s = work(arg);
        bool reached = test_alloc_countdown < 0;
        test_alloc_countdown = -1;
        assert_int_equal(s, reached ? WEFT_ERR_NOMEM : WEFT_OK);
        if (!reached) return i;
        assert_says("out of host memory");
    }
    return -1;
}

static weft_status open_memory(void *arg)
{
    const bytes *b = arg;
    wf_gguf *g = NULL;
    weft_status s = wf_gguf_open_memory(b->data, b->len, "memory.gguf", &g);
    wf_gguf_close(g);
    return s;
}

static weft_status open_file(void *arg)
{
    wf_gguf *g = NULL;
    weft_status s = wf_gguf_open(arg, &g);
    wf_gguf_close(g);
    return s;
}

static weft_status read_file(void *arg)
{
    char *text = NULL;
    size_t n;
    weft_status s = wf_read_file(arg, 1 << 20, &text, &n);
    free(text);
    return s;
}

static void every_allocation(void **state)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    bytes b = {0};
    gguf_good(&b);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, b.data, b.len), (ssize_t)b.len);
    assert_int_equal(ftruncate(fd, 20000), 0);
    close(fd);
    assert_true(fail_each(open_memory, &b) >= 8);
    assert_true(fail_each(open_file, path) >= 8);
    assert_true(fail_each(read_file, path) >= 3);
    gguf_good_opens();
    unlink(path);
    bytes_free(&b);
}

SUITE(gguf_nomem, NULL, NULL, CASE(every_allocation))
