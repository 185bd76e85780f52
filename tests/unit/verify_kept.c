/* Self-tests that were passed at an earlier start: what is taken for passed, and what is tested again (of damaged
 * entries the cache has none: cl_cache). Each start is a null
 * device of its own with a kernel that claims to be the same one. */
#include "unit/verify_null.h"

#include <glob.h>
#include <sys/stat.h>

#include "base/cache.h"
#include "base/file.h"
#include "support/fresh_cache.h"
#include "support/suite.h"

static const char *cache;
static const wf_dev_fns *null_fns;
static const char *id = "kernel"; /* NULL: unknown */

static bool kernel_id(wf_dev *dev, const wf_bound *b, char *buf, size_t cap)
{
    wf_copy(buf, cap, id ? id : "");
    return id;
}

static int set_up(void **state)
{
    cache = fresh_cache();
    right_from = 0;
    wrong_value = 1e9f;
    id = "kernel";
    return 0;
}

static int tear_down(void **state)
{
    forget_cache(cache);
    return 0;
}

/* What a start found: self-tests run, self-tests taken for passed, and the variant that it chose. */
typedef struct found {
    unsigned tested, before;
    int variant;
} found;

static found start_with(void (*change)(fixture *))
{
    found r = {.variant = -1};
    fixture f = open_null((wf_null_config){.variants = 2});
    wf_dev_fns fns = *f.dev->fns;
    null_fns = f.dev->fns;
    fns.kernel_id = kernel_id;
    f.dev->fns = &fns;
    if (change) change(&f);
    assert_ok(wf_prepare(f.dev, &f.call, &r.variant));
    r.tested = f.dev->kernel_work.tested;
    r.before = f.dev->kernel_work.tested_before;
    assert_int_equal(r.tested, computed);
    f.dev->fns = null_fns;
    end(&f);
    return r;
}

static void assert_start(void (*change)(fixture *), unsigned tested, unsigned before, int variant)
{
    found r = start_with(change);
    assert_int_equal(r.tested, tested);
    assert_int_equal(r.before, before);
    assert_int_equal(r.variant, variant);
}

/* The entries, `n` of them. */
static void find_entries(glob_t *g, size_t n)
{
    char pattern[400];
    snprintf(pattern, sizeof pattern, "%s/weft/self-tests/*", cache);
    int s = glob(pattern, 0, NULL, g);
    assert_int_equal(s == GLOB_NOMATCH ? 0 : g->gl_pathc, n);
}

static void assert_entries(size_t n)
{
    glob_t g = {0};
    find_entries(&g, n);
    globfree(&g);
}

static void a_second_start_tests_nothing(void **state)
{
    assert_start(NULL, 1, 0, 0);
    for (int i = 0; i < 2; i++) assert_start(NULL, 0, 1, 0);
    assert_string_equal(said, "");
    assert_entries(1);
}

/* ---- what changes a verdict -------------------------------------------------------------------------------------- */

static void new_driver(fixture *f) { wf_copy(f->dev->info.driver, sizeof f->dev->info.driver, "580.1"); }
static void new_device(fixture *f) { wf_copy(f->dev->info.name, sizeof f->dev->info.name, "another"); }
static void new_version(fixture *f) { wf_copy(f->dev->info.version, sizeof f->dev->info.version, "another"); }
static void new_platform(fixture *f) { wf_copy(f->dev->info.platform, sizeof f->dev->info.platform, "another"); }
static void new_features(fixture *f) { wf_copy(f->dev->info.features, sizeof f->dev->info.features, "another"); }
static void new_units(fixture *f) { f->dev->info.compute_units++; }
static void new_tier(fixture *f) { f->dev->params.tier = WF_TIER_MATRIX; }
static void new_threads(fixture *f) { f->dev->params.threads = 1; }
static void new_limit(fixture *f) { f->dev->params.max_alloc = 1 << 20; }
static void other_variant(fixture *f) { f->call.variant = 1; }

static void fewer_columns(fixture *f)
{
    f->call.in[0].cols = 100;
    f->call.out[0].cols = 50;
}

static void fewer_rows(fixture *f)
{
    f->call.in[0].rows = f->call.out[0].rows = 2;
}

static void any_change_tests_again(void **state)
{
    static void (*const changes[])(fixture *) = {new_driver,   new_device,    new_version,   new_platform,
                                                 new_features, new_units,     new_tier,      new_threads,
                                                 new_limit,    other_variant, fewer_columns, fewer_rows};
    assert_start(NULL, 1, 0, 0);
    for (size_t i = 0; i < WF_LEN(changes); i++) {
        assert_int_equal(start_with(changes[i]).tested, 1);
        assert_int_equal(start_with(changes[i]).tested, 0);
    }
    assert_start(NULL, 0, 1, 0);
}

static void another_kernel_is_tested(void **state)
{
    assert_start(NULL, 1, 0, 0);
    id = "changed";
    assert_start(NULL, 1, 0, 0);
    assert_start(NULL, 0, 1, 0);
}

/* As after an update of weft: the entry is what another build wrote. */
static void another_build_tests_again(void **state)
{
    glob_t g = {0};
    char *data, folder[400];
    size_t n, header = 32;
    assert_start(NULL, 1, 0, 0);
    find_entries(&g, 1);
    assert_ok(wf_read_file(g.gl_pathv[0], 1 << 20, &data, &n));
    uint64_t key_size;
    memcpy(&key_size, data + 8, sizeof key_size);
    assert_string_equal(data + header + key_size, wf_build_id()); /* wf_read_file ends it with a NUL */
    data[header + key_size] = 0;
    wf_cache_key k = wf_cache_key_of("%s", data + header);
    snprintf(folder, sizeof folder, "%s/weft/self-tests", cache);
    wf_cache_put(folder, &k, "0123456789", 10);
    assert_start(NULL, 1, 0, 0);
    assert_start(NULL, 0, 1, 0);
    assert_entries(1); /* the new build's replaced the old one's */
    free(k.text);
    free(data);
    globfree(&g);
}

static void the_build_has_an_id(void **state)
{
    assert_int_equal(strlen(wf_build_id()), 40);
    assert_int_equal(strspn(wf_build_id(), "0123456789abcdef"), 40);
}

/* ---- what is not kept -------------------------------------------------------------------------------------------- */

static void failures_are_tested_at_each_start(void **state)
{
    right_from = 1;
    assert_start(NULL, 2, 0, 1);
    assert_entries(1);
    assert_start(NULL, 1, 1, 1);
    assert_said("silu_mul kernel null computes wrong results");
    right_from = 0; /* a driver that was repaired under the same name */
    assert_start(NULL, 1, 0, 0);
}

static void unknown_kernels_are_not_kept(void **state)
{
    id = NULL;
    for (int i = 0; i < 2; i++) assert_start(NULL, 1, 0, 0);
    assert_entries(0);
}

static void no_cache(fixture *f)
{
    f->dev->params.no_kernel_cache = true;
}

static void tested_on_request(void **state)
{
    for (int i = 0; i < 2; i++) assert_start(no_cache, 1, 0, 0);
    assert_entries(0);
    assert_start(NULL, 1, 0, 0);
    assert_start(no_cache, 1, 0, 0);
    assert_start(NULL, 0, 1, 0);
}

static void a_pass_ends_with_a_failure(void **state)
{
    assert_start(NULL, 1, 0, 0);
    right_from = 1; /* as of a card that breaks: a start that tests nothing cannot know */
    assert_start(NULL, 0, 1, 0);
    assert_start(no_cache, 2, 0, 1);
    assert_start(NULL, 2, 0, 1);
}

/* ---- what is found on disk --------------------------------------------------------------------------------------- */

/* A file where the folder should be: root, too, cannot write there. */
static void without_a_folder_each_start_tests(void **state)
{
    char path[400];
    snprintf(path, sizeof path, "%s/weft", cache);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/self-tests");
    write_text(path, "");
    for (int i = 0; i < 2; i++) assert_start(NULL, 1, 0, 0);
    assert_string_equal(said, "");
}

/* Nothing can be added, but what is there counts. */
static void a_folder_that_is_only_read(void **state)
{
    char path[400];
    assert_start(NULL, 1, 0, 0);
    snprintf(path, sizeof path, "%s/weft/self-tests", cache);
    assert_int_equal(chmod(path, 0500), 0);
    bool root = geteuid() == 0;
    assert_start(NULL, 0, 1, 0);
    for (int i = 0; i < 2; i++) assert_int_equal(start_with(fewer_columns).tested, !(root && i));
    assert_string_equal(said, "");
    assert_int_equal(chmod(path, 0700), 0);
}

SUITE_EACH(verify_kept, NULL, NULL, set_up, tear_down, CASE(a_second_start_tests_nothing), CASE(any_change_tests_again),
           CASE(another_kernel_is_tested), CASE(another_build_tests_again), CASE(failures_are_tested_at_each_start),
           CASE(unknown_kernels_are_not_kept), CASE(tested_on_request), CASE(a_pass_ends_with_a_failure),
           CASE(without_a_folder_each_start_tests), CASE(a_folder_that_is_only_read), CASE(the_build_has_an_id))
