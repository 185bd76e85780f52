/* convert: a conversion that is stopped, or has no memory or no room on the disk, leaves nothing behind but a message,
 * and a file that it was to replace as it was. */
#include "support/wraps.h"
#include "base/base.h"
#include "support/folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define DEMO "models/demo.gguf"
#define FOLDER "tests/model/data/qwen2"

static char out[320];

static int make_top(void **state)
{
    if (make_folder(state)) return -1;
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    return 0;
}

static int remove_top(void **state)
{
    unlink(out);
    return rmdir(folder);
}

static weft_status convert(const char *model, const char *type, bool (*stop)(void *), int *calls)
{
    return weft_convert(
        &(struct weft_convert_params){
            .path = model, .out = out, .type = type, .force = true, .threads = 1, .stop = stop, .user = calls},
        NULL);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static bool stop_later(void *user) { return --*(int *)user == 0; }

static void stopped(void **state)
{
    for (int calls = 1; calls <= 9; calls += 4) {
        int left = calls;
        assert_int_equal(convert(DEMO, "Q8_0", stop_later, &left), WEFT_ERR_CANCELLED);
        assert_int_equal(left, 0);
        assert_int_equal(files_in(folder, NULL, 0), 0);
    }
}

static void replaced_whole_or_not(void **state)
{
    struct stat before, after;
    int left = 3;
    assert_ok(convert(DEMO, "Q4_0", NULL, NULL));
    assert_int_equal(stat(out, &before), 0);
    assert_int_equal(convert(DEMO, "Q8_0", stop_later, &left), WEFT_ERR_CANCELLED);
    assert_int_equal(stat(out, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
    assert_ok(convert(DEMO, "Q8_0", NULL, NULL));
    assert_int_equal(stat(out, &after), 0);
    assert_true(after.st_size > before.st_size);
    assert_int_equal(files_in(folder, NULL, 0), 1);
    unlink(out);
}

/* Each allocation fails once, or of many every step-th one. */
static int fail_each(const char *model, const char *type, int step)
{
    for (int i = 0; i < 100000; i += step) {
        test_alloc_countdown = i;
        weft_status s = convert(model, type, NULL, NULL);
        bool reached = test_alloc_countdown < 0;
        test_alloc_countdown = -1;
        if (!reached) return assert_ok(s), i;
        assert_error(s, WEFT_ERR_NOMEM, "out of host memory");
        assert_int_equal(files_in(folder, NULL, 0), 0);
    }
    return -1;
}

static void without_memory(void **state)
{
    assert_true(fail_each(DEMO, "F16", 1) > 10);
    unlink(out);
    assert_true(fail_each(FOLDER, "F16", 97) > 100);
    unlink(out);
}

static void without_room(void **state)
{
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){1 << 20, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    weft_status s = convert(DEMO, "F16", NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(s, WEFT_ERR_IO);
    assert_int_equal(files_in(folder, NULL, 0), 0);
}

SUITE(convert, make_top, remove_top, CASE(stopped), CASE(replaced_whole_or_not), CASE(without_memory),
      CASE(without_room))
