/* A driver that fails, crashes, hangs or loses work, at every call: each ends in the next variant or in a
 * clear error; results that come are right, nothing leaks, and the next run without a fault works.
 * Uses fake_icd through OCL_ICD_VENDORS. `test_icd_faults FAKE_ICD.so [--load]`; --load is one run in a
 * process of its own, for what kills it. */
#include <spawn.h>
#include <sys/wait.h>

#include "verify/check.h"
#include "select/select.h"
#include "verify/bind.h"
#include "fault/fake_icd.h"
#include "support/said.h"
#include "support/skip.h"

#define N_CASES 2

static fake_icd icd;
static char cache[] = "/tmp/weft-fault-XXXXXX";
static const char *self, *library;
static wf_dev *reference;
static wf_check *problems[N_CASES + 1]; /* the last one: a test's own */

/* Of weft; PoCL does not expect its own to go while it runs. */
static void clear_cache(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/weft", cache);
    remove_folder_at(path);
}

/* Faults are to meet self-tests, too; also in processes of run_self(), which have the cache from their environment. */
static void forget_self_tests(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/weft/self-tests", getenv("XDG_CACHE_HOME"));
    remove_folder_at(path);
}

/* ---- one run: open, prepare and run two ops, close ------------------------------------------------------ */

static const wf_case cases[N_CASES] = {
    {.op = WF_OP_RMSNORM, .seed = 3, .in = WF_F32, .out = WF_F32, .m = 3, .k = 100},
    {.op = WF_OP_SILU_MUL, .seed = 4, .in = WF_F32, .out = WF_F32, .m = 3, .k = 50},
};

static weft_status make_call(const wf_check *k, wf_buf *buf, wf_call *c)
{
    uint64_t at = 0;
    wf_check_call(k, NULL, NULL, c);
    for (int i = 0; i < WF_MAX_IN + WF_MAX_OUT; i++) {
        wf_view *v = i < WF_MAX_IN ? &c->in[i] : &c->out[i - WF_MAX_IN];
        if (!v->rows) continue;
        v->buf = buf;
        v->offset = at;
        at += 8192;
    }
    return WEFT_OK;
}

static weft_status run_case(wf_dev *dev, wf_queue *q, wf_buf *buf, wf_check *k)
{
    wf_call c;
    int variant;
    wf_check_result r;
    WF_TRY(make_call(k, buf, &c));
    WF_TRY(wf_prepare(dev, &c, &variant));
    WF_TRY(wf_check_run(k, dev, q, variant, false, &r));
    if (!r.ok) fail_msg("a wrong result went unnoticed: %s", r.message);
    return WEFT_OK;
}

/* As a start does, so that faults meet it, too. */
static void build_ahead(wf_dev *dev, wf_buf *buf, int first, int n_cases)
{
    wf_call calls[N_CASES];
    for (int i = 0; i < n_cases; i++) make_call(problems[first + i], buf, &calls[i]);
    wf_bind_ahead(dev, calls, (size_t)n_cases);
}

static weft_status run_on(wf_dev *dev, int first, int n_cases)
{
    wf_queue *q = NULL;
    wf_buf *buf = NULL;
    weft_status s = wf_queue_create(dev, &q);
    if (!s) s = wf_buf_create(dev, 1 << 16, &buf);
    if (!s) build_ahead(dev, buf, first, n_cases);
    for (int i = 0; i < n_cases && !s; i++) s = run_case(dev, q, buf, problems[first + i]);
    wf_buf_destroy(buf);
    wf_queue_destroy(q);
    return s;
}

enum { PATIENT = 120000 }; /* ms for a build or a wait that is to end: sanitizers on a busy machine take long */

static weft_status run_cases(int n_cases, uint32_t watchdog_ms, bool *lost)
{
    wf_open_params p = {.tier = WF_TIER_MATRIX, .watchdog_ms = watchdog_ms, .tuned = "none"};
    wf_dev *dev = NULL;
    int before = icd.alive();
    *said = 0;
    forget_self_tests();
    weft_status s = wf_select_open("opencl:0.0", &p, &dev);
    if (!s) s = run_on(dev, 0, n_cases);
    *lost = dev && dev->lost;
    wf_dev_close(dev);
    if (s) assert_true(weft_last_error()[0] != 0);
    if (!*lost && icd.alive() != before) fail_msg("%d OpenCL objects leak", icd.alive() - before);
    return s;
}

/* With a fault in this process. */
static weft_status run_with(const char *fault, bool *lost)
{
    icd.arm(fault);
    weft_status s = run_cases(N_CASES, PATIENT, lost);
    bool happened = icd.hit();
    icd.arm(NULL);
    if (!happened) fail_msg("%s did not happen", fault);
    return s;
}

static void works(void)
{
    bool lost;
    icd.arm(NULL);
    if (run_cases(N_CASES, PATIENT, &lost)) fail_msg("without a fault: %s", weft_last_error());
}

/* ---- builds, in the helper process ------------------------------------------------------------------------- */

static weft_status run_with_helper(const char *fault, int n_cases, uint32_t watchdog_ms)
{
    bool lost;
    clear_cache();
    setenv("WEFT_FAKE_ICD", fault, 1);
    weft_status s = run_cases(n_cases, watchdog_ms, &lost);
    unsetenv("WEFT_FAKE_ICD");
    assert_false(lost);
    return s;
}

static void builds_that_crash(void **state)
{
    assert_int_equal(run_with_helper("clBuildProgram:crash", N_CASES, PATIENT), WEFT_ERR_DEVICE);
    assert_said("does not build");
    assert_non_null(strstr(weft_last_error(), "every kernel for rmsnorm"));
    works();
}

static void builds_that_hang(void **state)
{
    uint64_t start = wf_now_ns();
    assert_int_equal(run_with_helper("clBuildProgram:hang", 1, 1000), WEFT_ERR_DEVICE);
    assert_said("does not build");
    assert_true(wf_now_ns() - start < 30000000000u);
    works();
}

static void builds_that_fail(void **state)
{
    assert_int_equal(run_with_helper("clBuildProgram:fail=-11", N_CASES, PATIENT), WEFT_ERR_DEVICE);
    assert_int_equal(run_with_helper("clBuildProgram:fail=-11@1", N_CASES, PATIENT), WEFT_OK); /* the next variant */
    assert_said("does not build");
    works();
}

/* Too little of something for this kernel: the next variant runs instead, and the device stays. */
static void launches_that_ask_too_much(void **state)
{
    static const char *const faults[] = {"clEnqueueNDRangeKernel:fail=-5@1", "clEnqueueNDRangeKernel:fail=-54@1"};
    for (size_t i = 0; i < WF_LEN(faults); i++) {
        bool lost;
        assert_int_equal(run_with(faults[i], &lost), WEFT_OK);
        assert_false(lost);
        assert_said("cannot run");
    }
    works();
}

/* CLBlast builds in this process, and alone: our kernels come from the helper. Its refusal costs the variant, not the
 * device. */
static void products_that_clblast_refuses(void **state)
{
    static const wf_case product = {
        .op = WF_OP_GEMM, .seed = 5, .in = WF_F32, .weight = WF_F16, .out = WF_F32, .m = 3, .n = 5, .k = 64};
    wf_open_params p = {.tier = WF_TIER_MATRIX, .watchdog_ms = PATIENT, .force = "gemm=clblast", .tuned = "none"};
    int before = icd.alive();
    wf_dev *dev;
    wf_check *k;
    wf_call c;
    *said = 0;
    icd.arm("clCreateProgramWithSource:fail=-6");
    assert_int_equal(wf_check_new(reference, &product, &k), WEFT_OK);
    assert_int_equal(wf_select_open("opencl:0.0", &p, &dev), WEFT_OK);
    wf_check_call(k, NULL, NULL, &c);
    bool built_in = dev->fns->supports(dev, &c, wf_variant_find(dev, WF_OP_GEMM, "clblast"));
    problems[N_CASES] = k;
    weft_status s = run_on(dev, N_CASES, 1);
    bool happened = icd.hit(), lost = dev->lost;
    icd.arm(NULL);
    wf_check_free(k);
    wf_dev_close(dev);
    if (!built_in) SKIP_TEST("a build without CLBlast");
    assert_int_equal(s, WEFT_OK); /* by the next variant */
    assert_true(happened && !lost);
    assert_said("clblast cannot run, it is not used");
    assert_said("CLBlastSgemm(3, 5, 64): status -6 (CL_OUT_OF_HOST_MEMORY)");
    assert_int_equal(icd.alive(), before);
}

static void no_build_helper(void **state)
{
    bool lost;
    clear_cache();
    setenv("WEFT_CLBUILD", "/nonexistent", 1);
    assert_int_equal(run_with("clBuildProgram:fail=-11@1", &lost), WEFT_OK);
    assert_said("does not build");
    unsetenv("WEFT_CLBUILD");
}

/* ---- kept binaries --------------------------------------------------------------------------------------------- */

static void binaries_that_do_not_load(void **state)
{
    bool lost;
    clear_cache();
    works();
    assert_int_equal(run_with("clCreateProgramWithBinary:fail=-42@1", &lost), WEFT_OK);
    works();
}

static int run_self(const char *fault)
{
    extern char **environ;
    char *argv[] = {(char *)self, (char *)library, "--load", (char *)fault, NULL};
    pid_t pid;
    int status = 0;
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void binaries_that_crash(void **state)
{
    clear_cache();
    works();
    int status = run_self("clCreateProgramWithBinary:crash");
    assert_true(WIFSIGNALED(status));
    bool lost;
    assert_int_equal(run_cases(N_CASES, PATIENT, &lost), WEFT_OK); /* from source */
    assert_said("died while loading");
    assert_int_equal(run_self("clCreateProgramWithBinary:fail=-42@1000000"), 0);
}

/* ---- the n-th call of anything ----------------------------------------------------------------------------------- */

static uint64_t calls_of_a_run(void)
{
    works();
    icd.arm(NULL);
    bool lost;
    assert_int_equal(run_cases(N_CASES, PATIENT, &lost), WEFT_OK);
    return icd.calls();
}

static void sweep(int error)
{
    uint64_t n = calls_of_a_run(), errors = 0, survived = 0;
    assert_true(n > 100);
    for (uint64_t i = 1; i <= n; i++) {
        char fault[64];
        bool lost;
        snprintf(fault, sizeof fault, "any:fail=%d@%llu", error, (unsigned long long)i);
        icd.arm(fault);
        if (run_cases(N_CASES, PATIENT, &lost)) errors++;
        else survived++;
    }
    icd.arm(NULL);
    print_message("%llu calls fail with %d: %llu clear errors, %llu runs right all the same\n",
                  (unsigned long long)n, error, (unsigned long long)errors, (unsigned long long)survived);
    assert_true(errors > n / 4);
    works();
}

static void every_call_fails(void **state)
{
    sweep(-5); /* CL_OUT_OF_RESOURCES */
    sweep(-6); /* CL_OUT_OF_HOST_MEMORY */
}

static void every_call_fails_without_binaries(void **state)
{
    uint64_t n = calls_of_a_run();
    setenv("WEFT_CLBUILD", "/nonexistent", 1);
    for (uint64_t i = 1; i <= n; i += 1 + n / 40) { /* each one builds: a sample */
        char fault[64];
        bool lost;
        clear_cache();
        snprintf(fault, sizeof fault, "any:fail=-5@%llu", (unsigned long long)i);
        icd.arm(fault);
        run_cases(N_CASES, PATIENT, &lost);
    }
    unsetenv("WEFT_CLBUILD");
    works();
}

static void polls_fail(void **state)
{
    bool lost;
    assert_int_not_equal(run_with("clGetEventInfo:fail=-5@1", &lost), WEFT_OK);
    assert_int_not_equal(run_with("clGetEventInfo:fail=-5", &lost), WEFT_OK);
    works();
}

static void out_of_memory(void **state)
{
    for (int i = 1; i <= 4; i++) {
        char fault[64];
        bool lost;
        snprintf(fault, sizeof fault, "clCreateBuffer:fail=-4@%d", i);
        assert_int_equal(run_with(fault, &lost), WEFT_ERR_NOMEM);
        assert_false(lost);
    }
    works();
}

/* ---- devices that vanish ----------------------------------------------------------------------------------------- */

static void no_devices(void **state)
{
    wf_dev *dev = NULL;
    icd.arm("clGetDeviceIDs:fail=-1");
    assert_int_equal(wf_dev_open("opencl:0.0", NULL, &dev), WEFT_ERR_NODEVICE);
    assert_int_equal(wf_dev_open("gpu", NULL, &dev), WEFT_ERR_NODEVICE);
    assert_int_equal(wf_dev_open("auto", NULL, &dev), WEFT_OK);
    assert_string_equal(dev->info.id, "cpu");
    wf_dev_close(dev);
    icd.arm(NULL);
}

static void no_platforms(void **state)
{
    setenv("WEFT_FAKE_NO_PLATFORM", "1", 1);
    int status = run_self("none");
    unsetenv("WEFT_FAKE_NO_PLATFORM");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), WEFT_ERR_NODEVICE);
}

/* Work that never ends keeps threads of the driver busy for good: a process of its own. */
static void lost_work(void **state)
{
    static const char *const faults[] = {
        "clEnqueueNDRangeKernel:lose@1", "clEnqueueNDRangeKernel:lose@2", "clEnqueueNDRangeKernel:lose@3",
        "clEnqueueWriteBuffer:lose@2",   "clEnqueueReadBuffer:lose@1",    "clEnqueueFillBuffer:lose@3",
    };
    for (size_t i = 0; i < WF_LEN(faults); i++) {
        int status = run_self(faults[i]);
        if (!WIFEXITED(status)) fail_msg("%s: died of signal %d", faults[i], WTERMSIG(status));
        if (WEXITSTATUS(status) != WEFT_ERR_TIMEOUT) fail_msg("%s: status %d", faults[i], WEXITSTATUS(status));
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void prepare_problems(void)
{
    wf_open_params p = {.tier = WF_TIER_BASE, .threads = 1};
    assert_int_equal(wf_dev_open("cpu", &p, &reference), WEFT_OK);
    for (int i = 0; i < N_CASES; i++) assert_int_equal(wf_check_new(reference, &cases[i], &problems[i]), WEFT_OK);
}

static void forget_problems(void)
{
    for (int i = 0; i < N_CASES; i++) wf_check_free(problems[i]);
    wf_dev_close(reference);
}

/* Exit code: the status of the run. Without exit handlers, since the driver's threads may be stuck. */
static int load_once(const char *fault)
{
    bool lost;
    alarm(60); /* whatever hangs is a failure of the test, not of its time limit */
    icd.arm(fault);
    weft_status s = run_cases(N_CASES, 1500, &lost);
    if (s == WEFT_ERR_TIMEOUT && !lost) s = WEFT_ERR_INTERNAL;
    _exit(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CASE(builds_that_crash), CASE(builds_that_hang), CASE(builds_that_fail),
        CASE(launches_that_ask_too_much), CASE(products_that_clblast_refuses), CASE(no_build_helper),
        CASE(binaries_that_do_not_load), CASE(binaries_that_crash), CASE(every_call_fails),
        CASE(every_call_fails_without_binaries), CASE(polls_fail), CASE(out_of_memory), CASE(no_devices),
        CASE(no_platforms), CASE(lost_work)};
    struct weft_device_info info;
    self = argv[0];
    library = argc > 1 ? argv[1] : "";
    if (!fake_icd_open(library, &icd)) return fprintf(stderr, "usage: %s FAKE_ICD.so\n", argv[0]), 2;
    bool load = argc > 3 && !strcmp(argv[2], "--load");
    listen_to(WEFT_LOG_WARN);
    prepare_problems();
    if (load) return load_once(argv[3]);
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1)) return 1;
    wf_dev_list(&info, 1);
    if (strncmp(info.id, "opencl", 6)) return skip_program("PoCL is missing");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    forget_problems();
    remove_folder_at(cache);
    return failed;
}
