/* icd_engine: an engine on the driver that counts. Once it is open it creates nothing on the device: no queue, program,
 * kernel or memory, whatever its steps hold. Swapped-out pages go to memory of the host, which does not count. If a
 * command on one of its queues fails or never ends, all requests end with the error, however many nano-batches steps
 * have. `test_icd_engine FAKE_ICD.so [--lose FAULT NANO_BATCHES]`: the latter is one life of an engine in a process of
 * its own, which work that never ends keeps busy. */
#include <weft/debug.h>

#include <spawn.h>
#include <sys/wait.h>

#include "fault/fake_icd.h"
#include "support/build_once.h"
#include "support/skip.h"
#include "support/suite.h"

enum { MOST = 24, WATCHDOG_MS = 3000 /* many times what a step takes */ };

static const char *self, *library;
static fake_icd icd;
static struct weft_model *model;
static struct weft_engine *engine;

static void submit(const char *prompt, uint32_t answer, int i, struct weft_request **out)
{
    struct weft_request_params p = {.prompt = prompt, .max_tokens = answer, .ignore_eos = true,
                                    .sampling = {.temperature = i % 3 ? 1 : 0, .repeat_penalty = i % 4 ? 1 : 1.1f}};
    if (weft_submit(engine, &p, out)) fail_msg("%s", weft_last_error());
}

static void end(struct weft_request *r)
{
    if (weft_wait(r, 0)) fail_msg("%s", weft_last_error());
    weft_request_free(r);
}

/* n together, so that steps hold prompts beside decodes. */
static void run_together(const char *prompt, uint32_t answer, int n)
{
    struct weft_request *r[MOST];
    for (int i = 0; i < n; i++) submit(i % 2 ? prompt : "The sun was", answer + (uint32_t)i % 5, i, &r[i]);
    for (int i = 0; i < n; i++) end(r[i]);
}

static void run_alone(const char *prompt, uint32_t answer, int n)
{
    for (int i = 0; i < n; i++) run_together(prompt, answer, 1);
}

static void open_engine(struct weft_engine_params p)
{
    p.device = "opencl:0.0", p.tier = "base", p.tuned = "none";
    if (weft_engine_open(model, &p, &engine)) fail_msg("%s", weft_last_error());
}

static struct weft_stats close_engine(uint64_t before)
{
    struct weft_stats stats;
    weft_engine_stats(engine, &stats);
    assert_int_equal(icd.created() - before, 0);
    weft_engine_close(engine);
    return stats;
}

/* Short ones first, so that all seem to be short; then many at once, of which some must be swapped out. */
static void nothing_is_created_for_many_sequences(void **state)
{
    open_engine((struct weft_engine_params){.context = 64, .n_seqs = 4, .kv_seqs = 1, .max_batched_tokens = 16});
    uint64_t before = icd.created();
    run_alone("The sun was", 1, MOST);
    run_together("One day a cat", 40, 8);
    assert_true(close_engine(before).swapped_out_bytes > 0); /* or nothing was tried */
}

/* A kernel that cuts a row's keys into chunks needs more scratch memory with each of them. */
static void nothing_is_created_for_long_prompts(void **state)
{
    static char prompt[1600];
    while (strlen(prompt) + 8 < sizeof prompt) strcat(prompt, "One day ");
    open_engine((struct weft_engine_params){.context = 512, .n_seqs = 3, .max_batched_tokens = 24, .nano_batches = 2,
                                            .debug = &(struct weft_debug){.force = "attention=decode_split"}});
    uint64_t before = icd.created();
    run_alone("The sun was", 2, 1);
    run_together(prompt, 12, 3);
    assert_true(close_engine(before).scratch_bytes > 100 << 10); /* more than without chunks */
}

/* Among copies in flight and threads that pack: the error is that of the copy, and all that was made is gone. */
static void a_load_that_fails_leaves_nothing(void **state)
{
    static const int nth[] = {1, 2, 9, 20};
    struct weft_engine_params p = {.device = "opencl:0.0", .tier = "base", .tuned = "none", .context = 64};
    for (size_t i = 0; i < sizeof nth / sizeof *nth; i++) {
        char fault[64];
        int before = icd.alive();
        snprintf(fault, sizeof fault, "clEnqueueWriteBuffer:fail=-4@%d", nth[i]); /* CL_MEM_OBJECT_ALLOCATION_FAILURE */
        icd.arm(fault);
        engine = NULL;
        assert_int_equal(weft_engine_open(model, &p, &engine), WEFT_ERR_NOMEM);
        assert_true(icd.hit());
        icd.arm(NULL);
        if (!strstr(weft_last_error(), "clEnqueueWriteBuffer")) fail_msg("%s", weft_last_error());
        assert_null(engine);
        assert_int_equal(icd.alive(), before);
    }
}

/* ---- a queue that fails ------------------------------------------------------------------------------------------ */

static void open_small(uint32_t nano_batches)
{
    open_engine((struct weft_engine_params){.context = 64, .n_seqs = 4, .max_batched_tokens = 16,
                                            .nano_batches = nano_batches, .watchdog_ms = WATCHDOG_MS});
}

/* A fault in the steps of up to four requests; returns with what all of them end. */
static enum weft_status fail_in_steps(const char *fault)
{
    enum { N = 4 };
    struct weft_request_params p = {.prompt = "One day a cat", .max_tokens = 12, .ignore_eos = true};
    struct weft_stats stats;
    struct weft_request *r[N];
    enum weft_status s = WEFT_OK;
    int n = 0;
    icd.arm(fault);
    while (n < N && weft_submit(engine, &p, &r[n]) == WEFT_OK) n++; /* it may have failed before the last one came */
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        enum weft_status each = weft_wait(r[i], 0);
        if (i && each != s) fail_msg("%s: request %d ends with %d, the ones before with %d", fault, i, each, s);
        s = each;
        weft_request_free(r[i]);
    }
    bool happened = icd.hit();
    icd.arm(NULL);
    if (!happened) fail_msg("%s did not happen", fault);
    weft_engine_stats(engine, &stats);
    assert_int_equal(stats.failed, s);
    assert_int_equal(stats.kv_pages_used, 0);
    assert_int_equal(weft_submit(engine, &(struct weft_request_params){.prompt = "a"}, NULL), s);
    return s;
}

/* Nano-batches have their attention on the second queue. */
static const struct { uint32_t nano_batches, queue; } queues[] = {{1, 1}, {2, 1}, {2, 2}, {3, 2}};

static void any_queue_fails(void **state)
{
    static const int nth[] = {1, 4, 30};
    for (size_t i = 0; i < sizeof queues / sizeof *queues * sizeof nth / sizeof *nth; i++) {
        char fault[80];
        size_t q = i % (sizeof queues / sizeof *queues);
        snprintf(fault, sizeof fault, "clEnqueueNDRangeKernel:fail=-36@%d/%u",
                 nth[i / (sizeof queues / sizeof *queues)], queues[q].queue); /* CL_INVALID_COMMAND_QUEUE */
        open_small(queues[q].nano_batches);
        assert_int_equal(fail_in_steps(fault), WEFT_ERR_DEVICE);
        weft_engine_close(engine);
    }
}

static int lose_once(const char *fault, uint32_t nano_batches)
{
    alarm(60); /* whatever hangs is a failure of the test, not of its time limit */
    open_small(nano_batches);
    enum weft_status s = fail_in_steps(fault);
    weft_engine_close(engine);
    _exit(s); /* without exit handlers: the driver's threads are stuck */
}

static void lose_on_queue(uint32_t nano_batches, uint32_t queue)
{
    extern char **environ;
    char fault[80], parts[8];
    int status = 0;
    pid_t pid;
    snprintf(fault, sizeof fault, "clEnqueueNDRangeKernel:lose@3/%u", queue);
    snprintf(parts, sizeof parts, "%u", nano_batches);
    char *argv[] = {(char *)self, (char *)library, "--lose", fault, parts, NULL};
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status)) fail_msg("%s, %u nano-batches: died of signal %d", fault, nano_batches, WTERMSIG(status));
    if (WEXITSTATUS(status) != WEFT_ERR_TIMEOUT)
        fail_msg("%s, %u nano-batches: status %d", fault, nano_batches, WEXITSTATUS(status));
}

static void any_queue_hangs(void **state)
{
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) lose_on_queue(queues[i].nano_batches, queues[i].queue);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CASE(a_load_that_fails_leaves_nothing),
        CASE(nothing_is_created_for_many_sequences), CASE(nothing_is_created_for_long_prompts), CASE(any_queue_fails),
        CASE(any_queue_hangs)};
    struct weft_device_info info = {0};
    self = argv[0], library = argc > 1 ? argv[1] : "";
    if (!fake_icd_open(library, &icd)) return fprintf(stderr, "usage: %s FAKE_ICD.so\n", argv[0]), 2;
    weft_devices(&info, 1);
    if (strncmp(info.id, "opencl", 6)) return skip_program("PoCL is missing");
    build_once(&info);
    if (weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &model))
        return fprintf(stderr, "%s\n", weft_last_error()), 1;
    if (argc > 4 && !strcmp(argv[2], "--lose")) return lose_once(argv[3], (uint32_t)atoi(argv[4]));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_model_close(model);
    return failed;
}
