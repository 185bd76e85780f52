/* The build helper: when it is missing, dies, hangs or talks nonsense, no more than a variant is lost. */
#include "unit/cl_test.h"
#include "support/suite.h"

/* Builds the small call with a helper made of that shell text; NULL: none at all. */
static weft_status build_with(const char *script, wf_open_params p, cl_dev **out)
{
    char path[] = "helper-XXXXXX";
    if (script) {
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        dprintf(fd, "#!/bin/sh\n%s\n", script);
        fchmod(fd, 0700);
        close(fd);
        char full[300], cwd[200];
        assert_non_null(getcwd(cwd, sizeof cwd));
        snprintf(full, sizeof full, "%s/%s", cwd, path);
        setenv("WEFT_CLBUILD", full, 1);
    } else setenv("WEFT_CLBUILD", "/nowhere/weft-clbuild", 1);
    p.no_kernel_cache = true;
    *out = open_with(p);
    bench b = bench_new(*out);
    wf_call c = small_call(&b);
    wf_bound bound;
    weft_status st = (*out)->base.fns->bind(&(*out)->base, &c, 0, &bound);
    bench_free(&b);
    if (script) unlink(path);
    unsetenv("WEFT_CLBUILD");
    return st;
}

static void assert_refused(const char *script, uint32_t watchdog_ms, const char *because)
{
    cl_dev *d;
    weft_status st = build_with(script, (wf_open_params){.watchdog_ms = watchdog_ms}, &d);
    assert_int_equal(st, WEFT_ERR_UNSUPPORTED);
    if (!strstr(wf_error(), because)) fail_msg("\"%s\" is not in: %s", because, wf_error());
    assert_false(d->base.lost);
    assert_int_equal(d->child.pid, 0);
    shut(d);
}

static void ends(void **state)
{
    assert_refused("exit 3", 0, "ended");
}

static void crashes(void **state)
{
    assert_refused("kill -SEGV $$", 0, "Segmentation");
}

static void hangs(void **state)
{
    uint64_t start = wf_now_ns();
    assert_refused("exec sleep 600", 300, "300 ms");
    assert_true(wf_now_ns() - start < 60000000000u);
}

static bool after_a_moment(void *user)
{
    return wf_now_ns() > *(uint64_t *)user;
}

/* Who opens a device need not wait for its compiler. */
static void hangs_until_stopped(void **state)
{
    cl_dev *d;
    uint64_t start = wf_now_ns(), moment = start + 300000000u;
    wf_stop_by(after_a_moment, &moment);
    weft_status st = build_with("exec sleep 600", (wf_open_params){0}, &d);
    wf_stop_by(NULL, NULL);
    assert_int_equal(st, WEFT_ERR_CANCELLED);
    assert_int_equal(d->child.pid, 0);
    assert_true(wf_now_ns() - start < 30000000000u); /* of 60 s */
    shut(d);
}

static void talks_nonsense(void **state)
{
    assert_refused("exec cat /dev/zero >&0", 0, "ended");
}

static void is_missing(void **state)
{
    cl_dev *d;
    assert_ok(build_with(NULL, (wf_open_params){0}, &d));
    assert_true(d->child.missing);
    shut(d);
}

static void count(void *user, const char *what, double fraction)
{
    assert_string_equal(what, "compile");
    assert_true(fraction >= 0 && fraction <= 1);
    ++*(int *)user;
}

/* The real one, found from where the test program lies. */
static void works(void **state)
{
    int calls = 0;
    cl_dev *d = open_with((wf_open_params){.no_kernel_cache = true, .on_progress = count, .user = &calls});
    bench b = bench_new(d);
    assert_ok(run_small(&b));
    assert_true(d->ref.quirks.no_child || d->child.pid > 0);
    assert_true(calls > 0);
    bench_free(&b);
    shut(d);
}

static void compiler_error(void **state)
{
    void *bin = NULL;
    size_t size = 0;
    cl_dev *d = open_with((wf_open_params){.no_kernel_cache = true});
    if (!d->ref.quirks.no_child) {
        assert_int_equal(wf_cl_child_build(d, "kernel nonsense", "-cl-std=CL1.2", &bin, &size), CL_CHILD_FAILED);
        assert_says("CL_BUILD_PROGRAM_FAILURE");
        const char *good = "__kernel void f(__global int *x) { *x = 1; }"; /* it goes on after that */
        assert_int_equal(wf_cl_child_build(d, good, "-cl-std=CL1.2", &bin, &size), CL_CHILD_OK);
        free(bin);
    }
    shut(d);
}

SUITE(cl_child, need_device, NULL, CASE(ends), CASE(crashes), CASE(hangs), CASE(hangs_until_stopped),
      CASE(talks_nonsense), CASE(is_missing), CASE(works), CASE(compiler_error))
