/* shipped_plans: the plans in tuned/plans are of devices and models that weft builds graphs for as they did when they
 * were measured; and a build without CBC takes such plans, where nothing is kept. For that this program runs once more
 * from a folder that looks as if weft were installed there. */
#include "base/file.h"
#include "plan/milp.h"
#include "select/select.h"
#include "kept/plans.h"
#include "select/tuned.h"
#include "support/kept_plan.h"
#include "lab/lab.h"
#include "support/suite.h"

/* ---- what is shipped --------------------------------------------------------------------------------------------- */

static const struct {
    const char *device, *shape, *type;
} measured[] = {{"NVIDIA H100 80GB HBM3", "llama3-8b", "F16"}, {"NVIDIA H200", "llama3-8b", "F16"}};

/* A GPU with NVIDIA's matrix units, as far as graphs depend on it. */
static wf_dev *open_as(const char *name)
{
    wf_dev *dev;
    assert_ok(wf_select_open("null", &(wf_open_params){.tier = WF_TIER_MATRIX}, &dev));
    wf_copy(dev->info.name, sizeof dev->info.name, name);
    dev->info.type = WEFT_DEVICE_GPU;
    dev->act = WF_F16;
    dev->stack_weights = WF_STACK_MIXED;
    dev->has_fused_gemm = dev->has_fused_router = true;
    return dev;
}

static void graph_of(const struct weft_model *m, const wf_dev *dev, wf_graph *g)
{
    wf_weights w = {0};
    wf_build_params b = wf_build_params_of(dev, 1024, 16);
    if (wf_model_build(m->arch, m->file, &m->hp, &b, g, &w) || wf_graph_fuse(g, dev) || wf_graph_end(g))
        fail_msg("%s", wf_error());
    wf_weights_free(&w);
}

/* Its file is there, and is read as an engine would. */
static void check_measured(size_t i)
{
    char name[200], path[1100];
    struct weft_model *m;
    wf_graph g;
    wf_plans plans;
    wf_dev *dev = open_as(measured[i].device);
    assert_ok(weft_model_open(&(struct weft_model_params){.shape = measured[i].shape, .type = measured[i].type}, &m));
    graph_of(m, dev, &g);
    assert_ok(wf_shipped_plans_name(dev, &g, name, sizeof name));
    snprintf(path, sizeof path, "tuned/%s",
             name); /* of the source tree: where this build lies decides whether the program finds it */
    if (access(path, R_OK)) fail_msg("%s is not there: %s, %s", path, measured[i].device, measured[i].shape);
    assert_ok(wf_plans_load(&g, path, &plans));
    assert_true(plans.n > 0);
    dev->params.deterministic = true; /* was not measured */
    wf_plans none;
    assert_ok(wf_shipped_plans(dev, &g, &none, path, sizeof path));
    assert_int_equal(none.n, 0);
    wf_plans_free(&plans);
    wf_graph_free(&g);
    weft_model_close(m);
    wf_dev_close(dev);
}

static void test_tuned(void **state)
{
    size_t files = 0;
    DIR *d = opendir("tuned/plans");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) files += strstr(e->d_name, ".plan") != NULL;
    closedir(d);
    for (size_t i = 0; i < WF_LEN(measured); i++) check_measured(i);
    assert_int_equal(files, WF_LEN(measured)); /* others would be of graphs that no model has any more */
}

/* ---- an engine --------------------------------------------------------------------------------------------------- */

static char home[64];

static struct weft_engine *open_engine(struct weft_model *m, uint32_t nano_batches)
{
    struct weft_engine *e;
    struct weft_engine_params p = {
        .device = "null", .n_seqs = 4, .context = 64, .max_batched_tokens = 16, .nano_batches = nano_batches};
    assert_ok(weft_engine_open(m, &p, &e));
    return e;
}

static struct weft_model *open_demo(void)
{
    struct weft_model *m;
    assert_ok(weft_model_open(&(struct weft_model_params){.path = WEFT_DEMO}, &m));
    return m;
}

/* As the installed program: says where its plans come from. */
static int run_installed(void)
{
    struct weft_model *m = open_demo();
    struct weft_engine *e = open_engine(m, 0);
    printf("%zu plans, %s\n", e->layout.plans.n, weft_engine_plan_source(e));
    weft_engine_close(e);
    weft_model_close(m);
    return 0;
}

static void expect_installed(size_t n, const char *words)
{
    char command[128], said[512] = "", want[256];
    snprintf(command, sizeof command, "%s/bin/weft shipped_plans installed 2>&1", home);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    assert_int_equal(pclose(f), 0);
    snprintf(want, sizeof want, "%zu plans, ", n);
    if (!strstr(said, want) || !strstr(said, words)) fail_msg("%s instead of: %s%s", said, want, words);
}

/* Plans of the null device for the demo model, or those bytes, where an installation has them. */
static void ship(uint32_t nano_batches, const char *bytes)
{
    char name[200], path[300];
    struct weft_model *m = open_demo();
    struct weft_engine *e = open_engine(m, nano_batches);
    assert_ok(wf_shipped_plans_name(e->dev, &e->layout.graph, name, sizeof name));
    snprintf(path, sizeof path, "%s/share/weft/tuned/%s", home, name);
    assert_ok(keep_plans(e, path));
    FILE *f = bytes ? fopen(path, "w") : NULL;
    if (bytes) fputs(bytes, f), fclose(f);
    weft_engine_close(e);
    weft_model_close(m);
}

static void test_installed(void **state)
{
    bool without = !wf_milp_available();
    const char *never = "sequential: never measured here";
    expect_installed(1, never);
    ship(2, NULL);
    expect_installed(without ? 4 : 1, without ? "the fastest that was found on such a device (shipped)" : never);
    ship(1, NULL);
    expect_installed(1, without ? "sequential: nothing faster was found on such a device (shipped)" : never);
    ship(1, "weft-plan 2\nonce nothing 0-end queue 0 kernel auto groups 0\n");
    expect_installed(1, without ? "cannot be used" : never);
}

static int setup(void **state)
{
    char command[700], exe[400];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    snprintf(home, sizeof home, "/tmp/weft-shipped-XXXXXX");
    if (n <= 0 || !mkdtemp(home) || setenv("XDG_CACHE_HOME", home, 1)) return -1;
    exe[n] = 0;
    snprintf(command, sizeof command, "mkdir -p %s/bin %s/share/weft/tuned/plans && cp '%s' %s/bin/weft", home, home,
             exe, home);
    return system(command);
}

static int teardown(void **state)
{
    return remove_folder_at(home);
}

SUITE_MAIN(shipped_plans)
{
    const struct CMUnitTest tests[] = {CASE(test_tuned), CASE(test_installed)};
    if (argc > 1 && !strcmp(argv[1], "installed")) return run_installed();
    return cmocka_run_group_tests(tests, setup, teardown);
}
