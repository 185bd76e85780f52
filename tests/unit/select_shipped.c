/* Shipped tuning files: each is read as its own device would read it, has that device's name, coefficients that the
 * backend knows, and rows that name kernels which exist and were measured with the kernels of this version. The
 * defaults likewise. No device is needed. */
#include "unit/cl_test.h"

#include "base/file.h"
#include "select/tuned.h"
#include "support/suite.h"

static const wf_dev_fns offline_fns = {
    .supports = wf_cl_supports, .rank = wf_cl_rank, .variants = wf_cl_variants, .set_costs = wf_cl_set_costs};

static void read_text(const char *path, char **out)
{
    size_t size;
    assert_ok(wf_read_file(path, 1 << 20, out, &size));
}

/* What stands behind `title` in a line of its own; a file without it is another device's, which reading says. */
static void head(const char *text, const char *title, char *out, size_t cap)
{
    const char *at = strstr(text, title);
    if (at) snprintf(out, cap, "%.*s", (int)strcspn(at + strlen(title), "\n"), at + strlen(title));
}

/* The device as the head of the file has it. */
static struct weft_device_info info_of(const char *text)
{
    struct weft_device_info info = {0};
    char units[16] = "";
    head(text, "\ndevice ", info.name, sizeof info.name);
    head(text, "\nplatform ", info.platform, sizeof info.platform);
    head(text, "\nunits ", units, sizeof units);
    info.compute_units = (uint32_t)strtoul(units, NULL, 10);
    return info;
}

/* Files of GPUs are called by the device alone, those of CPUs by all of the head. */
static void check_name(const char *name, struct weft_device_info info)
{
    char gpu[160], cpu[160];
    size_t n = strlen(name) - 5;
    info.type = WEFT_DEVICE_GPU, wf_device_slug(&info, gpu, sizeof gpu);
    info.type = WEFT_DEVICE_CPU, wf_device_slug(&info, cpu, sizeof cpu);
    bool fits = (strlen(gpu) == n && !strncmp(name, gpu, n)) || (strlen(cpu) == n && !strncmp(name, cpu, n));
    if (!fits) fail_msg("tuned/%s should be %s.tune or, of a CPU, %s.tune", name, gpu, cpu);
}

/* A device that offers the kernels of that platform; close it with shut_platform(). */
static wf_dev *open_platform(const char *platform)
{
    static cl_dev opencl;
    wf_dev *cpu;
    memset(&opencl, 0, sizeof opencl);
    opencl.base.fns = &offline_fns;
    if (strcmp(platform, "weft cpu")) return &opencl.base;
    assert_ok(wf_dev_open("cpu", &(wf_open_params){.threads = 1}, &cpu));
    return cpu;
}

static void shut_platform(wf_dev *d)
{
    if (d->fns != &offline_fns) wf_dev_close(d);
}

static void check_rows(wf_dev *d, const wf_tuned_table *t, const char *path)
{
    for (const wf_tuned_row *r = t->rows; r < t->rows + t->n; r++)
        for (uint32_t i = 0; i < r->n_steps; i++)
            if (strcmp(r->step[i].variant, WF_TUNED_AUTO) &&
                wf_variant_find(d, wf_tuned_kinds[r->kind].op, r->step[i].variant) < 0)
                fail_msg("%s: there is no kernel %s; on that device, run `weft tune` again", path, r->step[i].variant);
    if (t->n && t->kernels != wf_tuned_kernels(d))
        fail_msg("%s was measured with other kernels (%08x) than there are now (%08x): on that device, run `weft tune "
                 "--shape ... -f %s` for its shapes, or "
                 "take its rows and `kernels` out",
                 path, t->kernels, wf_tuned_kernels(d), path);
}

static void check_file(const char *name)
{
    char path[300], *text = NULL;
    wf_tuned_table t;
    snprintf(path, sizeof path, "tuned/%s", name);
    read_text(path, &text);
    struct weft_device_info info = info_of(text);
    if (wf_tuned_parse(text, &info, &t)) fail_msg("%s: %s", path, wf_error());
    check_name(name, info);
    wf_dev *d = open_platform(info.platform);
    if (d->fns->set_costs(d, t.costs, t.n_costs)) fail_msg("%s: %s", path, wf_error());
    check_rows(d, &t, path);
    shut_platform(d);
    wf_tuned_free(&t);
    free(text);
}

static void files_are_of_their_devices(void **state)
{
    int found = 0;
    DIR *dir = opendir("tuned");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n > 5 && !strcmp(e->d_name + n - 5, ".tune")) check_file(e->d_name), found++;
    }
    closedir(dir);
    assert_true(found >= 2);
}

static wf_call some_product(void)
{
    static wf_buf stand_in = {NULL, UINT64_MAX, NULL};
    wf_call c = {.op = WF_OP_GEMM};
    c.in[WF_GEMM_X] = (wf_view){&stand_in, 0, 4, 64, 64, WF_F32, 0},
    c.in[WF_GEMM_W] = (wf_view){&stand_in, 0, 32, 64, 64, WF_F32, 0};
    c.out[WF_GEMM_Y] = (wf_view){&stand_in, 0, 4, 32, 32, WF_F32, 0};
    return c;
}

/* They say what a device reaches, so that every kernel has an expected time. */
static void defaults_are_whole(void **state)
{
    static const struct {
        const char *path, *platform;
    } defaults[] = {{"tuned/default/opencl-gpu.tune", "any"},
                    {"tuned/default/opencl-cpu.tune", "any"},
                    {"tuned/default/cpu.tune", "weft cpu"}};
    wf_call c = some_product();
    for (size_t i = 0; i < WF_LEN(defaults); i++) {
        wf_tuned_table t;
        wf_candidate_kernel all[64];
        char *text = NULL;
        read_text(defaults[i].path, &text);
        if (wf_tuned_parse(text, NULL, &t)) fail_msg("%s: %s", defaults[i].path, wf_error());
        wf_dev *d = open_platform(defaults[i].platform);
        if (d->fns == &offline_fns) ((cl_dev *)d)->ref.caps = (cl_caps){.max_group = 256, .units = 2};
        if (d->fns->set_costs(d, t.costs, t.n_costs)) fail_msg("%s: %s", defaults[i].path, wf_error());
        size_t n = d->fns->rank(d, &c, NULL, all, WF_LEN(all));
        assert_true(n > 1 && !t.n);
        for (size_t k = 0; k < n; k++) assert_true(all[k].us > 0);
        shut_platform(d);
        wf_tuned_free(&t);
        free(text);
    }
}

/* Without the device's rates the coefficients of a kernel say nothing: its time is unknown, not the shortest. */
static void unknown_times_are_not_the_shortest(void **state)
{
    static const char *const of[][2] = {{"any", "gemm/naive"}, {"weft cpu", "gemm/ref"}};
    wf_call c = some_product();
    for (size_t i = 0; i < WF_LEN(of); i++) {
        wf_candidate_kernel before[64], after[64];
        wf_cost costs[] = {{.name = "memory", .value = 0.5}, {.name = "compute", .value = 0.5}};
        wf_dev *d = open_platform(of[i][0]);
        if (d->fns == &offline_fns) ((cl_dev *)d)->ref.caps = (cl_caps){.max_group = 256, .units = 2};
        size_t n = d->fns->rank(d, &c, NULL, before, WF_LEN(before));
        for (size_t k = 0; k < WF_LEN(costs); k++) wf_copy(costs[k].of, sizeof costs[k].of, of[i][1]);
        assert_ok(d->fns->set_costs(d, costs, WF_LEN(costs)));
        assert_int_equal(d->fns->rank(d, &c, NULL, after, WF_LEN(after)), n);
        assert_true(n > 1 && after[0].us == 0);
        for (size_t k = 0; k < n; k++) assert_int_equal(after[k].variant, before[k].variant);
        assert_string_not_equal(wf_variant_at(d, WF_OP_GEMM, before[0].variant)->name, of[i][1] + strlen("gemm/"));
        shut_platform(d);
    }
}

SUITE(select_shipped, NULL, NULL, CASE(files_are_of_their_devices), CASE(defaults_are_whole),
      CASE(unknown_times_are_not_the_shortest))
