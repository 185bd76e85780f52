/* Buffers of the CPU backend: huge pages for large ones, small memory in place, and what limits leave. */
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/memory_left.h"
#include "cpu/cpu.h"
#include "support/suite.h"

#define HUGE_PAGE ((size_t)2 << 20)

static wf_dev *open_cpu(void)
{
    wf_dev *dev;
    assert_ok(wf_dev_open("cpu", NULL, &dev));
    return dev;
}

static void large_ones_begin_at_a_huge_page(void **state)
{
    wf_dev *dev = open_cpu();
    for (size_t size = 1; size <= 2 * HUGE_PAGE + 1; size = size * 8 + 1) {
        wf_buf *b;
        assert_ok(wf_buf_create(dev, size, &b));
        assert_int_equal((uintptr_t)b->host % (size < HUGE_PAGE ? 4096 : HUGE_PAGE), 0);
        memset(b->host, 1, size);
        wf_buf_destroy(b);
    }
    wf_dev_close(dev);
}

/* A large one is used in place, or the answer is to copy it: that depends on what memory is left. */
static void small_memory_stays_in_place(void **state)
{
    wf_dev *dev = open_cpu();
    for (size_t size = 4096; size <= 4 * HUGE_PAGE; size *= 32) {
        char *mem = calloc(size, 1);
        wf_buf *b;
        assert_non_null(mem);
        weft_status s = wf_buf_wrap(dev, mem, size, size, &b);
        if (size < HUGE_PAGE || s != WEFT_ERR_UNSUPPORTED) {
            assert_ok(s);
            assert_ptr_equal(b->host, mem);
            wf_buf_destroy(b);
        }
        free(mem);
    }
    wf_dev_close(dev);
}

/* Files of one model have one answer, however small each is. */
static void sizes_decide_together(void **state)
{
    static char page[4096];
    wf_dev *dev = open_cpu();
    static const uint64_t together[] = {sizeof page, 4 * HUGE_PAGE, UINT64_MAX / 4};
    for (size_t i = 0; i < WF_LEN(together); i++) {
        char *mem = i == 1 ? calloc(together[i], 1) : NULL;
        wf_buf *small = NULL, *large = NULL;
        weft_status s = wf_buf_wrap(dev, page, sizeof page, together[i], &small);
        if (i != 1) assert_ok(s);
        else assert_int_equal(wf_buf_wrap(dev, mem, together[i], together[i], &large), s);
        wf_buf_destroy(small);
        wf_buf_destroy(large);
        free(mem);
    }
    wf_dev_close(dev);
}

/* A copy that `ulimit -v` would refuse is not asked for. */
static void in_place_under_a_limit(void **state)
{
    size_t size = 128 * HUGE_PAGE, pages = 0;
    wf_dev *dev = open_cpu();
    wf_buf *b = NULL;
    char *mem = calloc(size, 1);
    struct rlimit old, tight;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(mem);
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &pages), 1);
    fclose(f);
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    tight = (struct rlimit){pages * (size_t)sysconf(_SC_PAGESIZE) + size + size / 2, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    weft_status s = wf_buf_wrap(dev, mem, size, size, &b);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_ok(s);
    assert_ptr_equal(b->host, mem);
    wf_buf_destroy(b);
    free(mem);
    wf_dev_close(dev);
}

/* ---- control groups --------------------------------------------------------------------------- */

static char root[64];

static void put(const char *path, const char *text)
{
    char full[200];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_root(void **state)
{
    strcpy(root, "/tmp/weft-groups-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static uint64_t left(const char *groups)
{
    char text[200];
    snprintf(text, sizeof text, "%s", groups);
    return wf_group_left(root, text);
}

static void the_least_of_all_groups_counts(void **state)
{
    put("a/b/memory.max", "max\n");
    put("a/b/memory.current", "700\n");
    put("a/memory.max", "1000\n");
    put("a/memory.current", "800\n");
    assert_int_equal(left("0::/a/b\n"), 200); /* the limit is the parent's */
    put("a/b/memory.max", "750\n");
    assert_int_equal(left("0::/a/b\n"), 50);
    put("a/b/memory.current", "751\n");
    assert_int_equal(left("0::/a/b"), 0);
    assert_true(left("0::/\n") == UINT64_MAX); /* the root of a host has no such files */
    assert_true(left("") == UINT64_MAX);
    assert_true(left("0\n:\n0:\n::") == UINT64_MAX);
}

static void a_container_sees_its_group_as_the_root(void **state)
{
    put("memory.max", "5000\n");
    put("memory.current", "1000\n");
    assert_int_equal(left("0::/\n"), 4000);
    assert_int_equal(left("0::/docker/0123456789\n"), 4000);
}

static void version_1_beside_version_2(void **state)
{
    put("memory/a/memory.limit_in_bytes", "3000\n");
    put("memory/a/memory.usage_in_bytes", "1000\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/memory.usage_in_bytes", "100000\n");
    assert_int_equal(left("4:memory:/a\n1:cpu:/b\n0::/\n"), 2000);
    assert_int_equal(left("1:cpu:/b\n4:memory:/a/deeper"), 2000);
    assert_true(left("4:memory:/\n0::/\n") > 1ull << 60);
    assert_true(left("1:cpu:/a\n0::/\n") == UINT64_MAX);
}

SUITE(cpu_buf, NULL, NULL, CASE(large_ones_begin_at_a_huge_page), CASE(small_memory_stays_in_place),
      CASE(sizes_decide_together), CASE(in_place_under_a_limit),
      CASE_IN(the_least_of_all_groups_counts, make_root, remove_root),
      CASE_IN(a_container_sees_its_group_as_the_root, make_root, remove_root),
      CASE_IN(version_1_beside_version_2, make_root, remove_root))
