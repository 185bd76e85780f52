/* icd_engine: an engine on the driver that fails on demand. Once it is open it creates no queue, program or kernel, preempted
 * sequences or not. Memory it may: scratch memory of queues grows, and swapped-out pages go to memory of the host that the driver
 * allocates. `test_icd_engine FAKE_ICD.so` */
#include <weft/weft.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fault/fake_icd.h"
#include "support/build_once.h"
#include "support/skip.h"

enum { SEQS = 4, REQUESTS = 8, ANSWER = 40 };

static fake_icd_arm_fn *arm;
static fake_icd_hit_fn *hit;
static struct weft_model *model;
static struct weft_engine *engine;

/* Short ones first, so that all seem to be short; then some must be swapped out. Each ends well. */
static void run_requests(void)
{
    struct weft_request *r[REQUESTS];
    for (int i = 0; i < 3 * REQUESTS; i++) {
        struct weft_request_params p = {.prompt = "The sun was", .max_tokens = 1, .ignore_eos = true};
        assert_int_equal(weft_submit(engine, &p, &r[0]), WEFT_OK);
        if (weft_wait(r[0], 0)) fail_msg("%s", weft_last_error());
        weft_request_free(r[0]);
    }
    for (int i = 0; i < REQUESTS; i++) {
        struct weft_request_params p = {.prompt = i % 2 ? "One day a cat" : "The sun was", .max_tokens = ANSWER, .ignore_eos = true,
                                        .sampling = {.temperature = i % 3 ? 1 : 0, .repeat_penalty = i % 4 ? 1 : 1.1f}};
        assert_int_equal(weft_submit(engine, &p, &r[i]), WEFT_OK);
    }
    for (int i = 0; i < REQUESTS; i++) {
        if (weft_wait(r[i], 0)) fail_msg("%s", weft_last_error());
        weft_request_free(r[i]);
    }
}

static void nothing_is_created_after_the_start(void **state)
{
    static const char *const faults[] = {"clCreateCommandQueue:fail=-6", "clCreateKernel:fail=-6", "clCreateProgramWithSource:fail=-6",
                                         "clCreateProgramWithBinary:fail=-6", "clBuildProgram:fail=-11"};
    struct weft_engine_params p = {.device = "opencl:0.0", .tier = "base", .context = 64, .n_seqs = SEQS, .kv_seqs = 1, .max_batched_tokens = 16, .tuned = "none"};
    struct weft_stats stats;
    (void)state;
    arm("clCreateBuffer:fail=-4@1000000");
    if (weft_engine_open(model, &p, &engine)) fail_msg("%s", weft_last_error());
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        arm(faults[i]);
        run_requests();
        if (hit()) fail_msg("%s: it was called", faults[i]);
    }
    arm(NULL);
    weft_engine_stats(engine, &stats);
    assert_true(stats.swapped_out_bytes > 0); /* or nothing was tried */
    weft_engine_close(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_created_after_the_start)};
    struct weft_device_info info = {0};
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib) return fprintf(stderr, "usage: %s FAKE_ICD.so\n", argv[0]), 2;
    arm = (fake_icd_arm_fn *)dlsym(lib, "fake_icd_arm");
    hit = (fake_icd_hit_fn *)dlsym(lib, "fake_icd_hit");
    weft_devices(&info, 1);
    if (strncmp(info.id, "opencl", 6)) return skip_program("PoCL is missing");
    build_once(&info);
    if (weft_model_open(&(struct weft_model_params){0}, &model)) return fprintf(stderr, "%s\n", weft_last_error()), 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_model_close(model);
    return failed;
}
