/* Compiling side by side: programs end in the kernel cache, where binding finds them; a helper that dies or hangs costs
 * no more than time; and no process or descriptor is left. */
#include "unit/cl_test.h"

#include <errno.h>
#include <sys/wait.h>

#include "verify/bind.h"
#include "support/suite.h"

enum { N = 4, PROGRAMS = 3 };

static cl_dev *d;
static bench b;
static char cache[256], script[300];

static int set_up(void **state)
{
    snprintf(cache, sizeof cache, "%s", fresh_cache());
    return 0;
}

static int tear_down(void **state)
{
    wf_stop_by(NULL, NULL);
    unsetenv("WEFT_CLBUILD");
    if (*script) unlink(script);
    *script = 0;
    forget_cache(cache);
    return 0;
}

/* The helper is that shell text. */
static void use_helper(const char *text)
{
    char cwd[200];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(script, sizeof script, "%s/helper-XXXXXX", cwd);
    int fd = mkstemp(script);
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s\n", text);
    fchmod(fd, 0700);
    close(fd);
    setenv("WEFT_CLBUILD", script, 1);
}

static wf_call silu(uint32_t columns)
{
    wf_call c = small_call(&b);
    c.in[0].cols = c.in[0].stride = 2 * columns;
    c.out[0].cols = c.out[0].stride = columns;
    return c;
}

/* The last has the program of the first. */
static void make_calls(wf_call c[N])
{
    c[0] = silu(4), c[1] = silu(3), c[3] = silu(8);
    c[2] = (wf_call){.op = WF_OP_ARGMAX};
    c[2].in[0] = (wf_view){.buf = b.in, .rows = 1, .cols = 8, .stride = 8};
    c[2].out[0] = (wf_view){.buf = b.out, .rows = 1, .cols = 1, .stride = 1, .dtype = WF_I32};
}

/* Opens the device and compiles; returns how many programs. */
static uint32_t prebuild(wf_open_params p)
{
    wf_call calls[N];
    d = open_with(p);
    if (d->ref.quirks.no_child || d->ref.quirks.no_binaries || wf_core_count() < 2) {
        shut(d);
        SKIP_TEST("nothing is compiled side by side here");
    }
    b = bench_new(d);
    make_calls(calls);
    int before = files_in("/proc/self/fd", NULL, 0);
    wf_cl_prebuild(&d->base, calls, N);
    assert_int_equal(files_in("/proc/self/fd", NULL, 0), before);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    return d->base.kernel_work.prebuilt;
}

static void bind_all(void)
{
    wf_call calls[N];
    make_calls(calls);
    for (int i = 0; i < N; i++) {
        wf_bound bound;
        if (wf_cl_bind(&d->base, &calls[i], 0, &bound)) fail_msg("call %d: %s", i, wf_error());
    }
}

static void end(void)
{
    bench_free(&b);
    shut(d);
}

static double reached;
static void note(void *user, const char *what, double fraction)
{
    assert_string_equal(what, "compile");
    assert_true(fraction >= reached && fraction <= 1);
    reached = fraction;
}

static void binding_finds_them(void **state)
{
    reached = 0;
    assert_int_equal(prebuild((wf_open_params){.on_progress = note}), PROGRAMS);
    assert_true(reached == 1);
    d->base.params.on_progress = NULL;
    bind_all();
    assert_int_equal(d->base.kernel_work.built, 0);
    assert_int_equal(d->base.kernel_work.kept, PROGRAMS);
    end();
    assert_int_equal(prebuild((wf_open_params){0}), 0); /* they are there */
    end();
}

static void self_tests_find_theirs(void **state)
{
    wf_call calls[N];
    prebuild((wf_open_params){0});
    make_calls(calls);
    for (int i = 0; i < N; i++) calls[i].in[0].rows = calls[i].out[0].rows = 1, calls[i].signal = NULL;
    wf_bind_ahead(&d->base, calls, N);
    for (int i = 0; i < N; i++) {
        wf_binding bound;
        if (wf_bind(&d->base, &calls[i], &bound)) fail_msg("call %d: %s", i, wf_error());
    }
    assert_true(d->base.kernel_work.tested > 0);
    assert_int_equal(d->base.kernel_work.built, 0);
    bench_free(&b);
    wf_dev_close(&d->base); /* with what self-tests need */
}

/* As if it had never been tried: another helper builds them. */
static void nothing_is_lost(void)
{
    unsetenv("WEFT_CLBUILD");
    bind_all();
    assert_int_equal(d->base.kernel_work.built + d->base.kernel_work.kept, PROGRAMS);
    end();
}

static void helpers_that_die(void **state)
{
    use_helper("exit 3");
    assert_int_equal(prebuild((wf_open_params){0}), 0);
    nothing_is_lost();
}

static void helpers_that_hang(void **state)
{
    uint64_t start = wf_now_ns();
    use_helper("exec sleep 600");
    assert_int_equal(prebuild((wf_open_params){.watchdog_ms = 300}), 0);
    assert_true(wf_now_ns() - start < 60000000000u);
    d->base.params.watchdog_ms = 120000;
    nothing_is_lost();
}

/* The first does what the text says; once it is gone the others are real ones. Killed it may wait for its parent, but
 * without a program. */
static void use_first_helper(const char *does)
{
    char text[1200], real[300] = "";
    ssize_t n = readlink("/proc/self/exe", real, sizeof real - 1);
    assert_true(n > 0);
    *strrchr(real, '/') = 0;
    snprintf(text, sizeof text,
             "cd '%s'\nif mkdir first 2>/dev/null; then echo $$ >pid; mv pid first; %s; fi\nuntil [ -f first/pid ] && "
             "! [ -e /proc/$(cat first/pid)/exe ]; do sleep 0.05; done\n"
             "exec '%s/../../cl/weft-clbuild'",
             cache, does, real);
    use_helper(text);
}

/* With its program, and another one builds the others. */
static void a_helper_that_dies(void **state)
{
    use_first_helper("exit 3");
    assert_int_equal(prebuild((wf_open_params){0}), PROGRAMS - 1);
    nothing_is_lost();
}

/* It answers CL_OUT_OF_RESOURCES, and another one builds its program, too. */
static void a_helper_without_memory(void **state)
{
    use_first_helper("printf '1Cfw\\373\\377\\377\\377\\0\\0\\0\\0\\0\\0\\0\\0' >&0; exec sleep 600");
    assert_int_equal(prebuild((wf_open_params){0}), PROGRAMS);
    nothing_is_lost();
}

static char started[350];
static uint64_t stopped_at; /* 0: not yet */

static bool once_started(void *user)
{
    if (!stopped_at && !access(started, F_OK)) stopped_at = wf_now_ns();
    return stopped_at;
}

/* Makes a file once it runs, and never answers. It does so itself: a process of its own would outlive it. */
static void use_helper_that_tells(void)
{
    char text[400];
    snprintf(started, sizeof started, "%s/started", cache);
    snprintf(text, sizeof text, ": >'%s'\nexec sleep 600", started);
    use_helper(text);
}

/* While helpers are at work. */
static void stopped(void **state)
{
    use_helper_that_tells();
    wf_stop_by(once_started, NULL);
    assert_int_equal(prebuild((wf_open_params){0}), 0);
    assert_true(stopped_at);
    assert_true(wf_now_ns() - stopped_at < 30000000000u); /* of 60 s */
    end();
}

/* Where nothing is kept no helper is started: it would leave a file. */
static void no_cache(void **state)
{
    use_helper_that_tells();
    assert_int_equal(prebuild((wf_open_params){.no_kernel_cache = true}), 0);
    assert_true(access(started, F_OK) < 0);
    end();
}

SUITE_EACH(cl_prebuild, need_device, NULL, set_up, tear_down, CASE(binding_finds_them), CASE(self_tests_find_theirs),
           CASE(helpers_that_die), CASE(helpers_that_hang), CASE(a_helper_that_dies), CASE(a_helper_without_memory),
           CASE(stopped), CASE(no_cache))
