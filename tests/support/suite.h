/* suite: the cases of one file of tests/unit. Each file is a suite of the program `unit` (unit/unit.c), named like the
 * file. */
#ifndef WF_TEST_SUITE_H
#define WF_TEST_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

/* The last error has these words. */
static inline void assert_says(const char *words)
{
    if (!strstr(weft_last_error(), words)) fail_msg("\"%s\" is not in: %s", words, weft_last_error());
}

/* The call succeeds, or what it says is the failure. */
#define assert_ok(call) assert_ok_at(call, __FILE__, __LINE__)

static inline void assert_ok_at(enum weft_status s, const char *file, int line)
{
    if (s) print_error("%s\n", weft_last_error());
    _assert_int_equal((uintmax_t)s, WEFT_OK, file, line);
}

/* The call gives that status, with these words. */
#define assert_error(call, status, words) (assert_int_equal(call, status), assert_says(words))

static inline int remove_folder_at(const char *path)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    return system(command);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* In place of what was there. */
static inline void write_file(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_file(path, text, strlen(text));
}

/* A new file with that text, which the caller unlinks; its name lives until the next call. */
static inline const char *file_of(const char *text)
{
    static char path[32];
    strcpy(path, "/tmp/weft-test-XXXXXX");
    close(mkstemp(path));
    write_text(path, text);
    return path;
}

/* How many files a folder has; *last, unless NULL, becomes the path of one. */
static inline size_t files_in(const char *folder, char *last, size_t cap)
{
    DIR *d = opendir(folder);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (last) snprintf(last, cap, "%s/%s", folder, e->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

/* ---- suites ------------------------------------------------------------------------------------------------------ */

#define CASE(f)                     cmocka_unit_test(f)
#define CASE_IN(f, setup, teardown) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* The cases of a suite, and what comes before and after all of them. */
#define SUITE(name, setup, teardown, ...)                                  \
    SUITE_MAIN(name)                                                       \
    {                                                                      \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                   \
        return cmocka_run_group_tests_name(#name, tests, setup, teardown); \
    }

/* One whose cases have each the same setup and teardown, between what comes before and after all. */
#define SUITE_EACH(name, before, after, setup, teardown, ...)                                             \
    SUITE_MAIN(name)                                                                                      \
    {                                                                                                     \
        struct CMUnitTest tests[] = {__VA_ARGS__};                                                        \
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)                                         \
            tests[i].setup_func = setup, tests[i].teardown_func = teardown;                               \
        return cmocka_run_group_tests_name(#name, tests, before, after);                                  \
    }

/* A suite with a body of its own, which has the words of the command line that follow the suite's name in argv[1] and
 * later. */
#define SUITE_MAIN(name)                    \
    int unit_##name(int argc, char **argv); \
    int unit_##name(int argc, char **argv)

#endif
